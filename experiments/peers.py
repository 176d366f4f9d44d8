"""Side by side on the same demonstrations: certirl, cloning by neighbours and by a network, MaxEnt on bins, AIRL.

    python experiments/peers.py [--fast] [--workers N] [--seed S] [--out DIR]

Everybody gets the demonstrations of one task of `tasks.py`; those who need to know the dynamics get its log too. Shares
are of returns, on the scale random = 0 %, expert = 100 %: of a policy that copies the expert, or of planning in the
simulator on the learned reward alone. AIRL is run in an environment of its own (`airl.py`), whose answer
DIR/airl-SEED.npz is read if it is there.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.spatial import KDTree
from scipy.special import logsumexp

import certirl
import study
import tasks

BINS = 20  # along each coordinate
WIDTH, STEPS, BATCH = 64, 2_000, 256  # of the network: two layers
CLIMBS, RATE = 300, 0.2  # of MaxEnt


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
        np.add.at(counts, (log.actions, self.bins(log.states), np.where(ends, self.size - 1, self.bins(log.next_states))), 1)
        missing = counts.sum(axis=2) == 0
        counts[missing.nonzero()[0], missing.nonzero()[1], missing.nonzero()[1]] = 1
        self.model = counts / counts.sum(axis=2, keepdims=True)
        self.reward = self.fitted(demonstrations)

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
        weights = self.discount ** demonstrations.step
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
        return self.reward[self.bins(states)]

    def most_likely(self, states: Any) -> Any:
        """The most likely action of each state."""
        return self.policy[self.bins(states)].argmax(axis=1)
