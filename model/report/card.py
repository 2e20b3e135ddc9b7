"""Writes the published model folder and its card, whose front matter has the results."""

import json
import os
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from beam_jobs.core.errors import UserError
from beam_jobs.core.files import link_file
from model.evaluation.metrics import METRICS
from model.finetuning.tasks import TASKS
from model.report.document import render_template
from model.report.inputs import ReportInput
from model.report.results import Results
from model.report.sections import build_result_table

NAME = "amazon-electra"
METRIC_TYPES = {
    "macro_f1": "f1",
    "matthews": "matthews_correlation",
    "exact_match": "exact_match",
    "answer_f1": "f1",
}
"""Names on the Hugging Face hub where they differ from ours."""
TASK_TYPES = {
    "classification": "text-classification",
    "regression": "text-classification",
    "tokens": "token-classification",
    "span": "question-answering",
    "choice": "multiple-choice",
}
"""The hub has none for regression; it lists STS-B under classification."""
ORIGIN_FIELDS = {
    "name": "name",
    "place": "taken from",
    "revision": "revision",
    "sha256": "SHA-256 of its weights",
    "license": "licence",
    "training_data": "training data",
}
"""What a card says of a published encoder (origin.json)."""
FRONT_MATTER = re.compile(r"^---\n(.*?)\n---\n", re.DOTALL)


def write_model_folder(
    source: Path, output: Path, study: ReportInput, results: Results, answer: str
) -> None:
    """Copy the encoder's folder to `output` with a new card, completely or not at all.

    What lies in the study's own store, where nothing is changed once it is there, is linked.
    """
    if not (source / "config.json").exists():
        raise UserError(
            f"{source}: no config.json; `encoder` in study.json names the encoder's folder"
        )
    temporary = output.with_name(f".{output.name}.{os.getpid()}")
    shutil.rmtree(temporary, ignore_errors=True)
    is_ours = bool(study.store and source.resolve().is_relative_to(study.store))
    copy: Callable[..., Any] = link_file if is_ours else shutil.copy2
    shutil.copytree(source, temporary, copy_function=copy, ignore=lambda *_: {"README.md"})
    (temporary / "README.md").write_text(
        _render_card(source, study, results, answer), encoding="utf-8"
    )
    shutil.rmtree(output, ignore_errors=True)
    os.replace(temporary, output)


def _render_card(source: Path, study: ReportInput, results: Results, answer: str) -> str:
    """Return the card. Licence and language are those of the encoder's own card."""
    import yaml
    from huggingface_hub import ModelCardData

    arm = study.encoder_arm or results.arms[0]
    card = source / "README.md"
    own_words = card.read_text(encoding="utf-8") if card.exists() else ""
    known: dict[str, Any] = {}
    if front := FRONT_MATTER.match(own_words):
        own_words = own_words[front.end() :]
        known = yaml.safe_load(front[1]) or {}
    begun = {one.name: one.origin for one in study.arms}
    origin = study.origins.get(begun.get(arm, ""), {})
    told = [(title, str(origin.get(name) or "unknown")) for name, title in ORIGIN_FIELDS.items()]
    dump = [f"{name} {study.dump[name]}" for name in ("name", "fingerprint") if name in study.dump]
    config = json.loads((source / "config.json").read_text())
    data = ModelCardData(
        language=known.get("language"),
        license=known.get("license") or origin.get("license"),
        base_model=origin["place"].partition("@")[0] if origin.get("revision") else None,
        library_name="transformers",
        tags=known.get("tags") or [config.get("model_type", "encoder")],
        model_name=NAME,
        eval_results=_list_eval_results(arm, results),
    )
    return render_template(
        "model_card.md.j2",
        front_matter=data.to_yaml(),
        name=NAME,
        encoder=_describe_encoder(source, config),
        origin=told if origin else [],
        answer=answer,
        tables=[build_result_table(results)],
        dump=", ".join(dump),
        own_card=re.sub(r"^#", "##", own_words.strip(), flags=re.MULTILINE),
    )


def _list_eval_results(arm: str, results: Results) -> list[Any]:
    from huggingface_hub import EvalResult

    return [
        EvalResult(
            task_type=TASK_TYPES[TASKS[of].shape if of in TASKS else "classification"],
            dataset_type=of.partition(":")[0],
            dataset_name=task,
            dataset_split="test",
            metric_type=METRIC_TYPES.get(metric, metric),
            metric_name=METRICS[metric].title,
            metric_value=round(values["value"], 4),
        )
        for task in results.tasks
        for of in [results.get_base_task(task)]
        for metric, values in results.pool_metrics(arm, task).items()
    ]


def _describe_encoder(source: Path, config: Mapping[str, Any]) -> str:
    """Say what the encoder is, by its config.json, and whether model.pretrain made it."""
    kind = (config.get("architectures") or [config.get("model_type", "encoder")])[0]
    known = {
        "ElectraForPreTraining": "An ELECTRA discriminator (`ElectraForPreTraining` gives its "
        "replaced-token head)",
        "ElectraForMaskedLM": "A masked language model (`ElectraForMaskedLM` gives its head)",
    }
    made = "as it was found: no pre-training of ours"
    if (source.parent / "result.json").exists():
        made = "pre-trained by `python -m model.pretrain`"
    return f"{known.get(kind, f'An encoder ({kind})')}, {made}."
