"""What the stages of `score` are made of."""

from flows.score import build_scorer_stage
from flows.store.store import Store


def test_the_precision_decides_the_scorer_and_reaches_its_job(tmp_path):
    of_both = {p: build_scorer_stage({"scorer": "f" * 16}, p) for p in ("bf16", "fp32")}
    assert of_both["bf16"].fingerprint != of_both["fp32"].fingerprint
    words = of_both["fp32"].arguments(Store(tmp_path), tmp_path)
    assert words[words.index("--precision") + 1] == "fp32"
