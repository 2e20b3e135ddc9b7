"""What is wrong with a task's files is told before anything is trained, of large files too."""

import pytest

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.model.finetuning import splits as split_reading
from amazon_electra.model.finetuning.tasks import find_task
from tests.model.finetuning.tasks.test_question_sets import write_amazonqa
from tests.model.finetuning.tasks.test_splits import FILES, content
from tests.refusals import names


def check(name, data):
    split_reading.check_data(find_task(name, data), data)


@pytest.mark.parametrize("largest", [0, split_reading.READ_WHOLE])
def test_good_files_of_every_format_pass(tmp_path, monkeypatch, largest):
    monkeypatch.setattr(split_reading, "READ_WHOLE", largest)
    for number, (task, files) in enumerate(FILES.items()):
        (tmp_path / str(number)).mkdir()
        for name in files:
            (tmp_path / str(number) / name).write_text(content(task, name))
        check(task, tmp_path / str(number))


@pytest.mark.parametrize("largest", [0, split_reading.READ_WHOLE])
@pytest.mark.parametrize(
    ("task", "name", "written", "named"),
    [
        ("amazonqa", "train-qar.jsonl", '{"questionText": "q"}\n', "review_snippets"),
        ("subjqa", "books/other.txt", "", "train.csv"),
        ("squad2", "train-v2.0.json", "{", "train-v2.0.json"),
        ("amazon-sentiment", "train.ft.txt", "", "train split"),
        ("swag", "train.csv", "a,b\n1,2\n", "train.csv"),
    ],
)
def test_unreadable_empty_and_unknown_files_are_told(
    tmp_path, monkeypatch, task, name, written, named, largest
):
    monkeypatch.setattr(split_reading, "READ_WHOLE", largest)
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(written)
    with pytest.raises(UserError, check=names(named)):
        check(task, tmp_path)


def test_a_train_split_within_test_is_told(tmp_path):
    for name in ("train.ft.txt", "test.ft.txt"):
        (tmp_path / name).write_text(content("amazon-sentiment", name, "all"))
    with pytest.raises(UserError, check=names("train split")):
        check("amazon-sentiment", tmp_path)


def test_large_files_are_read_in_part(tmp_path, monkeypatch):
    monkeypatch.setattr(split_reading, "READ_WHOLE", 0)
    for name in ("train", "val", "test"):
        path = tmp_path / f"{name}-qar.jsonl"
        write_amazonqa(path)
        with path.open("a") as file:
            file.write("damaged\n" * 1000)
    check("amazonqa", tmp_path)
    check("amazonqa-answerable", tmp_path)
    monkeypatch.undo()
    with pytest.raises(UserError, check=names("line 41")):
        check("amazonqa", tmp_path)
