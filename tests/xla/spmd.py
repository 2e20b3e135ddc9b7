"""Four steps with the batch split over the virtual devices, and the same on the plain CPU; prints
both losses.
"""

import json
import sys

from model.pretraining.loop import run_step
from tests.xla.small_run import training


def losses(kind: str, shards: str) -> list[float]:
    run = training(shards, dropout=0.0, kind=kind)
    batches = run.batches.iterate_steps(0)
    numbers = []
    for _ in range(4):
        sums, _ = run_step(run, next(batches))
        numbers.append(
            run.model.compute_means({name: float(value.item()) for name, value in sums.items()})[
                "loss"
            ]
        )
        run.totals.step += 1
    return numbers


def main() -> None:
    spmd = losses("xla-spmd", sys.argv[1])
    import torch_xla.runtime as runtime

    print(
        json.dumps(
            {
                "devices": runtime.global_runtime_device_count(),
                "spmd": spmd,
                "one": losses("cpu", sys.argv[1]),
            }
        )
    )


if __name__ == "__main__":
    main()
