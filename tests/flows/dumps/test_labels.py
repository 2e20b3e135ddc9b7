"""The tasks of a run and the counts that decide, by the first records and by the corpus."""

import pytest

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.flows.configuration.form import Corpus, Dump
from amazon_electra.flows.dumps import labels
from amazon_electra.flows.dumps.preview import list_files, read_previews
from amazon_electra.flows.stages.dump import build_dump_stage
from amazon_electra.flows.store.stage import ExistingStage
from amazon_electra.flows.store.store import Store
from tests.beam_jobs.dumps import run_job, text_of


def write_csv(folder, name, header, make_row):
    rows = [",".join(make_row(i)) for i in range(400)]
    path = folder / name
    path.write_text("\n".join([header, *rows]) + "\n")
    return str(path)


def read(folder, *paths, **dump):
    """A dump of these files and its first records."""
    chosen, store = Dump(paths=list(paths), **dump), Store(folder / "store")
    return chosen, read_previews(list_files(chosen, build_dump_stage(chosen, store)), chosen)


def choose(folder, *paths, tasks=(), **dump):
    return labels.choose_tasks(tasks, *read(folder, *paths, **dump))


def test_a_dump_without_stars_is_refused_with_its_columns(tmp_path):
    own = write_csv(
        tmp_path,
        "own.csv",
        "review_text,grade,review_titles",
        lambda i: (f"the kettle {i} boils", "ABC"[i % 3], "good"),
    )
    with pytest.raises(UserError) as refused:
        choose(tmp_path, own)
    line = str(refused.value)
    assert own in line
    assert "review_text, grade (stars?), review_titles (title?)" in line
    assert "\n" not in line


def test_labels_of_fasttext_that_are_no_stars_are_classes(tmp_path):
    own = tmp_path / "train.txt"
    own.write_text("".join(f"__label__{'pos' if i % 2 else 'neg'} boils {i}\n" for i in range(300)))
    with pytest.raises(UserError, match=r"train\.txt"):
        choose(tmp_path, str(own))
    assert choose(tmp_path, str(own), labels=["label"]) == ["label:label"]


def test_one_file_with_stars_is_enough(tmp_path):
    bare = write_csv(tmp_path, "a.csv", "text,note", lambda i: (f"boils {i}", "x"))
    rated = write_csv(tmp_path, "b.csv", "text,stars", lambda i: (f"leaks {i}", str(i % 5 + 1)))
    assert choose(tmp_path, bare, rated) == ["polarity", "stars"]
    with pytest.raises(UserError, match=r"a.csv"):
        choose(tmp_path, bare)


def test_stars_of_no_and_yes_are_the_task_polarity(tmp_path):
    own = write_csv(tmp_path, "a.csv", "text,stars", lambda i: (f"boils {i}", str(i % 2 == 0)))
    assert choose(tmp_path, own) == ["polarity"]


def test_the_counts_of_the_corpus_say_what_is_missing(tmp_path):
    store, corpus = Store(tmp_path), ExistingStage("corpus", 1, {})
    counts = {f"{split}.{stars}": 9 for split in ("train", "dev", "test") for stars in (3, 5)}
    store.publish(corpus, {"stars": counts, "splits": {}, "kept": 54})
    assert labels.count_corpus(["stars"], corpus, store).labels == {"stars": 54}
    with pytest.raises(UserError, match="polarity"):
        labels.count_corpus(["polarity"], corpus, store)


def test_a_run_has_the_tasks_that_its_dump_has_labels_for(tmp_path):
    rated = write_csv(
        tmp_path,
        "rated.csv",
        "text,stars,returned_because",
        lambda i: (f"kettle {i}", str(i % 5 + 1), ("too small", "broken", "")[i % 3]),
    )
    bare = write_csv(
        tmp_path, "bare.csv", "text,topic", lambda i: (f"kettle {i}", ("price", "noise")[i % 2])
    )
    own = ["returned_because"]
    assert choose(tmp_path, rated) == ["polarity", "stars"]
    assert choose(tmp_path, rated, labels=own) == ["label:returned_because", "polarity", "stars"]
    assert choose(tmp_path, bare, labels=["topic"]) == ["label:topic"]
    with pytest.raises(UserError, match="label:topic"):
        choose(tmp_path, bare, tasks=["label:topic"])


def test_the_corpus_has_about_the_counts_that_are_estimated(tmp_path):
    rows = [f'"{text_of(i)}",{i % 5 + 1},{"abc"[i % 3]},Title {i}\n' for i in range(600)]
    path = tmp_path / "own.csv"
    path.write_text("text,stars,why,title\n" + "".join(rows))
    chosen, previews = read(tmp_path, str(path), labels=["why"])
    tasks = ["polarity", "label:why"]
    expected = labels.estimate_counts(tasks, chosen, Corpus(), previews)
    store, corpus = Store(tmp_path / "store"), ExistingStage("corpus", 1, {})
    store.folder(corpus).mkdir(parents=True)
    store.publish(corpus, run_job(store.folder(corpus), "--input", path, "--label", "why"))
    counted = labels.count_corpus(tasks, corpus, store)
    assert expected.labels == counted.labels == {"polarity": 480, "label:why": 600}
    assert expected.titles == pytest.approx(counted.titles, rel=0.2)
    assert expected.tokens > 0 < counted.tokens
