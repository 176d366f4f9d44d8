"""What a file says, read strictly and kept exact: the ground that every derivation of `certirl.check` stands on.

Nothing is shared with the code that writes files. Numbers are the fractions that they are; whatever is missing, of
another type, not finite or of another shape is a sentence.
"""

from __future__ import annotations

import json
import math
import os
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from certirl.checker import rational

EVENTS = 3  # of probability e^−L each: the second moment, above, below
FAMILIES = ("Legendre", "Chebyshev", "Fourier")
VERSION = 2  # of the files
STATUSES = ("undetermined", "infeasible", "solved", "validated", "certified")  # from the weakest to the strongest
# Files hold results of floating-point arithmetic. Nothing below is absolute: each is a share of what is compared.
# Solves with a Gram matrix of condition 1e8 or less, all that a certificate may rest on, lose a share of 1e-8.
RELATIVE = Fraction(1, 10**6)  # of all parts of a margin together, or of another derived number
ALIKE = Fraction(1, 10**4)  # of one part: the number of points may differ by one where two numbers do equally well
TIGHT = Fraction(1, 10**9)  # of the terms of a sum, where nothing was solved
MEANINGLESS = Fraction(1, 2)  # a statement that fails as often as it holds says nothing

Numbers = list[Fraction]


class DamagedError(ValueError):
    """Something in the file is missing or of the wrong type, in a sentence."""


class ImpossibleError(Exception):
    """Something in the file cannot be, or proves nothing, in a sentence."""


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The header and the arrays of a file; nothing in it is run."""
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
    return header["record"], arrays


def below(arrays: dict[str, Any], place: str) -> dict[str, Any]:
    """The arrays of a record within another, by the names of its fields."""
    start = f"{place}."
    return {name[len(start) :]: array for name, array in arrays.items() if name.startswith(start)}


def grounds(words: Any, arrays: dict[str, Any], place: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a bound rests on, surrogate and evidence together: fields of the header, and arrays."""
    found, names = dict[str, Any](), ("surrogate", "evidence")
    for name in names:
        if not isinstance(fields := entry(words, name), dict):
            raise DamagedError(f"{name} should be fields by name, got {fields!r:.60}")
        found |= fields
    start = f"{place}." if place else ""
    return found, below(arrays, f"{start}surrogate") | below(arrays, f"{start}evidence")


def status_of(record: Any) -> str:
    """The status of a solution: the weakest of its findings."""
    found = [text(finding, "status") for finding in listed(record, "findings")]
    if not found or not set(found) <= set(STATUSES):
        raise DamagedError(f"findings should have statuses among {', '.join(STATUSES)}, got {found!r:.60}")
    return min(found, key=STATUSES.index)


def entry(words: Any, name: str) -> Any:
    """One field of a header."""
    if not isinstance(words, dict) or name not in words:
        raise DamagedError(f"{name} is missing")
    return words[name]


def number(words: Any, name: str) -> Fraction:
    """A finite number; text and truth values are none."""
    value = entry(words, name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise DamagedError(f"{name} should be a finite number, got {value!r:.60}")
    return Fraction(value)


def bound(words: Any, name: str) -> float | Fraction:
    """A number that may be infinite, where nothing is claimed."""
    value = entry(words, name)
    return value if isinstance(value, float) and math.isinf(value) else number(words, name)


def whole(words: Any, name: str, least: int = 0) -> int:
    """A whole number."""
    value = entry(words, name)
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise DamagedError(f"{name} should be a whole number, at least {least}, got {value!r:.60}")
    return value


def flag(words: Any, name: str) -> bool:
    """True or false."""
    value = entry(words, name)
    if not isinstance(value, bool):
        raise DamagedError(f"{name} should be true or false, got {value!r:.60}")
    return value


def text(words: Any, name: str) -> str:
    """Text."""
    value = entry(words, name)
    if not isinstance(value, str):
        raise DamagedError(f"{name} should be text, got {value!r:.60}")
    return value


def listed(words: Any, name: str) -> list[Any]:
    """A list."""
    value = entry(words, name)
    if not isinstance(value, list):
        raise DamagedError(f"{name} should be a list, got {value!r:.60}")
    return value


def named_numbers(words: Any, name: str) -> dict[str, Fraction]:
    """Numbers by name."""
    value = entry(words, name)
    if not isinstance(value, dict) or not value:
        raise DamagedError(f"{name} should be numbers by name, got {value!r:.60}")
    return {key: number(value, key) for key in value}


def share_of(spending: dict[str, Fraction], name: str) -> Fraction:
    """A part of δ."""
    if name not in spending:
        raise DamagedError(f"no part of δ is called {name!r}")
    return spending[name]


def exact(arrays: dict[str, Any], name: str, shape: tuple[int | None, ...]) -> Any:
    """An array of this shape, None standing for any length, as the fractions that it holds."""
    if name not in arrays:
        raise DamagedError(f"{name} is missing")
    array = np.asarray(arrays[name])
    fits = len(array.shape) == len(shape) and all(n in (None, m) for n, m in zip(shape, array.shape, strict=True))
    if not fits or array.dtype.kind not in "fiu" or not np.isfinite(array).all():
        wanted = ", ".join("n" if n is None else str(n) for n in shape)
        raise DamagedError(f"{name} should hold finite numbers of shape [{wanted}], got {array.dtype} {array.shape}")
    return rational.exactly(array.tolist())


def counted(arrays: dict[str, Any], name: str, actions: int | None) -> list[int]:
    """Transitions of every action."""
    if name in arrays and np.asarray(arrays[name]).dtype.kind not in "iu":
        raise DamagedError(f"{name} should hold whole numbers")
    return [int(n) for n in exact(arrays, name, (actions,))]


def tail_of(words: Any) -> Fraction | None:
    """τ; None if none was declared."""
    if (told := entry(words, "tail")) is None:
        return None
    if told == math.inf:
        raise ImpossibleError("the tail is infinite")
    if (tail := number(words, "tail")) < 0:
        raise ImpossibleError(f"the tail is negative: {float(tail):g}")
    return tail


class Functions(NamedTuple):
    """The first functions of a family on an interval."""

    kind: str
    size: int
    low: Fraction
    high: Fraction

    def __str__(self) -> str:
        return f"{self.kind}({self.size})"

    @property
    def domain(self) -> str:
        """The interval in words."""
        return f"[{float(self.low):g}, {float(self.high):g}]"

    def place(self, state: Fraction) -> Fraction:
        """t ∈ [−1, 1] of a state."""
        return (2 * state - self.low - self.high) / (self.high - self.low)


def functions(words: Any, name: str) -> Functions:
    """The functions that a header names."""
    spec = entry(words, name)
    kind, size, (low, high) = text(spec, "type"), whole(spec, "size", 1), interval([entry(spec, "interval")])
    if kind not in FAMILIES:
        raise DamagedError(f"{name} names the unknown functions {kind!r:.60}")
    return Functions(kind, size, low, high)


def interval(pairs: Any) -> tuple[Fraction, Fraction]:
    """The ends of the one interval of a domain."""
    if not isinstance(pairs, list) or len(pairs) != 1 or not isinstance(pairs[0], list) or len(pairs[0]) != 2:
        raise DamagedError(f"domain should be one pair of ends, got {pairs!r:.60}")
    low, high = (number({"an end of the domain": end}, "an end of the domain") for end in pairs[0])
    if not low < high:
        raise DamagedError(f"the ends of the domain should be in order, got {pairs!r:.60}")
    return low, high


@dataclass(frozen=True)
class Claim:
    """What every certificate claims.

    Attributes:
        holds: a margin above zero, under a tail that was declared.
        margin, estimated: the bound, and what it was before the losses.
        losses: by name.
        delta, spending: the probability of a false statement, and its parts by name.
        tail: τ; None if none was declared.
        samples: fresh transitions per action.
    """

    holds: bool
    margin: float | Fraction
    estimated: float | Fraction
    losses: dict[str, float | Fraction]
    delta: Fraction
    spending: dict[str, Fraction]
    tail: Fraction | None
    samples: int

    @classmethod
    def of(cls, words: Any) -> Claim:
        """Read it; ImpossibleError where the tail is infinite."""
        losses = entry(words, "losses")
        if not isinstance(losses, dict):
            raise DamagedError(f"losses should be numbers by name, got {losses!r:.60}")
        return cls(
            holds=flag(words, "holds"),
            margin=bound(words, "margin"),
            estimated=bound(words, "estimated"),
            losses={name: bound(losses, name) for name in losses},
            delta=number(words, "delta"),
            spending=named_numbers(words, "spending"),
            tail=tail_of(words),
            samples=whole(words, "samples"),
        )

    def lost(self, *names: str) -> float | Fraction:
        """Some of the losses together."""
        if missing := [name for name in names if name not in self.losses]:
            raise DamagedError(f"no loss is called {missing[0]!r}")
        return sum((self.losses[name] for name in names), Fraction(0))

    def contradictions(self, counts: Sequence[int], *parts: Fraction) -> list[str]:
        """What neither a probability, nor its parts, nor a number of transitions can be."""
        wrong, total = [], sum(self.spending.values(), Fraction(0))
        if min(self.spending.values()) < 0 or min(parts) <= 0 or abs(total - self.delta) > TIGHT * abs(self.delta):
            wrong.append("the parts of δ are not probabilities that add up to δ")
        if not 0 < self.delta < 1:
            wrong.append(f"δ = {float(self.delta):g} is no probability between 0 and 1")
        elif self.delta >= MEANINGLESS:
            wrong.append(
                f"δ = {float(self.delta):g}: a statement that may fail with that probability is no certificate"
            )
        if self.samples != min(counts):
            wrong.append(f"{self.samples:,} fresh transitions per action are claimed, the sums are of {min(counts):,}")
        if min(self.losses.values(), default=Fraction(0)) < 0:
            wrong.append("a loss is negative")
        return wrong


@dataclass(frozen=True)
class Parts:
    """A derived lower bound on a margin, and what it is made of."""

    estimated: Fraction
    band: Fraction
    second: Fraction
    tail: Fraction
    rounding: Fraction

    @property
    def margin(self) -> Fraction:
        """What is left."""
        return self.estimated - self.band - self.second - self.tail - self.rounding

    @property
    def scale(self) -> Fraction:
        """The size of the parts, which differences are measured by."""
        return abs(self.estimated) + self.band + self.second + self.tail + self.rounding

    def times(self, factor: Fraction) -> Parts:
        """In other units."""
        return Parts(*(factor * getattr(self, name) for name in self.__dataclass_fields__))

    def __add__(self, other: Parts) -> Parts:
        return Parts(*(getattr(self, name) + getattr(other, name) for name in self.__dataclass_fields__))

    def __str__(self) -> str:
        lost = {"band": self.band, "second order": self.second, "tail": self.tail, "rounding": self.rounding}
        return " − ".join(
            [f"{short(self.estimated)} estimated", *(f"{short(x, 2)} {name}" for name, x in lost.items())]
        )

    def unlike(self, claim: Claim) -> list[str]:
        """Names of the parts that are not those of a claim."""
        pairs: dict[str, tuple[Fraction, Any]] = {
            "estimate": (self.estimated, claim.estimated),
            "band": (self.band, claim.lost("estimation", "grid")),
            "second order": (self.second, claim.lost("second order")),
            "tail": (self.tail, claim.lost("truncation tail")),
        }
        allowed = RELATIVE * self.scale
        return [name for name, (own, told) in pairs.items() if not abs(own - told) <= ALIKE * abs(own) + allowed]


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
    margin: Fraction | None = None
    statement: str = ""
    lines: list[tuple[str, str]] = field(default_factory=list)
    trusted: list[str] = field(default_factory=list)


def objections(parts: Iterable[Parts], margin: Fraction, claim: Claim) -> list[str]:
    """Why a claimed margin does not follow, if it does not; ``parts`` are those of bounds that tie for the lowest."""
    candidates = list(parts)
    nearest = min(candidates, key=lambda own: len(own.unlike(claim)))
    unlike, wrong = nearest.unlike(claim), []
    if claim.tail is None:
        wrong.append("no tail was declared")
    if margin <= 0:
        wrong.append("the margin that follows from the sums is not positive")
    # What floating point can have cost is subtracted here; a file may allow less for it.
    if not claim.margin <= margin + max(RELATIVE * own.scale + own.rounding for own in candidates):
        wrong.append(f"the claimed margin is larger than what follows from the sums, {short(margin)}")
    if not claim.margin > 0:
        wrong.append("the claimed margin is not positive")
    if unlike:
        wrong.append(f"these parts of the margin are not what follows from the sums: {', '.join(unlike)}")
    return wrong


def unit_of(words: Any) -> Fraction:
    """What the reward was divided by before anything was summed up."""
    if (unit := number(words, "unit")) <= 0:
        raise DamagedError(f"unit should be positive, got {float(unit):g}")
    return unit


def other_range(
    derived: tuple[Fraction, Fraction], told: tuple[Fraction, Fraction], terms: Fraction, unit: Fraction
) -> list[str]:
    """Where the V of a file's reward and guesses has another range than the V that its sums were made with."""
    if all(abs(own - end) <= TIGHT * terms for own, end in zip(derived, told, strict=True)):
        return []
    least, most, low, high = (short(unit * x, 6) for x in (*derived, *told))
    reached = f"the reward and the guesses of the file have values V from {least} to {most}"
    return [f"{reached}, but the sums were made with a V from {low} to {high}"]


def sums_in_doubt(
    kind: str, counts: Sequence[int], gram: Sequence[list[Numbers]], *, paired: bool, size: int
) -> list[str]:
    """What Gram matrices of so many states cannot be."""
    wrong, squared = [], constant_squared(kind)
    for c, (n, own) in enumerate(zip(counts, gram, strict=True)):
        if n < size:
            wrong.append(f"action {c} has {n} transitions, too few for {size} functions")
        if any(own[i][j] != own[j][i] for i in range(size) for j in range(i)):
            wrong.append(f"the Gram matrix of action {c} is not symmetric")
        if abs(own[0][0] * squared - n) > TIGHT * n:
            wrong.append(f"the Gram matrix of action {c} is not one of {n} states")
    if paired and any(own != gram[0] or n != counts[0] for own, n in zip(gram, counts, strict=True)):
        wrong.append("paired actions have different states")
    return wrong


def constant_squared(kind: str) -> Fraction:
    """1/φ_1², of the constant function."""
    return rational.PI_ABOVE if kind == "Chebyshev" else Fraction(2)


def power_of_two(x: Fraction) -> Fraction:
    """A power of two near x: an exact unit in which it is about one. One for zero."""
    return Fraction(2) ** (x.numerator.bit_length() - x.denominator.bit_length()) if x > 0 else Fraction(1)


def scaled(numbers: Any, factor: Fraction) -> Any:
    """Numbers, in lists of lists, times a factor."""
    return [scaled(item, factor) for item in numbers] if isinstance(numbers, list) else factor * numbers


def short(x: Fraction | float, digits: int = 4) -> str:
    """A number, rounded to some digits."""
    return f"{float(x):.{digits}g}"


def at_least(x: Fraction | float, digits: int = 4) -> str:
    """A number, rounded down to some digits: what stands after "at least"."""
    if not math.isfinite(x) or (rounded := Fraction(short(x, digits))) <= x:
        return short(x, digits)
    step = Fraction(10) ** (math.floor(math.log10(abs(float(rounded)))) - digits + 1)
    return short(rounded - step, digits)


def at_most(x: Fraction | float, digits: int = 4) -> str:
    """The same, rounded up."""
    return at_least(-x, digits).removeprefix("-") if x else "0"


def probability(delta: Fraction) -> str:
    """1 − δ in words that never say 1."""
    return f"{float(1 - delta):.6g}" if delta >= Fraction(1, 10**4) else f"1 − {float(delta):.3g}"


def tail_in_words(tail: Fraction | None, own: Functions) -> str:
    """The assumption that a tail is."""
    which = f"the first {own.size} {own.kind} functions of the state" if own.size > 1 else "a constant"
    if not tail:
        return f"every P_a f is exactly {f'a combination of {which}' if own.size > 1 else which}"
    return (
        f"every P_a f, |f| ≤ 1, lies within {short(tail)} of {f'a combination of {which}' if own.size > 1 else which}"
    )


def spent(claim: Claim) -> str:
    """δ and its parts in words."""
    parts = ", ".join(f"{short(x)} {name}" for name, x in claim.spending.items())
    return f"δ = {float(claim.delta):.6g}: {parts}"


def transitions(counts: Sequence[int], *, paired: bool) -> str:
    """How much was seen, in words."""
    least, most = min(counts), max(counts)
    seen = f"{least:,}" + (f" to {most:,}" if most > least else "")
    how = "every state tried with every action" if paired else "drawn separately for each action"
    return f"{seen} fresh transitions of each action, {how}"


DRAWS = (
    "the stored sums are over fresh transitions of these dynamics, valued with this reward; transitions from different "
    "states are independent, and every next state follows the dynamics and lies in the domain"
)
FIXED_BEFORE = "the reward, the guesses and δ were fixed before these transitions were drawn; other attempts count in δ"
