"""Parts of the graph to start alone: whatever they make, the whole graph finds complete later."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from prefect import flow
from prefect.runtime import flow_run

from flows.completion import Maker
from flows.failures import NOTED
from flows.parameters import Corpus, Dump, Parameters, PresetName, Pretraining, Shards, StudyChoice, Vocabulary
from flows.stages import corpus as corpus_stage
from flows.stages import pretraining as pretraining_stage
from flows.stages import shards as shards_stage
from flows.stages import study as study_stage
from flows.stages import vocabulary as vocabulary_stage
from flows.store import Stage
from flows.tasks import going_through, run_name, titled


def prepared(p: Parameters, make: Maker) -> tuple[Stage, Stage]:
    """Dump → corpus → vocabulary → shards: the corpus and the shards."""
    reviews = make(make.dump(p))
    sentences = make(corpus_stage.stage(p, reviews, make.store))
    words = make(vocabulary_stage.stage(p, sentences))
    return sentences, make(shards_stage.stage(p, sentences, words))


def data_graph(p: Parameters, make: Maker) -> Stage:
    return prepared(p, make)[1]


def encoder_graph(p: Parameters, make: Maker) -> Stage:
    """Dump → … → pre-training."""
    return make(pretraining_stage.stage(p, data_graph(p, make)))


def study_graph(choice: StudyChoice) -> Callable[[Parameters, Maker], Stage]:
    """Dump → … → as far as the study file asks → its cells. The texts of its tasks are withheld from pre-training."""
    return lambda p, make: make(study_stage.stage(p, choice, sources(p, choice, make), make.store))


def sources(p: Parameters, choice: StudyChoice, make: Maker) -> dict[str, Stage]:
    """The stages that fill the file's variables, and what they were made of."""
    wanted = study_stage.wanted(choice)
    if not wanted:
        return {}
    outside = study_stage.evaluation_files(p, choice)
    p = p.model_copy(update={"corpus": p.corpus.model_copy(update={"withhold": [*p.corpus.withhold, *outside]})})
    made = {"dump": make(make.dump(p))}
    made["corpus"] = make(corpus_stage.stage(p, made["dump"], make.store))
    if wanted > {"corpus"} or "corpus" not in wanted:
        made["vocabulary"] = make(vocabulary_stage.stage(p, made["corpus"]))
    if wanted & {"shards", "encoder"}:
        made["shards"] = make(shards_stage.stage(p, made["corpus"], made["vocabulary"]))
    if "general_shards" in wanted:
        made["general_shards"] = make(study_stage.general_shards(p, choice, made, make.store))
    if "encoder" in wanted:
        made["encoder"] = make(pretraining_stage.stage(p, made["shards"]))
    return made


@flow(name="prepare-data", flow_run_name=run_name, **NOTED)
def prepare_data(
    dump: Dump = Dump(),  # noqa: B008 - frozen, and the form shows what it holds
    preset: PresetName = "tiny",
    corpus: Corpus = Corpus(),  # noqa: B008
    vocabulary: Vocabulary = Vocabulary(),  # noqa: B008
    shards: Shards = Shards(),  # noqa: B008
    store: str = "store",
) -> dict[str, Any]:
    """Prepare the data alone: dump → corpus → vocabulary → shards."""
    parameters = Parameters(dump=dump, preset=preset, corpus=corpus, vocabulary=vocabulary, shards=shards, store=store)
    return going_through(data_graph, parameters)


@flow(name="pre-train", flow_run_name=run_name, **NOTED)
def pre_train(
    dump: Dump = Dump(),  # noqa: B008
    preset: PresetName = "tiny",
    corpus: Corpus = Corpus(),  # noqa: B008
    vocabulary: Vocabulary = Vocabulary(),  # noqa: B008
    shards: Shards = Shards(),  # noqa: B008
    pretraining: Pretraining = Pretraining(),  # noqa: B008
    store: str = "store",
) -> dict[str, Any]:
    """Prepare the data and pre-train: up to the encoder."""
    parameters = Parameters(
        dump=dump,
        preset=preset,
        corpus=corpus,
        vocabulary=vocabulary,
        shards=shards,
        pretraining=pretraining,
        store=store,
    )
    return going_through(encoder_graph, parameters)


def study_name() -> str:
    """Dump, study and date."""
    choice = StudyChoice.model_validate(flow_run.parameters.get("study") or {})
    return titled(f"study {choice.own.title if choice.is_own else Path(choice.file).stem}")


@flow(name="study", flow_run_name=study_name, **NOTED)
def study(
    study: StudyChoice = StudyChoice(),  # noqa: B008
    dump: Dump = Dump(),  # noqa: B008
    preset: PresetName = "tiny",
    corpus: Corpus = Corpus(),  # noqa: B008
    vocabulary: Vocabulary = Vocabulary(),  # noqa: B008
    shards: Shards = Shards(),  # noqa: B008
    pretraining: Pretraining = Pretraining(),  # noqa: B008
    store: str = "store",
) -> dict[str, Any]:
    """Compare ways to get and to fine-tune an encoder, each difference with its interval and paired test.

    Args:
        study: Which comparison is made.
        dump: The reviews the tasks and the encoder come from.
        preset: Size of the encoder.
        corpus: How reviews become sentences, and who may see them.
        vocabulary: WordPiece, trained on the pretrain split.
        shards: Reviews packed into sequences of token ids.
        pretraining: Of the encoder that the study's arms start from.
        store: Folder of all results; a stage it holds is not made again.
    """
    parameters = Parameters(
        dump=dump,
        preset=preset,
        corpus=corpus,
        vocabulary=vocabulary,
        shards=shards,
        pretraining=pretraining,
        store=store,
    )
    return going_through(study_graph(study), parameters)
