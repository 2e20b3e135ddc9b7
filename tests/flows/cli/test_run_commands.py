"""`run` asks for a dump and shows what is in it; wrong options are told in one line."""

import re

import pytest

from amazon_electra.flows.cli import main, study_command
from amazon_electra.flows.policy import MIN_FINETUNED
from amazon_electra.flows.servers.health import find_free_port


def attempt(*words):
    with pytest.raises(SystemExit) as ended:
        main.main(list(words))
    return ended.value.code


@pytest.mark.parametrize("command", ["run", "score"])
def test_a_dump_is_asked_for(command, tmp_path, capsys):
    assert attempt(command, "--store", str(tmp_path)) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("error: --dump: name the files")
    assert "sample:20000" in line


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["run", "--dmp", "x"], "--dmp: unknown option; valid: .*; did you mean --dump?"),
        (["rum"], "argument COMMAND: invalid choice: 'rum'"),
        (
            ["run", "--dump", "sample:9", "--set", "corpsu.seed=1"],
            "--set corpsu.seed=\\w+: unknown section; valid: .*; did you mean corpus?",
        ),
    ],
)
def test_a_mistake_is_one_line_that_names_what_was_meant(words, told, tmp_path, capsys):
    assert attempt(*words) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert re.match(f"error: {told}".replace("?", r"\?"), line)


def test_a_dry_run_shows_what_each_file_holds(tmp_path, capsys):
    rows = [f'"the kettle {i} boils",{i % 5 + 1},red\n' for i in range(30)]
    (tmp_path / "own.csv").write_text("text,grade,colour\n" + "".join(rows))
    words = ["run", "--dump", str(tmp_path / "own.csv"), "--store", str(tmp_path / "store")]
    assert attempt(*words, "--dry-run", "--columns", "stars=grade", "--recipe", "sample") == 0
    lines = capsys.readouterr().out.splitlines()
    assert f"file      {tmp_path / 'own.csv'}: delimited, about 30 reviews" in lines
    assert "columns   text ← text, stars ← grade; not used: colour" in lines
    assert "          1 star    the kettle 0 boils" in lines
    assert len([line for line in lines if "boils" in line]) == 10
    assert not list((tmp_path / "store").glob("corpus/*"))
    [total] = [line for line in lines if " stages to do" in line]
    to_do = [line for line in lines if line.startswith("to do ")]
    assert total == f"{len(to_do)} stages to do, 0 complete"
    kinds = {line.split()[2] for line in to_do}
    assert kinds >= {"corpus", "pretraining", "finetuning", "evaluation", "report"}
    [training] = [line for line in lines if re.match("to do +pretraining ", line)]
    assert training.endswith(", 600 steps, 0.6 M tokens")
    assert lines[-1].startswith("warning: 0.614 M tokens"), "it comes last, where it is seen"
    assert "--set pretraining.start_from" in lines[-1]


@pytest.mark.parametrize(
    ("words", "is_told"), [([], True), (["--set", "pretraining.steps=9"], False)]
)
def test_a_dry_run_says_when_adaptation_is_omitted(words, is_told, tmp_path, capsys):
    (tmp_path / "own.csv").write_text(
        "text,stars\n" + "".join(f"lamp {i},{i % 5 + 1}\n" for i in range(200))
    )
    words = [*words, "--dump", str(tmp_path / "own.csv"), "--store", str(tmp_path / "store")]
    assert attempt("run", "--dry-run", *words) == 0
    notes = [one for one in capsys.readouterr().out.splitlines() if one.startswith("note: ")]
    assert sum("3 passes" in note and "fewer than 3 million" in note for note in notes) == is_told
    assert sum(f"fewer than {MIN_FINETUNED:,}" in note for note in notes) == 1


def test_a_dump_without_stars_ends_before_a_server_is_started(tmp_path, capsys):
    """Told only after pre-training, it cost hours."""
    rows = [f"the kettle {i} boils,{i % 5 + 1}\n" for i in range(30)]
    (tmp_path / "own.csv").write_text("review_text,grade\n" + "".join(rows))
    store = tmp_path / "store"
    assert attempt("run", "--dump", str(tmp_path / "own.csv"), "--store", str(store)) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert f"{tmp_path / 'own.csv'}: no stars" in line
    assert "review_text, grade" in line
    assert not list(store.glob("*/*/manifest.json"))
    assert not (store / "prefect").exists()


@pytest.mark.parametrize("variable", ["PREFECT_API_URL", "MLFLOW_TRACKING_URI"])
def test_a_named_server_that_is_away_is_one_line_at_once(variable, tmp_path, monkeypatch, capsys):
    """Its clients would try again for minutes, and end in a traceback."""
    address = f"127.0.0.1:{find_free_port()}/api"
    monkeypatch.setenv(variable, f"http://electra:secret@{address}")
    words = ["run", "--dump", "sample:30", "--recipe", "sample", "--store", str(tmp_path / "store")]
    assert attempt(*words) == 1
    [line] = capsys.readouterr().err.splitlines()
    assert f"{variable}: no answer from http://{address}" in line


def test_a_section_means_the_same_in_a_study():
    words = ["study", "losses", "--set"]
    chosen = [
        study_command.read_choice(main.build_parser().parse_args([*words, setting]))
        for setting in ("epochs=3", "finetuning.epochs=3")
    ]
    assert chosen[0] == chosen[1]
    assert chosen[0][1].settings == {"epochs": "3"}
