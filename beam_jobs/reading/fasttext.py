"""Reads fastText's labelled lines: `__label__2 Title: text`."""

import re
from collections.abc import Iterator
from dataclasses import replace

from amazon_electra.beam_jobs.reading.format import Format
from amazon_electra.beam_jobs.reading.layout import Labels, Layout
from amazon_electra.beam_jobs.reading.lines import (
    Item,
    Reject,
    Stream,
    Tally,
    WrongFile,
    decode_text,
    make_reject,
    read_lines,
)

POLARITY_STARS = {"__label__1": 2, "__label__2": 4}  # 1 and 2 stars, 4 and 5 stars
LABEL_STARS = {f"__label__{n}": n for n in range(1, 6)}
STARS_BY_LABELS: dict[Labels, dict[str, int]] = {
    "polarity": POLARITY_STARS,
    "stars": LABEL_STARS,
    "unknown": {},
}
LABEL = re.compile(r"__label__\S*")
MIN_TITLED_SHARE = 0.9  # of the lines begin with a title: those of Kaggle's file do all
MAX_TITLE_CHARACTERS = 200


class FastText(Format):
    """Labels are stars or polarity where the beginning of the file shows it, or else classes."""

    name, endings = "fasttext", ("txt",)

    def recognize(self, start: bytes) -> bool:
        return start.startswith(b"__label__")

    def inspect(self, head: bytes, layout: Layout) -> Layout:
        """Detect `labels` and `has_titles` from the first lines of a fastText file."""
        whole = head[: head.rfind(b"\n") + 1] or head
        lines = [
            line
            for line in decode_text(whole, Tally(), layout.encoding).lstrip("\ufeff").split("\n")
            if LABEL.match(line)
        ]
        seen = {line.split(None, 1)[0] for line in lines}
        labels: Labels = (
            "polarity"
            if seen <= POLARITY_STARS.keys()
            else "stars"
            if seen <= LABEL_STARS.keys()
            else "unknown"
        )
        titled = sum(line.find(": ", 0, MAX_TITLE_CHARACTERS) > 0 for line in lines)
        has_titles = titled >= MIN_TITLED_SHARE * len(lines)
        return replace(layout, labels=labels, has_titles=has_titles)

    def read(
        self, stream: Stream, layout: Layout, tally: Tally, header: bool = True
    ) -> Iterator[Item]:
        """All of a line is text if the file has no titles or the line no ": "."""
        stars = STARS_BY_LABELS[layout.labels]
        for item in read_lines(stream, layout.max_record_bytes, tally):
            if isinstance(item, Reject):
                yield item
                continue
            number, raw = item
            line = decode_text(raw, tally, layout.encoding).strip("\ufeff \r\t")
            if not line:
                continue
            label, _, rest = line.partition(" ")
            if not label.startswith("__label__"):
                yield make_reject(number, "no label", raw)
                continue
            if label in LABEL_STARS and stars and label not in stars:
                raise WrongFile(
                    f"has {label}, but its beginning only {', '.join(stars)}, "
                    "which were taken for polarity; "
                    "mix its lines (shuf), so that all labels are among the first"
                )
            title, colon, text = rest.partition(": ") if layout.has_titles else ("", "", "")
            record = {"text": text, "title": title} if colon else {"text": rest, "title": None}
            if stars is POLARITY_STARS:
                tally.notes["stars_from_polarity"] += label in stars
            given = stars.get(label)
            name = label.removeprefix("__label__")
            yield number, record | {"stars": f"{given}/5" if given else None, "label": name}
