"""Make of a fine-tuned classifier the program that the scoring job runs."""

from typing import Any

import torch
from torch import Tensor, nn

from model.finetuning.network.encoders import Head, use_unfused_attention
from model.scoring.first_token import compute_first_token_alone
from model.scoring.forms import Int8Linear


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


def prepare_network(classifier: nn.Module, head: Head) -> ProbabilityModel:
    """Return the classifier, changed in place, as it is before it gets a form."""
    use_unfused_attention(classifier)  # for few tokens faster than the fused kernel
    compute_first_token_alone(classifier, head)
    return ProbabilityModel(classifier.cpu().eval())


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


def make_served_program(module: nn.Module, max_length: int) -> Any:
    """Return the exported module as a scoring worker holds it: with packed int8 weights."""
    program = export_program(module, max_length).module()
    for name, part in module.named_modules():
        if isinstance(part, Int8Linear):
            program.get_submodule(name).weight = part.packed
    return program
