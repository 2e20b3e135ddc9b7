"""Reads the (title, body) pairs of a corpus for contrastive adaptation, of the pretrain split only.
A title that is a number of stars gives none: "Five Stars" is what Amazon writes where the buyer
leaves it empty, and so a label by the back door.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import yaml

from amazon_electra.beam_jobs.core.errors import refuse, require

MIN_PAIRS = 16
"""Fewer are no batch to find a body in."""
MIN_WORDS = 3
"""Words of a body."""
CHARACTERS_PER_TOKEN = 16
"""Tokenize at most so much of a text; what follows would be cut off anyway."""
SCRIPTS = r"\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff"
"""Characters of scripts that write no spaces between words, and Hangul; each counts as a word."""
WORD = re.compile(rf"[{SCRIPTS}]|[^\W{SCRIPTS}]+")

_WORDS = yaml.safe_load(Path(__file__).with_name("star_titles.yaml").read_text(encoding="utf-8"))
NUMBERS, STAR_WORDS, FILLERS = (
    {*" ".join(_WORDS[name]).split()} for name in ("numbers", "stars", "fillers")
)
"""Fillers may stand beside the number and the stars: "4.0 out of 5 stars"."""
STARS_ALONE = re.compile(
    r"[\s★☆⭐*]+|[1-5]\s*/\s*5|"
    r"[1-5一二三四五１-５하나둘셋넷다섯두세네한]?\s*[つ个颗顆]?\s*[星별](점|级|評価|评价)?\s*"
    r"[1-5１-５]?\s*(하나|둘|셋|넷|다섯|한|두|세|네)?\s*(점|개|つ)?[！!。.]*"
)
"""Signs instead of words, and the scripts that write both in one."""

Reason = Literal[
    "no title", "a title of stars", "a short body", "a title that begins the body", "no text"
]


@dataclass(frozen=True)
class Pairs:
    """Titles and bodies, parallel, in the order of the corpus."""

    titles: list[str]
    bodies: list[str]
    reviews: int
    """Reviews of the pretrain split; those that gave no pair are in `left_out` by reason."""
    left_out: Counter[Reason] = field(default_factory=Counter)

    def __len__(self) -> int:
        return len(self.titles)

    def number_titles(self) -> np.ndarray:
        """Return int64 [pairs], equal where titles are equal but for case, accents and signs."""
        numbers: dict[str, int] = {}
        folded = (fold_words(title) or title for title in self.titles)
        return np.array([numbers.setdefault(title, len(numbers)) for title in folded], np.int64)


def read_pairs(corpora: Iterable[Path], body_tokens: int) -> Pairs:
    """Return the pairs of the pretrain splits of corpora; UserError where a folder is no corpus.
    Bodies are cut to what `body_tokens` tokens can hold: a million pairs take about 0.6 GB.
    """
    titles, bodies, left_out = list[str](), list[str](), Counter[Reason]()
    for corpus in corpora:
        files = sorted(corpus.glob("corpus-*.parquet"))
        require(files, f"{corpus}: no corpus-*.parquet there, as corpus_job writes it")
        for title, body in _read_reviews(files):
            body = body[: CHARACTERS_PER_TOKEN * body_tokens]
            if reason := find_reason(title, body):
                left_out[reason] += 1
            else:
                titles.append(title)
                bodies.append(body)
    return Pairs(titles, bodies, len(titles) + left_out.total(), left_out)


def count_pairs(files: Iterable[Path], most: int) -> int:
    """Return how many pairs the files of a corpus have, up to `most`; they are read no farther."""
    reviews = _read_reviews(files, titled=True)
    usable = (1 for title, body in reviews if not find_reason(title, body))
    return sum(islice(usable, most))


def find_reason(title: str, body: str) -> Reason | None:
    """Return why a title and a body are no pair, or None."""
    if not title.strip():
        return "no title"
    if not body.strip():
        return "no text"
    if is_title_of_stars(title):
        return "a title of stars"
    if len(WORD.findall(body)) < MIN_WORDS:
        return "a short body"
    begins, whole = fold_words(title), fold_words(body)
    if not begins or whole.startswith(begins):
        return "a title that begins the body"
    return None


def is_title_of_stars(title: str) -> bool:
    """Return whether a title says a number of stars and nothing else, in any language that the
    reader knows columns of: "Five Stars", "5 Sterne!", "4.0 out of 5 stars", "★★★", "星5つ".
    """
    if STARS_ALONE.fullmatch(title.strip()):
        return True
    words = {*fold_words(title).split()}
    return bool(words & STAR_WORDS and words & NUMBERS) and words <= NUMBERS | STAR_WORDS | FILLERS


def fold_words(text: str) -> str:
    """Return the words of a text, with a space between, without case, accents and signs."""
    decomposed = unicodedata.normalize("NFKD", text.casefold())
    plain = "".join(c for c in decomposed if not unicodedata.combining(c))
    return " ".join(WORD.findall(unicodedata.normalize("NFKC", plain)))


def _read_reviews(files: Iterable[Path], titled: bool = False) -> Iterator[tuple[str, str]]:
    """Yield title ("" for none) and body of reviews of the pretrain split, or of titled ones."""
    columns = ["split", "has_title", "sentences"]
    for file in files:
        why = f"{file}: not whole ({{}}); run the corpus job again"
        with refuse(OSError, pa.ArrowException, message=why):
            parquet = pq.ParquetFile(file)
            missing = [name for name in columns if name not in parquet.schema_arrow.names]
            why = f"{file}: columns {', '.join(missing)} are missing; run the corpus job again"
            require(not missing, why)
            for group in range(parquet.num_row_groups):
                titles = parquet.read_row_group(group, ["has_title"])["has_title"]
                if titled and not pc.any(titles).as_py():
                    continue
                for batch in parquet.iter_batches(row_groups=[group], columns=columns):
                    rows = batch.to_pydict()
                    for split, has_title, sentences in zip(*map(rows.get, columns), strict=True):
                        if split == "pretrain" and (has_title or not titled):
                            cut = int(bool(has_title) and len(sentences) > 0)
                            yield " ".join(sentences[:cut]), " ".join(sentences[cut:])
