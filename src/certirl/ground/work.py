"""Work on threads of this process, on an executor, or on a Dask cluster.

Data come in chunks, and the results of chunks are added up. Chunks are cut by size alone and sums are always taken in
one order, that of a balanced tree over the chunks: results do not depend, to the last bit, on the number of workers.

To a cluster everything is sent as bytes that are packed here and opened by the workers: an object that cannot be sent
is noticed before anything starts, and what all tasks share is sent once rather than with every task. What is lost with
a worker can be computed again, since only tasks are stored.

Progress is a line on a terminal, calls of a function, or nothing.
"""

from __future__ import annotations

import logging
import operator
import os
import pickle
import re
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache, partial
from threading import Event, Lock, RLock, Thread
from typing import Any, Protocol, TypeVar
from weakref import WeakSet

import numpy as np

from certirl.ground.doors import as_count, is_installed, setting, shown, takes, users, with_options

Task = TypeVar("Task")
Result = TypeVar("Result")
Submit = Callable[..., Any]

MOST_WORKERS = 4096  # more is a mistake, and would start as many processes on a local cluster
CONNECT = 10  # seconds to find a scheduler
WAIT = 30.0  # seconds without any worker after which the work is given up
LOOK = 2.0  # seconds between checks whether there are workers
LONG = 2.0  # seconds after which a command says for how long it has worked
LIGHT = 1 << 17  # bytes of a chunk that names its data rather than holding them
_ADDRESS = re.compile(r"(tcp|tls|ws|wss)://\S+:\d+")

# The place that `on` has chosen; None for threads on all cores.
chosen_place: ContextVar[Any] = ContextVar("certirl_place", default=None)


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
    """Choose where `fold` works within the ``with`` block; None changes nothing."""
    if place is not None and not hasattr(place, "submit"):
        try:
            check_workers(place)
        except ValueError:
            kinds = "a number of threads, a Dask client or an executor (with submit)"
            raise TypeError(f"{setting('map')} must be {kinds}, got {shown(place)}") from None
    token = chosen_place.set(chosen_place.get() if place is None else place)
    try:
        yield
    finally:
        chosen_place.reset(token)


@contextmanager
def place(workers: int | None, scheduler: str | None) -> Iterator[Any]:
    """The place that ``--workers`` and ``--scheduler`` name, closed at the end in every case."""
    count = check_workers(workers)
    if scheduler is None:
        yield workers
        return
    if scheduler != "local" and not _ADDRESS.fullmatch(scheduler):
        raise ValueError(f"--scheduler must be an address such as tcp://host:8786, or local, got {scheduler!r}")
    if scheduler != "local" and workers is not None:
        raise ValueError("--workers is for this machine; the number of workers at a scheduler is decided there")
    try:
        from distributed import Client
    except ImportError:
        raise ImportError('a cluster needs Dask: pip install "certirl[cluster]"') from None
    with ExitStack() as closing:
        address = closing.enter_context(_local_cluster(count)) if scheduler == "local" else scheduler
        try:
            client = closing.enter_context(Client(address, timeout=CONNECT, set_as_default=False))
        except (OSError, TimeoutError, ValueError):
            raise ConnectionError(f"there is no Dask scheduler at {scheduler}: dask scheduler starts one") from None
        if scheduler == "local":
            client.run(_ignore_interrupts)
        if _is_shown(None):
            print(f"certirl: working at {client.scheduler.address}", file=sys.stderr)
        yield client


def _local_cluster(count: int) -> Any:
    """A cluster of processes with one thread each, without log messages."""
    from distributed import LocalCluster

    with deferred_interrupts():
        return LocalCluster(
            n_workers=count,
            threads_per_worker=1,
            processes=True,
            dashboard_address="127.0.0.1:0",  # any free port: other clusters may run beside it
            silence_logs=logging.CRITICAL,
        )


@contextmanager
def deferred_interrupts() -> Iterator[None]:
    """Defer Ctrl-C to the end of a ``with`` block; processes started in it ignore Ctrl-C."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    from multiprocessing import resource_tracker

    resource_tracker.ensure_running()  # starting it would unblock interrupts
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _ignore_interrupts() -> None:
    """Leave Ctrl-C, which reaches every process of a terminal, to the command alone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def fold(
    function: Callable[[Task], Result], chunks: Sequence[Task], add: Callable[..., Result] = operator.add
) -> Result:
    """Apply a function to every chunk and add the results up in a balanced tree.

    The place is threads of this process on all cores, or the one that `on` has chosen. On a Dask cluster the tree is
    computed by the workers, so that only sums are transferred. At most a few chunks per worker are in progress, and
    memory does not grow with their number, unless chunks are names of data rather than data.
    """
    if not chunks:
        raise ValueError("there are no data: nothing to add up")
    function, place = with_options(function), chosen_place.get()
    if hasattr(place, "submit"):
        chunks = [chunk.sent() if hasattr(chunk, "sent") else chunk for chunk in chunks]
    task = partial(single_threaded, function)
    if is_client(place):
        return _tree(_cluster_sums(task, chunks, add, place), add)
    with one_blas_thread:
        if hasattr(place, "submit"):
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
        self._libraries: Any = None
        self._modules = 0  # when the libraries were looked for, which takes long: an import may bring another

    def __enter__(self) -> None:
        from threadpoolctl import ThreadpoolController

        with self._lock:
            if self._inside == 0:
                if len(sys.modules) != self._modules:
                    self._libraries, self._modules = ThreadpoolController(), len(sys.modules)
                self._limits = self._libraries.limit(limits=1, user_api="blas")
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0 and self._limits is not None:
                self._limits.restore_original_limits()
                self._limits = None


one_blas_thread = _OneBlasThread()


# Dask clusters.


def is_client(place: Any) -> bool:
    """Whether this is a Dask client; its executor is like any other."""
    return type(place).__module__.partition(".")[0] == "distributed" and hasattr(place, "scheduler_info")


def check_client(client: Any) -> None:
    """Refuse a client that cannot submit work; wait for one that is connecting again."""
    if client.asynchronous:
        raise ValueError("the Dask client is asynchronous: make it with Client(…, asynchronous=False)")
    deadline = time.monotonic() + CONNECT
    while client.status == "connecting" and time.monotonic() < deadline:
        time.sleep(0.05)
    if client.status != "running":
        raise ConnectionError(f"the Dask client is {client.status}: connect again with Client(…)")


def _cluster_sums(function: Any, chunks: Sequence[Any], add: Any, client: Any) -> Iterator[Any]:
    """Sums of function(chunk) over groups of chunks, in order, computed by the workers.

    Every sum is a balanced tree. Chunks that name their data form one group. Those that hold data are sent in groups of
    a power of two, a few groups at a time; the groups are subtrees of the balanced tree over all chunks.
    """
    check_client(client)
    heavy = is_heavy(function, chunks)
    size = 1 << max(sum(client.nthreads().values()), 4).bit_length() if heavy else len(chunks)
    waiting: deque[Any] = deque()
    with submitting(client) as submit:
        for start in range(0, len(chunks), size):
            futures = tasks(function, chunks[start : start + size], submit, heavy=heavy)
            waiting.append(_tree(futures, partial(submit, add, priority=1)))  # sums come before further results
            if len(waiting) > 2:
                yield result_of(waiting.popleft(), client)
        while waiting:
            yield result_of(waiting.popleft(), client)


def is_heavy(function: Any, chunks: Sequence[Any]) -> bool:
    """Whether each chunk holds much data of its own, rather than names of data."""
    first = len(packed((function, chunks[:1])))
    return len(packed((function, chunks[:2]))) - first > LIGHT


def tasks(function: Any, chunks: Sequence[Any], submit: Submit, *, heavy: bool = False) -> list[Any]:
    """The futures of function(chunk) for every chunk.

    If chunks are not heavy but large, most of it is shared by all of them and sent as one task. What is small is sent
    with every task: tasks without dependencies are distributed over the workers at once.
    """
    if not heavy and len(packed((function, chunks[:1]))) > LIGHT:
        shared = submit(_itself, packed((function, tuple(chunks))))
        return [submit(_on_chunk, shared, number) for number in range(len(chunks))]
    code, *contents = _packed_each([function, *chunks])
    return [submit(_on_content, code, content) for content in contents]


@contextmanager
def submitting(client: Any) -> Iterator[Submit]:
    """A function that submits calls to the client, which any exception cancels.

    Ctrl-C is among the exceptions. Futures are referenced weakly: a result that was added up leaves the memory of the
    workers.
    """
    import dask

    futures: WeakSet[Any] = WeakSet()

    def submit(*call: Any, priority: int = 0) -> Any:
        # Dask would advise to scatter large data; scattered data are lost with the worker that holds them.
        with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1TB"}):
            future = client.submit(*call, pure=False, priority=priority)
        futures.add(future)
        return future

    try:
        yield submit
    except BaseException:
        with suppress(Exception):
            client.cancel(list(futures), force=True)
        raise


def wait_until(ready: Callable[[], bool], client: Any) -> None:
    """Wait until ready; ConnectionError after WAIT seconds without any worker."""
    pause, last_workers = 1e-3, time.monotonic()
    last_look = last_workers
    while not ready():
        time.sleep(pause)
        pause, now = min(2 * pause, 0.05), time.monotonic()
        if now - last_look > LOOK:
            last_look = now
            if _has_workers(client):
                last_workers = now
            elif now - last_workers > WAIT:
                raise ConnectionError(
                    f"the Dask cluster has had no workers for {WAIT:.0f} seconds: start some, "
                    "or wait for them with client.wait_for_workers(1)"
                )


def _has_workers(client: Any) -> bool:
    try:
        check_client(client)
        return bool(client.nthreads())
    except (OSError, TimeoutError) as problem:
        raise ConnectionError(f"the Dask scheduler cannot be reached any more: {problem}") from None


def result_of(future: Any, client: Any) -> Any:
    """The result of a future, or its failure in one sentence."""
    import asyncio

    from distributed import KilledWorker

    wait_until(future.done, client)
    try:
        return future.result()
    except KilledWorker as problem:
        died = problem.allowed_failures + 1
        raise ChildProcessError(
            f"{died} workers of the Dask cluster died at the same task, most likely for lack of memory"
        ) from None
    except (CancelledError, asyncio.CancelledError):
        raise ConnectionError(
            "the work was cancelled: the Dask client was closed, or it has lost its scheduler"
        ) from None


# Contents of tasks on a cluster.


def packed(thing: Any) -> bytes:
    """As bytes that a worker can open."""
    return _packed_each([thing])[0]


def _packed_each(things: Sequence[Any]) -> list[bytes]:
    import cloudpickle

    try:
        with suppress(Exception), _by_value():
            return [bytes(cloudpickle.dumps(thing)) for thing in things]
        # A module that cannot be sent because of its other contents may be installed on the workers.
        return [bytes(cloudpickle.dumps(thing)) for thing in things]
    except Exception as problem:  # pickling runs code of the object's class
        raise TypeError(
            f"something cannot be sent to the workers of a cluster ({problem}): a simulator or reward that is to "
            "be sent must not hold locks, open files or connections"
        ) from None


@contextmanager
def _by_value() -> Iterator[None]:
    """Send the code of modules that are not installed, which workers cannot import, too."""
    import cloudpickle

    registered = cloudpickle.list_registry_pickle_by_value()
    with ExitStack() as undo:
        for name, module in list(sys.modules.items()):
            if name not in registered and _is_plain_file(name, module):
                cloudpickle.register_pickle_by_value(module)
                undo.callback(cloudpickle.unregister_pickle_by_value, module)
        yield


def _is_plain_file(name: str, module: Any) -> bool:
    file = getattr(module, "__file__", None)
    if "." in name or name == "__main__" or not isinstance(file, str) or hasattr(module, "__path__"):
        return False
    return file.endswith(".py") and not is_installed(file)


@lru_cache(maxsize=2)
def _opened(content: bytes) -> Any:
    import cloudpickle

    try:
        return cloudpickle.loads(content)
    except ImportError as problem:
        raise ImportError(
            f"a worker of the cluster lacks what it needs ({problem}): install it there, "
            "or send it with client.upload_file(…)"
        ) from None


def _on_content(function: bytes, content: bytes) -> Any:
    return _opened(function)(_opened.__wrapped__(content))  # data are not kept


def _on_chunk(content: bytes, number: int) -> Any:
    function, chunks = _opened(content)
    return function(chunks[number])


Item = TypeVar("Item")
Report = Callable[[int, int], None]
Watch = Callable[[str, int, int], None]  # a line about a round, the amount done, and the largest total


# Whether progress is shown where a call leaves it open; None for terminals only.
_SHOWN: ContextVar[bool | None] = ContextVar("certirl_progress", default=None)


@contextmanager
def shown_progress(shown: bool | None) -> Iterator[None]:
    """Show progress, or not, within the ``with`` block, where ``progress`` is None; None for terminals only."""
    token = _SHOWN.set(shown)
    try:
        yield
    finally:
        _SHOWN.reset(token)


def _is_shown(progress: bool | None) -> bool:
    shown = _SHOWN.get() if progress is None else progress
    return bool(sys.stderr is not None and sys.stderr.isatty()) if shown is None else bool(shown)


def check_progress(progress: Any) -> None:
    """Check the argument ``progress``."""
    if progress is None or isinstance(progress, bool | np.bool_):
        return
    if not callable(progress) or not takes(progress, 0, 0):
        raise TypeError(f"progress must be True, False, None or a function of (done, total), got {shown(progress)}")


def _reporter(progress: bool | Report | None, unit: str) -> Report | None:
    """The function to call after each piece; None for no reports."""
    check_progress(progress)
    if callable(progress):
        return _called(progress)
    return _Line(unit) if _is_shown(progress) else None


def _called(progress: Report) -> Report:
    """A function of the user for reports; what it raises is named as the user's."""

    def report(done: int, total: int) -> None:
        with users("progress", progress):
            progress(done, total)

    return report


def watched(
    items: Iterator[Item],
    total: int | Callable[[], int],
    size: Callable[[Item], int],
    progress: bool | Report | None,
    *,
    unit: str = "transitions",
) -> Iterator[Item]:
    """Yield items and report after each of them how much of the total is done.

    ``size`` is that of one item, ``total`` the sum of all or a function that counts it where it is needed. ``progress``
    is a function ``(done, total)``; True for a line on standard error; None for that line only if standard error is a
    terminal; False for no reports.
    """
    report, done = _reporter(progress, unit), 0
    if report is None:
        yield from items
        return
    whole = total() if callable(total) else total
    for item in items:
        yield item
        done += size(item)
        report(done, whole)


def watched_stream(stream: Any, total: int | None, progress: bool | Report | None) -> Any:
    """The same data; reports after each piece how many transitions of the total, ``stream.total`` if None, are done."""
    report = _reporter(progress, "transitions")
    if report is None:
        return stream
    return _Watched(stream, partial(_counter, stream.total if total is None else total, report))


def _counter(total: int, report: Report) -> Callable[[int], None]:
    """A function that adds up the reports of several threads."""
    done, lock = [0], Lock()

    def count(more: int) -> None:
        with lock:
            done[0] += more
            report(done[0], total)

    return count


@dataclass(frozen=True, eq=False)
class _Watched:
    """A stream, of which every pass counts anew, or one of its chunks."""

    data: Any
    counter: Callable[[], Callable[[int], None]]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.data, name)

    def __iter__(self) -> Iterator[Any]:
        count = self.counter()
        for piece in self.data.pieces() if hasattr(self.data, "pieces") else self.data:
            yield piece
            count(piece.size)

    def chunks(self) -> list[Any]:
        count = self.counter()
        return [_Watched(chunk, lambda: count) for chunk in self.data.chunks()]

    def pieces(self) -> Iterator[Any]:
        return iter(self)

    def __reduce__(self) -> Any:  # other processes do not report
        return _itself, (self.data,)


def _itself(chunk: Any) -> Any:
    return chunk


def announcer(progress: bool | Report | None) -> Watch:
    """A function for lines about rounds: prints them, or calls ``progress(done, total)``."""
    check_progress(progress)
    if callable(progress):
        report = _called(progress)
        return lambda line, done, total: report(done, total)
    return _TERMINAL.announce if _is_shown(progress) else lambda line, done, total: None


def speaker(progress: bool | Report | None) -> Callable[[Forecast], None] | None:
    """A function that prints what long work will take, before it begins; None where nothing is printed."""
    check_progress(progress)
    return None if callable(progress) or not _is_shown(progress) else _TERMINAL.expect


@contextmanager
def clocked(name: str) -> Iterator[None]:
    """Show on a terminal, from two seconds on, for how long a command has worked and, if it is known, what is left."""
    if not _is_shown(None):
        yield
        return
    stop = Event()
    clock = Thread(target=_TERMINAL.tick, args=(name, stop), daemon=True)
    clock.start()
    try:
        yield
    finally:
        stop.set()
        clock.join()
        _TERMINAL.clear()


def clear_line() -> None:
    """Clear the line of progress, before anything else is written."""
    _TERMINAL.clear()


class Forecast(Protocol):
    """What work will take, in words and in seconds."""

    @property
    def seconds(self) -> float:
        """About how long."""
        ...


def duration(seconds: float) -> str:
    """A time to one or two digits."""
    if seconds < 90:
        return f"{max(seconds, 1):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5_400 else f"{seconds / 3_600:.1f} h"


class _Terminal:
    """Standard error with one line of progress, which is rewritten in place and cleared before other lines.

    Attributes:
        end: when the work is expected to be done, by the monotonic clock; in the past if that is not known.
    """

    def __init__(self) -> None:
        self._lock, self._written, self._last = RLock(), False, 0.0
        self.end = 0.0

    def rewrite(self, text: str) -> None:
        """Write the line of progress."""
        with self._lock:
            self._write(f"\r\033[Kcertirl: {text}")
            self._written, self._last = True, time.monotonic()

    def clear(self) -> None:
        """Clear it."""
        with self._lock:
            if self._written:
                self._write("\r\033[K")
                self._written = False

    def announce(self, line: str, *_: int) -> None:
        """Print a line about a round; how long the next ones take is not known from it."""
        with self._lock:
            self.clear()
            print(f"certirl: {line}", file=sys.stderr, flush=True)

    def expect(self, forecast: Forecast) -> None:
        """Print what work will take."""
        self.announce(str(forecast))
        self.end = time.monotonic() + forecast.seconds

    def tick(self, name: str, stop: Event) -> None:
        """Write every half second, unless something else was written, for how long a command has worked."""
        start, self.end = time.monotonic(), 0.0
        while not stop.wait(0.5):
            now = time.monotonic()
            if now - start > LONG and now - self._last > 1.0:
                left = f", about {duration(self.end - now)} left" if self.end > now else ""
                self.rewrite(f"{name}, {duration(now - start)}{left}")

    @staticmethod
    def _write(text: str) -> None:
        with suppress(OSError, ValueError):
            sys.stderr.write(text)
            sys.stderr.flush()


_TERMINAL = _Terminal()


class _Line:
    """Rewrites the line of progress ten times a second if the work takes long; clears it at the end."""

    def __init__(self, unit: str) -> None:
        self._unit = unit
        self._start = self._last = time.monotonic()

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if done >= total:
            _TERMINAL.clear()
        elif now - self._start > 0.5 and now - self._last > 0.1:
            left = (now - self._start) * (total - done) / max(done, 1)
            _TERMINAL.rewrite(f"{done:,} of {total:,} {self._unit}, {duration(left)} left")
            self._last = now
