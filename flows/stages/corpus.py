"""What a training reads: reviews → cleaned sentences in four splits (Beam) → vocabulary → shards of
token ids, several reviews packed into a sequence (Beam).
"""

from pathlib import Path
from typing import Any

from amazon_electra.beam_jobs.config import CORPUS_VERSION, CorpusConfig, ShardsConfig
from amazon_electra.beam_jobs.core import storage
from amazon_electra.beam_jobs.core.special_tokens import SHARDS_VERSION
from amazon_electra.flows.configuration.engine import Engine
from amazon_electra.flows.configuration.form import Parameters
from amazon_electra.flows.runner.logs import find_run_logger
from amazon_electra.flows.stages.dump import hash_files, locate_dump, locate_files
from amazon_electra.flows.stages.origin import describe_origin, get_name
from amazon_electra.flows.store.stage import Resources, Stage
from amazon_electra.flows.store.store import Store
from amazon_electra.model.config import VocabularyConfig
from amazon_electra.model.recipes import RECIPES

WITHHOLD = "corpus.withhold"
DEV_REVIEWS = 10_000  # that are packed at most, about: 1,024 sequences of 512 tokens hold 5,000
GENERAL_TEXT = CorpusConfig(format="text", split="pretrain=1", max_characters=200_000, title=False)


class Corpus(Stage):
    """`dump` → corpus."""

    name, version, Config = "corpus", CORPUS_VERSION, CorpusConfig
    headline = ("read", "kept", "sentences")
    ends_run = True

    def run(self, store: Store, folder: Path) -> dict[str, Any]:
        from amazon_electra.beam_jobs.corpus_job import make_corpus

        return make_corpus(
            self.config,
            locate_dump(self.inputs["dump"], store),
            store.open_output(self),
            withhold=locate_files(self.files.get("withhold", ()), store, WITHHOLD),
            beam_options=self.resources.engine.list_options(),
        ).content


def build_corpus_stage(p: Parameters, dump: Stage, store: Store) -> Corpus:
    """Return the corpus that the form asks for."""
    chosen, reading = p.corpus, p.dump
    withheld = hash_files(chosen.withhold, store, WITHHOLD)
    config = CorpusConfig(
        **reading.pick(CorpusConfig)
        | chosen.pick(CorpusConfig)
        | {
            "languages": sorted(chosen.languages),
            "dates": chosen.dates if chosen.split_by == "time" else None,
            "fold_labels": reading.fold_labels or not reading.labels,
        }
    )
    return Corpus(
        config,
        {"dump": dump},
        files={"withhold": withheld} if withheld else {},
        resources=Resources(engine=p.engine),
    )


class Vocabulary(Stage):
    """`corpus` → vocab.txt and tokenizer.json."""

    name, version, Config = "vocabulary", 3, VocabularyConfig
    headline = ("size", "reviews")
    ends_run = True

    def run(self, store: Store, folder: Path) -> dict[str, Any]:
        from amazon_electra.model.vocabulary import train_vocabulary

        return train_vocabulary(self.config, store.fetch(self.inputs["corpus"]), folder).content


class PackedShards(Stage):
    """`corpus` and `vocabulary` → shards of the pretrain split, or of the files of text that are no
    reviews (`general_text`), without the texts of the files in `withhold`.
    """

    name, version, Config = "shards", SHARDS_VERSION, ShardsConfig
    headline = ("sequences", "tokens", "fill")
    ends_run = True

    def run(self, store: Store, folder: Path) -> dict[str, Any]:
        from amazon_electra.beam_jobs.corpus_job import make_corpus
        from amazon_electra.beam_jobs.shards_job import make_shards

        reviews = corpus = self.inputs["corpus"].locate(store, self.on_engine)
        output, options = store.open_output(self), self.resources.engine.list_options()
        if texts := self.files.get("general_text"):
            corpus = f"{output}/corpus"
            make_corpus(
                GENERAL_TEXT,
                locate_files(texts, store, "general_text"),
                corpus,
                withhold=locate_files(self.files.get("withhold", ()), store, WITHHOLD),
                withhold_corpus=reviews,
                punkt=f"{reviews}/punkt.json",
                beam_options=options,
            )
        vocabulary = self.inputs["vocabulary"].locate(store, self.on_engine)
        made = make_shards(self.config, vocabulary, output, corpus=corpus, beam_options=options)
        if texts:
            storage.remove_path(corpus)
        return made.content


def build_shards_stages(
    p: Parameters, corpus: Stage, origin: Stage | None, store: Store
) -> tuple[Stage, PackedShards, PackedShards]:
    """Return the vocabulary, the shards of the pretrain split, and those of dev reviews, on which
    pre-training measures itself: so few are packed on this machine also where the engine is far.
    """
    length = choose_sequence_length(p, origin, store)
    size = p.vocabulary.size or RECIPES[p.recipe].vocabulary_size
    words = VocabularyConfig(size=size, lower_case=p.vocabulary.lower_case)
    vocabulary = origin or Vocabulary(words, {"corpus": corpus})
    inputs, on_engine = {"corpus": corpus, "vocabulary": vocabulary}, Resources(engine=p.engine)
    shards = PackedShards(ShardsConfig(max_length=length), inputs, resources=on_engine)
    config = ShardsConfig(max_length=length, split="dev", sample_reviews=DEV_REVIEWS)
    alone = Resources(engine=Engine(workers=1))
    return vocabulary, shards, PackedShards(config, inputs, resources=alone, title="dev shards")


def choose_sequence_length(p: Parameters, origin: Stage | None, store: Store) -> int:
    """Return the tokens of a sequence: as the form or the recipe says, but no more than the
    published encoder has positions for, which is logged.
    """
    length = p.shards.max_length or RECIPES[p.recipe].max_length
    positions = describe_origin(store, origin).get("max_positions") if origin else None
    if not origin or not positions or length <= positions:
        return length
    why = "%s has positions for %d tokens: sequences have %d instead of %d"
    find_run_logger().warning(why, get_name(origin), positions, positions, length)
    return positions
