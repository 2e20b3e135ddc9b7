"""Known encoders: their languages, what stands for a text, and whether they have read Amazon."""

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from amazon_electra.beam_jobs.core.nesting import find_json, load_yaml
from amazon_electra.model.encoders.config import TRAINED_LENGTH
from amazon_electra.model.encoders.places import POOLING_FILE

UNKNOWN = "unknown"
METADATA_FILE = "origin.json"


def read_card(folder: Path) -> dict[str, str]:
    """Return `license`, `training_data` and `languages` by README.md's YAML, else "unknown"."""
    file, metadata = folder / "README.md", None
    text = file.read_text("utf-8", errors="replace") if file.is_file() else ""
    if front := re.match(r"\s*---\n(.*?)---\n", text, re.DOTALL):
        with suppress(ValueError):
            metadata = load_yaml(front[1])
    metadata = metadata if isinstance(metadata, dict) else {}

    def join(value: Any) -> str:
        values = value if isinstance(value, list) else [value] if value else []
        return ", ".join(map(str, values)) or UNKNOWN

    return {
        "license": join(metadata.get("license") or metadata.get("license_name")),
        "training_data": join(metadata.get("datasets")),
        "languages": join(metadata.get("language")),
    }


MULTILINGUAL = "multilingual"
"""The word of cards for about a hundred languages."""
MIN_SHARE = 0.2
"""Warn if so many reviews are in a language that the encoder does not read."""
SAME = {"nb": "no", "nn": "no"}
"""Codes of one written language."""


@dataclass(frozen=True)
class KnownEncoder:
    """A published encoder, as its card describes it."""

    name: str
    """As --start-from takes it."""
    languages: tuple[str, ...] = ("en",)
    """ISO 639-1, or MULTILINGUAL."""
    pooling: str = "mean"
    """The state of a text: "mean" of its tokens' states, or that of the first one, "cls"."""
    amazon: str = ""
    """Texts of Amazon that it was trained on, and who says so; empty: nobody named any."""


_TABLE = yaml.safe_load(Path(__file__).with_name("known.yaml").read_text(encoding="utf-8"))
KNOWN = tuple(
    KnownEncoder(**one | {"languages": tuple(one.get("languages", ["en"]))})
    for one in _TABLE["encoders"]
)


def find_known(name: str) -> KnownEncoder | None:
    """Return the known encoder of this name, or of the folder that is called so."""

    def shorten(name: str) -> str:
        return re.split("[/:]", name.partition("@")[0])[-1].replace("_", "-").lower()

    return next((one for one in KNOWN if shorten(one.name) == shorten(name)), None)


def describe_use(name: str, folder: Path) -> dict[str, str]:
    """Return `pooling` and `amazon`: by the name, or what sentence-transformers reads."""
    if one := find_known(name):
        return {"pooling": one.pooling, "amazon": one.amazon}
    pooling: Any = {}
    with suppress(ValueError):
        pooling = find_json(folder / POOLING_FILE)
    is_first = pooling.get("pooling_mode_cls_token") is True or pooling.get("pooling_mode") == "cls"
    return {"pooling": "cls" if is_first else "mean", "amazon": ""}


def warn_of_amazon(about: Mapping[str, Any]) -> str:
    """Return that an encoder was trained on texts of Amazon; empty where nobody said so."""
    one = find_known(str(about.get("name", "")))
    texts = about.get("amazon") or (one.amazon if one else "")
    return f"{about['name']} was trained on Amazon's {texts}" if texts else ""


def find_languages(about: Mapping[str, Any]) -> set[str]:
    """Return the languages (ISO 639-1) by origin.json or else by name; none where neither says."""
    listed = str(about.get("languages", "")).lower().split(", ")
    form = rf"{MULTILINGUAL}|[a-z]{{2}}(-\w+)?"
    codes = [code for code in listed if re.fullmatch(form, code)]
    if not codes and (one := find_known(str(about.get("name", "")))):
        codes = [*one.languages]
    short = [code if code == MULTILINGUAL else code[:2] for code in codes]
    return {SAME.get(code, code) for code in short}


def warn_of_languages(about: Mapping[str, Any], reviews: Mapping[str, int]) -> str:
    """Return which frequent language (`reviews` by language) is not read; empty for none."""
    known, total = find_languages(about), sum(reviews.values())
    for language, count in reviews.items() if known and MULTILINGUAL not in known else ():
        if count >= MIN_SHARE * total and SAME.get(language, language) not in known:
            return (
                f"{count / total:.0%} of the reviews are in the language {language}, and "
                f"{about['name']} reads {', '.join(sorted(known))}: docs/published.md lists "
                "encoders of other languages (`start_from`)"
            )
    return ""


def describe_start(folder: Path) -> dict[str, Any]:
    """Return what is known of start weights; `through` names the folder of our own training."""
    about: dict[str, Any] = find_json(folder / METADATA_FILE)
    if about:
        return about
    config = find_json(folder / "config.json")
    if TRAINED_LENGTH in config:
        began: dict[str, Any] = find_json(folder.parent / "config.json").get("start") or {}
        return {**began, "through": str(folder)}
    return {
        "name": folder.resolve().name,
        "place": str(folder),
        "kind": config.get("model_type", "electra"),
        **read_card(folder),
    }
