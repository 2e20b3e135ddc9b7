"""Each job alone, one after the other, as docs/jobs.md types them."""

import json

import pytest
from transformers import pipeline

from amazon_electra.beam_jobs.sample.sample_dump import write_sample
from tests.model.encoders.checkpoints import write_checkpoint

pytestmark = pytest.mark.slow
TINY = ["--layers=1", "--hidden=32", "--intermediate=64", "--embedding=32"]


def test_the_jobs_make_a_model_one_by_one(shell):
    (shell.folder / "dumps").mkdir()
    write_sample(shell.folder / "dumps" / "a.json.gz", 600, 0)

    def type(command, *more):
        return json.loads(shell.type(command, *more))

    corpus = type(
        "python -m amazon_electra.beam_jobs.corpus_job --input 'dumps/*.json.gz' --output corpus"
    )
    assert corpus["read"] == corpus["kept"] + sum(corpus["dropped"].values()) == 600
    made = type(
        "python -m amazon_electra.model.vocabulary --corpus corpus --output vocabulary "
        "--size 50000",
        *["--size", 1000],
    )
    assert made["size"] <= 1000
    shards = type(
        "python -m amazon_electra.beam_jobs.shards_job --corpus corpus --vocabulary vocabulary "
        "--output shards --max-length 128"
    )
    dev = type(
        "python -m amazon_electra.beam_jobs.shards_job --corpus corpus --vocabulary vocabulary "
        "--output dev --max-length 128 --split dev"
    )
    assert shards["tokens"] > dev["tokens"] > 0
    trained = type(
        "python -m amazon_electra.model.pretrain --shards shards --validation dev "
        "--output electra --recipe sample",
        *["--steps", 5, *TINY],
    )
    assert trained["steps"] == 5
    type(
        "python -m amazon_electra.model.finetune --encoder electra/discriminator --task polarity "
        "--data corpus --output polarity --seed 0",
        *["--epochs", "1"],
    )
    measured = type(
        "python -m amazon_electra.model.evaluate --model polarity --task polarity --data corpus "
        "--output evaluation"
    )
    assert 0 < measured["metrics"]["accuracy"]["value"] <= 1
    classify = pipeline("text-classification", model=str(shell.folder / "polarity"))
    assert classify("Broke after a week.")[0]["label"]

    encoder = write_checkpoint(shell.folder / "encoder", max_position_embeddings=128)
    joined = shell.type(
        "python -m amazon_electra.model.finetune --arm joined --encoder FOLDER --task stars "
        "--data corpus --output joined --selection cross-validation --n-train 1000 "
        "--cache cache",
        *["--n_train", "100"],
        names={"FOLDER": encoder},
    )
    assert json.loads(joined)["dev"]
