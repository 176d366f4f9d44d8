"""Formats of tables: Parquet, CSV and npz behind one interface, in batches of rows.

`Table` is the interface; another kind of table is one more subclass of it, made by `open_table`. `certirl.data.tables`
says which columns to read. Rows are counted from 0 in every format. Errors name the row; the caller adds the file.
"""

from __future__ import annotations

import csv
import glob
import hashlib
import importlib
import os
import re
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from certirl.ground.domain import Array
from certirl.ground.doors import shown

PathLike = str | os.PathLike[str]
Paths = PathLike | Iterable[PathLike]
ENDS = ("terminated", "truncated")
ColumnValues = dict[str, NDArray[Any]]  # the values of each column, nan where one is missing

# A file is identified by its length and this many bytes at both ends: hashing 100 GB would take minutes.
_HASHED = 2**16
# What libraries raise if they cannot read a file.
_DAMAGES = (OSError, ValueError, TypeError, KeyError, EOFError, AttributeError, RuntimeError, zipfile.BadZipFile)
NUMBER_ACTIONS = "; number the actions 0, 1, …"  # advice about a column of names
_TRUTH = {"": np.nan, "true": 1.0, "false": 0.0}  # cells that stand for numbers in a column where some may be missing


class Columns(NamedTuple):
    """What the columns of a table mean; None or empty for those that it does not have.

    Attributes:
        states, next_states: one or more columns of numbers.
        episode: the column that says which episode a row is from, by numbers or by names.
        ends: the columns that say where an episode ended, among ``terminated`` and ``truncated``.
        step: it has a column ``step``, the order within an episode.
        by_episode: rows are steps of episodes; False if every row is taken by itself.
        dimension: the number of coordinates of a state.
    """

    states: tuple[str, ...]
    next_states: tuple[str, ...]
    episode: str | None
    ends: tuple[str, ...]
    step: bool
    by_episode: bool
    dimension: int

    @property
    def by_ends(self) -> bool:
        """Only their ends tell episodes apart."""
        return self.episode is None and bool(self.ends)

    @property
    def numbers(self) -> tuple[str, ...]:
        """The columns to read that hold a number in every row."""
        return (*self.states, *self.next_states, *(("step",) if self.by_episode and self.step else ()))

    @property
    def optional(self) -> tuple[str, ...]:
        """The columns to read of numbers or truth values, which may be missing."""
        return ("action", *(name for name in self.ends if name == ENDS[0] or self.by_ends))

    @property
    def names(self) -> list[str]:
        """All columns to read, each once."""
        return list(dict.fromkeys([*self.numbers, *self.optional, *filter(None, [self.episode])]))

    def __str__(self) -> str:
        after = "next states in columns of their own" if self.next_states else "next states from the rows that follow"
        ends = "terminal where terminated says so" if ENDS[0] in self.ends else "no state known to be terminal"
        by_ends = f"a new episode after each row with {' or '.join(self.ends)}"
        which = by_ends if self.by_ends else f"one episode for each value of the column {self.episode}"
        return f"{which}; {after}; {ends}"


class Section(NamedTuple):
    """Rows of a table that can be read by themselves.

    Attributes:
        first: the number of its first row.
        groups: its row groups, from the first up to but not including the second; None for the whole table.
    """

    first: int = 0
    groups: tuple[int, int] | None = None


WHOLE = Section()


class Table(ABC):
    """A table in a file: the names of its columns, and its rows in batches."""

    def __init__(self, file: Path) -> None:
        self.file = file

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """Its columns, found without reading rows."""

    @abstractmethod
    def batches(self, columns: Columns, rows: int, section: Section = WHOLE) -> Iterator[ColumnValues]:
        """Read a section in batches of at most ``rows`` rows, none of them empty.

        Columns of numbers keep their precision. Labels that are names are numbered in the order of their appearance.
        """

    @abstractmethod
    def count(self) -> int:
        """The number of rows; blank lines of a CSV file count as well."""

    def coordinates(self, names: Sequence[str]) -> int:
        """The number of coordinates in these columns; arrays of npz files may be matrices."""
        return len(names)

    def sections(self, columns: Columns, rows: int) -> list[Section]:
        """Cut the table into sections of at least ``rows`` rows, where the format allows."""
        return [WHOLE]

    def following(self, section: Section) -> Section | None:
        """All rows after a section; None if it extends to the end."""
        return None

    def extremes(self, names: Sequence[str]) -> tuple[Array, Array] | None:
        """The smallest and largest value of each column; None if rows must be read for that."""
        return None


def open_table(file: Path) -> Table:
    """Open the table in a file; its suffix says which format it has."""
    return _FORMATS[file.suffix.lower()](file)


@contextmanager
def _undamaged(format: str) -> Iterator[None]:
    """Refuse, in one sentence, a file that a library cannot read as this format."""
    try:
        yield
    except PermissionError:
        raise
    except _DAMAGES:
        raise ValueError(f"it is not {format}, or it is damaged or cut short") from None


@contextmanager
def in_file(*files: Path | str) -> Iterator[None]:
    """Name the file, or the first of several, in every error raised in here."""
    try:
        yield
    except ValueError as problem:
        raise ValueError(f"{files[0]}{' …' * (len(files) > 1)}: {problem}") from None


def find_files(paths: Paths) -> tuple[Path, ...]:
    """Find the files behind a path, folder, pattern or a list of these; sorted, each once."""
    listed = [paths] if isinstance(paths, str | os.PathLike) or not isinstance(paths, Iterable) else list(paths)
    for path in listed:
        if not isinstance(path, str | os.PathLike):
            raise TypeError(f"files are named by a path, a pattern or a list of these, got {shown(paths)}")
        if not str(path):
            raise ValueError("a file is named by an empty text: write its path, or . for this folder")
    if not listed:
        raise ValueError("there are no files to read: the list of paths is empty")
    files = sorted((file for path in listed for file in _files_of(path)), key=lambda file: file.as_posix())
    first_names: dict[Path, Path] = {}
    for file in files:
        if file.suffix.lower() not in _FORMATS:
            raise ValueError(f"cannot read {file}: transitions come as {_suffixes()}")
        first = first_names.setdefault(file.resolve(), file)
        if first is not file:
            other = "" if first == file else f", also as {first}"
            raise ValueError(f"{file} is named twice{other}; each file counts once")
    return tuple(files)


def fingerprint(file: Path) -> str:
    """Sixteen digits that tell files apart: a hash of the length and both ends."""
    size = file.stat().st_size
    with file.open("rb") as stream:
        head = stream.read(_HASHED)
        stream.seek(max(size - _HASHED, 0))
        return hashlib.sha256(b"%d:" % size + head + stream.read(_HASHED)).hexdigest()[:16]


def separator_hint(names: Sequence[str]) -> str:
    """A hint if the columns of a CSV file are not separated by commas, else nothing."""
    separator = next((mark for mark in (";", "\t", "|") if any(mark in name for name in names)), None)
    return "" if separator is None else f"; separate columns by commas, not by {separator!r}, and write decimal points"


def _suffixes() -> str:
    *first, last = _FORMATS
    return f"{', '.join(first)} or {last}"


def _files_of(path: PathLike) -> list[Path]:
    place = Path(path)
    if place.is_dir():
        # Files with a leading underscore or dot are notes of the program that wrote the folder.
        files = [file for file in place.iterdir() if file.suffix.lower() in _FORMATS and file.name[0] not in "._"]
        suffixes = sorted({file.suffix.lower() for file in files})
        if not suffixes:
            raise FileNotFoundError(f"there is no {_suffixes()} file in the folder {place}")
        if len(suffixes) > 1:
            raise ValueError(
                f"the folder {place} holds {' and '.join(suffixes)} files: name those to read, say "
                f"{place}/*{suffixes[-1]}"
            )
        return files
    if place.exists():
        return [place]
    if glob.has_magic(str(path)):
        files = [Path(name) for name in glob.glob(str(path), recursive=True)]
        if not files:
            raise FileNotFoundError(f"there is no file that matches {path}")
        return files
    raise FileNotFoundError(f"there is no file {place}")


class _Labels:
    """Numbers for names, in the order in which they appear; nan for an empty name."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def __call__(self, name: str) -> float:
        text = name.strip()
        return self._numbers.setdefault(text, len(self._numbers)) if text else np.nan

    def of(self, names: Iterable[Any]) -> NDArray[np.float64]:
        return np.array([np.nan if name is None else self(str(name)) for name in names], dtype=np.float64)


class _Parquet(Table):
    """A Parquet file, read by pyarrow, which is an optional dependency."""

    @cached_property
    def _footer(self) -> tuple[Any, tuple[int, ...]]:
        """The schema, and the rows of each row group."""
        with self._opened() as stored:
            metadata = stored.metadata
            return stored.schema_arrow, tuple(metadata.row_group(i).num_rows for i in range(metadata.num_row_groups))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._footer[0].names)

    def count(self) -> int:
        return sum(self._footer[1])

    def sections(self, columns: Columns, rows: int) -> list[Section]:
        schema, groups = self._footer
        if columns.episode is not None and not _is_number(schema.field(columns.episode).type):
            return [WHOLE]  # names are numbered as they appear
        sections, start, first, size = list[Section](), 0, 0, 0
        for end, count in enumerate(groups, start=1):
            size += count
            if size >= rows or end == len(groups):
                sections.append(Section(first, (start, end)))
                start, first, size = end, first + size, 0
        return sections or [WHOLE]

    def following(self, section: Section) -> Section | None:
        groups = self._footer[1]
        if section.groups is None or section.groups[1] == len(groups):
            return None
        return Section(sum(groups[: section.groups[1]]), (section.groups[1], len(groups)))

    def batches(self, columns: Columns, rows: int, section: Section = WHOLE) -> Iterator[ColumnValues]:
        groups, labels = range(*section.groups or (0, len(self._footer[1]))), _Labels()
        with self._opened() as stored:
            batches = stored.iter_batches(batch_size=rows, row_groups=list(groups), columns=columns.names)
            while True:
                with _undamaged("a Parquet file"):
                    batch = next(batches, None)
                if batch is None:
                    return
                if batch.num_rows:
                    yield {name: _values(batch.column(name), name, columns, labels) for name in columns.names}

    def extremes(self, names: Sequence[str]) -> tuple[Array, Array] | None:
        bounds = []
        with self._opened() as stored:
            metadata = stored.metadata
            for group in (metadata.row_group(i) for i in range(metadata.num_row_groups)):
                places = {group.column(i).path_in_schema: i for i in range(group.num_columns)}
                statistics: list[Any] = [group.column(places[name]).statistics for name in names if name in places]
                if group.num_rows == 0:
                    continue
                if len(statistics) < len(names) or not all(
                    column and column.has_min_max and column.has_null_count and not column.null_count
                    for column in statistics
                ):
                    return None
                bounds.append([(column.min, column.max) for column in statistics])
        values = [value for group in bounds for pair in group for value in pair]
        if not values or not all(isinstance(value, int | float) and np.isfinite(value) for value in values):
            return None  # nulls, infinities and other types: reading the rows names the first of them
        box = np.array(bounds, dtype=np.float64)
        return box[:, :, 0].min(axis=0), box[:, :, 1].max(axis=0)

    def _opened(self) -> Any:
        try:
            parquet = importlib.import_module("pyarrow.parquet")
        except ImportError:
            raise ImportError(f'{self.file} cannot be read without pyarrow: pip install "certirl[parquet]"') from None
        with _undamaged("a Parquet file"):
            # Page by page: by default the compressed columns of a whole row group are fetched before its first row.
            return parquet.ParquetFile(self.file, pre_buffer=False, buffer_size=2**20, page_checksum_verification=True)


def _is_number(kind: Any) -> bool:
    types = importlib.import_module("pyarrow").types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind))


def _values(column: Any, name: str, columns: Columns, labels: _Labels) -> NDArray[Any]:
    """The values of an Arrow column; names become numbers, decimals and truth values floats."""
    arrow = importlib.import_module("pyarrow")
    types, kind = arrow.types, column.type
    if name == columns.episode and not _is_number(kind):
        return labels.of(column.to_pylist())
    if types.is_null(kind):
        return np.full(len(column), np.nan)
    if types.is_boolean(kind) and name in columns.optional:
        column = column.cast(arrow.int8())
    elif types.is_decimal(kind):
        column = column.cast(arrow.float64())
    elif not _is_number(kind):
        raise ValueError(f"the column {name} holds {kind}, not numbers{NUMBER_ACTIONS * (name == 'action')}")
    return np.asarray(column.to_numpy(zero_copy_only=False))


class _Csv(Table):
    """A CSV file with a header, which NumPy begins with #; blank lines and lines that begin with # are no rows."""

    @cached_property
    def names(self) -> tuple[str, ...]:
        try:
            with self.file.open(newline="", encoding="utf-8-sig") as stream:
                header = stream.readline().lstrip().removeprefix("#")
                return tuple(name.strip() for name in next(csv.reader([header]), []))
        except UnicodeDecodeError:
            raise ValueError(_NO_TEXT) from None

    def count(self) -> int:
        with self.file.open("rb") as stream:
            return sum(block.count(b"\n") for block in iter(lambda: stream.read(2**20), b"")) - 1

    def batches(self, columns: Columns, rows: int, section: Section = WHOLE) -> Iterator[ColumnValues]:
        places, first = {name: self.names.index(name) for name in columns.names}, 0
        converters: dict[int, Any] | None = None
        plain = True  # as long as all cells are numbers, NumPy converts them without calling Python
        with self.file.open(newline=None, encoding="utf-8-sig") as stream:
            stream.readline()
            while (lines := _lines(stream, rows)) is not None:
                _check_fields(lines, len(self.names), first)
                count = len(lines)
                if not count:
                    continue
                if converters is None:
                    converters = _converters(lines, places, columns)
                cells = _numbers(lines, places, {}) if plain else None
                if cells is None:
                    plain, cells = False, _numbers(lines, places, converters)
                if cells is None:
                    raise ValueError(_fault(lines, places, converters, first))
                del lines  # or the text of two batches would be in memory
                yield dict(zip(places, cells.T, strict=True))
                first += count


_NO_TEXT = "it is not a text file in UTF-8"


def _lines(stream: Any, rows: int) -> list[str] | None:
    """The next lines that are rows; None at the end of the file."""
    try:
        lines = list(islice(stream, rows))
    except UnicodeDecodeError:
        raise ValueError(_NO_TEXT) from None
    return [line for line in lines if (text := line.lstrip()) and text[0] != "#"] if lines else None


def _check_fields(lines: list[str], width: int, first: int) -> None:
    """Refuse lines with more or fewer fields than the header, and quotes left open."""
    quoted = [(row, line) for row, line in enumerate(lines, start=first) if '"' in line]
    for row, line in quoted:
        if line.count('"') % 2:
            raise ValueError(f"row {row} has a quote that is not closed: {line.strip()[:60]!r}")
    if not quoted and {line.count(",") for line in lines} <= {width - 1}:
        return
    for row, fields in enumerate(csv.reader(lines)):
        if len(fields) != width:
            many = "write decimal points, not commas, and quote texts that hold commas"
            why = many if len(fields) > width else "the line is cut short"
            text = repr(lines[row].strip()[:60])
            raise ValueError(f"row {first + row} has {len(fields)} fields, the header {width}: {text}; {why}")


def _numbers(lines: list[str], places: dict[str, int], converters: dict[int, Any]) -> Array | None:
    """The cells ``[n, columns]``, through these converters; None if some cell is no number."""
    settings: dict[str, Any] = {"usecols": list(places.values()), "converters": converters or None, "comments": None}
    try:
        return np.asarray(np.loadtxt(lines, delimiter=",", quotechar='"', ndmin=2, encoding=None, **settings))
    except (ValueError, IndexError):
        return None


def _converters(lines: list[str], places: dict[str, int], columns: Columns) -> dict[int, Any]:
    """Functions for cells that may be no numbers; labels are names if the first is none."""
    converters: dict[int, Any] = {places[name]: _optional_number for name in columns.optional}
    if columns.episode is not None:
        place = places[columns.episode]
        cell = next(csv.reader(lines))[place].strip()
        try:
            float(cell)
        except ValueError:
            if cell:
                converters[place] = _Labels()
    return converters


def _number(cell: str) -> float:
    """The number in a cell, as NumPy reads it: without 1_000 and digits of other scripts."""
    if "_" in cell or not cell.isascii():
        raise ValueError(cell)
    return float(cell)


def _optional_number(cell: str) -> float:
    value = _TRUTH.get(cell)
    if value is None:
        value = _TRUTH.get(cell.strip().lower())
    return _number(cell) if value is None else value


def _fault(lines: list[str], places: dict[str, int], converters: dict[int, Any], first: int) -> str:
    """The first cell that cannot be read, in a sentence."""
    for row, line in enumerate(lines, start=first):
        cells = next(csv.reader([line]))
        for name, place in places.items():
            try:
                converters.get(place, _number)(cells[place])
            except ValueError:
                if not cells[place].strip():
                    return missing(name, row)
                comma = any(re.fullmatch(r"\s*[-+]?\d+,\d+\s*", cell) for cell in cells)
                hint = "; write decimal points, not commas" if comma else NUMBER_ACTIONS * (name == "action")
                return f"the column {name} holds {cells[place][:60]!r} in row {row}, not a number{hint}"
    return f"some cell in rows {first} to {first + len(lines) - 1} is no number"


def missing(name: str, row: int) -> str:
    """A sentence about a value that is not there."""
    return f"{name} is missing or not finite in row {row}"


# The columns that arrays of an npz file stand for.
_ARRAYS = {
    "states": "state",
    "actions": "action",
    "next_states": "next_state",
    "episodes": "episode",
    "terminal": "terminated",
}


class _Npz(Table):
    """An npz file, whose arrays are columns; that of the states may be a matrix ``[n, d]``."""

    @cached_property
    def _shapes(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Name and shape of the array behind each column, from their headers."""
        readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
        shapes = {}
        with _undamaged("an npz file of plain arrays"), zipfile.ZipFile(self.file) as archive:
            for member in archive.namelist():
                with archive.open(member) as stream:
                    shape, _, _ = readers[np.lib.format.read_magic(stream)](stream)
                array = member.removesuffix(".npy")
                shapes[_ARRAYS.get(array, array)] = array, shape
        return shapes

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._shapes)

    def coordinates(self, names: Sequence[str]) -> int:
        shapes = [self._shapes[name][1] for name in names]
        return sum(shape[1] if len(shape) == 2 else 1 for shape in shapes)

    def count(self) -> int:
        _, shape = self._shapes["action"]
        return shape[0] if shape else 1

    def batches(self, columns: Columns, rows: int, section: Section = WHOLE) -> Iterator[ColumnValues]:
        arrays = {name: self._shapes[name][0] for name in columns.names}
        with (
            _undamaged("an npz file of plain arrays"),
            self.file.open("rb") as stream,
            np.load(stream, allow_pickle=False) as stored,
        ):
            cells = {name: np.atleast_1d(stored[array]) for name, array in arrays.items()}
        if len({len(values) for values in cells.values()}) > 1:
            lengths = ", ".join(f"{len(cells[name])} {array}" for name, array in arrays.items())
            raise ValueError(f"its arrays must be equally long, got {lengths}")
        for name, values in cells.items():
            if name == columns.episode and values.dtype.kind in "US":
                cells[name] = _Labels().of(values.tolist())
        if len(cells[columns.names[0]]):
            yield cells


_FORMATS: dict[str, type[Table]] = {".parquet": _Parquet, ".csv": _Csv, ".npz": _Npz}
