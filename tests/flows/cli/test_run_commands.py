"""`run` asks for a dump and shows what is in it; wrong options are told in one line."""

import pytest

from amazon_electra.flows.cli import main, running
from amazon_electra.flows.configuration.form import Corpus, Pretraining
from amazon_electra.flows.servers.access import find_free_port


def attempt(*words):
    return main.run_words(words)


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["run"], ["--dump: name the files", "sample:20000"]),
        (["score"], ["--dump: name the files", "sample:20000"]),
        (["run", "--dmp", "x"], ["--dmp", "--dump?"]),
        (["rum"], ["rum", '"run"?']),
        (["run", "--encoding", "cp1252"], ["--encoding", "--dump.encoding?"]),
        (["run", "--dump", "sample:9", "--corpus.title", "maybe"], ["maybe", "--corpus.title"]),
        (
            ["run", "--dump", "sample:9", "--finetuning.arms", "tfdif"],
            ["--finetuning.arms tfdif: "],
        ),
        (["run", "--dump", "sample:9", "--recipe", "none.yaml"], ["--recipe none.yaml: "]),
        (["show"], ["FINGERPRINT"]),
        (["study", "losses"], ["--dump"]),
        (["study", "losses", "--study.at-once", "0"], ["--study.at-once 0"]),
        (["study", "losses", "--dump", "sample:9", "--study.temperature", "3"], ["temperature"]),
        (["suggest", "--number", "0"], ["--number 0: "]),
    ],
)
def test_a_mistake_is_one_line_with_the_option_and_its_value(words, parts, capsys):
    assert attempt(*words) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert all(one in line for one in parts), line


def test_a_recipe_and_options_fill_one_form(tmp_path, monkeypatch):
    forms = []
    monkeypatch.setattr(running, "print_plan", lambda form, store: forms.append(form))
    recipe = tmp_path / "mine.yaml"
    recipe.write_text("recipe: small\ncorpus: {title: false}\npretraining: {batch: 8, steps: 4}\n")
    words = [
        "--corpus.split_by",
        "time",
        "--pretraining.steps",
        "none",
        "--label",
        "a",
        "--label",
        "b",
    ]
    words += ["--finetuning.seeds", "0", "1", "--store", str(tmp_path), "--dry-run"]
    assert attempt("run", "--dump", "sample:9", "--recipe", str(recipe), *words) == 0
    [form] = forms
    assert form.corpus == Corpus(title=False, split_by="time")
    assert form.pretraining == Pretraining(settings={"batch": "8"})
    assert (form.dump.labels, form.finetuning.seeds) == (("a", "b"), [0, 1])


def test_the_shell_completes_options():
    script = main.build_app().generate_completion(shell="bash")
    assert all(one in script for one in ("--corpus.split-by", "--start-from", "promote"))


def test_a_dry_run_shows_what_each_file_holds(tmp_path, capsys):
    rows = [f'"the kettle {i} boils",{i % 5 + 1},red\n' for i in range(30)]
    (tmp_path / "own.csv").write_text("text,grade,colour\n" + "".join(rows))
    words = ["run", "--dump", str(tmp_path / "own.csv"), "--store", str(tmp_path / "store")]
    assert attempt(*words, "--dry-run", "--columns", "stars=grade", "--recipe", "sample") == 0
    lines = capsys.readouterr().out.splitlines()
    assert f"file      {tmp_path / 'own.csv'}: delimited, about 30 reviews" in lines
    assert "columns   text ← text, stars ← grade; not used: colour" in lines
    assert "          stars 1   the kettle 0 boils" in lines
    assert len([line for line in lines if "boils" in line]) == 10
    assert not (tmp_path / "store").exists()
    [total] = [line for line in lines if " stages to do" in line]
    to_do = [line for line in lines if line.startswith("to do ")]
    assert total == f"{len(to_do)} stages to do, 0 complete"
    kinds = {line.split()[2] for line in to_do}
    assert kinds >= {"corpus", "pretraining", "finetuning", "evaluation", "report"}


def test_a_dump_without_a_label_takes_classes_in_words(tmp_path, capsys):
    (tmp_path / "new.csv").write_text("text\n" + "It broke after a week.\n" * 30)
    (tmp_path / "why.yaml").write_text("broken: [It broke]\nlate: {share: 0.2}\n")
    words = ["run", "--dump", str(tmp_path / "new.csv"), "--store", str(tmp_path / "store")]
    assert attempt(*words, "--classes", str(tmp_path / "why.yaml"), "--dry-run") == 0
    printed = capsys.readouterr().out
    assert "model without a label · label:why" in printed
    assert "no label: accuracy unknown" in printed
    assert "report" not in printed


@pytest.mark.parametrize("variable", ["PREFECT_API_URL", "MLFLOW_TRACKING_URI"])
def test_a_named_server_that_is_away_is_one_line_at_once(variable, tmp_path, monkeypatch, capsys):
    """Its clients would try again for minutes, and end in a traceback."""
    address = f"127.0.0.1:{find_free_port()}/api"
    monkeypatch.setenv(variable, f"http://electra:secret@{address}")
    words = ["run", "--dump", "sample:30", "--recipe", "sample", "--store", str(tmp_path / "store")]
    assert attempt(*words) == 1
    [line] = capsys.readouterr().err.splitlines()
    assert f"{variable}: no answer from http://{address}" in line
