"""Reads the recipes: the YAML files beside this one, the only home of tuned numbers."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, get_args

import yaml

from amazon_electra.beam_jobs.core.errors import require
from amazon_electra.beam_jobs.core.settings import Settings, replace_settings
from amazon_electra.model.architecture import Architecture
from amazon_electra.model.config import (
    AdaptationConfig,
    FinetuningSettings,
    PretrainingConfig,
    RecipeName,
)
from amazon_electra.model.pretraining.objectives import find_objective


def read_yaml(name: str) -> dict[str, Any]:
    """Return what the file of that name beside this module says."""
    return yaml.safe_load(Path(__file__).with_name(f"{name}.yaml").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Recipe:
    """A named way to train, with everything that it needs."""

    name: RecipeName
    architecture: Architecture
    vocabulary_size: int  # of a vocabulary trained for this recipe; that of the shards decides
    max_length: int  # tokens in one packed sequence
    pretraining: PretrainingConfig
    finetuning: FinetuningSettings  # every arm of a comparison gets the same ones
    finetuning_of_published: Mapping[str, str]
    """Other settings, as texts, of a run that starts from a published encoder."""
    adaptation: AdaptationConfig = field(default_factory=AdaptationConfig)
    """Read where training starts from loaded weights."""

    @classmethod
    def read(cls, name: RecipeName) -> "Recipe":
        """Read a recipe that is shipped."""
        content = read_yaml(name)
        return cls(
            name,
            Architecture(**content["architecture"]),
            content["vocabulary_size"],
            content["max_length"],
            PretrainingConfig(**content["pretraining"]),
            FinetuningSettings(**content["finetuning"]),
            content.get("finetuning_of_published", {}),
        )

    def describe(self) -> dict[str, Any]:
        """Return all of it as JSON takes it."""
        content = {field.name: getattr(self, field.name) for field in fields(self)}
        return {n: v.model_dump() if isinstance(v, Settings) else v for n, v in content.items()}

    def __post_init__(self) -> None:
        if find_objective(self.pretraining.objective).has_generator:
            self.architecture.derive_generator()
        types = self.architecture.type_vocabulary_size
        if self.pretraining.has_segments:
            why = "must be at least 2 for mlm+nsp, and unless segment_probability is 0"
            require(types >= 2, why, "type_vocabulary_size", types)


RECIPES: Mapping[str, Recipe] = {name: Recipe.read(name) for name in get_args(RecipeName)}
ADAPTATION_DEFAULTS: Mapping[str, Any] = read_yaml("adaptation")
NEW_HEAD_SETTINGS: Mapping[str, str] = ADAPTATION_DEFAULTS["new_head"]
OLD_HEAD_SETTINGS: Mapping[str, str] = ADAPTATION_DEFAULTS["old_head"]
GENERATOR_DEPTH: float = ADAPTATION_DEFAULTS["generator_depth"]
MASK_PROBABILITIES: Mapping[str, float] = ADAPTATION_DEFAULTS["mask_probability"]


def apply_settings(recipe: Recipe, settings: Mapping[str, str]) -> Recipe:
    """Return the recipe with fields of its configs set from text; UserErrors have the field."""
    configs = [recipe.architecture, recipe.pretraining, recipe.adaptation]
    architecture, pretraining, adaptation = replace_settings(configs, settings, "pretraining")
    return replace(
        recipe, architecture=architecture, pretraining=pretraining, adaptation=adaptation
    )


def check_start_is_not_needed(names: Iterable[str]) -> None:
    """Raise UserError for the first of these settings that only loaded weights give an effect."""
    for name in names:
        is_of_start = name in AdaptationConfig.model_fields
        require(not is_of_start, "has no effect on random weights; give `start_from` too", name)
