"""Tiny tokenizers of each kind that published encoders have, as their tokenizer.json has them.

Their entries are written: trained ones, whose ties are broken at random, differ in each process.
"""

import json
from collections.abc import Sequence
from pathlib import Path

from tokenizers import (
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

TEXT = [
    "The kettle is great, but the lid broke within a week!",
    "I don't like it: it's flimsy, and NOT worth $5.00 (really).",
    "Der Wasserkocher ist großartig, aber der Deckel war kaputt.",
    "Überhaupt nicht zu empfehlen; schöne Farbe, schlechte Qualität.",
    "このケトルはとても良いです。蓋がすぐに壊れました。",
    "買って良かった!色もきれいです。",
    *(f"good bad lamp book number {i}" for i in range(30)),
]
BERT = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
ROBERTA = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
MIXER_WORDS = ("the", "mixer", "works", "great", "broke", "after", "a", "week", "##s", "!", ".")


def list_entries(text: str, inside: str = "", before: str = "") -> list[str]:
    """Return the characters of a text, the same inside words, and every second word."""
    letters = sorted(set(text) - {" "})
    words = sorted({word for word in text.split() if len(word) > 1})[::2]
    marked = [*letters, *(inside + one for one in letters), *(before + word for word in words)]
    return list(dict.fromkeys(marked))


def _finish(tokenizer: Tokenizer, specials: tuple[str, ...]) -> Tokenizer:
    cls, sep = (specials[2], specials[3]) if specials == BERT else (specials[0], specials[2])
    tokenizer.add_special_tokens(list(specials))
    ends = [(token, tokenizer.token_to_id(token)) for token in (cls, sep)]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{cls} $A {sep}", pair=f"{cls} $A {sep} {sep} $B {sep}", special_tokens=ends
    )
    return tokenizer


def build_word_piece(specials: tuple[str, ...] = BERT) -> Tokenizer:
    """BERT's; with ROBERTA's entries that of MPNet."""
    normalizer, splitter = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    words = splitter.pre_tokenize_str(normalizer.normalize_str(" ".join(TEXT)))
    pieces = list_entries(" ".join(word for word, _ in words), "##")
    entries = dict.fromkeys([*specials, "[UNK]", *pieces])
    vocabulary = {entry: number for number, entry in enumerate(entries)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer, splitter
    tokenizer.decoder = decoders.WordPiece()
    return _finish(tokenizer, specials)


def build_bpe(prefix_space: bool = False, specials: tuple[str, ...] = ROBERTA) -> Tokenizer:
    """Byte-level, as of RoBERTa; with BERT's entries and NFC as of ModernBERT."""
    tokenizer = Tokenizer(models.BPE())
    if specials == BERT:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix_space)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=list(specials),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXT, trainer)
    return _finish(tokenizer, specials)


def build_unigram(
    specials: tuple[str, ...] = ROBERTA, added: tuple[str, ...] = (), normalized: bool = True
) -> Tokenizer:
    """SentencePiece's, as of XLM-R and DeBERTa-v3; it knows each character of TEXT."""
    unknown = specials.index("[UNK]" if specials == BERT else "<unk>")
    text = normalizers.NFKC().normalize_str(" ".join(TEXT))
    pieces = [*specials, "▁", *list_entries(text, before="▁")]
    scores = [-len(specials) / (1 + len(piece)) - n / 1_000 for n, piece in enumerate(pieces)]
    vocabulary = list(zip(pieces, scores, strict=True))
    tokenizer = Tokenizer(models.Unigram(vocabulary, unknown))
    if normalized:
        tokenizer.normalizer = normalizers.Sequence(
            [normalizers.NFKC(), normalizers.Replace("  ", " ")]
        )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.add_tokens(list(added))
    return _finish(tokenizer, specials)


def write_word_pieces(folder: Path, entries: Sequence[str], config: str = "{}\n") -> Path:
    """Write the files of a vocabulary of BERT's kind, special entries first."""
    folder.mkdir(parents=True, exist_ok=True)
    every = [*BERT, *entries]
    words = models.WordPiece({word: i for i, word in enumerate(every)}, unk_token="[UNK]")
    tokenizer = Tokenizer(words)
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.add_special_tokens(list(BERT))
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "vocab.txt").write_text("\n".join(every) + "\n")
    (folder / "tokenizer_config.json").write_text(config)
    return folder


def write_published(tokenizer: Tokenizer, folder: Path, specials: tuple[str, ...]) -> Path:
    """Write the files that AutoTokenizer takes as they are."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    names = ("pad", "unk", "cls", "sep", "mask")
    if specials == ROBERTA:
        names = ("cls", "pad", "sep", "unk", "mask")
    told = {f"{name}_token": token for name, token in zip(names, specials, strict=True)}
    told |= {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 64}
    (folder / "tokenizer_config.json").write_text(json.dumps(told))
    return folder


KINDS = {
    "WordPiece": (build_word_piece, BERT),
    "WordPiece with MPNet's entries": (lambda: build_word_piece(ROBERTA), ROBERTA),
    "byte-level BPE": (build_bpe, ROBERTA),
    "byte-level BPE with a prefix space": (lambda: build_bpe(True), ROBERTA),
    "byte-level BPE with NFC": (lambda: build_bpe(False, BERT), BERT),
    "Unigram": (build_unigram, ROBERTA),
    "Unigram with added entries": (lambda: build_unigram(BERT, ("New York", "C++")), BERT),
    "Unigram without a normalizer": (lambda: build_unigram(normalized=False), ROBERTA),
}
