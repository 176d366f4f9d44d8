"""Formats of tables: files and data frames behind one interface, in batches of Arrow columns.

`Table` is the interface; another kind of table is one more subclass of it, made by `open_table`. `certirl.data.tables`
says which columns to read. Arrow reads files and converts texts, whole columns at a time. Where it fails, each cell is
looked at, for a sentence about the first that is wrong. Rows are counted from 0 in every format. Errors name the row;
the caller adds the file.
"""

from __future__ import annotations

import csv
import glob
import gzip
import hashlib
import os
import re
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from io import TextIOWrapper
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from certirl.ground.archive import as_path
from certirl.ground.domain import MOST_ACTIONS, Array
from certirl.ground.doors import as_text, file_name, printable, setting, shown
from certirl.ground.records import internal
from certirl.ground.unpacking import TooLargeError, arrays_of, regular, unzipped

Cells = dict[str, Any]  # columns by their names: of Arrow as they are read, of NumPy once they are numbers
Converter = Callable[[str], float]

# A file is identified by its length and this many bytes at both ends: hashing 100 GB would take minutes.
_HASHED = 2**16
_HEAD = 64  # rows at either end that identify a data frame
_BLOCK = 2**16  # rows of a part of a data frame
_MOST_NAMES = 20  # of a column that may predict actions
_LOOKED_AT = 1000  # lines of a text file in which decimal commas are looked for
# What libraries raise if they cannot read a file.
_DAMAGES = (
    OSError, ValueError, TypeError, KeyError, EOFError, AttributeError, RuntimeError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip
# Texts that stand for a missing value; "none" may be the name of an action.
_MISSING = ("", "NA", "na", "N/A", "n/a", "NaN", "nan", "NAN", "NULL", "null", "None", "NaT", "<NA>")
_TRUTH = {"true": 1.0, "false": 0.0}
_TEXT = 2**21  # characters of a text file that are read at a time
_NO_ROW = re.compile(r"\n[^\S\n]*(?:#.*)?(?=\n|\Z)")  # a line that is blank or begins with #, after the one before it
_COMMA = r"^(\s*[-+]?\d*),(\d+(?:[eE][-+]?\d+)?\s*)$"  # a number with a decimal comma


@internal
class Columns(NamedTuple):
    """What the columns of a table mean; None or empty for those that it does not have."""

    states: tuple[str, ...]  # one or more columns of numbers
    next_states: tuple[str, ...]
    action: str  # the column of the actions
    episode: str | None  # the column that says which episode a row is from, by numbers or by names
    terminated: str | None  # the column that marks terminal states
    truncated: str | None  # the column that marks episodes that were cut off
    step: str | None  # the order within an episode, numbers or times
    by_episode: bool  # rows are steps of episodes; False if every row is taken by itself
    dimension: int  # the number of coordinates of a state
    actions: tuple[str, ...] = ()  # the names of actions 0, 1, …, if the column holds names
    delimiter: str | None = None  # of a text file
    drops: bool = False  # rows without a value are left out, and end their episodes
    longest: float | None = None  # the longest step; longer ones end their episodes

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

    def converters(self) -> dict[str, Converter]:
        """For each column the function that makes a number of a text that is not missing."""
        numbers: dict[str, int] = {}  # of the names of episodes, in the order of their appearance
        special: dict[str | None, Converter] = dict.fromkeys(self.flags, _truth)
        special |= {self.action: self.actions.index if self.actions else _truth, self.step: _time}
        special |= {self.episode: lambda name: numbers.setdefault(name, len(numbers))}
        return {name: special.get(name, _number) for name in self.names}

    def __str__(self) -> str:
        after = "next states in columns of their own" if self.next_states else "next states from the rows that follow"
        ends = f"terminal where {self.terminated} says so" if self.terminated else "no state known to be terminal"
        which = f"one episode for each value of the column {self.episode}"
        if self.episode is None:
            which = f"a new episode after each row with {' or '.join(self.ends)}" if self.ends else "one episode"
        return f"{which}; {after}; {ends}"


_ONLY = Columns((), (), "", None, None, None, None, False, 0)  # of a table in which one column is looked at


def _number(text: str) -> float:
    """The number in a text, without 1_000 and digits of other scripts."""
    if "_" in text or not text.isascii():
        raise ValueError(text)
    return float(text)


def _truth(text: str) -> float:
    """A number, or 1 for True and 0 for False."""
    value = _TRUTH.get(text.lower())
    return _number(text) if value is None else value


def _time(text: str) -> float:
    """A number, or the seconds since 1970 of a time; in UTC if it names no time zone."""
    try:
        return _number(text)
    except ValueError:
        moment = datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def is_name(cell: Any) -> bool:
    """Whether a cell is a text that is neither missing nor a number nor a truth value."""
    try:
        return isinstance(cell, str) and cell.strip() not in _MISSING and _truth(cell.strip()) is None
    except ValueError:
        return True


def _arrow(values: Any, name: str) -> Any:
    """A column of any library as an Arrow array; objects of different kinds are the texts that they print."""
    import pyarrow as pa

    if hasattr(values, "to_arrow"):  # polars
        values = values.to_arrow()
    elif isinstance(values, np.ndarray) and values.dtype.kind in "fmMc":  # what Arrow has no name for
        units: dict[str, Any] = {"f": np.float64, "m": "timedelta64[us]", "M": "datetime64[us]"}
        if values.dtype.kind == "c":
            raise ValueError(f"the column {name} holds {values.dtype}, not numbers")
        is_plain = values.dtype.isnative and values.dtype.itemsize <= 8
        values = values if is_plain and values.dtype.kind == "f" else values.astype(units[values.dtype.kind])
    if np.ndim(values) > 1 and isinstance(values, np.ndarray):
        if values.ndim > 2:
            raise ValueError(f"the column {name} has {values.ndim} dimensions: states are [n] or [n, d]")
        return pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), values.shape[1])
    try:
        column = values if isinstance(values, pa.ChunkedArray) else pa.array(values, from_pandas=True)
    except (pa.ArrowInvalid, TypeError):
        column = pa.array([None if cell is None or cell != cell else str(cell) for cell in values], pa.string())
    column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    is_text = pa.types.is_large_string(column.type) or pa.types.is_binary(column.type)
    return column.cast(pa.string()) if is_text else column


def _trimmed(column: Any, missing: Sequence[str] = _MISSING) -> Any:
    """Texts without the spaces around them, null where one stands for a missing value; other columns as they are."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_string(column.type):
        return column
    texts = pc.utf8_trim_whitespace(column)
    return pc.if_else(pc.is_in(texts, pa.array(missing)), pa.scalar(None, pa.string()), texts)


Section = tuple[int, int | None]  # from which row on, and up to which; None for the last
WHOLE: Section = (0, None)


@internal
class Table(ABC):
    """A table in a file or in memory: the names of its columns, and its rows in batches."""

    name: str  # the file, or what kind of data frame it is, for errors
    unit: str = "file"  # "file" or "data frame"
    kind: str  # its format
    names: tuple[str, ...]  # its columns, found without reading rows
    blocks: tuple[int, ...] = ()  # the rows of the blocks that can be read by themselves; none if it is read as a whole
    delimiter: str | None = None  # of a text file; None for other formats
    notes: tuple[str, ...] = ()  # what was assumed about it, in sentences

    @abstractmethod
    def raw(self, names: Sequence[str], rows: int, section: Section = WHOLE) -> Iterator[Cells]:
        """Arrow columns of a section, in batches of at most ``rows`` rows, none of them empty."""

    @abstractmethod
    def count(self) -> int:
        """The number of rows; blank lines of a text file count as well."""

    @abstractmethod
    def fingerprint(self, columns: Columns) -> str:
        """Sixteen digits that tell its content apart from that of other tables."""

    def batches(self, columns: Columns, rows: int, section: Section = WHOLE) -> Iterator[Cells]:
        """A section in batches of numbers, nan where one is missing.

        Columns of numbers keep their precision. Names of episodes are numbered in the order of their appearance.
        """
        first, converters = section[0], columns.converters()
        for cells in self.raw(columns.names, rows, section):
            if self.delimiter and columns.episode and first == 0 and not is_name(cells[columns.episode][0].as_py()):
                converters[columns.episode] = _number  # in text the first cell decides whether episodes have names
            numbers = {
                name: _converted(cells.pop(name), name, columns, converters[name], first) for name in columns.names
            }
            first += len(numbers[columns.action])
            yield numbers

    def coordinates(self, names: Sequence[str]) -> int:
        """The number of coordinates in these columns; cells may be lists."""
        first = [column[0].as_py() for cells in islice(self.raw(names, 1), 1) for column in cells.values()]
        return sum(len(cell) if isinstance(cell, list) else 1 for cell in first) or len(names)

    def extremes(self, names: Sequence[str]) -> tuple[Array, Array] | None:
        """The smallest and largest value of each column; None if rows must be read for that."""
        return None

    def first_value(self, name: str) -> Any:
        """The first value of a column that is not missing; None if all are."""
        present = (_trimmed(cells[name]).drop_null() for cells in self.raw([name], _LOOKED_AT))
        return next((column[0].as_py() for column in present if len(column)), None)

    def names_in(self, column: str) -> set[str]:
        """The different texts in a column."""
        texts: set[str] = set()
        for cells in self.raw([column], _BLOCK):
            found = _trimmed(cells[column]).unique().drop_null().to_pylist()
            texts |= {as_text(text, f"every name in the column {column}") for text in found}
            if len(texts) > MOST_ACTIONS:
                raise ValueError(f"the column {column} holds more than {MOST_ACTIONS:,} different names of actions")
        return texts

    def described(self, name: str) -> tuple[str, Array] | None:
        """A column in words, and as numbers of size 1 or so ``[n, m]``: of times the hour, of names which one it is.

        None for a column of lists, of one value, or of many names.
        """
        import pyarrow as pa

        cells = pa.concat_arrays([column[name] for column in self.raw([name], _BLOCK)])
        try:
            numbers = np.asarray(_converted(cells, name, _ONLY._replace(action=name), _number, 0), dtype=np.float64)
        except ValueError:
            try:
                hours = _converted(cells, name, _ONLY._replace(step=name), _time, 0) / 3600 * (2 * np.pi / 24)
                return f"the hour of {name}", np.stack([np.cos(hours), np.sin(hours)], axis=1)
            except ValueError:
                names, which = np.unique(np.array([str(cell) for cell in cells.to_pylist()]), return_inverse=True)
                return (name, np.eye(len(names))[which.reshape(-1)]) if 1 < len(names) <= _MOST_NAMES else None
        low, high = np.nanpercentile(numbers, [1, 99]) if np.isfinite(numbers).any() else (0.0, 0.0)
        if numbers.ndim > 1 or not high > low:
            return None
        return name, np.clip((np.nan_to_num(numbers, nan=low) - low) / (high - low), -1, 2)[:, None]

    def sections(self, columns: Columns, rows: int) -> list[Section]:
        """Cut the table into sections of at least ``rows`` rows, where they can be read by themselves."""
        first = None if columns.episode is None else self.first_value(columns.episode)
        if columns.by_ends or not isinstance(first, int | float | None) or not self.blocks:
            return [WHOLE]  # episodes are numbered as they appear
        cuts, ends = [0], np.cumsum(self.blocks).tolist()
        for end in ends:
            if end - cuts[-1] >= rows or end == ends[-1] > cuts[-1]:
                cuts.append(end)
        return list(pairwise(cuts)) or [WHOLE]


def _converted(column: Any, name: str, columns: Columns, convert: Converter, first: int) -> NDArray[Any]:
    """A column as numbers, nan where one is missing; of texts each that differs is looked at once if Arrow cannot."""
    import pyarrow as pa
    import pyarrow.compute as pc

    def numbers(values: Any, type: Any = None) -> NDArray[Any]:
        return np.asarray((values if type is None else values.cast(type)).to_numpy(zero_copy_only=False))

    types, kind = pa.types, column.type
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        lengths = pc.unique(pc.list_value_length(column)).to_pylist()
        if len(lengths) != 1 or None in lengths:
            raise ValueError("its lists must be equally long, and none missing")
        return numbers(column.flatten()).reshape(len(column), -1)
    if types.is_integer(kind) or types.is_floating(kind):
        return numbers(column)
    if types.is_decimal(kind) or types.is_null(kind):
        return numbers(column, pa.float64())
    if types.is_boolean(kind) and convert is _truth:
        return numbers(column, pa.int8())
    if types.is_temporal(kind) and convert is _time:
        whole = pa.duration("us") if types.is_duration(kind) else pa.timestamp("us", getattr(kind, "tz", None))
        return numbers(pc.cast(column, whole, safe=False), pa.int64()) / 1e6
    if types.is_temporal(kind) and name == columns.episode:
        column = column.cast(pa.string())
    elif not types.is_string(kind):
        raise ValueError(f"the column {name} holds {kind}, not numbers")
    texts = _trimmed(column, ("",) if name == columns.episode and convert is not _number else _MISSING)
    with suppress(pa.ArrowInvalid):
        if convert in (_number, _truth, _time):
            return numbers(texts, pa.float64())
    for zone in (None, "UTC") if convert is _time else ():
        with suppress(pa.ArrowInvalid):
            return numbers(texts.cast(pa.timestamp("us", zone)), pa.int64()) / 1e6
    coded = texts.dictionary_encode(null_encoding="encode")
    codes, values = coded.indices.to_numpy(), np.full(len(coded.dictionary), np.nan)
    for code, text in enumerate(coded.dictionary.to_pylist()):
        try:
            values[code] = np.nan if text is None else convert(text)
        except (ValueError, OverflowError):
            row = int((codes == code).argmax())
            found = f"the column {name} holds {shown(column[row].as_py())} in row {first + row}"
            raise ValueError(f"{found}, {_why(text, name, columns, convert)}") from None
    return values[codes]


def _why(text: str, name: str, columns: Columns, convert: Converter) -> str:
    """Why a text is no value of a column."""
    if name == columns.action and columns.actions:
        return f"which is none of the actions {', '.join(columns.actions)}"
    if convert is _truth and name != columns.action:
        return "neither True nor False"
    if name == columns.step:
        return "neither a number nor a time such as 2026-01-31T12:00:00"
    if re.fullmatch(r"[-+]?[\d.]+,[\d,.]*\d", text):
        return "not a number; write decimal points, not commas"
    return "not a number" + "; write names in all rows or in none" * (name == columns.action)


def open_table(source: Any, delimiter: str | None = None) -> Table:
    """Open a table: a file, whose suffix says which format it has, or a data frame."""
    if not isinstance(source, str | os.PathLike):
        return _Frame(source)
    return _FORMATS[suffix_of(Path(source))](Path(source), delimiter)


def name_of(source: Any) -> str:
    """What errors call a table: its file, or what kind of data frame it is."""
    return file_name(source) if isinstance(source, str | os.PathLike) else f"the {type(source).__name__}"


def is_frame(source: Any) -> bool:
    """Whether an object is a table in memory."""
    if isinstance(source, np.ndarray):
        return source.dtype.names is not None
    if hasattr(source, "to_numpy"):  # pandas and polars; a single column is no table
        return hasattr(source, "columns")
    return isinstance(source, Mapping) or any(hasattr(source, f"__arrow_c_{kind}__") for kind in ("stream", "array"))


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
            raise ValueError(f"cannot read {file}: transitions come as {_SUFFIXES}")
        regular(file)
        first = first_names.setdefault(file.resolve(), file)
        if first is not file:
            other = "" if first == file else f", also as {first}"
            raise ValueError(f"{file} is named twice{other}; each file counts once")
    return (*files, *(_in_memory(source) for source in listed if is_frame(source)))


def _in_memory(source: Any) -> Any:
    """A frame whose columns can be taken by their names, more than once."""
    if isinstance(source, np.ndarray):
        return {name: source[name] for name in source.dtype.names or ()}
    if isinstance(source, Mapping) or hasattr(source, "to_numpy"):
        return source
    import pyarrow as pa

    return pa.table(source)


def is_table(source: Any) -> bool:
    """Whether a source is a data frame or the name of a file."""
    return isinstance(source, str | os.PathLike) or is_frame(source)


def suffix_of(file: Path) -> str:
    """The format of a file by its name: the suffix, of a text file before .gz."""
    inner = Path(file.stem).suffix.lower()
    return inner if file.suffix.lower() == ".gz" and inner in (".csv", ".tsv") else file.suffix.lower()


def names_file(text: str) -> bool:
    """Whether a text names files of tables, by its suffix."""
    return suffix_of(Path(text)) in _FORMATS


def check_repeats(files: Iterable[tuple[str, str]]) -> None:
    """Refuse files, by their names and fingerprints, that hold the same data."""
    first: dict[str, str] = {}
    for name, fingerprint in files:
        other = first.get(fingerprint)
        if other is not None:
            names = name if other == name else f"{other} and {name}, its copy"
            raise ValueError(f"the same data would count twice: {names}; leave one out")
        first[fingerprint] = name


def _files_of(path: Any) -> list[Path]:
    place = as_path(path)
    if place.is_dir():
        # Files with a leading underscore or dot are notes of the program that wrote the folder.
        files = [file for file in place.iterdir() if suffix_of(file) in _FORMATS and file.name[0] not in "._"]
        suffixes = sorted({suffix_of(file) for file in files})
        if not suffixes:
            raise FileNotFoundError(f"there is no {_SUFFIXES} file in the folder {place}")
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
        self.file, self.name, self.kind = file, name_of(file), suffix_of(file)
        self._look(delimiter)

    @abstractmethod
    def _look(self, delimiter: str | None) -> None:
        """Find its columns and its blocks."""

    def fingerprint(self, columns: Columns) -> str:
        size = self.file.stat().st_size
        with self.file.open("rb") as stream:
            head = stream.read(_HASHED)
            stream.seek(max(size - _HASHED, 0))
            return hashlib.sha256(b"%d:" % size + head + stream.read(_HASHED)).hexdigest()[:16]


class _Parquet(_File):
    """A Parquet file, read by pyarrow."""

    def _look(self, delimiter: str | None) -> None:
        with self._opened() as stored:
            groups = map(stored.metadata.row_group, range(stored.metadata.num_row_groups))
            self.names, self.blocks = tuple(stored.schema_arrow.names), tuple(group.num_rows for group in groups)

    def count(self) -> int:
        return sum(self.blocks)

    def raw(self, names: Sequence[str], rows: int, section: Section = WHOLE) -> Iterator[Cells]:
        starts = np.cumsum(self.blocks) - self.blocks
        groups = np.flatnonzero((starts >= section[0]) & (starts < (section[1] or np.inf))).tolist()
        with self._opened() as stored:
            batches = stored.iter_batches(batch_size=rows, row_groups=groups, columns=list(names))
            while True:
                with _undamaged("a Parquet file"):
                    batch = next(batches, None)
                if batch is None:
                    return
                if batch.num_rows:
                    yield {name: _arrow(batch.column(name), name) for name in names}

    def extremes(self, names: Sequence[str]) -> tuple[Array, Array] | None:
        from pyarrow.dataset import dataset

        with _undamaged("a Parquet file"):
            (fragment,) = dataset(self.file, format="parquet").get_fragments()
            groups = fragment.row_groups
        known = [group.statistics or {} for group in groups if group.num_rows]
        ends = [(row[name]["min"], row[name]["max"]) for row in known for name in names if name in row]
        # Nulls, infinities and other types: reading the rows names the first of them.
        is_known = len(ends) == len(known) * len(names) > 0
        if not is_known or not all(isinstance(end, int | float) and np.isfinite(end) for pair in ends for end in pair):
            return None
        low, high = np.moveaxis(np.array(ends, dtype=float).reshape(len(known), len(names), 2), 2, 0)
        return low.min(axis=0), high.max(axis=0)

    def _opened(self) -> Any:
        from pyarrow import parquet

        with _undamaged("a Parquet file"):
            # Page by page: by default the compressed columns of a whole row group are fetched before its first row.
            return parquet.ParquetFile(self.file, pre_buffer=False, buffer_size=2**20, page_checksum_verification=True)


class _Text(_File):
    """A text file with a header, which NumPy begins with #; blank lines and lines that begin with # are no rows."""

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        stream: Any = unzipped(self.file) if self.file.suffix.lower() == ".gz" else self.file.open("rb")
        try:
            with TextIOWrapper(stream, encoding="utf-8-sig") as lines:
                yield lines
        except UnicodeDecodeError:
            raise ValueError("it is not a text file in UTF-8") from None
        except (EOFError, gzip.BadGzipFile, zlib.error):
            raise ValueError("it is not a gzip file, or it is damaged or cut short") from None

    def _look(self, delimiter: str | None) -> None:
        with self._opened() as lines:
            header, rows = lines.readline().lstrip().removeprefix("#"), _rows("".join(islice(lines, _LOOKED_AT)))
        mark = delimiter or ("\t" if self.kind == ".tsv" else _delimiter(header, rows.split("\n")[1:11]))
        self.names = tuple(name.strip() for name in next(csv.reader([header], delimiter=mark), []))
        self.delimiter = mark
        if mark != ",":
            number = re.compile(r'(?:^|[;\t|])\s*"?[-+]?\d*,\d+"?\s*(?:$|[;\t|])', re.MULTILINE)
            commas = ", commas in numbers as decimal points" * bool(number.search(rows))
            self.notes = (f"columns separated by {mark!r}{commas} in {file_name(self.file.name)}",)

    def count(self) -> int:
        with self._opened() as lines:
            return sum(block.count(b"\n") for block in iter(lambda: lines.buffer.read(2**20), b"")) - 1

    def raw(self, names: Sequence[str], rows: int, section: Section = WHOLE) -> Iterator[Cells]:
        first = 0
        with self._opened() as lines:
            lines.readline()
            while text := lines.read(min(_TEXT, 256 * rows)) + lines.readline():
                columns = self._cut(_rows(text), names, first)
                count = len(columns[names[0]])
                for start in range(0, count, rows):
                    yield {name: column[start : start + rows] for name, column in columns.items()}
                first += count

    def _cut(self, text: str, names: Sequence[str], first: int) -> Cells:
        """These columns of lines that are rows."""
        import pyarrow as pa
        import pyarrow.compute as pc
        from pyarrow import csv as reader

        if not text:
            return dict.fromkeys(names, ())
        content = text[1:].encode()
        every = [str(place) for place in range(len(self.names))]
        wanted = [every[self.names.index(name)] for name in names]
        settings = (
            reader.ReadOptions(use_threads=False, column_names=every, block_size=len(content)),
            reader.ParseOptions(delimiter=self.delimiter),
            reader.ConvertOptions(include_columns=wanted, column_types=dict.fromkeys(wanted, pa.string())),
        )
        try:
            table = reader.read_csv(pa.BufferReader(content), *settings)
        except pa.ArrowInvalid:
            table = ()
        lines = text.split("\n")[1:] if len(table) != text.count("\n") or '"' in text else []
        if len(table) != text.count("\n") or any(line.count('"') % 2 for line in lines):
            raise ValueError(self._fault(lines, first))
        columns = [table[place].combine_chunks() for place in wanted]
        if self.delimiter != "," and "," in text:
            columns = [pc.replace_substring_regex(column, _COMMA, r"\1.\2") for column in columns]
        return dict(zip(names, columns, strict=True))

    def _fault(self, lines: list[str], first: int) -> str:
        """The first line with a quote left open, or with more or fewer fields than the header, in a sentence."""
        width = len(self.names)
        for row, line in enumerate(lines, start=first):
            start, count = repr(line.strip()[:60]), len(next(csv.reader([line], delimiter=str(self.delimiter))))
            if line.count('"') % 2:
                return f"row {row} has a quote that is not closed: {start}"
            if count != width:
                many = "write decimal points, not commas, and quote texts that hold commas"
                why = many if count > width else "the line is cut short"
                return f"row {row} has {count} fields, the header {width}: {start}; {why}"
        return f"rows {first} to {first + len(lines) - 1} cannot be cut into columns at {self.delimiter!r}"


def _rows(text: str) -> str:
    """The lines that are rows, each after the end of another."""
    return _NO_ROW.sub("", "\n" + text)


def _delimiter(header: str, rows: list[str]) -> str:
    """What separates columns: the only mark in the header, or the only one by which rows are as long as the header."""
    names = re.sub(r'"[^"]*"', "", header)
    marks = [mark for mark in ",;\t|" if mark in names]
    if len(marks) > 1:
        lengths = {mark: {len(row) for row in csv.reader([header, *rows], delimiter=mark)} for mark in marks}
        fitting = [mark for mark in marks if len(lengths[mark]) == 1]
        if len(fitting) != 1:
            one = " or ".join(map(repr, marks))
            raise ValueError(f"its columns may be separated by {one}: write {setting('delimiter', repr(marks[0]))}")
        marks = fitting
    return marks[0] if marks else ","


class _Arrays(Table):
    """Arrays as columns, each made when it is read; that of the states may be a matrix ``[n, d]``."""

    @abstractmethod
    def _column(self, name: str) -> Any:
        """A column as its library has it."""

    def _whole(self, name: str) -> Any:
        """A column; a single number is one of one row."""
        values = self._column(name)
        return values if getattr(values, "ndim", 1) and hasattr(values, "__len__") else np.atleast_1d(values)

    def count(self) -> int:
        return len(self._whole(self.names[0])) if self.names else 0

    def raw(self, names: Sequence[str], rows: int, section: Section = WHOLE) -> Iterator[Cells]:
        columns = {name: self._whole(name) for name in names}
        if len({len(values) for values in columns.values()}) > 1:
            lengths = ", ".join(f"{len(values)} {name}" for name, values in columns.items())
            raise ValueError(f"its arrays must be equally long, got {lengths}")
        first, end = section[0], len(columns[names[0]]) if section[1] is None else section[1]
        for start in range(first, end, rows):
            part = slice(start, min(start + rows, end))
            yield {name: _arrow(getattr(values, "iloc", values)[part], name) for name, values in columns.items()}


class _Npz(_File, _Arrays):
    """An npz file."""

    def _look(self, delimiter: str | None) -> None:
        with _undamaged("an npz file of plain arrays"), zipfile.ZipFile(self.file) as archive:
            self.names = tuple(member.removesuffix(".npy") for member in archive.namelist())

    def _column(self, name: str) -> NDArray[Any]:
        with _undamaged("an npz file of plain arrays"):
            return arrays_of(self.file, [name])[name]


class _Frame(_Arrays):
    """A data frame of pandas, polars or Arrow, or a mapping of arrays."""

    kind = unit = "data frame"

    def __init__(self, source: Any) -> None:
        self.name, self._source = name_of(source), source
        keys = list(source if isinstance(source, Mapping) else getattr(source, "column_names", None) or source.columns)
        if hasattr(source, "index") and hasattr(source, "iloc"):  # pandas has names in the index, too
            levels = [name for name in source.index.names if name is not None and name not in keys]
            self._source, keys = source.reset_index(levels) if levels else source, [*keys, *levels]
        self._keys = {str(key): key for key in keys}
        self.names = tuple(map(str, keys))
        count = self.count()
        self.blocks = tuple(min(_BLOCK, count - start) for start in range(0, count, _BLOCK))

    def _column(self, name: str) -> Any:
        return self._source[self._keys[name]]

    def fingerprint(self, columns: Columns) -> str:
        count = self.count()
        ends = [next(self.raw(columns.names, _HEAD, (start, count)), {}) for start in (0, max(count - _HEAD, 0))]
        text = repr((count, [column.to_pylist() for cells in ends for column in cells.values()]))
        return hashlib.sha256(text.encode()).hexdigest()[:16]


_FORMATS: dict[str, type[_File]] = {".parquet": _Parquet, ".csv": _Text, ".tsv": _Text, ".npz": _Npz}
_SUFFIXES = " or ".join(", ".join(_FORMATS).rsplit(", ", 1))
