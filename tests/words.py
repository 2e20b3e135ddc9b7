"""What a job is called with by the words of its command line."""

from functools import wraps

from amazon_electra.beam_jobs.core.command_line import call_job


def read_arguments(job, words):
    """Return the arguments by name, without those that no word sets."""

    @wraps(job)
    def capture(**given):
        return given

    return call_job(capture, [*map(str, words)])
