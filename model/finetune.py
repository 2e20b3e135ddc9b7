"""Fine-tune an encoder on a task, or fit another arm: the rate that is best on held-out data."""

import shutil
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import numpy as np
from typing_extensions import Doc

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.beam_jobs.core.files import make_writable_folder, write_json
from amazon_electra.beam_jobs.model_folder.probabilities import apply_temperature
from amazon_electra.model.arms import find_arm, list_ours
from amazon_electra.model.arms.arm import WORK, Arm, Diverged, Resources
from amazon_electra.model.arms.out_of_fold import (
    OutOfFold,
    assign_folds,
    group_examples,
    list_labels,
    predict_by_folds,
)
from amazon_electra.model.config import DATA, DEVICE, Device
from amazon_electra.model.finetuning.config import FinetuneConfig, check_request, make_request
from amazon_electra.model.finetuning.examples import Example, Task
from amazon_electra.model.finetuning.request import Request, load_split
from amazon_electra.model.results import FinetuneResult

ONE_FIT_FROM = 2_000
"""Labels from which on HELD_OUT of them choose, and are not worth five more fits."""
HELD_OUT = 500
TRIED = 9
"""Texts that an arm of another package answers once it is fitted, exported and not."""


def finetune(
    config: FinetuneConfig,
    data: Annotated[str | Path, DATA],
    output: Annotated[str | Path, Doc("folder for the fitted model")],
    *,
    encoder: Annotated[
        str | Path | None, Doc("model folder, or name on the hub, for an arm that reads one")
    ] = None,
    architecture: Annotated[
        str | Path | None,
        Doc("with start random: folder with the config.json and the tokenizer to use"),
    ] = None,
    teacher: Annotated[
        str | Path | None, Doc("distil: also learn from the outputs of this fine-tuned folder")
    ] = None,
    parts: Annotated[
        Sequence[str | Path], Doc("for the arm stack: the fitted folders that it combines")
    ] = (),
    evaluation: Annotated[
        str | Path | None, Doc("also evaluate on test and write the evaluation into this folder")
    ] = None,
    cache: Annotated[
        str | Path | None, Doc("folder that keeps states and logits for other fine-tunings")
    ] = None,
    device: Annotated[Device, DEVICE] = "auto",
) -> FinetuneResult:
    """Fit an arm to a task: fine-tune an encoder, or train another classifier.

    With `evaluation` the result has the metrics on test. UserError names a wrong argument or field.
    A call that was killed continues; killed during its evaluation, it does not train again.
    """
    from amazon_electra.model.evaluate import evaluate_model  # loads torch

    data, output = Path(data), Path(output)
    evaluation = Path(evaluation) if evaluation else None
    request = make_request(
        config,
        data,
        encoder=encoder,
        architecture=architecture,
        teacher=teacher,
        parts=parts,
        cache=cache,
    )
    if evaluation:
        make_writable_folder("evaluation", evaluation)
    result = fit_arm(request, output, device)
    if evaluation:
        evaluated = evaluate_model(
            output, request.task, data, evaluation, device=device, cache=request.cache
        )
        result["test"] = {name: metric["value"] for name, metric in evaluated.metrics.items()}
    shutil.rmtree(output / WORK, ignore_errors=True)
    return FinetuneResult.of(result)


def fit_arm(request: Request, output: Path, device: str = "auto") -> dict[str, Any]:
    """Fit the arm of a request, write its folder, result.json last, and return the result."""
    started, cpu_started = time.perf_counter(), time.process_time()
    check_request(request)
    make_writable_folder("output", output)
    write_json(output / "run.json", request.describe())
    (train, train_left), (dev, dev_left) = (load_split(request, s) for s in ("train", "dev"))
    fitted, held_out = fit_and_predict(train, dev, request, device, output)
    task = request.task
    head = {"task": task.name, "shape": task.shape, "labels": task.labels, "kind": fitted.name}
    write_json(output / "task.json", head | {"max_length": 0, "stride": 0})
    fitted.save(output)
    if type(fitted) not in list_ours():  # tests try ours
        try_export(fitted, train[:TRIED], task)
    if held_out:
        held_out.save(output)
    result = request.describe() | {
        **fitted.facts,
        "n_dev": len(held_out) if held_out else len(dev),
        "n_labels": len(train) + len(dev),
        "left_out": {"train": dict(train_left), "dev": dict(dev_left)},
        "seconds": round(time.perf_counter() - started, 3),
        "cpu_seconds": round(time.process_time() - cpu_started, 3),
    }
    write_json(output / "result.json", result)
    return result


def try_export(fitted: Arm, examples: Sequence[Example], task: Task) -> None:
    """Export an arm and answer a few texts, so that one that cannot be exported fails here."""
    from amazon_electra.model.arms.arm import write_config
    from amazon_electra.model.check import check_folder, load_folder

    if task.shape != "classification":
        return
    with TemporaryDirectory() as folder:
        exported = fitted.export(Path(folder), 1.0, task)
        write_config(Path(folder), type(fitted), exported, task.name, task.labels)
        exact = apply_temperature(np.asarray(fitted.predict_logits(examples)), 1.0)
        check_folder(Path(folder), load_folder(Path(folder)), examples, exact)


def fit_and_predict(
    train: Sequence[Example], dev: Sequence[Example], request: Request, device: str, output: Path
) -> tuple[Arm, OutOfFold | None]:
    """Return the fitted arm, whose facts hold the metrics on dev, and the predictions that it is
    compared and calibrated by: of dev, or without one of examples that a fit did not learn from;
    None where the task has no classes.

    An arm that does not cross-validate is fitted without each of the five folds and then to all.
    From ONE_FIT_FROM labels on it is fitted once, without those that it predicts: HELD_OUT of them,
    of many a twentieth.
    """
    from amazon_electra.model.evaluation.choice import make_held_out_predictions
    from amazon_electra.model.evaluation.metrics import compute_metric

    task, arm = request.task, find_arm(request.start.arm)
    resources = Resources(device, request.settings.precision, request.cache)
    if dev or arm.cross_validates:
        fitted = arm.fit(train, dev, request, resources, output)
        if task.shape not in ("classification", "multilabel"):
            return fitted, None
        held_out = predict(fitted, dev) if dev else fitted.out_of_fold
    elif len(train) < ONE_FIT_FROM:
        fitted, held_out = fit_by_folds(arm, train, request, resources, output)
    else:
        groups = group_examples(train)
        first = np.flatnonzero(assign_folds(list_labels(train), groups) == 0)
        n = max(HELD_OUT, len(train) // 20)
        apart = {*first[np.argsort(groups[first], kind="stable")][:n].tolist()}
        examples = [one for i, one in enumerate(train) if i in apart]
        rest = [one for i, one in enumerate(train) if i not in apart]
        fitted = arm.fit(rest, examples, request, resources, output)
        held_out = predict(fitted, examples)
    if held_out is None:
        raise UserError(f"arm: {arm.name} says that it cross-validates and sets no out_of_fold")
    predictions = make_held_out_predictions(held_out)
    fitted.facts["dev"] = {name: compute_metric(name, predictions) for name in task.metrics}
    return fitted, held_out


def fit_by_folds(
    arm: type[Arm], train: Sequence[Example], request: Request, resources: Resources, output: Path
) -> tuple[Arm, OutOfFold]:
    """Return the arm fitted to all examples, and the predictions of each by a fit without its fold,
    with the learning rate that these are best with.
    """
    from amazon_electra.model.evaluation.choice import rank_predictions

    def fit(examples: Sequence[Example], asked: Request, folder: Path) -> Arm:
        make_writable_folder("output", folder)
        write_json(folder / "run.json", request.describe())
        return arm.fit(examples, (), asked, resources, folder)

    def predict_by(asked: Request, folder: Path) -> OutOfFold:
        return predict_by_folds(
            train, lambda rest, fold: fit(rest, asked, folder / str(fold)).predict_logits
        )

    asked, given = [request], request.settings
    if arm.settings is None:  # it reads the learning rates
        each = [given.replace(learning_rates=(rate,)) for rate in given.learning_rates]
        asked = [replace(request, settings=settings) for settings in each]
    tried = []
    for place, one in enumerate(asked):
        with suppress(Diverged):
            held_out = predict_by(one, output / WORK / f"folds-{place}")
            tried.append((rank_predictions(held_out), place, held_out))
    if not tried:
        raise Diverged("each diverged; give lower ones", "learning_rates", given.learning_rates)
    tried.sort(key=lambda one: one[:2])
    _, best, held_out = tried[0]
    fitted = fit(train, asked[best], output)
    if len(asked) > 1:
        fitted.facts["tried"] = [
            {"learning_rate": asked[place].settings.learning_rates[0], "loss": loss}
            for (_, loss), place, _ in tried
        ]
    return fitted, held_out


def predict(arm: Arm, examples: Sequence[Example]) -> OutOfFold:
    """Return the predictions of examples that an arm did not learn from, all of one fold."""
    logits = np.asarray(arm.predict_logits(examples), np.float32)
    ids, folds = [example.id for example in examples], np.zeros(len(examples), np.int64)
    return OutOfFold(ids, list_labels(examples), logits, folds)


if __name__ == "__main__":
    from amazon_electra.beam_jobs.core.command_line import run_as_command

    run_as_command(finetune)
