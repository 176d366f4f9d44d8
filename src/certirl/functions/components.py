"""Components: groups of coordinates with independent dynamics, and sums over them.

If the next coordinates of every component depend on its own coordinates and the action alone, then a sum of rewards,
one for each component, has a value that is such a sum, and so is the expert's advantage: D_a(s) = Σ_j D_ja(s_j). Noise
may be shared by the components.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from certirl.functions.bases import MOST_FUNCTIONS, Basis, Family, Legendre, as_basis, product
from certirl.functions.formulas import Term, shifted
from certirl.functions.functions import Functions
from certirl.ground import archive
from certirl.ground.domain import Array, Box, as_domain, as_rows
from certirl.ground.doors import as_count
from certirl.ground.records import Record, internal

# Degrees of the functions of a component if no basis is given, by its number of coordinates; 2 for more.
DEGREES = {1: 10, 2: 6, 3: 4}


@archive.record
@dataclass(frozen=True)
class Component(Record):
    """A group of coordinates and functions of them.

    Attributes:
        name: of the component.
        coordinates: its columns of the states ``[n, d]``.
        basis: the functions of rewards and values, on the component's box.

    Example:
        >>> warm = certirl.Reward(certirl.Legendre(2), np.array([0.0, 1.0]))
        >>> both = certirl.Reward.sum([warm, warm], coordinates=[[0], [1]], names=["kitchen", "hall"])
        >>> both.components[1].name, both.components[1].coordinates, both.components[1].basis.size
        ('hall', (1,), 2)
    """

    name: str
    coordinates: tuple[int, ...]
    basis: Basis

    def of(self, states: Array) -> Array:
        """The component's coordinates of states ``[…, d]``.

        Example:
            >>> both = certirl.Reward.sum([warm, warm], coordinates=[[1], [0]])
            >>> both.components[0].of(np.array([[0.5, -0.5]]))
            array([[-0.5]])
        """
        return states[..., list(self.coordinates)]

    def _terms(self, coefficients: Array) -> tuple[Term, ...]:
        """Σ c_i φ_i for writers, as functions of whole states."""
        return tuple(shifted(term, self.coordinates) for term in self.basis._terms(coefficients))

    def __str__(self) -> str:
        return f"{self.name}: {self.basis} on {self.basis.domain.words}"


@archive.record
@dataclass(frozen=True)
class SumBasis(Functions):
    """The functions of several components side by side: expansions are sums over components.

    Attributes:
        components: which together hold every coordinate once.

    Example:
        >>> warm = certirl.Reward(certirl.Legendre(2), np.array([0.0, 1.0]))
        >>> basis = certirl.Reward.sum([warm, warm], coordinates=[[0], [1]]).basis
        >>> basis.size, basis.dimension, basis.domain
        (4, 2, ((-1.0, 1.0), (-1.0, 1.0)))
    """

    components: tuple[Component, ...] = field()  # in place of the property of other functions
    has_derivatives: ClassVar[bool] = True

    @internal
    def as_read(self, file: str) -> SumBasis:
        """Refuse components that do not hold every coordinate once."""
        held = [c for component in self.components for c in component.coordinates]
        if not held or sorted(held) != list(range(len(held))):
            raise ValueError("the components must hold every coordinate once")
        if any(len(component.coordinates) != component.basis.dimension for component in self.components):
            raise ValueError("every component needs as many coordinates as its functions have")
        return self

    def __str__(self) -> str:
        bases = {str(component.basis) for component in self.components}
        return f"{bases.pop()} each" if len(bases) == 1 else "bases of their own"

    @property
    def size(self) -> int:
        """The number of functions of all components."""
        return sum(component.basis.size for component in self.components)

    @property
    def domain(self) -> Box:
        """The box of whole states."""
        return as_domain(tuple(side for _, side in sorted(self._by_coordinate("domain"))))

    @property
    def parts(self) -> tuple[Family, ...]:
        """The family of every coordinate, in the order of the coordinates."""
        return tuple(part for _, part in sorted(self._by_coordinate("parts")))

    def _by_coordinate(self, name: str) -> list[tuple[int, Any]]:
        values = [(component.coordinates, getattr(component.basis, name)) for component in self.components]
        return [pair for coordinates, value in values for pair in zip(coordinates, value, strict=True)]

    def _split(self, coefficients: Array) -> list[Array]:
        """The coefficients of every component ``[…, k_j]``."""
        return np.split(coefficients, np.cumsum([component.basis.size for component in self.components])[:-1], axis=-1)

    def combined(self, states: ArrayLike, coefficients: Array) -> Array:
        """Σ_j Σ_i c_ji φ_ji(s_j) for each state: ``[n]``.

        Example:
            >>> basis.combined([[0.5, 0.5]], np.array([0.0, 1.0, 0.0, 1.0])).round(3)
            array([1.225])
        """
        rows = as_rows(states, self.dimension)
        pairs = zip(self.components, self._split(coefficients), strict=True)
        return np.sum([component.basis.combined(component.of(rows), c) for component, c in pairs], axis=0)

    def _constant(self) -> Array:
        """That of the first component."""
        first = self.components[0].basis
        return np.append(first._constant(), np.zeros(self.size - first.size))

    def _summed(self, states: ArrayLike) -> Array:
        """Σ_n φ_ji(s_n) over states, for every function ``[k]``."""
        rows = as_rows(states, self.dimension)
        return np.concatenate([component.basis._summed(component.of(rows)) for component in self.components])

    def value_range(self, coefficients: Array) -> tuple[float, float]:
        """Bounds of all values of an expansion: the sums of those of the components.

        Example:
            >>> tuple(round(end, 3) for end in basis.value_range(np.array([0.0, 1.0, 0.0, 1.0])))
            (-2.449, 2.449)
        """
        pairs = zip(self.components, self._split(coefficients), strict=True)
        low, high = zip(*(component.basis.value_range(c) for component, c in pairs), strict=True)
        return sum(low), sum(high)

    def sample(self, n: int, rng: np.random.Generator) -> Array:
        """Draw n states from the product of the weights: ``[n, d]``.

        Example:
            >>> basis.sample(100, np.random.default_rng(0)).shape
            (100, 2)
        """
        return self._joined([component.basis.sample(n, rng) for component in self.components])

    def design(self, n: int, rng: np.random.Generator) -> Array:
        """Draw n states from the product of the components' designs: ``[n, d]``.

        Example:
            >>> basis.design(100, np.random.default_rng(0)).shape
            (100, 2)
        """
        return self._joined([component.basis.design(n, rng) for component in self.components])

    def _joined(self, columns: list[Array]) -> Array:
        order = np.concatenate([component.coordinates for component in self.components])
        return np.concatenate(columns, axis=1)[:, np.argsort(order)]


def as_groups(components: Any, dimension: int) -> dict[str, tuple[int, ...]]:
    """Names and coordinates of components that together hold each of d coordinates once.

    Components are ``[[0], [1, 2]]``, named by their coordinates, or ``{"speed": [0], "place": [1, 2]}``.
    """
    if isinstance(components, str) or not isinstance(components, Mapping | Sequence) or len(components) == 0:
        raise ValueError(f"components must be lists of coordinates such as [[0], [1]], got {components!r}")
    named = components.items() if isinstance(components, Mapping) else [(None, group) for group in components]
    groups: dict[str, tuple[int, ...]] = {}
    owner: dict[int, str] = {}
    for label, group in named:
        if isinstance(group, str) or not isinstance(group, Sequence) or len(group) == 0:
            raise ValueError(f"a component is a list of coordinates such as [0], got {group!r}")
        name = " ".join(f"s{c}" for c in group) if label is None else str(label)
        for c in group:
            if isinstance(c, bool) or not isinstance(c, int | np.integer) or not 0 <= c < dimension:
                raise ValueError(f"component {name} names coordinate {c!r}, but states have 0 … {dimension - 1}")
            if int(c) in owner:
                raise ValueError(f"coordinate {c} belongs to two components, {owner[int(c)]} and {name}")
            owner[int(c)] = name
        groups[name] = tuple(int(c) for c in group)
    missing = sorted(set(range(dimension)) - set(owner))
    if missing:
        raise ValueError(f"coordinate {missing[0]} belongs to no component; every coordinate needs one")
    return groups


def as_components(components: Any, bases: Basis | Sequence[Basis] | None, domain: Box) -> tuple[Component, ...]:
    """Place one basis for all, or one for each, on the boxes of the components.

    A family of one coordinate stands for its product with itself, by total degree, if a component has several. If
    omitted, it is Legendre's, of degree 10 in one coordinate, 6 in two, 4 in three.
    """
    groups = as_groups(components, len(domain))
    if bases is None:
        bases = [Legendre(DEGREES.get(len(group), 2) + 1) for group in groups.values()]
    each = list(bases) if isinstance(bases, Sequence) and not isinstance(bases, str) else [bases] * len(groups)
    if len(each) != len(groups):
        raise ValueError(
            f"there are {len(groups)} components but {len(each)} bases; pass one basis for all or one for each"
        )
    checked = [as_basis(basis, like="Legendre(11), or a list of them") for basis in each]
    return tuple(
        Component(name, group, as_basis(_spread_over(basis, group), tuple(domain[c] for c in group)))
        for (name, group), basis in zip(groups.items(), checked, strict=True)
    )


def as_columns(columns: Any, bases: Sequence[Basis]) -> list[int]:
    """One number of columns for each component, from one for all or, of several, one for each.

    Columns are a number, or a basis of the first functions of the component's; for several components also a list.
    """
    several = len(bases) > 1
    is_list = several and isinstance(columns, Sequence | np.ndarray) and not isinstance(columns, str)
    each = list(columns) if is_list else [columns] * len(bases)
    if len(each) != len(bases):
        raise ValueError(f"there are {len(bases)} components but {len(each)} numbers of columns")
    meaning = "a whole number of functions" + (", or one for each component" if several else " of the state")
    return [
        _leading(asked, basis)
        if isinstance(asked, Basis)
        else as_count(asked, "columns", most=MOST_FUNCTIONS, meaning=meaning)
        for asked, basis in zip(each, bases, strict=True)
    ]


def _leading(columns: Basis, basis: Basis) -> int:
    """The number of columns that are given as functions, which must be the first ones of a basis."""
    placed = as_basis(_spread_over(columns, range(basis.dimension)), basis.domain, name="columns")
    if placed != basis.resized(placed.size):
        raise ValueError(
            f"columns must be the first functions of the basis, {basis}, got {columns}: pass their number, or leave "
            "basis out, which is then that of the columns"
        )
    return placed.size


def _spread_over(basis: Basis, group: Sequence[int]) -> Basis:
    """The basis; for a family without an interval, its product over all coordinates."""
    return product(*basis.factors * len(group)) if basis.dimension == 1 and basis.interval is None else basis
