"""The exported folder gives everybody the labels of our own evaluation.

sentence-transformers and skops take seconds to import, so only the test that needs them does.
"""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import mlflow.pyfunc
import numpy as np
import pandas as pd
import pytest
import torch
from transformers import (
    AutoModel,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    RobertaConfig,
    RobertaModel,
    pipeline,
)

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.beam_jobs.core.files import write_json
from amazon_electra.beam_jobs.core.model_folder import QUANTIZED, apply_temperature
from amazon_electra.beam_jobs.scoring.classifier import hash_model, load_classifier
from amazon_electra.beam_jobs.scoring.explanation import explain
from amazon_electra.model import export
from amazon_electra.model.arms import onnx
from amazon_electra.model.arms.arm import Resources
from amazon_electra.model.arms.out_of_fold import OutOfFold
from amazon_electra.model.evaluation import choice
from amazon_electra.model.evaluation.predictions import Predictions, read_predictions
from amazon_electra.model.finetune import FinetuneConfig, finetune
from amazon_electra.model.finetuning.examples import Sampling, load_examples
from amazon_electra.model.finetuning.tasks import find_task
from amazon_electra.model.tracking.served_model import write_served_model
from tests.libraries import INT8, Expected, list_libraries
from tests.model.corpora import (
    write_bert,
    write_corpus,
    write_distilbert,
    write_electra,
    write_tokenizer,
)
from tests.model.finetuning.few_steps import LEARN, LEARNING, tune

TASK = find_task("polarity")
OTHERS = ("electra", "distilbert")
"""The whole graph exports an ELECTRA, in tests/end_to_end."""


def write_roberta(folder):
    """One token type, and positions that count from the padding."""
    size = write_tokenizer(folder)
    shape = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = RobertaConfig(
        vocab_size=size, **shape, intermediate_size=64, max_position_embeddings=130,
        type_vocab_size=1, pad_token_id=0,
    )  # fmt: skip
    RobertaModel(config).save_pretrained(folder)


ENCODERS = {"electra": write_electra, "distilbert": write_distilbert, "roberta": write_roberta}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("export")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    write_corpus(folder / "corpus")
    return folder


def make_encoder(made, name):
    folder = made / name
    return folder if folder.exists() else write_bert(folder)


def make_cell(made, arm):
    """Return the folder of a fine-tuned arm; `-test` is its evaluation."""
    if arm == "stack":
        return make_stack(made)
    cell = made / f"{arm}-cell"
    if not cell.exists():
        if arm in ENCODERS:
            ENCODERS[arm](made / arm)
        is_of_states = arm in ("frozen", "joined")
        encoder = f"{arm}:{make_encoder(made, 'bert')}" if is_of_states else arm
        tune(made, cell.name, *LEARN, "--evaluation", f"{cell}-test", encoder=encoder)
    return cell


def make_stack(made):
    """Return the folder of a stack of roberta and TF-IDF; `-test` is its evaluation."""
    cell = made / "stack-cell"
    if not cell.exists():
        parts = [make_cell(made, arm) for arm in ("roberta", "tfidf")]
        config = FinetuneConfig(
            task="polarity",
            arm="stack",
            settings=dict(setting.split("=") for setting in LEARNING),
        )
        finetune(
            config,
            made / "corpus",
            cell,
            encoder=made / "roberta",
            parts=parts,
            evaluation=f"{cell}-test",
        )
    return cell


def run_export(made, output, *arms, options=()):
    cells = {arm: make_cell(made, arm) for arm in arms}
    tests = [f"{cell}-test" for cell in cells.values()]
    places = ["--task", "polarity", "--data", str(made / "corpus"), "--output", str(output)]
    told = [f"{arm}={cell}" for arm, cell in cells.items()]
    return export.run(["--cells", *told, "--evaluations", *tests, *places, *options])


@pytest.mark.parametrize(
    "arm",
    [
        "roberta",
        "tfidf",
        "frozen",
        "joined",
        "stack",
        *(pytest.param(arm, marks=pytest.mark.slow) for arm in OTHERS),
    ],
)
def test_everybody_gets_the_labels_of_our_own_evaluation(made, tmp_path, arm):
    examples = load_examples(TASK, made / "corpus", "test", Sampling())
    texts = [example.text for example in examples]
    told = read_predictions(Path(f"{make_cell(made, arm)}-test", "predictions.parquet"))
    by_id = dict(zip(told.ids, told.predictions, strict=True))
    expected = [TASK.labels[by_id[example.id]] for example in examples]
    folder = tmp_path / "folder"
    results = run_export(made, folder, arm)
    written = json.loads((folder / "results.json").read_text())
    assert results == {name: value for name, value in written.items() if name != "arms"}
    config = json.loads((folder / "config.json").read_text())
    assert config["id2label"] == {"0": "negative", "1": "positive"}
    assert config["temperature"] == 1, "the weights hold it"

    write_served_model(folder, tmp_path / "served")
    served = mlflow.pyfunc.load_model(str(tmp_path / "served"))
    answers = served.predict(pd.DataFrame({"text": texts}))
    assert answers["label"].tolist() == expected
    assert [sum(one.values()) for one in answers["probabilities"]] == pytest.approx(
        [1] * len(texts)
    )
    assert not list((tmp_path / "served").rglob("*.pkl"))
    card = (folder / "README.md").read_text()
    assert "majority class" in card
    assert "Expected calibration error: on those" in card
    assert "is the rarest" in card
    cell = export.ExportCell(arm, make_cell(made, arm))
    fitted = cell.arm_class.load(cell.folder, Resources("cpu", "fp32"))
    test = Expected(texts, export.predict_texts(fitted, results["temperature"], texts))
    libraries = dict(list_libraries(folder))
    assert {name for name, answer in libraries.items() if test.measure(answer) > 1e-5} <= {INT8}
    if arm == "tfidf":
        import skops.io

        regression = skops.io.load(folder / "model.skops")
        assert regression.predict(texts).tolist() == expected
        check_calibrated(folder, texts, results, regression.predict_proba(texts))
        return
    if arm in ("joined", "stack"):
        assert (INT8 in libraries) == any(folder.rglob(QUANTIZED))
        assert all(results["questions"]["words"].values())
        [(_, weights)] = explain(folder, texts[:1])
        assert weights[0][1] > 0
        assert "first 48 tokens of a text" in card
        check_parts(folder, texts, answers, arm)
        return
    if arm == "frozen":
        check_frozen(folder, made / "bert", texts, answers)
        return

    classify = pipeline("text-classification", model=str(folder), top_k=None)
    by_label = [
        {one["label"]: one["score"] for one in row} for row in classify(texts, truncation=True)
    ]
    assert [max(row, key=row.get) for row in by_label] == expected
    check_calibrated(
        folder, texts, results, [[row[label] for label in TASK.labels] for row in by_label]
    )
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert tokenizer.model_max_length == 48
    batch = tokenizer(texts, padding=True, truncation=True, return_tensors="pt")
    with torch.no_grad():
        logits = model(**batch).logits.numpy()
    assert [TASK.labels[place] for place in logits.argmax(1)] == expected
    from sentence_transformers import SentenceTransformer

    states = SentenceTransformer(str(folder), device="cpu").encode(texts)
    with torch.no_grad():
        first = model.base_model(**batch).last_hidden_state[:, 0].numpy()
    assert np.abs(states - first).max() < 1e-5, "the state that the head classifies"
    pairs = [(text, None) for text in texts]
    found = onnx.run_onnx(folder / "model.onnx", folder / "tokenizer.json", pairs)
    assert np.abs(found - logits).max() < 1e-4
    assert (found.argmax(1) == logits.argmax(1)).all()
    assert config["amazon_electra"]["max_length"] == 48
    assert results["int8"]["kept"] == (folder / QUANTIZED).exists()
    if results["int8"]["kept"]:
        classifier = load_classifier(str(folder), "int8")
        alone = np.concatenate([classifier.score([text]) for text in texts])
        assert np.abs(classifier.score(texts[::-1])[::-1] - alone).max() < 1e-5
    assert (config["hidden_size"], config["num_hidden_layers"]) == (32, 2)
    assert "first 48 tokens of a text" in card
    lengths = [len(ids) for ids in tokenizer(texts)["input_ids"]]
    cut = onnx.count_cut(folder / "tokenizer.json", pairs)
    assert cut == {"max_length": 48, "texts": len(texts), "cut": sum(n > 48 for n in lengths)}
    assert 0 < cut["cut"] < len(texts)
    assert results["cut"]["cut"] > 0
    dropout = "dropout" if arm == "distilbert" else "hidden_dropout_prob"
    assert config[dropout] == 0.1
    model.save_pretrained(tmp_path / "again")


def check_calibrated(folder, texts, results, probabilities):
    """Others give the probabilities of `score`, which are not those of a temperature of 1."""
    scored = load_classifier(str(folder), "fp32").score(texts)
    assert np.abs(scored - np.array(probabilities)).max() < 1e-5
    assert results["temperature"] != 1


def check_parts(folder, texts, answers, arm):
    """`score` gives the probabilities of MLflow's server, and a part that is missing, damaged or of
    another folder is refused in one line.
    """
    probabilities = [[row[label] for label in TASK.labels] for row in answers["probabilities"]]
    scored = load_classifier(str(folder), "fp32").score(texts)
    assert np.abs(scored - np.array(probabilities)).max() < 1e-6
    config = json.loads((folder / "config.json").read_text())
    names = [part["folder"] for part in config["amazon_electra"]["parts"]]
    words = {"joined": "words", "stack": "tfidf"}[arm]
    assert names == {"joined": ["words", "states"], "stack": ["finetuned", "tfidf"]}[arm]
    with pytest.raises((OSError, ValueError)):
        pipeline("text-classification", model=str(folder))
    before = hash_model(str(folder), "fp32")
    (folder / words / "model.skops").write_bytes(b"damaged")
    assert hash_model(str(folder), "fp32") != before
    with pytest.raises(UserError, match=words):
        load_classifier(str(folder), "fp32")
    for place in (f"../{words}", "none"):
        config["amazon_electra"]["parts"][0]["folder"] = place
        write_json(folder / "config.json", config)
        with pytest.raises(UserError, match=place):
            load_classifier(str(folder), "fp32")


def check_frozen(folder, encoder, texts, answers):
    """`score` gives the probabilities of MLflow's server, transformers refuses the folder, and
    sentence-transformers gives the mean of the encoder's last states.
    """
    probabilities = [[row[label] for label in TASK.labels] for row in answers["probabilities"]]
    scored = load_classifier(str(folder), "fp32").score(texts)
    assert np.abs(scored - np.array(probabilities)).max() < 1e-6
    with pytest.raises((OSError, ValueError)):
        pipeline("text-classification", model=str(folder))
    from sentence_transformers import SentenceTransformer

    states = SentenceTransformer(str(folder), device="cpu").encode(texts[:3])
    batch = AutoTokenizer.from_pretrained(folder / "encoder")(texts[:3], truncation=True)
    model = AutoModel.from_pretrained(encoder).eval()
    for state, ids in zip(states, batch["input_ids"], strict=True):
        with torch.no_grad():
            mean = model(torch.tensor([ids])).last_hidden_state[0].mean(0).numpy()
        assert np.abs(state - mean).max() < 1e-5


def test_the_best_arm_by_its_calibrated_loss_is_exported_not_its_luckiest_seed(tmp_path):
    draw = np.random.default_rng(0)
    labels = draw.integers(0, 2, 2_000)

    def cell(arm, seed, noise, factor=1.0):
        folder = tmp_path / f"{arm}-{seed}"
        folder.mkdir()
        write_json(folder / "result.json", {"seed": seed})
        write_json(folder / "task.json", {"kind": "finetuned"})
        right = np.eye(2)[labels] * 2 + draw.normal(size=(len(labels), 2)) * noise
        ids = [str(i) for i in range(len(labels))]
        folds = np.zeros(len(labels), np.int64)
        OutOfFold(ids, labels, (right * factor).astype(np.float32), folds).save(folder)
        return export.ExportCell(arm, folder)

    cells = [cell("a", 0, 0.7), cell("a", 1, 4.0), cell("b", 0, 1.1), cell("b", 1, 1.0)]
    assert choice.choose_best(cells).folder.name == "b-1"
    cells += [cell("c", 0, 0.9, 20), cell("c", 1, 0.8, 20)]
    assert choice.choose_best(cells).folder.name == "c-1", "too sure, which is calibrated"


def test_random_weights_are_no_candidate_however_well_they_do(made, tmp_path):
    cell = make_cell(made, "roberta")
    shutil.copytree(cell, made / "random-cell")
    shutil.copytree(f"{cell}-test", made / "random-cell-test")
    told = json.loads((made / "random-cell" / "result.json").read_text())
    write_json(made / "random-cell" / "result.json", told | {"encoder": "random"})
    held_out = OutOfFold.load(made / "random-cell")
    sure = np.eye(2, dtype=np.float32)[held_out.labels] * 20
    replace(held_out, logits=sure).save(made / "random-cell")
    results = run_export(made, tmp_path / "folder", "random", "tfidf")
    assert (results["arm"], results["best_arm"]) == ("tfidf", "random")
    card = (tmp_path / "folder" / "README.md").read_text()
    assert "random was best, whose encoder is untrained; this is seed" in card
    with pytest.raises(UserError, match="cells: "):
        run_export(made, tmp_path / "alone", "random")


def test_the_temperature_is_found_that_the_logits_were_multiplied_with():
    generator = np.random.default_rng(0)
    logits = generator.normal(size=(20_000, 3))
    right = apply_temperature(logits, 1.0)
    labels = (right.cumsum(1) < generator.random((len(right), 1))).sum(1)
    sure = apply_temperature(logits, 1 / 3)
    ids = [str(i) for i in range(len(labels))]
    dev = Predictions(
        ids, labels.tolist(), sure.argmax(1).tolist(), np.zeros(len(ids)), sure, n_classes=3
    )
    temperature = choice.fit_temperature(dev)
    assert temperature == pytest.approx(3, rel=0.05)
    errors = export.compare_calibration(dev, temperature)
    assert errors["after"] < 0.02 < errors["before"]


def test_mistakes_are_named(made, tmp_path):
    with pytest.raises(UserError, match=r"cells: /nowhere .*task.json"):
        export.check_cells(export.read_cells(["x=/nowhere"], []))
    cell = make_cell(made, "roberta")
    with pytest.raises(UserError, match="`evaluations`"):
        export.read_cells([str(cell)], [Path("a"), Path("b")])
