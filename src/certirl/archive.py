"""Files: arrays in npz with a JSON header, written whole or not at all, read without running anything."""

from __future__ import annotations

import json
import os
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

FORMAT = "certirl"
VERSION = 1


def target_of(path: str | os.PathLike[str]) -> Path:
    """Where `write` will write: the suffix is added if missing, the folder must be there."""
    target = Path(path)
    if target.suffix != ".npz":
        target = target.with_name(target.name + ".npz")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {target.parent} to write {target.name} to")
    return target


def write(path: str | os.PathLike[str], kind: str, header: dict[str, Any], arrays: dict[str, Any]) -> Path:
    """Write a record of some kind; the old file, if any, stays until the new one is complete."""
    target = target_of(path)
    text = json.dumps({"format": FORMAT, "version": VERSION, "kind": kind, **header}, allow_nan=True)
    descriptor, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".part")
    try:
        with os.fdopen(descriptor, "wb") as stream:
            np.savez(stream, header=np.array(text), **arrays)
        os.chmod(temporary, 0o644)  # temporary files are private; results are not
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise
    return target


def read(path: str | os.PathLike[str]) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Read a record: its kind, header and arrays. Damage and strange formats are sentences, never guesses."""
    source = Path(path)
    if not source.exists():
        raise FileNotFoundError(f"there is no file {source}")
    try:
        with source.open("rb") as stream, np.load(stream, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
        header = json.loads(str(arrays.pop("header")))
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
