"""Text that is not reviews, for the control arm: it becomes a corpus, which is packed as any."""

from beam_jobs import corpus_job
from beam_jobs.config import ShardsOptions
from beam_jobs.core import storage
from beam_jobs.core.errors import UserError

LONGEST = 200_000
"""Characters of a document; longer ones are dropped and counted."""


def make_corpus(options: ShardsOptions, flags: list[str]) -> str:
    """Make a corpus of general text, all of it on the pretrain side; return its folder.

    An interrupted job is continued by the same command.
    """
    files = storage.expand_patterns(options.general_text, "--general-text")
    folder = storage.join_path(options.output, "corpus")
    words = ["--input", *files, "--output", folder, "--format", "text", "--split", "pretrain=1"]
    words += ["--max-characters", str(LONGEST), "--title", "false", "--withhold-own", "false"]
    words += ["--max-record-bytes", str(options.max_record_bytes)]
    words += ["--max-expansion", str(options.max_expansion)]
    words += ["--withhold", *options.withhold, "--withhold-corpus", options.withhold_corpus]
    words += ["--punkt", options.punkt] if options.punkt else []
    if "staged" in corpus_job.run([*words, *flags]):
        raise UserError(
            "--general-text: its corpus has to be there before the shards are staged; make it "
            "with corpus_job --format text, and give it as --corpus"
        )
    return folder
