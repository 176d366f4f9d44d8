"""Experts who switch: are their certificates true, and what does it take to recover and to certify a thermostat?

    python experiments/switching.py [--fast] [--only soundness|inexact|recovered|proved|radii] [--workers 2]

- soundness: certificates for random polynomial problems and thermostats, for rewards that are right, rewards spoiled
  until the expert is just not optimal outside the tube, and experts who switch at the wrong places; what is false in
  them is counted.
- inexact: experts who switch elsewhere, for the reward of the one who does not: certificates within barely less than
  they are short of the best, and within more; what is false in them is counted, and what the checker does not confirm.
- recovered: the thermostat of `certirl.problems.comfort` at γ = 0.9: in how many runs the policy is recovered
  outside a tube of half-width 0.05 from 10,000 transitions per action.
- proved: at how many transitions `solve` certifies the same thermostat, and at how many it does with a regret of at
  most a hundredth of the value's span.
- radii: what a certificate of the thermostat's own reward is made of, with states from the columns' design alone and
  with a share of them beside the switches.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

import certirl
import judging
import study
from certirl.problems import Steps, SwitchingProblem, comfort, judge, next_values, optimal_policy, regret
from certirl.proof.certificate import Certificate

GRID = np.linspace(-1.0, 1.0, 1601)
POLYNOMIAL, THERMAL = 100_000, 250_000  # transitions per action of a certificate


@dataclass(frozen=True)
class Arguments:
    """The full size; ``--fast`` shrinks it."""

    runs: int = 1_480
    inexact: int = 400
    recovered: int = 40
    samples: int = 10_000
    proofs: int = 20
    most: int = 1_000_000
    regret: float = 0.01
    seed: int = 0


FAST = Arguments(runs=8, inexact=4, recovered=2, proofs=0)


def a_problem(seed: int) -> SwitchingProblem:
    """A random polynomial problem with a random reward, or sometimes a random thermostat; its expert switches."""
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
            problem = SwitchingProblem(dynamics, reward, discount, optimal_policy(dynamics, reward, discount=discount))
        if problem.expert.switches and np.abs(problem.expert.switches).max() < 0.8 and leaves_room(problem.expert):
            return problem


def leaves_room(expert: Steps) -> bool:
    """Whether some state is outside the widest tube that is asked about."""
    return bool((expert.away(GRID) > 0.31).any())


def gaps(problem: SwitchingProblem, reward: Any, expert: Steps) -> np.ndarray:
    """The true D_a(s) of every action at the states of the grid ``[A, n]``, infinite for the expert's own."""
    ahead = next_values(problem.dynamics, reward, expert, GRID, discount=problem.discount)
    own = expert(GRID)
    gap = ahead[own, np.arange(len(GRID))] - ahead
    gap[own, np.arange(len(GRID))] = np.inf
    return gap


def advantages(problem: SwitchingProblem, reward: Any, expert: Steps) -> np.ndarray:
    """The least of these ``[n]``."""
    return gaps(problem, reward, expert).min(axis=0)


def barely_wrong(problem: SwitchingProblem, tube: float, rng: np.random.Generator) -> Any:
    """The known reward mixed with a random polynomial until the expert is just not optimal outside the tube."""
    other = certirl.Reward(certirl.Legendre(7), rng.normal(size=7))
    outside = problem.expert.away(GRID) > tube

    def curves(reward: Any) -> list[np.ndarray]:
        return [gaps(problem, reward, problem.expert)[:, outside]]

    return judging.barely_wrong(problem.reward, other, curves, steps=14, beyond=0.0, mix=judging.mixed_function)


def run(seed: int) -> dict[str, Any]:
    """One certificate against the truth."""
    problem, rng = a_problem(seed), np.random.default_rng([seed, 8])
    tube, delta = float(rng.choice([0.15, 0.3])), float(rng.choice([0.05, 0.2]))
    kind = ("right", "barely wrong", "right", "barely wrong", "switches elsewhere")[seed % 5]
    reward, expert = problem.reward, problem.expert
    if kind == "barely wrong":
        reward = barely_wrong(problem, tube, rng)
    if kind == "switches elsewhere":
        moved = np.sort(np.array(expert.switches) + rng.uniform(-2.0, 2.0, len(expert.switches)) * tube)
        elsewhere = Steps(tuple(np.clip(moved, -0.95, 0.95)), expert.actions)
        expert = elsewhere if leaves_room(elsewhere) else expert
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
    return {"kind": kind, "delta": delta} | compared(found, problem, reward, expert)


def compared(found: Certificate, problem: SwitchingProblem, reward: Any, expert: Steps) -> dict[str, Any]:
    """Which statements of a certificate the truth contradicts."""
    truth = advantages(problem, reward, expert)
    in_tube = np.zeros(len(GRID), dtype=bool)
    for ((low, high),) in found.tube.undecided:
        in_tube |= (low <= GRID) & (high >= GRID)
    outside = expert.away(GRID) > found.tube.allowed
    lost = regret(problem.dynamics, reward, expert, discount=problem.discount)
    least = float(truth[outside].min())
    best = optimal_policy(problem.dynamics, reward, discount=problem.discount)
    beyond = expert.away(GRID) > found.tube.settled
    return {
        "holds": found.holds,
        "false": bool(found.holds and least <= 0),
        "margin above the truth": bool(found.margin > least),
        "wrong outside the tube": bool((truth[~in_tube] <= 0).any()),
        "regret below the truth": bool(found.relative_regret < lost - 1e-9),
        "best policy differs where settled": bool((best(GRID) != expert(GRID))[beyond].any()),
        "half_width": found.tube.half_width,
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


def soundness(arguments: Arguments, runner: study.Runner) -> dict[str, Any]:
    """Count what was false, by δ and by kind."""
    return judging.counted(runner(run, study.seeds(arguments, arguments.runs), unit="certificates"), WRONG)


def inexact(seed: int) -> dict[str, Any]:
    """An expert who switches elsewhere, certified within barely less than it is short of the best, or within more."""
    problem, rng = a_problem(seed), np.random.default_rng([seed, 9])
    expert, thermal = problem.expert, problem.dynamics.name == "comfort"
    while not (short := -advantages(problem, problem.reward, expert).min()) > 1e-3:
        moved = np.sort(np.array(problem.expert.switches) + rng.uniform(-0.5, 0.5, len(expert.switches)))
        expert = Steps(tuple(np.clip(moved, -0.95, 0.95)), problem.expert.actions)
    kinds = {"barely too little": rng.uniform(0.95, 0.999), "enough": rng.uniform(1.2, 3.0)}
    name, factor = list(kinds.items())[seed % 2]
    share = factor * problem.discount * short / float(np.ptp(problem.reward(np.linspace(-1, 1, 4001)[:, None])))
    found = certirl.certify(
        problem.reward,
        problem.dynamics,
        expert=expert,
        discount=problem.discount,
        columns=certirl.Legendre(11 if thermal else 3),
        tail=problem.dynamics.tail,
        delta=0.2,
        suboptimality=min(share, 0.999),
        samples=THERMAL if thermal else POLYNOMIAL,
        paired=thermal,
        rng=rng,
    )
    verdict = certirl.check(found).verdict
    lost = regret(problem.dynamics, problem.reward, expert, discount=problem.discount)
    return {"kind": name, "delta": 0.2} | {
        "holds": found.holds,
        "false": bool(found.holds and short > -found.required),
        "margin above the truth": bool(found.margin > -short),
        "regret below the truth": bool(found.relative_regret < lost - 1e-9),
        "not confirmed": verdict != ("confirmed" if found.holds else "nothing claimed"),
    }


SHORT = ("false", "margin above the truth", "regret below the truth", "not confirmed")


def within(arguments: Arguments, runner: study.Runner) -> dict[str, Any]:
    """Count what was false of inexact experts."""
    return judging.counted(runner(inexact, study.seeds(arguments, arguments.inexact), unit="certificates"), SHORT)


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
    planned = optimal_policy(problem.dynamics, solution.reward, discount=problem.discount)
    outside = problem.expert.away(GRID) > TUBE
    best = advantages(problem, solution.reward, problem.expert)[outside].min()
    return {
        "recovered": bool((planned(GRID) == problem.expert(GRID))[outside].all()),
        "optimal outside": bool(best > 0),
        "regret": regret(problem.dynamics, solution.reward, problem.expert, discount=problem.discount),
        "seconds": seconds,
    }


def prove(task: list[Any]) -> dict[str, Any]:
    """One run with a certificate, and what the truth says about it."""
    seed, most, allowed = task
    problem = comfort()
    start = time.perf_counter()
    solution = certirl.solve(
        problem.dynamics,
        expert=problem.expert,
        discount=problem.discount,
        delta=0.05,
        tail=problem.dynamics.tail,
        tube=TUBE,
        regret=allowed,
        samples=most,
        rng=seed,
    )
    seconds = time.perf_counter() - start
    proof = solution.certificate
    return {
        "status": solution.status,
        "n": solution.samples,
        "share": proof.tube.share,
        "seconds": seconds,
    } | compared(proof, problem, solution.reward, problem.expert)


def _middle(runs: list[dict[str, Any]], name: str) -> float | None:
    return float(np.median([run[name] for run in runs])) if runs else None


def recovered(arguments: Arguments, runner: study.Runner) -> dict[str, Any]:
    """Recovery from little data, on one thermostat."""
    runs = runner(
        recover, [[seed, arguments.samples] for seed in study.seeds(arguments, arguments.recovered)], unit="recoveries"
    )
    return {
        "recovered outside the tube": [sum(run["recovered"] for run in runs), len(runs)],
        "true regrets, largest first": sorted((run["regret"] for run in runs), reverse=True),
        "seconds, median": _middle(runs, "seconds"),
    }


def proved(arguments: Arguments, runner: study.Runner) -> dict[str, Any]:
    """Certificates of the same thermostat: as soon as there is one, and as soon as it allows little regret."""
    goals = (None, arguments.regret)
    tasks = [[seed, arguments.most, goal] for goal in goals for seed in study.seeds(arguments, arguments.proofs)]
    runs = runner(prove, tasks, unit="proofs")
    found = {}
    for goal in goals:
        mine = [run for task, run in zip(tasks, runs, strict=True) if task[2] == goal]
        held = [run for run in mine if run["status"] == "certified"]
        found["any regret" if goal is None else f"regret at most {goal:g}"] = {
            "certified": [len(held), len(mine)],
            "goal reached": sum(goal is None or run["regret"] <= goal for run in held),
            "n when certified": sorted(run["n"] for run in held),
            "half-width of the tube, median": _middle(held, "half_width"),
            "share of the domain, median": _middle(held, "share"),
            "bounds on the regret": sorted(run["regret"] for run in held),
            "largest true regret": max((run["true regret"] for run in held), default=None),
            "anything wrong": sum(any(run[name] for name in WRONG) for run in mine),
            "seconds, median": _middle(mine, "seconds"),
        }
    return found


def measured(task: list[Any]) -> dict[str, Any]:
    """The radius at the worse of two switches, in shares of the value's span, and what follows from it."""
    samples, beside = task
    problem, columns = comfort(), certirl.Legendre(15)
    source: Any = problem.dynamics
    if not beside:  # a log whose states were drawn without a thought of switches
        source = certirl.steps.sample(source, basis=columns, samples=samples, rng=0, design=True, paired=True)
    given = {"expert": problem.expert, "discount": problem.discount, "tail": problem.dynamics.tail, "tube": TUBE}
    drawn = {"samples": samples, "paired": True} if beside else {}
    proof: Any = certirl.certify(problem.reward, source, columns=columns, rng=0, **drawn, **given)
    span = judge(problem.dynamics, problem.reward, problem.expert, discount=problem.discount).span
    places = np.array(problem.expert.switches)[:, None]
    neighbours = [tuple(sorted(pair)) for pair in zip(problem.expert.actions, problem.expert.actions[1:], strict=False)]
    found = []
    for band in proof.bands.pairs:
        for place in places[[pair == band.pair for pair in neighbours]]:
            found.append({name: float(lost[0]) / span for name, lost in band.losses(place[None]).items()})
    worst = max(found, key=lambda losses: sum(losses.values()))
    return {"holds": proof.holds, "radius": sum(worst.values()), **worst} | {
        "half-width": proof.half_width,
        "regret": proof.relative_regret,
        "margin": advantages(problem, problem.reward, problem.expert)[problem.expert.away(GRID) > TUBE].min() / span,
    }


def radii(arguments: Arguments, runner: study.Runner) -> dict[str, Any]:
    """Two sizes, with and without states beside the switches."""
    tasks = [[samples, beside] for samples in (300_000, arguments.most) for beside in (False, True)]
    runs = runner(measured, tasks, unit="certificates")
    names = [f"{n:,} transitions, {'some beside the switches' if beside else 'by design'}" for n, beside in tasks]
    return dict(zip(names, runs, strict=True))


SENTENCE = "whether certificates of experts who switch are true, and what they cost"
REPEATED = ("runs", "inexact")
PARTS = {"soundness": soundness, "inexact": within, "recovered": recovered, "proved": proved, "radii": radii}


if __name__ == "__main__":
    raise SystemExit(study.main(sys.modules[__name__]))
