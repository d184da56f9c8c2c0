"""The prepared corpora of a plan: found, or made of the released text."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from experiments.harness.plan import CorpusPlan
from simultan.data.corpus import prepare
from simultan.data.named import Texts, gather_pairs

__all__ = ["prepared_folder"]


def prepared_folder(
    corpus: CorpusPlan, data: Path | None, out: Path, say: Callable[[str], None], wait: float = 0.0
) -> Path:
    """The folder of a corpus: below `data` or `out` if it is there, else prepared below `out`.

    `data` may also hold the files of the named corpus; without it they are downloaded. A corpus
    without a name is waited for, as another process may be making it: so many seconds.
    """
    own = out / "data" / corpus.folder
    places = [own] if data is None else [data / corpus.folder, own]
    latest = time.monotonic() + wait
    while True:
        for folder in places:
            if (folder / "prepared.json").is_file():
                return folder.resolve()
        if corpus.named or time.monotonic() >= latest:
            break
        time.sleep(0.2)
    if not corpus.named:
        raise FileNotFoundError(f"no prepared folder {corpus.folder}: name its parent with --data")
    say(f"preparing {corpus.folder} of {corpus.named}")
    folders = () if data is None else (data,)
    parts = gather_pairs(corpus.named, Texts(folders=folders))
    prepare(own, *parts, **corpus.prepare)
    return own.resolve()
