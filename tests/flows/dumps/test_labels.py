"""A task that can have no example is told in the first seconds, and by the corpus's counts."""

import json

import pytest

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.flows.configuration.form import Corpus, Dump, Parameters
from amazon_electra.flows.dumps import labels
from amazon_electra.flows.dumps.expected_corpus import foretell_corpus
from amazon_electra.flows.dumps.preview import list_files, read_previews
from amazon_electra.flows.runner.stage_runner import Plan
from amazon_electra.flows.stages.dump import build_dump_stage
from amazon_electra.flows.store.stage import ExistingStage
from amazon_electra.flows.store.store import Store
from tests.beam_jobs.dumps import run_job, text_of


def write_csv(folder, name, header, make_row):
    rows = [",".join(make_row(i)) for i in range(400)]
    path = folder / name
    path.write_text("\n".join([header, *rows]) + "\n")
    return str(path)


def check(folder, *paths, tasks=("polarity", "stars"), **dump):
    chosen, store = Dump(paths=list(paths), **dump), Store(folder / "store")
    reviews = build_dump_stage(chosen, store)
    labels.check_dump(tasks, chosen, reviews, Plan(store))


def test_a_dump_without_stars_is_told_with_its_columns(tmp_path):
    own = write_csv(
        tmp_path,
        "own.csv",
        "review_text,grade,review_titles",
        lambda i: (f"the kettle {i} boils", "ABC"[i % 3], "good"),
    )
    with pytest.raises(UserError) as told:
        check(tmp_path, own)
    line = str(told.value)
    assert own in line
    assert "review_text, grade (stars?), review_titles (title?)" in line
    assert "`columns='stars=NAME'`" in line
    assert "\n" not in line
    check(tmp_path, own, tasks=("sst-2",))


@pytest.mark.parametrize(
    ("column", "values", "named"),
    [
        ("rating", ("ten",), "rating.*'ten'"),
        ("rating", ("poor", "good", "A+"), "labels='rating'"),
        ("sentiment", ("y", "n"), "columns='stars=NAME'.* `labels='sentiment'"),
    ],
)
def test_a_column_that_holds_no_stars_is_named_with_what_helps(tmp_path, column, values, named):
    own = write_csv(
        tmp_path,
        "own.csv",
        f"text,{column},points",
        lambda i: (f"boils {i}", values[i % len(values)], str(i % 5 + 1)),
    )
    with pytest.raises(UserError, match=named):
        check(tmp_path, own)
    check(tmp_path, own, columns="stars=points")
    if len(values) > 1:
        check(tmp_path, own, tasks=(f"label:{column}",), labels=[column])


def test_labels_of_fasttext_that_are_no_stars_are_classes(tmp_path):
    own = tmp_path / "train.txt"
    own.write_text("".join(f"__label__{'pos' if i % 2 else 'neg'} boils {i}\n" for i in range(300)))
    with pytest.raises(UserError, match=r"dump\.labels='label'"):
        check(tmp_path, str(own))
    check(tmp_path, str(own), tasks=("label:label",), labels=["label"])


def test_one_file_with_stars_is_enough(tmp_path):
    bare = write_csv(tmp_path, "a.csv", "text,note", lambda i: (f"boils {i}", "x"))
    rated = write_csv(tmp_path, "b.csv", "text,stars", lambda i: (f"leaks {i}", str(i % 5 + 1)))
    check(tmp_path, bare, rated)
    with pytest.raises(UserError, match=r"a.csv"):
        check(tmp_path, bare)


def test_the_counts_of_the_corpus_tell_what_is_missing(tmp_path):
    store, corpus = Store(tmp_path), ExistingStage("corpus", 1, {})
    counts = {f"{split}.{stars}": 9 for split in ("train", "dev", "test") for stars in (3, 5)}
    store.publish(corpus, {"stars": counts})
    labels.check_corpus(["stars"], corpus, store)
    with pytest.raises(UserError, match="polarity"):
        labels.check_corpus(["polarity"], corpus, store)


def settle(folder, form, **settings):
    store = Store(folder / "store")
    form = form.model_copy(update={"store": store.address})
    settled = labels.resolve_tasks(form, build_dump_stage(form.dump, store), Plan(store))
    return settled.finetuning.tasks


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
    run = Parameters(dump=Dump(paths=[rated]))
    assert settle(tmp_path, run) == ["polarity", "stars"]
    run = Parameters(dump=Dump(paths=[rated], labels=["returned_because"]))
    assert settle(tmp_path, run) == ["label:returned_because", "polarity", "stars"]
    run = Parameters(dump=Dump(paths=[bare], labels=["topic"]))
    assert settle(tmp_path, run) == ["label:topic"]
    with pytest.raises(UserError, match=r"bare.csv"):
        settle(tmp_path, Parameters(dump=Dump(paths=[bare])))
    with pytest.raises(UserError, match="label:topic"):
        settle(tmp_path, Parameters(dump=Dump(paths=[bare]), finetuning={"tasks": ["label:topic"]}))


@pytest.mark.parametrize("value", ["same", "", "because {}"])
def test_a_column_that_holds_no_classes_is_told_by_the_first_records(tmp_path, value):
    path = tmp_path / "own.csv"
    rows = [f"kettle {i},{value.format(i)}\n" for i in range(600)]
    path.write_text("text,why\n" + "".join(rows))
    for label in ("why", "reason"):
        with pytest.raises(UserError, match=f"labels='{label}'"):
            settle(tmp_path, Parameters(dump=Dump(paths=[str(path)], labels=[label])))


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (lambda i: [["a", "b"], ["c"]], "[['a', 'b'], ['c']]"),
        (lambda i: f"class {i % 300}", " values have 10 reviews"),
        (lambda i: "good", "'good'"),
    ],
)
def test_a_column_of_no_use_is_refused_with_what_is_in_it(tmp_path, value, named):
    path = tmp_path / "own.jsonl"
    lines = [json.dumps({"text": f"kettle number {i}", "kind": value(i)}) for i in range(3_600)]
    path.write_text("\n".join(lines))
    with pytest.raises(UserError) as refused:
        settle(tmp_path, Parameters(dump=Dump(paths=[str(path)], labels=["kind"])))
    assert named in str(refused.value)
    assert "kind" in str(refused.value)


def foretell(folder, rows, header="text,stars,why,date", corpus=None, **dump):
    path = folder / "own.csv"
    path.write_text("\n".join([header, *map(",".join, rows)]) + "\n")
    form = Parameters(dump=Dump(paths=[str(path)], **dump), corpus=corpus or Corpus())
    return settle(folder, form)


@pytest.mark.parametrize(
    "rows",
    [
        [(f"kettle {i}", "5", "", "") for i in range(300)],
        [("kettle", "5", "", "")],
        [("the same kettle", "15"[i % 2], "", "") for i in range(300)],
    ],
)
def test_what_the_corpus_would_refuse_is_refused_by_the_first_records(tmp_path, rows):
    with pytest.raises(UserError, match=r"own\.csv: .*polarity"):
        foretell(tmp_path, rows)


def test_classes_with_too_few_rows_are_refused_by_the_first_records(tmp_path):
    rows = [(f"kettle {i}", "", "ab"[i < 5], "") for i in range(300)]
    with pytest.raises(UserError, match=r"why.* b \(\d\)"):
        foretell(tmp_path, rows, labels=["why"])


def test_a_split_is_refused_by_the_first_records(tmp_path):
    rows = [(f"kettle {i}", str(i % 5 + 1), "", f"{i % 12 + 1}/4/2025") for i in range(300)]
    by_time = Corpus(split_by="time")
    with pytest.raises(UserError, match="split_by='product'"):
        foretell(tmp_path, rows, corpus=Corpus(split_by="product"))
    with pytest.raises(UserError, match=r"own\.csv: date: .*dates='DMY'"):
        foretell(tmp_path, rows, corpus=by_time)
    assert foretell(tmp_path, rows, corpus=by_time.replace(dates="DMY")) == ["polarity", "stars"]
    same_day = [(*row[:3], "2025-04-03") for row in rows]
    with pytest.raises(UserError, match="split_by='time'"):
        foretell(tmp_path, same_day, corpus=by_time)


def test_the_corpus_has_the_counts_that_are_foretold(tmp_path):
    """Of a dump without near copies, all of which is looked at."""
    rows = [(text_of(i // 3 * 2), str(i % 5 + 1), "abc"[i % 3], "") for i in range(600)]
    path = tmp_path / "own.csv"
    path.write_text("text,stars,why\n" + "".join(f'"{r[0]}",{r[1]},{r[2]}\n' for r in rows[::3]))
    chosen = Dump(paths=[str(path)], labels=["why"])
    previews = read_previews(list_files(chosen, build_dump_stage(chosen, Store(tmp_path))), chosen)
    told = foretell_corpus(previews, chosen, Corpus())
    made = run_job(tmp_path / "corpus", "--input", path, "--label", "why")
    assert (told["stars"], told["labels"]) == (made["stars"], made["labels"])


def test_copies_of_each_text_with_two_classes_leave_no_task(tmp_path):
    path = tmp_path / "own.csv"
    rows = [f"kettle {i},{why}\n" for i in range(60) for why in ("good", "bad", "bad")]
    path.write_text("text,why\n" + "".join(rows))
    with pytest.raises(UserError) as told:
        settle(tmp_path, Parameters(dump=Dump(paths=[str(path)], labels=["why"])))
    assert "`dump.labels='why'`" in str(told.value)
    assert "60 texts have both bad and good" in str(told.value)
