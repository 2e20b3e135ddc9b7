"""Which reviews are worth a label next? Unsure ones, a rare class first, none like another.

The score of a review is the sum over classes of p (1 - p) / share: what its label would teach of a
class, in proportion to how rare that is. Of the best ones each cluster of words gives one.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from amazon_electra.beam_jobs.core.errors import refuse, require
from amazon_electra.beam_jobs.core.files import atomic_path, write_json

CANDIDATES = 3  # times the number that is wanted, of the best scores
MIN_SHARE = 0.005  # of a class: a rarer one weighs no more
COMPONENTS = 30  # of the words of the candidates, by which they are clustered
PROBABILITY = "p."
Row = dict[str, Any]


def suggest(scores: str | Path, number: int = 200, at_random: bool = False) -> list[Row]:
    """Return the rows of a folder of tables of scores that are worth a label, the best first; or as
    many that chance draws, always the same ones: labels that a model is measured by.
    """
    rows = [row for row in read_scores(Path(scores)) if row["label"]]
    first: dict[str, Row] = {}
    for row in rows:
        first.setdefault(row["text"], row)  # a copy of a text has its label
    rows = list(first.values())
    if at_random:
        return [rows[i] for i in np.random.default_rng(0).permutation(len(rows))[:number]]
    names = [name for name in (rows[0] if rows else ()) if name.startswith(PROBABILITY)]
    probabilities = np.array([[row[name] for name in names] for row in rows], float)
    return [rows[i] for i in choose_rows(list(first), probabilities, number)]


def choose_rows(texts: Sequence[str], probabilities: np.ndarray, number: int) -> list[int]:
    """Return the places of texts worth a label, the best first; probabilities [n, classes]."""
    if len(texts) <= number:
        return list(range(len(texts)))
    from sklearn.cluster import MiniBatchKMeans
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer

    shares = np.maximum(probabilities.mean(0), MIN_SHARE)
    scores = (probabilities * (1 - probabilities) / shares).sum(1)
    best = np.argsort(-scores, kind="stable")[: CANDIDATES * number]
    words = TfidfVectorizer(sublinear_tf=True, token_pattern=r"\w+|[^\w\s]")
    features = words.fit_transform([texts[i] for i in best])
    size = min(COMPONENTS, min(features.shape) - 1)
    clusters = best * 0
    if size > 0:
        states = TruncatedSVD(size, random_state=0).fit_transform(features)
        means = MiniBatchKMeans(number, random_state=0, n_init=1, batch_size=1024)
        clusters = means.fit_predict(states)
    _, chosen = np.unique(clusters, return_index=True)  # the best of each
    rest = [place for place in range(len(best)) if place not in {*chosen.tolist()}]
    picked = sorted([*chosen.tolist(), *rest[: number - len(chosen)]])
    return best[picked].tolist()


def write_suggestions(rows: Sequence[Row], path: Path) -> None:
    """Write rows for a labelling tool: .json for Label Studio, else JSON Lines for doccano."""
    records = [
        {"text": row["text"], "file": row["file"], "row": row["row"], "id": row["id"]}
        | {"suggested": row["label"]}
        for row in rows
    ]
    if path.suffix == ".json":
        write_json(path, [{"data": record} for record in records])
        return
    with atomic_path(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        for record in records:
            file.write(json.dumps(record | {"label": []}, ensure_ascii=False) + "\n")


def read_scores(folder: Path) -> list[Row]:
    """Return the rows of the tables of scores of a folder, which are of one task."""
    files = sorted(folder.glob("*.scores.parquet"))
    remedy = "`score --format parquet --model.task TASK` writes a table of one task"
    require(files, f"{folder}: no *.scores.parquet in it; {remedy}")
    rows: list[Row] = []
    for file in files:
        with refuse(pa.ArrowException, OSError, message=f"{file}: cannot be read ({{}})"):
            table = pq.read_table(file)
        missing = {"file", "row", "id", "label", "text"} - {*table.column_names}
        require(not missing, f"{file}: has no column {min(missing, default='')}; {remedy}")
        rows += table.to_pylist()
    return rows
