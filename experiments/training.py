"""Training on the learned reward alone: does what explains an expert to a planner also teach a learner?

    python experiments/training.py [--fast] [--workers N] [--seed S] [--out DIR]

The expert plans on the environment's own reward; `certirl.solve` learns a reward from it, with its defaults; PPO of
Stable-Baselines3 is trained on that reward alone, through `certirl.gym.RewardWrapper`, and never sees the environment's
own. Beside it stand the same PPO on the environment's own reward and, for MountainCar, on the learned one shaped by its
learned value. Every reward is divided by its root mean square under random play; nothing else is fitted to any of them.
What was learned is judged by the environment's own reward, as it goes and at the end, by its likeliest actions.

It needs torch and more: pip install "certirl[training]".
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import gymnasium
import numpy as np

import certirl
import study
from certirl import plots
from played import TORQUES, expert_of

DISCOUNTS = {"MountainCar-v0": 0.99, "Pendulum-v1": 0.9, "CartPole-v1": 0.99}
SIDE_BY_SIDE, STEPS = 8, 256  # environments, and steps of each between two updates
PPO_SETTINGS: dict[str, Any] = {
    "n_steps": STEPS,
    "batch_size": 256,
    "n_epochs": 10,
    "learning_rate": 1e-3,
    "policy_kwargs": {"net_arch": [64, 64]},
}
REACH = {"CartPole-v1": [2.4, 2.0, 0.21, 3.0]}  # of observations, where the environment names no bounds
KINDS = {  # rewards that are trained on
    "MountainCar-v0": ("learned", "learned and shaped", "own"),
    "Pendulum-v1": ("learned", "own"),
    "CartPole-v1": ("learned", "own"),
}
COLOURS = dict(zip(("learned", "own", "learned and shaped"), plots.COLOURS, strict=False))


@dataclass(frozen=True)
class Arguments:
    """The full size; ``--fast`` shrinks it."""

    environments: tuple[str, ...] = ("MountainCar-v0", "Pendulum-v1", "CartPole-v1")
    samples: int = 10_000
    steps: int = 65_536
    looks: int = 16
    seeds: int = 3
    episodes: int = 100
    seed: int = 0


FAST = Arguments(environments=("CartPole-v1",), samples=2_000, steps=4_096, looks=2, seeds=1, episodes=10)


@lru_cache(maxsize=8)
def setting(name: str, samples: int, episodes: int, seed: int) -> tuple[Any, dict[str, float]]:
    """The learned reward, and the mean returns of the expert, of random play and of planning on the learned reward."""
    simulator, discount = certirl.gym.simulator(name, actions=TORQUES.get(name)), DISCOUNTS[name]
    expert = expert_of(simulator, discount)
    solution = certirl.solve(simulator, expert=expert, discount=discount, samples=samples, rng=seed)
    planned = certirl.planning.plan(simulator, solution.reward, discount=discount)
    policies = {"expert": expert, "random": None, "planning on R alone": planned}
    return solution, {label: returns(name, policy, episodes).mean() for label, policy in policies.items()}


def returns(name: str, policy: Any, episodes: int, *, on: str = "state") -> Any:
    """Returns of the environment's own reward ``[episodes]``, from the same first states for every policy."""
    env, torques = scaled(gymnasium.make(name)), TORQUES.get(name)
    return certirl.gym.episode_returns(env, policy, episodes=episodes, rng=0, actions=torques, on=on)


def scaled(env: Any) -> Any:
    """The environment with observations scaled to [-1, 1], so that speeds and positions have the same size."""
    observed = env.observation_space
    reach = np.minimum(np.maximum(-observed.low, observed.high), REACH.get(env.spec.id, np.inf))
    space = gymnasium.spaces.Box(-np.inf, np.inf, observed.shape)
    return gymnasium.wrappers.TransformObservation(env, lambda values: (values / reach).astype(np.float32), space)


def place(name: str, solution: Any, kind: str, size: float = 1.0) -> Any:
    """The environment that is trained in, its reward divided by this size."""
    own, torques, shaped = scaled(gymnasium.make(name)), TORQUES.get(name), kind == "learned and shaped"
    wrapped = certirl.gym.RewardWrapper(own, solution, actions=torques, shaped=shaped)
    chosen = OwnReward(wrapped) if kind == "own" else wrapped
    return gymnasium.wrappers.TransformReward(chosen, lambda reward: reward / size)


def size_of_reward(env: Any, steps: int = 2_000) -> float:
    """The root mean square of an environment's reward under random play."""
    env.action_space.seed(0)
    env.reset(seed=0)
    paid = []
    while len(paid) < steps:
        _, reward, terminated, truncated, _ = env.step(env.action_space.sample())
        paid.append(reward)
        if terminated or truncated:
            env.reset()
    return float(np.sqrt(np.mean(np.square(paid))))


class OwnReward(gymnasium.Wrapper):
    """The environment's own reward again, so that both trainings differ in nothing else."""

    def step(self, action: Any) -> Any:
        """The step with the environment's own reward."""
        observation, _, terminated, truncated, info = self.env.step(action)
        return observation, info["own_reward"], terminated, truncated, info


def train(task: list[Any]) -> dict[str, Any]:
    """One training, its return measured at regular intervals."""
    name, kind, samples, steps, looks, episodes, seed = task
    solution, reference = setting(name, samples, episodes, seed)
    learner, together = trainer()
    start = time.perf_counter()
    size = size_of_reward(place(name, solution, kind))
    envs = together([lambda: place(name, solution, kind, size)] * SIDE_BY_SIDE)
    model = learner("MlpPolicy", envs, gamma=DISCOUNTS[name], seed=seed, device="cpu", **PPO_SETTINGS)
    curve: list[float] = []
    watched = Looks(model, name, steps // looks, max(episodes // 5, 1), curve)
    model.learn(steps, callback=watched)
    final = returns(name, model, episodes, on="observation")
    gap = reference["expert"] - reference["random"]
    return {
        "environment": name,
        "reward": kind,
        "seed": seed,
        **reference,
        "return": float(final.mean()),
        "worst episode": float(final.min()),
        "share": float((final.mean() - reference["random"]) / gap),
        "curve": [(value - reference["random"]) / gap for value in curve],
        "seconds": time.perf_counter() - start,
    }


def trainer() -> tuple[Any, Any]:
    """PPO, on one thread, and what lets environments run side by side."""
    try:
        from stable_baselines3 import PPO
        from stable_baselines3.common.vec_env import DummyVecEnv
    except ImportError:
        raise ImportError('training needs Stable-Baselines3: pip install "certirl[training]"') from None
    import torch

    torch.set_num_threads(1)
    return PPO, DummyVecEnv


@dataclass
class Looks:
    """A callback after every step of training that measures the return at regular intervals."""

    model: Any
    name: str
    every: int
    episodes: int
    curve: list[float]

    def __call__(self, *_: Any) -> bool:
        """Measure the return if it is time; training always continues."""
        if self.model.num_timesteps % self.every == 0:
            self.curve.append(float(returns(self.name, self.model, self.episodes, on="observation").mean()))
        return True


def run(arguments: Arguments, runner: study.Runner) -> study.Findings:
    """All environments, both rewards, all seeds."""
    trainer()  # an error here if it is not installed, before anything is learned
    sizes = [arguments.samples, arguments.steps, arguments.looks, arguments.episodes]
    tasks = [
        [name, kind, *sizes, arguments.seed + number]
        for number in range(arguments.seeds)
        for name in arguments.environments
        for kind in KINDS[name]
    ]
    runs = runner(train, tasks, unit="trainings")
    summary: dict[str, Any] = {}
    for name in arguments.environments:
        trainings = [run for run in runs if run["environment"] == name]
        summary[name] = {label: trainings[0][label] for label in ("expert", "random")}
        summary[name]["planning on R alone, each seed"] = [
            run["planning on R alone"] for run in trainings if run["reward"] == "learned"
        ]
        for kind in KINDS[name]:
            trained = [run for run in trainings if run["reward"] == kind]
            summary[name][kind] = {
                "return, each seed": [run["return"] for run in trained],
                "share, each seed": [run["share"] for run in trained],
                "share over all looks, mean": float(np.mean([run["curve"] for run in trained])),
                "seconds, median": float(np.median([run["seconds"] for run in trained])),
            }
    means = [
        f"{name} ({row['expert']:.1f}, {row['random']:.1f}): "
        + ", ".join(f"{kind} {np.mean(row[kind]['return, each seed']):.1f}" for kind in KINDS[name])
        for name, row in summary.items()
    ]
    sentence = f"Mean return of PPO by the reward it was trained on (expert, random): {'; '.join(means)}"
    table = [
        {key: value for key, value in run.items() if key != "curve"}
        | {f"share at look {number + 1}": share for number, share in enumerate(run["curve"])}
        for run in runs
    ]
    return study.Findings(summary, table, draw(runs, arguments), sentence + ".")


def draw(runs: list[dict[str, Any]], arguments: Arguments) -> Any:
    """Learning curves: one panel for each environment, one line for each seed."""
    figure, axes = plots.panels(1, len(arguments.environments), size=(4.2 * len(arguments.environments), 3.6))
    steps = arguments.steps * np.arange(1, arguments.looks + 1) / arguments.looks
    for ax, name in zip(axes[0], arguments.environments, strict=True):
        for kind in KINDS[name]:
            curves = [run["curve"] for run in runs if run["environment"] == name and run["reward"] == kind]
            for number, curve in enumerate(curves):
                ax.plot(
                    steps / 1000, curve, color=COLOURS[kind], lw=1.3, label=f"reward: {kind}" if not number else None
                )
        ax.axhline(1.0, color="0.2", lw=1)
        ax.axhline(0.0, color="0.2", lw=1, ls=":")
        ax.set_title(name, fontsize="medium")
        ax.set_xlabel("thousand steps of training")
    axes[0, 0].set_ylabel("return under the environment's own reward\n(random 0, expert 1)")
    axes[0, 0].legend(fontsize="small", loc="lower right", bbox_to_anchor=(1.0, 0.08))
    return figure


REPEATED = ("seeds",)


if __name__ == "__main__":
    raise SystemExit(study.main(sys.modules[__name__]))
