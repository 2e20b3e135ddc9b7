"""A store with the stages of a run in it that were never run: what is read of them is their
manifests.
"""

import json
from pathlib import Path

from amazon_electra.flows.configuration.form import Parameters
from amazon_electra.flows.domain_adaptation import graph
from amazon_electra.flows.plan import plan_run
from amazon_electra.flows.store.stage import Stage, list_stages
from amazon_electra.flows.store.store import Store


def plan_stages(form: Parameters, store: Store | None = None) -> list[Stage]:
    """The stages of a run, as its plan lists them."""
    plan = plan_run(form, store or Store(form.store))
    return [stage for stage, _ in list_stages(graph(plan), plan.store)]


STARS = {f"{split}.{n}": 9 for split in ("train", "test") for n in range(1, 6)}
RESULTS = {
    "corpus": {"read": 100, "kept": 90, "splits": {"pretrain": 72, "test": 7}, "stars": STARS},
    "vocabulary": {"size": 4000},
    "shards": {"sequences": 400, "tokens": 50_000},
    "pretraining": {"steps": 100, "sequences": 1_600, "tokens": 200_000},
}
"""1,600 of 400 sequences, 200,000 of 50,000 tokens: four epochs."""


def write_encoder(folder: Path, weights: bytes = b"weights") -> Path:
    """Write what looks like a published encoder's folder to whoever does not load it."""
    folder.mkdir(parents=True, exist_ok=True)
    about = {"num_hidden_layers": 3, "hidden_size": 96, "intermediate_size": 384}
    (folder / "config.json").write_text(json.dumps({"model_type": "bert", **about}))
    (folder / "model.safetensors").write_bytes(weights)
    return folder


def publish(store: Store, stage: Stage) -> Stage:
    store.publish(stage, RESULTS.get(stage.name, dict(stage.result)))
    return stage
