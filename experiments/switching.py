"""Experts who switch: are their certificates true, and what does it take to recover and to certify a thermostat?

    python experiments/switching.py [--fast] [--only soundness|targets] [--workers 2] [--out experiments/results]

- soundness: certificates for random polynomial problems and thermostats, for rewards that are right, rewards spoiled
  until the expert is just not optimal outside the tube, and experts who switch at the wrong places; what is false in
  them is counted.
- targets: the thermostat of `certirl.switching_problems.comfort` at γ = 0.9: in how many runs the policy is recovered
  outside a tube of half-width 0.05 from 10,000 transitions per action, and at how many `solve` certifies it.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

import certirl
from certirl import laws, study
from certirl.policy_certificate import PolicyCertificate
from certirl.switching_problems import Steps, SwitchingProblem, comfort, outcomes, plan, regret

GRID = np.linspace(-1.0, 1.0, 1601)
POLYNOMIAL, THERMAL = 100_000, 250_000  # transitions per action of a certificate


@dataclass(frozen=True)
class Arguments:
    """The full size; ``--fast`` shrinks it."""

    runs: int = 300
    recovered: int = 40
    samples: int = 10_000
    certified: int = 10
    most: int = 1_000_000


FAST = Arguments(runs=8, recovered=2, certified=0)


def a_problem(seed: int) -> SwitchingProblem:
    """A random polynomial problem with a random reward, or now and then a random thermostat; its expert switches."""
    rng = np.random.default_rng([seed, 7])
    while True:
        discount = float(rng.choice([0.5, 0.7, 0.9]))
        if seed % 4 == 0:
            settings = {
                "target": rng.uniform(-0.4, 0.4),
                "power": rng.uniform(0.5, 0.8),
                "noise": rng.uniform(0.5, 0.6),
            }
            problem = comfort(discount=discount, leak=0.1, **{name: float(x) for name, x in settings.items()})
        else:
            dynamics = certirl.problems.random_polynomial(seed=int(rng.integers(2**31)))
            reward = certirl.Reward(certirl.Legendre(6), rng.normal(size=6))
            problem = SwitchingProblem(dynamics, reward, discount, plan(dynamics, reward, discount=discount))
        if problem.expert.switches and np.abs(problem.expert.switches).max() < 0.8:
            return problem


def gaps(problem: SwitchingProblem, reward: Any, expert: Steps) -> np.ndarray:
    """The true D_a(s) of every action at the states of the grid ``[A, n]``, infinite for the expert's own."""
    ahead = outcomes(problem.dynamics, reward, expert, GRID, discount=problem.discount)
    own = expert(GRID)
    gap = ahead[own, np.arange(len(GRID))] - ahead
    gap[own, np.arange(len(GRID))] = np.inf
    return gap


def advantages(problem: SwitchingProblem, reward: Any, expert: Steps) -> np.ndarray:
    """The least of these ``[n]``."""
    return gaps(problem, reward, expert).min(axis=0)


def barely_wrong(problem: SwitchingProblem, tube: float, rng: np.random.Generator) -> Any:
    """The known reward mixed with a random polynomial until the expert is just not optimal outside the tube.

    For a given expert D_a is linear in the reward, so two curves are enough to find the mixture.
    """
    other = certirl.Reward(certirl.Legendre(7), rng.normal(size=7))
    outside = problem.expert.away(GRID) > tube
    ours, theirs = (gaps(problem, reward, problem.expert)[:, outside] for reward in (problem.reward, other))
    low, high = 0.0, 1.0
    for _ in range(14):
        middle = (low + high) / 2
        right = ((1 - middle) * ours + middle * theirs).min() > 0
        low, high = (middle, high) if right else (low, middle)
    return lambda states: (1 - high) * np.asarray(problem.reward(states)) + high * np.asarray(other(states))


def judge(seed: int) -> dict[str, Any]:
    """One certificate against the truth."""
    problem, rng = a_problem(seed), np.random.default_rng([seed, 8])
    tube, delta = float(rng.choice([0.15, 0.3])), float(rng.choice([0.05, 0.2]))
    kind = ("right", "barely wrong", "right", "barely wrong", "switches elsewhere")[seed % 5]
    reward, expert = problem.reward, problem.expert
    if kind == "barely wrong":
        reward = barely_wrong(problem, tube, rng)
    if kind == "switches elsewhere":
        moved = np.sort(np.array(expert.switches) + rng.uniform(-2.0, 2.0, len(expert.switches)) * tube)
        expert = Steps(tuple(np.clip(moved, -0.95, 0.95)), expert.actions)
    thermal = problem.dynamics.name == "comfort"
    found = certirl.certify(
        reward,
        problem.dynamics,
        expert=expert,
        discount=problem.discount,
        columns=certirl.Legendre(11 if thermal else 3),
        tail=problem.dynamics.tail,
        tube=tube,
        delta=delta,
        samples=THERMAL if thermal else POLYNOMIAL,
        paired=thermal or bool(rng.integers(2)),
        rng=rng,
    )
    assert isinstance(found, PolicyCertificate)
    return {"kind": kind, "delta": delta} | compared(found, problem, reward, expert)


def compared(found: PolicyCertificate, problem: SwitchingProblem, reward: Any, expert: Steps) -> dict[str, Any]:
    """Which statements of a certificate the truth contradicts."""
    truth = advantages(problem, reward, expert)
    in_tube = np.zeros(len(GRID), dtype=bool)
    for low, high in found.tube:
        in_tube |= (low <= GRID) & (high >= GRID)
    outside = expert.away(GRID) > found.allowed
    lost = regret(problem.dynamics, reward, expert, discount=problem.discount)
    least = float(truth[outside].min())
    best = plan(problem.dynamics, reward, discount=problem.discount)
    beyond = expert.away(GRID) > found.settled
    return {
        "holds": found.holds,
        "false": bool(found.holds and least <= 0),
        "margin above the truth": bool(found.margin > least),
        "wrong outside the tube": bool((truth[~in_tube] <= 0).any()),
        "regret below the truth": bool(found.relative_regret < lost - 1e-9),
        "best policy differs where settled": bool((best(GRID) != expert(GRID))[beyond].any()),
        "half_width": found.half_width,
        "regret": found.relative_regret,
        "true regret": lost,
    }


WRONG = (
    "false",
    "margin above the truth",
    "wrong outside the tube",
    "regret below the truth",
    "best policy differs where settled",
)


def soundness(arguments: Arguments, walk: study.Walk) -> dict[str, Any]:
    """Count what was false, by δ and by kind."""
    runs = walk(judge, list(range(arguments.runs)), unit="certificates")
    table: dict[str, Any] = {}
    for delta in (0.05, 0.2):
        mine = [run for run in runs if run["delta"] == delta]
        any_wrong = sum(any(run[name] for name in WRONG) for run in mine)
        counts = {name: sum(run[name] for run in mine) for name in WRONG}
        table[str(delta)] = {"runs": len(mine), "certified": sum(run["holds"] for run in mine), **counts}
        table[str(delta)]["95 % interval of the share with anything wrong"] = laws.binomial_interval(
            any_wrong, len(mine)
        )
    kinds = sorted({run["kind"] for run in runs})
    by_kind = {kind: [sum(run["holds"] for run in runs if run["kind"] == kind)] for kind in kinds}
    for kind, counted in by_kind.items():
        counted.append(sum(run["kind"] == kind for run in runs))
    return {"by delta": table, "certified, of runs, by kind": by_kind}


TUBE = 0.05


def recover(task: list[int]) -> dict[str, Any]:
    """One run without a certificate: is planning on the reward, with the true dynamics, the expert's policy?"""
    seed, samples = task
    problem = comfort()
    start = time.perf_counter()
    solution = certirl.solve(
        problem.dynamics, expert=problem.expert, discount=problem.discount, samples=samples, rng=seed
    )
    seconds = time.perf_counter() - start
    planned = plan(problem.dynamics, solution.reward, discount=problem.discount)
    outside = problem.expert.away(GRID) > TUBE
    best = advantages(problem, solution.reward, problem.expert)[outside].min()
    return {
        "recovered": bool((planned(GRID) == problem.expert(GRID))[outside].all()),
        "optimal outside": bool(best > 0),
        "regret": regret(problem.dynamics, solution.reward, problem.expert, discount=problem.discount),
        "seconds": seconds,
    }


def prove(task: list[int]) -> dict[str, Any]:
    """One run with a certificate, and what the truth says about it."""
    seed, most = task
    problem = comfort()
    start = time.perf_counter()
    solution = certirl.solve(
        problem.dynamics,
        expert=problem.expert,
        discount=problem.discount,
        delta=0.05,
        tail=problem.dynamics.tail,
        tube=TUBE,
        max_samples=most,
        rng=seed,
    )
    seconds = time.perf_counter() - start
    proof = solution.certificate
    return {
        "status": solution.status,
        "n": solution.samples,
        "share": proof.share,
        "seconds": seconds,
    } | compared(proof, problem, solution.reward, problem.expert)


def targets(arguments: Arguments, walk: study.Walk) -> dict[str, Any]:
    """Recovery from little data and certificates from more, on one thermostat."""
    few = walk(recover, [[seed, arguments.samples] for seed in range(arguments.recovered)], unit="recoveries")
    many = walk(prove, [[seed, arguments.most] for seed in range(arguments.certified)], unit="proofs")
    held = [run for run in many if run["status"] == "certified"]

    def middle(runs: list[dict[str, Any]], name: str) -> float | None:
        return float(np.median([run[name] for run in runs])) if runs else None

    return {
        "recovered outside the tube": [sum(run["recovered"] for run in few), len(few)],
        "largest true regret of these": max(run["regret"] for run in few),
        "median true regret of these": middle(few, "regret"),
        "seconds of a recovery, median": middle(few, "seconds"),
        "certified": [len(held), len(many)],
        "n when certified": sorted(run["n"] for run in held),
        "half-width of the tube, median": middle(held, "half_width"),
        "share of the domain, median": middle(held, "share"),
        "bound on the regret, median": middle(held, "regret"),
        "largest true regret when certified": max((run["true regret"] for run in held), default=None),
        "anything wrong": sum(any(run[name] for name in WRONG) for run in many),
        "seconds of a proof, median": middle(many, "seconds"),
    }


PARTS = {"soundness": soundness, "targets": targets}


if __name__ == "__main__":
    sys.exit(
        study.main_of_parts(
            sys.modules[__name__],
            PARTS,
            "whether certificates of experts who switch are true, and what they cost",
            repeated="runs",
        )
    )
