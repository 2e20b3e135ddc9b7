"""Size, speed and memory of a fine-tuned model."""

from pathlib import Path
from typing import Any

from amazon_electra.beam_jobs.core.files import write_json
from amazon_electra.beam_jobs.core.settings import Settings
from amazon_electra.flows.store.stage import Resources, Stage
from amazon_electra.flows.store.store import Store


class LatencyConfig(Settings):
    """What decides a measurement besides the model and the data."""

    task: str
    device: str = "auto"


class Latency(Stage):
    """`model` and `data` → latency.json. It is made alone on the machine."""

    name, version, Config = "latency", 4, LatencyConfig
    takes_accelerator = True
    runs_beside = True

    def run(self, store: Store, folder: Path) -> dict[str, Any]:
        from amazon_electra.model.evaluation.latency import measure_latency

        data = Path(self.inputs["data"].locate(store))
        model = store.fetch(self.inputs["model"])
        result = measure_latency(model, self.config.task, data, 1, self.config.device)
        write_json(folder / "latency.json", result)
        return result


def build_latency_stage(finetuned: Stage, device: str, title: str) -> Latency:
    """Return the measurement of a fine-tuned model on this kind of device."""
    return Latency(
        LatencyConfig(task=finetuned.config.task, device=device),
        {"data": finetuned.inputs["data"], "model": finetuned},
        resources=Resources(device=device),
        title=title,
    )
