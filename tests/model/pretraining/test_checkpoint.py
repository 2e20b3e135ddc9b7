"""Which checkpoints stay on disk."""

import torch

from model.pretraining.checkpoint import CheckpointWriter, State, list_checkpoints, load_state


def test_the_best_stays_besides_the_newest(tmp_path):
    writer = CheckpointWriter(tmp_path, keep=2)
    for step in range(1, 7):
        writer.write(State(step, {"a": torch.full((2,), float(step))}, {}), best_step=min(step, 3))
    writer.wait()
    assert [load_state(path).step for path in list_checkpoints(tmp_path)] == [3, 5, 6]


def test_a_better_one_takes_its_place(tmp_path):
    writer = CheckpointWriter(tmp_path, keep=1)
    for step, best in ((1, 1), (2, 1), (3, 3), (4, 3), (5, 3)):
        writer.write(State(step, {"a": torch.zeros(2)}, {}), best)
    writer.wait()
    assert [load_state(path).step for path in list_checkpoints(tmp_path)] == [3, 5]
