"""How well a vocabulary fits a corpus that it was not trained on."""

from pathlib import Path
from typing import Any

from amazon_electra.flows.stages.origin import open_vocabulary
from amazon_electra.flows.store.stage import Stage
from amazon_electra.flows.store.store import Store
from amazon_electra.model.options import VocabularyFitConfig


class VocabularyFit(Stage):
    """`corpus` and `vocabulary` → unknown words and tokens per word, beside those of the corpus
    that the vocabulary was trained on.
    """

    name, version, Config = "vocabulary-fit", 3, VocabularyFitConfig
    pool = "cpu"
    headline = ("words", "unknown_rate", "tokens_per_word")

    def run(self, store: Store, folder: Path) -> dict[str, Any]:
        from amazon_electra.model.vocabulary_fit import measure_vocabulary_fit

        corpus, vocabulary = self.inputs["corpus"], self.inputs["vocabulary"]
        place = Path(open_vocabulary(store, vocabulary))
        return measure_vocabulary_fit(self.config, store.fetch(corpus), place, folder)


def build_vocabulary_fit_stage(corpus: Stage, vocabulary: Stage) -> VocabularyFit:
    """Return the stage that measures how well the vocabulary fits the corpus."""
    inputs = {"corpus": corpus, "vocabulary": vocabulary}
    return VocabularyFit(VocabularyFitConfig(), inputs, title="vocabulary fit")
