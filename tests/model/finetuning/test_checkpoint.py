"""A checkpoint brings no code of others; test_training.py shows that a training goes on from it."""

import pickle

import pytest
import torch

from amazon_electra.model.finetuning.checkpoint import (
    Attempt,
    read_checkpoint_step,
    resume_training,
)


class Planted:
    """What a pickle would run when it is loaded."""

    def __reduce__(self):
        return print, ("planted code has run",)


def test_code_in_a_checkpoint_is_not_run(tmp_path, capsys):
    file = tmp_path / "checkpoint.pt"
    torch.save({"numbers": {"step": Planted()}, "network": Planted()}, file)
    network = torch.nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(network.parameters())
    with pytest.raises(pickle.UnpicklingError, match="weights_only"):
        read_checkpoint_step(file)
    with pytest.raises(pickle.UnpicklingError, match="weights_only"):
        resume_training(file, network, optimizer, Attempt(0.1), torch.device("cpu"))
    assert "planted" not in capsys.readouterr().out
