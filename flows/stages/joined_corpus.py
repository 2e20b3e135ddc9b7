"""The labels of all dumps of a model: those of an added dump beside those of the ones before."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from amazon_electra.beam_jobs.core.settings import Settings
from amazon_electra.flows.runner.stage_runner import StageMaker
from amazon_electra.flows.store.stage import Stage
from amazon_electra.flows.store.store import Store


class JoinConfig(Settings):
    """How a joined corpus names its dumps."""

    earlier: str = ""
    """The one before; empty where several were joined already."""
    added: str


class JoinedCorpus(Stage):
    """`earlier`, a corpus or several that were joined, and `corpus`, which was made without its
    texts → the labelled reviews of both. All corpora before `corpus` are read as `seen 1`, ….
    `encoder` is that of the model, where nothing in `corpus` was worth training it further.
    """

    name, version, Config = "joined-corpus", 1, JoinConfig
    pool = "cpu"
    headline = ("kept", "splits.test", "dropped.near an earlier review")

    def run(self, store: Store, folder: Path) -> dict[str, Any]:
        from amazon_electra.beam_jobs.corpus.join import join_corpora

        return join_corpora(
            store.fetch(self.inputs["earlier"]),
            store.fetch(self.inputs["corpus"]),
            folder,
            dumps=(self.config.earlier, self.config.added),
            seen=[store.fetch(corpus) for corpus in self.reads.values()],
        )


def make_joined_corpus(
    make: StageMaker,
    corpora: Sequence[Stage],
    dumps: Sequence[str],
    kept: Sequence[Stage | None],
) -> Stage:
    """Make what tasks train and test on: the labels of several corpora, oldest first, joined in
    turn. `dumps` are the names of their dumps, `kept` the encoders that their rounds have kept.
    """
    joined = corpora[0]
    for place, corpus in enumerate(corpora[1:], 1):
        names = [dumps[0] if place == 1 else "", dumps[place]]
        if before := [*dumps[:place]].count(dumps[place]):
            names[1] += f" ({before + 1})"
        encoder = kept[place]
        joined = make(
            JoinedCorpus(
                JoinConfig(earlier=names[0], added=names[1]),
                {"earlier": joined, "corpus": corpus, **({"encoder": encoder} if encoder else {})},
                reads={f"seen {n}": one for n, one in enumerate(corpora[:place], 1)},
                title=f"labels of {place + 1} dumps",
            )
        )
    return joined
