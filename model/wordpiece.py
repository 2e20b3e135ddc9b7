"""Make BERT's WordPiece tokenizer, and write it as the shards job and AutoTokenizer read it."""

from pathlib import Path

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from amazon_electra.beam_jobs.core.files import atomic_path, write_json

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
MODEL_MAX_LENGTH = 512  # tokens


def make_untrained_tokenizer(lower_case: bool, strip_accents: bool | None) -> Tokenizer:
    """Return BERT's WordPiece tokenizer with the special entries only."""
    tokenizer = Tokenizer(
        models.WordPiece({token: i for i, token in enumerate(SPECIAL)}, unk_token="[UNK]")
    )
    tokenizer.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=True,
        strip_accents=strip_accents,
        lowercase=lower_case,
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(prefix="##")
    return tokenizer


def build_tokenizer_of(
    entries: list[str], lower_case: bool, strip_accents: bool | None
) -> Tokenizer:
    """Return BERT's tokenizer of these entries, wherever the special ones are among them."""
    tokenizer = make_untrained_tokenizer(lower_case, strip_accents)
    tokenizer.model = models.WordPiece({p: i for i, p in enumerate(entries)}, unk_token="[UNK]")
    tokenizer.add_special_tokens([token for token in SPECIAL if token in entries])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[(token, entries.index(token)) for token in ("[CLS]", "[SEP]")],
    )
    return tokenizer


def list_entries(tokenizer: Tokenizer) -> list[str]:
    """Return the entries in the order of their ids."""
    ids = tokenizer.get_vocab()
    return sorted(ids, key=ids.__getitem__)


def write_tokenizer(
    folder: Path,
    tokenizer: Tokenizer,
    max_length: int = MODEL_MAX_LENGTH,
    tokenizer_class: str = "BertTokenizer",
) -> None:
    """Write vocab.txt, tokenizer.json and tokenizer_config.json, each whole or not at all."""
    with atomic_path(folder / "vocab.txt") as path:
        path.write_text("".join(f"{e}\n" for e in list_entries(tokenizer)), encoding="utf-8")
    with atomic_path(folder / "tokenizer.json") as path:
        tokenizer.save(str(path))
    config = {  # what AutoTokenizer reads beside tokenizer.json
        "tokenizer_class": tokenizer_class,
        "do_lower_case": tokenizer.normalizer.lowercase,
        "strip_accents": tokenizer.normalizer.strip_accents,
        "tokenize_chinese_chars": True,
        "model_max_length": max_length,
        **{f"{token.strip('[]').lower()}_token": token for token in SPECIAL},
    }
    write_json(folder / "tokenizer_config.json", config)
