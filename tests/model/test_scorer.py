"""The exported program gives what the classifier gives, for any batch and length."""

import unicodedata

import pytest
import torch
from tokenizers import Tokenizer, models, normalizers
from transformers import ElectraConfig, ElectraModel

from model import scorer
from model.finetuning.features.featurizer import keep_letters
from model.finetuning.network.heads import MeanPooledClassifier
from model.scorer import ProbabilityModel, export_program


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
