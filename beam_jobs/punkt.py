"""NLTK's Punkt without the rest of NLTK, for the processes of workers.

`import nltk` also loads scikit-learn and scipy where they are installed, for parts of it that have no use here: 80 MB
and a second of CPU for every worker. They are hidden while it is imported; later imports of them work as ever.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

NOT_NEEDED = ("matplotlib", "scipy", "sklearn")


@contextmanager
def hidden(*names: str) -> Iterator[None]:
    """`import name` fails meanwhile, unless it has been imported before."""
    absent = [name for name in names if name not in sys.modules]
    sys.modules.update(dict.fromkeys(absent))  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name in absent:
            del sys.modules[name]


with hidden(*NOT_NEEDED):
    from nltk.tokenize.punkt import PunktParameters, PunktSentenceTokenizer, PunktToken, PunktTrainer

__all__ = ["PunktParameters", "PunktSentenceTokenizer", "PunktToken", "PunktTrainer"]
