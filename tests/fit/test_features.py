"""Rewards of features: true weights come back, few features are chosen, and what the path claims is counted again."""

from dataclasses import replace

import numpy as np
import pytest

import certirl
from certirl.data.policy import as_policy
from certirl.data.source import as_source
from certirl.environments.planning import plan
from certirl.fit.features import MARGIN, Gains, Preference, _walked, _weights
from certirl.fit.problem import ValueProblem
from certirl.functions.features import features_of
from systems import Moving


class Room:
    """A thermostat without noise: cool, rest or heat; the room drifts to 0."""

    n_actions, domain = 3, ((-1.0, 1.0),)

    def __init__(self, power=0.15):
        self.power = power

    def sample(self, states, action, rng):
        return np.clip(0.8 * states + self.power * (action - 1), -1.0, 1.0)


class Corridor:
    """Steps to the left or to the right; beyond 0.9 it ends."""

    n_actions, domain = 2, ((-1.0, 1.0),)

    def sample(self, states, action, rng):
        return np.clip(states + (0.1 if action else -0.1), -1.0, 1.0)

    def terminal(self, states):
        return states[:, 0] > 0.9


def square(states):
    return states[:, 0] ** 2


def place(states):
    return states[:, 0]


def cube(states):
    return states[:, 0] ** 3


NAMED = {"s²": square, "s": place, "s³": cube}


def solve(source, expert, discount=0.9, samples=2_000, rng=0, **fields):
    method = certirl.FeatureForm(**{"features": NAMED} | fields)
    return certirl.solve(source, expert=expert, discount=discount, samples=samples, rng=rng, method=method)


@pytest.fixture(scope="module")
def expert():
    return plan(Room(), lambda states: -((states[:, 0] - 0.1) ** 2), discount=0.9)


@pytest.fixture(scope="module")
def solution(expert):
    return solve(Room(), expert)


def test_the_weights_of_the_true_reward_come_back(solution):
    weights = dict(zip(solution.path.names, solution.reward.coefficients, strict=True))
    assert weights["s²"] < 0 and weights["s³"] == 0
    assert weights["s"] / -weights["s²"] == pytest.approx(0.2, abs=0.02)
    assert solution.reward(0.5) == pytest.approx(0.25 * weights["s²"] + 0.5 * weights["s"])


@pytest.mark.slow
def test_noise_leaves_the_weights_as_they_are():
    room = certirl.problems.comfort()  # R(s) = −(s − 0.1)²
    # Under noise s³ explains these actions as well as s: which of them is chosen says nothing about the weights.
    named = {"s²": square, "s": place}
    each = [solve(room.dynamics, room.expert, samples=50_000, rng=seed, features=named) for seed in range(3)]
    ratios = [learned.reward.coefficients[1] / -learned.reward.coefficients[0] for learned in each]
    assert np.median(ratios) == pytest.approx(0.2, abs=0.02)
    assert [learned.status for learned in each] == ["validated"] * 3


@pytest.mark.slow
def test_a_log_gives_the_same_weights(expert):
    rng = np.random.default_rng(0)
    states, actions = rng.uniform(-1, 1, (6_000, 1)), rng.integers(0, 3, 6_000)
    after = np.choose(actions[:, None], [Room().sample(states, action, rng) for action in range(3)])
    log = certirl.Transitions(states, actions, after, Room.domain, 3)
    learned = certirl.solve(log, expert=expert, discount=0.9, rng=0, method=certirl.FeatureForm(NAMED))
    squared, linear, other = learned.reward.coefficients
    assert other == 0 and linear / -squared == pytest.approx(0.2, abs=0.03)
    assert learned.path.unexplained[learned.path.chosen] < 0.05


def test_the_path_counts_what_a_count_of_ones_own_finds(solution, expert):
    states = np.linspace(-0.999, 0.999, 2000)[:, None]
    simulator, ahead = Room(), np.zeros((3, len(states)))
    reward = solution.at(features=1)
    for action in range(3):
        places, paid = simulator.sample(states, action, None), 1.0
        for _ in range(100):
            ahead[action] += paid * reward(places)
            moved = [simulator.sample(places, a, None) for a in range(3)]
            places, paid = np.choose(expert(places)[:, None], moved), 0.9 * paid
    taken = expert(states)
    worse = (ahead.max(axis=0) > ahead[taken, np.arange(len(states))] + 1e-9).mean()
    assert solution.path.unexplained[solution.path.row(1)] == pytest.approx(worse, abs=0.06)
    assert worse > 0.05 > solution.path.unexplained[solution.path.chosen]


@pytest.mark.parametrize("price", [0.0, 0.03])
@pytest.mark.parametrize("guess", [[0.0, 0.0], [1.0, 0.3]])
def test_no_other_weights_with_the_same_mean_gain_lose_less(price, guess):
    rng = np.random.default_rng(0)
    gains = Gains(rng.normal([0.5, 0.2], [1.0, 3.0], (80, 2)), rng.uniform(0.1, 3, 80), np.arange(80))
    share, size = gains.margins / gains.margins.sum(), np.sqrt(np.mean(gains.values**2, axis=0))
    guess = np.array(guess)
    guess = guess / max(np.sqrt(np.mean((gains.values @ guess) ** 2)), 1e-300)

    def loss(theta):
        return share @ np.maximum(MARGIN * gains.margins - gains.values @ theta, 0.0)

    def cost(theta):
        """The loss, and the price of what is changed, measured against the best multiple of the guess."""
        multiples = np.linspace(0, 4, 801) * guess.any()
        return loss(theta) + price * np.abs((theta - multiples[:, None] * guess) * size).sum(axis=1).min()

    found = _weights(gains, Preference(np.zeros(2), guess), np.ones(2, dtype=bool), price)
    average = share @ gains.values
    assert average @ found.theta == pytest.approx(1) and found.loss == pytest.approx(loss(found.theta))
    line = average / (average @ average) + np.linspace(-5, 5, 2001)[:, None] * [-average[1], average[0]]
    assert cost(found.theta) == pytest.approx(min(map(cost, line)), abs=2e-3)
    assert cost(found.theta) <= min(map(cost, line)) + 1e-3 * price


def test_values_of_features_are_sums_over_the_walks():
    class Halves:
        n_actions, domain = 2, ((-1.0, 1.0),)

        def sample(self, states, action, rng):
            return states * (0.5 if action == 0 else -0.5)

    source = as_source(Halves())
    problem = ValueProblem(source, as_policy(0, 2), 0.8, ())
    features, states = features_of({"s": place}, source.domain), np.array([[0.3], [-1.0]])
    for action, sign in ((0, 1.0), (1, -1.0)):
        walked = _walked(problem, Halves(), states, action, 1, features)
        assert walked == pytest.approx(sign * 0.5 * states / (1 - 0.8 * 0.5), rel=1e-6)


def test_a_cost_of_steps_explains_an_expert_that_seeks_the_end():
    learned = solve(Corridor(), lambda states: np.ones(len(states), dtype=int), features={"exit": "terminal"} | NAMED)
    assert learned.path.counts[learned.path.chosen] == 1 and learned.reward.coefficients[0] > 0
    assert learned.reward([[0.0]])[0] == -learned.reward.coefficients[0] and learned.reward([[0.95]])[0] == 0
    assert "(exit − 1), 0 at terminal states" in str(learned)
    assert (plan(Corridor(), learned)(np.linspace(-0.9, 0.85, 50)) == 1).all()


def test_planning_on_it_under_other_dynamics_beats_the_expert_of_the_old_ones(solution, expert):
    weak = Room(power=0.03)  # the old expert rests where the new one must heat
    best = plan(weak, lambda states: -((states[:, 0] - 0.1) ** 2), discount=0.9)
    states = np.linspace(-0.95, 0.95, 401)
    transferred = plan(weak, solution)
    assert (transferred(states) == best(states)).mean() > 0.97
    assert (expert(states) == best(states)).mean() < 0.95


def test_signs_are_kept(expert):
    learned = solve(Room(), expert, signs={"s²": 1, "s": 1})
    assert (learned.path.weights[:, :2] >= 0).all()
    impossible = solve(Room(), expert, features={"s²": square}, signs={"s²": 1})
    assert impossible.status == "infeasible" and impossible.reward is None and impossible.path is None
    assert "no weights of these features" in str(impossible)


def test_actions_that_do_the_same_are_told_apart_by_no_feature():
    STILL = Moving(((-1.0, 1.0),), (0.0, 0.0), keep=0.5)
    answer = solve(STILL, 0, samples=200)
    assert answer.status == "undetermined" and answer.reward is None
    assert "all actions have the same effect" in str(answer)


def test_estimates_alone_prove_no_absence_of_weights():
    room = certirl.problems.comfort()
    asked = certirl.FeatureForm({"s": place}, signs={"s": -1})
    answer = certirl.solve(
        room.dynamics, expert=0, discount=0.9, delta=0.05, tail=room.dynamics.tail, samples=2_000, rng=0, method=asked
    )
    assert answer.status == "undetermined" and answer.reward is None and answer.certificate is None
    assert str(answer).startswith("Undetermined: no weights of these features")


def test_a_guess_that_explains_is_not_changed_and_another_is_as_little_as_possible(expert):
    right = solve(Room(), expert, guess={"s²": -10, "s": 2})
    assert right.path.counts[right.path.chosen] == 0
    assert right.reward.coefficients[1] / right.reward.coefficients[0] == pytest.approx(-0.2)
    wrong = solve(Room(), expert, guess={"s²": -10})
    assert wrong.path.counts[wrong.path.chosen] == 1 and wrong.reward.coefficients[2] == 0
    assert "1 change of the guess" in str(wrong)


def test_the_simplest_that_explains_nearly_as_much_is_chosen_and_others_can_be_taken(solution):
    path = solution.path
    assert list(path.counts) == sorted(path.counts)
    fewer = path.unexplained[: path.chosen]
    assert (fewer > path.unexplained.min() + 0.02).all()
    simple = solution.at(features=1)
    assert np.count_nonzero(simple.coefficients) == 1
    with pytest.raises(ValueError, match="the path has rewards of 1, 2"):
        solution.at(features=7)
    assert str(path).splitlines()[1 + path.chosen].startswith("→")


def test_the_path_is_drawn(solution, tmp_path):
    solution.path.plot(path=tmp_path / "path.png")
    assert (tmp_path / "path.png").stat().st_size > 5_000


def test_a_file_keeps_names_and_weights_and_takes_the_same_functions_back(solution, tmp_path):
    solution.save(tmp_path / "room.npz")
    read = certirl.load(tmp_path / "room.npz")
    assert str(read) == str(solution) and str(read.path) == str(solution.path)
    with pytest.raises(ValueError, match=r"with_features\({'s²': …}\)"):
        read.reward(0.3)
    assert read.with_features(NAMED).reward(0.3) == solution.reward(0.3)
    with pytest.raises(ValueError, match=r"the feature 's' is .* and the saved one was"):
        read.with_features({"s": square})
    with pytest.raises(ValueError, match="there is no feature 't'"):
        read.with_features({"t": place})


def test_the_built_in_feature_is_kept_by_a_file(tmp_path):
    learned = solve(Corridor(), lambda states: np.ones(len(states), dtype=int), features={"exit": "terminal"})
    learned.save(tmp_path / "corridor.npz")
    assert certirl.load(tmp_path / "corridor.npz").reward(0.3) == learned.reward(0.3)


@pytest.mark.parametrize(
    ("features", "words"),
    [
        ({}, "features must be functions of states by name"),
        ([square], "features must be functions of states by name"),
        ({"s²": 3}, "the feature 's²' must be a function of states"),
        ({"s²": lambda states, action, time: states}, "the feature 's²' must be a function of states"),
        ({"effort": lambda states, action: abs(action - 1)}, "for 32 states it must return 32 numbers"),
        ({"": square}, "a printable text"),
        ({"end": "end"}, "the only built-in feature is 'terminal'"),
        ({"a": "terminal", "b": "terminal"}, "must be one feature alone"),
        ({"exit": "terminal"}, "no state of this source is terminal"),
        ({"one": lambda states: 1.0}, "for 32 states it must return 32 numbers"),
        ({"two": lambda states: np.zeros((len(states), 2))}, "for 32 states it must return 32 numbers"),
        ({"nan": lambda states: np.full(len(states), np.nan)}, "the feature 'nan' must be finite"),
        ({"row": lambda states: 1.0 if states > 0 else 0.0}, "the feature 'row' failed .* is called with all states"),
        (
            {"rank": lambda states: states[:, 0].argsort().argsort()},
            "the feature 'rank' at .* must depend on one state",
        ),
        ({"mean": lambda states: states[:, 0] - states[:, 0].mean()}, "the feature 'mean' at s = .* other states"),
        ({"same": lambda states: np.ones(len(states))}, "'same' is 1 at every state, and a constant changes no policy"),
        ({"s": place, "t": lambda states: 1 - 2 * states[:, 0]}, "'t' is a combination of constants and the features"),
        (
            {"tiny": lambda states: 1e-200 * states[:, 0]},
            "'tiny' is as large as .*e-200, which double precision",
        ),
        ({"huge": lambda states: 1e200 * states[:, 0]}, r"'huge' is as large as .*e\+.*: multiply it by a constant"),
    ],
)
def test_what_is_no_feature_is_refused_in_a_sentence(features, words):
    with pytest.raises((ValueError, TypeError, certirl.UserCodeError), match=words):
        solve(Room(), 0, samples=200, features=features)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"signs": {"t": 1}}, "signs names 't'"),
        (
            {"features": {"speed": place}, "guess": {"Sped": 1}},
            r"guess names 'Sped' \(perhaps 'speed'\); the features are",
        ),
        ({"signs": {"s": 2}}, "signs must be −1 or 1"),
        ({"guess": {"s": 0}}, "a weight that is not 0"),
        ({"guess": {"s": "big"}}, "guess of 's'"),
        ({"guess": [1, 2, 3]}, "by the name of the feature"),
        ({"guess": {"s": 1}, "signs": {"s": -1}}, "contradict each other for the feature 's'"),
    ],
)
def test_fields_of_the_feature_form_are_checked(fields, words):
    with pytest.raises((ValueError, TypeError), match=words):
        certirl.FeatureForm(**{"features": NAMED} | fields)


def test_features_are_for_whole_states():
    asked = certirl.FeatureForm(NAMED)
    with pytest.raises(ValueError, match="components is not for rewards of features"):
        certirl.solve(Room(), expert=0, discount=0.9, components=[[0]], rng=0, method=asked)


def effort(states, action):
    return np.full(len(states), abs(action - 1.0))


@pytest.fixture(scope="module")
def frugal():
    """The expert of a room in which heating and cooling cost 0.05 a step, and the solution."""
    planned = plan(Room(), step_reward=lambda s, a, _: -((s[:, 0] - 0.1) ** 2) - 0.05 * abs(a - 1), discount=0.9)
    return planned, solve(Room(), planned, features={"s²": square, "s": place, "effort": effort})


def test_costs_of_actions_come_back_and_are_planned_with(frugal):
    planned, learned = frugal
    squared, linear, cost = learned.reward.coefficients
    assert linear / -squared == pytest.approx(0.2, abs=0.02) and cost / squared == pytest.approx(0.05, abs=0.01)
    assert learned.status == "validated" and learned.reward.of_actions
    assert learned.reward(0.5, 2) == pytest.approx(0.25 * squared + 0.5 * linear + cost)
    assert learned.reward(np.array([0.5, 0.5]), np.array([2, 1])) == pytest.approx(
        [learned.reward(0.5, 2), learned.reward(0.5, 1)]
    )
    states = np.linspace(-1, 1, 1001)
    for policy in (plan(Room(), learned), learned.greedy):
        assert (policy(states) == planned(states)).mean() > 0.98
    assert "R(s, a) = " in str(learned) and learned.path.unexplained[learned.path.chosen] < 0.02


@pytest.mark.slow
def test_costs_of_actions_come_back_through_noise():
    class Noisy(Room):
        def sample(self, states, action, rng):
            noise = 0.3 * rng.standard_normal(states.shape)
            return np.clip(0.8 * states + self.power * (action - 1) + noise, -1.0, 1.0)

    paid = {"step_reward": lambda s, a, _: -((s[:, 0] - 0.1) ** 2) - 0.05 * abs(a - 1)}
    planned = plan(Noisy(), **paid, discount=0.9, points=201, draws=200)
    learned = solve(Noisy(), planned, features={"s²": square, "s": place, "effort": effort}, samples=20_000)
    squared, linear, cost = learned.reward.coefficients
    assert linear / -squared == pytest.approx(0.2, abs=0.06) and cost / squared == pytest.approx(0.05, abs=0.015)


@pytest.mark.slow
def test_costs_of_actions_are_compared_by_rollouts_in_three_coordinates():
    class Wide(Room):
        domain = ((-1, 1),) * 3

        def sample(self, states, action, rng):
            return np.clip(0.8 * states + self.power * (action - 1) * np.eye(3)[0], -1, 1)

    planned = plan(
        Wide(), step_reward=lambda s, a, _: -((s[:, 0] - 0.1) ** 2) - 0.05 * abs(a - 1), discount=0.9, points=31
    )
    learned = solve(Wide(), planned, features={"s²": square, "s": place, "effort": effort}, samples=800)
    assert learned.status == "validated" and learned.stats.planned_regret < 0.01


def test_a_reward_of_actions_asks_for_the_action_and_is_read_with_its_features(frugal, tmp_path):
    _, learned = frugal
    with pytest.raises(ValueError, match=r"depends on the action: call reward\(states, action\)"):
        learned.reward(0.5)
    learned.save(tmp_path / "frugal.npz")
    read = certirl.load(tmp_path / "frugal.npz")
    assert read.with_features({"s²": square, "s": place, "effort": effort}).reward(0.5, 2) == learned.reward(0.5, 2)
    with pytest.raises(ValueError, match="'effort' must be a function of states and an action"):
        read.with_features({"effort": square})


def test_other_rewards_have_no_path():
    learned = certirl.solve(Room(), expert=0, discount=0.9, samples=200, rng=0)
    for call in (lambda: learned.at(features=1), lambda: learned.with_features(NAMED)):
        with pytest.raises(ValueError, match="features"):
            call()


def _confirmed(certificate, path):
    assert certificate.holds and any("the reward stays within" in words for words in certificate.assumptions)
    verdict = certirl.check(path)
    assert verdict.verdict == "confirmed"
    assert any("your reward, which is not in the file" in words for words in verdict.trusted)


@pytest.mark.slow
def test_a_search_for_a_proof_certifies_a_reward_of_features(tmp_path):
    room, asked = certirl.problems.comfort(), certirl.FeatureForm(NAMED)
    proved = certirl.solve(
        room.dynamics, expert=0, discount=0.9, delta=0.05, tail=room.dynamics.tail, rng=0, method=asked
    )
    assert proved.status == "certified"
    _confirmed(proved.certificate, proved.save(tmp_path / "proved.npz"))
    assert certirl.load(tmp_path / "proved.npz").status == "certified"


@pytest.mark.slow
def test_a_learned_reward_of_features_is_certified_for_an_expert_that_switches(tmp_path):
    room = certirl.problems.comfort()
    learned = solve(room.dynamics, room.expert, samples=10_000)
    certificate = certirl.certify(
        learned, room.dynamics, expert=room.expert, columns=certirl.Legendre(15), tail=room.dynamics.tail, rng=1
    )
    _confirmed(certificate, certificate.save(tmp_path / "proved.npz"))


def test_a_print_tells_what_r_explains_from_what_v_prefers_and_names_ties():
    asked = {"features": {"s³": cube}, "samples": 500}
    solution = solve(Room(), lambda states: np.where(states[:, 0] > 0.1, 0, 2), **asked)
    assert "by R itself, at" in str(solution)
    tied = replace(solution.path, ties=np.full(len(solution.path), 0.89))
    assert "as many states as any, with ties at 89% of the states; print(solution.path)" in tied.summary
    assert "ties" not in replace(solution.path, ties=np.zeros(len(solution.path))).summary
    assert "trials" not in repr(solution.reward)
