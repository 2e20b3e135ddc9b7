"""Numbers of a store in the text format of Prometheus:
`python -m amazon_electra.flows.runs.metrics STORE` answers at http://127.0.0.1:9464/metrics.

They are read from the store's manifests and MLflow's registry at each request, and are gauges:
`store prune` lowers them. Prefect has its own at /api/metrics, if PREFECT_SERVER_METRICS_ENABLED is
true.
"""

import argparse
import json
import os
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

import amazon_electra.flows.stages.all  # noqa: F401 - each module adds its class
from amazon_electra.flows.servers.mlflow_server import resolve_mlflow_uri
from amazon_electra.flows.servers.settings import HOST
from amazon_electra.flows.store.stage import ExistingStage
from amazon_electra.flows.store.store import Store
from amazon_electra.flows.store.usage import list_begun_runs, list_runs
from amazon_electra.model.tracking.registry import RegistryAway, list_registries

PORT = 9464


class StoreCollector(Collector):
    """Reads the numbers when it is asked for them."""

    def __init__(self, store: Store, uri: str):
        """`uri` is that of the MLflow whose registry has the champions."""
        self._store, self._uri = store, uri

    def collect(self) -> Iterator[GaugeMetricFamily]:
        stages, seconds, scored = Counter[str](), defaultdict[str, float](float), 0
        for manifest in self._store.list_manifests():
            stages[manifest["stage"]] += 1
            seconds[manifest["stage"]] += manifest.get("seconds", 0.0)
            if manifest["stage"] == "scores":
                scored += manifest["result"].get("scored", 0)
        runs = Counter(state for _, state in list_begun_runs(self._store))
        runs["complete"] = sum(run.state == "complete" for run in list_runs(self._store))
        states = {state: runs[state] for state in ("running", "killed", "complete")}
        yield build_gauge("runs", "Runs and studies of the store", "state", states)
        yield build_gauge("stages", "Complete stages", "stage", stages)
        yield build_gauge("stage_seconds", "Seconds that their jobs took", "stage", seconds)
        yield GaugeMetricFamily("amazon_electra_rows_scored", "Rows that got a label", scored)
        yield from self._collect_champions()

    def _collect_champions(self) -> Iterator[GaugeMetricFamily]:
        versions, results = dict[str, float](), dict[str, float]()
        is_up = 1
        try:
            for registry in list_registries(self._uri):
                if champion := registry.get_by_alias("champion"):
                    versions[registry.name] = int(champion["version"])
                    result = self._read_result(champion.get("model", ""))
                    if result is not None:
                        results[registry.name] = result
        except RegistryAway:
            is_up = 0
        yield GaugeMetricFamily("amazon_electra_registry_up", "Whether MLflow answers", is_up)
        yield build_gauge("champion_version", "Version of the champion", "model", versions)
        yield build_gauge(
            "champion_test", "The champion's metric on the test split", "model", results
        )

    def _read_result(self, fingerprint: str) -> float | None:
        """Return the metric of a model that is in the store, None for others."""
        model = ExistingStage("model", known=fingerprint)
        if not fingerprint or self._store.manifest(model) is None:
            return None
        file = self._store.fetch(model, "results.json") / "results.json"
        results = json.loads(file.read_text(encoding="utf-8"))
        rows = [row["test"] for row in results["arms"] if row["arm"] == results["arm"]]
        return float(rows[0][results["metric"]]) if rows else None


def build_gauge(name: str, text: str, label: str, values: Mapping[str, float]) -> GaugeMetricFamily:
    """Return a gauge with a value for each label."""
    gauge = GaugeMetricFamily(f"amazon_electra_{name}", text, labels=[label])
    for key, value in sorted(values.items()):
        gauge.add_metric([key], value)
    return gauge


def serve_metrics(store: Store, host: str, port: int) -> int:
    """Answer in a thread of this process; return the port."""
    registry = CollectorRegistry()
    registry.register(StoreCollector(store, resolve_mlflow_uri(store.root)))
    server, _ = start_http_server(port, host, registry)
    return int(server.server_port)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="The numbers of a store for Prometheus")
    store = os.environ.get("AMAZON_ELECTRA_STORE") or "store"
    parser.add_argument("store", nargs="?", default=store, help=f"folder or address ({store})")
    parser.add_argument("--host", default=HOST)
    parser.add_argument("--port", type=int, default=PORT)
    given = parser.parse_args()
    opened = Store(given.store)
    opened.place.check_presence()
    serve_metrics(opened, given.host, given.port)
    threading.Event().wait()
