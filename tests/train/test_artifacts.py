"""Compiled code in a file: what PyTorch keeps, and kernels written by hand."""

import json
from pathlib import Path

import pytest
import torch

from simultan.train import artifacts


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What PyTorch is given back; the file of its own holds b"code"."""
    given: list[bytes] = []

    def load(found: bytes) -> object:
        given.append(found)
        return object()

    monkeypatch.setattr(torch.compiler, "save_cache_artifacts", lambda: (b"code", None))
    monkeypatch.setattr(torch.compiler, "load_cache_artifacts", load)
    return given


def put(folder: Path, kernel: str) -> None:
    folder.mkdir(parents=True)
    binary = folder / f"{kernel}.cubin"
    binary.write_bytes(b"\x7fELF")
    group = {"child_paths": {binary.name: str(binary)}}
    (folder / f"__grp__{kernel}.json").write_text(json.dumps(group), encoding="utf-8")


def test_kernels_come_to_another_machine_with_its_paths(
    tmp_path: Path, taken: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there, file = tmp_path / "here", tmp_path / "there", tmp_path / "kept" / "file"
    put(here / "A1", "alignment_forward")
    put(here / "B2", "triton_poi_fused_add_0")  # the compiler's own: in PyTorch's part
    monkeypatch.setenv("TRITON_CACHE_DIR", str(here))
    artifacts.save(file)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(there))
    assert artifacts.load(file)
    assert taken == [b"code"]
    assert [folder.name for folder in there.iterdir()] == ["A1"]
    group = json.loads((there / "A1" / "__grp__alignment_forward.json").read_text())
    assert group["child_paths"] == {
        "alignment_forward.cubin": str(there / "A1" / "alignment_forward.cubin")
    }
    assert (there / "A1" / "alignment_forward.cubin").read_bytes() == b"\x7fELF"


def test_without_a_file_everything_is_compiled_here(tmp_path: Path, taken: list[bytes]) -> None:
    assert not artifacts.load(tmp_path / "none")
    (tmp_path / "other").write_bytes(b"something else")
    assert not artifacts.load(tmp_path / "other")
    assert taken == []
