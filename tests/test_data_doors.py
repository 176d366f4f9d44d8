"""Logs enter by a few doors: what is no data gets one sentence there, and no proof rests on rows that are dependent."""

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

import certirl
from certirl.transitions import concatenate, continued_rows, repeated_rows

PROBLEM = certirl.problems.random_polynomial(seed=7)
NEXT = [0.0, 0.5]


class Coin:
    """Next state ±0.8: two Legendre columns describe it exactly. Action 1 goes right a little more often."""

    n_actions, domain, edge = 2, ((-1.0, 1.0),), 0.002

    def sample(self, states, action, rng):
        return np.where(rng.random(len(states)) < 0.5 + self.edge * action, 0.8, -0.8)


def drawn(problem, states, seed=0):
    """Every action tried once at every state."""
    rng, actions = np.random.default_rng(seed), np.repeat(np.arange(problem.n_actions), len(states))
    moved = [np.ravel(problem.sample(np.array(states)[:, None], a, rng)) for a in range(problem.n_actions)]
    return certirl.Transitions(
        np.tile(states, problem.n_actions), actions, np.concatenate(moved), domain=(-1, 1), n_actions=problem.n_actions
    )


def rows_of(log, rows, **settings):
    given = {"domain": log.domain, "n_actions": log.n_actions} | settings
    return certirl.Transitions(log.states[rows], log.actions[rows], log.next_states[rows], **given)


def uniform(n, seed=0):
    return np.random.default_rng(seed).uniform(-1, 1, n)


# What is no number, no action, no flag.

MASKED = np.ma.masked_array([0.0, 1.0], mask=[False, True])
TIMES = np.array(["2024-01-01", "2024-01-02"], dtype="datetime64[s]")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            {"states": [[0.0, 1.0], [0.0]]},
            "states must be an array of real numbers, equally many in every row: row 0 has 2 numbers, row 1",
        ),
        ({"states": [0.0, [0.0, 1.0]]}, "row 0 has one number, row 1 has 2 numbers"),
        ({"states": None}, "states must be real numbers, got None"),
        ({"next_states": None}, "next_states must be real numbers, got None"),
        ({"actions": None}, "actions must be real numbers, got None"),
        ({"states": [0.0, None]}, "states must be real numbers, got None in row 1; leave rows with missing values out"),
        ({"states": {"a": 1}}, "states must be real numbers, got {'a': 1}"),
        ({"states": (x for x in NEXT)}, "states must be real numbers, got <generator"),
        ({"states": MASKED}, "states must be real numbers, got masked values, the first in row 1; leave such rows out"),
        ({"next_states": MASKED}, "next_states must be real numbers, got masked values, the first in row 1"),
        ({"states": [MASKED[:1], MASKED[1:]]}, "states must be real numbers, got masked values, the first in row 1"),
        (
            {"actions": np.ma.masked_array([0, 1], mask=[True, False])},
            "actions must be real numbers, got masked values, the first in row 0",
        ),
        ({"states": [0j, 1 + 2j]}, "got an array of complex128; write values.real where the imaginary part is zero"),
        ({"actions": [0j, 1 + 0j]}, "actions must be real numbers, got an array of complex128"),
        (
            {"states": TIMES},
            "got an array of datetime64.s.; write seconds since the first, say .t - t.0.. / np.timedelta64",
        ),
        ({"states": TIMES - TIMES[0]}, "got an array of timedelta64.s.; write seconds, say dt / np.timedelta64"),
        ({"actions": TIMES - TIMES[0]}, "actions must be real numbers, got an array of timedelta64"),
        ({"states": ["0.0", "0.5"]}, "states must be real numbers, got an array of <U3; convert texts with float"),
        ({"states": [b"0.0", b"0.5"]}, "convert texts with float"),
        ({"states": [False, True]}, "states must be real numbers, got an array of bool; write 0.0 and 1.0 where"),
        ({"states": np.array([0.0, "x"], dtype=object)}, "states must be real numbers, got 'x' in row 1"),
        ({"states": [0.0, 10**400]}, "states must be finite in double precision"),
        ({"states": np.array([0.0, np.longdouble(10) ** 400])}, "states must be finite: row 1 is .inf."),
        ({"states": [0.0, np.inf]}, "states must be finite: row 1"),
        ({"states": np.zeros((2, 0)), "next_states": np.zeros((2, 0))}, "at least one coordinate"),
        ({"states": [0.0, 1e300], "next_states": [-1e300, 0.0]}, "a width between 1e-100 and 1e.100"),
        ({"states": [0.0, 5e-324], "next_states": [0.0, 0.0]}, "measure the states in other units"),
        ({"domain": ("-1", "1")}, "domain must be .low, high. or a tuple of such pairs, got .'-1', '1'."),
        ({"domain": (None, 1)}, "domain must be .low, high."),
        ({"domain": (-1, 1j)}, "domain must be .low, high."),
        ({"domain": (False, True)}, "domain must be .low, high."),
        (
            {"actions": [0, 10**6]},
            "action 1000000 in row 1 is above 999, the largest possible: number the actions 0, 1",
        ),
        ({"actions": [0, 10**9]}, "action 1000000000 in row 1 is above 999"),
        ({"actions": [0, 10**12]}, "actions must be whole numbers 0, 1, …, got 1e.12 in row 1"),
        ({"actions": [0, 999]}, "the largest action is 999 but only 2 different actions occur: number them 0 … 1"),
        ({"actions": [0, None]}, "actions must be real numbers, got None in row 1"),
        ({"actions": [False, True]}, "actions must be real numbers, got an array of bool"),
        ({"n_actions": 2.5}, "n_actions must be a whole number of actions, at least 1, got 2.5"),
        ({"n_actions": 2.0}, "n_actions must be a whole number of actions, at least 1, got 2.0"),
        ({"n_actions": "2"}, "n_actions must be a whole number of actions, at least 1, got '2'"),
        ({"n_actions": True}, "n_actions must be a whole number"),
        ({"n_actions": 0}, "n_actions must be a whole number of actions, at least 1, got 0"),
        ({"n_actions": 10**6}, "n_actions must be a whole number of actions, at most 1,000, got 1000000"),
        ({"paired": "yes"}, "paired must be True or False, got 'yes'"),
        ({"independent": "yes"}, "independent must be True or False, got 'yes'"),
        ({"terminal": [True]}, "terminal must be True or False for each of the 2 states, got bool of shape .1."),
        ({"terminal": [[True, False]]}, "terminal must be True or False for each of the 2 states, got bool of shape"),
        ({"terminal": ["no", "yes"]}, "terminal must be real numbers, got an array of <U3"),
        ({"terminal": [0, 2]}, "terminal must be True or False for each of the 2 states, got 2 in row 1"),
        ({"terminal": [0.0, np.nan]}, "terminal must be True or False for each of the 2 states, got nan in row 1"),
        ({"terminal": [True, None]}, "terminal must be"),
        ({"episodes": [0.5, 1.0]}, "episodes must be whole numbers, -1 for rows of no episode, got 0.5 in row 0"),
        ({"episodes": ["a", "b"]}, "number names with np.unique.names, return_inverse=True."),
        ({"episodes": [0, -2]}, "got -2 in row 1"),
        ({"episodes": [0, np.nan]}, "got nan in row 1"),
        ({"episodes": [0]}, "episodes must be 2 numbers, one for each row, got shape .1."),
    ],
)
def test_what_is_no_log_is_refused_with_its_argument_and_row(change, sentence):
    given = {"states": [0.0, 0.5], "actions": [0, 1], "next_states": [0.5, 0.25]} | change
    with pytest.raises(ValueError, match=sentence) as caught:
        certirl.Transitions(**given)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 250


class Column:
    """As pandas and polars have them."""

    def __init__(self, values):
        self.values = np.array(values)

    def __array__(self, dtype=None, copy=None):
        return np.array(self.values, dtype=dtype)


FIXED = np.array([0.25, -0.5, 0.75])
FIXED.flags.writeable = False


@pytest.mark.parametrize(
    "states",
    [
        [0.25, -0.5, 0.75],
        (0.25, -0.5, 0.75),
        np.array([0.25, -0.5, 0.75], dtype=np.float32),
        [[0.25], [-0.5], [0.75]],
        FIXED,
        np.array([0.25, 9, -0.5, 9, 0.75])[::2],
        np.array([[0.25, 9], [-0.5, 9], [0.75, 9]], order="F")[:, :1],
        np.ma.masked_array(FIXED, mask=False),
        Column([0.25, -0.5, 0.75]),
        [Fraction(1, 4), Fraction(-1, 2), Fraction(3, 4)],
        [Decimal("0.25"), Decimal("-0.5"), Decimal("0.75")],
        np.array([0.25, -0.5, 0.75], dtype=object),
        np.array([0.25, -0.5, 0.75], dtype=">f8"),
    ],
    ids=lambda states: type(states).__name__,
)
def test_numbers_are_read_from_whatever_holds_them(states):
    log = certirl.Transitions(states, [0, 1, 0], states, domain=(-1, 1))
    assert log.states.tolist() == log.next_states.tolist() == [[0.25], [-0.5], [0.75]]
    assert log.states.dtype == np.float64 and log.states.flags.aligned
    whole = certirl.Transitions([0, 1, 1], np.array([0, 1, 0], dtype=np.uint8), [1, 0, 1])
    assert whole.states.dtype == np.float64 and whole.n_actions == 2
    assert certirl.Transitions([0.0, 5e-324], [0, 1], [0.0, -0.0], domain=(-1, 1)).states[1, 0] == 5e-324


def test_a_log_keeps_arrays_of_its_own():
    given = {"states": uniform(9), "next_states": uniform(9, 1), "actions": np.arange(9, dtype=np.intp) % 2}
    given |= {"terminal": np.zeros(9, dtype=bool), "episodes": np.arange(9, dtype=np.intp)}
    before = {name: values.copy() for name, values in given.items()}
    log = certirl.Transitions(**given, domain=(-1, 1))
    for name, values in given.items():
        np.testing.assert_array_equal(values, before[name])
        assert values.flags.writeable
        values[:] = 1
        np.testing.assert_array_equal(np.ravel(getattr(log, name)), before[name])
        with pytest.raises(ValueError, match="read-only"):
            getattr(log, name)[0] = 1


@pytest.mark.parametrize("chosen", [[0, 1, 1], [True, False], np.array([0.0, 1.0, 1.0]), [False] * 3, "yes", None])
def test_parts_are_chosen_by_booleans(chosen):
    log = certirl.Transitions([0.0, 0.5, 1.0], [0, 1, 0], [0.5, 1.0, 0.0])
    with pytest.raises(ValueError, match="chosen must be 3 booleans, one for each transition and true for some, got"):
        log.where(chosen)


# Rows that are dependent: episodes, copies, steps of a walk.


def proofs(log):
    """Every call by which a log becomes a proof."""
    basis, switching = certirl.Legendre(3), lambda s: (s[:, 0] > 0).astype(int)
    proof = {"delta": 0.1, "tail": 0.0}
    reward, given = certirl.Reward(basis.on(log.domain), np.ones(3)), {"discount": 0.7, "columns": basis, **proof}
    return {
        "certify": lambda: certirl.certify(reward, log, expert=0, **given),
        "certify policy": lambda: certirl.certify(reward, log, expert=switching, **given),
        "solve": lambda: certirl.solve(log, discount=0.7, basis=basis, columns=2, **proof),
        "solve policy": lambda: certirl.solve(log, discount=0.7, expert=switching, columns=basis, **proof),
        "refute": lambda: certirl.refute(log, expert=0, basis=basis, **proof),
        "refute policy": lambda: certirl.refute(log, expert=switching, basis=basis, **proof),
        "components": lambda: certirl.solve(
            log, discount=0.7, components=[[0]], basis=basis, columns=2, objective="l1", **proof
        ),
        "refute sum": lambda: certirl.refute_sum(log, [[0]], expert=0, basis=basis, **proof),
    }


def dependent_logs():
    """Logs that no proof can rest on, by what shows it."""
    log = drawn(PROBLEM, uniform(300))
    episodes, n = np.repeat(np.arange(len(log) // 2), 2), len(log)
    walk = [0.1]
    for action in np.arange(600) % 3:
        walk.append(PROBLEM.sample(np.array(walk[-1:]), action, np.random.default_rng(len(walk)))[0])
    known = rows_of(log, np.arange(n), episodes=episodes)
    return {
        "episodes": known,
        "a part of episodes": known.where(np.arange(n) < 500),
        "episodes and others": concatenate([log, known]),
        "episodes apart": concatenate([known.where(np.arange(n) % 2 == 0), known.where(np.arange(n) % 2 == 1)]),
        "terminal": rows_of(log, np.arange(n), terminal=np.arange(n) == 3),
        "declared": rows_of(log, np.arange(n), independent=False),
        "part declared": concatenate([log, rows_of(log, np.arange(n), independent=False)]),
        "tiled": rows_of(log, np.tile(np.arange(n), 3)),
        "one row again": rows_of(log, np.append(np.arange(n), 5)),
        "walk": certirl.Transitions(walk[:-1], np.arange(600) % 3, walk[1:], domain=(-1, 1)),
    }


SIGNS = {
    "episodes": "the steps of an episode follow from each other: keep one step of every episode, or solve without",
    "a part of episodes": "the steps of an episode follow from each other",
    "episodes and others": "the steps of an episode follow from each other",
    "episodes apart": "the steps of an episode follow from each other",
    "terminal": "terminal state",
    "declared": "these are declared not to be",
    "part declared": "these are declared not to be",
    "tiled": "1,800 of 2,700 rows repeat the state, action and next state of another, as copies do: keep one of each, "
    "or write Transitions.…, independent=True. if each of them was drawn by itself",
    "one row again": "1 of 901 rows repeat",
    "walk": "599 of 600 rows start in the very state in which another ends, as steps of a walk do: keep single",
}


@pytest.mark.parametrize("name", SIGNS)
def test_no_proof_rests_on_dependent_rows(name):
    log = dependent_logs()[name]
    for proof in proofs(log).values():
        with pytest.raises(ValueError, match=f"independent of each other, and .*{SIGNS[name]}"):
            proof()


def test_declared_draws_and_single_steps_are_proofs_still():
    log = drawn(PROBLEM, uniform(300))
    single = rows_of(log, np.arange(len(log)), episodes=np.arange(len(log)) + 10**15)
    again = rows_of(log, np.append(np.arange(len(log)), 5), independent=True)
    for fine in (log, single, again, concatenate([single, drawn(PROBLEM, uniform(300, 1), 1)])):
        proofs(fine)["certify"]()


def test_copies_certify_what_is_false_if_they_are_declared_to_be_draws_and_are_refused_if_not():
    """Going right is worth more, and action 1 does it more often: action 0 is not optimal, by a margin of −0.003."""
    coin, false, refused = Coin(), 0, 0
    asked = {"discount": 0.5, "expert": 0, "columns": certirl.Legendre(1), "tail": 0, "reward_range": (-1, 1)}
    for seed in range(20):
        rows = np.tile(np.arange(200), 100)
        copies = drawn(coin, uniform(100, seed), seed + 100)
        declared = rows_of(copies, rows, independent=True)
        false += certirl.certify(lambda s: s[:, 0], declared, **asked).holds
        try:
            certirl.certify(lambda s: s[:, 0], rows_of(copies, rows), **asked)
        except ValueError as problem:
            refused += "19,800 of 20,000 rows repeat" in str(problem)
    assert false >= 3 and refused == 20


@pytest.mark.parametrize("problem", [PROBLEM, Coin()], ids=["density", "two points"])
@pytest.mark.parametrize("states", [uniform(500), np.repeat(np.linspace(-1, 1, 21), 25)], ids=["uniform", "grid"])
def test_copies_are_told_from_draws(problem, states):
    log = drawn(problem, states)
    n = len(log)
    copies = [rows_of(log, np.tile(np.arange(n), 4)), rows_of(log, np.repeat(np.arange(n), 2))]
    if problem is PROBLEM or len(np.unique(states)) == 500:  # on a grid, two points repeat as draws of them do
        copies += [rows_of(log, np.random.default_rng(0).integers(n, size=n)), rows_of(log, np.arange(6 * n // 5) % n)]
        copies += [rows_of(log, np.append(np.arange(n), np.full(10_000, 7)))]
    for one in copies:
        different = np.unique(np.hstack([one.states, one.actions[:, None], one.next_states]), axis=0)
        assert repeated_rows(one) == len(one) - len(different) > 0
    assert repeated_rows(log) == continued_rows(log) == 0


class Clipped:
    """Noise that is cut off at the edges, where next states repeat."""

    n_actions, domain = 2, ((-1.0, 1.0),)

    def sample(self, states, action, rng):
        return np.clip(states[:, 0] + (action - 0.5) + 0.5 * rng.standard_normal(len(states)), -1, 1)


@pytest.mark.parametrize("problem", [PROBLEM, Coin(), Clipped()], ids=["density", "two points", "clipped"])
def test_designs_rounded_data_and_single_precision_are_not_taken_for_copies(problem):
    rng = np.random.default_rng(3)
    for n in (60, 600, 6_000):
        for points in (3, 21, 200):
            grid = drawn(problem, rng.choice(np.linspace(-1, 1, points), n))
            assert repeated_rows(grid) == continued_rows(grid) == 0
        single = drawn(problem, uniform(n).astype(np.float16).astype(float))
        assert repeated_rows(single) == continued_rows(single) == 0
        for digits in (1, 2, 3, 4):
            log = drawn(problem, uniform(n, digits))
            near = certirl.Transitions(
                np.round(log.states, digits), log.actions, np.round(log.next_states, digits), domain=(-1, 1)
            )
            assert repeated_rows(near) == continued_rows(near) == 0


def test_walks_are_noticed_in_any_order():
    rng, states, actions = np.random.default_rng(0), [0.0], np.random.default_rng(1).integers(3, size=600)
    for action in actions:
        states.append(PROBLEM.sample(np.array(states[-1:]), action, rng)[0])
    walk = certirl.Transitions(states[:-1], actions, states[1:], domain=(-1, 1))
    order = rng.permutation(600)
    assert continued_rows(walk) == continued_rows(rows_of(walk, order)) == 599
    part = rows_of(walk, np.sort(order[:300]))
    assert 100 < continued_rows(part) < 200
    pairs = certirl.sample(PROBLEM, basis=certirl.Legendre(3), samples=300, rng=0, paired=True)
    assert continued_rows(pairs) == repeated_rows(pairs) == 0


def test_records_put_together_keep_what_is_known():
    log = drawn(PROBLEM, uniform(4))
    known = rows_of(log, np.arange(12), episodes=np.append(np.repeat([7, 9], 5), [-1, -1]))
    other = rows_of(log, np.arange(12), episodes=np.repeat([7, 9, 11], 4))
    both = concatenate([known, other, log, known])
    parts = np.split(both.episodes, [12, 24, 36])
    assert parts[0].tolist() == parts[3].tolist() == [parts[0][0]] * 5 + [parts[0][5]] * 5 + [-1] * 2
    assert len(np.unique(both.episodes)) == 1 + 2 + 3 + 12
    ended = rows_of(log, np.arange(12), terminal=np.arange(12) == 3)
    with pytest.raises(ValueError, match="say which next states are terminal and others do not: give all of them"):
        concatenate([log, ended])
    assert concatenate([ended, ended]).terminal.sum() == 2
    assert concatenate([log, rows_of(log, np.arange(12), terminal=np.zeros(12, bool))]).terminal is None
    found = certirl.Transitions(log.states, log.actions, log.next_states)
    assert found.domain_from_data and concatenate([found, found]).domain_from_data
