"""The truth about experts who switch agrees with a finite problem of fine cells, solved by other means."""

import numpy as np
import pytest
from scipy.special import ndtr

from certirl.problems import Steps, Truth, comfort, judge, next_values, optimal_policy, regret
from refusals import refused

CELLS = 400


@pytest.fixture(scope="module")
def room():
    return comfort(noise=0.4)


def finite(room):
    """Transition matrices between cells, from the distribution function at the cells' ends."""
    edges = np.linspace(-1, 1, CELLS + 1)
    middles = (edges[1:] + edges[:-1]) / 2
    matrices = []
    for power in room.dynamics.power:
        mean = middles + room.dynamics.leak * (room.dynamics.ambient - middles) + power
        reached = ndtr((edges - mean[:, None]) / room.dynamics.noise)
        matrices.append(np.diff(reached, axis=1) / (reached[:, -1:] - reached[:, :1]))
    return middles, np.array(matrices)


def test_the_expert_is_the_best_policy_of_a_fine_finite_problem(room):
    middles, P = finite(room)
    gained, value = -((middles - 0.1) ** 2), np.zeros(CELLS)
    for _ in range(150):
        value = gained + 0.9 * (P @ value).max(axis=0)
    best = (P @ value).argmax(axis=0)
    assert room.expert.actions == (0, 1, 2)
    differ = best != room.expert(middles[:, None])
    assert (room.expert.away(middles[differ][:, None]) < 2 / CELLS).all()
    truth = Truth(room.dynamics, cuts=room.expert.switches)
    expected, _ = truth.plan(room.reward, discount=0.9)
    here = -((0.2 - 0.1) ** 2) + 0.9 * truth.next_values(expected, np.array([[0.2]])).max()
    assert here == pytest.approx(np.interp(0.2, middles, value), abs=1e-3)


def test_outcomes_of_any_expert_agree_with_the_finite_problem(room):
    middles, P = finite(room)
    moved = Steps((-0.3, 0.2), (0, 1, 2))
    own = P[moved(middles[:, None]), np.arange(CELLS)]
    value = np.linalg.solve(np.eye(CELLS) - 0.9 * own, -((middles - 0.1) ** 2))
    found = next_values(room.dynamics, room.reward, moved, middles, discount=0.9)
    assert np.abs(found - P @ value).max() < 1e-3
    judgement = judge(room.dynamics, room.reward, moved, discount=0.9)
    assert judgement.span == pytest.approx(np.ptp(value), rel=5e-3)  # the finite one has no states at the ends
    _, inside = judgement.truth.evaluate(room.reward, judgement.actions, discount=0.9)  # without the ends, too
    lost = judgement.regret / np.ptp(inside)
    best = np.zeros(CELLS)
    for _ in range(150):
        best = -((middles - 0.1) ** 2) + 0.9 * (P @ best).max(axis=0)
    assert lost == pytest.approx((best - value).max() / np.ptp(value), abs=5e-4) and lost > 0.01
    assert regret(room.dynamics, room.reward, moved, discount=0.9) == judgement.regret / judgement.span


def test_the_expert_has_no_regret_and_replanning_finds_it_again(room):
    assert regret(room.dynamics, room.reward, room.expert, discount=0.9) == pytest.approx(0, abs=1e-9)
    assert optimal_policy(room.dynamics, room.reward, discount=0.9) == room.expert
    assert "switches at" in str(room)


def test_steps_must_fit_together():
    refused("an expert with 2 switches, in order, has 3 actions", Steps, (0.1, 0.2), (0, 1))
    assert Steps((), (1,)).away(np.zeros((2, 1))).tolist() == [np.inf, np.inf]
