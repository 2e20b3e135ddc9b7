"""The base class of arms made of several models, whose logits are weighted and added."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from amazon_electra.beam_jobs.core.files import write_json
from amazon_electra.beam_jobs.core.nesting import read_json
from amazon_electra.beam_jobs.model_folder.probabilities import sum_logits
from amazon_electra.model.arms import find_arm
from amazon_electra.model.arms.arm import Arm, Exported, Resources, write_config
from amazon_electra.model.finetuning.examples import Example, Task

PARTS = "parts.json"
"""Lists the folders in a fitted one, with the weight of each."""


@dataclass(frozen=True)
class Part:
    """One of the models."""

    folder: str
    """Name of its folder in that of the arm, fitted or exported."""
    arm: Arm
    weight: float = 1.0
    """Factor of its logits."""


class Parts(Arm):
    """Fitted models whose logits are weighted and added: a folder of folders."""

    def __init__(self, parts: Sequence[Part], facts: dict[str, Any]) -> None:
        self.parts, self.facts = parts, facts
        self.words = next((part.arm.words for part in parts if part.arm.words), None)

    def predict_logits(self, examples: Sequence[Example]) -> np.ndarray:
        return sum_logits(
            [np.asarray(part.arm.predict_logits(examples)) for part in self.parts],
            [part.weight for part in self.parts],
        ).astype(np.float32)

    def save(self, folder: Path) -> None:
        head = read_json(folder / "task.json")
        for part in self.parts:
            (folder / part.folder).mkdir(exist_ok=True)
            write_json(folder / part.folder / "task.json", head | {"kind": part.arm.name})
            part.arm.save(folder / part.folder)
        listed = [
            {"folder": part.folder, "arm": part.arm.name, "weight": part.weight}
            for part in self.parts
        ]
        write_json(folder / PARTS, listed)

    @classmethod
    def load(cls, folder: Path, resources: Resources) -> Self:
        parts = []
        for one in read_json(folder / PARTS):
            arm = find_arm(one["arm"]).load(folder / one["folder"], resources)
            parts.append(Part(one["folder"], arm, one["weight"]))
        return cls(parts, {})

    def export(self, folder: Path, temperature: float, task: Task) -> Exported:
        """Write the exported folder of each part, and the weights over the temperature."""
        listed, facts = [], []
        for part in self.parts:
            (folder / part.folder).mkdir(exist_ok=True)
            exported = part.arm.export(folder / part.folder, 1.0, task)
            if task.shape == "multilabel":  # the whole has its own
                several = {"thresholds": [0.5] * len(task.labels)}
                exported = replace(exported, config={**exported.config, **several})
            write_config(folder / part.folder, type(part.arm), exported, task.name, task.labels)
            listed.append({"folder": part.folder, "weight": part.weight / temperature})
            facts.append({**listed[-1], "arm": part.arm.name, **exported.facts})
        return Exported("parts", 1.0, {"parts": listed}, {"parts": facts})
