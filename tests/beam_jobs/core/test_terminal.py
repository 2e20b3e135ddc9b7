"""What others wrote is shown, and a terminal does not obey it."""

import ast
import json
from pathlib import Path

from amazon_electra.beam_jobs.core.command import run_to_exit_code
from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.beam_jobs.core.terminal import escape_controls

ROOT = Path(__file__).parents[3]
HOSTILE = "a\x1b]52;c;ZXZpbA==\x07b\x9b2Jc\u202etxt\u2066d\rE\udce9"
SHOWN = r"a\x1b]52;c;ZXZpbA==\x07b\u009b2Jc\u202etxt\u2066d\x0dE\udce9"
WITHOUT = Path("beam_jobs/core/terminal.py")
"""File that prints for all the others."""


def test_controls_and_marks_of_direction_are_escapes():
    assert escape_controls(HOSTILE) == SHOWN
    plain = "line\n\ttab, café, 代理, שלום, 👩‍🚀"
    assert escape_controls(plain) == plain
    text = json.dumps({HOSTILE: 1}, ensure_ascii=False)
    assert json.loads(escape_controls(text)) == json.loads(text)


def test_an_error_of_a_job_is_shown(capfd):
    def run():
        raise UserError(f"no column {HOSTILE}")

    assert run_to_exit_code(run, 1) == 2
    shown = capfd.readouterr().err
    assert SHOWN.replace(r"\x0d", " ") in shown, "a line end in an error is a space"
    assert "\x1b" not in shown


def test_every_module_prints_by_the_function_that_escapes():
    for package in ("flows", "beam_jobs", "model"):
        for path in (ROOT / package).rglob("*.py"):
            name = path.relative_to(ROOT)
            if name == WITHOUT:
                continue
            nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
            calls = [n for n in nodes if isinstance(n, ast.Call) and ast.unparse(n.func) == "print"]
            imports = [ast.unparse(n) for n in nodes if isinstance(n, ast.ImportFrom)]
            ours = any("core.terminal import" in one and "print" in one for one in imports)
            assert ours or not calls, f"{name} prints without escapes"
