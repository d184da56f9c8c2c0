"""A model of ours for CTranslate2: whole sentences, without the weights that select.

CTranslate2's encoders look both ways. Ours mostly looks back only, and that can be said to
CTranslate2 as a bias on attention by distance, of the kind that T5 has: 0 for the past, and for
the future a number that leaves nothing of it after the softmax. A model whose first layer has such
a bias gets no positions, so a layer that changes nothing stands before the others.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

from simultan import atomic, checkpoint
from simultan.checkpoint import Stored
from simultan.config import Config
from simultan.data.codec import Codec
from simultan.model import Transformer
from simultan.model.transformer import DecoderLayer, Embedding

NEVER = -30_000.0  # added to an energy: nothing is left of it, and float16 can hold it
BUCKETS, DISTANCE = 4, 2  # of distances: the same place, the past; two for the future
IDLE = 8  # width inside the layer that changes nothing


def export(folder: Path, out: Path, stored: Stored) -> int:
    """Write a model as CTranslate2 has them, with our vocabularies beside it; returns its bytes."""
    _check(checkpoint.load_config(folder), folder)
    if out.exists():
        raise FileExistsError(f"{out}: already there; remove it or choose another name")
    network, config, codec = checkpoint.load_model(folder)
    assert isinstance(network, Transformer)
    spec = _specify(network, config, codec)
    spec.optimize(quantization=None if stored == "float32" else stored)
    with atomic.place(out) as partial:
        partial.mkdir(parents=True)
        spec.save(str(partial))
        codec.save(partial)
    return sum(path.stat().st_size for path in out.iterdir())


def _check(config: Config, folder: Path) -> None:
    """Refuse what CTranslate2 cannot do."""
    model, policy = config.model, config.policy.name
    reasons = {
        f"policy {policy} looks at one place or a few, never at the whole source": policy
        not in ("offline", "wait-k", "mma-il", "milk"),
        "it is recurrent": model.architecture != "transformer",
        "it has a window": bool(model.window),
        "it is one of many languages; convert the original with CTranslate2's own converter": bool(
            model.source_prefix or model.target_prefix
        ),
        "it has rotary positions": model.positions == "rotary",
        "its encoder looks back only and has norm = post": model.encoder == "unidirectional"
        and model.norm == "post",
    }
    for reason, applies in reasons.items():
        if applies:
            raise ValueError(f"{folder}: not for CTranslate2, since {reason}")


def _specify(network: Transformer, config: Config, codec: Codec) -> Any:
    try:
        from ctranslate2.specs import (
            TransformerDecoderSpec,
            TransformerEncoderSpec,
            TransformerSpec,
            common_spec,
        )
    except ImportError as error:
        raise ValueError('--format ctranslate2 needs it: pip install "simultan[ct2]"') from error
    model = config.model
    idle = model.encoder == "unidirectional"
    options = {
        "pre_norm": model.norm == "pre",
        "activation": common_spec.Activation[model.activation.upper()],
    }
    spec = TransformerSpec(
        TransformerEncoderSpec(len(network.encoder_layers) + idle, network.heads, **options),
        TransformerDecoderSpec(len(network.decoder_layers), network.decoder_heads, **options),
    )
    encoder, decoder = spec.encoder, spec.decoder
    if idle:
        _fill_idle(encoder.layer[0], model.width)
        for layer in encoder.layer[1:]:
            _look_back_only(layer, network.heads)
    for theirs, ours in [
        *zip(encoder.layer[idle:], network.encoder_layers, strict=True),
        *zip(decoder.layer, network.decoder_layers, strict=True),
    ]:
        _fill_norm(theirs.self_attention, ours.attention_residual.norm)
        _fill(theirs.self_attention.linear[0], ours.attention.qkv)
        _fill(theirs.self_attention.linear[1], ours.attention.output)
        if isinstance(ours, DecoderLayer):
            _fill_norm(theirs.attention, ours.cross_residual.norm)
            _fill(theirs.attention.linear[0], ours.cross.query)
            _fill(theirs.attention.linear[1], ours.cross.key, ours.cross.value)
            _fill(theirs.attention.linear[2], ours.cross.output)
        _fill_norm(theirs.ffn, ours.ffn_residual.norm)
        _fill(theirs.ffn.linear_0, ours.ffn.inner)
        _fill(theirs.ffn.linear_1, ours.ffn.outer)
    if model.norm == "pre":
        for theirs, norm in ((encoder, network.encoder_norm), (decoder, network.decoder_norm)):
            _fill_norm(theirs, norm)
    _fill_embedding(encoder, encoder.embeddings[0], network.source_embedding)
    _fill_embedding(decoder, decoder.embeddings, network.target_embedding)
    _fill(decoder.projection, network.output)
    spec.register_source_vocabulary(codec.source_vocabulary.pieces)
    spec.register_target_vocabulary(codec.target_vocabulary.pieces)
    spec.validate()
    return spec


def _array(tensor: Tensor) -> Any:
    return tensor.detach().float().numpy()


def _fill(linear: Any, *modules: nn.Linear) -> None:
    weights = [_array(module.weight) for module in modules]
    linear.weight = np.concatenate(weights)
    if any(module.bias is not None for module in modules):
        linear.bias = np.concatenate([_array(module.bias) for module in modules])


def _fill_norm(sublayer: Any, norm: nn.Module) -> None:
    sublayer.layer_norm.gamma, sublayer.layer_norm.beta = map(_array, norm.parameters())


def _fill_embedding(side: Any, table: Any, ours: Embedding) -> None:
    table.weight = _array(ours.tokens.weight)
    side.scale_embeddings = ours.scale != 1.0
    side.position_encodings.encodings = _array(ours.table)


def _fill_idle(layer: Any, width: int) -> None:
    """x + 0, twice."""
    for sublayer in (layer.self_attention, layer.ffn):
        sublayer.layer_norm.gamma = np.ones(width, np.float32)
        sublayer.layer_norm.beta = np.zeros(width, np.float32)
    shapes = {
        (3 * width, width): layer.self_attention.linear[0],
        (width, width): layer.self_attention.linear[1],
        (IDLE, width): layer.ffn.linear_0,
        (width, IDLE): layer.ffn.linear_1,
    }
    for shape, linear in shapes.items():
        linear.weight = np.zeros(shape, np.float32)
        linear.bias = np.zeros(shape[0], np.float32)


def _look_back_only(layer: Any, heads: int) -> None:
    from ctranslate2.specs import attention_spec

    attention = attention_spec.MultiHeadAttentionSpec(
        self_attention=True, relative_attention_bias=True
    )
    bias = np.zeros((BUCKETS, heads), np.float32)
    bias[BUCKETS // 2 :] = NEVER
    attention.relative_attention_bias = bias
    attention.relative_attention_max_distance = np.dtype("int32").type(DISTANCE)
    layer.self_attention = attention
