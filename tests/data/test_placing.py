"""States drawn beside given places: what that does to the variance of a polynomial fit."""

import numpy as np

import certirl
from certirl.data.design import Near


def test_three_in_ten_beside_two_places_halve_the_variance_there_and_cost_less_than_a_half_elsewhere():
    basis, places = certirl.Legendre(15).on(((-1.0, 1.0),)), np.array([[0.0], [0.44]])
    near = Near(basis, places, np.array([0.1]), 0.3)
    grid, rng = np.linspace(-1, 1, 801)[:, None], np.random.default_rng(0)
    variance = {}
    for name, draw in {"near": near, "design": basis.design}.items():
        phi = basis.values(draw(300_000, rng))
        variance[name] = np.einsum(
            "ni,ij,nj->n", basis.values(grid), np.linalg.inv(phi.T @ phi / len(phi)), basis.values(grid)
        )
    beside = np.abs(grid - places.T).min(axis=1) < 0.05
    assert variance["near"][beside].max() < 0.55 * variance["design"][beside].max()
    assert 1.3 < variance["near"].max() / variance["design"].max() < 1.5
