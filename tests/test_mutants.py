"""What `make mutants` is told is still there: modules, tests, and the planted defects."""

import shlex
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
MUTANTS = ROOT / "tests" / "mutants"


def test_modules_and_their_tests_are_there():
    configs = [*(MUTANTS / "modules").glob("*.toml")]
    assert configs
    for config in configs:
        told = tomllib.loads(config.read_text())["cosmic-ray"]
        tests = [word for word in shlex.split(told["test-command"]) if word.startswith("tests/")]
        assert tests
        assert [p for p in [*told["module-path"], *tests] if not (ROOT / p).exists()] == []


def test_defects_can_be_planted_and_the_readme_names_their_tests():
    page = (MUTANTS.parent / "README.md").read_text()
    for defect in tomllib.loads((MUTANTS / "defects.toml").read_text())["defect"]:
        assert (ROOT / defect["file"]).read_text().count(defect["before"]) == 1, defect["what"]
        path, name = defect["test"].split("::")
        assert f"def {name}(" in (ROOT / path).read_text()
        assert f"| {defect['number']} | {defect['what']} |" in page
        assert f"`{name}`" in page
