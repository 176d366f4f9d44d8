"""What every public record has in common: plain data for JSON, a short ``repr``, and a card in notebooks."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from math import isfinite, isnan
from typing import Any, ClassVar, TypeVar

import numpy as np

from certirl.ground.doors import as_count

LISTED = 100  # entries up to which an array is listed by `Record.to_dict`
LONGEST = 200  # characters of a repr
_CALL = 120  # characters up to which a record is shown as the call that makes it

_Named = TypeVar("_Named")


def internal(named: _Named) -> _Named:
    """Decorator of names that are for other modules of the library: the pages of the reference leave them out."""
    named.__doc__ = f"{named.__doc__}\n\n:meta private:"
    return named


def freeze(record: Any, **values: Any) -> None:
    """Make the arrays of a frozen dataclass read-only, also those in tuples, without changing the caller's array."""
    for name, value in values.items():
        object.__setattr__(record, name, value)
    for field in dataclasses.fields(record):
        value = getattr(record, field.name)
        if isinstance(value, np.ndarray):
            object.__setattr__(record, field.name, _read_only(value))
        elif type(value) is tuple and any(isinstance(item, np.ndarray) for item in value):
            object.__setattr__(record, field.name, tuple(map(_read_only, value)))


def _read_only(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    view = array.view()
    view.flags.writeable = False
    return view


class Record:
    """A frozen record with read-only arrays, which converts itself to plain data and has a card in notebooks.

    Example:
        >>> certirl.dynamics.Smooth(2, 0.5).to_dict()
        {'type': 'Smooth', 'order': 2, 'bound': 0.5}
        >>> certirl.dynamics.Smooth(2, 0.5)
        Smooth(order=2, bound=0.5)
    """

    _derived: ClassVar[tuple[str, ...]] = ()  # properties that `to_dict` adds to the fields

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.__repr__ = cls.__repr__  # type: ignore[method-assign]  # in the class itself a dataclass leaves it as it is

    def __post_init__(self) -> None:
        freeze(self)

    def to_dict(self, *, entries: int | None = LISTED) -> dict[str, Any]:
        """The record as dictionaries, lists, texts, numbers, True, False and None, as ``json.dumps`` takes them.

        Keys are the names in the code, of fields and of some properties; "type" is the name of the class. NaN, which
        stands for what does not apply or is not known, becomes None; infinite numbers become the texts "Infinity" and
        "-Infinity", which ``float`` reads. A function becomes its name, an object that is no record the name of its
        class.

        Args:
            entries: arrays with more entries are summarised as ``{"shape": […], "dtype": "…"}``; None lists all.

        Example:
            >>> certirl.dynamics.Smooth(order=2, bound=0.5).to_dict()
            {'type': 'Smooth', 'order': 2, 'bound': 0.5}
        """
        return _fields_of(self, None if entries is None else as_count(entries, "entries", least=0))

    def _repr_html_(self) -> str:
        """The record in a notebook: its headline, small pictures and the lines of its print."""
        from certirl.show.cards import card

        return card(self)

    def _headline(self) -> str:
        """What the record says, in a line."""
        return " ".join(str(self).partition("\n")[0].split())

    def __repr__(self) -> str:
        parts = {name: brief(value) for name, value in _differing(self).items()}
        call = f"{type(self).__name__}({', '.join(f'{name}={text}' for name, (text, _) in parts.items())})"
        is_all = len(call) <= _CALL and all(whole for _, whole in parts.values())
        printed = type(self).__str__ is not object.__str__ and not is_all
        text = f"<{type(self).__name__}: {self._headline()}>" if printed else call
        return text if len(text) <= LONGEST else f"{text[: LONGEST - 2]}…{text[-1]}"


def _names(value: Any) -> Iterator[str]:
    """The names of the public fields of a record."""
    if dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value)]
    else:
        names = list(getattr(value, "_fields", None) or vars(value))
    return (name for name in names if not name.startswith("_"))


def _fields_of(value: Any, entries: int | None) -> dict[str, Any]:
    names = dict.fromkeys([*getattr(value, "_derived", ()), *_names(value)])
    return {"type": type(value).__name__} | {name: plain(getattr(value, name), entries) for name in names}


def plain(value: Any, entries: int | None = LISTED) -> Any:
    """A value as `Record.to_dict` writes it."""
    if value is None or isinstance(value, bool | np.bool_):
        return None if value is None else bool(value)
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        return _number(float(value))
    if isinstance(value, np.ndarray) and (entries is None or value.size <= entries):
        return plain(value.tolist(), entries)
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return {"shape": list(value.shape), "dtype": str(value.dtype)}
    if hasattr(value, "__qualname__"):  # a class or a function
        return str(value.__qualname__)
    if isinstance(value, Record) or dataclasses.is_dataclass(value) or hasattr(value, "_fields"):
        return _fields_of(value, entries)
    if isinstance(value, Mapping):
        return {str(name): plain(item, entries) for name, item in value.items()}
    if isinstance(value, tuple | list | set | frozenset | range):
        return [plain(item, entries) for item in value]
    return os.fspath(value) if isinstance(value, os.PathLike) else type(value).__qualname__


def _number(value: float) -> float | str | None:
    if isfinite(value):
        return value
    return None if isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _differing(record: Any) -> dict[str, Any]:
    """The fields of a record that are not at their defaults."""
    defaults: dict[str, Any] = {}
    if dataclasses.is_dataclass(record):
        defaults = {field.name: field.default for field in dataclasses.fields(record) if field.repr}
    values = {name: getattr(record, name) for name in _names(record) if name in defaults or not defaults}
    return {name: value for name, value in values.items() if not _same(value, defaults.get(name))}


def _same(value: Any, default: Any) -> bool:
    if isinstance(value, float) and isinstance(default, float) and isnan(value):
        return isnan(default)
    return value is default or (isinstance(value, str | int | float | tuple) and value == default)


def brief(value: Any) -> tuple[str, bool]:
    """A value in short, and whether that says all of it."""
    if isinstance(value, np.generic | Enum) or value is None or isinstance(value, str | bool | int | float):
        return repr(value.item() if isinstance(value, np.generic) else value), True
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"{value.dtype}{list(value.shape)}", False
    if isinstance(value, tuple | list):
        texts, whole = _all_brief(value)
        return f"({', '.join(texts)}{',' * (len(value) == 1)})", whole
    if isinstance(value, Mapping):
        texts, whole = _all_brief(value.values())
        return f"{{{', '.join(f'{name!r}: {text}' for name, text in zip(value, texts, strict=True))}}}", whole
    if isinstance(value, Record):
        text = repr(value)
        is_long = text.startswith("<") or "…" in text
        return (f"{type(value).__name__}(…)", False) if is_long else (text, True)
    return str(getattr(value, "__qualname__", type(value).__qualname__)), False


def _all_brief(values: Iterable[Any]) -> tuple[list[str], bool]:
    pairs = [brief(value) for value in values]
    return [text for text, _ in pairs], all(whole for _, whole in pairs)
