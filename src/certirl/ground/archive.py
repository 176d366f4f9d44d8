"""Files: arrays in npz with a JSON header, written whole or not at all, read without running anything."""

from __future__ import annotations

import json
import os
import tempfile
import zipfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from certirl.ground.doors import as_count, as_flag, as_number, shown

FORMAT = "certirl"
VERSION = 1


def as_path(path: Any) -> Path:
    """The name of a file or folder as a path; other types and the empty name are refused."""
    if not isinstance(path, str | os.PathLike) or not isinstance(os.fspath(path), str):
        raise TypeError(f"a file is named by a string or a path, got {shown(path)}")
    if not os.fspath(path) or "\0" in os.fspath(path):
        raise ValueError(f"the name of a file must not be empty nor contain the character 0, got {path!r}")
    return Path(path)


def target_of(path: Any, suffixes: Sequence[str] = (".npz",)) -> Path:
    """The file that will be written, refused with a sentence if that is known to fail.

    Args:
        path: its name.
        suffixes: of such files; the first one is added to a name that has none of them.
    """
    named = as_path(path)
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


def folder_of(path: Any) -> Path:
    """A folder to write to, made if it is not there, refused with a sentence if nothing can be written to it."""
    folder = as_path(path)
    try:
        if folder.exists() and not folder.is_dir():
            raise NotADirectoryError(f"cannot write to {folder}: it is a file, not a folder")
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as stream:
            stream.write(b"certirl")
    except OSError as problem:
        raise _in_words(problem, f"to {folder}") from None
    return folder


@contextmanager
def replacing(target: Path) -> Iterator[Path]:
    """A file to write to that takes the place of another when it is complete; if anything fails, nothing is left of it.

    Args:
        target: the file to write or replace; where it is a link, what it leads to.
    """
    temporary = None
    try:
        final = _followed(target)
        descriptor, name = tempfile.mkstemp(dir=final.parent, prefix=".certirl-", suffix=target.suffix)
        os.close(descriptor)
        temporary = Path(name)
        yield temporary
        os.chmod(temporary, 0o644)  # temporary files are private; results are not
        os.replace(temporary, final)
    except BaseException as problem:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        if isinstance(problem, OSError):
            raise _in_words(problem, target) from None
        raise


def _followed(target: Path) -> Path:
    return Path(os.path.realpath(target))


def _in_words(problem: OSError, path: Path | str) -> OSError:
    """The same error with a sentence for a message, unless it has one."""
    if problem.errno is None:
        return problem
    return type(problem)(f"cannot write {path}: {str(problem.strerror).lower()}")


def write(path: Any, kind: str, header: dict[str, Any], arrays: dict[str, Any]) -> Path:
    """Write a record of some kind; the old file, if any, stays until the new one is complete."""
    target = target_of(path)
    text = json.dumps({"format": FORMAT, "version": VERSION, "kind": kind, **header}, allow_nan=True)
    with replacing(target) as temporary, temporary.open("wb") as stream:
        np.savez(stream, header=np.array(text), **arrays)
    return target


def read(path: str | os.PathLike[str]) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Read a record: its kind, header and arrays. Damage and strange formats are sentences, never guesses."""
    source = as_path(path)
    if not source.is_file():
        raise FileNotFoundError(f"{source} is a folder" if source.is_dir() else f"there is no file {source}")
    try:
        with source.open("rb") as stream, np.load(stream, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
        header = json.loads(str(arrays.pop("header")))
    except PermissionError:
        raise PermissionError(f"cannot read {source}: permission denied") from None
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile, AttributeError):
        raise ValueError(f"{source} is not a certirl file, or it is damaged or cut short") from None
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise ValueError(f"{source} is not a certirl file: its header names no certirl format")
    if header.get("version") != VERSION:
        raise ValueError(
            f"{source} has format version {header.get('version')} but this certirl reads {VERSION}; upgrade certirl"
        )
    return str(header.get("kind")), header, arrays


def kind_of(path: str | os.PathLike[str]) -> str | None:
    """The kind of record in a file; None if it is no certirl file, whatever else it is."""
    try:
        with Path(path).open("rb") as stream, np.load(stream, allow_pickle=False) as stored:
            header = json.loads(str(stored["header"]))
        return str(header["kind"]) if header["format"] == FORMAT else None
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile, AttributeError):
        return None


@dataclass(frozen=True)
class Stored:
    """The fields of a record in a file, asked for one by one with their types, ranges and shapes.

    A file comes from outside as any argument does: what does not fit is a ValueError that names the field.

    Attributes:
        words: the header's fields.
        arrays: the arrays by name.
        owner: what the fields belong to, for sentences: "certificate " or nothing.
    """

    words: dict[str, Any]
    arrays: dict[str, Any]
    owner: str = ""

    def __contains__(self, name: str) -> bool:
        return name in self.words

    def part(self, name: str, prefix: str | None = None) -> Stored:
        """The fields of a record within this one, whose arrays have its name, or a prefix, before theirs."""
        words, start = self.field(name), f"{name}_" if prefix is None else prefix
        if not isinstance(words, dict):
            raise ValueError(f"{self.owner}{name} must be fields by name, got {shown(words)}")
        arrays = {key[len(start) :]: value for key, value in self.arrays.items() if key.startswith(start)}
        return Stored(words, arrays, f"{name} ")

    def field(self, name: str) -> Any:
        """A field, whatever it is."""
        if name not in self.words:
            raise ValueError(f"{self.owner}{name} is missing")
        return self.words[name]

    def text(self, name: str, among: Collection[str] | None = None) -> str:
        """Text, one of some words if they are given."""
        value = self.field(name)
        if not isinstance(value, str) or (among is not None and value not in among):
            wanted = "text" if among is None else f"one of {', '.join(among)}"
            raise ValueError(f"{self.owner}{name} must be {wanted}, got {shown(value)}")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """Several texts."""
        value = self.field(name)
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise ValueError(f"{self.owner}{name} must be a list of texts, got {shown(value)}")
        return tuple(value)

    def number(self, name: str, *, infinite: bool = False, undefined: bool = False, **limits: Any) -> float:
        """A number within limits, as `doors.as_number` has them; infinite, or undefined, if that is allowed."""
        value = self.field(name)
        if isinstance(value, float) and ((infinite and np.isinf(value)) or (undefined and np.isnan(value))):
            return value
        return as_number(value, f"{self.owner}{name}", **limits)

    def count(self, name: str, *, least: int = 0, most: int | None = None) -> int:
        """A whole number."""
        return as_count(self.field(name), f"{self.owner}{name}", least=least, most=most)

    def flag(self, name: str) -> bool:
        """True or False."""
        return as_flag(self.field(name), f"{self.owner}{name}")

    def maybe(self, ask: str, name: str, **limits: Any) -> Any:
        """None if the file says so, else what the method called ``ask`` makes of the field."""
        return None if self.field(name) is None else getattr(self, ask)(name, **limits)

    def numbers(self, name: str, *, infinite: bool = False, **limits: Any) -> dict[str, float]:
        """Numbers by name."""
        own = self.part(name)
        return {key: own.number(key, infinite=infinite, **limits) for key in own.words}

    def array(
        self, name: str, shape: tuple[int | None, ...], *, kinds: str = "fiu", infinite: bool = False
    ) -> NDArray[Any]:
        """An array of this shape, None standing for any length: finite numbers, whole ones or truth values by kind."""
        if name not in self.arrays:
            raise ValueError(f"{self.owner}{name} is missing")
        value = np.asarray(self.arrays[name])
        fits = value.ndim == len(shape) and all(n in (None, m) for n, m in zip(shape, value.shape, strict=True))
        if not fits or value.dtype.kind not in kinds:
            wanted = ", ".join("n" if n is None else str(n) for n in shape)
            what = {"b": "truth values", "iu": "whole numbers"}.get(kinds, "numbers")
            got = f"{value.dtype} {list(value.shape)}"
            raise ValueError(f"{self.owner}{name} must hold {what} of shape [{wanted}], got {got}")
        if (value.dtype.kind == "f" and not (infinite or np.isfinite(value).all())) or np.isnan(value).any():
            raise ValueError(f"{self.owner}{name} must hold finite numbers")
        return value
