"""The vocabulary: WordPiece trained on the corpus's pretrain split, or a published encoder's."""

from pathlib import Path
from typing import Any

from amazon_electra.flows.configuration import form
from amazon_electra.flows.store.stage import Stage
from amazon_electra.flows.store.store import Store
from amazon_electra.model.config import VocabularyConfig
from amazon_electra.model.recipes import RECIPES


class Vocabulary(Stage):
    """`corpus` → vocab.txt and tokenizer.json."""

    name, version, Config = "vocabulary", 3, VocabularyConfig
    headline = ("size", "reviews")
    ends_run = True

    def run(self, store: Store, folder: Path) -> dict[str, Any]:
        from amazon_electra.model.vocabulary import train_vocabulary

        return train_vocabulary(self.config, store.fetch(self.inputs["corpus"]), folder).content


def build_vocabulary_stage(
    chosen: form.Vocabulary, recipe: str, corpus: Stage, origin: Stage | None = None
) -> Stage:
    """Return the vocabulary that the form asks for; that of `origin`, where training starts from
    it.
    """
    if origin:
        return origin
    size = chosen.size or RECIPES[recipe].vocabulary_size
    config = VocabularyConfig(size=size, lower_case=chosen.lower_case)
    return Vocabulary(config, {"corpus": corpus})
