"""Are certificates on boxes true, and do planners agree with them? Two and three coordinates, in one command.

    python experiments/box_certificates.py [--fast] [--workers 2] [--out experiments/results]

Random problems with known truth (jumps from corners, where it is exact; factorised polynomials, turning and drifting
with noise, an angle beside a temperature, where it comes by quadrature), rewards that are right and rewards spoiled
until their true margin is just below zero; paired and unpaired data; δ = 0.05 and 0.2; four draws of every reward.
False certificates and bounds above the truth are counted. Where a certificate holds in two coordinates, a fine-grid MDP
is solved by policy iteration under the same reward, and the share of its states where the optimal action is the
expert's is reported.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

import certirl
import judging
import study
from certirl import problems, product
from certirl.functions.bases import Basis
from certirl.ground.domain import mesh
from certirl.problems import Problem


@dataclass(frozen=True)
class Arguments:
    """The full size; ``--fast`` shrinks it."""

    problems: int = 28
    corners: int = 200
    seed: int = 0


FAST = Arguments(problems=2, corners=6)
DRAWS = 4  # independent certificates of every reward
GRID = 31  # cells along each coordinate of the fine-grid MDP
ALWAYS = {"expert": 0, "progress": False, "map": 1}  # of every certificate


def a_problem(seed: int) -> tuple[Problem, Basis, float, int]:
    """One of four kinds in turn, with random settings: problem, columns, discount, transitions per action."""
    rng = np.random.default_rng([seed, 1])
    discount, kind = float(rng.choice([0.3, 0.5, 0.7])), seed % 10
    Legendre, Fourier = certirl.Legendre, certirl.Fourier
    if kind < 6:
        drift = np.array(problems.Whirl.drift) + rng.uniform(-0.1, 0.1, (3, 2))
        settings = {"angle": float(rng.uniform(0, 1.5)), "noise": float(rng.uniform(0.9, 1.2)), "shrink": 0.6}
        problem = problems.Whirl(drift=tuple(map(tuple, drift.tolist())), **settings)
        return problem, product(Legendre(6), Legendre(6)), discount, 60_000
    if kind < 8:
        problem = problems.random_independent(seed=seed)
        return problem, product(Legendre(3), Legendre(3), index="full"), discount, 200_000
    if kind == 8:
        homes = (0.0, float(rng.uniform(1.0, 3.0)), float(-rng.uniform(1.0, 3.0)))
        angle = certirl.problems.circle(homes=homes, pull=float(rng.uniform(0.1, 0.2)), noise=1.2)
        room = certirl.problems.thermostat(power=(2.0, 0.0, -1.0), leak=0.4, noise=4.0)
        return problems.independent(angle, room), product(Fourier(9), Legendre(9)), discount, 80_000
    problem = problems.whirl(dimension=3, noise=float(rng.uniform(1.4, 1.6)), angle=float(rng.uniform(0, 1.5)))
    return problem, product(*[Legendre(4)] * 3), 0.3, 120_000


def agreement(problem: Problem, reward: certirl.Reward, discount: float) -> float:
    """The share of cells of a fine-grid MDP in which policy iteration under the reward takes the expert's action."""
    axes = [low + (high - low) * (np.arange(GRID) + 0.5) / GRID for low, high in problem.domain]
    states = mesh(axes)
    moves = np.array([problem.density(states, states, action) for action in range(problem.n_actions)])
    moves /= moves.sum(axis=2, keepdims=True)
    gained, policy = np.asarray(reward(states)), np.full(len(states), 1)
    while True:
        own = moves[policy, np.arange(len(states))]
        value = np.linalg.solve(np.eye(len(states)) - discount * own, gained)
        best = np.argmax(moves @ value, axis=0)
        if (best == policy).all():
            return float((policy == 0).mean())
        policy = best


def verdict(
    kind: str, problem: Any, delta: float, paired: bool, spoil: bool, found: certirl.Certificate, truth: float
) -> dict[str, Any]:
    """What one certificate said, and whether it is true."""
    return {
        "kind": kind,
        "coordinates": len(problem.domain),
        "delta": delta,
        "paired": paired,
        "spoiled": spoil,
        "holds": found.holds,
        "false": bool(found.holds and truth <= 0),
        "above": bool(truth < found.margin),  # the bound itself is wrong, whether or not it is positive
        "share": found.margin / truth if found.holds else None,
        "agreement": None,
    }


def judge(seed: int) -> list[dict[str, Any]]:
    """A reward from the exact operators, perhaps spoiled; several certificates of it, compared with the truth."""
    problem, columns, discount, samples = a_problem(seed)
    rng = np.random.default_rng([seed, 2])
    exact = certirl.steps.bellman(problem.operators(columns), discount=discount)
    reward, spoil = certirl.steps.recover(exact).reward, bool(rng.random() < 0.3)
    if reward is None:
        return []
    if spoil:
        along = 31 if len(problem.domain) == 2 else 11
        states = mesh([np.linspace(low, high, along) for low, high in problem.domain])
        noise = judging.noise_of(reward, rng)
        reward = judging.barely_wrong(reward, noise, lambda r: [problem.margins(r, states, discount=discount)])
    truth = problem.true_margin(reward, discount=discount)
    tail = 0.0 if columns.index == "full" else problem.tail(columns.on(problem.domain))  # "full": polynomials
    given = {"tail": tail, "discount": discount, "columns": columns, "samples": samples}
    runs = []
    for draw in range(DRAWS):
        delta, paired = (0.05, 0.2)[draw % 2], draw != 3
        found = certirl.certify(reward, problem, delta=delta, rng=[seed, 3, draw], paired=paired, **ALWAYS, **given)
        runs.append(verdict(problem.name, problem, delta, paired, spoil, found, truth))
    if any(run["holds"] for run in runs) and len(problem.domain) == 2:
        runs[0]["agreement"] = agreement(problem, reward, discount)
    return runs


class Corners:
    """From corner j of the box an action leads to one of a few places, from elsewhere as from a random corner.

    The chance of corner j is a product of (1 ± t)/2, so every P_a f is exactly multilinear, and D_a is least at a
    corner: the truth is a matter of a few numbers, known without quadrature, mesh or search.
    """

    n_actions, thread_safe = 3, True

    def __init__(self, dimension: int, seed: int) -> None:
        rng = np.random.default_rng([seed, 5])
        self.domain = ((-1.0, 1.0),) * dimension
        self.corners = mesh([np.array([-1.0, 1.0])] * dimension)
        home = np.array([0.65, -0.65, 0.0])[:, None, None, None] * rng.uniform(0.3, 1.0)
        spread = rng.uniform(-0.2, 0.2, (3, len(self.corners), 5, dimension))
        self.places = home + 0.1 * self.corners[:, None] * rng.uniform(-1, 1, dimension) + spread

    def chances(self, states: Any) -> Any:
        """Of every corner ``[n, 2ᵈ]``."""
        return ((1 + states[:, None] * self.corners) / 2).prod(axis=2)

    def sample(self, states: Any, action: int, rng: np.random.Generator) -> Any:
        """Draw s' for each state: two random numbers a row, whatever the action."""
        which, place = rng.random((2, len(states)))
        corner = (which[:, None] > self.chances(states).cumsum(axis=1)[:, :-1]).sum(axis=1)
        return self.places[action, corner, (place * self.places.shape[2]).astype(int)]

    def margins(self, reward: Any, discount: float) -> Any:
        """D_a at the corners ``[A − 1, 2ᵈ]``: V there and at the places by solving 2ᵈ equations."""
        flat = self.places.reshape(-1, len(self.domain))
        gained, leads = reward(flat).reshape(self.places.shape[:3]), self.chances(flat)
        leads = leads.reshape(*self.places.shape[:3], -1).mean(axis=2)  # where the places of a corner lead, in corners
        # h_c at the corners: the mean over places of R + γ h_0; h_0 solves its own equation
        own = np.linalg.solve(np.eye(len(self.corners)) - discount * leads[0], gained[0].mean(axis=1))
        expected = gained.mean(axis=2) + discount * leads @ own
        return expected[0] - expected[1:]


def judge_corners(seed: int) -> list[dict[str, Any]]:
    """The same for a problem of corners; its reward comes from data of its own."""
    rng = np.random.default_rng([seed, 4])
    dimension, discount = (2, 2, 3)[seed % 3], float(rng.choice([0.3, 0.6, 0.8]))
    problem = Corners(dimension, seed)
    basis = product(*[certirl.Legendre(2)] * dimension, index="full")
    solved = certirl.solve(
        problem, expert=0, basis=basis, columns=basis.size, discount=discount, samples=5_000, rng=seed
    )
    if solved.reward is None:
        return []
    reward, spoil = solved.reward, seed % 2 == 1
    if spoil:
        other = certirl.Reward(reward.basis, rng.normal(size=basis.size) - reward.coefficients)
        reward = judging.barely_wrong(reward, other, lambda r: [problem.margins(r, discount)])
    truth = float(problem.margins(reward, discount).min())
    columns, runs = basis.on(problem.domain), []
    for draw in range(DRAWS):
        delta, paired, samples = (0.05, 0.2)[draw % 2], draw < 3, (3_000, 10_000, 30_000)[draw % 3]
        given = {"tail": 0, "discount": discount, "columns": columns, "samples": samples}
        found = certirl.certify(reward, problem, delta=delta, rng=[seed, 6, draw], paired=paired, **ALWAYS, **given)
        runs.append(verdict("corners", problem, delta, paired, spoil, found, truth))
    return runs


def run(arguments: Arguments, runner: study.Runner) -> study.Findings:
    """Count false certificates, bounds above the truth, and states on which a planner disagrees."""
    found = runner(judge_corners, study.seeds(arguments, arguments.corners), unit="problems")
    found += runner(judge, study.seeds(arguments, arguments.problems), unit="problems")
    runs = [run for own in found for run in own]
    kinds = sorted({f"{run['kind']}, {run['coordinates']} coordinates" for run in runs})
    by_kind = {
        kind: _count([run for run in runs if f"{run['kind']}, {run['coordinates']} coordinates" == kind])
        for kind in kinds
    }
    agreements = [run["agreement"] for run in runs if run["agreement"] is not None]
    numbers = {
        "all": _count(runs),
        "by kind": by_kind,
        "by delta": {str(delta): _count([run for run in runs if run["delta"] == delta]) for delta in (0.05, 0.2)},
        "spoiled": _count([run for run in runs if run["spoiled"]]),
        "fine-grid MDPs solved": len(agreements),
        "policy agreement, least and mean": [float(f(agreements)) for f in (np.min, np.mean)] if agreements else None,
    }
    total = numbers["all"]
    sentence = (
        f"of {total['runs']} certificates in two and three coordinates {total['certified']} hold, "
        f"{total['false certificates']} of them falsely; {total['bounds above the truth']} bounds lie above the truth"
    )
    return study.Findings(numbers, [], None, sentence)


def _count(runs: list[dict[str, Any]]) -> dict[str, Any]:
    shares = [run["share"] for run in runs if run["share"] is not None]
    return {
        "runs": len(runs),
        "certified": sum(run["holds"] for run in runs),
        "false certificates": sum(run["false"] for run in runs),
        "bounds above the truth": sum(run["above"] for run in runs),
        "median share of the true margin that is certified": float(np.median(shares)) if shares else None,
    }


REPEATED = ("problems",)


if __name__ == "__main__":
    raise SystemExit(study.main(sys.modules[__name__]))
