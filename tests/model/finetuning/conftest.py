"""Make a corpus and an encoder of each architecture."""

import pytest
import torch

from tests.model.corpora import write_bert, write_corpus, write_distilbert, write_electra


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finetune")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    write_corpus(folder / "corpus")
    write_electra(folder / "electra")
    write_bert(folder / "bert")
    write_distilbert(folder / "distilbert")
    return folder
