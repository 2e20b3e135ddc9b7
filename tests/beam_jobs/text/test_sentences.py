"""The sentences are NLTK's, on real reviews and on made-up mess, with any parameters."""

import itertools
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nltk.tokenize.punkt import PunktParameters, PunktSentenceTokenizer, PunktTrainer

from amazon_electra.beam_jobs.reading import fields, work_units
from amazon_electra.beam_jobs.reading.lines import Reject, Tally
from amazon_electra.beam_jobs.text import punkt, sentences
from amazon_electra.beam_jobs.text.cleaning import clean_text
from tests.beam_jobs.dumps import look_at, shared_data, text_of

TRAINING = [text_of(i, 6) for i in range(300)] + [
    "He met Mr. Smith of the U.S. on Jan. 5. They left."
] * 20
TRAINED = punkt.train_punkt(TRAINING)
OURS, NLTK = sentences.SentenceSplitter(TRAINED), PunktSentenceTokenizer(TRAINED)


def split(splitter: sentences.SentenceSplitter, texts: list[str]) -> list[list[str]]:
    return splitter.split(pa.array(texts, pa.string())).to_pylist()


def test_training_gives_nltks_parameters():
    trainer = PunktTrainer()
    trainer.train("\n".join(TRAINING), finalize=True)
    assert punkt.encode_punkt(trainer.get_params()) == punkt.encode_punkt(TRAINED)
    assert {"mr", "jan"} <= TRAINED.abbrev_types


WORDS = [
    *("a", "b", "J.", "Mr.", "mr", "e.g.", "U.S.", "etc", "day", "days-etc.", "x-mr.", "can't"),
    *("it", "It", "IT", "I", "You'll", "(it)", "well,", "é", "É.", "ñ", "ß.", "字", "字."),
    *("5", "5.", "1,000.", "-3.", "10-5.", "##", ".", "..", "...", "....", "!", "?", "!!"),
    *(")", "(", '"', "'", "*", "-", "--", ",", ";", ":", "’", "”"),
]
KINDS = ["a", "b", "j", "mr", "it", "i", "day", "##number##", "é", "字", "e.g", "etc", "..", "."]


@st.composite
def parameters(draw) -> PunktParameters:
    """Draw parameters that say something of WORDS."""
    drawn = PunktParameters()
    drawn.abbrev_types = draw(st.sets(st.sampled_from(KINDS)))
    pair = st.tuples(st.sampled_from(KINDS), st.sampled_from([*KINDS, "it.", "5."]))
    drawn.collocations = draw(st.sets(pair, max_size=5))
    drawn.sent_starters = draw(st.sets(st.sampled_from(KINDS)))
    bits = st.sampled_from(range(0, 128, 2))
    drawn.ortho_context.update(draw(st.dictionaries(st.sampled_from(KINDS), bits)))
    return drawn


@settings(max_examples=60, deadline=None)
@given(parameters(), st.lists(st.sampled_from([*WORDS, " ", " "]), max_size=30).map("".join))
def test_any_words_with_any_parameters(drawn, text):
    clean = " ".join(text.split())
    ours = split(sentences.SentenceSplitter(drawn), [clean])
    assert ours == [PunktSentenceTokenizer(drawn).tokenize(clean)]


def read_real_reviews(data: Path, count: int) -> list[str]:
    """Return the first texts of a file of each release, cleaned, and as they were where cleaning
    changes them.
    """
    paths = [str(sorted(folder.iterdir())[0]) for folder in sorted((data / "reviews").iterdir())]
    texts = []
    for file in map(look_at, paths):
        read = fields.make_review_reader(dict(file.layout.mapping), Counter())
        whole = work_units.Unit(file, 0, file.path, file.compression, 0, None, file.size)
        records = work_units.read_records(whole, Tally())
        good = (record[1] for record in records if not isinstance(record, Reject))
        texts += [read(record).text for record in itertools.islice(good, count)]
    texts = [text for text in texts if isinstance(text, str)]
    return [version for text in texts for version in {clean_text(text), text}]


@pytest.mark.parametrize("count", [60, pytest.param(3000, marks=pytest.mark.slow)])
def test_real_reviews(count):
    data = shared_data()
    texts = read_real_reviews(data, count)
    assert len(texts) > 4 * count
    pairs = zip(texts, split(OURS, texts), strict=True)
    assert [text for text, found in pairs if found != NLTK.tokenize(text)] == []


@pytest.mark.parametrize(
    ("text", "cut"),
    [
        ("とても良い。色もきれい！", ["とても良い。", "色もきれい！"]),
        ("「壊れた。」と言う。", ["「壊れた。」", "と言う。"]),
        ("质量很好。 物流快！！推荐", ["质量很好。", "物流快！！", "推荐"]),
        ("Good kettle. 良い。It boils.", ["Good kettle.", "良い。", "It boils."]),
        ("。", ["。"]),
    ],
)
def test_stops_of_chinese_and_japanese_end_sentences(text, cut):
    splitter = sentences.SentenceSplitter(PunktParameters())
    assert split(splitter, [text]) == [cut]
