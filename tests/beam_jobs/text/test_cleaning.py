"""What cleaning removes, repairs and masks, and what it leaves alone."""

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amazon_electra.beam_jobs.text.cleaning import clean_text, repair_mojibake
from amazon_electra.beam_jobs.text.personal_data import mask_personal_data
from tests.beam_jobs.dumps import review, run_job, texts_in, write_lines


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("  two  spaces\tand\r\nlines ", "two spaces and lines"),
        ("Tom &amp; Jerry &#34;x&#34; &amp;#34;y&amp;#34; &eacute;", 'Tom & Jerry "x" "y" é'),
        ("one<br />two<BR>three <b>bold</b> <a href='x'>link</a>", "one two three bold link"),
        ("&#" + "9" * 5000 + "; here", "&#" + "9" * 5000 + "; here"),
        ("[[ASIN:B001   Two  Words]] [[ASIN:B001]] [[asin:b c]]", "Two Words c"),
        ("a < b and c > d, I <3 it", "a < b and c > d, I <3 it"),
        ("[[VIDEOID:abc123]] watch", "watch"),
        ("see [[ASIN:B001 The Lord of the Rings]] too", "see The Lord of the Rings too"),
        (
            "nul\x00 bell\x07 zero\u200bwidth \ufeffbom soft\xadhyphen",
            "nul bell zerowidth bom softhyphen",
        ),
        *(("lone \ud800 surrogate", "lone surrogate"), ("e\u0301 nbsp\xa0here", "é nbsp here")),
        ("I was obsessed!It works.The end? Yes.", "I was obsessed! It works. The end? Yes."),
        (
            "www.Example.com 3.5 U.S.A e.g.The Amazon.Com",
            "www.Example.com 3.5 U.S.A e.g.The Amazon.Com",
        ),
        *(('said \\"wow\\" and owned\\\'ve', 'said "wow" and owned\'ve'), ("<br /> &nbsp; ", "")),
    ],
)
def test_clean(raw, expected):
    assert clean_text(raw) == expected


@settings(max_examples=300)
@given(st.text(st.characters(blacklist_categories=()), max_size=200))
def test_any_text_becomes_one_clean_line(text):
    cleaned = clean_text(text)
    assert cleaned == " ".join(cleaned.split())
    assert unicodedata.is_normalized("NFC", cleaned)
    assert not set(cleaned) & {"\x00", "\n", "\ud800", "\ufeff"}
    cleaned.encode()


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("write to bob.smith+x@mail.example.co.uk please", "write to [email] please"),
        ("call 555-1234 or (212) 555-1234 now", "call [phone] or [phone] now"),
        ("1-800-555-1234, +44 20 7946 0958.", "[phone], [phone]."),
        ("my number is 8005551234", "my number [phone]"),
        ("write to _john@gmail.com_ today", "write to [email]_ today"),
        ("почта@пример.рф пишите", "[email] пишите"),
        ("mail john＠gmail.com now", "mail [email] now"),
        *(
            ("mail ｊｏｈｎ＠ｇｍａｉｌ．ｃｏｍ now", "mail [email] now"),
            ("a" * 100 + "@b.com", "[email]"),
        ),
        *(("ph.555-123-4567", "ph.[phone]"), ("Bob,555-123-4567", "Bob,[phone]")),
        ("dial 555–123–4567 or 555‑123‑4567", "dial [phone] or [phone]"),
        *(("+44 20 7946–0958", "[phone]"), ("call 020 7946 0958 now", "call [phone] now")),
        *(("call me at (020) 7946-0958.", "call [phone]."), ("Tel: 030/1234567", "Tel [phone]")),
    ],
)
def test_personal_data_is_masked(text, masked):
    assert mask_personal_data(text)[0] == masked


@pytest.mark.parametrize(
    "text",
    [
        *("ISBN 0451163966", "2010-2014 pages 193-2066", "4000mAh@3.7V", "$123.456.7890"),
        *("model 12345678901", "$1,555-123-4567", "ISBN number 9780451163966"),
        *("call it 5 stars of 1000 reviews", "a cell of 2010–2014 pages", "@home"),
    ],
)
def test_other_numbers_are_not(text):
    assert mask_personal_data(text) == (text, 0, 0)


MOJIBAKE = {
    "plain": ("I don't like it.", "I don't like it."),
    "cp1252": ("I donâ€™t like it. RÃ©sumÃ©!", "I don’t like it. Résumé!"),
    "Russian": ("ÐŸÑ€Ð¸Ð²ÐµÑ‚, Ð¼Ð¸Ñ€", "Привет, мир"),
    "whole": ("Ça va, Ärger – naïve “café” 5 € Â", "Ça va, Ärger – naïve “café” 5 € Â"),
    "entities": ("&lt;b&gt; café", "&lt;b&gt; café"),
}


@pytest.mark.parametrize("what", MOJIBAKE)
def test_what_is_certain_is_mended(what):
    text, mended = MOJIBAKE[what]
    assert repair_mojibake(text) == mended


def test_a_corpus_is_mended_where_it_is_asked_for(tmp_path):
    bad, good = MOJIBAKE["cp1252"]
    records = [review(i, f"{bad} Number {i}.", summary="TrÃ¨s bon") for i in range(40)]
    dump = write_lines(tmp_path / "d.json", records)
    run_job(tmp_path / "a", "--input", dump)
    assert all(bad[:8] in text for text in texts_in(tmp_path / "a"))
    (tmp_path / "test.txt").write_text(f"{bad} Number 7.\n", encoding="utf-8")
    mend = ("--repair-mojibake", "true", "--withhold", tmp_path / "test.txt")
    result = run_job(tmp_path / "b", "--input", dump, *mend)
    assert result["notes"]["mojibake_repaired"] == 80
    assert all(good in text and "Très bon" in text for text in texts_in(tmp_path / "b"))
    assert not any("Number 7." in text for text in texts_in(tmp_path / "b"))
