"""Processes that measure while another one trains."""

from __future__ import annotations

import os
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context

import torch

__all__ = ["open_workers"]


def open_workers(jobs: int) -> Executor:
    """So many processes on the CPU; 0: a thread of this one."""
    if not jobs:
        return ThreadPoolExecutor(1)
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")  # for the processes: large pages
    return ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=_begin)


def _begin() -> None:
    """One thread, after others, and away from the device."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    torch.set_num_threads(1)
    os.nice(5)
