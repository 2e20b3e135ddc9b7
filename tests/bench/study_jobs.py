"""Makes the pre-trainings and cells of a study on a machine that has only the packages of `model`
(a GPU machine), in a few processes that each make one after the other.

    python tests/bench/study_jobs.py list jobs.pickle FILE --dump … [as amazon-electra study]
    python tests/bench/study_jobs.py make jobs.pickle… [--processes 12] [--trainings 6] [--forget]

`list`, here: the store has all that the study reads, up to its shards (a study that was ended when
its pre-training began leaves that); what is not complete is written to a file. `make`, there: the
same store and data under the same paths; each job's `run` is called with the words of its command
line, and the stage is published as a run of the study publishes it. With --forget the weights of a
fine-tuned model go once it is evaluated: 90 MB a cell of MiniLM. Back here `amazon-electra study`
finds what came back complete, and writes the report.

A process of its own for each cell, as the study has, costs 8 CPU seconds of imports, more than a
GPU needs for 200 labels. Nothing is made twice; `make` again goes on.
"""

import argparse
import os
import pickle
import sys
import time
import traceback
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
from amazon_electra.flows.run_stage import make
from amazon_electra.flows.store.stage import Stage
from amazon_electra.flows.store.store import Store

WEIGHTS = "model.safetensors"
TRAINING, CELL = "pretraining", "finetuning"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    listing = commands.add_parser("list", help="write what a study has to make to a file")
    listing.add_argument("jobs", type=Path)
    listing.add_argument("words", nargs=argparse.REMAINDER, help="as `amazon-electra study` has")
    listing.set_defaults(run=list_jobs)
    making = commands.add_parser("make", help="make what such files list")
    making.add_argument("jobs", type=Path, nargs="+", help="those of the first file first")
    making.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    making.add_argument("--trainings", type=int, default=1, help="pre-trainings at a time")
    making.add_argument("--seconds", type=float, default=1e9, help="begin nothing after so many")
    making.add_argument("--forget", action="store_true", help="weights of fine-tuned models")
    making.set_defaults(run=make_jobs)
    chosen = parser.parse_args()
    chosen.run(chosen)


def list_jobs(chosen: argparse.Namespace) -> None:
    """Write the store's place and every chain of stages that is not complete."""
    from amazon_electra.flows.cli.main import build_parser
    from amazon_electra.flows.cli.study_command import read_choice
    from amazon_electra.flows.store.group import list_stages
    from amazon_electra.flows.studies.study_reading import load_study
    from amazon_electra.flows.study import graph

    arguments = build_parser().parse_args(["study", *chosen.words])
    parameters, choice = read_choice(arguments)
    store, loaded = Store(parameters.store), load_study(parameters, choice)
    stages = list_stages(graph(parameters, loaded, store), store)
    todo = [stage for stage, is_complete in stages if not is_complete]
    pairs = [(a, b) for a, b in pairwise(todo) if a.name == CELL]
    todo = todo[:-1]  # the last one is the report
    chains: dict[str, Sequence[Stage]] = {stage.fingerprint: (stage,) for stage in todo}
    for pair in pairs:
        del chains[pair[1].fingerprint]
        chains[pair[0].fingerprint] = pair
    chosen.jobs.write_bytes(pickle.dumps((parameters.store, list(chains.values()))))
    print(f"{len(chains)} chains of stages that are not complete")


def make_jobs(chosen: argparse.Namespace) -> None:
    """Make all chains, trainings first, each once what it is made of is there."""
    files = [pickle.loads(file.read_bytes()) for file in chosen.jobs]
    place, began, count = files[0][0], time.monotonic(), 0
    store = Store(place)
    chains = {chain[0].fingerprint: chain for _, some in files for chain in some}.values()
    waiting = sorted(chains, key=lambda chain: chain[0].name == CELL)
    undone = {chain[0].fingerprint for chain in chains if not is_made(store, chain)}
    running: dict[Future[str], Sequence[Stage]] = {}

    def may_start(chain: Sequence[Stage]) -> bool:
        busy = sum(other[0].name == TRAINING for other in running.values())
        has_room = chain[0].name != TRAINING or busy < chosen.trainings
        sources = {stage.fingerprint for stage in chain[0].inputs.values()}
        return has_room and not sources & undone

    with ProcessPoolExecutor(chosen.processes, get_context("spawn")) as pool:
        while True:
            is_late = time.monotonic() - began > chosen.seconds
            for chain in [] if is_late else list(waiting):
                if len(running) < chosen.processes and may_start(chain):
                    waiting.remove(chain)
                    running[pool.submit(make_chain, place, chain, chosen.forget)] = chain
            if not running:
                break
            for done in wait(running, return_when=FIRST_COMPLETED).done:
                chain, count = running.pop(done), count + 1
                print(f"{time.monotonic() - began:7.1f} s  {count:4}  {done.result()}", flush=True)
                if is_made(store, chain):
                    undone.discard(chain[0].fingerprint)
    if undone:
        sys.exit(f"{len(undone)} chains are not made; the same command goes on")


def is_made(store: Store, chain: Sequence[Stage]) -> bool:
    """Return whether every stage of a chain is complete."""
    return all(store.manifest(stage) for stage in chain)


def make_chain(place: str, chain: Sequence[Stage], forgets: bool) -> str:
    """Make stages one after the other; return a line that says what they cost, or what failed."""
    store, began = Store(place), time.monotonic()
    try:
        for stage in chain:
            os.environ |= stage.list_environment(store)
            make(store, stage)
        if forgets and chain[0].name == CELL:
            (store.folder(chain[0]) / WEIGHTS).unlink(missing_ok=True)
    except Exception:
        return f"FAILED {chain[0].label}: {traceback.format_exc()}"
    return f"{time.monotonic() - began:6.1f} s  {chain[0].label}"


if __name__ == "__main__":
    main()
