"""How good plans are: on a grid, with a fitted value, and from a log, against policies that are known to be good.

    python experiments/plans.py [--fast] [--workers N] [--seed S] [--out DIR]

Classic control with the environments' own rewards: the return of the plan on a grid and of the plan with a fitted
value, which is what more than four coordinates get. And a chain of masses with springs, pushed at one or two of them,
with the reward −|s|² in four to eight coordinates: the linear-quadratic regulator, rounded to the nearest of three or
five pushes by its own quadratic value, is the reference, and random actions are 0 %.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import numpy as np

import certirl
import study
from certirl.environments import planning
from played import TORQUES, returns

DISCOUNTS = {"classic": 0.99, "chain": 0.97}
STEPS = 100  # of a rollout in the chain


@dataclass(frozen=True)
class Arguments:
    """Environments, and numbers of coordinates of the chain, from its simulator and from a log of random actions."""

    plans: tuple[str, ...] = ("grid", "fitted")
    environments: tuple[str, ...] = ("MountainCar-v0", "Pendulum-v1", "CartPole-v1", "Acrobot-v1")
    coordinates: tuple[int, ...] = (4, 6, 8)
    logged: tuple[int, ...] = (6, 8)
    episodes: int = 40
    seed: int = 0


FAST = Arguments(plans=("grid",), environments=("Pendulum-v1",), coordinates=(), logged=(), episodes=5)


class Chain:
    """Masses in a row with springs between them; the actions push one or two of them.

    Args:
        coordinates: twice the number of masses.
        noise: standard deviation of what is added to every coordinate.
    """

    thread_safe = True

    def __init__(self, coordinates: int, noise: float = 0.0) -> None:
        from scipy.linalg import expm

        masses, self.noise = coordinates // 2, noise
        self.domain = ((-1.0, 1.0),) * masses + ((-1.5, 1.5),) * masses
        springs = 2 * np.eye(masses) - np.eye(masses, k=1) - np.eye(masses, k=-1)
        springs[0, 0], springs[-1, -1] = 1.0, 1.3
        zero, unit = np.zeros((masses, masses)), np.eye(masses)
        rates = np.block([[zero, unit, zero], [-springs, -0.05 * unit, unit], [zero, zero, zero]])
        self.pushed = [0] if masses < 4 else [0, 2]
        exact = expm(0.1 * rates)[:coordinates]
        self.A, self.B = exact[:, :coordinates], exact[:, coordinates:][:, self.pushed]
        self.pushes = np.concatenate(
            [np.zeros((1, len(self.pushed))), np.eye(len(self.pushed)), -np.eye(len(self.pushed))]
        )
        self.n_actions = len(self.pushes)

    def sample(self, states: Any, action: int, rng: Any) -> Any:
        """Next states ``[n, d]``, stopped at the edges of the box."""
        moved = states @ self.A.T + self.B @ self.pushes[action]
        return np.clip(moved + self.noise * rng.standard_normal(moved.shape), *np.array(self.domain).T)

    def regulator(self, states: Any) -> Any:
        """The push after which the regulator's quadratic cost is least."""
        from scipy.linalg import solve_discrete_are

        d, root = len(self.domain), np.sqrt(DISCOUNTS["chain"])
        cost = solve_discrete_are(root * self.A, root * self.B, np.eye(d), 1e-3 * np.eye(len(self.pushed)))
        after = [states @ self.A.T + self.B @ push for push in self.pushes]
        return np.argmin([np.einsum("ni,ij,nj->n", rows, cost, rows) for rows in after], axis=0)

    def starts(self, n: int, rng: np.random.Generator) -> Any:
        """States in the middle half of the box ``[n, d]``."""
        low, high = np.array(self.domain).T
        return low + (high - low) * rng.uniform(0.25, 0.75, (n, len(low)))

    def earned(self, policy: Any, states: Any, seed: int = 0) -> float:
        """The mean discounted return of a policy."""
        rng, total = np.random.default_rng(seed), 0.0
        for step in range(STEPS):
            total += DISCOUNTS["chain"] ** step * float(squares(states).mean())
            states = self.moved(states, policy(states), rng)
        return total

    def moved(self, states: Any, actions: Any, rng: np.random.Generator) -> Any:
        """One step of every state with an action of its own."""
        after = np.empty_like(states)
        for action in range(self.n_actions):
            after[actions == action] = self.sample(states[actions == action], action, rng)
        return after

    def log(self, rng: np.random.Generator, episodes: int = 400, steps: int = 60) -> certirl.Transitions:
        """Episodes of random actions; in a third of them half of the actions are the regulator's."""
        states, rows = self.starts(episodes, rng), list[tuple[Any, Any, Any]]()
        for _ in range(steps):
            guided = (np.arange(episodes) < episodes // 3) & (rng.random(episodes) < 0.5)
            actions = np.where(guided, self.regulator(states), rng.integers(self.n_actions, size=episodes))
            after = self.moved(states, actions, rng)
            rows.append((states, actions, after))
            states = after
        before, taken, after = (np.concatenate(column) for column in zip(*rows, strict=True))
        return certirl.Transitions(before, taken, after, domain=self.domain, n_actions=self.n_actions)


def squares(states: Any) -> Any:
    """The reward of the chain."""
    return -(states**2).sum(axis=1)


class Acrobot:
    """Acrobot-v1, vectorised: the fourth-order step of gymnasium, for a fitted value, which asks for many states."""

    n_actions, periodic, thread_safe = 3, (0, 1), True
    domain = ((-np.pi, np.pi), (-np.pi, np.pi), (-4 * np.pi, 4 * np.pi), (-9 * np.pi, 9 * np.pi))

    def rates(self, states: Any, torque: float) -> Any:
        """Derivatives in time, with lengths, masses and moments of 1 and centres at 0.5."""
        first, second, speed, other = states.T
        shared, inertia = 1.25 + np.cos(second) / 2, 3.5 + np.cos(second)
        pull = 4.9 * np.sin(first + second)
        total = -0.5 * other**2 * np.sin(second) - other * speed * np.sin(second) + 14.7 * np.sin(first) + pull
        bend = torque + shared / inertia * total - 0.5 * speed**2 * np.sin(second) - pull
        bend = bend / (1.25 - shared**2 / inertia)
        return np.stack([speed, other, -(shared * bend + total) / inertia, bend], axis=1)

    def sample(self, states: Any, action: int, rng: Any) -> Any:
        """Next states ``[n, 4]``; terminal ones are absorbing."""
        torque, h = action - 1.0, 0.2
        k1 = self.rates(states, torque)
        k2 = self.rates(states + h / 2 * k1, torque)
        k3 = self.rates(states + h / 2 * k2, torque)
        after = states + h / 6 * (k1 + 2 * k2 + 2 * k3 + self.rates(states + h * k3, torque))
        after = np.where(self.terminal(states)[:, None], states, after)
        low, high = np.array(self.domain).T
        after[:, :2] = (after[:, :2] + np.pi) % (2 * np.pi) - np.pi
        return np.clip(after, low, high)

    def terminal(self, states: Any) -> Any:
        """The tip is a link's length above the first joint."""
        return -np.cos(states[:, 0]) - np.cos(states[:, 0] + states[:, 1]) > 1

    def reward(self, states: Any, action: int, after: Any) -> Any:
        """−1 for every step that does not end there."""
        return -(~self.terminal(after)).astype(float)


def trip(task: list[Any]) -> dict[str, Any]:
    """Make one plan and measure its return."""
    name, how, size, seed = task
    rng, start = np.random.default_rng(seed), time.process_time()
    if name != "chain":
        simulator = Acrobot() if name == "Acrobot-v1" else certirl.gym.simulator(name, actions=TORQUES.get(name))
        first = certirl.gym.rollouts(name, episodes=200, rng=seed + 1, steps=1, actions=TORQUES.get(name))
        plan = _planned(simulator, None, [episode.states[0] for episode in first], how, "classic", seed)
        reached, random = (float(returns(name, policy, size).mean()) for policy in (plan, None))
        best = None
    else:
        chain = Chain(size, noise=0.005 if how == "log" else 0.0)
        source = chain.log(rng) if how == "log" else chain
        plan = _planned(source, squares, chain.starts(200, rng), how, "chain", seed)
        fresh = chain.starts(400, np.random.default_rng(seed + 1000))
        any_action = np.random.default_rng(1)
        best, random, reached = (
            chain.earned(policy, fresh)
            for policy in (chain.regulator, lambda s: any_action.integers(chain.n_actions, size=len(s)), plan)
        )
    return {
        "problem": name,
        "coordinates": len(plan.basis.domain),
        "plan": how,
        "seed": seed,
        "return": reached,
        "random": random,
        "reference": best,
        "functions": plan.basis.size,
        "estimated": plan.returns.mean,
        "standard error": plan.returns.error,
        "converged": plan.converged,
        "seconds": time.process_time() - start,
    }


def _planned(source: Any, reward: Any, starts: Any, how: str, kind: str, seed: int) -> planning.Plan:
    """A plan, without a grid unless that is asked for."""
    settings: dict[str, Any] = {"discount": DISCOUNTS[kind], "starts": np.array(starts), "rng": seed}
    if how == "grid":
        return planning.plan(source, reward, **settings)
    with patch.object(planning, "_affordable", return_value=None):
        return planning.plan(source, reward, **settings)


def run(arguments: Arguments, runner: study.Runner) -> study.Findings:
    """All problems; shares are those of the reference, or of the plan on a grid where there is none."""
    seed = arguments.seed
    tasks: list[list[Any]] = [
        [name, how, arguments.episodes, seed] for name in arguments.environments for how in arguments.plans
    ]
    tasks += [["chain", "grid", d, seed] for d in arguments.coordinates if d <= 4]
    tasks += [["chain", "fitted", d, seed] for d in arguments.coordinates]
    tasks += [["chain", "log", d, seed] for d in arguments.logged]
    runs = runner(trip, tasks, unit="plans")
    grids = {run["problem"]: run["return"] for run in runs if run["plan"] == "grid"}
    for row in runs:
        reference = grids[row["problem"]] if row["reference"] is None else row["reference"]
        row["share"] = (row["return"] - row["random"]) / (reference - row["random"])
    named = {f"{row['problem']}, {row['coordinates']} coordinates, {row['plan']}": row["share"] for row in runs}
    sentence = "; ".join(f"{name}: {share:.1%}" for name, share in named.items())
    return study.Findings(named, runs, None, f"{sentence}.")


if __name__ == "__main__":
    raise SystemExit(study.main(sys.modules[__name__]))
