"""A shop's reviews as the README and docs/questions.md have them: a model for each label, scores
joined to the rows, and the answers to what the shop's owner asks next.
"""

import csv
import json
import re
import socket
from dataclasses import replace
from pathlib import Path

import httpx
import pandas as pd
import pytest

from amazon_electra.beam_jobs.sample.sample_dump import write_sample
from amazon_electra.flows.servers.access import build_mlflow_access
from amazon_electra.flows.servers.stock import resolve_mlflow_uri
from amazon_electra.model.tracking.registry import Registry, name_model
from tests.journeys.shell import Shell, write_shop
from tests.model.encoders.checkpoints import write_checkpoint
from tests.patience import eventually

pytestmark = [pytest.mark.slow]
TFIDF = ["--finetuning.arms", "tfidf", "--finetuning.seeds", "0"]
POLARITY = [*TFIDF, "--finetuning.tasks", "polarity"]
MODEL = "store/model/0123456789abcdef"


def find_models(printed: str) -> dict[str, Path]:
    """Return the folders that a run printed, by task; of one task the name is empty."""
    found = re.findall(r"^model +([^\s,]+)(?:, (\S+))?$", printed, re.M)
    return {task: Path(folder) for folder, task in found}


def find_versions(printed: str) -> dict[str, str]:
    """Return the versions that a run registered, by task."""
    return dict(re.findall(r"^registered +(\S+): version (\d+)", printed, re.M))


def find_report(printed: str) -> Path:
    return Path(re.search(r"^report +(\S+)$", printed, re.M)[1])


def find_encoder(printed: str) -> str:
    """Return the path, in the store, of the stage whose weights a run's networks start from."""
    made = json.loads(find_report(printed).with_name("manifest.json").read_text())
    return "{stage}/{fingerprint}".format_map(made["inputs"]["encoder"])


@pytest.fixture(scope="module")
def shop(tmp_path_factory, served):
    """The first two commands of the README on 500 reviews; what the run printed."""
    shell = Shell(tmp_path_factory.mktemp("shop"), served.store, {})
    write_shop(shell.folder / "shop.csv", 500)
    write_shop(shell.folder / "new-reviews.csv", 60, 5000, labelled=False)
    printed = shell.type("amazon-electra run --dump shop.csv")
    # There may be too few test reviews to prove that they are better, or champions of other runs.
    for task, version in find_versions(printed).items():
        registry = Registry(resolve_mlflow_uri(served.store), name_model(task))
        if registry.get_by_alias("champion").get("version") != version:
            if task == "stars":
                shown = shell.type(
                    "amazon-electra promote VERSION --task stars", names={"VERSION": version}
                )
            else:
                names = {"VERSION": version, "TASK": task}
                shown = shell.type("amazon-electra promote VERSION --task TASK", names=names)
            assert shown.startswith(f"champion is version {version}")
    shell.type("amazon-electra score --dump new-reviews.csv --output scores")
    return shell, printed


@pytest.mark.smoke
def test_a_run_answers_for_each_task(shop):
    shell, printed = shop
    models, report = find_models(printed), find_report(printed)
    assert models.keys() == {"stars", "polarity"}
    for task, folder in models.items():
        about = json.loads((folder / "config.json").read_text())["amazon_electra"]
        assert about["task"] == task
        assert (folder / "README.md").is_file()
    assert find_versions(printed).keys() == models.keys()
    figures = json.loads(report.with_name("report.json").read_text())
    best = {
        task: max(
            row["metrics"]["accuracy"]["value"] for row in figures["results"] if row["task"] == task
        )
        for task in models
    }
    assert best["polarity"] > 0.9
    assert best["stars"] > 0.6
    page = report.read_text()
    assert not re.search(r"""(?:src|href)=["']https?://""", page), "it opens without a network"
    [corpus] = {
        path
        for path in (shell.store / "corpus").glob("*/corpus.json")
        if json.loads(path.read_text())["read"] == 500
    }
    counts = json.loads(corpus.read_text())
    assert counts["read"] == counts["kept"] + sum(counts["dropped"].values())


def test_the_same_run_again_makes_nothing(shop):
    shell, printed = shop
    before = {path: path.stat().st_mtime for path in shell.store.glob("*/*/manifest.json")}
    again = shell.type("amazon-electra run --dump shop.csv")
    assert find_models(again) == find_models(printed)
    assert {path: path.stat().st_mtime for path in before} == before
    assert "nothing to do" in shell.type("amazon-electra run --dump shop.csv --dry-run")


@pytest.mark.smoke
def test_a_csv_comes_back_with_the_answers(shop):
    shell, printed = shop
    write_shop(shell.folder / "new.csv", 60, 5000)
    shell.type("amazon-electra score --dump new.csv --output scores")
    told = pd.read_csv(shell.folder / "scores" / "new.scores.csv")
    own = pd.read_csv(shell.folder / "new.csv")
    assert told[[*own]].equals(own)
    sides = own["stars"].map({1: "negative", 2: "negative", 4: "positive", 5: "positive"})
    is_right = told["polarity.predicted"] == sides
    assert is_right[sides.notna()].mean() > 0.85
    alone = replace(shell, folder=shell.folder / "alone")
    alone.folder.mkdir()
    write_shop(alone.folder / "new.csv", 60, 5000)
    folder = find_models(printed)["polarity"]
    alone.type(
        "amazon-electra score --dump new.csv --output scores --model store/model/0123456789abcdef",
        names={MODEL: folder},
    )
    alone_told = pd.read_csv(alone.folder / "scores" / "new.scores.csv")
    assert alone_told["polarity.predicted"].equals(told["polarity.predicted"])


def test_a_new_file_like_the_old_ones_holds(shop):
    shell, _ = shop
    write_shop(shell.folder / "june.csv", 100, 9000)
    printed = shell.type("amazon-electra score --dump june.csv", "--output", "june")
    assert "unlike" not in printed
    assert json.loads((shell.folder / "june" / "scores.json").read_text())


def test_what_to_label_next_becomes_labels(shop, shell):
    write_shop(shell.folder / "new.csv", 300, 7000, labelled=False)
    shell.type("amazon-electra score --dump new.csv --format parquet --model.task polarity")
    shell.type("amazon-electra suggest --number 200")
    lines = (shell.folder / "to_label.jsonl").read_text().splitlines()
    chosen = [json.loads(line) for line in lines]
    assert len(chosen) == len({one["text"] for one in chosen}) == 200
    with (shell.folder / "labelled.jsonl").open("w") as file:  # as doccano exports it
        for one in chosen:
            label = "goods" if re.search("lid|motor|cable|screw|hinge", one["text"]) else "other"
            file.write(json.dumps({"text": one["text"], "label": [label]}) + "\n")
    printed = shell.type("amazon-electra run --dump labelled.jsonl --label label", *TFIDF)
    [folder] = find_models(printed).values()
    assert json.loads((folder / "results.json").read_text())["task"] == "label:label"


def test_classes_in_words_need_no_label(shop, shell):
    write_shop(shell.folder / "tickets.csv", 300, 7000, labelled=False)
    (shell.folder / "reason.yaml").write_text("""
goods: {share: 0.4, phrases: [The lid does not fit, The motor broke]}
other: []
""")
    printed = shell.type("amazon-electra run --dump tickets.csv --classes reason.yaml")
    assert "no label: accuracy unknown" in printed
    [folder] = find_models(printed).values()
    shell.type(
        "amazon-electra score --dump tickets.csv --format parquet --model "
        "store/unlabelled/0123456789abcdef",
        names={"store/unlabelled/0123456789abcdef": folder},
    )
    shell.type("amazon-electra suggest --random 50")
    lines = (shell.folder / "to_label.jsonl").read_text().splitlines()
    with (shell.folder / "labelled.jsonl").open("w") as file:
        for one in map(json.loads, lines):
            reason = "goods" if re.search("lid|motor|cable|screw|hinge", one["text"]) else "other"
            file.write(json.dumps({"text": one["text"], "reason": reason}) + "\n")
    printed = shell.type(
        "amazon-electra run --dump labelled.jsonl --label reason --classes reason.yaml"
    )
    [folder] = find_models(printed).values()
    results = json.loads((folder / "results.json").read_text())
    assert results["task"] == "label:reason"
    assert results["n_chosen_on"] > 30


def test_an_answer_names_the_words_that_decide(shop, shell):
    write_shop(shell.folder / "new.csv", 20, 8000, labelled=False)
    shell.type(
        "amazon-electra score --dump new.csv --scores.explain true", "--model.task", "polarity"
    )
    because = pd.read_csv(shell.folder / "scores" / "new.scores.csv")["polarity.because"]
    assert because.str.match("“.+” [+−-]").all()


def test_answers_below_the_target_are_asked(shop, shell):
    write_shop(shell.folder / "shop.csv", 500, 1)
    printed = shell.type("amazon-electra run --dump shop.csv --target-accuracy 0.97", *POLARITY)
    [folder] = find_models(printed).values()
    write_shop(shell.folder / "new.csv", 60, 5000, labelled=False)
    shell.type("amazon-electra score --dump new.csv", "--model", folder)
    told = pd.read_csv(shell.folder / "scores" / "new.scores.csv")
    assert {*told["polarity.decision"]} <= {"decided", "ask"}


def test_own_columns_become_tasks(shop, shell):
    write_shop(shell.folder / "shop.csv", 500)
    printed = shell.type(
        "amazon-electra run --dump shop.csv --label reason",
        *["--label", "aspects", *TFIDF],
    )
    models = find_models(printed)
    assert {"label:reason", "label:aspects"} <= models.keys()
    write_shop(shell.folder / "new.csv", 60, 5000)
    own = pd.read_csv(shell.folder / "new.csv", keep_default_na=False)
    for task in ("reason", "aspects"):
        output = ["--output", task, "--model", models[f"label:{task}"]]
        shell.type("amazon-electra score --dump new.csv", *output)
        given = own[task].map(lambda one: [*filter(None, one.split("|"))])
        told = pd.read_csv(shell.folder / task / "new.scores.csv")[f"{task}.predicted"]
        told = [json.loads(one) if one.startswith("[") else [one] for one in told]
        assert sum(map(list.__eq__, map(sorted, told), map(sorted, given))) > 50


def test_stars_of_another_scale_are_read(shop, shell):
    with (shell.folder / "shop.csv").open("w", newline="") as file:
        rows = csv.DictReader(write_shop(shell.folder / "five.csv", 300, 3).open())
        table = csv.writer(file)
        table.writerow(["text", "stars"])
        table.writerows([row["text"], 2 * int(row["stars"])] for row in rows)
    printed = shell.type("amazon-electra run --dump shop.csv --stars-scale 1-10", *POLARITY)
    figures = json.loads(find_report(printed).with_name("report.json").read_text())
    assert figures["results"][0]["metrics"]["accuracy"]["value"] > 0.85


def test_the_latest_reviews_are_the_test(shop, shell):
    write_shop(shell.folder / "shop.csv", 500)
    printed = shell.type("amazon-electra run --dump shop.csv --corpus.split-by time", *POLARITY)
    assert find_report(printed).is_file()


@pytest.mark.parametrize(
    ("command", "folder"),
    [
        ("amazon-electra run --dump shop.csv --start-from ./bert", "bert"),
        ("amazon-electra run --dump reviews.json.gz --start-from ./minilm", "minilm"),
    ],
)
def test_another_published_encoder_is_an_arm(shell, command, folder):
    write_checkpoint(shell.folder / folder, max_position_embeddings=128)
    write_shop(shell.folder / "shop.csv", 300)
    write_sample(shell.folder / "reviews.json.gz", 300, 0)
    arms = ["--finetuning.arms", "frozen", "--finetuning.tasks", "polarity"]
    printed = shell.type(command, *arms)
    figures = json.loads(find_report(printed).with_name("report.json").read_text())
    assert {row["arm"].partition(",")[0] for row in figures["results"]} == {folder}


@pytest.mark.smoke
def test_a_published_encoder_is_adapted_to_titles(shell):
    """As in every run with 2,000 titles or more."""
    write_checkpoint(shell.folder / "minilm", max_position_embeddings=128)
    write_sample(shell.folder / "reviews.json.gz", 300, 0)
    words = ["--pretraining.objective", "contrastive", "--finetuning.arms", "frozen"]
    command = "amazon-electra run --dump reviews.json.gz --start-from ./minilm"
    printed = shell.type(command, *words, "--finetuning.tasks", "polarity")
    assert "FLOPs of matrix products" in find_report(printed).read_text()


def test_a_new_dump_is_one_more_file(shell):
    write_shop(shell.folder / "old.csv", 200)
    write_shop(shell.folder / "shop.csv", 200)
    write_shop(shell.folder / "new.csv", 100, 40_000)
    shape = ("batch=4", "layers=1", "hidden=32", "intermediate=64", "embedding=32")
    tiny = [f"--pretraining.{one}" for one in shape]
    own = ["--pretraining.steps", "5", "--finetuning.arms", "pre-trained"]
    own += ["--finetuning.tasks", "polarity", "--finetuning.seeds", "0"]
    printed = shell.type(
        "amazon-electra run --dump old.csv new.csv", "--recipe=sample", *tiny, *own
    )
    trained = find_encoder(printed)
    printed = shell.type("amazon-electra run --dump shop.csv new.csv --start-from last", *own)
    origins = [json.loads(path.read_text()) for path in shell.store.glob("origin/*/manifest.json")]
    assert str(shell.store / trained) in {
        str(Path(one["result"]["place"]).parent) for one in origins
    }
    assert find_encoder(printed) != trained


def test_a_stage_is_listed_shown_and_made_alone(shop):
    shell, printed = shop
    assert find_report(printed).parent.name in shell.type("amazon-electra runs")
    [path, *_] = sorted(shell.store.glob("finetuning/*/stage.json"))
    stage = f"finetuning/{path.parent.name}"
    assert "dev.accuracy" in shell.type(f"amazon-electra show {path.parent.name}")
    told = shell.type(
        "python -m amazon_electra.flows.run_stage STORE STAGE/FINGERPRINT",
        names={"STORE": shell.store, "STAGE/FINGERPRINT": stage},
    )
    made = json.loads(path.with_name("manifest.json").read_text())
    assert json.loads(told)[stage]["dev"] == made["result"]["dev"]


def test_mlflow_serves_the_champion(shop, served):
    shell, _ = shop
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    access = {"MLFLOW_TRACKING_URI": served.mlflow, **build_mlflow_access(served.store)}
    server = replace(shell, settings=access).start(
        "mlflow models serve -m models:/amazon-electra-stars@champion --env-manager local",
        *["--port", port],
    )
    try:
        address = f"http://127.0.0.1:{port}"

        def is_up():
            assert server.poll() is None, server.communicate()
            try:
                return httpx.get(f"{address}/ping").status_code == 200
            except httpx.TransportError:
                return False

        eventually(is_up)
        asked = {"inputs": ["It is wonderful and superb.", None]}
        first, second = httpx.post(f"{address}/invocations", json=asked).json()["predictions"]
    finally:
        server.terminate()
        server.communicate()
    assert first["label"] in {"4 stars", "5 stars"}
    assert sum(first["probabilities"].values()) == pytest.approx(1)
    assert (second["label"], bool(second["reason"])) == (None, True)
