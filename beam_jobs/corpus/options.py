"""The options of the corpus job, read and checked; plan.py says what the job makes of them."""

from beam_jobs.config import CorpusOptions, ScoringOptions
from beam_jobs.job.errors import UserError
from beam_jobs.job.settings import read_known_options
from beam_jobs.text import languages


def parse_corpus_options(argv: list[str] | None) -> tuple[CorpusOptions, list[str]]:
    """Return the corpus job's options, and what is left for Beam."""
    description = (
        "Review dumps to a corpus of clean, distinct sentences; any Beam option may follow."
    )
    options, flags = read_known_options(CorpusOptions, argv, "corpus_job", description)
    check_text_options(options)
    check_corpus_options(options)
    return options, flags


def check_text_options(options: CorpusOptions | ScoringOptions) -> None:
    """Refuse languages and encodings that nobody knows."""
    if wrong := set(options.languages) - languages.list_languages():
        raise UserError(f"--languages {' '.join(sorted(wrong))}: codes of two letters, such as en")
    try:
        "".encode(options.encoding)
    except (LookupError, UnicodeError):
        raise UserError(f"--encoding {options.encoding}: not an encoding Python knows") from None


def check_corpus_options(options: CorpusOptions) -> None:
    """Refuse options that exclude each other, and Punkt parameters that cannot be read."""
    if options.seen and options.near_duplicates:
        raise UserError(
            "--near-duplicates with --seen: an earlier corpus keeps no signatures of its texts, "
            "only their hashes; give 0, or all dumps in one call"
        )
    if options.punkt:
        from beam_jobs.text import sentences

        sentences.read_punkt(options.punkt)
