"""Options that several verbs share, each written once."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from simultan import boxed
from simultan.config import Bound

if TYPE_CHECKING:
    from simultan.streaming.translator import Translator

Model = Annotated[str, "Folder or name of the model. Without it, the model in the box (de-en)."]
Changes = Annotated[
    tuple[str, ...], "Change the recipe; can be repeated.", "--set", "<SECTION.KEY=VALUE>"
]


@dataclass(frozen=True)
class Machine:
    """What the model runs on."""

    device: Annotated[str, "Run on cpu or cuda.", "<DEVICE>"] = "cpu"
    threads: Annotated[
        int, Bound(0), "Use this many CPU threads; 0 leaves the choice to PyTorch."
    ] = 0
    quantize: Annotated[
        Literal["int8"] | None, "Round the weights to int8, which is faster on a CPU."
    ] = None

    def load(self, model: str) -> Translator:
        """The model, or the one in the box, ready to translate."""
        import simultan

        return simultan.load(
            model or boxed.default(),
            device=self.device,
            quantize=self.quantize,
            threads=self.threads or None,
        )


def check_out(out: Path, source: Path, option: str = "--out") -> None:
    """Refuse a file that cannot be written, before the work is done that it is for."""
    if out.exists() and source.exists() and out.samefile(source):
        raise ValueError(f"{option} {out}: this is the file to be read; write to another one")
    if out.is_dir():
        raise ValueError(f"{option} {out}: this is a folder; write to a file")
    if not out.parent.is_dir():
        raise ValueError(f"{option} {out}: there is no folder {out.parent}; make it first")
    if not os.access(out if out.exists() else out.parent, os.W_OK):
        raise ValueError(f"{option} {out}: you may not write there; choose another place")


@contextmanager
def show_progress(what: str, total: int) -> Iterator[Callable[..., None]]:
    """A progress bar, beside what is written. The function takes how much more is done.

    It may take the words of that, too. Then the bar shows words a second; and where there is no
    terminal, there is a line every half minute.
    """
    from rich.console import Console
    from rich.progress import Progress

    began = told = time.monotonic()
    done = words = 0
    console = Console(stderr=True, highlight=False)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=total)

        def progress(more: int, more_words: int = 0) -> None:
            nonlocal done, words, told
            done, words = done + more, words + more_words
            now = time.monotonic()
            rate = f", {words / max(now - began, 1e-3):,.0f} words/s" if words else ""
            bar.update(task, advance=more, description=f"{what}{rate}")
            if rate and not console.is_terminal and now - told > 30:
                told = now
                console.print(f"{what}: {done:,} of {total:,} lines{rate}")

        yield progress
