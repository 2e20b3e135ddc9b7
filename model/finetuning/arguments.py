"""Make of the options that `model.finetune` and `model.finetuning.search` share what is asked for:
where the network comes from, the task, its data, and every setting.
"""

from typing import TYPE_CHECKING

from beam_jobs.job.errors import UserError
from beam_jobs.job.settings import format_value, parse_assignments, replace_settings
from model.config import FinetuningSettings
from model.finetuning.tasks import find_task
from model.options import FinetuneOptions
from model.presets import PRESETS

if TYPE_CHECKING:
    from model.finetuning.request import Request


def make_request(options: FinetuneOptions) -> "Request":
    """Return what the command line asks for; raise a UserError that names a wrong option."""
    settings = make_settings(options)
    task = find_task(options.task, options.data)

    from model.finetuning.request import Request  # brings torch, which --help does without
    from model.finetuning.start import Start

    if options.initializer_range is not None and options.encoder != "random":
        raise UserError(
            f"--initializer-range {options.initializer_range:g}: it is for --encoder random; "
            "other encoders have weights"
        )
    start = Start(options.encoder, options.architecture, options.teacher, options.initializer_range)
    return Request(start, task, options.data, settings, options.seed, options.cache)


def make_settings(options: FinetuneOptions) -> FinetuningSettings:
    """Return the defaults, changed by the preset and then by the command line."""
    base = PRESETS[options.preset].finetuning if options.preset else FinetuningSettings()
    texts = parse_assignments("--set", options.settings, "FIELD=VALUE")
    if options.learning_rate:
        texts["learning_rates"] = format_value(options.learning_rate)
    try:
        [settings] = replace_settings([base], texts, "finetuning")
    except UserError as mistake:
        raise UserError(f"--set {mistake}") from None
    return settings
