"""A flow that a test ends from outside: `python -m tests.flows.runs.ended_flow STORE`."""

import sys
import time

from prefect import flow
from prefect.runtime import flow_run

from amazon_electra.flows.runs import graph_run
from amazon_electra.flows.store.store import Store

graph_run.ASK_SECONDS = 0.2


@flow(name="ended")
def wait(store: str) -> None:
    """Wait, as a run does for its stages."""
    with graph_run.follow_run(Store(store), str(flow_run.id)):
        print(flow_run.id, flush=True)
        while True:
            time.sleep(0.1)


if __name__ == "__main__":
    wait(sys.argv[1])
