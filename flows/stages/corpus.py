"""The corpus: reviews → cleaned sentences in four splits (Beam)."""

from pathlib import Path
from typing import Any

from amazon_electra.beam_jobs.config import CORPUS_VERSION, CorpusConfig
from amazon_electra.flows.configuration.form import Parameters
from amazon_electra.flows.stages.dump import hash_files, locate_dump, locate_files
from amazon_electra.flows.store.stage import Resources, Stage
from amazon_electra.flows.store.store import Store

WITHHOLD = "corpus.withhold"


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
