"""How much a file that somebody else made may hold: a dump, or an evaluation file."""

from dataclasses import dataclass

from amazon_electra.beam_jobs.core.errors import require

UNLIMITED_BYTES = 1 << 26  # the expansion limit does not look at what stays below


@dataclass(frozen=True)
class Limits:
    """The limits of one file."""

    max_record_bytes: int = 16_000_000
    max_expansion: float = 200  # times its size that a packed file may expand to; 0 for any

    def check_expansion(self, name: str, packed: int, unpacked: int) -> None:
        """Raise UserError if so many bytes were packed into too few."""
        why = f"{name} expands to more than {self.max_expansion:g} times its size; "
        is_within = unpacked <= max(self.max_expansion * packed, UNLIMITED_BYTES)
        require(
            not self.max_expansion or is_within, f"{why}raise `max_expansion` if it is meant to"
        )


DEFAULT_LIMITS = Limits()
