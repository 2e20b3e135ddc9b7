"""Nothing lost, nothing mixed, little room left."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amazon_electra.beam_jobs.packing.packing import Tokens, build_shard_schema, pack_documents

CLS, SEP = 2, 3
SCHEMA = build_shard_schema(50_000)


def tokens_of(documents: list[list[int]]) -> Tokens:
    """Documents given as sentence lengths; the ids count up from 10, to be known again."""
    sentences = [length for document in documents for length in document]
    ends = np.cumsum([0, *sentences], dtype=np.int64)
    of_documents = np.cumsum([0, *map(len, documents)], dtype=np.int64)
    return Tokens(np.arange(10, 10 + ends[-1], dtype=np.uint32), ends, of_documents)


def pieces_of(table) -> list[tuple[list[int], list[int]]]:
    """(ids without [CLS] and [SEP], starts of sentences among them) of every piece in every row."""
    pieces = []
    for row in table.to_pylist():
        starts = row["document_starts"]
        assert starts[0] == 0
        for start, end in zip(starts, [*starts[1:], len(row["input_ids"])], strict=True):
            ids = row["input_ids"][start:end]
            assert (ids[0], ids[-1]) == (CLS, SEP)
            pieces.append(
                (ids[1:-1], [s - start - 1 for s in row["sentence_starts"] if start < s < end])
            )
        assert sum(len(p[1]) for p in pieces[-len(starts) :]) == len(row["sentence_starts"])
    return pieces


documents_strategy = st.lists(st.lists(st.integers(0, 40), max_size=12), max_size=30)


@settings(max_examples=200)
@given(documents_strategy, st.integers(16, 64))
def test_every_token_once_in_its_document(documents, max_length):
    tokens = tokens_of(documents)
    table, counts = pack_documents(tokens, max_length, CLS, SEP, SCHEMA)
    assert all(len(row) <= max_length for row in table["input_ids"].to_pylist())
    pieces = sorted(pieces_of(table))
    assert [i for ids, _ in pieces for i in ids] == tokens.ids.tolist()
    document_of = np.repeat(np.arange(len(documents)), [sum(d) for d in documents])
    for ids, _ in pieces:
        assert len({int(document_of[i - 10]) for i in ids}) == 1
    ends = np.cumsum([sum(document) for document in documents], dtype=int).tolist()
    spans = zip([0, *ends[:-1]], ends, strict=True) if ends else ()
    fit = {tuple(range(10 + a, 10 + b)) for a, b in spans if 0 < b - a <= max_length - 2}
    assert fit <= {tuple(ids) for ids, _ in pieces}, "a document that fits is not cut"
    assert counts.documents == sum(sum(d) > 0 for d in documents)
    assert counts.empty_documents == sum(sum(d) == 0 for d in documents)
    assert counts.text_tokens == len(tokens.ids) == counts.tokens - 2 * counts.pieces
    assert counts.pieces == len(pieces)


@settings(max_examples=200)
@given(documents_strategy, st.integers(16, 64))
def test_cuts_are_at_sentences_where_they_can_be(documents, max_length):
    tokens = tokens_of(documents)
    table, counts = pack_documents(tokens, max_length, CLS, SEP, SCHEMA)
    begins = {10 + int(b) for b in tokens.sentence_offsets}
    inside = 0
    for ids, sentence_starts in sorted(pieces_of(table)):
        within = [i for i, token in enumerate(ids) if token in begins]
        assert sentence_starts == sorted({0, *within})
        if ids[-1] + 1 not in begins:
            inside += 1
            assert len(ids) == max_length - 2
            assert not set(within) - {0}
    assert counts.cut_sentences == inside


@pytest.mark.parametrize("max_length", [128, 512])
def test_fill(max_length):
    """Lengths as reviews have them: log-normal, a median of 70 tokens, sentences of 17."""
    draw = random.Random(0)
    documents = []
    for _ in range(4000):
        sentences = max(1, round(draw.lognormvariate(1.4, 0.9)))
        documents.append([1 + round(draw.lognormvariate(2.6, 0.6)) for _ in range(sentences)])
    table, counts = pack_documents(tokens_of(documents), max_length, CLS, SEP, SCHEMA)
    assert counts.sequences == table.num_rows
    assert counts.tokens / (counts.sequences * max_length) >= 0.99
    assert counts.pieces / len(documents) <= {128: 1.77, 512: 1.04}[max_length]


def test_ids_in_the_narrowest_type():
    small, _ = pack_documents(tokens_of([[5]]), 64, CLS, SEP, build_shard_schema(65_536))
    large, _ = pack_documents(tokens_of([[5]]), 64, CLS, SEP, build_shard_schema(65_537))
    assert str(small.schema.field("input_ids").type.value_type) == "uint16"
    assert str(large.schema.field("input_ids").type.value_type) == "uint32"
