"""The exported program gives what the classifier gives, for any batch and length."""

import unicodedata

import pytest
import torch
from tokenizers import Tokenizer, models, normalizers
from transformers import ElectraConfig, ElectraModel

from beam_jobs.scoring.classifier import UnitScorer
from model import scorer
from model.finetuning.features import keep_letters
from model.finetuning.heads import MeanPooledClassifier
from model.finetuning.network import load_finetuned
from model.scorer import ProbabilityModel, export_program
from tests.model.corpora import write_finetuned


@pytest.mark.parametrize(("batch", "length", "padding"), [(1, 2, 0), (5, 16, 7), (3, 9, 2)])
def test_the_program_equals_the_classifier(batch, length, padding):
    torch.manual_seed(0)
    config = ElectraConfig(
        vocab_size=120,
        hidden_size=16,
        embedding_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_labels=3,
    )
    module = ProbabilityModel(MeanPooledClassifier(ElectraModel(config), 3)).eval()
    program = export_program(module, 16).module()
    ids, mask = torch.randint(5, 100, (batch, length)), torch.ones(batch, length, dtype=torch.long)
    mask[0, length - padding :] = 0
    with torch.no_grad():
        torch.testing.assert_close(program(ids, mask), module(ids, mask), atol=1e-6, rtol=1e-5)


def test_the_scorers_tokenizer_cleans_as_the_fine_tuning_did(tmp_path):
    known = (
        chr(code)
        for code in range(1, 0x20000)
        if unicodedata.category(chr(code)) not in {"Cn", "Cs"}
    )
    texts = [f"a{character}b" for character in known]
    texts += ["Bought 2 for $3.50 — GREAT, isn't it?!", "  très_bon 😀 ok ", ""]
    plain = Tokenizer(models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    plain.normalizer = normalizers.Lowercase()
    plain.save(str(tmp_path / "tokenizer.json"))
    letters = scorer.load_cleaning_tokenizer(tmp_path / "tokenizer.json", "letters").normalizer
    assert [letters.normalize_str(text).strip() for text in texts] == [
        keep_letters(text).lower() for text in texts
    ]
    assert (
        scorer.load_cleaning_tokenizer(
            tmp_path / "tokenizer.json", "none"
        ).normalizer.normalize_str("A 2!")
        == "a 2!"
    )


@pytest.fixture(scope="module")
def finetuned(tmp_path_factory):
    return write_finetuned(tmp_path_factory.mktemp("finetuned"))


def make_scorer(finetuned, output, *more):
    return scorer.run(["--model", str(finetuned / "model"), "--output", str(output), *more])


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_scorer_is_loaded_by_the_job_and_gives_what_the_classifier_does(
    finetuned, tmp_path, precision
):
    described = make_scorer(finetuned, tmp_path, "--precision", precision)
    assert described["precision"] == precision
    assert described["sha256"] in (tmp_path / "README.md").read_text()
    ids, mask = torch.randint(5, 100, (4, 8)), torch.ones(4, 8, dtype=torch.long)
    mask[1, 5:] = 0
    probabilities = UnitScorer(str(tmp_path), "").load_model().program(ids, mask)
    model, _, _ = load_finetuned(finetuned / "model")
    with torch.no_grad():
        expected = model(input_ids=ids, attention_mask=mask).logits.softmax(-1)
    most = 1e-5 if precision == "fp32" else 0.05
    torch.testing.assert_close(probabilities, expected, atol=most, rtol=0)


@pytest.mark.parametrize("has_bf16", [True, False])
def test_auto_takes_bf16_where_it_is_fast(finetuned, tmp_path, monkeypatch, has_bf16):
    monkeypatch.setattr(scorer, "has_fast_bf16_products", lambda: has_bf16)
    assert make_scorer(finetuned, tmp_path)["precision"] == ("bf16" if has_bf16 else "fp32")
