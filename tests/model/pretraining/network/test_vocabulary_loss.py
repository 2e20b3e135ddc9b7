import pytest
import torch
from torch.nn import functional

from amazon_electra.model.device import open_device
from amazon_electra.model.pretraining.network import vocabulary_loss


@pytest.mark.parametrize("entries", [7, 1000])
def test_samples_follow_the_softmax(entries):
    """Chi-square of 200,000 draws at a fixed seed: below what one in ten thousand tables would
    exceed.
    """
    logits = torch.randn(entries, generator=torch.Generator().manual_seed(3)) * 2
    odds, draws = logits.softmax(0), 200_000
    keys = torch.randint(0, 2**31, (draws,), generator=torch.Generator().manual_seed(4))
    draw = vocabulary_loss.draw_ids
    drawn = [draw(odds.expand(len(part), -1), part) for part in keys.split(10_000)]
    seen, expected = torch.bincount(torch.cat(drawn), minlength=entries), odds * draws
    frequent = expected > 5
    chi_square = (((seen - expected) ** 2 / expected)[frequent]).sum().item()
    freedom = int(frequent.sum()) - 1
    assert chi_square < freedom + 4 * (2 * freedom) ** 0.5


@pytest.mark.parametrize(("rows", "multiple"), [(3, 1), (1000, 1), (1000, 256)])
def test_loss_and_gradients_are_those_of_cross_entropy(rows, multiple, monkeypatch):
    monkeypatch.setitem(vocabulary_loss.ROWS_AT_ONCE, "cpu", rows)
    monkeypatch.setitem(vocabulary_loss.ENTRIES_MULTIPLE, "cpu", multiple)
    open_device("cpu", "fp32")
    generator = torch.Generator().manual_seed(0)
    shapes = (10, 16), (77, 16), (77,)
    states, word, bias = (torch.randn(*shape, generator=generator) for shape in shapes)
    originals = torch.randint(0, 77, (10,), generator=generator)
    weights = torch.tensor([1.0, 0.0] * 5)
    arguments = [tensor.clone().requires_grad_() for tensor in (states, word, bias)]
    more = originals, weights, torch.arange(10), vocabulary_loss.compute_rows
    loss, sampled, right = vocabulary_loss.VocabularyLoss.apply(*arguments, *more)
    (loss * 3).backward()
    plain = [tensor.clone().requires_grad_() for tensor in (states, word, bias)]
    logits = functional.linear(*plain)
    expected = (functional.cross_entropy(logits, originals, reduction="none") * weights).sum()
    (expected * 3).backward()
    torch.testing.assert_close(loss, expected)
    for ours, theirs in zip(arguments, plain, strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, atol=1e-5, rtol=1e-5)
    assert torch.equal(right, (logits.argmax(1) == originals).float())
    assert sampled.shape == (10,)
    assert ((sampled >= 0) & (sampled < 77)).all()
