"""The probe: what it reads, when it is taken, and which weights it has written."""

import numpy as np
import pytest
import torch

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.model.config import AdaptationConfig
from amazon_electra.model.pretraining.adaptation.anchor import ACCURACY as PROBE
from amazon_electra.model.pretraining.adaptation.anchor import Probe, is_worse
from tests.model.pretraining.adaptation.published import (
    read_origin,
    read_weights,
    train,
    write_corpus,
)
from tests.model.pretraining.runs import pretrain, read_curve


def test_the_loaded_encoder_is_measured_before_the_first_step_then_ten_times(made, tmp_path):
    result = train(made, tmp_path, "--probe", made / "corpus")
    probes = read_curve(tmp_path, PROBE)
    assert list(probes) == list(range(0, 21, 2))
    assert result["probe_origin_accuracy"] == probes[0]
    assert result["probe_last_accuracy"] == probes[20]
    assert result["written_step"] == 20
    assert 0.7 < probes[0] <= 1.0  # words tell the stars, so random vectors do
    assert result["cpu_seconds"] > 0


def test_where_training_did_harm_the_loaded_weights_are_written_and_that_is_said(
    made, tmp_path, capsys
):
    write_corpus(tmp_path / "corpus", reviews=600)
    output, chosen = tmp_path / "output", ("--probe", tmp_path / "corpus")
    result = train(made, output, *chosen, learning_rate=0.1)
    assert result["written_step"] == 0
    probes = read_curve(output, PROBE)
    assert result["probe_last_accuracy"] < result["probe_origin_accuracy"] == probes[0]
    written = read_weights(output)
    for name, tensor in read_origin(made).items():
        assert torch.equal(written[name], tensor), name
    told = capsys.readouterr().err
    assert "the loaded weights are written as they were" in told
    worse = [line for line in told.splitlines() if "worse so far" in line]
    assert worse
    assert {int(line.split()[1].rstrip(":")) for line in worse} <= set(probes)
    assert "unchanged" in (output / "encoder" / "README.md").read_text()

    last = train(made, tmp_path / "last", *chosen, learning_rate=0.1, write_last="true")
    assert last["written_step"] == 20
    assert last["probe_last_accuracy"] == result["probe_last_accuracy"]
    assert ", which is written" in capsys.readouterr().err


def test_only_what_is_worse_by_two_standard_errors_is_worse():
    """On the same 1,000 reviews: five lost and none won are more than chance, beside eight won and
    eight lost they are not.
    """
    reviews = np.arange(1000)
    loaded = reviews < 800
    assert not is_worse(loaded, loaded)
    assert not is_worse(reviews < 810, loaded)
    assert not is_worse(reviews < 797, loaded)
    assert is_worse(reviews < 795, loaded)
    assert not is_worse((reviews >= 13) & (reviews < 808), loaded)


def test_the_probe_measures_the_average_that_is_written(made, tmp_path):
    """With nearly all of the origin put back every state is as good as the origin."""
    for name, share in (("own", 0), ("averaged", 0.999999)):
        chosen = {"learning_rate": 0.1, "origin_average": share}
        train(made, tmp_path / name, "--probe", made / "corpus", **chosen)
    assert len(set(read_curve(tmp_path / "own", PROBE).values())) > 1
    assert len(set(read_curve(tmp_path / "averaged", PROBE).values())) == 1
    losses = [read_curve(tmp_path / name, "mlm_loss") for name in ("own", "averaged")]
    assert losses[0] == losses[1]  # training itself is the same


def test_test_reviews_are_never_read(made, tmp_path):
    """Without the test split the probe is the same to the last token."""
    write_corpus(tmp_path / "corpus", splits=("train", "dev"))
    vocabulary = made / "shards" / "vocabulary"
    with_test, without = (
        Probe.open(corpus, vocabulary, 32, AdaptationConfig())
        for corpus in (made / "corpus", tmp_path / "corpus")
    )
    assert with_test.compute_fingerprint() == without.compute_fingerprint()
    assert len(without.train.labels) == len(without.dev.labels) == 40
    assert without.dev.labels.mean() == 0.5


def test_a_run_with_a_probe_is_another_run(made, tmp_path):
    train(made, tmp_path)
    with pytest.raises(UserError, match=r"\bprobe\b"):
        train(made, tmp_path, "--probe", made / "corpus")


def test_what_cannot_be_probed_is_refused_at_once(made, tmp_path):
    with pytest.raises(UserError, match=r"`probe='.*'`"):
        train(made, tmp_path / "a", "--probe", made / "shards")
    write_corpus(tmp_path / "corpus", splits=("train", "test"))
    with pytest.raises(UserError, match=r"`probe=.*dev split"):
        train(made, tmp_path / "b", "--probe", tmp_path / "corpus")
    with pytest.raises(UserError, match=r"`probe=.*`start_from`"):
        pretrain(made / "shards", tmp_path / "c", "--probe", made / "corpus")
    words = ("--budget", "10s", "--start-from", made / "bert", "--probe", made / "corpus")
    with pytest.raises(UserError, match="`validate_every`"):
        pretrain(made / "shards", tmp_path / "c", *words)
