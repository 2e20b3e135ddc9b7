"""The evaluation of a fine-tuned model on the test split of its task."""

from pathlib import Path
from typing import Any

from amazon_electra.beam_jobs.core.settings import Settings
from amazon_electra.flows.store.stage import Stage
from amazon_electra.flows.store.store import Store


class TaskConfig(Settings):
    """What decides an evaluation, or a comparison, besides the models and the data."""

    task: str


class Evaluation(Stage):
    """`model` and `data` → predictions and metrics. A fine-tuning's job usually makes it along the
    way, which saves the start of another process.
    """

    name, version, Config = "evaluation", 8, TaskConfig
    headline = ("n", "metrics.accuracy.value", "metrics.macro_f1.value")
    written_last = "metrics.json"
    takes_accelerator = runs_beside = True

    def run(self, store: Store, folder: Path) -> dict[str, Any]:
        from amazon_electra.model.evaluate import evaluate

        return evaluate(
            store.fetch(self.inputs["model"]),
            self.config.task,
            Path(self.inputs["data"].locate(store)),
            folder,
        ).content


def build_evaluation_stage(finetuned: Stage) -> Evaluation:
    """Return the evaluation of a fine-tuned model on test."""
    return Evaluation(
        TaskConfig(task=finetuned.config.task),
        {"data": finetuned.inputs["data"], "model": finetuned},
        title=f"{finetuned.title} · test",
    )
