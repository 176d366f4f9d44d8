"""Figure 1: why Algorithm 2 is right; the margin curve, what it cannot fall below, and where the truth must lie.

    python experiments/figure1.py [--fast] [--workers N] [--seed S] [--out DIR]

The paper's algorithm on one problem. Between the points of the cover the estimated margin αᵀF̂φ(s) cannot fall faster
than its Lipschitz constant ρ̂‖α‖₁ allows; the true margin is within ‖α‖₁‖F − F̂‖_∞ of it (both matrices are known here,
F from 401 functions in place of infinitely many). On the left there are too few samples for this to prove anything,
although the reward is right; on the right enough.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

import study
from certirl import Fourier, plots
from certirl.problems import random_polynomial
from certirl.show import figure1
from certirl.show.figure1 import GRID


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


def curves(task: list[Any]) -> dict[str, Any]:
    """Everything drawn in one panel."""
    problem_seed, size, discount, cover, samples, seed = task
    problem = random_polynomial(seed=problem_seed)
    basis = Fourier(size).on(problem.domain)
    rng = np.random.default_rng([seed, samples])
    (moments,) = next(study.growing_moments(problem, basis, basis, [samples], rng))
    return figure1.curves(problem, moments, discount=discount, cover=cover)


def run(arguments: Arguments, runner: study.Runner) -> study.Findings:
    """Both panels."""
    setting = [arguments.problem, arguments.size, arguments.discount, arguments.cover]
    panels = runner(curves, [[*setting, n, arguments.seed] for n in arguments.samples], unit="panels")
    names = ("estimate", "between the points at least", "truth at least", "truth")
    table, summary = [], {}
    for n, panel in zip(arguments.samples, panels, strict=True):
        table += [
            {"n": n, "s": s, **{name: panel[name][i] for name in names}} for i, s in enumerate(GRID.round(10).tolist())
        ]
        summary[f"n = {n:,}"] = {
            **{f"smallest: {name}": min(panel[name]) for name in names},
            **{name: panel[name] for name in ("rival", "right", "Lipschitz constant", "error of F times ‖α‖₁")},
        }
    lowest = [min(panel["truth at least"]) for panel in panels]
    sentence = "; ".join(
        f"n = {n:,}: the true margin must be at least {low:.2f}, F being known, and is {min(panel['truth']):.2f}"
        for n, low, panel in zip(arguments.samples, lowest, panels, strict=True)
    )
    return study.Findings(summary, table, draw(panels, arguments), f"{sentence}.")


def draw(panels: list[dict[str, Any]], arguments: Arguments) -> Any:
    """One panel for each n."""
    figure, axes = plots.panels(1, len(panels), size=(5.2 * len(panels), 3.8))
    blue, red = plots.COLOURS[0], plots.COLOURS[1]
    for ax, n, panel in zip(axes[0], arguments.samples, panels, strict=True):
        floor, below = panel["between the points at least"], panel["truth at least"]
        ax.fill_between(GRID, below, floor, color=blue, alpha=0.13, lw=0)
        ax.plot(GRID, panel["estimate"], color="black", lw=1.6, label=r"estimate $\alpha^\top\hat F\varphi(s)$")
        ax.plot(GRID, floor, color=red, lw=1.1, label="lower bound between cover points (Lipschitz)")
        ax.plot(GRID, below, color=blue, lw=1.1, label=r"minus $\|\alpha\|_1\|F-\hat F\|_\infty$: bound on the truth")
        ax.plot(
            GRID,
            panel["truth"],
            color=plots.COLOURS[2],
            lw=1.6,
            ls=(0, (4, 2)),
            label=r"truth $\alpha^\top F\varphi(s)$",
        )
        ax.plot(panel["cover points"], panel["margin at cover points"], ".", color="black", ms=4)
        ax.axhline(0.0, color="0.2", lw=1)
        ax.set(
            xlabel="state s",
            xlim=(-1, 1),
            xticks=np.linspace(-1, 1, 5),
            title=f"n = {n:,}: {figure1.verdict(panel)}",
        )
    axes[0, 0].set_ylabel(f"margin over action {panels[0]['rival']}")
    axes[0, -1].legend(fontsize="x-small", loc="upper center")
    return figure


if __name__ == "__main__":
    raise SystemExit(study.main(sys.modules[__name__]))
