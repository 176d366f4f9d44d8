"""Adversarial inverse reinforcement learning by the library `imitation`, on demonstrations of MountainCar-v0.

    pip install imitation==1.0.1 torch==2.13.0        # in an environment of its own: it needs gymnasium 0.29
    python experiments/airl.py airl/demonstrations-5000.npz airl/answer-5000.npz [--steps N] [--seed S]

`experiments/peers.py` writes the demonstrations and reads the answer: the returns of the learner's policy, and the
learned reward of the state on a grid, on which `certirl.planning` plans. The
reward is a network of the state alone, with shaping, as the method asks for; nothing else was tuned.
"""

from __future__ import annotations

import argparse
import time

import gymnasium
import numpy as np
import torch
from imitation.algorithms.adversarial.airl import AIRL
from imitation.data.types import Transitions
from imitation.rewards.reward_nets import BasicShapedRewardNet
from imitation.util.networks import RunningNorm
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import DummyVecEnv

POINTS = 200  # of the grid along each coordinate


def demonstrated(file: str) -> Transitions:
    """The transitions of the expert."""
    with np.load(file, allow_pickle=False) as stored:
        states, actions, after, ends = (stored[name] for name in ("states", "actions", "next_states", "terminal"))
    rows = np.array([{}] * len(states))
    return Transitions(states.astype(np.float32), actions, rows, after.astype(np.float32), ends.astype(bool))


def returned(learner: PPO, episodes: int) -> np.ndarray:
    """Returns of the learner's most likely actions ``[episodes]``."""
    environment, returns = gymnasium.make("MountainCar-v0"), []
    for seed in range(episodes):
        state, _ = environment.reset(seed=seed)
        total, over = 0.0, False
        while not over:
            action, _ = learner.predict(state, deterministic=True)
            state, reward, terminated, truncated, _ = environment.step(int(action))
            total, over = total + float(reward), terminated or truncated
        returns.append(total)
    return np.array(returns)


def main() -> None:
    """Train, play, and write the answer."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("demonstrations")
    parser.add_argument("out")
    parser.add_argument("--steps", type=int, default=500_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(options.seed)
    venv = DummyVecEnv([lambda: gymnasium.make("MountainCar-v0")] * 16)
    venv.seed(options.seed)
    reward = BasicShapedRewardNet(
        venv.observation_space,
        venv.action_space,
        use_action=False,
        normalize_input_layer=RunningNorm,
    )
    learner = PPO(
        "MlpPolicy", venv, n_steps=128, batch_size=256, n_epochs=4, gamma=0.99, gae_lambda=0.98, seed=options.seed
    )
    trainer = AIRL(
        demonstrations=demonstrated(options.demonstrations),
        demo_batch_size=512,
        gen_replay_buffer_capacity=4096,
        n_disc_updates_per_round=8,
        venv=venv,
        gen_algo=learner,
        reward_net=reward,
        allow_variable_horizon=True,
    )
    start = time.perf_counter()
    trainer.train(options.steps)
    low, high = venv.observation_space.low, venv.observation_space.high
    axes = np.meshgrid(*(np.linspace(a, b, POINTS) for a, b in zip(low, high, strict=True)), indexing="ij")
    grid = np.stack([axis.ravel() for axis in axes], axis=1).astype(np.float32)
    learned = reward.base.predict(grid, np.zeros(len(grid), int), grid, np.zeros(len(grid), bool))
    np.savez(
        options.out,
        returns=returned(learner, 100),
        reward=learned.reshape(POINTS, POINTS).astype(float),
        seconds=time.perf_counter() - start,
        steps=options.steps,
    )


if __name__ == "__main__":
    main()
