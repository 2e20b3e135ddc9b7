"""An evaluation is of the split it was asked for."""

import json

import pyarrow.parquet as pq
import pytest

from amazon_electra.beam_jobs.core.command_line import call_job
from amazon_electra.model import evaluate, finetune
from amazon_electra.model.evaluation.predictions import read_predictions
from tests.model.corpora import write_corpus, write_electra


@pytest.fixture(scope="module")
def finetuned(tmp_path_factory):
    """A model folder that saw thirty reviews, and its corpus."""
    folder = tmp_path_factory.mktemp("evaluate")
    settings = ("epochs=1", "n_train=30", "n_dev=20", "max_length=16", "learning_rates=1e-3")
    command = ["--encoder", str(write_electra(folder / "electra")), "--task", "polarity"]
    command += ["--data", str(write_corpus(folder / "corpus")), "--output", str(folder / "model")]
    call_job(finetune.finetune, [*command, *(f"--{setting}" for setting in settings)])
    return folder


def read_ids(corpus, split):
    """Return the ids of the reviews of a split that have a polarity: three stars have none."""
    table = pq.read_table(corpus, columns=["review_id", "split", "stars"])
    rows = [row for row in table.to_pylist() if row["split"] == split]
    return {row["review_id"].hex() for row in rows if row["stars"] not in (None, 3)}


@pytest.mark.parametrize("split", ["test", "dev"])
def test_predictions_are_of_the_split_asked_for(finetuned, split):
    output = finetuned / split
    command = ["--model", str(finetuned / "model"), "--task", "polarity", "--split", split]
    call_job(
        evaluate.evaluate, [*command, "--data", str(finetuned / "corpus"), "--output", str(output)]
    )
    ids = read_predictions(output / "predictions.parquet").ids
    expected = read_ids(finetuned / "corpus", split)
    assert len(ids) == len(set(ids)) == (len(expected) if split == "test" else 20)
    assert set(ids) <= expected
    assert json.loads((output / "metrics.json").read_text())["split"] == split
