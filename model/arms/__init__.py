"""Arms: the ways to fit a classifier that a run compares, each one class in one file. Importing one
loads neither torch nor scikit-learn. Another package's arm is added by `register`, from an entry
point of the group `amazon_electra.plugins` or by the program that starts the run.
"""

from importlib import import_module

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.beam_jobs.core.plugins import load_plugins, register_module
from amazon_electra.beam_jobs.core.settings import list_valid
from amazon_electra.model.arms.arm import Arm

OURS = ("finetuned", "frozen", "joined", "tfidf", "stack")
"""Our arms and their modules here, in the order of reports."""
TFIDF_ARM = "TF-IDF"
"""How runs and their reports call the arm of TF-IDF and logistic regression."""
ADAPTED = " adapted to your reviews"
"""Follows the name of a published encoder that a run has trained further."""
_ARMS: dict[str, type[Arm]] = {}


def register(arm: type[Arm]) -> type[Arm]:
    """Add an arm, also as the decorator of its class; ValueError for a name that is taken."""
    if _ARMS.setdefault(arm.name, arm) is not arm:
        raise ValueError(f"two arms are called {arm.name}")
    register_module(arm.__module__)
    return arm


def list_ours() -> list[type[Arm]]:
    """Return the arms of this package."""
    for name in OURS:
        import_module(f"{__name__}.{name}")
    return [_ARMS[name] for name in OURS]


def list_methods(has_encoder: bool) -> list[str]:
    """Return the arms beside networks; those on states alone need a published encoder."""
    kinds = list_ours()[1:]
    return [one.name for one in kinds if has_encoder or one.combines or not one.reads_encoder]


def list_arms() -> dict[str, type[Arm]]:
    """Return every arm by its name: ours, registered ones, and those of entry points."""
    list_ours()
    load_plugins()
    return dict(sorted(_ARMS.items()))


def find_arm(name: str) -> type[Arm]:
    """Return an arm; UserError names those that there are."""
    if name not in _ARMS:
        list_arms()
    if name not in _ARMS:
        raise UserError(f"arm: {name}: {list_valid(sorted(_ARMS), 'arm')}")
    return _ARMS[name]
