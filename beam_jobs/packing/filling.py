"""Decides which piece of which document goes into which sequence, so that hardly any room stays.

Where a long document is cut is decided last: every beginning of whole sentences is on offer, and a
sequence takes those that fill it to the last token or nearly so. All decisions follow from the
lengths and the order of the documents. The loops are kept flat: they run once per piece in Python.
"""

from collections import deque
from typing import Any

import numpy as np

# in tokens, chosen on reviews of books, films and goods at 128
CLOSE_ENOUGH = 3  # A beginning that leaves no more than this fills a sequence by itself
MIN_FILLER = 4  # smaller gaps are left to whole documents
ROOM_FOR_SECOND = 24  # left by a beginning that does not fill, for whole documents
PLACED = -1


class Queues:
    """Items by length in tokens, first in, first out. Bit n of `in_use`: queue n may have any."""

    def __init__(self, longest: int) -> None:
        self.queues: list[deque[Any]] = [deque() for _ in range(longest + 1)]
        self.in_use = 0

    def put(self, length: int, item: Any) -> None:
        self.queues[length].append(item)
        self.in_use |= 1 << length

    def take(self, length: int) -> Any:
        queue = self.queues[length]
        item = queue.popleft()
        if not queue:
            self.in_use ^= 1 << length
        return item

    def find_longest(self, limit: int) -> int:
        """Return the greatest length up to `limit` that has an item; 0 if there is none."""
        fitting = self.in_use & ((2 << limit) - 1)
        return fitting.bit_length() - 1 if fitting else 0

    def find_shortest(self, least: int) -> int:
        """Return the smallest length from `least` on that has an item; 0 if there is none."""
        enough = self.in_use >> least
        return least + (enough & -enough).bit_length() - 1 if enough else 0


class Beginnings(Queues):
    """Items (start, sentence, document): beginnings, void once the document is placed elsewhere."""

    def __init__(self, longest: int, start_of: list[int]) -> None:
        super().__init__(longest)
        self._start_of = start_of

    def find_longest(self, limit: int) -> int:
        start_of, queues = self._start_of, self.queues
        while fitting := self.in_use & ((2 << limit) - 1):
            length = fitting.bit_length() - 1
            queue = queues[length]
            while queue:
                start, _, document = queue[0]
                if start_of[document] == start:
                    return length
                queue.popleft()
            self.in_use ^= 1 << length
        return 0


class Filling:
    """Documents, between ends that increase from 0, that wait to be placed, and the sequences."""

    def __init__(
        self, sentence_ends: np.ndarray, document_ends: np.ndarray, max_length: int, specials: int
    ) -> None:
        self.pieces: list[tuple[int, int, int]] = []  # start, end, sequence
        self._room_left: list[int] = []  # of each sequence
        self._max_length, self._specials = max_length, specials
        self._sentence_ends: list[int] = sentence_ends.tolist()
        self._end_of: list[int] = document_ends[1:].tolist()
        self._start_of: list[int] = document_ends[:-1].tolist()  # of what is left of each document
        self._whole = Queues(max_length)
        """Starts of documents, or of the last pieces of documents, that fit."""
        self._beginnings = Beginnings(max_length, self._start_of)
        self.cuttable = len(self._start_of)  # documents of which more is left than fits
        first_sentences = np.searchsorted(sentence_ends, document_ends[:-1]).tolist()
        for document, sentence in enumerate(first_sentences):
            self._offer_document(document, self._start_of[document], sentence)

    def _offer_document(self, document: int, start: int, sentence: int) -> None:
        """Offer the rest of a document, from `start` in `sentence`: whole, or its beginnings."""
        room, ends = self._max_length - self._specials, self._sentence_ends
        left = self._end_of[document] - start
        if left <= room:
            self._start_of[document] = PLACED
            self.cuttable -= 1
            self._whole.put(left, start)
            return
        self._start_of[document] = start
        beginnings = self._beginnings
        length = ends[sentence + 1] - start
        if length > room:
            beginnings.put(room, (start, sentence, document))
        while length <= room:
            sentence += 1
            beginnings.queues[length].append((start, sentence, document))
            beginnings.in_use |= 1 << length
            length = ends[sentence + 1] - start

    def fill_one_sequence(self) -> None:
        specials, sequence = self._specials, len(self._room_left)
        room = self._max_length - specials
        longest_whole, longest_beginning = self._whole.find_longest, self._beginnings.find_longest
        beginning, whole = longest_beginning(room), 0
        if beginning < room - CLOSE_ENOUGH:
            whole = longest_whole(room)
            if not whole:
                most = max(room - specials - ROOM_FOR_SECOND, 0)
                beginning = longest_beginning(most) or beginning
        left = room - self._place_piece(beginning, whole, sequence) - specials
        while left >= MIN_FILLER:
            beginning, whole = longest_beginning(left), longest_whole(left)
            if not beginning and not whole:
                break
            placed = self._place_piece(beginning, whole if whole > beginning else 0, sequence)
            left -= placed + specials
        self._room_left.append(left + specials)

    def _place_piece(self, beginning: int, whole: int, sequence: int) -> int:
        """Place a whole document of that length (if not 0) or a beginning; return its length."""
        if whole:
            start = self._whole.take(whole)
            self.pieces.append((start, start + whole, sequence))
            return whole
        start, sentence, document = self._beginnings.take(beginning)
        self.pieces.append((start, start + beginning, sequence))
        self._offer_document(document, start + beginning, sentence)
        return beginning

    def place_whole_documents(self) -> None:
        """Place what is whole, longest first, each in the fullest sequence that has room for it."""
        gaps = Queues(self._max_length)
        for sequence, room in enumerate(self._room_left):
            gaps.put(room, sequence)
        while length := self._whole.find_longest(self._max_length):
            start = self._whole.take(length)
            gap = gaps.find_shortest(length + self._specials)
            sequence = gaps.take(gap) if gap else len(self._room_left)
            if not gap:
                gap = self._max_length
                self._room_left.append(gap)
            self.pieces.append((start, start + length, sequence))
            gaps.put(gap - length - self._specials, sequence)


def fill_sequences(
    sentence_ends: np.ndarray, document_ends: np.ndarray, max_length: int, specials: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return starts, ends and sequences of all pieces, in the order of the text (int64, tokens);
    each piece needs `specials` more. A sentence longer than a sequence is cut.
    """
    filling = Filling(sentence_ends, document_ends, max_length, specials)
    while filling.cuttable:
        filling.fill_one_sequence()
    filling.place_whole_documents()
    pieces = np.array(filling.pieces, np.int64).reshape(-1, 3)
    pieces = pieces[np.argsort(pieces[:, 0])]
    return pieces[:, 0], pieces[:, 1], pieces[:, 2]
