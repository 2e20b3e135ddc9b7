"""Names a model before it is made: by the ticket of the addition that is to make it.

Whoever builds on it makes what is missing, or waits for the run that is at it. So dumps that arrive
together chain in the order in which they were promised, whatever becomes of the single runs.
Prefect has no such promise: its runs know each other by id, which exists only once a run does.
"""

import hashlib
import json
from typing import Any

from beam_jobs.job.files import write_json
from flows.configuration.parameters import Addition, AdditionParameters
from flows.runner.store import Store


class Promise:
    """The note of an addition, `<store>/additions/<ticket>.json`; false where there is none."""

    def __init__(self, store: Store, ticket: str):
        self._file = store.root / "additions" / f"{ticket}.json"
        is_there = ticket.isalnum() and self._file.exists()
        self.note: dict[str, Any] = json.loads(self._file.read_text()) if is_there else {}

    def __bool__(self) -> bool:
        return bool(self.note)

    def add(self, **fields: Any) -> None:
        """Write the note with these fields added."""
        self.note |= fields
        write_json(self._file, self.note)


def write_promise(store: Store, form: Addition) -> str:
    """Write a note of an addition to be made; return its ticket, which the next may be based on."""
    ticket = compute_ticket(form)
    promise = Promise(store, ticket)
    if not promise:
        promise.add(form=form.model_dump(mode="json", exclude={"store"}))
    return ticket


def compute_ticket(asked: Addition | AdditionParameters) -> str:
    """Return the digest of what decides the model: 16 digits and a letter no fingerprint has."""
    decisive = asked.model_dump_json(include={"dump", "increment"})
    return "t" + hashlib.sha256(decisive.encode()).hexdigest()[:16]
