"""A run that is interrupted says so, keeps what it has, and names the command that continues it."""

import json
import re
import signal
from pathlib import Path

import pytest

from amazon_electra.beam_jobs.sample.sample_dump import write_sample
from tests.patience import PATIENCE_SECONDS

pytestmark = [pytest.mark.slow, pytest.mark.smoke]

TRAINS = (
    "--recipe sample --finetuning.tasks polarity --finetuning.arms pre-trained tfidf "
    "--promotion.mode off"
)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
def test_an_interrupted_run_is_continued(shell, number):
    write_sample(shell.folder / "shop.json.gz", 400, 0)
    steps = f"--pretraining.steps {100 + number}"  # each has its own training
    run = shell.start(f"amazon-electra run --dump shop.json.gz {TRAINS} {steps}")
    shown = []
    awaited = {"pre-training.*: started"} | ({"→ TF-IDF"} if number == signal.SIGINT else set())
    for line in run.stderr:
        shown.append(line)
        awaited -= {one for one in awaited if re.match(one, line)}
        if not awaited:
            run.send_signal(number)
            break
    printed, rest = run.communicate(timeout=PATIENCE_SECONDS)
    shown = "".join(shown) + rest
    assert "✗" not in shown
    assert "failed" not in shown
    assert re.search(r"^■ pre-training.* stopped$", shown, re.M)
    again = re.search(r"continue with: (amazon-electra run .*)$", shown, re.M)
    if number == signal.SIGINT:  # the best so far
        assert run.returncode == 0
        model = Path(re.search(r"^model +(\S+)$", printed, re.M)[1])
        assert json.loads((model / "results.json").read_text())["arm"] == "TF-IDF"
    else:
        assert run.returncode == 130
    printed = shell.type(again[1])
    [report] = re.findall(r"^report +(\S+)$", printed, re.M)
    arms = json.loads(Path(report).with_name("report.json").read_text())["results"]
    assert {row["arm"] for row in arms} == {"pre-trained", "TF-IDF"}
