"""Coverage: against plain least squares, fresh draws, and logs whose holes are known."""

import tracemalloc

import matplotlib as mpl
import numpy as np
import pytest

import certirl

mpl.use("Agg")


def log(states, actions, domain=(-1, 1), n_actions=None):
    return certirl.Transitions(states, actions, states, domain=domain, n_actions=n_actions)


def test_leverage_is_the_variance_of_a_prediction():
    rng = np.random.default_rng(0)
    states = rng.beta(2, 5, 300) * 2 - 1
    found = certirl.diagnose.coverage(log(states, np.zeros(300, int), n_actions=1), basis=certirl.Legendre(5))
    phi = np.polynomial.legendre.legvander(states, 4)
    at = np.array([-0.9, 0.0, 0.8])
    target = np.polynomial.legendre.legvander(at, 4)
    predictions = []
    for _ in range(4000):
        fit, *_ = np.linalg.lstsq(phi, rng.standard_normal(300), rcond=None)
        predictions.append(target @ fit)
    assert found.leverage(at)[0] == pytest.approx(np.var(predictions, axis=0), rel=0.1)


def test_even_data_are_worth_themselves_and_uneven_ones_less():
    rng = np.random.default_rng(1)
    even = rng.uniform(-1, 1, 20_000)
    narrow = rng.uniform(-0.5, 0.5, 20_000)
    states, actions = np.concatenate([even, narrow]), np.repeat([0, 1], 20_000)
    found = certirl.diagnose.coverage(log(states, actions), basis=certirl.Legendre(6))
    assert found.effective[0] == pytest.approx(20_000, rel=0.03)
    assert 15_000 < found.least[0] < 20_000
    assert found.least[1] < 50
    assert found.condition[0] < 1.2
    assert found.condition[1] > 100
    assert found.counts.tolist() == [20_000, 20_000]
    assert "action 1 was taken only with coordinate 0 in [-0.5, 0.5] of [-1, 1]" in " ".join(found.sentences)


def test_holes_are_found_where_they_are():
    rng = np.random.default_rng(2)
    states = rng.uniform(-1, 1, (40_000, 2))
    actions = rng.integers(2, size=40_000)
    hole = (states[:, 0] > 0.2) & (states[:, 1] > 0.2) & (actions == 1)
    found = certirl.diagnose.coverage(log(states[~hole], actions[~hole], domain=((-1, 1), (-1, 1))))
    assert not found.extrapolated([[-0.5, -0.5], [0.0, 0.0]]).any()
    assert found.extrapolated([[0.95, 0.95]]).all()
    assert found.extrapolated_share[0] == 0
    assert 0.01 < found.extrapolated_share[1] < 0.2
    assert (found.worst[1] > 0.5).all()
    assert not found.complete
    assert "action 1 is extrapolated over" in " ".join(found.sentences)
    assert found.unvisited == 0
    fresh = rng.uniform(-1, 1, (20_000, 2))
    assert (found.leverage(fresh)[1] > 1).mean() == pytest.approx(found.extrapolated_share[1], abs=0.01)


def test_nothing_missing_is_said_too():
    rng = np.random.default_rng(3)
    found = certirl.diagnose.coverage(log(rng.uniform(-1, 1, 5000), rng.integers(3, size=5000)))
    assert found.complete
    assert found.sentences == ()
    assert "nothing is missing" in str(found).lower()


def test_actions_never_seen_and_states_never_covered_are_named():
    rng = np.random.default_rng(4)
    found = certirl.diagnose.coverage(log(rng.uniform(-1, 0, 1000), np.zeros(1000, int), n_actions=3))
    assert found.never_taken == (1, 2)
    assert "action 2 was never taken" in str(found).lower()
    assert found.effective[1] == 0
    assert np.isinf(found.condition[2])
    assert found.unvisited == pytest.approx(0.5, abs=0.03)
    assert "50% of the state space was never visited" in str(found)
    assert found.extrapolated([0.5]).all()


def test_too_few_states_to_tell_functions_apart():
    found = certirl.diagnose.coverage(log([0.0, 0.5, 0.0, 0.5], [0, 0, 1, 1]), basis=certirl.Legendre(5))
    assert np.isinf(found.condition).all()
    assert (found.least < 1e-6).all()
    assert "not taken in enough different states" in str(found)


def test_pictures_show_cells_and_extrapolation():
    rng = np.random.default_rng(5)
    line = certirl.diagnose.coverage(log(rng.uniform(-1, 0.3, 2000), rng.integers(2, size=2000)))
    ax = certirl.plots.coverage(line)
    assert {text.get_text() for text in ax.get_legend().get_texts()} == {"action 0", "action 1", "extrapolated"}
    states = rng.normal(0, 0.3, (5000, 2)).clip(-1, 1)
    plane = certirl.diagnose.coverage(log(states, rng.integers(2, size=5000), domain=((-1, 1), (-1, 1))))
    words = [text.get_text() for text in certirl.plots.coverage(plane).get_legend().get_texts()]
    assert words == ["extrapolated", "some action was not taken"]
    deep = certirl.diagnose.coverage(
        log(rng.uniform(-1, 1, (5000, 3)), rng.integers(2, size=5000), domain=((-1, 1),) * 3), cells=5
    )
    assert certirl.plots.coverage(deep, action=1, plane=(2, 0)).get_xlabel() == "s[2]"


@pytest.mark.parametrize("coordinates", [5, 8, 10])
def test_many_coordinates_are_sampled_in_little_memory(coordinates):
    rng = np.random.default_rng(6)
    states, actions = rng.uniform(-1, 1, (20_000, coordinates)), rng.integers(2, size=20_000)
    states[actions == 1] *= 0.25  # away from the edges
    seen = log(states, actions, domain=((-1, 1),) * coordinates)
    tracemalloc.start()
    found = certirl.diagnose.coverage(seen, basis=certirl.product(*[certirl.Legendre(3)] * coordinates))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 200e6
    assert not found.extrapolated_share[0]
    fresh = found.leverage(rng.uniform(-1, 1, (20_000, coordinates)))
    assert 0.05 < found.extrapolated_share[1] == pytest.approx((fresh[1] > 1).mean(), abs=0.01)
    assert found.leverage(found.worst[[1]])[1, 0] >= fresh[1].max()
    assert (np.abs(found.worst[1]) == 1).all()  # a corner
