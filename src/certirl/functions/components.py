"""Components: groups of coordinates that move independently, and rewards that are sums over them.

If every component's next coordinates depend on its own coordinates and the action alone, then a sum of rewards, one of
each component, has a value that is such a sum, and so is the expert's advantage: D_a(s) = Σ_j D_ja(s_j). Noise that
components share does not matter to sums.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from certirl.functions.bases import MOST_FUNCTIONS, Basis, Legendre, as_basis
from certirl.functions.boxes import product
from certirl.functions.reward import Reward
from certirl.ground import archive
from certirl.ground.domain import Array, Domain, as_states, describe, like_input
from certirl.ground.doors import as_count, shown

# Degrees of the functions that a component gets if nobody says otherwise, by its number of coordinates; 2 for more.
DEGREES = {1: 10, 2: 6, 3: 4}


@dataclass(frozen=True)
class Component:
    """A group of coordinates with functions of its own.

    Attributes:
        name: what to call it.
        coordinates: its columns of the states ``[n, d]``.
        basis: the functions of rewards and values, on the component's own box.
    """

    name: str
    coordinates: tuple[int, ...]
    basis: Basis

    def of(self, states: Array) -> Array:
        """Its own coordinates of states ``[…, d]``."""
        return states[..., list(self.coordinates)]

    def __str__(self) -> str:
        return f"{self.name}: {self.basis} on {describe(self.basis.domain)}"


def as_groups(components: Any, dimension: int) -> dict[str, tuple[int, ...]]:
    """Names and coordinates of the components of a d-dimensional state; together they hold each coordinate once.

    Args:
        components: ``[[0], [1, 2]]``, or ``{"speed": [0], "place": [1, 2]}`` to name them; else they are called by
            their coordinates.
        dimension: d.
    """
    if isinstance(components, str) or not isinstance(components, Mapping | Sequence) or len(components) == 0:
        raise ValueError(f"components must be lists of coordinates such as [[0], [1]], got {components!r}")
    named = components.items() if isinstance(components, Mapping) else [(None, group) for group in components]
    groups: dict[str, tuple[int, ...]] = {}
    owner: dict[int, str] = {}
    for given, group in named:
        if isinstance(group, str) or not isinstance(group, Sequence) or len(group) == 0:
            raise ValueError(f"a component is a list of coordinates such as [0], got {group!r}")
        name = " ".join(f"s{c}" for c in group) if given is None else str(given)
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


def as_components(components: Any, bases: Basis | Sequence[Basis] | None, domain: Domain) -> tuple[Component, ...]:
    """Place one basis for all, or one for each, on the boxes of the components.

    A family of one coordinate stands for its product with itself, by total degree, where a component has several. Left
    out, it is Legendre's, of degree 10 in one coordinate, 6 in two, 4 in three.
    """
    groups = as_groups(components, len(domain))
    if bases is None:
        bases = [Legendre(DEGREES.get(len(group), 2) + 1) for group in groups.values()]
    each = list(bases) if isinstance(bases, Sequence) and not isinstance(bases, str) else [bases] * len(groups)
    if len(each) != len(groups):
        raise ValueError(
            f"there are {len(groups)} components but {len(each)} bases; pass one basis for all or one for each"
        )
    for basis in each:
        if not isinstance(basis, Basis):
            raise TypeError(f"basis must be a basis such as Legendre(11), or a list of them, got {shown(basis)}")
    return tuple(
        Component(name, group, as_basis(_spread_over(basis, group), tuple(domain[c] for c in group)))
        for (name, group), basis in zip(groups.items(), each, strict=True)
    )


def as_columns(columns: int | Sequence[int], components: Sequence[Component]) -> list[int]:
    """One number of columns for each component, from one for all or one for each."""
    each = list(columns) if isinstance(columns, Sequence | np.ndarray) and not isinstance(columns, str) else None
    if each is not None and len(each) != len(components):
        raise ValueError(f"there are {len(components)} components but {len(each)} numbers of columns")
    return [
        as_count(size, "columns", most=MOST_FUNCTIONS, meaning="a whole number of functions, or one for each component")
        for size in ([columns] * len(components) if each is None else each)
    ]


def _spread_over(basis: Basis, group: tuple[int, ...]) -> Basis:
    """The basis, or its product with itself if it is a family without an interval and the component is a box."""
    return product(*basis.factors * len(group)) if basis.dimension == 1 and basis.interval is None else basis


@dataclass(frozen=True)
class SideBySide:
    """Draws states of all components at once, each from its own basis's law: the product of the weights.

    Attributes:
        components: which together hold every coordinate once.
    """

    components: tuple[Component, ...]

    @property
    def parts(self) -> tuple[Basis, ...]:
        """The family of every coordinate, in the order of the coordinates."""
        found: dict[int, Basis] = {}
        for component in self.components:
            found |= dict(zip(component.coordinates, component.basis.parts, strict=True))
        return tuple(found[c] for c in sorted(found))

    def on(self, domain: Domain) -> Self:
        """Itself: the components are placed already."""
        return self

    def sample(self, n: int, rng: np.random.Generator) -> Array:
        """Draw n states from the product of the weights: ``[n, d]``."""
        return self._put_together([component.basis.sample(n, rng) for component in self.components])

    def design(self, n: int, rng: np.random.Generator) -> Array:
        """Draw n states where the least squares of every component want them: ``[n, d]``."""
        return self._put_together([component.basis.design(n, rng) for component in self.components])

    def _put_together(self, parts: list[Array]) -> Array:
        order = np.concatenate([component.coordinates for component in self.components])
        return np.concatenate(parts, axis=1)[:, np.argsort(order)]


@archive.record
@dataclass(frozen=True, eq=False)
class AdditiveReward:
    """``R(s) = Σ_j R_j(s_j)``: a reward for each component, callable on states ``[n, d]``.

    Attributes:
        names: of the components.
        coordinates: the columns of the states that each looks at.
        parts: R_j.
    """

    thread_safe: ClassVar[bool] = True
    names: tuple[str, ...]
    coordinates: tuple[tuple[int, ...], ...]
    parts: tuple[Reward, ...]

    def __post_init__(self) -> None:
        if not len(self.names) == len(self.coordinates) == len(self.parts):
            raise ValueError(
                f"an additive reward needs as many names and groups of coordinates as rewards, "
                f"got {len(self.names)}, {len(self.coordinates)} and {len(self.parts)}"
            )

    @property
    def domain(self) -> Domain:
        """The box of whole states."""
        sides = {c: side for own, part in self._pairs() for c, side in zip(own, part.basis.domain, strict=True)}
        return tuple(sides[c] for c in range(len(sides)))

    @property
    def norm(self) -> float:
        """Σ_j ‖α_j‖₁."""
        return sum(part.norm for part in self.parts)

    def _pairs(self) -> list[tuple[tuple[int, ...], Reward]]:
        return list(zip(self.coordinates, self.parts, strict=True))

    def __call__(self, states: ArrayLike) -> Any:
        """R(s): a float for one state, ``[n]`` for many. States must lie in the domain."""
        rows = as_states(states, self.domain)
        total = np.sum([part(rows[:, list(own)]) for own, part in self._pairs()], axis=0)
        return like_input(total, states, len(self.domain))

    def __getitem__(self, name: str | int) -> Reward:
        """R_j, by name or number."""
        if isinstance(name, int):
            return self.parts[name]
        if name not in self.names:
            raise KeyError(f"there is no component {name!r}; there are {', '.join(self.names)}")
        return self.parts[self.names.index(name)]

    def __str__(self) -> str:
        bases = {str(part.basis) for part in self.parts}
        shared = f"{bases.pop()} each" if len(bases) == 1 else "bases of their own"
        named = [f"R({name})" for name in self.names]
        total = " + ".join(named) if len(named) <= 4 else f"{named[0]} + {named[1]} + … + {named[-1]}"
        return f"{total}, {shared}, ‖α‖₁ = {self.norm:.4g}"

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write it to an npz file (suffix added if missing); `certirl.load` reads it back."""
        return archive.save(self, path)

    def as_read(self, file: str) -> AdditiveReward:
        """Refuse components that do not hold every coordinate once."""
        groups = [c for own in self.coordinates for c in own]
        if sorted(groups) != list(range(len(groups))):
            raise ValueError("the components must hold every coordinate once")
        if any(len(own) != part.basis.dimension for own, part in self._pairs()):
            raise ValueError("every component needs as many coordinates as its functions have")
        return self

    def plot(self, *, path: Any = None) -> Any:
        """Draw the reward of every component; write the picture to ``path`` if given."""
        from certirl import plots

        return plots.reward(self, path=path)
