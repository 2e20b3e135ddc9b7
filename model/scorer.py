"""Export a fine-tuned classifier as one program that needs torch alone: `python -m model.scorer
--model DIR …`.

A scorer is a program: the scoring job loads it only if its SHA-256 is the one in scorer.json, and
whoever takes a folder from elsewhere runs what is in it. Scoring workers have neither transformers
nor this package's model/; they load scorer.pt2 (torch.export) and tokenizer.json. README.md tells
the program's form, its size, and on held-out reviews its speed and how many labels differ from
fp32's.
"""

import json
import sys
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, normalizers
from torch import nn

from beam_jobs.job.command import main
from beam_jobs.job.errors import UserError
from beam_jobs.job.files import hash_file, write_json
from beam_jobs.job.settings import read_options
from model.device import has_fast_bf16_products
from model.finetuning.features.featurizer import NOT_LETTERS
from model.finetuning.network import encoders
from model.finetuning.network.encoders import Head
from model.options import ScorerOptions
from model.scoring.agreement import Agreement, measure_agreement
from model.scoring.card import write_card
from model.scoring.forms import Form, convert_form
from model.scoring.program import export_program, prepare_network


def run(argv: list[str] | None = None) -> dict[str, Any]:
    """Write scorer.pt2, tokenizer.json, README.md and, last, scorer.json with the SHA-256 of the
    program.
    """
    arguments = read_options(ScorerOptions, argv, "python -m model.scorer", __doc__)
    classifier, head, _ = encoders.load_finetuned(arguments.model)
    if head.shape != "classification":
        raise UserError(f"--model {arguments.model}: does {head.shape}; only classifiers can score")
    arguments.output.mkdir(parents=True, exist_ok=True)
    form, module, agreement = choose_form(prepare_network(classifier, head), head, arguments)
    torch.export.save(export_program(module, head.max_length), arguments.output / "scorer.pt2")
    load_cleaning_tokenizer(arguments.model / "tokenizer.json", head.clean).save(
        str(arguments.output / "tokenizer.json")
    )
    described = {
        "task": head.task,
        "labels": list(head.labels),
        "max_length": head.max_length,
        "form": form,
        "agreement": agreement and agreement.describe(),
        "bytes": (arguments.output / "scorer.pt2").stat().st_size,
        "sha256": hash_file(arguments.output / "scorer.pt2"),
    }
    write_card(arguments.output / "README.md", described)
    write_json(arguments.output / "scorer.json", described)
    return described


def choose_form(
    fp32: nn.Module, head: Head, arguments: ScorerOptions
) -> tuple[Form, nn.Module, Agreement | None]:
    """Return the form, the module in it, and how it agrees with fp32 on dev reviews.

    `auto` is bf16 if this CPU is fast at multiplying it and no larger share of the labels changes
    than `tolerance`, else fp32.
    """
    is_auto = arguments.form == "auto"
    form: Form = _choose_fast_form() if arguments.form == "auto" else arguments.form
    if form == "fp32":
        return form, fp32, None
    data = arguments.data or find_training_data(arguments.model)
    if data is None:
        _warn(f"{form} is not compared with fp32: name the data of the fine-tuning by --data")
        return ("fp32", fp32, None) if is_auto else (form, convert_form(fp32, form), None)
    module = convert_form(deepcopy(fp32), form)
    agreement = measure_agreement(fp32, module, form, arguments.model, head, data)
    if agreement.changed_share > arguments.tolerance:
        _warn(
            f"in {form} {agreement.changed_labels} of {agreement.reviews} dev labels change, more "
            f"than --tolerance {arguments.tolerance}{'; fp32 is taken' if is_auto else ''}"
        )
        if is_auto:
            return "fp32", fp32, agreement
    return form, module, agreement


def _choose_fast_form() -> Form:
    return "bf16" if has_fast_bf16_products() else "fp32"


def _warn(text: str) -> None:
    print(f"warning: {text}", file=sys.stderr)


def find_training_data(model: Path) -> Path | None:
    """Return the data that the folder was fine-tuned on, if they are still there."""
    described = model / "run.json"
    if not described.exists():
        return None
    data = Path(json.loads(described.read_text())["data"])
    return data if data.exists() else None


def load_cleaning_tokenizer(file: Path, clean: str) -> Tokenizer:
    """Return the tokenizer with the cleaning that the examples of the fine-tuning went through."""
    tokenizer = Tokenizer.from_file(str(file))
    if clean == "letters":
        tokenizer.normalizer = normalizers.Sequence([NOT_LETTERS, tokenizer.normalizer])
    return tokenizer


if __name__ == "__main__":
    main(run)
