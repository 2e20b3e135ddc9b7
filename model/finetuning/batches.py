"""Examples → token ids → padded batches.

Batches hold texts of like length and are padded to the longest of their own, not to the maximum: reviews are about 80
words, the maximum is for the few long ones. Sorting happens within pools of batches, so the order stays random.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from tokenizers import Encoding, Regex, Tokenizer, normalizers

from model.command import UserMistake
from model.finetuning.examples import Example, Shape
from model.finetuning.losses import IGNORED

POOL = 32
"""Batches whose texts are sorted by length together."""
AT_ONCE = 1000
"""Examples tokenized together: what the tokenizer says of them takes fifty times the memory of their features."""
NO_WORDS = np.empty(0, dtype=np.int32)
NO_OFFSETS = np.empty((0, 2), dtype=np.int32)
Ids = Sequence[int] | np.ndarray
NOT_LETTERS = normalizers.Replace(Regex(r"(?:\A\p{M}+|[^\p{L}\p{Nl}\p{No}\p{M}]\p{M}*)+"), " ")
"""Combining marks belong to the letter before them: without its marks हिन्दी is no word."""


@dataclass(slots=True)
class Feature:
    """One network input: an example, a window of its passage, or (for `choice`) all its choices.

    Numbers lie in arrays of the smallest type that holds them: half a million questions must fit into memory.
    """

    example: int
    """Index into the list of examples."""
    ids: Sequence[Ids]
    """One row of token ids, or one per choice."""
    types: Sequence[Ids]
    target: int | float | list[int] = 0
    """Class, number, label per token, or [start, end] in tokens."""
    offsets: np.ndarray = field(default_factory=lambda: NO_OFFSETS)
    """For `span`: where each token lies in the passage, in characters; (-1, -1) outside of it. Int32 [tokens, 2]."""
    words: np.ndarray = field(default_factory=lambda: NO_WORDS)
    """For `tokens`: the number of the word whose first piece each token is; -1 for others. Int32 [tokens]."""

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

    def __post_init__(self) -> None:
        if self.shape == "span" and self.stride >= self.max_length:
            raise UserMistake(
                f"fine-tuning: stride is {self.stride}, must be less than max_length={self.max_length}: "
                "it is the tokens that two windows of so many share"
            )

    def __call__(self, examples: Sequence[Example]) -> list[Feature]:
        return list(self.each(examples))

    def each(self, examples: Sequence[Example]) -> Iterator[Feature]:
        encode = {"tokens": self._tokens, "span": self._spans, "choice": self._choices}.get(self.shape, self._texts)
        for start in range(0, len(examples), AT_ONCE):
            chosen = examples[start : start + AT_ONCE]
            yield from encode(range(start, start + len(chosen)), chosen)

    def _texts(self, places: Sequence[int], examples: Sequence[Example]) -> Iterator[Feature]:
        self.tokenizer.enable_truncation(self.max_length)
        clean = only_letters if self.clean == "letters" else str
        inputs = [clean(e.text) if e.pair is None else (clean(e.text), clean(e.pair)) for e in examples]
        for i, encoding, example in zip(places, self.tokenizer.encode_batch(inputs), examples, strict=True):
            yield self._feature(i, [encoding], 0 if example.label is None else example.label)

    def _choices(self, places: Sequence[int], examples: Sequence[Example]) -> Iterator[Feature]:
        self.tokenizer.enable_truncation(self.max_length)
        for i, example in zip(places, examples, strict=True):
            rows = self.tokenizer.encode_batch([(example.text, choice) for choice in example.choices])
            yield self._feature(i, rows, int(example.label or 0))

    def _tokens(self, places: Sequence[int], examples: Sequence[Example]) -> Iterator[Feature]:
        """The label of a word sits on its first piece, as in BERT's NER; a word may have no piece at all."""
        self.tokenizer.enable_truncation(self.max_length)
        encodings = self.tokenizer.encode_batch([list(e.words) for e in examples], is_pretokenized=True)
        for i, encoding, example in zip(places, encodings, examples, strict=True):
            words = _first_pieces(encoding)
            feature = self._feature(i, [encoding], [example.tags[w] if w >= 0 else IGNORED for w in words])
            feature.words = np.array(words, dtype=np.int32)
            yield feature

    def _spans(self, places: Sequence[int], examples: Sequence[Example]) -> Iterator[Feature]:
        """Overlapping windows over the passage; a window without the whole answer points to [CLS]."""
        questions = self._cut_questions([e.text for e in examples])
        by_stride: dict[int, list[int]] = defaultdict(list)
        for k, (_, room) in enumerate(questions):
            by_stride[min(self.stride, room // 2)].append(k)
        windows: dict[int, list[Feature]] = {}
        for stride, chosen in by_stride.items():
            self.tokenizer.enable_truncation(self.max_length, stride=stride, strategy="only_second")
            encodings = self.tokenizer.encode_batch([(questions[k][0], str(examples[k].pair)) for k in chosen])
            for k, encoding in zip(chosen, encodings, strict=True):
                windows[k] = [self._window(places[k], w, examples[k]) for w in (encoding, *encoding.overflowing)]
        for k in range(len(examples)):
            yield from windows[k]

    def _cut_questions(self, questions: Sequence[str]) -> list[tuple[str, int]]:
        """Questions of at most half a window, and the tokens that are then left for the passage."""
        self.tokenizer.no_truncation()
        most, special = self.max_length // 2, self.tokenizer.num_special_tokens_to_add(True)
        result = []
        for text, encoding in zip(questions, self._bare(questions), strict=True):
            cut = text[: encoding.offsets[most - 1][1]] if len(encoding) > most else text
            result.append((cut, self.max_length - special - min(len(encoding), most)))
        return result

    def _bare(self, texts: Sequence[str]) -> list[Encoding]:
        return self.tokenizer.encode_batch(list(texts), add_special_tokens=False)

    def _window(self, i: int, encoding: Encoding, example: Example) -> Feature:
        outside = np.array([s != 1 for s in encoding.sequence_ids])
        offsets = np.array(encoding.offsets, dtype=np.int32)
        offsets[outside] = -1
        feature = self._feature(i, [encoding], _answer_tokens(offsets, example))
        feature.offsets = offsets
        return feature

    def _feature(self, i: int, rows: Sequence[Encoding], target: int | float | list[int]) -> Feature:
        small = np.uint16 if self.tokenizer.get_vocab_size() <= 1 << 16 else np.int32
        ids = [np.array(row.ids, dtype=small) for row in rows]
        return Feature(i, ids, [np.array(row.type_ids, dtype=np.uint8) for row in rows], target)


def only_letters(text: str) -> str:
    whole_characters = text.encode("utf-8", "replace").decode()
    return NOT_LETTERS.normalize_str(whole_characters).strip()


def _first_pieces(encoding: Encoding) -> list[int]:
    """Per token the word it begins, -1 where it begins none."""
    words, previous = [], None
    for word in encoding.word_ids:
        words.append(word if word is not None and word != previous else -1)
        previous = word
    return words


def _answer_tokens(offsets: np.ndarray, example: Example) -> list[int]:
    """[first token, last token] of the first answer, [0, 0] where this window does not hold all of it.

    White space around an answer is in no token.
    """
    if not example.answers:
        return [0, 0]
    text, start = example.answers[0]
    begin, end = start + len(text) - len(text.lstrip()), start + len(text.rstrip())
    covering = np.flatnonzero((offsets[:, 0] >= 0) & (offsets[:, 1] > begin) & (offsets[:, 0] < end))
    if not len(covering) or offsets[covering[0], 0] > begin or offsets[covering[-1], 1] < end:
        return [0, 0]
    return [int(covering[0]), int(covering[-1])]


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
