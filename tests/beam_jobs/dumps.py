"""Small dumps for the tests of the data path, and what was made of them read back."""

import gzip
import hashlib
import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from amazon_electra.beam_jobs import corpus_job, shards_job
from amazon_electra.beam_jobs.config import ReadingConfig, ScoringConfig
from amazon_electra.beam_jobs.core.command_line import call_job
from amazon_electra.beam_jobs.corpus import plan, prepare, write
from amazon_electra.beam_jobs.corpus.result import finish_corpus, write_totals
from amazon_electra.beam_jobs.deduplication import buckets, exact, held_out, near
from amazon_electra.beam_jobs.packing import shards
from amazon_electra.beam_jobs.reading import work_units
from amazon_electra.beam_jobs.reading.work_units import DumpFile
from amazon_electra.beam_jobs.scoring.score_files import Rows, read_rows
from tests.words import read_arguments

WORDS = """the a it this phone case works great bad broke love hate price good cheap money my wife dog after day two very
    not Dr. U.S. e.g. battery screen husband said would buy again never ever really quite small large""".split()  # noqa


def text_of(number: int, sentences: int = 3) -> str:
    """A text of its own for every number."""
    rng = random.Random(number)
    parts = [
        " ".join(rng.choices(WORDS, k=rng.randint(3, 12))).capitalize() for _ in range(sentences)
    ]
    return f"Item {number} arrived. " + " ".join(part + rng.choice(".!?") for part in parts)


def review(number: int, text: Any = None, **fields: Any) -> dict[str, Any]:
    """A record of the 2018 release."""
    record = {
        "overall": 1.0 + number % 5,
        "verified": number % 2 == 0,
        "reviewerID": f"U{number}",
        "asin": "B01",
    }
    return (
        record
        | {"unixReviewTime": number, "reviewText": text_of(number) if text is None else text}
        | fields
    )


def look_at(path: Path | str, **options: Any) -> DumpFile:
    """What a job finds out about a file."""
    [file] = work_units.list_dump_files(ReadingConfig(**options), [str(path)])
    return file


def read_as_scored(dump: Path, folder: Path, **options: Any) -> Rows:
    """What a scoring of a file gives its classifier; the file is cut in a folder."""
    config = ScoringConfig(**options)
    [file] = work_units.list_dump_files(config, [str(dump)])
    [unit] = work_units.cut_file(file, 1 << 20, str(folder / "cuts"))
    return read_rows(unit, config, [])


def write_lines(path: Path, records: list[Any]) -> Path:
    """JSON lines; strings and bytes go in as they are. gz if the name says so."""
    lines = [
        r if isinstance(r, bytes) else r.encode() if isinstance(r, str) else json.dumps(r).encode()
        for r in records
    ]
    content = b"".join(line + b"\n" for line in lines)
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def run_job(output: Path, *arguments: Any, mode: str = "") -> dict[str, Any]:
    """Run the job, in a `mode` of Beam's runner or step by step, and check what always holds."""
    argv = [*map(str, arguments), "--output", str(output), f"--direct_running_mode={mode}"]
    if mode:
        more = ["--direct_num_workers=2"] if mode == "multi_processing" else []
        result = call_job(corpus_job.make_corpus, [*argv, *more])
    else:
        result = run_steps(argv[:-1])
    assert result["read"] == result["kept"] + sum(result["dropped"].values())
    assert result["kept"] == len(rows_of(output)) == sum(result["splits"].values())
    assert not [p for p in output.iterdir() if p.name.startswith(("_", "."))]
    return result


def plan_job(argv: list[str]) -> plan.CorpusPlan:
    """The plan of a corpus job by the words of its command line."""
    given = read_arguments(corpus_job.make_corpus, argv)
    return plan.plan_corpus(beam_flags=given.pop("beam_options"), **given)


def run_steps(argv: list[str]) -> dict[str, Any]:
    """Makes a corpus by the steps of the job's graph."""
    corpus = plan_job(argv)
    config, folders, preparation = corpus.config, corpus.folders, corpus.preparation
    work = folders.prepared
    folders.clear_other_runs(plan.CORPUS_FILES)
    size, cuts = corpus.unit_bytes, folders.cuts
    cut = [unit for file in corpus.files for unit in work_units.cut_file(file, size, cuts)]
    time = None
    if config.split_by == "time":
        dates = Counter[str]()
        for unit in cut:
            dates.update(*prepare.count_unit_dates(unit, preparation))
        column = work_units.name_column(corpus.files, "timestamp")
        time = prepare.decide_time_split(dates, preparation, column)
    prepared = [one for unit in cut for one in prepare.prepare_units(unit, preparation, time)]
    units = buckets.join_unit_starts(prepared, work)
    punkt = write.write_punkt(prepared, folders, corpus.punkt)
    scale = write.decide_scale(prepared, config.stars_scale)
    decided = units, punkt, scale, write.decide_labels(prepared, config)
    found: dict[str, defaultdict[str, list[bytes]]] = defaultdict(lambda: defaultdict(list))

    def collect(kind: str, pairs: Iterable[exact.UnitRows]) -> None:
        for name, rows in pairs:
            found[kind][name].append(rows)

    for bucket in exact.list_buckets(units):
        collect("exact", exact.find_in_bucket(bucket, work, units))
        if labels := len(preparation.labels):
            collect("contradictions", exact.find_contradictions(bucket, work, units, labels))
    if similarity := config.near_duplicates:
        for bucket in near.list_buckets(units, similarity):
            collect("near", near.find_in_bucket(bucket, work, units))
    matches = []
    if preparation.withholds:
        others, files = folders.others, corpus.withheld_files
        runs = [
            held_out.write_corpus_runs((i, [path]), others)
            for i, path in enumerate(corpus.withheld_corpus)
        ]
        runs += held_out.write_withheld_runs(files, others, config.limits, config.repair_mojibake)
        joined = buckets.join_files(runs, f"{others}/heldout.starts")
        copies = [near.write_copies(pair, folders.matches) for pair in found["near"].items()]
        compared = held_out.Compared(units, work, folders.matches, copies, joined)
        matches = write_matches(compared, list(compared.list_buckets()))
    writer, written = write.WriteUnits(folders), []
    for unit in prepared:
        of_unit = {kind: rows[unit.unit] for kind, rows in found.items()}
        element = unit.unit, {"prepared": [unit], **of_unit}
        written += writer.process(element, *decided, matches)
    write_totals(written, prepared, corpus)
    return finish_corpus(corpus)


def write_matches(compared: held_out.Compared, every: list[buckets.Bucket]) -> list[str]:
    """Leave what reviews share with held-out ones, bucket by bucket; return the paths."""
    common = [held_out.write_common(bucket, compared) for bucket in every]
    counts = [
        name
        for path in compared.list_files()
        for name in held_out.write_counts(path, compared.folder, common)
    ]
    return [held_out.write_matches(bucket, compared, common, counts) for bucket in every]


def run_shard_steps(argv: list[str]) -> dict[str, Any]:
    """Makes shards by the steps of the job's graph."""
    given = read_arguments(shards_job.make_shards, argv)
    packing = shards.prepare_output(given["config"], given["vocabulary"], given["output"])
    plan = shards.plan_shards(given["config"], packing, given["corpus"], given["beam_options"])
    shards.remove_strays(plan.packing, plan.units)
    packer = shards.PackIntoShards(plan.packing)
    for unit in plan.units:
        list(packer.process(unit))
    return shards.finish_shards(plan)


def rows_of(folder: Path) -> list[dict[str, Any]]:
    return [
        row
        for path in sorted(folder.glob("corpus-*.parquet"))
        for row in pq.read_table(path).to_pylist()
    ]


def texts_in(folder: Path) -> list[str]:
    return [" ".join(row["sentences"]) for row in rows_of(folder)]


def rejects_of(folder: Path) -> list[dict[str, Any]]:
    return [
        json.loads(line)
        for p in sorted(folder.glob("rejects/*.jsonl"))
        for line in p.read_text().splitlines()
    ]


def digests(folder: Path) -> dict[str, str]:
    """Of every file that must not depend on how the job was run."""
    files = [p for p in folder.rglob("*") if p.is_file() and p.name != "corpus.json"]
    return {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


def shared_data() -> Path:
    """The real files, or a skip where they are not."""
    root = Path(__file__).parent.parent.parent
    for place in (root.parent / "shared" / "data", root / "shared" / "data"):
        if place.is_dir():
            return place
    pytest.skip("the real reviews of shared/data are not here")
