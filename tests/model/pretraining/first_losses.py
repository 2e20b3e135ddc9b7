"""The losses of a training's first steps."""

from model.pretraining.loop import Training, run_step


def compute_losses(training: Training, steps: int) -> list[float]:
    """Take the first steps of a training and return their losses."""
    training.model.train()
    losses: list[float] = []
    for arrays in training.batches.iterate_steps(0):
        sums, _ = run_step(training, arrays)
        totals = {name: value.item() for name, value in sums.items()}
        losses.append(training.model.compute_means(totals)["loss"])
        training.totals.step += 1
        if len(losses) == steps:
            break
    return losses
