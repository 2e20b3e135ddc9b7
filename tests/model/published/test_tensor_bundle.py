"""Reading TensorFlow's checkpoint files without TensorFlow."""

from pathlib import Path

import numpy as np
import pytest

from beam_jobs.job.errors import UserError
from model.published.tensor_bundle import read_bundle
from tests.model.published.bundle_writer import write_bundle


def test_a_file_tensorflow_wrote():
    """data/tensorflow_made: saved with TensorFlow 2, tensor number i holds i, i + 1, i
    + 2 …
    """
    shapes = {
        "electra/embeddings/word_embeddings": ((7, 4), np.float32),
        "electra/embeddings/word_embeddings/adam_m": ((7, 4), np.float32),
        "electra/encoder/layer_0/attention/self/query/kernel": ((4, 4), np.float32),
        "electra/encoder/layer_0/attention/self/query/bias": ((4,), np.float32),
        "electra/encoder/layer_11/output/dense/bias": ((3,), np.float64),
        "half": ((2, 3, 1), np.float16),
        "global_step": ((), np.int64),
        "ids": ((300,), np.int32),
    }
    tensors = read_bundle(Path(__file__).parent / "data" / "tensorflow_made")
    assert set(tensors) == set(shapes)
    for i, (name, (shape, kind)) in enumerate(shapes.items()):
        expected = (np.arange(int(np.prod(shape))) + i).reshape(shape).astype(kind)
        assert tensors[name].dtype == kind
        np.testing.assert_array_equal(tensors[name], expected)


def test_an_index_cut_short_is_refused(tmp_path):
    write_bundle(tmp_path / "model.ckpt", {"a": np.ones(3, np.float32)})
    index = tmp_path / "model.ckpt.index"
    index.write_bytes(index.read_bytes()[:-3])
    with pytest.raises(UserError, match="not the index"):
        read_bundle(tmp_path / "model.ckpt")
