"""Our side of finetuning.py: `finetuning_ours.py DATA ENCODER PRECISION EPOCHS RATE SEED OUT`."""

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import torch

sys.path.insert(0, str(Path.cwd()))
from amazon_electra.beam_jobs.core.settings import replace_settings
from amazon_electra.model.config import FinetuningSettings
from amazon_electra.model.device import open_device
from amazon_electra.model.finetuning.examples import (
    CLASS_METRICS,
    Example,
    Sampling,
    Task,
    load_examples,
)
from amazon_electra.model.finetuning.fit import build_start_network, make_training, prepare_data
from amazon_electra.model.finetuning.network import predict_logits, prepare_network
from amazon_electra.model.finetuning.request import Request, Start
from amazon_electra.model.finetuning.splits import SplitReader
from amazon_electra.model.finetuning.training import train


def read_reviews(path: Path) -> Iterator[Example]:
    for number, line in enumerate(path.read_text().splitlines()):
        row = json.loads(line)
        yield Example(f"{path.name}:{number}", row["text"], label=int(row["label"]))


def main() -> None:
    data, encoder, precision, epochs, rate, seed, output = sys.argv[1:]
    told = {"precision": precision, "epochs": epochs, "learning_rates": rate}
    told |= {"layer_decay": "1", "max_length": "128"}
    [settings] = replace_settings([FinetuningSettings()], told, "finetuning")
    task = Task(
        "reviews", "classification", ("0", "1"), CLASS_METRICS, SplitReader(read_reviews), "dumps"
    )
    device = open_device("cpu", precision)
    torch.manual_seed(int(seed))
    start = Start(encoder)
    request = Request(start, task, Path(data), settings, int(seed))
    prepared = prepare_data(request)
    model = build_start_network(start, task, settings)  # before the clock, as the Trainer's
    prepare_network(model, prepared.head, device)
    training = make_training(request, prepared, device)
    started = time.process_time()
    attempt = train(model, training, settings.learning_rates[0])
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
