"""What a run says: a progress bar, metrics.jsonl, TensorBoard, and the validations so far.

metrics.jsonl is the record: the best checkpoint and the patience left are read from it, so a
resumed run needs no other memory of its validations.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column

from simultan import atomic
from simultan.config import TrainConfig
from simultan.train.folder import RunFolder

TERMS = {"loss": ".3f", "nll": ".3f", "latency_average": ".2f", "latency_variance": ".2f"}


class Voice(Console):
    """A console whose reader may go away: then it falls silent, and the run continues."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        with contextlib.suppress(OSError, ValueError):  # what is flushed at the end, too
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.file.fileno())


class Journal:
    """Open for the time of a run; opening drops what a killed run noted after its checkpoint."""

    def __init__(
        self,
        folder: RunFolder,
        config: TrainConfig,
        update: int,
        tensorboard: bool = True,
        terms: Mapping[str, str] = TERMS,
    ) -> None:
        self.config, self.terms = config, terms
        self.records = _kept(folder.metrics, update)
        self._file = folder.metrics.open("a", encoding="utf-8")
        self.console = Voice(stderr=True)
        self._progress = Progress(
            BarColumn(table_column=Column(width=16)),
            MofNCompleteColumn(table_column=Column(no_wrap=True)),
            TimeRemainingColumn(table_column=Column(no_wrap=True)),
            # the terms give way in a narrow terminal, the count and the time left do not
            TextColumn(
                "{task.fields[terms]}",
                table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis"),
            ),
            expand=True,
            console=self.console,
            disable=not self.console.is_terminal,
        )
        self._task = self._progress.add_task("", total=config.updates, completed=update, terms="")
        self._board = self._open_board(folder.tensorboard, update) if tensorboard else None

    def __enter__(self) -> Journal:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()
        self._file.close()
        if self._board is not None:
            self._board.close()

    def say(self, text: str) -> None:
        self.console.print(text, highlight=False, markup=False, soft_wrap=True)

    def note(self, kind: str, update: int, values: Mapping[str, float]) -> None:
        """One line of metrics.jsonl, on the disk before this returns."""
        record = {"kind": kind, "update": update, **values}
        self.records.append(record)
        self._file.write(json.dumps(record) + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        if self._board is not None:
            for name, value in values.items():
                self._board.add_scalar(f"{kind}/{name}", value, update)
        self._show(kind, update, values)

    def best(self) -> int | None:
        """The validated update with the best BLEU inside the latency range, if there is one."""
        inside = self._inside()
        return max(inside, key=lambda r: (r["BLEU"], -r["update"]))["update"] if inside else None

    def impatient(self) -> bool:
        """Whether the last validations inside the latency range brought nothing better."""
        best = self.best()
        since = [r for r in self._inside() if best is not None and r["update"] > best]
        return 0 < self.config.patience <= len(since)

    def validated(self, update: int) -> bool:
        return any(r["kind"] == "valid" and r["update"] == update for r in self.records)

    def _inside(self) -> list[dict[str, Any]]:
        low, high = self.config.latency_range
        metric = self.config.latency_metric.upper()  # missing where nothing was written
        valid = [r for r in self.records if r["kind"] == "valid"]
        return [r for r in valid if low <= r.get(metric, float("nan")) <= high]

    def _show(self, kind: str, update: int, values: Mapping[str, float]) -> None:
        if kind == "train":
            parts = [f"{name} {values[name]:{form}}" for name, form in self.terms.items()]
            parts.append(f"{values['tokens_per_second']:,.0f} tokens/s")
            terms = "  ".join(
                part.replace("_average", "").replace("latency_var", "var") for part in parts
            )
            self._progress.update(self._task, completed=update, terms=terms)
            if self.console.is_terminal:
                return
        else:
            parts = [f"{name} {value:.2f}" for name, value in values.items()]
        self.say(f"{kind} {update}/{self.config.updates}  {'  '.join(parts)}")

    def _open_board(self, folder: Path, update: int) -> Any:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            self.say("TensorBoard is not installed: metrics go to metrics.jsonl only")
            return None
        return SummaryWriter(folder, purge_step=update + 1)


def _kept(path: Path, update: int) -> list[dict[str, Any]]:
    """The records up to an update; later ones and a half-written line leave the file."""
    if not path.exists():
        return []
    records, lines = [], path.read_text(encoding="utf-8").splitlines()
    for line in lines:
        try:
            record = json.loads(line)
        except json.JSONDecodeError:
            continue
        if record["update"] <= update:
            records.append(record)
    if len(records) < len(lines):
        atomic.write_text(path, "".join(json.dumps(r) + "\n" for r in records))
    return records
