"""Figure 4: how the separability β decides the samples needed; share of right rewards against n for several problems.

The problems are those of the random ones with seeds 0 … 199 whose β⁻¹ (by ‖α‖₁, Definition 2) come nearest to an even
logarithmic scale; both norms that the paper uses for β are reported. Right means right under the true dynamics. From
each curve the n that reaches 90 % is read off and fitted as a power of β⁻¹. The paper's method and certirl's defaults.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from certirl.paper import methods
from certirl.paper.study import Findings, Runner
from certirl.paper.trial_statistics import bootstrap, crossing, fit_power_law
from certirl.show import plots
from certirl.show.charts import COLOURS

NORMS = ("1/β by ‖α‖₁", "1/β by ‖α‖_∞")


@dataclass(frozen=True)
class Arguments:
    """The paper's numbers, as far as it gives them: 160 trials, k = 11, γ = 0.7, c = 0.05, three actions."""

    searched: int = 200
    easiest: float = 10.0
    hardest: float = 160.0
    problems: int = 9
    size: int = 11
    discount: float = 0.7
    cover: float = 0.05
    least: int = 32
    most: int = 262_144
    trials: int = 160
    level: float = 0.9
    seed: int = 0

    def samples(self, method: str) -> list[int]:
        """Powers of two; certirl rises where the paper's method has hardly begun."""
        least, most = (4 * self.least, self.most) if method == "the paper" else (self.least, self.most // 8)
        return [least * 2**i for i in range(int(np.log2(most / least)) + 1)]


FAST = Arguments(searched=60, problems=8, hardest=100.0, trials=12, most=65_536)


def choose_problems(arguments: Arguments, runner: Runner) -> dict[int, dict[str, float]]:
    """The seeds nearest to an even logarithmic scale of 1/β, easiest first, with their constants."""
    tasks = [[seed, arguments.discount, arguments.cover] for seed in range(arguments.searched)]
    known = runner(methods.problem_constants, tasks, unit="problems")
    inverse = np.array([constants[NORMS[0]] or np.inf for constants in known])
    wanted = np.geomspace(arguments.easiest, arguments.hardest, arguments.problems)
    nearest = [int(np.abs(np.log(inverse / value)).argmin()) for value in wanted]
    return {seed: known[seed] for seed in dict.fromkeys(nearest)}


def trial(task: list[Any]) -> list[bool]:
    """Right or wrong for each n of one growing data set."""
    method, problem, size, samples, discount, cover, *seed = task
    seed += [problem, 4, 1 + list(methods.METHODS).index(method)]  # of Figure 4; a last zero would count for nothing
    outcomes = methods.judge(method, problem, [size], samples, seed, discount=discount, cover=cover)
    return [right for ((right, _),) in outcomes]


def run(arguments: Arguments, runner: Runner) -> Findings:
    """Choose the problems, run the trials, read off n at the level, fit the exponents."""
    problems = choose_problems(arguments, runner)
    rng, table, needed, laws_found = np.random.default_rng(arguments.seed), [], [], {}
    for method in methods.METHODS:
        samples = arguments.samples(method)
        common = [arguments.discount, arguments.cover, arguments.seed]
        tasks = [
            [method, seed, arguments.size, samples, *common, number]
            for seed in problems
            for number in range(arguments.trials)
        ]
        results = iter(runner(trial, tasks))
        for seed in problems:
            right = np.array([next(results) for _ in range(arguments.trials)], dtype=bool)
            table += [
                {"method": method, "problem": seed, **problems[seed], "n": n, **share(right[:, i], rng)}
                for i, n in enumerate(samples)
            ]
            needed.append(
                {"method": method, "problem": seed, **problems[seed], **reached(samples, right, arguments, rng)}
            )
        laws_found[method] = exponents([row for row in needed if row["method"] == method])
    summary = {"problems": problems, f"n for {arguments.level:.0%}": needed, "exponents of 1/β": laws_found}
    return Findings(summary, table, draw(table, needed, arguments), sentence(laws_found, needed, arguments))


def share(right: Any, rng: np.random.Generator) -> dict[str, float]:
    """The share of right rewards with its bootstrap interval."""
    low, high = bootstrap(right, rng=rng)
    return {"right": float(right.mean()), "low": low, "high": high}


def reached(samples: list[int], right: Any, arguments: Arguments, rng: np.random.Generator) -> dict[str, float]:
    """The n from which the share stays at the level or above, with a bootstrap interval over the trials."""

    def read_off(outcomes: Any) -> float:
        return crossing(samples, outcomes.mean(axis=0), arguments.level)

    low, high = bootstrap(right, read_off, rng=rng, draws=400)
    return {"n": read_off(right), "n low": low, "n high": high}


def exponents(needed: list[dict[str, Any]]) -> dict[str, Any]:
    """n at the level as a power of 1/β, in both norms, over the problems that reach it."""
    seen = [row for row in needed if np.isfinite(row["n"])]
    if len(seen) < 3:
        return {}
    found: dict[str, Any] = {"problems that do not reach it": len(needed) - len(seen)}
    for norm in NORMS:
        fit = fit_power_law([row[norm] for row in seen], [row["n"] for row in seen])
        found[norm] = {
            "exponent": fit.slope,
            "95 % interval": [fit.low, fit.high],
            "R²": fit.r2,
            "problems": fit.points,
        }
    return found


def sentence(found: dict[str, Any], needed: list[dict[str, Any]], arguments: Arguments) -> str:
    """What it shows."""
    parts = [
        f"{method}: too few problems reach {arguments.level:.0%}"
        if not law
        else f"{method}: n for {arguments.level:.0%} grows as β^(−p), p = {law[NORMS[0]]['exponent']:.2f} "
        f"({law[NORMS[0]]['95 % interval'][0]:.2f} to {law[NORMS[0]]['95 % interval'][1]:.2f})"
        for method, law in found.items()
    ]
    theirs, ours = ({row["problem"]: row["n"] for row in needed if row["method"] == m} for m in methods.METHODS)
    ratios = [theirs[seed] / n for seed, n in ours.items() if np.isfinite(n)]  # infinite where only ours gets there
    most = f"{np.median(ratios):.0f}" if ratios and np.isfinite(np.median(ratios)) else "infinitely"
    return "; ".join(parts) + f"; certirl needs {most} times fewer samples (median over problems)."


def draw(table: list[dict[str, Any]], needed: list[dict[str, Any]], arguments: Arguments) -> Any:
    """Curves of both methods, and n at the level against 1/β."""
    from matplotlib import colormaps

    figure, axes = plots.panels(1, 3, size=(13, 3.9))
    seeds = list(dict.fromkeys(row["problem"] for row in table))
    shades = colormaps["viridis"](np.linspace(0.0, 0.88, len(seeds)))
    for ax, method in zip(axes[0], methods.METHODS, strict=False):
        for seed, colour in zip(seeds, shades, strict=True):
            rows = [row for row in table if row["method"] == method and row["problem"] == seed]
            n, right, low, high = (np.array([row[x] for row in rows]) for x in ("n", "right", "low", "high"))
            label = f"{rows[0][NORMS[0]]:.0f} ({rows[0][NORMS[1]]:.0f})"
            plots.with_errors(ax, n, right, low, high, color=colour, marker="o", label=label)
        ax.axhline(arguments.level, color="black", ls=":", lw=1)
        ax.set(xscale="log", ylim=(0, 1.03), xlabel="samples per action, n", title=method)
    axes[0, 0].set_ylabel("share of right rewards")
    axes[0, 1].legend(fontsize="xx-small", title="1/β by ‖α‖₁ (by ‖α‖∞)", title_fontsize="xx-small", loc="lower right")
    for method, colour, marker in zip(methods.METHODS, COLOURS[1::-1], "os", strict=False):
        rows = [row for row in needed if row["method"] == method and np.isfinite(row["n"])]
        x, n, low, high = (np.array([row[key] for row in rows]) for key in (NORMS[0], "n", "n low", "n high"))
        open_ended, style = ~np.isfinite(high), {"color": colour, "ls": "none"}
        ends = np.where(open_ended, n, high)
        plots.with_errors(axes[0, 2], x, n, low, ends, marker=marker, label=method, **style)
        axes[0, 2].plot(x[open_ended], 1.25 * n[open_ended], "^", ms=4, **style)  # the interval has no upper end
        never = [row[NORMS[0]] for row in needed if row["method"] == method and not np.isfinite(row["n"])]
        most = arguments.samples(method)[-1]  # of problems that never get there
        axes[0, 2].plot(never, np.full(len(never), most), "^", mfc="none", ms=7, **style)
        if len(x) >= 3:
            fit, ends = fit_power_law(x, n), np.array([x.min(), x.max()])
            line = np.exp(fit.intercept) * ends**fit.slope
            axes[0, 2].plot(ends, line, color=colour, lw=1.2, label=f"slope {fit.slope:.2f}")
    axes[0, 2].set(
        xscale="log", yscale="log", xlabel="1/β by ‖α‖₁", title=f"samples for {arguments.level:.0%}", ylabel="n"
    )
    axes[0, 2].xaxis.set_minor_formatter("")
    axes[0, 2].legend(fontsize="x-small")
    return figure
