"""Why a graph failed: an error of another process or host comes as text within an engine's."""

import re

from amazon_electra.beam_jobs.core.errors import JobFailed, TransientError, UserError

AGAIN = "what is done is kept, run the same command to continue"
OWN_KINDS = {kind.__name__: kind for kind in (UserError, JobFailed, TransientError)}
RAISED = re.compile(rf"^(?:\w+\.)*({'|'.join(OWN_KINDS)}): (.*)", re.M)
"""The last line of Python's traceback of an error of ours."""
MAX_CHARACTERS = 1_000


def translate_error(error: BaseException | str) -> Exception | None:
    """Return the error of ours that a worker raised; None for any other error."""
    text = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
    found = RAISED.search(text)
    return found and OWN_KINDS[found[1]](found[2].partition(" [while running")[0].strip())


def describe_failure(text: str) -> Exception:
    """Return why a job failed on an engine elsewhere: an error of ours, or what the engine says,
    its last line first. Without a traceback of Python the engine itself failed, which may pass.
    """
    if known := translate_error(text):
        return known
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    said = [line for line in lines if not line.startswith(("at ", "..."))] or ["no reason given"]
    shown = "; ".join(dict.fromkeys([said[-1], *said]))[:MAX_CHARACTERS]
    if "Traceback (most recent call last)" in text:
        return JobFailed(f"the engine's job failed: {shown}")
    return TransientError(f"the engine's job failed: {shown}; {AGAIN}")
