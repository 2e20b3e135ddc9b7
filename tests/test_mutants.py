"""The modules and tests that `make mutants` names exist."""

import shlex
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
MUTANTS = ROOT / "tests" / "mutants"


def test_modules_and_their_tests_exist():
    configs = [*(MUTANTS / "modules").glob("*.toml")]
    assert configs
    for config in configs:
        told = tomllib.loads(config.read_text())["cosmic-ray"]
        tests = [word for word in shlex.split(told["test-command"]) if word.startswith("tests/")]
        assert tests
        assert [p for p in [*told["module-path"], *tests] if not (ROOT / p).exists()] == []
