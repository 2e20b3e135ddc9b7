"""How a corpus keeps the classes of a text: several of them, or those of copies that differ."""

SEVERAL = "\x1f"  # between the values of a list, which are in order; by itself an empty list
CONTRADICTED = "contradictions"
"""Folder of JSON lines with the places of texts whose copies have several classes."""


def split_classes(found: str) -> list[str]:
    """Return the classes that a multi-label column of a corpus has in a cell, none for ""."""
    return found.split(SEVERAL) if found else []
