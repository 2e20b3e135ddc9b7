"""The stack's weights, and the folders it is fitted from."""

import numpy as np

from amazon_electra.beam_jobs.core.files import write_json
from amazon_electra.model.arms.arm import Resources
from amazon_electra.model.arms.finetuned import Finetuned
from amazon_electra.model.arms.stack import choose_weights, find_parts
from amazon_electra.model.finetuning.examples import Example
from amazon_electra.model.finetuning.head import Head, make_task
from amazon_electra.model.finetuning.network import build_network, save_finetuned
from tests.model.corpora import write_electra
from tests.refusals import refuses


def make_logits(labels, noise):
    right = np.eye(2)[labels] * 2
    return (right + np.random.default_rng(int(noise * 10)).normal(size=right.shape) * noise).astype(
        np.float32
    )


def test_the_better_part_has_the_larger_weight():
    labels = np.random.default_rng(0).integers(0, 2, 2_000)
    good, poor = make_logits(labels, 1.0), make_logits(labels, 3.0)
    weights, tried = choose_weights([good * 5, poor * 5], labels)
    assert weights[0] > 3 * weights[1]
    assert sum(weights) < 0.5, "too sure, which the temperature mends"
    losses = [one["loss"] for one in tried]
    assert losses == sorted(losses)


def test_few_examples_choose_no_weight():
    labels = np.random.default_rng(0).integers(0, 2, 99)
    weights, _ = choose_weights([make_logits(labels, 1.0), make_logits(labels, 3.0)], labels)
    assert weights == [0.5, 0.5]


def test_parts_are_the_arms_that_are_combined(tmp_path):
    for name in ("finetuned", "tfidf"):
        (tmp_path / name).mkdir()
        write_json(tmp_path / name / "task.json", {"kind": name})
    words, network = tmp_path / "tfidf", tmp_path / "finetuned"
    assert find_parts([words, network], ("finetuned", "tfidf")) == [network, words]
    for given in ([], [words], [words, words], [words, network, network], [words, tmp_path]):
        with refuses(field="parts"):
            find_parts(given, ("finetuned", "tfidf"))


def test_a_part_predicts_a_test_set_once(tmp_path):
    """The stack of a network asks for the same predictions again, and so does its export."""
    encoder = str(write_electra(tmp_path / "electra"))
    head = Head("polarity", "classification", ("negative", "positive"), 32, 0)
    model = build_network(encoder, None, make_task(head))
    save_finetuned(model, head, encoder, tmp_path / "model")
    examples = [Example(str(i), "the lamp works " * (i + 1)) for i in range(5)]

    def predict(some):
        resources, calls = Resources("cpu", "fp32", tmp_path / "cache"), []
        arm = Finetuned.load(tmp_path / "model", resources)
        arm.model.register_forward_pre_hook(lambda *_: calls.append(1))
        return arm.predict_logits(some), len(calls)

    first, calls = predict(examples)
    again, none = predict(examples)
    assert (calls > 0, none) == (True, 0)
    assert np.array_equal(first, again)
    assert predict(examples[1:])[1] > 0
