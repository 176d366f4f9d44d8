"""Where a command works: on threads of this process, on a cluster of its own, or at a Dask scheduler."""

from __future__ import annotations

import logging
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from certirl.ground import interrupts as _interrupts
from certirl.ground.work import check_workers

CONNECT = 10  # seconds to find a scheduler
_ADDRESS = re.compile(r"(tcp|tls|ws|wss)://\S+:\d+")
_MISSING = 'a cluster needs Dask: pip install "certirl[cluster]"'


@contextmanager
def place(workers: int | None, scheduler: str | None) -> Iterator[Any]:
    """What ``--workers`` and ``--scheduler`` ask for, as the ``map`` of `solve`; closed in the end, whatever happens.

    Args:
        workers: threads, or processes of a local cluster; None for all cores.
        scheduler: the address of a Dask scheduler; "local" for a cluster on this machine; None for threads.
    """
    count = check_workers(workers)
    if scheduler is None:
        yield workers
        return
    if scheduler != "local" and not _ADDRESS.fullmatch(scheduler):
        raise ValueError(f"--scheduler must be an address such as tcp://host:8786, or local, got {scheduler!r}")
    if scheduler != "local" and workers is not None:
        raise ValueError("--workers is for this machine; how many work at a scheduler is decided there")
    try:
        from distributed import Client
    except ImportError:
        raise ImportError(_MISSING) from None
    with ExitStack() as closing:
        address = closing.enter_context(_local(count)) if scheduler == "local" else scheduler
        try:
            client = closing.enter_context(Client(address, timeout=CONNECT, set_as_default=False))
        except (OSError, TimeoutError, ValueError):
            raise ConnectionError(f"there is no Dask scheduler at {scheduler}: dask scheduler starts one") from None
        if scheduler == "local":
            client.run(_ignore_interrupts)
        if sys.stderr.isatty():
            print(f"certirl: working at {client.scheduler.address}", file=sys.stderr)
        yield client


@contextmanager
def _local(count: int) -> Iterator[Any]:
    """A silent cluster of processes with one thread each."""
    from distributed import LocalCluster

    with _interrupts.Deferred():
        cluster = LocalCluster(
            n_workers=count,
            threads_per_worker=1,
            processes=True,
            dashboard_address="127.0.0.1:0",  # any free port: others may run beside it
            silence_logs=logging.CRITICAL,
        )
    with cluster:
        yield cluster


def _ignore_interrupts() -> None:
    """Ctrl-C reaches every process of a terminal but is for the command alone: it ends its workers itself."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
