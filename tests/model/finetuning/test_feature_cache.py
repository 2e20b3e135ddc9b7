"""Features read back are those that were made, of the same sources alone; files do not pile up."""

import os
from dataclasses import replace

import numpy as np
import pytest

from amazon_electra.model.finetuning import features
from amazon_electra.model.finetuning.features import Featurizer, load_features
from amazon_electra.model.finetuning.network import load_tokenizer
from tests.model.corpora import examples_of_every_shape, write_tokenizer


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    write_tokenizer(folder)
    return load_tokenizer(str(folder))


@pytest.fixture
def made(monkeypatch):
    """The numbers of examples that were tokenized, one for each call."""
    made, stream = [], Featurizer.stream_features

    def note_call(featurizer, examples):
        made.append(len(examples))
        return stream(featurizer, examples)

    monkeypatch.setattr(Featurizer, "stream_features", note_call)
    return made


SHAPES = dict(examples_of_every_shape())


@pytest.mark.parametrize("shape", SHAPES)
def test_features_are_tokenized_once(shape, tokenizer, made, tmp_path):
    featurizer = Featurizer(tokenizer, shape, max_length=48, stride=16)
    expected = featurizer(SHAPES[shape])
    made.clear()
    for _ in range(2):
        features = list(load_features(featurizer, SHAPES[shape], tmp_path / "cache"))
        assert made == [len(SHAPES[shape])]
        for one, other in zip(features, expected, strict=True):
            assert (one.example, one.target) == (other.example, other.target)
            assert type(one.target) is type(other.target)
            for mine, theirs in (
                *zip(one.ids, other.ids, strict=True),
                *zip(one.types, other.types, strict=True),
                (one.offsets, other.offsets),
                (one.words, other.words),
            ):
                assert mine.dtype == theirs.dtype
                np.testing.assert_array_equal(mine, theirs)


def test_other_sources_have_a_file_of_their_own(tokenizer, made, tmp_path):
    examples = SHAPES["classification"]
    featurizer = Featurizer(tokenizer, "classification", max_length=48)
    others = (
        (featurizer, examples),
        (replace(featurizer, max_length=3), examples),
        (featurizer, [replace(examples[0], text="kettle"), *examples[1:]]),
        (featurizer, [replace(examples[0], label=1), *examples[1:]]),
        (featurizer, examples[::-1]),
    )
    for one, some in others:
        found = list(load_features(one, some, tmp_path))
        assert [f.target for f in found] == [e.label for e in some]
        assert max(f.length for f in found) <= one.max_length
    assert len(made) == len(list(tmp_path.iterdir())) == len(others)
    for one, some in others:
        list(load_features(one, some, tmp_path))
    assert len(made) == len(others)


def test_a_damaged_file_is_made_again(tokenizer, made, tmp_path):
    examples = SHAPES["classification"]
    featurizer = Featurizer(tokenizer, "classification", max_length=48)
    first = list(load_features(featurizer, examples, tmp_path))
    [file] = tmp_path.iterdir()
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    again = list(load_features(featurizer, examples, tmp_path))
    assert [f.ids[0].tolist() for f in again] == [f.ids[0].tolist() for f in first]
    assert file.read_bytes() == whole


def test_the_files_unused_for_longest_go(tokenizer, made, tmp_path, monkeypatch):
    featurizer = Featurizer(tokenizer, "classification", max_length=48)
    examples = SHAPES["classification"]

    def load(number):
        list(load_features(featurizer, examples[:number], tmp_path))

    load(2)
    [oldest] = tmp_path.iterdir()
    load(3)
    [other] = set(tmp_path.iterdir()) - {oldest}
    for age, file in enumerate((other, oldest)):
        os.utime(file, (age, age))
    os.utime(oldest, (0, 0))
    load(2)  # is used again now
    monkeypatch.setattr(features, "FOLDER_BYTES", 2 * oldest.stat().st_size + 200)
    load(4)
    left = set(tmp_path.iterdir())
    assert oldest in left
    assert other not in left
    assert len(left) == 2


def test_nothing_is_kept_of_too_many(tokenizer, made, tmp_path, monkeypatch):
    featurizer = Featurizer(tokenizer, "classification", max_length=48)
    examples = SHAPES["classification"]
    assert len(list(load_features(featurizer, examples, None))) == len(examples)
    monkeypatch.setattr(features, "MAX_EXAMPLES", len(examples) - 1)
    assert len(list(load_features(featurizer, examples, tmp_path))) == len(examples)
    assert list(load_features(featurizer, [], tmp_path)) == []
    assert list(tmp_path.iterdir()) == []
