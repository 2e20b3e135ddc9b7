"""Writes a model folder as a model of MLflow, which `mlflow models serve` runs without this
package.
"""

import json
from contextlib import redirect_stderr
from importlib.metadata import version
from io import StringIO
from pathlib import Path

import numpy as np

from amazon_electra.beam_jobs.core import model_folder

SCRIPT = Path(__file__).with_name("serving.py")
PACKAGES = {
    "transformers": ("transformers", "torch"),
    "onnx": ("onnxruntime", "tokenizers"),
    "skops": ("scikit-learn", "skops"),
}


def write_served_model(folder: Path, output: Path) -> None:
    """Write the model of MLflow to a new folder; it holds the model folder as an artifact, and
    code, but no pickle.
    """
    import mlflow.pyfunc
    from mlflow.models import Model, ModelSignature
    from mlflow.types import Schema, TensorSpec

    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    parts = [folder / part["folder"] for part in config["amazon_electra"].get("parts", [])]
    kinds = {
        json.loads((part / "config.json").read_text(encoding="utf-8"))["amazon_electra"]["kind"]
        for part in parts or [folder]
    }
    needed = dict.fromkeys(name for kind in sorted(kinds) for name in PACKAGES[kind])
    packages = ("mlflow", "pandas", *needed)
    # a column of strings would make the text "None" of null, and "5" of 5
    values = TensorSpec(np.dtype(object), (-1,), name="text")
    with redirect_stderr(StringIO()):  # advice about signatures, of which it has one
        mlflow.pyfunc.save_model(
            output,
            python_model=str(SCRIPT),
            code_paths=[model_folder.__file__],
            artifacts={"model": str(folder)},
            signature=ModelSignature(inputs=Schema([values])),
            pip_requirements=[f"{name}=={version(name).partition('+')[0]}" for name in packages],
        )
    written = Model.load(output)  # with the paths of this machine
    flavor = written.flavors["python_function"]
    flavor["model_code_path"] = SCRIPT.name
    for artifact in flavor["artifacts"].values():
        artifact["uri"] = artifact["path"]
    written.save(output / "MLmodel")
