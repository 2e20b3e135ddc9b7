"""Fine-tuning leaves a whole model folder, and takes as encoder any folder that is whole and has no
code of its own.
"""

import json
import os
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from amazon_electra.model.finetuning import network
from amazon_electra.model.finetuning.tasks import find_task
from tests.model.corpora import write_electra
from tests.model.finetuning.few_steps import tune
from tests.refusals import refuses


def without(folder, copy, unwanted):
    """A copy of the folder whose weights file has not what the name says."""
    shutil.copytree(folder, copy)
    weights = load_file(copy / "model.safetensors")
    weights = {name: w for name, w in weights.items() if unwanted not in name}
    save_file(weights, copy / "model.safetensors", metadata={"format": "pt"})


def lose_a_layer(folder):
    without(folder.parent / "bert", folder, "layer.1.")


def take_another_config(folder):
    shutil.copytree(folder.parent / "bert", folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"intermediate_size": 96}))


def cut_off_weights(folder):
    shutil.copytree(folder.parent / "bert", folder)
    os.truncate(folder / "model.safetensors", 5000)


@pytest.mark.parametrize(
    ("damage", "named"),
    [(lose_a_layer, "layer.1.attention"), (take_another_config, ""), (cut_off_weights, "")],
)
def test_a_damaged_encoder_is_told_in_one_line(made, damage, named):
    damage(made / damage.__name__)
    with refuses(made / damage.__name__, named):
        tune(made, "unmade", encoder=damage.__name__)


def test_with_or_without_pooler_the_head_is_same(made):
    """Else a published encoder, which has a trained pooler, would be compared with one that was
    trained on without.
    """
    without(made / "bert", made / "unpooled", "pooler")
    for seed in (1, 2):
        heads = []
        for encoder in ("bert", "unpooled"):
            torch.manual_seed(seed)
            model = network.build_network(str(made / encoder), None, find_task("polarity"))
            heads.append({n: w for n, w in model.state_dict().items() if "encoder." not in n})
        assert any("pooler" in name for name in heads[0])
        assert all(torch.equal(w, heads[1][name]) for name, w in heads[0].items())
    assert tune(made, "pooled", encoder="unpooled")["n_dev"] > 0


def test_a_folder_without_its_head_is_refused(made, learnt):
    without(made / "learnt", made / "headless", "classifier")
    with refuses("headless", "classifier.dense.bias"):
        network.load_finetuned(made / "headless")


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json"])
def test_code_of_a_folder_is_not_run(tmp_path, name):
    """transformers would ask on the terminal whether to run it, and "y" would."""
    write_electra(tmp_path / "encoder")
    (tmp_path / "encoder" / "tokenizer.json").unlink(missing_ok=True)
    marker = tmp_path / "code ran"
    code = f"import pathlib\npathlib.Path({str(marker)!r}).touch()\nclass Own: pass\n"
    (tmp_path / "encoder" / "own.py").write_text(code)
    file = tmp_path / "encoder" / name
    fields = json.loads(file.read_text()) if file.exists() else {}
    own = {"AutoConfig": "own.Own", "AutoModel": "own.Own", "AutoTokenizer": ["own.Own", None]}
    file.write_text(json.dumps(fields | {"model_type": "own", "auto_map": own}))
    folder = str(tmp_path / "encoder")
    if name == "config.json":
        with refuses(field="encoder", value=folder):
            network.build_network(folder, None, find_task("polarity"))
    network.load_tokenizer(folder)
    assert not marker.exists()
