"""Multi-domain sentiment (Blitzer et al. 2007): <domain>/{positive,negative}.review, pseudo-XML."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from model.command import UserMistake
from model.finetuning.examples import SPLITS, Example, Split, Task
from model.finetuning.tasks.files import open_text, whole
from model.finetuning.tasks.splits import SHARES, Part, reader

CLASSES = {"negative": 0, "positive": 1}


def split_parts(data: Path) -> Mapping[Split, Part]:
    """All domains below the folder; the published set has no split, so it is cut by text."""
    files = tuple(sorted(p for p in data.rglob("*.review*") if p.name.split(".")[0] in CLASSES))
    if not files:
        raise UserMistake(f"{data}: no <domain>/positive.review or negative.review, plain or gz")
    return {split: Part(files, SHARES) for split in SPLITS}


def reviews(path: Path) -> Iterator[Example]:
    domain, label = path.parent.name, CLASSES[path.name.split(".")[0]]
    for number, fields in enumerate(_records(path)):
        text = whole(fields.get("review_text", ""))
        if text:
            slices: dict[str, str | float] = {"domain": domain, "words": len(text.split())}
            if fields.get("rating"):
                slices["stars"] = fields["rating"].strip().removesuffix(".0")
            yield Example(f"{domain}:{path.name}:{number}", text, label=label, slices=slices)


def _records(path: Path) -> Iterator[dict[str, str]]:
    """Tags stand alone on their lines; what is between an opening and its closing one is a field."""
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
                not name and tag.startswith("<") and tag.endswith(">") and tag not in ("<review>", "<data>", "</data>")
            ):
                name = tag[1:-1]
            elif name:
                held.append(line)


TASKS = (
    Task(
        name="multi-domain-sentiment",
        shape="classification",
        labels=("negative", "positive"),
        metrics=("accuracy", "macro_f1", "ece", "loss"),
        read=reader(reviews, split_parts),
        source="Blitzer et al. 2007, processed_acl/unprocessed: <domain>/{positive,negative}.review",
        question="is a product review negative or positive, over several domains?",
    ),
)
