"""Everything the shards job will do, decided once from its options before any work begins."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from apache_beam.options.pipeline_options import PipelineOptions

from amazon_electra.beam_jobs.config import ShardsOptions
from amazon_electra.beam_jobs.core import storage
from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.beam_jobs.core.files import hash_bytes
from amazon_electra.beam_jobs.core.nesting import load_json
from amazon_electra.beam_jobs.core.special_tokens import SHARDS_VERSION, count_rows
from amazon_electra.beam_jobs.engine import beam_options
from amazon_electra.beam_jobs.packing import corpus_units
from amazon_electra.beam_jobs.packing.corpus_units import CorpusUnit
from amazon_electra.beam_jobs.packing.tokenization import load_tokenizer

VOCABULARY_FILES = ("tokenizer.json", "tokenizer_config.json")
WORDS = "vocab.txt"  # beside them where the tokenizer is WordPiece: its entries, one a line
REVIEW_BYTES = 500
"""Of a review's text, on average: only to choose how many workers are worth starting."""


@dataclass(frozen=True)
class Packing:
    """Everything a shard depends on beside its unit, and the folder it goes to."""

    vocabulary: str
    vocabulary_fingerprint: str
    vocabulary_size: int
    max_length: int
    split: str
    output: str

    @property
    def failed(self) -> str:
        """Folder that says why units failed."""
        return storage.join_path(self.output, "_failed")

    def shard_path(self, unit: CorpusUnit) -> str:
        return storage.join_path(self.output, f"shard-{unit.number:05d}.parquet")

    def describe_shard(self, unit: CorpusUnit) -> dict[str, Any]:
        """Return the part of a shard's footer that is known before the unit is read."""
        return {
            "version": SHARDS_VERSION,
            "vocabulary_fingerprint": self.vocabulary_fingerprint,
            "vocabulary_size": self.vocabulary_size,
            "max_length": self.max_length,
            "split": self.split,
            "unit": unit.digest,
        }


@dataclass(frozen=True)
class ShardsPlan:
    """What is packed, how, and where the shards go."""

    packing: Packing
    units: Sequence[CorpusUnit]
    engine: PipelineOptions
    corpus: str  # path of its corpus.json
    documents: int | None  # reviews in the split as corpus.json counts them, where it does
    made_of: dict[str, Any]
    """What pre-training will see: the corpus, and the evaluation texts kept out of it."""
    is_sample: bool  # whether some reviews of the split are enough, or none where it has none


def plan_shards(
    options: ShardsOptions, flags: list[str], packing: Packing, corpus: str
) -> ShardsPlan:
    """Return the plan of a job on a corpus. Raises UserError for one that cannot be read."""
    units, path = corpus_units.plan_corpus_units(corpus), storage.join_path(corpus, "corpus.json")
    content = storage.read_bytes(path)
    try:
        result = dict(load_json(content))
    except (ValueError, TypeError) as error:
        raise UserError(f"{path} is damaged ({error}); make the corpus again") from None
    splits, withheld = result.get("splits"), result.get("withheld_files", [])
    documents = splits.get(options.split, 0) if splits else None
    # a corpus of general text goes when it is packed
    made_of = {"corpus": hash_bytes(content) if options.corpus else "", "withheld": withheld}
    if "withheld_corpus" in result:
        made_of["withheld_corpus"] = result["withheld_corpus"]
    is_sample = options.sample_reviews is not None
    if options.sample_reviews is not None:
        units = corpus_units.sample_units(units, documents, options.sample_reviews)
        documents = None
    engine = beam_options.resolve_beam_options(
        flags, sum(unit.rows for unit in units) * REVIEW_BYTES
    )
    return ShardsPlan(packing, units, engine, path, documents, made_of, is_sample)


def prepare_output(options: ShardsOptions) -> Packing:
    """Copy the vocabulary byte for byte and remove shards.json, the mark of a finished run."""
    files, size = read_vocabulary_files(options.vocabulary)
    storage.check_output(options.output)
    storage.remove_path(storage.join_path(options.output, "shards.json"))
    folder = storage.join_path(options.output, "vocabulary")
    for name, content in files.items():
        storage.write_bytes(storage.join_path(folder, name), content)
    packing = Packing(
        vocabulary=folder,
        vocabulary_fingerprint=hash_bytes(files["tokenizer.json"]),
        vocabulary_size=size,
        max_length=options.max_length,
        split=options.split,
        output=options.output,
    )
    storage.remove_path(packing.failed)
    return packing


def read_vocabulary_files(folder: str) -> tuple[dict[str, bytes], int]:
    """Return the content of the vocabulary's files, and one more than its last id."""
    for name in VOCABULARY_FILES:
        if not storage.exists(storage.join_path(folder, name)):
            raise UserError(
                f"no {name} in {folder}; give the folder that model.vocabulary or "
                "model.origin wrote",
                "vocabulary",
            )
    names = [*VOCABULARY_FILES, WORDS]
    places = {name: storage.join_path(folder, name) for name in names}
    files = {n: storage.read_bytes(p) for n, p in places.items() if storage.exists(p)}
    try:
        tokenizer = load_tokenizer(files["tokenizer.json"].decode()).tokenizer
    except Exception as error:  # tokenizers raises nothing more special
        raise UserError(
            f"{folder}/tokenizer.json is not an encoder's tokenizer ({error})", "vocabulary"
        ) from None
    size = count_rows(tokenizer)
    words = files.get(WORDS)
    lines = words.decode(errors="replace").removesuffix("\n").count("\n") + 1 if words else size
    if lines != size:
        raise UserError(
            f"{folder}/{WORDS} has {lines} lines, the ids of tokenizer.json end at "
            f"{size - 1}; copy both again from one model",
            "vocabulary",
        )
    return files, size
