"""Orthonormal bases on an interval: Fourier, Legendre, Chebyshev.

A basis function is ``φ_i(s) = ψ_i(t)`` with ``t ∈ [-1, 1]`` the affine image of the state and ``ψ_i`` orthonormal for
the family's weight on [-1, 1]. The weight is carried along with the map, so that Ẑ, ‖α‖₁ and β do not depend on the
units in which the state is measured. The first function is constant in every family: deflation (see `estimate`) rests
on that.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, Self

import numpy as np
from numpy.polynomial import chebyshev
from numpy.typing import ArrayLike

from certirl.ground.domain import Array, Domain, as_domain, as_rows, describe
from certirl.ground.doors import as_count, by_door, setting, shown

REFERENCE: Domain = ((-1.0, 1.0),)
MOST_FUNCTIONS = 500  # in a program: the time to solve it grows with their third power, seconds at this size


@dataclass(frozen=True)
class Basis:
    """The first ``size`` functions of a family, orthonormal for its weight on an interval.

    Attributes:
        size: the number of functions, k.
        interval: where the basis lives, ``(low, high)``; left out, it is placed on the problem's domain when solving
            and lives on [-1, 1] until then.
    """

    size: int
    interval: Any = None

    kind: ClassVar[str]

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", as_count(self.size, f"{self.kind}(size): size"))
        if self.interval is not None:
            domain = as_domain(self.interval)
            if len(domain) != self.dimension:
                wanted = "one interval" if self.dimension == 1 else f"{self.dimension} intervals"
                raise ValueError(f"{self.kind} lives on {wanted}, got the domain {describe(domain)}")
            object.__setattr__(self, "interval", self._as_interval(domain))

    def __str__(self) -> str:
        return f"{self.kind}({self.size})"

    @property
    def mass(self) -> float:
        """∫μ, the same on every interval."""
        raise NotImplementedError

    @property
    def dimension(self) -> int:
        """The number of coordinates of a state, d."""
        return 1

    @property
    def domain(self) -> Domain:
        """The box it lives on: one interval."""
        return REFERENCE if self.interval is None else (self.interval,)

    def _as_interval(self, domain: Domain) -> Any:
        return domain[0]

    def on(self, domain: Domain) -> Self:
        """Place a basis without an interval on this domain; a basis that has one must already agree."""
        if len(domain) != self.dimension:
            own = "one coordinate" if self.dimension == 1 else f"{self.dimension} coordinates"
            raise ValueError(
                f"{self} is for {own}, but the domain {describe(domain)} has {len(domain)}; "
                f"{by_door('certirl.product(…) takes one family for each coordinate', 'name --domain for each')}"
            )
        if self.interval is not None and not np.allclose(self.domain, domain, rtol=1e-12, atol=0):
            raise ValueError(
                f"the basis lives on {describe(self.domain)} but the problem on {describe(domain)}; "
                f"write {self} without an interval and it is placed on the problem's domain"
            )
        return self if self.interval is not None else replace(self, interval=self._as_interval(domain))

    def resized(self, size: int) -> Self:
        """The same family on the same interval with another number of functions."""
        return replace(self, size=size)

    def values(self, states: ArrayLike) -> Array:
        """φ_i(s) for each state: ``[n, k]``."""
        return self._reference_values(self._to_reference(states)).T

    def derivative(self, states: ArrayLike, axis: int = 0) -> Array:
        """∂φ_i/∂s for each state, along one coordinate: ``[n, k]``."""
        self._check_axis(axis)
        return self._reference_derivative(self._to_reference(states)).T / self._half_width

    def weight(self, states: ArrayLike) -> Array:
        """μ(s), the density for which the basis is orthonormal: ``[n]``."""
        return self._reference_weight(self._to_reference(states)) / self._half_width

    def sample(self, n: int, rng: np.random.Generator) -> Array:
        """Draw n states from μ/∫μ: ``[n, 1]``."""
        return self._from_reference(self._reference_sample(n, rng))[:, None]

    def design(self, n: int, rng: np.random.Generator) -> Array:
        """Draw n states where least squares wants them: ``[n, 1]``.

        Fitting k polynomials to uniform states leaves an error at the ends k times that of the average; the arcsine law
        evens it out, at every k. On a circle uniform states are best already.
        """
        return self._from_reference(self._reference_design(n, rng))[:, None]

    def quadrature(self, n: int) -> tuple[Array, Array]:
        """Nodes ``[n, 1]`` and weights ``[n]`` of a Gauss rule for ∫ f(s) μ(s) ds."""
        t, w = self._reference_quadrature(n)
        return self._from_reference(t)[:, None], w

    def grid(self, count: int) -> Array:
        """``count`` states ``[count, 1]``, the ends included, dense where expansions can swing fast."""
        return self._from_reference(self._reference_grid(count))[:, None]

    def sup(self) -> Array:
        """sup_s |φ_i(s)| for each function: ``[k]``."""
        raise NotImplementedError

    def lipschitz(self, axis: int = 0) -> Array:
        """sup_s |∂φ_i/∂s| for each function, along one coordinate: ``[k]``."""
        self._check_axis(axis)
        return self._reference_lipschitz() / self._half_width

    def stationary_points(self, coefficients: ArrayLike) -> Array:
        """The states, in order, where the expansion Σ c_i φ_i has slope zero (and perhaps a few where it has not)."""
        t = self._reference_stationary_points(np.asarray(coefficients, dtype=np.float64))
        return self._from_reference(np.sort(np.clip(t, -1.0, 1.0)))

    def _check_axis(self, axis: int) -> None:
        if axis not in range(self.dimension):
            known = "one coordinate, axis 0" if self.dimension == 1 else f"the axes 0 … {self.dimension - 1}"
            raise ValueError(f"{self} has {known}; got axis {axis}")

    def spec(self) -> dict[str, Any]:
        """What `from_spec` needs to build it again; goes into saved files."""
        return {"kind": self.kind, "size": self.size, "domain": [list(pair) for pair in self.domain]}

    @property
    def _half_width(self) -> float:
        ((low, high),) = self.domain
        return (high - low) / 2

    def to_reference(self, states: ArrayLike) -> Array:
        """The coordinates t ∈ [-1, 1] of states of the domain: ``[n]``."""
        return np.clip(self._to_reference(states), -1.0, 1.0)  # rounding may place an end a hair outside

    def _to_reference(self, states: ArrayLike) -> Array:
        ((low, high),) = self.domain
        return (as_rows(states, 1)[:, 0] - (low + high) / 2) / ((high - low) / 2)

    def _from_reference(self, t: Array) -> Array:
        ((low, high),) = self.domain
        return np.clip((low + high) / 2 + (high - low) / 2 * t, low, high)

    # What a family must say about itself on [-1, 1]; values and derivatives come as [k, n], ready for BLAS.

    def _reference_values(self, t: Array) -> Array:
        raise NotImplementedError

    def _reference_derivative(self, t: Array) -> Array:
        raise NotImplementedError

    def _reference_weight(self, t: Array) -> Array:
        return np.ones_like(t)

    def _reference_sample(self, n: int, rng: np.random.Generator) -> Array:
        return rng.uniform(-1.0, 1.0, n)

    def _reference_design(self, n: int, rng: np.random.Generator) -> Array:
        return np.cos(np.pi * rng.random(n))

    def _reference_quadrature(self, n: int) -> tuple[Array, Array]:
        return gauss_legendre(n)

    def _reference_grid(self, count: int) -> Array:
        return -np.cos(np.pi * np.arange(count) / (count - 1))  # polynomials swing fastest at the ends

    def _reference_lipschitz(self) -> Array:
        raise NotImplementedError

    def _reference_stationary_points(self, coefficients: Array) -> Array:
        # A polynomial: interpolate it in Chebyshev form, whose derivative has well-conditioned roots.
        degree = len(coefficients) - 1
        if degree < 2:
            return np.empty(0)
        nodes = chebyshev.chebpts1(degree + 1)
        values = coefficients @ self.resized(degree + 1)._reference_values(nodes)
        series = chebyshev.chebinterpolate(lambda _: values, degree)  # type: ignore[type-var]
        return _real_roots(chebyshev.chebder(series))


class Legendre(Basis):
    """Legendre polynomials, orthonormal for the uniform weight: ``φ_i = √(i − ½) P_{i−1}(t)``.

    The natural choice for smooth dynamics on an interval; exact for polynomial transition densities.
    """

    kind = "Legendre"
    mass = 2.0

    def _reference_values(self, t: Array) -> Array:
        rows = np.empty((self.size, t.size))
        rows[0] = 1.0
        if self.size > 1:
            rows[1] = t
        for n in range(2, self.size):
            np.multiply(t, rows[n - 1], out=rows[n])
            rows[n] *= (2 * n - 1) / n
            rows[n] -= rows[n - 2] * ((n - 1) / n)
        rows *= self.sup()[:, None]
        return rows

    def _reference_derivative(self, t: Array) -> Array:
        # P'_n = P'_{n−2} + (2n − 1) P_{n−1} holds up to the ends of the interval, where dividing by 1 − t² does not.
        values = self._reference_values(t) / self.sup()[:, None]
        rows = np.zeros_like(values)
        for n in range(1, self.size):
            rows[n] = (2 * n - 1) * values[n - 1] + (rows[n - 2] if n > 1 else 0.0)
        return rows * self.sup()[:, None]

    def sup(self) -> Array:
        """√(i − ½), reached at the ends."""
        return np.sqrt(np.arange(self.size) + 0.5)

    def _reference_lipschitz(self) -> Array:
        n = np.arange(self.size)
        return self.sup() * n * (n + 1) / 2


class Chebyshev(Basis):
    """Chebyshev polynomials, orthonormal for the weight ``(1 − t²)^(−½)``: states are drawn from the arcsine law.

    Spans the same polynomials as Legendre and looks harder at the ends of the interval.
    """

    kind = "Chebyshev"
    mass = float(np.pi)

    def _reference_values(self, t: Array) -> Array:
        rows = np.empty((self.size, t.size))
        rows[0] = 1.0
        if self.size > 1:
            rows[1] = t
        for n in range(2, self.size):
            rows[n] = 2 * t * rows[n - 1] - rows[n - 2]
        return rows * self.sup()[:, None]

    def _reference_derivative(self, t: Array) -> Array:
        # T'_n = n U_{n−1}, with U the polynomials of the second kind.
        second = np.zeros((self.size, t.size))
        for n in range(1, self.size):
            second[n] = 1.0 if n == 1 else 2 * t * second[n - 1] - second[n - 2]
        return second * (np.arange(self.size) * self.sup())[:, None]

    def _reference_weight(self, t: Array) -> Array:
        with np.errstate(divide="ignore"):
            return 1.0 / np.sqrt(np.maximum(1.0 - t * t, 0.0))

    def _reference_sample(self, n: int, rng: np.random.Generator) -> Array:
        return self._reference_design(n, rng)

    def _reference_quadrature(self, n: int) -> tuple[Array, Array]:
        return chebyshev.chebgauss(n)

    def sup(self) -> Array:
        """√(2/π), and √(1/π) for the constant."""
        return np.sqrt(np.where(np.arange(self.size) == 0, 1.0, 2.0) / np.pi)

    def _reference_lipschitz(self) -> Array:
        return self.sup() * np.arange(self.size) ** 2


class Fourier(Basis):
    """The trigonometric basis ``1/√2, sin πt, cos πt, sin 2πt, cos 2πt, …``, orthonormal for the uniform weight.

    The choice for periodic states (angles). The paper's basis, its first function corrected (docs/notes/errata.md).
    """

    kind = "Fourier"
    mass = 2.0

    def _frequencies(self) -> Array:
        return (np.arange(self.size) + 1) // 2

    def _reference_values(self, t: Array) -> Array:
        rows = np.empty((self.size, t.size))
        rows[0] = np.sqrt(0.5)
        if self.size > 1:
            sin, cos = np.sin(np.pi * t), np.cos(np.pi * t)
            s, c = sin, cos
            for row in range(1, self.size, 2):
                rows[row] = s
                if row + 1 < self.size:
                    rows[row + 1] = c
                s, c = s * cos + c * sin, c * cos - s * sin  # the next frequency by angle addition
        return rows

    def _reference_derivative(self, t: Array) -> Array:
        whole = self.resized(self.size | 1)._reference_values(t)
        rows = np.zeros((self.size, t.size))
        rows[1::2] = whole[2::2][: len(rows[1::2])]
        rows[2::2] = -whole[1::2][: len(rows[2::2])]
        return rows * (np.pi * self._frequencies())[:, None]

    def sup(self) -> Array:
        """1, and √½ for the constant."""
        return np.where(np.arange(self.size) == 0, np.sqrt(0.5), 1.0)

    def _reference_design(self, n: int, rng: np.random.Generator) -> Array:
        return self._reference_sample(n, rng)

    def _reference_grid(self, count: int) -> Array:
        return np.linspace(-1.0, 1.0, count)

    def _reference_lipschitz(self) -> Array:
        return np.pi * self._frequencies()

    def _reference_stationary_points(self, coefficients: Array) -> Array:
        # With z = exp(iπt) the slope times z^M is an ordinary polynomial of degree 2M; its roots on the circle count.
        top = len(coefficients) // 2
        if top == 0:
            return np.empty(0)
        sines, cosines = np.zeros(top), np.zeros(top)
        sines[:] = coefficients[1::2]
        cosines[: len(coefficients[2::2])] = coefficients[2::2]
        half = np.arange(1, top + 1) * (sines + 1j * cosines)
        keep = np.flatnonzero(np.abs(half) > 1e-15 * np.abs(half).max(initial=0.0))
        if keep.size == 0:
            return np.empty(0)
        half = half[: keep[-1] + 1]
        z = np.roots(np.concatenate([half[::-1], [0.0], half.conj()]))
        return np.angle(z[np.abs(np.log(np.abs(z) + 1e-300)) < 1e-2]) / np.pi


@lru_cache
def gauss_legendre(n: int) -> tuple[Array, Array]:
    """Nodes and weights ``[n]`` of the Gauss rule on [-1, 1]; SciPy's keep their digits for large n."""
    from scipy.special import roots_legendre

    t, w = roots_legendre(n)
    return t, w


def _real_roots(series: Array) -> Array:
    """Roots of a Chebyshev series that are real, or nearly so, and in or next to [-1, 1]."""
    keep = np.flatnonzero(np.abs(series) > 1e-15 * np.abs(series).max(initial=0.0))
    if keep.size == 0:
        return np.empty(0)
    roots = chebyshev.chebroots(series[: keep[-1] + 1])
    near = (np.abs(roots.imag) < 1e-2) & (np.abs(roots.real) <= 1.0 + 1e-2)
    return np.asarray(roots.real[near], dtype=np.float64)


def as_basis(
    basis: Any,
    domain: Domain | None = None,
    *,
    name: str = "basis",
    like: str = "certirl.Legendre(11)",
    most: float = MOST_FUNCTIONS,
) -> Basis:
    """A basis, placed on the domain if one is given; what is none, or too large, is refused with a sentence."""
    if not isinstance(basis, Basis):
        raise TypeError(f"{setting(name)} must be a basis such as {like}, got {shown(basis)}")
    if basis.size > most:
        raise ValueError(f"{setting(name)} must have at most {most} functions, got {basis} with {basis.size:,}")
    return basis if domain is None else basis.on(domain)


FAMILIES: dict[str, type[Basis]] = {family.kind: family for family in (Fourier, Legendre, Chebyshev)}


def from_spec(spec: dict[str, Any]) -> Basis:
    """Build the basis that `Basis.spec` described."""
    try:
        family, size, domain = FAMILIES[spec["kind"]], spec["size"], as_domain(spec["domain"])
    except (KeyError, TypeError):
        raise ValueError(f"unknown basis {spec!r}; known families are {', '.join(FAMILIES)}") from None
    return family(size, domain[0])
