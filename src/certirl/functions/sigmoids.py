"""Random sigmoids: functions of many coordinates whose number does not depend on the number of coordinates.

Products of polynomials grow as a power of the number of coordinates. A sigmoid along a random direction ω is
``tanh(ω·u + b)``, where u are the coordinates in units of the data: a few hundred of them describe values of policies
in five to ten coordinates. They are not orthonormal, so they describe values and rewards, never operators.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from certirl.functions.bases import Basis, Family
from certirl.functions.formulas import FOURIER, REACH, SATURATION, Axis, Expansion, Ridges, Term
from certirl.ground import archive
from certirl.ground.domain import Array, Box, as_rows
from certirl.ground.doors import as_number

WIDTH = 4.0  # of a sigmoid, in units of the data
_SEED = 20_201  # of directions and offsets: a file keeps none of them
_BLOCK = 4096  # states at once


@archive.record
@dataclass(frozen=True, eq=False)
class Sigmoids(Basis):
    """The functions 1, u and ``tanh(ω·u + b)`` with ω normal and b uniform, both over the width; the first ``size``.

    ``u = 3 tanh((s − centre)/(3 scale))`` for each coordinate, its sine and cosine for a periodic one. Directions and
    offsets are the same in every run, and the first functions are those of a smaller set.

    Attributes:
        size: the number of functions, k.
        interval: the domain, one (low, high) for each coordinate.
        centre: of the data, along each coordinate.
        scale: the unit of each coordinate.
        width: over which a sigmoid rises, in these units.
        periodic: coordinates that are periodic.
    """

    centre: tuple[float, ...] = ()
    scale: tuple[float, ...] = ()
    width: float = WIDTH
    periodic: tuple[int, ...] = ()

    kind: ClassVar[str] = "random sigmoids"

    @classmethod
    def of_data(cls, size: int, states: Array, domain: Box, periodic: Sequence[int] = ()) -> Sigmoids:
        """Sigmoids in units of states ``[n, d]``: of each coordinate half the range of the inner four fifths.

        A coordinate with few values, such as a contact that is 0 or 1, has the units of the box.
        """
        low, high = domain.ends
        least, most = np.quantile(states, [0.1, 0.9], axis=0)
        narrow = most - least < 1e-3 * (high - low)
        least, most = np.where(narrow, low, least), np.where(narrow, high, most)
        centre, scale = tuple(((least + most) / 2).tolist()), tuple(((most - least) / 2).tolist())
        return cls(size, domain, centre, scale, WIDTH, tuple(periodic))

    def __str__(self) -> str:
        return f"{self.size} random sigmoids of width {self.width:g}"

    def _identity(self) -> tuple[object, ...]:
        return self.size, self.interval, self.centre, self.scale, self.width, self.periodic

    def as_read(self, file: str) -> Sigmoids:
        """Refuse centres, units and widths that are none."""
        if not len(self.centre) == len(self.scale) == len(self.domain):
            raise ValueError(f"random sigmoids need a centre and a unit for each coordinate, got {len(self.centre)}")
        for number in (self.width, *self.scale):
            as_number(number, "the width and the units of random sigmoids", least=0, strict=True)
        return self

    @property
    def factors(self) -> tuple[Family, ...]:
        """None: the functions are no products."""
        raise TypeError(f"{self} describe values and rewards: use a basis such as product(Legendre(3), …) here")

    @property
    def dimension(self) -> int:
        """The number of coordinates of a state, d."""
        return len(self.centre)

    @property
    def periodic_axes(self) -> tuple[int, ...]:
        """The coordinates in which the functions are periodic."""
        return self.periodic

    @cached_property
    def _directions(self) -> tuple[Array, Array]:
        """ω ``[p, m]`` and b ``[m]`` of the sigmoids, by the generator whose numbers NumPy promises not to change."""
        p = self.dimension + len(self.periodic)
        count = max(self.size - 1 - p, 0)
        directions, offsets = np.random.RandomState(_SEED), np.random.RandomState(_SEED + 1)
        return directions.standard_normal((count, p)).T / self.width, offsets.uniform(-1.0, 1.0, count)

    def _coordinates(self, rows: Array) -> Array:
        """u ``[n, p]``."""
        (low, high), columns = np.array(self.domain).T, []
        units = REACH * np.tanh((rows - self.centre) / (REACH * np.array(self.scale)))
        for axis in range(self.dimension):
            if axis in self.periodic:
                turn = 2 * np.pi * (rows[:, axis] - low[axis]) / (high[axis] - low[axis])
                columns += [np.sin(turn), np.cos(turn)]
            else:
                columns.append(units[:, axis])
        return np.stack(columns, axis=1)

    def values(self, states: ArrayLike) -> Array:
        """φ_i(s) for each state: ``[n, k]``."""
        u, (directions, offsets) = self._coordinates(as_rows(states, self.dimension)), self._directions
        values = np.empty((len(u), 1 + u.shape[1] + len(offsets)))
        values[:, 0], values[:, 1 : 1 + u.shape[1]] = 1.0, u
        sigmoids = values[:, 1 + u.shape[1] :]
        np.matmul(u, directions, out=sigmoids)
        sigmoids += offsets
        np.tanh(sigmoids, out=sigmoids)
        return values[:, : self.size]

    def combined(self, states: ArrayLike, coefficients: Array) -> Array:
        """Σ c_i φ_i(s) for each state: ``[n]``."""
        rows = as_rows(states, self.dimension)
        blocks = (rows[start : start + _BLOCK] for start in range(0, max(len(rows), 1), _BLOCK))
        return np.concatenate([self.values(block) @ coefficients for block in blocks])

    def _terms(self, coefficients: Array) -> tuple[Term, ...]:
        """Σ c_i φ_i for writers: a constant, multiples of u, and sigmoids."""
        axes, inputs = list[Axis](), list[tuple[int, int]]()
        for axis, (low, high) in enumerate(self.domain):
            if axis in self.periodic:
                axes.append(Axis(axis, FOURIER, low, (high - low) / 2, 3))
                inputs += [(axis, 1), (axis, 2)]
            else:
                axes.append(Axis(axis, SATURATION, self.centre[axis], REACH * self.scale[axis], 2))
                inputs.append((axis, 1))
        count = min(self.size, 1 + len(inputs))
        indices = np.zeros((count, len(axes)), dtype=np.intp)
        for row, (axis, number) in enumerate(inputs[: count - 1], start=1):
            indices[row, axis] = number
        linear = Expansion(tuple(axes), coefficients[:count], indices)
        sigmoids = Ridges(tuple(axes), tuple(inputs), *self._directions, coefficients[1 + len(inputs) :])
        return (linear, sigmoids) if len(sigmoids.weights) else (linear,)

    def derivative(self, states: ArrayLike, axis: int = 0) -> Array:
        """∂φ_i/∂s for each state, along one coordinate, by central differences: ``[n, k]``."""
        rows, step = as_rows(states, self.dimension), np.zeros(self.dimension)
        step[axis] = 1e-5 * self.scale[axis]
        return np.asarray((self.values(rows + step) - self.values(rows - step)) / (2 * step[axis]))

    def sup(self) -> Array:
        """Bounds of |φ_i|: 1, 3 for a coordinate ``[k]``."""
        bounds = np.ones(self.size)
        bounds[1 : 1 + self.dimension + len(self.periodic)] = REACH
        return bounds

    def value_range(self, coefficients: Array) -> tuple[float, float]:
        """Bounds of all values of Σ c_i φ_i: far apart where large terms cancel."""
        most = float(np.abs(coefficients[1:]) @ self.sup()[1:])
        return float(coefficients[0]) - most, float(coefficients[0]) + most

    def design(self, n: int, rng: np.random.Generator) -> Array:
        """Draw n states uniformly from the box ``[n, d]``."""
        return self.domain.uniform(n, rng)

    def of_width(self, width: float) -> Self:
        """Sigmoids of the same units and another width."""
        return replace(self, width=width)
