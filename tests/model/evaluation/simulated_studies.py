"""Simulate studies: arms whose examples, seeds and encoders differ by as much as is asked for."""

import numpy as np

from amazon_electra.model.evaluation.predictions import Predictions

EXAMPLES = 200
STUDIES = 200
GRID = [(pretraining, finetuning) for pretraining in range(3) for finetuning in range(3)]
"""Three pre-trainings, each fine-tuned with the same three seeds."""


def predictions(right: np.ndarray) -> Predictions:
    labels = np.arange(len(right)) % 2
    said = np.where(right, labels, 1 - labels)
    ids = [str(i) for i in range(len(right))]
    return Predictions(ids, labels.tolist(), said.tolist(), np.zeros(len(right)), None, 2)


def arm(generator, difficulty, seeds, spread, effect=0.0) -> list[Predictions]:
    """Examples differ in difficulty, seeds by `spread` as a whole and on every example by chance
    (logits).
    """
    made = []
    for _ in range(seeds):
        seed = effect + generator.normal(0, spread)
        made.append(predictions(difficulty + seed + generator.normal(0, 1.0, EXAMPLES) > 0))
    return made


def study(number: int, seeds: int, spread: float, effect: float = 0.0):
    """Both arms meet the same examples."""
    generator = np.random.default_rng([7, number])
    difficulty = generator.normal(0.8, 1.0, EXAMPLES)
    return [arm(generator, difficulty, seeds, spread, gain) for gain in (effect, 0.0)]


def pretrained_arm(generator, difficulty, spread, finetuning, effect=0.0) -> list[Predictions]:
    """Encoders differ by `spread` as a whole and by 0.3 on every example; `finetuning` [3, 3] is
    what each fine-tuning adds.
    """
    made = []
    for row in finetuning:
        encoder = effect + generator.normal(0, spread) + generator.normal(0, 0.3, EXAMPLES)
        for more in row:
            own = encoder + more + generator.normal(0, 1.0, EXAMPLES)
            made.append(predictions(difficulty + own > 0))
    return made


def pretrained_study(number: int, spread: float, crossed: bool, effect: float = 0.0):
    """Fine-tuning seeds vary by 0.1: by seed alike for every encoder, or anew for each."""
    generator = np.random.default_rng([11, number])
    difficulty = generator.normal(0.8, 1.0, EXAMPLES)
    arms = []
    for gain in (effect, 0.0):
        finetuning = generator.normal(0, 0.1, (1 if crossed else 3, 3)) + np.zeros((3, 3))
        arms.append(pretrained_arm(generator, difficulty, spread, finetuning, gain))
    return arms
