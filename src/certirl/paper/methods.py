"""The two methods that Figures 3 and 4 compare, judged against the true dynamics on one growing data set.

- the paper: `algorithm1` and `algorithm2`.
- certirl: its defaults for a given size: Legendre functions, least squares at well-placed states with common random
  numbers, least variance on the continuum, as many columns as predict held-out data best.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import add
from typing import Any

import numpy as np

from certirl.data.moments import Moments, accumulate, total
from certirl.data.simulator import Simulator, draw
from certirl.fit.bellman import Bellman, bellman, estimate
from certirl.fit.choose import FOLDS, best_columns
from certirl.fit.recover import Recovery, recover
from certirl.functions.bases import Basis, Fourier, Legendre
from certirl.ground.domain import Array
from certirl.paper.algorithms import algorithm1, algorithm2
from certirl.problems import random_polynomial

METHODS = {"the paper": Fourier, "certirl": Legendre}
CHECK_POINTS = np.linspace(-1.0, 1.0, 100)  # the cover on which the paper checks a reward


def judge(
    method: str,
    problem_seed: int,
    sizes: Sequence[int],
    samples: Sequence[int],
    seed: Sequence[int],
    *,
    discount: float,
    cover: float,
) -> list[list[list[bool]]]:
    """For every n and every k: is the reward right under the true dynamics, and does the paper's check say so?

    The paper's check looks at the estimate itself, on 100 points. No reward counts as wrong. One data set serves every
    n (prefixes) and every k (leading blocks).
    """
    problem = random_polynomial(seed=problem_seed)
    basis = METHODS[method](max(sizes)).on(problem.domain)
    # The densities are (1 − s²)A + s²B, so that every true margin is lowest at s = 0 or at the ends.
    truth = problem.margin_rows(basis, np.array([0.0, 1.0]), discount=discount).reshape(-1, basis.size)
    ours = method == "certirl"
    way: dict[str, Any] = {"design": ours, "paired": ours, "folds": FOLDS if ours else 1}
    outcomes = []
    for folds in growing_moments(problem, basis, basis, samples, np.random.default_rng(seed), **way):
        found = [_answer(method, folds, k, discount, cover) for k in sizes]
        outcomes.append([_verdicts(criterion, answer, truth) for criterion, answer in found])
    return outcomes


def _answer(method: str, folds: tuple[Moments, ...], k: int, discount: float, cover: float) -> tuple[Bellman, Recovery]:
    """The criterion and what the method recovers from it, with the leading k functions."""
    leading = [fold.leading(k, k) for fold in folds]
    if method == "the paper":
        operators = algorithm1(leading[0], size=k)
        return bellman(operators, discount=discount), algorithm2(operators, discount=discount, cover=cover)
    columns = best_columns(leading)
    criterion = bellman(estimate(total(leading).leading(k, columns)), discount=discount)
    return criterion, recover(criterion)


def _verdicts(criterion: Bellman, answer: Recovery, truth: Array) -> list[bool]:
    if answer.reward is None:
        return [False, False]
    alpha = answer.reward.coefficients
    itself = criterion.margins(alpha) @ criterion.columns.values(CHECK_POINTS).T
    return [bool((truth[:, : len(alpha)] @ alpha).min() > 0), bool(itself.min() > 0)]


def problem_constants(task: Sequence[float]) -> dict[str, float]:
    """1/β in the two norms that the paper uses, and Δ, from exact matrices with k = 11 as in its appendix.

    The task is a problem's seed, γ and c.
    """
    problem_seed, discount, cover = task
    operators = random_polynomial(seed=int(problem_seed)).operators(Fourier(11))
    found = algorithm2(operators, discount=discount, cover=cover)
    alpha = np.full(1, np.inf) if found.reward is None else np.abs(found.reward.coefficients)
    return {
        "1/β by ‖α‖_∞": float(alpha.max()),
        "1/β by ‖α‖₁": float(alpha.sum()),
        "Δ": float(np.abs(operators.Z).sum(axis=2).max()),
    }


def growing_moments(
    simulator: Simulator,
    rows: Basis,
    columns: Basis,
    samples: Sequence[int],
    rng: np.random.Generator,
    *,
    folds: int = 1,
    **sampling: Any,
) -> Iterator[tuple[Moments, ...]]:
    """The moments, by folds, of the first n transitions per action for every n in turn, all from one data set.

    Leading blocks serve all smaller bases. ``sampling`` is as in `draw`.
    """
    total: tuple[Moments, ...] = ()
    for more in np.diff([0, *samples]):
        stream = draw(simulator, columns, int(more), rng, **sampling)
        (added,) = accumulate(stream, [(rows, columns)], n_actions=simulator.n_actions, folds=folds)
        total = tuple(map(add, total, added)) if total else added
        yield total
