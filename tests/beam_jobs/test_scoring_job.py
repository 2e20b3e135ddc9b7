"""Scores of a dump: every review kept or accounted for, the same numbers as the program gives one
text at a time.
"""

import json
import pathlib
import shutil
import zipfile

import pyarrow.parquet as pq
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import nn

from beam_jobs import scoring_job
from beam_jobs.core import storage
from beam_jobs.core.errors import UserError
from beam_jobs.core.files import hash_file
from beam_jobs.scoring.classifier import UnitScorer
from beam_jobs.scoring_job import run

WORDS = ["[PAD]", "[UNK]", "good", "bad", "fine", "very", "not"]


class Toy(nn.Module):
    """Mean of word vectors to three classes; padding must not count."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words = nn.Embedding(len(WORDS), 3)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        mask = attention_mask.float().unsqueeze(-1)
        return ((self.words(input_ids) * mask).sum(1) / mask.sum(1).clamp(min=1)).softmax(-1)


@pytest.fixture(scope="module")
def scorer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scorer")
    batch, tokens = (
        torch.export.Dim("batch", min=1, max=4096),
        torch.export.Dim("tokens", min=2, max=16),
    )
    ids = torch.ones(3, 5, dtype=torch.long)
    shapes = {"input_ids": {0: batch, 1: tokens}, "attention_mask": {0: batch, 1: tokens}}
    torch.export.save(
        torch.export.export(Toy().eval(), (ids, ids.clone()), dynamic_shapes=shapes),
        folder / "scorer.pt2",
    )
    tokenizer = Tokenizer(
        models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    digest = hash_file(folder / "scorer.pt2")
    described = {"labels": ["a", "b", "c"], "max_length": 16, "sha256": digest}
    (folder / "scorer.json").write_text(json.dumps(described))
    return folder


def test_every_review_has_the_score_of_its_text_or_a_reason(scorer, tmp_path):
    texts = ["good", "very good not bad fine", "bad " * 40, "unheard of"]
    lines = [
        json.dumps({"overall": 5.0, "reviewText": text, "asin": str(i)})
        for i, text in enumerate(texts)
    ]
    dump = tmp_path / "dump.json"
    dump.write_text(
        "\n".join([lines[0], '{"broken', lines[1], '{"overall": 1.0}', *lines[2:]]) + "\n"
    )
    output = tmp_path / "scores"
    result = run(
        [
            "--scorer",
            str(scorer),
            "--model_version",
            "7",
            "--input",
            str(dump),
            "--output",
            str(output),
        ]
    )
    assert (result["read"], result["scored"], sum(result["dropped"].values())) == (6, 4, 2)
    rows = pq.read_table(output / "scores-0000-00000.parquet").to_pylist()
    program = Toy().eval()
    for text, row in zip(texts, rows, strict=True):
        ids = torch.tensor([[WORDS.index(w) if w in WORDS else 1 for w in text.split()][:16]])
        expected = program(ids, torch.ones_like(ids))[0].detach()
        assert row["probabilities"] == pytest.approx(expected.tolist(), abs=1e-6)
        assert row["label"] == "abc"[int(expected.argmax())]
        assert row["probability"] == pytest.approx(float(expected.max()), abs=1e-6)
        assert row["model_version"] == "7"
    [reject] = [
        json.loads(line)
        for line in (output / "rejects" / "0000-00000.jsonl").read_text().splitlines()
    ]
    assert reject["line"] == 2


@pytest.mark.parametrize("recorded", ["another", "none"])
def test_a_program_that_was_changed_is_not_loaded(scorer, tmp_path, recorded):
    """Which parts of a file torch unpickles depends on its version: a changed one is not opened."""
    folder = tmp_path / "scorer"
    shutil.copytree(scorer, folder)
    marker = tmp_path / "code ran"

    class Touch:
        def __reduce__(self):
            return pathlib.Path.touch, (marker,)

    torch.save(Touch(), tmp_path / "harmful.pt")
    with zipfile.ZipFile(folder / "scorer.pt2") as whole:
        parts = {name: whole.read(name) for name in whole.namelist()}
    inputs = [name for name in parts if name.endswith("sample_inputs/model.pt")]
    assert inputs, "where torch keeps sample inputs has moved"
    with zipfile.ZipFile(folder / "scorer.pt2", "w") as patched:
        for name, content in parts.items():
            harmful = (tmp_path / "harmful.pt").read_bytes()
            patched.writestr(name, harmful if name in inputs else content)
    if recorded == "none":
        described = json.loads((folder / "scorer.json").read_text())
        del described["sha256"]
        (folder / "scorer.json").write_text(json.dumps(described))
    dump = dump_of(tmp_path / "dump.json", "good", 2)
    with pytest.raises(UserError, match=r"scorer\.json"):
        scored(folder, dump, tmp_path / "scores")
    with pytest.raises(UserError, match="loading it could run anything"):
        UnitScorer(str(folder), "").load_model()
    assert not marker.exists()


def test_a_program_rewritten_together_with_its_description_is_refused(scorer, tmp_path):
    """The digest that the store recorded counts, and not the one beside the program."""
    dump = dump_of(tmp_path / "dump.json", "good", 2)
    with pytest.raises(UserError, match="loading it could run anything"):
        scored(scorer, dump, tmp_path / "scores", "--scorer-sha256", "0" * 64)
    with pytest.raises(UserError, match="loading it could run anything"):
        UnitScorer(str(scorer), "", "0" * 64).load_model()
    digest = hash_file(scorer / "scorer.pt2")
    scored(scorer, dump, tmp_path / "scores", "--scorer-sha256", digest)


def test_a_folder_that_is_no_scorer_is_a_mistake(tmp_path):
    (tmp_path / "dump.json").write_text("{}")
    with pytest.raises(UserError, match=r"scorer\.pt2.*model\.scorer"):
        run(
            [
                "--scorer",
                str(tmp_path),
                "--input",
                str(tmp_path / "dump.json"),
                "--output",
                str(tmp_path / "out"),
            ]
        )


def scored(scorer, dump, output, *more):
    return run(["--scorer", str(scorer), "--input", str(dump), "--output", str(output), *more])


def dump_of(path, text, number):
    path.write_text(
        "".join(
            json.dumps({"overall": 5.0, "reviewText": text, "asin": str(i)}) + "\n"
            for i in range(number)
        )
    )
    return path


def test_what_another_job_left_half_done_is_not_taken_for_ones_own(scorer, tmp_path, monkeypatch):
    good, bad = dump_of(tmp_path / "good.json", "good", 3), dump_of(tmp_path / "bad.json", "bad", 2)
    with monkeypatch.context() as broken:
        broken.setattr(scoring_job, "finish_scores", lambda folders: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            scored(scorer, good, tmp_path / "scores")
    assert list((tmp_path / "scores").glob("_work-*/written/*.json"))
    assert scored(scorer, bad, tmp_path / "scores")["scored"] == 2
    assert scored(scorer, bad, tmp_path / "alone")["scored"] == 2
    rows = [
        pq.read_table(tmp_path / name / "scores-0000-00000.parquet") for name in ("scores", "alone")
    ]
    assert rows[0].equals(rows[1])
    assert sorted(path.name for path in (tmp_path / "scores").iterdir()) == [
        "scores-0000-00000.parquet"
    ]


def test_an_interrupted_job_is_continued(scorer, tmp_path, monkeypatch):
    dump = dump_of(tmp_path / "dump.json", "good", 3)
    with monkeypatch.context() as broken:
        broken.setattr(scoring_job, "finish_scores", lambda folders: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            scored(scorer, dump, tmp_path / "scores")
    [counts] = (tmp_path / "scores").glob("_work-*/prepared/*.json")
    before = counts.stat().st_mtime_ns
    with monkeypatch.context() as watching:
        watching.setattr(storage, "remove_path", lambda path: None)
        assert scored(scorer, dump, tmp_path / "scores")["scored"] == 3
    assert counts.stat().st_mtime_ns == before


@pytest.mark.parametrize(
    "option", [["--seen", "corpus"], ["--withhold", "test.csv"], ["--model", "7"]]
)
def test_options_it_does_not_have_are_refused(scorer, tmp_path, option, capfd):
    dump = dump_of(tmp_path / "dump.json", "good", 1)
    with pytest.raises((UserError, SystemExit)) as refused:
        scored(scorer, dump, tmp_path / "scores", *option)
    assert option[0] in str(refused.value) + capfd.readouterr().err


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("scorer.json", "[]"),
        ("scorer.json", "{not json"),
        ("scorer.pt2", "junk"),
        ("tokenizer.json", "{}"),
    ],
)
def test_a_broken_scorer_is_a_mistake(scorer, tmp_path, name, content):
    shutil.copytree(scorer, tmp_path / "scorer")
    (tmp_path / "scorer" / name).write_text(content)
    with pytest.raises(UserError, match=r"--scorer .*model.scorer"):
        scored(tmp_path / "scorer", dump_of(tmp_path / "dump.json", "good", 1), tmp_path / "scores")
