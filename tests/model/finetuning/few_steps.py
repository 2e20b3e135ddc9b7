"""Fine-tune in a few steps, through the command that users type."""

from model import finetune

SETTINGS = ("epochs=8", "n_train=200", "max_length=48", "layer_decay=1.0")
SHORT = ["--learning_rate", "5e-3", *(part for setting in SETTINGS for part in ("--set", setting))]


def tune(made, name, *more, task="polarity", encoder="electra"):
    encoder = encoder if encoder == "random" else str(made / encoder)
    arguments = [
        "--encoder",
        encoder,
        "--task",
        task,
        "--data",
        str(made / "corpus"),
        "--output",
        str(made / name),
    ]
    return finetune.run([*arguments, *SHORT, *more])
