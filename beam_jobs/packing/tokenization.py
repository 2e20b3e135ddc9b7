"""Token ids of sentences, equal to the tokenizer's own for every text, at several times its speed.

BERT's normaliser and pre-tokeniser never join what a space separates, so the ids of a text are
those of its space-separated chunks ("great!") one after another, and those of a chunk of plain
ASCII are those of its words and punctuation marks ("great", "!"). Chunks and words repeat: Arrow
splits a batch and numbers its distinct chunks, only words never seen before reach the tokenizer's
model, and numpy gathers the ids, without a Python object per word. Whatever is not plain ASCII
(accents, CJK, emoji, control characters, other white space) goes to the tokenizer whole, and so
does every chunk with a bracket, which may be one of its special entries, such as [MASK]. A
tokenizer that was given entries without a bracket besides gets every chunk whole.
"""

from itertools import repeat

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from beam_jobs.text.spans import expand_spans

PLAIN = r"^[!-Z\\\]^-~]+$"
"""Printable ASCII without the space and the opening bracket."""
NOTHING = r"[^\x00-\x{10FFFF}]"
"""Matches no chunk."""
PUNCTUATION = r"([!-/:-@\[-`{-~])"
"""Of ASCII: each mark is a word of its own to BERT."""
MAX_REMEMBERED = 1 << 19
"""Chunks, and as many words: about 150 MB. All are forgotten when full, which costs one batch."""


class Memory:
    """Numbers strings as they come and keeps their token ids: row r has ids[ends[r]:ends[r + 1]].

    Positions are 32 bits wide: a unit has far fewer than 2³¹ tokens, and half the bytes take half
    the time.
    """

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


def check_tokenizer(tokenizer: Tokenizer) -> None:
    """Raise ValueError unless it is BERT's WordPiece, whatever its case, accents and ids."""
    for part, kind in (
        ("model", models.WordPiece),
        ("normalizer", normalizers.BertNormalizer),
        ("pre_tokenizer", pre_tokenizers.BertPreTokenizer),
    ):
        found = getattr(tokenizer, part)
        if not isinstance(found, kind):
            raise ValueError(f"its {part} is {type(found).__name__}, not {kind.__name__}")
    entries = tokenizer.get_vocab(with_added_tokens=False)
    missing = [token for token in ("[UNK]", "[CLS]", "[SEP]") if token not in entries]
    if missing:
        raise ValueError(f"it lacks {', '.join(missing)}")
    added = tokenizer.get_added_tokens_decoder().values()
    spaced = [token.content for token in added if " " in token.content]
    if spaced:
        raise ValueError(f"its entry {spaced[0]!r} has a space")


def check_ids(tokenizer: Tokenizer) -> None:
    """Raise ValueError where ids are left out: a model has one row for each up to the last."""
    ids = sorted(tokenizer.get_vocab().values())
    if ids != list(range(len(ids))):
        raise ValueError(f"the ids of its {len(ids)} entries are not 0 to {len(ids) - 1}")


class WordIds:
    """A tokenizer that remembers the ids of every chunk and word it has seen."""

    def __init__(self, tokenizer: Tokenizer, remembered: int = MAX_REMEMBERED) -> None:
        check_tokenizer(tokenizer)
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self._tokenizer = tokenizer
        self._lower_case = bool(tokenizer.normalizer.lowercase)
        self._vocabulary = tokenizer.get_vocab(with_added_tokens=False)
        added = tokenizer.get_added_tokens_decoder().values()
        self._plain = PLAIN if all("[" in token.content for token in added) else NOTHING
        self._longest = tokenizer.model.max_input_chars_per_word
        self._remembered = remembered
        self._chunks, self._words = Memory(), Memory()
        self.cls_id, self.sep_id = self._vocabulary["[CLS]"], self._vocabulary["[SEP]"]

    def encode(self, texts: pa.Array) -> tuple[np.ndarray, np.ndarray]:
        """Return the ids of all texts (uint32) and where each begins, and the end (int64)."""
        split = pc.split_pattern(texts, " ")
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
        rows[unknown[~is_plain]] = self._learn_other(new.filter(pc.invert(plain)).to_pylist())
        return rows

    def _learn_other(self, chunks: list[str]) -> np.ndarray:
        ids = [e.ids for e in self._tokenizer.encode_batch_fast(chunks, add_special_tokens=False)]
        return self._chunks.add_rows(chunks, *flatten_ids(ids))

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
        vocabulary, model = self._vocabulary, self._tokenizer.model
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
