"""What the README tells people to type is accepted, and what it shows is there."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from flows import cli

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def typed() -> list[str]:
    """Every command of the README's code blocks, continued lines joined, comments cut off."""
    blocks = re.findall(r"^```(?:sh|bash|console)?\n(.*?)^```|((?:^    .*\n)+)", README, re.M | re.S)
    lines = "\n".join(a or b for a, b in blocks).replace("\\\n", " ").splitlines()
    found = [re.sub(r"\s+#.*", "", line.strip().removeprefix("$ ")) for line in lines]
    return [line for line in found if re.match(r"(make|amazon-electra|(\S+=\S+ )*(\S*/)?python -m) ", line)]


COMMANDS = typed()
MODULES = sorted({m[1] for c in COMMANDS if (m := re.search(r"python -m ((?:beam_jobs|model|flows)\S*)", c))})


def test_the_readme_has_commands():
    assert "make demo" in COMMANDS
    assert "make test" in COMMANDS


@pytest.mark.parametrize("command", [c for c in COMMANDS if c.startswith("make ")])
def test_make_has_the_target(command):
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M)
    assert [w for w in command.split()[1:] if "=" not in w and w not in targets] == []


@pytest.mark.parametrize("command", [c for c in COMMANDS if c.startswith("amazon-electra ")])
def test_the_command_line_takes_it(command):
    cli.parser().parse_args(shlex.split(command)[1:])


@pytest.mark.parametrize("module", MODULES)
def test_the_module_knows_its_options(module):
    told = subprocess.run([sys.executable, "-m", module, "--help"], capture_output=True, text=True, cwd=ROOT).stdout
    used = {
        option.split("=")[0]
        for command in COMMANDS
        if re.search(rf"python -m {re.escape(module)}\b", command)
        for option in shlex.split(command)
        if option.startswith("--")
    }
    assert {option for option in used if option not in told and not beam_knows(option)} == set()


def beam_knows(option: str) -> bool:
    from apache_beam.options.pipeline_options import PipelineOptions

    names: set[str] = set()
    PipelineOptions([]).get_all_options(
        add_extra_args_fn=lambda parser: names.update(s for a in parser._actions for s in a.option_strings)
    )
    return option in names


@pytest.mark.parametrize("path", sorted(set(re.findall(r"!?\[[^\]]*\]\(([^)#:]+)\)", README))))
def test_what_the_readme_links_to_is_there(path):
    assert (ROOT / path).exists()
