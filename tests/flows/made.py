"""A store with the stages of a run in it that were never run: what is read of them is their
manifests.
"""

import importlib
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from amazon_electra.flows.configuration.form import Parameters, fill_parameters
from amazon_electra.flows.domain_adaptation import graph
from amazon_electra.flows.runner.processes import JobResult
from amazon_electra.flows.runner.stage_runner import Plan, StageMaker
from amazon_electra.flows.stages.corpus import build_corpus_stage
from amazon_electra.flows.stages.dump import list_dump
from amazon_electra.flows.stages.pretraining import build_pretraining_stage
from amazon_electra.flows.stages.shards import (
    build_dev_stage,
    build_shards_stage,
    choose_sequence_length,
)
from amazon_electra.flows.stages.vocabulary import build_vocabulary_stage
from amazon_electra.flows.store.stage import Resources, Stage
from amazon_electra.flows.store.store import Store


def encoder_graph(p: Parameters, make: StageMaker) -> Stage:
    """Dump → corpus → vocabulary → shards → pre-training."""
    dump = make(list_dump(p.dump, make))
    corpus = make(build_corpus_stage(p.corpus, p.dump, p.engine, dump, make.store))
    vocabulary = make(build_vocabulary_stage(p.vocabulary, p.recipe, corpus))
    length = choose_sequence_length(p.shards, p.recipe, None, make.store)
    engine = Resources(engine=p.engine, workers=p.corpus.workers)
    shards = make(build_shards_stage(length, corpus, vocabulary, engine))
    dev = make(build_dev_stage(length, corpus, vocabulary))
    return make(build_pretraining_stage(p, shards, dev=dev))


RESULTS = {
    "corpus": {"read": 100, "kept": 90, "splits": {"pretrain": 72, "test": 7}},
    "vocabulary": {"size": 4000},
    "shards": {"sequences": 400, "tokens": 50_000},
    "dev-shards": {"sequences": 40, "tokens": 5_000},
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


def run_here(module, arguments, log, environment, follow, name, hang_seconds, kept):
    """Run a job as `run_job` does, in this process."""
    words = [str(word) for word in arguments]
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text(" ".join(words))
    result = importlib.import_module(module).run(words)
    return JobResult(json.loads(json.dumps(result or {}, default=str)), 0.1, 0.1, 1.0)


def publish(store: Store, stage: Stage) -> Stage:
    store.publish(stage, RESULTS.get(stage.name, dict(stage.result)))
    return stage


def publish_corpus(
    store: Store, corpus: Stage, titles: list[str], stars: dict[str, int] | None = None
) -> None:
    """Make a corpus of reviews with these titles in its pretrain split, in two files."""
    folder = store.folder(corpus)
    folder.mkdir(parents=True)
    for number, part in enumerate((titles[::2], titles[1::2])):
        table = pa.table(
            {
                "split": ["pretrain"] * len(part),
                "has_title": [bool(title) for title in part],
                "sentences": [[*filter(None, [title]), "It lasted two days."] for title in part],
            }
        )
        pq.write_table(table, folder / f"corpus-0000{number}.parquet")
    counts = {"stars": stars} if stars else {}
    store.publish(corpus, {**RESULTS["corpus"], "sentences": len(titles), **counts})


def made_run(root: Path, *settings: str, dump: str = "sample:50") -> str:
    """The fingerprint of the encoder of a run of the whole graph up to its pre-training."""
    store = Store(root)
    plan = Plan(store)
    given = {"dump": {"paths": [dump]}, "store": str(root), "recipe": "sample"}
    graph(fill_parameters(settings, **given), plan)
    *_, training = (n for n, (stage, _) in enumerate(plan.stages) if stage.name == "pretraining")
    for stage, _ in plan.stages[: training + 1]:
        if stage.name not in ("finetuning", "evaluation"):
            publish(store, stage)
    return plan.stages[training][0].fingerprint
