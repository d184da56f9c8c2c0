"""When to stop: after so many minutes, or when told to by SIGTERM."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType

__all__ = ["Deadline"]

INSIST = 2.0  # seconds between two signals to a training run that should stop


class Deadline:
    """Training ends after `train_minutes`, everything after `minutes`; 0: never.

    train.loop stops cleanly at SIGTERM, so that is how its time is cut; outside of it a signal
    of our own means nothing, and another's means: stop everything.
    """

    def __init__(self, minutes: float = 0.0, train_minutes: float = 0.0) -> None:
        self.start = time.monotonic()
        self._end = self.start + 60 * minutes if minutes else float("inf")
        limit = self.start + 60 * train_minutes if train_minutes else float("inf")
        self._train_end = min(limit, self._end)
        self._told = False
        self._training = threading.Event()
        self._closed = threading.Event()
        self._ours = 0  # signals we have sent and not seen again

    def elapsed(self) -> float:
        return time.monotonic() - self.start

    def is_over(self) -> bool:
        return self._told or time.monotonic() >= self._end

    def training_is_over(self) -> bool:
        return self.is_over() or time.monotonic() >= self._train_end

    def __enter__(self) -> Deadline:
        self._main = threading.current_thread() is threading.main_thread()
        if self._main:
            self._before = signal.signal(signal.SIGTERM, self._arrive)
            if self._train_end < float("inf"):
                self._thread = threading.Thread(target=self._watch, daemon=True)
                self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        if self._main:
            signal.signal(signal.SIGTERM, self._before)

    @contextlib.contextmanager
    def training(self) -> Iterator[None]:
        """Around a run that stops at SIGTERM."""
        self._training.set()
        try:
            yield
        finally:
            self._training.clear()

    def note_cut(self) -> None:
        """A run stopped before its end: if its time was not over, someone else asked for it."""
        self._told |= not self.training_is_over()

    def _arrive(self, number: int, frame: FrameType | None) -> None:
        if self._ours:
            self._ours -= 1
        else:
            self._told = True

    def _watch(self) -> None:
        while not self._closed.wait(max(0.05, self._train_end - time.monotonic())):
            # Once is not enough: the run may not have put up its own handler yet.
            if self._training.is_set() and time.monotonic() >= self._train_end:
                self._ours = 1  # a run that takes the signal does not pass it on to us
                os.kill(os.getpid(), signal.SIGTERM)
                self._closed.wait(INSIST)
