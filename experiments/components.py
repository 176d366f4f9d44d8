"""Components: what the joint program solves that Theorem 8 does not, what it costs, and whether certificates are true.

python experiments/components.py [--fast] [--only solvable|time|certified] [--out FOLDER]
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import certirl
from certirl.bellman import Bellman
from certirl.components import Component, SideBySide, as_components
from certirl.decompose import recover_jointly, recover_separately
from certirl.estimate import estimate
from certirl.moments import accumulate
from certirl.simulator import draw

BASIS, COLUMNS, DISCOUNT, DELTA = certirl.Legendre(11), 3, 0.7, 0.05
Pair = tuple[tuple[Component, ...], list[Bellman]]


@dataclass(frozen=True)
class Arguments:
    """The full size; ``--fast`` shrinks it."""

    problems: int = 50
    sizes: tuple[int, ...] = (2, 4, 10)
    timed: tuple[int, ...] = (5, 10, 25, 50, 100)
    repeats: int = 5
    components: int = 50
    samples: int = 100_000
    certified: int = 10
    unsolvable: int = 10
    small: int = 100


FAST = Arguments(
    problems=8, timed=(5, 10, 20), repeats=2, components=10, samples=30_000, certified=2, unsolvable=2, small=4
)


def exact(problem: Any) -> Pair:
    """Components and criteria from the exact operators."""
    parts = as_components(problem.components, BASIS, problem.domain)
    return parts, [certirl.bellman(own, discount=DISCOUNT) for own in problem.operators(BASIS, COLUMNS)]


def estimated(problem: Any, samples: int, rng: int) -> Pair:
    """The same from samples."""
    parts = as_components(problem.components, BASIS, problem.domain)
    stream = draw(problem, SideBySide(parts), samples, rng, design=True, paired=True)
    pairs, views = [(part.basis, part.basis.resized(COLUMNS)) for part in parts], [part.coordinates for part in parts]
    moments = accumulate(stream, pairs, n_actions=problem.n_actions, views=views)
    return parts, [certirl.bellman(estimate(own), discount=DISCOUNT) for (own,) in moments]


def solvable(arguments: Arguments) -> dict[str, Any]:
    """How many random problems each route solves from exact operators; truth is checked without the solver."""
    table = {}
    for size in arguments.sizes:
        joint = alone = conflicts = wrong = 0
        for seed in range(arguments.problems):
            problem = certirl.problems.factorised(seed=seed, components=size)
            parts, criteria = exact(problem)
            found = recover_jointly(parts, criteria)
            joint += found.status == "solved"
            conflicts += found.status == "infeasible" and found.witness.residual < 1e-7
            alone += recover_separately(parts, criteria).status == "solved"
            wrong += found.reward is not None and problem.true_margin(found.reward, discount=DISCOUNT) <= 0
        table[str(size)] = {
            "problems": arguments.problems,
            "Theorem 8 solves": alone,
            "the joint program solves": joint,
            "of which wrong": wrong,
            "proved unsolvable by a witness": conflicts,
        }
    return table


def timed(arguments: Arguments) -> dict[str, Any]:
    """Seconds of the joint program alone, by the number of components, from 10,000 samples."""
    table = {}
    for size in arguments.timed:
        seconds: dict[str, list[float]] = {"least-variance": [], "l1": []}
        for seed in range(arguments.repeats):
            parts, criteria = estimated(certirl.problems.factorised(seed=seed, components=size), 10_000, seed)
            for objective, taken in seconds.items():
                start = time.perf_counter()
                recover_jointly(parts, criteria, objective=objective)
                taken.append(time.perf_counter() - start)
        table[str(size)] = {name: [float(np.median(taken)), max(taken)] for name, taken in seconds.items()}
    return table


def attempt(problem: Any, samples: int, rng: int, objective: str = "least-variance") -> dict[str, Any]:
    """Solve until certified, with at most so many transitions per action, and compare with the truth."""
    start = time.perf_counter()
    found = certirl.solve(
        problem,
        components=problem.components,
        basis=BASIS,
        columns=COLUMNS,
        discount=DISCOUNT,
        delta=DELTA,
        tail=0,
        max_samples=samples,
        objective=objective,
        rng=rng,
        progress=False,
    )
    seconds, proof = time.perf_counter() - start, found.certificate
    truth = problem.true_margins(found.reward, discount=DISCOUNT) if found.reward is not None else None
    holds = proof is not None and proof.holds
    return {
        "certified": holds,
        "n": found.samples,
        "margin": None if proof is None else proof.margin,
        "false": bool(holds and truth is not None and truth.min() <= 0),
        "above": bool(proof is not None and truth is not None and (proof.bounds.sum(axis=0) > truth).any()),
        "seconds": seconds,
    }


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Counts and medians."""
    ns = [run["n"] for run in runs if run["certified"]]
    return {
        "runs": len(runs),
        "certified": len(ns),
        "median n when certified": float(np.median(ns)) if ns else None,
        "false certificates": sum(run["false"] for run in runs),
        "bounds above the truth": sum(run["above"] for run in runs),
        "seconds, median": float(np.median([run["seconds"] for run in runs])),
    }


def certified(arguments: Arguments) -> dict[str, Any]:
    """Certificates with the full remainder: many components, unsolvable ones, and many small runs for soundness."""
    make, table = certirl.problems.factorised, {}
    for objective in ("least-variance", "l1"):
        problems = [make(seed=seed, components=arguments.components) for seed in range(arguments.certified)]
        runs = [attempt(problem, arguments.samples, seed, objective) for seed, problem in enumerate(problems)]
        table[f"{arguments.components} components, {objective}"] = summary(runs)
    hopeless = [make(seed=seed, components=4, solvable=False) for seed in range(arguments.unsolvable)]
    table["4 components, unsolvable"] = summary([attempt(p, 50_000, seed) for seed, p in enumerate(hopeless)])
    mixed = [make(seed=seed, components=2 + seed % 4) for seed in range(arguments.small)]
    table["2 to 5 components"] = summary([attempt(p, 50_000, seed) for seed, p in enumerate(mixed)])
    return table


def main() -> None:
    """Run the parts asked for and write their numbers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fast", action="store_true")
    parser.add_argument("--only", choices=["solvable", "time", "certified"])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args()
    arguments = FAST if options.fast else Arguments()
    options.out.mkdir(parents=True, exist_ok=True)
    for name, part in {"solvable": solvable, "time": timed, "certified": certified}.items():
        if options.only in (None, name):
            start = time.perf_counter()
            result = part(arguments)
            record = {"arguments": asdict(arguments), "version": certirl.__version__, "result": result}
            (options.out / f"components_{name}.json").write_text(json.dumps(record, indent=1) + "\n")
            print(f"{name} ({time.perf_counter() - start:.0f} s)\n{json.dumps(result, indent=1)}", flush=True)


if __name__ == "__main__":
    main()
