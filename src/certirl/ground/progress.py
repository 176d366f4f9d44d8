"""Progress: a line on a terminal, calls of a function, or nothing."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from threading import Lock
from typing import Any, TypeVar

import numpy as np

from certirl.ground.doors import shown, takes

Item = TypeVar("Item")
Report = Callable[[int, int], None]
Watch = Callable[[str, int, int], None]  # a line about a round, the amount done, and the largest total


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
        return progress
    wanted = sys.stderr.isatty() if progress is None else bool(progress)
    return _Line(unit) if wanted else None


def watched(
    items: Iterator[Item],
    total: int,
    size: Callable[[Item], int],
    progress: bool | Report | None,
    *,
    unit: str = "transitions",
) -> Iterator[Item]:
    """Yield items and report after each of them how much of the total is done.

    Args:
        items: any iterator.
        total: the sum of the sizes.
        size: the size of one item.
        progress: a function ``(done, total)``; True for a line on standard error; None for that line only if standard
            error is a terminal; False for no reports.
        unit: of the sizes, in words.
    """
    report, done = _reporter(progress, unit), 0
    if report is None:
        yield from items
        return
    for item in items:
        yield item
        done += size(item)
        report(done, total)


def watched_stream(stream: Any, total: int | None, progress: bool | Report | None) -> Any:
    """The same data; reports after each piece how many transitions of the total, ``stream.total`` if None, are done."""
    report = _reporter(progress, "transitions")
    if report is None:
        return stream
    return _WatchedStream(stream, _Counter(stream.total if total is None else total, report))


class _Counter:
    """Adds up the reports of several threads."""

    def __init__(self, total: int, report: Report) -> None:
        self._done, self._total, self._report, self._lock = 0, total, report, Lock()

    def __call__(self, more: int) -> None:
        with self._lock:
            self._done += more
            self._report(self._done, self._total)


@dataclass(frozen=True, eq=False)
class _WatchedStream:
    stream: Any
    count: _Counter

    def __iter__(self) -> Iterator[Any]:
        return _WatchedChunk(self.stream, self.count).pieces()

    def chunks(self) -> list[Any]:
        return [_WatchedChunk(chunk, self.count) for chunk in self.stream.chunks()]


@dataclass(frozen=True, eq=False)
class _WatchedChunk:
    chunk: Any
    count: _Counter

    def __getattr__(self, name: str) -> Any:
        return getattr(self.chunk, name)

    def pieces(self) -> Iterator[Any]:
        for piece in self.chunk.pieces() if hasattr(self.chunk, "pieces") else self.chunk:
            yield piece
            self.count(piece.size)

    def __reduce__(self) -> Any:  # other processes do not report
        return _itself, (self.chunk,)


def _itself(chunk: Any) -> Any:
    return chunk


def announcer(progress: bool | Report | None) -> Watch:
    """A function for lines about rounds: prints them, or calls ``progress(done, total)``."""
    check_progress(progress)
    if callable(progress):
        return lambda line, done, total: progress(done, total)
    if not (sys.stderr.isatty() if progress is None else progress):
        return lambda line, done, total: None
    return lambda line, done, total: print(f"certirl: {line}", file=sys.stderr, flush=True)


class _Line:
    """Rewrites one line ten times a second if the work takes long; clears it at the end."""

    def __init__(self, unit: str) -> None:
        self._unit = unit
        self._start = self._last = time.monotonic()
        self._shown = False

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if done >= total:
            if self._shown:
                sys.stderr.write("\r\033[K")
                sys.stderr.flush()
        elif now - self._start > 0.5 and now - self._last > 0.1:
            left = (now - self._start) * (total - done) / max(done, 1)
            sys.stderr.write(f"\r\033[Kcertirl: {done:,} of {total:,} {self._unit}, {left:.0f} s left")
            sys.stderr.flush()
            self._last, self._shown = now, True
