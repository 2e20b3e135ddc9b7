"""Which piece of which document goes into which sequence, so that hardly any room stays empty.

Best fit alone, over documents cut after as many sentences as fit, leaves 4% of 128-token sequences empty on real
reviews: what is left after a last whole sentence (9 tokens on average) is too short for anything else. So where a long
document is cut is decided last. Of each, every beginning of whole sentences is on offer, and a sequence takes those
that fill it to the last token or nearly so. All decisions follow from the lengths and the order of the documents.
"""

from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np

CLOSE_ENOUGH = 2  # tokens: a beginning that leaves no more than this fills a sequence by itself
SHORTEST_FILLER = 8  # tokens: smaller gaps are left to whole documents


class Queues:
    """Items by their length in tokens, first in, first out. Bit n of `_in_use` says whether queue n has any."""

    def __init__(self, longest: int) -> None:
        self._queues: list[deque[Any]] = [deque() for _ in range(longest + 1)]
        self._in_use = 0

    def put(self, length: int, item: Any) -> None:
        self._queues[length].append(item)
        self._in_use |= 1 << length

    def take(self, length: int) -> Any:
        queue = self._queues[length]
        item = queue.popleft()
        if not queue:
            self._in_use ^= 1 << length
        return item

    def first(self, length: int) -> Any:
        return self._queues[length][0]

    def longest(self, limit: int) -> int:
        """The greatest length up to `limit` of which there is an item; 0 if there is none."""
        return max((self._in_use & ((2 << limit) - 1)).bit_length() - 1, 0) if limit > 0 else 0

    def shortest(self, least: int) -> int:
        """The smallest length of at least `least` of which there is an item; 0 if there is none."""
        enough = self._in_use >> least
        return least + (enough & -enough).bit_length() - 1 if enough else 0

    def __iter__(self) -> Iterator[tuple[int, Any]]:
        """Longest first; empties the queues."""
        while length := self.longest(len(self._queues)):
            yield length, self.take(length)


class Filling:
    """Documents waiting to be placed and the sequences filled so far. A piece is (start, end, sequence)."""

    def __init__(self, max_length: int, specials: int) -> None:
        self.pieces: list[tuple[int, int, int]] = []
        self.room_left: list[int] = []  # of each sequence
        self._max_length, self._specials = max_length, specials
        self._whole = Queues(max_length)  # start of documents, or of their last pieces, that fit into a sequence
        self._beginnings = Queues(max_length)  # (start, sentence, document): of documents that do not
        self._start_of: dict[int, int] = {}  # of what is left of each such document
        self._sentence_ends: list[int] = []

    def fill(self, sentence_ends: np.ndarray, document_ends: np.ndarray) -> None:
        """Both strictly increasing from 0; what is between two document ends is a document."""
        self._sentence_ends = sentence_ends.tolist()
        first_sentences = np.searchsorted(sentence_ends, document_ends[:-1]).tolist()
        self._end_of = document_ends[1:].tolist()
        for document, (start, sentence) in enumerate(zip(document_ends[:-1].tolist(), first_sentences, strict=True)):
            self._offer(document, start, sentence)
        while self._start_of:
            self._fill_one_sequence()
        self._best_fit()

    def _offer(self, document: int, start: int, sentence: int) -> None:
        """Offers what is left of a document, from `start` inside `sentence`: whole if it fits, or its beginnings."""
        room, ends = self._max_length - self._specials, self._sentence_ends
        left = self._end_of[document] - start
        if left <= room:
            self._start_of.pop(document, None)
            self._whole.put(left, start)
            return
        self._start_of[document] = start
        if ends[sentence + 1] - start > room:
            self._beginnings.put(room, (start, sentence, document))
            return
        while (length := ends[sentence + 1] - start) <= room:
            sentence += 1
            self._beginnings.put(length, (start, sentence, document))

    def _fill_one_sequence(self) -> None:
        room = self._max_length - self._specials
        sequence = len(self.room_left)
        length = self._longest_beginning(room)
        if length >= room - CLOSE_ENOUGH:
            left = self._place_beginning(length, sequence, room)
        elif whole := self._whole.longest(room):
            left = self._place_whole(whole, sequence, room)
        else:
            leaving_room = self._longest_beginning(room - self._specials - SHORTEST_FILLER)
            left = self._place_beginning(leaving_room or length, sequence, room)
        while left >= SHORTEST_FILLER:
            beginning, whole = self._longest_beginning(left), self._whole.longest(left)
            if not beginning and not whole:
                break
            if whole > beginning:
                left = self._place_whole(whole, sequence, left)
            else:
                left = self._place_beginning(beginning, sequence, left)
        self.room_left.append(left + self._specials)

    def _longest_beginning(self, limit: int) -> int:
        """As `Queues.longest`, of those whose document has not gone on since they were offered."""
        while length := self._beginnings.longest(limit):
            start, _, document = self._beginnings.first(length)
            if self._start_of.get(document) == start:
                return length
            self._beginnings.take(length)
        return 0

    def _place_beginning(self, length: int, sequence: int, left: int) -> int:
        """Returns how many tokens the next piece of this sequence may have."""
        start, sentence, document = self._beginnings.take(length)
        self.pieces.append((start, start + length, sequence))
        self._offer(document, start + length, sentence)
        return left - length - self._specials

    def _place_whole(self, length: int, sequence: int, left: int) -> int:
        start = self._whole.take(length)
        self.pieces.append((start, start + length, sequence))
        return left - length - self._specials

    def _best_fit(self) -> None:
        """What is whole: longest first, each to the fullest sequence that still has room for it."""
        gaps = Queues(self._max_length)
        for sequence, room in enumerate(self.room_left):
            gaps.put(room, sequence) if room else None
        for length, start in self._whole:
            needed = length + self._specials
            if gap := gaps.shortest(needed):
                sequence = gaps.take(gap)
            else:
                gap, sequence = self._max_length, len(self.room_left)
                self.room_left.append(gap)
            self.pieces.append((start, start + length, sequence))
            self.room_left[sequence] = gap - needed
            if gap > needed:
                gaps.put(gap - needed, sequence)


def fill(
    sentence_ends: np.ndarray, document_ends: np.ndarray, max_length: int, specials: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Starts, ends and sequences of all pieces, in the order of the text (int64 each, positions in tokens).

    `specials` is how many tokens each piece needs beside its own. A sentence longer than a sequence is cut.
    """
    filling = Filling(max_length, specials)
    filling.fill(sentence_ends, document_ends)
    pieces = np.array(sorted(filling.pieces), np.int64).reshape(-1, 3)
    return pieces[:, 0], pieces[:, 1], pieces[:, 2]
