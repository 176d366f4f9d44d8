"""Files of transitions in batches: Parquet, CSV and npz behind one interface.

Tables have the columns ``state``, ``action``, ``next_state``; with several coordinates ``state_0, state_1, …`` and
``next_state_0, next_state_1, …``. Other columns are ignored. npz files hold the arrays ``states``, ``actions``,
``next_states``. Rows are counted from 0, in every format.
"""

from __future__ import annotations

import csv
import glob
import hashlib
import importlib
import os
import re
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from certirl.ground.domain import Array
from certirl.ground.doors import shown

SUFFIXES = (".parquet", ".csv", ".npz")
NAMES = ("states", "actions", "next_states")

PathLike = str | os.PathLike[str]
Paths = PathLike | Iterable[PathLike]

# What identifies a file is its length and this many bytes at either end: reading 100 GB twice would be too dear.
_ENDS = 2**16


class Batch(NamedTuple):
    """Consecutive rows of a file, as they stand there: numbers, but not yet checked.

    Attributes:
        first: the number of its first row.
        states: ``[n, d]``; from npz also ``[n]``.
        actions: ``[n]``.
        next_states: like ``states``.
    """

    first: int
    states: Array
    actions: Array
    next_states: Array


class Layout(NamedTuple):
    """What a look at the head or foot of a file tells.

    Attributes:
        coordinates: of a state; None if only reading the file tells (npz).
        groups: rows of each row group (Parquet); empty if the file can only be read from its beginning.
    """

    coordinates: int | None
    groups: tuple[int, ...] = ()


def find_files(paths: Paths) -> tuple[Path, ...]:
    """The files behind a file, folder, glob pattern or a list of these, sorted, each once."""
    asked = [paths] if isinstance(paths, str | os.PathLike) or not isinstance(paths, Iterable) else list(paths)
    for path in asked:
        if not isinstance(path, str | os.PathLike):
            raise TypeError(f"files are named by a path, a pattern or a list of these, got {shown(paths)}")
        if not str(path):
            raise ValueError("a file is named by an empty text: write its path, or . for this folder")
    if not asked:
        raise ValueError("there are no files to read: the list of paths is empty")
    found = sorted((file for path in asked for file in _behind(path)), key=lambda file: file.as_posix())
    seen: dict[Path, Path] = {}
    for file in found:
        if file.suffix.lower() not in SUFFIXES:
            raise ValueError(f"cannot read {file}: transitions come as {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}")
        twice = seen.setdefault(file.resolve(), file)
        if twice is not file:
            raise ValueError(
                f"{file} is named twice{'' if twice == file else f', also as {twice}'}; each file counts once"
            )
    return tuple(found)


def layout(file: Path) -> Layout:
    """Check the columns of a file, from its head or foot alone."""
    if file.suffix.lower() == ".parquet":
        with open_parquet(file) as table:
            wanted = _numeric_columns(table.schema_arrow, file)
        groups = row_groups(file)
        if sum(groups) == 0:
            raise _empty(file)
        return Layout(len(wanted) // 2, groups)
    if file.suffix.lower() == ".csv":
        with file.open(newline="", encoding="utf-8-sig") as stream:
            return Layout(len(_csv_header(stream, file)[0]) // 2)
    return Layout(None)


def row_groups(file: Path) -> tuple[int, ...]:
    """Rows of each row group of a Parquet file; empty for files that can only be read from their beginning."""
    if file.suffix.lower() != ".parquet":
        return ()
    with open_parquet(file) as table:
        meta = table.metadata
        return tuple(meta.row_group(i).num_rows for i in range(meta.num_row_groups))


def runs(groups: Sequence[int], rows: int) -> list[tuple[int, tuple[int, int] | None]]:
    """Cut row groups into runs of at least ``rows`` rows, but for the last: the first row and range of each.

    Without row groups the whole is one.
    """
    if not groups:
        return [(0, None)]
    found: list[tuple[int, tuple[int, int] | None]] = []
    start, first, held = 0, 0, 0
    for group, count in enumerate(groups):
        held += count
        if held >= rows or group == len(groups) - 1:
            found.append((first, (start, group + 1)))
            start, first, held = group + 1, first + held, 0
    return found


def batches(file: Path, rows: int, groups: range | None = None, first: int = 0) -> Iterator[Batch]:
    """Walk a file in batches of at most ``rows`` rows; npz files come as one.

    Args:
        file: the file.
        rows: of a batch, at most.
        groups: only these row groups (Parquet).
        first: the number of the first row in them.
    """
    readers: dict[str, Any] = {".parquet": _parquet_batches, ".csv": _csv_batches, ".npz": _npz_batches}
    more = (groups, first) if file.suffix.lower() == ".parquet" else ()
    seen = first
    for batch in readers[file.suffix.lower()](file, rows, *more):
        if len(batch.actions):
            yield batch
            seen = batch.first + len(batch.actions)
    if seen == 0:
        raise _empty(file)


def count_rows(file: Path) -> int:
    """How many rows a file holds, as cheaply as its format allows; blank lines of a CSV file count, too."""
    if file.suffix.lower() == ".parquet":
        return sum(row_groups(file))
    if file.suffix.lower() == ".csv":
        with file.open("rb") as stream:
            return sum(block.count(b"\n") for block in iter(lambda: stream.read(2**20), b"")) - 1
    return sum(len(batch.actions) for batch in batches(file, 1))


def extremes(file: Path) -> tuple[Array, Array] | None:
    """The smallest and largest value of each column, states first, from the statistics in the foot of a Parquet file.

    None where they are missing or odd (nulls, infinities): then only reading tells, and names the row.
    """
    if file.suffix.lower() != ".parquet":
        return None
    with open_parquet(file) as table:
        wanted, meta = _numeric_columns(table.schema_arrow, file), table.metadata
        bounds = []
        for group in (meta.row_group(i) for i in range(meta.num_row_groups)):
            places = {group.column(i).path_in_schema: i for i in range(group.num_columns)}
            found = [group.column(places[name]).statistics for name in wanted]
            if group.num_rows == 0:
                continue
            if any(one is None or not one.has_min_max or not one.has_null_count or one.null_count for one in found):
                return None
            bounds.append([(one.min, one.max) for one in found])
    if not all(
        isinstance(value, int | float) and np.isfinite(value) for row in bounds for pair in row for value in pair
    ):
        return None
    box = np.array(bounds, dtype=np.float64)
    return box[:, :, 0].min(axis=0), box[:, :, 1].max(axis=0)


def fingerprint(file: Path) -> str:
    """Sixteen digits that tell files apart: a hash of the length and both ends."""
    size = file.stat().st_size
    with file.open("rb") as stream:
        head = stream.read(_ENDS)
        stream.seek(max(size - _ENDS, 0))
        return hashlib.sha256(b"%d:" % size + head + stream.read(_ENDS)).hexdigest()[:16]


def _behind(path: PathLike) -> list[Path]:
    place = Path(path)
    if place.is_dir():
        # Names with a leading underscore or dot are the notes of whoever wrote the folder.
        inside = [file for file in place.iterdir() if file.suffix.lower() in SUFFIXES and file.name[0] not in "._"]
        kinds = sorted({file.suffix.lower() for file in inside})
        if not kinds:
            raise FileNotFoundError(
                f"there is no {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]} file in the folder {place}"
            )
        if len(kinds) > 1:
            raise ValueError(
                f"the folder {place} holds {' and '.join(kinds)} files: name those to read, say {place}/*{kinds[-1]}"
            )
        return inside
    if place.exists():
        return [place]
    if glob.has_magic(str(path)):
        matching = [Path(name) for name in glob.glob(str(path), recursive=True)]
        if not matching:
            raise FileNotFoundError(f"there is no file that matches {path}")
        return matching
    raise FileNotFoundError(f"there is no file {place}")


def _empty(file: Path) -> ValueError:
    return ValueError(f"{file}: there are no transitions in it; leave it out")


def separated(names: Sequence[str]) -> str:
    """A hint where the columns of a CSV file are separated by something else than commas, else nothing."""
    other = next((mark for mark in (";", "\t", "|") if any(mark in name for name in names)), None)
    return "" if other is None else f"; separate columns by commas, not by {other!r}, and write decimal points"


def decimal_commas(fields: Sequence[str]) -> str:
    """A hint where some field is a number with a decimal comma, else nothing."""
    comma = any(re.fullmatch(r"\s*[-+]?\d+,\d+\s*", field) for field in fields)
    return "; write decimal points, not commas" if comma else ""


def as_cell(text: str) -> float:
    """The number in a cell, as NumPy reads it: Python also allows 1_000 and digits of other scripts."""
    if "_" in text or not text.isascii():
        raise ValueError(text)
    return float(text)


def csv_rows(stream: Any, rows: int, width: int) -> Iterator[tuple[int, list[str]]]:
    """The rows of a CSV file in batches, each with the number of its first; blank lines and comments (#) are none.

    Args:
        stream: the file, after its header.
        rows: lines to read at a time.
        width: fields of the header, as many as every row must have.
    """
    first = 0
    while True:
        try:
            lines = list(islice(stream, rows))
        except UnicodeDecodeError:
            raise ValueError("it is not a text file in UTF-8") from None
        if not lines:
            return
        lines = [line for line in lines if (text := line.lstrip()) and text[0] != "#"]
        _check_fields(lines, width, first)
        count = len(lines)
        if count:
            yield first, lines
        del lines  # or the text of two batches would be in memory
        first += count


def _check_fields(lines: list[str], width: int, first: int) -> None:
    """Refuse lines with more or fewer fields than the header, and quotes that are not closed in their line."""
    quoted = [(row, line) for row, line in enumerate(lines, start=first) if '"' in line]
    for row, line in quoted:
        if line.count('"') % 2:
            raise ValueError(f"row {row} has a quote that is not closed: {line.strip()[:60]!r}")
    if not quoted and {line.count(",") for line in lines} <= {width - 1}:
        return
    for number, fields in enumerate(csv.reader(lines)):
        if len(fields) != width:
            more = "write decimal points, not commas, and quote texts that hold commas"
            why = more if len(fields) > width else "the line is cut short"
            text = repr(lines[number].strip()[:60])
            raise ValueError(f"row {first + number} has {len(fields)} fields, the header {width}: {text}; {why}")


def _wanted_columns(names: Sequence[str], file: Path) -> list[str]:
    """The columns of states, then the action, then the next states."""
    try:
        states, next_states = coordinates(names, "state"), coordinates(names, "next_state")
    except ValueError as problem:
        raise ValueError(f"{file}: {problem}") from None
    if "action" not in names or not states or len(states) != len(next_states):
        raise ValueError(
            f"{file} needs the columns state, action, next_state (or state_0, …, next_state_0, …); "
            f"it has {', '.join(names) or 'no header'}{separated(names)}"
        )
    wanted = [*states, "action", *next_states]
    for name in wanted:
        if names.count(name) > 1:
            raise ValueError(f"{file} has more than one column {name}")
    return wanted


def coordinates(names: Sequence[str], name: str) -> list[str]:
    """``name`` if there is such a column, else ``name_0, name_1, …``, of which none may be missing."""
    numbered = sorted(int(other[len(name) + 1 :]) for other in names if re.fullmatch(rf"{name}_[0-9]+", other))
    if name in names:
        if numbered:
            raise ValueError(f"it has both a column {name} and a column {name}_{numbered[0]}: remove or rename one")
        return [name]
    missing = next((k for k in range(len(numbered)) if k not in numbered), None)
    if missing is not None:
        raise ValueError(f"it has a column {name}_{numbered[-1]} but none {name}_{missing}")
    return [f"{name}_{k}" for k in range(len(numbered))]


# Parquet, through pyarrow, which not everyone has.


def open_parquet(file: Path) -> Any:
    """A Parquet file, opened, or a sentence."""
    try:
        parquet = importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise ImportError(f'{file} cannot be read without pyarrow: pip install "certirl[parquet]"') from None
    try:
        # Page by page: by default the compressed columns of a whole row group are fetched before its first row.
        return parquet.ParquetFile(file, pre_buffer=False, buffer_size=2**20, page_checksum_verification=True)
    except PermissionError:
        raise
    except (OSError, ValueError, RuntimeError):
        raise _damaged_parquet(file) from None


def _damaged_parquet(file: Path) -> ValueError:
    return ValueError(f"{file} is not a Parquet file, or it is damaged or cut short")


def _numeric_columns(schema: Any, file: Path) -> list[str]:
    types = importlib.import_module("pyarrow").types
    wanted = _wanted_columns(schema.names, file)
    for name in wanted:
        kind = schema.field(name).type
        if not (types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)):
            raise ValueError(f"{file}: the column {name} holds {kind}, not numbers")
    return wanted


def _parquet_batches(file: Path, rows: int, groups: range | None, first: int) -> Iterator[Batch]:
    with open_parquet(file) as table:
        wanted = _numeric_columns(table.schema_arrow, file)
        chosen = range(table.metadata.num_row_groups) if groups is None else groups
        found = table.iter_batches(batch_size=rows, row_groups=list(chosen), columns=wanted)
        while True:
            try:
                part = next(found, None)
            except (OSError, ValueError, RuntimeError):
                raise _damaged_parquet(file) from None
            if part is None:
                return
            columns = [_numbers(part.column(name), name, first, file) for name in wanted]
            d = len(wanted) // 2
            yield Batch(first, np.stack(columns[:d], axis=1), columns[d], np.stack(columns[d + 1 :], axis=1))
            first += part.num_rows


def _numbers(column: Any, name: str, first: int, file: Path) -> Array:
    if column.null_count:
        row = first + int(column.is_null().to_numpy(zero_copy_only=False).argmax())
        raise ValueError(f"{file}: {name} is missing (null) in row {row}")
    arrow = importlib.import_module("pyarrow")
    if arrow.types.is_decimal(column.type):
        column = column.cast(arrow.float64())
    return np.asarray(column.to_numpy(zero_copy_only=False))


# CSV, through NumPy: one reader, whatever else is installed.


def _csv_header(stream: Any, file: Path) -> tuple[list[int], int]:
    """Where the wanted columns are, and how many there are; the stream then stands at the first row."""
    try:
        header = [name.strip() for name in next(csv.reader([stream.readline()]), [])]
    except UnicodeDecodeError:
        raise ValueError(f"{file} is not a text file in UTF-8") from None
    return [header.index(name) for name in _wanted_columns(header, file)], len(header)


def _csv_batches(file: Path, rows: int) -> Iterator[Batch]:
    with file.open(newline=None, encoding="utf-8-sig") as stream:
        wanted, width = _csv_header(stream, file)
        d = len(wanted) // 2
        try:
            for first, lines in csv_rows(stream, rows, width):
                values = _parsed(lines, wanted, first)
                del lines
                yield Batch(first, values[:, :d], values[:, d], values[:, d + 1 :])
        except ValueError as problem:
            raise ValueError(f"{file}: {problem}") from None


def _parsed(lines: list[str], wanted: list[int], first: int) -> NDArray[np.float64]:
    try:
        values = np.loadtxt(lines, delimiter=",", usecols=wanted, ndmin=2, quotechar='"', comments=None)
    except (ValueError, IndexError) as problem:
        raise ValueError(f"a line is not all numbers: {_first_bad_line(lines, wanted, first) or problem}") from None
    return np.asarray(values)


def _first_bad_line(lines: list[str], wanted: list[int], first: int) -> str | None:
    for row, line in enumerate(lines, start=first):
        fields = next(csv.reader([line]), [])
        try:
            for place in wanted:
                as_cell(fields[place])
        except (ValueError, IndexError):
            return f"row {row} is {line.strip()[:80]!r}{decimal_commas(fields)}"
    return None


def _npz_batches(file: Path, rows: int) -> Iterator[Batch]:
    try:
        with file.open("rb") as stream, np.load(stream, allow_pickle=False) as stored:
            missing = [name for name in NAMES if name not in stored.files]
            if missing:
                raise KeyError(f"{file} has no {', '.join(missing)}; it holds {', '.join(stored.files) or 'nothing'}")
            states, actions, next_states = (np.atleast_1d(stored[name]) for name in NAMES)
    except KeyError as problem:
        raise ValueError(problem.args[0]) from None
    except (OSError, ValueError, TypeError, EOFError, AttributeError, zipfile.BadZipFile):
        raise ValueError(f"{file} is not an npz file of plain arrays, or it is damaged or cut short") from None
    yield Batch(0, states, actions, next_states)
