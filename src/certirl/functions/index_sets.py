"""Sets of indices: which products of functions belong to a basis, and in which order."""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from certirl.ground.domain import Array, mesh

if TYPE_CHECKING:
    from certirl.functions.bases import Family

INDEX_SETS = ("total", "full", "hyperbolic")
_MOST = 1 << 22  # candidates for indices: a box of degrees with more is a mistake

Families = tuple["type[Family]", ...]


def levels_of(degrees: NDArray[np.intp], highest: tuple[int, ...], index: str) -> Array:
    """Levels of products ``[m]`` from their degrees ``[m, d]``; 1 for a highest degree alone."""
    if index == "hyperbolic":
        return (np.log1p(degrees) / np.log1p(highest)).sum(axis=1).round(9)
    shares = degrees / np.maximum(highest, 1)
    return np.asarray(shares.max(axis=1) if index == "full" else shares.sum(axis=1)).round(9)


def _within(families: Families, highest: tuple[int, ...], index: str, reach: float) -> tuple[Array, Array]:
    """All indices up to a level, and their levels."""
    caps = np.array(highest) * reach if index != "hyperbolic" else (np.array(highest) + 1.0) ** reach - 1
    degrees = (caps + 1e-9).astype(int).tolist()
    sizes = [family.size_of_degree(degree) for family, degree in zip(families, degrees, strict=True)]
    if prod(sizes) > _MOST:
        raise ValueError(f"{' × '.join(map(str, sizes))} indices are too many: use fewer functions in each coordinate")
    indices = mesh([np.arange(size) for size in sizes])
    columns = [family.degree_of(column) for family, column in zip(families, indices.T, strict=True)]
    levels = levels_of(np.stack(columns, axis=1), highest, index)
    return indices[levels <= reach + 1e-9], levels[levels <= reach + 1e-9]


@lru_cache(maxsize=128)
def ordered_indices(families: Families, highest: tuple[int, ...], index: str, size: int) -> NDArray[np.intp]:
    """The first indices by level, then by the first coordinate, …: ``[size, d]``, read-only."""
    reach = 1.0
    indices, levels = _within(families, highest, index, reach)
    while len(indices) < size:
        reach *= 1.1
        indices, levels = _within(families, highest, index, reach)
    order = np.lexsort([*(-indices.T[::-1]), levels])
    chosen = indices[order[:size]]
    chosen.flags.writeable = False
    return chosen


def count_indices(families: Families, highest: tuple[int, ...], index: str) -> int:
    """The number of indices up to the highest degree of every factor alone."""
    return len(_within(families, highest, index, 1.0)[0])
