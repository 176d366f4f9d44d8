"""Ctrl-C in the process of a command is one line and exit code 130, from its first import on.

`certirl` imports this before anything else, so only what is small is imported here.
"""

from __future__ import annotations

import os
import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

CODE = 130  # 128 + SIGINT, what a shell expects
LINE = "certirl: interrupted\n"

_seen = False


def is_command() -> bool:
    """Whether this process was started as ``certirl`` or ``python -m certirl``."""
    # The script or the module stands before the arguments; not so in the processes of a pool.
    arguments = len(getattr(sys, "argv", []))
    word = sys.orig_argv[-arguments] if 0 < arguments < len(sys.orig_argv) else ""
    return word in ("certirl", "certirl.cli") or os.path.splitext(os.path.basename(word))[0] == "certirl"


def during_imports(*_: object) -> NoReturn:
    """End the process at once: an exception inside an import may come out as another one."""
    try:
        os.write(2, LINE.encode())
    finally:
        os._exit(CODE)


def during_work(*_: object) -> NoReturn:
    """Raise KeyboardInterrupt, and remember it: a library may turn it into an error of its own."""
    global _seen
    _seen = True
    raise KeyboardInterrupt


def begin_work() -> None:
    """Let Ctrl-C raise KeyboardInterrupt from here on, in the process of a command."""
    if signal.getsignal(signal.SIGINT) is during_imports:
        signal.signal(signal.SIGINT, during_work)


def happened() -> bool:
    """Whether Ctrl-C was pressed since the work began."""
    return _seen


def end() -> None:
    """Let a second Ctrl-C end the process at once while it waits for its threads."""
    if signal.getsignal(signal.SIGINT) is during_work:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


class Deferred:
    """In here Ctrl-C waits until the end, and processes that are started in here never see it: it is for the parent."""

    def __enter__(self) -> None:
        self._mask = None
        if hasattr(signal, "pthread_sigmask"):
            from multiprocessing import resource_tracker

            resource_tracker.ensure_running()  # when it starts it lets interrupts through again
            self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})

    def __exit__(self, *_: object) -> None:
        if self._mask is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)


def _begin_imports() -> None:
    if is_command() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        try:
            signal.signal(signal.SIGINT, during_imports)
        except ValueError:  # only the main thread may
            return


_begin_imports()
