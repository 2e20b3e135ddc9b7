"""Fit a baseline: what `python -m model.finetune --encoder tfidf` and `--encoder frozen:DIR` do."""

import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from beam_jobs.core.files import make_writable_folder, write_json
from beam_jobs.core.terminal import print
from model.baselines import frozen, tfidf
from model.baselines.regression import save_pipeline
from model.device import open_device
from model.evaluation import metrics
from model.evaluation.metrics import rank_dev_metrics
from model.evaluation.predict import make_predictions
from model.finetuning import network
from model.finetuning.feature_cache import load_features
from model.finetuning.network import Head
from model.finetuning.request import Request, load_split


def fit_baseline(request: Request, output: Path, device: str = "auto") -> dict[str, Any]:
    """Write the folder of a baseline as that of a fine-tuning is, with result.json; return it."""
    started, cpu_started = time.perf_counter(), time.process_time()
    request.check()
    make_writable_folder("output", output)
    write_json(output / "run.json", request.describe())
    (train, train_left), (dev, dev_left) = (load_split(request, s) for s in ("train", "dev"))
    labels = np.fromiter((example.label for example in train), np.int64, len(train))

    def score_dev(logits: np.ndarray) -> dict[str, float]:
        predictions = make_predictions(list(logits), [], dev, request.task)
        return {name: metrics.compute_metric(name, predictions) for name in request.task.metrics}

    task, settings, folder = request.task, request.settings, request.start.source
    if request.start.baseline == "tfidf":
        texts, dev_texts = (tfidf.prepare_texts(examples) for examples in (train, dev))
        pipeline, tried = tfidf.fit_pipeline(texts, labels, dev_texts, task.labels, score_dev)
        save_pipeline(pipeline, output)
        head = Head(task.name, task.shape, task.labels, 0, 0, kind="tfidf")
        write_json(output / "task.json", asdict(head))
        told = {"parameters": int(np.count_nonzero(pipeline[-1].coef_)), "device": "cpu"}
    else:
        target = open_device(device, settings.precision)
        length, warning = network.choose_max_length(folder, task, settings)
        warnings = [warning] if warning else []
        if len(train) > frozen.MOST_LABELS:
            warnings.append(
                f"the regression on frozen states learns from {frozen.MOST_LABELS:,} of "
                f"{len(train):,} labels: more states would not fit into memory"
            )
            train, labels = train[: frozen.MOST_LABELS], labels[: frozen.MOST_LABELS]
        for warning in warnings:
            print(f"warning: {warning}", file=sys.stderr)
        head = Head(task.name, task.shape, task.labels, length, settings.stride, kind="frozen")
        featurizer = head.make_featurizer(network.load_tokenizer(folder))
        encoder: Any = frozen.open_encoder(folder, task, head, target)
        states, dev_states = (
            frozen.compute_states(
                encoder,
                load_features(featurizer, examples, request.cache),
                length,
                target,
                request.cache,
            )
            for examples in (train, dev)
        )
        pipeline, tried = frozen.fit_pipeline(states, labels, dev_states, task.labels, score_dev)
        save_pipeline(pipeline, output)
        network.save_finetuned(encoder.cpu(), head, folder, output)
        parameters = sum(p.numel() for p in encoder.parameters()) + pipeline[-1].coef_.size
        told = {"parameters": parameters, "device": target.kind}
        told |= {"warnings": warnings} if warnings else {}
    best = max(tried, key=lambda attempt: rank_dev_metrics(attempt.dev))
    result = request.describe() | {
        "C": best.C,
        "class_weight": best.class_weight,
        "dev": best.dev,
        "tried": [asdict(attempt) for attempt in tried],
        "n_train": len(train),
        "n_dev": len(dev),
        "left_out": {"train": dict(train_left), "dev": dict(dev_left)},
        **told,
        "seconds": round(time.perf_counter() - started, 3),
        "cpu_seconds": round(time.process_time() - cpu_started, 3),
    }
    write_json(output / "result.json", result)
    return result
