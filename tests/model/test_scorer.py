"""The exported program gives what the classifier gives, for any batch and length."""

import unicodedata

import pytest
import torch
from tokenizers import Tokenizer, models, normalizers
from transformers import ElectraConfig, ElectraModel

from beam_jobs.scoring.classifier import UnitScorer
from model import scorer
from model.finetuning.features.featurizer import keep_letters
from model.finetuning.network.heads import MeanPooledClassifier
from model.scoring.program import ProbabilityModel, export_program
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


@pytest.mark.parametrize("form", ["fp32", "bf16", "int8"])
def test_a_scorer_of_each_form_is_loaded_by_the_job_and_described(finetuned, tmp_path, form):
    described = make_scorer(finetuned, tmp_path, "--form", form, "--tolerance", "1")
    assert described["form"] == form
    card = (tmp_path / "README.md").read_text()
    assert described["sha256"] in card
    agreement = described["agreement"]
    if form == "fp32":
        assert agreement is None
    else:
        assert agreement["reviews"] > 20
        changed = f"{agreement['changed_labels']} of {agreement['reviews']} dev reviews"
        assert f"| Labels that {form} changes | {changed} |" in card
        assert 0 < agreement["largest_difference"] < 0.1
    ids = torch.randint(5, 100, (4, 8))
    loaded = UnitScorer(str(tmp_path), "").load_model()
    probabilities = loaded.program(ids, torch.ones_like(ids))
    assert probabilities.shape == (4, 2)
    assert probabilities.dtype == torch.float32


@pytest.mark.parametrize(("has_bf16", "tolerance"), [(True, 1.0), (True, 0.0), (False, 1.0)])
def test_auto_takes_bf16_where_it_is_fast_and_changes_no_more_labels_than_allowed(
    finetuned, tmp_path, monkeypatch, capsys, has_bf16, tolerance
):
    monkeypatch.setattr(scorer, "has_fast_bf16_products", lambda: has_bf16)
    spoil = scorer.convert_form

    def negate(network, form):
        """In bf16 every label changes: the tolerance decides."""
        network.classifier.classifier.out_proj.weight.data.neg_()
        network.classifier.classifier.out_proj.bias.data.neg_()
        return spoil(network, form)

    monkeypatch.setattr(scorer, "convert_form", negate)
    described = make_scorer(finetuned, tmp_path, "--tolerance", str(tolerance))
    is_bf16 = has_bf16 and tolerance == 1.0
    assert described["form"] == ("bf16" if is_bf16 else "fp32")
    assert ("fp32 is taken" in capsys.readouterr().err) == (has_bf16 and not is_bf16)


def test_without_the_data_auto_changes_nothing_and_a_named_form_is_not_compared(
    finetuned, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(scorer, "find_training_data", lambda model: None)
    monkeypatch.setattr(scorer, "has_fast_bf16_products", lambda: True)
    for asked, expected in (("auto", "fp32"), ("int8", "int8")):
        described = make_scorer(finetuned, tmp_path, "--form", asked)
        assert (described["form"], described["agreement"]) == (expected, None)
        assert "is not compared with fp32" in capsys.readouterr().err
