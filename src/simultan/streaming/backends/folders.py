"""Folders of models that are not ours, looked at before anything in them is loaded.

A folder may come from anybody. What could run code, read other files or fill the memory is refused
in one line: pickled weights, code of its own, names that are paths, weights that are cut off, and
files or numbers that no translation model has.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MOST_TEXT = 256 * 2**20  # bytes of a vocabulary or of settings
MOST_INDEX = 16 * 2**20  # bytes of an index: a line for each tensor
MOST_HEADER = 64 * 2**20  # bytes of the header of a file of weights
MOST_NUMBER = 4_000_000  # in settings: no vocabulary is larger
MOST_LAYERS = 128
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
PICKLES = "pytorch_model.bin", "pytorch_model.bin.index.json"
_FILE_KEYS = ("_file", "_spm", "vocab", "merges")  # ends of settings that name a file
_FOREIGN = {  # settings that make transformers load something else
    "auto_map": "code of its own",
    "custom_pipelines": "code of its own",
    "quantization_config": "weights in a form of their own; CTranslate2 has int8 (see ct2:)",
}


def read_json(path: Path, most: int = MOST_TEXT) -> Any:
    """A file of JSON that is not larger than such a file is."""
    if not path.exists():
        raise FileNotFoundError(f"{path}: not there")
    check_size(path, most)
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: damaged ({error})") from None


def check_size(path: Path, most: int = MOST_TEXT) -> None:
    """Refuse a file that would fill the memory."""
    size = path.stat().st_size
    if size > most:
        raise ValueError(f"{path}: {size:,} bytes; no such file of a model has more than {most:,}")


def read_table(path: Path, most: int = MOST_INDEX) -> dict[str, Any]:
    table = read_json(path, most)
    if not isinstance(table, dict):
        raise ValueError(f"{path}: damaged (it holds no settings)")
    return table


def inspect(folder: Path, trusts_pickles: bool = False) -> dict[str, Any]:
    """The config.json of a folder of `transformers` in which there is nothing to be afraid of."""
    config = read_table(folder / "config.json")
    for name in ("config.json", "tokenizer_config.json", "generation_config.json"):
        if (folder / name).exists():
            _check_settings(folder / name, read_table(folder / name))
    if (folder / "adapter_config.json").exists():
        raise ValueError(f"{folder}: an adapter for another model (adapter_config.json); merge it")
    for path in folder.iterdir():
        if path.suffix in (".json", ".spm", ".model", ".txt"):
            check_size(path)
    total = sum(check_weights(path) for path in find_weights(folder, trusts_pickles))
    check_sizes(folder / "config.json", config, total)
    return config


def _check_settings(path: Path, settings: dict[str, Any]) -> None:
    for key, why in _FOREIGN.items():
        if settings.get(key):
            raise ValueError(f"{path}: it asks for {key}, {why}: not loaded")
    for key, value in settings.items():
        names_file = key.endswith(_FILE_KEYS) and isinstance(value, str)
        # a map of special tokens is looked for in the folder, whatever path is noted here
        if names_file and key != "special_tokens_map_file" and not _is_plain(value):
            raise ValueError(f"{path}: {key} names a path, {value!r}; a file of the folder is due")


def _is_plain(name: object) -> bool:
    """Whether this is the name of a file in the same folder."""
    return isinstance(name, str) and name not in ("", ".", "..") and Path(name).name == name


def find_weights(folder: Path, trusts_pickles: bool) -> Iterator[Path]:
    """The files of weights: one, or those of an index."""
    if (folder / WEIGHTS).exists():
        yield folder / WEIGHTS
    elif (folder / INDEX).exists():
        table = read_table(folder / INDEX).get("weight_map")
        names = set(table.values()) if isinstance(table, dict) else set()
        if not names:
            raise ValueError(f"{folder / INDEX}: damaged (it has no weight_map)")
        for name in sorted(names, key=str):
            if not _is_plain(name) or not name.endswith(".safetensors"):
                raise ValueError(f"{folder / INDEX}: {name!r} is no file of weights in this folder")
            yield folder / name
    elif any((folder / name).exists() for name in PICKLES):
        if not trusts_pickles:
            raise ValueError(
                f"{folder}: its weights are a pickle ({PICKLES[0]}), which may run code when it is"
                " opened; save the model again with safetensors, or, if you trust who made it,"
                " write ?pickle=trusted after its name"
            )
        if not (folder / PICKLES[0]).exists():
            raise ValueError(f"{folder}: pickled weights in several files are not read")
        yield folder / PICKLES[0]
    else:
        raise FileNotFoundError(f"{folder}: it has no weights ({WEIGHTS})")


def check_weights(path: Path) -> int:
    """Bytes of a file of weights, whose header says that it is whole."""
    if not path.is_file():
        raise FileNotFoundError(f"{path}: not there, but the model's index names it")
    size = path.stat().st_size
    if path.suffix != ".safetensors":
        return size
    with path.open("rb") as file:
        head = file.read(8)
        length = struct.unpack("<Q", head)[0] if len(head) == 8 else 0
        if not 2 <= length <= min(size - 8, MOST_HEADER):
            raise ValueError(f"{path}: damaged or cut off (no header of safetensors)")
        try:
            header = json.loads(file.read(length))
            ends = [v["data_offsets"][1] for k, v in header.items() if k != "__metadata__"]
            expected = 8 + length + max(ends, default=0)
        except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError):
            raise ValueError(f"{path}: damaged (its header is not that of safetensors)") from None
    if expected != size:
        raise ValueError(f"{path}: {size:,} bytes of {expected:,}: cut off; download it again")
    return size


def check_sizes(path: Path, config: dict[str, Any], weights: int) -> None:
    """Refuse numbers that would fill the memory with more than the weights there are."""
    numbers = {key: value for key, value in config.items() if type(value) is int}
    for key, value in numbers.items():
        if abs(value) > (MOST_LAYERS if key.endswith("layers") else MOST_NUMBER):
            raise ValueError(f"{path}: {key} = {value}: no translation model is that large")
    width = numbers.get("d_model", 1)
    inner = (numbers.get(key, 1) for key in ("d_ff", "encoder_ffn_dim", "decoder_ffn_dim"))
    for other in (numbers.get("vocab_size", 1), *inner):
        if other * width > weights:  # a weight has a byte at least
            raise ValueError(
                f"{path}: {other} x {width} weights, but the files hold {weights:,} bytes"
            )
