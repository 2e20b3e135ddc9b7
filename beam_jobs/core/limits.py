"""How much a file that somebody else made may hold: a dump, an evaluation file, a task's file."""

from dataclasses import dataclass

from amazon_electra.beam_jobs.core.errors import UserError

UNLIMITED_BYTES = 1 << 26
"""The expansion limit does not look at what stays below."""

COMMON_TEXTS = 100
"""A run that more distinct held-out texts have, those of evaluation files among them, is compared
with that many of them, those of the earliest dumps and within a dump those with the smallest
hashes: the pairs of reviews that share it would grow with the square of the dump. So a later dump
changes nothing of an earlier one, and of a family of texts that share many runs the same members
are compared in each run. Pairs a review grow up to that limit, 0.011, 0.056 and 0.121 at 10, 40 and
79 thousand reviews, and so do those that nearly repeat each other, 0.0002, 0.0026 and 0.0044;
prefix filtering, with the rarest half of a text's runs, would leave 0.0002, 0.0026 and 0.0047 for
two more passes over all runs and a reading of both texts of each pair."""


@dataclass(frozen=True)
class Limits:
    """The limits of one file."""

    max_record_bytes: int = 16_000_000
    max_expansion: float = 200
    """Times its size that a packed file may expand to; 0 for any."""
    remedy: str = "raise `max_expansion`"

    def check_expansion(self, name: str, packed: int, unpacked: int) -> None:
        """Raise UserError if so many bytes were packed into too few."""
        limit = max(self.max_expansion * packed, UNLIMITED_BYTES)
        if self.max_expansion and unpacked > limit:
            raise UserError(
                f"{name} expands to more than {self.max_expansion:g} times its size; "
                f"if it is meant to, {self.remedy}"
            )


DEFAULT_LIMITS = Limits()
