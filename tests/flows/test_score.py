"""What the stages of `score` are made of."""

import pytest
from pydantic import ValidationError

from flows.configuration.scoring import ScoringModel
from flows.runner.store import Store
from flows.score import build_scorer_stage


def test_the_form_decides_the_scorer_and_reaches_its_job(tmp_path):
    stages = {form: build_scorer_stage({"scorer": "f" * 16}, form) for form in ("bf16", "int8")}
    assert stages["bf16"].fingerprint != stages["int8"].fingerprint
    words = stages["int8"].arguments(Store(tmp_path), tmp_path)
    assert words[words.index("--form") + 1] == "int8"


def test_the_form_offers_what_the_job_takes():
    assert ScoringModel().form == "auto"
    with pytest.raises(ValidationError):
        ScoringModel(form="fp64")
