"""What encoders have seen is told by the files the jobs leave, and by nothing else."""

import hashlib
import json

import pytest

from flows.configuration.study_file import Arm
from flows.studies import study_report


def sha256(file):
    return hashlib.sha256(file.read_bytes()).hexdigest()


@pytest.fixture
def place(tmp_path):
    """A corpus, shards of it from which sst2.tsv was withheld, general shards from which nothing
    was, an encoder.
    """
    (tmp_path / "corpus").mkdir()
    about = {"read": 3, "agreed": {"withhold_own": True}}
    (tmp_path / "corpus" / "corpus.json").write_text(json.dumps(about))
    (tmp_path / "tasks").mkdir()
    for name in ("sst2.tsv", "imdb.tsv"):
        (tmp_path / "tasks" / name).write_text(f"of {name}")
    withheld = [f"sst2.tsv {sha256(tmp_path / 'tasks' / 'sst2.tsv')[:16]}"]
    made_of = {"corpus": sha256(tmp_path / "corpus" / "corpus.json"), "withheld": withheld}
    told = {
        "shards": {"split": "pretrain", "made_of": made_of},
        "test": {"split": "test", "made_of": made_of},
        "general": {"split": "pretrain", "made_of": {"corpus": "", "withheld": []}},
        "searched": {
            "split": "pretrain",
            "made_of": {"corpus": "", "withheld_corpus": made_of["corpus"]},
        },
        "old": {"split": "pretrain"},
    }
    for name, content in told.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "shards.json").write_text(json.dumps(content))
    write_encoder(tmp_path / "electra", shards=str(tmp_path / "shards"), start_from="")
    return tmp_path


def write_encoder(folder, **config):
    (folder / "discriminator").mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "result.json").write_text("{}")
    (folder / "metrics.jsonl").touch()


def arms(*described):
    return {arm.name: arm for arm in (Arm(**one) for one in described)}


@pytest.mark.parametrize(
    ("shards", "data", "expected"),
    [
        (["shards"], "corpus", True),
        (["shards"], "tasks/sst2.tsv", True),
        (["shards"], "tasks/imdb.tsv", False),
        (["shards"], "tasks", False),
        (["shards", "general"], "corpus", False),
        (["shards", "searched"], "corpus", True),
        (["searched"], "tasks/sst2.tsv", False),
        (["test"], "corpus", False),
        (["old"], "corpus", False),
        (["none"], "tasks/sst2.tsv", False),
    ],
)
def test_a_task_is_held_out_where_its_files_say_so(place, shards, data, expected):
    assert (
        study_report.is_held_out(str(place / data), [str(place / name) for name in shards])
        is expected
    )


@pytest.mark.parametrize("agreed", [{"withhold_own": False}, {}])
def test_a_corpus_that_keeps_near_copies_of_its_tests_is_not_held_out_from_its_own_shards(
    place, agreed
):
    about = place / "corpus" / "corpus.json"
    about.write_text(json.dumps({"read": 4, "agreed": agreed}))
    corpus = str(place / "corpus")
    for name, role in (("open", "corpus"), ("general-2", "withheld_corpus")):
        (place / name).mkdir()
        made_of = {"corpus": "", role: sha256(about)}
        (place / name / "shards.json").write_text(json.dumps({"made_of": made_of}))
    assert not study_report.is_held_out(corpus, [str(place / "open")])
    assert study_report.is_held_out(corpus, [str(place / "general-2")])


def test_an_encoder_is_known_by_its_pre_training_not_by_a_log_beside_it(place):
    write_encoder(place / "continued", shards=str(place / "shards"), start_from="bert")
    write_encoder(place / "older", shards=str(place / "shards"))
    (place / "logged" / "discriminator").mkdir(parents=True)
    (place / "logged" / "metrics.jsonl").touch()
    for name, expected in (
        ("electra", True),
        ("continued", False),
        ("older", False),
        ("logged", False),
    ):
        arm = Arm(name="a", encoder=str(place / name / "discriminator"))
        assert study_report.is_data_known(arm, {"a": arm}) is expected, name
    assert study_report.list_encoder_shards(place / "electra" / "discriminator") == [
        str(place / "shards")
    ]


def test_what_a_teacher_has_seen_its_students_have_seen(place):
    every = arms(
        {"name": "bert", "encoder": "bert-base-uncased"},
        {"name": "half", "encoder": "half", "teacher": "arm:bert"},
        {"name": "taught", "encoder": "random", "architecture": "x", "teacher": "arm:half"},
        {"name": "of a folder", "encoder": "half", "teacher": "/some/folder"},
        {"name": "own", "encoder": str(place / "electra" / "discriminator")},
        {
            "name": "student",
            "pretraining": {"shards": str(place / "general")},
            "teacher": "arm:own",
        },
        {"name": "random", "encoder": "random", "architecture": "x"},
        {"name": "said to be", "encoder": "bert-base-uncased", "training_data": "known"},
    )
    known = {name: study_report.is_data_known(arm, every) for name, arm in every.items()}
    assert [name for name, is_known in known.items() if is_known] == [
        "own",
        "student",
        "random",
        "said to be",
    ]
    assert study_report.list_seen_shards(every["student"], every) == {
        str(place / "general"),
        str(place / "shards"),
    }
    assert study_report.list_seen_shards(every["random"], every) == frozenset()
