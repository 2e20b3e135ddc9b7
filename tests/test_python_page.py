"""docs/python.md works as it is written, and `import amazon_electra` has what the page names."""

import csv
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

import amazon_electra as ae

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.M | re.S)
WHOLE_RUN = 'made = ae.run("shop.csv")'
WORDS = {"5": ("great", "lovely", "sturdy", "quiet"), "1": ("broken", "awful", "noisy", "torn")}
OTHERS = ("kettle", "lamp", "chair", "phone", "box", "the", "a", "my", "it", "we", "bought", "and")


def write_shop(path: Path, rows: int) -> None:
    draw = random.Random(3)
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["review", "rating"])
        for _ in range(rows):
            rating = draw.choice("15")
            words = draw.choices(OTHERS, k=9) + draw.choices(WORDS[rating], k=3)
            draw.shuffle(words)
            table.writerow([" ".join(words).capitalize() + ".", rating])


def run_blocks(folder: Path, blocks: list[str]) -> subprocess.CompletedProcess:
    """Run code as a script."""
    (folder / "page.py").write_text("\n".join(blocks))
    return subprocess.run([sys.executable, "page.py"], cwd=folder, capture_output=True, text=True)


def test_every_name_is_there_and_has_a_docstring():
    assert [name for name in ae.__all__ if not getattr(ae, name).__doc__] == []
    source = Path(ae.__file__).read_text()
    typed = re.findall(r"^    from ([\w.]+) import (\w+) as \2$", source, re.M)
    assert {name: module for module, name in typed} == ae.HOMES
    assert set(re.findall(r"\bae\.([A-Za-z_]+)", PAGE)) <= set(ae.__all__)


def test_an_import_loads_no_library():
    program = "import sys, amazon_electra; print(len(sys.modules), 'pydantic' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    modules, has_pydantic = done.stdout.split()
    assert int(modules) < 150
    assert has_pydantic == "False"


def test_mistakes_are_user_errors(tmp_path):
    with pytest.raises(ae.UserError, match="finetunning"):
        ae.run("shop.csv", store=tmp_path / "store", finetunning={})
    with pytest.raises(ae.UserError, match="seeds"):
        ae.run("shop.csv", store=tmp_path / "store", finetuning={"seeds": ["one"]})
    absent = tmp_path / "absent.csv"  # found in the run's own process
    with pytest.raises(ae.UserError, match=re.escape(str(absent))):
        ae.run(absent, store=tmp_path / "store")


@pytest.mark.slow
@pytest.mark.smoke
def test_the_page(tmp_path):
    write_shop(tmp_path / "shop.csv", 700)
    blocks = [block for block in BLOCKS if WHOLE_RUN not in block]
    assert len(blocks) == len(BLOCKS) - 1
    done = run_blocks(tmp_path, ["import amazon_electra as ae\n", *blocks])
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "scores" / "shop.scores.csv").read_text().count("\n") == 701
    assert (tmp_path / "model" / "model.onnx").exists()


@pytest.mark.slow
def test_the_whole_run_of_the_page(tmp_path):
    write_shop(tmp_path / "shop.csv", 300)
    done = run_blocks(tmp_path, [BLOCKS[0], "assert made.model.is_dir()\nassert made.registered\n"])
    assert done.returncode == 0, done.stderr
    assert re.search(r"^polarity \S+ \{", done.stdout, re.M)
