"""Token ids of sentences, equal to the tokenizer's own for every text, at several times its speed.

BERT's tokenizer joins nothing that a space separates, so each distinct chunk of plain ASCII is
tokenized once, and numpy gathers the ids. Chunks with other characters or a bracket, and texts of
other tokenizers, go to the tokenizer whole.
"""

from itertools import repeat

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from tokenizers import Encoding, Tokenizer, models, normalizers, pre_tokenizers

from amazon_electra.beam_jobs.core.special_tokens import find_specials
from amazon_electra.beam_jobs.text.spans import expand_spans

PLAIN = r"^[!-Z\\\]^-~]+$"  # printable ASCII without the space and the opening bracket
NOTHING = r"[^\x00-\x{10FFFF}]"  # matches no chunk
PUNCTUATION = r"([!-/:-@\[-`{-~])"  # of ASCII: each mark is a word of its own to BERT
MAX_REMEMBERED = 1 << 19  # chunks, and as many words: 150 MB; all are forgotten when full
DOCUMENTS_AT_ONCE = 512  # encoded by one call; a thousand tokens take 100 kB


class Memory:
    """Numbers strings as they come and keeps their ids: row r has ids[ends[r]:ends[r + 1]]."""

    def __init__(self) -> None:
        self.row_of: dict[str, int] = {}
        self._ids = np.zeros(1 << 16, np.uint32)
        self._ends = np.zeros(1, np.int32)

    def find_rows(self, strings: list[str]) -> np.ndarray:
        """Return the row of each string, -1 where it is not known."""
        return np.fromiter(map(self.row_of.get, strings, repeat(-1)), np.int32, len(strings))

    def add_rows(self, strings: list[str], ids: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Remember the ids of strings; return their rows."""
        first, used = len(self._ends) - 1, int(self._ends[-1])
        while used + len(ids) > len(self._ids):
            self._ids = np.concatenate([self._ids, np.zeros_like(self._ids)])
        self._ids[used : used + len(ids)] = ids
        self._ends = np.concatenate([self._ends, used + np.cumsum(lengths, dtype=np.int32)])
        self.row_of.update(zip(strings, range(first, first + len(strings)), strict=True))
        return np.arange(first, first + len(strings), dtype=np.int32)

    def gather_ids(self, rows: np.ndarray, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the ids of rows[n] for each number, one after another, and how many each has."""
        starts = self._ends[rows]
        lengths = (self._ends[rows + 1] - starts)[numbers]
        return self._ids[expand_spans(starts[numbers], lengths)], lengths


def load_tokenizer(content: str) -> "WordIds | TextIds":
    """Return what gives the ids of documents, by tokenizer.json; Exception where it is none."""
    tokenizer = Tokenizer.from_str(content)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    find_specials(tokenizer)
    is_word_piece = (
        isinstance(tokenizer.model, models.WordPiece)
        and isinstance(tokenizer.normalizer, normalizers.BertNormalizer)
        and isinstance(tokenizer.pre_tokenizer, pre_tokenizers.BertPreTokenizer)
        and not any(" " in t.content for t in tokenizer.get_added_tokens_decoder().values())
    )
    return WordIds(tokenizer) if is_word_piece else TextIds(tokenizer)


class TextIds:
    """Any tokenizer, which gets whole documents: their sentences joined by a space."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer

    def encode_documents(self, documents: pa.ListArray) -> tuple[np.ndarray, np.ndarray]:
        """Return the ids of all documents (uint32) and where each sentence begins, and the end
        (int64).

        A sentence begins with the token of the space before it, or of its first character with one.
        """
        texts = pc.binary_join(documents, " ").to_pylist()
        lengths = pc.utf8_length(documents.flatten()).to_numpy()
        counts = documents.value_lengths().to_numpy()
        ids: list[np.ndarray] = []
        starts, first, end = list[int](), 0, 0
        for begin in range(0, len(texts), DOCUMENTS_AT_ONCE):
            part = texts[begin : begin + DOCUMENTS_AT_ONCE]
            for encoding in self.tokenizer.encode_batch(part, add_special_tokens=False):
                place = 0
                for number in range(counts[len(ids)]):
                    length = int(lengths[first + number])
                    token = _find_token(encoding, place - 1, place + length) if number else 0
                    starts.append(end + token)
                    place += length + 1
                first += counts[len(ids)]
                end += len(encoding)
                ids.append(np.array(encoding.ids, np.uint32))
        return np.concatenate([*ids, np.empty(0, np.uint32)]), np.array([*starts, end], np.int64)


def _find_token(encoding: Encoding, start: int, end: int) -> int:
    """Return the first token of a character of `start` to `end` (excluded), or the one after."""
    found = (encoding.char_to_token(place) for place in range(start, end))
    token = next((token for token in found if token is not None), None)
    if token is None:
        return sum(begin < end for begin, _ in encoding.offsets)
    return token


class WordIds:
    """BERT's WordPiece, which remembers the ids of the chunks and words that it has seen."""

    def __init__(self, tokenizer: Tokenizer, remembered: int = MAX_REMEMBERED) -> None:
        self.tokenizer = tokenizer
        self._lower_case = bool(tokenizer.normalizer.lowercase)
        self._vocabulary = tokenizer.get_vocab(with_added_tokens=False)
        added = tokenizer.get_added_tokens_decoder().values()
        self._plain = PLAIN if all("[" in token.content for token in added) else NOTHING
        self._longest = tokenizer.model.max_input_chars_per_word
        self._remembered = remembered
        self._chunks, self._words = Memory(), Memory()

    def encode_documents(self, documents: pa.ListArray) -> tuple[np.ndarray, np.ndarray]:
        """Return the ids of all documents (uint32), where each sentence begins, the end (int64)."""
        split = pc.split_pattern(documents.flatten(), " ")
        numbered = split.flatten().dictionary_encode()
        rows = self._find_chunk_rows(numbered.dictionary)
        ids, lengths = self._chunks.gather_ids(rows, numbered.indices.to_numpy())
        ends = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
        return ids, ends[split.offsets.to_numpy()]

    def _find_chunk_rows(self, chunks: pa.Array) -> np.ndarray:
        """Return the rows of distinct chunks; those not known are learned."""
        if len(self._chunks.row_of) + len(chunks) > self._remembered:
            self._chunks = Memory()
        rows = self._chunks.find_rows(chunks.to_pylist())
        unknown = np.flatnonzero(rows < 0)
        new = chunks.take(pa.array(unknown))
        plain = pc.match_substring_regex(new, self._plain)
        is_plain = plain.to_numpy(zero_copy_only=False)
        rows[unknown[is_plain]] = self._learn_plain(new.filter(plain))
        others = new.filter(pc.invert(plain)).to_pylist()
        encoded = self.tokenizer.encode_batch_fast(others, add_special_tokens=False)
        ids = [one.ids for one in encoded]
        rows[unknown[~is_plain]] = self._chunks.add_rows(others, *flatten_ids(ids))
        return rows

    def _learn_plain(self, chunks: pa.Array) -> np.ndarray:
        """Learn the ids of chunks from those of their words and marks; return the rows."""
        folded = pc.ascii_lower(chunks) if self._lower_case else chunks
        split = pc.split_pattern(pc.replace_substring_regex(folded, PUNCTUATION, r" \1 "), " ")
        numbered = split.flatten().dictionary_encode()
        rows = self._find_word_rows(numbered.dictionary.to_pylist())
        ids, lengths = self._words.gather_ids(rows, numbered.indices.to_numpy())
        ends = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])[split.offsets.to_numpy()]
        return self._chunks.add_rows(chunks.to_pylist(), ids, np.diff(ends))

    def _find_word_rows(self, words: list[str]) -> np.ndarray:
        if len(self._words.row_of) + len(words) > self._remembered:
            self._words = Memory()
        rows = self._words.find_rows(words)
        unknown = np.flatnonzero(rows < 0)
        new = [words[i] for i in unknown.tolist()]
        vocabulary, model = self._vocabulary, self.tokenizer.model
        ids = [
            [vocabulary[w]]
            if w in vocabulary and len(w) <= self._longest
            else [piece.id for piece in model.tokenize(w)]
            for w in new
        ]
        rows[unknown] = self._words.add_rows(new, *flatten_ids(ids))
        return rows


def flatten_ids(lists: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Return all numbers one after another, and how many each list has."""
    lengths = np.fromiter(map(len, lists), np.int64, len(lists))
    return np.fromiter((i for ids in lists for i in ids), np.uint32, int(lengths.sum())), lengths
