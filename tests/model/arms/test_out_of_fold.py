"""Out-of-fold predictions: folds keep groups together, and no model predicts what it has read."""

import numpy as np

from amazon_electra.model.arms.out_of_fold import FOLDS, OutOfFold, assign_folds, group_examples
from amazon_electra.model.arms.regression import fit_regression
from amazon_electra.model.finetune import finetune
from amazon_electra.model.finetuning.config import FinetuneConfig
from amazon_electra.model.finetuning.examples import Example, Sampling, load_examples
from amazon_electra.model.finetuning.tasks import find_task
from tests.model.corpora import write_corpus, write_electra


def test_one_text_and_one_product_are_one_group():
    examples = [
        Example("a", "A good lamp", product="lamp"),
        Example("b", "a  good LAMP"),
        Example("c", "broken", product="lamp"),
        Example("d", "broken again"),
        *(Example(str(i), f"text {i}", product=f"product {i}") for i in range(15)),
    ]
    groups = group_examples(examples)
    assert groups[0] == groups[1] == groups[2] != groups[3]
    assert len(set(groups)) == 17


def test_folds_keep_groups_whole_and_classes_even():
    draw = np.random.default_rng(0)
    labels = draw.choice(3, 1000, p=[0.9, 0.08, 0.02])
    groups = np.where(np.arange(1000) < 300, np.arange(1000) // 6, np.arange(1000))
    folds = assign_folds(labels, groups)
    assert set(folds) == set(range(FOLDS))
    assert all(len(set(folds[groups == g])) == 1 for g in set(groups))
    for c in range(3):
        counts = np.bincount(folds[labels == c], minlength=FOLDS)
        assert counts.max() - counts.min() <= 2


def test_noise_is_not_known_out_of_fold():
    """A model that had read the held-out labels would know them: there is a feature for each."""
    draw = np.random.default_rng(0)
    labels, groups = draw.integers(0, 2, 300), np.arange(300) // 2
    features = np.repeat(np.eye(150), 2, axis=0)  # the two examples of a group are alike
    labels = np.repeat(labels[::2], 2)
    fitted = fit_regression(features, labels, 2, (1.0, 100.0), groups)
    assert np.mean(fitted.logits.argmax(1) == labels) < 0.6


def test_a_network_predicts_every_one_of_few_labels(tmp_path):
    """By the folds of TF-IDF, so that both are compared on all of them."""
    data, encoder = write_corpus(tmp_path / "corpus"), write_electra(tmp_path / "electra")
    few = {"selection": "cross-validation", "n_train": "60", "max_length": "32", "epochs": "6"}
    rates = {"learning_rates": "1e-7,5e-3", "layer_decay": "1"}
    for arm, settings in (("tfidf", few), ("finetuned", few | rates)):
        config = FinetuneConfig(task="polarity", arm=arm, settings=settings)
        result = finetune(config, data, tmp_path / arm, encoder=encoder).content
        assert result["n_dev"] == result["n_train"] == 60
    words, network = (OutOfFold.load(tmp_path / arm) for arm in ("tfidf", "finetuned"))
    assert words.ids == network.ids
    assert words.folds.tolist() == network.folds.tolist()
    sampling = Sampling(has_dev=False)
    labels = {e.id: e.label for e in load_examples(find_task("polarity"), data, "train", sampling)}
    assert words.labels.tolist() == [labels[one] for one in words.ids]
    assert words.logits.shape == (60, 2)
    assert [one["learning_rate"] for one in result["tried"]] == [5e-3, 1e-7]
    assert result["learning_rate"] == 5e-3
