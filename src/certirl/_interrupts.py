"""Ctrl-C in the process of a command is one line and exit code 130, from its first import on.

`certirl` imports this before anything large. Only the standard library is imported here.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from typing import Any, NoReturn

CODE = 130  # 128 + SIGINT, what a shell expects
LINE = "certirl: interrupted\n"

_seen = False


def is_command() -> bool:
    """Whether this process was started as ``certirl`` or ``python -m certirl``."""
    # The script or the module stands before the arguments; not so in the processes of a pool.
    arguments = len(getattr(sys, "argv", []))
    word = sys.orig_argv[-arguments] if 0 < arguments < len(sys.orig_argv) else ""
    return word in ("certirl", "certirl.cli") or os.path.splitext(os.path.basename(word))[0] == "certirl"


def during_imports(*_: Any) -> NoReturn:
    """End the process at once: an exception inside an import may come out as another one."""
    with suppress(OSError):
        os.write(2, LINE.encode())
    os._exit(CODE)


def during_work(*_: Any) -> NoReturn:
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


if is_command() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    with suppress(ValueError):  # only the main thread may
        signal.signal(signal.SIGINT, during_imports)
