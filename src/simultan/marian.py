"""Models of `transformers` as model folders of ours: Marian (OPUS-MT), M2M100 and NLLB.

The network is the same one, written with other names; what differs is configuration: norms before
or after a sublayer, the activation, the positions, a bias on the logits. Their encoder looks both
ways, so the result is an offline model, from which train.init_from starts others. Ids change: our
four special tokens come first, and the token their decoder starts with is our begin.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from simultan import checkpoint
from simultan import model as models
from simultan.config import Config, ModelConfig, PolicyConfig
from simultan.data.codec import Codec
from simultan.data.sentencepieces import SentencePieces
from simultan.data.text import Pipeline
from simultan.data.vocabulary import SPECIAL
from simultan.streaming.backends import folders
from simultan.streaming.backends.framing import language_tokens

ACTIVATIONS = {"relu": "relu", "swish": "swish", "silu": "swish", "gelu": "gelu"}
KINDS = ("marian", "m2m_100")
_read_json = partial(folders.read_table, most=folders.MOST_TEXT)


def convert(
    folder: Path, out: Path, source: str = "", target: str = "", pickled: bool = False
) -> Codec:
    """Write the model of a folder of `transformers` as one of ours; returns its codec.

    `source` and `target` are languages: needed if the model has many, else only noted. `pickled`:
    weights may be a pickle, if there are no others.
    """
    settings = _read_json(folder / "config.json")
    kind = settings.get("model_type")
    if kind not in KINDS:
        raise ValueError(f"{folder}: a model of type {kind!r}; import knows {', '.join(KINDS)}")
    try:
        theirs = _load_weights(folder, pickled)
        tables = _read_tables(folder, settings)
        sides = [_Side(table, settings) for table in tables]
        config = _config(settings, theirs, _prefixes(sides, source, target, kind))
        weights = _translate(theirs, config, sides)
    except KeyError as error:
        raise ValueError(f"{folder}: {error.args[0]} is missing in it") from error
    codec = _codec(folder, sides, source, target)
    network = models.build(config, *(len(side.pieces) for side in sides))
    wanted = checkpoint.weights_of(network)
    weights = {name: value for name, value in weights.items() if name in wanted}
    checkpoint.restore(network, weights, str(folder))
    checkpoint.save(out, weights, config, codec)
    return codec


class _Side:
    """The pieces of a side in our order, and the id that each has there."""

    def __init__(self, table: Mapping[str, int], settings: Mapping[str, Any]) -> None:
        special = [
            settings["pad_token_id"],
            settings["decoder_start_token_id"],
            settings["eos_token_id"],
            table["<unk>"],
        ]
        rest = sorted((id, piece) for piece, id in table.items())
        rest = [(id, piece) for id, piece in rest if id not in special and piece not in SPECIAL]
        self.pieces = [*SPECIAL, *(piece for _, piece in rest)]
        self.theirs = [*special, *(id for id, _ in rest)]


def _prefixes(
    sides: Sequence[_Side], source: str, target: str, kind: str
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """What stands before every source and every target of a model of many languages."""
    if kind != "marian":
        before = _language(sides[0], source, "--source")
        return (before,), (_language(sides[1], target, "--target"),)
    if any(piece.startswith(">>") for piece in sides[0].pieces):
        return (_language(sides[0], target, "--target"),), ()
    return (), ()


def _language(side: _Side, language: str, option: str) -> int:
    """Our id of a language's token."""
    tokens, code = language_tokens(side.pieces), language.strip("_<>")
    if code not in tokens:
        some = ", ".join(list(tokens)[:8])
        raise ValueError(
            f"{option} {language}: a model of many languages; name one of its own, such as {some}"
        )
    return side.pieces.index(tokens[code])


def _config(
    settings: Mapping[str, Any],
    weights: Mapping[str, Tensor],
    prefixes: tuple[tuple[int, ...], tuple[int, ...]],
) -> Config:
    """Ours that says the same. Sizes are those of the weights there are."""
    marian = settings["model_type"] == "marian"
    activation = settings["activation_function"]
    if activation not in ACTIVATIONS:
        raise ValueError(f"its activation is {activation}; import knows {', '.join(ACTIVATIONS)}")
    inner = {len(weights[f"model.{side}.layers.0.fc1.bias"]) for side in ("encoder", "decoder")}
    if len(inner) > 1:
        raise ValueError("its encoder and its decoder differ in encoder_ffn_dim, decoder_ffn_dim")
    one = "model.decoder.embed_tokens.weight" not in weights or "model.shared.weight" in weights
    tied = settings.get("tie_word_embeddings", True)
    model = ModelConfig(
        width=weights["model.decoder.layers.0.fc2.bias"].shape[0],
        ffn=inner.pop(),
        heads=settings["encoder_attention_heads"],
        decoder_heads=settings["decoder_attention_heads"],
        encoder_layers=_layers(weights, "encoder"),
        decoder_layers=_layers(weights, "decoder"),
        dropout=settings.get("dropout", 0.1),
        norm="post" if marian else "pre",
        positions="marian" if marian else "sinusoidal",
        first_position=0 if marian else settings["pad_token_id"] + 1,
        tie=("all" if one else "target") if tied else "none",
        scale_embeddings=bool(settings.get("scale_embedding", False)),
        activation=ACTIVATIONS[activation],  # type: ignore[arg-type]
        output_bias="final_logits_bias" in weights,
        encoder="bidirectional",
        source_prefix=prefixes[0],
        target_prefix=prefixes[1],
    )
    return Config(model=model, policy=PolicyConfig(name="offline"))


def _layers(weights: Mapping[str, Tensor], side: str) -> int:
    numbers = {int(found[1]) for name in weights
               if (found := re.match(rf"model\.{side}\.layers\.(\d+)\.", name))}  # fmt: skip
    return max(numbers) + 1


def _translate(
    theirs: Mapping[str, Tensor], config: Config, sides: Sequence[_Side]
) -> dict[str, Tensor]:
    """Their weights under our names; more than one network needs, if matrices are tied."""
    shared = theirs.get("model.shared.weight")
    tables = []
    for side, coder in zip(sides, ("encoder", "decoder"), strict=True):
        table = theirs.get(f"model.{coder}.embed_tokens.weight", shared)
        if table is None:
            raise KeyError(f"model.{coder}.embed_tokens.weight")
        tables.append(_rows(table, side))
    ours = {
        "source_embedding.tokens.weight": tables[0],
        "target_embedding.tokens.weight": tables[1],
        "output.weight": tables[1],
    }
    if config.model.tie == "none":
        ours["output.weight"] = _rows(theirs["lm_head.weight"], sides[1])
    if config.model.output_bias:
        ours["output.bias"] = _rows(theirs["final_logits_bias"].reshape(-1, 1), sides[1])[:, 0]
    for coder in ("encoder", "decoder"):
        if config.model.norm == "pre":
            _copy(theirs, ours, f"model.{coder}.layer_norm", f"{coder}_norm")
        for number in range(getattr(config.model, f"{coder}_layers")):
            there, here = f"model.{coder}.layers.{number}", f"{coder}.{number}"
            parts = [f"{there}.self_attn.{part}_proj" for part in "qkv"]
            for kind in ("weight", "bias"):
                joined = torch.cat([theirs[f"{part}.{kind}"] for part in parts])
                ours[f"{here}.attention.qkv.{kind}"] = joined
            for old, new in _LAYER.items():
                if coder == "decoder" or not old.startswith("encoder_attn"):
                    _copy(theirs, ours, f"{there}.{old}", f"{here}.{new}")
    return {name: value.float().contiguous() for name, value in ours.items()}


_LAYER = {
    "self_attn.out_proj": "attention.output",
    "self_attn_layer_norm": "attention_residual.norm",
    "encoder_attn.q_proj": "cross.query",
    "encoder_attn.k_proj": "cross.key",
    "encoder_attn.v_proj": "cross.value",
    "encoder_attn.out_proj": "cross.output",
    "encoder_attn_layer_norm": "cross_residual.norm",
    "fc1": "ffn.inner",
    "fc2": "ffn.outer",
    "final_layer_norm": "ffn_residual.norm",
}


def _copy(theirs: Mapping[str, Tensor], ours: dict[str, Tensor], old: str, new: str) -> None:
    for kind in ("weight", "bias"):
        ours[f"{new}.{kind}"] = theirs[f"{old}.{kind}"]


def _rows(table: Tensor, side: _Side) -> Tensor:
    """The rows of our ids."""
    if not 0 <= min(side.theirs) <= max(side.theirs) < len(table):
        raise ValueError(
            f"its vocabulary has ids from {min(side.theirs)} to {max(side.theirs)}, its weights are"
            f" of {len(table)} pieces"
        )
    return table[torch.tensor(side.theirs)]


def _read_tables(folder: Path, settings: Mapping[str, Any]) -> list[dict[str, int]]:
    """Pieces and their ids, of source and target."""
    if not (folder / "vocab.json").exists():  # NLLB, whose ids are those of its tokenizer.json
        tokenizer = _read_json(folder / "tokenizer.json")
        pieces = tokenizer["model"]["vocab"]
        if isinstance(pieces, list):  # with their probabilities, in the order of their ids
            pieces = {piece: id for id, (piece, _) in enumerate(pieces)}
        added = {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
        table = {**pieces, **added}
        return [table, table]
    table = _read_json(folder / "vocab.json")
    if settings["model_type"] == "m2m_100":
        # its languages follow the pieces, in the order of the tokeniser's list
        path = folder / "tokenizer_config.json"
        notes = _read_json(path) if path.exists() else {}
        added = notes.get("added_tokens_decoder", {})
        named = {entry["content"]: int(id) for id, entry in added.items()}
        table = {**table, **_languages(len(table)), **named}
    if (folder / "target_vocab.json").exists():
        return [table, _read_json(folder / "target_vocab.json")]
    return [table, table]


def _languages(first: int) -> dict[str, int]:
    """M2M100's; the list is part of its tokeniser, not of its folder."""
    try:
        from transformers.models.m2m_100.tokenization_m2m_100 import FAIRSEQ_LANGUAGE_CODES
    except ImportError as error:
        raise ValueError('M2M100 needs a package: pip install "simultan[hf]"') from error
    return {f"__{code}__": first + i for i, code in enumerate(FAIRSEQ_LANGUAGE_CODES["m2m100"])}


def _codec(folder: Path, sides: Sequence[_Side], source: str, target: str) -> Codec:
    """With the model of SentencePiece of each side."""
    found = []
    for side, name in zip(sides, ("source.spm", "target.spm"), strict=True):
        names = (name, "sentencepiece.bpe.model", "sentencepiece.model")
        path = next((folder / n for n in names if (folder / n).is_file()), None)
        if path is None:
            raise FileNotFoundError(
                f"{folder}: no vocabulary of SentencePiece ({', '.join(names)})"
            )
        folders.check_size(path)
        vocabulary = SentencePieces(side.pieces, path.read_bytes())
        vocabulary.encode_word("a")  # a damaged one is told here
        found.append(vocabulary)
    notes = folder / "tokenizer_config.json"
    languages = _read_json(notes) if notes.exists() else {}
    spoken = [
        (given or str(languages.get(f"{side}_lang") or "")).strip("_<>").partition("_")[0]
        for given, side in ((source, "source"), (target, "target"))
    ]
    return Codec(Pipeline("bpe", *spoken), found[0], found[1])


def _load_weights(folder: Path, pickled: bool) -> dict[str, Tensor]:
    """Of one file, or of those that an index names; of a pickle only if that is said."""
    weights: dict[str, Tensor] = {}
    for path in folders.find_weights(folder, pickled):
        folders.check_weights(path)
        try:
            if path.suffix == ".safetensors":
                weights.update(load_file(path))
            else:  # tensors, and nothing that could run
                weights.update(torch.load(path, map_location="cpu", weights_only=True))
        except (SafetensorError, OSError) as error:
            raise ValueError(f"{path}: damaged or cut off ({error})") from error
        except Exception as error:  # of any kind: what it says is said in one line
            reason = str(error).strip().partition("\n")[0]
            raise ValueError(f"{path}: not loaded ({reason})") from error
    return weights
