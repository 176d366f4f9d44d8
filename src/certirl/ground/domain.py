"""The state space: a box, and arrays of states checked against it once, at the boundary."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from certirl.ground.doors import as_array, as_count, by_door, setting, shown
from certirl.ground.records import internal

Array = NDArray[Any]
Domain = tuple[tuple[float, float], ...]  # as users write it

# States this far outside (relative to the width) are attributed to rounding and moved to the edge.
_ROUNDING = 1e-9

WIDEN_OR_REMOVE = "widen the domain or remove them"  # advice about rows of a log outside the domain

MOST_ACTIONS = 1_000  # sums of products are kept for every pair of actions
_LARGEST_ACTION = 2**31  # larger numbers are no actions
_FEW = 100  # actions that may be missing in a log unless the number of actions is given
_WIDTHS = 1e-100, 1e100  # half of a domain: its square and that of its inverse stay finite


class Interval(tuple[float, float]):
    """A pair ``(low, high)`` that `as_domain` has checked; only `as_domain` makes them."""


@internal
class Box(tuple[tuple[float, float], ...]):
    """A box of states, made by `as_domain`; it equals the tuple of pairs ``(low, high)`` that users write."""

    @cached_property
    def ends(self) -> Array:
        """Low and high ends ``[2, d]``."""
        ends = np.array(self, dtype=float).T.copy()
        ends.flags.writeable = False
        return ends

    @property
    def low(self) -> Array:
        """Low ends ``[d]``."""
        return self.ends[0]

    @property
    def high(self) -> Array:
        """High ends ``[d]``."""
        return self.ends[1]

    @property
    def width(self) -> Array:
        """Widths ``[d]``."""
        return self.high - self.low

    @property
    def words(self) -> str:
        """As text, ``[-1, 1] × [0, 2]``."""
        texts = (
            (f"{low:g}", f"{high:g}") if f"{low:g}" != f"{high:g}" else (repr(low), repr(high)) for low, high in self
        )
        return " × ".join(f"[{low}, {high}]" for low, high in texts)

    def shares(self, states: Array) -> Array:
        """States ``[…, d]`` in units of the box: 0 at its low ends, 1 at its high ends."""
        return np.asarray((states - self.low) / self.width)

    def chart(self, states: Array, periodic: Sequence[int] = ()) -> Array:
        """States ``[n, d]`` in which distances are taken: in units of the widths, circles of length 1 for periods."""
        parts = []
        for axis, share in enumerate(self.shares(states).T):
            turn = 2 * np.pi * share
            parts += [np.sin(turn) / (2 * np.pi), np.cos(turn) / (2 * np.pi)] if axis in periodic else [share]
        return np.stack(parts, axis=1)

    def mesh(self, along: int) -> Array:
        """An even mesh, ``along`` states in each coordinate, the corners included ``[N, d]``."""
        return mesh([np.linspace(low, high, along) for low, high in self])

    def uniform(self, count: int, rng: np.random.Generator) -> Array:
        """States drawn uniformly ``[n, d]``."""
        return np.asarray(self.low + self.width * rng.random((count, len(self))))

    def displacement(self, start: Array, end: Array, periodic: Sequence[int]) -> Array:
        """From some states to others ``[n, d]``, along periodic coordinates by the shorter way."""
        moved = end - start
        for axis in periodic:
            width = self.width[axis]
            moved[:, axis] = (moved[:, axis] + width / 2) % width - width / 2
        return moved

    def wrapped(self, states: Array, periodic: Sequence[int]) -> Array:
        """States ``[…, d]`` with periodic coordinates mapped into the box, both ends of which stay as they are."""
        inside = np.array(states)
        for axis in periodic:
            (low, high), values = self[axis], states[..., axis]
            inside[..., axis] = np.where(values == high, high, low + (values - low) % (high - low))
        return inside

    def moved_into(self, states: Array, periodic: Sequence[int] = (), *, reflect: bool = False) -> Array:
        """States ``[…, d]`` moved into the box: periodic coordinates are wrapped, others clipped or reflected."""
        low, width, inside = self.low, self.width, states
        if reflect:
            inside = low + np.abs((states - low + width) % (2 * width) - width)  # from low on the folded line
        inside = np.clip(inside, low, self.high)
        axes = list(periodic)
        inside[..., axes] = self.wrapped(states, periodic)[..., axes]
        return inside


def as_domain(value: Any) -> Box:
    """The box of ``(low, high)`` or of one such pair for each coordinate; a checked one as it is."""
    if type(value) is Box:
        return value
    if type(value) is Interval:
        return Box((value,))
    if type(value) is tuple and value and all(type(pair) is Interval for pair in value):
        return Box(value)
    return _checked(value)


def _checked(value: Any) -> Box:
    name, got = setting("domain"), f"got {shown(value)}"
    try:
        box = as_array(value, "domain").astype(np.float64)
    except ValueError:
        raise ValueError(f"{name} must be (low, high) or a tuple of such pairs, {got}") from None
    if box.ndim == 1:
        box = box[None, :]
    if box.ndim != 2 or box.shape[1] != 2 or len(box) == 0:
        raise ValueError(f"{name} must be (low, high) or a tuple of such pairs, {got}")
    if not np.isfinite(box).all():
        raise ValueError(f"{name} must have finite ends, {got}; clip or squash unbounded coordinates first")
    if not (box[:, 0] < box[:, 1]).all():
        raise ValueError(f"every interval of the domain needs low < high, {got}")
    widths = box[:, 1] / 2 - box[:, 0] / 2
    if not ((widths > _WIDTHS[0]) & (widths < _WIDTHS[1])).all():
        raise ValueError(
            f"every interval of the domain needs a width between {_WIDTHS[0]:g} and {_WIDTHS[1]:g}, {got}; "
            "measure the states in other units"
        )
    return Box(Interval((low, high)) for low, high in box.tolist())


def number_of(n: int, noun: str) -> str:
    """A count in words: "1 round", "2,000 rounds"."""
    return f"{n:,} {noun}{'s' * (n != 1)}"


def mesh(axes: Sequence[Array]) -> Array:
    """All combinations of one number from each axis, the last varying fastest: ``[Π n_j, d]``."""
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes))


def one_coordinate(domain: Box, what: str) -> None:
    """Refuse a domain of several coordinates."""
    if len(domain) != 1:
        instead = (
            "certirl.solve takes any box, with delta up to three coordinates, or more if all of them move "
            f"independently: write components={[[c] for c in range(len(domain))]}"
        )
        raise ValueError(
            f"{what} for states of one coordinate in this version, got the domain {domain.words}; {instead}"
        )


def as_rows(states: ArrayLike, dimension: int, *, name: str = "states") -> Array:
    """Finite states ``[n, d]`` from ``[n, d]``, ``[n]`` (one coordinate) or a single state."""
    with np.errstate(over="ignore"):  # what is too large for double precision is reported as infinite
        rows = as_array(states, name).astype(np.float64, copy=False)
    if rows.ndim == 0 and dimension == 1:
        rows = rows.reshape(1, 1)
    elif rows.ndim == 1:
        rows = rows[:, None] if dimension == 1 else rows[None, :]
    if rows.ndim != 2 or rows.shape[1] != dimension:
        wanted = "[n] or [n, 1]" if dimension == 1 else f"[n, {dimension}]"
        raise ValueError(f"{name} must have shape {wanted}, got {list(np.shape(states))}")
    bad = ~np.isfinite(rows).all(axis=1)
    if bad.any():
        raise ValueError(f"{name} must be finite: row {int(bad.argmax())} is {rows[bad.argmax()].tolist()}")
    return rows


def as_states(states: ArrayLike, domain: Box, *, name: str = "states", instead: str = "pass states inside it") -> Array:
    """States ``[n, d]`` that lie in the box; those outside by rounding alone are clipped."""
    rows = as_rows(states, len(domain), name=name)
    low, high = domain.ends
    slack = _ROUNDING * (high - low)
    outside = ((rows < low - slack) | (rows > high + slack)).any(axis=1)
    if outside.any():
        worst = int(outside.argmax())
        raise ValueError(
            f"{int(outside.sum())} of {len(rows)} {name} lie outside the domain {domain.words}: "
            f"row {worst} is {rows[worst].tolist()}; {instead}"
        )
    return np.clip(rows, low, high)


def check_coordinates(dimension: int, domain: Box) -> None:
    """Refuse a domain that has other coordinates than the states."""
    if len(domain) != dimension:
        instead = by_door(
            "write one (low, high) for each coordinate", "write --domain LOW HIGH once for each coordinate"
        )
        raise ValueError(
            f"states have {dimension} coordinates but the domain {domain.words} has {len(domain)}; {instead}"
        )


def as_actions(actions: Any, *, n_actions: int | None = None, first: int = 0) -> NDArray[np.intp]:
    """Actions ``[n]`` as whole numbers below ``n_actions``; rows are counted from ``first``."""
    raw = as_array(actions, "actions", first=first, instead="map names or torques to whole numbers 0, 1, …")
    if raw.ndim == 2 and raw.shape[1] == 1:
        raw = raw[:, 0]
    if raw.ndim != 1:
        raise ValueError(f"actions must have shape [n], got {list(raw.shape)}")
    whole = np.isfinite(raw) & (raw == np.round(raw)) & (raw >= 0) & (raw < _LARGEST_ACTION)
    if not whole.all():
        row = int(whole.argmin())
        raise ValueError(
            f"actions must be whole numbers 0, 1, …, got {float(raw[row]):.12g} in row {first + row}; "
            + by_door("readers of logs cut controls into three levels by actions=3", "--actions levels:3 cuts controls")
        )
    if raw.size and raw.max() >= (MOST_ACTIONS if n_actions is None else n_actions):
        row = int((raw >= (MOST_ACTIONS if n_actions is None else n_actions)).argmax())
        subject = f"action {int(raw[row])} in row {first + row} is"
        if n_actions is None:
            raise ValueError(f"{subject} above {MOST_ACTIONS - 1}, the largest possible: number the actions 0, 1, …")
        allowed = f"among the {n_actions} actions 0 … {n_actions - 1}" if n_actions > 1 else "the only action, 0"
        raise ValueError(f"{subject} not {allowed}")
    return raw.astype(np.intp)


def as_n_actions(value: Any, *, name: str = "n_actions") -> int:
    """Check a declared number of actions."""
    return as_count(value, name, most=MOST_ACTIONS, meaning="a whole number of actions")


def count_actions(actions: NDArray[np.intp]) -> int:
    """The largest action of a log plus one; an error if most of the actions never occur."""
    count, distinct = int(actions.max()) + 1, int(np.count_nonzero(np.bincount(actions)))
    if count > max(_FEW, 10 * distinct):
        raise ValueError(
            f"the largest action is {count - 1} but only {distinct} different actions occur: number them "
            f"0 … {distinct - 1}, or declare that there are {count} actions"
        )
    return count


def as_axes(axes: Any, dimension: int, *, name: str = "periodic", names: Sequence[str] = ()) -> tuple[int, ...]:
    """Coordinates, by numbers among 0 … d − 1 or by their names, in order."""
    try:
        listed = [axes] if isinstance(axes, str) and axes in names else axes
        if not isinstance(listed, str):
            numbers = [list(names).index(axis) if isinstance(axis, str) else axis for axis in listed]
            return tuple(sorted({as_count(axis, name, least=0, most=dimension - 1) for axis in numbers}))
    except (TypeError, ValueError):
        pass
    available = "coordinate 0 alone" if dimension == 1 else f"coordinates 0 … {dimension - 1}"
    available += f" ({', '.join(names)})" if names else ""
    raise ValueError(
        f"{setting(name)} must be a tuple of coordinates, and the states have {available}; got {shown(axes)}"
    )


def names_among(axes: Any) -> list[str]:
    """The names in what should be a sequence of coordinates."""
    listed = axes if isinstance(axes, Iterable) and not isinstance(axes, str) else [axes]
    return [axis for axis in listed if isinstance(axis, str)]


def as_exogenous(axes: Any, dimension: int, *, name: str = "exogenous", names: Sequence[str] = ()) -> tuple[int, ...]:
    """Coordinates that no action moves, in order; not all, as actions must move something."""
    chosen = as_axes(axes, dimension, name=name, names=names)
    if len(chosen) == dimension:
        raise ValueError(
            f"{setting(name)} names every coordinate, and actions must move something: leave out what they move, got "
            f"{shown(axes)}"
        )
    return chosen


def bounding_box(states: Array, next_states: Array) -> Box:
    """The smallest box that holds all of them ``[n, d]``."""
    low = np.minimum(states.min(axis=0), next_states.min(axis=0))
    high = np.maximum(states.max(axis=0), next_states.max(axis=0))
    if not (low < high).all():
        box = setting("domain", "((low, high), …)")
        raise ValueError(f"some coordinate never changes, so the data spans no box: write {box}")
    return as_domain(np.stack([low, high], axis=1))


def like_input(values: Array, states: ArrayLike, dimension: int) -> Any:
    """One number per state in the shape of the states: a float for a single one, else ``[n]``."""
    single = np.ndim(states) == (0 if dimension == 1 else 1)
    return float(values[0]) if single else values
