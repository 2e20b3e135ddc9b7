"""Fine-tune in a few steps, through the command that users type."""

from transformers import AutoModelForSequenceClassification

from amazon_electra.beam_jobs.core.command_line import call_job
from amazon_electra.model import finetune

SETTINGS = ("epochs=1", "n_train=64", "n_dev=40", "max_length=32", "layer_decay=1.0", "batch=16")
LEARNING = ("epochs=8", "n_train=200", "n_dev=100", "max_length=48", "batch=32")


def format_settings(*settings):
    return [f"--{setting}" for setting in settings]


SHORT = format_settings(*SETTINGS)
LEARN = format_settings(*LEARNING)
"""More steps, after which the corpus's words are learnt."""


def load_whole(folder, kind=AutoModelForSequenceClassification):
    """Return transformers' model of a folder that has each of its weights and no other."""
    model, report = kind.from_pretrained(folder, output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    return model


def tune(made, name, *more, task="polarity", encoder="electra"):
    """Run model.finetune into the folder `name`; the encoder is one of `made`, a start that is no
    folder, or none.
    """
    is_start = encoder in ("random", "half")
    places = ["--start", encoder] if is_start else []
    if encoder and not is_start:
        places = ["--encoder", str(made / encoder)]
    places += ["--task", task]
    places += ["--data", str(made / "corpus"), "--output", str(made / name)]
    rate = [] if "--learning_rates" in more else ["--learning_rates", "5e-3"]
    return call_job(finetune.finetune, [*places, *SHORT, *rate, *more])
