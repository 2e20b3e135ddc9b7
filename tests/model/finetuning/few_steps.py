"""Fine-tune in a few steps, through the command that users type."""

from amazon_electra.model import finetune

SETTINGS = ("epochs=1", "n_train=64", "n_dev=40", "max_length=32", "layer_decay=1.0", "batch=16")
LEARNING = ("epochs=8", "n_train=200", "n_dev=100", "max_length=48", "batch=32")


def format_settings(*settings):
    return [part for setting in settings for part in ("--set", setting)]


SHORT = format_settings(*SETTINGS)
LEARN = format_settings(*LEARNING)
"""More steps, after which the corpus's words are learnt."""


def tune(made, name, *more, task="polarity", encoder="electra"):
    """Run model.finetune into the folder `name`; the encoder is one of `made`, or no folder."""
    named = ("random", "half", "layers:5", "tfidf")
    is_folder = (made / encoder).exists() or not (encoder in named or ":" in encoder)
    places = ["--encoder", str(made / encoder) if is_folder else encoder, "--task", task]
    places += ["--data", str(made / "corpus"), "--output", str(made / name)]
    rate = [] if "--learning_rate" in more else ["--learning_rate", "5e-3"]
    return finetune.run([*places, *SHORT, *rate, *more])
