"""CoNLL-2003 named entities (Tjong Kim Sang & De Meulder 2003): a token a line, tag last."""

from collections.abc import Iterator
from pathlib import Path

from amazon_electra.model.finetuning.examples import Example, Task
from amazon_electra.model.finetuning.files import Row, open_text
from amazon_electra.model.finetuning.splits import SplitReader

ENTITY_KINDS = ("PER", "ORG", "LOC", "MISC")
LABELS = ("O", *(f"{prefix}-{kind}" for kind in ENTITY_KINDS for prefix in "BI"))
TAG_INDICES = {label: i for i, label in enumerate(LABELS)}


def read_sentences(path: Path) -> Iterator[Example]:
    """Yield the sentences with tags in IOB2 (B- on every first word)."""
    words: list[str] = []
    tags: list[str] = []
    first_line = 1
    with open_text(path) as file:
        for number, line in enumerate([*file, ""], 1):
            cells = line.split()
            if cells and cells[0] != "-DOCSTART-":
                words.append(cells[0])
                Row({"tag": cells[-1]}, path, number).find_class("tag", TAG_INDICES)
                tags.append(cells[-1])
            elif words:
                indices = tuple(TAG_INDICES[tag] for tag in convert_to_iob2(tags))
                yield Example(
                    f"{path.name}:{first_line}", " ".join(words), words=tuple(words), tags=indices
                )
                words, tags = [], []
            first_line = number + 1 if not words else first_line


def convert_to_iob2(tags: list[str]) -> list[str]:
    """Return the tags with B- for an I- that begins an entity."""
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
        read=SplitReader(read_sentences),
        source="CoNLL-2003: eng.train, eng.testa, eng.testb (or train.txt, valid.txt, test.txt)",
    ),
)
