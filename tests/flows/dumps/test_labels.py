"""The tasks of a run and the counts that decide, by the first records and by the corpus."""

import pytest

from amazon_electra.flows.configuration.form import Corpus, Dump
from amazon_electra.flows.dumps import labels
from amazon_electra.flows.dumps.preview import read_previews
from amazon_electra.flows.stages.dump import build_dump_stage
from amazon_electra.flows.store.store import Store
from tests.beam_jobs.dumps import run_job, text_of
from tests.flows.fakes import FakeStage
from tests.refusals import refuses


def write_csv(folder, name, header, make_row):
    rows = [",".join(make_row(i)) for i in range(400)]
    path = folder / name
    path.write_text("\n".join([header, *rows]) + "\n")
    return str(path)


def read(folder, *paths, **dump):
    """A dump of these files and its first records."""
    chosen, store = Dump(paths=list(paths), **dump), Store(folder / "store")
    return chosen, read_previews(chosen, build_dump_stage(chosen, store))


def choose(folder, *paths, tasks=(), **dump):
    return labels.choose_tasks(tasks, *read(folder, *paths, **dump))


def write_stars(folder, name="rated.csv", stars=lambda i: i % 5 + 1):
    return write_csv(folder, name, "text,stars", lambda i: (f"leaks {i}", str(stars(i))))


def write_bare(folder):
    return write_csv(folder, "bare.csv", "text,topic", lambda i: (f"boils {i}", "ab"[i % 2]))


def write_fasttext(folder):
    lines = [f"__label__{'pos' if i % 2 else 'neg'} boils {i}\n" for i in range(300)]
    (folder / "train.txt").write_text("".join(lines))
    return str(folder / "train.txt")


def test_a_run_has_the_tasks_that_its_dump_has_labels_for(tmp_path):
    rated, bare, fasttext = write_stars(tmp_path), write_bare(tmp_path), write_fasttext(tmp_path)
    binary = write_stars(tmp_path, "binary.csv", lambda i: i % 2 == 0)
    own = write_csv(
        tmp_path,
        "own.csv",
        "text,stars,returned_because",
        lambda i: (f"kettle {i}", str(i % 5 + 1), ("too small", "broken", "")[i % 3]),
    )
    labelled = ["label:returned_because", "polarity", "stars"]
    assert choose(tmp_path, rated) == ["polarity", "stars"]
    assert choose(tmp_path, bare, rated) == ["polarity", "stars"], "one file with stars is enough"
    assert choose(tmp_path, binary) == ["polarity"]
    assert choose(tmp_path, own, labels=["returned_because"]) == labelled
    assert choose(tmp_path, bare, labels=["topic"]) == ["label:topic"]
    assert choose(tmp_path, fasttext, labels=["label"]) == ["label:label"]


@pytest.mark.parametrize(
    ("write", "tasks", "named"),
    [
        (write_bare, [], ["bare.csv", "topic"]),
        (write_fasttext, [], ["train.txt"]),
        (write_bare, ["label:topic"], ["label:topic", "--label topic"]),
    ],
)
def test_a_dump_without_labels_is_refused(tmp_path, write, tasks, named):
    path = write(tmp_path)
    with refuses(*named):
        choose(tmp_path, path, tasks=tasks)


def test_the_counts_of_the_corpus_say_what_is_missing(tmp_path):
    store, corpus = Store(tmp_path), FakeStage("corpus", 1, {})
    counts = {f"{split}.{stars}": 9 for split in ("train", "dev", "test") for stars in (3, 5)}
    store.publish(corpus, {"stars": counts, "splits": {}, "kept": 54})
    assert labels.count_corpus(["stars"], corpus, store).labels == {"stars": 54}
    with refuses("polarity"):
        labels.count_corpus(["polarity"], corpus, store)


def test_a_label_that_is_too_rare_is_left_out_and_said(tmp_path):
    def make_row(i):
        return f"boils {i}", "ab"[i % 2], "x" if i < 4 else "y"

    path = write_csv(tmp_path, "two.csv", "text,topic,fraud", make_row)
    store, corpus = Store(tmp_path / "store"), FakeStage("corpus", 1, {})
    store.folder(corpus).mkdir(parents=True)
    argv = ["--input", path, "--labels", "topic", "fraud"]
    store.publish(corpus, run_job(store.folder(corpus), *argv))
    counts = labels.count_corpus(["label:topic", "label:fraud"], corpus, store)
    assert [*counts.labels] == ["label:topic"]
    assert "fraud" in " ".join(counts.left_out)
    with refuses("fraud"):
        labels.count_corpus(["label:fraud"], corpus, store)


def test_the_corpus_has_about_the_counts_that_are_estimated(tmp_path):
    rows = [f'"{text_of(i)}",{i % 5 + 1},{"abc"[i % 3]},Title {i}\n' for i in range(600)]
    path = tmp_path / "own.csv"
    path.write_text("text,stars,why,title\n" + "".join(rows))
    chosen, previews = read(tmp_path, str(path), labels=["why"])
    tasks = ["polarity", "label:why"]
    expected = labels.estimate_counts(tasks, chosen, Corpus(), previews)
    store, corpus = Store(tmp_path / "store"), FakeStage("corpus", 1, {})
    store.folder(corpus).mkdir(parents=True)
    store.publish(corpus, run_job(store.folder(corpus), "--input", path, "--labels", "why"))
    counted = labels.count_corpus(tasks, corpus, store)
    assert expected.labels == counted.labels == {"polarity": 480, "label:why": 600}
    assert expected.titles == pytest.approx(counted.titles, rel=0.2)
    assert expected.tokens > 0 < counted.tokens
