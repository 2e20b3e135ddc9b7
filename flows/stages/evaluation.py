"""The evaluation of a fine-tuned model on the test split of its task."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from amazon_electra.beam_jobs.core.settings import Settings
from amazon_electra.flows.stages.external import locate_stage
from amazon_electra.flows.store.stage import Stage
from amazon_electra.flows.store.store import Store


class EvaluationConfig(Settings):
    """What decides an evaluation besides the model and the data."""

    task: str
    split: Literal["train", "dev", "test"] = "test"


class Evaluation(Stage):
    """`model` and `data` → predictions and metrics. With `fold 1`, `fold 2`, … it is joined from
    their evaluations. A fine-tuning's job usually makes it along the way, which saves the start of
    another process.
    """

    name, version, Config = "evaluation", 6, EvaluationConfig
    pool = "training"
    headline = ("n", "metrics.accuracy.value", "metrics.macro_f1.value")
    written_last = "metrics.json"
    runs_beside = True

    @property
    def folds(self) -> list[Stage]:
        return [stage for name, stage in self.inputs.items() if name.startswith("fold ")]

    def run(self, store: Store, folder: Path) -> dict[str, Any]:
        from amazon_electra.model.evaluate import evaluate

        return evaluate(
            store.fetch(self.inputs["model"]),
            self.config.task,
            Path(locate_stage(store, self.inputs["data"])),
            folder,
            split=self.config.split,
            folds=[store.fetch(fold) for fold in self.folds],
        )


def build_evaluation_stage(finetuned: Stage, folds: Sequence[Stage] = ()) -> Evaluation:
    """Return the evaluation on test; with `folds` it is joined from their evaluations."""
    numbered = {f"fold {number}": stage for number, stage in enumerate(folds, 1)}
    return Evaluation(
        EvaluationConfig(task=finetuned.config.task),
        {"data": finetuned.inputs["data"], "model": finetuned, **numbered},
        title=f"{finetuned.title} · {f'{len(folds)} folds' if folds else 'test'}",
    )
