"""The fast path gives NLTK's sentences, on real reviews and on made-up mess."""

import os
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nltk.tokenize.punkt import PunktSentenceTokenizer, PunktTrainer

from beam_jobs.reading import detection, fields, work_units
from beam_jobs.reading.compression import open_uncompressed
from beam_jobs.reading.layout import Layout
from beam_jobs.reading.lines import Reject, Tally
from beam_jobs.text import sentences
from beam_jobs.text.cleaning import clean_text
from beam_jobs.text.sentence_batches import BatchSplitter
from tests.beam_jobs.dumps import shared_data, text_of

TRAINING = [text_of(i, 6) for i in range(300)] + [
    "He met Mr. Smith of the U.S. on Jan. 5. They left."
] * 20
TRAINED = sentences.train_punkt(TRAINING)
FAST, NLTK = sentences.SentenceSplitter(TRAINED), PunktSentenceTokenizer(TRAINED)
BATCHES = BatchSplitter(TRAINED)


def real_reviews(data: Path) -> list[str]:
    """The texts of every file of reviews, cleaned, and those that cleaning changes as they were,
    too.

    NLTK needs minutes for all of them, so only every tenth is taken unless ALL_REVIEWS is set.
    """
    paths = [str(path) for path in sorted((data / "reviews").glob("*/*"))]
    texts = []
    for file in work_units.inspect_files(paths, None, {}, Layout("json_lines"), 0):
        read = fields.make_review_reader(dict(file.layout.mapping))
        with open_uncompressed(file.path, file.compression) as stream:
            records = detection.read_records(stream, file.layout, Tally(), header=True)
            texts += [read(record[1]).text for record in records if not isinstance(record, Reject)]
    texts = [text for text in texts if isinstance(text, str)][
        :: 1 if os.environ.get("ALL_REVIEWS") else 10
    ]
    return [version for text in texts for version in {clean_text(text), text}]


def test_training_gives_nltks_parameters():
    trainer = PunktTrainer()
    trainer.train("\n".join(TRAINING), finalize=True)
    assert sentences.encode_punkt(trainer.get_params()) == sentences.encode_punkt(TRAINED)
    assert {"mr", "jan"} <= TRAINED.abbrev_types


def test_parameters_survive_json():
    again = sentences.decode_punkt(sentences.encode_punkt(TRAINED))
    assert vars(again) == vars(TRAINED)


MESS = [
    "",
    " ",
    "One.",
    "Mr. Smith came. He left!",
    "Wow!!! Really?! Yes... no",
    'He said "stop." Then (quietly.) he left.) So',
    " !!! What",
    "a .. b ... c . d . . . e",
    "It costs 5. 6 would do. J. Bach. p. 4",
    "no end. ",
    "two  spaces.  Here.   There",
    "tab.\tline.\nnext. nbsp.\xa0end.",
    "“Quoted.” ‘So.’ «Oui.» Done.",
    "end.)--dash. x",
    "a.b.c. D. e.g. This vs. That etc. And",
    "?.! .?! Hm",
]


@pytest.mark.parametrize("text", MESS)
def test_special_cases(text):
    assert FAST.split(text) == NLTK.tokenize(text)


PIECES = st.sampled_from(
    [
        *"abIJ 15.?!,;:-()[]{}\"'“”«»—\n\t",
        " ",
        " ",
        ". ",
        "! ",
        "? ",
        "Mr. ",
        "U.S.",
        "e.g.",
        "...",
        "word",
        "It ",
        "the ",
    ]
)


@settings(max_examples=1500)
@given(st.lists(PIECES, max_size=40).map("".join))
def test_any_mess(text):
    assert FAST.split(text) == NLTK.tokenize(text)


def split_batch(splitter: BatchSplitter, texts: list[str]) -> list[list[str]]:
    return splitter.split(pa.array(texts, pa.string())).to_pylist()


def test_special_cases_in_one_batch():
    texts = [*MESS, *(" ".join(text.split()) for text in MESS)]
    assert split_batch(BATCHES, texts) == [NLTK.tokenize(text) for text in texts]
    assert BATCHES.split(pa.array(texts, pa.string())[5:9]).to_pylist() == [
        NLTK.tokenize(text) for text in texts[5:9]
    ]


@settings(max_examples=1500)
@given(st.lists(st.lists(PIECES, max_size=20).map("".join), max_size=6), st.booleans())
def test_any_mess_in_batches(texts, is_clean):
    if is_clean:
        texts = [" ".join(text.split()) for text in texts]
    assert split_batch(BATCHES, texts) == [NLTK.tokenize(text) for text in texts]


@pytest.mark.parametrize("parameters", ["trained", "published"])
def test_every_real_review(parameters):
    data = shared_data()
    texts = real_reviews(data)
    if parameters == "trained":
        params = sentences.train_punkt(texts[:1500])
    else:
        params = sentences.read_punkt_tab(
            str(data / "nltk_data" / "tokenizers" / "punkt_tab" / "english")
        )
    fast, nltk = sentences.SentenceSplitter(params), PunktSentenceTokenizer(params)
    expected = [nltk.tokenize(text) for text in texts]
    in_batch = split_batch(BatchSplitter(params), texts)
    assert len(texts) > 10_000
    for split in ([fast.split(text) for text in texts], in_batch):
        different = zip(texts, expected, split, strict=True)
        assert [text for text, wanted, found in different if wanted != found] == []
