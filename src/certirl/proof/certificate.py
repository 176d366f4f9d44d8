"""The certificate: a reward, fresh data, and what they prove of the expert with probability 1 − δ.

An expert of one action is compared with every other action over the whole box. For any other the box is cut into cells
(`ExpertGrid`), on which bounds are read by `certirl.proof.reading`: docs/notes/certificate.md, sections 10 and 11.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from certirl.data.policy import ExpertGrid
from certirl.data.transitions import action_in_words, counted
from certirl.fit.witness import place_of
from certirl.functions.bases import Basis
from certirl.functions.frame import CellAxes, frame
from certirl.functions.reward import Reward
from certirl.ground import archive
from certirl.ground.archive import Shape
from certirl.ground.domain import Array, Box, as_domain, as_states
from certirl.ground.doors import as_array, by_door
from certirl.ground.records import Record, internal
from certirl.ground.status import FRESH, Claim, Seen, chance, change, percent_up, rounded_down
from certirl.proof.bands import Band, Bands, bands, expected_bands, shares_of
from certirl.proof.case import Case, allowed_tube, enough_columns, more_columns, without_switches
from certirl.proof.functionals import workings
from certirl.proof.reading import Margin, PairBounds, Reading, Tube, least_by_action, read_cells
from certirl.proof.suboptimality import Suboptimality, declared, required
from certirl.proof.sums import Evidence
from certirl.proof.surrogate import Surrogate
from certirl.proof.tails import GaussianNoise, TailLike, largest_tail, tail_in_numbers


def read(
    bands: Bands,
    grid: ExpertGrid | None,
    *,
    expert: int,
    allowed: float,
    widths: Array,
    discount: float,
    required: float = 0.0,
) -> Reading:
    """What bands say about an expert on a grid, or, without one, who takes one action everywhere: section 10.

    Outside the half-width ``allowed`` everything must be proved; ``widths`` are those of the tents whose visits the
    bands bound ``[w]``. Bounds must exceed ``required``.
    """
    if grid is not None:
        later = partial(_met_later, grid, bands.visits, widths)
        asked: dict[str, Any] = {"allowed": allowed, "discount": discount, "required": required}
        return read_cells(_on_cells(bands, grid), grid, later=later, **asked)
    margins = []
    for band in bands.pairs:
        b, a = band.pair
        margins.append(_everywhere(band, (b, a), 1.0) if b == expert else _everywhere(band, (a, b), -1.0))
    least = min(margin.value for margin in margins)
    return Reading(margins, discount / (1 - discount) * max(0.0, -least), None)


def _everywhere(band: Band, pair: tuple[int, int], sign: float) -> Margin:
    """The better of two bounds over all states: the least of the curve less the largest radius, or cell by cell."""
    harmonics, side = frame(band.functions), 0 if sign > 0 else 1
    state, estimated = harmonics.minimum(sign * band.curve)
    estimated += band.paid.least(sign)
    losses = band.everywhere(side)
    losses["grid"] += band.paid.between
    whole = Margin(pair, estimated - sum(losses.values()), estimated, losses, state)
    if not np.isfinite(whole.value):
        return whole
    cells = harmonics.cells()
    values, falls = band.on_cells(cells)
    values, parts = sign * values, band.losses_in_cells(cells, side)
    lower = values - falls - sum(parts.values())
    worst = np.unravel_index(int(lower.argmin()), lower.shape)
    if lower[worst] <= whole.value:
        return whole
    return _margin(pair, worst, cells, values, falls, parts)


def _margin(
    pair: tuple[int, int],
    worst: tuple[Any, ...],
    cells: CellAxes,
    values: Array,
    falls: Array,
    parts: dict[str, Array],
) -> Margin:
    """The bound in one cell."""
    losses = {name: float(lost[worst]) for name, lost in parts.items()}
    losses["grid"] += float(falls[worst])
    place = np.array([_without_rounding(axis, axis[i]) for axis, i in zip(cells.axes, worst, strict=True)])
    estimated = float(values[worst])
    return Margin(pair, estimated - sum(losses.values()), estimated, losses, place)


def _without_rounding(axis: Array, place: float) -> float:
    """A place on an axis, 0 where it differs from 0 by rounding only."""
    return 0.0 if abs(place) < 1e-12 * float(np.abs(axis).max()) else float(place)


class _Refined:
    """Cells of the expert's grid, cut into smaller ones where expansions can change fast."""

    def __init__(self, columns: Basis, grid: ExpertGrid) -> None:
        sides = zip(grid.domain, grid.shape, strict=True)
        edges = [np.linspace(low, high, count + 1) for (low, high), count in sides]
        self.cells, self._shape = frame(columns).cells(edges), grid.shape
        pairs = zip(self.cells.axes, edges, strict=True)
        self._cell = [np.searchsorted(ends, axis, side="right") - 1 for axis, ends in pairs]
        self._first = [
            np.searchsorted(numbers, np.arange(count)) for numbers, count in zip(self._cell, grid.shape, strict=True)
        ]

    def spread(self, numbers: NDArray[Any]) -> NDArray[Any]:
        """What holds on the cells of the grid ``[cells]``, on the smaller ones ``[n_1, …, n_d]``."""
        return numbers.reshape(self._shape)[np.ix_(*self._cell)]

    def least(self, numbers: Array) -> Array:
        """The least of the smaller cells in each cell of the grid ``[cells]``."""
        for axis, first in enumerate(self._first):
            numbers = np.minimum.reduceat(numbers, first, axis=axis)
        return numbers.ravel()


def _on_cells(bands: Bands, grid: ExpertGrid) -> Iterator[PairBounds]:
    """What bands say on the cells of the expert's grid, for each ordered pair of actions."""
    refined = _Refined(max((band.functions for band in bands.pairs), key=lambda functions: functions.size), grid)
    for band in bands.pairs:
        values, falls = band.on_cells(refined.cells)
        for side, (pair, sign) in enumerate(((band.pair, 1.0), (band.pair[::-1], -1.0))):
            parts = band.losses_in_cells(refined.cells, side)
            lower = sign * values - np.asarray(sum(parts.values())) - falls
            worst = partial(_worst, pair, refined, lower, sign * values, falls, parts)
            yield PairBounds(pair, refined.least(lower), worst)


def _worst(
    pair: tuple[int, int],
    refined: _Refined,
    lower: Array,
    values: Array,
    falls: Array,
    parts: dict[str, Array],
    among: NDArray[np.bool_],
) -> Margin:
    """The least bound in some cells of the grid; the least estimate where nothing is bounded."""
    asked = np.where(refined.spread(among), lower, np.inf)
    if asked.min() == -np.inf:
        asked = np.where(asked == -np.inf, values, np.inf)
    place = np.unravel_index(int(asked.argmin()), asked.shape)
    return _margin(pair, place, refined.cells, values, falls, parts)


def _met_later(grid: ExpertGrid, visits: Array, widths: Array, short: Array) -> float:
    """The shortfall that is met in a later step at most: (8).

    A tent that covers all shortfall, stretched to do so, is met no more often than its visits.
    """
    later = np.inf
    for cover, visit in zip(grid.tents(widths), visits, strict=True) if len(widths) else ():
        with np.errstate(divide="ignore", invalid="ignore"):
            stretch = np.where(short > 0, short / cover, 0.0).max()
        if np.isfinite(stretch):
            later = min(later, float(stretch * visit))
    return later


SMALLER_TAIL = "declare a smaller tail, or use more columns"
CLEAR = 2.0  # standard errors beyond which an estimated margin is taken to be positive, or negative, for a forecast
UNLIMITED = 10**10  # transitions per action that stand for infinitely many; with more, bounds on rounding decide


@archive.record
@dataclass(frozen=True, eq=False)
class Ground(Record):
    """What the bounds of one component rest on.

    Attributes:
        name: of the component; empty if it is the only one.
        delta: its own part of δ.
        tail: its τ; None if none was declared.
        surrogate: what was fixed before the fresh data.
        evidence: what the fresh data said.

    Example:
        >>> room = certirl.problems.thermostat(noise=3.0)
        >>> asked = {"discount": 0.7, "expert": 0, "columns": certirl.Legendre(7), "tail": room.tail}
        >>> certificate = certirl.certify(lambda states: states[:, 0], room, samples=20_000, rng=1, **asked)
        >>> ground = certificate.grounds[0]
        >>> ground.delta == certificate.delta, ground.tail == certificate.tail
        (True, True)
    """

    name: str
    delta: float
    tail: float | None
    surrogate: Surrogate
    evidence: Evidence

    @property
    @internal
    def columns(self) -> Basis:
        """The functions of the state."""
        return self.surrogate.columns

    @cached_property
    @internal
    def bands(self) -> Bands:
        """What holds around D_ba for every pair of actions, in the surrogate's unit."""
        return bands(self.surrogate, self.evidence, delta=self.delta, tail=self.tail or 0.0)

    @internal
    def around(self, errors: float) -> Bands:
        """The curves and a number of standard errors around them: what the data show, without a proof."""
        points, counts = workings(self.surrogate, self.evidence).compared, self.surrogate.mesh.counts
        pairs = []
        for band in self.forecast(UNLIMITED, self.delta).pairs:
            spread = errors * np.sqrt(points[band.pair].noise.value).reshape(counts)
            pairs.append(replace(band, estimation=np.stack([spread, spread]), second_order=np.zeros((2, *counts))))
        return replace(self.bands, pairs=tuple(pairs))

    @internal
    def forecast(self, samples: int, delta: float, tails: float = 1.0) -> Bands:
        """Forecast the bands for a number of transitions per action, and a multiple of the tail, from these sums."""
        tail = tails * self.tail if tails and self.tail else 0.0  # none of an infinite tail is zero
        return expected_bands(self.surrogate, self.evidence, samples, delta=delta, tail=tail)


@archive.record
@dataclass(frozen=True, eq=False)
class Certificate(Claim):
    """With probability at least 1 − δ the expert's action is strictly best: everywhere, or outside a tube.

    Of an inexact expert, with a suboptimality, it is within that of the best: everywhere, if no tube is asked for.

    Best: taking it and then following the expert is worth more than taking any other and then following the expert. For
    an expert of one action that is proved at every state, for any other at every state farther than the tube's
    half-width from the states where it switches.

    Attributes:
        margin: what every action that the expert takes is better by than every other, divided by γ: a lower bound,
            ``estimated`` less the losses. If it is not positive, or not above `required` for an inexact expert,
            nothing is proved.
        estimated: the estimate of it, corrected by the fresh data.
        losses: what is subtracted, by name; over components they are summed.
        state: where the margin is least ``[d]``.
        action: the alternative action there.
        delta: the probability of a false statement.
        spending: how δ was split, by name.
        assumptions: what must be true besides, in words.
        tail: τ, the largest of all components; None if none was declared, and then the word is "conditional".
        samples: fresh transitions per action.
        regret: the value lost at worst, at any state, by following the expert instead of the best policy.
        value_span: how far the expert's value reaches at least; None for an expert of one action.
        bounds: lower bounds of every component against every alternative action ``[J, A − 1]``, zero where a component
            has no reward; empty for an expert that switches.
        tube: where the expert is not proved strictly best; None for an expert of one action.
        grounds: the numbers that the bounds rest on, one for each component with a reward.
        goal: the regret that was asked for, as a share of the value's span; None if none was.
        action_names: of the actions, if the data have them.
        log_notes: what was done to the log while it was read, in sentences; they are among the assumptions.
        suboptimality: how far from the best an action of the expert may be; None if it must be strictly best.
        about: the call and what it was about, in words by name: data and code with their hashes, and versions.

    Example:
        >>> room = certirl.problems.thermostat(noise=3.0)
        >>> asked = {"discount": 0.7, "expert": 0, "columns": certirl.Legendre(7), "tail": room.tail}
        >>> certificate = certirl.certify(lambda states: states[:, 0], room, samples=20_000, rng=1, **asked)
        >>> certificate.holds, certificate.margin > 0, certificate.delta, certificate.samples
        (True, True, 0.05, 16000)
        >>> sorted(certificate.losses)
        ['estimation', 'floating point', 'grid', 'second order', 'truncation tail']
    """

    margin: float
    estimated: float
    losses: dict[str, float]
    state: Annotated[Array, Shape("d")]
    action: int
    delta: float
    spending: dict[str, float]
    assumptions: tuple[str, ...]
    tail: float | None
    samples: int
    regret: float
    value_span: float | None
    bounds: Annotated[Array, Shape("J B", infinite=True)]
    tube: Tube | None
    grounds: tuple[Ground, ...]
    goal: float | None = None
    action_names: tuple[str, ...] = ()
    log_notes: tuple[str, ...] = ()
    suboptimality: Suboptimality | None = None
    about: dict[str, str] = field(default_factory=dict)
    replaces_reward: ClassVar[bool] = False

    @property
    def required(self) -> float:  # type: ignore[override]
        """What the margin must exceed: 0, or −ξS/γ for an inexact expert."""
        return required(self.suboptimality, self.discount)

    def lines(self) -> list[tuple[str, str]]:
        """The margin, the tube with the regret, and the assumptions, each in a line with its name.

        Example:
            >>> [name for name, _ in certificate.lines()]
            ['margin', 'assumed']
        """
        assumed = ("assumed", "; ".join(self.assumptions))
        asked = [] if self.suboptimality is None else [("asked", f"a margin above {self.required:.3g}")]
        if self.tube is None:
            lost = [("regret", f"at most {-rounded_down(-self.regret):.3g} in value")] if asked else []
            return [("margin", self.proved), *asked, *lost, assumed]
        where = f" at {place_of(self.state)} against {self._alternative}"
        tube, assuming = self.tube, "" if self.tail is not None else "if the tail is zero, "
        least = f"{assuming}at least {rounded_down(self.margin):.3g} {self._where(tube)}: "
        least = least if np.isfinite(self.margin) else f"{self.without_bound}: "
        compared = f"{least}{self.account(where)}" if self.margin < np.inf else "none: the expert takes every action"
        shape = f"half-width {tube.half_width:.3g}, {tube.share:.2%} of the domain"
        lines = [("margin", compared), *asked, ("tube", f"{tube.grid.described(tube.undecided)}: {shape}")]
        if tube.ties > 0:
            lines.append(("ties", f"actions that the expert mixes differ by {tube.ties:.3g} at most"))
        return [*lines, ("regret", f"{self._regret_in_words}{self._settled(tube)}"), assumed]

    @internal
    def as_reward(self) -> Reward:
        """R as the reward of an answer, where it is not that of the answer already."""
        raise NotImplementedError

    @property
    def holds(self) -> bool:  # type: ignore[override]
        """Whether it is a proof: the margin is what is required, some state is decided, and a tail was declared."""
        return bool(0 < self.spare < np.inf and self.tail is not None)

    @property
    @internal
    def bounds_regret(self) -> bool:  # type: ignore[override]
        """Whether it bounds what the expert loses, where that says more than the margin."""
        return bool(self.holds and self.tube is not None and np.isfinite(self.relative_regret))

    @property
    def relative_regret(self) -> float:
        """The regret as a share of the value's span; infinite where the span is not bounded."""
        if self.regret == 0:
            return 0.0
        return self.regret / self.value_span if self.value_span else float("inf")

    @property
    def discount(self) -> float:
        """γ."""
        return self.grounds[0].surrogate.discount

    @property
    def domain(self) -> Box:
        """The box of states, of the components with a reward."""
        return as_domain(tuple(side for ground in self.grounds for side in ground.surrogate.columns.domain))

    def advantage(self, states: ArrayLike) -> tuple[Array, Array]:
        """The expert's advantage D_a(s) over every action a, divided by γ: estimates and lower bounds, ``[A, n]`` each.

        The lower bounds hold at all states at once, with the probability and under the assumptions of the certificate.
        Where the expert may take several actions it is the least of theirs; nan for the actions that it takes, within a
        cell of its grid.

        Args:
            states: ``[n, d]``; ``[n]`` for one coordinate.

        Example:
            >>> estimated, proved = certificate.advantage([16.0, 20.0, 24.0])
            >>> estimated.shape, bool((proved < estimated)[1:].all())
            ((3, 3), True)
        """
        total: Any = 0.0
        for ground in self.grounds:
            total = total + self._advantage(ground, states)
        return total[0], total[1]

    def _rows(self, ground: Ground, states: ArrayLike) -> Array:
        """The coordinates of one component of whole states ``[n, d]``."""
        s, rows = ground.surrogate, as_array(states, "states").astype(float)
        return as_states(rows if s.coordinates is None else rows[..., list(s.coordinates)], s.columns.domain)

    def _advantage(self, ground: Ground, states: ArrayLike) -> Array:
        s, rows = ground.surrogate, self._rows(ground, states)
        taken = np.zeros((s.n_actions, len(rows)), dtype=bool)
        taken[s.used[0]] = True
        if self.tube is not None:
            taken = self.tube.grid.taken_at(rows)
        numbers = []
        for band in ground.bands.pairs:
            curve = band.estimate(rows)
            for side, (pair, sign) in enumerate(((band.pair, 1.0), (band.pair[::-1], -1.0))):
                numbers.append((pair, (sign * curve, sign * curve - band.radius(rows, side))))
        return s.unit * least_by_action(taken, numbers)

    def proves(self, states: ArrayLike) -> NDArray[np.bool_]:
        """Whether the expert's action is proved strictly best at each state ``[n]``, as it is outside the tube.

        Of an inexact expert: within what was declared of the best.

        Example:
            >>> certificate.proves([16.0, 20.0, 24.0])
            array([ True,  True,  True])
        """
        if self.tube is None:
            rows = [self._rows(ground, states) for ground in self.grounds]
            return np.full(len(rows[0]), self.spare > 0)
        return np.asarray(self.tube.decided[self.tube.grid.cells.cell(as_states(states, self.tube.grid.domain))])

    def plot(self, *, plane: tuple[int, int] = (0, 1), ax: Any = None, path: Any = None) -> Any:
        """Draw the advantage over the best alternative with its proved band, and the tube; write it to ``path``.

        Example:
            >>> axes = certificate.plot(path="proof.png")
        """
        from certirl import plots

        return plots.certificate(self, plane=plane, ax=ax, path=path)

    @cached_property
    def samples_needed(self) -> int | None:  # type: ignore[override]  # worked out when asked for
        """Fresh transitions per action that should suffice if the estimates stay the same; None if no number is known.

        None is if the estimate, less the tail, is not positive beyond its noise: then it may be negative in truth.
        """
        if not self._shown(CLEAR) > self.required:
            return None
        columns = max(ground.surrogate.columns.size for ground in self.grounds)
        return least_enough(lambda n: self._margin_with(n) > self.required, 10 * columns, self.samples * 2**12)

    def _shown(self, errors: float) -> float:
        """The margin that the estimates leave with a number of standard errors, and the tail, in place of bounds."""
        around = self._curves([ground.around(errors) for ground in self.grounds])
        return float(_summary(self.grounds, around, *self._asked).derived["margin"])

    @cached_property
    @internal
    def in_noise(self) -> str:  # type: ignore[override]  # worked out when asked for
        """That the least margin may be on either side of what is required, in words; else empty."""
        if self.spare > 0:
            return ""
        least, clear = (self._shown(errors) for errors in (0.0, CLEAR))
        over = least - self.required
        if clear > self.required or over < clear - least or not np.isfinite(clear):
            return ""
        perhaps = "; perhaps no reward has a positive one" if least <= 0 and not self.required else ""
        wanted = f"above {self.required:.3g}" if self.required else "positive"
        return (
            f"whether the margin is {wanted} cannot be told yet ({least:.2g} ± {least - clear:.1g}, {CLEAR:g} standard "
            f"errors{perhaps}): use more samples"
        )

    @property
    @internal
    def wider_tube(self) -> float | None:
        """A half-width of the tube with which these bounds are a certificate; None if they are one or none exists."""
        tube = self.tube
        if tube is None or not -np.inf < self.spare <= 0:
            return None
        least = min(high - low for low, high in tube.grid.domain)
        outside = tube.grid.away + tube.grid.reach > tube.half_width
        if not outside.any() or not tube.allowed < tube.half_width < least / 4:
            return None
        return -rounded_down(-tube.half_width, 2)

    @property
    @internal
    def wider_in_words(self) -> str:
        """That the same data prove it outside a wider tube, with the same δ; empty if they prove it, or prove none."""
        if (width := self.wider_tube) is None:
            return ""
        read = by_door(f"certificate.with_tube({width:g})", f"certirl show FILE --tube {width:g}")
        assuming = "" if self.tail is not None else "if the tail is zero, "
        return f"{assuming}the same data prove it farther than {width:g} from the switches, at the same δ: {read}"

    def with_tube(self, half_width: float) -> Certificate:
        """What the same data prove outside another tube, at the same δ.

        The bounds hold at all states at once, so that the tube may be chosen after they are known; nothing else may.

        Args:
            half_width: of the tube.

        Example:
            >>> room = certirl.problems.comfort(noise=0.6)
            >>> asked = {"discount": 0.5, "expert": room.expert, "columns": certirl.Legendre(7), "samples": 20_000}
            >>> asked |= {"tail": room.dynamics.tail, "tube": 0.01, "rng": 1}
            >>> narrow = certirl.certify(room.reward, room.dynamics, **asked)
            >>> narrow.holds, narrow.with_tube(0.4).holds, narrow.with_tube(0.4).delta == narrow.delta
            (False, True, True)
        """
        if self.tube is None:
            raise ValueError(without_switches("half_width"))
        return self._read_with(allowed_tube(half_width, self.tube.grid.domain, "half_width")).advised("")

    def _read_with(self, allowed: float) -> Certificate:
        assert self.tube is not None
        bands = [ground.bands for ground in self.grounds]
        derived, (margin,), _ = _summary(self.grounds, bands, self.tube.grid, allowed, self.required)
        return replace(self, **derived, state=margin.state, action=margin.pair[1])

    @cached_property
    def excessive_tail(self) -> str:  # type: ignore[override]  # worked out when asked for
        """What to do about a tail that leaves no margin however many transitions there are; empty for any other."""
        if self.spare > 0 or not self.tail:
            return ""
        limit, without = self._margin_with(UNLIMITED), self._margin_with(UNLIMITED, tails=0.0)
        if not (limit <= self.required < without or limit == -np.inf < without):
            return ""
        if not without > self.required:  # data can lead to a reward with a larger margin
            return f"{self._tail_in_numbers}; this is too much for any bound: {SMALLER_TAIL}"
        needed = f"this margin needs τ < {rounded_down(self.tail_needed, 2):.2g}, however many transitions there are"
        return f"{self._tail_in_numbers}; {needed}: {SMALLER_TAIL}"

    @cached_property
    def tail_needed(self) -> float:
        """The largest τ that leaves a margin with the estimates as they are, of data without end if it holds not yet.

        Of components the one with the largest tail is meant; the others' are changed with it. Infinite without a tail.

        Example:
            >>> room = certirl.problems.thermostat(noise=3.0)
            >>> asked = {"discount": 0.7, "expert": 0, "columns": certirl.Legendre(7), "tail": room.tail}
            >>> certificate = certirl.certify(lambda states: states[:, 0], room, samples=20_000, rng=1, **asked)
            >>> certificate.tail < certificate.tail_needed
            True
        """
        lost = self.losses.get("truncation tail", 0.0)
        if not self.tail or not lost:
            return float("inf")
        if self.spare > 0:
            return self.tail * (self.spare + lost) / lost
        high = 1.0 if np.isfinite(self.tail) else 0.0
        while high > 1e-9 and not self._margin_with(UNLIMITED, tails=high / 2) > self.required:
            high /= 2
        low = high / 2
        for _ in range(4):
            middle = (low + high) / 2
            enough = self._margin_with(UNLIMITED, tails=middle) > self.required
            low, high = (middle, high) if enough else (low, middle)
        return self.tail * low

    @property
    def _largest_tail(self) -> Ground:
        return max(self.grounds, key=lambda ground: ground.tail or 0.0)

    @property
    def _tail_in_numbers(self) -> str:
        largest = self._largest_tail
        return tail_in_numbers(largest.tail or 0.0, largest.surrogate.columns, largest.name)

    @property
    @internal
    def close_tail(self) -> str:  # type: ignore[override]
        """The tail, and the τ that the margin needs, in words where the tail decides much; else empty."""
        lost = self.losses.get("truncation tail", 0.0)
        if not self.holds or not lost > max(self.spare, (self.estimated - self.required) / 4):
            return ""
        return f"{self._tail_in_numbers}; this margin needs τ < {rounded_down(self.tail_needed, 2):.2g}"

    @internal
    def enough_columns(self, tail: TailLike) -> str:
        """`excessive_tail` with the number of columns that should be enough, by the declaration behind τ."""
        s = self._largest_tail.surrogate
        if not self.excessive_tail or not 0 < self.tail_needed < np.inf:
            return self.excessive_tail
        cure = more_columns(tail, s.columns, self._tail_allowed, s.coordinates) or SMALLER_TAIL
        return self.excessive_tail.replace(SMALLER_TAIL, cure)

    def _tail_allowed(self, basis: Basis) -> float:
        """τ for some columns: half of what is needed, as it costs in proportion to their leverage."""
        size = self._largest_tail.surrogate.columns.size
        return float(self.tail_needed / 2 * (1 + np.sqrt(size)) / (1 + np.sqrt(basis.size)))

    @internal
    def change(self, tail: Any = None, seen: Seen | None = None) -> str:
        """As of a `Claim`; a wider tube first, which costs nothing."""
        if self.wider_tube is not None:
            return f"certificate.with_tube({self.wider_tube:g})"
        if self.excessive_tail or self._pays_for_tail:
            s = self._largest_tail.surrogate
            found = enough_columns(tail, s.columns, self._tail_allowed, s.coordinates)
            if found is not None and found.size > s.columns.size and 0 < self.tail_needed < np.inf:
                return change(columns=found.size)
            if self.excessive_tail:
                return _exactly(tail) if len(self.domain) == 1 and not s.columns.periodic_axes else ""
        if self.spare <= 0 and not self.in_noise and self.samples_needed is None and np.isfinite(self.margin):
            return self._allowing()
        return super().change(tail, seen)

    @property
    def _pays_for_tail(self) -> bool:
        """Whether a proof would take many more transitions, since the tail leaves little."""
        is_costly = self.losses.get("truncation tail", 0.0) > (self.estimated - self.required) / 4
        return is_costly and self.samples_needed is not None and self.samples_needed > 20 * self.samples

    def _enough(self) -> float:
        if self.samples_needed is None and not np.isfinite(self.margin):
            return 400.0 * max(ground.columns.size for ground in self.grounds) / FRESH
        return super()._enough()

    def _allowing(self) -> str:
        """The share of what the reward spans within which the same expert should be proved optimal, with other data."""
        least = declared(1.0, [ground.surrogate for ground in self.grounds], lambda states: np.concatenate(states))
        assert least is not None
        share = 1.1 * self.discount * -self.margin / least.amount if least.amount > 0 else np.inf
        return change(suboptimality=f"{-rounded_down(-share, 2):g}") if share < 1 else ""

    def _margin_with(self, samples: int, tails: float = 1.0) -> float:
        """Forecast the margin for a number of transitions per action and a multiple of the tails, with these curves."""
        later = [ground.forecast(samples, ground.delta, tails) for ground in self.grounds]
        return float(_summary(self.grounds, self._curves(later), *self._asked).derived["margin"])

    def _curves(self, later: Sequence[Bands]) -> list[Bands]:
        """Other bands around the present curves."""
        each = []
        for then, ground in zip(later, self.grounds, strict=True):
            pairs = zip(then.pairs, ground.bands.pairs, strict=True)
            each.append(replace(then, pairs=tuple(replace(new, curve=now.curve) for new, now in pairs)))
        return each

    def __str__(self) -> str:
        where = f" at {place_of(self.state)} against {self._alternative}"
        data = f"{counted(self._counts)} {self.rows_in_words}"
        data += "" if self.holds else f"; {self.missing}"
        data += f"; {self.wider_in_words}" if self.wider_in_words else ""
        lines = [self.statement]
        if self.tube is None:
            lines += [f"  {self.account(where, digits=4)}", f"  from {data}"]
        else:
            named = [(name, text) for name, text in self.lines() if name != "assumed"]
            lines += [f"  {name:<9}{text}" for name, text in [*named, ("data", data)]]
        lines += [f"  assumed: {assumption}" for assumption in self.assumptions]
        return "\n".join([*lines, *([f"  next: {self.next}"] if self.next else [])])

    @property
    def _counts(self) -> NDArray[Any]:
        """Transitions of each action that the proof rests on ``[A]``."""
        return self.grounds[0].evidence.counts

    @property
    def _alternative(self) -> str:
        return action_in_words(self.action, self.action_names)

    @property
    def _asked(self) -> tuple[ExpertGrid | None, float, float]:
        """The grid of an expert that switches, the half-width of the tube that was asked for, and what is required."""
        return (None, 0.0, self.required) if self.tube is None else (self.tube.grid, self.tube.allowed, self.required)

    @property
    def _regret_in_words(self) -> str:
        if not np.isfinite(self.relative_regret):
            return self.without_bound
        missed = self.goal is not None and self.relative_regret > self.goal
        asked = f" ({self.goal:.2%} was asked for: allow more samples)" if missed else ""
        return f"at most {percent_up(self.relative_regret)} of the span of the value, at every state{asked}"

    def _where(self, tube: Tube) -> str:
        """The states that the margin is about, in words."""
        is_outside = len(tube.grid.switches) and tube.allowed > 0
        return f"farther than {tube.allowed:.3g} from {tube.grid.where}" if is_outside else "everywhere"

    def _settled(self, tube: Tube) -> str:
        least = min(high - low for low, high in tube.grid.domain)
        alike = "takes the expert's action" if tube.ties == 0 else "takes only actions that the expert takes"
        words = f"; farther than {tube.settled:.3g} from a switch the best policy {alike}"
        is_said = 0 < tube.settled < least / 2 and (tube.grid.away + tube.grid.reach > tube.settled).any()
        return words if is_said else ""

    @property
    def statement(self) -> str:
        """What is proved, or not, in a sentence."""
        tube, sure = self.tube, f"with probability {chance(self.delta)}"
        where = "" if tube is None else f" {self._where(tube)}"
        if self.holds and self.suboptimality is not None:
            return f"Certified {sure}:{where or ' at every state'} the expert's action is optimal {self.suboptimality}"
        digits = 4 if tube is None else 3
        least = f"at least {rounded_down(self.margin, digits):.{digits}g}"
        if self.holds and tube is None:
            return f"Certified {sure}: margin {least}"
        if self.holds:
            best = "the expert's action is strictly best"
            if tube is not None and tube.ties > 0:
                best = "every action that the expert takes is strictly better than all others"
            return f"Certified {sure}: {best}{where}"
        if self.margin == np.inf:
            return f"{self.word.capitalize()}: {self.missing}{where}"
        if not np.isfinite(self.margin):
            unbounded = "no bound" if self.excessive_tail else "too little data for any bound"
            return f"{self.word.capitalize()}: {unbounded}{where}"
        return f"{self.word.capitalize()}: {sure}{self.condition} the margin{where} is {least}"


def _exactly(tail: TailLike) -> str:
    """The change to noise that is known exactly; empty unless it is Gaussian, with affine drifts."""
    if not isinstance(tail, GaussianNoise) or tail.rate or tail.derivatives or tail.truncated:
        return ""
    known = {"tail": None, "columns": None, "dynamics": f"certirl.dynamics.AffineGaussian({tail.std:g})"}
    return change(f"if the standard deviation is exactly {tail.std:g}", **known)


class _Summary(NamedTuple):
    """What the readings of all components say together, in the user's unit."""

    derived: dict[str, Any]  # the fields of a certificate that follow from its sums
    decisive: list[Margin]  # the margin of each component against the alternative whose sum is least
    bounds: list[list[float]]  # margins of each component against every alternative


def _summary(
    grounds: Sequence[Ground],
    each_bands: Sequence[Bands],
    grid: ExpertGrid | None,
    allowed: float,
    required: float = 0.0,
) -> _Summary:
    """Minima over components add up, action by action; regret follows from the least sum: section 11."""
    asked: dict[str, Any] = {"allowed": allowed, "required": required / grounds[0].surrogate.unit}
    readings = [
        read(component_bands, grid, expert=s.used[0], widths=s.widths, discount=s.discount, **asked)
        for s, component_bands in zip((ground.surrogate for ground in grounds), each_bands, strict=True)
    ]
    units = [ground.surrogate.unit for ground in grounds]
    each = [[_times(margin, unit) for margin in reading.margins] for reading, unit in zip(readings, units, strict=True)]
    sums = np.sum([[margin.value for margin in margins] for margins in each], axis=0)
    worst = int(sums.argmin())
    decisive = [margins[worst] for margins in each]
    names = dict.fromkeys(name for margin in decisive for name in margin.losses)
    least, discount = float(sums[worst]), grounds[0].surrogate.discount
    regret = discount / (1 - discount) * max(0.0, -least)
    if readings[0].tube is not None:
        regret = units[0] * readings[0].regret
    derived = {
        "margin": least,
        "estimated": sum(margin.estimated for margin in decisive),
        "losses": {name: sum(margin.losses[name] for margin in decisive) for name in names},
        "regret": regret,
        "tube": None if readings[0].tube is None else readings[0].tube.times(units[0]),
    }
    return _Summary(derived, decisive, [[margin.value for margin in margins] for margins in each])


def _times(margin: Margin, unit: float) -> Margin:
    losses = {name: unit * loss for name, loss in margin.losses.items()}
    return margin._replace(value=unit * margin.value, estimated=unit * margin.estimated, losses=losses)


def _whole_state(case: Case, states: Sequence[Array], components: Sequence[int]) -> Array:
    """The states of components as one, with the lower ends of the coordinates of all others ``[d]``."""
    if case.parts[0].coordinates is None:
        return states[0]
    whole = np.zeros(sum(part.columns.dimension for part in case.parts))
    for part in case.parts:
        whole[list(part.coordinates or ())] = [low for low, _ in part.columns.domain]
    for component, state in zip(components, states, strict=True):
        whole[list(case.parts[component].coordinates or ())] = state
    return whole


def _declared(case: Case, surrogates: Sequence[Surrogate]) -> Suboptimality | None:
    components = [surrogate.component for surrogate in surrogates]
    return declared(case.suboptimality, surrogates, lambda states: _whole_state(case, states, components))


class Forecast(NamedTuple):
    """What fresh data should prove, if they say nothing new."""

    margin: float  # the bound, less what is required of it; −∞ where there would be none
    estimated: float  # the estimate that it is a share of, in the same way
    regret: float  # the bound on the regret
    value_span: float  # the bound on the span of the value
    tail: float  # what is subtracted for the tail

    @property
    def share(self) -> float:
        """The margin as a share of the estimate; −∞ without a bound or a positive estimate."""
        return self.margin / self.estimated if self.estimated > 0 else -np.inf


def forecast(
    case: Case,
    surrogates: Sequence[Surrogate],
    evidence: Sequence[Evidence],
    *,
    samples: int,
    delta: float,
    tails: float = 1.0,
) -> Forecast:
    """Forecast a certificate for a number of fresh transitions per action from training data.

    Surrogates and evidence are those of the components with a reward; ``tails`` is a multiple of the tails declared.
    """
    grounds = _grounds(case, surrogates, evidence, delta)
    expected = [ground.forecast(samples, ground.delta, tails) for ground in grounds]
    least = required(_declared(case, surrogates), case.discount)
    derived = _summary(grounds, expected, case.grid, case.allowed, least).derived
    span = grounds[0].surrogate.unit * expected[0].span
    lost = derived["losses"]["truncation tail"]
    return Forecast(derived["margin"] - least, derived["estimated"] - least, derived["regret"], span, lost)


def _grounds(
    case: Case, surrogates: Sequence[Surrogate], evidence: Sequence[Evidence], delta: float
) -> tuple[Ground, ...]:
    parts = [case.parts[surrogate.component] for surrogate in surrogates]
    each = zip(parts, surrogates, evidence, strict=True)
    return tuple(Ground(part.name, delta / len(parts), part.tail, surrogate, sums) for part, surrogate, sums in each)


def conclude(
    case: Case,
    surrogates: Sequence[Surrogate],
    evidence: Sequence[Evidence],
    *,
    delta: float,
    notes: tuple[str, ...] = (),
    others: dict[str, float] | None = None,
    goal: float | None = None,
) -> Certificate:
    """The certificate that follows from evidence of the components with a reward, with δ for it alone.

    ``notes`` are further assumptions, ``others`` parts of δ that belong to other attempts, by name; ``goal`` is the
    regret that was asked for, as a share of the value's span.
    """
    for surrogate, sums in zip(surrogates, evidence, strict=True):
        sums.check_determine(surrogate.columns, case.parts[surrogate.component].name)
    grounds = _grounds(case, surrogates, evidence, delta)
    suboptimality = _declared(case, surrogates)
    asked = case.grid, case.allowed, required(suboptimality, case.discount)
    derived, decisive, margins = _summary(grounds, [ground.bands for ground in grounds], *asked)
    components = [surrogate.component for surrogate in surrogates]
    bounds = np.zeros((len(case.parts) if case.grid is None else 0, case.policy.n_actions - 1))
    if case.grid is None:
        bounds[components] = margins
    ranges = [note for surrogate in surrogates for note in surrogate.reward.assumptions]
    spending = {name: share * delta for name, share in shares_of(surrogates[0]).items()} | (others or {})
    return Certificate(
        **derived,
        state=_whole_state(case, [margin.state for margin in decisive], components),
        action=decisive[0].pair[1],
        delta=sum(spending.values()),
        spending=spending,
        assumptions=(*case.assumptions(components, paired=evidence[0].paired), *notes, *ranges, *case.notes),
        tail=largest_tail(ground.tail for ground in grounds),
        samples=int(evidence[0].counts.min()),
        value_span=None if case.grid is None else surrogates[0].unit * grounds[0].bands.span,
        bounds=bounds,
        grounds=grounds,
        goal=goal,
        action_names=case.action_names,
        log_notes=case.log_notes,
        suboptimality=suboptimality,
    )


def least_enough(enough: Callable[[int], bool], low: int, high: int) -> int | None:
    """The least n between low and high, to a tenth, that is enough; None if not even high is."""
    if not enough(high):
        return None
    while high > 1.1 * low + 1:
        middle = int((low * high) ** 0.5)
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
