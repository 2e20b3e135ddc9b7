"""What `make mutants` is told is still there: modules, tests, and the lines of its list."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
MUTANTS = ROOT / "tests" / "mutants"
MODULES = tomllib.loads((MUTANTS / "modules.toml").read_text())
SURVIVORS = tomllib.loads((MUTANTS / "survivors.toml").read_text())["survivor"]
DEFECTS = tomllib.loads((MUTANTS / "defects.toml").read_text())["defect"]


def test_modules_and_their_tests_are_there():
    for module in MODULES.values():
        paths = [*module["files"], *(w for w in module["tests"] if w.startswith("tests/"))]
        assert [path for path in paths if not (ROOT / path.partition("::")[0]).exists()] == []


def test_survivors_are_lines_of_modules_and_have_a_reason():
    files = {file for module in MODULES.values() for file in module["files"]}
    assert {survivor["file"] for survivor in SURVIVORS} <= files
    for survivor in SURVIVORS:
        lines = "\n".join(map(str.strip, (ROOT / survivor["file"]).read_text().splitlines()))
        assert survivor["before"] in lines, f"{survivor['file']} has changed: is it still needed?"
        assert len(survivor["reason"].split()) > 3


def test_defects_can_be_planted_and_the_readme_names_their_tests():
    page = (MUTANTS.parent / "README.md").read_text()
    for defect in DEFECTS:
        assert (ROOT / defect["file"]).read_text().count(defect["before"]) == 1, defect["what"]
        path, name = defect["test"].split("::")
        assert f"def {name}(" in (ROOT / path).read_text()
        assert f"| {defect['number']} | {defect['what']} |" in page
        assert f"`{name}`" in page
