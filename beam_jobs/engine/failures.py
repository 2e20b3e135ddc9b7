"""Why a graph failed, in one line. From another process or host an error comes as text: a traceback
of Python whose lines name the classes of exceptions, with what the engine says around it.
"""

import re

from amazon_electra.beam_jobs.core.errors import (
    AWAY_STATUSES,
    DISK_FULL,
    NETWORK_ERRORS,
    JobFailed,
    TransientError,
    UserError,
    describe_error,
)

AGAIN = "what is done is kept, run the same command to continue"
OWN_KINDS = {kind.__name__: kind for kind in (UserError, JobFailed, TransientError)}
RAISED = re.compile(r"^(?:\w+\.)*(\w+): (.*)", re.M)
"""A line of a traceback that names the class of an exception, and its message."""


def translate_error(error: BaseException | str) -> Exception | None:
    """Return the mistake, failure, error of the network or full disk that a worker met; None for
    any other error.
    """
    text = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
    raised = [(name, words.partition(" [while running")[0].strip()) for name, words in read(text)]
    for name, words in raised:
        if name in OWN_KINDS:
            return OWN_KINDS[name](words)
    for name, words in raised:
        of_server = name == "HttpError" and words.rpartition(", ")[2] in map(str, AWAY_STATUSES)
        if name in NETWORK_ERRORS or of_server:
            return TransientError(f"{name}: {words}; {AGAIN}")
        if any(words.startswith(f"[Errno {number}]") for number in DISK_FULL):
            why = words.partition("] ")[2]
            return JobFailed(f"{why}: make room; {AGAIN}")
    return None


def read(text: str) -> list[tuple[str, str]]:
    """Return the exceptions that a text names: class and message."""
    return [(match[1], match[2]) for match in RAISED.finditer(text)]


def describe_failure(text: str) -> Exception:
    """Return why a job failed on an engine elsewhere, of what the engine says of it.

    What Python raised there is raised again by another attempt; without that the engine itself
    failed: it has lost workers, or has too few slots.
    """
    if known := translate_error(text):
        return known
    if "Traceback (most recent call last)" in text:
        name, words = read(text)[-1]
        if name == "ModuleNotFoundError":
            return UserError(
                f"the engine's Python workers: {words}; install there what is installed here"
            )
        return JobFailed(f"the engine's job failed: {name}: {words}")
    lines = text.strip().splitlines() or ["it does not say why"]
    causes = [line.strip() for line in lines if line.strip().startswith("Caused by: ")]
    cause = describe_error(RuntimeError(causes[-1] if causes else lines[0]))
    return TransientError(f"the engine's job failed: {cause}; {AGAIN}")
