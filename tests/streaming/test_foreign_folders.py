"""Hostile folders of other systems: one line, and nothing in them runs."""

from __future__ import annotations

import json
import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

import simultan

CONFIG = {
    "model_type": "marian",
    "vocab_size": 8,
    "pad_token_id": 7,
    "decoder_start_token_id": 7,
    **{"d_model": 4, "encoder_ffn_dim": 4, "decoder_ffn_dim": 4},
    **{"encoder_layers": 1, "decoder_layers": 1},
    **{"encoder_attention_heads": 1, "decoder_attention_heads": 1},
}


class Bomb:
    """Writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.write_text, (self.path, "ran")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder in which nothing is wrong yet but that its model is a small part of one."""
    place = tmp_path / "model"
    place.mkdir()
    write(place / "config.json", CONFIG)
    save_file({"x": torch.zeros(64)}, place / "model.safetensors")
    return place


def write(path: Path, value: object) -> None:
    path.write_text(json.dumps(value), encoding="utf-8")


def pickled(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Bomb(folder / "ran")))


def remote_code(folder: Path) -> None:
    code = f"open({str(folder / 'ran')!r}, 'w')\n"
    (folder / "evil.py").write_text(code, encoding="utf-8")
    write(folder / "config.json", {**CONFIG, "auto_map": {"AutoModelForSeq2SeqLM": "evil.Model"}})


def remote_tokenizer(folder: Path) -> None:
    (folder / "evil.py").write_text(f"open({str(folder / 'ran')!r}, 'w')\n", encoding="utf-8")
    write(folder / "tokenizer_config.json", {"auto_map": {"AutoTokenizer": ["evil.T", None]}})


def path_in_index(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder.parent / "outside.safetensors")
    write(folder / "model.safetensors.index.json", {"weight_map": {"x": "../outside.safetensors"}})


def pickle_in_index(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "weights.bin").write_bytes(pickle.dumps(Bomb(folder / "ran")))
    write(folder / "model.safetensors.index.json", {"weight_map": {"x": "weights.bin"}})


def path_in_tokenizer(folder: Path) -> None:
    write(folder / "tokenizer_config.json", {"source_spm": "/etc/passwd"})


def cut_off(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def header_of_petabytes(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", 2**50) + b"{}")


def missing_shard(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    shard = "model-00001-of-00002.safetensors"
    write(folder / "model.safetensors.index.json", {"weight_map": {"x": shard}})


def huge_index(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    with (folder / "model.safetensors.index.json").open("wb") as file:
        file.truncate(10 * 2**30)  # a hole: it takes no room on the disk


def huge_vocabulary(folder: Path) -> None:
    with (folder / "vocab.json").open("wb") as file:
        file.truncate(10 * 2**30)


def deep_config(folder: Path) -> None:
    (folder / "config.json").write_text("[" * 100_000)


def huge_model(folder: Path) -> None:
    write(folder / "config.json", {**CONFIG, "d_model": 65536, "vocab_size": 1_000_000})


def many_layers(folder: Path) -> None:
    write(folder / "config.json", {**CONFIG, "encoder_layers": 1_000_000})


def quantized(folder: Path) -> None:
    write(folder / "config.json", {**CONFIG, "quantization_config": {"quant_method": "x"}})


def adapter(folder: Path) -> None:
    write(folder / "adapter_config.json", {"base_model_name_or_path": "somebody/else"})


def other_kind(folder: Path) -> None:
    write(folder / "config.json", {**CONFIG, "model_type": "llama"})


def no_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


def part_of_a_model(folder: Path) -> None:
    del folder


HOSTILE: dict[Callable[[Path], None], str] = {
    pickled: "pickle.*may run code.*pickle=trusted",
    remote_code: "auto_map, code of its own",
    remote_tokenizer: "auto_map, code of its own",
    path_in_index: "no file of weights in this folder",
    pickle_in_index: "no file of weights in this folder",
    path_in_tokenizer: "source_spm names a path",
    cut_off: "cut off",
    header_of_petabytes: "cut off",
    missing_shard: "00001-of-00002.*not there",
    huge_index: "10,737,418,240 bytes",
    huge_vocabulary: "10,737,418,240 bytes",
    deep_config: "damaged",
    huge_model: "65536 weights",
    many_layers: "no translation model is that large",
    quantized: "ct2:",
    adapter: "adapter",
    other_kind: "llama.*marian",
    no_weights: "no weights",
    part_of_a_model: "weights are missing",
}


@pytest.mark.parametrize("spoil", HOSTILE, ids=lambda spoil: spoil.__name__)
def test_a_hostile_folder_gets_one_line_and_nothing_runs(
    folder: Path, spoil: Callable[[Path], None]
) -> None:
    spoil(folder)
    with pytest.raises((ValueError, OSError), match=HOSTILE[spoil]) as caught:
        simultan.load(f"hf:{folder}")
    assert "\n" not in str(caught.value)
    assert not (folder / "ran").exists()


def test_a_trusted_pickle_is_still_only_weights(folder: Path) -> None:
    """Even then nothing but tensors is unpickled."""
    pickled(folder)
    with pytest.raises(ValueError, match="transformers cannot load it") as caught:
        simultan.load(f"hf:{folder}?pickle=trusted")
    assert "\n" not in str(caught.value)
    assert not (folder / "ran").exists()


@pytest.mark.parametrize("content", [pickle.dumps(3), b"", b"\x06\x00\x00\x00"])
def test_a_hostile_folder_of_ctranslate2(tmp_path: Path, content: bytes) -> None:
    write(tmp_path / "config.json", {})
    (tmp_path / "model.bin").write_bytes(content)
    with pytest.raises(FileNotFoundError, match="source_vocabulary"):
        simultan.load(f"ct2:{tmp_path}")
    write(tmp_path / "shared_vocabulary.json", ["<s>", "</s>", "<unk>"])
    with pytest.raises(FileNotFoundError, match="copy the original's tokeniser"):
        simultan.load(f"ct2:{tmp_path}")
    (tmp_path / "source.spm").write_bytes(b"no model")
    with pytest.raises(ValueError, match=r"source\.spm: damaged"):
        simultan.load(f"ct2:{tmp_path}")
    (tmp_path / "source.spm").unlink()
    tokenizer = {"version": "1.0", "model": {"type": "WordLevel", "vocab": {"a": 0}}}
    write(tmp_path / "tokenizer.json", {**tokenizer, "unk_token": "a"})
    with pytest.raises(ValueError, match=r"damaged|CTranslate2 cannot load it") as caught:
        simultan.load(f"ct2:{tmp_path}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("hf:", "name a folder"),
        ("ct2:/no/such/folder", "no such folder"),
        ("hf:x?pickle=yes", "write pickle=trusted"),
        ("hf:x?source=", "give source, target"),
    ],
)
def test_names_that_name_nothing(name: str, message: str) -> None:
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        simultan.load(name)


def test_the_wrong_kind_of_folder(folder: Path) -> None:
    with pytest.raises(ValueError, match=r"it has no model\.bin"):
        simultan.load(f"ct2:{folder}")
    (folder / "model.bin").touch()
    with pytest.raises(ValueError, match=r"it has no config\.json"):
        simultan.load(f"hf:{folder}")
