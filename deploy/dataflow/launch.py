"""What the launcher of a Flex Template starts: the job named by JOB, with the template's parameters
as its options.
"""

import os

from amazon_electra.beam_jobs.core.command_line import run_as_command
from amazon_electra.beam_jobs.corpus_job import make_corpus
from amazon_electra.beam_jobs.shards_job import make_shards

if __name__ == "__main__":
    run_as_command({"corpus_job": make_corpus, "shards_job": make_shards}[os.environ["JOB"]])
