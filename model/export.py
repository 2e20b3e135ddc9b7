"""Write the model folder that others load: `python -m amazon_electra.model.export --cells ARM=DIR…
--data CORPUS --task NAME --output DIR`.

The best arm by dev becomes a folder for AutoModelForSequenceClassification, pipeline(), ONNX
Runtime and text-embeddings-inference; or, as its arm says (model/arms), one for ONNX Runtime alone,
one of TF-IDF, or a folder of such folders whose logits are added. `temperature` in config.json
divides the logits before the softmax; it was fitted on dev, and is 1 where the weights hold it.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from typing_extensions import Doc

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.beam_jobs.core.files import make_writable_folder, write_json
from amazon_electra.beam_jobs.core.terminal import print
from amazon_electra.beam_jobs.model_folder.copies import save_sketches
from amazon_electra.beam_jobs.model_folder.probabilities import apply_temperature, take_logarithms
from amazon_electra.beam_jobs.model_folder.words import Words
from amazon_electra.model.arms import find_arm
from amazon_electra.model.arms.arm import Arm, Format, Resources, write_config
from amazon_electra.model.arms.out_of_fold import OutOfFold
from amazon_electra.model.check import check_folder, choose_examples, load_folder
from amazon_electra.model.config import DATA, TARGET_ACCURACY, TASK, FinetuningSettings
from amazon_electra.model.encoders.known import describe_start
from amazon_electra.model.evaluation.choice import (
    apply_calibration,
    average_arms,
    fit_calibration,
    fit_temperature,
    make_held_out_predictions,
    rank_arms,
)
from amazon_electra.model.evaluation.metrics import (
    METRICS,
    compute_metric,
    list_figures,
)
from amazon_electra.model.evaluation.predict import choose_thresholds, predict_sets
from amazon_electra.model.evaluation.predictions import Predictions, read_predictions
from amazon_electra.model.evaluation.significance import compare_arms
from amazon_electra.model.finetuning.examples import Example, Split, Task, load_examples
from amazon_electra.model.finetuning.head import NETWORK
from amazon_electra.model.finetuning.request import choose_sampling
from amazon_electra.model.finetuning.tasks import find_task
from amazon_electra.model.questions.drift import MAX_KNOWN, write_profile
from amazon_electra.model.questions.of_model import answer_questions, answer_set_questions
from amazon_electra.model.report.document import render_template
from amazon_electra.model.report.owner import COST
from amazon_electra.model.results import ExportResult

LIBRARIES = {
    "transformers": "transformers",
    "onnx": "onnxruntime",
    "words": "scikit-learn",
    "skops": "scikit-learn",
    "parts": "amazon-electra",
}
"""Library of an exported folder, by its format."""
NAME = "amazon-electra"
NEVER = 2.0
"""Threshold that no probability reaches."""
METRIC_TYPES = {"macro_f1": "f1", "matthews": "matthews_correlation"}
"""Names on the Hugging Face hub where they differ from ours."""


@dataclass(frozen=True)
class ExportCell:
    """A fine-tuned folder, or that of a baseline, and its evaluation on test."""

    arm: str
    folder: Path
    evaluation: Path | None = None

    @cached_property
    def result(self) -> dict[str, Any]:
        return dict(json.loads((self.folder / "result.json").read_text(encoding="utf-8")))

    @cached_property
    def described(self) -> dict[str, Any]:
        """Content of task.json."""
        return dict(json.loads((self.folder / "task.json").read_text(encoding="utf-8")))

    @cached_property
    def measured(self) -> dict[str, Any]:
        """Content of the evaluation's metrics.json; empty where there is none."""
        if self.evaluation is None:
            return {}
        return dict(json.loads((self.evaluation / "metrics.json").read_text(encoding="utf-8")))

    @property
    def arm_class(self) -> type[Arm]:
        return find_arm(str(self.described.get("kind", NETWORK)))

    @property
    def is_random(self) -> bool:
        """Whether its encoder began with random weights: an arm that others are measured by."""
        return self.result.get("encoder") == "random"

    @property
    def is_candidate(self) -> bool:
        """Whether it may become the model."""
        return not self.is_random

    @property
    def seed(self) -> int:
        return int(self.result["seed"])

    @property
    def dev(self) -> dict[str, float]:
        """The metrics on what chose it, dev or held-out folds, the main one first."""
        return dict(self.result["dev"])

    @cached_property
    def tested(self) -> Predictions | None:
        """Predictions on test; None where there is no evaluation."""
        folder = self.evaluation
        return read_predictions(folder / "predictions.parquet") if folder else None

    @cached_property
    def held_out(self) -> OutOfFold:
        """Predictions that chose it, of examples that it did not learn from."""
        return OutOfFold.load(self.folder)


def export(
    cells: Annotated[
        Sequence[str | ExportCell],
        Doc("[ARM=]DIR: folders that model.finetune wrote; those of one arm differ in the seed"),
    ],
    task: Annotated[str, TASK],
    data: Annotated[str | Path, DATA],
    output: Annotated[str | Path, Doc("folder for the model")],
    *,
    evaluations: Annotated[
        Sequence[str | Path],
        Doc("evaluations of the cells on test, in the same order; none: no test results"),
    ] = (),
    target_accuracy: Annotated[float | None, Doc(TARGET_ACCURACY)] = None,
    cache: Annotated[
        str | Path | None, Doc("folder of tokens and states that model.finetune filled")
    ] = None,
) -> ExportResult:
    """Write the model folder of the best arm by dev to `output`, results.json last.

    With a target accuracy config.json has the probability from which on so many answers are right.
    """
    data, output = Path(data), Path(output)
    cells = read_cells(cells, evaluations)
    check_cells(cells)
    found = find_task(task, data, tuple(cells[0].described["labels"]))
    if found.shape not in ("classification", "multilabel"):
        raise UserError(f"task: {task} is {found.shape}; only classifiers are exported")
    folder = Path(cache) if cache else None
    return write_model(cells, found, data, output, target_accuracy, folder)


def write_model(
    cells: Sequence[ExportCell],
    task: Task,
    data: Path,
    output: Path,
    target: float | None,
    cache: Path | None,
) -> ExportResult:
    """Write the folder, results.json last."""
    make_writable_folder("output", output)
    if cache:
        cache.mkdir(parents=True, exist_ok=True)
    metric = task.metrics[0]
    ranked = rank_arms(cells)
    best = next(cell for cell in ranked if cell.is_candidate)
    trained = json.loads((best.folder / "run.json").read_text(encoding="utf-8"))
    settings = FinetuningSettings.from_run(trained)
    has_dev, is_multilabel = settings.selection == "dev", task.shape == "multilabel"

    def load(split: Split) -> Sequence[Example]:
        sampling = choose_sampling(settings, split, trained["seed"])
        return load_examples(task, data, split, sampling)

    trained_on, chosen_on = load("train"), load("dev") if has_dev else []
    fitted = best.arm_class.load(best.folder, Resources("cpu", "fp32", cache))
    dev = make_held_out_predictions(best.held_out)
    test = best.tested
    temperature = fit_temperature(dev)
    exported = fitted.export(output, temperature, task)
    held_out = best.held_out.divide(temperature)
    tested = OutOfFold.of_predictions(test, temperature) if test else None
    if is_multilabel:
        if target:
            print(
                f"{task.name}: no target accuracy: a text may have several answers", file=sys.stderr
            )
        several = {"thresholds": list_thresholds(best.held_out, temperature)}
        exported = replace(exported, config={**exported.config, **several})
        questions = answer_set_questions(held_out, tested, task, data, output)
    else:
        questions = answer_questions(
            held_out,
            tested,
            task,
            data,
            output,
            partial(predict_texts, fitted, temperature),
            target,
            find_words(fitted, ranked),
            average_arms([(one.held_out, one.tested) for one in ranked if one.is_candidate]),
        )
        if target:
            threshold = questions["trust"]["asked"]["threshold"]
            decided = {"decided_from": NEVER if threshold is None else threshold}
            exported = replace(exported, config={**exported.config, **decided})
    described = best.described
    write_config(output, best.arm_class, exported, described["task"], described["labels"])
    classifier = load_folder(output)
    checked = choose_examples((chosen_on or trained_on)[:MAX_KNOWN])
    exact = apply_temperature(fitted.predict_logits(checked), temperature, is_multilabel)
    facts, milliseconds = check_folder(output, classifier, checked, exact)
    write_profile(held_out, tested, trained_on[:MAX_KNOWN], task, data, output)
    size = sum(file.stat().st_size for file in output.rglob("*") if file.is_file())
    cost = {"megabytes": round(size / 1e6, 2), "milliseconds": round(milliseconds, 2)}
    write_json(output / COST, cost)
    save_sketches([example.text for example in (*trained_on, *chosen_on)], output)
    results = {
        "task": task.name,
        "labels": list(task.labels),
        "metric": metric,
        "arm": best.arm,
        "seed": best.seed,
        "kind": best.arm_class.name,
        "best_arm": ranked[0].arm,
        "chosen_on": "dev" if has_dev else "held-out folds of the training examples",
        "selection": settings.selection,
        "n_chosen_on": len(best.held_out),
        "arms": summarize_arms(cells, task.metrics),
        "temperature": temperature,
        "is_calibrated": exported.temperature == 1,
        "calibration": {
            split: compare_calibration(predictions, temperature)
            for split, predictions in (("dev", dev), ("test", test))
            if predictions and "ece" in task.metrics
        },
        "thresholds": exported.config.get("thresholds", []),
        "n_test": len(test) if test else 0,
        "classes": list_figures(test, task.labels) if test else [],
        "against": compare_with_simple_models(best, cells, test, task.metrics),
        **exported.facts,
        **facts,
        "questions": questions,
    }
    write_card(best, exported.format, task, results, output)
    write_json(output / "results.json", results)
    return ExportResult.of({name: value for name, value in results.items() if name != "arms"})


def find_words(fitted: Arm, cells: Sequence[ExportCell]) -> Words | None:
    """Return the TF-IDF in a fitted arm, or else of a cell without an encoder."""
    for cell in cells if fitted.words is None else ():
        if not cell.arm_class.reads_encoder:
            return cell.arm_class.load(cell.folder, Resources("cpu", "fp32")).words
    return fitted.words


def read_cells(
    given: Sequence[str | ExportCell], evaluations: Sequence[str | Path]
) -> list[ExportCell]:
    """Return the cells of ARM=DIR, or DIR alone, whose arm has the folder's name."""
    if evaluations and len(evaluations) != len(given):
        raise UserError(f"give one for each of the {len(given)} `cells`, or none", "evaluations")
    cells = []
    for place, text in enumerate(given):
        if isinstance(text, ExportCell):
            cells.append(text)
            continue
        arm, equals, folder = text.rpartition("=")
        path = Path(folder)
        evaluation = Path(evaluations[place]) if evaluations else None
        cells.append(ExportCell(arm if equals else path.name, path, evaluation))
    return cells


def check_cells(cells: Sequence[ExportCell]) -> None:
    """Raise UserError where a folder is none of model.finetune, or none can become the model."""
    for cell in cells:
        for name in ("task.json", "result.json"):
            if not (cell.folder / name).exists():
                raise UserError(
                    f"cells: {cell.folder} has no {name}; give folders made by model.finetune"
                )
    if not any(cell.is_candidate for cell in cells):
        raise UserError("cells: random weights are no candidate; give another arm too")


def compare_calibration(predictions: Predictions, temperature: float) -> dict[str, float]:
    """Return the expected calibration error without and with the temperature."""
    assert predictions.probabilities is not None
    probabilities = apply_temperature(take_logarithms(predictions.probabilities), temperature)
    tempered = replace(predictions, probabilities=probabilities)
    return {"before": compute_metric("ece", predictions), "after": compute_metric("ece", tempered)}


def list_thresholds(held_out: OutOfFold, temperature: float) -> list[float]:
    """Return the probability of each class of a multi-label task from which on a text has it."""
    logits = choose_thresholds(held_out.logits, held_out.labels)
    return apply_temperature(logits, temperature, is_multilabel=True).tolist()


def predict_texts(arm: Arm, temperature: float, texts: Sequence[str]) -> np.ndarray:
    """Return calibrated probabilities [texts, classes]."""
    logits = arm.predict_logits([Example(str(i), text) for i, text in enumerate(texts)])
    return apply_temperature(np.asarray(logits), temperature)


def summarize_arms(cells: Sequence[ExportCell], metrics: Sequence[str]) -> list[dict[str, Any]]:
    """Return for each arm the mean over its seeds of every metric on dev and on test."""
    rows = []
    for arm in dict.fromkeys(cell.arm for cell in cells):
        own = [cell for cell in cells if cell.arm == arm]
        splits = {"dev": [cell.dev for cell in own]}
        if all(cell.evaluation for cell in own):
            splits["test"] = [
                {name: metric["value"] for name, metric in cell.measured["metrics"].items()}
                for cell in own
            ]
        means = {
            split: {name: float(np.mean([one[name] for one in values])) for name in metrics}
            for split, values in splits.items()
        }
        rows.append({"arm": arm, "kind": own[0].arm_class.name, "seeds": len(own), **means})
    return rows


def compare_with_simple_models(
    best: ExportCell, cells: Sequence[ExportCell], test: Predictions | None, metrics: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """Return the difference on test to the model that always answers the most frequent class, and
    to the arms without an encoder: of the first metric, and as `loss` and `macro_f1` of these. Arms
    are compared on the same seed where they have it.

    Log-losses are of calibrated probabilities (`fit_calibration`); the first model's probabilities
    are the shares of the classes among the held-out examples.
    """
    if test is None:
        return {}
    own, others = (
        calibrate_test(best),
        {"majority class": answer_most_frequent(best.held_out, test)},
    )
    for arm in dict.fromkeys(cell.arm for cell in cells if cell.arm != best.arm):
        of_arm = [cell for cell in cells if cell.arm == arm and cell.evaluation]
        if not of_arm or of_arm[0].arm_class.reads_encoder:
            continue
        others[arm] = calibrate_test(next((c for c in of_arm if c.seed == best.seed), of_arm[0]))
    return {
        arm: {
            **compare_metric(metrics[0], own, other),
            **{name: compare_metric(name, own, other) for name in ("loss", "macro_f1")},
        }
        for arm, other in others.items()
    }


def compare_metric(metric: str, own: Predictions, other: Predictions) -> dict[str, float]:
    c = compare_arms(METRICS[metric], [own], [other])
    return {"difference": c.difference, "low": c.low, "high": c.high}


def calibrate_test(cell: ExportCell) -> Predictions:
    """Return the predictions on test, calibrated on the held-out examples."""
    assert cell.tested
    calibration = fit_calibration(make_held_out_predictions(cell.held_out))
    return apply_calibration(cell.tested, calibration)


def answer_most_frequent(held_out: OutOfFold, test: Predictions) -> Predictions:
    """Return the predictions of the model that knows nothing but the shares of the classes."""
    if test.is_multilabel:
        shares = (held_out.labels.sum(0) + 1) / (len(held_out) + 2)
        examples = [Example(one, "") for one in test.ids]
        logits = np.tile(np.log(shares / (1 - shares)), (len(test), 1))
        return predict_sets(logits, test.gold_array, examples)
    counts = np.bincount(held_out.labels, minlength=test.n_classes) + 1  # rule of succession
    shares = counts / counts.sum()
    return replace(
        test,
        predictions=[int(counts.argmax())] * len(test),
        probabilities=np.tile(shares.astype(np.float32), (len(test), 1)),
        loss=-np.log(shares[test.gold_array]),
    )


def write_card(
    cell: ExportCell, kind: Format, task: Task, results: Mapping[str, Any], output: Path
) -> None:
    """Write README.md: results, licence, labels, calibration, what int8 changes."""
    from huggingface_hub import EvalResult, ModelCardData

    start = Path(json.loads((cell.folder / "run.json").read_text(encoding="utf-8"))["encoder"])
    encoder = describe_start(start) if start.is_dir() else {}
    license = encoder.get("license", "unknown")
    measured = cell.measured.get("metrics", {})
    data = ModelCardData(
        license=license if license != "unknown" else None,
        library_name=LIBRARIES[kind],
        pipeline_tag="text-classification",
        model_name=NAME,
        eval_results=[
            EvalResult(
                task_type="text-classification",
                dataset_type=task.name,
                dataset_name=task.name,
                dataset_split="test",
                metric_type=METRIC_TYPES.get(name, name),
                metric_name=METRICS[name].title,
                metric_value=round(value["value"], 4),
            )
            for name, value in measured.items()
            if np.isfinite(value["value"])
        ],
    )
    text = render_template(
        "classifier_card.md.j2",
        front_matter=data.to_yaml(),
        name=NAME,
        question=task.question or task.source,
        labels=", ".join(task.labels),
        format=kind,
        results=results,
        encoder=encoder,
        rare=min(results["classes"], key=lambda one: one["n"], default=None),
    )
    (output / "README.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    from amazon_electra.beam_jobs.core.command_line import run_as_command

    run_as_command(export)
