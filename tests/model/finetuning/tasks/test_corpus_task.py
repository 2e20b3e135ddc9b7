"""Which reviews of a corpus are examples of its tasks."""

from collections import Counter

import pyarrow.parquet as pq

from amazon_electra.model.finetuning.examples import SPLITS, Sampling
from amazon_electra.model.finetuning.tasks import find_task
from tests.model.corpora import write_corpus


def read_ids(corpus, task, split, n=None):
    return {e.id for e in find_task(task).read(corpus, split, Sampling(n), Counter())}


def test_all_labels_but_those_of_dev_and_test_are_trained_on(tmp_path):
    corpus = write_corpus(tmp_path)
    rows = [row for file in corpus.glob("*.parquet") for row in pq.read_table(file).to_pylist()]
    for task, classes in (("polarity", {1, 2, 4, 5}), ("stars", {1, 2, 3, 4, 5})):
        read = {split: read_ids(corpus, task, split) for split in SPLITS}
        for split in SPLITS:
            sides = {"pretrain", "train"} if split == "train" else {split}
            wanted = {r["review_id"].hex() for r in rows if r["split"] in sides}
            labelled = {r["review_id"].hex() for r in rows if r["stars"] in classes}
            assert read[split] == wanted & labelled
        assert read_ids(corpus, task, "train", 50) < read["train"]
