"""Imports NLTK's Punkt without scikit-learn and scipy.

`import nltk` loads both where they are installed, which costs every worker 80 MB and a CPU second
for nothing. They are hidden while it is imported; later imports of them work as ever.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

NOT_NEEDED = ("matplotlib", "scipy", "sklearn")


@contextmanager
def hide_modules(*names: str) -> Iterator[None]:
    """Let `import name` fail within the context, unless it was imported before."""
    absent = [name for name in names if name not in sys.modules]
    sys.modules.update(dict.fromkeys(absent))  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name in absent:
            del sys.modules[name]


with hide_modules(*NOT_NEEDED):
    from nltk.tokenize.punkt import (
        PunktParameters,
        PunktSentenceTokenizer,
        PunktToken,
        PunktTrainer,
    )

__all__ = ["PunktParameters", "PunktSentenceTokenizer", "PunktToken", "PunktTrainer"]
