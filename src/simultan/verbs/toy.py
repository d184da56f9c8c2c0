"""simultan toy: text to try everything with."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from simultan.config import Bound


def toy(
    folder: Annotated[Path, "Folder for train, valid and test, each as .en and .fr."],
    *,
    pairs: Annotated[int, Bound(1), "Write this many training pairs."] = 3000,
    seed: Annotated[int, "Draw the sentences from this seed."] = 1,
) -> None:
    """Write a toy language pair that a small model learns in half a minute."""
    from simultan.data.toy import write_toy

    write_toy(folder, pairs, seed)
