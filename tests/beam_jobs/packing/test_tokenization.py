"""Ids equal to the tokenizer's own, for every text there is."""

import itertools
import random
import sys
import unicodedata

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from amazon_electra.beam_jobs.core.special_tokens import count_rows, find_specials
from amazon_electra.beam_jobs.packing.tokenization import TextIds, WordIds, load_tokenizer
from tests.refusals import refuses
from tests.tokenizer_kinds import KINDS, write_published

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PIECES = [
    *("great", "##ly", "the", "ca", "##t", "caf", "##e", "##é", "é", "a", "##a", "b", "##b", "1"),
    *("##2", "你", "'", "!", "-", "["),
]
AWKWARD = [
    *("", " ", "  The  cat ", "Great!!! the-cat", "café CAFÉ cafe\u0301 Ⅷ ﬁ", "你好a你"),
    "\x00a\x1cb\x85c\u200bd\u2028e\tf\ng\r\nh\xa0i",
    *("[MASK] a[SEP]b [mask] [ MASK ] [unused1]", "a" * 10_000, "a" * 100 + " " + "a" * 101),
    *("👍🏽 👨‍👩‍👧 🇩🇪a", "İstanbul ΣΑΣ ß ŒUVRE", "مرحبا بالعالم हिन्दी ไทย 한국어"),
    *("a\u0301\u0302 \u0301a", "it's $5.00 (100%) ~`^|<>_=+{}\\/@#&*;:,.?\""),
]


def tokenizer(lower_case: bool = True, strip_accents: bool = True) -> Tokenizer:
    entries = SPECIAL + PIECES
    made = Tokenizer(
        models.WordPiece({piece: i for i, piece in enumerate(entries)}, unk_token="[UNK]")
    )
    made.normalizer = normalizers.BertNormalizer(strip_accents=strip_accents, lowercase=lower_case)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.add_special_tokens(SPECIAL)
    return made


def assert_equal_ids(word_ids: WordIds, reference: Tokenizer, texts: list[str]) -> None:
    ids, offsets = word_ids.encode_documents(pa.array([texts], pa.list_(pa.string())))
    found = [ids[start:end].tolist() for start, end in itertools.pairwise(offsets)]
    expected = [e.ids for e in reference.encode_batch_fast(texts, add_special_tokens=False)]
    assert list(zip(texts, found, strict=True)) == list(zip(texts, expected, strict=True))


@settings(max_examples=300)
@given(
    st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=5),
    st.booleans(),
    st.booleans(),
)
def test_any_text(texts, lower_case, strip_accents):
    assert_equal_ids(
        WordIds(tokenizer(lower_case, strip_accents)), tokenizer(lower_case, strip_accents), texts
    )


def test_every_character_between_letters():
    """One in sixteen of the many CJK and Hangul, all others that Unicode has assigned."""
    characters = [
        chr(c)
        for c in range(sys.maxunicode + 1)
        if unicodedata.category(chr(c)) not in {"Cn", "Co", "Cs"}
    ]
    chosen = [c for i, c in enumerate(characters) if unicodedata.category(c) != "Lo" or i % 16 == 0]
    assert_equal_ids(WordIds(tokenizer()), tokenizer(), [f"a{c}b {c}" for c in chosen])


def test_what_is_remembered_is_bounded_and_serves_the_next_batch():
    draw = random.Random(0)
    word_ids, held = WordIds(tokenizer(), remembered=200), []
    for _ in range(30):
        words = {"".join(draw.choice("ab12") for _ in range(4)) + draw.choice("!é") for _ in "ab"}
        word_ids.encode_documents(pa.array([[" ".join(word * 2 for word in words)]]))
        held.append(len(word_ids._chunks.row_of))
    assert max(held) <= 200
    assert held[0] < held[10] < held[20]
    word_ids.encode_documents(pa.array([[" ".join(f"a{i}" for i in range(190))]]))
    assert len(word_ids._chunks.row_of) == 190, "all are forgotten when it is full"
    assert len(word_ids._words.row_of) <= 200


def published(
    lower_case: bool, strip_accents: bool | None, added: tuple[str, ...] = ()
) -> Tokenizer:
    """As published BERTs have it: [PAD], [unused…], then special entries in the middle."""
    entries = ["the", *(f"[unused{i}]" for i in range(3)), *PIECES[:5], *SPECIAL[::-1]]
    entries += [piece for piece in PIECES if piece not in entries] + ["Café", "café", "Great"]
    entries = list(dict.fromkeys([*entries, "a" * 120]))
    made = Tokenizer(models.WordPiece({p: i for i, p in enumerate(entries)}, unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(strip_accents=strip_accents, lowercase=lower_case)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.add_special_tokens(SPECIAL)
    made.add_tokens(list(added))
    return made


@pytest.mark.parametrize("lower_case", [True, False])
@pytest.mark.parametrize("strip_accents", [True, False, None])
@pytest.mark.parametrize("added", [(), ("btw",), ("C++", "<url>")])
def test_published_tokenizers(lower_case, strip_accents, added):
    """Special ids anywhere, unused entries, accents kept or stripped, entries added later."""
    reference = published(lower_case, strip_accents, added)
    made = WordIds(published(lower_case, strip_accents, added))
    more = ["btw BTW xbtwx, C++! <url>", "[unused2]", "a" * 120, "Great Café", "unused1 pad cls"]
    assert_equal_ids(made, reference, [*AWKWARD, *more] * 2)


def test_a_text_has_one_special_token_before_and_one_after_it():
    made = KINDS["byte-level BPE"][0]()
    assert find_specials(made) == (0, 2)
    made.enable_truncation(8)
    made.enable_padding(length=8)
    read = load_tokenizer(made.to_str())
    assert isinstance(read, TextIds)
    assert find_specials(read.tokenizer) == (0, 2)
    assert count_rows(made) == made.get_vocab_size()
    with refuses("special", kind=ValueError):
        load_tokenizer(tokenizer().to_str())


REAL = [
    "Great!! So-so.",
    "Don't buy it.",
    " ",
    "ok\u200b",
    "\u200b",
    "蓋が壊れた。",
    "C++ in New York",
]


@pytest.fixture(scope="module", params=KINDS)
def kind(request, tmp_path_factory):
    """A published folder's AutoTokenizer, and what shards are made with."""
    build, specials = KINDS[request.param]
    folder = write_published(build(), tmp_path_factory.mktemp("kind"), specials)
    from transformers import AutoTokenizer

    reference = AutoTokenizer.from_pretrained(folder, model_max_length=1 << 40)
    return load_tokenizer((folder / "tokenizer.json").read_text()), reference


@settings(max_examples=60)
@given(
    st.lists(
        st.lists(st.text(st.characters(exclude_categories=["Cs"])) | st.sampled_from(REAL)),
        min_size=1,
        max_size=6,
    )
)
def test_documents_have_the_ids_of_autotokenizer(kind, documents):
    read, reference = kind
    column = pa.array(documents, pa.list_(pa.string()))
    ids, starts = read.encode_documents(column)
    assert len(starts) == sum(map(len, documents)) + 1
    assert (np.diff(starts) >= 0).all()
    ends = starts[column.offsets.to_numpy()]
    found = [ids[a:b].tolist() for a, b in itertools.pairwise(ends)]
    texts = [" ".join(document) for document in documents]
    assert found == reference(texts, add_special_tokens=False)["input_ids"]


def test_sentences_begin_where_their_words_do(kind):
    read, reference = kind
    assert find_specials(read.tokenizer) == (reference.cls_token_id, reference.sep_token_id)
    sentences = ["The kettle is great!", "It broke.", "Der Deckel war kaputt."]
    ids, starts = read.encode_documents(pa.array([sentences]))
    decode = read.tokenizer.decode
    found = [decode(ids[a:b].tolist()).strip() for a, b in itertools.pairwise(starts)]
    plain = ["".join(text.lower().split()) for text in found]
    assert plain == ["".join(sentence.lower().split()) for sentence in sentences]
