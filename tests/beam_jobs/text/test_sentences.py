"""The fast path gives NLTK's sentences, on real reviews and on made-up mess."""

import os
from pathlib import Path

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
from tests.beam_jobs.dumps import shared_data, text_of

TRAINING = [text_of(i, 6) for i in range(300)] + [
    "He met Mr. Smith of the U.S. on Jan. 5. They left."
] * 20
TRAINED = sentences.train_punkt(TRAINING)
FAST, NLTK = sentences.SentenceSplitter(TRAINED), PunktSentenceTokenizer(TRAINED)


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


@pytest.mark.parametrize(
    "text",
    [
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
    ],
)
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
    different = [text for text in texts if fast.split(text) != nltk.tokenize(text)]
    assert len(texts) > 10_000
    assert different == []
