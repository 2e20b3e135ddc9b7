"""How long inputs are, by the task and by the encoder's training; which windows are trained on."""

import json
from collections import Counter
from pathlib import Path

import pytest
import torch

from beam_jobs.job.errors import UserError
from model.config import FinetuningSettings
from model.finetuning.network.encoders import choose_max_length
from model.finetuning.request import Request, prepare_data
from model.finetuning.start import Start
from model.finetuning.tasks import find_task
from tests.model.corpora import write_electra


@pytest.fixture
def encoder(tmp_path):
    torch.manual_seed(0)
    write_electra(tmp_path / "encoder")
    return tmp_path / "encoder"


def record(folder: Path, **fields: int) -> str:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | fields))
    return str(folder)


@pytest.mark.parametrize(
    ("task", "fields", "settings", "length"),
    [
        ("polarity", {"max_position_embeddings": 512}, {}, 128),
        ("subjqa", {"max_position_embeddings": 512}, {}, 384),
        ("subjqa", {"max_position_embeddings": 256}, {}, 256),
        ("subjqa", {"max_position_embeddings": 512, "trained_length": 128}, {}, 128),
        ("polarity", {"max_position_embeddings": 512, "trained_length": 64}, {}, 64),
        ("polarity", {"max_position_embeddings": 512}, {"max_length": 300}, 300),
    ],
)
def test_length_is_that_of_the_task_and_at_most_the_trained_one(
    encoder, capsys, task, fields, settings, length
):
    folder = record(encoder, **fields)
    assert choose_max_length(folder, find_task(task), FinetuningSettings(**settings)) == length
    assert not capsys.readouterr().err


def test_more_than_the_trained_length_is_cut_with_a_warning(encoder, capsys):
    folder = record(encoder, max_position_embeddings=512, trained_length=128)
    longer = {"max_length": 256}
    assert choose_max_length(folder, find_task("stars"), FinetuningSettings(**longer)) == 128
    warned = capsys.readouterr().err
    assert "max_length is 256" in warned
    assert "trained at 128 tokens" in warned
    all_the_same = FinetuningSettings(**longer, untrained_positions=True)
    assert choose_max_length(folder, find_task("stars"), all_the_same) == 256
    assert not capsys.readouterr().err
    with pytest.raises(UserError, match=r"max_length is 600, but .* has 512 positions"):
        choose_max_length(folder, find_task("stars"), FinetuningSettings(max_length=600))


@pytest.mark.parametrize(("share", "most"), [(None, None), (1.0, 1.0), (0.5, 0.5), (0.0, 0.0)])
def test_windows_without_an_answer_are_sampled(encoder, tmp_path, share, most):
    data = tmp_path / "data"
    data.mkdir()
    paragraphs = []
    for i in range(60):
        words = ["lamp", f"number{i}", *["the kettle is great and"] * 20]
        passage = " ".join([*words[:8], "peter", *words[8:]])
        answers = [{"text": "peter", "answer_start": passage.index("peter")}]
        qas = [{"id": str(i), "question": "who ?", "answers": answers}]
        paragraphs.append({"context": passage, "qas": qas})
    (data / "all.json").write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}))
    settings = FinetuningSettings(max_length=32, stride=4, empty_windows=share)
    task = find_task("squad2")
    prepared = prepare_data(Request(Start(str(encoder)), task, data, settings, seed=1))
    features = [prepared.train_features[i] for i in range(len(prepared.train_features))]
    empty = Counter(feature.target == [0, 0] for feature in features)
    assert {feature.example for feature in features} == set(range(len(prepared.train)))
    if most is None:
        assert empty[True] > 2 * empty[False]
    else:
        assert empty[True] == round(most * empty[False])
    everything = prepare_data(
        Request(
            Start(str(encoder)),
            task,
            data,
            FinetuningSettings(max_length=32, stride=4, empty_windows=None),
            1,
        )
    )
    assert empty[False] == sum(f.target != [0, 0] for f in everything.train_features)
    assert len(prepared.dev_features) == len(everything.dev_features)
