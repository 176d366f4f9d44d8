"""Random sigmoids: nested, in units of the data, periodic where asked, saved by a few numbers."""

import numpy as np
import pytest

import certirl
from certirl.functions.bases import Legendre, product
from certirl.functions.reward import Reward
from certirl.functions.sigmoids import Sigmoids
from certirl.ground.domain import as_domain

BOX = as_domain(((-1.0, 1.0),) * 4 + ((0.0, 10.0), (0.0, 1.0)))
RNG = np.random.default_rng(0)
STATES = BOX.uniform(500, RNG)


def test_the_first_functions_are_a_smaller_set_and_the_first_one_is_constant():
    large = Sigmoids.of_data(60, STATES, BOX)
    values = large.values(STATES)
    assert values.shape == (500, 60) and np.all(values[:, 0] == 1.0)
    assert np.array_equal(large.resized(20).values(STATES), values[:, :20])
    assert np.array_equal(large.resized(4).values(STATES), values[:, :4])
    assert np.allclose(large.combined(STATES, np.arange(60.0)), values @ np.arange(60.0))
    assert (np.abs(values) <= large.sup()).all()


def test_units_are_those_of_the_data_and_of_the_box_for_a_contact():
    data = np.array(STATES)
    data[:, 0] *= 0.01
    data[:, 5] = 0.0
    sigmoids = Sigmoids.of_data(30, data, BOX)
    assert 0.006 < sigmoids.scale[0] < 0.01 and 0.6 < sigmoids.scale[1] < 1.0
    assert sigmoids.centre[5] == sigmoids.scale[5] == 0.5
    assert sigmoids == Sigmoids.of_data(30, data, BOX) != Sigmoids.of_data(30, STATES, BOX)
    assert hash(sigmoids) != hash(sigmoids.of_width(8.0))


def test_periodic_coordinates_are_the_same_at_both_ends():
    sigmoids = Sigmoids.of_data(40, STATES, BOX, (4,))
    ends = np.repeat(STATES[:1], 2, axis=0)
    ends[:, 4] = 0.0, 10.0
    first, last = sigmoids.values(ends)
    assert sigmoids.periodic_axes == (4,) and np.allclose(first, last)
    assert not np.allclose(*Sigmoids.of_data(40, STATES, BOX).values(ends))


def test_slopes_and_bounds_hold_for_a_reward_that_is_saved_and_read(tmp_path):
    sigmoids = Sigmoids.of_data(50, STATES, BOX, (4,)).of_width(2.0)
    reward = Reward(sigmoids, RNG.normal(size=50))
    again = certirl.load(reward.save(tmp_path / "reward.npz"))
    assert again.basis == sigmoids and np.array_equal(again(STATES), reward(STATES))
    low, high = reward.range
    assert low < reward(STATES).min() < reward(STATES).max() < high
    step = np.eye(6)[2] * 1e-4
    slope = (reward(STATES[:9] + step) - reward(STATES[:9] - step)) / 2e-4
    assert np.allclose(reward.derivative(STATES[:9], 2), slope, rtol=1e-3, atol=1e-5)


def test_they_are_refused_where_operators_are_estimated():
    with pytest.raises(TypeError, match="50 random sigmoids of width 4 describe values and rewards: use a basis such"):
        _ = Sigmoids.of_data(50, STATES, BOX).factors


def test_products_of_ten_coordinates_are_counted_without_a_mesh():
    assert product(*[Legendre(4)] * 10).size == 286
    assert product(*[Legendre(3)] * 10, index="hyperbolic").size == 21  # no product of two
