"""What stands for a text of a published encoder, the first token or the mean, is the same from the
arm that is fitted to the folder that is served.
"""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from transformers import AutoConfig, AutoModel, AutoTokenizer

from amazon_electra.beam_jobs.core.command_line import call_job
from amazon_electra.beam_jobs.core.special_tokens import find_specials
from amazon_electra.beam_jobs.scoring.classifier import load_classifier
from amazon_electra.model import export
from amazon_electra.model.arms.arm import Resources
from amazon_electra.model.arms.frozen import Frozen
from amazon_electra.model.config import ContrastiveConfig, TrainingResources
from amazon_electra.model.contrastive import adapt_contrastively
from amazon_electra.model.encoders.config import POOLING
from amazon_electra.model.encoders.known import KNOWN, find_known, warn_of_amazon
from amazon_electra.model.finetuning.examples import Example
from amazon_electra.model.finetuning.network import load_tokenizer
from amazon_electra.model.origin import write_origin
from tests import corpus_folder
from tests.beam_jobs.dumps import run_shard_steps
from tests.libraries import INT8, list_libraries
from tests.model.corpora import write_corpus
from tests.model.encoders.checkpoints import write_kind
from tests.model.finetuning.few_steps import tune
from tests.model.pretraining.runs import pretrain
from tests.tokenizer_kinds import TEXT

TEXTS = ["The lamp is great and number 3.", "really awful", "broken book. really."]
LONG = "great book, really awful lamp number 3. " * 20
CLS = {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}
CASES = {
    "own": ("BERT", CLS, "cls"),
    "multilingual-e5-small": ("BERT with Unigram, as multilingual E5", {}, "mean"),
    "modern": ("ModernBERT", CLS, "cls"),
}
"""By the folder's name: kind, 1_Pooling/config.json, and what is found."""


def write_case(folder, name):
    kind, its_pooling, pooling = CASES[name]
    published = write_kind(folder / name, kind)
    (published / "1_Pooling").mkdir()
    (published / "1_Pooling" / "config.json").write_text(json.dumps(its_pooling))
    about = write_origin(str(published), folder / "origin")
    assert about["pooling"] == pooling
    return published, pooling


def compute_expected(published, texts, pooling):
    """Return the states of all layers by transformers alone, [texts, layers * width]."""
    tokenizer, model = (one.from_pretrained(published) for one in (AutoTokenizer, AutoModel))
    rows = []
    for text in texts:
        ids = torch.tensor([tokenizer(text)["input_ids"]])
        with torch.no_grad():
            layers = model.eval()(ids, output_hidden_states=True).hidden_states[1:]
        states = torch.cat(layers, -1)[0]
        rows.append(states[0] if pooling == "cls" else states.mean(0))
    return torch.stack(rows).numpy()


@pytest.mark.parametrize("name", ["own", "modern"])
def test_a_served_folder_reads_as_its_card_wants(name, tmp_path):
    published, pooling = write_case(tmp_path, name)
    find_specials(load_tokenizer(str(tmp_path / "origin")))
    write_corpus(tmp_path / "corpus", reviews=300)

    tune(tmp_path, "cell", "--arm", "frozen", encoder="origin")
    arm = Frozen.load(tmp_path / "cell", Resources("cpu", "fp32"))
    expected = compute_expected(published, TEXTS, pooling)
    states = arm.compute_states([Example(str(row), text) for row, text in enumerate(TEXTS)])
    assert np.abs(states - expected).max() < 1e-4

    folder = tmp_path / "exported"
    cells = ["--cells", f"arm={tmp_path / 'cell'}", "--data", str(tmp_path / "corpus")]
    result = call_job(export.export, [*cells, "--task", "polarity", "--output", str(folder)])
    assert result["checked"]["largest_difference"] < 1e-5
    classifier = load_classifier(str(folder), "fp32")
    best = arm.layer.compute_logits(expected).argmax(1)
    assert classifier.score(TEXTS).argmax(1).tolist() == best.tolist()

    texts = [*TEXTS, LONG]  # the last is longer than what it reads
    ways = dict(list_libraries(folder, tmp_path))
    ways.pop(INT8, None)
    for way, answer in ways.items():
        assert np.abs(answer(texts) - classifier.score(texts)).max() < 1e-5, way
    embedded = SentenceTransformer(str(folder), device="cpu").encode(TEXTS)
    assert np.abs(embedded - expected[:, -embedded.shape[1] :]).max() < 1e-4


@pytest.mark.parametrize("name", ["own", "multilingual-e5-small"])
def test_adaptation_keeps_the_pooling(name, tmp_path):
    _, pooling = write_case(tmp_path, name)
    corpus, origin, shards = (tmp_path / part for part in ("corpus", "origin", "shards"))
    titled = [[f"good {word} here", f"the lamp {word} is bad book"] for word in TEXT]
    corpus_folder.write_corpus(corpus, titled, has_title=True)
    config = ContrastiveConfig(batch=16, epochs=1, precision="fp32", learning_rate=1e-9)
    cpu = TrainingResources(device="cpu")
    made = adapt_contrastively(config, origin, [corpus], tmp_path / "made", cpu)
    words = ["--corpus", corpus, "--vocabulary", origin, "--output", shards, "--max_length", 64]
    run_shard_steps([*map(str, words)])
    more = ("--start-from", origin, "--recipe", "published")
    masked = pretrain(shards, tmp_path / "masked", *more, steps=2, batch=4)
    for encoder in (made.encoder, masked["encoder"]):
        read = json.loads(Path(encoder, "1_Pooling", "config.json").read_text())
        assert read["pooling_mode_cls_token"] is (pooling == "cls")
        assert AutoConfig.from_pretrained(encoder).to_dict().get(POOLING, "mean") == pooling


def test_the_list_says_who_has_seen_amazon():
    names = {one.name for one in KNOWN if one.amazon}
    assert {"BAAI/bge-small-en-v1.5", "thenlper/gte-base"} <= names
    assert find_known("./models/gte-base@main") is find_known("thenlper/gte-base")
    assert "2308.03281" in warn_of_amazon({"name": "thenlper/gte-base@abc"})
    assert not warn_of_amazon({"name": "FacebookAI/roberta-base"})
