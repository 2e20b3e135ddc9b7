"""What an automatic run does, by the counts of its dump and by the form."""

import pytest

from amazon_electra.flows.policy import (
    MIN_FINETUNED,
    MIN_TITLES,
    MIN_TOKENS,
    PASSES,
    Counts,
    decide,
)
from tests.flows.forms import fill_parameters

REAL = "recipe=published"
MANY, TEXT = MIN_FINETUNED, MIN_TOKENS / PASSES
TITLED = Counts({"polarity": MANY}, MIN_TITLES, 0)
FEW = Counts({"polarity": MANY - 1}, MIN_TITLES, 0)
BARE = Counts({"polarity": MANY}, MIN_TITLES - 1, TEXT - 1)


@pytest.mark.parametrize(
    ("settings", "counts", "adaptation", "is_finetuned"),
    [
        ([], TITLED, "contrast", True),
        ([], FEW, "contrast", False),
        (["effort=full"], FEW, "contrast", True),
        (["finetuning.labels=50"], TITLED, "contrast", False),
        (["finetuning.arms=pre-trained,tfidf"], FEW, "contrast", True),
        (["effort=quick"], TITLED, "none", False),
        ([], BARE, "none", True),
        ([], Counts({"polarity": MANY}, 0, TEXT), "text", True),
        (["pretraining.objective=contrastive"], BARE, "contrast", True),
        (["pretraining.objective=mlm"], TITLED, "text", True),
        (["pretraining.steps=9"], TITLED, "text", True),
        (["finetuning.arms=tfidf,origin"], TITLED, "none", True),
        (["finetuning.arms=tfidf,frozen", "pretraining.steps=9"], TITLED, "text", False),
    ],
)
def test_counts_or_the_form_decide(encoder, settings, counts, adaptation, is_finetuned):
    form = fill_parameters([*settings, REAL, f"pretraining.start_from={encoder}"])
    decided = decide(form, counts)
    assert decided.adaptation == adaptation
    assert bool({"pre-trained", "origin"} & {*decided.arms}) == is_finetuned
    if not form.finetuning.arms and is_finetuned:
        assert ("origin" in decided.arms) == (adaptation != "contrast")
    if counts is FEW and not settings:
        assert f"fewer than {MIN_FINETUNED:,}" in decided.reasons[0]


@pytest.mark.parametrize(
    ("settings", "is_trained"),
    [
        (["finetuning.arms=tfidf"], False),
        (["finetuning.arms=tfidf", "pretraining.steps=9"], True),
        (["finetuning.arms=tfidf,random"], True),
        ([], True),
    ],
)
def test_arms_that_read_no_encoder_train_none(list_stages, settings, is_trained):
    names = {stage.name for stage in list_stages("recipe=sample", *settings)[1].values()}
    assert ("pretraining" in names) == ("shards" in names) == is_trained
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
