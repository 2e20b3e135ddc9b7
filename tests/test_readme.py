"""What the README and the pages beside it tell people to type is accepted, and what they show is
there.
"""

import re
import runpy
import shlex
import sys
import warnings
from collections import defaultdict
from pathlib import Path

import pytest

from beam_jobs.job.errors import UserError
from beam_jobs.sample.sample_dump import write_sample
from flows.cli import main, run_commands
from flows.servers.mlflow_server import resolve_mlflow_database
from model.tracking.mlflow_run import Tracking
from model.tracking.registry import Registry
from tests.flows.made import write_encoder
from tests.flows.studies.loaded import write_study_data

ROOT = Path(__file__).parent.parent
PAGES = [
    p
    for top in ("README.md", "docs", "deploy", "beam_jobs", "model")
    for p in sorted([*ROOT.glob(top), *ROOT.glob(f"{top}/**/*.md")])
    if p.suffix == ".md"
]


def typed(page: Path) -> list[str]:
    """Every command of a page: of its code blocks, continued lines joined, comments cut off, and
    between backquotes.
    """
    text = page.read_text()
    blocks = re.findall(r"^```(?:sh|bash|console)?\n(.*?)^```|((?:^    .*\n)+)", text, re.M | re.S)
    lines = "\n".join(a or b for a, b in blocks).replace("\\\n", " ").splitlines()
    found = [re.sub(r"\s+#.*", "", line.strip().removeprefix("$ ")) for line in lines]
    found += [
        " ".join(m.split())
        for m in re.findall(
            r"(?<!`)`([^`]+)`(?!`)", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
        )
    ]
    return [
        line
        for line in found
        if re.match(r"(make|amazon-electra|(\S+=\S+ )*(\S*/)?python (-m|tests/)) ?", line)
    ]


COMMANDS = {(page, command) for page in PAGES for command in typed(page)}
PROGRAM = re.compile(r"python (?:-m ((?:beam_jobs|model|flows)[\w.]*)|(tests/bench/\w+\.py))")


def by_program() -> dict[str, list[str]]:
    """The commands that start each of our modules and benches."""
    found = defaultdict(list)
    for _, command in COMMANDS:
        if m := PROGRAM.search(command):
            found[m[1] or m[2]].append(command)
    return found


PROGRAMS = by_program()


def those_of(name: str) -> list[str]:
    return sorted(
        {
            command
            for _, command in COMMANDS
            if command.startswith(f"{name} ") and "…" not in command
        }
    )


def test_the_readme_has_commands():
    there = {
        command for page, command in COMMANDS if page.name == "README.md" and page.parent == ROOT
    }
    assert {"make demo", "make test"} <= there


@pytest.mark.parametrize("command", those_of("make"))
def test_make_has_the_target(command):
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M)
    assert [w for w in command.split()[1:] if "=" not in w and w not in targets] == []


@pytest.mark.parametrize("command", those_of("amazon-electra"))
def test_the_command_line_takes_it(command):
    check_command(command)


def check_command(command: str) -> None:
    """Parse a command, and the settings of one that has any."""
    arguments = main.build_parser().parse_args(shlex.split(command)[1:])
    if arguments.command == "run" and arguments.dump:
        run_commands.build_form(arguments)
    if arguments.command == "score":
        run_commands.build_scoring_form(arguments)


def test_a_setting_that_does_not_exist_is_noticed():
    check_command("amazon-electra run --dump x.json --set pretraining.steps=1")
    with pytest.raises(UserError, match="no such section"):
        check_command("amazon-electra run --dump x.json --set nonsense.x=1")
    check_command("amazon-electra score --dump x.json --set model.workers=2")
    with pytest.raises(UserError, match="no such section"):
        check_command("amazon-electra score --dump x.json --set nonsense.x=1")


@pytest.mark.parametrize(
    "command",
    [c for c in those_of("amazon-electra") if " run --dump " in c and "--add-to" not in c],
)
def test_a_run_can_be_planned(command, tmp_path, monkeypatch, capsys):
    write_encoder(tmp_path / "minilm")
    monkeypatch.chdir(tmp_path)
    words = [*shlex.split(command)[1:], "--store", str(tmp_path), "--dry-run"]
    arguments = main.build_parser().parse_args([*words, "--dump", "sample:50"])
    assert main.attempt(arguments) == 0
    assert "pre-training" in capsys.readouterr().out


@pytest.fixture(scope="module")
def scored_store(tmp_path_factory) -> Path:
    """A store whose registry has a champion, of a run that has ended."""
    store = tmp_path_factory.mktemp("scored") / "store"
    tracking = Tracking(resolve_mlflow_database(store))
    tracking.start("a run", {}, {})
    tracking.finish()
    registry = Registry(tracking.uri)
    version = registry.add_version(tracking.parent.id, "model", {"scorer": "f" * 16})
    registry.promote(version, "by hand")
    return store


@pytest.mark.parametrize(
    "command", [c for c in those_of("amazon-electra") if c.startswith("amazon-electra score --")]
)
def test_a_scoring_can_be_planned(command, scored_store, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = shlex.split(command)[1:]
    dump = words[words.index("--dump") + 1]
    Path(dump).write_text("id,body\n" + "".join(f"{i},The lamp is fine.\n" for i in range(20)))
    words += ["--store", str(scored_store), "--dry-run"]
    assert main.attempt(main.build_parser().parse_args(words)) == 0, capsys.readouterr().err
    planned = capsys.readouterr().out
    assert re.search(r"^model +champion, version 1$", planned, re.M)
    assert re.search(r"^to do +scores ", planned, re.M)
    assert sorted(path.name for path in tmp_path.iterdir()) == [dump]


@pytest.fixture(scope="module")
def study_place(tmp_path_factory) -> Path:
    """A folder with what the pages name: dumps, texts, tasks, an encoder, a study of the README."""
    place = write_study_data(tmp_path_factory.mktemp("studies"))
    (place / "sst2").rename(place / "SST-2")
    (place / "general.txt").rename(place / "other-text.txt.gz")
    write_pairs(place / "glue")
    write_encoder(place / "electra")
    (place / "dumps").mkdir()
    for dump in ("reviews.json.gz", "dumps/a.json.gz"):
        write_sample(place / dump, 50, 0)
    [own] = re.findall(r"^```yaml\n(.*?)^```", (ROOT / "README.md").read_text(), re.M | re.S)
    (place / "my-study.yaml").write_text(own)
    return place


def write_pairs(glue: Path) -> None:
    """Write a few pairs in the columns of MRPC and of QNLI."""
    for number, file in enumerate(("MRPC/train.tsv", "MRPC/dev.tsv", "QNLI/dev.tsv")):
        lines = ["Quality\t#1 ID\t#2 ID\t#1 String\t#2 String"]
        if "QNLI" in file:
            lines = ["index\tquestion\tsentence\tlabel"]
        for n in range(100 * number, 100 * number + 60):
            label = ("entailment", "not_entailment")[n % 2]
            pair = f"{n}\tWho has lamp {n}?\tBob has lamp {n}.\t{label}"
            lines.append(pair if "QNLI" in file else f"{n % 2}\t{n}\t{n}\tlamp {n}\tno {n}")
        (glue / file).parent.mkdir(parents=True, exist_ok=True)
        (glue / file).write_text("\n".join(lines) + "\n")


STUDIES = [c for c in those_of("amazon-electra") if re.match(r"amazon-electra study [a-z]\S* ", c)]


@pytest.mark.parametrize("command", STUDIES)
def test_a_study_can_be_planned(command, study_place, monkeypatch, capsys):
    monkeypatch.chdir(study_place)
    words = [*shlex.split(command)[1:], "--store", "store", "--dry-run"]
    assert main.attempt(main.build_parser().parse_args(words)) == 0, capsys.readouterr().err
    assert re.search(r"^to do +study ", capsys.readouterr().out, re.M)


@pytest.mark.parametrize("program", sorted(PROGRAMS))
def test_the_program_knows_its_options(program, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [program, "--help"])
    monkeypatch.setattr(sys, "path", [*sys.path])  # benches add to it
    assert not run_here(program)
    known = set(re.findall(r"--[\w-]+", capsys.readouterr().out))
    used = set(re.findall(r"(?<=\s)--[\w-]+", " ".join(PROGRAMS[program])))
    assert {option for option in used if option not in known and not beam_knows(option)} == set()


def run_here(program: str) -> object:
    """Run a program and return its exit code. In a process of its own most would import torch
    anew, two CPU seconds each.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # other tests have imported it too
            if program.endswith(".py"):
                runpy.run_path(str(ROOT / program), run_name="__main__")
            else:
                runpy.run_module(program, run_name="__main__")
    except SystemExit as ended:
        return ended.code
    return 0


def beam_knows(option: str) -> bool:
    from apache_beam.options.pipeline_options import PipelineOptions

    names: set[str] = set()
    PipelineOptions([]).get_all_options(
        add_extra_args_fn=lambda parser: names.update(
            s for a in parser._actions for s in a.option_strings
        )
    )
    return option in names


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_links_to_is_there(page):
    links = set(re.findall(r"!?\[[^\]]*\]\(([^)#:]+)\)", page.read_text()))
    assert {link for link in links if not (page.parent / link).exists()} == set()
