"""What a file says, read strictly: the ground that every derivation of `certirl.check` stands on.

Nothing is shared with the code that writes files. Whatever is missing, of another type, not finite or of another shape
is refused with a sentence.
"""

from __future__ import annotations

import json
import math
import os
import zipfile
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from certirl.checker.enclosures import Floats
from certirl.checker.harmonics import Functions, frequency, ordered

FAMILIES = ("Legendre", "Chebyshev", "Fourier")
INDEX_SETS = ("total", "full", "hyperbolic")
VERSION = 2  # of the files
STATUSES = ("undetermined", "infeasible", "solved", "validated", "certified")  # from the weakest to the strongest
MOST = 1 << 16  # functions of a basis, and points of a grid along a coordinate
# Files hold results of floating-point arithmetic. Nothing below is absolute: each is a share of what is compared.
RELATIVE = 1e-6  # of all parts of a margin together, or of another derived number
ALIKE = 1e-4  # of one part, which may be divided a little differently
TIGHT = 1e-9  # of the terms of a sum, where nothing was solved
MEANINGLESS = 0.5  # a statement that fails as often as it holds says nothing


class DamagedError(ValueError):
    """Something in the file is missing or of the wrong type, in a sentence."""


class ImpossibleError(Exception):
    """Something in the file cannot be, or proves nothing, in a sentence."""


def read(path: str | os.PathLike[str]) -> Record:
    """The record in a file; nothing in it is run."""
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"the path of a file must be text such as 'reward.npz', got {path!r}")
    source = Path(path)
    if not source.exists():
        raise FileNotFoundError(f"there is no file {source}")
    try:
        with source.open("rb") as stream, np.load(stream, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
        header = json.loads(str(arrays.pop("header")))
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile, AttributeError):
        raise ValueError(f"{source} is not a certirl file, or it is damaged or cut short") from None
    if not isinstance(header, dict) or header.get("format") != "certirl" or header.get("version") != VERSION:
        raise ValueError(f"{source} is not a certirl file of version {VERSION}")
    if not isinstance(header.get("record"), dict):
        raise ValueError(f"{source} is damaged: it holds no record")
    return Record(header["record"], arrays)


class Record:
    """A record in a file: its fields in the header, and its arrays by their places."""

    def __init__(self, words: Any, arrays: dict[str, Any], place: str = "") -> None:
        if not isinstance(words, dict):
            raise DamagedError(f"{place or 'the record'} should be fields by name, got {words!r:.60}")
        self.words, self._arrays, self.place = words, arrays, place

    @property
    def kind(self) -> str:
        """The name of its class."""
        return str(self.words.get("type"))

    def entry(self, name: str) -> Any:
        """A field, whatever it is."""
        if name not in self.words:
            raise DamagedError(f"{self._named(name)} is missing")
        return self.words[name]

    def _named(self, name: str) -> str:
        return f"{self.place}.{name}" if self.place else name

    def record(self, name: str, *kinds: str) -> Record:
        """A record within this one."""
        found = Record(self.entry(name), self._arrays, self._named(name))
        if kinds and found.kind not in kinds:
            raise DamagedError(f"{found.place} should be {' or '.join(kinds)}, got {found.kind!r:.60}")
        return found

    def records(self, name: str) -> list[Record]:
        """A list of records."""
        return [Record(own, self._arrays, f"{self._named(name)}.{i}") for i, own in enumerate(self.listed(name))]

    def bound(self, name: str) -> float:
        """A number that may be infinite, where nothing is claimed."""
        value = self.entry(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
            raise DamagedError(f"{self._named(name)} should be a number, got {value!r:.60}")
        return float(value)

    def number(self, name: str) -> float:
        """A finite number; text and truth values are none."""
        if not math.isfinite(value := self.bound(name)):
            raise DamagedError(f"{self._named(name)} should be a finite number, got {value!r:.60}")
        return value

    def whole(self, name: str, least: int = 0) -> int:
        """A whole number."""
        value = self.entry(name)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise DamagedError(f"{self._named(name)} should be a whole number, at least {least}, got {value!r:.60}")
        return value

    def flag(self, name: str) -> bool:
        """True or false."""
        if not isinstance(value := self.entry(name), bool):
            raise DamagedError(f"{self._named(name)} should be true or false, got {value!r:.60}")
        return value

    def text(self, name: str) -> str:
        """Text."""
        if not isinstance(value := self.entry(name), str):
            raise DamagedError(f"{self._named(name)} should be text, got {value!r:.60}")
        return value

    def listed(self, name: str) -> list[Any]:
        """A list."""
        if not isinstance(value := self.entry(name), list):
            raise DamagedError(f"{self._named(name)} should be a list, got {value!r:.60}")
        return value

    def wholes(self, name: str) -> tuple[int, ...]:
        """A list of whole numbers."""
        every = Record(dict(enumerate(self.listed(name))), {}, self._named(name))
        return tuple(every.whole(i) for i in every.words)

    def named(self, name: str) -> dict[str, float]:
        """Numbers by name, which may be infinite."""
        every = self.record(name)
        return {key: every.bound(key) for key in every.words}

    def array(
        self, name: str, shape: tuple[int | None, ...], kinds: str = "fiu", *, finite: bool = True
    ) -> NDArray[Any]:
        """An array of this shape, None standing for any length."""
        if (place := self._named(name)) not in self._arrays:
            raise DamagedError(f"{place} is missing")
        array = np.asarray(self._arrays[place])
        fits = len(array.shape) == len(shape) and all(n in (None, m) for n, m in zip(shape, array.shape, strict=True))
        if (
            not fits
            or array.dtype.kind not in kinds
            or np.isnan(array).any()
            or (finite and not np.isfinite(array).all())
        ):
            wanted = ", ".join("n" if n is None else str(n) for n in shape)
            raise DamagedError(f"{place} should hold numbers of shape [{wanted}], got {array.dtype} {array.shape}")
        return array if kinds in ("b", "iu") else array.astype(np.float64)

    # What several records hold.

    def box(self, name: str) -> tuple[tuple[float, float], ...]:
        """The ends of the intervals of a domain; one interval may stand alone."""
        pairs = self.listed(name)
        pairs = [pairs] if pairs and not isinstance(pairs[0], list) else pairs
        found = []
        for pair in pairs:
            if not isinstance(pair, list) or len(pair) != 2:
                raise DamagedError(f"{self._named(name)} should be pairs of ends, got {pairs!r:.60}")
            ends = Record({"low": pair[0], "high": pair[1]}, {}, self._named(name))
            low, high = ends.number("low"), ends.number("high")
            if not low < high:
                raise DamagedError(f"{self._named(name)} should be pairs of ends in order, got {pairs!r:.60}")
            found.append((low, high))
        if not 1 <= len(found) <= 6:
            raise DamagedError(f"{self._named(name)} should have one coordinate or a few, got {len(found)}")
        return tuple(found)

    def functions(self, name: str) -> Functions:
        """The functions that a field names."""
        spec = self.record(name, *FAMILIES, "ProductBasis")
        size, box = spec.whole("size", 1), spec.box("interval")
        if size > MOST:
            raise DamagedError(f"{spec.place} should be fewer functions than {size}")
        if spec.kind in FAMILIES:
            if len(box) != 1:
                raise DamagedError(f"{spec.place} should be on one interval, got {len(box)}")
            return Functions((spec.kind,), tuple((i,) for i in range(size)), box)
        factors = spec.records("factors")
        families, index = tuple(own.kind for own in factors), spec.text("index")
        highest = tuple(frequency(own.whole("size", 2) - 1, own.kind == "Fourier") for own in factors)
        if not set(families) <= set(FAMILIES) or not 2 <= len(box) == len(families) or index not in INDEX_SETS:
            raise DamagedError(f"{spec.place} names unknown functions")
        indices = ordered(families, highest, index, size) if max(highest) < 1000 else None
        if indices is None:
            raise DamagedError(f"{spec.place} should be fewer functions")
        ratio = (
            highest
            if index == "hyperbolic" and len(set(highest)) > 1
            else tuple(k // math.gcd(*highest) for k in highest)
        )
        return Functions(families, indices, box, (index, ratio))

    @property
    def status(self) -> str:
        """The status of a solution: the weakest of its findings."""
        found = [own.text("status") for own in self.records("findings")]
        if not found or not set(found) <= set(STATUSES):
            raise DamagedError(f"findings should have statuses among {', '.join(STATUSES)}, got {found!r:.60}")
        return min(found, key=STATUSES.index)

    def tail(self, name: str = "tail") -> float | None:
        """τ; None if none was declared."""
        if self.entry(name) is None:
            return None
        tail = self.bound(name)
        if not 0 <= tail < math.inf:
            raise ImpossibleError("the tail is infinite" if tail > 0 else f"the tail is negative: {tail:g}")
        return tail


@dataclass(frozen=True)
class Reward:
    """R as a file holds it, in units: an expansion, or linear between the points of a grid; or only its range.

    Attributes:
        functions: of an expansion.
        grid: of a piecewise linear function: points along each coordinate, which are circles, and the box.
        coefficients: ``[k]``; empty if R is not in the file.
        low, high, source: its range, and where that comes from.
    """

    functions: Functions | None
    grid: tuple[tuple[int, ...], tuple[int, ...], tuple[tuple[float, float], ...]] | None
    coefficients: Floats
    low: float
    high: float
    source: str

    @cached_property
    def box(self) -> tuple[tuple[float, float], ...] | None:
        """Where it lives."""
        return self.functions.box if self.functions else self.grid[2] if self.grid else None

    def __str__(self) -> str:
        if self.functions is not None:
            return f"{self.functions} on {self.functions.domain}"
        if self.grid is None:
            return "not in the file"
        box = " × ".join(f"[{low:g}, {high:g}]" for low, high in self.grid[2])
        return f"{'×'.join(map(str, self.grid[0]))} points, piecewise linear on {box}"


Expansion = tuple[Functions | None, Any, Floats]  # functions, or a grid, and coefficients


def terms_of(record: Record) -> list[tuple[str, tuple[int, ...], Expansion]]:
    """Name, coordinates and expansion of every component of a `Reward`; one without a name if it is no sum."""
    basis = record.record("basis")
    if basis.kind == "Cells":
        counts, around, box = basis.wholes("counts"), basis.wholes("periodic"), basis.box("box")
        if len(counts) != len(box) or not all(2 <= n <= MOST for n in counts):
            raise DamagedError(f"{basis.place} should have two points or more along every coordinate")
        coefficients = record.array("coefficients", (math.prod(counts),))
        return [("", tuple(range(len(counts))), (None, (counts, around, box), coefficients))]
    if basis.kind != "SumBasis":
        functions = record.functions("basis")
        coefficients = record.array("coefficients", (functions.size,))
        return [("", tuple(range(functions.dimension)), (functions, None, coefficients))]
    listed = basis.records("components")
    each = [own.functions("basis") for own in listed]
    ends = np.cumsum([own.size for own in each])
    parts = np.split(record.array("coefficients", (int(ends[-1]) if len(ends) else 0,)), ends[:-1])
    named = [(own.text("name"), own.wholes("coordinates")) for own in listed]
    return [(*who, (own, None, part)) for who, own, part in zip(named, each, parts, strict=True)]


def reward_of(record: Record, unit: float) -> Reward:
    """Read a `BoundedReward`."""
    low, high, source = record.number("low"), record.number("high"), record.text("source")
    if record.entry("function") is None or source != "proved":
        return Reward(None, None, np.zeros(0), low, high, source)
    terms = terms_of(record.record("function", "Reward"))
    if len(terms) != 1:
        raise DamagedError(f"{record.place} should be the reward of one component")
    ((*_, (functions, grid, coefficients)),) = terms
    return Reward(functions, grid, coefficients / unit, low, high, source)


@dataclass(frozen=True)
class Claim:
    """What every certificate claims.

    Attributes:
        margin, estimated: the bound, and what it was before the losses.
        losses: by name.
        delta, spending: the probability of a false statement, and its parts by name.
        tail: τ; None if none was declared.
        samples: fresh transitions per action.
    """

    margin: float
    estimated: float
    losses: dict[str, float]
    delta: float
    spending: dict[str, float]
    tail: float | None
    samples: int

    @classmethod
    def of(cls, record: Record) -> Claim:
        """Read it; ImpossibleError where the tail is infinite."""
        return cls(
            margin=record.bound("margin"),
            estimated=record.bound("estimated"),
            losses=record.named("losses"),
            delta=record.number("delta"),
            spending=record.named("spending"),
            tail=record.tail(),
            samples=record.whole("samples"),
        )

    @property
    def holds(self) -> bool:
        """A margin above zero, of something, under a tail that was declared."""
        return 0 < self.margin < math.inf and self.tail is not None

    def contradictions(self, counts: Floats) -> list[str]:
        """What neither a probability, nor its parts, nor a number of transitions can be."""
        wrong = spent_wrongly(self.delta, self.spending)
        if self.samples != counts.min():
            wrong.append(
                f"{self.samples:,} fresh transitions per action are claimed, the sums are of {int(counts.min()):,}"
            )
        if min(self.losses.values(), default=0.0) < -TIGHT * abs(self.estimated):
            wrong.append("a loss is negative")
        return wrong


def spent_wrongly(delta: float, spending: dict[str, float]) -> list[str]:
    """What δ and its parts cannot be."""
    wrong, total = [], math.fsum(spending.values())
    if not spending:
        raise DamagedError("spending should be numbers by name, got none")
    if min(spending.values()) < 0 or not abs(total - delta) <= TIGHT * abs(delta):
        wrong.append("the parts of δ are not probabilities that add up to δ")
    if not 0 < delta < 1:
        wrong.append(f"δ = {delta:g} is no probability between 0 and 1")
    elif delta >= MEANINGLESS:
        wrong.append(f"δ = {delta:g}: a statement that may fail with that probability is no certificate")
    return wrong


@dataclass
class Finding:
    """What a derivation came to.

    Attributes:
        wrong: what cannot be, or does not follow, in sentences.
        margin: the margin that follows; None if none does.
        statement: what was confirmed, spelled out, if nothing is wrong.
        lines: what it is about and how it was derived, by name.
        trusted: what the file cannot show.
    """

    wrong: list[str] = field(default_factory=list)
    margin: float | None = None
    statement: str = ""
    lines: list[tuple[str, str]] = field(default_factory=list)
    trusted: list[str] = field(default_factory=list)


# Words.


def short(x: float, digits: int = 4) -> str:
    """A number, rounded to some digits."""
    return f"{x:.{digits}g}"


def at_least(x: float, digits: int = 4) -> str:
    """A number, rounded down to some digits: what stands after "at least"."""
    if not math.isfinite(x) or (rounded := float(short(x, digits))) <= x:
        return short(x, digits)
    return short(rounded - 10.0 ** (math.floor(math.log10(abs(rounded))) - digits + 1), digits)


def at_most(x: float, digits: int = 4) -> str:
    """The same, rounded up."""
    return at_least(-x, digits).removeprefix("-") if x else "0"


def probability(delta: float) -> str:
    """1 − δ in words that never say 1."""
    return f"{1 - delta:.6g}" if delta >= 1e-4 else f"1 − {delta:.3g}"


def tail_in_words(tail: float, columns: Functions) -> str:
    """The assumption that a tail is."""
    families = " × ".join(columns.families)
    which = f"a combination of the first {columns.size} {families} functions of the state"
    which = which if columns.size > 1 else "a constant"
    return (
        f"every P_a f is exactly {which}" if not tail else f"every P_a f, |f| ≤ 1, lies within {short(tail)} of {which}"
    )


def spent(delta: float, spending: dict[str, float]) -> str:
    """δ and its parts in words."""
    return f"δ = {delta:.6g}: " + ", ".join(f"{short(x)} {name}" for name, x in spending.items())


def transitions(counts: Floats, *, paired: bool) -> str:
    """How much was seen, in words."""
    least, most = int(counts.min()), int(counts.max())
    how = "every state tried with every action" if paired else "drawn separately for each action"
    return f"{least:,}{f' to {most:,}' * (most > least)} fresh transitions of each action, {how}"


DRAWS = (
    "the stored sums are over fresh transitions of these dynamics, valued with this reward; transitions from different "
    "states are independent, and every next state follows the dynamics and lies in the domain"
)
FIXED_BEFORE = "the reward, the guesses and δ were fixed before these transitions were drawn; other attempts count in δ"
SEPARATE = "given the action, each component's next state depends on its own state alone"
