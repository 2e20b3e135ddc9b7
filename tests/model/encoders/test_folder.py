"""The job that brings a published encoder into a folder."""

import json
import os
import shutil
from contextlib import suppress

import pytest
import torch
import transformers
from safetensors.torch import load_file
from tokenizers import ByteLevelBPETokenizer, Tokenizer

from amazon_electra.beam_jobs.core.command_line import call_job
from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.model.encoders.config import count_positions, read_architecture, read_config
from amazon_electra.model.encoders.known import warn_of_languages
from amazon_electra.model.origin import load_origin
from tests.model.encoders.checkpoints import CHECKPOINTS, write_checkpoint, write_kind
from tests.refusals import refuses

FILES = {f"{name}.json" for name in ("config", "origin", "tokenizer", "tokenizer_config")}
FILES |= {"model.safetensors", "vocab.txt"}


def bring(place, output, *more):
    return call_job(load_origin, ["--place", str(place), "--output", str(output), *more])


def encode(folder):
    ids = torch.arange(5, 25)[None]
    with torch.no_grad():
        model = transformers.AutoModel.from_pretrained(folder).eval()
        return model(ids, attention_mask=torch.ones_like(ids)).last_hidden_state


@pytest.mark.parametrize("what", CHECKPOINTS)
def test_a_folder_of_each_kind(what, tmp_path):
    source = write_checkpoint(tmp_path / "published", what)
    about = bring(source, tmp_path / "out" / "origin")
    made = tmp_path / "out" / "origin"
    assert {file.name for file in made.iterdir()} == FILES
    assert json.loads((made / "origin.json").read_text()) == about
    assert about["kind"] == CHECKPOINTS[what][2]
    assert (about["hidden"], about["layers"], about["heads"]) == (32, 3, 4)
    assert (about["vocabulary_size"], about["lower_case"]) == (100, True)
    assert (about["max_positions"], about["trained_length"]) == (64, 64)
    assert (about["name"], about["license"]) == ("published", "unknown")
    trunk = transformers.AutoModel.from_pretrained(source)
    pooler = sum(p.numel() for n, p in trunk.named_parameters() if "pooler" in n)
    types = 64 if what.startswith("DistilBERT") else 0
    assert about["parameters"] == trunk.num_parameters() - pooler + types
    torch.testing.assert_close(encode(made), encode(source), atol=0, rtol=0)
    assert os.listdir(tmp_path / "out") == ["origin"]


@pytest.mark.parametrize("kind", ["bert", "distilbert", "roberta"])
@pytest.mark.parametrize("value", [["bert"], {"a": 1}, True, 0.5, -1, "", "x", None])
def test_a_field_of_another_type_is_no_crash(tmp_path, kind, value):
    """Every field of config.json in turn, before weights are read."""
    folder = write_checkpoint(tmp_path / "published")
    config = json.loads((folder / "config.json").read_text()) | {"model_type": kind}
    for name in (*config, "position_embedding_type", "trained_length", "pruned_heads"):
        (folder / "config.json").write_text(json.dumps(config | {name: value}))
        with suppress(UserError):
            found = read_config(folder)
            read_architecture(found)
            count_positions(found)


def test_a_bert_is_no_generator(tmp_path):
    source = write_checkpoint(tmp_path / "published", "ELECTRA's discriminator")
    other = write_checkpoint(tmp_path / "bert")
    with refuses(field="--generator", value=str(other)):
        bring(source, tmp_path / "origin", "--generator", str(other))
    assert not (tmp_path / "origin").exists()


def test_pickled_weights_become_safetensors(tmp_path):
    source = write_checkpoint(tmp_path / "published", "BERT with its head")
    expected = encode(source)
    weights = load_file(source / "model.safetensors")
    (source / "model.safetensors").unlink()
    torch.save(weights, source / "pytorch_model.bin")
    bring(source, tmp_path / "origin")
    assert {file.name for file in (tmp_path / "origin").iterdir()} == FILES
    torch.testing.assert_close(encode(tmp_path / "origin"), expected, atol=0, rtol=0)


class Evil:
    def __reduce__(self):
        return (os.mkdir, ("/tmp/ran-from-a-pickle",))


def spoil_with_code(folder):
    (folder / "model.safetensors").unlink()
    torch.save({"embeddings.word_embeddings.weight": Evil()}, folder / "pytorch_model.bin")


def cut_weights(folder):
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole[: len(whole) // 2])


def change_config(folder, **changed):
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changed))


def change_ids(folder, number):
    """Give the last entry of tokenizer.json this id."""
    file = folder / "tokenizer.json"
    told = json.loads(file.read_text())
    told["model"]["vocab"][max(told["model"]["vocab"], key=told["model"]["vocab"].get)] = number
    file.write_text(json.dumps(told))


def drop_tokenizer(folder):
    for name in ("tokenizer.json", "vocab.txt"):
        (folder / name).unlink()


@pytest.mark.parametrize(
    ("spoil", "named"),
    [
        *(({"model_type": kind}, f"model_type={kind}") for kind in ("t5", "gpt2", "vit", "mine")),
        ({"model_type": "modernbert"}, "config.json"),
        ({"is_decoder": True}, "a decoder"),
        ({"add_cross_attention": True}, "cross-attention"),
        ({"auto_map": {"AutoModel": "a.B"}}, "code of its own"),
        ({"hidden_size": None}, "hidden"),
        ({"hidden_size": 33}, "config.json: hidden 33: "),
        ({"hidden_size": 16}, "(64, 16)"),
        ({"intermediate_size": 9}, "dense.weight=(9"),
        ({"vocab_size": 99}, "vocab_size=99"),
        (lambda folder: (folder / "config.json").unlink(), "config.json"),
        (lambda folder: (folder / "config.json").write_text("[]"), "config.json"),
        (lambda folder: (folder / "config.json").write_text("[" * 100_000), "config.json"),
        (lambda folder: (folder / "model.safetensors").unlink(), "model.safetensors"),
        (cut_weights, "model.safetensors"),
        (spoil_with_code, "pytorch_model.bin"),
        *(
            (lambda folder, number=number: change_ids(folder, number), "tokenizer.json")
            for number in (4_000_000_000, -1, 1, float("inf"), "x")
        ),
        (lambda folder: (folder / "tokenizer.json").write_text("[]"), "tokenizer.json"),
        ({"num_hidden_layers": 4}, "layers=4"),
        (lambda folder: ByteLevelBPETokenizer().save(f"{folder}/tokenizer.json"), "mask token"),
        (drop_tokenizer, "tokenizer.json"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(spoil, named, tmp_path):
    source = write_checkpoint(tmp_path / "published")
    change_config(source, **spoil) if isinstance(spoil, dict) else spoil(source)
    with refuses(f" {source}: ", named):
        bring(source, tmp_path / "origin")
    assert os.listdir(tmp_path) == ["published"]
    assert not os.path.exists("/tmp/ran-from-a-pickle")


@pytest.mark.parametrize(
    ("written", "asked", "named"),
    [
        ({"vocab_size": 100}, {}, "100 rows"),
        ({"vocab_size": 5000}, {}, "5000 rows"),
        ({}, {"num_hidden_layers": 3}, "config.json"),
    ],
)
def test_a_module_that_does_not_fit_is_named(written, asked, named, tmp_path):
    source = write_kind(tmp_path / "published", "XLM-R", **written)
    change_config(source, **asked)
    with refuses(f" {source}: ", named):
        bring(source, tmp_path / "origin")
    assert os.listdir(tmp_path) == ["published"]


def test_byte_pairs_without_a_tokenizer_json_are_converted(tmp_path):
    source = write_kind(tmp_path / "published", "RoBERTa")
    fast = Tokenizer.from_file(str(source / "tokenizer.json"))
    fast.model.save(str(source))  # vocab.json and merges.txt
    (source / "tokenizer.json").unlink()
    names = {"tokenizer_class": "RobertaTokenizer", "mask_token": "<mask>"}
    (source / "tokenizer_config.json").write_text(json.dumps(names))
    bring(source, tmp_path / "origin")
    converted = Tokenizer.from_file(str(tmp_path / "origin" / "tokenizer.json"))
    text = "The kettle broke; schöne Farbe, 蓋が!"
    assert converted.encode(text).ids == fast.encode(text).ids


def test_a_package_is_read_and_never_imported(tmp_path, monkeypatch):
    module = tmp_path / "site" / "tiny_published"
    write_checkpoint(module / "model")
    (module / "__init__.py").write_text("raise SystemExit('this code was run')\n")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    about = bring("package:tiny-published", tmp_path / "origin")
    assert (about["name"], about["revision"]) == ("tiny_published", None)
    with refuses(field="--place", value="package:no-such"):
        bring("package:no-such", tmp_path / "other")
    shutil.copytree(module / "model", module / "b")
    with refuses(field="--place", value="package:tiny_published"):
        bring("package:tiny_published", tmp_path / "other")


MIXED = {"de": 60, "en": 30, "nl": 10}


@pytest.mark.parametrize(
    ("about", "reviews", "told"),
    [
        ({"name": "mini", "languages": "en"}, MIXED, "60% of the reviews are in the language de"),
        ({"name": "mini", "languages": "de"}, MIXED, "30% of the reviews are in the language en"),
        ({"name": "mini", "languages": "english, code, de"}, MIXED, "mini reads de"),
        ({"name": "mini", "languages": "en, de"}, MIXED, ""),
        ({"name": "mini", "languages": "unknown"}, MIXED, ""),
        ({"name": "roberta-base", "languages": "unknown"}, MIXED, "roberta-base reads en"),
        ({"name": "mini", "languages": "multilingual, en"}, MIXED, ""),
        ({"name": "nb-bert", "languages": "no"}, {"nb": 10}, ""),
    ],
)
def test_a_language_that_an_encoder_does_not_read(about, reviews, told):
    found = warn_of_languages(about, reviews)
    assert told in found
    assert bool(found) == bool(told)
