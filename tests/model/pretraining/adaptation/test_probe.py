"""The probe: what it reads, when it is taken, and which weights it has written."""

import shutil
import time

import numpy as np
import pytest
import torch

from beam_jobs.job.errors import UserError
from model.pretrain import run
from model.pretraining import checkpoint
from model.pretraining.adaptation.config import AdaptationConfig
from model.pretraining.adaptation.probe import Probe
from model.tracking.metrics_log import read_metrics
from tests.model.pretraining.adaptation.published import (
    read_origin,
    read_weights,
    train,
    write_all,
    write_corpus,
)

CHOSEN = ("probe_origin_accuracy", "probe_best_accuracy", "probe_written_accuracy", "written_step")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return write_all(tmp_path_factory.mktemp("made"))


def read_probes(output):
    return {
        line["step"]: line["probe_accuracy"]
        for line in read_metrics(output)
        if "probe_accuracy" in line
    }


def test_the_loaded_encoder_is_measured_before_the_first_step_then_ten_times(made, tmp_path):
    result = train(made, tmp_path, "--probe", str(made / "corpus"), "probe_margin=0")
    probes = read_probes(tmp_path)
    assert list(probes) == list(range(0, 21, 2))
    assert result["probe_origin_accuracy"] == probes[0]
    assert result["probe_last_accuracy"] == probes[20]
    assert result["probe_best_accuracy"] == max(probes.values())
    assert 0.7 < probes[0] <= 1.0  # words tell the stars, so random vectors do
    assert result["measuring_cpu_seconds"] > 0
    speed = result["tokens"] / result["cpu_seconds"]
    assert result["tokens_per_cpu_second"] == pytest.approx(speed, rel=0.01)


def test_what_probes_cost_is_no_training(made, tmp_path, monkeypatch):
    def measure(self, model, device):
        began = time.process_time()
        while time.process_time() - began < 0.5:
            pass
        return np.array([True, False])

    monkeypatch.setattr(Probe, "__call__", measure)
    result = train(made, tmp_path, "--probe", str(made / "corpus"))
    assert result["measuring_cpu_seconds"] > 11 * 0.5
    assert result["cpu_seconds"] < 5


def test_the_best_state_is_written_not_the_last(made, tmp_path, monkeypatch):
    """Its checkpoint, which others would push out, is kept."""
    best, judged = 7, iter([700] * 7 + [800] + [700] * 13)
    monkeypatch.setattr(Probe, "__call__", lambda *_: np.arange(1000) < next(judged))
    chosen = ("validate_every=1", "keep_checkpoints=1")
    result = train(made, tmp_path, "--probe", str(made / "corpus"), *chosen)
    assert result["written_step"] == best
    state = checkpoint.load_state(checkpoint.build_path(tmp_path / "checkpoints", best))
    written = read_weights(tmp_path)["electra.embeddings.word_embeddings.weight"]
    assert torch.equal(written, state.tensors["model.embeddings.word"])


def test_of_states_that_the_probe_cannot_tell_apart_the_latest_is_written(
    made, tmp_path, monkeypatch, capsys
):
    """86.1% right, partly of other reviews, is as good as 86.3%; 70.5% is as good as 70%."""
    found = [(700, 0), (705, 100), (860, 0), (863, 0), (861, 50), (830, 0), (861, 100)]
    states = (np.roll(np.arange(1000) < n, shift) for n, shift in [*found, *[(830, 0)] * 4])
    monkeypatch.setattr(Probe, "__call__", lambda *_: next(states))
    result = train(made, tmp_path, "--probe", str(made / "corpus"), "checkpoint_every=100")
    assert (result["written_step"], result["probe_written_accuracy"]) == (12, 0.861)
    assert result["probe_best_accuracy"] == 0.863
    assert "the best 86.3%; written is that of step 12 with 86.1%" in capsys.readouterr().err
    assert "step 12, the latest of the best" in (tmp_path / "encoder" / "README.md").read_text()


def test_where_no_state_is_better_the_loaded_weights_are_written_and_that_is_said(
    made, tmp_path, capsys
):
    write_corpus(tmp_path / "easy", words=1)
    output = tmp_path / "output"
    result = train(made, output, "--probe", str(tmp_path / "easy"), "learning_rate=0.1")
    assert (result["written_step"], result["probe_origin_accuracy"]) == (0, 1.0)
    written = read_weights(output)
    for name, tensor in read_origin(made).items():
        assert torch.equal(written[name], tensor), name
    assert "no state beat the loaded one" in capsys.readouterr().err
    assert "unchanged" in (output / "encoder" / "README.md").read_text()


def test_an_adapted_encoder_is_protected_too_when_it_is_gone_on_with(made, tmp_path):
    write_corpus(tmp_path / "easy", words=1)
    first, second = train(made, tmp_path / "first"), tmp_path / "second"
    words = ("--start-from", first["encoder"], "--probe", str(tmp_path / "easy"))
    result = train(made, second, *words, "learning_rate=0.1")
    assert (result["written_step"], result["probe_origin_accuracy"]) == (0, 1.0)
    assert len(read_probes(second)) == 11
    name = "electra.encoder.layer.0.output.dense.weight"
    before = read_weights(tmp_path / "first")[name]
    assert torch.equal(read_weights(second)[name], before)


def test_a_state_that_is_better_by_chance_replaces_nothing(made, tmp_path):
    chosen = ("validate_every=1", "probe_margin=20")
    result = train(made, tmp_path, "--probe", str(made / "corpus"), *chosen)
    probes = read_probes(tmp_path)
    assert probes[0] < max(probes.values())
    assert (result["written_step"], result["probe_written_accuracy"]) == (0, probes[0])


def test_the_last_state_is_written_where_the_probe_is_to_choose_nothing(made, tmp_path, capsys):
    chosen = ("learning_rate=0.1", "write_last=true")
    result = train(made, tmp_path, "--probe", str(made / "corpus"), *chosen)
    probes = read_probes(tmp_path)
    assert probes[20] < probes[0]
    assert (result["written_step"], result["probe_written_accuracy"]) == (20, probes[20])
    assert result["probe_best_accuracy"] == max(probes.values())
    assert "which is written (write_last)" in capsys.readouterr().err
    card = (tmp_path / "encoder" / "README.md").read_text()
    assert "those of the last step, 20. The probe, which chose nothing" in card
    with pytest.raises(UserError, match="probe_margin has no effect where write_last is true"):
        train(made, tmp_path, "--probe", str(made / "corpus"), *chosen, "probe_margin=2")


def test_a_training_that_was_ended_goes_on_choosing(made, tmp_path):
    words = ("--probe", str(made / "corpus"), "validate_every=1", "keep_checkpoints=20")
    output = tmp_path / "output"
    whole = train(made, output, *words)
    for path in checkpoint.list_checkpoints(output / "checkpoints"):
        if path > checkpoint.build_path(output / "checkpoints", 10):
            shutil.rmtree(path)
    (output / "result.json").unlink(missing_ok=True)
    shutil.rmtree(output / "encoder")
    again = train(made, output, *words)
    assert {name: again[name] for name in CHOSEN} == {name: whole[name] for name in CHOSEN}
    assert list(read_probes(output)) == list(range(21))


def test_a_state_that_is_worse_than_the_loaded_one_is_told_at_once(made, tmp_path, capsys):
    train(made, tmp_path, "--probe", str(made / "corpus"), "learning_rate=0.1")
    probes = read_probes(tmp_path)
    fallen = [step for step, accuracy in probes.items() if accuracy < probes[0]]
    told = [line for line in capsys.readouterr().err.splitlines() if "worse so far" in line]
    assert [int(line.split()[1].rstrip(":")) for line in told] == fallen
    assert fallen


def test_the_probe_measures_the_average_that_is_written(made, tmp_path):
    """With nearly all of the origin put back every state is as good as the origin."""
    words = ("--probe", str(made / "corpus"), "learning_rate=0.1")
    train(made, tmp_path / "own", *words)
    train(made, tmp_path / "averaged", *words, "origin_average=0.999999")
    assert len(set(read_probes(tmp_path / "own").values())) > 1
    assert len(set(read_probes(tmp_path / "averaged").values())) == 1
    losses = [
        [line["mlm_loss"] for line in read_metrics(tmp_path / name) if "mlm_loss" in line]
        for name in ("own", "averaged")
    ]
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


def test_the_reviews_that_it_learns_from_are_counted(made):
    config = AdaptationConfig(probe_train=10, probe_dev=20)
    probe = Probe.open(made / "corpus", made / "shards" / "vocabulary", 32, config)
    assert (len(probe.train.labels), len(probe.dev.labels)) == (10, 20)


def test_a_run_with_a_probe_is_another_run(made, tmp_path):
    train(made, tmp_path)
    with pytest.raises(UserError, match="checkpoints of another run: probe was None"):
        train(made, tmp_path, "--probe", str(made / "corpus"))


def test_what_cannot_be_probed_is_refused_at_once(made, tmp_path):
    with pytest.raises(UserError, match=r"--probe .*: no corpus-"):
        train(made, tmp_path / "a", "--probe", str(made / "shards"))
    write_corpus(tmp_path / "corpus", splits=("train", "test"))
    with pytest.raises(UserError, match="its dev split lacks reviews"):
        train(made, tmp_path / "b", "--probe", str(tmp_path / "corpus"))
    words = ["--shards", str(made / "shards"), "--output", str(tmp_path / "c")]
    with pytest.raises(UserError, match=r"--probe .* give --start-from too"):
        run([*words, "--preset", "tiny", "--probe", str(made / "corpus")])
    with pytest.raises(UserError, match="probe_dev has no effect where --probe is none"):
        train(made, tmp_path / "d", "probe_dev=10")
    budget = ["--preset", "tiny", "--budget", "10s", "--start-from", str(made / "bert")]
    with pytest.raises(UserError, match="give --set validate_every=STEPS"):
        run([*words, *budget, "--probe", str(made / "corpus")])
