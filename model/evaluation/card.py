"""The model card: README.md of the published folder, its front matter with the results (`model-index`)."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from model.command import UserMistake
from model.evaluation.document import Block, Document, Heading, Paragraph
from model.evaluation.metrics import METRICS
from model.evaluation.results import Difference, Results
from model.evaluation.sections import result_tables

METRIC_TYPES = {"macro_f1": "f1", "matthews": "matthews_correlation", "exact_match": "exact_match", "answer_f1": "f1"}
"""Names on the hub where they differ from ours."""


def write_model_folder(
    source: Path,
    output: Path,
    study: Mapping[str, Any],
    found: Results,
    differences: list[Difference],
    answer: str,
) -> None:
    """Copies the discriminator's folder and puts the card into it; complete or absent."""
    if not (source / "config.json").exists():
        raise UserMistake(f"{source}: no config.json; `model` in the study file names the discriminator's folder")
    temporary = output.with_name(f".{output.name}.{os.getpid()}")
    shutil.rmtree(temporary, ignore_errors=True)
    shutil.copytree(source, temporary)
    (temporary / "README.md").write_text(_card(study, found, differences, answer), encoding="utf-8")
    shutil.rmtree(output, ignore_errors=True)
    os.replace(temporary, output)


def _card(study: Mapping[str, Any], found: Results, differences: list[Difference], answer: str) -> str:
    from huggingface_hub import ModelCardData

    name = study.get("model_name") or "amazon-electra"
    arm = study.get("model_arm") or found.arms[0]
    data = ModelCardData(
        language="en",
        license="apache-2.0",
        library_name="transformers",
        tags=["electra", "product-reviews"],
        model_name=name,
        eval_results=_eval_results(arm, found),
    )
    return f"---\n{data.to_yaml()}\n---\n\n" + _body(name, study, found, differences, answer).markdown()


def _eval_results(arm: str, found: Results) -> list[Any]:
    from huggingface_hub import EvalResult

    return [
        EvalResult(
            task_type="text-classification",
            dataset_type=task,
            dataset_name=task,
            dataset_split="test",
            metric_type=METRIC_TYPES.get(metric, metric),
            metric_name=METRICS[metric].title,
            metric_value=round(values["value"], 4),
        )
        for task in found.tasks
        for metric, values in found.pooled(arm, task).items()
    ]


def _body(name: str, study: Mapping[str, Any], found: Results, differences: list[Difference], answer: str) -> Document:
    blocks: list[Block] = [
        Paragraph(
            "An ELECTRA discriminator pre-trained on product reviews. `AutoModel.from_pretrained` and "
            "`AutoTokenizer.from_pretrained` load this folder; `ElectraForPreTraining` gives its replaced-token head."
        ),
        Heading("What it is worth"),
        Paragraph(answer),
        *result_tables(found),
        Heading("Training data"),
        Paragraph(_data(study)),
        Heading("Limits"),
        Paragraph(
            "The results are means over fine-tuned copies of this encoder, not of the folder by itself. Reviews are "
            "opinions of their writers, in English, and mostly positive; the model carries what is in them."
        ),
    ]
    return Document(name, blocks)


def _data(study: Mapping[str, Any]) -> str:
    named = ", ".join(f"{key} {value}" for key, value in (study.get("dump") or {}).items())
    return f"Reviews of the dump ({named})." if named else "Reviews of the dump named in the report."
