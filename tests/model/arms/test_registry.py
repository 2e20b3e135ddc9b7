"""Arms are known by their names."""

from pathlib import Path

import pytest

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.model import arms
from amazon_electra.model.finetune import FinetuneConfig, finetune
from tests.refusals import names


def test_an_unknown_arm_is_named(tmp_path):
    with pytest.raises(UserError, check=names("tfdif")):
        finetune(FinetuneConfig(task="polarity", arm="tfdif"), tmp_path, Path(tmp_path, "out"))


def test_two_arms_of_one_name_are_refused():
    with pytest.raises(ValueError, check=names("tfidf")):
        arms.register(type("Other", (arms.find_arm("tfidf"),), {}))
