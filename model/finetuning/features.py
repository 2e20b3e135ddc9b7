"""Turn examples into a network's input: token ids, in batches of like length."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from tokenizers import Encoding, Tokenizer

from amazon_electra.beam_jobs.core.errors import require
from amazon_electra.model.finetuning.examples import Example, Shape

if TYPE_CHECKING:
    import torch

IGNORED = -100
"""Label of what has no label: word pieces after a word's first, padding (torch's ignore_index)."""
EXAMPLES_AT_ONCE = 1000
"""Examples tokenized together: a tokenizer's answer takes fifty times its features' memory."""
LENGTH_STEP = 16
"""Tokens. An epoch of 22,000 reviews takes 15 s on an H100 (tests/bench/gpu.py, row `finetuning`);
with all 124 lengths it took 44 s on an H200, presumably since libraries plan each shape anew.
"""
POOL_BATCHES = 32
"""Batches whose texts are sorted by length together."""
NO_WORDS = np.empty(0, dtype=np.int32)
NO_OFFSETS = np.empty((0, 2), dtype=np.int32)
Ids = Sequence[int] | np.ndarray
Target = int | float | list[int]


@dataclass(slots=True)
class Feature:
    """One network input: an example, a window of its passage, or (for `choice`) all its choices, in
    arrays of the smallest type, since half a million questions must fit into memory.
    """

    example: int
    """Index into the list of examples."""
    ids: Sequence[Ids]
    """One row of token ids, or one per choice."""
    types: Sequence[Ids]
    """The token types (0: first text, 1: second) of each row."""
    target: Target = 0
    """Class, number, label per token, 0 or 1 per class, or [start, end] in tokens."""
    offsets: np.ndarray = field(default_factory=lambda: NO_OFFSETS)
    """For `span`: int32 [tokens, 2], a token's characters in the passage; (-1, -1) outside."""
    words: np.ndarray = field(default_factory=lambda: NO_WORDS)
    """For `tokens`: int32 [tokens], the word whose first piece a token is; -1 for others."""

    @property
    def length(self) -> int:
        """Tokens of the longest row."""
        return max(len(row) for row in self.ids)


Features = Iterator[Feature]


@dataclass(frozen=True)
class Featurizer:
    """Turns examples into features; its settings stand in task.json."""

    tokenizer: Tokenizer
    shape: Shape
    max_length: int
    """Tokens of a row at most, special ones included."""
    stride: int = 64
    """Tokens two windows of a passage share at most."""

    def __post_init__(self) -> None:
        is_short = self.shape != "span" or self.stride < self.max_length
        require(is_short, f"must be below max_length={self.max_length}", "stride", self.stride)

    def __call__(self, examples: Sequence[Example]) -> list[Feature]:
        """Return the features in the order of the examples."""
        features: list[Feature] = []
        ways = {"tokens": self._encode_words, "span": self._encode_passages}
        encode = (ways | {"choice": self._encode_choices}).get(self.shape, self._encode_texts)
        for start in range(0, len(examples), EXAMPLES_AT_ONCE):
            part = examples[start : start + EXAMPLES_AT_ONCE]
            features += encode(range(start, start + len(part)), part)
        return features

    def _encode_texts(self, places: Sequence[int], examples: Sequence[Example]) -> Features:
        self.tokenizer.enable_truncation(self.max_length)
        inputs = [e.text if e.pair is None else (e.text, e.pair) for e in examples]
        encodings = self.tokenizer.encode_batch(inputs)
        for i, encoding, example in zip(places, encodings, examples, strict=True):
            target: Target = example.label or 0
            if self.shape == "multilabel":
                target = list(example.tags)
            yield self._make_feature(i, [encoding], target)

    def _encode_choices(self, places: Sequence[int], examples: Sequence[Example]) -> Features:
        self.tokenizer.enable_truncation(self.max_length)
        for i, example in zip(places, examples, strict=True):
            pairs = [(example.text, choice) for choice in example.choices]
            yield self._make_feature(i, self.tokenizer.encode_batch(pairs), int(example.label or 0))

    def _encode_words(self, places: Sequence[int], examples: Sequence[Example]) -> Features:
        """Yield features that have a word's label on its first piece, as in BERT's NER."""
        self.tokenizer.enable_truncation(self.max_length)
        inputs = [list(example.words) for example in examples]
        encodings = self.tokenizer.encode_batch(inputs, is_pretokenized=True)
        for i, encoding, example in zip(places, encodings, examples, strict=True):
            numbers = encoding.word_ids
            words = [  # per token the word that it begins, -1 where it begins none
                word if word is not None and word != before else -1
                for before, word in zip([None, *numbers], numbers, strict=False)
            ]
            labels = [example.tags[word] if word >= 0 else IGNORED for word in words]
            feature = self._make_feature(i, [encoding], labels)
            feature.words = np.array(words, dtype=np.int32)
            yield feature

    def _encode_passages(self, places: Sequence[int], examples: Sequence[Example]) -> Features:
        """Yield overlapping windows of a passage; one without the answer points to [CLS]."""
        questions = self._cut_questions([e.text for e in examples])
        by_stride: dict[int, list[int]] = defaultdict(list)
        for k, (_, room) in enumerate(questions):
            by_stride[min(self.stride, room // 2)].append(k)
        windows: dict[int, list[Feature]] = {}
        for stride, members in by_stride.items():
            self.tokenizer.enable_truncation(self.max_length, stride=stride, strategy="only_second")
            pairs = [(questions[k][0], str(examples[k].pair)) for k in members]
            for k, encoding in zip(members, self.tokenizer.encode_batch(pairs), strict=True):
                windows[k] = []
                for window in (encoding, *encoding.overflowing):
                    offsets = np.array(window.offsets, dtype=np.int32)
                    offsets[[s != 1 for s in window.sequence_ids]] = -1
                    target = _locate_answer(offsets, examples[k])
                    feature = self._make_feature(places[k], [window], target)
                    feature.offsets = offsets
                    windows[k].append(feature)
        for k in range(len(examples)):
            yield from windows[k]

    def _cut_questions(self, questions: Sequence[str]) -> list[tuple[str, int]]:
        """Cut each question to half a window; return it with the tokens left for the passage."""
        self.tokenizer.no_truncation()
        most, special = self.max_length // 2, self.tokenizer.num_special_tokens_to_add(True)
        encodings = self.tokenizer.encode_batch(list(questions), add_special_tokens=False)
        result = []
        for text, encoding in zip(questions, encodings, strict=True):
            cut = text[: encoding.offsets[most - 1][1]] if len(encoding) > most else text
            result.append((cut, self.max_length - special - min(len(encoding), most)))
        return result

    def _make_feature(self, i: int, rows: Sequence[Encoding], target: Target) -> Feature:
        small = np.uint16 if self.tokenizer.get_vocab_size() <= 1 << 16 else np.int32
        ids = [np.array(row.ids, dtype=small) for row in rows]
        return Feature(i, ids, [np.array(row.type_ids, dtype=np.uint8) for row in rows], target)


def _locate_answer(offsets: np.ndarray, example: Example) -> list[int]:
    """Return [first token, last token] of the first answer; [0, 0] where it is not all here."""
    if not example.answers:
        return [0, 0]
    text, start = example.answers[0]
    begin, end = start + len(text) - len(text.lstrip()), start + len(text.rstrip())
    starts, ends = offsets.T
    covering = np.flatnonzero((starts >= 0) & (ends > begin) & (starts < end))
    if not len(covering) or starts[covering[0]] > begin or ends[covering[-1]] < end:
        return [0, 0]
    return [int(covering[0]), int(covering[-1])]


def drop_empty_windows(
    features: Sequence[Feature], share: float, generator: np.random.Generator
) -> list[Feature]:
    """Return the windows with an answer, and at most `share` for each without one, at random."""
    is_empty = np.array([feature.target == [0, 0] for feature in features])
    empty = np.flatnonzero(is_empty)
    with_answer = len(features) - len(empty)
    most = round(share * with_answer)
    if not with_answer or most >= len(empty):
        return list(features)
    drawn = generator.choice(empty, most, replace=False)
    return [features[i] for i in np.sort([*np.flatnonzero(~is_empty), *drawn])]


def draw_training_batches(
    lengths: np.ndarray, size: int, generator: np.random.Generator
) -> list[np.ndarray]:
    """Return the indices of each batch of one epoch, in random order; `lengths` in tokens."""
    order = generator.permutation(len(lengths))
    batches = []
    for start in range(0, len(order), POOL_BATCHES * size):
        pool = order[start : start + POOL_BATCHES * size]
        pool = pool[np.argsort(lengths[pool], kind="stable")]
        batches += [pool[i : i + size] for i in range(0, len(pool), size)]
    return [batches[i] for i in generator.permutation(len(batches))]


def list_lengths(features: Sequence[Feature]) -> np.ndarray:
    """Return the tokens of each feature's longest row."""
    return np.array([feature.length for feature in features], dtype=np.int32)


def cut_prediction_batches(
    features: Sequence[Feature], size: int, tokens: int = 0
) -> Iterator[np.ndarray]:
    """Yield indices by length, of `size` texts or of up to `tokens` together with padding."""
    lengths = list_lengths(features)
    order = np.argsort(lengths, kind="stable")
    at = 0
    while at < len(order):
        most = max(size, tokens // max(1, int(lengths[order[at]])))
        padded = lengths[order[at : at + most]].astype(np.int64)
        padded = padded * np.arange(1, len(padded) + 1)
        taken = max(size, int(np.searchsorted(padded, tokens, side="right")))
        yield order[at : at + taken]
        at += taken


def round_length(length: int, longest: int, device: "torch.device") -> int:
    """Return the tokens to which a batch is padded: on a GPU a multiple of LENGTH_STEP."""
    step = LENGTH_STEP if device.type == "cuda" else 1
    return min(longest, -(-length // step) * step)


def collate_features(
    features: Sequence[Feature], shape: Shape, pad_to: int | None = None, pad_id: int = 0
) -> "tuple[dict[str, torch.Tensor], torch.Tensor]":
    """Return network inputs [batch, tokens] ([batch, choices, tokens] for `choice`) and targets."""
    import torch

    length = pad_to or max(feature.length for feature in features)
    rows = [row for feature in features for row in feature.ids]
    types = [row for feature in features for row in feature.types]
    ids: np.ndarray = np.full((len(rows), length), pad_id, dtype=np.int64)
    mask, token_types = np.zeros_like(ids), np.zeros_like(ids)
    for i, (row, row_types) in enumerate(zip(rows, types, strict=True)):
        ids[i, : len(row)], mask[i, : len(row)], token_types[i, : len(row)] = row, 1, row_types
    inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": token_types}
    if shape == "choice":
        inputs = {name: array.reshape(len(features), -1, length) for name, array in inputs.items()}
    tensors = {name: torch.from_numpy(array) for name, array in inputs.items()}
    if shape != "tokens":
        return tensors, torch.tensor([feature.target for feature in features])
    labels = torch.full((len(features), length), IGNORED)
    for i, feature in enumerate(features):
        assert isinstance(feature.target, list)
        labels[i, : len(feature.target)] = torch.tensor(feature.target)
    return tensors, labels
