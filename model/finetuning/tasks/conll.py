"""CoNLL-2003 named entities (Tjong Kim Sang & De Meulder 2003): a token a line, its tag last, blank lines between."""

from collections.abc import Iterator
from pathlib import Path

from model.finetuning.examples import Example, Task
from model.finetuning.tasks.files import class_of, open_text
from model.finetuning.tasks.splits import reader

KINDS = ("PER", "ORG", "LOC", "MISC")
LABELS = ("O", *(f"{prefix}-{kind}" for kind in KINDS for prefix in "BI"))
CLASSES = {label: i for i, label in enumerate(LABELS)}


def sentences(path: Path) -> Iterator[Example]:
    """Tags are brought to IOB2 (B- on every first word), whichever of the two the file has."""
    words: list[str] = []
    tags: list[str] = []
    first_line = 1
    with open_text(path) as file:
        for number, line in enumerate([*file, ""], 1):
            cells = line.split()
            if cells and cells[0] != "-DOCSTART-":
                words.append(cells[0])
                class_of(cells[-1], CLASSES, path, number)
                tags.append(cells[-1])
            elif words:
                indices = tuple(CLASSES[tag] for tag in iob2(tags))
                yield Example(f"{path.name}:{first_line}", " ".join(words), words=tuple(words), tags=indices)
                words, tags = [], []
            first_line = number + 1 if not words else first_line


def iob2(tags: list[str]) -> list[str]:
    """I- that begins an entity becomes B-."""
    result, before = [], "O"
    for tag in tags:
        begins = tag.startswith("I-") and (before == "O" or before[2:] != tag[2:])
        result.append("B-" + tag[2:] if begins else tag)
        before = tag
    return result


TASKS = (
    Task(
        name="conll2003",
        shape="tokens",
        labels=LABELS,
        metrics=("entity_f1", "loss"),
        read=reader(sentences),
        source="CoNLL-2003: eng.train, eng.testa, eng.testb (or train.txt, valid.txt, test.txt)",
    ),
)
