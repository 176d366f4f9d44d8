"""Files from outside, read within limits: no pipes, no sizes that a file only claims, no more unpacked than is likely.

A compressed file may unpack to `FREELY` bytes, or to `TIMES` times its own size if that is more: what people log is
packed to a tenth or a twentieth, a file of zeros to a thousandth.
"""

from __future__ import annotations

import gzip
import io
import math
import stat
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

FREELY, TIMES = 2**28, 100


class TooLargeError(ValueError):
    """A file unpacks to more than the limit."""

    def __init__(self) -> None:
        super().__init__(
            f"it unpacks to more than {FREELY / 1e6:.0f} MB and more than {TIMES} times its own size: unpack it first "
            "if that is meant"
        )


def regular(path: Path) -> Path:
    """The path of a file; a folder, a pipe and a device, which may never end, are refused."""
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(f"there is no file {path}") from None
    if stat.S_ISDIR(mode):
        raise FileNotFoundError(f"{path} is a folder")
    if not stat.S_ISREG(mode):
        what = "a pipe" if stat.S_ISFIFO(mode) else "a device"
        raise FileNotFoundError(f"{path} is {what}, not a file: write what it gives to a file first")
    return path


def _most(path: Path) -> int:
    return max(FREELY, TIMES * path.stat().st_size)


def arrays_of(path: Path, names: Iterable[str] | None = None) -> dict[str, NDArray[Any]]:
    """The arrays of an npz file, all or those named; nothing is unpickled.

    A member is read only if it has as many bytes as its shape needs, so that no memory is taken for what is not there.
    """
    with zipfile.ZipFile(path) as stored:
        members = {member.filename.removesuffix(".npy"): member for member in stored.infolist()}
        wanted = [members[name] for name in (members if names is None else names)]
        if sum(member.file_size for member in wanted) > _most(path):
            raise TooLargeError
        return {member.filename.removesuffix(".npy"): _array(stored, member) for member in wanted}


def _array(stored: zipfile.ZipFile, member: zipfile.ZipInfo) -> NDArray[Any]:
    form: Any = np.lib.format
    with stored.open(member) as stream:
        readers = {(1, 0): form.read_array_header_1_0, (2, 0): form.read_array_header_2_0}
        shape, _, dtype = readers[form.read_magic(stream)](stream)
        if dtype.hasobject or math.prod(shape) * dtype.itemsize != member.file_size - stream.tell():
            raise ValueError(f"{member.filename} is no array of {shape} numbers")
    with stored.open(member) as stream:
        return np.asarray(form.read_array(stream, allow_pickle=False))


class _Limited(io.RawIOBase):
    """A stream that refuses to give more than some number of bytes."""

    def __init__(self, stream: gzip.GzipFile, most: int) -> None:
        self._stream, self._left = stream, most

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        content = self._stream.read(len(buffer))
        buffer[: len(content)] = content
        self._left -= len(content)
        if self._left < 0:
            raise TooLargeError
        return len(content)

    def close(self) -> None:
        self._stream.close()
        super().close()


def unzipped(path: Path) -> IO[bytes]:
    """The content of a gzip file, up to the limit."""
    return io.BufferedReader(_Limited(gzip.open(path), _most(path)), 2**20)
