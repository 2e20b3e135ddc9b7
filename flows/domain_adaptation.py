"""START HERE: the whole graph on one page.

`graph` names every stage and what it is made of; each is a folder in the store, made by a job of its own. The flow
below goes through it with Prefect: one task per stage, retried where that may help, shown in the UI, mirrored to
MLflow. Stages the store holds already are not made again, so a repeated run does nothing and an interrupted one
continues.
"""

from typing import Any

from prefect import flow

from flows.completion import Maker
from flows.failures import NOTED
from flows.parameters import (
    Corpus,
    Dump,
    Finetuning,
    Parameters,
    PresetName,
    Pretraining,
    Promotion,
    Shards,
    Vocabulary,
)
from flows.stages import corpus, finetuning, pretraining, report, shards, vocabulary
from flows.store import Stage
from flows.tasks import going_through, run_name


def graph(p: Parameters, make: Maker) -> Stage:
    """Dump → corpus → vocabulary → shards → pre-training → arms × tasks × seeds → report."""
    finetuning.demand_discriminator(p)
    finetuning.demand_splits(p)
    finetuning.demand_published(p)
    reviews = make(make.dump(p))
    sentences = make(corpus.stage(p, reviews, make.store))
    words = make(vocabulary.stage(p, sentences))
    sequences = make(shards.stage(p, sentences, words))
    encoder = make(pretraining.stage(p, sequences))
    cells = list(finetuning.cells(p, sentences, words, encoder, make.champion))
    make.side_by_side([(cell.finetuned, cell.evaluated) for cell in cells], p.finetuning.at_once)
    return make(report.stage(p, p.preset, reviews, [reviews, sentences, words, sequences, encoder], encoder, cells))


@flow(name="domain-adaptation", flow_run_name=run_name, **NOTED)
def domain_adaptation(
    dump: Dump = Dump(),  # noqa: B008 - frozen, and the form shows what it holds
    preset: PresetName = "tiny",
    corpus: Corpus = Corpus(),  # noqa: B008
    vocabulary: Vocabulary = Vocabulary(),  # noqa: B008
    shards: Shards = Shards(),  # noqa: B008
    pretraining: Pretraining = Pretraining(),  # noqa: B008
    finetuning: Finetuning = Finetuning(),  # noqa: B008
    promotion: Promotion = Promotion(),  # noqa: B008
    store: str = "store",
) -> dict[str, Any]:
    """Adapt a language model to a dump of reviews and measure what that was worth.

    Reads the dump, learns a vocabulary, pre-trains ELECTRA, fine-tunes it and an untrained encoder on the dump's own
    labels, and reports the difference with its confidence interval. Whatever the store holds already is not made again.

    Args:
        dump: The reviews to adapt to, as they were published.
        preset: Size of the model and length of its training; every number of it is in model/presets.py.
        corpus: How reviews become sentences, and who may see them.
        vocabulary: WordPiece, trained on the pretrain split.
        shards: Reviews packed into sequences of token ids.
        pretraining: ELECTRA: a generator proposes tokens, the discriminator tells which were replaced.
        finetuning: The study: arms × tasks × seeds, each with the same care.
        promotion: Whether the model may become the champion of the MLflow registry.
        store: Folder of all results; a stage it holds is not made again.
    """
    parameters = Parameters(
        dump=dump,
        preset=preset,
        corpus=corpus,
        vocabulary=vocabulary,
        shards=shards,
        pretraining=pretraining,
        finetuning=finetuning,
        promotion=promotion,
        store=store,
    )
    return going_through(graph, parameters)
