"""Examples → token ids → padded batches.

Batches hold texts of like length and are padded to the longest of their own, not to the maximum: reviews are about 80
words, the maximum is for the few long ones. Sorting happens within pools of batches, so the order stays random.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from tokenizers import Encoding, Tokenizer

from model.finetuning.examples import Example, Shape
from model.finetuning.losses import IGNORED

POOL = 32
"""Batches whose texts are sorted by length together."""
NOT_LETTERS = re.compile(r"[\W\d_]+")


@dataclass(slots=True)
class Feature:
    """One network input: an example, a window of its passage, or (for `choice`) all its choices."""

    example: int
    """Index into the list of examples."""
    ids: list[list[int]]
    """One row of token ids, or one per choice."""
    types: list[list[int]]
    target: int | float | list[int] = 0
    """Class, number, label per token, or [start, end] in tokens."""
    offsets: list[tuple[int, int]] = field(default_factory=list)
    """For `span`: where each token lies in the passage, in characters; (-1, -1) outside of it."""

    @property
    def length(self) -> int:
        return max(len(row) for row in self.ids)


@dataclass(frozen=True)
class Encoder:
    """Turns examples into features; the settings of task.json that belong to it."""

    tokenizer: Tokenizer
    shape: Shape
    max_length: int
    stride: int = 64
    clean: str = "none"

    def __call__(self, examples: Sequence[Example]) -> list[Feature]:
        if self.shape == "tokens":
            return self._tokens(examples)
        if self.shape == "span":
            return self._spans(examples)
        if self.shape == "choice":
            return self._choices(examples)
        return self._texts(examples)

    def _texts(self, examples: Sequence[Example]) -> list[Feature]:
        self.tokenizer.enable_truncation(self.max_length)
        clean = only_letters if self.clean == "letters" else str
        inputs = [clean(e.text) if e.pair is None else (clean(e.text), clean(e.pair)) for e in examples]
        encodings = self.tokenizer.encode_batch(inputs)
        targets = [0 if e.label is None else e.label for e in examples]
        return [Feature(i, [e.ids], [e.type_ids], t) for i, (e, t) in enumerate(zip(encodings, targets, strict=True))]

    def _choices(self, examples: Sequence[Example]) -> list[Feature]:
        self.tokenizer.enable_truncation(self.max_length)
        features = []
        for i, example in enumerate(examples):
            rows = self.tokenizer.encode_batch([(example.text, choice) for choice in example.choices])
            features.append(Feature(i, [r.ids for r in rows], [r.type_ids for r in rows], int(example.label or 0)))
        return features

    def _tokens(self, examples: Sequence[Example]) -> list[Feature]:
        """The label of a word sits on its first piece, as in BERT's NER."""
        self.tokenizer.enable_truncation(self.max_length)
        encodings = self.tokenizer.encode_batch([list(e.words) for e in examples], is_pretokenized=True)
        return [
            Feature(i, [encoding.ids], [encoding.type_ids], _first_pieces(encoding, example.tags))
            for i, (encoding, example) in enumerate(zip(encodings, examples, strict=True))
        ]

    def _spans(self, examples: Sequence[Example]) -> list[Feature]:
        """Overlapping windows over the passage; a window without the whole answer points to [CLS]."""
        self.tokenizer.enable_truncation(self.max_length, stride=self.stride, strategy="only_second")
        encodings = self.tokenizer.encode_batch([(_shorten(e.text), str(e.pair)) for e in examples])
        return [
            _window(i, window, example)
            for i, (encoding, example) in enumerate(zip(encodings, examples, strict=True))
            for window in (encoding, *encoding.overflowing)
        ]


def only_letters(text: str) -> str:
    return NOT_LETTERS.sub(" ", text).strip()


def _shorten(question: str) -> str:
    """At most 64 words of a question, so that a window always has room for the passage."""
    return " ".join(question.split()[:64])


def _first_pieces(encoding: Encoding, tags: Sequence[int]) -> list[int]:
    labels, previous = [], None
    for word in encoding.word_ids:
        labels.append(tags[word] if word is not None and word != previous and word < len(tags) else IGNORED)
        previous = word
    return labels


def _window(i: int, encoding: Encoding, example: Example) -> Feature:
    inside = [s == 1 for s in encoding.sequence_ids]
    offsets = [o if here else (-1, -1) for o, here in zip(encoding.offsets, inside, strict=True)]
    return Feature(i, [encoding.ids], [encoding.type_ids], _answer_tokens(offsets, example), offsets)


def _answer_tokens(offsets: list[tuple[int, int]], example: Example) -> list[int]:
    """[first token, last token] of the first answer, [0, 0] where this window does not hold all of it."""
    if not example.answers:
        return [0, 0]
    text, begin = example.answers[0]
    end = begin + len(text)
    covering = [i for i, (a, b) in enumerate(offsets) if a >= 0 and b > begin and a < end]
    if not covering or offsets[covering[0]][0] > begin or offsets[covering[-1]][1] < end:
        return [0, 0]
    return [covering[0], covering[-1]]


def training_batches(
    features: Sequence[Feature], size: int, generator: np.random.Generator, grouped: bool = True
) -> list[np.ndarray]:
    """Indices of each batch of one epoch, in random order."""
    order = generator.permutation(len(features))
    if not grouped:
        return [order[i : i + size] for i in range(0, len(order), size)]
    lengths = np.array([feature.length for feature in features])
    batches = []
    for start in range(0, len(order), POOL * size):
        pool = order[start : start + POOL * size]
        pool = pool[np.argsort(lengths[pool], kind="stable")]
        batches += [pool[i : i + size] for i in range(0, len(pool), size)]
    return [batches[i] for i in generator.permutation(len(batches))]


def prediction_batches(features: Sequence[Feature], size: int) -> Iterator[np.ndarray]:
    """Sorted by length: the least padding; the caller puts results back by index."""
    order = np.argsort([feature.length for feature in features], kind="stable")
    yield from (order[i : i + size] for i in range(0, len(order), size))


def collate(
    features: Sequence[Feature], shape: Shape, pad_to: int | None = None, pad_id: int = 0
) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """Network inputs [batch, tokens] ([batch, choices, tokens] for `choice`) and targets."""
    length = pad_to or max(feature.length for feature in features)
    rows = [row for feature in features for row in feature.ids]
    types = [row for feature in features for row in feature.types]
    ids = np.full((len(rows), length), pad_id, dtype=np.int64)
    mask, token_types = np.zeros_like(ids), np.zeros_like(ids)
    for i, (row, row_types) in enumerate(zip(rows, types, strict=True)):
        ids[i, : len(row)], mask[i, : len(row)], token_types[i, : len(row)] = row, 1, row_types
    inputs: dict[str, np.ndarray] = {"input_ids": ids, "attention_mask": mask, "token_type_ids": token_types}
    if shape == "choice":
        inputs = {name: array.reshape(len(features), -1, length) for name, array in inputs.items()}
    return {name: torch.from_numpy(array) for name, array in inputs.items()}, _targets(features, shape, length)


def _targets(features: Sequence[Feature], shape: Shape, length: int) -> torch.Tensor:
    if shape != "tokens":
        return torch.tensor([feature.target for feature in features])
    labels = torch.full((len(features), length), IGNORED)
    for i, feature in enumerate(features):
        assert isinstance(feature.target, list)
        labels[i, : len(feature.target)] = torch.tensor(feature.target)
    return labels
