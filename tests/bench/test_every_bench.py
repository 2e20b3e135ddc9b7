"""Every bench runs to its end on a small dump and prints the figures it promises as JSON."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCHES = Path(__file__).parent
ROOT = BENCHES.parents[1]
REVIEWS = 400  # with 200, a split of the sample may hold no review of one class


def run(*words: object) -> str:
    """Run a Python module or script from the root; return what it prints on stdout."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    done = subprocess.run(
        [sys.executable, *map(str, words)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=environment,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """Return a folder with a dump, its corpus, vocabulary and shards, and a fine-tuned model."""
    folder = tmp_path_factory.mktemp("made")
    dump, corpus, vocabulary = folder / "dump.json.gz", folder / "corpus", folder / "vocabulary"
    shards, model = folder / "shards", folder / "model"
    run("-m", "beam_jobs.sample.sample_dump", "--reviews", REVIEWS, "--output", dump)
    run("-m", "beam_jobs.corpus_job", "--input", dump, "--output", corpus)
    run("-m", "model.vocabulary", "--corpus", corpus, "--output", vocabulary, "--size", 1000)
    packing = ["--corpus", corpus, "--vocabulary", vocabulary, "--max_length", 64]
    run("-m", "beam_jobs.shards_job", *packing, "--output", shards)
    run("-m", "beam_jobs.shards_job", *packing, "--output", folder / "dev", "--split", "dev")
    pretraining = ["--shards", shards, "--output", folder / "electra", "--preset", "tiny"]
    run("-m", "model.pretrain", *pretraining, "--steps", 3, "--device", "cpu")
    finetuning = ["--task", "polarity", "--data", corpus, "--output", model, "--preset", "tiny"]
    encoder = ["--encoder", folder / "electra" / "discriminator", "--set", "epochs=1"]
    run("-m", "model.finetune", *encoder, *finetuning, "--set", "n_train=20", "--device", "cpu")
    return folder


def figures(text: str) -> dict:
    """Return the JSON object that a bench printed last; every number of it is a real one."""
    printed = json.loads(text.strip().splitlines()[-1])
    found = printed if isinstance(printed, dict) else {"rows": printed}
    numbers = [value for value in found.values() if isinstance(value, int | float)]
    assert all(number == number for number in numbers)
    return found


@pytest.mark.parametrize(
    ("bench", "words", "keys"),
    [
        (
            "amazonqa_memory",
            ["--reviews", "{dump}", "--gigabytes", 0.05, "--n_train", 20],
            {"growth"},
        ),
        (
            "adaptation_recipes",
            [
                *("--encoder", "{electra}", "--corpus", "{corpus}", "--shards", "{shards}"),
                *("--tokens", 2000, "--general", "{shards}", "--pretraining_seeds", 0, 1),
                *("--draws", 2),
                *("--recipes", "plain-5e-5", "pull", "replay"),
                *("--finetune", 1, "--seeds", 0),
            ],
            {"rows"},
        ),
        (
            "adaptation_curve",
            [
                *("--encoder", "{electra}", "--corpus", "{corpus}", "--shards", "{shards}"),
                *("--validation", "{dev}", "--tokens", 4000, "--at", 2000, "--seeds", 0),
                *("--set", "objective=mlm", "validate_sequences=8"),
                *("--draws", 2, "--drawn_shares", 0),
            ],
            {"rows"},
        ),
        ("corpus_memory", ["--dump", "{dump}", "--copies", 1, 2], {"rows"}),
        ("dumps_in_turn", ["--dump", "{dump}", "--dump", "{dump}"], set()),
        (
            "electra_plateau",
            [
                *("--corpus", "{corpus}", "--vocabulary", "{vocabulary}", "--steps", 6),
                *("--recipes", "ELECTRA after half of the cost in MLM", "--seeds", 0),
                *("--processes", 2),
            ],
            {"rows"},
        ),
        ("finetune_dropout", ["--tokens", 8, "--rounds", 1], set()),
        (
            "finetuning_threads",
            ["--input", "{dump}", "--encoder", "{electra}", "--reviews", 20, "--threads", 1, 2],
            {"rows"},
        ),
        (
            "finetuning_tokens",
            [
                *("--encoder", "{electra}", "--task", "polarity", "--data", "{corpus}"),
                *("--preset", "tiny", "--set", "epochs=1", "--device", "cpu"),
            ],
            {"share", "texts"},
        ),
        ("orchestration", [], {"added_seconds_a_stage", "repeated_run_seconds"}),
        ("pretrain_checkpoint", ["--preset", "tiny"], set()),
        ("pretrain_memory", ["--steps", 2000], set()),
        ("pretrain_step", ["--preset", "tiny", "--batch", 4, "--rounds", 1], set()),
        (
            "processes",
            ["--preset", "tiny", "--batch", 4, "--steps", 3, "--rounds", 1],
            {"speed_ratio", "largest_relative_loss_difference"},
        ),
        ("bucket_memory", ["--runs", 100_000], {"rows"}),
        ("ranged_reads", ["--reads", 20], {"rows"}),
        (
            "remote_store",
            ["--reviews", REVIEWS, "--steps", 3, "--rounds", 1],
            {"cpu_ratio", "same_fingerprints"},
        ),
        (
            "same_recipe",
            ["--studies", 1, "--steps", 3, "--reviews", REVIEWS],
            {"false_positives_share", "false_positives_high", "of_one_pretraining"},
        ),
        ("study_cells", ["--cells", 3], {"first_run_seconds_a_cell"}),
        ("scoring", ["--model", "{model}", "--input", "{dump}", "--workers", 1], set()),
        (
            "small_budget",
            ["--steps", 3, "--seeds", 0, "--tasks", "polarity", "--reviews", REVIEWS],
            set(),
        ),
        (
            "published_step",
            ["--encoder", "{electra}", "--shards", "{shards}", "--steps", 2, "--batch", 4],
            {"speed_ratio", "published_tokens_per_cpu_second"},
        ),
        ("state_type", ["--preset", "tiny", "--batch", 4, "--rounds", 1], {"rows"}),
        ("withholding_memory", ["--withhold", "{dump}"], set()),
        ("withholding_own", ["--input", "{dump}", "--rounds", 1], {"share"}),
    ],
)
def test_it_prints_its_figures_as_json(made, bench, words, keys):
    places = {name: made / name for name in ("model", "corpus", "shards", "dev", "vocabulary")}
    places |= {"dump": made / "dump.json.gz", "electra": made / "electra" / "discriminator"}
    words = [word.format(**places) if isinstance(word, str) else word for word in words]
    found = figures(run(BENCHES / f"{bench}.py", *words, "--json"))
    assert found
    assert keys <= found.keys()


@pytest.mark.smoke
def test_the_bench_of_fine_tuning_compares_with_the_plain_loop(made):
    words = ["--reviews", made / "dump.json.gz", "--vocabulary", made / "vocabulary"]
    sizes = ["--examples", 16, "--rounds", 1, "--longest", 64]
    printed = run(BENCHES / "finetune_batches.py", *words, *sizes)
    assert "plain" in printed
    assert "64" in printed


def test_the_bench_of_the_probes_choice_has_a_row_for_each_state_and_rule(made, tmp_path):
    encoder, shards = made / "electra" / "discriminator", made / "shards"
    words = ["--shards", shards, "--start-from", encoder, "--output", tmp_path, "--device", "cpu"]
    words += ["--preset", "tiny", "--steps", 3]
    for setting in ("objective=mlm", "checkpoint_every=1", "keep_checkpoints=3"):
        words += ["--set", setting]
    run("-m", "model.pretrain", *words)
    words = ["--run", tmp_path, "--encoder", encoder, "--shards", shards, "--draws", 3]
    printed = run(BENCHES / "probe_choice.py", *words, "--corpus", made / "corpus", "--json")
    rows = figures(printed)["rows"]
    assert len(rows) == 3 + 5
    assert [row["published"] for row in rows[:3]] == [0, 0, 0]
    assert rows[2]["gain"] == rows[-1]["gain"]  # the last state, however it is named


def test_the_jobs_of_a_study_make_what_the_study_finds_complete(made, tmp_path):
    file, jobs, store = tmp_path / "study.yaml", tmp_path / "jobs.pickle", tmp_path / "store"
    start = {"shards": str(made / "shards"), "start_from": str(made / "electra" / "discriminator")}
    study = {
        "title": "jobs",
        "seeds": [0],
        "pretraining_seeds": [0],
        "arms": [
            {"name": "trained", "pretraining": start | {"set": {"steps": 2, "objective": "mlm"}}},
            {"name": "as it was", "encoder": str(made / "electra" / "discriminator")},
        ],
        "tasks": [{"task": "polarity", "data": str(made / "corpus")}],
        "settings": {"n_train": 8, "n_dev": 8, "n_test": 8, "epochs": 1, "learning_rates": [1e-3]},
    }
    file.write_text(json.dumps(study))
    words = [file, "--store", store]
    listed = run(BENCHES / "study_jobs.py", "list", jobs, *words)
    assert "4 chains" in listed
    done = run(BENCHES / "study_jobs.py", "make", jobs, "--processes", 2, "--forget")
    assert "FAILED" not in done
    assert len(done.splitlines()) == 4  # the origin too
    assert not list(store.glob("finetuning/*/model.safetensors"))
    again = run(BENCHES / "study_jobs.py", "list", jobs, *words)
    assert "0 chains" in again


def test_the_size_of_the_installation_has_a_line_for_each_file_of_pins():
    *of_files, of_torch = run(BENCHES / "installed_size.py").splitlines()
    assert [line.split()[0] for line in of_files] == [
        "requirements-local.txt",
        "requirements.txt",
        "requirements-published.txt",
        "requirements-dev.txt",
    ]
    assert "minilm" in of_files[2]
    assert "pytest" in of_files[3] or "playwright" in of_files[3]
    assert int(of_torch.split(" MB")[0].split()[-1].replace(",", "")) > 100


def test_the_fill_of_google_rows_is_a_share(made):
    from tests.bench.google_rows import measure

    fill = measure(made / "corpus", made / "vocabulary", 64)
    assert 0.2 < fill.fill <= 1
    assert 0 <= fill.lost < 0.5


def test_every_bench_is_run_here():
    # test_data_path.py, test_dump_counts.py, tests/flink/test_bench.py,
    # tests/beam_jobs/engine/test_flex_template.py
    run_elsewhere = {"data_path", "dump_counts", "flink_cluster", "data_path_cost"}
    text = Path(__file__).read_text()
    benches = {p.stem for p in BENCHES.glob("*.py")} - {"__init__", "peak_memory"}
    unmentioned = {b for b in benches if not b.startswith("test_") and b not in text}
    assert unmentioned - run_elsewhere == set()
