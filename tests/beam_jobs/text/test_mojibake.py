"""Texts whose UTF-8 somebody read in another encoding."""

import pytest

from amazon_electra.beam_jobs.text.cleaning import repair_mojibake, show_mojibake
from tests.beam_jobs.dumps import review, run_job, texts_in, write_lines

TEXTS = {
    "plain": ("I don't like it.", "I don't like it."),
    "cp1252": ("I donâ€™t like it. RÃ©sumÃ©!", "I don’t like it. Résumé!"),
    "twice": ("Itâ\u20acâ\u201e¢s", "Itâ\u20acâ\u201e¢s"),
    "beside whole signs": ("Schön, but donâ€™t – really", "Schön, but don’t – really"),
    "Russian": ("ÐŸÑ€Ð¸Ð²ÐµÑ‚, Ð¼Ð¸Ñ€", "Привет, мир"),
    "whole": ("Ça va, Ärger – naïve “café” 5 € Â", "Ça va, Ärger – naïve “café” 5 € Â"),
    "lost": ("He said â€� and left", "He said â€� and left"),
    "entities": ("&lt;b&gt; café", "&lt;b&gt; café"),
}


@pytest.mark.parametrize("what", [name for name in TEXTS if name != "twice"])
def test_what_is_certain_is_mended(what):
    text, mended = TEXTS[what]
    assert repair_mojibake(text) == mended
    shown = show_mojibake(text)
    assert bool(shown) == (text != mended)
    assert shown in text


def test_a_corpus_is_mended_where_it_is_asked_for(tmp_path):
    bad, good = TEXTS["cp1252"]
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
