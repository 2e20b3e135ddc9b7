"""What a finished run tells in Prefect and MLflow."""

from amazon_electra.flows.runs import graph_run


class Tracking:
    def __init__(self):
        self.tags, self.metrics = {}, {}

    def set_tags(self, tags):
        self.tags |= tags

    def log_metrics(self, metrics):
        self.metrics |= metrics


def make_manifest(stage, title, **result):
    about = {"stage": stage, "title": title, "fingerprint": "f00", "inputs": {}}
    return about | {"result": result}


def test_the_warnings_of_all_stages_are_told_with_the_stage_that_gave_them(monkeypatch):
    """Those of a pre-training too: of a study it may be one of many."""
    published, tracking = [], Tracking()
    monkeypatch.setattr(
        graph_run.artifacts,
        "publish",
        lambda show, rows, **named: published.extend(row["warning"] for row in rows),
    )
    manifests = [
        make_manifest("corpus", "corpus", kept=3, warnings=["no stars"]),
        make_manifest("shards", "shards", sequences=4),
        make_manifest("pretraining", "pre-training MLM", steps=2, warnings=[]),
        make_manifest("pretraining", "pre-training ours", steps=2, warnings=["a constant"]),
    ]
    graph_run.publish_tags_and_metrics(manifests, tracking)
    assert published == ["corpus: no stars", "pre-training ours: a constant"]
    assert tracking.tags["amazon_electra.warnings"] == " ".join(published)
    assert tracking.metrics["pre-training ours.steps"] == 2
