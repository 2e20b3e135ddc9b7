"""Does in-domain training pay? Adaptations of a published encoder, and pre-training from random
weights at equal compute, on reviews of products that no training saw; for a GPU.

    python tests/bench/gpu_evidence.py --encoder minilm --reviews reviews.parquet --output out \
        [--work /tmp/evidence] [--rows question objective base] [--seconds 400] [--toy]

`reviews.parquet` has title, body, stars (0: unknown), part (pretrain, train, dev, test; a product
is in one part) and product. Each row writes its file after every step, so that a run that is cut
off keeps what it has; `--work` keeps corpora and encoders for a later call. `--toy` is a few
reviews and steps, for a try on a CPU.
"""

import argparse
import hashlib
import json
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from concurrent.futures import TimeoutError as OutOfTime
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).parents[2]))
from amazon_electra.model.encoders.origin import write_origin
from amazon_electra.model.pretraining.input.pairs import is_title_of_stars

ROOT = Path(__file__).parents[2]
LENGTH = 128
"""Tokens of a sequence, and of a text that is classified."""
POLARITY = {1: 0, 2: 0, 4: 1, 5: 1}
STRENGTHS = (1e-4, 1e-3, 1e-2, 1e-1)
"""Of a regression on standardized states; those of model/arms/states.py."""
TFIDF_STRENGTHS = (1.0, 4.0, 16.0)
COUNTS = (50, 200, 800, 3000)
SAMPLES = 5
BOOTSTRAPS = 1000
START = time.monotonic()


def note(text: str) -> None:
    print(f"[{time.monotonic() - START:6.1f} s] {text}", file=sys.stderr, flush=True)


class Job:
    """One call: where things are, and when it ends."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.output, self.work = given.output.resolve(), given.work.resolve()
        self.toy = given.toy
        self.ends = START + given.seconds
        self.output.mkdir(parents=True, exist_ok=True)
        self.work.mkdir(parents=True, exist_ok=True)
        write_origin(str(given.encoder), self.work / "origin")
        self.encoder = self.work / "origin"
        reviews = pq.read_table(given.reviews).to_pylist()
        self.reviews = reviews[:: len(reviews) // 1500] if self.toy else reviews
        for review in self.reviews:  # labels by the back door: Amazon wrote them
            if is_title_of_stars(review["title"]):
                review["title"] = ""

    def left(self) -> float:
        return self.ends - time.monotonic()

    def list_part(self, *parts: str) -> list[dict[str, Any]]:
        return [review for review in self.reviews if review["part"] in parts]

    def write(self, row: str, found: dict[str, Any]) -> None:
        partial = self.output / f"{row}.partial"
        partial.write_text(json.dumps(found, indent=1) + "\n")
        os.replace(partial, self.output / f"{row}.json")

    def run_all(
        self, commands: dict[str, list[str]], at_once: int = 99, margin: float = 0.0
    ) -> dict[str, dict[str, Any]]:
        """Run commands of ours beside each other; return the JSON line of each that is done in
        time, with its seconds, or its error.
        """
        waiting, running, found = dict(commands), {}, {}
        paths = [str(ROOT), str(ROOT / "deploy" / "package"), os.environ.get("PYTHONPATH", "")]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
        environment |= {"AMAZON_ELECTRA_PROGRESS": "none", "TOKENIZERS_PARALLELISM": "true"}
        while waiting or running:
            while waiting and len(running) < at_once:
                name = next(iter(waiting))
                command = [sys.executable, "-m", *waiting.pop(name)]
                errors = (self.work / f"{name}.err").open("w")
                process = subprocess.Popen(
                    command,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    env=environment,
                    cwd=self.work,
                    text=True,
                )
                running[name] = process, time.monotonic()
            is_late = self.left() < margin
            for name, (process, began) in list(running.items()):
                if process.poll() is None and not is_late:
                    continue
                process.kill()
                told = process.communicate()[0].strip().splitlines()
                seconds = time.monotonic() - began
                if process.returncode or not told:
                    said = (self.work / f"{name}.err").read_text()[-700:]
                    found[name] = {"error": "no time left" if is_late else said}
                else:
                    found[name] = json.loads(told[-1]) | {"wall_seconds": round(seconds, 1)}
                note(f"{name}: {seconds:.1f} s {found[name].get('error', 'done')[-300:]}")
                del running[name]
            if is_late:
                found |= {name: {"error": "no time left"} for name in waiting}
                waiting = {}
            time.sleep(0.1)
        return found


def write_corpus(folder: Path, reviews: Sequence[dict[str, Any]]) -> Path:
    """Write a corpus of one file, of which each text is a title and one sentence."""
    if (folder / "corpus.json").exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    texts = [[t for t in (r["title"], r["body"]) if t] for r in reviews]
    hashes = [hashlib.blake2b(" ".join(t).encode(), digest_size=16).digest() for t in texts]
    table = pa.table(
        {
            "review_id": pa.array(hashes, pa.binary(16)),
            "text_hash": pa.array(hashes, pa.binary(16)),
            "stars": pa.array([r["stars"] or None for r in reviews], pa.int8()),
            "source": pa.array(["reviews"] * len(reviews)).dictionary_encode(),
            "split": pa.array([r["part"] for r in reviews]).dictionary_encode(),
            "has_title": [bool(r["title"]) for r in reviews],
            "sentences": pa.array(texts, pa.list_(pa.string())),
        }
    )
    pq.write_table(table, folder / "corpus-00000.parquet")
    (folder / "corpus.json").write_text(json.dumps({"reviews": len(reviews)}))
    return folder


def write_shards(folder: Path, reviews: Sequence[dict[str, Any]], vocabulary: Path) -> Path:
    """Pack texts into sequences of LENGTH tokens, in the form of the shards job, without Beam; a
    longer text is continued in a document of its own.
    """
    import shutil

    from tokenizers import Tokenizer

    if (folder / "shards.json").exists():
        return folder
    (folder / "vocabulary").mkdir(parents=True, exist_ok=True)
    for name in ("vocab.txt", "tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(vocabulary / name, folder / "vocabulary" / name)
    tokenizer = Tokenizer.from_file(str(vocabulary / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    cls, sep = tokenizer.token_to_id("[CLS]"), tokenizer.token_to_id("[SEP]")
    texts = [f"{r['title']} {r['body']}".strip() for r in reviews]
    encoded = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
    rows: list[dict[str, list[int]]] = []
    row: dict[str, list[int]] = {"input_ids": [], "document_starts": [], "sentence_starts": []}
    documents = 0
    for one in encoded:
        ids = one.ids
        for start in range(0, len(ids), LENGTH - 2):
            piece = [cls, *ids[start : start + LENGTH - 2], sep]
            if len(row["input_ids"]) + len(piece) > LENGTH:
                rows.append(row)
                row = {"input_ids": [], "document_starts": [], "sentence_starts": []}
            at = len(row["input_ids"])
            row["document_starts"].append(at)
            row["sentence_starts"].append(at + 1)
            row["input_ids"] += piece
            documents += 1
    rows.append(row)
    order = np.random.default_rng(0).permutation(len(rows))
    table = pa.table(
        {n: pa.array([rows[i][n] for i in order], pa.list_(pa.uint16())) for n in rows[0]}
    )
    footer = {
        "version": 1,
        "vocabulary_fingerprint": hashlib.sha256(
            (folder / "vocabulary/tokenizer.json").read_bytes()
        ).hexdigest(),
        "vocabulary_size": tokenizer.get_vocab_size(),
        "max_length": LENGTH,
        "split": "pretrain",
        "sequences": len(rows),
        "tokens": sum(len(one["input_ids"]) for one in rows),
        "documents": documents,
        "sentences": documents,
    }
    table = table.replace_schema_metadata({"amazon_electra": json.dumps(footer)})
    pq.write_table(table, folder / "shard-00000.parquet", row_group_size=1024, compression="zstd")
    (folder / "shards.json").write_text(json.dumps({"shards": 1, "sequences": len(rows)}))
    note(f"shards: {len(rows):,} sequences, {footer['tokens']:,} tokens")
    return folder


def prepare(job: Job) -> tuple[Path, Path, Path]:
    """Return the corpus with pairs, that with labels of other products alone, and the shards."""
    return (
        write_corpus(job.work / "corpus", job.list_part("pretrain")),
        write_corpus(job.work / "labelled", job.list_part("train", "dev", "test")),
        write_shards(job.work / "shards", job.list_part("pretrain"), job.encoder),
    )


# --- row "question": adaptations of a published encoder ---


def measure_question(job: Job) -> None:
    """Adapt, then fit regressions on frozen states, then fine-tune; all write as they go."""
    corpus, labelled, shards = prepare(job)
    found: dict[str, Any] = {
        "reviews": {p: len(job.list_part(p)) for p in ("pretrain", "train", "dev", "test")}
    }
    toy = ["--set", "body_tokens=16"] if job.toy else []
    mlm_toy = ["--steps", "2", "--set", "batch=4"] if job.toy else []

    def contrast(start: Path, output: str, seed: int, epochs: int) -> list[str]:
        return [
            *("amazon_electra.model.contrastive", "--encoder", str(start), "--corpus", str(corpus)),
            *("--output", str(job.work / output), "--set", f"seed={seed}"),
            *("--set", f"epochs={1 if job.toy else epochs}", *toy),
        ]

    def mask(output: str, seed: int) -> list[str]:
        return [
            *("amazon_electra.model.pretrain", "--recipe", "published", "--shards", str(shards)),
            *("--start-from", str(job.encoder), "--output", str(job.work / output)),
            *("--set", f"seed={seed}", *mlm_toy),
        ]

    seeds = range(1 if job.toy else 3)
    published = job.encoder
    pool = ProcessPoolExecutor(
        2 if job.toy else 10, multiprocessing.get_context("spawn"), initializer=use_one_thread
    )
    write_inputs(job)
    counting = pool.submit(count_ngrams, job.work)

    steps = found["adaptations"] = {}
    writer = StateWriter(job)
    futures: dict[Future[Any], tuple[Any, ...]] = {}

    def submit(tasks: Sequence[str]) -> None:
        known = {fit[:2] for fit in futures.values()}
        new = [arm for arm in writer.seconds if not {(arm, task) for task in tasks} & known]
        for fit in list_fits(job, new, tasks):
            futures[pool.submit(fit_states, job.work, *fit)] = fit

    def write_states(arms: dict[str, Path]) -> None:
        for arm, folder in arms.items():
            writer.write(arm, folder)
            submit(("polarity", "balanced"))
        found["states"] = writer.seconds
        job.write("question", found)

    def list_encoders() -> dict[str, Path]:
        made = {n: Path(one["encoder"]) for n, one in steps.items() if "encoder" in one}
        return {n: folder for n, folder in made.items() if n not in writer.seconds}

    # adaptations run beside the states and regressions of those before them
    with ThreadPoolExecutor(1) as beside:
        steps |= job.run_all({"contrastive-0": contrast(published, "contrastive-0", 0, 3)})
        commands = {f"mlm-{s}": mask(f"mlm-{s}", s) for s in seeds[:2]}
        for s in seeds[1:]:
            commands[f"contrastive-{s}"] = contrast(published, f"contrastive-{s}", s, 3)
        commands["once"] = contrast(published, "once", 0, 1)
        running = beside.submit(job.run_all, commands)
        write_states({"published": published, **list_encoders()})
        steps |= running.result()
        commands = {
            f"both-{s}": contrast(Path(steps[f"mlm-{s}"]["encoder"]), f"both-{s}", s, 3)
            for s in seeds[:2]
            if "encoder" in steps[f"mlm-{s}"]
        }
        running = beside.submit(job.run_all, commands)
        write_states(list_encoders())
        steps |= running.result()
        write_states(list_encoders())
    with suppress(Exception):
        counting.result(timeout=max(1.0, job.left() - 60))
        for fit in list_tfidf_fits(job):
            futures[pool.submit(fit_tfidf, job.work, *fit)] = ("tfidf", *fit)
    submit(("stars",))
    note(f"{len(futures)} regressions")

    arms = {"published": published}
    arms |= {n: Path(one["encoder"]) for n, one in steps.items() if "encoder" in one}
    found["fine-tuned"] = {}
    for counts in (None,), (3000,), (800,):
        if job.left() > 45 and not job.toy:
            found["fine-tuned"] |= finetune_arms(job, arms, labelled, counts)
            job.write("question", found)
    if job.toy:
        found["fine-tuned"] = finetune_arms(
            job, {"contrastive-0": arms["contrastive-0"]}, labelled, (200,)
        )
    collect_fits(job, found, futures)
    pool.shutdown(wait=False, cancel_futures=True)
    for process in multiprocessing.active_children():
        process.kill()


def use_one_thread() -> None:
    """Let a worker compute in one thread; the limit holds for what is loaded."""
    import sklearn.linear_model  # noqa: F401
    from threadpoolctl import threadpool_limits

    threadpool_limits(1)


def write_inputs(job: Job) -> None:
    """Write texts, stars and sides of the labelled reviews for the workers."""
    labelled = job.list_part("train", "test")
    texts = [f"{r['title']} {r['body']}".strip() for r in labelled]
    (job.work / "texts.json").write_text(json.dumps(texts))
    np.savez(
        job.work / "labelled.npz",
        stars=np.array([r["stars"] for r in labelled]),
        is_test=np.array([r["part"] == "test" for r in labelled]),
        product=np.array([r["product"] for r in labelled]),
    )


class StateWriter:
    """Writes the frozen states of all labelled reviews for an arm, as the product computes them."""

    def __init__(self, job: Job) -> None:
        from amazon_electra.model.device import open_device
        from amazon_electra.model.finetuning import network
        from amazon_electra.model.finetuning.examples import Example
        from amazon_electra.model.finetuning.network import Head
        from amazon_electra.model.finetuning.tasks.corpus import TASKS

        self.work, self.device, self.task = job.work, open_device("auto", "auto"), TASKS[0]
        self.head = Head(
            self.task.name, self.task.shape, self.task.labels, LENGTH, 64, kind="frozen"
        )
        texts = json.loads((job.work / "texts.json").read_text())
        featurizer = self.head.make_featurizer(network.load_tokenizer(str(job.encoder)))
        self.features = featurizer([Example(str(i), text, label=0) for i, text in enumerate(texts)])
        self.seconds: dict[str, float] = {}

    def write(self, arm: str, folder: Path) -> None:
        from amazon_electra.model.arms import states as frozen

        began = time.monotonic()
        encoder = frozen.open_encoder(str(folder), self.task, self.head, self.device)
        states = frozen.compute_states(encoder, self.features, LENGTH, self.device, None)
        np.save(self.work / f"states-{arm}.npy", states)
        self.seconds[arm] = round(time.monotonic() - began, 2)
        note(f"states of {arm}: {self.seconds[arm]} s")


def list_fits(
    job: Job, arms: Sequence[str], tasks: Sequence[str]
) -> Iterator[tuple[str, str, int, int]]:
    """Yield arm, task, labels (0: all) and sample, in order of worth."""
    for task in tasks:
        samples = 2 if job.toy else 3 if task == "stars" else SAMPLES
        counts = (50, 200) if job.toy else COUNTS[1:] if task == "stars" else COUNTS
        if task == "polarity":
            yield from ((arm, task, 0, 0) for arm in arms)
        for count in counts:
            for sample in range(samples):
                yield from ((arm, task, count, sample) for arm in arms)


def list_tfidf_fits(job: Job) -> Iterator[tuple[str, int, int]]:
    for count in (50, 200) if job.toy else COUNTS:
        yield from (("polarity", count, sample) for sample in range(2 if job.toy else SAMPLES))
    yield "polarity", 0, 0


def draw(work: Path, task: str, count: int, sample: int) -> tuple[np.ndarray, ...]:
    """Return the places of the training and test reviews, and the classes of all; the same for
    every arm.
    """
    data = np.load(work / "labelled.npz")
    stars, is_test = data["stars"], data["is_test"]
    classes = stars - 1 if task == "stars" else np.array([POLARITY.get(s, -1) for s in stars])
    train, test = (
        np.flatnonzero(~is_test & (classes >= 0)),
        np.flatnonzero(is_test & (classes >= 0)),
    )
    generator = np.random.default_rng((sample, count))
    train = generator.permutation(train)
    if task == "balanced":
        sides = [train[classes[train] == c] for c in (0, 1)]
        half = min(count // 2, *map(len, sides))
        train = generator.permutation(np.concatenate([side[:half] for side in sides]))
        sides = [test[classes[test] == c] for c in (0, 1)]
        half = min(map(len, sides))
        fixed = np.random.default_rng(0)
        test = np.sort(np.concatenate([fixed.permutation(side)[:half] for side in sides]))
    elif count:
        train = train[:count]
    return train, test, classes


def cross_validate(features: Any, labels: np.ndarray, strengths: Sequence[float]) -> Any:
    """Return the regression whose C has the best log-loss, in three folds or, from 800 labels on,
    on a quarter, refitted on all.
    """
    import warnings

    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import log_loss

    warnings.simplefilter("ignore")
    folds = np.random.default_rng(0).permutation(len(labels)) % (3 if len(labels) < 800 else 4)
    losses = dict.fromkeys(strengths, 0.0)
    for fold in range(3 if len(labels) < 800 else 1):
        fit, held = folds != fold, folds == fold
        if len(np.unique(labels[fit])) < len(np.unique(labels)):
            continue
        model = LogisticRegression(max_iter=200, warm_start=True)
        for strength in strengths:
            model.set_params(C=strength).fit(features[fit], labels[fit])
            guesses = model.predict_proba(features[held])
            losses[strength] += log_loss(labels[held], guesses, labels=model.classes_) * held.sum()
    best = min(strengths, key=lambda strength: losses[strength])
    return LogisticRegression(C=best, max_iter=200).fit(features, labels)


def fit_states(work: Path, arm: str, task: str, count: int, sample: int) -> tuple[Any, ...]:
    """Return classes predicted for the test reviews (uint8), log-loss and C."""
    states = np.load(work / f"states-{arm}.npy", mmap_mode="r")
    train, test, classes = draw(work, task, count, sample)
    pool, _, _ = draw(work, "stars", 0, 0)
    part = np.asarray(states[np.sort(pool)[:4000]])
    mean, deviation = part.mean(0), part.std(0) + 1e-6
    features = (np.asarray(states[train]) - mean) / deviation
    model = cross_validate(features, classes[train], STRENGTHS)
    return judge(model, (np.asarray(states[test]) - mean) / deviation, classes[test])


def judge(model: Any, features: Any, labels: np.ndarray) -> tuple[Any, ...]:
    guesses = model.predict_proba(features)
    places = {int(c): i for i, c in enumerate(model.classes_)}
    own = np.array([places.get(int(c), -1) for c in labels])
    chances = np.where(own >= 0, guesses[np.arange(len(labels)), own], 1e-6)
    loss = float(-np.log(chances.clip(1e-6)).mean())
    return model.classes_[guesses.argmax(1)].astype(np.uint8), loss, float(model.C)


def count_ngrams(work: Path) -> None:
    """Write the counts of the n-grams of all labelled reviews, as the product's TF-IDF has them."""
    from scipy import sparse
    from sklearn.feature_extraction.text import HashingVectorizer

    from amazon_electra.model.arms.words import HASHED_FEATURES, N_GRAMS

    texts = json.loads((work / "texts.json").read_text())
    for unit, lengths in N_GRAMS:
        counted = HashingVectorizer(
            analyzer=unit,
            ngram_range=lengths,
            n_features=HASHED_FEATURES,
            alternate_sign=False,
            norm=None,
            dtype=np.float32,
        ).transform(texts)
        sparse.save_npz(work / f"counts-{unit}.npz", counted, compressed=False)


def fit_tfidf(work: Path, task: str, count: int, sample: int) -> tuple[Any, ...]:
    from scipy import sparse
    from sklearn.feature_extraction.text import TfidfTransformer

    from amazon_electra.model.arms.words import N_GRAMS

    train, test, classes = draw(work, task, count, sample)
    parts = []
    for unit, _ in N_GRAMS:
        counts = sparse.load_npz(work / f"counts-{unit}.npz").tocsr()
        weigh = TfidfTransformer(sublinear_tf=True).fit(counts[train])
        parts.append((weigh.transform(counts[train]), weigh.transform(counts[test])))
    features, others = (sparse.hstack([p[i] for p in parts]).tocsr() for i in (0, 1))
    kept = np.flatnonzero(np.bincount(features.indices, minlength=features.shape[1]) > 1)
    model = cross_validate(features[:, kept], classes[train], TFIDF_STRENGTHS)
    return judge(model, others[:, kept], classes[test])


def collect_fits(job: Job, found: dict[str, Any], futures: dict[Future[Any], Any]) -> None:
    """Write the predictions of the regressions that are done in time, and the table of arms."""
    done: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    errors: list[str] = []
    with suppress(OutOfTime):
        for future in as_completed(futures, timeout=max(1.0, job.left() - 12)):
            try:
                done[futures[future]] = future.result()
            except Exception as error:
                errors.append(f"{futures[future]}: {error!r}"[:300])
    found["regressions"] = {"done": len(done), "of": len(futures), "errors": errors[:5]}
    note(f"regressions: {len(done)} of {len(futures)}")
    arrays = {"/".join(map(str, fit)): one[0] for fit, one in done.items()}
    np.savez_compressed(job.output / "predictions.npz", **arrays)
    data = np.load(job.work / "labelled.npz")
    np.savez_compressed(job.output / "labelled.npz", **{n: data[n] for n in data.files})
    found["table"] = tabulate(job.work, done)
    job.write("question", found)


def tabulate(work: Path, done: dict[tuple[Any, ...], tuple[Any, ...]]) -> list[dict[str, Any]]:
    """Return mean accuracy, macro-F1 and log-loss of each arm (over its seeds), task and count, and
    the difference from the published encoder with its 95% interval: a paired bootstrap over seeds,
    samples and products of test reviews.
    """
    from sklearn.metrics import f1_score

    products = np.load(work / "labelled.npz")["product"]
    rows = []
    for task, count in dict.fromkeys((fit[1], fit[2]) for fit in done):
        _, test, classes = draw(work, task, count, 0)
        gold, groups = classes[test], products[test]
        _, group = np.unique(groups, return_inverse=True)
        weights = np.random.default_rng(0).multinomial(
            group.max() + 1, np.full(group.max() + 1, 1 / (group.max() + 1)), BOOTSTRAPS
        )[:, group]
        right: dict[str, list[np.ndarray]] = {}
        of_arm: dict[str, list[tuple[float, float, float]]] = {}
        samples = sorted({f[3] for f in done if f[1:3] == (task, count)})
        for name in dict.fromkeys(
            f[0].rpartition("-")[0] if f[0][-1].isdigit() else f[0] for f in done
        ):
            seeds = [f[0] for f in done if f[1:3] == (task, count) and f[3] == samples[0]]
            seeds = [s for s in seeds if s == name or s.rpartition("-")[0] == name]
            cells = [(s, k) for s in seeds for k in samples if (s, task, count, k) in done]
            for s, k in cells:
                classes_, loss, _ = done[s, task, count, k]
                right.setdefault(name, []).append((classes_ == gold).astype(np.float32))
                macro = f1_score(gold, classes_, average="macro")
                of_arm.setdefault(name, []).append((float((classes_ == gold).mean()), macro, loss))
        for name, values in of_arm.items():
            accuracy, macro, loss = np.array(values).mean(0).tolist()
            row = {"task": task, "labels": count, "arm": name, "cells": len(values)}
            row |= {"accuracy": accuracy, "macro_f1": macro, "log_loss": loss}
            base = right.get("published")
            if base and name != "published":
                n = len(base)
                mine = np.array(right[name])
                if len(mine) % n == 0:
                    gain = mine.reshape(-1, n, len(gold)) - np.array(base)[None]
                    generator, boots = np.random.default_rng(1), []
                    for w in weights:
                        a = generator.integers(0, gain.shape[0], gain.shape[0])
                        b = generator.integers(0, n, n)
                        boots.append(float((gain[a][:, b].mean((0, 1)) @ w) / w.sum()))
                    row["less_published"] = float(gain.mean())
                    row["interval"] = np.percentile(boots, [2.5, 97.5]).tolist()
            rows.append(row)
    return rows


def finetune_arms(
    job: Job, arms: dict[str, Path], labelled: Path, counts: Sequence[int | None]
) -> dict[str, Any]:
    """Fine-tune from each start with so many labels (None: all), two seeds or three."""
    chosen = [n for n in ("published", "contrastive-0", "mlm-0", "both-0") if n in arms]
    commands = {}
    for count in counts:
        for seed in range(1 if job.toy else 2 if count is None else 3):
            for name in chosen:
                output = job.work / f"tuned-{name}-{count}-{seed}"
                commands[f"{name}/{count or 'all'}/{seed}"] = [
                    *(
                        "amazon_electra.model.finetune",
                        "--encoder",
                        str(arms[name]),
                        "--task",
                        "polarity",
                    ),
                    *("--data", str(labelled), "--output", str(output), "--seed", str(seed)),
                    *("--evaluation", f"{output}-test", "--recipe", "published"),
                    *("--set", f"n_train={count or 'none'}"),
                    *(("--set", "n_test=60", "--set", "epochs=0.1") if job.toy else ()),
                ]
    names = {name: name.replace("/", "-") for name in commands}
    told = job.run_all({names[n]: c for n, c in commands.items()}, at_once=6, margin=15)
    keys = ("dev", "test", "n_train", "seconds", "wall_seconds", "error")
    return {n: {k: told[names[n]][k] for k in keys if k in told[names[n]]} for n in commands}


# --- row "objective": random weights, equal compute ---


def measure_objective(job: Job) -> None:
    """Pre-train ELECTRA for a time, masked language modelling for as many operations, and fine-tune
    both and an untrained one on polarity.
    """
    _, labelled, shards = prepare(job)
    found: dict[str, Any] = {}
    recipe = "sample" if job.toy else "small"
    seconds = 4 if job.toy else max(30.0, min(110.0, (job.left() - 65) / 2.3))
    common = ["amazon_electra.model.pretrain", "--recipe", recipe, "--shards", str(shards)]
    # a fifteenth of the paper's compute: a higher rate and longer warm-up than for a million steps
    common += ["--set", f"batch={4 if job.toy else 256}"]
    common += [] if job.toy else ["--set", "learning_rate=1e-3", "--set", "warmup=0.1"]
    found |= job.run_all(
        {
            "electra": [
                *common,
                "--output",
                str(job.work / "electra"),
                "--budget",
                f"{seconds:.0f}s",
            ]
        },
        margin=60,
    )
    job.write("objective", found)
    if "matrix_flops" not in found["electra"]:
        return
    found |= job.run_all(
        {
            "mlm": [
                *(*common, "--set", "objective=mlm", "--output", str(job.work / "mlm")),
                *("--budget", f"{found['electra']['matrix_flops']:.6g}flops"),
            ]
        },
        margin=35,
    )
    job.write("objective", found)
    starts = {n: found[n]["encoder"] for n in ("electra", "mlm") if "encoder" in found[n]}
    commands = {}
    for count in (2000, "none"):
        for seed in range(1 if job.toy else 3 if count == 2000 else 1):
            for name in (*starts, "random"):
                output = job.work / f"objective-{name}-{count}-{seed}"
                start = ["--encoder", starts.get(name, "random")]
                if name == "random":
                    start += ["--architecture", found["electra"]["encoder"]]
                commands[f"{name}-{count}-{seed}"] = [
                    *(
                        "amazon_electra.model.finetune",
                        *start,
                        "--task",
                        "polarity",
                        "--data",
                        str(labelled),
                    ),
                    *("--output", str(output), "--evaluation", f"{output}-test"),
                    *("--seed", str(seed), "--recipe", recipe, "--set", f"n_train={count}"),
                    *(
                        "--set",
                        f"epochs={0.1 if job.toy else 5 if count == 2000 else 2}",
                        "--set",
                        "n_dev=1000",
                    ),
                    *(("--set", "n_test=60") if job.toy else ()),
                ]
    told = job.run_all(commands, at_once=6, margin=6)
    keys = ("dev", "test", "seconds", "error")
    found["fine-tuned"] = {n: {k: one[k] for k in keys if k in one} for n, one in told.items()}
    job.write("objective", found)


# --- row "base": a base-size network beside MiniLM ---


def measure_base(job: Job) -> None:
    """Fine-tune networks of BERT-base's shape and of the encoder's on all labels, for seconds and
    memory; base's weights are random, so that its accuracy says nothing.
    """
    import shutil

    from transformers import BertConfig, BertModel

    _, labelled, _ = prepare(job)
    folder = job.work / "bert-base"
    layers = {"num_hidden_layers": 1} if job.toy else {}
    BertModel(BertConfig(vocab_size=30_522, **layers)).save_pretrained(folder)
    for name in ("vocab.txt", "tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(job.encoder / name, folder / name)
    found: dict[str, Any] = {}
    for name, start in {"base": folder, "published": job.encoder}.items():
        output = job.work / f"one-epoch-{name}"
        command = [
            *("amazon_electra.model.finetune", "--encoder", str(start), "--task", "polarity"),
            *("--data", str(labelled), "--output", str(output), "--recipe", "published"),
            *("--set", "epochs=1", "--set", f"n_train={40 if job.toy else 'none'}"),
        ]
        found |= job.run_all({name: command}, margin=3)
        job.write("base", found)


ROWS: dict[str, Callable[[Job], None]] = {
    "question": measure_question,
    "objective": measure_objective,
    "base": measure_base,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--encoder", type=Path, required=True, help="folder of transformers")
    parser.add_argument("--reviews", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--work", type=Path, default=Path("/tmp/evidence"))
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS))
    parser.add_argument("--seconds", type=float, default=400.0, help="of all rows together")
    parser.add_argument("--toy", action="store_true")
    job = Job(parser.parse_args())
    for row in parser.parse_args().rows:
        if job.left() < 20:
            note(f"{row}: no time left")
            continue
        try:
            ROWS[row](job)
        except Exception as error:
            import traceback

            traceback.print_exc()
            job.write(f"{row}-error", {"error": repr(error)[:2000]})
    note("done")
    sys.stderr.flush()
    os._exit(0)  # workers that are late end with it


if __name__ == "__main__":
    main()
