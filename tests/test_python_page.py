"""`import amazon_electra` has what docs/python.md names; a journey runs the page."""

import importlib
import re
import subprocess
import sys
from pathlib import Path

import amazon_electra as ae
from tests.refusals import refuses

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")


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


def test_beam_has_the_packages_that_it_imports_in_a_notebook():
    module = importlib.import_module("apache_beam.runners.interactive.interactive_environment")
    assert callable(module.current_env)


def test_mistakes_are_user_errors(tmp_path):
    absent = tmp_path / "absent.csv"
    for dump, given, named in (
        ("shop.csv", {"finetunning": {}}, ["finetunning"]),
        ("shop.csv", {"finetuning": {"seeds": ["one"]}}, ["finetuning.seeds"]),
        (absent, {}, [absent]),
    ):
        with refuses(*named, kind=ae.UserError):
            ae.run(dump, store=tmp_path / "store", **given)
