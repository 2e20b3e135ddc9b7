"""Apply settings to a task: refuse those without an effect, choose the examples."""

from dataclasses import fields

from beam_jobs.job.errors import UserError
from beam_jobs.job.settings import find_unread
from model.config import FinetuningSettings
from model.finetuning.features.examples import Sampling, Split, Task


def check_for_task(settings: FinetuningSettings, task: Task, has_teacher: bool) -> None:
    """Raise a UserError for a setting that the task would silently pass over."""
    given = [f.name for f in fields(settings) if getattr(settings, f.name) != f.default]
    facts = {"shape": task.shape, "teacher": "given" if has_teacher else "none"}
    for mistake in find_unread([settings], given, facts):
        raise UserError(mistake)
    alphas, classes = len(settings.focal_alpha), len(task.labels)
    if alphas and alphas != classes and (alphas, classes) != (1, 2):
        raise UserError(
            f"focal_alpha: give a weight for each of the {classes} classes {', '.join(task.labels)}"
        )


def choose_sampling(settings: FinetuningSettings, split: Split, seed: int) -> Sampling:
    """Return which examples of a split are used.

    Training examples vary with the seed, so that seeds measure that too; dev and test never do.
    """
    if split == "train":
        return Sampling(settings.n_train, seed, settings.sampling == "balanced")
    n = settings.n_dev if split == "dev" else settings.n_test
    return Sampling(n, settings.sample_seed, settings.balanced_test)
