"""Packs documents into sequences of at most `max_length` tokens, losing none, with little room.

Each document becomes [CLS] tokens [SEP]. One that does not fit is cut into pieces at sentence
boundaries, a sentence where it must be (filling.py). Positions in the flat arrays count tokens.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from amazon_electra.beam_jobs.packing.filling import fill_sequences
from amazon_electra.beam_jobs.text.spans import drop_repeats, expand_spans

SPECIALS = 2  # tokens around each piece: [CLS] and [SEP]


@dataclass(frozen=True)
class Tokens:
    """Documents of a window: all ids, the sentences' ends in them, the documents' sentences."""

    ids: np.ndarray
    sentence_offsets: np.ndarray  # sentences + 1 positions in ids
    document_offsets: np.ndarray  # documents + 1 positions in sentence_offsets


@dataclass(frozen=True)
class Counts:
    """What a packed window holds; sums over windows are the counts of a shard."""

    sequences: int = 0
    tokens: int = 0  # with [CLS] and [SEP]
    text_tokens: int = 0  # without
    documents: int = 0
    empty_documents: int = 0  # of no token at all: in no sequence
    pieces: int = 0
    sentences: int = 0
    cut_sentences: int = 0  # cuts inside a sentence

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(*(getattr(self, n) + getattr(other, n) for n in Counts.__dataclass_fields__))

    @classmethod
    def of(cls, footer: dict[str, Any]) -> "Counts":
        """Return the counts in the footer of a shard."""
        return cls(**{name: footer[name] for name in cls.__dataclass_fields__})


def build_shard_schema(vocabulary_size: int) -> pa.Schema:
    """Return the schema of one packed sequence a row, with the narrowest type for the ids."""
    ids = pa.uint16() if vocabulary_size <= 1 << 16 else pa.uint32()
    return pa.schema(
        [
            pa.field("input_ids", pa.list_(ids), nullable=False),
            pa.field("document_starts", pa.list_(pa.uint16()), nullable=False),
            pa.field("sentence_starts", pa.list_(pa.uint16()), nullable=False),
        ]
    )


def pack_documents(
    tokens: Tokens, max_length: int, cls_id: int, sep_id: int, schema: pa.Schema
) -> tuple[pa.Table, Counts]:
    """Return one sequence a row, in the order of their first documents, and the counts."""
    sentence_ends = drop_repeats(tokens.sentence_offsets)
    document_ends = drop_repeats(tokens.sentence_offsets[tokens.document_offsets])
    pieces = fill_sequences(sentence_ends, document_ends, max_length, SPECIALS)
    table = build_table(tokens, *pieces, (cls_id, sep_id), schema)
    # counted on the finished rows where they show it, so that the check means something
    ends = tokens.sentence_offsets[tokens.document_offsets]
    empty = int((np.diff(ends) == 0).sum())
    nearest = np.searchsorted(tokens.sentence_offsets, pieces[1])
    counts = Counts(
        sequences=table.num_rows,
        tokens=len(table["input_ids"].combine_chunks().flatten()),
        text_tokens=len(tokens.ids),
        documents=len(tokens.document_offsets) - 1 - empty,
        empty_documents=empty,
        pieces=len(table["document_starts"].combine_chunks().flatten()),
        sentences=int((np.diff(tokens.sentence_offsets) > 0).sum()),
        cut_sentences=int((tokens.sentence_offsets[nearest] != pieces[1]).sum()),
    )
    whole = counts.text_tokens + SPECIALS * counts.pieces
    assert counts.tokens == whole, "packing lost or invented tokens"
    return table, counts


def build_table(
    tokens: Tokens,
    piece_starts: np.ndarray,
    piece_ends: np.ndarray,
    bins: np.ndarray,
    specials: tuple[int, int],
    schema: pa.Schema,
) -> pa.Table:
    """Return the rows: in each the pieces, over all the first pieces, in document order."""
    order, row_of = order_rows(bins)
    lengths = (piece_ends - piece_starts)[order]
    ends = np.cumsum(lengths + SPECIALS)
    starts = ends - lengths - SPECIALS
    bytes_per_id = schema.field("input_ids").type.value_type.bit_width // 8
    input_ids = np.empty(int(ends[-1]) if len(ends) else 0, f"u{bytes_per_id}")
    input_ids[starts], input_ids[ends - 1] = specials
    from_text = expand_spans(piece_starts[order], lengths)
    input_ids[expand_spans(starts + 1, lengths)] = tokens.ids[from_text]

    first_piece = np.flatnonzero(np.diff(row_of, prepend=-1))
    row_start = starts[first_piece][row_of] if len(row_of) else starts
    # where sentences with a token begin, and where a cut one goes on
    begins = tokens.sentence_offsets[:-1][np.diff(tokens.sentence_offsets) > 0]
    begins = drop_repeats(np.sort(np.concatenate([begins, piece_starts]), kind="stable"))
    first_begin = np.searchsorted(begins, piece_starts)
    in_piece = np.diff(np.append(first_begin, len(begins)))[order]
    moved = np.repeat(starts + 1 - row_start - piece_starts[order], in_piece)
    sentence_starts = begins[expand_spans(first_begin[order], in_piece)] + moved

    row_pieces = np.append(first_piece, len(order))
    begin_ends = np.concatenate([[0], np.cumsum(in_piece)])
    columns = [
        (input_ids, np.append(starts[first_piece], len(input_ids))),
        (starts - row_start, row_pieces),
        (sentence_starts, begin_ends[row_pieces]),
    ]
    arrays = []
    for (values, offsets), field in zip(columns, schema, strict=True):
        flat = pa.array(values).cast(field.type.value_type)
        made = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), flat)
        arrays.append(made.cast(field.type))
    return pa.Table.from_arrays(arrays, schema=schema)


def order_rows(bins: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the pieces in the order they are written, and the row of each (both: [pieces])."""
    by_bin = np.argsort(bins, kind="stable")
    first_piece = by_bin[np.diff(bins[by_bin], prepend=-1) > 0]
    row_of_bin = np.empty(len(first_piece), np.int64)
    row_of_bin[np.argsort(first_piece)] = np.arange(len(first_piece))
    rows = row_of_bin[bins]
    order = np.argsort(rows, kind="stable")
    return order, rows[order]
