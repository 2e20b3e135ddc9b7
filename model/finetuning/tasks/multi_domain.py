"""Read multi-domain sentiment (Blitzer et al. 2007): pseudo-XML by domain and class."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from beam_jobs.core.errors import UserError
from model.finetuning.examples import SPLITS, Example, Split, make_polarity_task
from model.finetuning.files import clean_html_breaks, open_text
from model.finetuning.splits import SHARES, SplitReader, SplitSource

CLASSES = {"negative": 0, "positive": 1}


def plan_domain_splits(data: Path) -> Mapping[Split, SplitSource]:
    """Plan all domains below the folder; the published set has no split, so it is cut by text."""
    files = tuple(sorted(p for p in data.rglob("*.review*") if p.name.split(".")[0] in CLASSES))
    if not files:
        raise UserError(f"{data}: no <domain>/positive.review or negative.review, plain or gz")
    return {split: SplitSource(files, SHARES) for split in SPLITS}


def read_domain_reviews(path: Path) -> Iterator[Example]:
    domain, label = path.parent.name, CLASSES[path.name.split(".")[0]]
    for number, fields in enumerate(_parse_records(path)):
        text = clean_html_breaks(fields.get("review_text", ""))
        if text:
            slices: dict[str, str | float] = {"domain": domain, "words": len(text.split())}
            if fields.get("rating"):
                slices["stars"] = fields["rating"].strip().removesuffix(".0")
            yield Example(f"{domain}:{path.name}:{number}", text, label=label, slices=slices)


def _parse_records(path: Path) -> Iterator[dict[str, str]]:
    """Yield the fields of each review: the lines between an opening and its closing tag."""
    fields: dict[str, str] = {}
    name = ""
    held: list[str] = []
    with open_text(path) as file:
        for line in file:
            tag = line.strip()
            if tag == "</review>":
                yield fields
                fields, name, held = {}, "", []
            elif name and tag == f"</{name}>":
                fields[name] = "".join(held)
                name, held = "", []
            elif (
                not name
                and tag.startswith("<")
                and tag.endswith(">")
                and tag not in ("<review>", "<data>", "</data>")
            ):
                name = tag[1:-1]
            elif name:
                held.append(line)


TASKS = (
    make_polarity_task(
        name="multi-domain-sentiment",
        read=SplitReader(read_domain_reviews, plan_domain_splits),
        source="Blitzer et al. 2007, processed_acl/unprocessed: "
        "<domain>/{positive,negative}.review",
        question="is a product review negative or positive, over several domains?",
    ),
)
