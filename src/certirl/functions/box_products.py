"""Level functions of a box and sums of their products: the coordinates in which certificates on boxes are computed.

The *level functions* p span the same space as the columns and are orthonormal for the law of `Basis.design`: products
of ``1, √2 cos kθ`` with t = cos θ (of ``1, √2 sin kπt, √2 cos kπt`` on a circle). Products of two of them lie in the
product of the one-coordinate families of twice the degree, so that Σ p pᵀ f over data is a fixed image of a small
tensor Σ χ f, which a matrix product of tables sums up.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod

import numpy as np
from numpy.typing import NDArray

from certirl.functions.bases import FAMILIES
from certirl.functions.boxes import ProductBasis
from certirl.functions.inequalities import spread_points
from certirl.functions.products import linearisation
from certirl.ground.domain import Array, Domain, mesh


class Level:
    """The level functions p of columns, p_1 = 1.

    Attributes:
        columns: φ.
        basis: the same indices in Chebyshev and Fourier functions: p but for a factor.
        doubled: the sizes of the families of twice the degree, M_1, …, M_d.
        change: B with φ = B p ``[k, k]``.
    """

    def __init__(self, columns: ProductBasis) -> None:
        check_closed(columns)
        factors = [FAMILIES["Fourier" if f.kind == "Fourier" else "Chebyshev"](f.size) for f in columns.factors]
        self.columns = columns
        self.basis = ProductBasis(columns.size, columns.interval, tuple(factors), columns.index)
        self._parts = self.basis.parts
        self._wide = tuple(part.doubled() for part in self._parts)
        self.doubled = tuple(part.size for part in self._wide)
        self.change = self._change()

    def tables(self, states: Array) -> list[Array]:
        """χ of each coordinate ``[M_j, n]``; the first of them are p of each coordinate."""
        return [
            part.mass**0.5 * part._reference_values(part.to_reference(s))
            for part, s in zip(self._wide, states.T, strict=True)
        ]

    def of_tables(self, tables: list[Array]) -> Array:
        """p ``[k, n]`` from the tables."""
        return self.basis._products(tables)

    def values(self, states: Array) -> Array:
        """p(s) for each state ``[n, k]``."""
        return self.basis.mass**0.5 * self.basis.values(states)

    def coefficients(self, expansion: Array) -> Array:
        """The coefficients in p ``[…, k]`` of Σ c_i φ_i ``[…, k]``."""
        return expansion @ self.change

    def matrix(self, Z: Array) -> Array:
        """The matrix in p of an operator with P φ = Z φ ``[…, k, k]``."""
        return np.linalg.solve(self.change, Z @ self.change)

    def lifted(self, sums: Array) -> Array:
        """Σ p pᵀ f ``[k, k]`` from Σ χ f ``[M_1, …, M_d]``."""
        total = sums
        for part in self._parts:  # each turn sums over the first coordinate and puts its pairs of functions last
            pairs = part.mass**0.5 * linearisation(part).reshape(-1, part.size**2)
            total = np.tensordot(total, pairs, axes=(0, 0))
        places = [
            np.add.outer(part.size * own, own) for part, own in zip(self._parts, self.basis.indices.T, strict=True)
        ]
        image = total[tuple(places)]
        return np.asarray((image + image.T) / 2)  # symmetric to the last bit

    def _change(self) -> Array:
        matrix = np.ones((self.columns.size, self.columns.size))
        families = zip(self.columns.parts, self._parts, self.columns.indices.T, self.basis.indices.T, strict=True)
        for family, part, rows, columns in families:
            own = np.eye(part.size)
            if family.kind != part.kind:  # Gauss's rule is exact for polynomials
                nodes, weights = part.quadrature(part.size)
                own = family.values(nodes).T @ (weights[:, None] * part.values(nodes))
            matrix *= own[np.ix_(rows, columns)] / part.mass**0.5
        return matrix


@lru_cache(maxsize=16)
def level(columns: ProductBasis) -> Level:
    """The level functions of columns; made once."""
    return Level(columns)


def tensor_sums(tables: list[Array], weights: Array) -> Array:
    """Σ_r χ_{m_1}(s_1)⋯χ_{m_d}(s_d) w_r for several weights ``[G, n]``: ``[G, M_1, …, M_d]``."""
    *others, last = tables
    left = others[0]
    for table in others[1:]:
        left = (left[:, None] * table[None]).reshape(-1, table.shape[1])
    right = (weights[:, None] * last[None]).reshape(-1, last.shape[1])  # [G·M_d, n]
    sizes = [len(table) for table in others]
    sums = (right @ left.T).reshape(len(weights), len(last), *sizes)
    return np.moveaxis(sums, 1, -1)


def is_closed(columns: ProductBasis) -> bool:
    """Whether it holds every simpler product of those it holds: then its span does not depend on the families."""
    held = set(map(tuple, columns.degrees.tolist()))
    simpler = ((*k[:j], k[j] - 1, *k[j + 1 :]) for k in held for j in range(len(k)) if k[j])
    return held.issuperset(simpler)


def check_closed(columns: ProductBasis) -> None:
    """Refuse columns whose span depends on the families."""
    if not is_closed(columns):
        raise ValueError(
            f"a certificate needs columns that hold every simpler product of those they hold, got the first "
            f"{columns.size} of {columns}; take one of {columns.complete_sizes()[:-1]}"
        )


def closed(basis: ProductBasis) -> ProductBasis:
    """The same with as few functions more as it takes to hold every simpler product."""
    while not is_closed(basis):
        basis = basis.resized(basis.size + 1)
    return basis


def inflation(degrees: NDArray[np.intp], half_steps: Array) -> float:
    """sup|f| ≤ this · max over a mesh, for expansions of these degrees ``[m, d]`` and half steps in angles ``[d]``.

    Some mesh point lies within half a step, in every angle, of a place where |f| is largest. Along the line between
    them f is of exponential type σ = max_k Σ k_j h_j and falls no faster than cos σ (Duffin and Schaeffer); or go
    coordinate by coordinate, which costs Π 1/cos(k_j h_j) (Ehlich and Zeller). The better of the two.
    """
    along = float((degrees @ half_steps).max())
    each = degrees.max(axis=0) * half_steps
    found = [1 / np.cos(along)] if along < np.pi / 2 else []
    found += [float(np.prod(1 / np.cos(each)))] if (each < np.pi / 2).all() else []
    return float(min(found, default=np.inf))


class Mesh:
    """Spread points along every coordinate, and what the states between them cost.

    Attributes:
        counts: points along each coordinate.
        states: ``[N, d]``, the last coordinate varying fastest.
        factor: `inflation` for expansions in the columns.
        double: for products of two of them.
    """

    def __init__(self, columns: ProductBasis, counts: tuple[int, ...]) -> None:
        parts, degrees = columns.parts, columns.degrees
        self.counts = counts
        self.states = mesh([spread_points(part, n)[:, 0] for part, n in zip(parts, counts, strict=True)])
        half = half_steps(columns, counts)
        self.factor, self.double = inflation(degrees, half), inflation(2 * degrees, half)


def half_steps(columns: ProductBasis, counts: tuple[int, ...]) -> Array:
    """Half the distance of neighbouring spread points, in angles ``[d]``."""
    around = np.array([part.kind == "Fourier" for part in columns.parts])
    return np.where(around, np.pi, np.pi / 2) / np.array(counts)


def counts_of(columns: ProductBasis, share: float) -> tuple[int, ...]:
    """So many times the degree along every coordinate (twice that around a circle), and at least one."""
    top = columns.degrees.max(axis=0)
    around = [part.kind == "Fourier" for part in columns.parts]
    return tuple(max(int(np.ceil(share * k * (1 + turn))), 1) for k, turn in zip(top, around, strict=True))


def dense_mesh(columns: ProductBasis, most: int) -> Mesh:
    """A mesh for products of two expansions, as fine as ``most`` points allow, and at least fine enough to bound."""
    share = 12.0
    while prod(counts_of(columns, share)) > most and share > 3.0:
        share -= 0.25
    return Mesh(columns, counts_of(columns, share))


def on_box(domain: Domain, counts: dict[int, int]) -> Array:
    """An even mesh over a box, the corners included ``[N, d]``."""
    along = counts[len(domain)]
    return mesh([np.linspace(low, high, along) for low, high in domain])
