"""A Dask cluster as a place to work: what travels there, how it is waited for, and what can go wrong.

Everything travels as bytes that are made here and opened by the workers: an object that cannot be sent is noticed
before anything starts, and what all tasks share is sent once and not once per task. Whatever is lost with a worker can
be computed again, since nothing is kept but tasks.
"""

from __future__ import annotations

import asyncio
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import ExitStack, contextmanager, suppress
from functools import lru_cache
from typing import Any
from weakref import WeakSet

WAIT = 30.0  # seconds without any worker after which nobody is expected any more
LOOK = 2.0  # seconds between looks at whether there are workers
LIGHT = 1 << 17  # bytes of a chunk that names its data rather than holding them


def is_client(place: Any) -> bool:
    """Whether this is a Dask client; its executor is like any other."""
    return type(place).__module__.partition(".")[0] == "distributed" and hasattr(place, "scheduler_info")


def check(client: Any) -> None:
    """Refuse a client that cannot be asked."""
    if client.asynchronous:
        raise ValueError("the Dask client is asynchronous: make it with Client(…, asynchronous=False)")
    if client.status != "running":
        raise ConnectionError(f"the Dask client is {client.status}: connect again with Client(…)")


def is_heavy(function: Any, chunks: Sequence[Any]) -> bool:
    """Whether chunks hold data of their own; those that only name them, or share all they hold, are light."""
    one = len(packed((function, chunks[:1])))
    return len(packed((function, chunks[:2]))) - one > LIGHT


def fold(function: Any, chunks: Sequence[Any], add: Any, client: Any) -> Any:
    """Work on light chunks and add the results up in a balanced tree, level by level, all on the workers."""
    check(client)
    with _cancelling(client) as submit, _large_graphs():
        level, height = _tasks(function, chunks, submit), 0
        while len(level) > 1:
            height += 1  # what makes two results one goes before what makes one more
            pairs = zip(level[::2], level[1::2], strict=False)
            last = level[len(level) - len(level) % 2 :]
            level = [submit(add, *pair, priority=height) for pair in pairs] + last
        until(level[0].done, client)
        return _result(level[0])


def _tasks(function: Any, chunks: Sequence[Any], submit: Callable[..., Any]) -> list[Any]:
    """The futures of function(chunk). What is large, and then shared by all, becomes a task of its own.

    What is small goes with every task instead: tasks that wait for nothing are spread over the workers at once.
    """
    if len(packed((function, chunks[:1]))) > LIGHT:
        shared = submit(_itself, packed((function, tuple(chunks))))
        return [submit(_on_chunk, shared, number) for number in range(len(chunks))]
    code, *parts = _packed_each([function, *chunks])
    return [submit(_on_part, code, part) for part in parts]


class Executor:
    """A client as an executor, for chunks that hold data: these are sent a few at a time and kept by nobody."""

    def __init__(self, client: Any) -> None:
        check(client)
        self.client, self.window = client, 2 * max(sum(client.nthreads().values()), 4)

    def submit(self, function: Any, task: Any) -> _Future:
        """Have the function applied to the task."""
        with _large_graphs():
            return _Future(self.client.submit(_on_task, packed((function, task)), pure=False), self.client)


class _Future:
    def __init__(self, future: Any, client: Any) -> None:
        self._future, self._client = future, client

    def result(self) -> Any:
        until(self._future.done, self._client)
        return _result(self._future)

    def cancel(self) -> None:
        with suppress(Exception):  # a client that is gone has nothing to cancel
            self._future.cancel()


def as_done(function: Callable[[Any], Any], tasks: Sequence[Any], client: Any) -> Iterator[tuple[int, Any]]:
    """Apply a function to every task and yield (index, result) as they are done."""
    from distributed import as_completed

    check(client)
    if not tasks:
        return
    with _cancelling(client) as submit:
        with _large_graphs():
            work = {future: index for index, future in enumerate(_tasks(function, tasks, submit))}
        waiting = as_completed(list(work), loop=client.loop)
        for _ in range(len(work)):
            until(waiting.has_ready, client)
            future = next(waiting)
            yield work.pop(future), _result(future)


def until(ready: Callable[[], bool], client: Any) -> None:
    """Wait for it, but not for ever where nobody works."""
    pause, seen = 1e-3, time.monotonic()
    looked = seen
    while not ready():
        time.sleep(pause)
        pause, now = min(2 * pause, 0.05), time.monotonic()
        if now - looked > LOOK:
            looked = now
            if _has_workers(client):
                seen = now
            elif now - seen > WAIT:
                raise ConnectionError(
                    f"the Dask cluster has had no workers for {WAIT:.0f} seconds: start some, "
                    "or wait for them with client.wait_for_workers(1)"
                )


def _has_workers(client: Any) -> bool:
    try:
        check(client)
        return bool(client.nthreads())
    except (OSError, TimeoutError) as problem:
        raise ConnectionError(f"the Dask scheduler cannot be reached any more: {problem}") from None


def _result(future: Any) -> Any:
    from distributed import KilledWorker

    try:
        return future.result()
    except KilledWorker as problem:
        died = problem.allowed_failures + 1
        raise ChildProcessError(
            f"{died} workers of the Dask cluster died at the same task, most likely for want of memory"
        ) from None
    except (CancelledError, asyncio.CancelledError):
        raise ConnectionError(
            "the work was cancelled: the Dask client was closed, or it has lost its scheduler"
        ) from None


@contextmanager
def _cancelling(client: Any) -> Iterator[Callable[..., Any]]:
    """A way to submit; if anything goes wrong, Ctrl-C included, what was submitted is not wanted any more.

    Futures are not held on to: a result that was added up leaves the memory of the workers.
    """
    futures: WeakSet[Any] = WeakSet()

    def submit(*task: Any, priority: int = 0) -> Any:
        future = client.submit(*task, pure=False, priority=priority)
        futures.add(future)
        return future

    try:
        yield submit
    except BaseException:
        with suppress(Exception):
            client.cancel(list(futures), force=True)
        raise


def _large_graphs() -> Any:
    """In here Dask does not advise to scatter data: scattered data would be lost with the worker that holds them."""
    import dask

    return dask.config.set({"distributed.admin.large-graph-warning-threshold": "1TB"})


# What travels -------------------------------------------------------------------------------------------------------


def packed(thing: Any) -> bytes:
    """As bytes that a worker can open."""
    return _packed_each([thing])[0]


def _packed_each(things: Sequence[Any]) -> list[bytes]:
    import cloudpickle

    try:
        with suppress(Exception), _by_value():
            return [bytes(cloudpickle.dumps(thing)) for thing in things]
        # A file that cannot travel, for what else is in it, may be there already.
        return [bytes(cloudpickle.dumps(thing)) for thing in things]
    except Exception as problem:  # pickling runs code of whoever made the object
        raise TypeError(
            f"something cannot be sent to the workers of a cluster ({problem}): a simulator or reward that is to "
            "travel must not hold locks, open files or connections"
        ) from None


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


def _itself(content: bytes) -> bytes:
    return content


def _on_part(function: bytes, part: bytes) -> Any:
    return _opened(function)(_opened.__wrapped__(part))


def _on_chunk(content: bytes, number: int) -> Any:
    function, chunks = _opened(content)
    return function(chunks[number])


def _on_task(content: bytes) -> Any:
    function, task = _opened.__wrapped__(content)  # data pass through and are not kept
    return function(task)


@contextmanager
def _by_value() -> Iterator[None]:
    """In here the code of plain files travels too: of modules that are not installed, which workers cannot import."""
    import cloudpickle

    known = cloudpickle.list_registry_pickle_by_value()
    with ExitStack() as undo:
        for name, module in list(sys.modules.items()):
            if name not in known and _is_plain_file(name, module):
                cloudpickle.register_pickle_by_value(module)
                undo.callback(cloudpickle.unregister_pickle_by_value, module)
        yield


def _is_plain_file(name: str, module: Any) -> bool:
    file = getattr(module, "__file__", None)
    if "." in name or name == "__main__" or not isinstance(file, str) or hasattr(module, "__path__"):
        return False
    libraries = tuple(sysconfig.get_path(path) for path in ("stdlib", "platstdlib"))
    installed = "site-packages" in file or "dist-packages" in file or file.startswith(libraries)
    return file.endswith(".py") and not installed
