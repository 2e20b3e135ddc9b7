"""Divide this machine's cores among jobs that run side by side."""

import os
from collections.abc import Sequence
from dataclasses import replace

from flows.store.store import Stage

ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
"""The environment of a job beside which others run: more threads would only fight for the cores."""
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")


def give_threads(chains: Sequence[Sequence[Stage]], at_once: int) -> list[list[Stage]]:
    """Return the chains with as many threads for each job of one thread as cores fall to it.

    All chains count, complete ones too: a run that continues another gives a job the same threads,
    and so the same bytes. Where a job of another kind runs beside, which counts on one core for
    each of these, they keep one.
    """
    jobs = [stage for chain in chains for stage in chain if stage.module]
    sharing = max(1, min(at_once, len(chains)))
    threads = (os.cpu_count() or 1) // sharing
    if threads < 2 or not all(stage.environment == ONE_THREAD for stage in jobs):
        return [list(chain) for chain in chains]
    environment = ONE_THREAD | dict.fromkeys(THREADS, str(threads))
    return [
        [replace(stage, environment=environment) if stage.module else stage for stage in chain]
        for chain in chains
    ]
