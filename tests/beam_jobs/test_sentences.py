"""The fast path gives NLTK's sentences, on real reviews and on made-up mess."""

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nltk.tokenize.punkt import PunktSentenceTokenizer, PunktTrainer

from beam_jobs import sentences, work_units
from beam_jobs.cleaning import clean
from beam_jobs.compression import open_plain
from beam_jobs.formats import detection, fields
from beam_jobs.formats.layout import Layout
from beam_jobs.formats.lines import Rejected, Tally
from tests.beam_jobs.dumps import shared_data, text_of

TRAINING = [text_of(i, 6) for i in range(300)] + ["He met Mr. Smith of the U.S. on Jan. 5. They left."] * 20
TRAINED = sentences.train(TRAINING)
FAST, NLTK = sentences.SentenceSplitter(TRAINED), PunktSentenceTokenizer(TRAINED)


def real_reviews(data: Path) -> list[str]:
    """The texts of every file of reviews, cleaned, and those that cleaning changes as they were, too.

    NLTK needs minutes for all of them, so only every tenth is taken unless ALL_REVIEWS is set.
    """
    paths = [str(path) for path in sorted((data / "reviews").glob("*/*"))]
    texts = []
    for file in work_units.look_at(paths, None, {}, Layout("json_lines"), 0):
        read = fields.reader_of(dict(file.layout.mapping))
        with open_plain(file.path, file.compression) as stream:
            records = detection.read(stream, file.layout, Tally(), header=True)
            texts += [read(record[1]).text for record in records if not isinstance(record, Rejected)]
    texts = [text for text in texts if isinstance(text, str)][:: 1 if os.environ.get("ALL_REVIEWS") else 10]
    return [version for text in texts for version in {clean(text), text}]


def test_training_gives_nltks_parameters():
    trainer = PunktTrainer()
    trainer.train("\n".join(TRAINING), finalize=True)
    assert sentences.to_json(trainer.get_params()) == sentences.to_json(TRAINED)
    assert {"mr", "jan"} <= TRAINED.abbrev_types


def test_parameters_survive_json():
    again = sentences.from_json(sentences.to_json(TRAINED))
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


@settings(max_examples=1500, deadline=None)
@given(st.lists(PIECES, max_size=40).map("".join))
def test_any_mess(text):
    assert FAST.split(text) == NLTK.tokenize(text)


@pytest.mark.parametrize("parameters", ["trained", "published"])
def test_every_real_review(parameters):
    data = shared_data()
    texts = real_reviews(data)
    if parameters == "trained":
        params = sentences.train(texts[:1500])
    else:
        params = sentences.from_tab(str(data / "nltk_data" / "tokenizers" / "punkt_tab" / "english"))
    fast, nltk = sentences.SentenceSplitter(params), PunktSentenceTokenizer(params)
    different = [text for text in texts if fast.split(text) != nltk.tokenize(text)]
    assert len(texts) > 10_000
    assert different == []
