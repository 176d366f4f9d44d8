"""Certificates for ``s' = clip(m_a(s) + ξ)`` with Gaussian noise of known standard deviation: only m_a is learned.

The drifts lie in a small set (`certirl.proof.drift`). The value of the expert is computed for its middle, with its
derivatives by the coefficients and a bound on all that is of second order. Functions are linear between nodes. The
proof is in docs/notes/known-noise.md; states are in units in which the interval is [−1, 1] except in what is printed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import permutations
from math import ceil, exp, inf, sqrt
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import lu_factor, lu_solve
from scipy.special import ndtr

from certirl.data.dependence import dependence, rows_in_words
from certirl.data.policy import ExpertGrid, Policy, as_policy, steady_support
from certirl.data.simulator import MOST_KEPT
from certirl.data.source import Logged, Pool, Source, as_source
from certirl.data.transitions import Transitions
from certirl.functions.bases import Legendre
from certirl.functions.cells import Cells
from certirl.functions.functions import of_actions
from certirl.functions.reward import NOT_SQUARED, Reward, check_known, known_expert, unpack, values_alone
from certirl.ground import archive
from certirl.ground.archive import Shape
from certirl.ground.domain import Array, Box, as_states
from certirl.ground.doors import as_count, as_delta, as_number, as_probability, by_door
from certirl.ground.records import Record, internal
from certirl.ground.status import Seen, change, rounded_down
from certirl.proof.case import AS_READ, CASES, Declaration, allowed_tube, check_domain, no_case, without_switches
from certirl.proof.certificate import Certificate, Forecast
from certirl.proof.contradictions import of_drift, refuse
from certirl.proof.drift import COEFFICIENTS, PEAK, Drift, DriftSums, fit_drift, rows_of, wall_of
from certirl.proof.reading import Margin, PairBounds, Reading, least_by_action, read_cells
from certirl.proof.suboptimality import Suboptimality, as_share, declared_at, required

SAMPLES = 10_000  # transitions per action that are drawn where no number is given
CELLS = 1000  # of the proof, about
_MOST_CELLS = 4000
_NARROWEST = 1e-4  # the noise, relative to half the interval
_WIDEST = 1e6  # standard deviation, in narrowest ones
_LARGEST = 1e100  # of rewards
_ROUNDING = 1e-12  # see the note, "Rounding"
_EVALUATION = 2.0**-50  # of a reward, relative to its largest value


class Loss(NamedTuple):
    """A lower bound on D_ba in each cell."""

    curve: Array  # the estimate at the end of the cell where it is less by its error ``[N]``
    estimation: Array  # its error of first order there ``[N]``
    second: Array  # what is of second order ``[N]``
    grid: float  # what functions that are linear between nodes miss
    rounding: float  # the allowance for it
    node: NDArray[np.intp]  # the end ``[N]``

    @property
    def lower(self) -> Array:
        """The bound on each cell."""
        return np.asarray(self.curve - self.estimation - self.second - self.grid - self.rounding)


class Bounds(NamedTuple):
    """What is proved of D_ba and V."""

    pairs: dict[tuple[int, int], Loss]  # of every pair (b, a), b used by the expert or not
    span: float  # V(s_1) − V(s_2) is at least this for two states


class _Kernel:
    """f ↦ E f(clip(y + ξ)) at points y, for f linear between nodes, and its derivatives by y."""

    def __init__(self, points: Array, nodes: Array, std: float) -> None:
        self.u, self.h, self.std = (points[:, None] - nodes) / std, float(nodes[1] - nodes[0]), std

    def mean(self) -> Array:
        """``[n, N]``, for differences of f between nodes; f(t_0) is to be added."""
        return self._differences(self.std * (self.u * ndtr(self.u) + _density(self.u)))

    def slope(self) -> Array:
        """The first derivative."""
        return self._differences(ndtr(self.u))

    def curvature(self) -> Array:
        """The second derivative."""
        return self._differences(_density(self.u) / self.std)

    def _differences(self, values: Array) -> Array:
        return (values[:, :-1] - values[:, 1:]) / self.h


def _density(u: Array) -> Array:
    return PEAK * np.exp(-(u**2) / 2)


def _span(values: Array) -> float:
    return float(np.ptp(values))


def prove(drift: Drift, gamma: float, reward: Array, chosen: NDArray[np.intp]) -> Bounds | None:
    """The theorem of the note; None where the drifts are too uncertain for any bound.

    ``reward`` is R at the nodes ``[N + 1]``, of every action ``[A, N + 1]``; ``chosen`` are the expert's actions there.
    """
    largest = float(np.abs(reward).max())
    reward = reward - (reward.max() + reward.min()) / 2  # constants do not matter
    n_actions, size = len(drift.coefficients), reward.shape[-1]
    reward = np.broadcast_to(reward, (n_actions, size))  # of every action
    nodes = np.linspace(-1.0, 1.0, size)
    h, std, x = float(nodes[1] - nodes[0]), drift.std, np.stack([np.ones(size), nodes], axis=1)
    k1, k2, k3 = PEAK / std, 2 * PEAK * exp(-0.5) / std**2, PEAK * (1 + 4 * exp(-1.5)) / std**3
    lines = drift.coefficients @ x.T
    steep, spread = np.abs(drift.coefficients[:, 1]), drift.spread(nodes)
    widest, turning = float(spread.max()), float(np.sqrt(drift.shape[:, 1, 1].max()))
    kernels = [_Kernel(line, nodes, std) for line in lines]
    means = np.stack([kernel.mean() for kernel in kernels])

    def after(values: Array) -> Array:
        """T_cf at the nodes ``[A, N + 1, …]``."""
        return np.asarray(values[0] + np.tensordot(means, np.diff(values, axis=0), axes=(2, 0)))

    # V̂ and its derivatives U by the coefficients.
    each, table = np.arange(size), means[chosen, np.arange(size)]
    operator = np.eye(size)
    operator[:, 0] -= gamma
    operator[:, 1:] -= gamma * table
    operator[:, :-1] += gamma * table
    factors = lu_factor(operator)
    value = lu_solve(factors, reward[chosen, each])
    slopes = np.stack([kernel.slope() @ np.diff(value) for kernel in kernels])
    direct = np.zeros((n_actions, size, n_actions, COEFFICIENTS))  # H'(m̂_c)x in place c
    for action in range(n_actions):
        direct[action, :, action] = slopes[action][:, None] * x
    first = gamma * direct[chosen, each]
    effects = lu_solve(factors, first.reshape(size, -1)).reshape(first.shape)
    height, value_after, effects_after = _span(value), after(value), after(effects)
    wide = 2 * float(drift.size(effects - (effects.max(axis=0) + effects.min(axis=0)) / 2).max())

    # Bounds on derivatives over all y that a drift of the set can lead to.
    points = np.linspace((lines - spread).min(), (lines + spread).max(), 2 * size)
    between, kernel = float(points[1] - points[0]) / 2, _Kernel(points, nodes, std)
    h2 = float(np.abs(kernel.curvature() @ np.diff(value)).max()) + between * k3 * height
    moved = np.tensordot(kernel.slope(), np.diff(effects, axis=0), axes=(1, 0))
    lu = float(drift.size(moved).max()) + between * k2 * wide

    # The rest w of the error of the value.
    bent = (
        steep**2 * (h2 + k3 * height * widest + k2 * wide) + 2 * steep * h2 * turning
    )  # |second derivatives|, by action
    residual = np.abs(reward + gamma * value_after - value)
    residual += drift.size(gamma * direct + gamma * effects_after - effects)
    curved = gamma * h**2 / 8 * float(bent.max())
    f0 = float(residual[chosen, each].max()) + curved
    sources = gamma * np.stack([h2 * spread**2 / 2 + lu * spread, k1 * spread])
    bounds = lu_solve(factors, sources[:, chosen, each].T)  # ω_0, ω_1
    bounds_after = after(bounds)
    excess = np.moveaxis(gamma * bounds_after - bounds, -1, 0)
    missed = np.maximum((sources + excess)[:, chosen, each].max(axis=1), 0.0)
    spans = np.array([_span(bounds[:, 0]), _span(bounds[:, 1])])
    rare, over, visits = np.zeros(2), np.zeros(2), 0.0  # F, z and ν of cells in which the expert switches
    switching = np.flatnonzero(chosen[:-1] != chosen[1:])
    if len(switching):
        taken = np.stack([chosen[switching], chosen[switching + 1]])
        pick = (taken[:, None], np.stack([switching, switching + 1])[None])  # each action of B at each end
        at_end = switching[0] == 0 or switching[-1] == size - 2
        visits = 1.0 if at_end else min(1.0, k1 * h * len(switching))
        if not 2 * gamma * visits < 1:
            return None
        rare = np.array([(residual + sources[0])[pick].max() + curved, sources[1][pick].max()])
        rare /= 1 - 2 * gamma * visits
        over = np.array([np.maximum(excess[i][pick], 0.0).max() for i in range(2)])
    f2 = np.array([f0, 0.0]) + missed + gamma * h**2 / 8 * float((steep**2).max()) * k2 * spans
    f2 += 2 * gamma * visits * rare
    sup = bounds.max(axis=0) + (f2 + gamma * visits * (rare + over)) / (1 - gamma) + over
    if not 2 * sup[1] < 1:
        return None
    omega = float(2 * sup[0] / (1 - 2 * sup[1]))
    scale = np.array([1.0, omega])
    constant, jump = float((f2 + (rare + over) * visits) @ scale / (1 - gamma)), 2 * visits * float(rare @ scale)
    later = bounds_after @ scale
    tall = float(spans @ scale)

    rounding = _ROUNDING * (std / h + size) * (float(np.abs(value).max()) + height + wide) / (1 - gamma)
    rounding += 2 * _EVALUATION * largest / (1 - gamma)
    pairs = {}
    for b in range(n_actions):
        for a in range(n_actions):
            if a == b:
                continue
            paid = (reward[b] - reward[a]) / gamma
            curve = value_after[b] - value_after[a] + paid
            functional = direct[b] - direct[a] + effects_after[b] - effects_after[a]
            estimation = drift.size(functional)
            least = curve - estimation
            apart = 2 * ndtr(np.abs(lines[b] - lines[a]) / (2 * std)) - 1
            second = h2 * (spread[b] ** 2 + spread[a] ** 2) / 2 + (lu + k1 * omega) * (spread[b] + spread[a])
            shift = np.minimum(_largest(omega * apart) + jump, _largest(later[b] + later[a]) + 2 * constant)
            grid = h**2 / 8 * float((bent + steep**2 * k2 * tall)[[b, a]].sum())
            node = np.arange(size - 1) + (least[1:] < least[:-1])
            rest = _largest(second) + shift + 2 * jump
            rounded = rounding + _EVALUATION * largest / gamma * bool(paid.any())
            pairs[b, a] = Loss(curve[node], estimation[node], rest, grid, rounded, node)
    steady = np.ones(size, dtype=bool)
    steady[switching] = steady[switching + 1] = False
    top, bottom = int(np.where(steady, value, -inf).argmax()), int(np.where(steady, value, inf).argmin())
    span = float(value[top] - value[bottom]) - float(drift.size(effects[top] - effects[bottom])) - omega
    return Bounds(pairs, span - rounding)


def _largest(values: Array) -> Array:
    """The larger end of each cell."""
    return np.maximum(values[:-1], values[1:])


@dataclass(frozen=True, eq=False)
@internal
class Drifts(Record):
    """What transitions say where drifts are affine and the noise is known."""

    domain: Box  # the interval of states
    std: float  # σ, of the noise
    sums: DriftSums  # of the transitions

    @property
    def half(self) -> float:
        """Half the width of the interval."""
        return (self.domain[0][1] - self.domain[0][0]) / 2

    def drift(self, delta: float) -> Drift:
        """The drifts on [−1, 1], and a set that contains the true ones but for probability δ."""
        return fit_drift(self.sums, self.std / self.half, delta, wall_of(self.domain))

    def refuse_contradicted(self, log: Transitions, delta: float) -> None:
        """Refuse a declaration that the transitions, from which the sums are, contradict."""
        dependent = self.sums.rows == "dependent"
        refuse(of_drift(self.drift(delta), *rows_of(log), np.random.default_rng(0), dependent=dependent))

    @property
    def assumption(self) -> str:
        """What is declared, in words."""
        return (
            f"s' = clip(m_a(s) + ξ) into {self.domain.words}, m_a affine, ξ Gaussian with standard deviation "
            f"{self.std:g}, known exactly"
        )


@archive.record
@dataclass(frozen=True, eq=False)
@internal
class KnownNoise(Drifts):
    """What a certificate with known noise rests on."""

    discount: float  # γ
    reward: Annotated[Array, Shape("n")]  # R at the nodes, between which it is linear ``[n]``
    actions: Annotated[NDArray[np.intp], Shape("n")]  # of the expert at the nodes ``[n]``

    @property
    def grid(self) -> ExpertGrid:
        """The expert on the cells."""
        return ExpertGrid(self.domain, np.eye(self.sums.n_actions, dtype=bool)[self.actions])

    def bounds(self, delta: float) -> Bounds:
        """What is proved of D_ba with a part of δ."""
        return self.bounds_for(self.drift(delta))

    def bounds_for(self, drift: Drift) -> Bounds:
        """What holds for all drifts of a set; bounds of −∞ where they are too uncertain for any."""
        found = prove(drift, self.discount, self.reward, self.actions)
        cells, pairs = np.zeros(len(self.actions) - 1), permutations(range(self.sums.n_actions), 2)
        nothing = Loss(cells - inf, cells, cells, 0.0, 0.0, cells.astype(int))
        return found or Bounds(dict.fromkeys(pairs, nothing), 0.0)

    def read(self, found: Bounds, allowed: float, least: float = 0.0) -> tuple[Margin, Reading, float]:
        """The least margin, what the bounds say of the expert, and the span of the value."""
        grid, ends = self.grid, self.domain[0]
        bounds = [PairBounds(pair, loss.lower, partial(_worst, pair, loss, ends)) for pair, loss in found.pairs.items()]
        visits = PEAK * self.half / self.std * 2 / len(grid.steady)  # of any cell that is not at an end
        later = partial(_met_later, visits)
        reading = read_cells(bounds, grid, allowed=allowed, discount=self.discount, later=later, required=least)
        return min(reading.margins, key=lambda margin: margin.value), reading, found.span


@archive.record
@dataclass(frozen=True, eq=False, kw_only=True)
class GaussianCertificate(Certificate):
    """A certificate for ``s' = clip(m_a(s) + ξ)``, m_a affine and ξ Gaussian with a known standard deviation.

    It says what every `Certificate` says. There are no columns and no tail, and nothing has to be fresh: the
    transitions bound the drifts, and everything else follows from the drifts.

    Attributes:
        noise: the numbers that the bounds rest on.

    Example:
        >>> class Walk:
        ...     n_actions, domain = 2, ((0.0, 10.0),)
        ...     def sample(self, states, action, rng):
        ...         step = (0.5, -0.5)[action] + rng.normal(size=states.shape)
        ...         return np.clip(states + step, 0.0, 10.0)
        >>> asked = {"discount": 0.7, "expert": 0, "samples": 2000, "rng": 0}
        >>> declared = certirl.dynamics.AffineGaussian(std=1.0)
        >>> certificate = certirl.certify(lambda states: states[:, 0], Walk(), dynamics=declared, **asked)
        >>> certificate.holds, certificate.margin > 0, certificate.samples
        (True, True, 2000)
    """

    noise: KnownNoise

    rows_in_words: ClassVar[str] = "transitions per action"
    replaces_reward: ClassVar[bool] = True

    @cached_property
    def _bounds(self) -> Bounds:
        return self.noise.bounds(self.spending["drift"])

    def drifts(self, states: ArrayLike) -> tuple[Array, Array]:
        """m_a(s) of every action as estimated, and bounds on the errors at all states at once, ``[A, n]`` each.

        Args:
            states: ``[n, 1]`` or ``[n]``.

        Example:
            >>> estimated, error = certificate.drifts([2.0, 8.0])
            >>> estimated.shape, bool((abs(estimated[0] - [2.5, 8.5]) < error[0]).all())
            ((2, 2), True)
        """
        drift, (low, high) = self.noise.drift(self.spending["drift"]), self.domain[0]
        places = (as_states(states, self.domain)[:, 0] - low) / self.noise.half - 1
        estimated = drift.coefficients @ np.stack([np.ones_like(places), places])
        return (low + high) / 2 + self.noise.half * estimated, self.noise.half * drift.spread(places)

    @property
    def reward(self) -> Reward:
        """The reward that the proof is about: piecewise linear, as it replaced the one that was passed.

        Example:
            >>> certificate.reward(4.0) == 4.0, certificate.reward.export("reward.py").name
            (True, 'reward.py')
        """
        return Reward(Cells((self.noise.reward.shape[-1],), box=self.domain), self.noise.reward)

    @property
    @internal
    def declared(self) -> dict[str, str]:
        """As of a `Certificate`."""
        return {"standard deviation of the noise": f"{self.noise.std:g}"}

    @internal
    def as_reward(self) -> Reward:
        """R as the reward of an answer."""
        return self.reward

    @property
    def discount(self) -> float:
        """γ."""
        return self.noise.discount

    @property
    def domain(self) -> Box:
        """The interval of states."""
        return self.noise.domain

    @property
    def _counts(self) -> NDArray[Any]:
        return self.noise.sums.counts

    def advantage(self, states: ArrayLike) -> tuple[Array, Array]:
        """As of a `Certificate`; constant in each cell of the proof."""
        grid, rows = self.noise.grid, as_states(states, self.domain)
        cell, taken = grid.cells.cell(rows), grid.taken_at(rows)
        each = ((pair, (loss.curve[cell], loss.lower[cell])) for pair, loss in self._bounds.pairs.items())
        estimated, proved = least_by_action(taken, each)
        return estimated, proved

    def proves(self, states: ArrayLike) -> NDArray[np.bool_]:
        """As of a `Certificate`."""
        if self.tube is None:
            return np.full(len(as_states(states, self.domain)), self.spare > 0)
        return super().proves(states)

    @cached_property
    def samples_needed(self) -> int | None:  # type: ignore[override]
        """Transitions per action that should suffice: errors of first order fall like n^−½, of second like n⁻¹."""
        if not self.estimated - self.required > self.losses.get("grid", inf):
            return None
        first, second = self.losses["estimation"], self.losses["second order"]
        rest = self.estimated - self.required - self.losses["grid"] - self.losses["floating point"]
        root = (first + sqrt(first**2 + 4 * rest * second)) / (2 * rest)  # rest = first/root + second/root²
        return ceil(self.samples * root**2)

    def _read_with(self, allowed: float) -> GaussianCertificate:
        kept = ("assumptions", "about", "action_names", "log_notes", "goal", "suboptimality")
        return _concluded(self.noise, self.spending, allowed, **{name: getattr(self, name) for name in kept})

    excessive_tail: ClassVar[str] = ""  # type: ignore[misc]  # there is no tail
    in_noise: ClassVar[str] = ""  # type: ignore[misc]  # bounds are exact, and estimates are their middles

    @property
    @internal
    def missing(self) -> str:
        """As of a `Certificate`."""
        if self._needs_cells:
            return "no number of samples suffices with these cells: use more of them"
        return super().missing

    @property
    def _needs_cells(self) -> bool:
        return self.samples_needed is None and self.required < self.estimated < inf and not self.holds

    @internal
    def change(self, tail: Any = None, seen: Seen | None = None) -> str:
        """As of a `Certificate`."""
        if self.wider_tube is None and self._needs_cells:
            cells = min(2 * (len(self.noise.actions) - 1), _MOST_CELLS)
            return change(dynamics=f"certirl.dynamics.AffineGaussian({self.noise.std:g}, cells={cells})")
        return super().change(tail, seen)

    def _enough(self) -> float:  # all transitions count
        return 0.0 if self.samples_needed is None else 1.2 * self.samples_needed

    def _allowing(self) -> str:
        reward, expert = self.noise.reward, self.estimated - self.required
        least = float(np.ptp(reward))
        share = 1.1 * self.discount * -self.margin / least if least > 0 and expert <= 0 else inf
        return change(suboptimality=f"{-rounded_down(-share, 2):g}") if share < 1 else ""


@dataclass(frozen=True)
class AffineGaussian(Declaration):
    """Declares ``s' = clip(m_a(s) + ξ)`` on an interval, m_a affine and ξ ~ N(0, std²), for `certify`.

    Only the drifts m_a are learned, so that far fewer transitions are needed than with ``tail=GaussianNoise(std,
    slope)``. The transitions may have been used to find the reward, and data that contradict the noise or the drift are
    refused. A reward that is not piecewise linear on an even grid is replaced by the one through its values at the
    nodes of the cells.

    Attributes:
        std: the standard deviation of the noise, exactly.
        cells: of the proof, about; more of them make the tube finer.

    Example:
        >>> class Room:
        ...     n_actions, domain = 2, ((15.0, 25.0),)
        ...     def sample(self, states, action, rng):
        ...         drift = states + 0.1 * (18.0 - states) + (1.5, -1.5)[action]
        ...         return np.clip(drift + rng.normal(scale=1.5, size=states.shape), 15.0, 25.0)
        >>> asked = {"discount": 0.7, "expert": lambda states: states[:, 0] > 20, "rng": 0}
        >>> found = certirl.solve(Room(), **asked)
        >>> certirl.certify(found, Room(), dynamics=certirl.dynamics.AffineGaussian(std=1.5), **asked).holds
        True
    """

    std: float
    cells: int = CELLS
    uses: ClassVar[tuple[str, ...]] = ("delta", "samples", "rng", "tube", "regret", "suboptimality")
    is_random: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Refuse numbers that no noise has."""
        object.__setattr__(self, "std", as_number(self.std, "std", least=0, strict=True))
        object.__setattr__(self, "cells", as_count(self.cells, "cells", least=2, most=_MOST_CELLS))

    @internal
    def check(self, source: Source) -> None:
        """Refuse states and data that no such proof exists for, and noise that is too narrow or too wide for them."""
        domain = source.domain
        check_domain("AffineGaussian", domain, source.periodic)
        narrowest = _NARROWEST * (domain[0][1] - domain[0][0]) / 2
        if self.std < narrowest:
            raise ValueError(
                f"noise of standard deviation {self.std:g} is too narrow for {domain.words}: it must be at least "
                f"{narrowest:.2g}; without noise "
                + by_door("declare dynamics=certirl.dynamics.Deterministic(…)", "use certirl cells")
            )
        if self.std > _WIDEST * narrowest:
            raise ValueError(
                f"noise of standard deviation {self.std:g} is too wide for {domain.words}: nearly every next state "
                f"would be at an end; it must be at most {_WIDEST * narrowest:.2g}"
            )
        source.check_noise()
        source.check_without_terminal()

    @internal
    def certify(  # type: ignore[override]
        self,
        reward: Any,
        source: Any,
        *,
        discount: float | None,
        expert: Any,
        delta: float | None,
        samples: int | None,
        rng: Any,
        tube: float | None,
        suboptimality: float | None = None,
        **_: Any,  # settings of searches
    ) -> GaussianCertificate:
        """What is proved of a reward; settings are as in `certify`."""
        delta = as_delta(0.05 if delta is None else delta)
        origin = as_source(source)
        log = self.transitions(origin, samples, rng)
        expert = known_expert(reward, expert)
        function, discount = unpack(reward, discount)
        check_known(discount=discount, expert=expert)
        policy = as_policy(expert, origin.n_actions, origin.action_names)
        asked: dict[str, Any] = {"tube": tube, "suboptimality": suboptimality}
        theorem = self.theorem(origin, policy, discount=as_probability(discount, "discount"), **asked)
        return theorem.case(function).conclude(log(), delta=delta)

    @internal
    def transitions(self, source: Source, samples: int | None, rng: Any) -> Callable[[], Transitions]:
        """What gives the rows that a proof rests on: a log, or as many draws of every action as are asked for."""
        self.check(source)
        count = source.number_to_draw(samples, usual=SAMPLES, most=MOST_KEPT // source.n_actions // 100)

        def drawn() -> Transitions:
            generator = source.generator(rng, "certify_gaussian")
            return source.stream(count, Legendre(COEFFICIENTS), generator, design=False, paired=False).record()

        return drawn

    @internal
    def theorem(self, source: Source, policy: Policy, **asked: Any) -> ByKnownNoise:
        """As of a `Declaration`."""
        return ByKnownNoise(source, self, policy, **asked)


class NoiseCase(NamedTuple):
    """What is to be proved of a reward, whatever the transitions say."""

    source: Source  # of the transitions
    discount: float  # γ
    std: float  # σ, of the noise
    reward: Array  # R at the nodes ``[n]``
    actions: NDArray[np.intp]  # of the expert at the nodes ``[n]``
    allowed: float  # the half-width of the tube that was asked for; 0 for an expert of one action
    rows: tuple[str, str]  # how transitions depend on each other, and what is assumed of that
    notes: tuple[str, ...]  # what is assumed of the reward and of the expert, in words
    suboptimality: Suboptimality | None  # of an inexact expert

    def sums(self, log: Transitions) -> KnownNoise:
        """The numbers that a proof from these transitions rests on."""
        sums = DriftSums.of(*rows_of(log), self.source.n_actions, self.rows[0])
        return KnownNoise(self.source.domain, self.std, sums, self.discount, self.reward, self.actions)

    def conclude(
        self,
        log: Transitions,
        *,
        delta: float,
        others: dict[str, float] | None = None,
        goal: float | None = None,
    ) -> GaussianCertificate:
        """What the transitions prove; refused where they contradict the noise or the drift.

        ``others`` are parts of δ that belong to other attempts, by name; ``goal`` is the regret that was asked for, as
        a share of the value's span.
        """
        noise, (_, assumed) = self.sums(log), self.rows
        noise.refuse_contradicted(log, delta)
        as_read = (AS_READ + note for note in self.source.notes)
        return _concluded(
            noise,
            {"drift": delta} | (others or {}),
            self.allowed,
            assumptions=(noise.assumption, assumed, *as_read, *self.notes),
            action_names=self.source.action_names,
            log_notes=self.source.notes,
            goal=goal,
            suboptimality=self.suboptimality,
        )


class NoisePlan(NamedTuple):
    """How a search proves a reward: see `certirl.solver.search.Plan`."""

    case: NoiseCase  # what is to be proved
    training: KnownNoise  # the numbers of the training transitions

    def forecast(self, samples: int, delta: float) -> Forecast:
        """What as many transitions of each action should prove: errors of drifts fall like n^−½."""
        noise, drift = self.training, self.training.drift(delta)
        smaller = drift._replace(shape=drift.shape * (noise.sums.counts.min() / samples))
        least = required(self.case.suboptimality, self.case.discount)
        margin, reading, span = noise.read(noise.bounds_for(smaller), self.case.allowed, least)
        return Forecast(margin.value - least, margin.estimated - least, reading.regret, max(span, 0.0), 0.0)

    def conclude(
        self, fresh: Pool, *, delta: float, others: dict[str, float], goal: float | None
    ) -> GaussianCertificate:
        """What fresh transitions prove."""
        return self.case.conclude(fresh.log(fresh.size), delta=delta, others=others, goal=goal)

    def is_never_bounded(self, samples: int, delta: float) -> bool:
        """Whether no amount of data gives a bound: more of them always lead to smaller sets of drifts."""
        return False

    def note(self, samples: int, delta: float) -> str:
        """What the forecast says of a tail: there is none."""
        return ""


class ByKnownNoise(NamedTuple):
    """The theorem by which a search proves rewards: see `certirl.solver.search.Theorem`."""

    source: Source  # of the transitions
    declared: AffineGaussian  # of the dynamics
    policy: Policy  # the expert
    discount: float  # γ
    tube: float | None  # the half-width asked for, if any
    suboptimality: float | None = None  # of an inexact expert, as a share

    def case(self, reward: Any) -> NoiseCase:
        """What is to be proved of a reward: it and the expert are looked up at the nodes."""
        source, domain, share = self.source, self.source.domain, as_share(self.suboptimality)
        values, notes = _reward_at_nodes(reward, domain, self.declared.cells, source.n_actions)
        nodes = np.linspace(*domain[0], values.shape[-1])[:, None]
        support = steady_support(self.policy, nodes)
        if (support.sum(axis=1) > 1).any():
            raise ValueError(no_case("AffineGaussian", CASES[2]))
        actions = support.argmax(axis=1)
        used = np.unique(actions)
        if len(used) == 1 and self.tube is not None:
            raise ValueError(without_switches("tube"))
        if self.policy.constant is None:
            notes = (*notes, str(ExpertGrid(domain, support)))
        notes = (*notes, *([self.policy.assumption] if self.policy.assumption else []))
        is_everywhere = len(used) == 1 or (share is not None and self.tube is None)
        allowed = 0.0 if is_everywhere else allowed_tube(self.tube, domain)
        within = declared_at(share, nodes, values[used] if values.ndim == 2 else values[None], used.tolist())
        declared, rows = self.declared.std, rows_assumed(source)
        return NoiseCase(source, self.discount, declared, values, actions, allowed, rows, notes, within)

    def plan(self, reward: Any, training: Pool, **settings: Any) -> NoisePlan:
        """How a reward is proved, fixed by training transitions."""
        case = self.case(reward)
        return NoisePlan(case, case.sums(training.log(training.size)))

    def refuting(self, *arguments: Any, **settings: Any) -> None:
        """There is no proof that no reward exists."""

    def cost(self, *arguments: Any, **settings: Any) -> str:
        """What a proof costs, in words: next to nothing."""
        return ""


DEPENDENT = (
    "given everything before it, the noise of each row follows this law; whether a row is in the log was decided "
    "before its next state was: no row or episode is missing because of where it led"
)


def rows_assumed(source: Source) -> tuple[str, str]:
    """How transitions depend on each other, and what is assumed of that; refused where no proof can rest on them."""
    if not isinstance(source, Logged):
        return "independent", rows_in_words("independent", logged=False, paired=False)
    source.check_declared()
    log = source.data
    sentence = dependence(log, source.sampling)
    if sentence:
        raise ValueError(sentence)
    if source.sampling != "independent":
        return "dependent", DEPENDENT
    kind = "paired" if log.paired else "independent"
    return kind, rows_in_words("independent", logged=True, paired=log.paired)


def _reward_at_nodes(function: Any, domain: Box, cells: int, n_actions: int) -> tuple[Array, tuple[str, ...]]:
    """R at the nodes ``[n]``, of actions ``[A, n]``, and that it is taken as linear between them, where it is not."""
    basis = function.basis if isinstance(function, Reward) else None
    exact = isinstance(basis, Cells) and basis.domain == domain and not basis.periodic and not function.zero_at_terminal
    steps = basis.shape[0] if exact and isinstance(basis, Cells) else 1
    count = steps * ceil(cells / steps)
    if count > _MOST_CELLS:
        raise ValueError(f"the reward has {steps:,} cells, and at most {_MOST_CELLS:,} are possible")
    nodes = np.linspace(*domain[0], count + 1)[:, None]
    if of_actions(function):
        values = np.stack([values_alone(function, nodes, action) for action in range(n_actions)])
    else:
        values = values_alone(function, nodes)
    largest = float(np.abs(values).max())
    if not largest < _LARGEST:
        raise ValueError(f"the reward has values up to {largest:.3g}, {NOT_SQUARED}")
    note = f"the reward is linear between its values at {count + 1:,} evenly spaced states"
    return np.asarray(values, dtype=float), () if exact else (note,)


def _concluded(noise: KnownNoise, spending: dict[str, float], allowed: float, **words: Any) -> GaussianCertificate:
    """Read the bounds: margin, tube and regret."""
    least = required(words.get("suboptimality"), noise.discount)
    worst, (margins, regret, tube), span = noise.read(noise.bounds(spending["drift"]), allowed, least)
    each = [[margin.value for margin in margins]] if tube is None and worst.value > -inf else []
    return GaussianCertificate(
        margin=worst.value,
        estimated=worst.estimated,
        losses=worst.losses,
        state=worst.state,
        action=worst.pair[1],
        delta=sum(spending.values()),
        spending=spending,
        tail=0.0,
        samples=int(noise.sums.counts.min()),
        regret=regret,
        value_span=None if tube is None else max(span, 0.0),
        bounds=np.reshape(each, (-1, noise.sums.n_actions - 1)),
        tube=tube,
        grounds=(),
        noise=noise,
        **words,
    )


def _worst(pair: tuple[int, int], loss: Loss, ends: tuple[float, float], among: NDArray[np.bool_]) -> Margin:
    """The least bound in some cells."""
    lower, (low, high) = loss.lower, ends
    place = int(np.where(among, lower, inf).argmin())
    losses = {
        "estimation": float(loss.estimation[place]),
        "grid": loss.grid,
        "second order": float(loss.second[place]),
        "floating point": loss.rounding,
    }
    state = np.array([low + (high - low) * loss.node[place] / len(lower)])
    return Margin(pair, float(lower[place]), float(loss.curve[place]), losses, state)


def _met_later(visits: float, short: Array) -> float:
    """(8) of certificate.md: of a shortfall in a cell ``visits`` is met at most, but for cells at the ends."""
    return float(short.sum()) * visits + float(max(short[0], short[-1]))
