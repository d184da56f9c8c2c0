"""Compiled code in a file: what PyTorch keeps, and kernels written by hand."""

import json
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from torch._inductor.codecache import InductorCacheArtifact
from torch.compiler._cache import CacheArtifactManager

from simultan.train import artifacts


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The keys of what PyTorch takes over; it begins with an empty memory."""
    keys: list[str] = []
    monkeypatch.setattr(
        InductorCacheArtifact, "populate_cache", lambda artifact: keys.append(artifact.key)
    )
    monkeypatch.setattr(artifacts, "_taken", set())
    monkeypatch.setattr(artifacts, "_unsaved", {})
    with CacheArtifactManager.with_fresh_cache():
        yield keys


def compile_part(key: str) -> None:
    """As PyTorch notes a part that it has compiled, or found in its folder."""
    CacheArtifactManager.record_artifact("inductor", key, key.encode())


def begin_process() -> None:
    CacheArtifactManager.clear()
    artifacts._taken.clear()
    artifacts._unsaved.clear()


def put(folder: Path, kernel: str) -> None:
    folder.mkdir(parents=True)
    binary = folder / f"{kernel}.cubin"
    binary.write_bytes(b"\x7fELF")
    group = {"child_paths": {binary.name: str(binary)}}
    (folder / f"__grp__{kernel}.json").write_text(json.dumps(group), encoding="utf-8")


def test_kernels_come_to_another_machine_with_its_paths(
    tmp_path: Path, taken: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there, file = tmp_path / "here", tmp_path / "there", tmp_path / "kept" / "file"
    put(here / "A1", "alignment_forward")
    put(here / "B2", "triton_poi_fused_add_0")  # the compiler's own: in PyTorch's part
    monkeypatch.setenv("TRITON_CACHE_DIR", str(here))
    compile_part("layer")
    artifacts.save(file)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(there))
    assert artifacts.load(file)
    assert taken == ["layer"]
    assert [folder.name for folder in there.iterdir()] == ["A1"]
    group = json.loads((there / "A1" / "__grp__alignment_forward.json").read_text())
    assert group["child_paths"] == {
        "alignment_forward.cubin": str(there / "A1" / "alignment_forward.cubin")
    }
    assert (there / "A1" / "alignment_forward.cubin").read_bytes() == b"\x7fELF"


def test_each_save_adds_the_kinds_of_model_since_the_last(
    tmp_path: Path, taken: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "kernels"))
    file = tmp_path / "file"
    compile_part("offline")
    artifacts.save(file)
    compile_part("mma-il")
    put(tmp_path / "kernels" / "A1", "alignment_forward")
    artifacts.save(file)
    begin_process()
    artifacts.load(file)
    assert sorted(taken) == ["mma-il", "offline"]
    compile_part("mma-h")  # and nothing of what was taken over: that stays in the file
    artifacts.save(file)
    begin_process()
    taken.clear()
    artifacts.load(file)
    assert sorted(taken) == ["mma-h", "mma-il", "offline"]
    assert "A1/alignment_forward.cubin" in zipfile.ZipFile(file).namelist()


def test_what_was_taken_over_is_not_saved_again(
    tmp_path: Path, taken: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "kernels"))
    file = tmp_path / "file"
    compile_part("offline")
    artifacts.save(file)
    written = file.stat().st_mtime_ns, file.read_bytes()
    begin_process()
    artifacts.load(file)
    compile_part("offline")  # found
    artifacts.save(file)
    assert (file.stat().st_mtime_ns, file.read_bytes()) == written


def test_without_a_file_everything_is_compiled_here(tmp_path: Path, taken: list[str]) -> None:
    assert not artifacts.load(tmp_path / "none")
    (tmp_path / "other").write_bytes(b"something else")
    assert not artifacts.load(tmp_path / "other")
    assert taken == []


def test_a_damaged_file_is_passed_over_and_replaced(
    tmp_path: Path, taken: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels, file = tmp_path / "kernels", tmp_path / "file"
    put(kernels / "A1", "alignment_forward")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(kernels))
    compile_part("layer")
    artifacts.save(file)
    whole = file.read_bytes()
    place = whole.index(b"alignment_forward.cubin") + len("alignment_forward.cubin")
    for number, damaged in enumerate(
        (whole[: len(whole) // 2], whole[:place] + b"\xff" + whole[place + 1 :])
    ):
        begin_process()
        file.write_bytes(damaged)
        monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / f"kernels-{number}"))
        assert not artifacts.load(file)
        assert not (tmp_path / f"kernels-{number}").exists()  # half a kernel is none
        compile_part("layer")
        artifacts.save(file)
        begin_process()
        assert artifacts.load(file)


def test_a_file_that_cannot_be_written_is_no_end(
    tmp_path: Path, taken: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "kernels"))
    (tmp_path / "no folder").touch()
    compile_part("layer")
    with pytest.warns(UserWarning, match="compiled code was not kept"):
        artifacts.save(tmp_path / "no folder" / "file")


def test_a_pytorch_that_cannot_save_is_no_end(
    tmp_path: Path, taken: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stumble() -> None:
        raise AttributeError("CacheInfo has no artifacts")

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "kernels"))
    monkeypatch.setattr("torch.compiler.save_cache_artifacts", stumble)
    with pytest.warns(UserWarning, match="compiled code was not kept"):
        artifacts.save(tmp_path / "file")


def test_nothing_compiled_writes_no_file(
    tmp_path: Path, taken: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "kernels" / "A1", "alignment_forward")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "kernels"))
    artifacts.save(tmp_path / "file")
    assert not (tmp_path / "file").exists()


def test_code_of_another_version_is_passed_over(
    tmp_path: Path, taken: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stumble(_: InductorCacheArtifact) -> None:
        raise AttributeError("Can't get attribute '_LocalAutotuneCacheBackend'")

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "kernels"))
    compile_part("layer")
    artifacts.save(tmp_path / "file")
    begin_process()
    monkeypatch.setattr(InductorCacheArtifact, "populate_cache", stumble)
    assert not artifacts.load(tmp_path / "file")
    compile_part("layer")  # so it is compiled here, and added
    artifacts.save(tmp_path / "other")
    assert (tmp_path / "other").exists()


def test_what_could_not_be_written_is_kept_for_the_next_file(
    tmp_path: Path, taken: list[str]
) -> None:
    (tmp_path / "file").touch()
    compile_part("layer")
    with pytest.warns(UserWarning, match="was not kept"):
        artifacts.save(tmp_path / "file" / "kept")
    compile_part("losses")
    artifacts.save(tmp_path / "kept")
    begin_process()
    assert artifacts.load(tmp_path / "kept")
    assert sorted(taken) == ["layer", "losses"]
