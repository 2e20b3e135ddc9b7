"""What the README and the pages beside it tell people to type is accepted, and their links lead
somewhere.
"""

import ast
import re
import runpy
import shlex
import sys
from pathlib import Path

import pytest
from cyclopts import CycloptsError

from amazon_electra.flows.cli import main, running
from amazon_electra.flows.studies import study_file

ROOT = Path(__file__).parent.parent
FOLDERS = ("docs", "deploy", "beam_jobs", "flows", "model", "tests")
PAGES = sorted([*ROOT.glob("*.md"), *(p for one in FOLDERS for p in (ROOT / one).rglob("*.md"))])


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
MADE = re.findall(r"\$\(BIN\)/(amazon-electra .+)", (ROOT / "Makefile").read_text())
"""What make types."""


@pytest.fixture
def check_command(monkeypatch):
    """Parse a command, and fill the form of one that has any."""
    for module, name in (
        (running, "execute_graph"),
        (running, "execute_scoring"),
        (study_file, "load_study"),
    ):
        monkeypatch.setattr(module, name, lambda *given: sys.exit())

    def check(line):
        words = shlex.split(line)[1:]
        app = main.build_app()
        command, bound, _ = app.parse_args(words, exit_on_error=False, print_error=False)
        if words[0] in ("run", "score", "study") and "--dump" in words and "--dry-run" not in words:
            with pytest.raises(SystemExit):
                command(*bound.args, **bound.kwargs)

    return check


@pytest.mark.parametrize("command", [c for c in COMMANDS + MADE if c.startswith("amazon-electra ")])
def test_the_command_line_takes_it(command, check_command):
    check_command(command)


@pytest.mark.parametrize("command", ["run", "score"])
def test_a_setting_that_does_not_exist_is_noticed(command, check_command):
    check_command(f"amazon-electra {command} --dump x.json --dump.encoding cp1252")
    with pytest.raises(CycloptsError):
        check_command(f"amazon-electra {command} --dump x.json --nonsense.x 1")


def test_make_has_the_targets():
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M)
    words = {w for c in COMMANDS if re.match("make [a-z]", c) for w in c.split()[1:]}
    assert {word for word in words if "=" not in word} - {*targets} == set()


def test_the_programs_are_there():
    typed = "\n".join(COMMANDS)
    modules = re.findall(r"python -m amazon_electra\.((?:beam_jobs|model|flows)[\w.]*)", typed)
    files = {f"{module.replace('.', '/')}.py" for module in modules}
    files |= {*re.findall(r"python (\w+/[\w/]+\.py)", typed)}
    assert [file for file in files if not (ROOT / file).exists()] == []


TYPED = re.compile(r"(amazon-electra|make|mlflow|prefect|python|sh|docker|curl|pip|dc) +\S")
RESULTS = ROOT / "docs" / "results.md"
ELSEWHERE = {
    r"make (demo|test|bench)$": "tests/readme, `make test-demo`, `make test-bench`",
    r"(make|amazon-electra) up$": "the fixture `served` of all journeys",
    r"make test-containers": "is a test itself, and needs Docker",
    r"python tests/bench/": "`make test-bench` runs each on a small input",
    r"python -X importtime": "prints what `python` measures of an import",
    r".*s3://": "tests/faults/test_remote_store.py, on an S3 server",
    r"python -m amazon_electra\.flows\.ui\.deployments": "tests/faults/test_pools.py",
    r"(docker|dc) ": "needs Docker",
    r"pip install": "needs the network",
    r"prefect (server start|deploy|block|worker start|automation|deployment)": "Prefect's own",
}
"""Commands that no journey types, by how they begin, each with the reason."""


def list_typed() -> set[str]:
    """Return the strings of the journeys, among which are the commands that they type."""
    files = (ROOT / "tests" / "journeys").glob("*.py")
    nodes = [node for file in files for node in ast.walk(ast.parse(file.read_text()))]
    return {
        " ".join(node.value.split())
        for node in nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


@pytest.mark.parametrize(
    "page",
    [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "deploy" / "README.md"],
    ids=lambda page: page.name,
)
def test_a_journey_types_each_command(page):
    commands = {" ".join(c.split()) for c in list_commands(page) if TYPED.match(c)}
    here = {c for c in commands if not any(re.match(reason, c) for reason in ELSEWHERE)}
    typed = list_typed()
    left = [c for c in here if not any(one.startswith(c) for one in typed)]
    assert page == RESULTS or left == [], "add each to a journey of tests/journeys"


def test_no_reason_is_left_over():
    commands = [c for page in PAGES for c in list_commands(page)]
    unused = [r for r in ELSEWHERE if not any(re.match(r, command) for command in commands)]
    assert unused == []


PROGRAMS = [c for c in list_commands(RESULTS) if c.startswith("python -m amazon_electra")]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # other tests have imported it too
@pytest.mark.parametrize("command", PROGRAMS)
def test_a_program_of_the_results_has_the_options(command, monkeypatch, capsys):
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
