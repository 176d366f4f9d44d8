"""The training experiment: what it trains on is what it says, with or without the library that trains."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import training

PATH = Path(training.__file__)


def a_solution():
    return SimpleNamespace(reward=lambda states: 30.0 * states[:, 0], discount=0.9)


@pytest.mark.parametrize("kind", ["learned", "own"])
def test_rewards_are_divided_by_their_size_and_are_those_named(kind):
    size = training.size_of_reward(training.place("Pendulum-v1", a_solution(), kind), 300)
    env = training.place("Pendulum-v1", a_solution(), kind, size)
    assert training.size_of_reward(env, 300) == pytest.approx(1.0)
    seen, _ = env.reset(seed=1)
    assert env.action_space.n == 3
    for action in (0, 1, 2):
        seen, reward, _, _, info = env.step(action)
        angle = env.unwrapped.state[0]
        angle = (angle + np.pi) % (2 * np.pi) - np.pi
        expected = info["own_reward"] if kind == "own" else 30 * angle
        assert reward * size == pytest.approx(expected)
        assert np.abs(seen).max() <= 1
        assert seen[2] * 8 == pytest.approx(env.unwrapped.state[1], rel=1e-5)


def test_without_the_library_it_says_what_to_install():
    code = f"import sys; sys.modules['stable_baselines3'] = None; sys.path.insert(0, {str(PATH.parent)!r}); " \
           f"sys.argv = ['training.py', '--fast']; " \
           f"import runpy; runpy.run_path({str(PATH)!r}, run_name='__main__')"  # fmt: skip
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert 'ImportError: training needs Stable-Baselines3: pip install "certirl[training]"' in done.stderr


def test_a_short_training_is_judged_by_the_environments_own_reward():
    pytest.importorskip("stable_baselines3")
    found = training.train(["MountainCar-v0", "learned", 1000, 2048, 1, 3, 0])
    assert len(found["curve"]) == 1
    assert found["expert"] > -110 and found["random"] == -200
    assert -200 <= found["worst episode"] <= found["return"] <= -80
    assert found["share"] == pytest.approx((found["return"] + 200) / (found["expert"] + 200))
