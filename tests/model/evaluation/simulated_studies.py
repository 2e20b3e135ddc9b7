"""Simulate studies: arms whose examples, seeds and encoders differ by as much as is asked for."""

import numpy as np

from amazon_electra.model.evaluation.predictions import Predictions
from amazon_electra.model.report.results import repeat_over_pretrainings

EXAMPLES = 200
STUDIES = 200
GRID = [(pretraining, finetuning) for pretraining in range(3) for finetuning in range(3)]
"""Three pre-trainings, each fine-tuned with the same three seeds."""


def predictions(right: np.ndarray) -> Predictions:
    labels = np.arange(len(right)) % 2
    said = np.where(right, labels, 1 - labels)
    return Predictions(
        [str(i) for i in range(len(right))],
        labels.tolist(),
        said.tolist(),
        np.zeros(len(right)),
        None,
        2,
    )


def arm(generator, difficulty, seeds, spread, effect=0.0) -> list[Predictions]:
    """Examples differ in difficulty, seeds by `spread` as a whole and on every example by chance
    (logits).
    """
    return [
        predictions(
            difficulty
            + effect
            + generator.normal(0, spread)
            + generator.normal(0, 1.0, len(difficulty))
            > 0
        )
        for _ in range(seeds)
    ]


def study(number: int, seeds: int, spread: float, effect: float = 0.0):
    """Both arms meet the same examples."""
    generator = np.random.default_rng([7, number])
    difficulty = generator.normal(0.8, 1.0, EXAMPLES)
    return arm(generator, difficulty, seeds, spread, effect), arm(
        generator, difficulty, seeds, spread
    )


def pretrained_arm(generator, difficulty, spread, finetuning, effect=0.0) -> list[Predictions]:
    """Encoders differ by `spread` as a whole and by 0.3 on every example; `finetuning` [3, 3] is
    what each fine-tuning adds.
    """
    return [
        predictions(
            difficulty + effect + encoder + more + generator.normal(0, 1.0, len(difficulty)) > 0
        )
        for row in finetuning
        for encoder in [generator.normal(0, spread) + generator.normal(0, 0.3, len(difficulty))]
        for more in row
    ]


def pretrained_study(number: int, spread: float, crossed: bool, effect: float = 0.0):
    """Fine-tuning seeds vary by 0.1: by seed alike for every encoder, or anew for each."""
    generator = np.random.default_rng([11, number])
    difficulty = generator.normal(0.8, 1.0, EXAMPLES)
    arms = []
    for gain in (effect, 0.0):
        finetuning = generator.normal(0, 0.1, (1 if crossed else 3, 3)) + np.zeros((3, 3))
        arms.append(pretrained_arm(generator, difficulty, spread, finetuning, gain))
    return arms


def seedless_study(number: int, spread: float, crossed: bool):
    """The first arm is pre-trained; the second is of random encoders, one for each of three
    fine-tunings, which are compared with every pre-training: the report repeats them. All encoders
    differ alike, so that the arms do not.
    """
    generator = np.random.default_rng([13, number])
    difficulty = generator.normal(0.8, 1.0, EXAMPLES)
    seeds = generator.normal(0, 0.1, (1, 3))
    finetuning = [seeds if crossed else generator.normal(0, 0.1, (1, 3)) for _ in range(4)]
    trained = pretrained_arm(generator, difficulty, spread, np.concatenate(finetuning[:3]))
    random = pretrained_arm(generator, difficulty, spread, finetuning[3].T)
    known = dict(zip(GRID, trained, strict=True))
    repeated = repeat_over_pretrainings(
        {(None, seed): one for seed, one in enumerate(random)}, known
    )
    return trained, [repeated[pair] for pair in GRID]
