"""The policy table crossed with two architectures."""

from __future__ import annotations

from simultan.config import Config
from simultan.model.recurrent import Recurrent
from simultan.model.transformer import Transformer
from simultan.model.translation import ModelOutput, TranslationModel

__all__ = ["ModelOutput", "Recurrent", "Transformer", "TranslationModel", "build"]


def build(config: Config, source_size: int, target_size: int) -> TranslationModel:
    """A model with fresh weights for vocabularies of these sizes."""
    architecture = {"transformer": Transformer, "recurrent": Recurrent}[config.model.architecture]
    return architecture(config, source_size, target_size)
