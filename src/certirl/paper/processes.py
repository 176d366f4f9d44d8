"""Trials on processes of this machine, on an executor, or on a Dask cluster; results arrive as they are finished."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context
from typing import Any, TypeVar

from certirl.ground import work
from certirl.ground.doors import with_options

Task = TypeVar("Task")
Result = TypeVar("Result")

# Libraries that multiply matrices read one of these when they are loaded.
THREAD_SETTINGS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


def processes(
    function: Callable[[Task], Result], tasks: Sequence[Task], *, workers: int | None = None
) -> Iterator[tuple[int, Result]]:
    """Apply a function to every task, each on a process of its own, and yield (index, result) as they are finished.

    One worker means this process. With more the function must be importable. Every task works with one thread:
    processes then use every core once, and the last bits do not depend on their number. Within `work.on` a Dask client
    or an executor, tasks are sent there instead; to a cluster the function's file is sent along.
    """
    count = min(work.check_workers(workers), len(tasks))
    alone, place = partial(work.single_threaded, with_options(function)), work.chosen_place.get()
    if work.is_client(place):
        yield from _on_cluster(alone, tasks, place)
    elif hasattr(place, "submit"):
        yield from _on_executor(alone, tasks, place)
    elif count <= 1:
        yield from ((index, alone(task)) for index, task in enumerate(tasks))
    else:
        with _one_thread_each(), _pool(count) as pool:
            yield from _on_executor(alone, tasks, pool)


def _on_cluster(function: Callable[[Any], Any], tasks: Sequence[Any], client: Any) -> Iterator[tuple[int, Any]]:
    from distributed import as_completed

    work.check_client(client)
    if not tasks:
        return
    with work.submitting(client) as submit:
        indices = {future: index for index, future in enumerate(work.tasks(function, tasks, submit))}
        finished = as_completed(list(indices), loop=client.loop)
        for _ in range(len(indices)):
            work.wait_until(finished.has_ready, client)
            future = next(finished)
            yield indices.pop(future), work.result_of(future, client)


def _on_executor(function: Callable[[Task], Result], tasks: Sequence[Task], pool: Any) -> Iterator[tuple[int, Result]]:
    indices: dict[Any, int] = {}
    try:
        with work.deferred_interrupts():  # processes start when they are given something to do
            indices = {pool.submit(function, task): index for index, task in enumerate(tasks)}
        for future in as_completed(indices):
            yield indices[future], future.result()
    finally:
        for future in indices:
            future.cancel()


def _pool(count: int) -> ProcessPoolExecutor:
    # Ctrl-C is for the parent alone: a worker finishes its task and ends.
    ignore = (signal.SIGINT, signal.SIG_IGN)
    return ProcessPoolExecutor(count, mp_context=get_context("spawn"), initializer=signal.signal, initargs=ignore)


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Processes started within the ``with`` block multiply matrices with one thread, unless the user has set others."""
    added = {name: "1" for name in THREAD_SETTINGS if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)
