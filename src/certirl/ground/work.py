"""Work on threads of this process, on an executor, or on a Dask cluster.

Data come in chunks, and the results of chunks are added up. Chunks are cut by size alone and sums are always taken in
one order, that of a balanced tree over the chunks: results do not depend, to the last bit, on the number of workers.
"""

from __future__ import annotations

import operator
import os
import pickle
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from threading import Lock
from typing import Any, TypeVar

from certirl.ground import cluster
from certirl.ground.doors import as_count, setting, shown, with_options

Task = TypeVar("Task")
Result = TypeVar("Result")

MOST_WORKERS = 4096  # more is a mistake, and would start as many processes on a local cluster

_NO_DATA = "there are no data: nothing to add up"

_place: ContextVar[Any] = ContextVar("certirl_place", default=None)


def cores() -> int:
    """The number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def check_workers(workers: Any) -> int:
    """A positive number of workers; all cores if None."""
    return cores() if workers is None else as_count(workers, "workers", most=MOST_WORKERS)


@contextmanager
def on(place: Any) -> Iterator[None]:
    """Choose where `fold` works within the ``with`` block; None changes nothing.

    Args:
        place: a number of threads, or anything with ``submit``: a Dask client, an executor.
    """
    if place is not None and not hasattr(place, "submit"):
        try:
            check_workers(place)
        except ValueError:
            kinds = "a number of threads, a Dask client or an executor (with submit)"
            raise TypeError(f"{setting('map')} must be {kinds}, got {shown(place)}") from None
    token = _place.set(_place.get() if place is None else place)
    try:
        yield
    finally:
        _place.reset(token)


@contextmanager
def place(workers: int | None, scheduler: str | None) -> Iterator[Any]:
    """The place that ``--workers`` and ``--scheduler`` name, closed at the end.

    Args:
        workers: threads, or processes of a local cluster; None for all cores.
        scheduler: the address of a Dask scheduler; "local" for a cluster on this machine; None for threads.
    """
    count = check_workers(workers)
    if scheduler is None:
        yield workers
    else:
        with cluster.connected(scheduler, workers, count) as client:
            yield client


def current_place() -> Any:
    """The place that `on` has chosen; None for threads on all cores."""
    return _place.get()


def fold(
    function: Callable[[Task], Result], chunks: Sequence[Task], add: Callable[..., Result] = operator.add
) -> Result:
    """Apply a function to every chunk and add the results up in a balanced tree.

    The place is threads of this process on all cores, or the one that `on` has chosen. On a Dask cluster the tree is
    computed by the workers, so that only sums are transferred. At most a few chunks per worker are in progress, and
    memory does not grow with their number, unless chunks are names of data rather than data.
    """
    if not chunks:
        raise ValueError(_NO_DATA)
    function, place = with_options(function), _place.get()
    if cluster.is_client(place):
        return _tree(cluster.sums(partial(single_threaded, function), chunks, add, place), add)
    with one_blas_thread:
        if hasattr(place, "submit"):
            task = partial(single_threaded, function)
            _check_sendable(place, task, chunks[0])
            return _tree(_in_order(task, chunks, place, 2 * cores()), add)
        count = min(check_workers(place), len(chunks))
        if count == 1 or getattr(chunks[0], "on_device", False):  # a device computes in parallel by itself
            return _tree(map(function, chunks), add)
        with ThreadPoolExecutor(count, "certirl") as pool:
            return _tree(_in_order(function, chunks, pool, 2 * count), add)


def _in_order(function: Callable[[Task], Result], tasks: Iterable[Task], pool: Any, window: int) -> Iterator[Result]:
    """Results in the order of the tasks, at most ``window`` of them in progress."""
    waiting: deque[Any] = deque()
    try:
        for task in tasks:
            waiting.append(pool.submit(function, task))
            if len(waiting) >= window:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()


def _tree(results: Iterable[Result], add: Callable[..., Result]) -> Result:
    """Add results pairwise, ((0+1)+(2+3))+…, as a binary counter does, with few in memory."""
    held: list[tuple[int, Result]] = []
    for result in results:
        size = 1
        while held and held[-1][0] == size:
            before = held.pop()
            size, result = size + before[0], add(before[1], result)
        held.append((size, result))
    if not held:
        raise ValueError(_NO_DATA)
    _, total = held.pop()
    while held:
        total = add(held.pop()[1], total)
    return total


def _check_sendable(place: Any, function: Any, task: Any) -> None:
    """Refuse, with a sentence, what a pool of processes cannot be sent."""
    if isinstance(place, ProcessPoolExecutor):
        try:
            pickle.dumps((function, task))
        except Exception as problem:
            raise TypeError(
                f"something cannot be sent to another process ({problem}): use threads, or a simulator that is "
                "defined at the top of a module and holds no locks, open files or local functions"
            ) from None


def single_threaded(function: Callable[[Task], Result], task: Task) -> Result:
    """Apply a function on a worker beside others: with one thread in every library it calls."""
    with on(1), one_blas_thread:
        return function(task)


class _OneBlasThread:
    """Limit every BLAS library to one thread within a ``with`` block; blocks may overlap."""

    def __init__(self) -> None:
        self._lock, self._inside = Lock(), 0
        self._limits: Any = None

    def __enter__(self) -> None:
        from threadpoolctl import threadpool_limits

        with self._lock:
            if self._inside == 0:
                self._limits = threadpool_limits(limits=1, user_api="blas")
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0 and self._limits is not None:
                self._limits.restore_original_limits()
                self._limits = None


one_blas_thread = _OneBlasThread()
