"""What the README and the pages beside it tell people to type is accepted, and their links lead
somewhere.
"""

import re
import runpy
import shlex
from pathlib import Path

import pytest

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.flows.cli import main, options, run_commands
from amazon_electra.flows.configuration.form import Scoring
from amazon_electra.flows.configuration.form_tools import fill_form

ROOT = Path(__file__).parent.parent
PAGES = [
    p
    for top in (
        "README.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
        "docs",
        "deploy",
        "beam_jobs",
        "model",
        "tests",
    )
    for p in sorted([*ROOT.glob(top), *ROOT.glob(f"{top}/**/*.md")])
    if p.suffix == ".md"
]


def list_commands(page: Path) -> list[str]:
    """Return the commands of a page: of its code blocks, continued lines joined, comments cut off,
    and between backquotes; those that leave something out (…) are none.
    """
    text = page.read_text()
    blocks = re.findall(r"^```(?:sh|bash|console)?\n(.*?)^```|((?:^    .*\n)+)", text, re.M | re.S)
    lines = "\n".join(a or b for a, b in blocks).replace("\\\n", " ").splitlines()
    found = [re.sub(r"\s+#.*", "", line.strip().removeprefix("$ ")) for line in lines]
    prose = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    found += [" ".join(m.split()) for m in re.findall(r"(?<!`)`([^`]+)`(?!`)", prose)]
    return [line for line in found if "…" not in line]


COMMANDS = sorted({command for page in PAGES for command in list_commands(page)})


def check_command(command: str) -> None:
    """Parse a command, and the settings of one that has any."""
    arguments = main.build_parser().parse_args(shlex.split(command)[1:])
    if arguments.command == "run" and arguments.dump:
        run_commands.build_form(arguments)
    if arguments.command == "score":
        fill_form(Scoring, arguments.settings, **options.require_dump(arguments))


@pytest.mark.parametrize("command", [c for c in COMMANDS if c.startswith("amazon-electra ")])
def test_the_command_line_takes_it(command):
    check_command(command)


def test_a_setting_that_does_not_exist_is_noticed():
    check_command("amazon-electra run --dump x.json --set pretraining.steps=1")
    with pytest.raises(UserError, match=r"nonsense\.x"):
        check_command("amazon-electra run --dump x.json --set nonsense.x=1")
    with pytest.raises(UserError, match=r"nonsense\.x"):
        check_command("amazon-electra score --dump x.json --set nonsense.x=1")


def test_make_has_the_targets():
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M)
    words = {w for c in COMMANDS if re.match("make [a-z]", c) for w in c.split()[1:]}
    assert {word for word in words if "=" not in word} - {*targets} == set()


def test_the_programs_are_there():
    modules = set(
        re.findall(
            r"python -m amazon_electra\.((?:beam_jobs|model|flows)[\w.]*)", "\n".join(COMMANDS)
        )
    )
    files = set(re.findall(r"python (\w+/[\w/]+\.py)", "\n".join(COMMANDS)))
    files |= {f"{module.replace('.', '/')}.py" for module in modules}
    missing = {file for file in files if not (ROOT / file).exists()}
    assert {
        f for f in missing if not (ROOT / f.removesuffix(".py") / "__main__.py").exists()
    } == set()


PROGRAMS = [c for c in list_commands(ROOT / "README.md") if c.startswith("python -m ")]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # other tests have imported it too
@pytest.mark.parametrize("command", PROGRAMS)
def test_a_program_of_the_readme_has_the_options(command, monkeypatch, capsys):
    _, _, program, *words = shlex.split(command)
    monkeypatch.setattr("sys.argv", [program, "--help"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module(program, run_name="__main__")
    assert not ended.value.code
    known = re.findall(r"--[\w-]+", capsys.readouterr().out)
    assert {word for word in words if word.startswith("--")} - {*known} == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_links_to_is_there(page):
    links = set(re.findall(r"!?\[[^\]]*\]\(([^)#:]+)\)", page.read_text()))
    assert {link for link in links if not (page.parent / link).exists()} == set()
