"""Are certificates from rows that depend on each other true? Strongly dependent steps, rewards that are barely wrong.

    python experiments/episodes.py [--fast] [--workers 2] [--out experiments/results]

Three kinds of logs:

- *circle*: an angle under an action that is kept for many steps; an episode ends after 20 to 50 steps, or as soon as
  the state is near the far side. How long an episode is depends on where its steps lead.
- *episodes*: 50 steps of a slow state each, neighbouring states correlated by 0.93 to 0.97.
- *trajectory*: one long run of the same slow state, with an action that is kept for some steps.

The certificate uses all steps (docs/notes/certificate.md, section 18). For comparison: one step of each episode, and
all steps as if each were drawn by itself, which no proof covers. Besides, how many rows a right reward needs.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import certirl
import judging
import study
from certirl.data.dependence import one_of_each
from certirl.ground.domain import Box, as_domain, as_rows
from certirl.problems import Problem

KEPT = 0.95  # the probability that the next action is the last one again
FAR = 3.0  # an episode ends beyond this distance from the first home
STEPS = 50  # of an episode of the slow state
KINDS = ("circle", "episodes", "trajectory")
DISCOUNT = 0.5


@dataclass(frozen=True)
class Arguments:
    """The full size; ``--fast`` shrinks it."""

    runs: int = 660
    rows: int = 60_000
    sizes: tuple[int, ...] = (10_000, 20_000, 40_000, 80_000, 160_000, 320_000)
    repeats: int = 3
    seed: int = 0


FAST = Arguments(runs=12, rows=40_000, sizes=(20_000, 80_000), repeats=1)


@dataclass(frozen=True, eq=False)
class Slow(Problem):
    """A state that moves little: i of d coins show heads, each with probability (1 + s)/2, and s' is near node i.

    P_a f is a polynomial of degree d, so that d + 1 columns hold it exactly. Near node i: a beta law around
    ``keep·(2i/d − 1) + shift_a``.

    Attributes:
        keep: E[s' | s] = keep·s + shift_a.
        shift: of each action.
        coins: d.
        narrow: the sum of both parameters of the beta laws.
    """

    keep: float = 0.93
    shift: tuple[float, ...] = (0.035, -0.035)
    coins: int = 4
    narrow: float = 200.0
    name: str = "slow"
    domain: Box = field(default=as_domain((-1, 1)), init=False)

    @property
    def n_actions(self) -> int:
        """One per shift."""
        return len(self.shift)

    def parameters(self, action: int) -> tuple[np.ndarray, np.ndarray]:
        """Of the beta laws of an action on [0, 1], one for each node."""
        means = (1 + self.keep * (2 * np.arange(self.coins + 1) / self.coins - 1) + self.shift[action]) / 2
        return self.narrow * means, self.narrow * (1 - means)

    def density(self, next_states: np.ndarray, states: np.ndarray, action: int) -> np.ndarray:
        """p_a(s' | s) for every pair ``[n, m]``."""
        from scipy.stats import beta, binom

        y, s = as_rows(next_states, 1)[:, 0], as_rows(states, 1)[:, 0]
        nodes = np.stack([beta.pdf((1 + y) / 2, a, b) / 2 for a, b in zip(*self.parameters(action), strict=True)])
        return np.asarray(binom.pmf(np.arange(self.coins + 1), self.coins, (1 + s[:, None]) / 2) @ nodes)

    def sample(self, states: np.ndarray, action: int, rng: np.random.Generator) -> np.ndarray:
        """Toss the coins, then draw near the node."""
        heads = rng.binomial(self.coins, (1 + np.asarray(states)) / 2)
        first, second = self.parameters(action)
        return np.asarray(2 * rng.beta(first[heads], second[heads]) - 1)


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


def trajectory(problem: Slow, steps: int, rng: np.random.Generator) -> Any:
    """One long run of the slow state, with sticky actions."""
    coins = rng.random((steps, problem.coins))
    nodes = [[2 * rng.beta(a, b, steps) - 1 for a, b in zip(*problem.parameters(c), strict=True)] for c in (0, 1)]
    actions = np.cumsum(rng.random(steps) > 0.8) % 2
    path = np.empty(steps + 1)
    path[0] = rng.uniform(-1, 1)
    for step, action in enumerate(actions):
        path[step + 1] = nodes[action][int((coins[step] < (1 + path[step]) / 2).sum())][step]
    return certirl.Transitions(path[:-1], actions, path[1:], domain=problem.domain)


def recorded(kind: str, rows: int, rng: np.random.Generator) -> tuple[Problem, Any, Any]:
    """A problem, a log of about this many rows, and the columns that hold its dynamics."""
    if kind == "circle":
        homes = (0.0, float(rng.uniform(2.0, 3.0)))
        pull, noise = float(rng.uniform(0.3, 0.5)), float(rng.uniform(0.9, 1.1))
        wheel = certirl.problems.circle(homes=homes, pull=pull, noise=noise)
        return wheel, logged(wheel, rows // 20, rng), certirl.Fourier(9)
    problem = Slow(keep=float(rng.uniform(0.91, 0.93)), shift=(0.035, float(rng.uniform(-0.05, -0.03))))
    if kind == "trajectory":
        return problem, trajectory(problem, rows, rng), certirl.Legendre(5)
    return problem, logged(problem, rows // STEPS, rng, shortest=STEPS, longest=STEPS), certirl.Legendre(5)


def correlation(log: Any) -> float:
    """Of a state and the next one, along the first coordinate of an interval."""
    return float(np.corrcoef(log.states[:, 0], log.next_states[:, 0])[0, 1])


def certificates(kind: str, reward: Any, problem: Problem, log: Any, columns: Any, **asked: Any) -> dict[str, Any]:
    """Certificates from all steps, from one step of each episode, and from all as if each were drawn by itself."""
    rows = {"domain": log.domain, "n_actions": log.n_actions, "independent": True}
    logs = {"": log, "naive ": certirl.Transitions(log.states, log.actions, log.next_states, **rows)}
    if kind != "trajectory":
        single = one_of_each(log, log, np.random.default_rng(0))  # the numbers of all episodes: for comparison only
        logs["single "] = certirl.Transitions(single.states, single.actions, single.next_states, **rows)
    common = {"discount": DISCOUNT, "expert": 0, "columns": columns, "tail": problem.tail, **asked}
    return {name: certirl.certify(reward, data, **common) for name, data in logs.items()}


def right_reward(problem: Problem, columns: Any) -> certirl.Reward:
    """A reward under which action 0 is strictly best: near the first home, or to the right."""
    basis = columns.on(problem.domain)
    return certirl.Reward(basis, np.eye(basis.size)[2 if isinstance(columns, certirl.Fourier) else 1])


def judge(task: list[int]) -> dict[str, Any]:
    """One run: a reward, mostly spoiled, certificates from it, and the truth."""
    seed, rows = task
    rng, kind = np.random.default_rng([seed, 5]), KINDS[seed % len(KINDS)]
    problem, log, columns = recorded(kind, rows, rng)
    reward, delta = right_reward(problem, columns), float(rng.choice([0.05, 0.2]))
    truth, right = problem.true_margin(reward, discount=DISCOUNT), reward
    grid, spoils = np.linspace(*problem.domain[0], 801), 5 if rng.random() < 0.85 else 0
    while truth > 0 and spoils > 0:  # some noise spoils nothing
        noise, spoils = judging.noise_of(right, rng), spoils - 1
        reward = judging.barely_wrong(right, noise, lambda r: [problem.margins(r, grid, discount=DISCOUNT)])
        truth = problem.true_margin(reward, discount=DISCOUNT)
    run: dict[str, Any] = {"kind": kind, "delta": delta, "spoiled": truth <= 0, "correlation": correlation(log)}
    for name, proof in certificates(kind, reward, problem, log, columns, delta=delta, rng=seed).items():
        run |= {f"{name}holds": proof.holds, f"{name}false": bool(proof.holds and truth <= 0)}
        run |= {f"{name}above": bool(truth < proof.margin), f"{name}rows": proof.samples}
    return run


def power(task: list[int]) -> dict[str, Any]:
    """Certificates of a right reward from a log of one size."""
    number, seed, rows = task
    problem, log, columns = recorded(KINDS[number], rows, np.random.default_rng([seed, 6]))
    proofs = certificates(KINDS[number], right_reward(problem, columns), problem, log, columns, delta=0.05, rng=seed)
    return {"kind": KINDS[number], "rows": len(log)} | {f"{name}holds": proof.holds for name, proof in proofs.items()}


def needed(runs: list[dict[str, Any]], sizes: tuple[int, ...], kind: str, name: str) -> int | None:
    """The least size from which on most of the runs are certified; None if no size will do, or nothing was run."""
    holds = [run[f"{name}holds"] for run in runs if run["kind"] == kind and f"{name}holds" in run]
    if not holds:
        return None
    each = np.array(holds).reshape(len(sizes), -1).mean(axis=1) > 0.5
    least = [size for place, size in enumerate(sizes) if each[place:].all()]
    return least[0] if least else None


def run(arguments: Arguments, runner: study.Runner) -> study.Findings:
    """Count false certificates and bounds above the truth, and the rows that certificates need."""
    runs = runner(
        judge, [[seed, arguments.rows] for seed in study.seeds(arguments, arguments.runs)], unit="certificates"
    )
    tasks = [
        [kind, seed, size]
        for kind in range(3)
        for size in arguments.sizes
        for seed in study.seeds(arguments, arguments.repeats)
    ]
    powers = runner(power, tasks, unit="sizes")
    names = {"all steps": "", "one step of each episode": "single ", "all steps, as if drawn singly": "naive "}
    table: dict[str, Any] = {}
    for kind in KINDS:
        chosen = [found for found in runs if found["kind"] == kind]
        low, high = (float(f([abs(found["correlation"]) for found in chosen])) for f in (min, max))
        table[kind] = {"correlation of neighbouring states": [round(low, 3), round(high, 3)]}
        for words, name in names.items():
            if f"{name}holds" not in chosen[0]:
                continue
            flags = [found | {flag: found[f"{name}{flag}"] for flag in ("holds", "false", "above")} for found in chosen]
            table[kind][words] = judging.bounds_by_delta(flags) | {
                "rows that a right reward needs": needed(powers, arguments.sizes, kind, name)
            }
    wrong, holding, false = (sum(found[flag] for found in runs) for flag in ("spoiled", "holds", "false"))
    single = sum(found.get("single holds", False) for found in runs)
    sentence = (
        f"{len(runs):,} runs with steps that depend on each other, {wrong:,} of them with barely wrong rewards: "
        f"{holding:,} certificates hold, {false} of them falsely; one step of each episode certifies {single:,}."
    )
    return study.Findings(table, runs, None, sentence)


REPEATED = ("runs",)


if __name__ == "__main__":
    raise SystemExit(study.main(sys.modules[__name__]))
