"""Code and settings of the user: what it receives is its own copy, what it answers is checked, and each error is one
sentence that names the door."""

import linecache
import math
import pickle
import warnings
from dataclasses import fields
from fractions import Fraction
from functools import partial
from inspect import signature
from itertools import product
from pathlib import Path
from traceback import walk_tb

import matplotlib as mpl
import numpy as np
import pytest

import certirl
from certirl import Legendre, diagnose, dynamics, logs, steps, trials
from certirl.data.dependence import noise_fault
from certirl.data.policy import as_policy
from certirl.data.simulator import as_generator, ask, terminal_of
from certirl.fit.effects import noise_ratio
from certirl.ground import doors
from certirl.ground.domain import as_domain
from certirl.proof.tails import Smooth, is_number, tail_number
from refusals import refused
from sizes import sizes

mpl.use("Agg")
from matplotlib import pyplot

from systems import Coins, Moving

SIDE = as_domain((-1, 1))
NAN, INF = float("nan"), float("inf")


COIN = Coins((0.5, 0.5), (0.5, -0.5))


class Drift:
    """A noisy step to the left or to the right."""

    n_actions, domain = 2, SIDE

    def sample(self, states, action, rng):
        return np.clip(0.8 * states + (0.2 if action else -0.2) + 0.1 * rng.standard_normal(states.shape), -1, 1)


def clean(states):
    return states[:, 0] > 0


def dirty(states):
    states *= -1
    return states[:, 0] < 0


PROOF = {"columns": Legendre(2), "tail": 0, "discount": 0.7, "samples": 5_000, "rng": 1}


# Code for one state


class OneState(Drift):
    def sample(self, states, action, rng):
        return states + 0.1 if states[:, 0] < 0 else states - 0.1


@pytest.mark.parametrize(
    ("what", "call"),
    [
        ("the expert", lambda: certirl.solve(Drift(), **PLAIN | {"expert": lambda s: 1 if s < 0 else 0})),
        ("the expert", lambda: certirl.solve(Drift(), **PLAIN | {"expert": lambda s: int(math.sin(s) > 0)})),
        ("the simulator's sample", lambda: certirl.solve(OneState(), **PLAIN)),
        ("the reward", lambda: certirl.certify(lambda s: 1.0 if s[:, 0] < 0 else 0.0, COIN, expert=0, **PROOF)),
    ],
)
def test_code_for_one_state_is_told_that_it_gets_all_states(what, call):
    place = r" in [\w.<>]+ \(.*test_doors\.py, line \d+\)"
    sentence = rf"^{what} failed{place}: it is called with all states at once, an array \[n, 1\]: write np"
    with pytest.raises(certirl.UserCodeError, match=sentence):
        call()


class Leaving(Drift):
    def sample(self, states, action, rng):
        return states + 1


def test_states_outside_the_domain_get_the_advice_of_their_caller():
    refused(r"clip them in sample: np\.clip\(next_states, low, high\)", certirl.solve, Leaving(), **PLAIN)
    solution = certirl.solve(Drift(), **PLAIN)
    refused(r"the function is defined on \[-1, 1\] only", solution.reward, 2.0)
    refused("pass states inside it", solution.action_values, [2.0])
    assert np.array_equal(solution.greedy([2.0, -3.0]), solution.greedy([1.0, -1.0]))  # moved to the edge
    refused("widen the domain or remove them", certirl.Transitions, [0.0, 2.0], [0, 1], [0.0, 0.5], domain=(-1, 1))


# Copies


def test_an_expert_that_changes_its_states_is_certified_like_one_that_does_not():
    reward = certirl.Reward(Legendre(2).on(SIDE), np.array([0.0, 1.0]))
    found, other = (certirl.certify(reward, COIN, expert=expert, **PROOF) for expert in (dirty, clean))
    assert found.margin == other.margin and not found.holds


class Greedy(Drift):
    """Works in place, and answers with a buffer of its own."""

    def sample(self, states, action, rng):
        states *= 0.8
        states += 0.2 if action else -0.2
        states += 0.1 * rng.standard_normal(states.shape)
        return np.clip(states, -1, 1, out=states)


class Buffered(Drift):
    def sample(self, states, action, rng):
        if not hasattr(self, "buffer") or len(self.buffer) != len(states):
            self.buffer = np.empty_like(states)
        self.buffer[:] = super().sample(states, action, rng)
        return self.buffer


@pytest.mark.parametrize("kind", sizes(Greedy, Buffered))
def test_simulators_that_work_in_place_or_reuse_their_answer_give_the_same_numbers(kind):
    for settings in ({"expert": 1, "samples": 2_000}, {"expert": clean, "samples": 500}):
        one, other = (certirl.solve(own, discount=0.7, rng=3, **settings) for own in (kind(), Drift()))
        np.testing.assert_array_equal(one.reward.coefficients, other.reward.coefficients)
    first = steps.sample(kind(), basis=Legendre(3), samples=50, rng=0, paired=True)
    second = steps.sample(Drift(), basis=Legendre(3), samples=50, rng=0, paired=True)
    np.testing.assert_array_equal(first.next_states, second.next_states)


def test_states_lent_to_a_simulator_and_to_terminal_stay_as_they_are():
    class Ending(Greedy):
        def terminal(self, states):
            states[:] = 9.0
            return states[:, 0] < 0

    states = np.linspace(-1, 1, 5)[:, None]
    kept = states.copy()
    ask(Ending(), states, 0, np.random.default_rng(0), SIDE)
    assert not terminal_of(Ending())(states).any()
    np.testing.assert_array_equal(states, kept)


def test_a_plan_of_a_simulator_that_works_in_place_is_that_of_one_that_does_not():
    one, other = (
        certirl.planning.plan(own, lambda s: s[:, 0], discount=0.7, points=21, draws=2) for own in (Greedy(), Drift())
    )
    np.testing.assert_array_equal(one.values, other.values)


def test_an_answer_that_is_overwritten_later_is_kept():
    states, memory = np.zeros((3, 1)), np.zeros(3, dtype=int)

    def expert(asked):
        memory[:] = asked[:, 0] > 0
        return memory

    policy = as_policy(expert, 2)
    first = policy.actions(states + 1)
    policy.actions(states - 1)
    assert first.tolist() == [1, 1, 1]


# Random numbers


@pytest.mark.parametrize("role", ["certify", "refute", "scenario", "solve_policy", "prove_policy", "sample"])
def test_generators_of_one_seed_give_every_role_its_own_numbers(role):
    draws = {as_generator(np.random.default_rng(0), name).random() for name in (role, "rollout_check")}
    plain = as_generator(np.random.default_rng(0)).spawn(1)[0]
    assert len(draws | {plain.random(), np.random.default_rng(0).random()}) == 4


def test_one_generator_gives_new_numbers_at_every_call():
    rng = np.random.default_rng(0)
    first, second = (steps.sample(Drift(), basis=Legendre(3), samples=5, rng=rng) for _ in range(2))
    assert not np.intersect1d(first.states, second.states).size


def test_a_solution_and_its_certificate_see_different_data_though_both_have_a_generator_of_seed_0():
    seen = []

    class Recorded(Drift):
        def sample(self, states, action, rng):
            if len(np.unique(states)) > 4:  # a trial of its random numbers, whatever the seed
                seen[-1].append(states.copy())
            return super().sample(states, action, rng)

    proof = {"columns": Legendre(3), "discount": 0.7, "samples": 300, "expert": 0, "tail": 0}
    calls = [
        lambda rng: certirl.solve(
            Recorded(), expert=0, discount=0.7, basis=Legendre(3), columns=3, samples=300, rng=rng
        ),
        lambda rng: certirl.certify(lambda s: s[:, 0], Recorded(), rng=rng, **proof),
        lambda rng: certirl.refute(Recorded(), expert=0, basis=Legendre(3), samples=300, rng=rng),
        lambda rng: trials.rollout_check(lambda s: s[:, 0], Recorded(), discount=0.5, rng=rng, samples=2, steps=2),
    ]
    for call in calls:
        seen.append([])
        call(np.random.default_rng(0))
    rows = [np.unique(np.concatenate(own)) for own in seen]
    grid = np.linspace(-1, 1, 100)  # where rollouts start, whatever the seed
    for i, one in enumerate(rows):
        for other in rows[:i]:
            assert not np.setdiff1d(np.intersect1d(one, other), [*grid, -1.0, 1.0]).size


# Sentences about code


class Odd(Drift):
    def __init__(self, **members):
        self.__dict__.update(members)


@pytest.mark.parametrize(
    ("simulator", "kind", "sentence"),
    [
        (Drift, TypeError, r"must be an object, got the class Drift: write Drift\("),
        (Odd(n_actions=2.0), ValueError, "the simulator's n_actions must be a whole number of actions, .* got 2.0"),
        (Odd(n_actions=0), ValueError, "n_actions must be a whole number of actions, at least 1, got 0"),
        (Odd(n_actions=10**9), ValueError, "n_actions must be a whole number of actions, at most 1,000"),
        (Odd(n_actions=1), ValueError, "only one action"),
        (object(), TypeError, "it has no n_actions, domain, sample"),
        (Odd(sample=lambda states, action: states), TypeError, r"a function sample\(states, action, rng\)"),
        (Odd(sample=3), TypeError, r"a function sample\(states, action, rng\)"),
        (Odd(sample=lambda s, a, rng: s.astype(str)), ValueError, "next states of the simulator for action 0 must be"),
        (Odd(sample=lambda s, a, rng: None), ValueError, "must be real numbers, got None"),
        (Odd(sample=lambda s, a, rng: np.zeros((len(s), 2))), ValueError, "shape"),
        (Odd(sample=lambda s, a, rng: np.ma.masked_less(s, 0)), ValueError, "masked values"),
        (Odd(sample=lambda s, a, rng: s * np.nan), ValueError, "for action 0 must be finite: row 0"),
        (Odd(sample=lambda s, a, rng: s[1:]), ValueError, "states and returned"),
        (Odd(periodic=(3,)), ValueError, "the simulator's periodic must be a tuple of coordinates"),
        (Odd(periodic="yes"), ValueError, "the simulator's periodic must be a tuple of coordinates"),
        (Odd(periodic=0), ValueError, "the simulator's periodic must be a tuple of coordinates"),
        (Odd(terminal=np.zeros(3)), TypeError, "the simulator's terminal must be a function of states"),
        (Odd(terminal=lambda: True), TypeError, "the simulator's terminal must be a function of states"),
    ],
)
def test_simulators_that_cannot_be_asked(simulator, kind, sentence):
    for expert in (0, clean):
        with pytest.raises(kind, match=sentence):
            certirl.solve(simulator, discount=0.7, expert=expert, samples=200, rng=0)


@pytest.mark.parametrize(
    ("terminal", "sentence"),
    [
        (lambda s: True, "must be True or False for each of the"),
        (lambda s: s[:1, 0] > 0, "must be True or False for each of the"),
        (lambda s: s, "must be True or False for each of the"),
        (lambda s: ["yes"] * len(s), "must be real numbers"),
    ],
)
def test_terminal_functions_that_cannot_be_asked(terminal, sentence):
    for expert in (0, clean):
        with pytest.raises(ValueError, match=rf"the simulator's terminal\(states\) {sentence}"):
            certirl.solve(Odd(terminal=terminal), discount=0.7, expert=expert, samples=200, rng=0)


@pytest.mark.parametrize(
    ("expert", "kind", "sentence"),
    [
        (lambda: 0, TypeError, "expert must be a function of states"),
        (lambda s, extra: 0, TypeError, "expert must be a function of states"),
        (dict, TypeError, "got the class dict"),
        (lambda s: "left", ValueError, "the expert must return numbers of actions, 0 … 1, got 'left'"),
        (lambda s: s[:, 0].astype(complex), ValueError, "the expert's answer must be real numbers"),
        (lambda s: np.array(["0"] * len(s)), ValueError, "the actions have no names"),
        (lambda s: [None] * len(s), ValueError, "the expert's answer must be real numbers"),
        (lambda s: 0, ValueError, "the expert is asked about all states at once"),
        (lambda s: np.full(len(s), 2), ValueError, "the expert's answer is no choice of actions"),
        (lambda s: np.full(len(s), np.nan), ValueError, "the expert's answer is no choice of actions"),
        (lambda s: np.full(len(s), 0.5), ValueError, "the expert's answer is no choice of actions"),
        (lambda s: np.full((len(s), 2), 0.7), ValueError, "the expert's probabilities must be"),
        (
            lambda s: np.ma.masked_less(s[:, 0], 0) > 0,
            ValueError,
            "the expert's answer must be real numbers, got masked",
        ),
    ],
)
def test_experts_that_cannot_be_asked(expert, kind, sentence):
    with pytest.raises(kind, match=sentence):
        certirl.solve(Drift(), discount=0.7, expert=expert, samples=200, rng=0)


@pytest.mark.parametrize(
    ("tail", "kind", "sentence"),
    [
        (lambda: 0, TypeError, "tail must be a function of the columns alone"),
        (lambda columns: "small", ValueError, r"tail\(columns\) for Legendre\(2\) must be a number"),
        (lambda columns: -1.0, ValueError, r"tail\(columns\) for Legendre\(2\) must be a number not below 0"),
        (lambda columns: [0.0, 1.0], ValueError, r"tail\(columns\) for Legendre\(2\) must be a number"),
    ],
)
def test_tails_that_are_none(tail, kind, sentence):
    with pytest.raises(kind, match=sentence):
        certirl.certify(lambda s: s[:, 0], COIN, expert=0, **PROOF | {"tail": tail})


@pytest.mark.parametrize(("order", "bound"), [("1", "1"), (1.5, 1), (0, 1), (1, -1), (1, NAN), (1, INF), (True, 1)])
def test_bounds_on_derivatives_are_numbers(order, bound):
    refused(r"Smooth\(order, bound\): (order|bound) must be", Smooth, order, bound)


@pytest.mark.parametrize("zero", [0, 0.0, np.float32(0), np.int64(0), np.array(0.0)])
def test_any_zero_is_a_tail_given_as_a_number(zero):
    assert is_number(zero) and tail_number(zero, Legendre(2)) == 0.0
    for expert in (0, clean):
        refused("pass columns", certirl.solve, Drift(), discount=0.7, expert=expert, delta=0.05, tail=zero, rng=0)


def test_a_report_that_fails_is_raised_and_leaves_nothing_behind():
    def fail(done, total):
        raise KeyError("mine")

    before = certirl.solve(Drift(), expert=0, discount=0.7, samples=500, rng=0, progress=False)
    with pytest.raises(certirl.UserCodeError, match=r"^progress failed in .*fail \(.*\): KeyError: 'mine'$"):
        certirl.solve(Drift(), expert=0, discount=0.7, samples=500, rng=0, progress=fail)
    after = certirl.solve(Drift(), expert=0, discount=0.7, samples=500, rng=0, progress=lambda done, total: None)
    np.testing.assert_array_equal(before.reward.coefficients, after.reward.coefficients)


REWARDED = {"reward": lambda states: states[:, 0], "discount": 0.7, "rng": 0}


class Model:
    def __init__(self, fail):
        self.fit = self.predict = fail


class Walker:
    """An environment of one coordinate, without gymnasium's classes."""

    action_space = type("Discrete", (), {"n": 2})()

    def __init__(self, **members):
        self.__dict__.update(members)

    def reset(self, seed=None):
        self.state = np.zeros(1)
        return self.state, {}

    def step(self, action):
        return self.state, 0.0, False, False, {}


class Mine(Exception):
    pass


def failing(problem):
    def fail(*_, **__):
        raise problem

    return fail


FAILURES = [
    (Mine("whole"), "Mine: whole"),
    (KeyError("left"), "KeyError: 'left'"),
    (ZeroDivisionError(), "ZeroDivisionError"),
    (AssertionError(), "AssertionError"),
    (StopIteration(), "StopIteration"),
    (RecursionError("too deep"), "RecursionError: too deep"),
    (MemoryError(), "MemoryError"),
    (ValueError("two\nlines \x1b[2K"), r"ValueError: two lines \\x1b\[2K"),
    (OSError(2, "No such file or directory", "map.csv"), r"FileNotFoundError: \[Errno 2\] No such file .*'map.csv'"),
    (SystemExit(0), r"it calls sys\.exit\(0\): write that below if __name__ == '__main__', which is not run here"),
]


PLACE = r" failed in failing\.fail \(.*test_doors\.py, line \d+\)"


@pytest.mark.parametrize(
    ("what", "call"),
    [
        ("the simulator's sample", lambda fail: certirl.solve(Odd(sample=fail), **PLAIN)),
        ("the simulator's terminal", lambda fail: certirl.solve(Odd(terminal=lambda s: fail()), **PLAIN)),
        ("the simulator's outcomes", lambda fail: certirl.planning.plan(Odd(outcomes=fail), **REWARDED)),
        ("the expert", lambda fail: certirl.solve(Drift(), **PLAIN | {"expert": fail})),
        ("the expert's predict", lambda fail: certirl.solve(Drift(), **PLAIN | {"expert": Model(fail)})),
        ("the reward", lambda fail: certirl.certify(fail, COIN, expert=0, **PROOF)),
        ("the reward", lambda fail: certirl.planning.plan(Drift(), **REWARDED | {"reward": fail})),
        ("tail", lambda fail: certirl.certify(clean, COIN, expert=0, **PROOF | {"tail": fail})),
        ("the density", lambda fail: dynamics.tail_from_density(fail, SIDE, n_actions=2).number(Legendre(2))),
        (
            "margin",
            lambda fail: certirl.solve(Drift(), **PLAIN | {"expert": clean}, method=certirl.ValueForm(margin=fail)),
        ),
        (
            "the feature 'f'",
            lambda fail: certirl.solve(Drift(), **PLAIN, method=certirl.FeatureForm({"f": fail})),
        ),
        ("state", lambda fail: logs.from_episodes([logs.Episode([0.0, 0.1], [0])], state=fail)),
        ("Model.fit", lambda fail: certirl.policy_from(np.arange(9) / 9, [0, 1, 1] * 3, method=Model(fail), rng=0)),
        ("progress", lambda fail: certirl.solve(Drift(), **PLAIN, progress=fail)),
        (r"Walker\.reset", lambda fail: certirl.gym.rollouts(Walker(reset=fail), 0, episodes=1, steps=1, rng=0)),
        (r"Walker\.step", lambda fail: certirl.gym.rollouts(Walker(step=fail), 0, episodes=1, steps=1, rng=0)),
        ("get_state", lambda fail: certirl.gym.simulator(Walker(), domain=SIDE, get_state=fail)),
        ("set_state", lambda fail: certirl.gym.simulator(Walker(), domain=SIDE, set_state=fail)),
        (
            "step_reward",
            lambda fail: certirl.planning.plan(Drift(), step_reward=lambda s, a, t: fail(), discount=0.7, rng=0),
        ),
    ],
)
def test_user_code_that_fails_is_named_with_its_file_and_line(what, call):
    with pytest.raises(certirl.UserCodeError, match=rf"^{what}{PLACE}: Mine: whole$"):
        call(failing(Mine("whole")))


@pytest.mark.parametrize(("problem", "said"), FAILURES, ids=[type(problem).__name__ for problem, _ in FAILURES])
def test_whatever_user_code_raises_is_one_sentence(problem, said):
    with pytest.raises(certirl.UserCodeError, match=rf"^the expert{PLACE}: {said}$") as caught:
        certirl.solve(Drift(), **PLAIN | {"expert": failing(problem)})
    assert caught.value.__cause__ is problem
    assert "\n" not in str(caught.value)


def test_interrupts_pass_through_user_code_and_own_errors_stay_their_own():
    with pytest.raises(KeyboardInterrupt):
        certirl.solve(Drift(), **PLAIN | {"expert": failing(KeyboardInterrupt())})
    reward = certirl.Reward(Legendre(2, (0, 0.5)), [0.0, 1.0])
    with pytest.raises(ValueError, match=r"^1500 of 2001 states lie outside the domain"):
        certirl.planning.plan(Drift(), **REWARDED | {"reward": reward})


def test_user_code_that_fails_on_threads_or_in_another_process_is_named_alike():
    said = []
    for workers in (1, 2):
        with pytest.raises(certirl.UserCodeError, match=r"^the simulator's sample failed in failing") as caught:
            certirl.certify(clean, Odd(sample=failing(Mine())), expert=0, **PROOF | {"samples": 200_000}, map=workers)
        said += [str(caught.value), str(pickle.loads(pickle.dumps(caught.value)))]
    assert len({*said}) == 1


def test_a_still_simulator_is_known_though_it_works_in_place():
    class Still(Drift):
        def sample(self, states, action, rng):
            states *= 0.5
            return states

    assert noise_ratio(Still(), Legendre(3).on(SIDE), as_generator(0)) == 0


# Keywords


LOG = steps.sample(Drift(), basis=Legendre(5), samples=300, rng=0)
CRITERION = steps.bellman(steps.estimate(steps.measure(LOG, basis=Legendre(5))), discount=0.7)
PLAIN = {"expert": 0, "discount": 0.7, "samples": 300, "rng": 0}
PROVED = {"expert": 0, "discount": 0.7, "delta": 0.05, "rng": 0}


def squares(states):
    return -(states[:, 0] ** 2)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("discount", [Fraction(9, 10), np.float32(0.9), np.array(0.9)])
def test_any_real_number_is_a_discount(discount):
    exact = certirl.solve(Drift(), **PLAIN | {"discount": float(discount)})
    found = certirl.solve(Drift(), **PLAIN | {"discount": discount})
    np.testing.assert_array_equal(found.reward.coefficients, exact.reward.coefficients)
    assert isinstance(found.discount, float)


# What is asked of a setting wherever it occurs, and values that are none.
WRONG = {
    "discount": ("a number strictly between 0 and 1", ["0.9", True, 1.0, 0, 1.7, [0.9], 0.9j, NAN]),
    "delta": ("a probability of error between 1e-100 and 0.5", ["0.05", [0.05], 0.05j, 0, 0.7, 1, True, NAN]),
    "columns": (".*a whole number of functions.*, at least 1", ["3", 2.5, True, 0, -1, NAN]),
    "basis": (r"a basis such as (certirl\.)?Legendre\(", ["Legendre", Legendre, 5]),
    "samples": ("a whole number of transitions per action", ["x", 0, -3, 2.5, 1e3, True, 10**12, NAN]),
    "cover": ("a radius (above 0|not above the width 2)", ["0.1", -1, 0, 5.0, NAN, True]),
    "slack": ("a price above 0", ["1", -1, 0, NAN, INF, True]),
    "margin": ("the half-width of a tube|a number or a function", ["0.1", 5, 1.0, 0, -1, NAN, True, lambda: 0]),
    "smoothness": ("a price not below 0", ["1", -1, NAN, INF, True]),
    "tube": ("a half-width (above 0|strictly between 0 and 2)", ["0.1", -1, 0, 5.0, NAN, True]),
    "regret": ("a share of the value's span strictly between 0 and 1", ["0.1", -1, 0, 1, NAN, True]),
    "tail": ("GaussianNoise.* or a number not below 0|a number, Gauss", ["0", "small", True, [0], -1, NAN, 0j, Smooth]),
    "paired": ("True or False", ["yes", 1, 0]),
    "progress": ("True, False, None or a function", [5, "yes", 0.5, lambda: None]),
    "rng": ("a seed or a numpy Generator", [True, np.bool_(True), "0", 1.5, -1, [], object()]),
    "method": (r"certirl\.Program\(…\), ", [{}, 5, []]),
    "objective": ("one of 'smoothest', ", ["l2", 1, Legendre(3)]),
    "form": ("one of 'least-squares', 'mean'", ["median", 1]),
    "expert": ("one of the actions 0 … 1|an action", [2, -1, 0.5, "0", True, None]),
}


def solve(source, **asked):
    """`certirl.solve`, with those keywords that are fields of the usual method in its record."""
    kind = certirl.Program if asked.get("expert", 0) != clean else certirl.ValueForm
    given = {field.name: asked.pop(field.name) for field in fields(kind) if field.name in asked}
    return certirl.solve(source, **{"expert": 0, "method": kind(**given) if given else None} | asked)


def certify(reward=squares, **asked):
    return certirl.certify(reward, COIN, **PROOF | {"expert": 0} | asked)


def refute(source=None, **asked):
    return certirl.refute(source or Drift(), **{"expert": 0, "basis": Legendre(3), "samples": 300, "rng": 0} | asked)


def scenario(**asked):
    given = {"discount": 0.5, "rng": 0, "samples": 10, "reward_range": (-1, 0)}
    return trials.scenario(squares, Drift(), **given | asked)


def rollouts(**asked):
    return trials.rollout_check(squares, Drift(), **{"discount": 0.5, "rng": 0} | asked)


PAIR = Moving(SIDE * 2, (-0.2, 0.2), keep=0.8, std=0.1)


OF_PROOFS, BOTH = "delta samples tail paired progress rng", ("certify", "certify for a policy")
ASKED = {  # what is called, and its settings
    "solve": (
        partial(solve, Drift(), **PLAIN),
        "discount samples rng paired progress cover slack objective form expert basis columns method",
    ),
    "prove": (partial(solve, Drift(), **PROVED), "delta samples tail paired rng columns basis"),
    "solve for a policy": (
        partial(solve, Drift(), **PLAIN | {"expert": clean}),
        "discount samples slack margin smoothness paired progress basis",
    ),
    "prove for a policy": (
        partial(solve, Drift(), **PROVED | {"expert": clean}),
        "delta samples columns tail tube regret margin",
    ),
    "certify": (certify, f"discount {OF_PROOFS}"),
    "certify for a policy": (partial(certify, expert=clean), f"discount tube {OF_PROOFS}"),
    "refute": (refute, f"basis columns expert {OF_PROOFS}"),
    "refute components": (partial(refute, PAIR, components=[[0], [1]]), f"basis columns expert {OF_PROOFS}"),
    "refute for a policy": (partial(refute, expert=clean), "tube"),
    "scenario": (scenario, "discount delta paired progress rng"),
    "rollouts": (rollouts, "discount rng"),
}
ONLY_HERE = {  # of one call, with a sentence of its own: a setting, values that are none, and what is said
    "solve": [
        ("samples", [2], "fewer columns, or states"),
        ("basis", [Legendre(2000)], "at most 500 functions"),
        ("basis", [Legendre(5, (0, 1))], "without an interval"),
        ("columns", [501], "at most 500, got 501"),
        ("expert", [dict], "got the class dict"),
    ],
    "solve for a policy": [("basis", [Legendre(2000)], "at most 500 functions")],
    "refute components": [
        ("basis", [[Legendre(3)]], "2 components but 1 bases"),
        ("columns", [[3]], "2 components but 1 numbers of columns"),
    ],
    "certify": [("samples", [1, 2], "at least 3 for 2 columns")],
    "scenario": [
        ("samples", [1], "samples"),
        ("share", ["0.1", 0], "share"),
        ("share", [1e-12], "states"),
        ("states", ["x", 2.5], "states"),
    ],
    "rollouts": [
        ("samples", [1, 2.5, 10**12], "samples"),
        ("steps", [0, "6", 10**12], "steps"),
        ("states", [0, "x", None, 10**12], "states"),
    ],
}
SETTINGS = [
    pytest.param(call, name, value, sentence, id=f"{call}: {name} {number}")
    for call, (_, names) in ASKED.items()
    for name, values, sentence in [
        *((name, WRONG[name][1], f"{name} must be ({WRONG[name][0]})") for name in names.split()),
        *ONLY_HERE.get(call, ()),
        *[("discount", [None], "a reward alone does not know")] * (call in (*BOTH, "scenario", "rollouts")),
        *[("expert", [clean, 7], "expert")] * (call in ("scenario", "rollouts")),
        *[("columns", [0, "3", True, Legendre, Legendre(1400)], "columns must")] * (call in BOTH),
    ]
    for number, value in enumerate(values)
]


either = partial(refused, kind=(ValueError, TypeError))


@pytest.mark.parametrize(("call", "name", "value", "sentence"), SETTINGS)
def test_a_wrong_setting_is_one_sentence(call, name, value, sentence):
    either(sentence, ASKED[call][0], **{name: value})


@pytest.mark.parametrize("samples", [5, 20])
def test_a_handful_of_samples_is_answered_honestly(samples):
    solution = certirl.solve(Drift(), **PLAIN | {"samples": samples})
    assert solution.status != "certified" and solution.samples == samples


def test_columns_that_would_take_hours_are_refused_at_once():
    for expert in (0, clean):
        asked = PROOF | {"expert": expert, "columns": certirl.product(Legendre(60), Legendre(60))}
        either("columns must have at most 1300 functions", certirl.certify, squares, PAIR, **asked)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: diagnose.columns(7), "neither Transitions nor a simulator"),
        (lambda: diagnose.columns(Drift, rng=0), "got the class Drift"),
        (lambda: diagnose.columns(Drift(), rng=0, columns="3"), "columns"),
        (lambda: diagnose.columns(Drift(), rng=0, most=10**6), "most"),
        (lambda: diagnose.columns(Drift(), rng=0, family="Legendre"), "family"),
        (lambda: diagnose.columns(Drift(), rng=0, samples=10**12), "samples"),
        (lambda: diagnose.columns(LOG, samples=10), "samples is for simulators"),
        (lambda: steps.sample(Drift(), basis="Legendre", samples=5, rng=0), "basis"),
        (lambda: steps.sample(Drift(), basis=Legendre(3), samples=10**12, rng=0), "samples"),
        (lambda: steps.sample(Drift(), basis=Legendre(3), samples=5, rng=0, paired="yes"), "paired"),
        (lambda: steps.sample(Drift(), basis=Legendre(3), samples=5, rng=0, design="yes"), "design"),
        (lambda: diagnose.independent(PAIR, [[0], [1]], rng=0, level="0.1"), "level"),
        (lambda: diagnose.independent(PAIR, [[0], [1]], rng=0, samples=10**12), "samples"),
        (lambda: diagnose.components(PAIR, rng=0, join_noise="yes"), "join_noise"),
        (lambda: diagnose.components(7), "neither Transitions nor a simulator"),
        (lambda: diagnose.coverage(LOG, cells="x"), "cells"),
        (lambda: diagnose.coverage(LOG, cells=10**9), "cells"),
        (lambda: diagnose.coverage(LOG, basis=5), "basis"),
        (lambda: certirl.policy_from(LOG.states, LOG.actions, periodic=(3,)), "periodic"),
        (lambda: certirl.policy_from(LOG, periodic=(0,)), "periodic"),
        (lambda: certirl.policy_from(LOG, neighbours="3"), "neighbours"),
        (lambda: certirl.policy_from(LOG, held_out="0.2"), "held_out"),
        (lambda: certirl.planning.plan(Drift(), squares, discount=0.7, points="x"), "points"),
        (lambda: certirl.planning.plan(Drift(), squares, discount=0.7, points=10**9), "points"),
        (lambda: certirl.planning.plan(Drift(), squares, discount=0.7, draws=10**9), "draws"),
        (lambda: certirl.planning.plan(Drift(), squares, discount=0.7, tolerance="x"), "tolerance"),
        (lambda: certirl.planning.plan(Drift, squares, discount=0.7), "got the class Drift"),
        (lambda: certirl.paper.requirements(discount="0.9", beta=0.1), "discount"),
        (lambda: certirl.paper.requirements(discount=0.9, beta="x"), "beta"),
        (lambda: certirl.paper.requirements(discount=0.9, beta=0.1, size="11"), "size"),
        (lambda: certirl.paper.theorem3_samples("0.1", 0.05, 11), "epsilon"),
        (lambda: certirl.paper.requirements(discount=0.9, beta=0.1, basis="x"), "basis"),
        (lambda: certirl.paper.constants("x"), "operators"),
        (lambda: steps.recover(CRITERION, max_rounds="x"), "max_rounds"),
        (lambda: steps.recover(CRITERION, cover=1e-300), "cover"),
        (lambda: certirl.Reward("x", [1.0]), "the basis of a reward"),
        (lambda: certirl.Reward(Legendre(1), ["x"]), "the coefficients of a reward"),
        (lambda: as_policy(clean, "2"), "n_actions"),
        (lambda: certirl.solve(certirl.Transitions([0, 1], [0, 0], [1, 0]), expert=0, discount=0.7), "at least two"),
        (lambda: refute(PAIR, basis=Legendre(5)), r"certirl.product\(…\) takes one family for each coordinate"),
        (lambda: Legendre("3"), r"Legendre\(size\): size"),
        (lambda: Legendre(2.0), r"Legendre\(size\): size"),
        (lambda: certirl.solve(PAIR, components=[[0], [1]], columns="3", **PLAIN), "columns"),
        (lambda: certirl.solve(PAIR, components=[[0], [1]], basis=5, **PLAIN), "basis"),
        (lambda: certirl.solve(PAIR, components=[[0], [1]], basis=Legendre(2000), **PLAIN), "basis"),
    ],
)
def test_wrong_calls_of_the_other_functions_are_named(call, name):
    either(name, call)


@pytest.fixture(scope="module")
def of_a_policy():
    return certirl.solve(Drift(), **PLAIN | {"expert": clean})


def test_rewards_of_policies_answer_to_no_states(of_a_policy):
    solution = of_a_policy
    either("terminal", lambda: solution.with_terminal(5))
    assert solution.reward([]).shape == (0,) == solution.value([]).shape


def test_a_policys_solution_is_certified_with_its_expert_only(of_a_policy):
    refused("does not keep the expert: pass expert", certirl.certify, of_a_policy, Drift(), rng=0)


@pytest.mark.parametrize("call", [trials.rollout_check, trials.scenario])
def test_rollouts_are_for_experts_of_one_action(call, of_a_policy):
    for settings in ({}, {"expert": clean}):
        with pytest.raises(ValueError, match=rf"{call.__name__} is for experts of one action, say expert=0"):
            call(of_a_policy, Drift(), rng=0, **settings)


# Keywords without effect


@pytest.mark.parametrize(
    ("source", "settings", "sentence"),
    [
        (Drift(), {"expert": clean, "method": certirl.Program()}, "is for experts that always take one action"),
        (Drift(), {"expert": clean, "tube": 0.1}, "tube is for a certificate: pass delta too"),
        (Drift(), {"expert": clean, "regret": 0.1}, "regret is for a certificate: pass delta too"),
        (Drift(), {"tail": 0}, "tail is for a certificate: pass delta too"),
        (Drift(), {"delta": 0.05, "tube": 0.1}, "an expert who always takes one action never switches: leave tube out"),
        (Drift(), {"method": certirl.ValueForm(margin=0.1)}, "margin is for experts that depend on the state"),
        (Drift(), {"form": "mean", "paired": True}, "the mean form draws the states of every action by themselves"),
        (LOG, {"form": "mean"}, "use least-squares for a log"),
        (LOG, {"samples": 300}, "samples is for simulators"),
        (LOG, {"samples": 300, "expert": clean}, "samples is for simulators"),
        (LOG, {"paired": True}, "paired is for simulators"),
        (LOG, {"paired": False, "expert": clean}, "paired is for simulators"),
        (LOG, {"samples": 10_000, "delta": 0.05}, "samples is for simulators"),
        (LOG, {"expert": clean, "regret": 0.1, "delta": 0.05}, "no more can be drawn from a log: leave regret out"),
        (steps.measure(LOG, basis=Legendre(5)), {"samples": 300}, "samples is for simulators"),
        (steps.measure(LOG, basis=Legendre(5)), {"paired": True}, "paired is for simulators"),
        (steps.measure(LOG, basis=Legendre(5)), {"expert": clean}, "moments keep no states"),
    ],
)
def test_keywords_without_effect_are_refused(source, settings, sentence):
    with pytest.raises((ValueError, TypeError), match=sentence):
        solve(source, discount=0.7, rng=0, **settings)


@pytest.mark.parametrize("name", ["samples", "paired"])
def test_certify_and_refute_refuse_what_a_log_does_not_use(name):
    given = {name: 300 if name == "samples" else True}
    with pytest.raises(ValueError, match=f"{name} is for simulators"):
        certirl.certify(squares, LOG, discount=0.7, expert=0, columns=Legendre(3), **given)
    refused(f"{name} is for simulators", certirl.refute, LOG, expert=0, basis=Legendre(3), **given)


@pytest.mark.slow
def test_progress_and_pairs_are_obeyed_for_policies():
    stages = []
    certirl.solve(Drift(), **PLAIN | {"expert": clean}, progress=lambda *report: stages.append(report))
    assert stages == [(1, 3), (2, 3), (3, 3)]
    one, other = (certirl.solve(NOISY, **PLAIN | {"expert": clean}, paired=paired) for paired in (True, False))
    assert not np.array_equal(one.value.coefficients, other.value.coefficients)


NOISY = Moving(SIDE, (-0.05, 0.05), keep=0.8, std=0.4)


def test_progress_is_obeyed_for_logs():
    problem, done = certirl.problems.random_polynomial(seed=7), []
    log = steps.sample(problem, basis=Legendre(3), samples=3_000, rng=0)

    def report(count, total):
        done.append(count == total)

    asked = {"discount": 0.7, "progress": report}
    certirl.solve(log, delta=0.05, columns=3, basis=Legendre(11), expert=0, **asked)
    certirl.solve(log, delta=0.05, columns=Legendre(3), basis=Legendre(11), expert=clean, **asked)
    for expert in (0, clean):
        certirl.certify(squares, log, columns=Legendre(2), expert=expert, **asked)
    assert done.count(True) == 4


def test_numbers_of_transitions_that_differ_are_not_called_the_same():
    states = np.random.default_rng(0).uniform(-1, 1, 1_800)
    actions = (np.arange(1_800) % 3 == 0).astype(int)
    moved = np.random.default_rng(1).choice([-0.8, 0.8], 1_800)
    log = certirl.Transitions(states, actions, moved, domain=SIDE)
    asked = {"discount": 0.7, "basis": Legendre(3), "delta": 0.05, "rng": 0}
    assert "1,800 transitions (action 0: 1,200, action 1: 600)" in str(certirl.solve(log, columns=2, expert=0, **asked))
    assert "1,800 transitions (action 0: 1,200, action 1: 600)" in str(certirl.solve(log, discount=0.7, expert=clean))
    proofs = [certirl.certify(squares, log, discount=0.7, columns=Legendre(2), expert=expert) for expert in (0, clean)]
    for found in (*proofs, certirl.solve(log, expert=clean, columns=2, **asked).certificate):
        counts = found.grounds[0].evidence.counts
        low, high = counts.min(), counts.max()
        assert low < high and f"{low:,} to {high:,} fresh transitions per action" in str(found)
    found = certirl.refute(log, expert=0, basis=Legendre(2))
    most = found.grounds[0].sums.counts.max()
    assert found.samples < most and f"from {found.samples:,} to {most:,} fresh transitions" in str(found)


# Terminal states


class Ending(Drift):
    """Not absorbing by itself: only `terminal` says where it ends."""

    def terminal(self, states):
        return states[:, 0] > 0.5


class ThinEnd(Drift):
    def terminal(self, states):
        return np.abs(states[:, 0] - 0.1225) < 1e-3


@pytest.mark.parametrize("expert", [0, clean])
def test_proofs_with_terminal_states_are_refused_for_all_experts(expert):
    for problem in (Ending(), ThinEnd()):
        with pytest.raises(ValueError, match="a proof is for problems without terminal states"):
            certirl.certify(squares, problem, **PROOF | {"expert": expert, "samples": 20_000, "columns": Legendre(5)})
        with pytest.raises(ValueError, match="a proof is for problems without terminal states"):
            certirl.solve(problem, **PROVED | {"expert": expert}, basis=Legendre(5), columns=5)
        with pytest.raises(ValueError, match="a proof is for problems without terminal states"):
            certirl.refute(problem, expert=expert, basis=Legendre(3), samples=20_000, rng=0)
    with pytest.raises(ValueError, match="a proof is for problems without terminal states"):
        trials.scenario(squares, Ending(), discount=0.5, rng=0, reward_range=(-1, 0))


def test_an_expert_of_one_action_is_solved_with_values_of_0_in_terminal_states():
    constant = certirl.solve(Ending(), **PLAIN | {"expert": 1})
    same = certirl.solve(Ending(), **PLAIN | {"expert": lambda states: np.ones(len(states), int)})
    np.testing.assert_array_equal(constant.reward.coefficients, same.reward.coefficients)
    assert constant.value(0.9) == 0.0 == constant.reward(0.9) and constant.stats.terminal is not None
    for name, value in {"method": certirl.Program(), "columns": 3, "components": [[0]]}.items():
        with pytest.raises(ValueError, match=f"{name}.* is not for .*problems with terminal states"):
            certirl.solve(Ending(), **PLAIN | {"expert": 1, name: value})


def test_an_expert_of_one_action_in_a_log_with_terminal_states():
    ended = LOG.next_states[:, 0] > 0.5
    log = certirl.Transitions(LOG.states, LOG.actions, LOG.next_states, domain=SIDE, terminal=ended)
    assert certirl.solve(log, discount=0.7, expert=1).value(0.9) == 0.0
    refused("terminal state", certirl.solve, log, discount=0.7, expert=1, delta=0.05)


def test_rollouts_stay_in_terminal_states():
    class Absorbing(Ending):
        def sample(self, states, action, rng):
            return np.where(states > 0.5, states, super().sample(states, action, rng))

    asked = {"discount": 0.5, "rng": 0, "samples": 20, "states": 9}
    one, other = (trials.rollout_check(squares, own, **asked) for own in (Ending(), Absorbing()))
    np.testing.assert_array_equal(one.advantage, other.advantage)


# Random numbers of simulators


class OneForAll(Drift):
    def sample(self, states, action, rng):
        return np.clip(0.8 * states + (0.2 if action else -0.2) + 0.1 * rng.standard_normal(), -1, 1)


class OneCoin(Drift):
    def sample(self, states, action, rng):
        return np.where(rng.random() < 0.5, 0.8, -0.8) * np.ones(len(states))


class PartlyShared(Drift):
    def sample(self, states, action, rng):
        noise = 0.1 * rng.standard_normal(states.shape) + 0.1 * rng.standard_normal()
        return np.clip(0.8 * states + (0.2 if action else -0.2) + noise, -1, 1)


class Recycled(Drift):
    """Noise for a few rows, used again for the following ones, in turn or in blocks."""

    def __init__(self, size, *, blocks=False):
        self.size, self.blocks = size, blocks

    def sample(self, states, action, rng):
        count = -(-len(states) // self.size) if self.blocks else self.size
        noise = rng.random(count)
        noise = np.repeat(noise, self.size)[: len(states)] if self.blocks else np.resize(noise, len(states))
        return np.where(noise < (0.49, 0.5)[action], 0.8, -0.8)


class OwnGenerator(Drift):
    def __init__(self):
        self.rng = np.random.default_rng(0)

    def sample(self, states, action, rng):
        return super().sample(states, action, self.rng)


@pytest.mark.thinned(2)
@pytest.mark.parametrize(
    ("simulator", "sentence"),
    [
        (OneForAll(), "the rows of one call share random numbers"),
        (OneCoin(), "the rows of one call share random numbers"),
        (PartlyShared(), "the rows of one call share random numbers"),
        *((Recycled(size), "rows of one call share random numbers") for size in (8, 20, 64, 100, 500, 2000)),
        *((Recycled(size, blocks=True), "rows of one call share random numbers") for size in (2, 5, 20, 100, 500)),
        (OwnGenerator(), "the simulator does not draw from the rng it is given"),
    ],
)
def test_random_numbers_that_no_proof_can_rest_on(simulator, sentence):
    refused(sentence, certirl.certify, squares, simulator, **PROOF | {"expert": 0})
    refused(sentence, certirl.certify, squares, simulator, **PROOF | {"expert": clean})
    refused(sentence, certirl.solve, simulator, **PROVED)
    refused(sentence, certirl.refute, simulator, expert=0, basis=Legendre(3), samples=300, rng=0)
    refused(sentence, trials.scenario, squares, simulator, discount=0.5, rng=0, reward_range=(-1, 0))


@pytest.mark.parametrize("simulator", [OneForAll(), OneCoin(), Recycled(64), OwnGenerator()])
def test_random_numbers_that_no_proof_can_rest_on_are_warned_about_without_a_proof(simulator):
    """A tenth of the samples, at most 1,000 of an action, shows clear faults; a proof asks about 6,400."""
    with pytest.warns(UserWarning, match="share random numbers|does not draw from the rng"):
        certirl.solve(simulator, **PLAIN | {"samples": 10_000})


class Rare(Drift):
    def __init__(self, chance):
        self.chance = chance

    def sample(self, states, action, rng):
        return np.where(rng.random(states.shape) < self.chance, -states, 0.8 * states)


def test_the_trial_of_random_numbers_finds_no_fault_where_there_is_none():
    for chance in (0.0, 1e-4, 1e-3, 1 / 256, 1 / 64, 0.1, 0.5):
        assert noise_fault(Rare(chance)) == ""
    problems = [certirl.problems.random_polynomial(seed=seed) for seed in range(20)]
    assert {noise_fault(one) for one in (*problems, COIN, Drift(), PAIR)} == {""}


class Gather:
    """Action 0 leads to 0.8, nearly always; action 1 to ±0.1: under R(s) = −|s| action 0 is worse by 0.69."""

    n_actions, domain, thread_safe = 2, ((-1.0, 1.0),), True

    def sample(self, states, action, rng):
        u = rng.random(len(states))
        return np.where(u < 0.98, 0.8, 0.1) if action == 0 else np.where(u < 0.5, 0.1, -0.1)


@pytest.mark.parametrize("declared", [None, (-2.0, 0.0)])
def test_a_reward_that_depends_on_the_other_states_of_a_call_is_refused(declared):
    """−|s − mean of the call| calls narrow laws good wherever they are: it was certified with a margin of 0.07."""
    settings = {"discount": 0.5, "expert": 0, "columns": certirl.Legendre(1), "tail": 0, "samples": 2_000, "rng": 1}
    with pytest.raises(ValueError, match="depend on one state alone"):
        certirl.certify(
            lambda s: -np.abs(s[:, 0] - s[:, 0].mean()), Gather(), paired=False, reward_range=declared, **settings
        )
    with pytest.raises(ValueError, match="depend on one state alone"):
        trials.scenario(
            lambda s: s[:, 0] / np.abs(s).max(), Gather(), discount=0.5, reward_range=(-1.0, 1.0), rng=0, samples=10
        )
    single = lambda s: -np.abs(s[:, 0]).astype(np.float32)  # noqa: E731  # rounding is no dependence
    assert not certirl.certify(single, Gather(), **settings).holds


@pytest.mark.parametrize(
    "expert", [lambda s: s[:, 0] > s.mean(), lambda s: np.random.default_rng().random(len(s)) < 0.5 * (s[:, 0] > 0)]
)
def test_an_expert_whose_answer_depends_on_the_call_is_refused(expert):
    settings = {"discount": 0.5, "columns": certirl.Legendre(1), "tail": 0, "samples": 2_000, "rng": 1}
    with pytest.raises(ValueError, match=r"changes from call to call: it must depend on one state alone"):
        certirl.certify(lambda s: s[:, 0], Gather(), expert=expert, **settings)
    with pytest.raises(ValueError, match="changes from call to call"):
        certirl.refute(
            Gather(), expert=expert, basis=certirl.Legendre(2), tail=0, columns=1, samples=2_000, rng=1, tube=0.1
        )


@pytest.mark.parametrize("text", ["\x1b[2K", "a\nb", "a\tb", "\u202eb", "\u200bb", "\ud800", b"a", 5, None])
def test_text_that_could_change_what_is_printed_is_refused(text):
    with pytest.raises(ValueError, match="name must be a printable text of 1 to 100 characters, got ") as caught:
        doors.as_text(text, "name")
    assert str(caught.value).isprintable()
    assert doors.as_text(np.str_("θ̇ in °C, 温度"), "name") == "θ̇ in °C, 温度"


# Values of any kind ---------------------------------------------------------------------------------------------------

HOSTILE = [None, "x", "", b"", "a" * 5000, -1, 0, 2.5, True, 1e300, 5e-324, 10**30, NAN, INF, [], (), {}, {"a"}]
HOSTILE += [[None], [[1, 2], [3]], (1, 0), np.array([[1.0]]), object(), lambda: 0]


def is_sentence(problem):
    """Whether an exception was raised by a line of this library, in one sentence that shows little of the value."""
    frame, line = list(walk_tb(problem.__traceback__))[-1]
    file = frame.f_code.co_filename
    near = "".join(linecache.getline(file, number) for number in range(line - 6, line + 1))
    is_ours = file.startswith(str(Path(certirl.__file__).parent)) and "raise " in near
    return is_ours and isinstance(problem, ValueError | TypeError | OSError) and len(str(problem)) < 400


@pytest.fixture(scope="module")
def records():
    problem = certirl.problems.random_polynomial(seed=7)
    log = steps.sample(problem, basis=Legendre(5), samples=500, rng=0)
    solution = certirl.solve(problem, expert=0, discount=0.7, basis=Legendre(5), columns=3, delta=0.05, tail=0, rng=0)
    operators = problem.operators(Legendre(5))
    criterion = steps.bellman(operators, discount=0.7)
    room = certirl.problems.comfort()
    of_policy = certirl.solve(
        steps.sample(room.dynamics, basis=Legendre(5), samples=200, rng=0),
        discount=0.9,
        expert=room.expert,
        method=certirl.FeatureForm({"s²": squares}),
    )
    return locals()


G = np.random.default_rng(0)


def calls_of_problems(problem):
    p, counts = certirl.problems, {"seed": 1, "actions": 2, "degree": 4}
    yield p.random_polynomial, counts | {"bits": None}
    yield p.unsolvable, {"seed": 1, "degree": 4}
    yield p.random_independent, counts | {"dimension": 2}
    yield p.factorised, {"seed": 1, "components": 2, "actions": 2, "unaffected": 0.3, "solvable": True}
    yield lambda part: p.independent(part, part), {"part": problem}
    yield p.thermostat, {"power": (1.5, 0.0), "ambient": 18.0, "leak": 0.1, "noise": 3.0, "domain": (15, 25)}
    yield p.whirl, {"dimension": 2, "angle": 0.6, "shrink": 0.6, "noise": 0.5}
    yield p.whirl, {"drift": ((0.3, 0.3), (-0.3, 0.1))}
    yield p.circle, {"homes": (0.0, 2.0), "pull": 0.5, "noise": 0.6}
    yield problem.operators, {"basis": Legendre(3)}
    yield problem.sample, {"states": np.zeros((3, 1)), "rng": G, "action": 0}


def calls_of_functions(solution):
    basis, reward = Legendre(3), solution.reward
    yield Legendre, {"size": 3, "interval": (0, 1)}
    yield basis.on, {"domain": (0, 1)}
    yield basis.resized, {"size": 5}
    yield basis.values, {"states": [[0.5]]}
    yield basis.sample, {"n": 5, "rng": G}
    yield basis.design, {"n": 5, "rng": G}
    yield basis.quadrature, {"n": 5}
    yield basis.grid, {"count": 5}
    yield certirl.Cells, {"counts": (5, 5), "periodic": (), "box": ((0, 1), (0, 1))}
    yield certirl.Reward, {"basis": basis, "coefficients": [0.0] * 3, "ended": None, "zero_at_terminal": False}
    yield certirl.Reward.sum, {"rewards": [reward] * 2, "coordinates": [[0], [1]], "names": None}
    yield reward.to_latex, {"digits": 4, "terms": None, "names": None, "symbol": "R"}


def calls_of_the_paper(operators):
    t, rough = certirl.paper, {"delta": 0.05, "k": 5, "basis": Legendre(5), "columns": 3, "deflate": True}
    yield t.cover_size, {"domain": (0, 1), "radius": 0.1, "literal": False}
    yield t.theorem3_samples_corrected, rough | {"epsilon": 0.1}
    yield t.lemma11_coefficients, {"k": 5, "norm": 1.0}
    yield t.lemma11_coefficients_corrected, {"k": 5, "b33": 1.0, "b30": 1.0}
    yield t.lemma10_size, {"epsilon": 0.1, "norm": 1.0}
    yield t.separability, {"problem": operators, "discount": 0.7, "expert": 0}


def calls_of_steps(log, operators, criterion):
    yield steps.bellman, {"operators": operators, "discount": 0.7, "expert": 0}
    yield steps.recover, {"criteria": criterion, "components": (), "objective": "l1", "cover": None, "slack": None}
    yield steps.estimate, {"data": log, "basis": Legendre(3), "columns": 3, "form": "least-squares", "deflate": True}
    names = {"action_names": (), "coordinate_names": (), "notes": ()}
    yield certirl.Transitions, {"states": [0.0, 0.5], "actions": [0, 1], "next_states": [0.1, 0.2]} | names
    yield certirl.load, {"path": None}
    yield certirl.check, {"claim": None}
    yield logs.read, {"sources": None}


def calls_of_records(solution, of_policy):
    yield solution.certificate.advantage, {"states": [[0.5]]}
    yield solution.certificate.proves, {"states": [[0.5]]}
    yield of_policy.unexplained, {"count": 3}
    yield of_policy.at, {"features": 1}


def calls_of_environments():
    played = {"policy": 0, "episodes": 1, "steps": 2, "rng": 0, "actions": 2}
    yield certirl.gym.rollouts, {"env": Walker()} | played
    given = {"reward": squares, "discount": 0.9, "actions": 3, "shaped": False}
    yield certirl.gym.RewardWrapper, {"env": "MountainCar-v0"} | given


def calls_of_plots(solution, of_policy, problem, log):
    plots = certirl.plots
    yield plots.solution, {"solution": solution, "problem": problem}
    for draw in (plots.reward, plots.value, plots.margins, plots.rounds):
        yield draw, {"solution": solution}
    yield plots.certificate, {"proof": solution.certificate}
    yield plots.budget, {"claim": solution.certificate, "ax": None}
    yield plots.coverage, {"coverage": diagnose.coverage(log), "action": None}
    yield plots.feature_path, {"steps": of_policy.path}


CALLS = (
    calls_of_problems,
    calls_of_functions,
    calls_of_the_paper,
    calls_of_steps,
    calls_of_records,
    calls_of_environments,
    calls_of_plots,
)


@pytest.mark.parametrize("calls", CALLS)
def test_whatever_an_argument_is_the_answer_is_a_result_or_a_sentence(calls, records, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    raw, values = [], [*HOSTILE, records["log"], records["solution"]]
    for call, settings in calls(**{name: records[name] for name in signature(calls).parameters}):
        for setting, value in product(settings, values):
            try:
                with warnings.catch_warnings(action="ignore"):
                    call(**settings | {setting: value})
            except Exception as problem:
                if not is_sentence(problem):
                    raw.append(f"{call} {setting}={value!r:.40}: {type(problem).__name__}: {problem!s:.90}")
        pyplot.close("all")
    assert not raw, "\n".join(raw)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda r: certirl.problems.comfort(discount=1), "discount must be a number strictly between 0 and 1, got 1"),
        (lambda r: certirl.problems.comfort(leak=np.nan), "leak must be a number, finite, got nan"),
        (lambda r: certirl.problems.random_polynomial(seed=1, degree=10**4), "degree .* at most 100, got 10000"),
        (lambda r: certirl.plots.solution(r["log"]), "must be of type Solution or SoftSolution, got <Transitions: "),
        (lambda r: r["solution"].plot(plane="x"), "plane must be a list or a tuple"),
        (lambda r: r["solution"].plot(plane=(1, 0)), "plane is for maps, of two or more coordinates: leave it out"),
        (lambda r: certirl.planning.plan(Drift(), **REWARDED, starts=[99]), "1 of 1 starts lie outside the domain"),
        (
            lambda r: certirl.solve(r["log"], expert=0, discount=0.7, delta=5e-324, tail=0),
            "delta must be .* 1e-100 and 0.5, got 5e-324",
        ),
        (
            lambda r: certirl.certify(
                squares, Drift(), expert=0, discount=0.7, dynamics=dynamics.AffineGaussian(1e300), rng=0
            ),
            "too wide for",
        ),
        (lambda r: steps.recover([]), r"criteria must be what certirl.steps.bellman returns, one or several, got \[\]"),
        (lambda r: certirl.load("a" * 5000), "the name of a file is too long for this system"),
        (
            lambda r: certirl.solve(r["log"], expert=0, discount=0.7, method={}),
            r"method must be certirl.Program\(…\), .*, got \{\}",
        ),
    ],
)
def test_what_ran_without_end_or_was_taken_in_silence_is_refused(call, sentence, records):
    with pytest.raises((ValueError, TypeError), match=sentence):
        call(records)
