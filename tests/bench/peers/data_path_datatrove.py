"""Tokenizes a folder of JSON lines as datatrove's examples do; runs in datatrove's environment.

    python data_path_datatrove.py DUMP TOKENIZER_JSON OUTPUT WORKERS

After examples/tokenize_from_hf_to_s3.py of huggingface/datatrove: a reader, the tokenizing step,
the local executor. Its output is one flat stream of ids a task.
"""

import sys

from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.readers import JsonlReader
from datatrove.pipeline.tokens import DocumentTokenizer

if __name__ == "__main__":
    dump, tokenizer, output, workers = sys.argv[1:]
    executor = LocalPipelineExecutor(
        pipeline=[
            JsonlReader(dump, text_key="reviewText", glob_pattern="*.json.gz"),
            DocumentTokenizer(
                output_folder=f"{output}/tokens",
                tokenizer_name_or_path=tokenizer,
                shuffle_documents=False,
            ),
        ],
        tasks=8,
        workers=int(workers),
        logging_dir=f"{output}/logs",
    )
    executor.run()
