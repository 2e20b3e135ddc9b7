"""A fine-tuning that goes on from its checkpoint does what it would have done."""

import pickle

import pytest
import torch

from model.finetuning.checkpoint import (
    Attempt,
    Position,
    read_checkpoint_step,
    resume_training,
    save_checkpoint,
)

CPU = torch.device("cpu")


def build(seed):
    torch.manual_seed(seed)
    network = torch.nn.Linear(3, 2)
    return network, torch.optim.AdamW(network.parameters(), lr=0.1)


def take_step(network, optimizer):
    """One step on random numbers, as dropout and shuffling draw them."""
    optimizer.zero_grad()
    loss = (network(torch.randn(4, 3)) ** 2).mean()
    loss.backward()
    optimizer.step()
    return loss.detach()


def test_the_next_steps_are_those_of_a_training_that_was_not_stopped(tmp_path):
    file = tmp_path / "new" / "checkpoint.pt"
    network, optimizer = build(0)
    losses = [take_step(network, optimizer) for _ in range(3)]
    attempt = Attempt(0.1, {"accuracy": 0.5, "loss": 1.0}, best_step=2, state={"w": torch.ones(2)})
    save_checkpoint(file, network, optimizer, attempt, Position(3, losses))
    expected = [take_step(network, optimizer) for _ in range(2)]

    other, its_optimizer = build(1)
    again = Attempt(0.1)
    position = resume_training(file, other, its_optimizer, again, CPU)
    assert (position.step, position.losses) == (3, losses)
    assert (again.dev, again.best_step) == ({"accuracy": 0.5, "loss": 1.0}, 2)
    assert again.state["w"].tolist() == [1.0, 1.0]
    assert [take_step(other, its_optimizer) for _ in range(2)] == expected
    assert read_checkpoint_step(file) == 3
    assert [path.name for path in file.parent.iterdir()] == ["checkpoint.pt"]


def test_where_nothing_was_saved_it_begins_at_the_start(tmp_path):
    network, optimizer = build(0)
    for file in (None, tmp_path / "checkpoint.pt"):
        position = resume_training(file, network, optimizer, Attempt(0.1), CPU)
        assert position == Position(0, [])
    assert read_checkpoint_step(tmp_path / "checkpoint.pt") == 0


class Planted:
    """What a pickle would run when it is loaded."""

    def __reduce__(self):
        return print, ("planted code has run",)


def test_code_in_a_checkpoint_is_not_run(tmp_path, capsys):
    file = tmp_path / "checkpoint.pt"
    torch.save({"numbers": {"step": Planted()}, "network": Planted()}, file)
    network, optimizer = build(0)
    with pytest.raises(pickle.UnpicklingError, match="weights_only"):
        read_checkpoint_step(file)
    with pytest.raises(pickle.UnpicklingError, match="weights_only"):
        resume_training(file, network, optimizer, Attempt(0.1), CPU)
    assert "planted" not in capsys.readouterr().out
