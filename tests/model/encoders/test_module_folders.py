"""Folders of encoders that transformers' own module holds: what is wrong with one is told in a
line, and a slow tokenizer is converted where that is possible.
"""

import json

import pytest
from tokenizers import Tokenizer

from amazon_electra.model.origin import write_origin
from tests.model.encoders.published_kinds import write_kind
from tests.refusals import refuses


@pytest.mark.parametrize(
    ("written", "asked", "named"),
    [
        ({"vocab_size": 100}, {}, "100 rows"),
        ({"vocab_size": 5000}, {}, "5000 rows"),
        ({}, {"num_hidden_layers": 3}, "config.json"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(written, asked, named, tmp_path):
    source = write_kind(tmp_path / "published", "XLM-R", **written)
    file = source / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | asked))
    with refuses(f" {source}: ", named):
        write_origin(str(source), tmp_path / "origin")
    assert not (tmp_path / "origin").exists()


def test_byte_pairs_without_a_tokenizer_json_are_converted(tmp_path):
    source = write_kind(tmp_path / "published", "RoBERTa")
    fast = Tokenizer.from_file(str(source / "tokenizer.json"))
    fast.model.save(str(source))  # vocab.json and merges.txt
    (source / "tokenizer.json").unlink()
    names = {"tokenizer_class": "RobertaTokenizer", "mask_token": "<mask>"}
    (source / "tokenizer_config.json").write_text(json.dumps(names))
    write_origin(str(source), tmp_path / "origin")
    converted = Tokenizer.from_file(str(tmp_path / "origin" / "tokenizer.json"))
    text = "The kettle broke; schöne Farbe, 蓋が!"
    assert converted.encode(text).ids == fast.encode(text).ids
