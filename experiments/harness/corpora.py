"""The prepared corpora of a plan: found, or made of the released text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from experiments.harness.plan import CorpusPlan
from simultan.data.corpus import prepare
from simultan.data.named import Texts, gather_pairs

__all__ = ["prepared_folder"]


def prepared_folder(
    corpus: CorpusPlan, data: Path | None, out: Path, say: Callable[[str], None]
) -> Path:
    """The folder of a corpus: below `data` or `out` if it is there, else prepared below `out`.

    `data` may also hold the files of the named corpus; without it they are downloaded.
    """
    own = out / "data" / corpus.folder
    for folder in ([] if data is None else [data / corpus.folder]) + [own]:
        if (folder / "prepared.json").is_file():
            return folder.resolve()
    if not corpus.named:
        raise FileNotFoundError(f"no prepared folder {corpus.folder}: name its parent with --data")
    say(f"preparing {corpus.folder} of {corpus.named}")
    folders = () if data is None else (data,)
    parts = gather_pairs(corpus.named, Texts(folders=folders))
    prepare(own, *parts, **corpus.prepare)
    return own.resolve()
