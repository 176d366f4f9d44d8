"""The paper's Figure 1: from the estimated margin of Algorithm 2 to a bound on the true one.

Between the points of the cover the estimated margin αᵀF̂φ(s) cannot fall faster than its Lipschitz constant ρ̂‖α‖₁
allows; the true margin is within ‖α‖₁‖F − F̂‖_∞ of it. Both matrices are known here, F from 401 functions in place of
infinitely many.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from certirl.data.moments import Moments
from certirl.fit.bellman import bellman, estimate
from certirl.fit.recover import cover_points, recover
from certirl.ground.domain import Array
from certirl.paper.hypotheses import constants
from certirl.problems import Problem
from certirl.show.charts import Chart, Curve, Level

ALL = 401
GRID = np.linspace(-1.0, 1.0, 801)


def curves(problem: Problem, moments: Moments, *, discount: float, cover: float) -> dict[str, Any]:
    """Everything drawn in one panel, for the alternative action whose guarantee is lowest.

    Args:
        problem: on [-1, 1], with known truth.
        moments: of transitions drawn from it, in one basis.
        discount: γ.
        cover: the radius of the paper's cover.
    """
    basis = moments.rows
    criterion = bellman(estimate(moments, form="mean"), discount=discount)
    exact = bellman(problem.operators(basis.resized(ALL)), discount=discount).F[:, : basis.size].copy()
    recovered = recover(criterion, objective="l1", cover=cover)
    if recovered.reward is None:
        raise ValueError(f"no reward at n = {int(moments.counts.min())}: take more samples")
    alpha = recovered.reward.coefficients
    norm = float(np.abs(alpha).sum())
    slope = constants(criterion).rho * norm
    exact[:, :, : basis.size] -= criterion.F
    error = float(np.abs(exact).sum(axis=2).max()) * norm  # |φ| ≤ 1
    points = cover_points(problem.domain, cover)[:, 0]
    estimated = criterion.margins(alpha) @ basis.values(GRID).T
    at_points = criterion.margins(alpha) @ basis.values(points).T
    floor = (at_points[:, None, :] - slope * np.abs(GRID[:, None] - points)).max(axis=2)
    truth = problem.margins(recovered.reward, GRID, discount=discount)
    alternative = int(floor.min(axis=1).argmin())
    return {
        "rival": criterion.alternatives[alternative],
        "right": bool(truth.min() > 0),  # against every alternative, not only the one that is drawn
        "cover points": points,
        "margin at cover points": at_points[alternative],
        "estimate": estimated[alternative],
        "between the points at least": floor[alternative],
        "truth at least": floor[alternative] - error,
        "truth": truth[alternative],
        "Lipschitz constant": slope,
        "error of F times ‖α‖₁": error,
    }


def verdict(panel: dict[str, Any]) -> str:
    """Whether the reward is right, and whether the bound proves it, in words."""
    proved = "right, and proved" if min(panel["truth at least"]) > 0 else "right, but not proved"
    return proved if panel["right"] else "wrong"


def chart(panel: dict[str, Any]) -> Chart:
    """A panel as a picture."""
    lines: tuple[tuple[str, Array, str, int | None], ...] = (
        ("estimate", panel["estimate"], "line", None),
        ("lower bound between the points of the cover", panel["between the points at least"], "line", 1),
        ("bound on the truth: less the error of the estimate", panel["truth at least"], "line", 0),
        ("truth", panel["truth"], "dashed", 2),
    )
    drawn = [Curve(label, GRID, values, style=style, colour=colour) for label, values, style, colour in lines]
    drawn.append(Curve("points of the cover", panel["cover points"], panel["margin at cover points"], style="points"))
    least, most = float(min(panel["truth at least"])), float(max(panel["estimate"].max(), panel["truth"].max()))
    low = min(0.0, max(least, -2 * most)) - 0.05 * most  # a bound far below zero says nothing
    label = f"margin over action {panel['rival']}"
    return Chart(verdict(panel), "state s", label, tuple(drawn), levels=(Level(0.0),), low=low, high=1.1 * most)
