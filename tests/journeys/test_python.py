"""docs/python.md works as it is written."""

import re
from pathlib import Path

import pytest

from tests.journeys.shell import write_shop

pytestmark = pytest.mark.slow
PAGE = (Path(__file__).parents[2] / "docs" / "python.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.M | re.S)
WHOLE_RUN = 'made = ae.run("shop.csv")'


def run_blocks(shell, *blocks):
    (shell.folder / "page.py").write_text("\n".join(blocks))
    return shell.type("python page.py")


@pytest.mark.smoke
def test_the_page(shell):
    write_shop(shell.folder / "shop.csv", 700)
    blocks = [block for block in BLOCKS if WHOLE_RUN not in block]
    assert len(blocks) == len(BLOCKS) - 1
    run_blocks(shell, "import amazon_electra as ae\n", *blocks)
    assert (shell.folder / "scores" / "shop.scores.csv").read_text().count("\n") == 701
    assert (shell.folder / "model" / "model.onnx").exists()


def test_the_whole_run_of_the_page(shell):
    write_shop(shell.folder / "shop.csv", 300)
    printed = run_blocks(shell, BLOCKS[0], "assert made.model.is_dir()", "assert made.registered")
    assert re.search(r"^polarity \S+ \{", printed, re.M)
