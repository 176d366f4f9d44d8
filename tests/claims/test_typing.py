"""What a type checker infers in a user's script."""

import subprocess
import sys

import pytest

SCRIPT = """
from typing import assert_type

import numpy as np

import certirl

problem = certirl.problems.random_polynomial(seed=1)


def policy(states: np.ndarray) -> np.ndarray:
    return (states[:, 0] > 0).astype(int)


class Model:
    def predict(self, states: np.ndarray) -> np.ndarray:
        return policy(states)


log = certirl.steps.sample(problem, basis=certirl.Legendre(5), samples=100, rng=0)
assert_type(certirl.solve(problem, discount=0.7, expert=0, rng=0), certirl.Solution)
assert_type(certirl.solve(problem, discount=0.7, expert=1, delta=0.05, rng=0), certirl.Solution)
assert_type(certirl.solve(problem, discount=0.7, expert=policy, rng=0), certirl.Solution)
assert_type(certirl.solve(log, discount=0.7, expert=Model()), certirl.Solution)
assert_type(certirl.solve(log, discount=0.7, expert=0, components=[[0]]), certirl.Solution)
asked = certirl.certify(policy, log, expert=1, discount=0.7, columns=3, tail=0)
known = certirl.certify(policy, log, expert=1, discount=0.7, dynamics=certirl.dynamics.AffineGaussian(1.5))
cells = certirl.certify(policy, problem, discount=0.7, expert=0, dynamics=certirl.dynamics.Deterministic(0.5))
assert_type((asked.samples, known.noise.std, cells.decided_share), tuple[int, float, float])
"""


@pytest.mark.slow  # the reduced form, the annotation itself, is in tests/solver/test_solution.py
def test_a_users_script_has_the_type_of_the_solution_for_every_expert(tmp_path):
    pytest.importorskip("mypy")
    path = tmp_path / "script.py"
    asked = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", tmp_path / "cache", path]

    def errors(text):
        path.write_text(text)
        done = subprocess.run(asked, capture_output=True, text=True, check=False, cwd=tmp_path)
        return [line.split(": ", 2)[2] for line in done.stdout.splitlines() if line.startswith("script.py")]

    assert errors(SCRIPT) == []
    assert len(errors(SCRIPT.replace("certirl.Solution", "certirl.Certificate"))) == 5
