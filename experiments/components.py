"""Components: what the joint program solves that Theorem 8 does not, what it costs, and whether certificates are true.

    python experiments/components.py [--fast] [--only solvable|time|certified|soundness] [--workers 2] [--out FOLDER]

- solvable: random problems from exact operators, by the joint program and by Theorem 8.
- time: seconds of the joint program by the number of components.
- certified: transitions per action until `solve` certifies, by the number of components and the objective.
- soundness: certificates of few components, rewards that are right, wrong, and wrong by as little as can be.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import certirl
import judging
import study
from certirl.data.moments import accumulate
from certirl.data.simulator import draw
from certirl.fit.bellman import Bellman, estimate
from certirl.functions.components import Component, SumBasis, as_components
from certirl.proof.case import Case
from certirl.proof.certificate import conclude
from certirl.proof.sums import gather
from certirl.proof.training import fit_surrogates

BASIS, COLUMNS, DISCOUNT, DELTA = certirl.Legendre(11), 3, 0.7, 0.05
Pair = tuple[tuple[Component, ...], list[Bellman]]


@dataclass(frozen=True)
class Arguments:
    """The full size; ``--fast`` shrinks it."""

    problems: int = 50
    sizes: tuple[int, ...] = (2, 4, 10)
    timed: tuple[int, ...] = (5, 10, 25, 50, 100, 200)
    repeats: int = 3
    samples: int = 100_000
    certified: dict[str, int] = field(default_factory=lambda: {"2": 20, "4": 20, "10": 20, "50": 10})
    unsolvable: int = 10
    runs: int = 600
    seed: int = 0


FAST = Arguments(
    problems=8, timed=(5, 10, 20), repeats=2, samples=30_000, certified={"3": 2, "10": 2}, unsolvable=2, runs=8
)


def exact(problem: Any) -> Pair:
    """Components and criteria from the exact operators."""
    parts = as_components(problem.components, BASIS, problem.domain)
    return parts, [certirl.steps.bellman(part.operators(BASIS, COLUMNS), discount=DISCOUNT) for part in problem.parts]


def estimated(problem: Any, samples: int, rng: int) -> Pair:
    """The same from samples."""
    parts = as_components(problem.components, BASIS, problem.domain)
    stream = draw(problem, SumBasis(parts), samples, rng, design=True, paired=True)
    pairs, views = [(part.basis, part.basis.resized(COLUMNS)) for part in parts], [part.coordinates for part in parts]
    moments = accumulate(stream, pairs, n_actions=problem.n_actions, views=views)
    return parts, [certirl.steps.bellman(estimate(own), discount=DISCOUNT) for (own,) in moments]


def solvable(arguments: Arguments, runner: study.Runner) -> dict[str, Any]:
    """How many random problems each route solves from exact operators; truth is checked without the solver."""
    table = {}
    for size in arguments.sizes:
        joint = alone = conflicts = wrong = 0
        for seed in study.seeds(arguments, arguments.problems):
            problem = certirl.problems.factorised(seed=seed, components=size)
            parts, criteria = exact(problem)
            found = certirl.steps.recover(criteria, components=parts)
            joint += found.status == "solved"
            conflicts += found.status == "infeasible" and found.witness.residual < 1e-7
            alone += all(certirl.steps.recover(criterion).status == "solved" for criterion in criteria)
            wrong += found.reward is not None and problem.true_margin(found.reward, discount=DISCOUNT) <= 0
        table[str(size)] = {
            "problems": arguments.problems,
            "Theorem 8 solves": alone,
            "the joint program solves": joint,
            "of which wrong": wrong,
            "proved unsolvable by a witness": conflicts,
        }
    return table


def timed(arguments: Arguments, runner: study.Runner) -> dict[str, Any]:
    """Seconds of one core for the joint program alone, by the number of components, from 10,000 samples."""
    table = {}
    for size in arguments.timed:
        seconds: dict[str, list[float]] = {"least-variance": [], "l1": []}
        for seed in study.seeds(arguments, arguments.repeats):
            parts, criteria = estimated(certirl.problems.factorised(seed=seed, components=size), 10_000, seed)
            for objective, taken in seconds.items():
                with threadpool_limits(1):
                    start = time.process_time()
                    certirl.steps.recover(criteria, components=parts, objective=objective)
                    taken.append(time.process_time() - start)
        table[str(size)] = {name: [float(np.median(taken)), max(taken)] for name, taken in seconds.items()}
    return table


def attempt(task: Sequence[Any]) -> dict[str, Any]:
    """Solve until certified, with a largest number of transitions per action, and compare with the truth."""
    components, seed, objective, samples, solvable = task
    problem = certirl.problems.factorised(seed=seed, components=components, solvable=solvable)
    start = time.perf_counter()
    found = certirl.solve(
        problem,
        expert=0,
        components=problem.components,
        basis=BASIS,
        columns=COLUMNS,
        discount=DISCOUNT,
        delta=DELTA,
        tail=0,
        samples=samples,
        method=certirl.Program(objective=objective),
        rng=seed,
        progress=False,
    )
    seconds, proof = time.perf_counter() - start, found.certificate
    truth = problem.true_margins(found.reward, discount=DISCOUNT) if found.reward is not None else None
    holds = proof is not None and proof.holds
    return {
        "certified": holds,
        "objective": found.stats.objective,
        "n": found.samples,
        "margin": None if proof is None else proof.margin,
        "false": bool(holds and truth is not None and truth.min() <= 0),
        "above": bool(proof is not None and truth is not None and (proof.bounds.sum(axis=0) > truth).any()),
        "seconds": seconds,
    }


def summary(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Counts and medians; runs without a certificate count as more than any."""
    ns = [run["n"] if run["certified"] else np.inf for run in runs]
    return {
        "runs": len(runs),
        "certified": sum(run["certified"] for run in runs),
        "median n": float(np.median(ns)),
        "largest n": max((n for n in ns if np.isfinite(n)), default=None),
        "false certificates": sum(run["false"] for run in runs),
        "bounds above the truth": sum(run["above"] for run in runs),
        "seconds, median": float(np.median([run["seconds"] for run in runs])),
    }


def certified(arguments: Arguments, runner: study.Runner) -> dict[str, Any]:
    """Certificates with the full remainder, by the number of components and the objective; and hopeless problems."""
    table = {}
    for size, count in arguments.certified.items():
        for objective in (None, "least-variance", "l1"):
            runs = runner(
                attempt,
                [[int(size), seed, objective, arguments.samples, True] for seed in study.seeds(arguments, count)],
            )
            table[f"{size} components, {objective or 'the better of both'}"] = summary(runs)
    hopeless = runner(
        attempt, [[4, seed, None, arguments.samples, False] for seed in study.seeds(arguments, arguments.unsolvable)]
    )
    return table | {"4 components, unsolvable": summary(hopeless)}


def barely_wrong(problem: Any, reward: Any, discount: float, rng: np.random.Generator) -> Any:
    """The sum mixed with a random one until its true margin is just below zero."""
    sizes = [np.abs(part.coefficients).mean() for part in reward.parts]
    noise = [rng.normal(size=BASIS.size) * (size or np.mean(sizes)) for size in sizes]
    other = certirl.Reward(reward.basis, np.concatenate(noise))
    grid = np.linspace(-1, 1, 401)

    def curves(given: Any) -> list[np.ndarray]:
        pairs = zip(problem.parts, given.parts, strict=True)
        return [part.margins(component, grid, discount=discount) for part, component in pairs]

    return judging.barely_wrong(reward, other, curves)


def judge(seed: int) -> dict[str, Any] | None:
    """One run: find a sum of rewards, perhaps spoil it, certify it on fresh data, compare with the truth."""
    rng = np.random.default_rng([seed, 2])
    problem = certirl.problems.factorised(seed=seed, components=2 + seed % 4, solvable=seed % 16 != 0)
    discount, delta = float(rng.choice([0.5, 0.7, 0.9])), float(rng.choice([0.05, 0.2]))
    paired, spoil, samples = bool(rng.random() < 0.7), bool(rng.random() < 0.4), int(10 ** rng.uniform(4.3, 5.1))
    parts = as_components(problem.components, BASIS, problem.domain)
    places, streams = SumBasis(parts), rng.spawn(2)
    drawn = [
        draw(problem, places, int(n), own, design=True, paired=paired)
        for n, own in zip((0.3 * samples, 0.7 * samples), streams, strict=True)
    ]
    spaces = [part.basis.resized(COLUMNS) for part in parts]
    pairs = [(part.basis, space) for part, space in zip(parts, spaces, strict=True)]
    views = [part.coordinates for part in parts]
    moments = [own for (own,) in accumulate(drawn[0], pairs, n_actions=3, views=views)]
    criteria = [certirl.steps.bellman(estimate(own), discount=discount) for own in moments]
    found = certirl.steps.recover(criteria, components=parts, objective=("least-variance", "l1")[int(rng.integers(2))])
    if found.reward is None:
        return None
    reward = barely_wrong(problem, found.reward, discount, rng) if spoil else found.reward
    case = Case.of(0, spaces, n_actions=3, discount=discount, tail=0, components=parts)
    surrogates = fit_surrogates(case, reward, drawn[0], moments=moments, samples=drawn[1].n, delta=delta).surrogates
    proof = conclude(case, surrogates, gather(surrogates, drawn[1]), delta=delta)
    pairs = zip(problem.parts, reward.parts, strict=True)
    own = np.array([part.true_margins(component, discount=discount) for part, component in pairs])
    truth = own.sum(axis=0)
    return {
        "components": len(parts),
        "delta": delta,
        "paired": paired,
        "spoiled": spoil,
        "holds": proof.holds,
        "false": bool(proof.holds and truth.min() <= 0),
        "above": bool((proof.bounds.sum(axis=0) > truth).any()),
        "component above": bool((proof.bounds > own + 1e-9).any()),
        "truth": float(truth.min()),
        "margin": proof.margin,
    }


def soundness(arguments: Arguments, runner: study.Runner) -> dict[str, Any]:
    """Count false certificates and bounds above the truth on problems of two to five components."""
    runs = [
        run for run in runner(judge, study.seeds(arguments, arguments.runs), unit="certificates") if run is not None
    ]
    table = judging.bounds_by_delta(runs, {"with a component's bound above its truth": "component above"})
    return {"by delta": table, "certified": sum(run["holds"] for run in runs)}


REPEATED = ("runs",)
SENTENCE = "what the joint program solves, what it costs, whether its certificates are true"
PARTS = {"solvable": solvable, "time": timed, "certified": certified, "soundness": soundness}


if __name__ == "__main__":
    raise SystemExit(study.main(sys.modules[__name__]))
