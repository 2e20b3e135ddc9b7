"""Our side of finetuning.py: `finetuning_ours.py DATA ENCODER PRECISION EPOCHS RATE SEED OUT`."""

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path.cwd()))
from beam_jobs.job.settings import replace_settings
from model.config import FinetuningSettings
from model.device import open_device
from model.finetuning.features.examples import Sampling, load_examples
from model.finetuning.fit import train_first_rate
from model.finetuning.network.forward import predict_logits
from model.finetuning.request import Request, prepare_data
from model.finetuning.start import Start
from model.finetuning.tasks import find_task


@dataclass(frozen=True)
class LoadedStart(Start):
    """Gives the network that was loaded before the clock started, as the Trainer gets one."""

    network: nn.Module | None = None

    def build_network(self, *_):
        return self.network


def main() -> None:
    data, encoder, precision, epochs, rate, seed, output = sys.argv[1:]
    told = {"precision": precision, "epochs": epochs, "learning_rates": rate}
    told |= {"layer_decay": "1", "max_length": "128", "pooling": "cls"}
    [settings] = replace_settings([FinetuningSettings()], told, "finetuning")
    task = find_task("table:text=text,label=label", Path(data))
    device = open_device("cpu", precision)
    torch.manual_seed(int(seed))
    model = Start(encoder, None, None).build_network(task, settings)
    start = LoadedStart(encoder, None, None, network=model)
    request = Request(start, task, Path(data), settings, int(seed))
    prepared = prepare_data(request)
    started = time.process_time()
    attempt = train_first_rate(request, prepared, device, None, lambda share, numbers: None)
    seconds = time.process_time() - started
    model.load_state_dict(attempt.state)
    examples = load_examples(task, Path(data), "test", Sampling(None))  # in an order of its own
    logits = predict_logits(model, prepared.featurizer(examples), task.shape, device)
    found = {
        e.text: int(task.labels[row.argmax()]) for e, row in zip(examples, logits, strict=True)
    }
    rows = (Path(data) / "test.jsonl").read_text().splitlines()
    predictions = [found[json.loads(row)["text"]] for row in rows]
    Path(output).write_text(
        json.dumps({"training_cpu_seconds": seconds, "predictions": predictions})
    )


if __name__ == "__main__":
    main()
