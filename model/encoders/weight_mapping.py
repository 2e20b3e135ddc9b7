"""Maps the names of weights and of fields of config.json: each kind of published encoder's to
transformers' ELECTRA, and these to ours. All are BERT's post-norm transformer, so each renames.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Role = Literal["discriminator", "generator"]

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
DEFAULTS = {"max_positions": 512, "type_vocabulary_size": 2, "layer_norm_eps": 1e-12}
"""Values of the fields that config.json may lack."""
_OLD_NORMS = (("LayerNorm.gamma", "LayerNorm.weight"), ("LayerNorm.beta", "LayerNorm.bias"))
UNTIED = "decoder.weight"
"""Our name of an output table that a head has besides the word embeddings."""


@dataclass(frozen=True)
class Kind:
    """One model_type of transformers."""

    prefix: str
    """Begins the names of the trunk's weights in a model with a head."""
    fields: Mapping[str, str]
    """Name in config.json of each field of Architecture."""
    names: tuple[tuple[str, str], ...] = ()
    """Parts of weight names with what ELECTRA has instead, applied in this order."""
    activation: str = "hidden_act"


_BERT_HEAD = (
    ("cls.predictions.transform.", "generator_predictions."),
    ("cls.predictions.decoder.bias", "generator_lm_head.bias"),
    ("cls.predictions.decoder.weight", UNTIED),
    ("cls.predictions.bias", "generator_lm_head.bias"),
)
KINDS: Mapping[str, Kind] = {
    "bert": Kind("bert.", _BERT_FIELDS, names=_BERT_HEAD),  # also MiniLM and TinyBERT
    "electra": Kind(
        "electra.",
        _BERT_FIELDS | {"embedding": "embedding_size"},
        names=(("generator_lm_head.weight", UNTIED),),
    ),
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
}


def rename_weight(name: str, kind: Kind) -> str:
    """Return the name that transformers' ELECTRA has for a weight of this kind."""
    name = name.removeprefix(kind.prefix)
    for theirs, ours in (*kind.names, *_OLD_NORMS):
        name = name.replace(theirs, ours)
    return f"electra.{name}" if name.startswith(("embeddings", "encoder.")) else name


EMBEDDINGS = {
    "embeddings.word": "electra.embeddings.word_embeddings.weight",
    "embeddings.position": "electra.embeddings.position_embeddings.weight",
    "embeddings.token_type": "electra.embeddings.token_type_embeddings.weight",
    "embeddings.norm.weight": "electra.embeddings.LayerNorm.weight",
    "embeddings.norm.bias": "electra.embeddings.LayerNorm.bias",
}
_LAYER = {
    "attention_output": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "up": "intermediate.dense",
    "down": "output.dense",
    "output_norm": "output.LayerNorm",
}


def map_names(
    role: Role, layers: int, project: bool, trunk: str | None = None
) -> dict[str, tuple[str, ...]]:
    """Map each of our parameter names to transformers' names; of three names ours stacks theirs
    (query, key, value). `trunk` is our prefix of the encoder, by default the role.
    """
    trunk = trunk or role
    modules = {f"{trunk}_head.dense": f"{role}_predictions.dense"}
    if role == "discriminator":
        modules[f"{trunk}_head.out"] = "discriminator_predictions.dense_prediction"
    else:
        modules[f"{trunk}_head.norm"] = "generator_predictions.LayerNorm"
    if project:
        modules[f"{trunk}.project"] = "electra.embeddings_project"
    names: dict[str, tuple[str, ...]] = {ours: (its,) for ours, its in EMBEDDINGS.items()}
    for kind in ("weight", "bias"):
        for n in range(layers):
            ours, theirs = f"{trunk}.layers.{n}", f"electra.encoder.layer.{n}"
            parts = ("query", "key", "value")
            stacked = tuple(f"{theirs}.attention.self.{part}.{kind}" for part in parts)
            names[f"{ours}.qkv.{kind}"] = stacked
            names |= {f"{ours}.{a}.{kind}": (f"{theirs}.{b}.{kind}",) for a, b in _LAYER.items()}
        names |= {f"{a}.{kind}": (f"{b}.{kind}",) for a, b in modules.items()}
    if role == "generator":
        names[f"{trunk}_head.bias"] = ("generator_lm_head.bias",)
    return names
