"""Six steps with dropout; prints how often XLA compiled after the second and which operators fell
back to the CPU.
"""

import json
import sys

import torch_xla.debug.metrics as xla_metrics

from model.pretraining.loop import run_step
from tests.xla.small_run import training


def compilations() -> int:
    data = xla_metrics.metric_data("CompileTime")
    return data[0] if data else 0


def main() -> None:
    run = training(sys.argv[1], dropout=0.1)
    batches = run.batches.iterate_steps(0)
    after: list[int] = []
    for _ in range(6):
        run_step(run, next(batches))
        run.device.wait()
        run.totals.step += 1
        after.append(compilations())
    fallbacks = [name for name in xla_metrics.counter_names() if name.startswith("aten::")]
    print(
        json.dumps(
            {"compiled_after_step_2": after[-1] - after[1], "counts": after, "fallbacks": fallbacks}
        )
    )


if __name__ == "__main__":
    main()
