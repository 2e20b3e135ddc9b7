"""Export a fine-tuned classifier as one program that needs torch alone: `python -m model.scorer
--model DIR --output DIR`.

A scorer is a program: the scoring job loads it only if its SHA-256 is the one in scorer.json, and
whoever takes a folder from elsewhere runs what is in it. Scoring workers have neither transformers
nor this package's model/; they load scorer.pt2 (torch.export) and tokenizer.json.
"""

from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, normalizers
from torch import Tensor, nn

from beam_jobs.core.command import main
from beam_jobs.core.errors import UserError
from beam_jobs.core.files import hash_file, write_json
from beam_jobs.core.settings import read_options
from model.device import has_fast_bf16_products
from model.finetuning.features import NOT_LETTERS
from model.finetuning.heads import replace_last_layer
from model.finetuning.network import is_judged_by_first, load_finetuned, use_unfused_attention
from model.options import ScorerOptions

MOST_TEXTS = 4096
"""Of a batch; as in beam_jobs/scoring/classifier.py."""


class ProbabilityModel(nn.Module):
    """Maps token ids and mask [batch, tokens] to class probabilities [batch, classes]."""

    def __init__(self, classifier: nn.Module) -> None:
        super().__init__()
        self.classifier = classifier

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        output = self.classifier(input_ids=input_ids, attention_mask=attention_mask)
        return output.logits.float().softmax(-1)


def run(argv: list[str] | None = None) -> dict[str, Any]:
    """Write scorer.pt2, tokenizer.json, README.md and, last, scorer.json with the SHA-256 of the
    program.
    """
    arguments = read_options(ScorerOptions, argv, "python -m model.scorer", __doc__)
    classifier, head, _ = load_finetuned(arguments.model)
    if head.shape != "classification":
        raise UserError(f"--model {arguments.model}: does {head.shape}; only classifiers can score")
    arguments.output.mkdir(parents=True, exist_ok=True)
    precision = arguments.precision
    if precision == "auto":
        precision = "bf16" if has_fast_bf16_products() else "fp32"
    if is_judged_by_first(head):
        replace_last_layer(classifier)
    use_unfused_attention(classifier)  # for few tokens faster than the fused kernel
    module = ProbabilityModel(classifier.cpu().eval())
    if precision == "bf16":
        module = module.to(torch.bfloat16)
    program = arguments.output / "scorer.pt2"
    torch.export.save(export_program(module, head.max_length), program)
    load_cleaning_tokenizer(arguments.model / "tokenizer.json", head.clean).save(
        str(arguments.output / "tokenizer.json")
    )
    size = program.stat().st_size
    described = {
        "task": head.task,
        "labels": list(head.labels),
        "max_length": head.max_length,
        "precision": precision,
        "bytes": size,
        "sha256": hash_file(program),
    }
    card = {
        "Task": head.task,
        "Labels": ", ".join(head.labels),
        "Tokens of a text": head.max_length,
        "Weights and states": precision,
        "Size": f"{size / 1e6:.1f} MB",
        "SHA-256 of scorer.pt2": described["sha256"],
    }
    rows = [f"| {name} | {value} |" for name, value in card.items()]
    text = "\n".join(["# Scorer", "", "| | |", "| --- | --- |", *rows, ""])
    (arguments.output / "README.md").write_text(text, encoding="utf-8")
    write_json(arguments.output / "scorer.json", described)
    return described


def export_program(module: nn.Module, max_length: int) -> torch.export.ExportedProgram:
    """Export a ProbabilityModel for any batch, and any length up to that of its training."""
    batch = torch.export.Dim("batch", min=1, max=MOST_TEXTS)
    tokens = torch.export.Dim("tokens", min=2, max=max_length)
    ids = torch.randint(5, 100, (3, min(8, max_length)))
    shapes = {"input_ids": {0: batch, 1: tokens}, "attention_mask": {0: batch, 1: tokens}}
    with torch.no_grad():
        return torch.export.export(module, (ids, torch.ones_like(ids)), dynamic_shapes=shapes)


def load_cleaning_tokenizer(file: Path, clean: str) -> Tokenizer:
    """Return the tokenizer with the cleaning that the examples of the fine-tuning went through."""
    tokenizer = Tokenizer.from_file(str(file))
    if clean == "letters":
        tokenizer.normalizer = normalizers.Sequence([NOT_LETTERS, tokenizer.normalizer])
    return tokenizer


if __name__ == "__main__":
    main(run)
