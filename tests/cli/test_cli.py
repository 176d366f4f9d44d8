import sys

import numpy as np
import pytest

import certirl
from certirl.cli import main

PROBLEM = certirl.problems.random_polynomial(seed=7)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_demo_solves_prints_and_draws(folder, capsys):
    assert main(["demo"]) == 0
    printed = capsys.readouterr().out
    assert "Certified with probability 0.95" in printed and "strictly optimal at every state" in printed
    assert (folder / "certirl-demo.png").read_bytes().startswith(b"\x89PNG")
    assert certirl.load(folder / "certirl-demo.npz").status == "certified"
    for words, mark in (
        ("show certirl-demo.npz", "Certified with probability 0.95"),
        ("check certirl-demo.npz", "Confirmed: with probability at least 0.95"),
        ("report certirl-demo.npz -o demo.html", "Report: demo.html"),
        ("export certirl-demo.npz -o demo.py", "Reward: demo.py"),
    ):
        assert main(words.split()) == 0 and mark in capsys.readouterr().out


def test_solve_reads_a_table_and_writes_reward_and_picture(folder, capsys):
    data = certirl.steps.sample(PROBLEM, basis=certirl.Legendre(3), samples=5_000, rng=0)
    table = np.column_stack([data.states, data.actions, data.next_states])
    np.savetxt("log.csv", table, delimiter=",", header="state,action,next_state", comments="")
    assert main(["solve", "log.csv", "--discount", "0.7", "--domain", "-1", "1", "--basis", "legendre"]) == 0
    printed = capsys.readouterr().out
    assert "15,000 transitions" in printed and "Legendre(11)" in printed
    assert "Expert: action 0 (default)" in printed and "(replaced)" not in printed
    reward = certirl.load("reward.npz").reward
    assert PROBLEM.true_margin(reward, discount=0.7) > 0
    assert (folder / "reward.png").exists()
    assert main(["solve", "log.csv", "--discount", "0.7", "--domain", "-1", "1", "--expert", "0"]) == 0
    printed = capsys.readouterr().out
    assert "Expert:" not in printed
    assert "Solution: reward.npz (replaced)" in printed and "Picture: reward.png (replaced)" in printed


def test_solve_takes_an_interval_for_each_coordinate(folder, capsys):
    problem, basis = certirl.problems.whirl(noise=1.0), certirl.product(certirl.Legendre(3), certirl.Legendre(3))
    data = certirl.steps.sample(problem, basis=basis, samples=4_000, rng=0, design=True)
    table = np.column_stack([data.states, data.actions, data.next_states])
    header = "state_0,state_1,action,next_state_0,next_state_1"
    np.savetxt("log.csv", table, delimiter=",", header=header, comments="")
    box = ["--domain", "-1", "1", "--domain", "-1", "1"]
    asked = ["--discount", "0.5", "--basis", "legendre", "--size", "4", "--columns", "10"]
    assert main(["solve", *box, *asked, "log.csv"]) == 0
    assert "Legendre(4) × Legendre(4) (total, 10 functions) on [-1, 1] × [-1, 1]" in capsys.readouterr().out
    assert problem.true_margin(certirl.load("reward.npz").reward, discount=0.5) > 0


def test_solve_without_a_domain_says_where_it_came_from(folder, capsys):
    data = certirl.steps.sample(PROBLEM, basis=certirl.Legendre(3), samples=2_000, rng=0)
    np.savez("log.npz", states=data.states, actions=data.actions, next_states=data.next_states)
    assert main(["solve", "log.npz", "--discount", "0.7", "--plot", ""]) == 0
    assert "taken from the data" in capsys.readouterr().out
    assert not (folder / "reward.png").exists()


def test_without_matplotlib_the_solution_is_still_written(folder, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    assert main(["demo"]) == 0
    assert 'pip install "certirl[plot]"' in capsys.readouterr().out
    assert certirl.load("certirl-demo.npz").status == "certified"


def test_the_bare_command_shows_the_way(capsys):
    assert main([]) == 0
    assert "examples:\n" in capsys.readouterr().out


def test_a_picture_lies_beside_the_solution_and_its_absence_is_said(folder, capsys):
    s, a = np.linspace(-1, 1, 300), np.arange(300) % 2
    np.savez("log.npz", states=s, actions=a, next_states=np.clip(0.5 * s + np.where(a == 0, 0.3, -0.3), -1, 1))
    asked = ["log.npz", "--discount", "0.7", "--domain", "-1", "1", "--basis", "legendre", "--size", "4"]
    assert main(["solve", *asked, "-o", "first.npz"]) == 0
    assert "Picture: first.png" in capsys.readouterr().out and (folder / "first.png").exists()
    np.savez("log.npz", states=s, actions=a, next_states=0.5 * s)  # both actions do the same
    assert main(["solve", *asked, "-o", "second.npz"]) == 4
    assert "No picture: there is no reward to draw" in capsys.readouterr().out
    assert not (folder / "second.png").exists()
