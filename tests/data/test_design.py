"""Designs of fresh states: what they do to the variance of a fit."""

import numpy as np
import pytest

from certirl import Fourier, Legendre, product
from certirl.data.simulator import Even, Near

BASES = [
    Legendre(1),
    Legendre(3),
    Legendre(15),
    product(Legendre(6), Legendre(6)),
    product(Legendre(4), Legendre(7)),
    product(Legendre(12), Legendre(12), index="hyperbolic"),
    product(Legendre(5), Legendre(5), Legendre(5)),
    product(Fourier(7), Legendre(6)),
    Fourier(9),
]


def variance(basis, states, draw, count=100_000):
    """φᵀG⁻¹φ at states, times the number of draws."""
    drawn, (low, high) = draw(count, np.random.default_rng(0)), np.array(basis.domain).T
    assert drawn.shape == (count, basis.dimension)
    assert (drawn >= low).all() and (drawn <= high).all()
    phi, values = basis.values(drawn), basis.values(states)
    return np.einsum("ni,ij,nj->n", values, np.linalg.inv(phi.T @ phi / count), values, optimize=True)


@pytest.mark.parametrize("basis", BASES, ids=str)
def test_an_even_design_is_nearly_as_good_everywhere_as_any_can_be(basis):
    basis = basis.on(((2.0, 5.0),) * basis.dimension)
    axis = 3.5 + 1.5 * np.cos(np.linspace(0, np.pi, {1: 401, 2: 41, 3: 13}[basis.dimension]))
    states = np.stack([own.ravel() for own in np.meshgrid(*[axis] * basis.dimension)], axis=1)
    largest = variance(basis, states, Even((basis,))).max()
    assert basis.size * 0.99 < largest < 1.45 * basis.size  # the largest is never below k (Kiefer and Wolfowitz)
    if basis.dimension > 1 and not basis.periodic_axes:
        assert largest < 0.65 * variance(basis, states, basis.design).max()


def test_components_have_their_own_designs():
    first, second = Legendre(5).on(((0.0, 1.0),)), product(Legendre(3), Legendre(3)).on(((2.0, 3.0), (4.0, 5.0)))
    states = Even((first, second), ((1,), (2, 0)))(1_000, np.random.default_rng(1))
    assert states.shape == (1_000, 3)
    assert (np.floor(states) == [4.0, 0.0, 2.0]).all()
    alone = Even((second,))(1_000, np.random.default_rng(1))
    assert (np.floor(alone) == [2.0, 4.0]).all()


def test_three_in_ten_beside_two_places_halve_the_variance_there_and_cost_less_than_a_half_elsewhere():
    basis, places = Legendre(15).on(((-1.0, 1.0),)), np.array([[0.0], [0.44]])
    near, grid = Near(basis, places, np.array([0.1]), 0.3), np.linspace(-1, 1, 801)[:, None]
    beside = np.abs(grid - places.T).min(axis=1) < 0.05
    drawn, level = (variance(basis, grid, draw, 300_000) for draw in (near, Even((basis,))))
    assert drawn[beside].max() < 0.55 * level[beside].max()
    assert 1.3 < drawn.max() / level.max() < 1.5
