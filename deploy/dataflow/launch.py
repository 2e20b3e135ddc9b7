"""What the launcher of a Flex Template starts: the job named by JOB, with the template's parameters
as its options.
"""

import importlib
import os

from amazon_electra.beam_jobs.core.command import main

if __name__ == "__main__":
    main(importlib.import_module(f"amazon_electra.beam_jobs.{os.environ['JOB']}").run)
