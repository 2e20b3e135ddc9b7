"""The model card: README.md of the published folder, its front matter with the results (`model-index`)."""

import json
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from model.command import UserMistake
from model.evaluation.document import Block, Document, Heading, Paragraph
from model.evaluation.metrics import METRICS
from model.evaluation.results import Results
from model.evaluation.sections import result_tables
from model.finetuning.tasks import TASKS

METRIC_TYPES = {"macro_f1": "f1", "matthews": "matthews_correlation", "exact_match": "exact_match", "answer_f1": "f1"}
"""Names on the hub where they differ from ours."""
TASK_TYPES = {
    "classification": "text-classification",
    "regression": "text-classification",
    "tokens": "token-classification",
    "span": "question-answering",
    "choice": "multiple-choice",
}
"""The hub has none for regression; it lists STS-B under classification."""
FRONT_MATTER = re.compile(r"^---\n(.*?)\n---\n", re.DOTALL)


def write_model_folder(source: Path, output: Path, study: Mapping[str, Any], found: Results, answer: str) -> None:
    """Copies the encoder's folder and puts the card into it; complete or absent."""
    if not (source / "config.json").exists():
        raise UserMistake(f"{source}: no config.json; `model` in the study file names the encoder's folder")
    temporary = output.with_name(f".{output.name}.{os.getpid()}")
    shutil.rmtree(temporary, ignore_errors=True)
    shutil.copytree(source, temporary)
    (temporary / "README.md").write_text(_card(source, study, found, answer), encoding="utf-8")
    shutil.rmtree(output, ignore_errors=True)
    os.replace(temporary, output)


def _card(source: Path, study: Mapping[str, Any], found: Results, answer: str) -> str:
    """What the encoder's own card says of its licence and language still holds; we know no more of them."""
    import yaml
    from huggingface_hub import ModelCardData

    name = study.get("model_name") or "amazon-electra"
    arm = study.get("model_arm") or found.arms[0]
    front, own_words = _own_card(source)
    told = yaml.safe_load(front) or {}
    data = ModelCardData(
        language=told.get("language"),
        license=told.get("license"),
        library_name="transformers",
        tags=told.get("tags") or [_config(source).get("model_type", "encoder")],
        model_name=name,
        eval_results=_eval_results(arm, found),
    )
    return f"---\n{data.to_yaml()}\n---\n\n" + _body(name, source, study, found, answer, own_words).markdown()


def _own_card(source: Path) -> tuple[str, str]:
    """Front matter and text of the card in the folder, where there is one."""
    file = source / "README.md"
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    front = FRONT_MATTER.match(text)
    return (front[1], text[front.end() :]) if front else ("", text)


def _config(source: Path) -> dict[str, Any]:
    return json.loads((source / "config.json").read_text())


def _eval_results(arm: str, found: Results) -> list[Any]:
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
        for task in found.tasks
        for of in [found.asked(task)]
        for metric, values in found.pooled(arm, task).items()
    ]


def _body(name: str, source: Path, study: Mapping[str, Any], found: Results, answer: str, own_words: str) -> Document:
    blocks: list[Block] = [
        Paragraph(f"{_kind(source)} `AutoModel.from_pretrained` and `AutoTokenizer.from_pretrained` load this folder."),
        Heading("What it is worth"),
        Paragraph(answer),
        *result_tables(found),
        *_dump(study.get("dump") or {}),
        Heading("Limits"),
        Paragraph(
            "The results are means over fine-tuned copies of this encoder, not of the folder by itself. Reviews are "
            "opinions of their writers; a model that was trained on them carries what is in them."
        ),
    ]
    if own_words.strip():
        blocks += [
            Heading("The encoder's own card"),
            Paragraph(re.sub(r"^#", "##", own_words.strip(), flags=re.MULTILINE)),
        ]
    return Document(name, blocks)


def _dump(dump: Mapping[str, Any]) -> list[Block]:
    told = ", ".join(f"{name} {dump[name]}" for name in ("name", "fingerprint", "sha256") if dump.get(name))
    return [Heading("The dump"), Paragraph(f"The dump of this report has the {told}.")] if told else []


def _kind(source: Path) -> str:
    """By its config.json and by what model.pretrain leaves beside a folder it made."""
    config = _config(source)
    kind = (config.get("architectures") or [config.get("model_type", "encoder")])[0]
    known = {
        "ElectraForPreTraining": "An ELECTRA discriminator (`ElectraForPreTraining` gives its replaced-token head)",
        "ElectraForMaskedLM": "A masked language model (`ElectraForMaskedLM` gives its head)",
    }
    ours = (source.parent / "result.json").exists()
    made = "pre-trained by `python -m model.pretrain`" if ours else "as it was found: no pre-training of ours"
    return f"{known.get(kind, f'An encoder ({kind})')}, {made}."
