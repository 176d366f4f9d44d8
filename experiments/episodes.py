"""Are certificates from logged episodes true? Steps that depend on each other, rewards that are barely wrong.

    python experiments/episodes.py [--fast] [--workers 2] [--out experiments/results]

An angle under an action that is kept for many steps; an episode ends after 20 to 50 steps, or as soon as the state is
near the far side of the circle. So neighbouring steps are correlated (their sines by 0.4 to 0.6), and how long an
episode is depends on where its steps lead. Of every episode the certificate uses one step (docs/notes/certificate.md,
section 15). For comparison, all steps are used as if each were drawn by itself, which no proof covers.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

import certirl
import methods
import study
from certirl.problems import Problem

KEPT = 0.95  # the probability that the next action is the last one again
FAR = 3.0  # an episode ends beyond this distance from the first home


@dataclass(frozen=True)
class Arguments:
    """The full size; ``--fast`` shrinks it."""

    runs: int = 1_200
    episodes: int = 40_000


FAST = Arguments(runs=12, episodes=10_000)


def logged(problem: Problem, episodes: int, rng: np.random.Generator, *, shortest: int = 20, longest: int = 50) -> Any:
    """A log of episodes with sticky actions, which end at a random step or as soon as the state is far away."""
    domain = problem.domain
    states, actions = rng.uniform(*domain[0], episodes), rng.integers(problem.n_actions, size=episodes)
    limits, running = rng.integers(shortest, longest + 1, size=episodes), np.ones(episodes, dtype=bool)
    rows: list[tuple[np.ndarray, ...]] = []
    for step in range(longest):
        running &= (step < limits) & ((step == 0) | (np.abs(states) < FAR))
        index = np.flatnonzero(running)
        after = states.copy()
        for action in range(problem.n_actions):
            taken = index[actions[index] == action]
            after[taken] = problem.sample(states[taken], action, rng)
        rows.append((states[index], actions[index], after[index], index))
        states, again = after, rng.random(episodes) < KEPT
        actions = np.where(again, actions, rng.integers(problem.n_actions, size=episodes))
    before, taken, reached, numbers = (np.concatenate(column) for column in zip(*rows, strict=True))
    order = np.argsort(numbers, kind="stable")
    given: dict[str, Any] = {"domain": domain, "n_actions": problem.n_actions, "episodes": numbers[order]}
    return certirl.Transitions(before[order], taken[order], reached[order], **given)


def judge(task: list[int]) -> dict[str, Any]:
    """One run: a reward, mostly spoiled, certificates from one step of each episode and from all, and the truth."""
    seed, episodes = task
    rng = np.random.default_rng([seed, 5])
    homes = (0.0, float(rng.uniform(2.0, 3.0)))
    problem = certirl.problems.circle(
        homes=homes, pull=float(rng.uniform(0.3, 0.5)), noise=float(rng.uniform(0.9, 1.1))
    )
    basis, discount, delta = certirl.Fourier(9).on(problem.domain), 0.5, float(rng.choice([0.05, 0.2]))
    reward = certirl.Reward(basis, np.eye(basis.size)[2])  # the cosine: to be near the first home
    if rng.random() < 0.8:
        grid = np.linspace(*problem.domain[0], 801)
        noise = methods.noise_of(reward, rng)
        reward = methods.barely_wrong(reward, noise, lambda r: [problem.margins(r, grid, discount=discount)])
    log = logged(problem, episodes, rng)
    rows = {"domain": log.domain, "n_actions": log.n_actions, "independent": True}
    naive = certirl.Transitions(log.states, log.actions, log.next_states, **rows)
    asked = {"discount": discount, "expert": 0, "columns": basis, "tail": problem.tail, "delta": delta}
    truth = problem.true_margin(reward, discount=discount)
    run: dict[str, Any] = {"delta": delta, "spoiled": truth <= 0}
    for name, data in {"": log, "naive ": naive}.items():
        found = certirl.certify(reward, data, rng=seed, **asked)
        run |= {f"{name}holds": found.holds, f"{name}false": bool(found.holds and truth <= 0)}
        run |= {f"{name}above": bool(truth < found.margin), f"{name}rows": found.samples}
    return run


def run(arguments: Arguments, runner: study.Runner) -> study.Findings:
    """Count false certificates and bounds above the truth."""
    tasks = [[seed, arguments.episodes] for seed in range(arguments.runs)]
    runs = runner(judge, tasks, unit="certificates")
    flags = ("holds", "false", "above")
    table = {
        name: methods.bounds_by_delta([found | {flag: found[f"{key}{flag}"] for flag in flags} for found in runs])
        for name, key in {"one step of each episode": "", "all steps, as if drawn singly": "naive "}.items()
    }
    false = sum(found["false"] for found in runs)
    wrong, holding = (sum(found[flag] for found in runs) for flag in ("spoiled", "holds"))
    sentence = (
        f"{len(runs):,} runs with episodes whose steps depend on each other, {wrong:,} of them with wrong rewards: "
        f"{holding:,} certificates hold, {false} of them falsely."
    )
    return study.Findings(table, runs, None, sentence)


if __name__ == "__main__":
    raise SystemExit(study.main(sys.modules[__name__]))
