"""Export a fine-tuned classifier as one program that needs torch alone: `python -m model.scorer
--model DIR …`.

A scorer is a program: the scoring job loads it only if its SHA-256 is the one in scorer.json, and
whoever takes a folder from elsewhere runs what is in it. Scoring workers have neither transformers
nor this package's model/; they load scorer.pt2 (torch.export) and tokenizer.json.
"""

from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, normalizers
from torch import Tensor, nn

from beam_jobs.job.command import main
from beam_jobs.job.errors import UserError
from beam_jobs.job.files import hash_file, write_json
from beam_jobs.job.settings import read_options
from model.finetuning.features.featurizer import NOT_LETTERS
from model.options import ScorerOptions


class ProbabilityModel(nn.Module):
    """Maps token ids and mask [batch, tokens] to class probabilities [batch, classes]."""

    def __init__(self, classifier: nn.Module) -> None:
        super().__init__()
        self.classifier = classifier

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return (
            self.classifier(input_ids=input_ids, attention_mask=attention_mask)
            .logits.float()
            .softmax(-1)
        )


def run(argv: list[str] | None = None) -> dict[str, Any]:
    """Write scorer.pt2, tokenizer.json and, last, scorer.json with the SHA-256 of the program."""
    arguments = read_options(ScorerOptions, argv, "python -m model.scorer", __doc__)
    from model.finetuning.network import encoders

    classifier, head, _ = encoders.load_finetuned(arguments.model)
    if head.shape != "classification":
        raise UserError(f"--model {arguments.model}: does {head.shape}; only classifiers can score")
    arguments.output.mkdir(parents=True, exist_ok=True)
    program = export_program(ProbabilityModel(classifier.cpu().eval()), head.max_length)
    torch.export.save(program, arguments.output / "scorer.pt2")
    load_cleaning_tokenizer(arguments.model / "tokenizer.json", head.clean).save(
        str(arguments.output / "tokenizer.json")
    )
    described = {
        "task": head.task,
        "labels": list(head.labels),
        "max_length": head.max_length,
        "sha256": hash_file(arguments.output / "scorer.pt2"),
    }
    write_json(arguments.output / "scorer.json", described)
    return {**described, "bytes": (arguments.output / "scorer.pt2").stat().st_size}


def load_cleaning_tokenizer(file: Path, clean: str) -> Tokenizer:
    """Return the tokenizer with the cleaning that the examples of the fine-tuning went through."""
    tokenizer = Tokenizer.from_file(str(file))
    if clean == "letters":
        tokenizer.normalizer = normalizers.Sequence([NOT_LETTERS, tokenizer.normalizer])
    return tokenizer


def export_program(module: nn.Module, max_length: int) -> torch.export.ExportedProgram:
    """Export the module for any batch and any length up to the longest it was trained on."""
    batch, tokens = (
        torch.export.Dim("batch", min=1, max=4096),
        torch.export.Dim("tokens", min=2, max=max_length),
    )
    ids = torch.randint(5, 100, (3, min(8, max_length)))
    shapes = {"input_ids": {0: batch, 1: tokens}, "attention_mask": {0: batch, 1: tokens}}
    with torch.no_grad():
        return torch.export.export(module, (ids, torch.ones_like(ids)), dynamic_shapes=shapes)


if __name__ == "__main__":
    main(run)
