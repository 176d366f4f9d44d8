"""Where work is done: on threads, on processes, or wherever an executor or a Dask client takes it.

Data come in chunks, and what is kept of a chunk adds up. Chunks are cut by size alone and sums are always taken in one
order, that of a balanced tree over the chunks: results do not depend, to the last bit, on who worked on what.
"""

from __future__ import annotations

import operator
import os
import pickle
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from multiprocessing import get_context
from threading import Lock
from typing import Any, TypeVar

from certirl.ground import cluster as _cluster
from certirl.ground import interrupts as _interrupts
from certirl.ground.doors import as_count, setting, shown, with_options

Task = TypeVar("Task")
Result = TypeVar("Result")

# Whatever library multiplies matrices reads one of these when it is loaded.
THREAD_SETTINGS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")

MOST_WORKERS = 4096  # more is a mistake, and would start as many processes on a local cluster

_NO_DATA = "there are no data: nothing to add up"

_place: ContextVar[Any] = ContextVar("certirl_place", default=None)


def cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def check_workers(workers: Any) -> int:
    """A positive number of workers; all cores if None."""
    if workers is None:
        return cores()
    return as_count(workers, "workers", most=MOST_WORKERS)


@contextmanager
def on(place: Any) -> Iterator[None]:
    """In here `fold` works there; None leaves it as it is.

    Args:
        place: a number of threads, or anything with ``submit``: a Dask client, an executor.
    """
    if place is None:
        yield
        return
    if not hasattr(place, "submit"):
        try:
            check_workers(place)
        except ValueError:
            kinds = "a number of threads, a Dask client or an executor (with submit)"
            raise TypeError(f"{setting('map')} must be {kinds}, got {shown(place)}") from None
    token = _place.set(place)
    try:
        yield
    finally:
        _place.reset(token)


def fold(
    function: Callable[[Task], Result], chunks: Sequence[Task], add: Callable[..., Result] = operator.add
) -> Result:
    """Apply a function to every chunk and add the results up, in a balanced tree over the chunks.

    Threads of this process by default, all cores; `on` chooses another place. On a Dask cluster the tree is built on
    the workers, so that only sums travel, unless chunks hold the data themselves; elsewhere at most two chunks per
    worker are in the making, and memory does not grow with their number.
    """
    function = with_options(function)
    place, alone = _place.get(), partial(_quietly, function)
    if not chunks:
        raise ValueError(_NO_DATA)
    if _cluster.is_client(place):
        if not _cluster.is_heavy(alone, chunks):
            return _cluster.fold(alone, chunks, add, place)
        cluster = _cluster.Executor(place)
        return _tree(_in_order(alone, chunks, cluster, cluster.window), add)
    with one_blas_thread:
        if hasattr(place, "submit"):
            _check_travels(place, alone, chunks[0])
            return _tree(_in_order(alone, chunks, place, 2 * cores()), add)
        count = min(check_workers(place), len(chunks))
        if count == 1 or getattr(chunks[0], "on_device", False):  # a device has its own ways to be busy
            return _tree(map(function, chunks), add)
        with ThreadPoolExecutor(count, "certirl") as pool:
            return _tree(_in_order(function, chunks, pool, 2 * count), add)


def _in_order(function: Callable[[Task], Result], tasks: Iterable[Task], pool: Any, window: int) -> Iterator[Result]:
    """Results in the order of the tasks, at most ``window`` of them in the making."""
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
    """Add results pairwise like the digits of a binary counter: ((0+1)+(2+3))+…, holding few at a time."""
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


def _check_travels(place: Any, function: Any, task: Any) -> None:
    """Say in a sentence what a pool of processes would say in riddles."""
    if isinstance(place, ProcessPoolExecutor):
        try:
            pickle.dumps((function, task))
        except Exception as problem:
            raise TypeError(
                f"something cannot be sent to another process ({problem}): use threads, or a simulator that is "
                "defined at the top of a module and holds no locks, open files or functions made on the way"
            ) from None


def _quietly(function: Callable[[Task], Result], task: Task) -> Result:
    """One task on a worker that has others beside it: with one thread, whatever library it calls."""
    with on(1), one_blas_thread:
        return function(task)


class _OneBlasThread:
    """Every library's BLAS with one thread as long as anyone is in here: those who leave first change nothing."""

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


def processes(
    function: Callable[[Task], Result], tasks: Sequence[Task], *, workers: int | None = None
) -> Iterator[tuple[int, Result]]:
    """Apply a function to every task, each on a process of its own, and yield (index, result) as they are done.

    One worker means this process. With more the function must be importable. Every task works with one thread:
    processes then use the cores once, and the last bits do not depend on how many there are. Inside `on` a Dask client
    or an executor, they are sent there instead; to a cluster the function's file travels with it.

    Args:
        function: what to do.
        tasks: with what.
        workers: how many processes; all cores if left out.
    """
    count = min(check_workers(workers), len(tasks))
    alone, place = partial(_quietly, with_options(function)), _place.get()
    if _cluster.is_client(place):
        yield from _cluster.as_done(alone, tasks, place)
    elif hasattr(place, "submit"):
        yield from _as_done(alone, tasks, place)
    elif count <= 1:
        yield from ((index, alone(task)) for index, task in enumerate(tasks))
    else:
        with _one_thread_each(), _pool(count) as pool:
            yield from _as_done(alone, tasks, pool)


def _as_done(function: Callable[[Task], Result], tasks: Sequence[Task], pool: Any) -> Iterator[tuple[int, Result]]:
    futures: dict[Any, int] = {}
    try:
        with _interrupts.Deferred():  # a process is started when there is something for it to do
            futures = {pool.submit(function, task): index for index, task in enumerate(tasks)}
        for future in as_completed(futures):
            yield futures[future], future.result()
    finally:
        for future in futures:  # whatever is not begun is not wanted any more
            future.cancel()


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
