"""Beyond the paper: samples until the reward is right, until it is proved right, and what the theorem asks for.

On the problems of Figure 4, transitions per action: (1) from which 95 % of data sets give a reward that is right under
the true dynamics, by the paper's method and by certirl's defaults; (2) at which `solve` proves its reward right with
δ = 0.05, knowing that the dynamics depend on the state through three Legendre functions; (3) that Theorem 6 asks for,
with the constant function deflated and Lemma 4 sharpened. As printed it needs Δ < 1/(2γ), which no problem meets.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from certirl.functions.bases import Legendre
from certirl.paper.figures import figure4
from certirl.paper.hypotheses import constants
from certirl.paper.study import Findings, Runner
from certirl.paper.theorems import requirements
from certirl.paper.trial_statistics import fit_power_law
from certirl.problems import random_polynomial
from certirl.show import plots
from certirl.show.charts import COLOURS
from certirl.solver.solve import solve

INVERSE_BETA = figure4.NORMS[0]


@dataclass(frozen=True)
class Arguments(figure4.Arguments):
    """Those of Figure 4, with 95 % to be right as the certificate promises."""

    trials: int = 40
    level: float = 0.95
    delta: float = 0.05
    proofs: int = 3
    most_proof: int = 4_000_000


FAST = Arguments(searched=40, problems=3, hardest=40.0, trials=20, most=16_384, proofs=1, most_proof=200_000)


def prove(task: list[Any]) -> tuple[float | None, bool]:
    """Transitions per action at which one run of `solve` certifies, None if it does not; and whether that is false."""
    problem_seed, size, discount, delta, most, seed, number = task
    problem = random_polynomial(seed=problem_seed)
    rng = np.random.default_rng([seed, problem_seed, number])
    declared: dict[str, Any] = {"basis": Legendre(size), "columns": 3, "tail": 0}
    asked: dict[str, Any] = {"discount": discount, "delta": delta, "samples": most, "progress": False}
    solution = solve(problem, expert=0, rng=rng, **declared, **asked)
    if solution.reward is None or solution.status != "certified":
        return None, False
    return float(solution.samples), problem.true_margin(solution.reward, discount=discount) <= 0


def promised(problem_seed: int, arguments: Arguments) -> dict[str, Any]:
    """What Theorem 6 asks for, as printed and deflated."""
    problem, basis = random_polynomial(seed=problem_seed), Legendre(arguments.size)
    known = constants(problem.operators(basis, 3), discount=arguments.discount)
    names = ("beta", "rho", "norm", "inner_norm", "difference")
    given: dict[str, Any] = {name: getattr(known, name) for name in names}
    given |= {name: getattr(arguments, name) for name in ("discount", "delta", "size", "cover")}
    needed = requirements(**given, actions=problem.n_actions, basis=basis, columns=3)
    return {"as printed": needed.literal.samples, "Theorem 6": needed.exact.samples}


def run(arguments: Arguments, runner: Runner) -> Findings:
    """Three numbers for each problem."""
    curves = figure4.run(arguments, runner)
    needed = curves.summary[f"n for {arguments.level:.0%}"]
    problems = curves.summary["problems"]
    setting = [arguments.size, arguments.discount, arguments.delta, arguments.most_proof, arguments.seed]
    tasks = [[seed, *setting, number] for seed in problems for number in range(arguments.proofs)]
    proofs = iter(runner(prove, tasks, unit="proofs"))
    table = []
    for seed, inverse in problems.items():
        right = {row["method"]: row["n"] for row in needed if row["problem"] == seed}
        runs = [next(proofs) for _ in range(arguments.proofs)]
        table.append(
            {
                "problem": seed,
                **inverse,
                **{f"right, {method}": n for method, n in right.items()},
                "certified": float(np.median([np.inf if n is None else n for n, _ in runs])),
                "false certificates": sum(false for _, false in runs),
                **promised(seed, arguments),
            }
        )
    ratios = {
        "certified over right": ratio(table, "certified", "right, certirl"),
        "Theorem 6 over certified": ratio(table, "Theorem 6", "certified"),
    }
    false = sum(row["false certificates"] for row in table)
    sentence = (
        f"A proof takes {ratios['certified over right']:.0f} times the samples of being right in "
        f"{arguments.level:.0%} of runs; the theorem asks for {ratios['Theorem 6 over certified']:,.0f} times as many "
        f"again (medians over the problems); {false} of {len(tasks)} runs ended in a false certificate."
    )
    return Findings({"problems": table, "medians": ratios}, table, draw(table, arguments), sentence)


def ratio(table: list[dict[str, Any]], above: str, below: str) -> float:
    """The median over the problems that have both numbers."""
    return float(np.median([r[above] / r[below] for r in table if np.isfinite(r[above]) and np.isfinite(r[below])]))


def draw(table: list[dict[str, Any]], arguments: Arguments) -> Any:
    """The numbers against 1/β."""
    figure, axes = plots.panels(1, 1, size=(6.4, 4.6))
    ax = axes[0, 0]
    shown = {
        "Theorem 6": "Theorem 6, deflated and sharpened: promised before any data",
        "certified": f"certified by `solve`, δ = {arguments.delta:g}",
        "right, the paper": f"right in {arguments.level:.0%} of runs: the paper's method",
        "right, certirl": f"right in {arguments.level:.0%} of runs: certirl's defaults",
    }
    for (name, label), colour, marker in zip(shown.items(), ("black", *COLOURS[2::-1]), "^Dos", strict=True):
        rows = [row for row in table if np.isfinite(row[name] or np.inf)]
        if len(rows) >= 3:
            x, y = (np.array([row[key] for row in rows], dtype=float) for key in (INVERSE_BETA, name))
            fit = fit_power_law(x, y)
            ax.plot(x, np.exp(fit.intercept) * x**fit.slope, color=colour, lw=1, alpha=0.6)
            ax.plot(x, y, marker, color=colour, ms=5, label=f"{label}  (slope {fit.slope:.1f})")
    ax.set(xscale="log", yscale="log", xlabel="1/β by ‖α‖₁", ylabel="transitions per action")
    ax.xaxis.set_minor_formatter("")
    ax.set_ylim(top=ax.get_ylim()[1] * 300)  # room for the legend
    ax.legend(fontsize="x-small", loc="upper left")
    return figure
