"""Each kind of published encoder is loaded, adapted, stopped and resumed, averaged, fine-tuned,
exported, and loaded by others.
"""

import json
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
from transformers import AutoModelForMaskedLM, AutoTokenizer, pipeline

from amazon_electra.model.config import PretrainingConfig
from amazon_electra.model.encoders.weights import load_masked_lm
from amazon_electra.model.origin import write_origin
from amazon_electra.model.pretraining.network.transformers_mlm import TransformersMlm
from tests.beam_jobs.dumps import run_shard_steps
from tests.model.corpora import write_corpus
from tests.model.encoders.checkpoints import FOREIGN, KINDS, write_kind
from tests.model.finetuning.few_steps import tune
from tests.model.pretraining.runs import pretrain
from tests.model.pretraining.termination import terminated_at

STEPS, STOPPED = 12, 6
LIKE_OTHERS = ("BERT", "XLM-R")
"""Kinds that go the way of BERT with Unigram, and of RoBERTa."""
TEXTS = ["The lamp is great.", "Der Kessel ist kaputt! awful"]
SETTINGS = {"batch": 8, "log_every": 3, "precision": "fp32", "origin_average": 0.25}
SETTINGS |= {"dropout": 0.1}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    folder = write_corpus(tmp_path_factory.mktemp("kinds") / "corpus", reviews=500)
    splits = Counter(pq.read_table(folder)["split"].to_pylist())
    counts = {"read": 500, "kept": 500, "dropped": {}, "splits": splits}
    (folder / "corpus.json").write_text(json.dumps(counts))
    return folder


def adapt(folder: Path, name: str) -> dict:
    words = ("--start-from", folder / "origin", "--recipe", "published")
    return pretrain(folder / "shards", folder / name, *words, steps=STEPS, **SETTINGS)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in LIKE_OTHERS])
def test_a_kind_goes_all_the_way(kind, corpus, tmp_path):
    published = write_kind(tmp_path / "published", kind)
    about = write_origin(str(published), tmp_path / "origin")
    assert about["vocabulary_size"] == len(AutoTokenizer.from_pretrained(published))
    places = ["--corpus", corpus, "--vocabulary", tmp_path / "origin", "--max_length", 64]
    run_shard_steps([*map(str, places), "--output", str(tmp_path / "shards")])
    whole = adapt(tmp_path, "whole")
    with pytest.raises(SystemExit), terminated_at(STOPPED):
        adapt(tmp_path, "stopped")
    resumed = adapt(tmp_path, "stopped")
    encoder = Path(whole["encoder"])
    weights = "model.safetensors"
    assert (encoder / weights).read_bytes() == (Path(resumed["encoder"]) / weights).read_bytes()
    settings = json.loads((tmp_path / "whole" / "config.json").read_text())["pretraining"]
    assert settings["mask_probability"] == (0.3 if kind == "ModernBERT" else 0.15)
    assert settings["objective"] == ("electra" if kind == "ELECTRA" else "mlm")
    if kind in FOREIGN:
        check_module(published, encoder)

    (tmp_path / "corpus").symlink_to(corpus)
    tuned = tune(tmp_path, "cell", encoder=str(encoder.relative_to(tmp_path)))
    assert 0 <= tuned["dev"]["accuracy"] <= 1
    classify = pipeline("text-classification", model=str(tmp_path / "cell"))
    assert {one["label"] for one in classify(TEXTS)} <= {"negative", "positive"}


def check_module(published: Path, encoder: Path) -> None:
    """The adapted folder is of the published class and has its tokenizer; all of it has learned."""
    before, after = (AutoModelForMaskedLM.from_pretrained(f) for f in (published, encoder))
    assert type(before) is type(after)
    assert before.config.to_dict().keys() <= after.config.to_dict().keys()
    text = "The lamp is great. Überhaupt nicht! 蓋がすぐに壊れました。"
    ids = [AutoTokenizer.from_pretrained(f)(text)["input_ids"] for f in (published, encoder)]
    assert ids[0] == ids[1]
    others = before.base_model.state_dict()
    same = [n for n, w in after.base_model.named_parameters() if torch.equal(w, others[n])]
    assert not [name for name in same if "token_type" not in name], same


def test_trunk_and_head_learn_at_their_own_rates(tmp_path):
    """XLM-R's word vectors are listed as its head's, RoBERTa's as its trunk's."""
    for kind in ("XLM-R", "RoBERTa"):
        network, _ = load_masked_lm(write_kind(tmp_path / kind, kind))
        config = PretrainingConfig(steps=1, batch=2, learning_rate=1.0, objective="mlm")
        model = TransformersMlm(network, config, longest=64)
        trunk = dict(model.named_parameters())
        sizes = sum(trunk[name].numel() for name in model.list_trunk_names())
        assert sizes == sum(weight.numel() for weight in network.base_model.parameters())
