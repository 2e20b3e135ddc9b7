"""`amazon-electra` as its users start it: a synthetic dump through the whole graph, again, and
after a kill.
"""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.patience import eventually

SETTINGS = (
    "pretraining.steps=120",
    "pretraining.checkpoint_every=10",
    "finetuning.seeds=0",
    "finetuning.tasks=polarity",
)


def command(*arguments):
    return [sys.executable, "-m", "flows.cli.main", *map(str, arguments)]


def environment():
    outside = ("PREFECT_API_URL", "MLFLOW_TRACKING_URI", "PREFECT_HOME")
    return {name: value for name, value in os.environ.items() if name not in outside}


def electra(*arguments):
    return subprocess.run(command(*arguments), capture_output=True, text=True, env=environment())


def run_arguments(home, *settings):
    sets = [word for setting in (*SETTINGS, *settings) for word in ("--set", setting)]
    return [
        "run",
        "--dump",
        home / "sample.json.gz",
        "--preset",
        "tiny",
        "--store",
        home / "store",
        *sets,
    ]


def only(folder: Path, pattern: str) -> Path:
    (found,) = folder.glob(pattern)
    return found


def manifests(home):
    return {path: path.read_bytes() for path in (home / "store").glob("*/*/manifest.json")}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A dump that has gone through the graph once, in two attempts: the first was killed in
    pre-training, at the checkpoint that `reached` names.
    """
    folder = tmp_path_factory.mktemp("end_to_end")
    sample = electra(
        "sample", "--reviews", 1000, "--seed", 0, "--output", folder / "sample.json.gz"
    )
    assert sample.returncode == 0, sample.stderr
    first = subprocess.Popen(
        command(*run_arguments(folder)), stderr=subprocess.PIPE, text=True, env=environment()
    )
    checkpoint = eventually(lambda: find_checkpoint(folder))
    first.send_signal(signal.SIGKILL)
    first.communicate()
    (folder / "reached").write_text(checkpoint.name)
    ran = electra(*run_arguments(folder))
    assert ran.returncode == 0, ran.stderr
    (folder / "stdout").write_text(ran.stdout)
    return folder


def find_checkpoint(home):
    found = (home / "store").glob("pretraining/*/checkpoints/step-*")
    return min((path for path in found if re.fullmatch(r"step-\d+", path.name)), default=None)


def test_killed_in_pre_training_it_continues_from_the_last_checkpoint(home):
    trained = only(home / "store" / "pretraining", "*/")
    lines = (trained / "metrics.jsonl").read_text().splitlines()
    assert max(json.loads(line)["step"] for line in lines) == 120
    attempts = (trained / "log.txt").read_text().split("\n== ")[1:]
    assert len(attempts) == 2
    reached = int(re.search(r"\d+", (home / "reached").read_text())[0])
    assert first_step_shown(attempts[1]) >= reached > 0


def first_step_shown(log):
    return json.loads(re.search(r"^PROGRESS (.*)$", log, re.M)[1])["done"]


def test_prints_the_results_and_where_everything_is(home):
    printed = (home / "stdout").read_text()
    for arm in ("pre-trained", "random"):
        assert re.search(rf"{arm}.*\d", printed)
    report = Path(re.search(r"^report +(\S+)$", printed, re.M)[1])
    model = Path(re.search(r"^model +(\S+)$", printed, re.M)[1])
    page = report.read_text()
    assert "polarity" in page
    assert not re.search(r"""(?:src|href)=["']https?://""", page), (
        "the page must open without a network"
    )
    assert (model / "model.safetensors").exists()
    assert "Prefect UI" in printed
    assert "MLflow UI" in printed


def test_every_review_is_accounted_for_and_no_text_is_on_two_sides(home):
    corpus = only(home / "store" / "corpus", "*/")
    counts = json.loads((corpus / "corpus.json").read_text())
    assert counts["read"] == counts["kept"] + sum(counts["dropped"].values())
    sides = {}
    for path in sorted(corpus.glob("corpus-*.parquet")):
        for row in pq.read_table(path, columns=["text_hash", "split"]).to_pylist():
            sides.setdefault(row["text_hash"], set()).add(row["split"])
    assert len(sides) == counts["kept"]
    assert all(len(splits) == 1 for splits in sides.values())
    assert set().union(*sides.values()) == {"pretrain", "train", "dev", "test"}


def test_transformers_loads_the_exported_folders_whole(home):
    from transformers import AutoModel, AutoTokenizer, ElectraForMaskedLM, ElectraForPreTraining

    trained = only(home / "store" / "pretraining", "*/")
    for kind, folder in (
        (ElectraForPreTraining, "discriminator"),
        (ElectraForMaskedLM, "generator"),
    ):
        _, told = kind.from_pretrained(trained / folder, output_loading_info=True)
        assert not told["missing_keys"]
        assert not told["unexpected_keys"]
    encoder = AutoModel.from_pretrained(trained / "discriminator")
    tokens = AutoTokenizer.from_pretrained(trained / "discriminator")(
        "A sturdy kettle.", return_tensors="pt"
    )
    assert encoder(**tokens).last_hidden_state.shape[-1] == encoder.config.hidden_size


def test_a_second_identical_run_does_no_work(home):
    before = manifests(home)
    again = electra(*run_arguments(home))
    assert again.returncode == 0, again.stderr
    assert manifests(home) == before
    assert again.stderr.count("found complete") == len(before)


def test_a_dry_run_tells_what_would_be_done_and_does_nothing(home):
    before = manifests(home)
    planned = electra(*run_arguments(home, "pretraining.seed=7"), "--dry-run")
    assert planned.returncode == 0, planned.stderr
    lines = [line for line in planned.stdout.splitlines() if line.startswith(("complete", "to do"))]
    assert {
        line.split()[1 if line.startswith("complete") else 2]
        for line in lines
        if line.startswith("complete")
    } >= {
        "corpus",
        "vocabulary",
        "shards",
    }
    assert any(line.startswith("to do") and "pretraining" in line for line in lines)
    assert manifests(home) == before


def test_runs_and_show_tell_what_is_in_the_store(home):
    listed = electra("runs", "--store", home / "store")
    assert listed.returncode == 0
    trained = only(home / "store" / "pretraining", "*/")
    shown = electra("show", trained.name, "--store", home / "store")
    assert shown.returncode == 0
    for stage in ("dump", "corpus", "vocabulary", "shards"):
        assert only(home / "store" / stage, "*/").name in shown.stdout


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["run", "--dump", "no/such/file.json"], "no/such/file.json"),
        (["run", "--dump", "README.md", "--set", "pretraining.steps=-1"], "pretraining.steps"),
        (["run", "--dump", "README.md", "--set", "nonsense.field=1"], "nonsense"),
        (["run", "--dump", "README.md", "--preset", "huge"], "huge"),
        (["show", "0000", "--store", "no_such_store"], "no_such_store"),
    ],
)
def test_a_mistake_is_one_clear_line(arguments, named, tmp_path):
    store = [] if "--store" in arguments else ["--store", tmp_path / "store"]
    refused = electra(*arguments, *store)
    assert refused.returncode == 2
    assert named in refused.stderr
    assert "Traceback" not in refused.stderr
