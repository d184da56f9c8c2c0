"""Files and folders that appear complete or not at all."""

import os
from pathlib import Path

import pytest

from simultan import atomic
from simultan.config import Config
from simultan.train.folder import RunFolder


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_files_are_complete_or_not_there(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file"
    atomic.write_text(path, "old")
    with pytest.raises(UnicodeEncodeError):
        atomic.write_text(path, "\ud800")
    assert path.read_text() == "old"
    assert names(path.parent) == ["file"]


def test_two_writers_of_one_file_do_not_meet(tmp_path: Path) -> None:
    """As two processes that save the same compiled code."""
    path = tmp_path / "file"
    with atomic.place(path) as first, first.open("w") as file:
        file.write("the first, ")
        with atomic.place(path) as second:
            second.write_text("the second")
        assert path.read_text() == "the second"
        file.write("whole")
    assert path.read_text() == "the first, whole"
    assert names(tmp_path) == ["file"]


def test_what_is_no_file_is_written_to_and_a_link_stays(tmp_path: Path) -> None:
    read, write = os.pipe()
    atomic.write_text(f"/dev/fd/{write}", "words")  # as of `--out >(jq .)`
    os.close(write)
    with os.fdopen(read) as pipe:
        assert pipe.read() == "words"
    real, link = tmp_path / "folder" / "real", tmp_path / "link"
    link.symlink_to(real)
    atomic.write_text(link, "text")
    assert link.is_symlink()
    assert real.read_text() == "text"
    assert names(real.parent) == ["real"]


def test_what_killed_processes_left_goes_after_a_day(tmp_path: Path) -> None:
    path = tmp_path / "out[1]"
    killed = [atomic.place(path) for _ in range(2)]
    old, new = (saving.__enter__() for saving in killed)
    other = tmp_path / f".other.1{atomic.ENDING}"
    for partial in (old, new, other):
        partial.mkdir()
    for partial in (old, other):
        os.utime(partial, (0, 0))
    atomic.write_text(path, "text")
    assert names(tmp_path) == sorted([new.name, other.name, "out[1]"])


def begin(path: Path, link: bool) -> None:
    with atomic.place(path) as partial:
        partial.symlink_to(path.parent) if link else partial.mkdir()
        raise KeyboardInterrupt


@pytest.mark.parametrize("link", [False, True])
def test_a_folder_or_a_link_that_was_begun_is_removed(tmp_path: Path, link: bool) -> None:
    with pytest.raises(KeyboardInterrupt):
        begin(tmp_path / "out", link)
    assert names(tmp_path) == []


def test_a_run_sweeps_what_a_killed_one_left(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    run.checkpoint(1).mkdir(parents=True)
    killed = [atomic.place(path) for path in (run.checkpoint(2), run.final)]
    for saving in killed:
        saving.__enter__().mkdir()
    run.create(Config())
    assert names(tmp_path) == ["checkpoints"]
    assert names(run.checkpoints) == ["00000001"]
