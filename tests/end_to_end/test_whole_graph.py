"""`amazon-electra` as its users start it: a synthetic dump through the whole graph, and again."""

import json
import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from transformers import (
    AutoModel,
    AutoTokenizer,
    ElectraForMaskedLM,
    ElectraForPreTraining,
    pipeline,
)

from amazon_electra.beam_jobs.sample.sample_dump import write_sample
from amazon_electra.beam_jobs.scoring.classifier import load_classifier
from amazon_electra.flows.cli import main
from tests.served import electra

pytestmark = [pytest.mark.slow, pytest.mark.smoke]

TINY = {"steps": 10, "batch": 4, "layers": 1, "hidden": 32, "intermediate": 64, "embedding": 32}
SETTINGS = [f"pretraining.{name}={value}" for name, value in TINY.items()]
SETTINGS += ["finetuning.seeds=0", "finetuning.tasks=polarity", "finetuning.learning_rates=0.001"]
SETTINGS += ["finetuning.arms=pre-trained", "finetuning.labels=20"]


def electra_here(*arguments):
    """Run a command that needs no server in this process; return its exit code."""
    with pytest.raises(SystemExit) as ended:
        main.main([str(argument) for argument in arguments])
    return ended.value.code


def run_arguments(home, *settings):
    sets = [word for setting in (*SETTINGS, *settings) for word in ("--set", setting)]
    dump = ["--dump", home / "sample.json.gz", "--recipe", "sample"]
    return ["run", *dump, "--store", home / "store", *sets]


def only(folder: Path, pattern: str) -> Path:
    (found,) = folder.glob(pattern)
    return found


def manifests(home):
    return {path: path.read_bytes() for path in (home / "store").glob("*/*/manifest.json")}


@pytest.fixture(scope="session")
def home(tmp_path_factory, begin_store):
    """A dump that has gone through the graph once."""
    folder = tmp_path_factory.mktemp("end_to_end")
    begin_store(folder / "store")
    write_sample(folder / "sample.json.gz", 400, 0)
    ran = electra(*run_arguments(folder))
    assert ran.returncode == 0, ran.stderr
    (folder / "stdout").write_text(ran.stdout)
    return folder


def test_prints_the_results_and_where_everything_is(home):
    printed = (home / "stdout").read_text()
    assert re.search(r"pre-trained.*\d", printed)
    report = Path(re.search(r"^report +(\S+)$", printed, re.M)[1])
    model = Path(re.search(r"^model +(\S+)$", printed, re.M)[1])
    page = report.read_text()
    assert "polarity" in page
    assert not re.search(r"""(?:src|href)=["']https?://""", page), (
        "the page must open without a network"
    )
    assert (model / "model.safetensors").exists()
    assert re.search(r"^registered +version 1 is (champion|challenger): \w", printed, re.M)
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
    model, text = only(home / "store" / "model", "*/"), "A sturdy kettle."
    [told] = pipeline("text-classification", model=str(model), top_k=None)([text])
    scores = {one["label"]: one["score"] for one in told}
    expected = load_classifier(str(model), "fp32").score([text])[0]
    assert [scores["negative"], scores["positive"]] == pytest.approx(expected, abs=1e-4)


def test_a_plan_does_nothing_and_tells_what_is_complete_and_what_another_seed_would_redo(
    home, capsys
):
    before = manifests(home)
    assert electra_here(*run_arguments(home), "--dry-run") == 0
    assert "nothing to do: every stage is complete" in capsys.readouterr().out
    assert electra_here(*run_arguments(home, "pretraining.seed=7"), "--dry-run") == 0
    printed = capsys.readouterr().out
    assert {"corpus", "vocabulary", "shards"} <= set(re.findall(r"^complete +(\S+)", printed, re.M))
    assert re.search(r"^to do +pretraining ", printed, re.M)
    assert manifests(home) == before
