"""Formats of tables: files and data frames behind one interface, in batches of rows.

`Table` is the interface; another kind of table is one more subclass of it, made by `open_table`. `certirl.data.tables`
says which columns to read. Rows are counted from 0 in every format. Errors name the row; the caller adds the file.
"""

from __future__ import annotations

import csv
import glob
import gzip
import hashlib
import importlib
import io
import os
import re
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import cached_property, partial
from itertools import islice
from numbers import Real
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from certirl.ground.archive import as_path
from certirl.ground.domain import MOST_ACTIONS, Array
from certirl.ground.doors import as_text, file_name, printable, setting, shown
from certirl.ground.unpacking import TooLargeError, arrays_of, regular, unzipped

ColumnValues = dict[str, NDArray[Any]]

# A file is identified by its length and this many bytes at both ends: hashing 100 GB would take minutes.
_HASHED = 2**16
_HEAD = 64  # rows at either end that identify a data frame
_BLOCK = 2**16  # rows of a part of a data frame
_LOOKED_AT = 1000  # lines of a text file in which decimal commas are looked for
# What libraries raise if they cannot read a file.
_DAMAGES = (
    OSError, ValueError, TypeError, KeyError, EOFError, AttributeError, RuntimeError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip
# Texts that stand for a missing value; "none" may be the name of an action.
_MISSING = frozenset(["", "NA", "na", "N/A", "n/a", "NaN", "nan", "NAN", "NULL", "null", "None", "NaT"])
_TRUTH = {"true": 1.0, "false": 0.0}


class Columns(NamedTuple):
    """What the columns of a table mean; None or empty for those that it does not have.

    Attributes:
        states, next_states: one or more columns of numbers.
        action: the column of the actions.
        episode: the column that says which episode a row is from, by numbers or by names.
        terminated: the column that marks terminal states.
        truncated: the column that marks episodes that were cut off.
        step: the order within an episode, numbers or times.
        by_episode: rows are steps of episodes; False if every row is taken by itself.
        dimension: the number of coordinates of a state.
        actions: the names of actions 0, 1, …, if the column holds names.
        delimiter: of a text file.

    :meta private:
    """

    states: tuple[str, ...]
    next_states: tuple[str, ...]
    action: str
    episode: str | None
    terminated: str | None
    truncated: str | None
    step: str | None
    by_episode: bool
    dimension: int
    actions: tuple[str, ...] = ()
    delimiter: str | None = None

    @property
    def ends(self) -> tuple[str, ...]:
        """The columns that say where an episode ended."""
        return tuple(filter(None, (self.terminated, self.truncated)))

    @property
    def by_ends(self) -> bool:
        """Only their ends tell episodes apart."""
        return self.episode is None and bool(self.ends)

    @property
    def flags(self) -> tuple[str, ...]:
        """The columns of truth values to read."""
        return self.ends if self.by_ends else tuple(filter(None, (self.terminated,)))

    @property
    def required(self) -> tuple[str, ...]:
        """The columns to read that have a value in every row."""
        order = (self.step,) if self.by_episode else ()
        return (*self.states, *self.next_states, *filter(None, (*order, self.episode)))

    @property
    def names(self) -> list[str]:
        """All columns to read, each once."""
        return list(dict.fromkeys([*self.required, self.action, *self.flags]))

    def converters(self) -> dict[str, Callable[[Any], float]]:
        """For each column the function that makes a number of a cell; nan for a missing one."""
        special: dict[str | None, Callable[[Any], float]] = dict.fromkeys(self.flags, _truth)
        special |= {self.action: partial(_action, self.actions) if self.actions else _truth}
        special |= {self.step: _time, self.episode: partial(_label, {})}
        return {name: special.get(name, _number) for name in self.names}

    def __str__(self) -> str:
        after = "next states in columns of their own" if self.next_states else "next states from the rows that follow"
        ends = f"terminal where {self.terminated} says so" if self.terminated else "no state known to be terminal"
        which = f"one episode for each value of the column {self.episode}"
        if self.episode is None:
            which = f"a new episode after each row with {' or '.join(self.ends)}" if self.ends else "one episode"
        return f"{which}; {after}; {ends}"


def _is_missing(cell: Any) -> bool:
    if isinstance(cell, str):
        return cell.strip() in _MISSING
    return cell is None or type(cell).__name__ in ("NAType", "NaTType") or (isinstance(cell, Real) and cell != cell)


def _number(cell: Any) -> float:
    """The number in a cell; texts as NumPy reads them, without 1_000 and digits of other scripts."""
    if isinstance(cell, str):
        if "_" in cell or not cell.isascii():
            raise ValueError(cell)
        return np.nan if _is_missing(cell) else float(cell)
    if isinstance(cell, Real | Decimal) and not isinstance(cell, bool | np.bool_):
        return float(cell)
    if _is_missing(cell):
        return np.nan
    raise ValueError(cell)


def _truth(cell: Any) -> float:
    """A number, or 1 for True and 0 for False."""
    if isinstance(cell, bool | np.bool_):
        return float(cell)
    value = _TRUTH.get(cell.strip().lower()) if isinstance(cell, str) else None
    return _number(cell) if value is None else value


def _is_name(cell: Any) -> bool:
    """Whether a cell is a text that is neither a number nor a truth value."""
    try:
        return isinstance(cell, str) and not _is_missing(cell) and _truth(cell) is None
    except ValueError:
        return True


def _action(names: tuple[str, ...], cell: Any) -> float:
    return np.nan if _is_missing(cell) else float(names.index(str(cell).strip()))


def _label(numbers: dict[str, int], cell: Any) -> float:
    """The number of a name, in the order of their appearance."""
    text = str(cell).strip() if isinstance(cell, str) or not _is_missing(cell) else ""
    return numbers.setdefault(text, len(numbers)) if text else np.nan


def _time(cell: Any) -> float:
    """A number, or the seconds since 1970 of a time; in UTC if it names no time zone."""
    try:
        return _number(cell)
    except ValueError:
        moment = datetime.fromisoformat(cell.strip()) if isinstance(cell, str) else cell
    if not isinstance(moment, datetime):
        if not isinstance(moment, date):
            raise ValueError(cell)
        moment = datetime(moment.year, moment.month, moment.day)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


class Section(NamedTuple):
    """Rows of a table that can be read by themselves.

    Attributes:
        first: the number of its first row.
        blocks: its blocks, from the first up to but not including the second; None for the whole table.

    :meta private:
    """

    first: int = 0
    blocks: tuple[int, int] | None = None


WHOLE = Section()


class Table(ABC):
    """A table in a file or in memory: the names of its columns, and its rows in batches.

    Attributes:
        name: the file, or what kind of data frame it is, for errors.
        unit: "file" or "data frame".
        kind: its format.
        delimiter: of a text file; None for other formats.
        notes: what was assumed about it, in sentences.

    :meta private:
    """

    name: str
    unit: str = "file"
    kind: str
    delimiter: str | None = None
    notes: tuple[str, ...] = ()

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """Its columns, found without reading rows."""

    @abstractmethod
    def raw(self, names: Sequence[str], rows: int, section: Section = WHOLE) -> Iterator[ColumnValues]:
        """The columns of a section as they are, in batches of at most ``rows`` rows, none of them empty."""

    @abstractmethod
    def count(self) -> int:
        """The number of rows; blank lines of a text file count as well."""

    @abstractmethod
    def fingerprint(self, columns: Columns) -> str:
        """Sixteen digits that tell its content apart from that of other tables."""

    def batches(self, columns: Columns, rows: int, section: Section = WHOLE) -> Iterator[ColumnValues]:
        """A section in batches of numbers, nan where one is missing.

        Columns of numbers keep their precision. Names of episodes are numbered in the order of their appearance.
        """
        first, converters = section.first, columns.converters()
        for cells in self.raw(columns.names, rows, section):
            if self.delimiter and columns.episode and first == 0 and not _is_name(cells[columns.episode][0]):
                converters[columns.episode] = _number  # in text the first cell decides whether episodes have names
            numbers = {
                name: _converted(values, name, columns, converters[name], first) for name, values in cells.items()
            }
            first += len(numbers[columns.action])
            del cells  # or the text of two batches would be in memory
            yield numbers

    @property
    def blocks(self) -> tuple[int, ...]:
        """The rows of the blocks that can be read by themselves; none if it is read as a whole."""
        return ()

    def coordinates(self, names: Sequence[str]) -> int:
        """The number of coordinates in these columns; cells may be lists."""
        first = next(self.raw(names, 1), {})
        return sum(values.shape[1] if values.ndim == 2 else 1 for values in first.values()) or len(names)

    def extremes(self, names: Sequence[str]) -> tuple[Array, Array] | None:
        """The smallest and largest value of each column; None if rows must be read for that."""
        return None

    def first_value(self, name: str) -> Any:
        """The first value of a column that is not missing; None if all are."""
        values = (value for cells in self.raw([name], _LOOKED_AT) for value in cells[name].tolist())
        return next((value for value in values if not _is_missing(value)), None)

    def has_names(self, column: str) -> bool:
        """Whether a column holds texts that are neither numbers nor truth values."""
        return _is_name(self.first_value(column))

    def names_in(self, column: str) -> set[str]:
        """The different texts in a column."""
        texts: set[str] = set()
        for cells in self.raw([column], _BLOCK):
            found = {str(value) for value in set(cells[column].tolist()) if not _is_missing(value)}
            texts |= {as_text(text, f"every name in the column {column}") for text in found}
            if len(texts) > MOST_ACTIONS:
                raise ValueError(f"the column {column} holds more than {MOST_ACTIONS:,} different names of actions")
        return texts

    def sections(self, columns: Columns, rows: int) -> list[Section]:
        """Cut the table into sections of at least ``rows`` rows, where the format allows."""
        cells = {} if columns.episode is None else next(self.raw([columns.episode], 1), {})
        by_name = any(values.dtype.kind not in "iuf" for values in cells.values())
        if columns.by_ends or by_name or not self.blocks:
            return [WHOLE]  # episodes are numbered as they appear
        sections, start, first, size = list[Section](), 0, 0, 0
        for end, count in enumerate(self.blocks, start=1):
            size += count
            if size >= rows or end == len(self.blocks):
                sections.append(Section(first, (start, end)))
                start, first, size = end, first + size, 0
        return sections

    def following(self, section: Section) -> Section | None:
        """All rows after a section; None if it extends to the end."""
        if section.blocks is None or section.blocks[1] == len(self.blocks):
            return None
        return Section(sum(self.blocks[: section.blocks[1]]), (section.blocks[1], len(self.blocks)))


def _converted(
    values: NDArray[Any], name: str, columns: Columns, convert: Callable[[Any], float], first: int
) -> NDArray[Any]:
    """A column as numbers, by its type if it has one, else cell by cell."""
    kind = values.dtype.kind
    if values.ndim > 2:
        raise ValueError(f"the column {name} has shape {list(values.shape)}: states are [n] or [n, d]")
    if kind in "iuf" and not (name == columns.action and columns.actions):
        return values
    if kind == "b" and convert is _truth:
        return values.astype(np.int8)
    if kind in "mM" and convert is _time:
        unit, zero = np.timedelta64(1, "us"), np.zeros(1, values.dtype)
        return np.asarray((values - zero) / unit) / 1e6  # not a time becomes nan
    if kind not in "OUST" + "M" * (name == columns.episode) or values.ndim > 1:
        raise ValueError(f"the column {name} holds {values.dtype}, not numbers")
    try:
        return np.fromiter(map(convert, values.tolist()), dtype=np.float64, count=len(values))
    except (ValueError, TypeError, OverflowError):
        raise ValueError(_fault(values.tolist(), name, columns, convert, first)) from None


def _fault(values: Iterable[Any], name: str, columns: Columns, convert: Callable[[Any], float], first: int) -> str:
    """The first cell that cannot be read, in a sentence."""
    for row, cell in enumerate(values, start=first):
        try:
            convert(cell)
        except (ValueError, TypeError, OverflowError):
            why = "not a number"
            if name == columns.action and columns.actions:
                why = f"which is none of the actions {', '.join(columns.actions)}"
            elif convert is _truth and name != columns.action:
                why = "neither True nor False"
            elif name == columns.step:
                why = "neither a number nor a time such as 2026-01-31T12:00:00"
            elif isinstance(cell, str) and re.fullmatch(r"\s*[-+]?[\d.]+,[\d,.]*\d\s*", cell):
                why += "; write decimal points, not commas"
            elif name == columns.action:
                why += "; write names in all rows or in none"
            return f"the column {name} holds {shown(cell)} in row {row}, {why}"
    raise AssertionError("no cell is at fault")


def missing(name: str, row: int) -> str:
    """A sentence about a value that is not there."""
    return f"{name} is missing or not finite in row {row}"


def open_table(source: Any, delimiter: str | None = None) -> Table:
    """Open a table: a file, whose suffix says which format it has, or a data frame.

    Args:
        source: a path; a mapping of arrays; a data frame of pandas or polars; anything with the Arrow C interface.
        delimiter: of a text file; recognised by its header if None.
    """
    if not isinstance(source, str | os.PathLike):
        return _Frame(source)
    file = Path(source)
    return _FORMATS[suffix_of(file)](file, delimiter)


def is_frame(source: Any) -> bool:
    """Whether an object is a table in memory."""
    if isinstance(source, np.ndarray):
        return source.dtype.names is not None
    if hasattr(source, "to_numpy"):  # pandas and polars; a single column is no table
        return hasattr(source, "columns")
    names = ("__arrow_c_stream__", "__arrow_c_array__", "__dataframe__")
    return isinstance(source, Mapping) or any(hasattr(source, name) for name in names)


@contextmanager
def _undamaged(format: str) -> Iterator[None]:
    """Refuse, in one sentence, a file that a library cannot read as this format."""
    try:
        yield
    except (PermissionError, TooLargeError):
        raise
    except _DAMAGES:
        raise ValueError(f"it is not {format}, or it is damaged or cut short") from None


@contextmanager
def in_table(*names: Any) -> Iterator[None]:
    """Name the table, or the first of several, in every error raised in here."""
    try:
        yield
    except ValueError as problem:
        raise ValueError(f"{file_name(names[0])}{' …' * (len(names) > 1)}: {printable(str(problem))}") from None


def find_tables(sources: Any) -> tuple[Any, ...]:
    """The files behind a path, folder, pattern, data frame or a list of these; files sorted, each once."""
    listed = [sources] if is_table(sources) or not isinstance(sources, Iterable) else list(sources)
    for source in listed:
        if not is_table(source):
            raise TypeError(
                f"files are named by a path, a pattern or a list of these, or are data frames, got {shown(sources)}"
            )
        if isinstance(source, str) and not source:
            raise ValueError("a file is named by an empty text: write its path, or . for this folder")
    if not listed:
        raise ValueError("there are no files to read: the list of paths is empty")
    paths = [source for source in listed if isinstance(source, str | os.PathLike)]
    files = sorted((file for path in paths for file in _files_of(path)), key=lambda file: file.as_posix())
    first_names: dict[Path, Path] = {}
    for file in files:
        if suffix_of(file) not in _FORMATS:
            raise ValueError(f"cannot read {file}: transitions come as {_suffixes()}")
        regular(file)
        first = first_names.setdefault(file.resolve(), file)
        if first is not file:
            other = "" if first == file else f", also as {first}"
            raise ValueError(f"{file} is named twice{other}; each file counts once")
    return (*files, *(_in_memory(source) for source in listed if is_frame(source)))


def _in_memory(source: Any) -> Any:
    """A frame whose columns can be taken by their names, more than once: a table of Arrow if it has no other form."""
    if isinstance(source, Mapping | np.ndarray) or hasattr(source, "to_numpy"):
        return source
    arrow = _pyarrow("pyarrow", f"the {type(source).__name__}")
    if hasattr(source, "__arrow_c_stream__") or hasattr(source, "__arrow_c_array__"):
        return arrow.table(source)
    return importlib.import_module("pyarrow.interchange").from_dataframe(source)


def is_table(source: Any) -> bool:
    """Whether a source is a data frame or the name of a file."""
    return isinstance(source, str | os.PathLike) or is_frame(source)


def suffix_of(file: Path) -> str:
    """The format of a file by its name: the suffix, before .gz if that is the last."""
    text_formats = (".csv", ".tsv")
    inner = Path(file.stem).suffix.lower()
    return inner if file.suffix.lower() == ".gz" and inner in text_formats else file.suffix.lower()


def names_file(text: str) -> bool:
    """Whether a text names files of tables, by its suffix."""
    return suffix_of(Path(text)) in _FORMATS


def check_repeats(files: Iterable[tuple[str, str]], *, can_allow: bool = True) -> None:
    """Refuse files that hold the same data.

    Args:
        files: names and fingerprints.
        can_allow: the caller has a setting to allow it.
    """
    first: dict[str, str] = {}
    for name, fingerprint in files:
        other = first.get(fingerprint)
        if other is not None:
            names = name if other == name else f"{other} and {name}, its copy"
            allow = f", or write {setting('allow_repeats', 'True')} if that is meant" if can_allow else ""
            raise ValueError(f"the same data would count twice: {names}; leave one out{allow}")
        first[fingerprint] = name


def _suffixes() -> str:
    *first, last = _FORMATS
    return f"{', '.join(first)} or {last}"


def _files_of(path: Any) -> list[Path]:
    place = as_path(path)
    if place.is_dir():
        # Files with a leading underscore or dot are notes of the program that wrote the folder.
        files = [file for file in place.iterdir() if suffix_of(file) in _FORMATS and file.name[0] not in "._"]
        suffixes = sorted({suffix_of(file) for file in files})
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


class _File(Table):
    """A table in a file."""

    def __init__(self, file: Path, delimiter: str | None = None) -> None:
        self.file, self.name, self.kind, self._asked = file, file_name(file), suffix_of(file), delimiter

    def fingerprint(self, columns: Columns) -> str:
        size = self.file.stat().st_size
        with self.file.open("rb") as stream:
            head = stream.read(_HASHED)
            stream.seek(max(size - _HASHED, 0))
            return hashlib.sha256(b"%d:" % size + head + stream.read(_HASHED)).hexdigest()[:16]


class _Parquet(_File):
    """A Parquet file, read by pyarrow, which is an optional dependency."""

    @cached_property
    def _footer(self) -> tuple[tuple[str, ...], tuple[int, ...]]:
        """The columns, and the rows of each row group."""
        with self._opened() as stored:
            metadata = stored.metadata
            groups = tuple(metadata.row_group(i).num_rows for i in range(metadata.num_row_groups))
            return tuple(stored.schema_arrow.names), groups

    @property
    def names(self) -> tuple[str, ...]:
        return self._footer[0]

    @property
    def blocks(self) -> tuple[int, ...]:
        return self._footer[1]

    def count(self) -> int:
        return sum(self.blocks)

    def raw(self, names: Sequence[str], rows: int, section: Section = WHOLE) -> Iterator[ColumnValues]:
        groups = range(*section.blocks or (0, len(self.blocks)))
        with self._opened() as stored:
            batches = stored.iter_batches(batch_size=rows, row_groups=list(groups), columns=list(names))
            while True:
                with _undamaged("a Parquet file"):
                    batch = next(batches, None)
                if batch is None:
                    return
                if batch.num_rows:
                    yield {name: _from_arrow(batch.column(name)) for name in names}

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
        parquet = _pyarrow("pyarrow.parquet", self.name)
        with _undamaged("a Parquet file"):
            # Page by page: by default the compressed columns of a whole row group are fetched before its first row.
            return parquet.ParquetFile(self.file, pre_buffer=False, buffer_size=2**20, page_checksum_verification=True)


def _pyarrow(module: str, what: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise ImportError(f'{what} cannot be read without pyarrow: pip install "certirl[parquet]"') from None


def _from_arrow(column: Any) -> NDArray[Any]:
    """An Arrow column as an array; what NumPy has no type for as objects, None where one is missing."""
    arrow = importlib.import_module("pyarrow")
    if arrow.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    elif arrow.types.is_decimal(column.type):
        column = column.cast(arrow.float64())
    settings = {} if isinstance(column, arrow.ChunkedArray) else {"zero_copy_only": False}
    return _stacked(np.asarray(column.to_numpy(**settings)))


def _stacked(values: NDArray[Any]) -> NDArray[Any]:
    """A column whose cells are lists of equal length as a matrix ``[n, d]``; any other as it is."""
    if values.dtype != object or not len(values) or not isinstance(values[0], list | tuple | np.ndarray):
        return values
    if not all(isinstance(cell, list | tuple | np.ndarray) and len(cell) == len(values[0]) for cell in values):
        raise ValueError("its lists must be equally long, and none missing")
    return np.array(values.tolist(), dtype=np.float64)


class _Text(_File):
    """A text file with a header, which NumPy begins with #; blank lines and lines that begin with # are no rows."""

    def _opened(self, mode: str = "rt") -> Any:
        stream: Any = unzipped(self.file) if self.file.suffix.lower() == ".gz" else self.file.open("rb")
        return io.TextIOWrapper(stream, encoding="utf-8-sig") if mode == "rt" else stream

    @cached_property
    def _head(self) -> tuple[tuple[str, ...], str, bool]:
        """The names of the columns, the delimiter, and whether numbers have decimal commas."""
        with self._opened() as stream:
            header = _lines(stream, 1, every=True)
            rows = _lines(stream, _LOOKED_AT) or []
        line = header[0].lstrip().removeprefix("#") if header else ""
        delimiter = self._asked or ("\t" if self.kind == ".tsv" else _delimiter(line, rows))
        names = tuple(name.strip() for name in next(csv.reader([line], delimiter=delimiter), []))
        number = re.compile(r'(?:^|[;\t|])\s*"?[-+]?\d*,\d+"?\s*(?:$|[;\t|])', re.MULTILINE)
        return names, delimiter, delimiter != "," and any(map(number.search, rows))

    @property
    def names(self) -> tuple[str, ...]:
        return self._head[0]

    @property
    def delimiter(self) -> str:  # type: ignore[override]
        return self._head[1]

    @property
    def notes(self) -> tuple[str, ...]:  # type: ignore[override]
        _, delimiter, has_commas = self._head
        if delimiter == ",":
            return ()
        commas = ", commas in numbers as decimal points" * has_commas
        return (f"columns separated by {delimiter!r}{commas} in {file_name(self.file.name)}",)

    def count(self) -> int:
        with self._opened("rb") as stream:
            return sum(block.count(b"\n") for block in iter(lambda: stream.read(2**20), b"")) - 1

    def raw(self, names: Sequence[str], rows: int, section: Section = WHOLE) -> Iterator[ColumnValues]:
        places, first = [self.names.index(name) for name in names], 0
        plain = True  # as long as all cells are numbers, NumPy converts them without calling Python
        with self._opened() as stream:
            _lines(stream, 1, every=True)
            while (lines := _lines(stream, rows)) is not None:
                _check_fields(lines, len(self.names), self.delimiter, first)
                first += len(lines)
                cells = self._numbers(lines, places) if plain and lines else None
                if cells is None:
                    plain, cells = plain and not lines, self._texts(lines, places)
                del lines  # or the text of two batches would be in memory
                if len(cells):
                    yield dict(zip(names, cells.T, strict=True))

    def _texts(self, lines: list[str], places: list[int]) -> NDArray[Any]:
        """The cells ``[n, columns]`` as texts."""
        rows = ([fields[place] for place in places] for fields in csv.reader(lines, delimiter=self.delimiter))
        if self.delimiter != ",":
            rows = ([_with_point(cell) if "," in cell else cell for cell in cells] for cells in rows)
        return np.array(list(rows), dtype=object).reshape(len(lines), len(places))

    def _numbers(self, lines: list[str], places: list[int]) -> Array | None:
        """The cells ``[n, columns]``; None if some cell is no number."""
        settings: dict[str, Any] = {"usecols": places, "comments": None, "quotechar": '"', "encoding": None}
        text = lines if self.delimiter == "," else [line.replace(",", ".") for line in lines]
        try:
            return np.asarray(np.loadtxt(text, delimiter=self.delimiter, ndmin=2, **settings))
        except (ValueError, IndexError):
            return None


def _with_point(cell: str) -> str:
    """A number with a decimal comma as one with a point; other texts as they are."""
    return cell.replace(",", ".") if re.fullmatch(r"\s*[-+]?\d*,\d+([eE][-+]?\d+)?\s*", cell) else cell


def _lines(stream: Any, count: int, *, every: bool = False) -> list[str] | None:
    """The next lines that are rows, or ``every`` line; None at the end of the file."""
    try:
        lines = list(islice(stream, count))
    except UnicodeDecodeError:
        raise ValueError("it is not a text file in UTF-8") from None
    except (EOFError, gzip.BadGzipFile, zlib.error):
        raise ValueError("it is not a gzip file, or it is damaged or cut short") from None
    if not lines or every:
        return lines or None
    return [line for line in lines if (text := line.lstrip()) and text[0] != "#"]


def _delimiter(header: str, rows: list[str]) -> str:
    """What separates columns: the only mark in the header, or the only one by which rows are as long as the header."""
    names = re.sub(r'"[^"]*"', "", header)
    marks = [mark for mark in ",;\t|" if mark in names]
    if len(marks) > 1:
        lengths = {mark: {len(row) for row in csv.reader([header, *rows[:10]], delimiter=mark)} for mark in marks}
        fitting = [mark for mark in marks if len(lengths[mark]) == 1]
        if len(fitting) != 1:
            one = " or ".join(map(repr, marks))
            raise ValueError(f"its columns may be separated by {one}: write {setting('delimiter', repr(marks[0]))}")
        marks = fitting
    return marks[0] if marks else ","


def _check_fields(lines: list[str], width: int, delimiter: str, first: int) -> None:
    """Refuse lines with more or fewer fields than the header, and quotes left open."""
    quoted = [(row, line) for row, line in enumerate(lines, start=first) if '"' in line]
    for row, line in quoted:
        if line.count('"') % 2:
            raise ValueError(f"row {row} has a quote that is not closed: {line.strip()[:60]!r}")
    if not quoted and {line.count(delimiter) for line in lines} <= {width - 1}:
        return
    for row, fields in enumerate(csv.reader(lines, delimiter=delimiter)):
        if len(fields) != width:
            many = "write decimal points, not commas, and quote texts that hold commas"
            why = many if len(fields) > width else "the line is cut short"
            text = repr(lines[row].strip()[:60])
            raise ValueError(f"row {first + row} has {len(fields)} fields, the header {width}: {text}; {why}")


class _Arrays(Table):
    """Arrays as columns, each made when it is read; that of the states may be a matrix ``[n, d]``."""

    @cached_property
    @abstractmethod
    def _arrays(self) -> list[tuple[str, Callable[[], Any]]]:
        """The name of each column, and the function that gives it."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self._arrays)

    def _column(self, name: str) -> Any:
        values = dict(self._arrays)[name]()
        return values if getattr(values, "ndim", 1) and hasattr(values, "__len__") else np.atleast_1d(values)

    def count(self) -> int:
        return len(self._column(self.names[0])) if self.names else 0

    def raw(self, names: Sequence[str], rows: int, section: Section = WHOLE) -> Iterator[ColumnValues]:
        columns = {name: self._column(name) for name in names}
        if len({len(values) for values in columns.values()}) > 1:
            lengths = ", ".join(f"{len(values)} {name}" for name, values in columns.items())
            raise ValueError(f"its arrays must be equally long, got {lengths}")
        first, end = section.first, len(columns[names[0]])
        if section.blocks is not None:
            end = first + sum(self.blocks[slice(*section.blocks)])
        for start in range(first, end, rows):
            yield {name: _part(values, start, min(start + rows, end)) for name, values in columns.items()}


def _part(column: Any, start: int, end: int) -> NDArray[Any]:
    """Some rows of a column of any library as an array."""
    part = (column.iloc if hasattr(column, "iloc") else column)[start:end]
    return _from_arrow(part) if hasattr(part, "combine_chunks") else _stacked(np.asarray(part))


class _Npz(_File, _Arrays):
    """An npz file."""

    @cached_property
    def _arrays(self) -> list[tuple[str, Callable[[], Any]]]:
        with _undamaged("an npz file of plain arrays"), zipfile.ZipFile(self.file) as archive:
            names = [member.removesuffix(".npy") for member in archive.namelist()]
        return [(name, partial(self._loaded, name)) for name in names]

    def _loaded(self, name: str) -> NDArray[Any]:
        with _undamaged("an npz file of plain arrays"):
            return arrays_of(self.file, [name])[name]


class _Frame(_Arrays):
    """A data frame, a mapping of arrays, a structured array, or what has the Arrow C interface."""

    kind = unit = "data frame"

    def __init__(self, source: Any) -> None:
        self.name, self._source = f"the {type(source).__name__}", source

    @cached_property
    def _arrays(self) -> list[tuple[str, Callable[[], Any]]]:
        source = self._source
        if isinstance(source, Mapping):
            return [(str(key), partial(source.__getitem__, key)) for key in source]
        if isinstance(source, np.ndarray):
            return [(name, partial(source.__getitem__, name)) for name in source.dtype.names or ()]
        if hasattr(source, "to_numpy"):  # pandas, where names may be in the index, and polars
            levels = [] if not hasattr(source, "index") else [name for name in source.index.names if name is not None]
            in_index = [(str(n), partial(source.index.get_level_values, n)) for n in levels if n not in source.columns]
            return [*((str(key), partial(source.__getitem__, key)) for key in source.columns), *in_index]
        return [(name, partial(source.column, place)) for place, name in enumerate(source.column_names)]

    @cached_property
    def blocks(self) -> tuple[int, ...]:
        count = self.count()
        return tuple(min(_BLOCK, count - start) for start in range(0, count, _BLOCK))

    def fingerprint(self, columns: Columns) -> str:
        count = self.count()
        text = [str(count)]
        for values in map(self._column, (*columns.states, *columns.next_states)):
            text += [repr(_part(values, start, start + _HEAD).tolist()) for start in (0, max(count - _HEAD, 0))]
        return hashlib.sha256("".join(text).encode()).hexdigest()[:16]


_FORMATS: dict[str, type[_File]] = {".parquet": _Parquet, ".csv": _Text, ".tsv": _Text, ".npz": _Npz}
