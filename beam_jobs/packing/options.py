"""The options of the shards job, read and checked."""

from beam_jobs.config import ShardsOptions
from beam_jobs.job.errors import UserError
from beam_jobs.job.settings import read_known_options


def parse_shards_options(argv: list[str] | None) -> tuple[ShardsOptions, list[str]]:
    """Return the job's options, and what is left for Beam."""
    description = "A corpus to packed sequences of token ids; any Apache Beam option may follow."
    options, flags = read_known_options(ShardsOptions, argv, "shards_job", description)
    if bool(options.corpus) == bool(options.general_text):
        raise UserError("give one of --corpus and --general-text")
    if options.general_text and options.split != "pretrain":
        raise UserError(
            f"--split: {options.split}; general text is for pre-training only, leave --split out"
        )
    if options.corpus and options.punkt:
        raise UserError(
            "--punkt: a corpus is in sentences already; leave it out, or give --general-text"
        )
    if options.corpus and options.withhold_corpus:
        raise UserError(
            "--withhold-corpus: the splits of a corpus share no text; here it is for --general-text"
        )
    if options.corpus and options.withhold:
        raise UserError("--withhold: corpus_job has it for a corpus; here it is for --general-text")
    return options, flags
