"""Exports a fine-tuned classifier as one program that needs torch alone: `python -m model.scorer --model DIR …`.

Scoring workers have neither transformers nor this package's model/; they load scorer.pt2 (torch.export) and
tokenizer.json.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, normalizers
from torch import Tensor, nn

from model.command import UserMistake, main
from model.finetuning.batches import NOT_LETTERS


class Probabilities(nn.Module):
    """Token ids and mask [batch, tokens] → class probabilities [batch, classes]."""

    def __init__(self, classifier: nn.Module) -> None:
        super().__init__()
        self.classifier = classifier

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return self.classifier(input_ids=input_ids, attention_mask=attention_mask).logits.float().softmax(-1)


def run(argv: list[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(prog="python -m model.scorer", description=__doc__)
    parser.add_argument("--model", required=True, type=Path, metavar="DIR", help="a folder made by model.finetune")
    parser.add_argument("--output", required=True, type=Path, metavar="DIR")
    arguments = parser.parse_args(argv)
    from model.finetuning import encoders

    classifier, head, _ = encoders.load(arguments.model)
    if head.shape != "classification":
        raise UserMistake(f"--model {arguments.model}: does {head.shape}; only classifiers can score")
    arguments.output.mkdir(parents=True, exist_ok=True)
    program = exported(Probabilities(classifier.cpu().eval()), head.max_length)
    torch.export.save(program, arguments.output / "scorer.pt2")
    cleaning(arguments.model / "tokenizer.json", head.clean).save(str(arguments.output / "tokenizer.json"))
    described = {"task": head.task, "labels": list(head.labels), "max_length": head.max_length}
    (arguments.output / "scorer.json").write_text(json.dumps(described, indent=1))
    return {**described, "bytes": (arguments.output / "scorer.pt2").stat().st_size}


def cleaning(file: Path, clean: str) -> Tokenizer:
    """The tokenizer, doing itself what the examples of the fine-tuning went through before it."""
    tokenizer = Tokenizer.from_file(str(file))
    if clean == "letters":
        tokenizer.normalizer = normalizers.Sequence([NOT_LETTERS, tokenizer.normalizer])
    return tokenizer


def exported(module: nn.Module, max_length: int) -> torch.export.ExportedProgram:
    """Any batch, any length up to the longest the classifier was trained on."""
    batch, tokens = torch.export.Dim("batch", min=1, max=4096), torch.export.Dim("tokens", min=2, max=max_length)
    ids = torch.randint(5, 100, (3, min(8, max_length)))
    shapes = {"input_ids": {0: batch, 1: tokens}, "attention_mask": {0: batch, 1: tokens}}
    with torch.no_grad():
        return torch.export.export(module, (ids, torch.ones_like(ids)), dynamic_shapes=shapes)


if __name__ == "__main__":
    main(run)
