"""The arm of one logistic regression over TF-IDF and the states of an encoder together."""

from pathlib import Path
from typing import Self

from amazon_electra.model.arms import register
from amazon_electra.model.arms.arm import Examples, Resources
from amazon_electra.model.arms.frozen import Frozen
from amazon_electra.model.arms.out_of_fold import group_examples, list_labels
from amazon_electra.model.arms.parts import Part, Parts
from amazon_electra.model.arms.tfidf import Tfidf, prepare_texts
from amazon_electra.model.finetuning.request import Request

MAX_LABELS = 50_000
"""Labels that it learns from at most: their states take 0.6 GB where the encoder's width is 384,
twice that beside the words, and as much again while a fold is fitted."""


@register
class Joined(Parts):
    """One logistic regression on n-grams and the states of an encoder."""

    name = "joined"
    title = "{} and TF-IDF together"
    cross_validates = True

    @classmethod
    def fit(
        cls, train: Examples, dev: Examples, request: Request, resources: Resources, output: Path
    ) -> Self:
        from amazon_electra.model.arms.words_and_states import fit_parts  # loads torch

        frozen, train = Frozen.open(train, request, resources, MAX_LABELS)
        labels, classes = list_labels(train), len(request.task.labels)
        texts, states = prepare_texts(train), frozen.compute_states(train)
        said = frozen.read_phrases(request.task)
        found = fit_parts(texts, states, labels, classes, group_examples(train), said)
        words, frozen.layer, fitted, facts = found
        parts = []
        if words is not None:
            parts.append(Part("words", Tfidf(words)))
        if frozen.layer is not None:
            parts.append(Part("states", frozen))
        arm = cls(parts, frozen.facts | facts)
        arm.out_of_fold = fitted.describe(train)
        return arm
