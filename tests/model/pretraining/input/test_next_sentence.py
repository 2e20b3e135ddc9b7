"""Pairs of segments: which are exchanged, for what, and how they lie in their row."""

import itertools

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from amazon_electra.model.pretraining.input.next_sentence import make_pairs
from tests.model.pretraining.input.rows import CLS, SEP, build_rows
from tests.model.pretraining.runs import SHAPE, pretrain
from tests.model.synthetic_shards import write_shards

LENGTH = 48
PAIRS = ("pair_places", "pair_not_next", "pair_weights")


def number_documents(shapes):
    """Rows of documents of sentences of these lengths; every id occurs once."""
    ids = itertools.count(10)
    return [
        [[[next(ids) for _ in range(n)] for n in document] for document in row] for row in shapes
    ]


def read_documents(pairs, i):
    """(ids, types) of each document of a row, in which all else is padding."""
    numbers = pairs["documents"][i]
    assert (np.diff(numbers[numbers > 0]) >= 0).all()
    assert not pairs["input_ids"][i][numbers == 0].any()
    assert not pairs["types"][i][numbers == 0].any()
    read = []
    for number in range(1, numbers.max() + 1):
        here = np.flatnonzero(numbers == number)
        assert here.tolist() == list(range(here[0], here[0] + len(here)))
        assert pairs["positions"][i, here].tolist() == list(range(len(here)))
        read.append((pairs["input_ids"][i, here].tolist(), pairs["types"][i, here].tolist()))
    return read


def flatten(sentences):
    return [token for sentence in sentences for token in sentence]


@pytest.mark.parametrize("seed", range(5))
def test_second_halves_are_of_documents_of_the_batch(seed):
    batch = number_documents([[(4, 3, 5), (6,), (2, 7)], [(3, 3), (5, 2)], [(8,)]])
    pairs = make_pairs(np.random.default_rng(seed), build_rows(batch, LENGTH), CLS, SEP)
    pair_documents = [d for row in batch for d in row if len(d) > 1]
    for i, row in enumerate(batch):
        read = read_documents(pairs, i)
        assert len(read) == len(row)
        expected = iter(zip(*(pairs[name][i] for name in PAIRS), strict=True))
        at = 0
        for document, (ids, types) in zip(row, read, strict=True):
            if len(document) == 1:
                assert ids == [CLS, *document[0], SEP]
                assert not any(types)
            else:
                place, not_next, weight = next(expected)
                assert (place, weight) == (at, 1)
                middle = ids.index(SEP)
                assert types == [0] * (middle + 1) + [1] * (len(ids) - middle - 1)
                first, second = ids[1:middle], ids[middle + 1 : -1]
                assert (ids[0], ids[-1]) == (CLS, SEP)
                ends = [sum(map(len, document[:k])) for k in range(1, len(document))]
                assert len(first) in ends, "cut at the start of a later sentence"
                assert first == flatten(document)[: len(first)]
                rest = flatten(document)[len(first) :]
                if not_next:
                    others = [flatten(d) for d in pair_documents if d is not document]
                    [source] = [d for d in others if second[0] in d]
                    begin = source.index(second[0])
                    assert second == source[begin : begin + len(rest)]
                else:
                    assert second == rest
            at += len(ids)
        assert not any(weight for *_, weight in expected)


def test_half_are_exchanged():
    batch = number_documents([[(3, 3, 3), (2, 2)], [(4, 4)]])
    rows, rng = build_rows(batch, LENGTH), np.random.default_rng(0)
    exchanged, cuts, partners = [], [], []
    for _ in range(2000):
        pairs = make_pairs(rng, rows, CLS, SEP)
        exchanged += pairs["pair_not_next"][pairs["pair_weights"] > 0].tolist()
        (ids, _), *_ = read_documents(pairs, 0)
        middle = ids.index(SEP)
        cuts.append(middle - 1 == 3)
        if pairs["pair_not_next"][0, 0]:
            partners.append(ids[middle + 1] in flatten(batch[1][0]))
    assert len(exchanged) == 6000
    assert np.mean(exchanged) == pytest.approx(0.5, abs=0.03)
    assert np.mean(cuts) == pytest.approx(0.5, abs=0.04)
    assert np.mean(partners) == pytest.approx(0.5, abs=0.06)


def test_the_only_pair_keeps_its_second_half():
    rows = build_rows(number_documents([[(3, 3), (4,)]]), LENGTH)
    for seed in range(10):
        pairs = make_pairs(np.random.default_rng(seed), rows, CLS, SEP)
        assert (pairs["pair_weights"].sum(), pairs["pair_not_next"].sum()) == (1, 0)


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    return write_shards(tmp_path_factory.mktemp("shards"), sequences=128, length=64)


@pytest.mark.parametrize(("probability", "are_equal"), [(0, True), (0.5, False)])
def test_an_untrained_type_is_exported_as_type_0(shards, tmp_path, probability, are_equal):
    pretrain(shards, tmp_path, steps=2, segment_probability=probability, **SHAPE)
    for network in ("discriminator", "generator"):
        weights = load_file(tmp_path / network / "model.safetensors")
        types = weights["electra.embeddings.token_type_embeddings.weight"]
        assert torch.equal(types[0], types[1]) == are_equal
