"""Make a classifier without a label, of classes in words (model/finetuning/classes.py)."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from scipy.special import softmax

from amazon_electra.beam_jobs.core.files import make_writable_folder, write_json
from amazon_electra.beam_jobs.model_folder.probabilities import apply_temperature
from amazon_electra.model.arms.arm import Resources, write_config
from amazon_electra.model.arms.frozen import Frozen
from amazon_electra.model.arms.phrases import add_scores
from amazon_electra.model.arms.states import StateLayer, fit_scaler, fold_layer
from amazon_electra.model.check import check_folder, load_folder
from amazon_electra.model.finetuning.classes import UNKNOWN, ClassesInWords
from amazon_electra.model.finetuning.config import give_phrases
from amazon_electra.model.finetuning.request import Request, Start
from amazon_electra.model.finetuning.tasks import find_task
from amazon_electra.model.finetuning.tasks.corpus import list_titles, read_texts
from amazon_electra.model.pretraining.input.pairs import is_title_of_stars
from amazon_electra.model.recipes import RECIPES
from amazon_electra.model.results import UnlabelledResult

TEXTS, CHECKED = 1_000, 60
"""Reviews that centre and scale the scores and set the shares, and how many check the folder."""
SHARPNESS = 1.5
"""Logits of a score of one deviation: of 1 to 3 the best log-loss on 915 reviews with two classes
and 1,179 with five was at 2 and 1."""
STEPS, HARD = 200, 10.0
"""By which the answers get the shares: at this sharpness nearly each counts for one class."""
TITLES, SHOWN_TITLES = 300, 10
"""So many of the most frequent titles are answered, and of each class shown."""


def classify_without_labels(
    config: ClassesInWords,
    encoder: str | Path,
    data: str | Path,
    output: str | Path,
    *,
    device: str = "auto",
    cache: str | Path | None = None,
) -> UnlabelledResult:
    """Write a model folder whose answers are the classes that a review's states lie nearest to.

    `encoder` is a folder; the reviews of the corpus `data` decide from which score on an answer is
    given, so that each class has its share. results.json is written last.
    """
    data, output = Path(data), Path(output)
    make_writable_folder("output", output)
    classes = tuple(config.classes)
    task = give_phrases(find_task(config.task, None, classes), config.phrases)
    settings = RECIPES["published"].finetuning.replace(precision="fp32")
    request = Request(Start(str(encoder), arm=Frozen.name), task, data, settings)
    resources = Resources(device, settings.precision, Path(cache) if cache else None)
    arm, _ = Frozen.open([], request, resources, 0)
    examples = read_texts(data, TEXTS)
    states = arm.compute_states(examples)
    arm.layer = make_layer(states, arm.read_phrases(task), config.shares)
    exported = arm.export(output, 1.0, task)
    write_config(output, Frozen, exported, task.name, classes)
    exact = apply_temperature(arm.layer.compute_logits(states), 1.0)
    check_folder(output, load_folder(output), examples[:CHECKED], exact[:CHECKED])
    titles = [one for one in list_titles(data, TITLES) if not is_title_of_stars(one)]
    found = arm.predict(titles).argmax(1) if titles else np.array([], int)
    counts = np.bincount(exact.argmax(1), minlength=len(classes)).tolist()
    content = {
        "task": task.name,
        "labels": list(classes),
        "texts": len(examples),
        "answers": dict(zip(classes, counts, strict=True)),
        "titles": group_titles(titles, found, classes),
        "says": UNKNOWN,
    }
    result = UnlabelledResult.of(content)
    write_card(result, config, output)
    write_json(output / "results.json", content)
    return result


def make_layer(states: np.ndarray, said: np.ndarray, shares: Sequence[float]) -> StateLayer:
    """Return the layer whose answers to texts with these states, [texts, layers · width], have the
    shares of the classes; `said` are the directions of their phrases, [classes, width].
    """
    every, n = add_scores(states, said), len(said)
    scaler = fit_scaler(every)
    scores, offsets = scaler.transform(every)[:, -n:], np.zeros(n)
    for _ in range(STEPS):
        answers = softmax(HARD * (scores + offsets), 1).mean(0)
        offsets += np.log(np.asarray(shares) / np.maximum(answers, 1 / len(scores))) / HARD
    weights = np.hstack([np.zeros((n, states.shape[1])), np.eye(n)])
    return fold_layer(scaler, SHARPNESS * weights, SHARPNESS * offsets, 1.0, said)


def group_titles(
    titles: Sequence[str], answers: np.ndarray, classes: Sequence[str]
) -> dict[str, list[str]]:
    """Return the most frequent titles of each answer."""
    return {
        name: [title for title, one in zip(titles, answers, strict=True) if one == place][
            :SHOWN_TITLES
        ]
        for place, name in enumerate(classes)
    }


def write_card(result: UnlabelledResult, config: ClassesInWords, output: Path) -> None:
    """Write README.md."""
    lines = [
        "---\npipeline_tag: text-classification\n---\n",
        f"# {result.task}\n",
        "Answers the class whose phrases a review is nearest to. It has learned from no label.\n",
        f"{result.says}.\n",
        *(f"- {name}: {'; '.join(said)}" for name, said in config.phrases.items()),
    ]
    (output / "README.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
