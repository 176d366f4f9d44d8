"""Code and settings of the user: what it receives is its own copy, what it answers is checked, and each error is one
sentence that names the door."""

import numpy as np
import pytest

import certirl
from certirl import Legendre
from certirl.effects import is_deterministic
from certirl.policies import as_policy
from certirl.simulator import as_generator, ask, terminal_of
from certirl.tail import Smooth, is_number, tail_number

SIDE = ((-1.0, 1.0),)


class Coin:
    """The next state is ±0.8, with a chance of (1 ± s)/2: two Legendre functions describe it exactly."""

    n_actions, domain = 2, SIDE

    def sample(self, states, action, rng):
        s = states[:, 0] if action == 0 else -states[:, 0]
        return np.where(rng.random(len(s)) < (1 + s) / 2, 0.8, -0.8)


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


# Copies


def test_an_expert_that_changes_its_states_is_certified_like_one_that_does_not():
    reward = certirl.Reward(Legendre(2).on(SIDE), np.array([0.0, 1.0]))
    found, other = (certirl.certify(reward, Coin(), expert=expert, **PROOF) for expert in (dirty, clean))
    assert found.margin == other.margin and not found.holds


def test_an_expert_that_changes_its_states_is_refuted_and_solved_alike():
    asked = {"basis": Legendre(3), "tail": 0, "samples": 2_000, "rng": 1}
    one, other = (certirl.refute(Coin(), expert=expert, **asked) for expert in (dirty, clean))
    assert (one.kappa, one.error) == (other.kappa, other.error)
    one, other = (certirl.solve(Drift(), expert=expert, discount=0.7, samples=500, rng=1) for expert in (dirty, clean))
    np.testing.assert_array_equal(one.reward.coefficients, other.reward.coefficients)
    log = certirl.sample(Drift(), basis=Legendre(5), samples=500, rng=0)
    one, other = (certirl.solve(log, expert=expert, discount=0.7) for expert in (dirty, clean))
    np.testing.assert_array_equal(one.reward.coefficients, other.reward.coefficients)


def test_a_predicting_model_and_a_margin_that_change_their_states_do_no_harm():
    class Model:
        def predict(self, states):
            return dirty(states), None

    def margin(states):
        states += 1
        return np.ones(len(states))

    def flat(states):
        return np.ones(len(states))

    one = certirl.solve(Drift(), expert=Model(), discount=0.7, samples=500, rng=1, margin=margin)
    other = certirl.solve(Drift(), expert=clean, discount=0.7, samples=500, rng=1, margin=flat)
    np.testing.assert_array_equal(one.reward.coefficients, other.reward.coefficients)


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


@pytest.mark.parametrize("kind", [Greedy, Buffered])
def test_simulators_that_work_in_place_or_reuse_their_answer_give_the_same_numbers(kind):
    for settings in ({"expert": 1, "samples": 2_000}, {"expert": clean, "samples": 500}):
        one, other = (certirl.solve(own, discount=0.7, rng=3, **settings) for own in (kind(), Drift()))
        np.testing.assert_array_equal(one.reward.coefficients, other.reward.coefficients)
    first = certirl.sample(kind(), basis=Legendre(3), samples=50, rng=0, paired=True)
    second = certirl.sample(Drift(), basis=Legendre(3), samples=50, rng=0, paired=True)
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
    first, second = (certirl.sample(Drift(), basis=Legendre(3), samples=5, rng=rng) for _ in range(2))
    assert not np.intersect1d(first.states, second.states).size


def test_a_solution_and_its_certificate_see_different_data_though_both_have_a_generator_of_seed_0():
    seen = []

    class Recorded(Drift):
        def sample(self, states, action, rng):
            seen[-1].append(states.copy())
            return super().sample(states, action, rng)

    proof = {"columns": Legendre(3), "discount": 0.7, "samples": 300, "expert": 0, "tail": 0}
    calls = [
        lambda rng: certirl.solve(Recorded(), discount=0.7, basis=Legendre(3), columns=3, samples=300, rng=rng),
        lambda rng: certirl.certify(lambda s: s[:, 0], Recorded(), rng=rng, **proof),
        lambda rng: certirl.refute(Recorded(), expert=0, basis=Legendre(3), samples=300, rng=rng),
        lambda rng: certirl.rollout_check(lambda s: s[:, 0], Recorded(), discount=0.5, rng=rng, samples=2, steps=2),
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
        (Odd(n_actions=2.0), ValueError, "the simulator's n_actions must be a whole number, at least 1, got 2.0"),
        (Odd(n_actions="2"), ValueError, "the simulator's n_actions must be a whole number"),
        (Odd(n_actions=None), ValueError, "the simulator's n_actions must be a whole number"),
        (Odd(n_actions=2.5), ValueError, "the simulator's n_actions must be a whole number"),
        (Odd(n_actions=float("nan")), ValueError, "the simulator's n_actions must be a whole number"),
        (Odd(n_actions=0), ValueError, "the simulator's n_actions must be a whole number, at least 1, got 0"),
        (Odd(n_actions=-1), ValueError, "the simulator's n_actions must be a whole number, at least 1, got -1"),
        (Odd(n_actions=10**9), ValueError, "the simulator's n_actions must be a whole number, at most 10,000"),
        (Odd(n_actions=1), ValueError, "only one action"),
        (Odd(sample=lambda states, action: states), TypeError, r"a function sample\(states, action, rng\)"),
        (Odd(sample=3), TypeError, r"a function sample\(states, action, rng\)"),
        (Odd(sample=lambda s, a, rng: s.astype(str)), ValueError, "next states of the simulator for action 0 must be"),
        (Odd(sample=lambda s, a, rng: s + 0j), ValueError, "must be real numbers, got an array of complex128"),
        (Odd(sample=lambda s, a, rng: None), ValueError, "must be real numbers, got None"),
        (Odd(sample=lambda s, a, rng: [[0.0], [0.0, 1.0]]), ValueError, "must be an array of real numbers"),
        (Odd(sample=lambda s, a, rng: s > 0), ValueError, "must be real numbers, got an array of bool"),
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
    with pytest.raises(ValueError, match=rf"the simulator's terminal\(states\) {sentence}"):
        certirl.solve(Odd(terminal=terminal), discount=0.7, expert=clean, samples=200, rng=0)


@pytest.mark.parametrize(
    ("expert", "kind", "sentence"),
    [
        (lambda: 0, TypeError, "expert must be a function of states"),
        (lambda s, extra: 0, TypeError, "expert must be a function of states"),
        (dict, TypeError, "got the class dict"),
        (lambda s: "left", ValueError, "the expert's answer must be real numbers, got 'left'"),
        (lambda s: s[:, 0].astype(complex), ValueError, "the expert's answer must be real numbers"),
        (lambda s: np.array(["0"] * len(s)), ValueError, "the expert's answer must be real numbers"),
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
        ("0", ValueError, "tail must be a number, Smooth"),
        ("small", ValueError, "tail must be a number, Smooth"),
        ([0], ValueError, "tail must be a number, Smooth"),
        (True, ValueError, "tail must be a number, Smooth"),
        (-1, ValueError, "not below 0, got -1"),
        (float("nan"), ValueError, "not below 0, got nan"),
        (0j, ValueError, "tail must be a number, Smooth"),
        (Smooth, TypeError, "got the class Smooth"),
        (lambda: 0, TypeError, "tail must be a function of the columns alone"),
        (lambda columns: "small", ValueError, r"tail\(columns\) for Legendre\(2\) must be a number"),
        (lambda columns: -1.0, ValueError, r"tail\(columns\) for Legendre\(2\) must be a number not below 0"),
        (lambda columns: [0.0, 1.0], ValueError, r"tail\(columns\) for Legendre\(2\) must be a number"),
    ],
)
def test_tails_that_are_none(tail, kind, sentence):
    with pytest.raises(kind, match=sentence):
        certirl.certify(lambda s: s[:, 0], Coin(), expert=0, **PROOF | {"tail": tail})


@pytest.mark.parametrize(("order", "bound"), [("1", "1"), (1.5, 1), (0, 1), (1, -1), (1, float("nan")), (True, 1)])
def test_bounds_on_derivatives_are_numbers(order, bound):
    with pytest.raises(ValueError, match=r"Smooth\(order, bound\): (order|bound) must be"):
        Smooth(order, bound)


@pytest.mark.parametrize("zero", [0, 0.0, np.float32(0), np.int64(0), np.array(0.0)])
def test_any_zero_is_a_tail_given_as_a_number(zero):
    assert is_number(zero) and tail_number(zero, Legendre(2)) == 0.0
    for expert in (0, clean):
        with pytest.raises(ValueError, match="pass columns"):
            certirl.solve(Drift(), discount=0.7, expert=expert, delta=0.05, tail=zero, rng=0)


@pytest.mark.parametrize("progress", [5, "yes", lambda: None, 0.5])
def test_what_cannot_be_reported_to_is_refused(progress):
    with pytest.raises(TypeError, match="progress must be True, False, None or a function"):
        certirl.certify(lambda s: s[:, 0], Coin(), expert=0, **PROOF | {"progress": progress})
    with pytest.raises(TypeError, match="progress must be True, False, None or a function"):
        certirl.solve(Drift(), discount=0.7, samples=200, rng=0, progress=progress)


def test_a_report_that_fails_is_raised_and_leaves_nothing_behind():
    def fail(done, total):
        raise KeyError("mine")

    before = certirl.solve(Drift(), discount=0.7, samples=500, rng=0, progress=False)
    with pytest.raises(KeyError, match="mine"):
        certirl.solve(Drift(), discount=0.7, samples=500, rng=0, progress=fail)
    after = certirl.solve(Drift(), discount=0.7, samples=500, rng=0, progress=lambda done, total: None)
    np.testing.assert_array_equal(before.reward.coefficients, after.reward.coefficients)


@pytest.mark.parametrize("rng", [True, np.bool_(True), "0", 1.5, -1, object()])
def test_what_is_no_seed_is_refused(rng):
    with pytest.raises(TypeError, match="rng must be a seed or a numpy Generator"):
        certirl.solve(Drift(), discount=0.7, samples=200, rng=rng)


def test_what_user_code_raises_comes_through_unchanged():
    class Mine(Exception):
        pass

    def fail(*_):
        raise Mine("whole")

    for simulator, expert in ((Odd(sample=fail), 0), (Odd(sample=fail), clean), (Drift(), fail)):
        with pytest.raises(Mine, match="whole"):
            certirl.solve(simulator, discount=0.7, expert=expert, samples=200, rng=0)
    with pytest.raises(Mine, match="whole"):
        certirl.certify(lambda s: s[:, 0], Coin(), expert=0, **PROOF | {"tail": fail})


def test_a_still_simulator_is_known_though_it_works_in_place():
    class Still(Drift):
        def sample(self, states, action, rng):
            states *= 0.5
            return states

    assert is_deterministic(Still(), as_generator(0))
