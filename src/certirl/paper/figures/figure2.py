"""Figure 2: the error of Algorithm 1 against the number of samples, and what Theorem 3 promises.

One random transition function; ‖[Z]_k − Ẑ‖_∞ for k = 5, 15, 25 in the paper's basis and form, drawn with eight bits of
precision as in the appendix and exactly. One data set of each trial serves every n (prefixes) and every k (leading
blocks). Error bars are two standard deviations of the observed error; the theorem's curve is its error at this n and δ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from certirl.functions.bases import Fourier
from certirl.paper.algorithms import algorithm1
from certirl.paper.methods import growing_moments
from certirl.paper.study import Findings, Runner
from certirl.paper.theorems import theorem3_error
from certirl.paper.trial_statistics import bootstrap, fit_power_law
from certirl.problems import random_polynomial
from certirl.show import plots
from certirl.show.charts import COLOURS


@dataclass(frozen=True)
class Arguments:
    """The paper's setting; it does not say how many trials, which n or which δ."""

    problem: int = 0
    sizes: tuple[int, ...] = (5, 15, 25)
    least: int = 1_000
    most: int = 512_000
    trials: int = 40
    delta: float = 0.05
    seed: int = 0

    @property
    def samples(self) -> list[int]:
        """A geometric grid of ratio 2."""
        return [self.least * 2**i for i in range(int(np.log2(self.most / self.least)) + 1)]


FAST = Arguments(most=64_000, trials=16)
SAMPLING = {"exact": None, "eight bits": 8}
LABELS = {"exact": "exact sampling", "eight bits": "eight-bit sampling"}


def trial(task: list[Any]) -> list[list[float]]:
    """The errors ``[n, k]`` of one growing data set of one action."""
    sampling, problem_seed, sizes, samples, seed, number = task
    problem = random_polynomial(seed=problem_seed, actions=2, bits=SAMPLING[sampling])
    basis = Fourier(max(sizes)).on(problem.domain)
    truth = problem.operators(basis).Z[0]
    rng = np.random.default_rng([seed, number])
    errors = []
    for moments in growing_moments(problem, basis, basis, samples, rng):
        Z = algorithm1(moments[0], size=basis.size).Z[0]
        errors.append([float(np.abs(Z - truth)[:k, :k].sum(axis=1).max()) for k in sizes])
    return errors


def run(arguments: Arguments, runner: Runner) -> Findings:
    """Run the trials, fit the exponents, compare with the theorem."""
    samples = arguments.samples
    setting = [arguments.problem, list(arguments.sizes), samples, arguments.seed]
    tasks = [[sampling, *setting, number] for sampling in SAMPLING for number in range(arguments.trials)]
    errors = np.array(runner(trial, tasks)).reshape(len(SAMPLING), arguments.trials, len(samples), len(arguments.sizes))
    rng = np.random.default_rng(arguments.seed)
    table: list[dict[str, Any]] = []
    summary: dict[str, Any] = {}
    for which, sampling in enumerate(SAMPLING):
        for column, k in enumerate(arguments.sizes):
            own = errors[which, :, :, column]
            bound = [theorem3_error(n, arguments.delta, k) for n in samples]
            fit = fit_power_law(samples, own.mean(axis=0))
            low, high = bootstrap(
                own, lambda errors: fit_power_law(samples, errors.mean(axis=0)).slope, rng=rng, draws=400
            )
            below = float((own <= bound).mean())
            summary[f"{sampling}, k = {k}"] = {
                "exponent of n": fit.slope,
                "95 % interval, bootstrap over trials": [low, high],
                "R²": fit.r2,
                "share below Theorem 3": below,
                "Theorem 3 over the observed error": float(np.mean(bound / own.mean(axis=0))),
            }
            table += [
                {"sampling": sampling, "k": k, "n": n, "mean error": m, "standard deviation": s, "Theorem 3": b}
                for n, m, s, b in zip(samples, own.mean(axis=0), own.std(axis=0, ddof=1), bound, strict=True)
            ]
    exponents = [entry["exponent of n"] for name, entry in summary.items() if name.startswith("exact")]
    loose = [entry["Theorem 3 over the observed error"] for entry in summary.values()]
    sentence = (
        f"The error falls as n^p with p from {min(exponents):.3f} to {max(exponents):.3f} (exact sampling), and "
        f"Theorem 3 lies {min(loose):.0f} to {max(loose):.0f} times above it."
    )
    return Findings(summary, table, draw(table, arguments), sentence)


def draw(table: list[dict[str, Any]], arguments: Arguments) -> Any:
    """One panel for each k."""
    figure, axes = plots.panels(1, len(arguments.sizes), sharey=True)
    for ax, k in zip(axes[0], arguments.sizes, strict=True):
        for sampling, colour, marker in zip(SAMPLING, COLOURS[1::-1], "os", strict=True):
            rows = [row for row in table if row["k"] == k and row["sampling"] == sampling]
            n, mean, spread = (np.array([r[name] for r in rows]) for name in ("n", "mean error", "standard deviation"))
            shift = 1.04 if sampling != "exact" else 1 / 1.04  # so that the bars of both can be seen
            label = f"observed, {LABELS[sampling]}"
            ax.errorbar(n * shift, mean, 2 * spread, color=colour, marker=marker, ms=4, lw=1.4, capsize=2, label=label)
        bound = [row["Theorem 3"] for row in rows]
        ax.plot(n, bound, color="black", ls="--", label=f"Theorem 3, δ = {arguments.delta:g}")
        ax.plot(n, mean[0] * np.sqrt(n[0] / n), color="0.5", ls=":", lw=1.2, label=r"slope $n^{-1/2}$")
        ax.set(xscale="log", yscale="log", title=f"k = {k}", xlabel="samples n")
    axes[0, 0].set_ylabel(r"$\|[Z]_k - \hat Z\|_\infty$")
    axes[0, -1].legend(fontsize="x-small")
    return figure
