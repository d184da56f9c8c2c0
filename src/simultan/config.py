"""The configuration of a run: frozen dataclasses, read from TOML; an unknown key is an error.

A number's bounds stand beside it, in its annotation, and are checked whenever a Config is made.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import math
import tomllib
import types
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

__all__ = [
    "Bound",
    "Config",
    "ConfigError",
    "DataConfig",
    "LossConfig",
    "ModelConfig",
    "PolicyConfig",
    "TrainConfig",
    "check_bounds",
    "dump",
    "load",
    "load_as",
    "parse",
    "parse_as",
]

# The format of a model's config.toml, and the first version of simultan that reads it. Raise both
# when an older version could no longer read what this one writes.
FORMAT, NEEDS = 1, "0.2.0"

Recipe = TypeVar("Recipe")
PolicyName = Literal["hard", "mocha", "milk", "mma-h", "mma-il", "wait-k", "offline"]


class ConfigError(ValueError):
    """A recipe, or a --set on the command line, that does not say something we understand."""


@dataclass(frozen=True)
class Bound:
    """The values that a number may have."""

    low: float
    high: float = math.inf
    below: bool = False  # the number must stay below `high`
    above: bool = False  # the number must stay above `low`

    def allows(self, value: float) -> bool:
        if value == self.low and self.above:
            return False
        return self.low <= value and (value < self.high if self.below else value <= self.high)

    def __str__(self) -> str:
        if self.high == math.inf:
            return f"{'above' if self.above else 'at least'} {self.low}"
        return f"at least {self.low} and {'below' if self.below else 'at most'} {self.high}"


Count = Annotated[int, Bound(1)]
CountOrNone = Annotated[int, Bound(0)]  # what 0 means stands beside the field
Amount = Annotated[float, Bound(0)]
Share = Annotated[float, Bound(0, 1)]
Chance = Annotated[float, Bound(0, 1, below=True)]


@dataclass(frozen=True)
class DataConfig:
    """Where the prepared corpus is and how it is cut into batches."""

    folder: str = ""  # what `simultan prepare` wrote
    batch_tokens: Count = 16_000  # padded tokens of the longer side in one batch
    max_length: Count = 256  # longer training pairs are left out; in tokens, for each side
    length_step: Count = 8  # lengths are padded to a multiple: few shapes, fast compiled code
    shapes: Count = 60  # most batch shapes; more pad less, but a GPU records an update for each
    prefixes: Share = 0.0  # share of training pairs that are cut to prefixes of both sides


@dataclass(frozen=True)
class PolicyConfig:
    """One row of the policy table, and how a learned selection is made."""

    name: PolicyName = "mma-il"  # who decides when to read and when to write
    chunk: Count = 8  # mocha's lookback
    k: tuple[Count, ...] = (3,)  # wait-k; of several values one is drawn for each batch
    energy_bias: float | None = 0.0  # initial value of a learned bias; "none": no bias
    energy_gain: bool = False  # a learned gain on the energy
    noise: Amount = 1.0  # standard deviation, before the sigmoid, in training only
    spread: Amount = 0.0  # energies are bounded by it and shifted as far in training, so that any
    # threshold can be used; 0: no bound
    hard: Share = 0.0  # share of training sentences whose heads stop as they do in a stream


@dataclass(frozen=True)
class ModelConfig:
    """The architecture; the policy is crossed with it."""

    architecture: Literal["transformer", "recurrent"] = "transformer"  # recurrent: LSTMs
    width: Count = 512  # of embeddings and layers
    ffn: Count = 1024  # width inside a feed-forward layer
    heads: Count = 4  # of every attention
    decoder_heads: CountOrNone = 0  # heads of the decoder's attentions; 0: as many as `heads`
    encoder_layers: Count = 6  # they read the source
    decoder_layers: Count = 6  # they write the target; each has heads that choose
    dropout: Chance = 0.3  # more for little text, less for much
    attention_dropout: Chance = 0.0  # of attention weights
    word_dropout: Chance = 0.0  # share of tokens whose embedding is 0, in training
    norm: Literal["pre", "post"] = "pre"  # before or after each sublayer
    positions: Literal["sinusoidal", "marian", "rotary"] = "sinusoidal"  # how places are told
    # apart; marian: sinusoids with the wavelengths of Marian's models
    first_position: CountOrNone = 0  # of a sequence; fairseq's models begin with 2
    tie: Literal["none", "target", "all"] = "target"  # which embeddings are one matrix
    scale_embeddings: bool = True  # by the root of the width
    activation: Literal["relu", "swish", "gelu"] = "relu"  # inside a feed-forward layer
    output_bias: bool = False  # a learned bias on each logit
    encoder: Literal["unidirectional", "bidirectional"] = "unidirectional"  # bidirectional: each
    # source token sees the whole sentence; for offline models
    source_prefix: tuple[CountOrNone, ...] = ()  # ids before every source, of a bidirectional
    # model of many languages
    target_prefix: tuple[CountOrNone, ...] = ()  # the same before every target
    window: CountOrNone = 0  # positions that self-attention and lookback see; 0: all


@dataclass(frozen=True)
class LossConfig:
    """L = NLL + lambda_avg L_avg + lambda_var L_var [+ rdrop divergence]."""

    label_smoothing: Chance = 0.1  # probability kept for all other tokens
    lambda_avg: Amount = 0.0  # larger writes earlier: mma-il, milk, mocha, hard
    lambda_var: Amount = 0.0  # larger keeps heads together: mma-h, mma-il
    lambda_grade: Amount = 0.0  # with policy.spread, lambda_avg counts exp(this x shift) times: low
    # thresholds learn to be early, high ones to be late, and the slider between them is even
    ramp: CountOrNone = 0  # updates over which both weights rise from 0
    rdrop: Amount = 0.0  # weight of the divergence of two passes with other dropout; 0: one pass
    scale: Literal["token", "sentence"] = "token"  # the NLL that lambdas are weighed
    # against: of a token, or of a sentence as in the paper
    on_hard: bool = False  # latency terms of the hard rows alone (policy.hard): what streams


@dataclass(frozen=True)
class TrainConfig:
    """The optimiser, the schedule and what is kept."""

    updates: Count = 10_000  # steps of the optimiser
    optimizer: Literal["adam", "muon"] = "adam"  # muon: for matrices of layers, adam for the rest
    lr: Amount = 5e-4  # the highest learning rate
    warmup: CountOrNone = 4_000  # updates until the highest rate; then it falls with the root
    warmup_init_lr: Amount = 1e-7  # the rate of the first update
    cooldown: CountOrNone = 0  # the rate falls to 0 over this many last updates
    betas: tuple[Chance, Chance] = (0.9, 0.98)  # of Adam
    weight_decay: Amount = 0.0  # of Adam
    clip: Amount = 0.0  # largest norm of the gradients; 0: no limit
    accumulate: Count = 1  # batches in one update
    precision: Literal["float32", "bfloat16"] = "float32"  # bfloat16: on a GPU
    compile: bool = False  # on a GPU: compile layers and record updates
    seed: int = 1  # of weights, batches and dropout
    init_from: str = ""  # an offline model's folder, whose weights this one starts with
    init_select: Literal["fresh", "attended", "calibrated"] = "fresh"  # how selection starts: at
    # random, as that offline model attends, or so and with each head's bias set on one batch
    select_lr: Amount = 1.0  # times the rate, for the weights that select
    log_every: Count = 50  # updates between two reports
    save_every: Count = 1_000  # updates between two checkpoints
    validate_every: CountOrNone = 1_000  # updates between two validations; 0: never
    validate_sentences: CountOrNone = 500  # translated in each; 0: the whole validation set
    patience: CountOrNone = 0  # stop after this many validations without a better one; 0: never
    keep: Count = 5  # newest checkpoints that are kept
    average: Count = 5  # last checkpoints whose mean is the final model
    latency_metric: str = "DAL"  # one of latency.METRICS
    latency_range: tuple[float, float] = (0.0, 1e9)  # where the best checkpoint must lie in it
    parallel: Literal["ddp", "fsdp"] = "ddp"  # under torchrun; fsdp cuts the model up, too


@dataclass(frozen=True)
class Sections:
    """A recipe: each field is a section, and checked."""

    def __post_init__(self) -> None:
        for section in dataclasses.fields(self):
            check_bounds(getattr(self, section.name), f"{section.name}.")


@dataclass(frozen=True)
class Config(Sections):
    """A whole run."""

    data: DataConfig = field(default_factory=DataConfig)
    policy: PolicyConfig = field(default_factory=PolicyConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    loss: LossConfig = field(default_factory=LossConfig)
    train: TrainConfig = field(default_factory=TrainConfig)

    def __post_init__(self) -> None:
        super().__post_init__()
        model, policy = self.model, self.policy
        heads = model.decoder_heads or model.heads
        if model.width % model.heads or model.width % heads:
            raise ConfigError(
                f"model.width = {model.width} must be a multiple of model.heads = {model.heads}"
                f" and of model.decoder_heads = {heads}"
            )
        if policy.name == "wait-k" and not policy.k:
            raise ConfigError("policy.k = []: wait-k needs at least one value")
        if model.word_dropout and model.architecture == "recurrent":
            raise ConfigError("model.word_dropout is there for the transformer only")
        if self.train.optimizer == "muon" and model.architecture == "recurrent":
            raise ConfigError('train.optimizer = "muon" is there for the transformer only')
        if self.train.optimizer == "muon" and self.train.parallel == "fsdp":
            raise ConfigError(
                'train.optimizer = "muon" needs whole matrices: train.parallel = "ddp"'
            )
        if model.encoder == "bidirectional":
            self._check_bidirectional()
        elif model.source_prefix or model.target_prefix:
            raise ConfigError('model.source_prefix and target_prefix need encoder "bidirectional"')
        if self.loss.lambda_grade and not policy.spread:
            raise ConfigError(
                "loss.lambda_grade needs thresholds to tell apart: set policy.spread, too"
            )
        if self.loss.on_hard and not policy.hard:
            raise ConfigError("loss.on_hard needs hard rows: set policy.hard, too")
        if self.train.init_select == "calibrated" and policy.energy_bias is None:
            raise ConfigError('train.init_select = "calibrated" needs policy.energy_bias')
        if self.train.init_select != "fresh" and policy.name not in ("mma-h", "mma-il"):
            raise ConfigError(
                f"train.init_select = {self.train.init_select!r} is for mma-h and mma-il, where"
                f" every head selects; this is {policy.name}"
            )
        low, high = self.train.latency_range
        if not low <= high:
            raise ConfigError(f"train.latency_range = [{low}, {high}] is empty: low end first")

    def _check_bidirectional(self) -> None:
        """Who translates while words come cannot encode them all again for each of them."""
        if self.policy.name != "offline":
            raise ConfigError(
                'model.encoder = "bidirectional" is for offline models; with policy.name ='
                f' "{self.policy.name}" it must be "unidirectional", also after train.init_from'
            )
        if self.model.architecture != "transformer" or self.model.window:
            raise ConfigError(
                'model.encoder = "bidirectional" is there for a transformer without a window'
            )


def check_bounds(section: Any, prefix: str = "") -> None:
    """Refuse the first value of a dataclass that lies outside its field's bounds."""
    for name, bound in _bounds(type(section)).items():
        value = getattr(section, name)
        for one in value if isinstance(value, tuple) else (value,):
            if one is not None and not bound.allows(one):
                shown = list(value) if isinstance(value, tuple) else value
                raise ConfigError(f"{prefix}{name} = {shown}: it must be {bound}")


def _bounds(cls: type[Any]) -> dict[str, Bound]:
    """The bounds of a section's fields, and of the elements of its tuples."""
    found = {}
    for name, kind in get_type_hints(cls, include_extras=True).items():
        element = get_args(kind)[0] if get_origin(kind) is tuple else kind
        for note in getattr(element, "__metadata__", ()):
            if isinstance(note, Bound):
                found[name] = note
    return found


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
    for key in table:
        if key not in hints:
            place = f"[{where}]" if where else "the recipe"
            raise ConfigError(f"unknown key {key!r} in {place}{_hint(key, where, hints)}")
    prefix = f"{where}." if where else ""
    return cls(**{k: _convert(v, hints[k], prefix + k) for k, v in table.items()})


def _hint(key: str, where: str, hints: Mapping[str, Any]) -> str:
    """What the writer of an unknown key may have meant, or else all that the section knows."""
    for section, kind in get_type_hints(Config).items():
        if where and key in get_type_hints(kind):
            return f"; it belongs to [{section}]"
    close = difflib.get_close_matches(key, hints, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; it knows: {', '.join(sorted(hints))}"


def _check_format(table: dict[str, Any]) -> None:
    """Take a model's format out of its table; refuse a newer one than we know."""
    written, needs = table.pop("format", FORMAT), table.pop("needs", "a newer version")
    if not isinstance(written, int):
        raise ConfigError(f"format = {written!r}: a whole number is wanted")
    if written > FORMAT:
        raise ConfigError(f"this model needs simultan >= {needs}: upgrade simultan to use it")


def parse(text: str, overrides: Iterable[str] = ()) -> Config:
    """A Config from TOML text and `section.key=value` overrides."""
    return parse_as(Config, text, overrides)


def parse_as(kind: type[Recipe], text: str, overrides: Iterable[str] = ()) -> Recipe:
    """The same for any dataclass of sections."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"not valid TOML: {error}") from error
    _check_format(table)
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
    config: Recipe = _build(kind, table, "")
    return config


def load(path: str | Path, overrides: Iterable[str] = ()) -> Config:
    """A Config from a recipe file."""
    return load_as(Config, path, overrides)


def load_as(kind: type[Recipe], path: str | Path, overrides: Iterable[str] = ()) -> Recipe:
    """The same for any dataclass of sections."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: no such recipe") from error
    try:
        return parse_as(kind, text, overrides)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def _toml(value: Any) -> str:
    """JSON is TOML, but for the escape of DEL and for numbers that are not finite."""
    text = json.dumps("none" if value is None else value, ensure_ascii=False)
    if isinstance(value, str):
        return text.replace("\x7f", "\\u007f")
    return text.replace("Infinity", "inf").replace("NaN", "nan")


def dump(config: Any) -> str:
    """The whole configuration as TOML; parse(dump(c)) == c."""
    lines = []
    for section in dataclasses.fields(config):
        lines.append(f"[{section.name}]")
        part = getattr(config, section.name)
        lines += [f"{f.name} = {_toml(getattr(part, f.name))}" for f in dataclasses.fields(part)]
        lines.append("")
    return "\n".join(lines)
