"""Hold the features of a training set in a few arrays: there are millions of windows."""

from array import array
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from model.finetuning.features.featurizer import Feature, Ids


class Rows:
    """Rows of numbers, one behind the other."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._ends = array("Q", [0])
        self._type = np.dtype(np.uint8)

    def append(self, row: np.ndarray) -> None:
        assert row.dtype == self._type or not self._bytes, "all rows are of one type"
        self._type = row.dtype
        self._bytes += row.tobytes()
        self._ends.append(self._ends[-1] + len(row))

    def __getitem__(self, i: int) -> np.ndarray:
        return np.frombuffer(self._bytes, self._type)[self._ends[i] : self._ends[i + 1]]


class PackedFeatures(Sequence[Feature]):
    """Features without `offsets` and `words`, which only an evaluation needs.

    A window of 128 tokens takes 0.3 KB here, 2 KB on its own. Rows of token types are kept once
    each: there are few.
    """

    def __init__(self, features: Iterable[Feature]) -> None:
        self._examples, self._first_rows = array("I"), array("Q", [0])
        self._ids, self._targets = Rows(), Rows()
        self._types, self._distinct_types = array("I"), list[Ids]()
        self._single_targets = True
        known: dict[bytes, int] = {}
        for feature in features:
            self._examples.append(feature.example)
            for ids, types in zip(feature.ids, feature.types, strict=True):
                self._ids.append(np.asarray(ids))
                number = known.setdefault(np.asarray(types).tobytes(), len(known))
                if number == len(self._distinct_types):
                    self._distinct_types.append(types)
                self._types.append(number)
            self._first_rows.append(len(self._types))
            self._single_targets = not isinstance(feature.target, list)
            number_type = np.float64 if isinstance(feature.target, float) else np.int64
            self._targets.append(np.array(feature.target, number_type, ndmin=1))
        self._places = np.arange(len(self._examples))

    def drop_empty_windows(self, share: float, generator: np.random.Generator) -> None:
        """Keep at most `share` windows without an answer for each window with one, at random."""
        is_empty = np.array([not self._targets[i].any() for i in range(len(self._examples))], bool)
        empty = np.flatnonzero(is_empty)
        with_answer = len(is_empty) - len(empty)
        most = round(share * with_answer)
        if with_answer and most < len(empty):
            drawn = generator.choice(empty, most, replace=False)
            self._places = np.sort(np.concatenate([np.flatnonzero(~is_empty), drawn]))

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, i: Any) -> Any:
        """Return the feature of one index."""
        if i >= len(self):
            raise IndexError(i)
        i = int(self._places[i])
        rows = range(self._first_rows[i], self._first_rows[i + 1])
        target = self._targets[i].tolist()
        return Feature(
            self._examples[i],
            [self._ids[row] for row in rows],
            [self._distinct_types[self._types[row]] for row in rows],
            target[0] if self._single_targets else target,
        )
