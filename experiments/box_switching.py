"""Experts who switch in two coordinates: are their certificates true?

    python experiments/box_switching.py [--fast] [--only soundness|proved] [--workers 2] [--out FOLDER]

- soundness: certificates for random polynomial problems with random rewards and for random whirls, for rewards that are
  right, rewards spoiled until the expert is just not optimal outside the tube, and experts who switch at the wrong
  places; what is false in them is counted. The truth is computed on a fine grid, without the library's bases.
- proved: at how many transitions `solve` certifies an expert who keeps a whirl at its middle line.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

import certirl
import judging
import study
from certirl.data.policy import ExpertGrid
from certirl.functions.bases import of_degree
from certirl.problems import Judgement, Truth, Whirl, judge, random_independent
from certirl.proof.certificate import Certificate

POLYNOMIAL, WHIRL = 200_000, 400_000  # transitions per action of a certificate
WIDEST = 0.45  # of the tubes that are asked about
COARSE, FINE, FINE_WHIRL = 60, 300, 160  # next states along each coordinate: while problems are looked for, and later


@dataclass(frozen=True, eq=False)
class Greedy:
    """The expert who takes the action with the largest P_aV.

    Attributes:
        truth: of the problem.
        expected: P_aV at the nodes ``[A, I]``.
        shift: moves the expert's regions against this ``[d]``.
    """

    truth: Truth
    expected: np.ndarray
    shift: Any = 0.0
    thread_safe: ClassVar[bool] = True

    def __call__(self, states: np.ndarray) -> np.ndarray:
        """The action at each state ``[n]``."""
        low, high = np.array(self.truth.problem.domain).T
        rows = np.clip(np.reshape(states, (-1, len(low))) + self.shift, low, high)
        return self.truth.next_values(self.expected, rows).argmax(axis=0)


@dataclass(frozen=True)
class Arguments:
    """The full size; ``--fast`` shrinks it."""

    runs: int = 160
    proofs: int = 3
    most: int = 1_000_000
    seed: int = 0


FAST = Arguments(runs=4, proofs=0)


@dataclass(frozen=True, eq=False)
class Case:
    """A problem with its reward, its expert and the truth."""

    truth: Truth
    reward: Any
    expert: Any
    discount: float
    columns: Any


def a_case(seed: int) -> Case:
    """A random polynomial problem with a random reward, or sometimes a random whirl; its expert switches."""
    rng = np.random.default_rng([seed, 17])
    while True:
        discount, whirl = float(rng.choice([0.5, 0.7, 0.9])), seed % 6 == 0
        if whirl:
            # Actions that lead to opposite sides, so that the way to the target depends on where one is.
            angle, around = rng.uniform(0, np.pi), int(rng.integers(2, 4))
            turns = angle + 2 * np.pi * np.arange(around) / around
            drift = rng.uniform(0.5, 0.7) * np.column_stack([np.cos(turns), np.sin(turns)])
            settings = {
                "angle": rng.uniform(-0.5, 0.5),
                "shrink": rng.uniform(0.3, 0.5),
                "noise": rng.uniform(0.7, 0.8),
            }
            problem: Any = Whirl(drift=tuple(map(tuple, drift.tolist())), **settings)
            target = rng.uniform(-0.2, 0.2, 2)
            reward: Any = Target(target)
            columns, nodes, fine = of_degree(problem.domain, 5), 8, FINE_WHIRL
        else:
            problem = random_independent(seed=int(rng.integers(2**31)))
            reward = certirl.Reward(certirl.product(*[certirl.Legendre(5)] * 2), rng.normal(size=15))
            columns, nodes, fine = certirl.product(*[certirl.Legendre(3)] * 2, index="full"), 3, FINE
        rough = Truth(problem, nodes=nodes, fine=COARSE)
        chosen = rough.next_values(rough.plan(reward, discount=discount)[0]).argmax(axis=0)
        if np.sort(np.bincount(chosen, minlength=3))[-2] < 0.1 * len(chosen):
            continue
        truth = Truth(problem, nodes=nodes, fine=fine)
        expert = Greedy(truth, truth.plan(reward, discount=discount)[0])
        if leaves_room(truth, expert) and is_clear(truth, expert, reward, discount):
            return Case(truth, reward, expert, discount, columns)


@dataclass(frozen=True, eq=False)
class Target:
    """R(s) = −|s − target|²."""

    place: np.ndarray

    def __call__(self, states: np.ndarray) -> np.ndarray:
        """R at each state ``[n]``."""
        return -((states - self.place) ** 2).sum(axis=1)


def surely_away(truth: Truth, own: np.ndarray) -> np.ndarray:
    """No more than the distance from each state of the grid to the nearest switch, by its neighbours' actions."""
    along = round(len(truth.states) ** 0.5)
    corners = tuple(zip(truth.states.min(axis=0), truth.states.max(axis=0), strict=True))  # of the grid, not of the box
    lookup = ExpertGrid(corners, np.eye(truth.problem.n_actions, dtype=bool)[own].reshape(along, along, -1))
    return np.maximum(lookup.marks.ravel() - 1.1 * lookup.reach, 0.0)


def leaves_room(truth: Truth, expert: Any) -> bool:
    """Whether a good part of the states is outside the widest tube that is asked about."""
    return bool((surely_away(truth, expert(truth.states)) > 0.5).mean() > 0.05)


def is_clear(truth: Truth, expert: Any, reward: Any, discount: float) -> bool:
    """Whether the expert is better by a hundredth of the value's span outside the widest tube: else nothing is seen."""
    own = expert(truth.states)
    expected, value = truth.evaluate(reward, own, discount=discount)
    true = Judgement(truth, expected, own, own, 0.0, 0.0, reward, discount)
    return bool(true.margins[surely_away(truth, own) > WIDEST].min() > 0.01 * np.ptp(value))


def barely_wrong(case: Case, outside: np.ndarray, rng: np.random.Generator) -> Any:
    """The known reward mixed with a random polynomial until the expert is just not optimal outside the tube."""
    other = certirl.Reward(certirl.product(*[certirl.Legendre(5)] * 2), rng.normal(size=15))
    actions = case.expert(case.truth.states)
    taken = actions[outside], np.arange(int(outside.sum()))

    def curves(reward: Any) -> list[np.ndarray]:
        expected, _ = case.truth.evaluate(reward, actions, discount=case.discount)
        ahead = case.truth.next_values(expected)[:, outside]
        gap = ahead[taken] - ahead
        gap[taken] = np.inf
        return [gap]

    return judging.barely_wrong(case.reward, other, curves, steps=14, beyond=0.0, mix=judging.mixed_function)


def run(seed: int) -> dict[str, Any]:
    """One certificate against the truth."""
    case, rng = a_case(seed), np.random.default_rng([seed, 18])
    tube, delta = float(rng.choice([0.3, WIDEST])), float(rng.choice([0.05, 0.2]))
    kind = ("right", "barely wrong", "right", "barely wrong", "switches elsewhere")[seed % 5]
    reward, expert, whirl = case.reward, case.expert, isinstance(case.truth.problem, Whirl)
    if kind == "barely wrong":
        reward = barely_wrong(case, surely_away(case.truth, expert(case.truth.states)) > tube, rng)
    if kind == "switches elsewhere":
        elsewhere = Greedy(case.truth, expert.expected, rng.uniform(-1.5, 1.5, 2) * tube)
        expert = elsewhere if leaves_room(case.truth, elsewhere) else expert
    found = certirl.certify(
        reward,
        case.truth.problem,
        expert=expert,
        discount=case.discount,
        columns=case.columns,
        tail=case.truth.problem.tail if whirl else 0,
        tube=tube,
        delta=delta,
        samples=WHIRL if whirl else POLYNOMIAL,
        paired=whirl or bool(rng.integers(2)),
        rng=rng,
        progress=False,
    )
    true = judge(case.truth, reward, expert, discount=case.discount)
    dynamics = "whirls" if whirl else "polynomial"
    return {"kind": f"{kind}, {dynamics}", "delta": delta} | compared(found, case.truth, true)


def compared(found: Certificate, truth: Truth, true: Judgement) -> dict[str, Any]:
    """Which statements of a certificate the truth contradicts."""
    margins, away = true.margins, surely_away(truth, true.actions)
    least = float(margins[away > found.tube.allowed].min())
    beyond = away > found.tube.settled
    return {
        "holds": found.holds,
        "false": bool(found.holds and least <= 0),
        "margin above the truth": bool(found.margin > least),
        "wrong outside the tube": bool((margins[found.proves(truth.states)] <= 0).any()),
        "regret below the truth": bool(found.regret < true.regret - 1e-6 * true.span),
        "span above the truth": bool(found.value_span > true.span),
        "best policy differs where settled": bool((true.best != true.actions)[beyond].any()),
        "half_width": found.tube.half_width,
        "share": found.tube.share,
        "regret": found.relative_regret,
        "true regret": true.regret / true.span,
    }


WRONG = (
    "false",
    "margin above the truth",
    "wrong outside the tube",
    "regret below the truth",
    "span above the truth",
    "best policy differs where settled",
)


def soundness(arguments: Arguments, runner: study.Runner) -> dict[str, Any]:
    """Count what was false, by δ and by kind."""
    return judging.counted(runner(run, study.seeds(arguments, arguments.runs), unit="certificates"), WRONG)


def middle_line(states: np.ndarray) -> np.ndarray:
    """An expert for the whirl below: pushes towards the line that the turn carries to the middle."""
    return (states @ np.array([5.0, 2.0]) > 0).astype(int)


def prove(task: list[int]) -> dict[str, Any]:
    """One run of `solve` with a certificate, and what the truth says about it."""
    seed, most = task
    problem = Whirl(drift=((0.7, 0.7), (-0.7, -0.7)), angle=0.4, shrink=0.5, noise=0.7)
    start = time.perf_counter()
    solution = certirl.solve(
        problem,
        expert=middle_line,
        discount=0.5,
        basis=certirl.product(*[certirl.Legendre(5)] * 2),
        delta=0.05,
        tail=problem.tail,
        tube=0.3,
        samples=most,
        rng=seed,
        progress=False,
    )
    seconds = time.perf_counter() - start
    truth = Truth(problem, nodes=9, fine=FINE_WHIRL)
    true = judge(truth, solution.reward, middle_line, discount=0.5)
    statements = compared(solution.certificate, truth, true)
    return {"status": solution.status, "n": solution.samples, "seconds": seconds} | statements


def proved(arguments: Arguments, runner: study.Runner) -> dict[str, Any]:
    """Certificates of the whirl, as soon as there is one."""
    runs = runner(prove, [[seed, arguments.most] for seed in study.seeds(arguments, arguments.proofs)], unit="proofs")
    held = [run for run in runs if run["status"] == "certified"]
    return {
        "certified": [len(held), len(runs)],
        "n when certified": sorted(run["n"] for run in held),
        "half-widths": sorted(run["half_width"] for run in held),
        "shares of the box": sorted(run["share"] for run in held),
        "bounds on the regret": sorted(run["regret"] for run in held),
        "true regrets": sorted(run["true regret"] for run in held),
        "anything wrong": sum(any(run[name] for name in WRONG) for run in runs),
        "seconds": sorted(run["seconds"] for run in runs),
    }


SENTENCE = "whether certificates of experts who switch in two coordinates are true, and what they cost"
REPEATED = ("runs",)
PARTS = {"soundness": soundness, "proved": proved}


if __name__ == "__main__":
    raise SystemExit(study.main(sys.modules[__name__]))
