"""The corpus: reviews → cleaned sentences in four splits (Beam)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from amazon_electra.beam_jobs.config import CorpusConfig
from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.flows.configuration import form
from amazon_electra.flows.stages.dump import hash_files, list_files, locate_dump, locate_files
from amazon_electra.flows.store.stage import Resources, Stage
from amazon_electra.flows.store.store import Store


class Corpus(Stage):
    """`dump` → corpus. `earlier` is the newest corpus whose texts are not taken again; each one's
    fingerprint contains those before it, all of which the job `reads`.
    """

    name, version, Config = "corpus", 29, CorpusConfig
    pool = "cpu"
    headline = ("read", "kept", "sentences")
    ends_run = True

    def run(self, store: Store, folder: Path) -> dict[str, Any]:
        from amazon_electra.beam_jobs.corpus_job import make_corpus

        far = self.on_engine
        withheld = self.files.get("withhold", ())
        return make_corpus(
            self.config,
            locate_dump(self.inputs["dump"], store, on_engine=far),
            store.open_output(folder, far),
            seen=[store.open_input(corpus, far) for corpus in self.reads.values()],
            withhold=locate_files(withheld, store, "corpus.withhold"),
            beam_options=self.resources.beam_options,
        ).content


def build_corpus_stage(
    chosen: form.Corpus,
    reading: form.Dump,
    engine: form.Engine,
    dump: Stage,
    store: Store,
    earlier: Sequence[Stage] = (),
) -> Corpus:
    """Return the corpus that the form asks for; `earlier` are the corpora whose texts are not taken
    again, oldest first.
    """
    if earlier and chosen.split_by == "time":
        raise UserError(
            "time; an earlier corpus has its own latest reviews as test; a dump "
            "that is added is split by text, product or user",
            "corpus.split_by",
        )
    withheld = [
        path for given in chosen.withhold for path in list_files(given, store, "corpus.withhold")
    ]
    config = CorpusConfig(
        **reading.pick(CorpusConfig)
        | chosen.pick(CorpusConfig)
        | {
            "languages": sorted(chosen.languages),
            "dates": chosen.dates if chosen.split_by == "time" else None,
            "fold_labels": reading.fold_labels or not (reading.labels or earlier),
        }
    )
    return Corpus(
        config,
        {"dump": dump, **({"earlier": earlier[-1]} if earlier else {})},
        files={"withhold": hash_files(withheld, store)} if withheld else {},
        reads={f"earlier {number}": corpus for number, corpus in enumerate(earlier, 1)},
        resources=Resources(engine=engine, workers=chosen.workers),
    )
