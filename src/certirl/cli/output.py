"""What a command leaves behind: files, pictures, lines, or one JSON document; nothing is lost if one of them fails."""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from certirl.cli.parsing import DONE, INFEASIBLE, NOT_PROVED, UNDETERMINED
from certirl.ground import archive
from certirl.ground.doors import file_name, printable
from certirl.ground.work import clear_line

STATUSES = {"infeasible": INFEASIBLE, "undetermined": UNDETERMINED}


class Answer(NamedTuple):
    """The end of a command."""

    record: Any  # the result: a record with ``to_dict``, or a dictionary
    code: int = DONE  # the exit code

    def document(self) -> str:
        """The result as JSON."""
        record = self.record if isinstance(self.record, dict) else self.record.to_dict()
        return json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False)


def code_of(status: str, *, proof: bool) -> int:
    """The exit code for the status of a solution, with a proof asked for or not."""
    return STATUSES.get(status, NOT_PROVED if proof and status != "certified" else DONE)


def sentence(problem: BaseException) -> str:
    """What to say of an error: its own sentence, or one for what the system says in another way."""
    if isinstance(problem, MemoryError):
        wanted = re.search(r"allocate ([\d.]+?)\.? (\wi?B|bytes)", str(problem))
        size = f": {wanted[1]} {wanted[2]} in one piece" if wanted else ""
        return f"there is not enough memory{size}; use fewer functions, actions or coordinates, or certirl moments"
    if isinstance(problem, OSError) and problem.errno is not None:
        return f"cannot use {file_name(problem.filename)}: {str(problem.strerror).lower()}"
    return printable(str(problem))


def complain(text: str, *, as_json: bool) -> None:
    """One sentence on standard error and, if JSON was asked for, a document that holds it on standard output."""
    if sys.stderr is not None:
        with suppress(OSError):
            print(f"certirl: {text}", file=sys.stderr, flush=True)
    if as_json and sys.stdout is not None:
        with suppress(OSError):
            print(json.dumps({"error": text}), flush=True)  # escapes: any encoding has them


class _Output:
    """Standard output that cannot stop the work: a failure is kept, and nothing more is written after it.

    What the encoding of a terminal does not have is written as an escape.
    """

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.failure: OSError | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def write(self, text: str) -> int:
        encoding = getattr(self.stream, "encoding", None) or "utf-8"
        clear_line()
        self._try(self.stream.write, text.encode(encoding, "backslashreplace").decode(encoding))
        return len(text)

    def flush(self) -> None:
        self._try(self.stream.flush)

    def _try(self, action: Callable[..., object], *arguments: Any) -> None:
        if self.failure is None:
            try:
                action(*arguments)
            except OSError as problem:
                self.failure = problem
                with suppress(OSError, ValueError):  # or what is still in its buffer would fail again at the exit
                    os.dup2(os.open(os.devnull, os.O_WRONLY), self.stream.fileno())


@contextmanager
def lasting_output() -> Iterator[None]:
    """A context in which a failing standard output stops no command; a closed pipe is not an error."""
    if sys.stdout is None:
        yield
        return
    output = _Output(sys.stdout)
    try:
        with redirect_stdout(output):
            yield
    finally:
        output.flush()
    if output.failure is not None and not isinstance(output.failure, BrokenPipeError):
        raise OSError(f"standard output could not be written: {str(output.failure.strerror).lower()}")


class _Nothing:
    """A stream that drops what is written to it."""

    encoding = "utf-8"

    def write(self, text: str) -> int:
        return len(text)

    def flush(self) -> None: ...


@contextmanager
def lines_of(options: argparse.Namespace) -> Iterator[None]:
    """A context in which printed lines go where the options send them: to stdout, to stderr with --json, nowhere."""
    if options.quiet:
        with redirect_stdout(_Nothing()):
            yield
    elif options.json:
        with redirect_stdout(_Output(sys.stderr)):
            yield
    else:
        yield


def check_outputs(options: argparse.Namespace, read: Sequence[Any] = ()) -> None:
    """Refuse before the work what would fail after it, and a result in place of the data."""
    from certirl import plots

    written = [archive.check_writable(options.output)] if hasattr(options, "output") else []
    if written and getattr(options, "plot", "") is None:  # beside the result
        options.plot = f"{options.output.removesuffix('.npz')}.png"
    if getattr(options, "plot", None):
        written.append(archive.check_writable(options.plot, plots.SUFFIXES))
    inputs_read = {Path(path).resolve() for path in read}
    for target in written:
        if target.resolve() in inputs_read:
            raise ValueError(f"{target} is an input; write the result elsewhere with --output")


def deliver(
    record: Any,
    options: argparse.Namespace,
    code: int = DONE,
    *,
    label: str = "",
    hint: str = "",
    lines: Sequence[Any] = (),
    draw: Callable[[Path], Any] | None = None,
) -> Answer:
    """Write the record and its picture, then print; files that could not be written are an error only after that.

    The file of the record is called ``label``; none is written if it is empty. ``hint`` says what can be done with it.
    ``lines`` are printed first in place of the record, and ``draw`` writes the picture to a path in place of its
    ``plot``.
    """
    from certirl.solver.solution import Solution

    printed, problems = [str(line) for line in lines or [record]], []
    if label and getattr(record, "about", None):
        command = printable(shlex.join(["certirl", *options.words]))
        record = replace(record, about={"command": command, **record.about})
    if label:
        where, problem = _saved(record, options.output)
        printed += [f"{label}: {where}{hint}"] if where else []
        problems += [problem] if problem else []
    if getattr(options, "plot", ""):
        draw = (lambda path: record.plot(path=path)) if draw is None else draw
        has_reward = not isinstance(record, Solution) or record.reward is not None
        printed += _drawn(draw, options.plot, problems) if has_reward else ["No picture: there is no reward to draw"]
    print("\n".join(printed))
    if problems:
        raise OSError("; ".join(problems))
    return Answer(record, code)


def _saved(record: Any, output: str) -> tuple[str, str]:
    """Where the record was saved, in the temporary folder if nowhere else; and what went wrong."""
    try:
        replaced = archive.target_of(output).exists()
        return f"{record.save(output)}{' (replaced)' * replaced}", ""
    except OSError as problem:
        first = sentence(problem)
    try:
        elsewhere = Path(tempfile.mkdtemp(prefix="certirl-")) / Path(output).name
        return str(saved := record.save(elsewhere)), f"{first}; it was saved as {saved} instead"
    except OSError as problem:
        return "", f"{first}, and {sentence(problem)}: it is only printed"


def _drawn(draw: Callable[[Path], Any], picture: str, problems: list[str]) -> list[str]:
    from certirl import plots

    try:
        target = archive.target_of(picture, plots.SUFFIXES)
        replaced = target.exists()
        draw(target)
    except (ImportError, ValueError) as missing:
        return [f"No picture: {missing}"]
    except OSError as problem:
        problems.append(sentence(problem))
        return []
    return [f"Picture: {target}{' (replaced)' * replaced}"]
