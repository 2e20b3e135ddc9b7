"""Copy a published encoder into a folder: `python -m model.origin --place PLACE --output DIR`.

Give the folder to model.pretrain (--start-from), to model.finetune as encoder and to
beam_jobs.shards_job as vocabulary. `package:MODULE` is an installed package with the model inside.
"""

from typing import Any

from beam_jobs.core.command import main
from beam_jobs.core.errors import UserError
from beam_jobs.core.files import make_writable_folder
from beam_jobs.core.settings import read_options
from model.encoders.origin import write_origin
from model.options import OriginOptions


def run(argv: list[str] | None = None) -> dict[str, Any]:
    """Write the folder; return origin.json."""
    options = read_options(OriginOptions, argv, "python -m model.origin", __doc__)
    if options.output.exists() and not options.output.is_dir():
        raise UserError(f"--output: {options.output} is a file; give a folder")
    make_writable_folder("--output", options.output.absolute().parent)
    return write_origin(options.place, options.output, options.generator)


if __name__ == "__main__":
    main(run)
