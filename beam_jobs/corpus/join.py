"""Joins the labelled reviews of corpora that followed one another (`--seen`) in one corpus, whose
column `dump` names the dump of each: what tasks train and test on once a dump was added.

No text of a later corpus repeats one of the earlier ones that is held out; the corpus job saw to
that. A dev or test review of the later one that nearly repeats a review that an earlier one trains
on is left out here: encoders have read that one, with or without a label.
"""

import json
import shutil
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.beam_jobs.core.files import write_json
from amazon_electra.beam_jobs.core.label_sets import CONTRADICTED
from amazon_electra.beam_jobs.core.parquet import write_tables
from amazon_electra.beam_jobs.corpus.classes import (
    TRAINED_SPLITS,
    choose_classes,
    count_labels,
    warn_of_label,
)
from amazon_electra.beam_jobs.deduplication.held_out import (
    HELD_OUT_SPLITS,
    find_repeats,
    join_sentences,
)
from amazon_electra.beam_jobs.reading.fields import LABEL

DUMP = "dump"
BATCH_ROWS = 1 << 14
HELD_TEXTS = 100_000
"""Held-out reviews that are compared at once; all that is trained on is read twice for them."""
NAMES = pa.dictionary(pa.int32(), pa.string())


def join_corpora(
    earlier: str | Path,
    corpus: str | Path,
    output: str | Path,
    *,
    dumps: tuple[str, str],
    seen: Sequence[str | Path],
) -> dict[str, Any]:
    """Write the labelled reviews of two corpora to the folder `output` as one corpus, corpus.json
    last; return its content.

    `earlier` is a corpus, or one that was joined; `seen` are all corpora before `corpus`, whose
    texts it was made without. `dumps` names the dumps of `earlier`, where it was not joined, and of
    `corpus`.
    """
    sources, output = (Path(earlier), Path(corpus)), Path(output)
    output.mkdir(parents=True, exist_ok=True)
    schemas = [pq.read_schema(list_files(source)[0]) for source in sources]
    fields = {field.name: field for schema in reversed(schemas) for field in schema}
    fields |= {DUMP: pa.field(DUMP, NAMES, nullable=False)}
    schema = pa.schema(list(fields.values()))
    labels = [name for name in schema.names if name.startswith(LABEL)]
    results = [
        json.loads((source / "corpus.json").read_text(encoding="utf-8")) for source in sources
    ]
    repeats = find_held_out_repeats(sources[1], seen)
    dropped, files = Counter[str](), 0
    for source, dump in zip(sources, dumps, strict=True):
        for path in list_files(source):
            tables = read_labelled(path, schema, labels, dump, repeats, dropped)
            write_tables(output / f"corpus-0000-{files:05d}.parquet", schema, tables)
            files += 1
        for path in sorted((source / CONTRADICTED).glob("*.jsonl")):
            (output / CONTRADICTED).mkdir(exist_ok=True)
            shutil.copyfile(path, output / CONTRADICTED / f"{files:05d}-{path.name}")
    counted = count_reviews(output, labels, results)
    result = {
        "read": counted["kept"] + dropped.total(),
        "dropped": {reason: n for reason, n in sorted(dropped.items()) if n},
        **counted,
    }
    write_json(output / "corpus.json", result)
    return result


def list_files(corpus: Path) -> list[Path]:
    """Return the Parquet files of a corpus; UserError where it has none."""
    files = sorted(corpus.glob("corpus-*.parquet"))
    if not files:
        raise UserError("no corpus-*.parquet in it; make it with corpus_job", "corpus", corpus)
    return files


def read_batches(
    files: Iterable[Path], splits: Sequence[str], columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Yield the reviews of some splits."""
    for path in files:
        with pq.ParquetFile(path) as parquet:
            for batch in parquet.iter_batches(BATCH_ROWS, columns=[*columns, "split"]):
                is_chosen = pc.is_in(batch["split"].cast(pa.string()), pa.array(splits))
                yield batch.filter(is_chosen)


def find_held_out_repeats(corpus: Path, seen: Sequence[str | Path]) -> pa.Array:
    """Return the ids of the dev and test reviews of a corpus that nearly repeat a review that one
    of the corpora before it trains on.
    """
    columns, found = ("has_title", "sentences"), [pa.array([], pa.binary(16))]
    trained = [path for folder in seen for path in list_files(Path(folder))]

    def read_trained() -> Iterator[list[str]]:
        return map(join_sentences, read_batches(trained, TRAINED_SPLITS, columns))

    texts, ids = list[str](), list[pa.Array]()

    def compare() -> None:
        if texts:
            found.append(pa.concat_arrays(ids).filter(pa.array(find_repeats(texts, read_trained))))
            texts.clear()
            ids.clear()

    for batch in read_batches(list_files(corpus), HELD_OUT_SPLITS, ["review_id", *columns]):
        texts += join_sentences(batch)
        ids.append(batch["review_id"])
        if len(texts) >= HELD_TEXTS:
            compare()
    compare()
    return pa.concat_arrays(found)


def read_labelled(
    path: Path,
    schema: pa.Schema,
    labels: Sequence[str],
    dump: str,
    repeats: pa.Array,
    dropped: Counter[str],
) -> Iterator[pa.Table]:
    """Yield the reviews of a file that have stars or a label, with the columns of `schema`, and
    count the others by their reason.
    """
    with pq.ParquetFile(path) as parquet:
        for batch in parquet.iter_batches(BATCH_ROWS):
            n, own = batch.num_rows, set(batch.schema.names)
            one = pa.DictionaryArray.from_arrays(pa.array(np.zeros(n, np.int32)), [dump])
            others = {field.name: pa.nulls(n, field.type) for field in schema} | {DUMP: one}
            columns = {name: batch[name] if name in own else others[name] for name in schema.names}
            table = pa.table(columns)
            is_repeat = pc.is_in(table["review_id"], repeats)
            has_label = pa.array(np.zeros(table.num_rows, bool))
            for name in ("stars", *labels):
                has_label = pc.or_(has_label, pc.is_valid(table[name]))
            dropped["near an earlier review"] += pc.sum(is_repeat).as_py() or 0
            unlabelled = pc.and_(pc.invert(has_label), pc.invert(is_repeat))
            dropped["without a label"] += pc.sum(unlabelled).as_py() or 0
            yield table.filter(pc.and_(has_label, pc.invert(is_repeat)))


def count_reviews(
    folder: Path, labels: Sequence[str], results: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """Return what corpus.json says of the reviews of a folder, which are those of the corpora with
    these `results`.
    """
    splits, stars, dumps = Counter[str](), Counter[str](), defaultdict[str, Counter[str]](Counter)
    of_labels = {name.removeprefix(LABEL): Counter[str]() for name in labels}
    several = {
        column
        for result in results
        for column, found in result.get("labels", {}).items()
        if "texts" in found
    }
    for path in list_files(folder):
        columns = ["split", DUMP, "stars", *labels]
        for row in (
            pq.read_table(path, columns=columns)
            .group_by(columns)
            .aggregate([([], "count_all")])
            .to_pylist()
        ):
            split, n = row["split"], row["count_all"]
            splits[split] += n
            stars[f"{split}.{row['stars'] or 'none'}"] += n
            dumps[row[DUMP]][split] += n
            for column, counts in of_labels.items():
                count_labels(counts, split, row[f"{LABEL}{column}"], column in several, n)
    chosen = {column: choose_classes(counts) for column, counts in of_labels.items()}
    warnings = [warn_of_label(column, found) for column, found in chosen.items()]
    languages = sum((Counter(one.get("language_sample", {})) for one in results), Counter[str]())
    scales = dict.fromkeys(scale for one in results for scale in one.get("stars_scales", []))
    return {
        "kept": splits.total(),
        "splits": dict(sorted(splits.items())),
        "dumps": {name: dict(sorted(counts.items())) for name, counts in dumps.items()},
        "stars": dict(sorted(stars.items())),
        "stars_scales": list(scales),
        "language_sample": dict(sorted(languages.items())),
        **({"labels": chosen} if chosen else {}),
        **({"warnings": found} if (found := list(filter(None, warnings))) else {}),
    }
