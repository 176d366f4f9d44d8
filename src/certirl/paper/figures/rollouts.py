"""The appendix's rollouts: does playing favour the expert's action under the recovered reward, at 100 start states?

Several problems, solved by the paper's method and by certirl's defaults; from each of 100 states 6,000 rollouts of six
steps for every first action, the expert's action thereafter. The averages are compared with the exact expectation of
the six steps (quadrature) and with the true margin, of which six steps are nearly all: what follows weighs γ⁶.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from certirl.functions.bases import Fourier
from certirl.paper.study import Findings, Runner
from certirl.problems import random_polynomial
from certirl.proof.rollout import rollout_check
from certirl.show import plots
from certirl.show.charts import COLOURS
from certirl.solver.methods import Program
from certirl.solver.solve import solve

METHODS: dict[str, dict[str, Any]] = {
    "the paper": {  # its basis, estimate and program; `solve` knows the first row of Ẑ
        "basis": Fourier(11),
        "method": Program(form="mean", objective="l1", cover=0.05),
    },
    "certirl": {},
}


@dataclass(frozen=True)
class Arguments:
    """The paper's numbers; "several" problems are six here, and n is not given."""

    problems: int = 6
    samples: int = 100_000
    states: int = 100
    steps: int = 6
    rollouts: int = 6_000
    discount: float = 0.7
    seed: int = 0


FAST = Arguments(problems=2, samples=20_000, rollouts=600)


def play(task: list[Any]) -> dict[str, Any]:
    """Solve one problem by one method, play, and compare with what playing must give."""
    method, problem_seed, samples, states, steps, rollouts, discount, seed = task
    problem = random_polynomial(seed=problem_seed)
    numbers = [seed, problem_seed, list(METHODS).index(method)]
    asked = {"discount": discount, "samples": samples, "progress": False, **METHODS[method]}
    solution = solve(problem, expert=0, rng=np.random.default_rng(numbers), **asked)
    if solution.reward is None:
        return {"method": method, "problem": problem_seed, "found": False}
    check = rollout_check(
        solution, problem, states=states, steps=steps, samples=rollouts, rng=np.random.default_rng([*numbers, 1])
    )
    exact = problem.margins(solution.reward, check.states, discount=discount, steps=steps)
    truth = problem.margins(solution.reward, check.states, discount=discount)
    return {
        "method": method,
        "problem": problem_seed,
        "found": True,
        "right": bool(problem.true_margin(solution.reward, discount=discount) > 0),
        "comparisons": check.advantage.size,
        "favour the expert": int((check.advantage > 0).sum()),
        "smallest": float(check.advantage.min()),
        "within two standard errors of six exact steps": float(
            (np.abs(check.advantage - exact) < 2 * check.standard_error).mean()
        ),
        "largest effect of stopping": float(np.abs(exact - truth).max()),
        "states": check.states[:, 0],
        "played": check.advantage,
        "standard error": check.standard_error,
        "truth": truth,
    }


def run(arguments: Arguments, runner: Runner) -> Findings:
    """All problems, both methods."""
    setting = [arguments.samples, arguments.states, arguments.steps, arguments.rollouts, arguments.discount]
    tasks = [[method, seed, *setting, arguments.seed] for method in METHODS for seed in range(arguments.problems)]
    runs = runner(play, tasks, unit="problems")
    curves = ("states", "played", "standard error", "truth")
    summary = [{key: value for key, value in run.items() if key not in curves} for run in runs]
    names = ("method", "problem", "rival", "s", "played", "error", "truth")
    table = [
        dict(zip(names, (run["method"], run["problem"], alternative + 1, s, p, e, t), strict=True))
        for run in runs
        if run["found"]
        for alternative in range(len(run["played"]))
        for s, p, e, t in zip(run["states"], *(run[name][alternative] for name in curves[1:]), strict=True)
    ]
    parts = []
    for method in METHODS:
        own = [run for run in runs if run["method"] == method]
        agree = sum(run["found"] and run["favour the expert"] == run["comparisons"] for run in own)
        right = sum(run["found"] and run["right"] for run in own)
        parts.append(
            f"{method}: {agree} of {len(own)} problems favour the expert in every comparison, {right} rewards are right"
        )
    within = np.mean([run["within two standard errors of six exact steps"] for run in runs if run["found"]])
    sentence = "; ".join(parts) + f"; {within:.1%} of the averages lie within two standard errors of the exact value."
    return Findings({"runs": summary, "within two standard errors": within}, table, draw(runs, arguments), sentence)


def draw(runs: list[dict[str, Any]], arguments: Arguments) -> Any:
    """One column for each problem, one row for each method."""
    shown = min(arguments.problems, 3)
    figure, axes = plots.panels(2, shown, size=(4.2 * shown, 6), sharex=True)
    for row, method in enumerate(METHODS):
        own = [run for run in runs if run["method"] == method][:shown]
        for ax, run in zip(axes[row], own, strict=True):
            ax.axhline(0.0, color="0.2", lw=1)
            ax.set_title(f"{method}, problem {run['problem']}", fontsize="medium")
            if not run["found"]:
                continue
            s = np.array(run["states"])
            for alternative, colour in zip(range(len(run["played"])), COLOURS, strict=False):
                mean, error = np.array(run["played"][alternative]), np.array(run["standard error"][alternative])
                ax.fill_between(s, mean - 2 * error, mean + 2 * error, color=colour, alpha=0.25, lw=0)
                ax.plot(s, mean, ".", color=colour, ms=3, label=f"over action {alternative + 1}, played ± 2 s.e.")
                ax.plot(s, run["truth"][alternative], color=colour, lw=1.1, ls=(0, (4, 2)))
    axes[0, 0].plot([], [], color="0.4", lw=1.1, ls=(0, (4, 2)), label="true margin")
    axes[0, 0].legend(fontsize="x-small")
    for ax in axes[:, 0]:
        ax.set_ylabel("advantage of the expert's action")
    for ax in axes[-1]:
        ax.set(xlabel="start state s", xticks=np.linspace(-1, 1, 5))
    return figure
