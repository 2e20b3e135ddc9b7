"""Write the card of a scorer: its form, size, speed, and how it agrees with fp32."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

ABOUT = {
    "fp32": "fp32, as it was fine-tuned",
    "bf16": "bf16 weights and states",
    "int8": "int8 weights, and inputs with a step for each token; fp32 between the products",
}


def write_card(file: Path, described: Mapping[str, Any]) -> None:
    """Write README.md from what scorer.json says."""
    rows = {
        "Task": described["task"],
        "Labels": ", ".join(described["labels"]),
        "Tokens of a text": described["max_length"],
        "Form": ABOUT[described["form"]],
        "Size": f"{described['bytes'] / 1e6:.1f} MB",
        "SHA-256 of scorer.pt2": described["sha256"],
    } | _describe_agreement(described["agreement"])
    lines = ["# Scorer", "", "| | |", "| --- | --- |"]
    lines += [f"| {name} | {value} |" for name, value in rows.items()]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _describe_agreement(agreement: Mapping[str, Any] | None) -> dict[str, str]:
    if agreement is None:
        return {}
    form = agreement["form"]
    return {
        f"Labels that {form} changes": f"{agreement['changed_labels']} of "
        f"{agreement['reviews']} dev reviews",
        f"Largest difference of a probability in {form}": f"{agreement['largest_difference']:.4f}",
        "Reviews per CPU second when it was made": f"{agreement['reviews_per_cpu_second']} in "
        f"{form}, {agreement['fp32_reviews_per_cpu_second']} in fp32",
    }
