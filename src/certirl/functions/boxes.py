"""Bases on boxes: products of one-coordinate families over a set of indices.

``φ_i(s) = Π_j φ_{i_j}(s_j)`` is orthonormal for the product of the weights. A full set of indices grows as the power of
the dimension; total degree and the hyperbolic cross leave out products of high degrees. Functions are always ordered by
degree, so that the first functions form a smaller set of the same kind: fewer columns than rows mean lower degrees.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from certirl.functions.bases import Basis, Family, Fourier, Legendre
from certirl.functions.index_sets import INDEX_SETS, count_indices
from certirl.ground import archive
from certirl.ground.domain import Domain


@archive.record
@dataclass(frozen=True, eq=False)
class ProductBasis(Basis):
    """The first ``size`` products of one function of each coordinate, ordered by degree.

    Made by `product`. The degree of a product is measured in units of the highest degree of each factor, so that a
    coordinate with a larger factor gets more functions.

    Attributes:
        size: the number of functions, k.
        interval: the domain, one (low, high) for each coordinate; None until it is placed on the domain of a problem.
        factors: the family of each coordinate, with its number of functions if the others are constant.
        index: "total" (the sum of the degrees counts), "full" (the largest) or "hyperbolic" (their product).
    """

    factors: tuple[Family, ...] = ()
    index: str = "total"

    kind = "product"

    def __str__(self) -> str:
        names = " × ".join(map(str, self.parts))
        return f"{names} ({self.index}, {self.size} function{'s' * (self.size != 1)})"

    @property
    def level(self) -> ProductBasis:
        """The products with the same span that are orthonormal for the distribution of `design`."""
        return ProductBasis(self.size, self.interval, tuple(factor.level for factor in self.factors), self.index)

    def as_read(self, file: str) -> Basis:
        """Refuse factors that `product` refuses."""
        if len(self.factors) < 2:
            raise ValueError(f"a product of bases needs two factors or more, got {len(self.factors)}")
        return replace(product(*self.factors, index=self.index).resized(self.size), interval=self.interval)


def product(*factors: Family, index: str = "total") -> Basis:
    """Products of one function of each coordinate, ``φ_i(s) = Π_j φ_{i_j}(s_j)``.

    ``product(Fourier(9), Legendre(7))`` is a basis for an angle and a speed: frequencies up to 4 without the speed,
    degrees up to 6 without the angle, and products in between. The product of one family is the family.

    Args:
        factors: a family for each coordinate, either all with an interval or all without.
        index: which products: "total" (degrees, in units of each factor's highest, with a sum of at most one), "full"
            (all) or "hyperbolic" (degrees plus one, on a logarithmic scale, with a sum of at most one).
    """
    for factor in factors:
        if not isinstance(factor, Family):
            raise TypeError(f"product takes families such as certirl.Legendre(7), one per coordinate, got {factor!r}")
    if index not in INDEX_SETS:
        raise ValueError(f"index must be one of {', '.join(map(repr, INDEX_SETS))}, got {index!r}")
    if len(factors) == 1:
        return factors[0]
    if not factors:
        raise ValueError("product needs a family for each coordinate, such as certirl.Legendre(7); got none")
    for factor in factors:
        if factor.size < 2:
            raise ValueError(f"every coordinate needs at least two functions, got {factor}")
        if factor.size != factor.harmonics:
            raise ValueError(f"the sine and cosine of a frequency belong together: {factor} needs an odd number")
    placed = [factor.interval is not None for factor in factors]
    if any(placed) and not all(placed):
        bare = factors[placed.index(False)]
        raise ValueError(f"give every factor an interval or none: coordinate {placed.index(False)}, {bare}, has none")
    plain = tuple(type(factor)(factor.size) for factor in factors)
    interval = tuple(factor.interval for factor in factors) if all(placed) else None
    smallest = ProductBasis(1, interval, plain, index)
    return smallest.resized(count_indices(smallest._families, smallest._highest, index))


def of_degree(domain: Domain, degree: int, periodic: Sequence[int] = ()) -> Basis:
    """Functions up to a total degree on a box: polynomials, Fourier in periodic coordinates."""
    families = [Fourier if axis in periodic else Legendre for axis in range(len(domain))]
    return product(*(family(family.size_of_degree(degree)) for family in families)).on(domain)
