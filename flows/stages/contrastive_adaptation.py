"""Contrastive adaptation: the titles and bodies of a corpus → the published encoder, adapted."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from amazon_electra.beam_jobs.core.settings import replace_settings
from amazon_electra.flows.configuration.form import CONTRASTIVE, Pretraining
from amazon_electra.flows.stages.origin import get_name
from amazon_electra.flows.stages.pretraining import divide_cores
from amazon_electra.flows.store.stage import Resources, Stage
from amazon_electra.flows.store.store import Store
from amazon_electra.model.config import (
    CONTRASTIVE_VERSION,
    FREE_CONTRASTIVE_SETTINGS,
    ContrastiveConfig,
)


class ContrastiveAdaptation(Stage):
    """`origin` and `corpus` → an encoder."""

    name, version, Config = "contrastive-adaptation", CONTRASTIVE_VERSION, ContrastiveConfig
    headline = ("pairs", "steps", "loss", "accuracy")
    ends_run = True
    inner = "encoder"
    tracked = True
    takes_accelerator = True

    @property
    def scratch(self) -> tuple[str, ...]:
        return ("checkpoints",) if self.config.keep_checkpoints == 1 else ()

    @property
    def parameters(self) -> Mapping[str, Any]:
        free = FREE_CONTRASTIVE_SETTINGS
        return {n: v for n, v in super().parameters.items() if n not in free}

    def run(self, store: Store, folder: Path) -> dict[str, Any]:
        from amazon_electra.model.contrastive import adapt_contrastively

        made = adapt_contrastively(
            self.config,
            Path(self.inputs["origin"].locate(store)),
            [Path(self.inputs["corpus"].locate(store))],
            folder,
            divide_cores(self.resources.replace(beside=0)),
            yields=self.resources.beside > 0,
        )
        return asdict(made)


def build_contrastive_stage(
    chosen: Pretraining, corpus: Stage, origin: Stage, beside: int = 0
) -> ContrastiveAdaptation:
    """Return the adaptation of the form; on a CPU it leaves cores to the jobs `beside` it."""
    settings = chosen.settings if chosen.objective == CONTRASTIVE else {}
    [config] = replace_settings([ContrastiveConfig(seed=chosen.seed)], settings, "pretraining")
    device, inputs = chosen.finetuning_device, {"corpus": corpus, "origin": origin}
    resources = Resources(device=device, processes=chosen.processes, beside=beside)
    title = f"adaptation of {get_name(origin)}"
    return ContrastiveAdaptation(config, inputs, resources=resources, title=title)
