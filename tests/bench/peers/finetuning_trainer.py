"""The Trainer's side of finetuning.py, as its documentation has it, with nothing of ours:
`finetuning_trainer.py DATA ENCODER PRECISION EPOCHS RATE SEED OUT`.
"""

import json
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    Trainer,
    TrainingArguments,
    set_seed,
)


class Reviews(torch.utils.data.Dataset):
    def __init__(self, file: Path, tokenizer) -> None:
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        encoded = tokenizer([row["text"] for row in rows], truncation=True, max_length=128)
        self.rows = [
            {"label": int(row["label"])} | {name: values[i] for name, values in encoded.items()}
            for i, row in enumerate(rows)
        ]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, i: int) -> dict:
        return self.rows[i]


def main() -> None:
    data, encoder, precision, epochs, rate, seed, output = sys.argv[1:]
    set_seed(int(seed))
    tokenizer = AutoTokenizer.from_pretrained(encoder)
    train, dev, test = (
        Reviews(Path(data) / f"{split}.jsonl", tokenizer) for split in ("train", "dev", "test")
    )
    model = AutoModelForSequenceClassification.from_pretrained(
        encoder, num_labels=2, dtype=torch.float32
    )
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            model,
            TrainingArguments(
                output_dir=folder,
                seed=int(seed),
                use_cpu=True,
                bf16=precision == "bf16",
                num_train_epochs=float(epochs),
                learning_rate=float(rate),
                warmup_steps=0.1,
                per_device_train_batch_size=32,
                per_device_eval_batch_size=64,
                train_sampling_strategy="group_by_length",
                eval_strategy="epoch",
                save_strategy="no",
                report_to="none",
                disable_tqdm=True,
            ),
            data_collator=DataCollatorWithPadding(tokenizer),
            train_dataset=train,
            eval_dataset=dev,
            processing_class=tokenizer,
        )
        started = time.process_time()
        trainer.train()
        seconds = time.process_time() - started
        trainer.args.train_sampling_strategy = "sequential"  # it orders predictions too
        predictions = np.argmax(trainer.predict(test).predictions, 1).tolist()
    Path(output).write_text(
        json.dumps({"training_cpu_seconds": seconds, "predictions": predictions})
    )


if __name__ == "__main__":
    main()
