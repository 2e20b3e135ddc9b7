"""Make a corpus, an encoder of each architecture, and models that learnt the corpus."""

import pytest
import torch

from tests.model.corpora import write_bert, write_corpus, write_distilbert, write_electra
from tests.model.finetuning.few_steps import LEARN, tune


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finetune")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    write_corpus(folder / "corpus")
    write_electra(folder / "electra")
    write_bert(folder / "bert")
    write_distilbert(folder / "distilbert")
    return folder


@pytest.fixture(scope="session")
def learnt(made):
    """The result of a model that was trained and evaluated in the folders `learnt` and
    `learnt-test` of `made`.
    """
    return tune(made, "learnt", *LEARN, "--evaluation", str(made / "learnt-test"))
