"""The cells of a run: arms × tasks × seeds, each one fine-tuning and its evaluation on test."""

import fnmatch
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from amazon_electra.flows.configuration.form import Arm, Finetuning, Parameters
from amazon_electra.flows.policy import MIN_FINETUNED, Counts, is_automatic
from amazon_electra.flows.stages.finetuning import Finetuned, Start, build_finetuning
from amazon_electra.flows.stages.origin import describe_origin, get_name
from amazon_electra.flows.store.stage import Stage
from amazon_electra.flows.store.store import Store
from amazon_electra.model.arms import ADAPTED, find_arm, list_arms
from amazon_electra.model.finetuning.classes import ClassesInWords
from amazon_electra.model.finetuning.config import FinetuneConfig
from amazon_electra.model.finetuning.tasks import DEV_FROM
from amazon_electra.model.recipes import RECIPES

CURVE, MIN_CURVE = (50, 200, 800), 2
"""Labels of the curve, as far as there are more than twice as many labels. Fewer than MIN_CURVE
points are no curve; where one is missing it is that of the arms without an encoder alone."""
CURVE_TESTS = 1_000  # test examples that its models answer
MAX_CUT = 0.25  # share of the texts that may be longer; docs/results.md has a shop with 22%
LONGEST, DEFAULT_TOKENS = 512, 128  # unless asked for; where a recipe says nothing


def name_arms(
    chosen: Sequence[Arm], encoder: Stage, origin: Stage | None
) -> list[tuple[str, Start]]:
    """Return the name of each arm in reports, and what its fine-tunings start from. An arm that
    combines others takes the first network that is fine-tuned.
    """
    methods, name = list_arms(), get_name(origin) if origin else "pre-trained"
    title = methods["finetuned"].title.format if origin else str
    networks = {"pre-trained": (title(f"{name}{ADAPTED}" if origin else name), Start(encoder))}
    if origin:
        networks["origin"] = title(name), Start(origin)
    sources = [(name, origin or encoder)]
    if origin and encoder.fingerprint != origin.fingerprint:
        sources.insert(0, (f"{name}{ADAPTED}", encoder))
    fits = {arm: [fit] for arm, fit in networks.items()}
    fits["random"] = [("random", Start(encoder, is_random=True))]
    for arm, method in methods.items():
        if method.reads_encoder and not method.combines:
            fits[arm] = [(method.title.format(n), Start(one, arm)) for n, one in sources]
        elif not method.combines:
            fits[arm] = [(method.title, Start(arm=arm))]
    for called, start in [networks[arm] for arm in chosen if arm in networks][:1]:
        for arm, method in methods.items():
            each = [start if one == "finetuned" else fits[one][0][1] for one in method.combines]
            if each:
                fits[arm] = [(method.title.format(called), Start(start.encoder, arm, parts=each))]
    return [fit for arm in chosen for fit in fits.get(arm, [])]


def list_cells(
    p: Parameters,
    chosen: Sequence[Arm],
    length: int | None,
    counts: Counts,
    corpus: Stage,
    encoder: Stage,
    origin: Stage | None = None,
    classes: Sequence[ClassesInWords] = (),
) -> Iterator[Finetuned]:
    """Yield the cells of a run in the order of the report; `origin` is the published encoder that
    it began with, if any, `length` what networks read of a text. An automatic run fine-tunes no
    network on a task with fewer than MIN_FINETUNED labels. Those of the label curve, with the label
    `labels`, are arms that cost seconds; of few labels those without an encoder alone.
    """
    fits, said = name_arms(chosen, encoder, origin), {one.task: one.phrases for one in classes}
    settings, device = choose_settings(p, counts, length), p.pretraining.finetuning_device
    cheap = [(name, start) for name, start in fits if find_arm(start.arm).is_cheap]
    words = [(name, start) for name, start in cheap if not start.encoder]
    for task, labelled in counts.labels.items():
        own = cheap if is_automatic(p) and labelled < MIN_FINETUNED else fits
        points = [n for n in CURVE if labelled > 2 * n and p.recipe != "sample"]
        curve = cheap if len(points) == len(CURVE) else words if len(points) >= MIN_CURVE else []
        each = [(0, own), *((n, curve) for n in points)]
        for (labels, arms), seed in itertools.product(each, p.finetuning.seeds):
            fewer = {"n_train": str(labels), "n_test": str(CURVE_TESTS)} if labels else {}
            given: Any = {
                "recipe": p.recipe,
                "settings": settings | fewer,
                "phrases": said.get(task),
            }
            asked = FinetuneConfig(task=task, seed=seed, **given)
            more = {"labels": str(labels)} if labels else {}
            for name, start in arms:
                yield build_finetuning(name, asked, corpus, start, device, **more)


def choose_settings(p: Parameters, counts: Counts, length: int | None) -> dict[str, str]:
    """Return the settings of all arms in which a run differs from its recipe: a published encoder
    takes other learning rates; of few labels a dev split is too small to choose by.
    """
    is_published, chosen = bool(p.pretraining.start_from), p.finetuning
    settings = dict(RECIPES[p.recipe].finetuning_of_published) if is_published else {}
    if chosen.learning_rates:
        settings["learning_rates"] = ",".join(map(str, chosen.learning_rates))
    if chosen.labels:
        settings["n_train"] = str(chosen.labels)
    if max(counts.labels.values(), default=0) < DEV_FROM:
        settings["selection"] = "cross-validation"
    if length:
        settings["max_length"] = str(length)
    return settings


def keep_complete(cells: Iterable[Finetuned], store: Store) -> list[Finetuned]:
    """Return the cells that are evaluated, of the tasks and seeds that the first of them has."""
    complete = [c for c in cells if store.manifest(c) and store.manifest(c.evaluation)]
    arms = [cell.labels["arm"] for cell in complete]
    first = [c for c in complete if c.labels["arm"] == arms[0]]
    shared = {(cell.config.task, cell.config.seed) for cell in first}
    return [cell for cell in complete if (cell.config.task, cell.config.seed) in shared]


def find_failure(cell: Finetuned, failed: Mapping[str, Exception]) -> Exception | None:
    """Return why a cell cannot be made, where it, or what it is made of, is among what failed."""
    sources = [*cell.inputs.values(), cell]
    return next((failed[one.path] for one in sources if one.path in failed), None)


def order_chains(cells: Iterable[Finetuned], counts: Counts) -> list[tuple[Stage, ...]]:
    """Return the stages of the cells, the cheapest first, equal ones once.

    The first cell that reads an encoder computes states for others: the label curve of what needs
    no states stands between. The longest training, of the most labels, comes before shorter ones.
    """
    words, readers, others = list[Finetuned](), list[Finetuned](), list[Finetuned]()
    for cell in sorted(cells, key=lambda one: "labels" in one.labels):
        arm = find_arm(cell.config.arm)
        (others if not arm.is_cheap else readers if arm.reads_encoder else words).append(cell)
    others.sort(key=lambda cell: -counts.labels[cell.config.task])
    others.sort(key=lambda cell: bool(find_arm(cell.config.arm).combines))
    n, m = (sum("labels" not in cell.labels for cell in own) for own in (words, readers))
    order = [*words[:n], *readers[:1], *words[n:], *readers[1:m], *others, *readers[m:]]
    return list({cell.fingerprint: (cell, cell.evaluation) for cell in order}.values())


def measure_length(
    chosen: Finetuning, recipe: str, store: Store, corpus: Stage, origin: Stage | None
) -> tuple[int | None, str]:
    """Return the tokens that networks read of a text, None where the recipe says it, and a clause
    about them, by the first reviews of the corpus, once it and the published encoder are made.
    """
    if not origin:
        return chosen.max_length, ""
    import pyarrow.parquet as pq
    from tokenizers import Tokenizer

    lengths, made = np.zeros(1), store.manifest(corpus)
    paths = [file["path"] for file in made["files"]] if made else []
    names = fnmatch.filter(paths, "corpus-*.parquet")
    if names and store.manifest(origin):
        first, name = min(names), f"{origin.inner}/tokenizer.json"
        with pq.ParquetFile(store.fetch(corpus, first) / first) as parquet:
            batch = next(parquet.iter_batches(1_000, columns=["sentences"]))
        texts = [" ".join(one) for one in batch["sentences"].to_pylist()]
        tokenizer = Tokenizer.from_file(str(store.fetch(origin, name) / name))
        tokenizer.no_truncation()
        tokenizer.no_padding()
        lengths = np.array([len(one) for one in tokenizer.encode_batch_fast(texts)])
    default = RECIPES[recipe].finetuning.max_length or DEFAULT_TOKENS
    positions = describe_origin(store, origin).get("max_positions")
    tokens = choose_length(chosen.max_length, default, lengths, positions)
    longer = f"{(lengths > tokens).mean():.0%} of the reviews are longer"
    return tokens, f"networks read {tokens} tokens of a text; {longer}" if names else ""


def choose_length(
    asked: int | None, default: int, lengths: np.ndarray, positions: int | None
) -> int:
    """Return what is asked for, or else the default, doubled while more than MAX_CUT of the texts
    are longer, up to LONGEST; at most as many as the encoder has positions for.
    """
    tokens, longest = asked or default, min(LONGEST, positions or LONGEST)
    while not asked and tokens < longest and (lengths > tokens).mean() > MAX_CUT:
        tokens *= 2
    return min(tokens, positions or tokens)
