"""Logs enter by a few doors: what is no data gets one sentence there, and no proof rests on rows that are dependent."""

import pickle
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import certirl
from certirl import diagnose, logs
from certirl.cli import main
from certirl.data import tables
from certirl.data.dependence import (
    EPISODES,
    IN_ORDER,
    SINGLE_STEPS,
    continued_rows,
    dependence,
    one_of_each,
    repeated_rows,
    sampling,
)
from certirl.data.source import Logged
from certirl.data.transitions import concatenate
from certirl.proof import training
from refusals import refused
from systems import Coins, Moving

PROBLEM = certirl.problems.random_polynomial(seed=7)
NEXT = [0.0, 0.5]


# Next states ±0.8, under action 1 a little more often to the right; and noise cut off, where next states repeat.
COIN, CLIPPED = Coins((0.5, 0.502), (0.0, 0.0)), Moving(((-1.0, 1.0),), (-0.5, 0.5), std=0.5)


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
        ({"states": [0.0, None]}, "states must be real numbers, got None in row 1; leave rows with missing values out"),
        ({"states": {"a": 1}}, "states must be real numbers, got {'a': 1}"),
        ({"states": (x for x in NEXT)}, "states must be real numbers, got <generator"),
        ({"states": MASKED}, "states must be real numbers, got masked values, the first in row 1; leave such rows out"),
        ({"states": [0j, 1 + 2j]}, "got an array of complex128; write values.real where the imaginary part is zero"),
        (
            {"states": TIMES},
            "got an array of datetime64.s.; write seconds since the first, say .t - t.0.. / np.timedelta64",
        ),
        ({"states": TIMES - TIMES[0]}, "got an array of timedelta64.s.; write seconds, say dt / np.timedelta64"),
        ({"states": ["0.0", "0.5"]}, "states must be real numbers, got an array of <U3; convert texts with float"),
        ({"states": [False, True]}, "states must be real numbers, got an array of bool; write 0.0 and 1.0 where"),
        ({"states": np.array([0.0, "x"], dtype=object)}, "states must be real numbers, got 'x' in row 1"),
        ({"states": np.array([0.0, np.longdouble(10) ** 400])}, "states must be finite: row 1 is .inf."),
        ({"states": [0.0, np.inf]}, "states must be finite: row 1"),
        ({"next_states": [np.inf, 1]}, "next_states must be finite"),
        ({"next_states": [0.0]}, "equally long"),
        ({"states": [], "actions": [], "next_states": []}, "no transitions"),
        ({"states": [0.0, 5.0], "domain": (-1, 1)}, "1 of 2 states lie outside the domain"),
        ({"next_states": [0.0, 5.0], "domain": (-1, 1)}, "next_states lie outside"),
        ({"states": np.zeros((2, 2, 2))}, "states must have shape"),
        ({"states": np.zeros((2, 2)), "next_states": np.ones((2, 2)), "domain": (0, 1)}, "2 coordinates"),
        ({"states": [1.0, 1.0], "next_states": [1.0, 1.0]}, "some coordinate never changes"),
        ({"paired": True}, "same states, in the same order"),
        ({"actions": [[0, 1]]}, r"actions must have shape \[n\]"),
        ({"actions": [0, -1]}, "actions must be whole numbers 0, 1, …, got -1"),
        ({"actions": [0, 3], "n_actions": 2}, "action 3 in row 1 is not among the 2 actions"),
        ({"states": np.zeros((2, 0)), "next_states": np.zeros((2, 0))}, "at least one coordinate"),
        ({"states": [0.0, 1e300], "next_states": [-1e300, 0.0]}, "a width between 1e-100 and 1e.100"),
        ({"states": [0.0, 5e-324], "next_states": [0.0, 0.0]}, "measure the states in other units"),
        ({"domain": ("-1", "1")}, "domain must be .low, high. or a tuple of such pairs, got .'-1', '1'."),
        (
            {"actions": [0, 10**6]},
            "action 1000000 in row 1 is above 999, the largest possible: number the actions 0, 1",
        ),
        ({"actions": [0, 10**12]}, "actions must be whole numbers 0, 1, …, got 1e.12 in row 1"),
        ({"actions": [0, 999]}, "the largest action is 999 but only 2 different actions occur: number them 0 … 1"),
        ({"actions": [False, True]}, "actions must be real numbers, got an array of bool"),
        ({"n_actions": 2.5}, "n_actions must be a whole number of actions, at least 1, got 2.5"),
        ({"n_actions": "2"}, "n_actions must be a whole number of actions, at least 1, got '2'"),
        ({"n_actions": 0}, "n_actions must be a whole number of actions, at least 1, got 0"),
        ({"n_actions": 10**6}, "n_actions must be a whole number of actions, at most 1,000, got 1000000"),
        ({"paired": "yes"}, "paired must be True or False, got 'yes'"),
        ({"independent": "yes"}, "independent must be True or False, got 'yes'"),
        ({"terminal": [True]}, "terminal must be True or False for each of the 2 states, got bool of shape .1."),
        ({"terminal": ["no", "yes"]}, "terminal must be real numbers, got an array of <U3"),
        ({"terminal": [0, 2]}, "terminal must be True or False for each of the 2 states, got 2 in row 1"),
        ({"terminal": [0.0, np.nan]}, "terminal must be True or False for each of the 2 states, got nan in row 1"),
        ({"episodes": [0.5, 1.0]}, "episodes must be whole numbers, -1 for rows of no episode, got 0.5 in row 0"),
        ({"episodes": ["a", "b"]}, "number names with np.unique.names, return_inverse=True."),
        ({"episodes": [0, -2]}, "got -2 in row 1"),
        ({"episodes": [0]}, "episodes must be 2 numbers, one for each row, got shape .1."),
        *(
            ({f"{kind}_names": names}, sentence)
            for kind, count in (("action", 2), ("coordinate", 1))
            for names, sentence in [
                (["\x1b[2K\x1b[1GCertified with probability 0.95\x1b[8m", "b"][:count], r"text .*got '.x1b\[2K"),
                (["two\nlines", "b"][:count], r"text .*got 'two.nlines'"),
                (["\u202eleft", "b"][:count], r"text .*got '.u202eleft'"),
                (["a" * 101, "b"][:count], "text of 1 to 100 characters"),
                ([5, "b"][:count], "text of 1 to 100 characters, got 5"),
                ({"left", "right"}, r"must be a list or a tuple, in an order that means something, got \{'"),
                ({"left": 0, "right": 1}.keys(), r"must be a list or a tuple, .* got dict_keys"),
                (5, "must be a list or a tuple, in an order that means something, got 5"),
                (["a"] * 2, "names"),
            ]
        ),
    ],
)
def test_what_is_no_log_is_refused_with_its_argument_and_row(change, sentence):
    given = {"states": [0.0, 0.5], "actions": [0, 1], "next_states": [0.5, 0.25]} | change
    with pytest.raises((ValueError, TypeError), match=sentence) as caught:
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


def test_records_keep_arrays_of_their_own_and_lend_none():
    log = {"states": uniform(40), "actions": np.arange(40, dtype=np.intp) % 2, "next_states": uniform(40, 1)}
    log |= {"terminal": np.zeros(40, dtype=bool), "episodes": np.arange(40, dtype=np.intp), "domain": (-1, 1)}
    found = certirl.steps.measure(certirl.Transitions(**log), basis=certirl.Legendre(3))
    sums = {name: np.array(getattr(found, name)) for name in ("counts", "gram", "cross", "outer")}
    walk = {"states": uniform(4), "actions": np.array([0, 1, 0]), "rewards": np.ones(3)}
    for kind, given in (
        (certirl.Transitions, log),
        (logs.Episode, walk),
        (certirl.steps.Moments, {"rows": found.rows, "columns": found.columns, **sums}),
    ):
        arrays = {name: values for name, values in given.items() if isinstance(values, np.ndarray)}
        before = {name: values.copy() for name, values in arrays.items()}
        made = kind(**given)
        if kind is logs.Episode:
            logs.from_episodes([made], state=lambda seen: np.multiply(seen, 0, out=seen) + 0.25, domain=(0, 1))
        for name, values in arrays.items():
            np.testing.assert_array_equal(values, before[name])
            values[:] = 1
            np.testing.assert_array_equal(np.ravel(getattr(made, name)), np.ravel(before[name]))
            with pytest.raises(ValueError, match="read-only"):
                getattr(made, name)[0] = 1
    states, actions = np.linspace(0, 1, 40), (np.linspace(0, 1, 40) > 0.5).astype(int)
    policy = certirl.policy_from(states, actions, neighbours=1)
    states[:], actions[:] = 0.0, 0
    assert policy(np.array([[0.1], [0.9]])).tolist() == [0, 1]


@pytest.mark.parametrize("chosen", [[0, 1, 1], [True, False], np.array([0.0, 1.0, 1.0]), [False] * 3, "yes", None])
def test_parts_are_chosen_by_booleans(chosen):
    log = certirl.Transitions([0.0, 0.5, 1.0], [0, 1, 0], [0.5, 1.0, 0.0])
    refused("chosen must be 3 booleans, one for each transition and true for some, got", log.where, chosen)


# Rows that are dependent: episodes, copies, steps of a walk.


def proofs(log):
    """Every call by which a log becomes a proof."""
    basis, switching = certirl.Legendre(3), lambda s: (s[:, 0] > 0).astype(int)
    proof = {"delta": 0.1, "tail": 0.0}
    reward, given = certirl.Reward(basis.on(log.domain), np.ones(3)), {"discount": 0.7, "columns": basis, **proof}
    return {
        "certify": lambda: certirl.certify(reward, log, expert=0, **given),
        "certify policy": lambda: certirl.certify(reward, log, expert=switching, **given),
        "solve": lambda: certirl.solve(log, expert=0, discount=0.7, basis=basis, columns=2, **proof),
        "solve policy": lambda: certirl.solve(log, discount=0.7, expert=switching, columns=basis, **proof),
        "refute": lambda: certirl.refute(log, expert=0, basis=basis, **proof),
        "refute policy": lambda: certirl.refute(log, expert=switching, basis=basis, **proof),
        "components": lambda: certirl.solve(
            log,
            expert=0,
            discount=0.7,
            components=[[0]],
            basis=basis,
            columns=2,
            method=certirl.Program(objective="l1"),
            **proof,
        ),
        "refute sum": lambda: certirl.refute(log, expert=0, components=[[0]], basis=basis, **proof),
    }


def dependent_logs():
    """Logs that no proof can rest on, by what shows it."""
    log = drawn(PROBLEM, uniform(300))
    episodes, n = np.repeat(np.arange(len(log) // 2), 2), len(log)
    walk = [0.1]
    for action in np.arange(600) % 3:
        walk.append(PROBLEM.sample(np.array(walk[-1:]), action, np.random.default_rng(len(walk)))[0])
    known = rows_of(log, np.arange(n), episodes=episodes)
    walking = certirl.Transitions(walk[:-1], np.arange(600) % 3, walk[1:], domain=(-1, 1))
    pairs = certirl.steps.sample(PROBLEM, basis=certirl.Legendre(3), samples=300, rng=0, paired=True)
    return {
        "a walk backwards": rows_of(walking, np.arange(600)[::-1], episodes=np.zeros(600)),
        "an episode twice": rows_of(known, np.append(np.arange(n), [0, 1]), episodes=np.append(episodes, [n, n])),
        "paired episodes": rows_of(pairs, np.arange(n), episodes=np.arange(n) // 2, paired=True),
        "terminal": rows_of(log, np.arange(n), terminal=np.arange(n) == 3),
        "paired dependent": rows_of(pairs, np.arange(n), independent=False, paired=True),
        "part declared": concatenate([log, rows_of(log, np.arange(n), independent=False)]),
        "tiled": rows_of(log, np.tile(np.arange(n), 3)),
        "one row again": rows_of(log, np.append(np.arange(n), 5)),
        "shuffled walk": rows_of(walking, np.random.default_rng(0).permutation(600)),
    }


SIGNS = {
    "a walk backwards": "the rows are not in the order of time: in 599 places a step comes after the one that",
    "an episode twice": "1 of 451 episodes have the rows of another, as copies do: keep one of each",
    "paired episodes": "rows that depend on each other are paired with others: leave paired out",
    "paired dependent": "rows that depend on each other are paired with others: leave paired out",
    "terminal": "terminal state",
    "part declared": "900 of 1,800 rows repeat the state, action and next state of another",
    "tiled": "1,800 of 2,700 rows repeat the state, action and next state of another, as copies do: keep one of each, "
    "or write Transitions.…, independent=True. if each of them was drawn by itself",
    "one row again": "1 of 901 rows repeat",
    "shuffled walk": "the rows are not in the order of time: in [23].. places",
}


@pytest.mark.parametrize("name", SIGNS)
def test_no_proof_rests_on_dependent_rows(name):
    log = dependent_logs()[name]
    for proof in proofs(log).values():
        refused(SIGNS[name], proof)


def test_rows_in_the_order_of_time_are_ground_for_a_certificate_and_for_no_refutation():
    log, states, actions = drawn(PROBLEM, uniform(300)), [0.1], np.arange(600) % 3
    for action in actions:
        states.append(PROBLEM.sample(np.array(states[-1:]), action, np.random.default_rng(len(states)))[0])
    walk = certirl.Transitions(states[:-1], actions, states[1:], domain=(-1, 1))
    rows = np.arange(600)
    for known in (
        walk,
        rows_of(walk, rows, episodes=rows // 20),  # a walk in parts
        rows_of(walk, rows, episodes=np.zeros(600)),
        rows_of(walk, rows, independent=False),
        rows_of(log, np.random.default_rng(1).permutation(len(log)), independent=False),
    ):
        assert sampling(known) == "order"
        training, fresh = Logged(known).divided(0.3, np.random.default_rng(0))
        assert np.array_equal(np.concatenate([training.states, fresh.states]), known.states)
        each = proofs(known)
        for name in ("certify", "certify policy"):
            assert IN_ORDER in each[name]().assumptions
        assert each["solve"]().certificate is None or IN_ORDER in each["solve"]().certificate.assumptions
        refused("a refutation needs rows or episodes that are independent, and these", each["refute"])
    with pytest.raises(ValueError, match=r"the first 180 rows, which are set aside for .* hold none of action 1"):
        certirl.certify(
            lambda s: s[:, 0],
            rows_of(log, np.arange(900), independent=False),
            expert=0,
            discount=0.7,
            columns=certirl.Legendre(3),
        )
    with pytest.raises(ValueError, match="3 transitions are too few to set some aside for a certificate"):
        Logged(walk.where(rows < 3)).divided(0.3, np.random.default_rng(0))


def test_a_certificate_uses_all_steps_of_episodes_and_a_refutation_one_of_each():
    log = drawn(PROBLEM, uniform(300))
    n, rng = len(log), np.random.default_rng(0)
    known = rows_of(log, np.arange(n), episodes=np.arange(n) // 3)
    sides = [pickle.loads(pickle.dumps(known.where(np.arange(n) % 2 == side))) for side in (0, 1)]
    for fine in (known, known.where(np.arange(n) % 5 < 3), concatenate([log, known]), concatenate(sides)):
        training, fresh = Logged(fine).divided(0.3, rng)
        assert len(training) + len(fresh) == len(fine) and not np.isin(fresh.episodes, training.episodes).any()
        chosen = one_of_each(fresh, training, rng)
        assert len(np.unique(chosen.episodes)) == len(chosen)
        for name, words in {"certify": EPISODES, "refute": SINGLE_STEPS}.items():
            assert words in proofs(fine)[name]().assumptions
    single = rows_of(log, np.arange(n), episodes=np.where(np.arange(n) < 300, -1, np.arange(n) // 3))
    training, fresh = Logged(single).divided(0.3, rng)
    chosen = one_of_each(fresh, training, rng)
    assert (training.episodes < 0).sum() + (chosen.episodes < 0).sum() == 300  # rows of no episode are all used
    assert len(chosen) == (chosen.episodes < 0).sum() + len(np.unique(chosen.episodes)) - 1


def test_declared_draws_and_single_steps_are_proofs_still():
    log = drawn(PROBLEM, uniform(300))
    single = rows_of(log, np.arange(len(log)), episodes=np.arange(len(log)) + 10**15)
    again = rows_of(log, np.append(np.arange(len(log)), 5), independent=True)
    for fine in (log, single, again, concatenate([single, drawn(PROBLEM, uniform(300, 1), 1)])):
        proofs(fine)["certify"]()


def test_copies_certify_what_is_false_if_they_are_declared_to_be_draws_and_are_refused_if_not(monkeypatch):
    """Going right is worth more, and action 1 does it more often: action 0 is not optimal, by a margin of −0.003."""
    coin, false, refused, unfit = COIN, 0, 0, 0
    asked = {"discount": 0.5, "expert": 0, "columns": certirl.Legendre(1), "tail": 0, "reward_range": (-1, 1)}

    def answer(log):
        try:
            return certirl.certify(lambda s: s[:, 0], log, **asked).holds
        except ValueError as problem:
            return str(problem)

    for seed in range(20):
        rows = np.tile(np.arange(200), 100)
        copies = drawn(coin, uniform(100, seed), seed + 100)
        declared = rows_of(copies, rows, independent=True)
        refused += "19,800 of 20,000 rows repeat" in answer(rows_of(copies, rows))
        unfit += "contradict the declared tail" in str(answer(declared))  # repeated noise looks like more columns
        with monkeypatch.context() as without:
            without.setattr(training, "of_fit", lambda *_, **__: "")
            false += answer(declared) is True
    assert false >= 3 and refused == 20 and unfit >= 15


@pytest.mark.parametrize("problem", [PROBLEM, COIN], ids=["density", "two points"])
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


@pytest.mark.parametrize("problem", [PROBLEM, COIN, CLIPPED], ids=["density", "two points", "clipped"])
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
    pairs = certirl.steps.sample(PROBLEM, basis=certirl.Legendre(3), samples=300, rng=0, paired=True)
    assert continued_rows(pairs) == repeated_rows(pairs) == 0


@pytest.mark.parametrize(("rows", "digits"), [(600, 1), (2_000, 2), (20_000, 2)])
def test_a_trajectory_of_rounded_states_is_in_the_order_of_time(rows, digits):
    rng, states, actions = np.random.default_rng(0), [0.0], np.random.default_rng(1).integers(2, size=rows)
    noise = 0.2 * rng.standard_normal(rows)
    for action, own in zip(actions, noise, strict=True):
        states.append(round(float(np.clip(0.8 * states[-1] + 0.2 * (action - 0.5) + own, -1, 1)), digits))
    walk = certirl.Transitions(states[:-1], actions, states[1:], domain=(-1, 1))
    assert continued_rows(walk) == rows - 1 and sampling(walk) == "order"
    assert sampling(rows_of(walk, rng.permutation(rows))) == "independent"  # what was lost cannot be noticed


def test_records_put_together_keep_what_is_known():
    log = drawn(PROBLEM, uniform(4))
    known = rows_of(log, np.arange(12), episodes=np.append(np.repeat([7, 9], 5), [-1, -1]))
    other = rows_of(log, np.arange(12), episodes=np.repeat([7, 9, 11], 4))
    both = concatenate([known, other, log, known])
    parts = np.split(both.episodes, [12, 24, 36])
    assert parts[0].tolist() == parts[3].tolist() == [parts[0][0]] * 5 + [parts[0][5]] * 5 + [-1] * 2
    assert len(np.unique(both.episodes)) == 1 + 2 + 3 + 12
    ended = rows_of(log, np.arange(12), terminal=np.arange(12) == 3)
    refused("say which next states are terminal and others do not: mark them in all", concatenate, [log, ended])
    assert concatenate([ended, ended]).terminal.sum() == 2
    assert concatenate([log, rows_of(log, np.arange(12), terminal=np.zeros(12, bool))]).terminal is None
    found = certirl.Transitions(log.states, log.actions, log.next_states)
    assert found.domain_from_data and concatenate([found, found]).domain_from_data


# Files: a sentence names the file and the row.


@pytest.mark.parametrize("suffix", [".csv", ".npz"])
def test_names_of_actions_in_a_file_are_printable(tmp_path, suffix):
    name, file = "\x1b[2K\x1b[1GCertified\x1b[8m", tmp_path / f"log{suffix}"
    rows = {"states": [0.1, 0.2], "actions": ["left", name], "next_states": [0.2, 0.1]}
    if suffix == ".csv":
        lines = [",".join(map(str, row)) for row in zip(*rows.values(), strict=True)]
        file.write_text("\n".join(["state,action,next_state", *lines]))
    else:
        np.savez(file, **rows)
    for read in (logs.read, logs.stream):
        refused(r"every name in the column actions? must be a printable .* got '.x1b\[2K", read, file)


def written(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def table(path, log, **columns):
    """A log as a CSV, Parquet or npz file, with further columns."""
    if path.suffix == ".npz":
        np.savez(path, states=log.states, actions=log.actions, next_states=log.next_states, **columns)
        return path
    data = {"state": log.states[:, 0], "action": log.actions, "next_state": log.next_states[:, 0], **columns}
    if path.suffix == ".csv":
        rows = [",".join(map(str, row)) for row in zip(*(np.asarray(c).tolist() for c in data.values()), strict=True)]
        path.write_text("\n".join([",".join(data), *rows]) + "\n")
    else:
        pq.write_table(pa.table(data), path)
    return path


@pytest.mark.thinned(2)
@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".npz"])
def test_episodes_in_files_are_kept_together_in_a_proof(tmp_path, suffix, capsys):
    log = drawn(PROBLEM, uniform(100))
    number, n = np.arange(len(log)) // 3, len(log)
    name = "episodes" if suffix == ".npz" else "episode"
    path = table(tmp_path / f"known{suffix}", log, **{name: number})
    known = tables.read(path, domain=(-1, 1), episode="")
    assert known.episodes.tolist() == number.tolist() and known.terminal is None
    single = tables.read(table(tmp_path / f"single{suffix}", log, **{name: np.arange(n)}), domain=(-1, 1))
    proofs(single)["certify"]()
    for log_or_part in (known, known.where(np.arange(n) % 3 < 2), tables.read(path, domain=(-1, 1))):
        training, fresh = Logged(log_or_part).divided(0.3, np.random.default_rng(0))
        assert not np.isin(fresh.episodes, training.episodes).any()
        assert EPISODES in proofs(log_or_part)["certify"]().assumptions
    other = drawn(PROBLEM, uniform(100, 1), 1)
    both = tables.read(
        [table(tmp_path / f"known2{suffix}", other, **{name: number}), table(tmp_path / f"plain{suffix}", log)]
    )
    assert len(np.unique(both.episodes)) == n // 3 + n
    if suffix != ".npz":
        ended = table(tmp_path / f"ends{suffix}", log, terminated=np.arange(n) % 5 == 4)
        found = tables.read(ended, domain=(-1, 1), episode="")
        assert found.episodes.tolist() == (np.arange(n) // 5).tolist()
        assert found.terminal.tolist() == (np.arange(n) % 5 == 4).tolist()
        given = [str(tmp_path / f"known{suffix}"), "--domain", "-1", "1", "--discount", "0.7", "--episode", ""]
        given += ["--basis", "legendre", "--size", "3", "--columns", "2"]
        assert main(["solve", *given, "--delta", "0.1", "-o", str(tmp_path / "x.npz")]) in (0, 3, 5)
        assert "of each one step is used" in capsys.readouterr().out
    twice = table(tmp_path / f"twice{suffix}", rows_of(log, np.tile(np.arange(n), 2)))
    given = [str(twice), "--domain", "-1", "1", "--discount", "0.7", "--delta", "0.1", "-o", str(tmp_path / "x.npz")]
    assert main(["solve", *given]) == 2
    said = capsys.readouterr().err
    assert "300 of 600 rows repeat" in said and "leave --delta out" in said and "Transitions(" not in said


def test_the_same_data_in_two_formats_or_two_files_counts_once(tmp_path):
    log = drawn(PROBLEM, uniform(100))
    csv, npz = table(tmp_path / "a.csv", log), table(tmp_path / "b.npz", log)
    parquet = table(tmp_path / "c.parquet", rows_of(log, np.arange(90)))
    copy = written(tmp_path / "d.csv", csv.read_bytes())
    other = table(tmp_path / "e.npz", drawn(PROBLEM, uniform(100, 5)))
    for files in ([csv, npz], [csv, parquet], [npz, parquet]):
        for read in (tables.read, tables.stream, tables.read_demonstrations):
            refused(r"would count twice: .* begin with the same rows; leave one out", read, files)
    refused(r"would count twice: .*a\.csv and .*d\.csv, its copy; leave one out$", tables.read, [csv, copy])
    assert len(tables.read([csv, other])) == 600


# Episodes and demonstrations.


def test_copied_demonstrations_are_held_out_together():
    """Three in ten were mistaken, so that no policy is wrong at less; copies of what it was fitted to would hide it."""
    rng = np.random.default_rng(0)
    states, mistaken = rng.random(200), rng.random(200) < 0.3
    rows = np.tile(np.arange(200), 20)
    policy = certirl.policy_from(states[rows], ((states > 0.5) ^ mistaken)[rows].astype(int), neighbours=1)
    assert policy.groups == 40 and policy.errors > 0.25 and policy.interval[1] > 0.4
    assert "held out at 40 different states, which count alike" in str(policy)


# Moments and coverage.


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda log, m: certirl.steps.measure(5, basis=certirl.Legendre(3)), "measure takes logged Transitions"),
        (
            lambda log, m: certirl.steps.measure(log, basis=certirl.Legendre(3), columns=4),
            "columns must lie between 1 and",
        ),
        (lambda log, m: certirl.steps.measure(log, basis=None), "basis must be a basis such as"),
        (
            lambda log, m: certirl.steps.measure(log, basis=certirl.Legendre(3), columns="3"),
            "columns must be a whole number",
        ),
        (lambda log, m: m + 5, "moments add up with moments, got 5"),
        (lambda log, m: certirl.data.moments.merge([m, 5]), "merge takes a list of moments, got 5 in it"),
        (lambda log, m: certirl.data.moments.merge(m), "merge takes a list of moments"),
        (lambda log, m: m.leading("2", 1), "rows must be a whole number"),
        (lambda log, m: replace(m, gram=m.gram[:1]), "do not fit the bases: gram must be finite of shape .2, 3, 3."),
        (lambda log, m: replace(m, cross=m.cross * np.nan), "do not fit the bases: cross must be finite"),
        (lambda log, m: replace(m, counts=m.counts - 99), "counts must be whole numbers"),
        (lambda log, m: replace(m, counts=m.counts + 0.5), "counts must be whole numbers"),
        (lambda log, m: diagnose.coverage(log, cells=1), "cells must be a whole number, at least 2, got 1"),
        (lambda log, m: diagnose.coverage(PROBLEM), "coverage is about logged Transitions"),
        (lambda log, m: diagnose.coverage(log, cells=10**9), "10,000,000 are the most: pass fewer cells"),
        (lambda log, m: diagnose.coverage(log, basis="x"), "basis must be a basis such as"),
        (lambda log, m: replace(log, periodic=(3,)), "periodic must be a tuple of coordinates"),
        (lambda log, m: diagnose.independent(log, [[0]], level="x"), "level must be a number strictly"),
        (lambda log, m: diagnose.independent(log, [[0]], samples=100), "transitions per action, at least 180, got 100"),
        (lambda log, m: diagnose.independent(log, [[]]), "component"),
    ],
)
def test_wrong_calls_about_sums_and_coverage_are_one_sentence(call, sentence):
    log = certirl.Transitions(uniform(50), np.arange(50) % 2, uniform(50, 1), domain=(-1, 1))
    with pytest.raises((ValueError, TypeError), match=sentence):
        call(log, certirl.steps.measure(log, basis=certirl.Legendre(3)))


def test_moments_prove_nothing_wherever_they_come_from(tmp_path):
    log = drawn(PROBLEM, uniform(100))
    file = table(tmp_path / "log.csv", log, episode=np.arange(len(log)) // 3)
    streamed = certirl.steps.measure(tables.stream(file, domain=(-1, 1)), basis=certirl.Legendre(3))
    merged = certirl.data.moments.merge([streamed, certirl.steps.measure(log, basis=certirl.Legendre(3))])
    for source in (streamed, merged):
        refused("moments keep none", certirl.solve, source, expert=0, discount=0.7, delta=0.1, columns=2)
    with pytest.raises(TypeError, match="neither Transitions nor a simulator"):
        certirl.solve(tables.stream(file), expert=0, discount=0.7, delta=0.1, columns=2)


def test_episodes_that_begin_and_end_alike_are_no_copies_and_whole_copies_are():
    rng = np.random.default_rng(0)
    steps = np.clip(np.cumsum(rng.normal(0.2, 0.3, (80, 12)), axis=1), -1, 1)
    walks = np.concatenate([np.zeros((80, 1)), steps], axis=1)  # all trials start at 0, and many end at the edge
    walks[2:, -1] = rng.uniform(-1, 1, 78)
    walks[:2, -1] = 1.0
    rows = [walks[:, :-1].reshape(-1), np.zeros(960, int), walks[:, 1:].reshape(-1)]
    log = certirl.Transitions(*rows, domain=(-1, 1), episodes=np.repeat(np.arange(80), 12))
    assert dependence(log, "episodes") == ""
    rows = [np.concatenate([row, row[:36]]) for row in rows]
    copied = certirl.Transitions(*rows, domain=(-1, 1), episodes=np.repeat(np.arange(83), 12))
    assert "3 of 83 episodes have the rows of another" in dependence(copied, "episodes")
