"""One notion of a reward: an expansion, a sum of them over components, zero at terminal states, any function."""

import numpy as np
import pytest

import certirl
from certirl import Cells, Chebyshev, Fourier, Legendre, Reward, product
from certirl.data.terminal import TerminalBoxes
from certirl.functions.components import SumBasis, as_components
from certirl.functions.ends import Ends
from certirl.functions.features import features_of
from certirl.functions.reward import bounded
from certirl.ground.domain import as_domain
from refusals import refused

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
        refused("only an expansion in a basis", reward.derivative, states_of(reward.basis))
        return
    low, high = np.array(reward.domain).T
    states = low + (high - low) * np.random.default_rng(3).uniform(0.1, 0.9, (50, len(low)))
    for axis in range(len(low)):
        step = 1e-6 * np.eye(len(low))[axis]
        differences = (reward(states + step) - reward(states - step)) / 2e-6
        np.testing.assert_allclose(reward.derivative(states, axis), differences, atol=1e-6)
    refused("axis must be the number of a coordinate", reward.derivative, states, len(low))


def test_a_reward_is_saved_and_read_by_its_fields(reward, tmp_path):
    again = certirl.load(reward.save(tmp_path / "reward"))
    assert isinstance(again, Reward) and again.basis == reward.basis and str(again) == str(reward)
    np.testing.assert_array_equal(again.coefficients, reward.coefficients)


COSTS = np.array([0.0, -0.5, 2.0])


@pytest.fixture(params=BASES, ids=str)
def acting(request):
    """A reward with coefficients of its own for each action."""
    return Reward(request.param, np.random.default_rng(2).normal(size=(len(COSTS), request.param.size)))


def test_a_reward_of_actions_is_one_reward_of_the_state_for_each(acting):
    states, actions = states_of(acting.basis), np.random.default_rng(4).integers(0, 3, 400)
    each = [Reward(acting.basis, row) for row in acting.coefficients]
    values, taken = np.stack([one(states) for one in each]), (actions, np.arange(400))
    np.testing.assert_allclose(acting(states, actions), values[taken], atol=1e-12)
    np.testing.assert_allclose(acting(states, 1), values[1], atol=1e-12)
    np.testing.assert_allclose(each[1](states, actions), values[1], atol=1e-12)
    for one in (lambda state: acting(state, 2), acting.for_action(2)):
        assert one(states[0]) == pytest.approx(values[2, 0], abs=1e-12)
    assert acting.range == (min(one.range[0] for one in each), max(one.range[1] for one in each))
    assert acting.norm == pytest.approx(sum(one.norm for one in each))
    assert [(one.of_actions, one.n_actions) for one in (acting, each[0])] == [(True, 3), (False, None)]
    pairs = zip(acting.components, acting.parts, strict=True)
    total = sum(part(component.of(states), actions) for component, part in pairs)
    np.testing.assert_allclose(acting(states, actions), total, atol=1e-12)
    if acting.basis.has_derivatives:
        last = acting.basis.dimension - 1
        slopes = np.stack([one.derivative(states, last) for one in each])
        np.testing.assert_allclose(acting.derivative(states, last, actions), slopes[taken], atol=1e-9)


def test_costs_of_actions_are_subtracted_and_terminal_states_cost_nothing(reward):
    states = states_of(reward.basis)
    costly = reward.with_costs(COSTS)
    for action, cost in enumerate(COSTS):
        np.testing.assert_allclose(costly(states, action), reward(states) - cost, atol=1e-12)
        np.testing.assert_allclose(costly.with_costs(COSTS)(states, action), reward(states) - 2 * cost, atol=1e-12)
    if not isinstance(reward.basis, SumBasis):
        ended = Reward(reward.basis, reward.coefficients, lambda rows: rows[:, 0] > 0.5).with_costs(COSTS)
        over = states[:, 0] > 0.5
        assert not ended(states, 2)[over].any() and (ended(states, 2)[~over] == costly(states, 2)[~over]).all()


def test_a_reward_of_actions_is_saved_and_read_by_its_fields(acting, tmp_path):
    states = states_of(acting.basis)
    for again in (certirl.load(acting.save(tmp_path / "reward")), Reward.from_json(acting.to_json())):
        np.testing.assert_array_equal(again(states, 1), acting(states, 1))
        assert again.n_actions == 3 and str(again) == str(acting) and "3 actions" in str(again)


def test_sums_and_features_have_weights_of_their_own_for_each_action():
    parts = [Reward(Legendre(2), [0.0, 1.0]), Reward(Legendre(2), [0.0, 2.0]).with_costs(COSTS)]
    total = Reward.sum(parts, [[1], [0]])
    assert total([0.1, 0.5], 1) == pytest.approx(parts[0](0.5) + parts[1](0.1, 1))
    features = features_of({"s": lambda s: s[:, 0], "push": lambda s, a: a + 0 * s[:, 0]}, as_domain((-1, 1)))
    reward = Reward(features, [[1.0, 0.0], [2.0, -0.1]])
    assert reward([0.5, 0.5], [0, 1]).tolist() == [0.5, 1.0 - 0.1] and reward.for_action(1)(0.5) == 0.9
    assert str(reward) == "R(s, 0) = 1 s; R(s, 1) = 2 s − 0.1 push"
    refused("write costs of actions as features of states and an action", reward.with_costs, [0.0, 1.0])


@pytest.mark.parametrize("starts", [None, [[-0.8], [0.3]]])
def test_a_reward_of_actions_is_planned_with_in_every_form(starts):
    room = certirl.problems.comfort()
    reward = Reward(Legendre(3, (-1.0, 1.0)), [0.0, 0.1, -1.0]).with_costs(0.1 * abs(COSTS))
    forms = [
        {"reward": reward},
        {"reward": lambda states, action: reward(states, action)},
        {"step_reward": lambda states, action, after: reward(states, action)},
    ]
    plans = [certirl.planning.plan(room.dynamics, **form, discount=0.9, points=101, starts=starts) for form in forms]
    for plan in plans[1:]:
        np.testing.assert_allclose(plan.values, plans[0].values, atol=1e-9)
        assert starts is None or plan.returns.mean == pytest.approx(plans[0].returns.mean)
    free = certirl.planning.plan(room.dynamics, reward.for_action(0), discount=0.9, points=101)
    assert (plans[0].values < free.values + 1e-9).all() and (plans[0].values < free.values - 0.05).any()


def test_components_are_found_by_name_or_number():
    parts = [Reward(Legendre(2), [0.0, 1.0]), Reward(Legendre(2), [0.0, 2.0])]
    total = Reward.sum(parts, [[1], [0]], ["speed", "heat"])
    assert total["speed"](0.5) == parts[0](0.5) == total[0](0.5)
    assert total([0.1, 0.5]) == pytest.approx(parts[0](0.5) + parts[1](0.1))
    assert str(total) == "R(speed) + R(heat), Legendre(2) each, ‖α‖₁ = 3"
    with pytest.raises(KeyError, match="there is no component 'place'; there are speed, heat"):
        total["place"]


def test_a_reward_outside_its_domain_is_refused():
    reward = Reward(Legendre(3, (0, 1)), np.ones(3))
    assert reward(1 + 1e-12) == pytest.approx(reward(1.0))  # rounding at the edge is not a mistake
    for bad, sentence in ((1.5, "outside"), (np.nan, "finite"), (np.zeros((2, 2)), "shape")):
        refused(sentence, reward, bad)


def test_terminal_states_are_worth_nothing():
    def beyond(states):
        return states[:, 0] > 0.5

    reward = Reward(Legendre(2), [3.0, 1.0], beyond)
    assert reward.zero_at_terminal and reward(0.7) == 0.0 != reward(0.3) and reward.range is None
    assert bounded(reward, reward.domain).source == "looked up"
    refused("pass them again", Reward(Legendre(2), [3.0, 1.0], zero_at_terminal=True), 0.0)


ENDS = Ends(np.array([[[0.8], [np.inf]]]), -7.0)
OVER = TerminalBoxes(np.array([[[0.5], [np.inf]]]), 0.0, 0.0, 1)


def test_terminal_states_have_numbers_of_their_own_in_every_form(tmp_path):
    reward = Reward(Legendre(2), [3.0, 1.0], OVER, ends=ENDS)
    assert reward([0.4, 0.6, 0.9]).tolist() == [reward(0.4), 0.0, -7.0] and reward.range is None
    # Without a rule which states are terminal none can be told from the sum: nothing is guessed, drawn or proved.
    lost = Reward(Legendre(2), [3.0, 1.0], ends=ENDS)
    assert lost._forgotten and lost.range is None and str(lost) == str(reward)
    refused("pass them again", lost, 0.9)
    for again in (certirl.load(reward.save(tmp_path / "reward")), Reward.from_json(reward.to_json())):
        assert again([0.4, 0.6, 0.9]).tolist() == reward([0.4, 0.6, 0.9]).tolist()
    refused("without terminal states, has a derivative", lost.derivative, 0.9)
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
        (
            lambda: Reward(Legendre(3), [1.0, 2.0]),
            r"needs 3 coefficients, or a row of them for each .*, got shape \[2\]",
        ),
        (lambda: Reward(Legendre(2), [1.0, np.inf]), "must be finite"),
        (lambda: Reward(Legendre(2), np.ones((3, 2)))(0.5), r"depends on the action: call reward\(states, action\)"),
        (lambda: Reward(Legendre(2), np.ones((3, 2)))(0.5, 3), "action 3 in row 0 is not among the 3 actions"),
        (lambda: Reward(Legendre(2), np.ones((3, 2)))([0.5] * 3, [0, 1]), "one for each of 3 states"),
        (lambda: Reward(Legendre(2), np.ones((3, 2))).with_costs([0, 1]), r"costs must be those of 3 actions"),
        (lambda: Reward(Legendre(2), np.ones((3, 2))).for_action(3), "the number of an action, at most 2"),
        (lambda: bounded(Reward(Legendre(2), np.ones((3, 2))), as_domain((-1, 1))), "this is for rewards of states"),
        (lambda: bounded(lambda s, a: s[:, 0] * a, as_domain((-1, 1))), "this is for rewards of states"),
        (
            lambda: Reward.sum([Reward(Legendre(1), [[1.0]] * A) for A in (2, 3)], [[0], [1]]),
            "of one number of actions, got 2, 3",
        ),
        (lambda: Reward.sum([Reward(Legendre(1), [1.0])] * 2, [[0]]), "as many names and groups"),
        (lambda: Reward.sum([Reward(Legendre(1), [1.0])] * 2, [[0], [0]]), "hold every coordinate once"),
        (lambda: Reward.sum([Reward(Legendre(1), [1.0])] * 2, [[0], [1, 2]]), "as many coordinates as its functions"),
        (lambda: Reward.sum([Reward(Cells((3,)), np.ones(3))] * 2, [[0], [1]]), "expansions in bases"),
    ],
)
def test_a_wrong_reward_is_one_sentence(call, sentence):
    with pytest.raises((ValueError, TypeError), match=sentence):
        call()
