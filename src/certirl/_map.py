"""Where work is done: here, on several processes, or wherever an executor takes it; the only room that knows."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any, TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")

# Whatever library multiplies matrices reads one of these when it is loaded.
THREAD_SETTINGS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


def cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def check_workers(workers: Any) -> int:
    """A positive number of workers; all cores if None."""
    if workers is None:
        return cores()
    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 1:
        raise ValueError(f"workers must be a positive whole number, got {workers!r}")
    return workers


def processes(
    function: Callable[[Task], Result], tasks: Sequence[Task], *, workers: int | None = None
) -> Iterator[tuple[int, Result]]:
    """Apply a function to every task, each on a process of its own, and yield (index, result) as they are done.

    One worker means this process. With more the function must be importable. Matrices are multiplied by one thread in
    every case: processes then use the cores once, and the last bits do not depend on how many there are.

    Args:
        function: what to do.
        tasks: with what.
        workers: how many processes; all cores if left out.
    """
    count = min(check_workers(workers), len(tasks))
    if count <= 1:
        for index, task in enumerate(tasks):
            with one_blas_thread():
                result = function(task)
            yield index, result
        return
    with _one_thread_each(), _pool(count) as pool:
        futures: dict[Future[Result], int] = {}
        try:
            futures = {pool.submit(function, task): index for index, task in enumerate(tasks)}
            for future in as_completed(futures):
                yield futures[future], future.result()
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """In here the BLAS works with one thread, so that threads or processes of ours do not crowd each other out."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(limits=1, user_api="blas"):
        yield


def _pool(count: int) -> ProcessPoolExecutor:
    # Ctrl-C is for the parent alone: a worker finishes its task in peace and goes.
    quiet = (signal.SIGINT, signal.SIG_IGN)
    return ProcessPoolExecutor(count, mp_context=get_context("spawn"), initializer=signal.signal, initargs=quiet)


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Processes started in here multiply matrices with one thread, unless the user has said otherwise."""
    added = {name: "1" for name in THREAD_SETTINGS if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)
