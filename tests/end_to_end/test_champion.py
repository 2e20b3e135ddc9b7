"""The champion's life as its users type it, on real servers: approved, scoring a dump, replaced
and set back.
"""

import re

import pyarrow.parquet as pq
import pytest
from prefect.flow_runs import resume_flow_run

from amazon_electra.model.tracking.registry import Registry, name_model
from tests.beam_jobs.dumps import review, text_of, write_lines
from tests.served import serve

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

DUMP, REVIEWS = "sample:600", 100
SHAPE = {"batch": 4, "layers": 1, "hidden": 32, "intermediate": 64, "embedding": 32}
FINETUNING = {
    "arms": ["pre-trained"],  # another one may be better on so few reviews
    "tasks": ["polarity"],
    "seeds": [0],
    "learning_rates": [0.001],
}


def set_all(settings):
    """The words of the command line that set these settings of a run and a small fine-tuning."""
    own = {f"finetuning.{name}": str(value).strip("[']") for name, value in FINETUNING.items()}
    return [word for pair in (settings | own).items() for word in ("--set", "=".join(pair))]


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with serve(tmp_path_factory.mktemp("champion") / "store") as up:
        yield up


def succeed(done):
    """What a command printed, which ended well."""
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_champion_is_approved_scores_is_replaced_and_comes_back(served, tmp_path):
    registry = Registry(served.mlflow, name_model("polarity"))
    new = write_lines(
        tmp_path / "new.json", [review(i, text_of(i)) for i in range(5000, 5000 + REVIEWS)]
    )
    score = ["score", "--dump", str(new), "--output", str(tmp_path / "scores")]
    refused = served.electra(*score)
    assert refused.returncode == 2
    assert refused.stderr.splitlines()[-1].startswith("error: --alias champion: ")

    shape = {name: str(value) for name, value in SHAPE.items()}
    run = served.start(
        "domain-adaptation",
        dump={"paths": [DUMP]},
        pretraining={"steps": 5, "settings": shape},
        finetuning=FINETUNING,
        promotion={"mode": "ask"},
    )
    served.wait(run, "Suspended")
    assert registry.get_by_alias("champion") == {}
    assert registry.get_by_alias("challenger")["reason"].startswith("waits for approval")
    resume_flow_run(run, run_input={"approve": True, "reason": "it will do"})
    served.wait(run, "Completed")
    assert registry.get_by_alias("champion")["version"] == "1"
    assert registry.get_by_alias("champion")["reason"].startswith("approved: it will do; ")

    printed = succeed(served.electra(*score, "--alias", "champion"))
    assert printed == f"scores      {tmp_path / 'scores'}: 1 file\n"
    rows = [r for f in (tmp_path / "scores").iterdir() for r in pq.read_table(f).to_pylist()]
    assert [row["row"] for row in rows] == list(range(1, REVIEWS + 1))
    assert {row["model_version"] for row in rows} == {"1"}
    assert {row["label"] for row in rows} <= {"negative", "positive"}

    second = {f"pretraining.{name}": value for name, value in shape.items()}
    second |= {"pretraining.steps": "5", "pretraining.seed": "1", "promotion.mode": "automatic"}
    printed = succeed(served.electra("run", "--dump", DUMP, *set_all(second)))
    assert re.search(rf"^Prefect UI  {served.prefect}$", printed, re.M)
    assert registry.get_by_alias("champion")["version"] == "1", "by the interval, not by chance"
    assert registry.get_by_alias("challenger")["version"] == "2"
    assert succeed(served.electra("promote", "2")) == "champion is version 2\n"
    assert registry.get_by_alias("champion")["reason"] == "by hand"
    assert succeed(served.electra("promote", "1")) == "champion is version 1\n"
