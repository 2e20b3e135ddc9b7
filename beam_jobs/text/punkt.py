"""Imports NLTK's Punkt alone: a few modules of NLTK, a tenth of a second.

`import nltk` loads 250 modules, and scikit-learn and scipy where they are installed: a CPU second
and 80 MB of every process, for nothing.
"""

from beam_jobs.engine.light_imports import skip_package_init

with skip_package_init("nltk", "nltk.tokenize"):
    from nltk.tokenize import punkt as nltk_punkt
    from nltk.tokenize.punkt import (
        PunktLanguageVars,
        PunktParameters,
        PunktSentenceTokenizer,
        PunktToken,
        PunktTrainer,
    )

ORTHO_BEG_LC = nltk_punkt._ORTHO_BEG_LC
ORTHO_LC = nltk_punkt._ORTHO_LC
ORTHO_MID_UC = nltk_punkt._ORTHO_MID_UC
ORTHO_UC = nltk_punkt._ORTHO_UC
"""Bits of how a word was written in the texts that Punkt was trained on."""

__all__ = [
    "ORTHO_BEG_LC",
    "ORTHO_LC",
    "ORTHO_MID_UC",
    "ORTHO_UC",
    "PunktLanguageVars",
    "PunktParameters",
    "PunktSentenceTokenizer",
    "PunktToken",
    "PunktTrainer",
]
