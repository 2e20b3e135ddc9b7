"""Text files are UTF-8 whatever the locale says."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("beam_jobs", "flows", "model", "deploy")
ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii"}
"""A locale without UTF-8, which Python does not put right by itself."""


def leaves_encoding_open(call: ast.Call) -> bool:
    """Return whether a call reads or writes text in the locale's encoding."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ast.unparse(call.func)
    named = {keyword.arg for keyword in call.keywords}
    if "encoding" in named:
        return False
    if name in ("read_text", "write_text"):
        return len(call.args) <= (name == "write_text")
    modes = [
        word.value
        for word in (*call.args, *(one.value for one in call.keywords if one.arg == "mode"))
        if isinstance(word, ast.Constant) and isinstance(word.value, str)
    ]
    if name == "open" and (isinstance(call.func, ast.Name) or set(modes) & {"r", "w", "a", "a+"}):
        return not any("b" in mode for mode in modes)
    return name in ("run", "Popen", "check_output") and bool(named & {"text", "universal_newlines"})


@pytest.mark.parametrize("package", PACKAGES)
def test_every_text_file_is_opened_with_its_encoding(package):
    for without in ("p.read_text()", "open(p)", "p.open('w')", "run(c, text=True)"):
        assert leaves_encoding_open(ast.parse(without, mode="eval").body)
    for path in sorted((ROOT / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and leaves_encoding_open(node):
                pytest.fail(f"{path.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node)}")


def test_a_dry_run_works_in_a_locale_without_utf_8(tmp_path):
    dump = tmp_path / "dump.csv"
    rows = [f"Très bien — vraiment {i} fois,x,{i % 5 + 1}" for i in range(400)]
    dump.write_text("\n".join(["text,étoiles,stars", *rows]), encoding="utf-8")
    words = ["run", "--dry-run", "--dump", str(dump), "--store", str(tmp_path / "store")]
    done = subprocess.run(
        [sys.executable, "-m", "amazon_electra.flows.cli.main", *words],
        env=os.environ | ASCII,
        capture_output=True,
        encoding="ascii",
    )
    assert done.returncode == 0, done.stderr
    assert r"\xe9toiles" in done.stdout
