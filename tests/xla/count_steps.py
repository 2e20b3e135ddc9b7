"""Two hundred steps with dropout; prints how often XLA compiled and how often the host read from
the device after the second, and which operators fell back to the CPU.
"""

import json
import sys
from itertools import islice
from pathlib import Path

import torch_xla.debug.metrics as xla_metrics

from amazon_electra.model.pretraining.loop import run_step
from tests.model.pretraining.runs import SHAPE, build

STEPS = 200


def count(metric: str) -> int:
    data = xla_metrics.metric_data(metric)
    return data[0] if data else 0


def main() -> None:
    run = build(Path(sys.argv[1]), Path("unused"), "xla", dropout=0.1, **SHAPE | {"embedding": 16})
    run.model.train()
    compiled, read = [], []
    for arrays in islice(run.batches.iterate_steps(0), STEPS):
        run_step(run, arrays)
        run.totals.step += 1
        compiled.append(count("CompileTime"))
        read.append(count("TransferFromDeviceTime"))
    run.device.wait()
    fallbacks = [name for name in xla_metrics.counter_names() if name.startswith("aten::")]
    numbers = {
        "compiled_after_step_2": count("CompileTime") - compiled[1],
        "read_after_step_2": count("TransferFromDeviceTime") - read[1],
        "fallbacks": fallbacks,
    }
    print(json.dumps(numbers))


if __name__ == "__main__":
    main()
