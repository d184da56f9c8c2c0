"""A model folder: weights.safetensors, config.toml, vocabularies, pipeline; trainer.pt to resume.

A folder appears under its name by one rename, after everything in it is on the disk. A process
that is killed at any moment leaves the folders that were there, and at most a hidden partial one.

Weights are stored as float32, as float16, or as int8 with a scale for each output of a matrix,

    w[i, :] = scale[i] q[i, :],  scale[i] = max_j |w[i, j]| / 127

and load back as float32 whichever it was.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from simultan import atomic
from simultan import config as configuration
from simultan import model as models
from simultan.config import Config, PolicyConfig
from simultan.data.codec import Codec
from simultan.model import TranslationModel

WEIGHTS, CONFIG, TRAINER = "weights.safetensors", "config.toml", "trainer.pt"
SUMS = "SHA256SUMS"  # as `sha256sum -c` reads it; of the weights, where a flipped bit is not seen
# made from a finished model and copied with it: streaming/lags.py, streaming/ends.py
LAGS, ENDS = "lags.json", "ends.safetensors"
SCALE = ".scale"  # after the name of a matrix of int8: its float32 scales [rows, 1, ...]
_HEADER = f'format = {configuration.FORMAT}\nneeds = "{configuration.NEEDS}"\n\n'  # of config.toml
Stored = Literal["float32", "float16", "int8"]


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers by name; a matrix with several names counts once, as the first."""
    aliases = _aliases(model)
    return {name: value for name, value in model.state_dict().items() if name not in aliases}


def restore(model: nn.Module, weights: Mapping[str, Tensor], origin: str) -> None:
    """Copy weights into a model; both must know exactly the same names and shapes."""
    wanted = weights_of(model)
    _refuse(origin, "has no weight", sorted(wanted.keys() - weights.keys()))
    _refuse(origin, "has an unknown weight", sorted(weights.keys() - wanted.keys()))
    _copy(wanted, weights, origin)


def save(
    folder: str | Path,
    weights: Mapping[str, Tensor],
    config: Config,
    codec: Codec,
    trainer: Mapping[str, Any] | None = None,
    stored: Stored = "float32",
    beside: Sequence[Path] = (),
) -> None:
    """Write a model folder in one step; however the weights are stored, they load as float32.

    `beside`: files to copy into it.
    """
    folder = Path(folder)
    if folder.exists():
        raise FileExistsError(f"{folder}: already there; remove it or choose another name")
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        with atomic.place(folder) as partial:
            partial.mkdir()
            codec.save(partial)
            (partial / CONFIG).write_text(_HEADER + configuration.dump(config), encoding="utf-8")
            for path in beside:
                shutil.copyfile(path, partial / path.name)
            if trainer is not None:
                torch.save(dict(trainer), partial / TRAINER)
            kept = partial / WEIGHTS
            save_file(_packed(weights, stored), kept)
            (partial / SUMS).write_text(f"{_digest(kept)}  {WEIGHTS}\n", encoding="ascii")
            shutil.copymode(partial / CONFIG, kept)  # safetensors writes it for us alone
            for path in [*sorted(partial.iterdir()), partial]:
                _sync(path)
    except (OSError, RuntimeError, SafetensorError) as error:
        free = shutil.disk_usage(folder.parent).free / 2**20
        reason = str(error).partition("\n")[0]
        raise OSError(
            f"{folder}: could not be written ({reason}); {free:,.0f} MiB are free on that disk"
        ) from error
    _sync(folder.parent)


def load_weights(folder: str | Path) -> dict[str, Tensor]:
    """The weights of a model folder, in float32."""
    path = _inside(folder, WEIGHTS)
    sums = path.with_name(SUMS)
    if sums.is_file() and sums.read_bytes().split()[:1] != [_digest(path).encode()]:
        raise ValueError(
            f"{path}: damaged, or changed since it was written ({SUMS} says so): copy it again"
        )
    try:
        weights = load_file(path)
    except SafetensorError as error:
        raise ValueError(f"{path}: not a readable weights file ({error})") from error
    return _unpacked(weights, str(path))


def stored_as(folder: str | Path) -> Stored:
    """In which form a model folder has its weights."""
    with safe_open(_inside(folder, WEIGHTS), framework="pt") as file:
        kinds = {file.get_slice(name).get_dtype() for name in file.keys()}  # noqa: SIM118
    return "int8" if "I8" in kinds else "float16" if "F16" in kinds else "float32"


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def export(
    folders: Sequence[str | Path],
    out: str | Path,
    stored: Stored = "float16",
    offline: bool = False,
    shares: Sequence[float] = (),
    lags: Path | None = None,
) -> int:
    """A model folder to ship: weights (the mean of several folders'), configuration, vocabularies,
    lags and sentence ends if there are any, no trainer; returns its bytes.

    `offline`: without the weights that select, for whole sentences and for agents. `shares`: of
    each folder in the mean. `lags`: those of a mean, which are not known otherwise.
    """
    weights = load_weights(folders[0]) if len(folders) == 1 else average(folders, shares)
    config = load_config(folders[-1])
    if offline:
        if config.policy.name in ("hard", "mocha", "mma-h"):
            raise ValueError(
                f"{folders[-1]}: policy {config.policy.name} looks at one place or a few, never at"
                " the whole source; there is no offline model in it"
            )
        weights = {name: value for name, value in weights.items() if not selects(name)}
        config = replace(
            config,
            policy=PolicyConfig(name="offline"),
            loss=replace(config.loss, lambda_grade=0.0, on_hard=False),
            train=replace(config.train, init_select="fresh"),
        )
    config = replace(  # where it was trained, and from what, are places on another machine
        config, data=replace(config.data, folder=""), train=replace(config.train, init_from="")
    )
    beside = [Path(folders[0]) / ENDS]
    # how far behind the mean of several stays has not been measured; offline it has no lag
    if len(folders) == 1 and not offline:
        lags = Path(folders[0]) / LAGS
    if lags is not None:
        beside.append(lags)
    beside = [path for path in beside if path.is_file()]
    codec = Codec.load(folders[-1])
    save(out, weights, config, codec, stored=stored, beside=beside)
    return sum(path.stat().st_size for path in Path(out).iterdir())


def load_config(folder: str | Path) -> Config:
    return configuration.load(_inside(folder, CONFIG))


def load_trainer(folder: str | Path) -> dict[str, Any]:
    """What a run needs to continue from this folder."""
    path = _inside(folder, TRAINER)
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
        raise ValueError(
            f"{path}: truncated or damaged; remove {folder} to continue from the checkpoint before"
        ) from error
    return state


def load_model(
    folder: str | Path, device: str | torch.device = "cpu"
) -> tuple[TranslationModel, Config, Codec]:
    """The model of a folder, ready to translate."""
    weights, config, codec = load_weights(folder), load_config(folder), Codec.load(folder)
    model = models.build(config, len(codec.source_vocabulary), len(codec.target_vocabulary))
    restore(model, weights, str(folder))
    return model.to(device).eval(), config, codec


def average(folders: Sequence[str | Path], shares: Sequence[float] = ()) -> dict[str, Tensor]:
    """The mean of the weights of several model folders, each with its share (equal ones)."""
    if not folders:
        raise ValueError("no checkpoints to average")
    shares = shares or [1 / len(folders)] * len(folders)
    first, *others = folders
    sums = {name: shares[0] * value.double() for name, value in load_weights(first).items()}
    for folder, share in zip(others, shares[1:], strict=True):
        weights = load_weights(folder)
        shapes = {name: value.shape for name, value in weights.items()}
        if shapes != {name: value.shape for name, value in sums.items()}:
            raise ValueError(f"{folder} and {first} do not hold the same weights")
        for name, value in weights.items():
            sums[name] += share * value.double()
    return {name: value.float() for name, value in sums.items()}


def initialise(
    model: nn.Module, folder: str | Path, codec: Codec, select_as_attended: bool = False
) -> list[str]:
    """Start a model from an offline one; returns the weights that keep their fresh start.

    Weights of equal name are copied. Only monotonic attention may differ: the weights that select
    are new, or begin as the projections of the softmax over the source. A policy that looks at
    one position does not need that softmax.
    """
    weights, wanted = load_weights(folder), weights_of(model)
    if select_as_attended:
        soft = {name: name.replace(".select_", ".") for name in wanted if ".select_" in name}
        found = {name: weights[other] for name, other in soft.items() if other in weights}
        weights = {**found, **weights}  # a start that selects already keeps its selection
    _same_vocabularies(codec, Codec.load(folder), str(folder))
    fresh = sorted(wanted.keys() - weights.keys())
    unused = sorted(weights.keys() - wanted.keys())
    _refuse(str(folder), "has no weight", [name for name in fresh if not selects(name)])
    _refuse(str(folder), "has an unknown weight", [name for name in unused if not _soft(name)])
    shared = {name: value for name, value in weights.items() if name in wanted}
    _copy({name: wanted[name] for name in shared}, shared, str(folder))
    return fresh


def check_network(config: Config, folder: str | Path) -> None:
    """Refuse to start from a model whose weights mean something else in the network of `config`,
    though names and shapes are the same."""
    theirs = load_config(folder).model
    for name in ("activation", "positions", "first_position", "scale_embeddings"):
        wanted, found = getattr(config.model, name), getattr(theirs, name)
        if wanted != found:
            raise ValueError(
                f"{folder} has model.{name} = {found!r}, here it is {wanted!r}: start with the same"
            )


def point(link: Path, target: Path) -> None:
    """Let a symbolic link name a sibling or descendant of its folder, in one step."""
    with atomic.place(link) as partial:
        partial.symlink_to(target.relative_to(link.parent), target_is_directory=True)
    _sync(link.parent)


def selects(name: str) -> bool:
    """A weight that decides where to stop."""
    return any(part.startswith(("select_", "energy_")) for part in name.split("."))


def _soft(name: str) -> bool:
    """A weight of the softmax over the source."""
    return name.split(".")[-2:-1] in (["query"], ["key"])


def _aliases(model: nn.Module) -> set[str]:
    """Second names of parameters that have several."""
    first = {name for name, _ in model.named_parameters()}
    return {n for n, _ in model.named_parameters(remove_duplicate=False)} - first


def _packed(weights: Mapping[str, Tensor], stored: Stored) -> dict[str, Tensor]:
    """Weights as they are stored."""
    packed = {}
    for name, weight in weights.items():
        value = weight.detach().cpu().contiguous()
        if value.is_floating_point() and stored == "float16":
            value = value.half()
        elif value.is_floating_point() and stored == "int8" and value.dim() > 1:
            value = value.float()
            largest = value.abs().flatten(1).amax(1).clamp_min(torch.finfo(torch.float32).tiny)
            scale = (largest / 127).reshape(-1, *[1] * (value.dim() - 1))
            packed[name + SCALE] = scale
            value = (value / scale).round().clamp(-127, 127).to(torch.int8)
        packed[name] = value
    return packed


def _unpacked(packed: Mapping[str, Tensor], origin: str) -> dict[str, Tensor]:
    """The weights of a file, in float32."""
    weights = {}
    for name, value in packed.items():
        if value.dtype == torch.int8:
            if name + SCALE not in packed:
                raise ValueError(f"{origin}: {name} is int8, but its scales are missing")
            weights[name] = value.float() * packed[name + SCALE]
        elif not (name.endswith(SCALE) and name.removesuffix(SCALE) in packed):
            weights[name] = value.float() if value.is_floating_point() else value
    return weights


@torch.no_grad()
def _copy(places: Mapping[str, Tensor], weights: Mapping[str, Tensor], origin: str) -> None:
    """`places` are the model's own tensors: state_dict() does not copy."""
    for name, place in places.items():
        if place.shape != weights[name].shape:
            raise ValueError(
                f"{origin}: {name} is {list(weights[name].shape)},"
                f" this model wants {list(place.shape)}"
            )
        place.copy_(weights[name])


def _refuse(origin: str, what: str, names: Sequence[str]) -> None:
    if names:
        more = f" (and {len(names) - 1} more)" if len(names) > 1 else ""
        raise ValueError(f"{origin} {what} {names[0]}{more}: it is another kind of model")


def _same_vocabularies(ours: Codec, theirs: Codec, origin: str) -> None:
    for side in ("source", "target"):
        mine = getattr(ours, f"{side}_vocabulary").pieces
        other = getattr(theirs, f"{side}_vocabulary").pieces
        if mine != other:
            raise ValueError(
                f"{origin} has another {side} vocabulary ({len(other)} pieces, here {len(mine)}):"
                " prepare the corpus with that model's vocabularies"
            )


def _inside(folder: str | Path, name: str) -> Path:
    path = Path(folder) / name
    if not path.is_file():
        inside = [Path(folder) / name for name in ("final", "best", "last")]
        found = next((path for path in inside if (path / WEIGHTS).exists()), None)
        hint = f"; did you mean {found}?" if found else ""
        raise FileNotFoundError(f"{folder} is not a model folder: it has no {name}{hint}")
    return path


def _sync(path: Path) -> None:
    """Wait until a file or a folder's entries are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
