"""Ctrl-C in the process of a command prints one line and ends it with exit code 130.

`certirl.cli` imports this module before anything else, so that it holds from the first import on.
"""

from __future__ import annotations

import os
import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import NoReturn

CODE = 130  # 128 + SIGINT, what a shell expects
LINE = "certirl: interrupted\n"

_interrupted = False


def is_command() -> bool:
    """Whether this process was started as ``certirl`` or ``python -m certirl``."""
    # The script or the module precedes the arguments; in the processes of a pool it does not.
    arguments = len(getattr(sys, "argv", []))
    word = sys.orig_argv[-arguments] if 0 < arguments < len(sys.orig_argv) else ""
    return os.path.splitext(os.path.basename(word))[0] == "certirl"


def during_imports(*_: object) -> NoReturn:
    """End the process at once: an exception during an import may be replaced by another one."""
    try:
        os.write(2, LINE.encode())
    finally:
        os._exit(CODE)


def during_work(number: object = None, frame: FrameType | None = None) -> NoReturn:
    """Raise KeyboardInterrupt and record it, as a library may replace it; in an import, end the process at once."""
    global _interrupted
    _interrupted = True
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            during_imports()
        frame = frame.f_back
    raise KeyboardInterrupt


def begin_work() -> None:
    """Let Ctrl-C raise KeyboardInterrupt from here on, in the process of a command."""
    if signal.getsignal(signal.SIGINT) is during_imports:
        signal.signal(signal.SIGINT, during_work)


def happened() -> bool:
    """Whether Ctrl-C was pressed since the work began."""
    return _interrupted


def end() -> None:
    """Let a second Ctrl-C end the process at once while it waits for its threads."""
    if signal.getsignal(signal.SIGINT) is during_work:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def _begin_imports() -> None:
    if is_command() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        try:
            signal.signal(signal.SIGINT, during_imports)
        except ValueError:  # only the main thread may
            return


_begin_imports()
