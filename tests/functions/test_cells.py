"""Piecewise-linear cells against interpolation written by others, and their files."""

import numpy as np
import pytest
from scipy.interpolate import RegularGridInterpolator

import certirl
from certirl.functions.cells import Cells
from certirl.ground.domain import mesh
from refusals import refused

BOX = ((-1.0, 2.0), (0.0, 5.0), (-2.0, -1.0))


def drawn(box, n, rng):
    low, high = np.array(box).T
    return low + (high - low) * rng.random((n, len(low)))


@pytest.mark.parametrize("d", [1, 2, 3])
def test_cells_agree_with_scipy(d):
    rng, box = np.random.default_rng(d), BOX[:d]
    cells = Cells((5, 4, 3)[:d]).on(box)
    coefficients, states = rng.normal(size=cells.size), drawn(box, 500, rng)
    axes = [np.linspace(*pair, count) for pair, count in zip(box, cells.counts, strict=True)]
    truth = RegularGridInterpolator(axes, coefficients.reshape(cells.counts))(states)
    assert np.allclose(cells.combined(states, coefficients), truth, atol=1e-12)
    assert np.allclose(cells.values(states) @ coefficients, truth, atol=1e-12)
    assert np.allclose(cells.matrix(states) @ coefficients, truth, atol=1e-12)


def test_hats_are_one_at_their_own_point_and_add_up_to_one():
    cells = Cells((6, 4), periodic=(0,)).on(BOX[:2])
    assert np.allclose(cells.values(cells.points()), np.eye(cells.size))
    assert np.allclose(cells.values(drawn(BOX[:2], 200, np.random.default_rng(0))).sum(axis=1), 1)


@pytest.mark.parametrize(
    "basis", [Cells((7,), (), ((0, 2),)), Cells((4, 5), (1,), ((0, 2), (0, 3))), certirl.Legendre(3, (0, 2))]
)
def test_sums_of_functions_over_states(basis):
    states = np.random.default_rng(0).uniform(0, 2, (50, basis.dimension))
    assert basis._summed(states) == pytest.approx(basis.values(states).sum(axis=0), abs=1e-12)


def test_a_periodic_coordinate_is_wrapped():
    ring = Cells((4,), (0,), ((0.0, 1.0),))
    assert ring.combined([0.875, 1.0, -0.125], np.array([0.0, 1.0, 2.0, 3.0])) == pytest.approx([1.5, 0.0, 1.5])
    cells = Cells((8,), periodic=(0,)).on(((0.0, 1.0),))
    coefficients = np.random.default_rng(0).normal(size=8)
    assert cells.combined([[0.0]], coefficients) == pytest.approx(cells.combined([[1.0]], coefficients))
    middle = cells.combined([[15 / 16]], coefficients)  # between the last point and the first
    assert middle == pytest.approx((coefficients[7] + coefficients[0]) / 2)


def test_every_state_is_in_the_cell_whose_middle_is_near():
    cells, rng = Cells((6, 4, 3), (0,), BOX), np.random.default_rng(0)
    middles, states = mesh(cells.middles()), drawn(BOX, 500, rng)
    assert cells.shape == (6, 3, 2) and len(middles) == 36
    assert (np.abs(middles[cells.cell(states)] - states) <= cells.sides / 2 + 1e-12).all()
    assert np.array_equal(cells.cell(middles), np.arange(36))
    low, high = np.array(BOX).T
    assert cells.cell([low, [low[0], *high[1:]]]).tolist() == [0, 5]  # the ends of the first coordinate are one place


def test_roughness_is_the_sum_of_squared_second_differences():
    cells = Cells((5, 6), periodic=(1,)).on(BOX[:2])
    c = np.random.default_rng(0).normal(size=(5, 6))
    along = np.diff(c, 2, axis=0)
    around = np.roll(c, 1, axis=1) - 2 * c + np.roll(c, -1, axis=1)
    assert c.ravel() @ (cells._roughness() @ c.ravel()) == pytest.approx((along**2).sum() + (around**2).sum())


def test_one_point_along_a_coordinate_is_a_constant_there(tmp_path):
    thin, flat = Cells((5, 1, 4), (2,), BOX[:3]), Cells((5, 4), (1,), (BOX[0], BOX[2]))
    rng = np.random.default_rng(0)
    states, c = rng.uniform(*np.array(BOX[:3]).T, (50, 3)), rng.normal(size=20)
    assert (thin.size, thin.shape, str(thin)) == (20, (4, 1, 4), "5×1×4 piecewise linear, periodic in coordinate 2,")
    assert thin.combined(states, c) == pytest.approx(flat.combined(states[:, [0, 2]], c))
    assert thin._roughness().toarray() == pytest.approx(flat._roughness().toarray())
    assert thin._summed(states) == pytest.approx(flat._summed(states[:, [0, 2]]))
    reward = certirl.Reward(thin, c)
    known = {}
    exec(reward.to_python(), known)
    assert known["reward"](states) == pytest.approx(reward(states))
    reward.save(tmp_path / "thin.npz")
    assert certirl.load(tmp_path / "thin.npz")(states) == pytest.approx(reward(states))


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"counts": (0, 4)}, "coordinate 0 needs at least 2"),
        ({"counts": (4, 2), "periodic": (1,)}, "coordinate 1 needs at least 3"),
        ({"counts": (4, 4), "periodic": (2,)}, "periodic must name"),
        ({"counts": (2.5,)}, "whole numbers"),
        ({"counts": (3,) * 5}, "1 to 4 coordinates"),
        ({"counts": (3, 3), "box": ((0, 1),)}, "do not fit"),
    ],
)
def test_wrong_cells_are_refused(wrong, sentence):
    refused(sentence, Cells, **wrong)
