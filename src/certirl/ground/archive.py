"""Files: any frozen record as npz arrays with a JSON header, by its fields; nothing in a file is executed.

A record is a frozen dataclass or a NamedTuple that `record` registers. Numbers, texts, tuples, dictionaries and nested
records go into the header, arrays into the npz file under their place in the record. Reading follows the annotations:
a field that is missing, unknown or of another type, size or dtype is a ValueError of one sentence.

- A field with ``metadata=UNSAVED`` is not written; it has its default when the record is read. One with
  ``metadata=stored_as("name")`` has another name in files than in Python.
- A function that is not a record is written as None, so that its annotation must allow None.
- ``Annotated[Array, Shape("A k k")]`` gives the shape: numbers, letters with one value throughout the record, or
  attributes of fields such as ``basis.size``. Arrays must be finite unless ``infinite=True``.
- A class with an attribute ``compressed`` that is true is written compressed.
- Texts are printable, so that no file can change what is printed around them; ``Annotated[str, Words("a", "b")]`` names
  the only ones that are possible.
- A method ``as_read(self, file)`` is called with every record that was read, the inner ones first. It raises ValueError
  where the fields contradict each other, and returns the record, with what depends on the file set.

Files stay readable: a change of the fields of any record is a new version of the format, and files of earlier versions
are converted here, by `_GAINED`. tests/checker/golden has files of every version.
"""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import secrets
import stat
import tempfile
import time
import types
import typing
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from certirl.ground.domain import Box, as_domain
from certirl.ground.doors import shown
from certirl.ground.records import Record, internal
from certirl.ground.unpacking import TooLargeError, arrays_of, regular

FORMAT = "certirl"
VERSION, OLDEST = 4, 2  # that is written, and the first that is read
# What records have gained since each version, with the values that files of that version stand for.
_UNKNOWN = "whatever was done to its rows, of which files of version 2 keep no notes"
_GAINED: dict[int, dict[str, dict[str, Any]]] = {
    2: {
        **{kind: {"log_notes": [_UNKNOWN]} for kind in ("Certificate", "GaussianCertificate", "Refutation")},
        "Diagnostics": {"log_notes": [], "asked": None, "reached": None},
        "Reward": {"ends": None},
    },
    3: {
        "Surrogate": {"powers": False},
        "Evidence": {"powers": None},
        **{kind: {"suboptimality": None, "about": {}} for kind in ("Certificate", "GaussianCertificate")},
        **{kind: {"about": {}} for kind in ("CellCertificate", "Refutation", "Solution", "SoftSolution")},
        "BoundedReward": {"apart": None, "slopes": None, "slopes_source": "proved"},
        "FeaturePath": {"gains": None, "signs": None},
        "Diagnostics": {"exogenous": []},
        "Finding": {"next": ""},
    },
}
UNSAVED: Mapping[str, Any] = types.MappingProxyType({"saved": False})


def stored_as(name: str) -> Mapping[str, Any]:
    """The metadata of a field that has this name in files."""
    return types.MappingProxyType({"stored": name})


_RECORDS: dict[str, type] = {}
_UNREADABLE = (
    OSError, ValueError, KeyError, IndexError, TypeError, EOFError, zipfile.BadZipFile, zlib.error, AttributeError,
    RuntimeError, OverflowError,
)  # fmt: skip
_NUMBERS = {"f": (int, float), "i": (int,), "u": (int,), "b": (bool,)}  # what JSON has for each kind of array
_INFINITE = ("inf", "-inf")
# What JSON has for each annotation of a single value.
_SCALARS: dict[Any, tuple[type, ...]] = {kind: (kind,) for kind in (str, bool, int, type(None))}
_SCALARS |= {float: (int, float), Any: (str, bool, int, float, type(None))}
_Record = TypeVar("_Record", bound=type)
_Note = TypeVar("_Note")
_DAY = 86_400.0
# Of file systems that cannot do it; other errors mean that the content is not on the disk.
_NO_FSYNC = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP)


@internal
class Shape(NamedTuple):
    """The shape of an array in a record, for ``Annotated[Array, Shape("A k k")]``."""

    # one for each axis, separated by spaces: a number, a letter that stands for one number throughout the record, or an
    # attribute of a field such as ``basis.size``; ``…`` at the end for any further axes
    sizes: str
    infinite: bool = False  # entries may be infinite


@internal
class Words(tuple[str, ...]):
    """The words that a field can hold, for ``Annotated[str, Words("a", "b")]``; with those of older files."""

    def __new__(cls, *words: str) -> Words:  # noqa: D102
        return super().__new__(cls, words)


def record(cls: _Record) -> _Record:
    """Class decorator: records of this class can be saved and loaded, under the name of the class."""
    first = _RECORDS.setdefault(cls.__name__, cls)
    if (first.__module__, first.__qualname__) != (cls.__module__, cls.__qualname__):
        raise TypeError(f"two records are called {cls.__name__}: those of {first.__module__} and of {cls.__module__}")
    _RECORDS[cls.__name__] = cls
    return cls


def as_path(path: Any) -> Path:
    """The name of a file or folder as a path; other types and the empty name are refused."""
    if not isinstance(path, str | os.PathLike) or not isinstance(os.fspath(path), str):
        raise TypeError(f"a file is named by a string or a path, got {shown(path)}")
    if not os.fspath(path) or "\0" in os.fspath(path):
        raise ValueError(f"the name of a file must not be empty nor contain the character 0, got {path!r}")
    try:
        os.lstat(path)
    except OSError as problem:
        if problem.errno == errno.ENAMETOOLONG:
            raise ValueError(f"the name of a file is too long for this system, got {shown(path)}") from None
    return Path(path)


def target_of(path: Any, suffixes: Sequence[str] = (".npz",)) -> Path:
    """The file that will be written, refused with a sentence if that is known to fail.

    The first suffix is added to a name that has none of them; where there are several, a name with another is refused.
    """
    named = as_path(path)
    if os.fspath(path) == "-":
        raise ValueError(f"cannot write to standard output: name a file, such as result{suffixes[0]}")
    try:
        if named.is_dir() or named.name in ("", ".."):
            raise IsADirectoryError(
                f"cannot write {path}: it is a folder; name a file, such as {named / 'name'}{suffixes[0]}"
            )
        target = named if named.suffix.lower() in suffixes else named.with_name(named.name + suffixes[0])
        if not target.parent.is_dir():
            raise FileNotFoundError(f"there is no folder {target.parent} to write {target.name} to")
        if target.exists() and not target.is_file():
            raise OSError(f"cannot write {target}: it exists and is not a file")
        for place in (target.parent, target) if target.exists() else (target.parent,):
            if not os.access(place, os.W_OK):
                raise PermissionError(f"cannot write {target}: {place} is write-protected")
    except OSError as problem:
        raise _in_words(problem, named) from None
    if target != named and len(suffixes) > 1 and named.suffix[1:].isalpha():
        ends = f"{', '.join(suffixes[:-1])} or {suffixes[-1]}"
        raise ValueError(f"cannot write {named.name}: its name must end in {ends}")
    return target


def check_writable(path: Any, suffixes: Sequence[str] = (".npz",)) -> Path:
    """`target_of`, and a try to write beside it: before long work rather than after it."""
    target = target_of(path, suffixes)
    try:
        with tempfile.TemporaryFile(dir=_followed(target).parent) as stream:
            stream.write(b"certirl")
    except OSError as problem:
        raise _in_words(problem, target) from None
    return target


@contextmanager
def replacing(target: Path) -> Iterator[Path]:
    """A file to write to that takes the place of another when it is complete; if anything fails, nothing is left of it.

    The new file has the permissions of the old one, or those that the umask gives. It is on the disk before it takes
    the place; of a link it is what the link leads to. What killed writers left in the folder a day ago is removed.
    """
    temporary = None
    try:
        final = _followed(target)
        _remove_stale(final.parent)
        old = final.stat() if final.exists() else None
        name = final.with_name(f"{_MARK}{secrets.token_hex(8)}{target.suffix}")
        os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666 if old is None else 0o600))
        temporary = name
        yield temporary
        _flush(temporary, os.O_RDWR)
        if old is not None:
            with suppress(OSError, AttributeError):  # only an administrator writes for somebody else
                os.chown(temporary, old.st_uid, old.st_gid)
            os.chmod(temporary, stat.S_IMODE(old.st_mode))
        os.replace(temporary, final)
        with suppress(OSError):  # a folder cannot be opened on every system
            _flush(final.parent, os.O_RDONLY)
    except BaseException as problem:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        if isinstance(problem, OSError):
            raise _in_words(problem, target) from None
        raise


def _flush(path: Path, access: int) -> None:
    """Have a file or folder written to the disk."""
    descriptor = os.open(path, access)
    try:
        os.fsync(descriptor)
    except OSError as problem:
        if problem.errno not in _NO_FSYNC:
            raise
    finally:
        os.close(descriptor)


_MARK = ".certirl-"  # at the beginning of the names of temporary files


def _remove_stale(folder: Path) -> None:
    """Remove temporary files to which nothing was written for a day: their writers were killed."""
    for path in folder.glob(f"{_MARK}*"):
        with suppress(OSError):  # another writer may have been faster
            found = path.lstat()
            if stat.S_ISREG(found.st_mode) and time.time() - found.st_mtime > _DAY:
                path.unlink()


def _followed(target: Path) -> Path:
    return Path(os.path.realpath(target))


def _in_words(problem: OSError, path: Path | str) -> OSError:
    """The same error with a sentence for a message, unless it has one."""
    if problem.errno is None:
        return problem
    return type(problem)(f"cannot write {path}: {str(problem.strerror).lower()}")


def save(record: Any, path: Any) -> Path:
    """Write a record to an npz file (suffix added if missing); an old file stays until the new one is complete."""
    target, (header, arrays) = target_of(path), _written(record)
    text = json.dumps(header, allow_nan=True, ensure_ascii=False)
    with replacing(target) as temporary, temporary.open("wb") as stream:
        write = np.savez_compressed if getattr(record, "compressed", False) else np.savez
        write(stream, header=np.array(text), **arrays)
    return target


def load(path: Any) -> Any:
    """Read the record that `save` wrote; a file that is damaged or was changed is refused with a sentence."""
    return _decoded(*read(path), str(path))


@internal
class Saved(Record):
    """A record that is written to a file as it is."""

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write everything to an npz file (suffix added if missing); `certirl.load` reads it back.

        Example:
            >>> certirl.load(certirl.Reward(certirl.Legendre(2), [0.0, 1.0]).save("reward")).coefficients
            array([0., 1.])
        """
        return save(self, path)


def _decoded(header: dict[str, Any], arrays: dict[str, Any], source: str) -> Any:
    """The record of a file or text, whose format is checked first."""
    _check_format(header, source)
    try:
        for version in range(header["version"], VERSION):
            _convert(header["record"], _GAINED[version])
        loaded = _Reader(arrays, source).decoded(Any, header["record"], "")
        if arrays:
            raise ValueError(f"there is no field for the array {min(arrays)}")
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, ArithmeticError, RecursionError) as problem:
        raise ValueError(f"{source} is damaged or was changed: {problem}") from None
    return loaded


def _convert(part: Any, gained: Mapping[str, Mapping[str, Any]]) -> None:
    """Give all records within a header what they gained in the version that followed."""
    if isinstance(part, dict):
        part.update(gained.get(str(part.get("type")), {}))
    for inner in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
        _convert(inner, gained)


def to_json(record: Any) -> str:
    """A record as JSON text: what an npz file holds, with the arrays as lists of numbers under their places."""
    header, arrays = _written(record)
    header["arrays"] = {place: _listed(array) for place, array in arrays.items()}
    return json.dumps(header, allow_nan=False, ensure_ascii=False)


def from_json(text: Any) -> Any:
    """Read the record that `to_json` wrote; a text that was changed is refused with a sentence."""
    if not isinstance(text, str):
        raise TypeError(f"JSON is a text, got {shown(text)}")
    try:
        header, arrays = _parsed(text)
    except _UNREADABLE:
        raise ValueError(f"this is not the JSON of a certirl record, or it is cut short: {shown(text)}") from None
    return _decoded(header, arrays, "the text")


def _listed(array: NDArray[Any]) -> dict[str, Any]:
    """An array for JSON, which has no infinite numbers: they are written as texts."""
    numbers = [x if np.isfinite(x) else str(x) for x in array.ravel().tolist()]
    return {"dtype": str(array.dtype), "values": numbers}


def _parsed(text: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The header and the arrays of a JSON text."""
    header, arrays = json.loads(text), dict[str, Any]()
    for place, listed in header.pop("arrays").items():
        dtype, values = np.dtype(listed["dtype"]), listed["values"]
        if not all(type(x) in _NUMBERS[dtype.kind] or (dtype.kind == "f" and x in _INFINITE) for x in values):
            raise ValueError(f"{place} is no list of numbers")
        arrays[place] = np.array(values, dtype=dtype).reshape(_shape_in(header["record"], place))
    return header, arrays


def _shape_in(header: Any, place: str) -> list[int]:
    """The shape of an array, which the header has at its place."""
    for name in place.split("."):
        header = header[int(name) if isinstance(header, list) else name]
    return [int(size) for size in header["array"]]


def read(path: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The header and the arrays of a file, npz or JSON, as they are."""
    source = regular(as_path(path))
    try:
        header, arrays = _contents(source)
    except PermissionError:
        raise PermissionError(f"cannot read {source}: permission denied") from None
    except TooLargeError as problem:
        raise ValueError(f"{source}: {problem}") from None
    except _UNREADABLE:
        raise ValueError(f"{source} is not a certirl file, or it is damaged or cut short") from None
    _check_format(header, str(source))
    return header, arrays


def _contents(source: Path, *, header_only: bool = False) -> tuple[dict[str, Any], dict[str, Any]]:
    """The header and the arrays of a file, npz or JSON; without the arrays of an npz file if not needed."""
    with regular(source).open("rb") as stream:
        if stream.read(1) == b"{":
            return _parsed((b"{" + stream.read()).decode())
    arrays = arrays_of(source, ["header"] if header_only else None)
    return json.loads(str(arrays.pop("header"))), arrays


def _check_format(header: Any, source: str) -> None:
    """Refuse what is no certirl file, or one of another version."""
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise ValueError(f"{source} is not a certirl file: its header names no certirl format")
    version = header.get("version")
    if type(version) is not int or not OLDEST <= version <= VERSION:
        newer = type(version) is int and version > VERSION
        instead = "update certirl to read it" if newer else "make it again with this certirl"
        raise ValueError(
            f"{source} has format version {shown(version)} and this certirl reads {OLDEST} to {VERSION}: {instead}"
        )
    if not isinstance(header.get("record"), dict):
        raise ValueError(f"{source} is damaged or was changed: it holds no record")


def kind_of(path: Any) -> str | None:
    """The kind of record in a file, which is the name of its class; None if it is no certirl file."""
    try:
        header, _ = _contents(Path(path), header_only=True)
        return str(header["record"]["type"]) if header["format"] == FORMAT else None
    except _UNREADABLE:
        return None


def _written(record: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The header and the arrays that stand for a record."""
    arrays = dict[str, Any]()
    return {"format": FORMAT, "version": VERSION, "record": _encoded(record, "", arrays)}, arrays


def _encoded(value: Any, place: str, arrays: dict[str, Any]) -> Any:
    """A value for the header; its arrays are added to ``arrays`` under their places."""
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in "fiub":
            raise TypeError(f"a file keeps arrays of numbers and truth values, got {value.dtype} in {place}")
        arrays[place] = value
        return {"array": list(value.shape)}
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, str):
        return _text(value, place)
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        return float(value)
    if _RECORDS.get(type(value).__name__) is type(value):
        cls: Any = type(value)
        names = _saved_fields(cls)
        return {"type": type(value).__name__} | {
            name: _encoded(getattr(value, _attribute(cls, name)), _below(place, name), arrays) for name in names
        }
    if isinstance(value, tuple | list):
        return [_encoded(item, _below(place, i), arrays) for i, item in enumerate(value)]
    if isinstance(value, dict) and all(isinstance(name, str) for name in value):
        return {name: _encoded(item, _below(place, name), arrays) for name, item in value.items()}
    if value is None or callable(value):
        return None
    raise TypeError(f"a file cannot keep {shown(value)} in {place or 'this record'}")


def _text(value: str, place: str) -> str:
    """A text of a record, which must be printable."""
    if not value.isprintable():
        raise ValueError(f"{place} must be a text of printable characters, got {shown(value)}")
    return str(value)


def _below(place: str, name: Any) -> str:
    return f"{place}.{name}" if place else str(name)


@cache
def _saved_fields(cls: Any) -> dict[str, Any]:
    """The fields of a record that a file holds, with their annotations."""
    hints = typing.get_type_hints(cls, include_extras=True)
    if not dataclasses.is_dataclass(cls):
        return {name: hints[name] for name in cls._fields}
    saved = [field for field in dataclasses.fields(cls) if field.init and field.metadata.get("saved", True)]
    return {field.metadata.get("stored", field.name): hints[field.name] for field in saved}


def _attribute(cls: Any, name: str) -> str:
    """The field of a record that has a name in files."""
    fields = dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ()
    return next((field.name for field in fields if field.metadata.get("stored") == name), name)


class _Reader:
    """Turns what a header says into records; every array is taken out of ``arrays`` once."""

    def __init__(self, arrays: dict[str, Any], file: str) -> None:
        self._arrays, self._file = arrays, file

    def decoded(self, hint: Any, value: Any, place: str) -> Any:
        """The value that an annotation allows; ValueError for any other."""
        options = _alternatives(hint)
        if isinstance(value, dict) and value.keys() == {"array"}:
            return self._array(options, value["array"], place)
        if isinstance(value, dict) and "type" in value:
            return self._record(options, value, place)
        for option in options:
            origin, arguments = typing.get_origin(option), typing.get_args(option)
            if isinstance(value, list) and option is Box:
                return as_domain(self._entries((tuple[float, float], ...), value, place))
            if isinstance(value, list) and (origin is tuple or option is Any):
                return self._entries(arguments or (Any, ...), value, place)
            if isinstance(value, dict) and origin is dict:
                names = [_text(name, f"a name in {place}") for name in value]
                return {name: self.decoded(arguments[1], value[name], _below(place, name)) for name in names}
            if origin is typing.Literal and any(value == word and type(value) is type(word) for word in arguments):
                return value
            if type(value) in _SCALARS.get(option, ()):
                return _text(value, place) if type(value) is str else float(value) if option is float else value
        raise ValueError(f"{place or 'the file'} must be {_wanted(options)}, got {shown(value)}")

    def _entries(self, hints: Sequence[Any], values: list[Any], place: str) -> tuple[Any, ...]:
        each = (hints[0],) * len(values) if hints[-1] is ... else hints
        if len(each) != len(values):
            raise ValueError(f"{place} must have {len(each)} entries, got {len(values)}")
        pairs = enumerate(zip(each, values, strict=True))
        return tuple(self.decoded(hint, value, _below(place, i)) for i, (hint, value) in pairs)

    def _array(self, options: Sequence[Any], shape: Any, place: str) -> NDArray[Any]:
        kinds = "".join(_dtypes(option) for option in options)
        if place not in self._arrays or not kinds:
            what = "holds no array" if kinds else "is not an array"
            raise ValueError(f"{place} {what}: it must be {_wanted(options)}")
        array = self._arrays.pop(place)
        if array.dtype.kind not in kinds or list(array.shape) != shape:
            got = f"{array.dtype} {list(array.shape)}"
            raise ValueError(f"{place} must be {_wanted(options)} of shape {shown(shape)}, got {got}")
        if array.dtype.kind == "f" and np.isnan(array).any():
            raise ValueError(f"{place} must hold numbers, got NaN")
        array.flags.writeable = False
        return np.asarray(array)

    def _record(self, options: Sequence[Any], header: dict[str, Any], place: str) -> Any:
        cls: Any = _RECORDS.get(header["type"]) if isinstance(header["type"], str) else None
        if cls is None or not any(_allows(option, cls) for option in options):
            raise ValueError(f"{place or 'the file'} must be {_wanted(options)}, got {shown(header['type'])}")
        hints, name = _saved_fields(cls), f"{place or cls.__name__}"
        for field in (*hints, *header):
            if field not in header:
                raise ValueError(f"{name} lacks the field {field}")
            if field != "type" and field not in hints:
                raise ValueError(f"{name} has no field {field}")
        values = {field: self.decoded(hint, header[field], _below(place, field)) for field, hint in hints.items()}
        for field, hint in hints.items():
            if (words := _noted(hint, Words)) is not None and values[field] not in words:
                known = ", ".join(map(repr, words))
                raise ValueError(f"{_below(place, field)} must be one of {known}, got {shown(values[field])}")
        _check_shapes(hints, values, place)
        decoded = cls(**{_attribute(cls, field): value for field, value in values.items()})
        return decoded.as_read(self._file) if hasattr(decoded, "as_read") else decoded


def _alternatives(hint: Any) -> tuple[Any, ...]:
    """The members of a union, without what only annotates or names them."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        return _alternatives(arguments[0])
    if origin in (typing.Union, types.UnionType):
        return tuple(option for member in arguments for option in _alternatives(member))
    if hasattr(origin, "__value__"):  # a named type, as NDArray is since numpy 2.5 on Python 3.12
        return _alternatives(origin.__value__[arguments])
    return (hint,)


def _dtypes(option: Any) -> str:
    """The kinds of dtype that an annotation allows, nothing if it allows no array."""
    if typing.get_origin(option) is not np.ndarray:
        return "fiub" if option is Any else ""
    (entry,) = typing.get_args(typing.get_args(option)[1]) or (Any,)
    if not isinstance(entry, type):
        return "fiu"
    return "b" if issubclass(entry, np.bool_) else "iu" if issubclass(entry, np.integer) else "f"


def _allows(option: Any, cls: type) -> bool:
    if option is Any:
        return True
    if typing.get_origin(option) is Callable:
        return hasattr(cls, "__call__")  # noqa: B004  # of the class, whose instances are called
    if getattr(option, "_is_protocol", False):
        return True
    return isinstance(option, type) and issubclass(cls, option)


# What annotations allow: values of a type, of a generic type, arrays of a kind.
_WORDS = {
    type(None): "nothing", str: "text", float: "a number", int: "a whole number", bool: "true or false", Box: "a list",
    tuple: "a list", dict: "values by name",
    "b": "an array of truth values", "iu": "an array of whole numbers", "f": "an array of numbers",
    "fiu": "an array of numbers",
}  # fmt: skip


def _wanted(options: Sequence[Any]) -> str:
    """What an annotation allows, for a sentence."""
    words = list[str]()
    for option in options:
        origin, dtypes = typing.get_origin(option), _dtypes(option)
        if origin is typing.Literal:
            words += map(repr, typing.get_args(option))
        else:
            known = _WORDS.get(option) or _WORDS.get(origin) or (_WORDS.get(dtypes) if option is not Any else None)
            words.append(str(known or getattr(option, "__name__", "a record")))
    return " or ".join(dict.fromkeys(words))


def _check_shapes(hints: dict[str, Any], values: dict[str, Any], place: str) -> None:
    """Refuse arrays whose sizes contradict their annotations or each other."""
    letters: dict[str, int] = {}
    for field, hint in hints.items():
        array, name = values[field], _below(place, field)
        if not isinstance(array, np.ndarray):
            continue
        shape = _noted(hint, Shape)
        if array.dtype.kind == "f" and not (shape is not None and shape.infinite) and not np.isfinite(array).all():
            raise ValueError(f"{name} must hold finite numbers")
        if shape is None:
            continue
        wanted, got = shape.sizes.split(), f"got shape {list(array.shape)}"
        if array.ndim < len(wanted) - 1 or (wanted[-1:] != ["…"] and array.ndim != len(wanted)):
            raise ValueError(f"{name} must have the shape [{', '.join(wanted)}], {got}")
        for size, length in zip(wanted, array.shape, strict=False):
            if size == "…":
                break
            expected = _size(size, values, letters, length)
            if length != expected:
                raise ValueError(f"{name} must have the shape [{', '.join(wanted)}] with {size} = {expected}, {got}")


def _size(size: str, values: dict[str, Any], letters: dict[str, int], length: int) -> int:
    """The length that a name in a `Shape` stands for; a letter that is new stands for the length at hand."""
    first, *attributes = size.split(".")
    if size.isdecimal():
        return int(size)
    if first in values:
        value = values[first]
        for attribute in attributes:
            value = getattr(value, attribute)
        return int(value)
    return letters.setdefault(size, length)


def _noted(hint: Any, kind: type[_Note]) -> _Note | None:
    """What is annotated in a hint, of this kind; None without any."""
    if typing.get_origin(hint) is Annotated:
        return next((extra for extra in hint.__metadata__ if isinstance(extra, kind)), None)
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return next((note for member in typing.get_args(hint) if (note := _noted(member, kind)) is not None), None)
    return None
