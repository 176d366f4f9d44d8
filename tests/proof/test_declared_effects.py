"""Proofs with an action that is declared to lead to one state: its rows are made, and no row of it is needed."""

import numpy as np
import pytest

import certirl
import certirl_check
from certirl import Legendre
from sizes import sizes
from systems import Coins, Moving

COINS = Coins((0.5,), (0.4,))  # action 0; action 1 leads to 0.8
ASKED = {"discount": 0.5, "expert": 1, "delta": 0.05, "tail": 0, "columns": 2, "basis": Legendre(2), "rng": 0}


def to_the_right(states):
    return 0 * states + 0.8


def tossed(count, seed=0, **more):
    rng = np.random.default_rng(seed)
    states = rng.uniform(-1, 1, (count, 1))
    log = {"domain": (-1, 1), "n_actions": 2, "independent": True} | more
    return certirl.Transitions(states, np.zeros(count, dtype=int), COINS.sample(states, 0, rng), **log)


def true_margin(reward):
    """D_0(s) = V(0.8) − (P_0V)(s) is least where the coin is likeliest to fall right, at s = 1: exact."""
    high, low = reward(np.array([0.8, -0.8]))
    return 0.1 * (high - low)  # V(s) = R(s) + γV(0.8), and the coin falls left with probability 0.1 there


@pytest.mark.parametrize("count", sizes(4, 12))
def test_no_row_of_the_declared_action_is_needed_and_nothing_proved_is_false(count):
    for seed in range(count):
        solution = certirl.solve(tossed(4_000, seed), effects={1: to_the_right}, **ASKED | {"rng": seed})
        proof = solution.certificate
        assert solution.status == "certified" and 0 < proof.margin < true_margin(solution.reward)
        assert proof.estimated == pytest.approx(true_margin(solution.reward), rel=0.5)


def test_the_file_says_that_rows_were_made(tmp_path):
    solution = certirl.solve(tossed(4_000, action_names=("toss", "set")), effects={1: to_the_right}, **ASKED)
    said = "set leads to s = 0.8 from every state, as was declared, and its rows were made"
    verdict = certirl_check.check(solution.save(tmp_path / "answer"))
    assert verdict.verdict == "confirmed" and any(said in words for words in verdict.trusted)
    assert said in str(solution) and certirl.load(tmp_path / "answer.npz").certificate.log_notes == (said,)


def test_rows_of_the_log_do_not_count_where_the_effect_is_declared():
    log = tossed(3_000)
    wrong = certirl.Transitions(log.states[:50], np.ones(50, dtype=int), -to_the_right(log.states[:50]), (-1, 1), 2)
    columns = ("states", "actions", "next_states")
    rows = [np.concatenate([getattr(part, name) for part in (log, wrong)]) for name in columns]
    both = certirl.Transitions(*rows, domain=(-1, 1), independent=True)
    one, other = (certirl.solve(each, effects={1: to_the_right}, **ASKED).certificate for each in (log, both))
    assert one.margin == other.margin


def test_noise_is_tested_where_it_was_observed_alone():
    """The declared action has none, which is no contradiction; that another has less than declared is one."""
    room = Moving(((0.0, 10.0),), (0.5, 0.0), keep=0.8, std=1.5)
    rng = np.random.default_rng(0)
    states = rng.uniform(0, 10, (40_000, 1))
    log = certirl.Transitions(states, np.zeros(40_000, int), room.sample(states, 0, rng), domain=(0, 10), n_actions=2)
    asked = {"discount": 0.7, "expert": 1, "effects": {1: lambda states: 0 * states + 9.0}, "delta": 0.05, "rng": 0}
    found = certirl.solve(log, tail=certirl.dynamics.GaussianNoise(1.5, slope=0.8), **asked)
    assert found.status == "certified"
    with pytest.raises(ValueError, match="contradict"):
        certirl.solve(log, tail=certirl.dynamics.GaussianNoise(4.0, slope=0.8), **asked)


def test_rows_in_the_order_of_time_get_rows_between_them():
    rng, states = np.random.default_rng(3), [np.zeros(1)]
    for _ in range(12_000):  # every fifth step is set to a random state, whose rows the log leaves out
        states.append(COINS.sample(states[-1][None], 0, rng)[0] if rng.random() < 0.8 else rng.uniform(-1, 1, 1))
    path = np.array(states)
    kept = np.isin(path[1:, 0], [0.8, -0.8])
    trail = certirl.Transitions(
        path[:-1][kept], np.zeros(kept.sum(), int), path[1:][kept], domain=(-1, 1), n_actions=2, independent=False
    )
    solution = certirl.solve(trail, effects={1: to_the_right}, **ASKED)
    assert solution.status == "certified" and solution.stats.sampling == "order"
    assert 0 < solution.certificate.margin < true_margin(solution.reward)


@pytest.mark.parametrize(
    ("effect", "says"),
    [
        (lambda states: 0.5 * states, "and action 1 leads to several: leave effects, or delta, out"),
        (certirl.dynamics.Resets(to=0.5, then=0), r"and Resets\(to=0.5\) moves on at random"),
    ],
    ids=["a function", "a reset"],
)
def test_other_declared_effects_have_no_proof(effect, says):
    with pytest.raises(ValueError, match="a proof covers declared effects that lead to one state, .*" + says):
        certirl.solve(tossed(500), effects={1: effect}, **ASKED)
    with pytest.raises(ValueError, match="a proof rests on draws of every action: leave effects out, or delta"):
        certirl.solve(Coins((0.5, 0.5), (0.4, -0.4)), effects={1: to_the_right}, **ASKED)
