"""Holds what distinguishes the kinds of published encoders: fields of config.json, weight names.

Every kind is BERT's post-norm transformer with learned absolute positions, so each is a renaming to
one set of names, those of transformers' ELECTRA. Sources: transformers' modeling_bert.py,
modeling_electra.py, modeling_distilbert.py, modeling_roberta.py and their configurations.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

_BERT_FIELDS = {
    "layers": "num_hidden_layers",
    "heads": "num_attention_heads",
    "hidden": "hidden_size",
    "intermediate": "intermediate_size",
    "embedding": "hidden_size",
    "max_positions": "max_position_embeddings",
    "type_vocabulary_size": "type_vocab_size",
    "layer_norm_eps": "layer_norm_eps",
}
_DEFAULTS = {"max_positions": 512, "type_vocabulary_size": 2, "layer_norm_eps": 1e-12}
_OLD_NORMS = (("LayerNorm.gamma", "LayerNorm.weight"), ("LayerNorm.beta", "LayerNorm.bias"))
UNTIED = "decoder.weight"
"""Our name of an output table that a head has besides the word embeddings."""


@dataclass(frozen=True)
class Kind:
    """One model_type of transformers."""

    prefix: str
    """Of the trunk's weights in a model with a head; a bare trunk has none."""
    fields: Mapping[str, str]
    """Name in config.json of each field of Architecture."""
    names: tuple[tuple[str, str], ...] = ()
    """Parts of weight names with what ELECTRA has instead, applied in this order."""
    activation: str = "hidden_act"
    defaults: Mapping[str, float] = field(default_factory=lambda: _DEFAULTS)
    """Of the fields that config.json may lack."""
    counts_from_padding: bool = False
    """Whether the first position is the one after the padding's id."""


_BERT_HEAD = (
    ("cls.predictions.transform.", "generator_predictions."),
    ("cls.predictions.decoder.bias", "generator_lm_head.bias"),
    ("cls.predictions.decoder.weight", UNTIED),
    ("cls.predictions.bias", "generator_lm_head.bias"),
)
_ROBERTA = Kind(
    "roberta.",
    _BERT_FIELDS,
    names=(
        ("lm_head.dense.", "generator_predictions.dense."),
        ("lm_head.layer_norm.", "generator_predictions.LayerNorm."),
        ("lm_head.decoder.bias", "generator_lm_head.bias"),
        ("lm_head.decoder.weight", UNTIED),
        ("lm_head.bias", "generator_lm_head.bias"),
    ),
    counts_from_padding=True,
)
KINDS: Mapping[str, Kind] = {
    "bert": Kind("bert.", _BERT_FIELDS, names=_BERT_HEAD),  # also MiniLM and TinyBERT
    "electra": Kind("electra.", _BERT_FIELDS | {"embedding": "embedding_size"}),
    "distilbert": Kind(
        "distilbert.",
        {
            "layers": "n_layers",
            "heads": "n_heads",
            "hidden": "dim",
            "intermediate": "hidden_dim",
            "embedding": "dim",
            "max_positions": "max_position_embeddings",
        },
        names=(
            ("transformer.layer.", "encoder.layer."),
            (".attention.q_lin.", ".attention.self.query."),
            (".attention.k_lin.", ".attention.self.key."),
            (".attention.v_lin.", ".attention.self.value."),
            (".attention.out_lin.", ".attention.output.dense."),
            (".sa_layer_norm.", ".attention.output.LayerNorm."),
            (".ffn.lin1.", ".intermediate.dense."),
            (".ffn.lin2.", ".output.dense."),
            (".output_layer_norm.", ".output.LayerNorm."),
            ("vocab_transform.", "generator_predictions.dense."),
            ("vocab_layer_norm.", "generator_predictions.LayerNorm."),
            ("vocab_projector.bias", "generator_lm_head.bias"),
            ("vocab_projector.weight", UNTIED),
        ),
        activation="activation",
    ),
    "roberta": _ROBERTA,
    "xlm-roberta": _ROBERTA,
    "camembert": _ROBERTA,
}
OTHER_KINDS = {
    "albert": "shares one layer's weights among all",
    "deberta": "relative positions",
    "deberta-v2": "relative positions",
    "mpnet": "relative positions",
    "convbert": "convolutions in its attention",
    "modernbert": "pre-norm and rotary positions",
    "roberta-prelayernorm": "pre-norm",
    "nomic_bert": "rotary positions",
    "gpt2": "a decoder",
    "llama": "a decoder",
    "bert-generation": "a decoder",
    "t5": "an encoder with a decoder",
    "bart": "an encoder with a decoder",
}
"""Kinds with what has no place in our encoder."""


def rename_weight(name: str, kind: Kind) -> str:
    """Return the name that transformers' ELECTRA has for a weight of this kind."""
    name = name.removeprefix(kind.prefix)
    for theirs, ours in (*kind.names, *_OLD_NORMS):
        name = name.replace(theirs, ours)
    return f"electra.{name}" if name.startswith(("embeddings", "encoder.")) else name
