"""Four steps with the batch split over the virtual devices, and the same on the plain CPU; prints
both losses.
"""

import json
import sys
from itertools import islice
from pathlib import Path

from tests.model.pretraining.runs import SHAPE, build, take_steps


def compute_losses(kind: str) -> list[float]:
    run = build(Path(sys.argv[1]), Path("unused"), kind, dropout=0, **SHAPE | {"embedding": 16})
    return take_steps(run, islice(run.batches.iterate_steps(0), 4))


def main() -> None:
    spmd = compute_losses("xla-spmd")
    import torch_xla.runtime as runtime

    devices = runtime.global_runtime_device_count()
    print(json.dumps({"devices": devices, "spmd": spmd, "one": compute_losses("cpu")}))


if __name__ == "__main__":
    main()
