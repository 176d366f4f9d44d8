"""What tests of refutations have in common: the best margin by a linear program, and bounds beside the truth."""

import numpy as np
from scipy.optimize import linprog

import certirl
from certirl.proof.refutation import Bounds
from certirl.proof.sums import gather_residuals


def best_margin(rows):
    """The largest min of w·ρ over ‖w‖₁ ≤ 1."""
    p = rows.shape[1]
    above, norm = np.column_stack([-rows, rows, np.ones(len(rows))]), np.append(np.ones(2 * p), 0.0)
    limits = [(0, None)] * (2 * p) + [(None, None)]
    found = linprog(norm - 1, A_ub=np.vstack([above, norm]), b_ub=np.append(np.zeros(len(rows)), 1), bounds=limits)
    return -found.fun


def numbers(cover, after, expert):
    """The true numbers of a plan, from the functions after every action at its states ``[A, n, K − 1]``."""
    each = np.arange(len(cover.states))
    rows = after[expert(cover.states), each] - after[cover.actions, each]
    return ((cover.mixtures @ rows)[cover.which] * cover.directions).sum(axis=1)


def runs_beyond(problem, cover, truth, samples, pairs):
    """In how many runs some number exceeds its bound, and 0.3 of its error; data, sums and bounds of the last."""
    misses = short = 0
    for seed, paired in enumerate(pairs):
        data = certirl.steps.sample(problem, basis=cover.columns, samples=samples, rng=seed, design=True, paired=paired)
        (sums,) = gather_residuals([cover], data)
        bounds = Bounds(cover, sums, 0.0)
        error = bounds.errors(cover, 0.5).sum(axis=0)
        misses += bool((truth > bounds.estimate + error).any())
        short += bool((truth > bounds.estimate + 0.3 * error).any())
    return misses, short, data, sums, bounds
