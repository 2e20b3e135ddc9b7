"""How a corpus keeps the classes of a text that may have several."""

SEVERAL = "\x1f"
"""Between the values of a list, which are in order; by itself an empty list."""


def split_classes(found: str) -> list[str]:
    """Return the classes that a multi-label column of a corpus has in a cell, none for ""."""
    return found.split(SEVERAL) if found else []
