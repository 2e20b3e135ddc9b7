"""Dumps that arrive one after another: the same reviews and sentences as from all at once."""

import hashlib
import json
import shutil
from pathlib import Path

import pytest

from amazon_electra.beam_jobs import corpus_job
from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.beam_jobs.deduplication import buckets, earlier_corpora, exact
from tests.beam_jobs.dumps import digests, review, rows_of, run_job, text_of, write_lines

DUMPS = ("zebra", "apple", "mango")  # arrive in this order, which is not that of their names


@pytest.fixture(scope="module")
def dumps(tmp_path_factory) -> list[Path]:
    """Copies within a dump and across dumps, by other users, with other stars, in other letters, in
    several files.
    """
    folder = tmp_path_factory.mktemp("dumps")
    for number, name in enumerate(DUMPS):
        (folder / name).mkdir()
        records = [
            review(i, text_of(i), reviewerID=f"{name}-{i}")
            for i in range(60 * number, 60 * number + 150)
        ]
        records += [
            review(i, text_of(i).upper(), overall=2.0)
            for i in range(60 * number + 100, 60 * number + 170)
        ]
        write_lines(folder / name / "b.json.gz", records[::2])
        write_lines(folder / name / "a.json", [*records[1::2], "{broken"])
    return [folder / name for name in DUMPS]


def test_a_near_copy_of_what_an_earlier_corpus_kept_goes(tmp_path):
    """Its review stays in the earlier corpus, even where the later one has the smaller id."""
    texts = [text_of(i, 8) for i in range(60)]
    near = ["--near-duplicates", "0.8"]
    first = [review(i, text, summary=f"Title {i}") for i, text in enumerate(texts[:30])]
    write_lines(tmp_path / "first.json", first)
    run_job(tmp_path / "first", "--input", tmp_path / "first.json", *near)
    before = digests(tmp_path / "first")
    later = [*(f"{text} Really." for text in texts[:25]), texts[29], *texts[30:]]
    later += [f"{text} Really." for text in texts[30:33]]
    write_lines(tmp_path / "later.json", [review(i, text) for i, text in enumerate(later)])
    seen = ["--seen", tmp_path / "first"]
    result = run_job(tmp_path / "later", "--input", tmp_path / "later.json", *near, *seen)
    assert result["dropped"] == {"near duplicate": 28, "seen before": 1}
    assert digests(tmp_path / "first") == before


@pytest.fixture(scope="module")
def in_turn(dumps, tmp_path_factory) -> list[Path]:
    folder = tmp_path_factory.mktemp("in turn")
    corpora: list[Path] = []
    for dump in dumps:
        output = folder / dump.name
        arguments = ["--seen", *corpora] if corpora else []
        result = run_job(output, "--input", dump, *arguments)
        assert (result["dropped"].get("seen before", 0) > 0) is bool(corpora)
        assert result["seen"]["corpora"] == [str(c) for c in corpora]
        corpora.append(output)
    return corpora


def digest(*folders: Path) -> str:
    rows = sorted(
        (row["review_id"], row["sentences"]) for folder in folders for row in rows_of(folder)
    )
    return hashlib.sha256(repr(rows).encode()).hexdigest()


def test_three_dumps_in_turn_give_the_corpus_of_all_in_one_call(dumps, in_turn, tmp_path):
    inputs = [argument for dump in dumps for argument in ("--input", dump)]
    result = run_job(tmp_path / "once", *inputs, "--punkt", in_turn[0] / "punkt.json")
    assert digest(*in_turn) == digest(tmp_path / "once")
    results = [json.loads((c / "corpus.json").read_text()) for c in in_turn]
    assert result["kept"] == sum(r["kept"] for r in results)
    gone = sum(
        r["dropped"].get(reason, 0) for r in results for reason in ("duplicate", "seen before")
    )
    assert result["dropped"]["duplicate"] == gone
    assert {name for c in in_turn for name in [(c / "punkt.json").read_bytes()]} == {
        (tmp_path / "once" / "punkt.json").read_bytes()
    }
    assert digest(*reversed(in_turn)) != digest(in_turn[0])


def test_the_graph_finds_what_was_seen_too(dumps, in_turn, tmp_path):
    run_job(tmp_path, "--input", dumps[2], "--seen", *in_turn[:2], mode="in_memory")
    assert digest(tmp_path) == digest(in_turn[2])


def test_a_text_that_is_in_two_files_of_hashes_is_found(in_turn, tmp_path, monkeypatch):
    monkeypatch.setattr(earlier_corpora, "PACK_ROWS", 1)
    found = earlier_corpora.inspect_corpora(
        [str(c) for c in in_turn], agreed_of(in_turn[0]), str(tmp_path / "new"), None
    )
    assert len(found.runs) == sum(len(list(c.glob("*.parquet"))) for c in in_turn)
    packs = [earlier_corpora.write_text_hashes(run, str(tmp_path)) for run in enumerate(found.runs)]
    files = buckets.join_files(packs, str(tmp_path / "starts"))
    hashes = sorted(row["text_hash"] for c in in_turn for row in rows_of(c))
    assert len(hashes) == found.reviews
    with buckets.open_part((0, 1, 4), files, exact.TEXT_HASH) as read_bucket:
        parts = [b"".join(p.tobytes() for p in read_bucket(bucket)) for bucket in range(4)]
    packed = b"".join(exact.sort_hashes(part).tobytes() for part in parts)
    assert [packed[i : i + 16] for i in range(0, len(packed), 16)] == hashes


def agreed_of(corpus: Path) -> dict:
    return json.loads((corpus / "corpus.json").read_text())["agreed"]


def test_a_dump_with_nothing_new_gives_an_empty_corpus_that_can_be_seen(dumps, in_turn, tmp_path):
    result = run_job(tmp_path / "again", "--input", dumps[0], "--seen", *in_turn)
    assert result["kept"] == 0
    assert result["dropped"] == {"broken JSON": 1, "seen before": 220}
    seen = [str(in_turn[0]), str(tmp_path / "again")]
    found = earlier_corpora.inspect_corpora(seen, agreed_of(in_turn[0]), "new", None)
    assert found.reviews == len(rows_of(in_turn[0]))


def refused(dumps, output: Path, *arguments) -> str:
    with pytest.raises(UserError) as mistake:
        corpus_job.run([*map(str, ["--input", dumps[1], "--output", output, *arguments])])
    return str(mistake.value)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("seed", "7"),
        ("split", "pretrain=1,test=1"),
        ("mask_personal_data", "false"),
        ("repair_run_ons", "false"),
        ("max_characters", "100"),
        ("min_words", "3"),
        ("languages", "en"),
        ("near_duplicates", "0.8"),
    ],
)
def test_other_settings_are_refused_by_name(dumps, in_turn, tmp_path, field, value):
    said = refused(dumps, tmp_path / "new", "--seen", in_turn[0], f"--{field}", value)
    assert str(in_turn[0]) in said
    assert f" {field} " in said


def test_other_evaluation_texts_are_refused(dumps, in_turn, tmp_path):
    (tmp_path / "evaluation.txt").write_text("A text that must not get into the corpus.\n")
    said = refused(
        dumps, tmp_path / "new", "--seen", in_turn[0], "--withhold", tmp_path / "evaluation.txt"
    )
    assert " withhold " in said
    assert "evaluation.txt" in said


def test_what_is_no_whole_corpus_is_refused(dumps, in_turn, tmp_path):
    assert str(dumps[0]) in refused(dumps, tmp_path / "new", "--seen", dumps[0])
    assert "`seen`" in refused(dumps, in_turn[0], "--seen", in_turn[0])
    assert len(rows_of(in_turn[0])) > 0
    broken = tmp_path / "broken"
    shutil.copytree(in_turn[0], broken)
    next(broken.glob("*.parquet")).unlink()
    assert str(broken) in refused(dumps, tmp_path / "new", "--seen", broken)
    (broken / "corpus.json").write_text('{"kept": 1}')
    assert "corpus.json" in refused(dumps, tmp_path / "new", "--seen", broken)


def test_corpora_cut_into_sentences_differently_need_a_choice(dumps, in_turn, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(in_turn[0], other)
    (other / "punkt.json").write_text("{}")
    assert "punkt.json" in refused(dumps, tmp_path / "new", "--seen", in_turn[0], other)
    found = earlier_corpora.inspect_corpora(
        [str(in_turn[0]), str(other)], agreed_of(in_turn[0]), "new", str(in_turn[0])
    )
    assert found.punkt == str(in_turn[0])
