"""Reads vocabulary and tokenizer of an encoder, and writes the tokenizer as others take it."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenizers import Tokenizer, normalizers

from amazon_electra.beam_jobs.core.errors import refuse, require
from amazon_electra.beam_jobs.core.files import write_json
from amazon_electra.beam_jobs.core.nesting import find_json, load_json
from amazon_electra.beam_jobs.core.special_tokens import find_specials
from amazon_electra.model.wordpiece import build_tokenizer_of, list_entries, write_tokenizer

if TYPE_CHECKING:  # the flows, which read entries, load no torch
    from torch import Tensor

NEEDED = ("[UNK]", "[CLS]", "[SEP]", "[MASK]")
BY_ENTRY = {  # weights with one row per vocabulary entry
    "electra.embeddings.word_embeddings.weight",
    "generator_lm_head.bias",
}
FAST_TOKENIZER = "PreTrainedTokenizerFast"
"""The class of transformers that takes tokenizer.json as it is."""
PADDED_TO = 128
"""Rows of a table are at most filled up to a multiple of this, for the speed of matrix products."""


def read_entries(folder: Path) -> list[str]:
    """Return the entries by id, of vocab.txt or of tokenizer.json."""
    if (folder / "vocab.txt").is_file():
        return read_words(folder / "vocab.txt")
    return list_all_entries(load_published_tokenizer(folder))


def read_words(path: Path) -> list[str]:
    """Return the lines of a vocab.txt."""
    return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")


def list_all_entries(tokenizer: Tokenizer) -> list[str]:
    """Return the entries by id; UserError where ids are left out."""
    entries, ids = list_entries(tokenizer), tokenizer.get_vocab()
    are_whole = [ids[entry] for entry in entries] == list(range(len(entries)))
    require(are_whole, "tokenizer.json leaves out ids, or gives one twice; copy it again")
    return entries


def check_entries(entries: list[str], rows: int) -> None:
    """Raise UserError where a table of word vectors is not that of these entries."""
    surplus = rows - len(entries)
    require(0 <= surplus < PADDED_TO, f"{len(entries)} entries, {rows} rows in its weights")


def cut_padding(weights: dict[str, "Tensor"], entries: list[str]) -> dict[str, "Tensor"]:
    """Return the weights with one row for each entry; tables may be filled up."""
    tables = {name: tensor for name, tensor in weights.items() if name in BY_ENTRY}
    check_entries(entries, min(map(len, tables.values()), default=len(entries)))
    return weights | {name: tensor[: len(entries)] for name, tensor in tables.items()}


def load_published_tokenizer(folder: Path) -> Tokenizer:
    """Return the folder's tokenizer without truncation and padding. A folder with only vocab.txt is
    BERT's, which folds case unless tokenizer_config.json says otherwise; SentencePiece and
    merges.txt are converted by transformers.
    """
    config, file = read_tokenizer_config(folder), folder / "tokenizer.json"
    if file.is_file():  # tokenizers raises no class of its own
        with refuse(Exception, message="tokenizer.json is damaged ({}); copy it again"):
            load_json(file.read_text(encoding="utf-8"))
            tokenizer = Tokenizer.from_file(str(file))
    elif (folder / "vocab.txt").is_file():
        entries = read_words(folder / "vocab.txt")
        missing = ", ".join(token for token in NEEDED if token not in entries)
        require(not missing, f"vocab.txt lacks {missing}: give its tokenizer.json")
        folds_case = bool(config.get("do_lower_case", True))
        tokenizer = build_tokenizer_of(entries, folds_case, config.get("strip_accents"))
    else:
        is_slow = any((folder / name).is_file() for name in SLOW_FILES)
        require(is_slow, "put its tokenizer.json (or vocab.txt) beside the weights")
        from transformers import AutoTokenizer
        from transformers.utils import logging

        logging.set_verbosity_error()
        # of every kind: the converters' packages may be missing
        with refuse(Exception, message="put its tokenizer.json beside the weights ({})"):
            made = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
            tokenizer = made.backend_tokenizer
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


SLOW_FILES = (
    *("sentencepiece.bpe.model", "spiece.model", "spm.model", "tokenizer.model"),
    *("merges.txt", "vocab.json"),
)
ROLES = ("pad", "unk", "cls", "sep", "mask", "bos", "eos")


def write_published_tokenizer(
    folder: Path, tokenizer: Tokenizer, source: Path, max_length: int
) -> None:
    """Write a published encoder's tokenizer so that the shards job and AutoTokenizer take it as it
    is. UserError without a mask token, or with other special tokens than one before and one after.
    """
    if all(token in tokenizer.get_vocab() for token in NEEDED) and isinstance(
        tokenizer.normalizer, normalizers.BertNormalizer
    ):
        return write_tokenizer(folder, tokenizer, max_length, "BertTokenizer")
    config = read_tokenizer_config(source)
    config = {**find_json(source / "special_tokens_map.json"), **config}
    entries = tokenizer.get_vocab()
    roles = {f"{role}_token": _name_token(config.get(f"{role}_token")) for role in ROLES}
    roles = {role: token for role, token in roles.items() if token in entries}
    if "mask_token" not in roles:
        found = [token for token in ("<mask>", "[MASK]") if token in entries]
        require(found, "its tokenizer has no mask token")
        roles["mask_token"] = found[0]
    with refuse(ValueError, message="tokenizer.json: {}"):
        find_specials(tokenizer)
    tokenizer.save(str(folder / "tokenizer.json"))
    lengths = [config.get("model_max_length") or max_length, max_length]
    write_json(
        folder / "tokenizer_config.json",
        {"tokenizer_class": FAST_TOKENIZER, "model_max_length": int(min(lengths)), **roles},
    )


def _name_token(config: Any) -> str | None:
    """Return a token that is given by its name or as an AddedToken."""
    return config.get("content") if isinstance(config, dict) else config


def find_special(vocabulary: Path, role: str) -> int | None:
    """Return the id of the special token of a role, such as "mask"; None where there is none."""
    config = find_json(vocabulary / "tokenizer_config.json")
    token = _name_token(config.get(f"{role}_token")) or f"[{role.upper()}]"
    found: int | None = Tokenizer.from_file(str(vocabulary / "tokenizer.json")).token_to_id(token)
    return found


def read_tokenizer_config(folder: Path) -> dict[str, Any]:
    """Return tokenizer_config.json, {} where there is none."""
    file = folder / "tokenizer_config.json"
    with refuse(ValueError, message="tokenizer_config.json is damaged ({}); copy it again"):
        text = file.read_text(encoding="utf-8") if file.is_file() else "{}"
        config: dict[str, Any] = load_json(text)
    require(not config.get("auto_map"), "tokenizer_config.json names code, which is never run")
    return config
