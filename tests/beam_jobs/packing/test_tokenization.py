"""Ids equal to the tokenizer's own, for every text there is."""

import gzip
import itertools
import random
import sys
import unicodedata
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from beam_jobs.packing.tokenization import Memory, WordIds, check_ids

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PIECES = [
    "great",
    "##ly",
    "the",
    "ca",
    "##t",
    "caf",
    "##e",
    "##é",
    "é",
    "a",
    "##a",
    "b",
    "##b",
    "1",
    "##2",
    "你",
    "'",
    "!",
    "-",
    "[",
]
SHARED = Path(__file__).parents[4] / "shared" / "data"
AWKWARD = [
    "",
    " ",
    "  The  cat ",
    "Great!!! the-cat",
    "café CAFÉ cafe\u0301 Ⅷ ﬁ",
    "你好a你",
    "\x00a\x1cb\x85c\u200bd\u2028e\tf\ng\r\nh\xa0i",
    "[MASK] a[SEP]b [mask] [ MASK ] [unused1]",
    "a" * 10_000,
    "a" * 100 + " " + "a" * 101,
    "👍🏽 👨‍👩‍👧 🇩🇪a",
    "İstanbul ΣΑΣ ß ŒUVRE",
    "مرحبا بالعالم हिन्दी ไทย 한국어",
    "a\u0301\u0302 \u0301a",
    "it's $5.00 (100%) ~`^|<>_=+{}\\/@#&*;:,.?\"",
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
    ids, offsets = word_ids.encode(pa.array(texts, pa.string()))
    found = [ids[start:end].tolist() for start, end in itertools.pairwise(offsets)]
    expected = [e.ids for e in reference.encode_batch_fast(texts, add_special_tokens=False)]
    assert [(t, f) for t, f in zip(texts, found, strict=True)] == [
        (t, e) for t, e in zip(texts, expected, strict=True)
    ]


@pytest.mark.parametrize("lower_case", [True, False])
@pytest.mark.parametrize("strip_accents", [True, False])
def test_awkward_texts(lower_case, strip_accents):
    word_ids = WordIds(tokenizer(lower_case, strip_accents))
    for _ in range(2):  # the second time from memory
        assert_equal_ids(word_ids, tokenizer(lower_case, strip_accents), AWKWARD)


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


def test_a_full_memory_is_forgotten_and_nothing_else_changes():
    draw = random.Random(0)
    word_ids = WordIds(tokenizer(), remembered=50)
    for _ in range(20):
        texts = [
            " ".join(draw.choice("ab12!é你") * draw.randint(1, 9) for _ in range(20))
            for _ in range(10)
        ]
        assert_equal_ids(word_ids, tokenizer(), texts)


def test_what_is_remembered_is_bounded_and_serves_the_next_batch():
    draw = random.Random(0)
    word_ids, held = WordIds(tokenizer(), remembered=200), []
    for _ in range(30):
        words = {"".join(draw.choice("ab12") for _ in range(4)) + draw.choice("!é") for _ in "ab"}
        word_ids.encode(pa.array([" ".join(word * 2 for word in words)]))
        held.append(len(word_ids._chunks.row_of))
    assert max(held) <= 200
    assert held[0] < held[10] < held[20]
    word_ids.encode(pa.array([" ".join(f"a{i}" for i in range(190))]))
    assert len(word_ids._chunks.row_of) == 190, "all are forgotten when it is full"
    assert len(word_ids._words.row_of) <= 200


def test_a_memory_grows_with_what_it_holds():
    memory, pieces = Memory(), np.arange(40_000, dtype=np.uint32)
    rows = [memory.add_rows([word], pieces + k, np.array([40_000])) for k, word in enumerate("abc")]
    assert np.concatenate(rows).tolist() == memory.find_rows(["a", "b", "c"]).tolist() == [0, 1, 2]
    ids, lengths = memory.gather_ids(np.array([2, 0]), np.array([0, 1, 0]))
    assert lengths.tolist() == [40_000] * 3
    assert np.array_equal(ids, np.concatenate([pieces + 2, pieces, pieces + 2]))


def test_a_slice_of_a_column_is_enough():
    texts = pa.array(["a cat", "the cat", "b"])[1:]
    assert WordIds(tokenizer()).encode(texts)[1].tolist() == [0, 3, 4]


@pytest.mark.skipif(not SHARED.exists(), reason="needs real reviews in ../shared/data")
def test_all_shared_text():
    reference = tokenizer()
    reference.model = models.WordPiece.from_file(
        str(SHARED / "bert_vocab" / "vocab.txt"), unk_token="[UNK]"
    )
    word_ids = WordIds(reference)
    files = [
        p
        for p in sorted((SHARED / "reviews").rglob("*")) + sorted((SHARED / "tasks").rglob("*"))
        if p.is_file()
    ]
    for path in files:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        assert_equal_ids(word_ids, reference, content.decode("utf-8", "replace").split("\n")[::40])


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
    padded = published(lower_case, strip_accents, added)
    padded.enable_padding(length=128)
    padded.enable_truncation(max_length=128)
    more = ["btw BTW xbtwx, C++! <url>", "[unused2]", "a" * 120, "Great Café", "unused1 pad cls"]
    assert_equal_ids(WordIds(padded), reference, [*AWKWARD, *more] * 2)
    assert WordIds(padded).cls_id == reference.token_to_id("[CLS]")


def wordpiece(entries: dict[str, int]) -> models.WordPiece:
    return models.WordPiece(entries, unk_token="[UNK]")


def change(made: Tokenizer, **parts: object) -> Tokenizer:
    for name, part in parts.items():
        setattr(made, name, part)
    return made


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (change(tokenizer(), pre_tokenizer=pre_tokenizers.Whitespace()), "pre_tokenizer is White"),
        (change(tokenizer(), normalizer=normalizers.Lowercase()), "normalizer is Lowercase"),
        (change(tokenizer(), model=models.BPE()), "model is BPE, not WordPiece"),
        (change(tokenizer(), model=wordpiece({"[UNK]": 0})), "lacks .CLS., .SEP."),
        (published(True, True, ("New York",)), "entry 'New York' has a space"),
    ],
)
def test_another_tokenizer_is_refused(made, told):
    with pytest.raises(ValueError, match=told):
        WordIds(made)


def test_ids_that_are_left_out_are_refused():
    check_ids(tokenizer())
    gaps = Tokenizer.from_str(tokenizer().to_str().replace('"##ly":6', '"##ly":60'))
    with pytest.raises(ValueError, match="ids of its 25 entries are not 0 to 24"):
        check_ids(gaps)
