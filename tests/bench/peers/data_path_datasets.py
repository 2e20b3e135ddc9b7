"""Makes rows of 128 tokens with datasets.map and group_texts; runs in an environment of its own.

    python data_path_datasets.py DUMP TOKENIZER_JSON OUTPUT WORKERS

After examples/pytorch/language-modeling/run_mlm.py of huggingface/transformers: load the JSON, map
the tokenizer over batches, concatenate and cut. The rest of each batch of 1,000 is dropped there.
"""

import glob
import os
import sys
from itertools import chain

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

from datasets import load_dataset
from transformers import PreTrainedTokenizerFast

MAX_LENGTH = 128


def group_texts(examples):
    joined = {name: list(chain(*examples[name])) for name in examples}
    total = len(joined["input_ids"]) // MAX_LENGTH * MAX_LENGTH
    return {
        name: [ids[i : i + MAX_LENGTH] for i in range(0, total, MAX_LENGTH)]
        for name, ids in joined.items()
    }


if __name__ == "__main__":
    dump, tokenizer_file, output, workers = sys.argv[1:]
    processes = int(workers) if int(workers) > 1 else None
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=tokenizer_file)
    files = sorted(glob.glob(f"{dump}/*.json.gz"))
    reviews = load_dataset("json", data_files=files, split="train", cache_dir=f"{output}/cache")
    tokenized = reviews.map(
        lambda batch: tokenizer(batch["reviewText"], return_special_tokens_mask=True),
        batched=True,
        num_proc=processes,
        remove_columns=reviews.column_names,
    )
    rows = tokenized.map(group_texts, batched=True, num_proc=processes)
    rows.save_to_disk(f"{output}/rows")
