"""What docs/extending.md adds from outside goes through a run to its end."""

import json
import re
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest

from amazon_electra.beam_jobs.core.plugins import VARIABLE
from tests.model.encoders.checkpoints import write_checkpoint
from tests.served import CLEAN
from tests.test_extensions import DOCUMENT, read_module, write_star_lines

pytestmark = pytest.mark.slow
MODULES = ("star_lines", "satisfaction", "bayes", "substitution")


def read_task() -> str:
    """The module of the page's task, which is registered as one from outside is."""
    [module] = re.findall(
        r"```python\n( +\"\"\"Read whether a reviewer recommends.*?)```",
        DOCUMENT.read_text(encoding="utf-8"),
        re.S,
    )
    register = "from amazon_electra.model.finetuning.tasks import register_task"
    return f"{textwrap.dedent(module)}\n{register}\nregister_task(TASKS[0], __name__)\n"


@pytest.fixture
def extending(shell):
    """A shell whose commands find the modules of the page."""
    package = shell.folder / "shop_extras"
    package.mkdir()
    modules = {name: read_module(name) for name in MODULES} | {"recommended": read_task()}
    for name, text in modules.items():
        (package / f"{name}.py").write_text(text, encoding="utf-8")
    plugins = ",".join(f"shop_extras.{name}" for name in modules)
    path = f"{shell.folder}:{CLEAN['PYTHONPATH']}"
    return replace(shell, settings={"PYTHONPATH": path, VARIABLE: plugins})


def test_a_run_takes_all_of_them_to_the_end(extending):
    write_star_lines(extending.folder / "shop.stars.gz", 1500)
    settings = ("finetuning.tasks=satisfied", "pretraining.objective=mlm+rts")
    words = [f"--{one}" for one in (*settings, "pretraining.steps=2")]
    words += ["--finetuning.arms", "pre-trained", "random", "bayes", "tfidf"]
    printed = extending.type("amazon-electra run --dump shop.stars.gz --recipe sample", *words)
    assert "naive Bayes" in printed
    report = Path(re.search(r"^report +(\S+)$", printed, re.M)[1]).with_name("report.json")
    figures = json.loads(report.read_text())
    assert {one["task"] for one in figures["results"]} == {"satisfied"}
    labels = [
        json.loads(path.read_text())["labels"]
        for path in extending.store.glob("evaluation/*/metrics.json")
    ]
    assert ["no", "so so", "yes"] in labels
    losses = [
        json.loads(path.read_text()).get("rts_loss", 0)
        for path in extending.store.glob("pretraining/*/result.json")
    ]
    assert max(losses) > 0


def test_the_task_of_the_page_is_fine_tuned(extending):
    data = extending.folder / "data"
    data.mkdir()
    lines = [
        json.dumps({"text": f"It is {word}, number {i}.", "recommended": word == "good"})
        for i in range(100)
        for word in ("good", "bad")
    ]
    (data / "train.jsonl").write_text("\n".join(lines))
    encoder = write_checkpoint(extending.folder / "encoder")
    told = extending.type(
        "python -m amazon_electra.model.finetune --encoder ENCODER --task recommended "
        "--data FOLDER --output MODEL",
        *["--epochs", "1"],
        names={"ENCODER": encoder, "FOLDER": data, "MODEL": "model"},
    )
    assert json.loads(told)["dev"]["accuracy"] >= 0
