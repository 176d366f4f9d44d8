"""Known noise: how many transitions certificates take, with a tail and without, and whether they are true.

    python experiments/known_noise.py [--fast] [--workers N] [--seed S] [--out DIR]

Systems are `s' = clip(m_a(s) + ξ)` with affine drifts and normal noise. *Cost*: the least number of transitions of each
action, of a ladder with steps of a quarter, from which the same reward is certified in three of three runs, by
`certify` with `dynamics=AffineGaussian(…)` and with `tail=GaussianNoise(…)`. *Truth*: random systems, experts and
rewards, most of them spoiled until the expert is barely not optimal at some state outside the tube, against quadrature
on the model.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import norm

import certirl
import study
from certirl import dynamics

LEAST, MOST, STEP = 200, 2_000_000, 1.25


@dataclass(frozen=True)
class Arguments:
    """How many random systems, and on which systems the cost is measured."""

    runs: int = 600
    systems: tuple[str, ...] = (
        "room, two actions, a switch",
        "walk, two actions, no switch",
        "fan, three actions, no switch",
    )
    seed: int = 0


FAST = Arguments(runs=6, systems=("walk, two actions, no switch",))


class Line:
    """``s' = clip(θ_a0 + θ_a1·s + ξ)`` into an interval, ξ normal."""

    def __init__(self, theta: Any, std: float, domain: tuple[float, float]) -> None:
        self.theta, self.std, self.domain, self.n_actions = np.asarray(theta, dtype=float), std, (domain,), len(theta)

    def sample(self, states: Any, action: int, rng: np.random.Generator) -> Any:
        """Next states."""
        drift = self.theta[action, 0] + self.theta[action, 1] * states
        return np.clip(drift + rng.normal(scale=self.std, size=states.shape), *self.domain[0])

    def trajectory(self, steps: int, rng: np.random.Generator) -> certirl.Transitions:
        """One long trajectory with random actions, as many rows for each action, about."""
        low, high = self.domain[0]
        actions, noise = (
            rng.integers(self.n_actions, size=steps * self.n_actions),
            rng.normal(size=steps * self.n_actions),
        )
        states = np.empty(len(actions) + 1)
        states[0] = rng.uniform(low, high)
        for row, (action, each) in enumerate(zip(actions, noise, strict=True)):
            drift = self.theta[action, 0] + self.theta[action, 1] * states[row]
            states[row + 1] = min(max(drift + self.std * each, low), high)
        return certirl.Transitions(states[:-1], actions, states[1:], domain=(low, high), independent=False)

    def after(self, rewards: Any, chosen: Any, discount: float) -> Any:
        """(P_aV)(s) by quadrature at the points of a grid ``[A, n]``, for rewards linear between them ``[n, …]``.

        Args:
            rewards: at the points; those of every action as a list of such.
            chosen: the expert, a function of states ``[n]`` to actions.
            discount: γ; 0 for P_aR.
        """
        each = rewards if isinstance(rewards, list) else [rewards] * self.n_actions
        grid = np.linspace(*self.domain[0], len(each[0]))
        places, weights = np.polynomial.legendre.leggauss(4)
        side = grid[1] - grid[0]
        every = np.concatenate([grid[[0, -1]], (grid[:-1, None] + (places + 1) * side / 2).ravel()])
        weights = np.concatenate([[0.0, 0.0], np.tile(weights, len(grid) - 1)]) * side / 2
        hats = np.clip(1 - np.abs(every[:, None] - grid) / side, 0.0, None)
        moves = np.stack([self._law(every, every, weights, action) for action in range(self.n_actions)])
        taken = chosen(every), np.arange(len(every))
        operator = np.eye(len(every)) - discount * moves[taken]
        value = np.linalg.solve(operator, np.stack([hats @ own for own in each])[taken])
        return np.stack([self._law(grid, every, weights, action) @ value for action in range(self.n_actions)])

    def _law(self, states: Any, places: Any, weights: Any, action: int) -> Any:
        mean = self.theta[action, 0] + self.theta[action, 1] * states
        rows = norm.pdf(places[None], mean[:, None], self.std) * weights
        rows[:, 0], rows[:, 1] = (norm.cdf(places[0], mean, self.std), norm.sf(places[1], mean, self.std))
        return rows


# Drifts and noise, where the expert switches (None: never), γ.
SYSTEMS: dict[str, tuple[Line, float | None, float]] = {
    "room, two actions, a switch": (Line([[3.3, 0.9], [0.3, 0.9]], 1.5, (15.0, 25.0)), 20.0, 0.7),
    "walk, two actions, no switch": (Line([[0.5, 1.0], [-0.5, 1.0]], 1.0, (0.0, 10.0)), None, 0.9),
    "fan, three actions, no switch": (Line([[0.8, 0.9], [0.4, 0.9], [-0.2, 0.9]], 1.2, (0.0, 10.0)), None, 0.8),
}


def explained(system: Line, cut: float | None, discount: float, points: int) -> Any:
    """A reward at the points of a grid, R = V − γP_πV, under which the expert is optimal, and the expert.

    V is −(s − goal)²; both actions lead equally far from the goal at the switch, and without one it is high up.
    """
    grid = np.linspace(*system.domain[0], points)

    def chosen(states: Any) -> Any:
        return (states > (np.inf if cut is None else cut)).astype(int)

    high = system.domain[0][1]
    goal = high + (high - grid[0]) / 2 if cut is None else float((system.theta[:2] @ [1.0, cut]).mean())
    value = -((grid - goal) ** 2)
    taken = chosen(grid)
    return value - discount * system.after(value, chosen, 0.0)[taken, np.arange(points)], chosen


def measure(name: str) -> dict[str, Any]:
    """The least transitions for one reward."""
    system, cut, discount = SYSTEMS[name]
    values, chosen = explained(system, cut, discount, 1001)
    reward = certirl.Reward(certirl.Cells((1001,), box=system.domain), values)
    expert: Any = 0 if cut is None else lambda states: chosen(states[:, 0])
    problem: dict[str, Any] = {"discount": discount, "expert": expert}
    noise = dynamics.GaussianNoise(std=system.std, slope=float(system.theta[:, 1].max()))
    columns = next(basis for k in range(5, 60) if noise.number(basis := certirl.Legendre(k, system.domain[0])) < 2e-5)

    def known(samples: int, rng: int) -> bool:
        asked: dict[str, Any] = {"dynamics": dynamics.AffineGaussian(system.std), "samples": samples, "rng": rng}
        proof = certirl.certify(reward, system, **asked, **problem)
        return bool(proof.holds)

    def by_tail(samples: int, rng: int) -> bool:
        asked: dict[str, Any] = {"columns": columns, "tail": noise, "samples": samples, "rng": rng}
        return bool(certirl.certify(reward, system, **asked, **problem).holds)

    return {"system": name, "known noise": _least(known), "tail": _least(by_tail), "columns": columns.size}


def _least(certifies: Any) -> int | None:
    """The least number of transitions of the ladder from which three of three runs certify."""
    samples = float(LEAST)
    while samples <= MOST:
        if all(certifies(int(samples), rng) for rng in range(3)):
            return int(samples)
        samples *= STEP
    return None


def judge(seed: int) -> dict[str, Any]:
    """One random system, expert and reward, certified, against the truth."""
    rng = np.random.default_rng([seed, 17])
    switching, discount, std = bool(rng.random() < 0.6), float(rng.uniform(0.4, 0.9)), float(rng.uniform(0.2, 0.6))
    offsets = np.sort(rng.uniform(-0.5, 0.5, 2 if switching else 3))[::-1]  # action 0 leads upwards
    offsets[0] += 0.2
    system = Line(
        np.stack([offsets, rng.uniform(0.6, 0.9) + rng.uniform(-0.02, 0.02, len(offsets))], axis=1), std, (-1.0, 1.0)
    )
    cut, tube = float(rng.uniform(-0.3, 0.3)), 0.1

    grid = np.linspace(-1, 1, 201)
    right, chosen = explained(system, cut if switching else None, discount, len(grid))
    taken, each = chosen(grid), np.arange(len(grid))
    waves = rng.normal(size=4) / np.arange(1, 5)
    wrong = sum(wave * np.sin((j + 1) * grid + rng.uniform(0, 6)) for j, wave in enumerate(waves))
    after = system.after(np.stack([right, wrong], axis=1), chosen, discount)
    outside = np.abs(grid - cut) > tube if switching else np.ones(len(grid), dtype=bool)
    advantage = after[taken, each] - after  # linear in the reward
    advantage[taken, each] = np.inf

    def margin(weight: float) -> float:
        return float(
            (advantage[..., 0] + weight * np.where(np.isinf(advantage[..., 0]), 0, advantage[..., 1]))[:, outside].min()
        )

    weight, spoil = 0.0, margin(0.0) > 0 and rng.random() < 0.7
    if spoil:  # until it is barely wrong
        low, high = 0.0, 0.01
        while margin(high) > 0 and high < 1e3:
            high *= 2
        spoil = margin(high) <= 0  # some waves never make it wrong
    if spoil:
        for _ in range(40):
            middle = (low + high) / 2
            low, high = (middle, high) if margin(middle) > 0 else (low, middle)
        weight = high * (1 + 1e-3)
    true, samples = margin(weight), int(10 ** rng.uniform(2.5, 5))
    reward = certirl.Reward(certirl.Cells((201,), box=((-1, 1),)), right + weight * wrong)
    in_order = bool(rng.random() < 0.4)
    draws = {} if in_order else {"samples": samples, "rng": seed}
    settings: dict[str, Any] = {"dynamics": dynamics.AffineGaussian(std, cells=400), "discount": discount}
    settings["tube"] = tube if switching else None
    source = system.trajectory(samples, rng) if in_order else system
    proof = certirl.certify(reward, source, expert=lambda states: chosen(states[:, 0]), delta=0.05, **settings, **draws)
    bounds = np.nan_to_num(proof.advantage(grid[outside])[1], nan=-np.inf)
    truth = (advantage[..., 0] + weight * np.nan_to_num(advantage[..., 1], posinf=0.0))[:, outside]
    return {
        "wrong": true <= 0,
        "barely wrong": spoil,
        "certified": bool(proof.holds),
        "false": bool(proof.holds and proof.margin > true),
        "a bound exceeds the truth": bool((bounds > truth + 1e-6).any()),
        "margin": proof.margin,
        "true margin": true,
        "samples": samples,
        "switching": switching,
        "one trajectory": in_order,
    }


def cost(arguments: Arguments, runner: study.Runner) -> dict[str, Any]:
    """What certificates take with known noise, and with a tail."""
    runs = runner(measure, list(arguments.systems), unit="systems")
    return {run["system"]: {key: value for key, value in run.items() if key != "system"} for run in runs}


def truth(arguments: Arguments, runner: study.Runner) -> dict[str, Any]:
    """Whether certificates of random systems are true."""
    runs = runner(judge, study.seeds(arguments, arguments.runs), unit="systems")
    right = [run for run in runs if not run["wrong"]]
    return {
        "runs": len(runs),
        "from one trajectory": sum(run["one trajectory"] for run in runs),
        "wrong rewards": sum(run["wrong"] for run in runs),
        "barely wrong rewards": sum(run["barely wrong"] for run in runs),
        "certified": sum(run["certified"] for run in runs),
        "certified falsely": sum(run["false"] or (run["wrong"] and run["certified"]) for run in runs),
        "some bound exceeds the truth": sum(run["a bound exceeds the truth"] for run in runs),
        "right rewards": len(right),
        "right rewards certified": sum(run["certified"] for run in right),
        "right rewards certified from one trajectory": sum(run["certified"] and run["one trajectory"] for run in right),
    }


SENTENCE = "what certificates take where the law of the noise is known, and whether they are true"
REPEATED = ("runs",)
PARTS = {"cost": cost, "truth": truth}


if __name__ == "__main__":
    raise SystemExit(study.main(sys.modules[__name__]))
