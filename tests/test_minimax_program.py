"""The linear program against the same program written out whole for SciPy."""

import numpy as np
import pytest
from scipy.optimize import linprog

import certirl
from certirl.cells import Cells
from certirl.effects import live_states, seen_effects
from certirl.minimax_program import MOST_ROWS, PRICE, SMALL, minimax_value
from certirl.policies import as_policy
from certirl.value_program import comparisons, fit_value


class Corridor:
    n_actions, domain = 3, ((-1.0, 1.0),)

    def sample(self, states, action, rng):
        return np.clip(states + 0.1 * (action - 1), -1.0, 1.0)


def home(states):
    return np.where(states[:, 0] < -0.05, 2, np.where(states[:, 0] > 0.05, 0, 1))


def problem(n):
    rng, basis = np.random.default_rng(0), certirl.Legendre(6).on(((-1.0, 1.0),))
    effects = seen_effects(Corridor(), basis, live_states(Corridor(), n, rng), rng)
    return effects, comparisons(effects, as_policy(home, 3))


@pytest.mark.parametrize("reward_basis", [Cells((8,)), certirl.Legendre(9)])
def test_cutting_planes_reach_the_value_of_the_whole_program(reward_basis):
    effects, rows = problem(300)
    basis = reward_basis.on(((-1.0, 1.0),))
    found = minimax_value(effects, rows, discount=0.9, reward_basis=basis)
    k, m, n = 6, basis.size, len(rows)
    target, psi = effects.now - 0.9 * rows.expert, basis.values(effects.states)
    cost = np.concatenate([np.full(2 * k, SMALL), np.zeros(m), [10.0], np.full(n, PRICE / n)])
    blank = np.zeros((len(target), n))
    bounds = [(0, None)] * (2 * k) + [(None, None)] * m + [(0, None)] * (1 + n)
    above = np.hstack([-rows.gains, rows.gains, np.zeros((n, m + 1)), -np.eye(n)])
    within = [np.hstack([-s * target, s * target, s * psi, -np.ones((len(psi), 1)), blank]) for s in (1, -1)]
    right = np.concatenate([-rows.margins, np.zeros(2 * len(psi))])
    whole = linprog(cost, A_ub=np.vstack([above, *within]), b_ub=right, bounds=bounds)
    ours = SMALL * np.abs(found.value).sum() + 10 * found.residual + PRICE * found.shortfall.mean()
    assert ours == pytest.approx(whole.fun, rel=1e-4)
    assert found.steps >= 1


def test_rows_that_were_not_given_at_first_hold_in_the_end():
    effects, rows = problem(4000)
    assert len(rows) > MOST_ROWS
    cells = Cells((12,)).on(((-1.0, 1.0),))
    found = minimax_value(effects, rows, discount=0.9, reward_basis=cells)
    mean_square = fit_value(effects, rows, discount=0.9, reward_basis=cells, follow="expert")
    assert found.steps >= 1 and np.all(rows.gains @ found.value + found.shortfall >= rows.margins - 1e-9)
    ours, theirs = (
        SMALL * np.abs(one.value).sum() + 10 * one.residual + PRICE * one.shortfall.mean()
        for one in (found, mean_square)
    )
    assert ours < theirs
