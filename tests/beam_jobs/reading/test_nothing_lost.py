"""Small inputs of people's bug reports: each record is read, or the job says why not."""

import gzip
import os
from pathlib import Path

import pytest

from amazon_electra.beam_jobs.core import storage
from amazon_electra.beam_jobs.core.errors import UserError
from tests.beam_jobs.dumps import review, run_job, text_of, texts_in, write_lines
from tests.refusals import refuses


def corpus_of(tmp_path, *files, **options):
    argv = [word for name, value in options.items() for word in (f"--{name}", value)]
    return run_job(tmp_path / "corpus", "--input", *files, *argv)


def test_headers_of_files_put_together_are_no_reviews(tmp_path):
    parts = [f'stars,text\n{i},"{text_of(i)}"\n'.encode() for i in range(1, 4)]
    (tmp_path / "all.csv.gz").write_bytes(b"".join(map(gzip.compress, parts)))
    result = corpus_of(tmp_path, tmp_path / "all.csv.gz")
    assert (result["read"], result["kept"], result["notes"]) == (3, 3, {"repeated_headers": 2})


def test_one_bad_byte_changes_one_character(tmp_path):
    line = b'{"text": "Caf\xc3\xa9 \xe9t\xe9 \xe2\x82\xac 5, right here", "stars": 5}\n'
    (tmp_path / "d.json").write_bytes(line)
    (tmp_path / "d.csv").write_bytes(b"stars,text\n5,Na\xc3\xafve\xff and \x93simple\x94 it is\n")
    assert corpus_of(tmp_path, tmp_path)["notes"] == {"decoded_as_cp1252": 2}
    assert set(texts_in(tmp_path / "corpus")) == {
        "Café été € 5, right here",
        "Naïveÿ and “simple” it is",
    }


def test_python_literals_keep_their_emoji(tmp_path):
    (tmp_path / "d.json").write_text(r"{u'text': u'So good \ud83d\ude00!', u'stars': 5}" + "\n")
    corpus_of(tmp_path, tmp_path / "d.json")
    assert texts_in(tmp_path / "corpus") == ["So good \U0001f600!"]


@pytest.mark.parametrize("name", [b"caf\xe9.json", b"caf\xe9/a.json"])
def test_a_name_that_is_not_utf8_is_refused(tmp_path, name):
    path = Path(os.fsdecode(os.fsencode(tmp_path / "dump") + b"/" + name))
    path.parent.mkdir(parents=True)
    write_lines(path, [review(1)])
    with pytest.raises(UserError):
        corpus_of(tmp_path, path.parent)
    assert not (tmp_path / "corpus").exists()


def test_a_folder_that_cannot_be_listed_is_told(tmp_path, monkeypatch):
    (tmp_path / "shut").mkdir()
    write_lines(tmp_path / "a.json", [review(1)])
    scan = os.scandir

    def refuse(path):
        if str(path).endswith("shut"):
            raise PermissionError(13, "Permission denied", path)
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)  # root may list any
    with refuses("shut"):
        storage.expand_pattern(str(tmp_path))


def test_what_holds_no_data_is_left_out_of_a_folder_and_told(tmp_path, capsys):
    """Marks and checksums, and what a clone of Hugging Face's, a download of Kaggle's and an editor
    leave beside data.
    """
    others = ["_SUCCESS", ".part-0.json.crc", "part-0.json.md5", "SHA256SUMS", "__MACOSX/x.json"]
    others += ["README.md", "LICENSE", "dataset_infos.json", "dataset-metadata.json", "d.csv~"]
    for name in ["part-0.json", *others]:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        write_lines(tmp_path / name, [review(1)])
    for pattern in (tmp_path, tmp_path / "**"):
        assert set(storage.expand_pattern(str(pattern))) == {str(tmp_path / "part-0.json")}
        assert "left out, which hold no data: " in capsys.readouterr().err
    assert list(storage.expand_pattern(str(tmp_path / "SHA256SUMS"))) == [
        str(tmp_path / "SHA256SUMS")
    ]


@pytest.mark.parametrize("text", ["这个手机很好用", "とても良い商品です", "สินค้าดีมากใช้งานได้ดี"])
def test_characters_are_words_in_scripts_without_spaces(tmp_path, text):
    path = write_lines(tmp_path / "d.json", [{"text": text}, {"text": "A very good phone it is"}])
    assert corpus_of(tmp_path, path, **{"min-words": "3"})["kept"] == 2
    result = corpus_of(tmp_path, path, languages="en")
    assert result["dropped"] == {"other language": 1}


UTF16 = {
    "little.csv": lambda text: b"\xff\xfe" + text.encode("utf-16-le"),
    "big.csv": lambda text: b"\xfe\xff" + text.encode("utf-16-be"),
    "packed.csv.gz": lambda text: gzip.compress(text.encode("utf-16")),
}


@pytest.mark.parametrize("name", UTF16)
def test_utf16_of_spreadsheets_and_app_shops_is_read(tmp_path, name):
    rows = "".join(
        f'“kettle” {i} 🫖 – {text_of(i, 1)},{i % 5 + 1},"two\r\nlines"\r\n' for i in range(3000)
    )
    (tmp_path / name).write_bytes(UTF16[name](f"text,stars,ਊ\r\n{rows}"))
    result = run_job(tmp_path / "corpus", "--input", tmp_path / name)
    assert (result["read"], result["kept"]) == (3000, 3000)
    assert any(text.startswith("“kettle” 7 🫖 – ") for text in texts_in(tmp_path / "corpus"))


def test_utf16_cut_in_the_middle_of_a_character_is_damaged(tmp_path):
    path = tmp_path / "cut.csv"
    path.write_bytes(f"text,stars\n{text_of(1)},5\n".encode("utf-16")[:-1])
    with refuses(str(path)):
        corpus_of(tmp_path, path)
