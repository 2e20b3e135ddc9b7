"""Make the corpus, the encoders and the shards of the small study."""

import pytest
import torch

from tests.model.corpora import write_corpus, write_electra


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study_stages")
    torch.manual_seed(0)
    write_corpus(folder / "corpus", reviews=40)
    write_electra(folder / "electra")
    write_electra(folder / "other", layers=1)
    (folder / "shards").mkdir()
    (folder / "shards" / "shards.json").write_text("{}")
    return folder
