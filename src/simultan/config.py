"""The configuration of a run: frozen dataclasses, read from TOML; an unknown key is an error."""

from __future__ import annotations

import dataclasses
import json
import tomllib
import types
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

__all__ = [
    "Config",
    "ConfigError",
    "DataConfig",
    "LossConfig",
    "ModelConfig",
    "PolicyConfig",
    "TrainConfig",
    "dump",
    "load",
    "parse",
]

PolicyName = Literal["hard", "mocha", "milk", "mma-h", "mma-il", "wait-k", "offline"]


class ConfigError(ValueError):
    """A recipe, or a --set on the command line, that does not say something we understand."""


@dataclass(frozen=True)
class DataConfig:
    """Where the prepared corpus lies and how it is cut into batches."""

    folder: str = ""
    batch_tokens: int = 16_000  # padded tokens of the longer side in one batch
    max_length: int = 256  # tokens a side; longer training pairs are left out
    length_step: int = 8  # lengths are padded to a multiple of this: few shapes, fast compiled code
    shapes: int = 60  # of batches, at most: more pad less, but a GPU records an update of each


@dataclass(frozen=True)
class PolicyConfig:
    """One row of the policy table, and what a learned selection is made of."""

    name: PolicyName = "mma-il"
    chunk: int = 8  # mocha's lookback
    k: tuple[int, ...] = (3,)  # wait-k; several values: one is drawn for each batch
    energy_bias: float | None = 0.0  # initial value of a learned bias; absent: no bias
    energy_gain: bool = False  # a learned gain on the energy
    noise: float = 1.0  # standard deviation, before the sigmoid, in training only
    spread: float = 0.0  # bound of energies, shifted as far in training: for any threshold; 0: none
    hard: float = 0.0  # share of training sentences whose heads stop as they will when they stream


@dataclass(frozen=True)
class ModelConfig:
    """The architecture; the policy is crossed with it."""

    architecture: Literal["transformer", "recurrent"] = "transformer"
    width: int = 512
    ffn: int = 1024
    heads: int = 4
    decoder_heads: int = 0  # heads of the decoder's attentions; 0: as many as `heads`
    encoder_layers: int = 6
    decoder_layers: int = 6
    dropout: float = 0.3
    attention_dropout: float = 0.0
    word_dropout: float = 0.0  # share of tokens whose embedding is 0, in training
    norm: Literal["pre", "post"] = "pre"
    positions: Literal["sinusoidal", "rotary"] = "sinusoidal"
    tie: Literal["none", "target", "all"] = "target"  # which embeddings are one matrix
    window: int = 0  # self-attention and lookback see this many positions; 0: all


@dataclass(frozen=True)
class LossConfig:
    """L = NLL + lambda_avg L_avg + lambda_var L_var [+ rdrop divergence]."""

    label_smoothing: float = 0.1
    lambda_avg: float = 0.0
    lambda_var: float = 0.0
    ramp: int = 0  # updates over which both weights rise from 0
    rdrop: float = 0.0  # weight of the divergence of two passes with other dropout; 0: one pass


@dataclass(frozen=True)
class TrainConfig:
    """The optimiser, the schedule and what is kept."""

    updates: int = 10_000
    lr: float = 5e-4
    warmup: int = 4_000
    warmup_init_lr: float = 1e-7
    cooldown: int = 0  # over so many last updates the rate falls to 0
    betas: tuple[float, float] = (0.9, 0.98)
    weight_decay: float = 0.0
    clip: float = 0.0  # 0: none
    accumulate: int = 1  # batches to an update
    precision: Literal["float32", "bfloat16"] = "float32"
    compile: bool = False
    seed: int = 1
    init_from: str = ""  # an offline model's folder; its weights start this one
    init_select: Literal["fresh", "attended"] = "fresh"  # or as that model attends to the source
    log_every: int = 50
    save_every: int = 1_000
    validate_every: int = 1_000  # 0: never
    validate_sentences: int = 500  # 0: the whole validation set
    patience: int = 0  # validations without a better one before stopping; 0: never stop early
    keep: int = 5  # checkpoints kept, newest first
    average: int = 5  # checkpoints averaged into the final model
    latency_metric: str = "DAL"  # one of latency.METRICS
    latency_range: tuple[float, float] = (0.0, 1e9)  # where the best checkpoint must lie in it
    parallel: Literal["ddp", "fsdp"] = "ddp"


@dataclass(frozen=True)
class Config:
    """A whole run."""

    data: DataConfig = field(default_factory=DataConfig)
    policy: PolicyConfig = field(default_factory=PolicyConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    loss: LossConfig = field(default_factory=LossConfig)
    train: TrainConfig = field(default_factory=TrainConfig)

    def __post_init__(self) -> None:
        model, policy, data = self.model, self.policy, self.data
        if min(data.batch_tokens, data.max_length, data.length_step, data.shapes) < 1:
            raise ConfigError(
                "data.batch_tokens, data.max_length, data.length_step and data.shapes must be at"
                " least 1"
            )
        heads = model.decoder_heads or model.heads
        if min(model.heads, heads, model.width) < 1:
            raise ConfigError("model.width and model.heads must be at least 1")
        if model.width % model.heads or model.width % heads:
            raise ConfigError(
                f"model.width = {model.width} must be a multiple of model.heads = {model.heads}"
                f" and of model.decoder_heads = {heads}"
            )
        if policy.name == "mocha" and policy.chunk < 1:
            raise ConfigError(f"policy.chunk = {policy.chunk} must be at least 1")
        if policy.name == "wait-k" and (not policy.k or min(policy.k) < 1):
            raise ConfigError(f"policy.k = {list(policy.k)} must hold values of at least 1")
        if policy.noise < 0:
            raise ConfigError(f"policy.noise = {policy.noise} is a standard deviation: at least 0")
        if not all(
            0 <= p < 1 for p in (model.dropout, model.attention_dropout, model.word_dropout)
        ):
            raise ConfigError(
                "model.dropout, attention_dropout and word_dropout must lie in [0, 1)"
            )
        if model.word_dropout and model.architecture == "recurrent":
            raise ConfigError("model.word_dropout is there for the transformer only")
        if policy.spread < 0:
            raise ConfigError(f"policy.spread = {policy.spread} is a bound: at least 0; 0 is none")
        if not 0 <= policy.hard <= 1:
            raise ConfigError(f"policy.hard = {policy.hard} is a share: it lies in [0, 1]")
        if not 0 <= self.loss.label_smoothing < 1:
            raise ConfigError("loss.label_smoothing must lie in [0, 1)")
        if self.loss.ramp < 0 or self.loss.rdrop < 0:
            raise ConfigError("loss.ramp and loss.rdrop must be at least 0")
        if self.train.cooldown < 0:
            raise ConfigError("train.cooldown must be at least 0")
        if self.train.init_select != "fresh" and policy.name not in ("mma-h", "mma-il"):
            raise ConfigError(
                f"train.init_select = {self.train.init_select!r} is for mma-h and mma-il, where"
                f" every head selects; this is {policy.name}"
            )


def _convert(value: Any, kind: Any, where: str) -> Any:
    """Value as the annotation asks, or a ConfigError that names the key."""
    origin = get_origin(kind)
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        if not isinstance(value, Mapping):
            raise ConfigError(f"[{where}] must be a table")
        return _build(kind, value, where)
    if origin is Literal:
        if value not in get_args(kind):
            choices = ", ".join(repr(choice) for choice in get_args(kind))
            raise ConfigError(f"{where} = {value!r}: choose one of {choices}")
        return value
    if origin in (types.UnionType, Union):  # float | None
        if value is None or value == "none":
            return None
        return _convert(value, next(k for k in get_args(kind) if k is not type(None)), where)
    if origin is tuple:
        values = value if isinstance(value, list | tuple) else [value]
        args = get_args(kind)
        if args[-1] is not Ellipsis and len(values) != len(args):
            raise ConfigError(f"{where} = {value!r}: {len(args)} values are wanted")
        return tuple(_convert(v, args[0], where) for v in values)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise ConfigError(f"{where} = {value!r}: a value of type {kind.__name__} is wanted")
    return value


def _build(cls: Any, table: Mapping[str, Any], where: str) -> Any:
    hints = get_type_hints(cls)
    unknown = [key for key in table if key not in hints]
    if unknown:
        place = f"[{where}]" if where else "the recipe"
        raise ConfigError(
            f"unknown key {unknown[0]!r} in {place}; it knows: {', '.join(sorted(hints))}"
        )
    prefix = f"{where}." if where else ""
    return cls(**{k: _convert(v, hints[k], prefix + k) for k, v in table.items()})


def parse(text: str, overrides: Iterable[str] = ()) -> Config:
    """A Config from TOML text and `section.key=value` overrides."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"not valid TOML: {error}") from error
    for override in overrides:
        path, equals, raw = override.partition("=")
        section, dot, key = path.strip().partition(".")
        if not equals or not dot:
            raise ConfigError(f"--set {override!r}: write it as section.key=value")
        try:
            value = tomllib.loads(f"v = {raw}")["v"]
        except tomllib.TOMLDecodeError:
            value = raw.strip()  # an unquoted string
        part = table.setdefault(section, {})
        if not isinstance(part, dict):
            raise ConfigError(f"[{section}] must be a table")
        part[key.strip()] = value
    config: Config = _build(Config, table, "")
    return config


def load(path: str | Path, overrides: Iterable[str] = ()) -> Config:
    """A Config from a recipe file."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: no such recipe") from error
    try:
        return parse(text, overrides)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        # JSON's escapes are TOML's, but for DEL, which TOML wants escaped too
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, tuple):
        return "[" + ", ".join(_toml(v) for v in value) + "]"
    return '"none"' if value is None else repr(value)


def dump(config: Config) -> str:
    """The whole configuration as TOML; parse(dump(c)) == c."""
    lines = []
    for section in dataclasses.fields(config):
        lines.append(f"[{section.name}]")
        part = getattr(config, section.name)
        lines += [f"{f.name} = {_toml(getattr(part, f.name))}" for f in dataclasses.fields(part)]
        lines.append("")
    return "\n".join(lines)
