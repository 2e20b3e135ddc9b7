"""What is learnt by default depends on what was loaded."""

import json

import pytest

from model.pretraining.adaptation.recipe import choose_settings, describe_settings
from tests.model.pretraining.adaptation.published import train, write_all


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return write_all(tmp_path_factory.mktemp("made"))


def write_config(folder, **fields):
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(fields))
    return folder


def test_an_encoder_of_berts_family_goes_on_as_a_masked_language_model(made, tmp_path, capsys):
    result = train(made, tmp_path, steps=2)
    assert "mlm_loss" in result
    assert "objective=mlm" in capsys.readouterr().err
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["pretraining"]["objective"] == "mlm"


def test_what_is_set_wins(made, tmp_path, capsys):
    result = train(made, tmp_path, "objective=electra", steps=2)
    assert "discriminator_loss" in result
    assert "objective=" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("kind", "head", "objective", "head_steps"),
    [
        ("bert", "BertModel", "mlm", "0.4"),
        ("bert", "BertForPreTraining", "mlm", None),
        ("distilbert", "DistilBertForMaskedLM", "mlm", None),
        ("roberta", "RobertaModel", "mlm", "0.4"),
        ("electra", "ElectraForPreTraining", None, None),
        ("electra", "ElectraForMaskedLM", "mlm", None),
    ],
)
def test_objective_and_settings_by_kind(tmp_path, kind, head, objective, head_steps):
    """A head that was published needs no steps of its own."""
    folder = write_config(tmp_path / "origin", model_type=kind, architectures=[head])
    chosen = choose_settings(folder, {})
    assert (chosen.get("objective"), chosen.get("head_steps")) == (objective, head_steps)


def test_a_checkpoint_without_a_config_is_googles_and_asks_for_nothing(tmp_path):
    assert choose_settings(tmp_path / "model.ckpt-7", {}) == {}


def test_another_objective_gets_none_of_the_settings(tmp_path):
    folder = write_config(tmp_path / "origin", model_type="bert", architectures=["BertModel"])
    assert choose_settings(folder, {"objective": "mlm+nsp"}) == {}


def test_an_electra_of_a_trunk_gets_a_generator_of_its_first_layers(made, tmp_path, capsys):
    chosen = {"generator_multiplier": "1", "generator_layers": "1"}
    assert choose_settings(made / "bert", {"objective": "electra"}) == chosen
    assert (
        choose_settings(made / "bert", {"objective": "electra", "generator_multiplier": "0.5"})
        == {}
    )
    assert choose_settings(made / "bert", {"objective": "electra", "generator_layers": "2"}) == {
        "generator_multiplier": "1"
    }
    train(made, tmp_path, "objective=electra", steps=2)
    assert "the generator of its first layers" in capsys.readouterr().err
    shape = json.loads((tmp_path / "generator" / "config.json").read_text())
    assert (shape["num_hidden_layers"], shape["hidden_size"]) == (1, 32)


def test_who_gives_one_rate_gets_no_other(tmp_path):
    folder = write_config(tmp_path / "origin", model_type="bert", architectures=["BertModel"])
    assert choose_settings(folder, {"learning_rate": "1e-3"}) == {"objective": "mlm"}
    told = describe_settings(folder, choose_settings(folder, {"objective": "mlm"}))
    assert "head_steps=0.4" in told
    assert "objective" not in told
    assert describe_settings(folder, {}) == ""


@pytest.mark.parametrize("head", ["BertModel", "ElectraForMaskedLM", "ElectraForPreTraining"])
def test_ten_probes_are_taken_of_whatever_is_probed(tmp_path, head):
    kind = "bert" if head == "BertModel" else "electra"
    folder = write_config(tmp_path / "origin", model_type=kind, architectures=[head])
    assert choose_settings(folder, {}, is_probed=True)["validate_every"] == "0"
    assert "validate_every" not in choose_settings(folder, {})
    assert "validate_every" not in choose_settings(folder, {"validate_every": "7"}, is_probed=True)
