"""Writes a model folder as a model of MLflow, which `mlflow models serve` runs without this
package.
"""

import json
from contextlib import redirect_stderr
from importlib.metadata import version
from io import StringIO
from pathlib import Path

SCRIPT = Path(__file__).with_name("serving.py")
PACKAGES = {
    "transformers": ("transformers", "torch"),
    "tfidf": ("scikit-learn", "skops"),
}


def write_served_model(folder: Path, output: Path) -> None:
    """Write the model of MLflow to a new folder; it holds the model folder as an artifact, and
    code, but no pickle.
    """
    import mlflow.pyfunc
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, Schema

    kind = json.loads((folder / "config.json").read_text(encoding="utf-8"))["amazon_electra"][
        "kind"
    ]
    packages = ("mlflow", "pandas", *PACKAGES[kind])
    with redirect_stderr(StringIO()):  # advice about signatures, of which it has one
        mlflow.pyfunc.save_model(
            output,
            python_model=str(SCRIPT),
            artifacts={"model": str(folder)},
            signature=ModelSignature(inputs=Schema([ColSpec("string")])),
            pip_requirements=[f"{name}=={version(name).partition('+')[0]}" for name in packages],
        )
