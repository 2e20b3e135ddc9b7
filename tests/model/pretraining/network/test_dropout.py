import pytest
import torch

from amazon_electra.model.pretraining.network import dropout
from amazon_electra.model.pretraining.network.dropout import Dropout, Noise


@pytest.mark.parametrize("elements", [10_000, dropout.POOL])
def test_rate_and_expectation(elements):
    layer = Dropout(Noise(0.1)).train()
    layer.noise.begin_step(seed=0, step=0)
    out = layer(torch.ones(elements))
    assert (out == 0).float().mean().item() == pytest.approx(0.1, abs=0.01)
    assert out.mean().item() == pytest.approx(1.0, abs=0.01)
    assert len(out.unique()) == 2


def test_the_same_step_drops_the_same_and_others_drop_others():
    def draw(seed, step, part=0):
        layer = Dropout(Noise(0.5)).train()
        layer.noise.begin_step(seed, step, part)
        return layer(torch.ones(2, 1000)), layer.add_residual(torch.zeros(1000), torch.ones(1000))

    assert all(torch.equal(a, b) for a, b in zip(draw(1, 5), draw(1, 5), strict=True))
    for other in ((2, 5), (1, 6), (1, 5, 1), (1, 5 + dropout.STEPS_PER_POOL)):
        assert not torch.equal(draw(1, 5)[0], draw(*other)[0])
    first, second = draw(1, 5)[0]
    assert not torch.equal(first, second)


def test_what_one_step_drops_says_nothing_about_the_next():
    noise = Noise(0.1)
    masks = []
    for step in range(200):
        noise.begin_step(0, step)
        masks.append((noise.take_factors(torch.empty(4096)) == 0).float())
    dropped = torch.stack(masks)
    correlations = torch.corrcoef(dropped)
    off_diagonal = correlations[~torch.eye(200, dtype=torch.bool)]
    assert off_diagonal.abs().mean() < 0.02
    assert dropped.mean(0).std() < 0.03


def test_nothing_is_dropped_when_evaluating():
    layer = Dropout(Noise(0.9)).eval()
    states = torch.randn(100)
    assert torch.equal(layer(states), states)
    assert torch.equal(layer.add_residual(states, states), 2 * states)
