"""What is wrong with a task's files is told before anything is trained."""

import pytest

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.model.finetuning.splits import check_data
from amazon_electra.model.finetuning.tasks import find_task
from tests.refusals import names


@pytest.mark.parametrize(
    ("task", "name", "written", "named"),
    [
        ("amazonqa", "train-qar.jsonl", '{"questionText": "q"}\n', "review_snippets"),
        ("squad2", "train-v2.0.json", "{", "train-v2.0.json"),
        ("amazon-sentiment", "train.ft.txt", "", "train split"),
        ("swag", "train.csv", "a,b\n1,2\n", "train.csv"),
    ],
)
def test_unreadable_and_empty_files_are_told(tmp_path, task, name, written, named):
    (tmp_path / name).write_text(written)
    with pytest.raises(UserError, check=names(named)):
        check_data(find_task(task), tmp_path)
