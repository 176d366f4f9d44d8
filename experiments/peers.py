"""Side by side on the same demonstrations: certirl, cloning by neighbours and by a network, MaxEnt on bins, AIRL.

    python experiments/peers.py [--fast] [--workers N] [--seed S] [--out DIR]

All methods get the 40 demonstrations of a task of `tasks.py`; certirl and MaxEnt, which need to know the dynamics, get
its 200 random episodes too, AIRL its simulator. Shares are of returns, on the scale random = 0 %, expert = 100 %: of a
policy, or of planning in the simulator on the learned reward alone.

AIRL needs an environment of its own (`airl.py`): if the current folder has a folder airl, its demonstrations are
written to airl/demonstrations-SEED.npz, and its answers airl/answer-SEED.npz are read where they are.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.spatial import KDTree
from scipy.special import logsumexp

import certirl
import study
import tasks

BINS = 20  # along each coordinate
WIDTH, STEPS, BATCH = 64, 2_000, 256  # of the network: two layers
CLIMBS, RATE = 300, 0.2  # of MaxEnt


AIRL = Path("airl")


class Demonstrations(NamedTuple):
    """The rows of a log that the expert acted in, with the step of each row in its episode."""

    states: Any
    actions: Any
    next_states: Any
    terminal: Any
    step: Any


def demonstrated(log: Any) -> Demonstrations:
    """The first 40 episodes of a log; rows of an episode are in order of time."""
    rows = np.flatnonzero(log.episodes < 40)
    rows = rows[np.argsort(log.episodes[rows], kind="stable")]
    number = log.episodes[rows]
    first = np.flatnonzero(np.r_[True, number[1:] != number[:-1]])
    step = np.arange(len(rows)) - np.repeat(first, np.diff(np.r_[first, len(rows)]))
    ends = np.zeros(len(rows), bool) if log.terminal is None else log.terminal[rows]
    return Demonstrations(log.states[rows], log.actions[rows], log.next_states[rows], ends, step)


def scaled(states: Any, domain: Any) -> Any:
    """States in the unit box."""
    low, high = np.array(domain).T
    return (np.atleast_2d(states) - low) / (high - low)


def neighbours(states: Any, actions: Any, domain: Any) -> Any:
    """Copy the nearest demonstrated state."""
    tree = KDTree(scaled(states, domain))
    return lambda x: actions[tree.query(scaled(x, domain))[1]]


def network(states: Any, actions: Any, domain: Any, n_actions: int, seed: int) -> Any:
    """Copy by a network of two layers, trained on the likelihood of the actions."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(seed)
    layers = [torch.nn.Linear(len(domain), WIDTH), torch.nn.Tanh(), torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh()]
    model = torch.nn.Sequential(*layers, torch.nn.Linear(WIDTH, n_actions))
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    inputs, labels = torch.tensor(2 * scaled(states, domain) - 1).float(), torch.tensor(actions)
    for _ in range(STEPS):
        rows = torch.randint(len(inputs), (BATCH,))
        loss = torch.nn.functional.cross_entropy(model(inputs[rows]), labels[rows])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()

    def policy(x: Any) -> Any:
        with torch.no_grad():
            return model(torch.tensor(2 * scaled(x, domain) - 1).float()).argmax(1).numpy()

    return policy


class MaxEnt:
    """Maximum-entropy inverse reinforcement learning (Ziebart and others, 2008) on a grid of bins, discounted.

    Dynamics are counts of the log; a pair of bin and action without data stays where it is. One bin beyond the grid
    stands for all terminal states.
    """

    def __init__(self, demonstrations: Any, log: Any, discount: float) -> None:
        self.domain, self.n_actions, self.discount = log.domain, log.n_actions, discount
        self.size = BINS ** len(log.domain) + 1
        counts = np.zeros((self.n_actions, self.size, self.size))
        ends = np.zeros(len(log.states), bool) if log.terminal is None else log.terminal
        after = np.where(ends, self.size - 1, self.bins(log.next_states))
        np.add.at(counts, (log.actions, self.bins(log.states), after), 1)
        missing = counts.sum(axis=2) == 0
        counts[missing.nonzero()[0], missing.nonzero()[1], missing.nonzero()[1]] = 1
        self.model = counts / counts.sum(axis=2, keepdims=True)
        self.rewards = self.fitted(demonstrations)

    def bins(self, states: Any) -> Any:
        """The bin of each state."""
        along = np.clip((scaled(states, self.domain) * BINS).astype(int), 0, BINS - 1)
        return np.ravel_multi_index(along.T, (BINS,) * len(self.domain))

    def soft_policy(self, reward: Any) -> Any:
        """Probabilities of actions ``[bins, A]`` by soft value iteration."""
        value = np.zeros(self.size)
        for _ in range(int(5 / (1 - self.discount))):
            action_values = reward + self.discount * (self.model @ value)
            action_values[:, -1] = 0.0
            value = logsumexp(action_values, axis=0)
            value[-1] = 0.0
        return np.exp(action_values - logsumexp(action_values, axis=0)).T

    def fitted(self, demonstrations: Any) -> Any:
        """A reward of each bin whose discounted visits are those of the demonstrations."""
        places, begun = self.bins(demonstrations.states), demonstrations.step == 0
        weights = self.discount**demonstrations.step
        wanted = np.bincount(places, weights, self.size) / begun.sum()
        start = np.bincount(places[begun], minlength=self.size) / begun.sum()
        reward, horizon = np.zeros(self.size), int(demonstrations.step.max()) + 1
        for _ in range(CLIMBS):
            policy = self.soft_policy(reward)
            moves = np.einsum("sa,ast->st", policy, self.model)
            moves[-1] = 0.0
            visits, now = np.zeros(self.size), start.copy()
            for step in range(horizon):
                now[-1] = 0.0
                visits += self.discount**step * now
                now = now @ moves
            reward += RATE * (wanted - visits)
            reward[-1] = 0.0
        self.policy = policy
        return reward

    def __call__(self, states: Any) -> Any:
        """The reward of states."""
        return self.rewards[self.bins(states)]

    def most_likely(self, states: Any) -> Any:
        """The most likely action of each state."""
        return self.policy[self.bins(states)].argmax(axis=1)


def learned_by_airl(file: Path, setting: tasks.Task) -> dict[str, float]:
    """Mean returns of AIRL's policy, and of planning on its reward alone."""
    if not file.exists():
        return {}
    with np.load(file, allow_pickle=False) as stored:
        returns, values = stored["returns"], stored["reward"]
    cells = certirl.Cells(values.shape).on(setting.simulator.domain)
    planned = certirl.planning.plan(setting.simulator, certirl.Reward(cells, values.ravel()), discount=setting.discount)
    return {"AIRL, its policy": float(returns.mean()), "AIRL, plan on its reward": setting.returns(planned)}


@dataclass(frozen=True)
class Arguments:
    """Tasks with logs of two coordinates; seeds as in `tasks.py`."""

    tasks: tuple[str, ...] = ("navigation, logs", "mountain car, logs, γ = 0.99")
    seeds: int = 5
    first: int = 5000
    seed: int = 0


FAST = Arguments(tasks=("navigation, logs",), seeds=1)


def trip(task: Any) -> dict[str, Any]:
    """All methods on the demonstrations of one seed."""
    name, seed = task
    setting, best, random = tasks.task_of(name)
    log, expert = setting.data(seed)
    shown = demonstrated(log)
    domain, discount = setting.simulator.domain, setting.discount
    solution = certirl.solve(log, expert=expert, discount=discount, rng=seed)
    entropy = MaxEnt(shown, log, discount)
    rewards = {"certirl": solution.reward, f"MaxEnt on {BINS} bins": entropy}
    policies = {
        "cloning, nearest neighbour": neighbours(shown.states, shown.actions, domain),
        "cloning, network": network(shown.states, shown.actions, domain, log.n_actions, seed),
        f"MaxEnt on {BINS} bins, its policy": entropy.most_likely,
        "certirl, greedy for V": solution.greedy,
    }
    for label, reward in rewards.items():
        policies[f"{label}, plan on its reward"] = certirl.planning.plan(setting.simulator, reward, discount=discount)
    returns = {label: setting.returns(policy) for label, policy in policies.items()}
    if name.startswith("mountain car") and AIRL.is_dir():
        np.savez(AIRL / f"demonstrations-{seed}.npz", **shown._asdict())
        returns |= learned_by_airl(AIRL / f"answer-{seed}.npz", setting)
    shares = {label: (value - random) / (best - random) for label, value in returns.items()}
    return {"task": name, "seed": seed, "status": solution.status, **shares}


def run(arguments: Arguments, runner: study.Runner) -> study.Findings:
    """All tasks and seeds."""
    first = arguments.first + arguments.seed
    runs = runner(trip, [[name, first + k] for name in arguments.tasks for k in range(arguments.seeds)], unit="tasks")
    summary: dict[str, Any] = {}
    for name in arguments.tasks:
        trips = [run for run in runs if run["task"] == name]
        labels = dict.fromkeys(label for run in trips for label in run if label not in ("task", "seed", "status"))
        summary[name] = {
            label: {
                "mean": float(np.mean([run[label] for run in trips if label in run])),
                "worst": min(run[label] for run in trips if label in run),
                "seeds": sum(label in run for run in trips),
            }
            for label in labels
        }
    sentence = "; ".join(
        f"{name}: " + ", ".join(f"{label} {row['worst']:.1%}" for label, row in rows.items())
        for name, rows in summary.items()
    )
    return study.Findings(summary, runs, None, f"Worst of {arguments.seeds} seeds. {sentence}.")


REPEATED = ("seeds",)


if __name__ == "__main__":
    raise SystemExit(study.main(sys.modules[__name__]))
