"""τ from the density of the next state: computed, with a bound on the error of the computation."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np

from certirl.functions.bases import Basis, gauss_legendre
from certirl.functions.spread import inflation, spread_points
from certirl.ground.domain import Array, Box, as_domain, as_n_actions, mesh
from certirl.ground.doors import as_count, as_number, as_reals, call, shown, takes
from certirl.ground.records import internal
from certirl.proof.contradictions import of_density, refuse
from certirl.proof.tails import Smooth, Tail

# By the number of coordinates, along each of them. Without declared bounds: Gauss points of the next state, states
# where the error is evaluated, points of the projection behind it. With them: next states and states.
_GAUSS, _STATES, _PROJECTION = {1: 400, 2: 32, 3: 12}, {1: 801, 2: 41, 3: 13}, {2: 28, 3: 14}
_EVEN, _SPREAD = {1: (3_000, 6_000), 2: (60, 160), 3: (16, 32)}, {1: 800, 2: 32, 3: 16}
_ACCURATE = {1: 1e-6, 2: 1e-3, 3: 1e-2}  # the error of an integral that points are chosen for, if none are asked for
_MOST_POINTS = 1 << 19  # next states that a message asks for
_BLOCK = 1 << 21  # numbers of a density at once
_SHARES = (1 / 12, 1 / 8, 1 / 6, 1 / 4, 1 / 3, 1 / 2)  # of the states: the degrees that their maximum speaks for
_LINES = 5  # states at which the two ends of a circle are compared
_ROUNDING = 1e-11
_MOST_OUTSIDE = 0.01  # of the mass, outside a box that is declared for next states before they are placed

# p_a(s'|s) for every pair of n states and m next states ``[n, m]``, of ``(next_states [m, d], states [n, d], action)``.
Density = Callable[[Array, Array, int], Array]


@dataclass(frozen=True, eq=False)
class DensityTail(Tail):
    """The distance from a density to the columns: ``max_s ∫|p_a(s'|s) − Σ_jc_j(s)p_a(s'|s_j)|ds'``, c_j of the columns.

    Attributes:
        density: p_a(s'|s), see `tail_from_density`.
        domain: the box of states.
        n_actions: A.
        next_domain: the box of next states before they are placed.
        smooth: bounds on the derivatives in each coordinate of the state; none if they are not declared.
        curvature: bounds on ∫|∂²p_a/∂s'_i²|ds' for each coordinate of the next state; none if they are not declared.
        points: next states along each coordinate.
        components: the same for groups of coordinates that move independently; none if they are not known.

    Example:
        >>> tail = certirl.problems.thermostat(noise=3.0).tail
        >>> tail(certirl.Legendre(7)) == tail.number(certirl.Legendre(7)) < 0.001
        True
    """

    density: Density
    domain: Box
    n_actions: int
    next_domain: Box
    smooth: tuple[Smooth, ...] = ()
    curvature: tuple[float, ...] = ()
    points: int | None = None
    components: tuple[DensityTail, ...] = ()

    def __call__(self, columns: Basis) -> float:
        """`number`, as of any function of the columns."""
        return self.number(columns)

    def number(self, columns: Basis, coordinates: Sequence[int] | None = None) -> float:
        """τ: a bound with declared derivatives; without them the largest value on a mesh, a hundredth added; at most 1.

        Example:
            >>> tail.number(certirl.Legendre(9)) < tail.number(certirl.Legendre(7))
            True
        """
        d = len(self.domain)
        if columns.dimension != d:
            fitting = [part for part in self.components if len(part.domain) == columns.dimension]
            if not fitting:
                raise ValueError(
                    f"the density is one of {d} coordinates, and the columns have {columns.dimension}: pass a function "
                    "of the columns that chooses the tail of a component"
                )
            return max(part.number(columns) for part in fitting)
        return _computed(self, columns.on(self.domain)).number

    @internal
    def remedy(self, columns: Basis, limit: float) -> str:
        """More next states, or a wider box of them, where these make τ too large."""
        if columns.dimension != len(self.domain):
            return super().remedy(columns, limit)
        found = _computed(self, columns.on(self.domain))
        if max(found.integrals, found.outside) < limit / 2:
            return super().remedy(columns, limit)
        if found.outside > found.integrals:
            return (
                f"the part of the density outside next_domain {self.next_domain.words} makes τ larger by "
                f"{found.outside:.2g}: pass a wider next_domain to tail_from_density"
            )
        count = math.ceil(self._count * math.sqrt(2 * found.integrals / limit))
        said = f"the error of integrals over {self._count:,} next states along each coordinate makes τ larger by "
        said += f"{found.integrals:.2g}: "
        if count ** len(self.domain) <= _MOST_POINTS:
            return f"{said}pass points={count} to tail_from_density"
        return f"{said}make next_domain or curvature smaller, or leave smooth and curvature out"

    def _compute(self, columns: Basis) -> _Computed:
        d = len(self.domain)
        along = columns.size if d == 1 else self._along(_PROJECTION)
        nodes = spread_points(columns, *[along] * d)
        if self.smooth:
            return self._bound(columns, nodes)
        states = mesh([np.linspace(low, high, self._along(_STATES)) for low, high in self.domain])
        y, weights = self._gauss()
        largest, _, _ = self._largest(columns, nodes, states, y, weights, 1e-7)
        return _Computed(0.0 if largest < 1e-10 else min(1.01 * largest, 1.0))

    def change(self, differences: Array) -> float:
        """2, which says nothing: what the density says is not compared with data.

        Example:
            >>> tail.change([1.0])
            2.0
        """
        return 2.0

    def __str__(self) -> str:
        if not self.smooth:
            return "this was computed from a declared density, without a bound on the error of the computation"
        said = " and ".join(dict.fromkeys(map(str, self.smooth)))
        curved = ", ".join(f"{bound:g}" for bound in self.curvature)
        mixed = ", mixed derivatives at most the products" * (len(self.domain) > 1)
        return f"this was computed from a declared density, where {said}, and ∫|∂²p_a(s'|s)/∂s'²| ds' ≤ {curved}{mixed}"

    @property
    def _count(self) -> int:
        """Next states along each coordinate."""
        if self.points is not None or not self.smooth:
            return self.points or self._along(_GAUSS)
        d, (least, most) = len(self.domain), _EVEN[self._along({1: 1, 2: 2, 3: 3})]
        sides = np.array([high - low for low, high in self.next_domain])
        needed = float((sides * np.sqrt(np.array(self.curvature) * d / (8 * _ACCURATE[d]))).max())
        return int(np.clip(needed + 2, least, most))

    def _bound(self, columns: Basis, nodes: Array) -> _Computed:
        """The error at spread states, inflated, and the distance of P_a f from polynomials of high degree."""
        d, along, count = len(self.domain), self._along(_SPREAD), self._count
        sides = np.array([high - low for low, high in self.next_domain])
        steps = sides / (count - 1)
        y = mesh([np.linspace(low, high, count) for low, high in self.next_domain])
        ends = np.r_[0.5, np.ones(count - 2), 0.5]
        weights = np.ones(1)
        for step in steps:
            weights = np.multiply.outer(weights, step * ends).ravel()
        linear = float(np.expm1(np.log1p(steps**2 * np.array(self.curvature) / 8).sum()))
        _check_declared(self)
        if 2 * linear >= 1:  # which is counted twice at least
            return _Computed(1.0, 2 * linear)
        if not all(self._is_closed(axis, y, weights, linear) for axis in columns.periodic_axes):
            return _Computed(math.inf)
        states = spread_points(columns, *[along] * d)
        largest, size, lost = self._largest(columns, nodes, states, y, weights, linear + 1e-6)
        outside = 0.0 if self.next_domain == self.domain else max(lost + linear, 0.0)
        largest += (linear + outside + _ROUNDING) * size
        highest, best = columns.degrees.max(axis=0), _Computed(1.0)
        for share in _SHARES:
            total, factor = 0.0, 1.0
            for part, smooth, least in zip(columns.parts, self.smooth, highest, strict=True):
                degree = max(int(share * along / (2 if part.periodic else 1)), int(least))
                wave = part.resized(part._size_of_degree(degree))
                distance, rise = smooth.number(wave), inflation(wave, along)
                total += factor * (1 + rise) * distance
                factor *= rise
            missing = factor * max(lost, 0.0) * size * (outside > 0)
            integrals = factor * (linear + outside) * size - missing
            found = _Computed(factor * largest + total, integrals, missing)
            best = min(best, found, key=lambda each: each.number)
        return best

    def _is_closed(self, axis: int, y: Array, weights: Array, linear: float) -> bool:
        """Whether the density is the same at both ends of a coordinate, as periodic columns assume; at a few states."""
        low, high = self.domain.ends
        ends = np.tile(low + (high - low) * (np.arange(_LINES)[:, None] + 0.5) / _LINES, (2, 1, 1))
        ends[0, :, axis], ends[1, :, axis] = low[axis], high[axis]
        tables = (
            np.diff([self._values(y, end, action) for end in ends], axis=0)[0] for action in range(self.n_actions)
        )
        return all(float((np.abs(table) @ weights).max()) <= 2 * linear + 1e-6 for table in tables)

    def _largest(
        self, columns: Basis, nodes: Array, states: Array, y: Array, weights: Array, slack: float
    ) -> tuple[float, float, float]:
        """The largest error over states and actions by a sum over next states, 1 + Σ_j|c_j(s)| and mass not found."""
        at_states, projection = columns.values(states), np.linalg.pinv(columns.values(nodes))
        largest, lost = 0.0, -math.inf
        for action in range(self.n_actions):
            at_nodes, start = np.concatenate(list(self._kernels(nodes, action, y, weights, slack))), 0
            lost = max(lost, 1 - float(at_nodes.sum(axis=1).min()))
            coefficients = projection @ at_nodes
            for kernel in self._kernels(states, action, y, weights, slack):
                missed = kernel - at_states[start : start + len(kernel)] @ coefficients
                largest, start = max(largest, float(np.abs(missed).sum(axis=1).max())), start + len(kernel)
                lost = max(lost, 1 - float(kernel.sum(axis=1).min()))
        return largest, 1 + float(np.abs(at_states @ projection).sum(axis=1).max()), lost

    def _kernels(self, states: Array, action: int, y: Array, weights: Array, slack: float) -> Iterator[Array]:
        """p_a(y_q | s) w_q ``[n, q]`` for blocks of states."""
        length = max(_BLOCK // len(y), 1)
        for start in range(0, len(states), length):
            kernel = self._values(y, states[start : start + length], action) * weights
            off = np.abs(kernel.sum(axis=1) - 1)
            if not off.max() < slack + (self.next_domain != self.domain) * _MOST_OUTSIDE:
                at = int(np.nanargmax(off))
                place = np.array2string(states[start + at], precision=4)
                raise ValueError(
                    f"the density of action {action} from s = {place} sums up to {kernel[at].sum():.4g} over "
                    f"{len(y):,} next states in {self.next_domain.words}, not to 1: it must be a density, and next "
                    "states lie there; where they are clipped, or placed otherwise, pass next_domain=(low, high) that "
                    "holds nearly all of them before that, and for a narrow density more points"
                )
            yield kernel

    def _values(self, y: Array, states: Array, action: int) -> Array:
        values = call(self.density, y, states, action, what="the density", read=partial(as_reals, what="the density"))
        if values.shape != (len(states), len(y)):
            raise ValueError(
                f"the density must return an array [states, next states], here {(len(states), len(y))}, got the shape "
                f"{values.shape}"
            )
        wrong = ~(np.isfinite(values) & (values >= -_ROUNDING))
        if wrong.any():
            row, column = np.argwhere(wrong)[0]
            raise ValueError(
                f"the density of action {action} must be a number not below 0 (not its logarithm), got "
                f"{values[row, column]:g} for s' = {np.array2string(y[column], precision=4)} from s = "
                f"{np.array2string(states[row], precision=4)}"
            )
        return values

    def _gauss(self) -> tuple[Array, Array]:
        t, w = gauss_legendre(self._along(_GAUSS))
        weights = np.ones(1)
        for low, high in self.next_domain:
            weights = np.multiply.outer(weights, (high - low) / 2 * w).ravel()
        return mesh([(low + high) / 2 + (high - low) / 2 * t for low, high in self.next_domain]), weights

    def _along(self, counts: dict[int, int]) -> int:
        if len(self.domain) not in counts:
            raise ValueError(
                f"a density gives a tail in one to three coordinates at once, not {len(self.domain)}; for independent "
                "components pass a function of the columns"
            )
        return counts[len(self.domain)]


class _Computed(NamedTuple):
    """τ, and what of it comes from the error of the integrals and from next states outside their box."""

    number: float
    integrals: float = 0.0
    outside: float = 0.0


@lru_cache(maxsize=256)
def _computed(tail: DensityTail, columns: Basis) -> _Computed:
    return tail._compute(columns)


@lru_cache(maxsize=64)
def _check_declared(tail: DensityTail) -> None:
    refuse(of_density(tail))


def tail_from_density(
    density: Density,
    domain: Any,
    *,
    n_actions: int,
    next_domain: Any = None,
    smooth: Smooth | Sequence[Smooth] | None = None,
    curvature: float | Sequence[float] | None = None,
    points: int | None = None,
) -> DensityTail:
    """The tail of dynamics whose density is known: ``tail=tail_from_density(p, domain, n_actions=2, …)``.

    With ``smooth`` and ``curvature`` τ is a bound, and an assumption of the certificate is that density and bounds are
    true. Without them τ is an estimate, the largest value on a mesh and a hundredth more; that it is large enough is
    then an assumption of the certificate, which it prints.

    Args:
        density: p_a(s'|s), a function of next states ``[m, d]``, states ``[n, d]`` and an action that returns
            ``[n, m]``.
        domain: the box of states.
        n_actions: A.
        next_domain: if next states are clipped, or placed into the box by any other map that does not depend on the
            state: a box that holds nearly all of them before that, as the density says. The box if left out.
        smooth: bounds ∫|∂^p p_a(s'|s)/∂s_i^p| ds' ≤ b for every action, state and coordinate of the state, one for all
            coordinates or one for each; orders of 4 and more are best.
        curvature: bounds C_i ≥ ∫|∂²p_a(s'|s)/∂s'_i²| ds' for every action and state, one for all coordinates of the
            next state or one for each; a kink counts with its change of slope. For independent noise in each coordinate
            this is 4 times the largest slope of the density of the noise, if that has one peak and two points of
            inflection. On a box the mixed derivatives, of second order in each coordinate of a set, must have integrals
            of at most the product of the C_i, as they do for independent noise.
        points: next states along each coordinate for the integrals; the error falls with their square, and time grows
            with their number. By default what the bounds ask for, up to 6,000 on an interval, 160 and 32 in two and
            three coordinates.

    Example:
        >>> def density(next_states, states, action):  # 0.5·sin s ± 0.2 + noise, on a circle
        ...     mean = 0.5 * np.sin(states[:, :1]) + (0.2, -0.2)[action]
        ...     turns = 2 * np.pi * np.arange(-3, 4)[:, None, None]
        ...     return np.exp(-((next_states[:, 0] - mean + turns) ** 2) / 2).sum(axis=0) / np.sqrt(2 * np.pi)
        >>> bounds = {"smooth": certirl.dynamics.Smooth(order=2, bound=0.7), "curvature": 1.0}
        >>> tail = certirl.dynamics.tail_from_density(density, (-np.pi, np.pi), n_actions=2, **bounds)
        >>> columns = certirl.Fourier(7, (-np.pi, np.pi))
        >>> print(f"{tail.number(columns):.3f}, {bounds['smooth'].number(columns):.3f}")
        0.002, 0.069
    """
    box = as_domain(domain)
    reach = box if next_domain is None else as_domain(next_domain)
    if len(reach) != len(box):
        raise ValueError(f"next_domain must have {len(box)} coordinates, as the domain has, got {reach.words}")
    if not callable(density) or not takes(density, None, None, 0):
        raise TypeError(f"density must be a function (next_states, states, action), got {shown(density)}")
    if (smooth is None) != (curvature is None):
        raise ValueError("smooth and curvature make τ a bound together: pass both, or leave both out")
    orders: tuple[Smooth, ...] = ()
    bounds: tuple[float, ...] = ()
    if smooth is not None and curvature is not None:
        each: Sequence[Any] = smooth if isinstance(smooth, list | tuple) else [smooth] * len(box)
        if len(each) != len(box) or not all(isinstance(order, Smooth) for order in each):
            raise ValueError(
                f"smooth must be certirl.dynamics.Smooth(order, bound), or one for each coordinate, got {smooth!r}"
            )
        numbers = as_reals(curvature, "curvature")
        if numbers.shape not in ((), (len(box),)):
            raise ValueError(
                f"curvature must be a number, or one for each of {len(box)} coordinates, got {curvature!r}"
            )
        orders = tuple(each)
        bounds = tuple(as_number(bound, "curvature", least=0) for bound in np.broadcast_to(numbers, (len(box),)))
    if points is not None:
        points = as_count(points, "points", least=10)
    return DensityTail(density, box, as_n_actions(n_actions), reach, orders, bounds, points)
