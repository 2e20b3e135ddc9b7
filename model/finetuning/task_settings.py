"""Apply settings to a task: refuse those without an effect, choose the examples."""

from dataclasses import fields

from beam_jobs.job.errors import UserError
from model.config import FinetuningSettings
from model.finetuning.features.examples import Sampling, Split, Task

SHAPES_WITH_SETTING: dict[str, tuple[str, ...]] = {
    "loss": ("classification", "tokens", "choice"),
    "focal_alpha": ("classification", "tokens"),
    "class_weights": ("classification",),
    "clean": ("classification", "regression"),
    "empty_windows": ("span",),
}
"""Shapes of tasks on which a setting has an effect."""


def check_for_task(settings: FinetuningSettings, task: Task) -> None:
    """Raise a UserError for a setting that the task would silently pass over."""
    defaults = {field.name: field.default for field in fields(FinetuningSettings)}
    for name, shapes in SHAPES_WITH_SETTING.items():
        if getattr(settings, name) != defaults[name] and task.shape not in shapes:
            raise UserError(
                f"{name} has no effect on {task.name}, a task of shape {task.shape}: "
                f"leave it out (it is for {', '.join(shapes)})"
            )
    alphas, classes = len(settings.focal_alpha), len(task.labels)
    if alphas and settings.loss != "focal":
        raise UserError("focal_alpha has no effect without loss=focal: leave it out")
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
