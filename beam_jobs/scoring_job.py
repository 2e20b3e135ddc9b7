"""A dump and a fine-tuned classifier to a label for every review: `python -m beam_jobs.scoring_job --scorer DIR …`.

The classifier comes as one exported program (`python -m model.scorer`), so a worker needs torch and tokenizers beside
what the corpus job needs, and neither transformers nor model/. The one job that imports torch: its workers have an
image of their own. The text of a unit is read, scored and dropped where it is; only names and counts travel between
steps.
"""

import argparse
import hashlib
import io
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from apache_beam.ml.inference.base import ModelHandler, RunInference

from beam_jobs import corpus_options, engine, options, prepared, storage, unit_counts, work_units
from beam_jobs.command import UserMistake, main
from beam_jobs.corpus_options import UNIT_NAME, Folders
from beam_jobs.progress import progress
from beam_jobs.written import numbered

TOKENS_AT_ONCE = 8_192
"""Of a batch, padding included: small enough for the caches of a core (ours)."""
SCHEMA = pa.schema(
    [
        pa.field("review_id", pa.binary(16)),
        pa.field("stars", pa.int8()),
        pa.field("label", pa.string()),
        pa.field("probability", pa.float32()),
        pa.field("probabilities", pa.list_(pa.float32())),
        pa.field("model_version", pa.string()),
    ]
)


def run(argv: list[str] | None = None) -> dict[str, Any]:
    started = time.monotonic()
    args, flags = parse(argv)
    check_scorer(args.scorer)
    files = corpus_options.dump_files(args)
    storage.check_apart([file.path for file in files], args.output)
    storage.check_writable(args.output)
    beam_options = options.resolve(flags, sum(file.plain_size for file in files))
    folders = Folders(args.output, storage.join(args.output, f"_work-{fingerprint(args, files)}"))
    folders.clear_earlier(rf"scores-{UNIT_NAME}\.parquet")
    preparation = corpus_options.text_preparation(args, folders)
    size = work_units.unit_bytes(files)
    units = sum(work_units.expected(file, size) for file in files)

    def build(pipeline: beam.Pipeline) -> None:
        _ = (
            pipeline
            | "List files" >> beam.Create(files)
            | "Cut files" >> beam.FlatMap(work_units.cut, size, folders.cuts)
            | "Spread units" >> beam.Reshuffle()
            | "Prepare units" >> beam.Map(prepared.prepare, preparation)
            | "Score units" >> RunInference(Scorer(args.scorer, folders.prepared))
            | "Write scores" >> beam.Map(write, folders, args.model_version)
        )

    with progress(units, "units", f"scoring ({options.describe(beam_options)})") as shown:
        engine.run_graph(beam_options, build, lambda: shown.update(len(unit_counts.names(folders.written))))
        if options.only_stages(beam_options):
            return {"staged": options.describe(beam_options)}
        result = finish(folders)
    seconds = time.monotonic() - started
    return {**result, "seconds": round(seconds, 3), "reviews_per_second": round(result["scored"] / seconds, 1)}


def parse(argv: list[str] | None) -> tuple[argparse.Namespace, list[str]]:
    """Our options, and what is left for Beam."""
    parser = argparse.ArgumentParser(
        "scoring_job",
        description="A label and its probability for every review of a dump. Any Apache Beam option may follow.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--scorer", required=True, metavar="DIR", help="folder made by model.scorer")
    parser.add_argument("--model_version", default="", help="written beside every label")
    corpus_options.add_dump_options(parser)
    corpus_options.add_text_options(parser)
    args, flags = parser.parse_known_args(argv)
    corpus_options.check(args)
    return args, flags


def check_scorer(folder: str) -> None:
    for name in ("scorer.pt2", "scorer.json", "tokenizer.json"):
        if not storage.exists(storage.join(folder, name)):
            raise UserMistake(f"--scorer {folder}: has no {name}; `python -m model.scorer` makes such a folder")
    try:
        settings = json.loads(storage.read_bytes(storage.join(folder, "scorer.json")))
        if not (isinstance(settings["max_length"], int) and settings["labels"]):
            raise ValueError("no labels")
    except (ValueError, LookupError, TypeError) as error:
        raise UserMistake(
            f"--scorer {folder}: scorer.json is not what `python -m model.scorer` writes ({error})"
        ) from None


def fingerprint(args: argparse.Namespace, files: list[work_units.DumpFile]) -> str:
    """Of everything that decides the scores: an interrupted run is continued only by the same job."""
    scorer = hashlib.sha256(storage.read_bytes(storage.join(args.scorer, "scorer.pt2"))).hexdigest()
    content = [scorer, *map(storage.identity_of, dict.fromkeys(file.path for file in files))]
    content += sorted(corpus_options.settings(args).items())
    return hashlib.sha256(repr(content).encode()).hexdigest()[:16]


@dataclass
class Loaded:
    """What a worker keeps: one copy for all its threads."""

    program: Any
    tokenizer: Any
    labels: list[str]


class Scorer(ModelHandler[dict[str, Any], dict[str, Any], Loaded]):
    """Scores prepared units; an element is the counts of one, its texts lie in a file."""

    def __init__(self, folder: str, texts: str):
        super().__init__(max_batch_size=1)
        self.folder, self.texts = folder, texts

    def load_model(self) -> Loaded:
        import torch
        from tokenizers import Tokenizer

        torch.set_num_threads(1)
        settings = json.loads(storage.read_bytes(storage.join(self.folder, "scorer.json")))
        try:
            tokenizer = Tokenizer.from_str(storage.read_bytes(storage.join(self.folder, "tokenizer.json")).decode())
            program = torch.export.load(io.BytesIO(storage.read_bytes(storage.join(self.folder, "scorer.pt2"))))
        except Exception as error:  # both raise whatever they come upon
            why = f"cannot be loaded ({error}); make it again by `python -m model.scorer`"
            raise UserMistake(f"--scorer {self.folder}: {' '.join(why.split())}") from error
        tokenizer.no_padding()
        tokenizer.enable_truncation(settings["max_length"])
        return Loaded(program.module(), tokenizer, settings["labels"])

    def run_inference(
        self, batch: Sequence[dict[str, Any]], model: Loaded, inference_args: dict[str, Any] | None = None
    ) -> Iterator[dict[str, Any]]:
        for counts in batch:
            yield {"counts": counts, "labels": model.labels, "probabilities": self.scored(counts, model)}

    def scored(self, counts: dict[str, Any], model: Loaded) -> np.ndarray:
        """Probabilities [reviews, classes] of a unit, in its order."""
        with storage.open_bytes(storage.join(self.texts, f"{counts['unit']}.arrow")) as stream:
            texts = pa.ipc.open_file(stream).read_all()["text"].to_pylist()
        ids = [encoding.ids for encoding in model.tokenizer.encode_batch(texts)]
        found = np.zeros((len(ids), len(model.labels)), dtype=np.float32)
        for rows in batches(ids):
            found[rows] = probabilities([ids[row] for row in rows], model.program)
        return found

    def get_metrics_namespace(self) -> str:
        return "amazon_electra_scoring"


def batches(ids: list[list[int]]) -> Iterator[list[int]]:
    """Row numbers of texts of like length, so many at once that the padded batch has its size."""
    rows: list[int] = []
    for row in sorted(range(len(ids)), key=lambda row: -len(ids[row])):
        if rows and (len(rows) + 1) * len(ids[rows[0]]) > TOKENS_AT_ONCE:
            yield rows
            rows = []
        rows.append(row)
    if rows:
        yield rows


def probabilities(ids: list[list[int]], program: Any) -> np.ndarray:
    """[texts, classes]; the texts are padded to the longest with 0, [PAD]."""
    import torch

    length = max(2, *(len(row) for row in ids))
    padded = torch.zeros(len(ids), length, dtype=torch.long)
    mask = torch.zeros(len(ids), length, dtype=torch.long)
    for number, row in enumerate(ids):
        padded[number, : len(row)] = torch.tensor(row)
        mask[number, : len(row)] = 1
    with torch.inference_mode():
        return program(padded, mask).numpy()


def write(result: dict[str, Any], folders: Folders, version: str) -> None:
    """The scores of a unit as Parquet, then its counts."""
    counts, found = result["counts"], result["probabilities"]
    with storage.open_bytes(storage.join(folders.prepared, f"{counts['unit']}.arrow")) as stream:
        reviews = pa.ipc.open_file(stream).read_all()
    best = found.argmax(1) if len(found) else np.zeros(0, dtype=np.int64)
    columns = [
        reviews["review_id"],
        reviews["stars"],
        pa.array([result["labels"][label] for label in best], pa.string()),
        pa.array(found[np.arange(len(best)), best], pa.float32()),
        pa.array(list(found), pa.list_(pa.float32())),
        pa.array([version] * len(best), pa.string()),
    ]
    with storage.atomic_path(storage.join(folders.output, f"scores-{counts['unit']}.parquet")) as path:
        pq.write_table(pa.Table.from_arrays(columns, schema=SCHEMA), path, compression="zstd")
    scored = {**counts, "scored": len(best)}
    storage.write_bytes(storage.join(folders.written, f"{counts['unit']}.json"), json.dumps(scored).encode())


def finish(folders: Folders) -> dict[str, Any]:
    """Rejects with the lines of their files, the totals; read = scored + dropped is asserted."""
    done, lines = unit_counts.read_all(folders.written), dict[str, int]()
    for unit in done:
        rejects = storage.read_bytes(storage.join(folders.prepared, f"{unit['unit']}.rejects"))
        if rejects:
            before = lines.get(unit["file"], 0)
            storage.write_bytes(
                storage.join(folders.output, "rejects", f"{unit['unit']}.jsonl"), numbered(rejects, before)
            )
        lines[unit["file"]] = lines.get(unit["file"], 0) + unit["lines"]
    dropped = unit_counts.total(unit["dropped"] for unit in done)
    result = {name: sum(unit[name] for unit in done) for name in ("read", "scored")}
    assert result["read"] == result["scored"] + sum(dropped.values()), f"reviews lost: {result}, dropped {dropped}"
    storage.remove(folders.work)
    return {**result, "dropped": dropped, "units": len(done)}


if __name__ == "__main__":
    main(run)
