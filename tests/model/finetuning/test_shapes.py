"""The five shapes of task from file to measured model, each learnt by a network of two small
layers.
"""

import json

import numpy as np
import pytest
from transformers import AutoModelForQuestionAnswering, AutoModelForTokenClassification

from amazon_electra.beam_jobs.core.command_line import call_job
from amazon_electra.model import evaluate, finetune
from tests.model.corpora import BAD, GOOD, THINGS
from tests.model.finetuning.few_steps import format_settings, load_whole
from tests.refusals import refuses

SETTINGS = ("epochs=12", "max_length=48", "layer_decay=1.0", "batch=16", "n_dev=60")
SPANS = (*SETTINGS, "stride=16")


def make_folder(folder):
    folder.mkdir()
    return folder


def learn(made, task, data, encoder="electra", name="model", chosen=SETTINGS):
    """Fine-tune and evaluate on test; return the model folder and the value of each metric."""
    output = made / f"{name}-{task.split(':')[0]}"
    words = ["--encoder", str(made / encoder), "--task", task, "--data", str(data)]
    words += [*format_settings(*chosen), "--learning_rates", "4e-3", "--output", str(output)]
    call_job(finetune.finetune, [*words, "--evaluation", str(output / "test")])
    result = json.loads((output / "test" / "metrics.json").read_text())
    return output, {name: metric["value"] for name, metric in result["metrics"].items()}


def test_regression(made):
    data, generator = make_folder(made / "numbers"), np.random.default_rng(0)
    for name, number in (("train", 300), ("dev", 60)):
        rows = ["sentence1\tsentence2\tscore"]
        for _ in range(number):
            good = int(generator.integers(0, 6))
            words = [*generator.choice(GOOD, good), *generator.choice(BAD, 5 - good)]
            rows.append(f"{' '.join(generator.permutation(words))}\tnumber\t{good}")
        (data / f"{name}.tsv").write_text("\n".join(rows))
    _, metrics = learn(made, "sts-b", data)
    assert metrics["pearson"] > 0.9
    assert metrics["spearman"] > 0.9


def test_span(made):
    data, generator = make_folder(made / "answers"), np.random.default_rng(0)
    paragraphs = []
    for i in range(260):
        thing, other = generator.choice(THINGS, 2, replace=False)
        passage = f"the {thing} is {generator.choice(GOOD)} . "
        passage += f"the {other} is {generator.choice(BAD)} . number {i}"
        opinion = next(w for w in passage.split() if w in BAD)
        answers = [{"text": opinion, "answer_start": passage.index(opinion)}] if i % 4 else []
        question = "what is awful ?" if answers else "who works in london ?"
        qas = [{"id": str(i), "question": question, "answers": answers}]
        paragraphs.append({"context": passage, "qas": qas})
    (data / "all.json").write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}))
    output, metrics = learn(made, "squad2", data, chosen=SPANS)
    assert metrics["exact_match"] > 0.8
    answers = json.loads((output / "test" / "answers.json").read_text())
    assert any(not answer for answer in answers.values())
    load_whole(output, AutoModelForQuestionAnswering)


def test_a_state_has_its_own_best_threshold(made):
    """The dev score that chose the state is the score of the written model, threshold included; at
    threshold 0 a network this little trained would be judged by another number.
    """
    data, generator = make_folder(made / "hard"), np.random.default_rng(1)
    output = made / "hard-squad2"
    paragraphs = []
    for i in range(300):
        words = generator.choice([*GOOD, *BAD, *THINGS], 24).tolist()
        start = sum(len(word) + 1 for word in words[:12])
        answers = [{"text": words[12], "answer_start": start}] if i % 2 else []
        qas = [{"id": str(i), "question": f"what is {words[11]} ?", "answers": answers}]
        paragraphs.append({"context": " ".join(words), "qas": qas})
    (data / "all.json").write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}))
    arguments = ["--task", "squad2", "--data", str(data)]
    settings = format_settings(*SPANS, "epochs=3", "evaluations_per_epoch=2", "precision=fp32")
    folders = ["--encoder", str(made / "electra"), "--output", str(output)]
    settings += ["--learning_rates", "3e-4"]
    result = call_job(finetune.finetune, [*folders, *arguments, *settings])
    on_dev = ["--output", str(output / "dev"), "--split", "dev"]
    measured = call_job(evaluate.evaluate, ["--model", str(output), *arguments, *on_dev])
    scores = measured["metrics"]
    assert result["dev"]["answer_f1"] == pytest.approx(scores["answer_f1"]["value"])
    assert result["dev"]["exact_match"] == pytest.approx(scores["exact_match"]["value"])
    assert json.loads((output / "task.json").read_text())["threshold"] != 0.0


def test_tokens(made):
    data, generator = make_folder(made / "entities"), np.random.default_rng(0)
    for split, n in (("train", 150), ("valid", 60), ("test", 60)):
        lines = []
        for number in range(n):
            thing, good = generator.choice(THINGS), generator.choice(GOOD)
            place = "in O|London B-LOC" if generator.random() < 0.5 else "on O|Peter B-PER"
            lines += f"{split}{number} O|The O|{thing} B-MISC|is O|{good} O|{place}|".split("|")
        (data / f"{split}.txt").write_text("\n".join(lines))
    output, metrics = learn(made, "conll2003", data, "bert")
    assert metrics["entity_f1"] > 0.95
    load_whole(output, AutoModelForTokenClassification)


def test_choice(made):
    data, generator = make_folder(made / "endings"), np.random.default_rng(0)
    for split, n in (("train", 200), ("val", 60)):
        rows = ["sent1,sent2,ending0,ending1,ending2,ending3,label"]
        for number in range(n):
            right, thing = int(generator.integers(4)), generator.choice(THINGS)
            words = [generator.choice(GOOD if i == right else BAD) for i in range(4)]
            endings = ",".join(f"is {word}" for word in words)
            rows.append(f"The {thing} works {split} {number}.,It,{endings},{right}")
        (data / f"{split}.csv").write_text("\n".join(rows))
    short = (*SETTINGS, "epochs=4", "max_length=24")
    assert learn(made, "swag", data, chosen=short)[1]["accuracy"] > 0.9


def test_mnli_is_measured_on_both_dev_sets(made):
    data = make_folder(made / "MNLI")
    labels = ("entailment", "contradiction", "neutral")
    for name, n in (("train", 60), ("dev_matched", 40), ("dev_mismatched", 50)):
        rows = ["index\tsentence1\tsentence2\tgold_label"]
        rows += [f"{i}\tthe lamp {name} {i}\tthe lamp\t{labels[i % 3]}" for i in range(n)]
        (data / f"{name}.tsv").write_text("\n".join(rows) + "\n")
    output, _ = learn(made, "mnli", data, chosen=(*SETTINGS, "epochs=1"))
    given = ["--model", str(output), "--data", str(data), "--output", str(made / "mm"), "--task"]
    with refuses(field="--task", value="wnli"):
        call_job(evaluate.evaluate, [*given, "wnli"])
    mismatched = call_job(evaluate.evaluate, [*given, "mnli-mm"])
    assert (mismatched["task"], mismatched["n"]) == ("mnli-mm", 50)
