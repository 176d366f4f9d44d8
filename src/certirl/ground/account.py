"""Who asked for what: a call and the code behind it in words, for records that are saved and for reports."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np

from certirl.ground.doors import file_name, is_installed, printable
from certirl.ground.records import Record, brief

_WITHOUT_EFFECT = ("map", "progress")  # on answers
_NAMED = ("reward", "source", "expert", "tail", "dynamics")  # arguments that a call alone does not identify


def account(call: str, given: Mapping[str, Any]) -> dict[str, str]:
    """A call in words by name: as Python writes it, which data and code of the user it is about, and the versions.

    Code is named with its file and the SHA-256 of that file as it is now, data with that of their rows. Of a file only
    the name is kept.
    """
    from certirl import __version__

    kept = {name: value for name, value in given.items() if value is not None and name not in _WITHOUT_EFFECT}
    values = {name: getattr(value, "__wrapped__", value) for name, value in kept.items()}
    texts = {name: brief(value)[0].replace("<locals>.", "") for name, value in values.items()}
    words = ", ".join(text if name in ("reward", "source") else f"{name}={text}" for name, text in texts.items())
    what = "simulator" if hasattr(values.get("source"), "sample") else "data"
    named = {what if name == "source" else name: identity(values[name]) for name in _NAMED if name in values}
    about = {"call": f"{call}({words})", **named, "versions": f"certirl {__version__}, NumPy {np.__version__}"}
    return {name: printable(text) for name, text in about.items() if text}


def identity(value: Any) -> str:
    """What data or code of the user are, in words; empty for what a call says itself, such as a number."""
    if isinstance(value, list | tuple):
        return "; ".join(filter(None, map(identity, value)))
    if isinstance(value, Record):
        digest = getattr(value, "digest", "")
        words = "" if type(value).__str__ is object.__str__ else value._headline()
        return f"{words}{digest and f', SHA-256 of the rows {digest}'}"
    while isinstance(value, partial):
        value = value.func
    value = getattr(value, "__func__", value)
    is_code = isinstance(value, type | FunctionType)
    if not is_code and type(value).__module__ in ("builtins", "numpy"):
        return ""
    kind = value if is_code else type(value)
    name, file = kind.__qualname__.replace("<locals>.", ""), Path(_file_of(kind))
    if is_installed(str(file)):
        return f"{name} of {kind.__module__}"
    if not file.is_file():
        return f"{name}, which is in no file"
    return f"{name}, {file_name(file.name)}, SHA-256 of the file {hashlib.sha256(file.read_bytes()).hexdigest()}"


def _file_of(kind: type | FunctionType) -> str:
    """The file of a function, or of the first method of a class that Python wrote; empty if there is none."""
    bases = kind.__mro__ if isinstance(kind, type) else ()
    functions = [kind] if isinstance(kind, FunctionType) else [each for base in bases for each in vars(base).values()]
    return next((each.__code__.co_filename for each in functions if isinstance(each, FunctionType)), "")
