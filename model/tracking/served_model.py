"""Writes a model folder as a model of MLflow, whose server runs it without the project."""

from contextlib import redirect_stderr
from importlib.metadata import version
from io import StringIO
from pathlib import Path

import numpy as np

from amazon_electra.beam_jobs import model_folder
from amazon_electra.beam_jobs.model_folder.config import Folder

LOADER = Path(__file__).with_name("serving.py")
NETWORK = ("onnxruntime", "tokenizers")
NEEDED = {
    "transformers": NETWORK,
    "onnx": NETWORK,
    "words": ("scikit-learn",),
    "skops": ("scikit-learn", "skops"),
}
"""Packages that load a folder, by its kind."""


def write_served_model(folder: Path, output: Path) -> None:
    """Write the model of MLflow to a new folder, with the model folder as data; no pickle."""
    import mlflow.pyfunc
    from mlflow.models import ModelSignature
    from mlflow.types import Schema, TensorSpec

    opened = Folder(lambda name: (folder / name).read_bytes())
    parts = [part for part, _ in opened.list_parts()] or [opened]
    kinds = {part.read_config().amazon_electra.kind for part in parts}
    needed = {name for kind in kinds for name in NEEDED[kind]}
    packages = ("mlflow", "pandas", *sorted(needed))
    # a column of strings would make the text "None" of null, and "5" of 5
    values = TensorSpec(np.dtype(object), (-1,), name="text")
    with redirect_stderr(StringIO()):  # advice about signatures, of which it has one
        mlflow.pyfunc.save_model(
            output,
            loader_module=LOADER.stem,
            data_path=str(folder),
            code_paths=[str(LOADER), *model_folder.__path__],
            signature=ModelSignature(inputs=Schema([values])),
            pip_requirements=[f"{name}=={version(name).partition('+')[0]}" for name in packages],
        )
