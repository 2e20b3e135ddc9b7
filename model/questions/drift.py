"""Does it still hold? The profile of tested texts, which `score` compares new files with."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from amazon_electra.beam_jobs.core.files import write_json
from amazon_electra.beam_jobs.core.nesting import find_json
from amazon_electra.beam_jobs.model_folder.drift import MIN_PROFILE, PROFILE, Profile
from amazon_electra.model.arms.out_of_fold import OutOfFold
from amazon_electra.model.finetuning.examples import Example, Task
from amazon_electra.model.finetuning.tasks.corpus import locate_reviews

MAX_TESTED, MAX_KNOWN = 2_000, 20_000
"""Tested texts of the profile, and training texts whose words are known."""


def write_profile(
    held_out: OutOfFold,
    test: OutOfFold | None,
    train: Sequence[Example],
    task: Task,
    data: Path,
    folder: Path,
) -> None:
    """Write profile.json to a model folder, where at least MIN_PROFILE texts of a corpus were
    tested: those of `test`, or of a small one those that the model was chosen by. Where these are
    training examples too, half of them are taken: the words of the others it knows.
    """
    tested = test if test and len(test.ids) >= MIN_PROFILE else held_out
    records = locate_reviews(data, tested.ids)
    places = [place for place, one in enumerate(tested.ids) if one in records]
    is_trained = bool({example.id for example in train} & records.keys())
    order = np.random.default_rng(0).permutation(places)
    chosen = order[: min(MAX_TESTED, len(places) // 2 if is_trained else len(places))].astype(int)
    if len(chosen) < MIN_PROFILE:
        return
    ids = {tested.ids[place] for place in chosen}
    texts = [records[tested.ids[place]]["text"] for place in chosen]
    labels, probabilities = tested.labels[chosen], tested.probabilities[chosen]
    if labels.ndim == 2:  # an answer is the likeliest class, which is right or not
        likeliest = probabilities.argmax(1)
        is_right = labels[np.arange(len(labels)), likeliest] == 1
        labels = np.where(is_right, likeliest, (likeliest + 1) % labels.shape[1])
    profile = Profile.of_texts(
        task.labels,
        (example.text for example in train if example.id not in ids),
        texts,
        probabilities,
        labels,
        dict(find_json(data / "corpus.json").get("language_sample", {})),  # none of other data
        {str(stars): task.labels[place] for stars, place in task.stars.items()},
    )
    if profile:
        write_json(folder / PROFILE, profile.to_json())
