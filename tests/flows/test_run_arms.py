"""Which encoders a run makes for the arms that it was asked for."""

import pytest

REAL = "recipe=published"


@pytest.mark.parametrize(
    ("settings", "is_trained"),
    [
        (["recipe=sample", "finetuning.arms=tfidf"], False),
        (["recipe=sample", "finetuning.arms=tfidf", "pretraining.steps=9"], True),
        (["recipe=sample", "finetuning.arms=tfidf,random"], True),
        (["recipe=sample"], True),
        ([REAL, "finetuning.arms=tfidf,origin"], False),
        ([REAL, "finetuning.arms=tfidf,frozen", "pretraining.steps=9"], True),
    ],
)
def test_arms_that_read_no_encoder_train_none(list_stages, encoder, settings, is_trained):
    start = [f"pretraining.start_from={encoder}"] if REAL in settings else []
    _, stages = list_stages(*settings, *start)
    names = {stage.name for stage in stages.values()}
    assert bool({"pretraining", "contrastive-adaptation"} & names) == is_trained
    assert is_trained or not {"vocabulary", "shards"} & names
    assert {"finetuning", "model", "report"} <= names


def test_few_labels_of_a_task_fine_tune_nothing(list_stages, encoder, tmp_path):
    """In an automatic run, though another task has enough of them."""
    rows = [
        f"Lamp {i} works.,{1 + i % 5},{'ab'[i % 2] if i % 9 == 0 else ''}" for i in range(4_000)
    ]
    (tmp_path / "shop.csv").write_text("\n".join(["text,stars,reason", *rows]))
    start = f"pretraining.start_from={encoder}"
    _, stages = list_stages(REAL, start, "dump.labels=reason", dump=tmp_path / "shop.csv")
    tuned = [stage for stage in stages.values() if stage.name == "finetuning"]
    networks = {stage.config.task for stage in tuned if stage.config.arm == "finetuned"}
    assert {stage.config.task for stage in tuned} == {"label:reason", "polarity", "stars"}
    assert networks == {"polarity", "stars"}
