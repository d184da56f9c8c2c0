"""Processes that measure while another trains: a queue, and one thread to lead each process."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import Any, Protocol

import torch

from simultan import memory

__all__ = ["Work", "Workers"]


class Work(Protocol):
    """Something to do on a device; it travels to another process."""

    def __call__(self, device: str) -> Any: ...


class Workers:
    """Takes work from anyone; without a process it is done at once, where it is given."""

    def __init__(
        self, device: str, say: Callable[[str], None], is_over: Callable[[], bool]
    ) -> None:
        self._device, self._say, self._is_over = device, say, is_over
        self._waiting: deque[tuple[Work, Future[Any]]] = deque()
        self._change = threading.Condition()
        self._threads: list[threading.Thread] = []
        self._closed = False

    def add(self, count: int, device: str) -> None:
        """More processes; one that fails on another device than the CPU leaves it to the others."""
        for _ in range(count):
            thread = threading.Thread(target=self._lead, args=(device,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def submit(self, work: Work) -> Future[Any]:
        future: Future[Any] = Future()
        if not self._threads:
            if self._is_over():
                raise CancelledError
            future.set_result(work(self._device))
            return future
        with self._change:
            if self._closed:
                raise CancelledError
            self._waiting.append((work, future))
            self._change.notify()
        return future

    def close(self) -> None:
        """What waits is cancelled, what has begun is finished."""
        with self._change:
            self._closed = True
            for _, future in self._waiting:
                future.cancel()
            self._waiting.clear()
            self._change.notify_all()
        for thread in self._threads:
            thread.join()

    def backlog(self) -> int:
        return len(self._waiting)

    def _next(self) -> tuple[Work, Future[Any]] | None:
        with self._change:
            while not self._waiting and not self._closed:
                self._change.wait()
            return None if self._closed else self._waiting.popleft()

    def _give_back(self, item: tuple[Work, Future[Any]]) -> None:
        with self._change:
            if self._closed:
                item[1].cancel()
            else:
                self._waiting.appendleft(item)
                self._change.notify()

    def _lead(self, device: str) -> None:
        process = _process(device)
        while (item := self._next()) is not None:
            work, future = item
            try:
                result = process.submit(work, device).result()
            except Exception as error:
                if device != "cpu":
                    self._say(f"a worker on {device} gives up: {error}")
                    self._give_back(item)
                    break
                future.set_exception(error)
                if isinstance(error, BrokenProcessPool):
                    process.shutdown()
                    process = _process(device)
            else:
                future.set_result(result)
        process.shutdown()


def _process(device: str) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(
        1, mp_context=get_context("spawn"), initializer=_begin, initargs=(device,)
    )


def _begin(device: str) -> None:
    """One thread, after others; a worker of the CPU leaves the device alone."""
    torch.set_num_threads(1)
    memory.keep()
    if device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
        os.nice(5)
