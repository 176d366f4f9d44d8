"""Figure 1: why Algorithm 2 is right; the margin curve, what it cannot fall below, and where the truth must lie.

The paper's program on one problem, with the first row of Ẑ known. Between the points of the cover the estimated margin
αᵀF̂φ(s) cannot fall faster than its Lipschitz constant ρ̂‖α‖₁ allows; the true margin is within ‖α‖₁‖F − F̂‖_∞ of it
(both matrices are known here, F from 401 functions in place of infinitely many). On the left there are too few samples
for this to prove anything, although the reward is right; on the right enough.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from certirl.fit.bellman import bellman, estimate
from certirl.fit.recover import cover_points
from certirl.functions.bases import Fourier
from certirl.paper.algorithms import algorithm2
from certirl.paper.hypotheses import constants
from certirl.paper.methods import growing_moments
from certirl.paper.study import Findings, Runner
from certirl.problems import random_polynomial
from certirl.show import plots
from certirl.show.charts import COLOURS

ALL = 401
GRID = np.linspace(-1.0, 1.0, 801)


@dataclass(frozen=True)
class Arguments:
    """The paper's γ, c, |A|; it does not say which problem, k or n."""

    problem: int = 0
    size: int = 11
    discount: float = 0.7
    cover: float = 0.05
    samples: tuple[int, ...] = (50_000, 2_000_000)
    seed: int = 0


FAST = Arguments(samples=(30_000, 1_000_000))


def trial(task: list[Any]) -> dict[str, Any]:
    """The panel of one n: its curves, for the alternative action whose guarantee is lowest."""
    problem_seed, size, discount, cover, samples, seed = task
    problem = random_polynomial(seed=problem_seed)
    basis = Fourier(size).on(problem.domain)
    (moments,) = next(growing_moments(problem, basis, basis, [samples], np.random.default_rng([seed, samples])))
    operators = estimate(moments, form="mean")
    criterion = bellman(operators, discount=discount)
    exact = bellman(problem.operators(basis.resized(ALL)), discount=discount).F[:, :size].copy()
    recovered = algorithm2(operators, discount=discount, cover=cover)
    if recovered.reward is None:
        raise ValueError(f"no reward at n = {samples}: take more samples")
    alpha = recovered.reward.coefficients
    norm = float(np.abs(alpha).sum())
    slope = constants(criterion).rho * norm
    exact[:, :, :size] -= criterion.F
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


def run(arguments: Arguments, runner: Runner) -> Findings:
    """Both panels."""
    setting = [arguments.problem, arguments.size, arguments.discount, arguments.cover]
    panels = runner(trial, [[*setting, n, arguments.seed] for n in arguments.samples], unit="panels")
    names = ("estimate", "between the points at least", "truth at least", "truth")
    table, summary, parts = [], {}, []
    for n, panel in zip(arguments.samples, panels, strict=True):
        table += [
            {"n": n, "s": s, **{name: panel[name][i] for name in names}} for i, s in enumerate(GRID.round(10).tolist())
        ]
        smallest = {name: min(panel[name]) for name in names}
        summary[f"n = {n:,}"] = {
            **{f"smallest: {name}": value for name, value in smallest.items()},
            **{name: panel[name] for name in ("rival", "right", "Lipschitz constant", "error of F times ‖α‖₁")},
        }
        parts.append(
            f"n = {n:,}: the true margin must be at least {smallest['truth at least']:.2f}, F being known, and is "
            f"{smallest['truth']:.2f}"
        )
    return Findings(summary, table, draw(panels, arguments), f"{'; '.join(parts)}.")


def draw(panels: list[dict[str, Any]], arguments: Arguments) -> Any:
    """One panel for each n."""
    figure, axes = plots.panels(1, len(panels), size=(5.2 * len(panels), 3.8))
    blue, red, green = COLOURS[:3]
    for ax, n, panel in zip(axes[0], arguments.samples, panels, strict=True):
        floor, below = panel["between the points at least"], panel["truth at least"]
        ax.fill_between(GRID, below, floor, color=blue, alpha=0.13, lw=0)
        ax.plot(GRID, panel["estimate"], color="black", lw=1.6, label=r"estimate $\alpha^\top\hat F\varphi(s)$")
        ax.plot(GRID, floor, color=red, lw=1.1, label="lower bound between cover points (Lipschitz)")
        ax.plot(GRID, below, color=blue, lw=1.1, label=r"minus $\|\alpha\|_1\|F-\hat F\|_\infty$: bound on the truth")
        dashed = {"color": green, "lw": 1.6, "ls": (0, (4, 2))}
        ax.plot(GRID, panel["truth"], label=r"truth $\alpha^\top F\varphi(s)$", **dashed)
        ax.plot(panel["cover points"], panel["margin at cover points"], ".", color="black", ms=4)
        ax.axhline(0.0, color="0.2", lw=1)
        title = f"n = {n:,}: {verdict(panel)}"
        ax.set(xlabel="state s", xlim=(-1, 1), xticks=np.linspace(-1, 1, 5), title=title)
    axes[0, 0].set_ylabel(f"margin over action {panels[0]['rival']}")
    axes[0, -1].legend(fontsize="x-small", loc="upper center")
    return figure
