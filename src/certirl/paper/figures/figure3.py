"""Figure 3: log(1/δ) against n/k² on one fixed problem, δ being the share of trials that end in a wrong reward.

The paper's constants are β⁻¹ = 26.5, γ = 0.7, c = 0.05, |A| = 3 and Δ = 1.45. The problem is found by a search: of the
random problems with seeds 0 … 999 whose β⁻¹ (by ‖α‖_∞, as in the appendix) lies within 0.1 of 26.5, the one with the
largest Δ; none comes near 1.45. A trial fails if its reward is wrong under the true dynamics, or if there is none; the
paper's own check, of the estimate against itself, is drawn beside it. The second row is certirl with its defaults.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from certirl.paper import methods
from certirl.paper.study import Findings, Runner
from certirl.paper.trial_statistics import Line, bootstrap, fit_line
from certirl.show import plots
from certirl.show.charts import COLOURS


@dataclass(frozen=True)
class Arguments:
    """The paper's numbers (320 trials in its appendix); it does not say which n and k, nor how it found its problem."""

    problem: int = 691
    searched: int = 1_000
    inverse_beta: float = 26.5
    discount: float = 0.7
    cover: float = 0.05
    sizes: tuple[int, ...] = (5, 9, 13, 17, 25)
    most: int = 6_000
    most_certirl: int = 720
    points: int = 12
    trials: int = 240
    seed: int = 0


FAST = Arguments(searched=0, sizes=(5, 9), points=6, trials=64)


def search(arguments: Arguments, runner: Runner) -> dict[str, Any]:
    """Find the problem among the seeds searched, or, if none are, look at the one given."""
    seeds = list(range(arguments.searched)) or [arguments.problem]
    tasks = [[seed, arguments.discount, arguments.cover] for seed in seeds]
    known = dict(zip(seeds, runner(methods.problem_constants, tasks, unit="problems"), strict=True))
    near = [s for s, c in known.items() if abs((c["1/β by ‖α‖_∞"] or np.inf) - arguments.inverse_beta) < 0.1]
    return {
        "rule": "of the seeds searched, those with 1/β (‖α‖_∞) within 0.1 of the paper's; of these the largest Δ",
        "seeds searched": arguments.searched,
        "found": max(near, key=lambda seed: known[seed]["Δ"]),
        "near enough": {seed: known[seed] for seed in near},
        "largest Δ of all": max(c["Δ"] for c in known.values()),
    }


def trial(task: list[Any]) -> list[list[list[bool]]]:
    """One growing data set of one method."""
    method, problem, sizes, samples, discount, cover, *seed = task
    seed += [3, 1 + list(methods.METHODS).index(method)]  # of Figure 3; a last zero would count for nothing
    return methods.judge(method, problem, sizes, samples, seed, discount=discount, cover=cover)


def run(arguments: Arguments, runner: Runner) -> Findings:
    """Search the problem, run the trials of both methods, fit a line for each k."""
    where = search(arguments, runner)
    rng, table, lines = np.random.default_rng(arguments.seed), [], {}
    for method in methods.METHODS:
        most = arguments.most if method == "the paper" else arguments.most_certirl
        samples = [most * (i + 1) // arguments.points for i in range(arguments.points)]
        setting = [method, where["found"], list(arguments.sizes), samples, arguments.discount, arguments.cover]
        tasks = [[*setting, arguments.seed, number] for number in range(arguments.trials)]
        outcomes = np.array(runner(trial, tasks), dtype=bool)
        for column, k in enumerate(arguments.sizes):
            rows = [
                {"method": method, "k": k, "n": n, "n/k²": n / k**2, **shares(outcomes[:, i, column], rng)}
                for i, n in enumerate(samples)
            ]
            table += rows
            lines[f"{method}, k = {k}"] = fitted(~outcomes[:, :, column, 0], samples, k, rng)
    summary = {"problem": where, "trials": arguments.trials, "lines": lines}
    return Findings(summary, table, draw(table, where["found"], arguments), sentence(lines))


def shares(outcomes: Any, rng: np.random.Generator) -> dict[str, float]:
    """The share of wrong rewards with its bootstrap interval, and the share that fails the paper's check."""
    wrong = ~outcomes[:, 0]
    low, high = bootstrap(wrong, rng=rng)
    return {
        "δ": float(wrong.mean()),
        "low": low,
        "high": high,
        "δ by the paper's check": float((~outcomes[:, 1]).mean()),
    }


def fitted(wrong: Any, samples: list[int], k: int, rng: np.random.Generator) -> dict[str, Any]:
    """log(1/δ) as a line in n, over the n at which some trial failed; all n share their trials, which are redrawn."""

    def slope(redrawn: Any) -> float:
        line = _line(redrawn, samples)
        return np.nan if line is None else line.slope * 1000

    fit = _line(wrong, samples)
    if fit is None:
        return {"note": "fewer than three n with a failure: no line"}
    slopes = [slope(wrong[rng.integers(len(wrong), size=len(wrong))]) for _ in range(400)]
    return {
        "slope in n/k²": fit.slope * k**2,
        "slope per 1,000 samples": fit.slope * 1000,
        "95 % interval, bootstrap over trials": np.nanpercentile(slopes, [2.5, 97.5]),
        "intercept": fit.intercept,
        "R²": fit.r2,
        "points": fit.points,
    }


def _line(wrong: Any, samples: list[int]) -> Line | None:
    share = wrong.mean(axis=0)
    seen = share > 0
    return fit_line(np.array(samples)[seen], -np.log(share[seen])) if seen.sum() >= 3 else None


def sentence(lines: dict[str, Any]) -> str:
    """What it shows."""
    parts = []
    for method in methods.METHODS:
        own = [line for name, line in lines.items() if name.startswith(method) and "R²" in line]
        if not own:
            parts.append(f"{method}: too few failures for a line")
            continue
        R2, slopes = [line["R²"] for line in own], [line["slope per 1,000 samples"] for line in own]
        parts.append(
            f"{method}: log(1/δ) is linear in n with R² from {min(R2):.2f} to {max(R2):.2f} and slopes from "
            f"{min(slopes):.2g} to {max(slopes):.2g} per 1,000 samples"
        )
    return "; ".join(parts) + "."


def draw(table: list[dict[str, Any]], found: int, arguments: Arguments) -> Any:
    """The paper's axes on the left, the same against n itself on the right; certirl's defaults below."""
    figure, axes = plots.panels(2, 2, size=(9.2, 7), sharey="row")
    for (left, right), method in zip(axes, methods.METHODS, strict=True):
        for k, colour, marker in zip(arguments.sizes, COLOURS, "osD^v", strict=False):
            rows = [row for row in table if row["method"] == method and row["k"] == k and row["δ"] > 0]
            height, low, high = (
                -np.log([max(row[x], 0.5 / arguments.trials) for row in rows]) for x in ("δ", "high", "low")
            )
            for ax, name in ((left, "n/k²"), (right, "n")):
                x = np.array([row[name] for row in rows])
                plots.with_errors(ax, x, height, low, high, label=f"k = {k}", color=colour, marker=marker)
                if method == "the paper":
                    check = np.array([row["δ by the paper's check"] for row in rows])
                    ax.plot(x[check > 0], -np.log(check[check > 0]), color=colour, ls=":", lw=1.2)
        left.set_xscale("log")
        left.set_ylabel(f"{method}\nlog(1/δ)")
        corner = "lower right" if method == "the paper" else "upper left"
        right.legend(fontsize="x-small", loc=corner, title="judged by the truth", title_fontsize="x-small")
    (check,) = axes[0, 0].plot([], [], color="0.3", ls=":", lw=1.2)
    axes[0, 0].legend([check], ["the paper's own check"], fontsize="x-small", loc="upper left")
    for ax, label in zip(axes[-1], ("n/k²  (logarithmic)", "samples per action, n"), strict=True):
        ax.set_xlabel(label)
    figure.suptitle(
        f"One problem (seed {found}, 1/β ≈ {arguments.inverse_beta:g}), {arguments.trials} trials", fontsize="medium"
    )
    return figure
