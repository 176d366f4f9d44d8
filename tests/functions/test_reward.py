"""One notion of a reward: an expansion, a sum of them over components, zero at terminal states, any function."""

import numpy as np
import pytest

import certirl
from certirl import Cells, Chebyshev, Fourier, Legendre, Reward, product
from certirl.data.terminal import TerminalBoxes
from certirl.functions.components import SumBasis, as_components
from certirl.functions.ends import Ends
from certirl.functions.reward import bounded

RNG = np.random.default_rng(0)
BASES = [
    Legendre(5, (0.0, 2.0)),
    Fourier(7),
    product(Legendre(4), Fourier(5)).on(((0.0, 1.0), (-1.0, 1.0))),
    Cells((6,)).on(((0.0, 2.0),)),
    Cells((5, 4), (1,)).on(((0.0, 1.0), (0.0, 3.0))),
    SumBasis(as_components({"b": [1], "a": [0, 2]}, [Chebyshev(5), Legendre(3)], ((0.0, 1.0),) * 3)),
]


def states_of(basis, n=400):
    low, high = np.array(basis.domain).T
    return low + (high - low) * np.random.default_rng(1).random((n, len(low)))


@pytest.fixture(params=BASES, ids=str)
def reward(request):
    return Reward(request.param, np.random.default_rng(2).normal(size=request.param.size))


def test_a_reward_is_the_sum_of_its_parts(reward):
    states = states_of(reward.basis)
    pairs = zip(reward.components, reward.parts, strict=True)
    total = sum(part(component.of(states)) for component, part in pairs)
    np.testing.assert_allclose(reward(states), total, atol=1e-12)
    assert reward(states[0]) == pytest.approx(reward(states)[0], abs=1e-12)
    assert reward.norm == pytest.approx(sum(part.norm for part in reward.parts))
    groups = [component.coordinates for component in reward.components]
    again = Reward.sum(reward.parts, groups, [component.name for component in reward.components])
    np.testing.assert_array_equal(again.coefficients, reward.coefficients)
    assert again.basis == reward.basis and reward[0].basis == reward.parts[0].basis


def test_the_range_encloses_all_values_and_is_proved(reward):
    low, high = reward.range
    values = reward(states_of(reward.basis, 20_000))
    assert low <= values.min() and values.max() <= high
    assert high - low <= 1.5 * np.ptp(values)
    known = bounded(reward, reward.domain)
    assert (known.source, known.range, known.assumptions) == ("proved", (low, high), ())
    once = known.normalised()
    twice = once.normalised()
    assert 1 <= once.high - once.low < 2 and (twice.low, twice.high, twice.unit) == (once.low, once.high, once.unit)
    np.testing.assert_allclose(once(states_of(reward.basis)) * once.unit, reward(states_of(reward.basis)), atol=1e-12)


def test_the_derivative_is_that_of_the_values(reward):
    if isinstance(reward.basis, Cells):
        with pytest.raises(ValueError, match="only an expansion in a basis"):
            reward.derivative(states_of(reward.basis))
        return
    low, high = np.array(reward.domain).T
    states = low + (high - low) * np.random.default_rng(3).uniform(0.1, 0.9, (50, len(low)))
    for axis in range(len(low)):
        step = 1e-6 * np.eye(len(low))[axis]
        differences = (reward(states + step) - reward(states - step)) / 2e-6
        np.testing.assert_allclose(reward.derivative(states, axis), differences, atol=1e-6)
    with pytest.raises(ValueError, match="axis must be the number of a coordinate"):
        reward.derivative(states, len(low))


def test_a_reward_is_saved_and_read_by_its_fields(reward, tmp_path):
    again = certirl.load(reward.save(tmp_path / "reward"))
    assert isinstance(again, Reward) and again.basis == reward.basis and str(again) == str(reward)
    np.testing.assert_array_equal(again.coefficients, reward.coefficients)


def test_components_are_found_by_name_or_number():
    parts = [Reward(Legendre(2), [0.0, 1.0]), Reward(Legendre(2), [0.0, 2.0])]
    total = Reward.sum(parts, [[1], [0]], ["speed", "heat"])
    assert total["speed"](0.5) == parts[0](0.5) == total[0](0.5)
    assert total([0.1, 0.5]) == pytest.approx(parts[0](0.5) + parts[1](0.1))
    assert str(total) == "R(speed) + R(heat), Legendre(2) each, ‖α‖₁ = 3"
    with pytest.raises(KeyError, match="there is no component 'place'; there are speed, heat"):
        total["place"]


def test_terminal_states_are_worth_nothing():
    def beyond(states):
        return states[:, 0] > 0.5

    reward = Reward(Legendre(2), [3.0, 1.0], beyond)
    assert reward.zero_at_terminal and reward(0.7) == 0.0 != reward(0.3) and reward.range is None
    assert bounded(reward, reward.domain).source == "looked up"
    with pytest.raises(ValueError, match="pass them again"):
        Reward(Legendre(2), [3.0, 1.0], zero_at_terminal=True)(0.0)


ENDS = Ends(np.array([[[0.8], [np.inf]]]), -7.0)
OVER = TerminalBoxes(np.array([[[0.5], [np.inf]]]), 0.0, 0.0, 1)


def test_terminal_states_have_numbers_of_their_own_in_every_form(tmp_path):
    reward = Reward(Legendre(2), [3.0, 1.0], OVER, ends=ENDS)
    assert reward([0.4, 0.6, 0.9]).tolist() == [reward(0.4), 0.0, -7.0] and reward.range is None
    # Without a rule which states are terminal none can be told from the sum: nothing is guessed, drawn or proved.
    lost = Reward(Legendre(2), [3.0, 1.0], ends=ENDS)
    assert lost._forgotten and lost.range is None and str(lost) == str(reward)
    with pytest.raises(ValueError, match="pass them again"):
        lost(0.9)
    for again in (certirl.load(reward.save(tmp_path / "reward")), Reward.from_json(reward.to_json())):
        assert again([0.4, 0.6, 0.9]).tolist() == reward([0.4, 0.6, 0.9]).tolist()
    with pytest.raises(ValueError, match="without terminal states, has a derivative"):
        lost.derivative(0.9)
    (chart,) = certirl.show.charts.reward_charts(reward)
    assert chart.title == "R is -7 at some terminal states"


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: Reward(Legendre(2), [1.0, 2.0], ends=3.0), "ends must be of states of 1 coordinates, got 3.0"),
        (lambda: Reward(BASES[2], np.ones(BASES[2].size), ends=ENDS), "ends must be of states of 2 coordinates"),
        (lambda: Reward(BASES[-1], np.ones(BASES[-1].size), np.all), "without terminal states"),
        (lambda: Reward.sum([Reward(Legendre(2), [1.0, 2.0], ends=ENDS)] * 2, [[0], [1]]), "without terminal states"),
        (lambda: Reward("Legendre", [1.0]), "must be one such as certirl.Legendre"),
        (lambda: Reward(Legendre(3), [1.0, 2.0]), r"needs 3 coefficients, got shape \[2\]"),
        (lambda: Reward(Legendre(2), [1.0, np.inf]), "must be finite"),
        (lambda: Reward.sum([Reward(Legendre(1), [1.0])] * 2, [[0]]), "as many names and groups"),
        (lambda: Reward.sum([Reward(Legendre(1), [1.0])] * 2, [[0], [0]]), "hold every coordinate once"),
        (lambda: Reward.sum([Reward(Legendre(1), [1.0])] * 2, [[0], [1, 2]]), "as many coordinates as its functions"),
        (lambda: Reward.sum([Reward(Cells((3,)), np.ones(3))] * 2, [[0], [1]]), "expansions in bases"),
    ],
)
def test_a_wrong_reward_is_one_sentence(call, sentence):
    with pytest.raises((ValueError, TypeError), match=sentence):
        call()
