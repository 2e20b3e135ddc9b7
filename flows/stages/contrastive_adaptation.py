"""Contrastive adaptation: the titles and bodies of a corpus → the published encoder, adapted."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from amazon_electra.beam_jobs.core.settings import replace_settings
from amazon_electra.flows.configuration.form import CONTRASTIVE, Parameters, Pretraining
from amazon_electra.flows.stages.external import locate_stage
from amazon_electra.flows.stages.origin import get_name, locate_origin
from amazon_electra.flows.stages.pretraining import divide_cores
from amazon_electra.flows.store.stage import Resources, Stage
from amazon_electra.flows.store.store import Store
from amazon_electra.model.options import FREE_CONTRASTIVE_SETTINGS, ContrastiveConfig
from amazon_electra.model.pretraining.input.pairs import has_pairs

MIN_TITLES = 2_000
"""Usable titles in the pretrain split from which on a run adapts by contrast unless it is asked for
something else. 4,067 pairs gained (docs/results.md); fewer were not measured.
"""


class ContrastiveAdaptation(Stage):
    """`origin` and `corpus` → an encoder."""

    name, version, Config = "contrastive-adaptation", 1, ContrastiveConfig
    pool = "training"
    headline = ("pairs", "steps", "loss", "accuracy")
    ends_run = True
    shorter = "--set pretraining.epochs=1 goes through the pairs once"
    tracked = True
    takes_accelerator = True

    @property
    def scratch(self) -> tuple[str, ...]:
        return ("checkpoints",) if self.config.keep_checkpoints == 1 else ()

    @property
    def parameters(self) -> Mapping[str, Any]:
        parameters = super().parameters
        return {n: v for n, v in parameters.items() if n not in FREE_CONTRASTIVE_SETTINGS}

    def run(self, store: Store, folder: Path) -> dict[str, Any]:
        from amazon_electra.model.contrastive import adapt_contrastively

        return asdict(
            adapt_contrastively(
                self.config,
                locate_origin(store, self.inputs["origin"]),
                [Path(locate_stage(store, self.inputs["corpus"]))],
                folder,
                divide_cores(self.resources),
            )
        )


def build_contrastive_stage(
    chosen: Pretraining, corpus: Stage, origin: Stage, beside: int = 0
) -> ContrastiveAdaptation:
    """Return the adaptation that the form describes; on a CPU it leaves `beside` cores to jobs that
    run at the same time.
    """
    settings = chosen.settings if chosen.objective == CONTRASTIVE else {}
    config = ContrastiveConfig(seed=chosen.seed)
    [config] = replace_settings([config], settings, "pretraining")
    return ContrastiveAdaptation(
        config,
        {"corpus": corpus, "origin": origin},
        resources=Resources(
            device=chosen.finetuning_device, processes=chosen.processes, beside=beside
        ),
        title=f"adaptation of {get_name(origin)}",
    )


def adapts_by_contrast(p: Parameters, corpus: Stage, store: Store) -> bool:
    """Return whether the published encoder of a run is adapted by contrast: where the form says so,
    or says nothing of its training and the corpus has enough titles. Until the corpus is made it is
    taken to have them.
    """
    if objective := p.pretraining.objective:
        return objective == CONTRASTIVE
    return p.is_contrast_automatic and has_titles(corpus, store, MIN_TITLES)


def has_titles(corpus: Stage, store: Store, enough: int) -> bool:
    """Return whether a pretrain split has so many usable titles; true until the corpus is made."""
    made = store.manifest(corpus)
    if not made:
        return True

    def fetch_files() -> Iterator[Path]:
        for name in sorted(file["path"] for file in made["files"]):
            if name.startswith("corpus-") and name.endswith(".parquet"):
                yield store.fetch(corpus, name) / name

    return has_pairs(fetch_files(), enough)
