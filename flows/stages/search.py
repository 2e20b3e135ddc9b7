"""The search for the settings of a fine-tuning, on dev."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field

from amazon_electra.flows.stages.finetuning import Finetuning, describe_finetuning, locate_sources
from amazon_electra.flows.store.stage import Stage
from amazon_electra.flows.store.store import Store
from amazon_electra.model.finetuning.config import FinetuneConfig


class SearchConfig(FinetuneConfig):
    """What decides a search besides its inputs."""

    space: dict[str, Any] = Field(description="setting → choices or range")
    trials: int = 20


class Search(Stage):
    """`data` and an encoder → best.json, the settings that are best on dev."""

    name, version, Config = "search", 10, SearchConfig
    takes_accelerator = runs_beside = True

    @property
    def parameters(self) -> Mapping[str, Any]:
        searched = {"space": self.config.space, "trials": self.config.trials}
        return {**describe_finetuning(self), **searched}

    def run(self, store: Store, folder: Path) -> dict[str, Any]:
        from amazon_electra.model.finetuning.search import search

        return search(
            self.config.narrow(FinetuneConfig),
            self.config.space,
            self.config.trials,
            **locate_sources(self, store, folder),
        ).content


def build_search_stage(
    asked: Finetuning, space: Mapping[str, Any], trials: int, title: str
) -> Search:
    """Return the search for the settings of a fine-tuning."""
    config = SearchConfig(**dict(asked.config), space=dict(space), trials=trials)
    return Search(config, **asked.list_sources(), title=title)
