"""A graph is traced once for each architecture."""

import numpy as np
import pytest
import torch
from transformers import AutoModel

from amazon_electra.model.arms import onnx
from tests.model.corpora import write_bert, write_distilbert


def draw_classifier(encoder, classes, seed):
    """A classifier with weights of its own."""
    draw = np.random.default_rng(seed)
    with torch.no_grad():
        for tensor in encoder.parameters():
            tensor += torch.from_numpy(draw.normal(size=tensor.shape) * 0.01)
    weight = draw.normal(size=(classes, 3 * encoder.config.hidden_size)).astype(np.float32)
    bias = draw.normal(size=classes).astype(np.float32)
    return onnx.StatesClassifier(encoder, 2, weight, bias).eval()


@pytest.mark.parametrize("write", [write_bert, write_distilbert])
def test_a_kept_graph_is_a_traced_one(tmp_path, monkeypatch, write):
    folder = tmp_path / "encoder"
    write(folder)
    encoder = AutoModel.from_pretrained(folder).eval()
    names, cache = onnx.choose_inputs(encoder.config), tmp_path / "cache"
    cache.mkdir()

    def export(model, name, kept):
        onnx.export_onnx(model, encoder.config, names, tmp_path / name, kept)
        return (tmp_path / name).read_bytes()

    first = export(draw_classifier(encoder, 2, seed=0), "first", cache)
    other = draw_classifier(encoder, 5, seed=1)
    traced = export(other, "traced", None)
    monkeypatch.setattr(onnx, "trace", None)
    assert export(other, "kept", cache) == traced != first


def test_a_graph_with_computed_weights_is_not_kept(tmp_path):
    folder = tmp_path / "encoder"
    write_bert(folder)
    model = draw_classifier(AutoModel.from_pretrained(folder).eval(), 2, seed=0)
    names = onnx.choose_inputs(model.encoder.config)
    onnx.trace(model, names, tmp_path / "graph")
    graph = onnx.onnx.load(tmp_path / "graph")
    tensors = {name: tensor.detach().numpy() for name, tensor in model.named_parameters()}
    assert not onnx.take_weights(graph, tensors | {"linear.weight": tensors["linear.weight"] * 2})
