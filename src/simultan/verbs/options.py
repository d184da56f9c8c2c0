"""Options that several verbs share, each written once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Literal

from simultan import boxed
from simultan.config import Bound
from simultan.streaming.decoding import Decoding

if TYPE_CHECKING:
    from simultan.streaming.translator import Translator

Model = Annotated[str, "Folder or name of the model. Without it, the model in the box (de-en)."]
Changes = Annotated[
    tuple[str, ...], "Change the recipe; can be repeated.", "--set", "<SECTION.KEY=VALUE>"
]
Beam = Annotated[
    int | None, Bound(1), "Search with this many beams. For offline models; 1, greedy, by default."
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


def with_beam(decoding: Decoding, beam: int | None) -> Decoding:
    """The same, or a search: sentences that are there as a whole can be searched."""
    return decoding if beam in (None, 1) else replace(decoding, beam=beam)


@contextmanager
def show_progress(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A progress bar, beside what is written. The function takes how much more is done."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.advance(task, done)


@contextmanager
def show_rate(what: str, total: int) -> Iterator[Callable[[int, int], None]]:
    """The same with words a second; where there is no terminal, a line every half minute.

    The function takes how many more lines are done, and their words.
    """
    import time

    from rich.console import Console
    from rich.progress import Progress

    began = told = time.monotonic()
    lines = words = 0
    console = Console(stderr=True, highlight=False)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=total)

        def progress(new_lines: int, new_words: int) -> None:
            nonlocal lines, words, told
            lines, words = lines + new_lines, words + new_words
            now = time.monotonic()
            rate = f"{words / max(now - began, 1e-3):,.0f} words/s"
            bar.update(task, advance=new_lines, description=f"{what}, {rate}")
            if not console.is_terminal and now - told > 30:
                told = now
                console.print(f"{what}: {lines:,} of {total:,} lines, {rate}")

        yield progress
