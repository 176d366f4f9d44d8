"""Records of a file, read strictly.

Nothing is shared with the code that writes files. Whatever is missing, of another type, not finite or of another shape
is refused with a sentence.
"""

from __future__ import annotations

import json
import math
import os
import zipfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partialmethod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from certirl_check.enclosures import Floats
from certirl_check.harmonics import Functions, Grid, frequency, ordered

FAMILIES = ("Legendre", "Chebyshev", "Fourier")
INDEX_SETS = ("total", "full", "hyperbolic")
VERSIONS = range(2, 5)  # of the files, each of which is read
# What records have gained since a version, as far as it is read here, with the values that its files stand for.
_UNKNOWN = "whatever was done to its rows, of which files of version 2 keep no notes"
GAINED: dict[int, dict[str, dict[str, Any]]] = {
    2: {
        **{kind: {"log_notes": [_UNKNOWN]} for kind in ("Certificate", "GaussianCertificate", "Refutation")},
        "Reward": {"ends": None},
    },
    3: {
        "Surrogate": {"powers": False},
        "Evidence": {"powers": None},
        **{kind: {"suboptimality": None} for kind in ("Certificate", "GaussianCertificate")},
        "BoundedReward": {"apart": None, "slopes": None, "slopes_source": "proved"},
    },
}
UNPACKED = 2**28  # bytes that a file may unpack to, or a hundred times its own size
STATUSES = (
    "undetermined",
    "infeasible",
    "estimated",
    "solved",
    "validated",
    "bounded",
    "certified",
)  # from the weakest to the strongest
MOST = 1 << 16  # functions of a basis, and points of a grid along a coordinate
# Files hold results of floating-point arithmetic. Nothing below is absolute: each is a share of what is compared.
RELATIVE = 1e-6  # of all parts of a margin together, or of another derived number
ALIKE = 1e-4  # of one part, which may be divided a little differently
TIGHT = 1e-9  # of the terms of a sum, where nothing was solved

_UNREADABLE = (
    OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile, zlib.error, AttributeError, RuntimeError,
    IndexError, OverflowError,
)  # fmt: skip


class DamagedError(ValueError):
    """Something in the file is missing or of the wrong type, in a sentence."""


class TooLittleError(Exception):
    """The sums bound nothing, in a sentence."""


class ImpossibleError(Exception):
    """Something in the file cannot be, or proves nothing, in a sentence."""


def read(path: str | os.PathLike[str]) -> Record:
    """The record in a file; nothing in it is run."""
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"the path of a file must be text such as 'reward.npz', got {path!r}")
    source = Path(path)
    if not source.is_file():
        there = f"{source} is no file: it is a folder, a pipe or a device"
        raise FileNotFoundError(there if source.exists() else f"there is no file {source}")
    try:
        arrays = _arrays(source)
        header = json.loads(str(arrays.pop("header")), object_pairs_hook=_by_name)
        version: Any = header["version"] if header["format"] == "certirl" else None
    except DamagedError as problem:
        raise ValueError(f"{source} is damaged: {problem}") from None
    except _UNREADABLE:
        raise ValueError(f"{source} is not a certirl file, or it is damaged or cut short") from None
    if not _is_whole(version) or version not in VERSIONS:
        instead = "make it again with" if not _is_whole(version) or version < VERSIONS[0] else "update"
        reads = f"reads {VERSIONS[0]} to {VERSIONS[-1]}"
        raise ValueError(f"{source} has format version {version!r:.60} and this certirl {reads}: {instead} certirl")
    try:
        _look_through(header, version)
        return Record(header.get("record"), arrays)
    except (DamagedError, RecursionError) as problem:
        raise ValueError(f"{source} is damaged: {problem}") from None


def _arrays(source: Path) -> dict[str, Any]:
    """The arrays of an npz file, whose sizes are compared with the file before memory is taken for them."""
    form: Any = np.lib.format
    with zipfile.ZipFile(source) as stored:
        members = stored.infolist()
        _by_name([(member.filename, member) for member in members])
        if sum(member.file_size for member in members) > max(UNPACKED, 100 * source.stat().st_size):
            limit = f"{UNPACKED / 1e6:.0f} MB and more than 100 times its own size"
            raise DamagedError(f"it unpacks to more than {limit}")
        for member in members:
            with stored.open(member) as stream:
                readers = {(1, 0): form.read_array_header_1_0, (2, 0): form.read_array_header_2_0}
                shape, _, dtype = readers[form.read_magic(stream)](stream)
                if dtype.hasobject:
                    raise ValueError("only numbers and texts are read")
                if math.prod(shape) * dtype.itemsize != member.file_size - stream.tell():
                    raise DamagedError(f"{member.filename!r:.60} is not as large as it says")
    with source.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


def _by_name(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """What stands under each name; a name that stands there twice may be read in two ways."""
    if len(named := dict(pairs)) < len(pairs):
        raise DamagedError("something in it is there twice")
    return named


def _look_through(part: Any, version: int) -> None:
    """Refuse texts that are not printable, and give records of earlier versions what they gained since."""
    if isinstance(part, str) and not part.isprintable():
        raise DamagedError(f"the text {part!r:.60} is not printable")
    if isinstance(part, dict):
        for since in range(version, VERSIONS[-1]):
            part.update(GAINED[since].get(str(part.get("type")), {}))
        _look_through(list(part), version)
    for inner in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
        _look_through(inner, version)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value)


def _is_finite(value: Any) -> bool:
    return _is_number(value) and math.isfinite(value)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_interval(ends: Any) -> bool:
    return isinstance(ends, list) and len(ends) == 2 and all(map(_is_finite, ends)) and ends[0] < ends[1]


def _is_list_of(accepts: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and all(map(accepts, value))


class Record:
    """A record in a file: its fields in the header, and its arrays by their places."""

    def __init__(self, fields: Any, arrays: dict[str, Any], place: str = "") -> None:
        if not isinstance(fields, dict):
            raise DamagedError(f"{place or 'the record'} should be fields by name, got {fields!r:.60}")
        self.fields, self._arrays, self.place = fields, arrays, place

    @property
    def kind(self) -> str:
        """The name of its class."""
        return str(self.fields.get("type"))

    def _named(self, name: str) -> str:
        return f"{self.place}.{name}" if self.place else name

    def entry(self, name: str) -> Any:
        """A field, whatever it is."""
        if name not in self.fields:
            raise DamagedError(f"{self._named(name)} is missing")
        return self.fields[name]

    def record(self, name: str, *kinds: str) -> Record:
        """A record within this one."""
        inner = Record(self.entry(name), self._arrays, self._named(name))
        if kinds and inner.kind not in kinds:
            raise DamagedError(f"{inner.place} should be {' or '.join(kinds)}, got {inner.kind!r:.60}")
        return inner

    def optional(self, name: str, *kinds: str) -> Record | None:
        """A record within this one; None where the field is null."""
        return None if self.entry(name) is None else self.record(name, *kinds)

    def records(self, name: str) -> list[Record]:
        """A list of records."""
        return [Record(item, self._arrays, f"{self._named(name)}.{i}") for i, item in enumerate(self.listed(name))]

    def _value(self, wanted: str, accepts: Callable[[Any], bool], convert: Callable[[Any], Any], name: str) -> Any:
        value = self.entry(name)
        if not accepts(value):
            raise DamagedError(f"{self._named(name)} should be {wanted}, got {value!r:.60}")
        return convert(value)

    bound = partialmethod(_value, "a number", _is_number, float)  # may be infinite, where nothing is claimed
    number = partialmethod(_value, "a finite number", _is_finite, float)
    whole = partialmethod(_value, "a whole number", _is_whole, int)
    flag = partialmethod(_value, "true or false", lambda value: isinstance(value, bool), bool)
    text = partialmethod(_value, "text", lambda value: isinstance(value, str), str)
    listed = partialmethod(_value, "a list", _is_list_of(lambda value: True), list)
    wholes = partialmethod(_value, "a list of whole numbers", _is_list_of(_is_whole), tuple)
    texts = partialmethod(_value, "texts", _is_list_of(lambda value: isinstance(value, str)), list)

    @property
    def has_terminal(self) -> bool:
        """Whether a `Reward` is another number than its sum at terminal states."""
        return self.flag("zero_at_terminal") or self.entry("ends") is not None

    def numbers(self, name: str) -> list[float]:
        """A list of finite numbers, some of which may be arrays of one number."""
        listed = list(enumerate(self.listed(name)))
        arrays = Record({str(i): item for i, item in listed}, self._arrays, self._named(name))
        items = [arrays.array(str(i), (1,)).item() if isinstance(item, dict) else item for i, item in listed]
        return [Record({name: item}, {}, self.place).number(name) for item in items]

    def named(self, name: str) -> dict[str, float]:
        """Numbers by name, which may be infinite."""
        return {key: self.record(name).bound(key) for key in self.record(name).fields}

    def array(self, name: str, shape: Sequence[int | None], kinds: str = "fiu", *, finite: bool = True) -> NDArray[Any]:
        """An array of this shape, None standing for any length."""
        if (place := self._named(name)) not in self._arrays:
            raise DamagedError(f"{place} is missing")
        array = np.asarray(self._arrays[place])
        if self.entry(name) != {"array": list(array.shape)}:
            raise DamagedError(f"{place} is an array of shape {array.shape}, the header says {self.entry(name)!r:.60}")
        fits = len(array.shape) == len(shape) and all(n in (None, m) for n, m in zip(shape, array.shape, strict=True))
        numeric = fits and array.dtype.kind in kinds
        if not numeric or np.isnan(array).any() or (finite and not np.isfinite(array).all()):
            wanted = ", ".join("n" if n is None else str(n) for n in shape)
            raise DamagedError(f"{place} should hold numbers of shape [{wanted}], got {array.dtype} {array.shape}")
        return array if kinds in ("b", "iu") else array.astype(np.float64)

    # What several records hold.

    def rank(self, name: str) -> int:
        """How many indices an array has; 0 of what is none."""
        return np.ndim(self._arrays.get(self._named(name), 0))

    def box(self, name: str) -> tuple[tuple[float, float], ...]:
        """The ends of the intervals of a domain; one interval may stand alone."""
        listed = self.listed(name)
        sides = listed if listed and isinstance(listed[0], list) else [listed]
        if len(sides) > 6 or not all(_is_interval(ends) for ends in sides):
            raise DamagedError(f"{self._named(name)} should be the ends of one to six intervals, got {listed!r:.60}")
        return tuple((float(low), float(high)) for low, high in sides)

    def functions(self, name: str) -> Functions:
        """The functions that a field names."""
        basis = self.record(name, *FAMILIES, "ProductBasis")
        size, box = basis.whole("size"), basis.box("interval")
        if not 1 <= size <= MOST:
            raise DamagedError(f"{basis.place} should be one function or more, and fewer than {MOST}, got {size}")
        if basis.kind in FAMILIES:
            if len(box) != 1:
                raise DamagedError(f"{basis.place} should be on one interval, got {len(box)}")
            return Functions((basis.kind,), tuple((i,) for i in range(size)), box)
        factors, index = basis.records("factors"), basis.text("index")
        families = tuple(factor.kind for factor in factors)
        highest = tuple(frequency(factor.whole("size") - 1, factor.kind == "Fourier") for factor in factors)
        if not set(families) <= set(FAMILIES) or not 2 <= len(box) == len(families) or index not in INDEX_SETS:
            raise DamagedError(f"{basis.place} names unknown functions")
        indices = ordered(families, highest, index, size) if min(highest) >= 1 and max(highest) < 1000 else None
        if indices is None:
            raise DamagedError(f"{basis.place} should be other functions")
        ratio = tuple(k // math.gcd(*highest) for k in highest)
        if index == "hyperbolic" and len(set(highest)) > 1:
            ratio = highest
        return Functions(families, indices, box, (index, ratio))

    def grid(self) -> Grid:
        """Equal cells of a box."""
        counts, periodic, box = self.wholes("counts"), self.wholes("periodic"), self.box("box")
        if len(counts) != len(box) or not all(1 <= n <= MOST for n in counts):
            raise DamagedError(f"{self.place} should have points along every coordinate")
        return Grid(counts, tuple(axis in periodic or n == 1 for axis, n in enumerate(counts)), box)

    @property
    def status(self) -> str:
        """The status of a solution: the weakest of its findings."""
        statuses = [finding.text("status") for finding in self.records("findings")]
        if not statuses or not set(statuses) <= set(STATUSES):
            raise DamagedError(f"findings should have statuses among {', '.join(STATUSES)}, got {statuses!r:.60}")
        return min(statuses, key=STATUSES.index)

    def tail(self) -> float | None:
        """τ; None if none was declared."""
        tail = None if self.entry("tail") is None else self.bound("tail")
        if tail is not None and not 0 <= tail < math.inf:
            raise (ImpossibleError if tail < 0 else TooLittleError)(f"the tail is {tail:g}")
        return tail


@dataclass(frozen=True)
class Reward:
    """R of one component as a file holds it; only its range where the function is not in the file."""

    name: str  # of its component; the name is empty if it is no sum
    coordinates: tuple[int, ...]
    basis: Functions | Grid | None  # the functions that R is a combination of; None if R is not in the file
    coefficients: Floats  # [k], or [A, k] if it depends on the action; empty if R is not in the file
    low: float = -math.inf  # its range, as the file says
    high: float = math.inf
    apart: Reward | None = None  # of the action, at the points of a grid, where the columns' family has no expansion
    slopes: Floats = field(default_factory=lambda: np.zeros(0))  # how fast differences of actions change at most [d]
    trusted: bool = False  # whether the slopes rest on no proof

    @property
    def of_actions(self) -> bool:
        """Whether R depends on the action."""
        return self.coefficients.ndim == 2 or self.apart is not None

    def row(self, action: int) -> Floats:
        """The coefficients of R(·, action) ``[k]``."""
        return self.coefficients[action] if self.coefficients.ndim == 2 else self.coefficients

    def __str__(self) -> str:
        return "not in the file" if self.basis is None else f"{self.basis} on {self.basis.domain}"

    def range(self, actions: Sequence[int]) -> tuple[float, float]:
        """Bounds on R under some actions: derived if the function is in the file."""
        basis = self.basis
        derived = [] if basis is None else [basis.range(self.row(action)) for action in actions]
        known = [ends for ends in derived if ends is not None]
        if not known or len(known) < len(derived):
            return self.low, self.high
        return min(low for low, _ in known), max(high for _, high in known)


def components_of(record: Record) -> list[Reward]:
    """Every component of a `Reward`; one without a name if it is no sum, and without functions if it is of features."""
    basis = record.record("basis")
    if basis.kind == "Features":  # functions that are not in the file
        return [Reward("", tuple(range(len(basis.box("box")))), None, np.zeros(0))]
    if basis.kind == "SumBasis":
        parts = basis.records("components")
        bases: list[Functions | Grid] = [part.functions("basis") for part in parts]
        named = [(part.text("name"), part.wholes("coordinates")) for part in parts]
    else:
        bases = [basis.grid() if basis.kind == "Cells" else record.functions("basis")]
        named = [("", tuple(range(len(bases[0].box))))]
    ends = np.cumsum([0, *(functions.size for functions in bases)])
    several = record.rank("coefficients") == 2  # of every action
    numbers = np.split(record.array("coefficients", (*[None] * several, int(ends[-1]))), ends[1:-1], axis=-1)
    return [Reward(*name, functions, own) for name, functions, own in zip(named, bases, numbers, strict=True)]


def reward_of(record: Record, unit: float) -> Reward:
    """Read a `BoundedReward`, in units."""
    low, high = record.number("low"), record.number("high")
    function, apart = record.optional("function", "Reward"), record.optional("apart", "Reward")
    known: dict[str, Any] = {"low": low, "high": high}
    if apart is not None:
        (known["apart"],) = components_of(apart)
        if not isinstance(known["apart"].basis, Grid) or any(known["apart"].basis.periodic) or apart.has_terminal:
            raise DamagedError(f"{record.place}.apart should be values at the points of a grid")
        known["slopes"] = record.array("slopes", (known["apart"].basis.dimension,))
        known["trusted"] = record.text("slopes_source") != "proved"
        if not (known["slopes"] >= 0).all():
            raise ImpossibleError(f"{record.place}.slopes are below 0")
    if record.text("source") != "proved" or function is None:
        return Reward("", (), None, np.zeros(0), **known)
    components = components_of(function)
    if function.has_terminal:
        raise ImpossibleError(f"{record.place} has terminal states, where the range of its functions proves nothing")
    if len(components) != 1:
        raise DamagedError(f"{record.place} should be the reward of one component")
    return Reward("", (), components[0].basis, components[0].coefficients / unit, **known)
