"""The shape of the networks that are pre-trained; model/config.py names the sources."""

from typing import Self

from pydantic import Field, model_validator

from amazon_electra.beam_jobs.core.errors import require
from amazon_electra.beam_jobs.core.settings import Settings

LAYER_NORM_EPSILON = 1e-12  # google, transformers


class Architecture(Settings, use_attribute_docstrings=True):
    """Shape of the discriminator (or of the MLM trunk); the generator is derived from it."""

    layers: int = Field(ge=1)
    """transformer layers"""
    hidden: int = Field(ge=1)
    """width of the hidden states"""
    intermediate: int = Field(ge=1)
    """width inside the feed-forward blocks"""
    heads: int = Field(ge=1)
    """attention heads"""
    embedding: int = Field(ge=1)
    """width of the token embeddings"""
    generator_multiplier: float
    """width of the generator as a fraction of `hidden`; 1: the same widths and heads"""
    max_positions: int = Field(default=512, ge=1)
    """longest sequence, in tokens (google)"""
    type_vocabulary_size: int = Field(default=2, ge=1)
    """number of token types (google)"""
    layer_norm_eps: float = Field(default=LAYER_NORM_EPSILON, gt=0)
    """added to the variance in every LayerNorm (google)"""
    generator_layers: int | None = Field(default=None, ge=1)
    """layers of the generator; none: as many as the discriminator (google)"""

    @model_validator(mode="after")
    def _check_architecture(self) -> Self:
        is_multiple, layers = self.hidden % self.heads == 0, self.generator_layers
        wanted = f"must be a multiple of heads={self.heads}"
        require(is_multiple, wanted, "hidden", self.hidden)
        few = (layers or 0) <= self.layers
        require(few, f"must be at most layers={self.layers}", "generator_layers", layers)
        return self

    @property
    def has_wide_generator(self) -> bool:
        """Return whether the generator's layers have the shape of the discriminator's."""
        return self.generator_multiplier == 1

    def derive_generator(self) -> "Architecture":
        """Return the generator: `generator_layers` deep, narrower, heads of 64 wide (google)."""
        layers = self.generator_layers or self.layers
        if self.has_wide_generator:
            return self.replace(layers=layers, generator_layers=None)
        hidden = round(self.hidden * self.generator_multiplier)
        heads = max(1, hidden // 64)
        is_possible = hidden >= 1 and hidden % heads == 0
        why = f"must make the generator's width, {hidden}, a multiple of {heads} heads"
        require(is_possible, why, "generator_multiplier", self.generator_multiplier)
        return self.replace(
            layers=layers,
            hidden=hidden,
            intermediate=4 * hidden,
            heads=heads,
            generator_multiplier=1.0,
            generator_layers=None,
        )
