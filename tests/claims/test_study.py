"""Studies: trials are remembered, their order and their workers do not matter, and the statistics are right."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from certirl import Legendre, Reward
from certirl.cli import main
from certirl.functions.inequalities import binomial_interval
from certirl.paper import study
from certirl.paper.figures import figure1, figure3, figure4
from certirl.paper.processes import processes
from certirl.paper.trial_statistics import bootstrap, crossing, fit_line, fit_power_law
from certirl.problems import random_polynomial, thermostat


def square(task):
    return {"value": task[0] ** 2, "nothing": float("inf")}


calls = []


def interrupted_at_three(task):
    if task[0] == 3 and len(calls) == 3:
        calls.append("interrupt")
        raise KeyboardInterrupt
    calls.append(task[0])
    return task[0] + 0.5


@pytest.mark.slow
def test_results_come_in_the_order_of_the_tasks_by_any_worker(tmp_path):
    tasks = [[i] for i in range(7)]
    one = study.Runner(tmp_path / "one", 1, False)(square, tasks)
    two = study.Runner(tmp_path / "two", 2, False)(square, tasks)
    assert one == two == [{"value": i**2, "nothing": None} for i in range(7)]


def test_an_interrupted_walk_goes_on_where_it_was(tmp_path):
    calls.clear()
    tasks, runner = [[i] for i in range(6)], study.Runner(tmp_path / "memory", 1, False)
    with pytest.raises(KeyboardInterrupt):
        runner(interrupted_at_three, tasks)
    assert runner(interrupted_at_three, tasks) == [i + 0.5 for i in range(6)]
    assert calls == [0, 1, 2, "interrupt", 3, 4, 5]


def test_a_line_cut_short_is_done_again_and_nothing_else(tmp_path):
    memory = tmp_path / "memory"
    tasks, runner = [[i] for i in range(4)], study.Runner(memory, 1, False)
    expected = runner(square, tasks)
    lines = memory.read_text().splitlines()
    memory.write_text("\n".join(lines[:3]) + "\n" + lines[3][: len(lines[3]) // 2])  # the first line is empty
    assert runner(square, tasks) == expected
    assert len(study._read_trials(memory)) == 4  # nothing joined the torn line


def test_workers_must_be_a_positive_number():
    for wrong in (0, -1, 1.5, True):
        with pytest.raises(ValueError, match="workers must be a whole number"):
            list(processes(square, [[1]], workers=wrong))


@dataclass(frozen=True)
class Arguments:
    """Of the experiment below."""

    count: int = 3
    seed: int = 0


class Experiment:
    Arguments = Arguments
    FAST = Arguments(count=2)

    @staticmethod
    def run(arguments, runner):
        rows = runner(square, [[i + arguments.seed] for i in range(arguments.count)])
        return study.Findings({"most": np.float64(4.0), "array": np.arange(2)}, rows, None, "it works")


def test_numbers_are_written_with_seed_versions_and_command(tmp_path):
    memory = study.conduct(
        Experiment, Arguments(seed=5), name="one", out=tmp_path, command="certirl reproduce one", workers=1
    )
    record = json.loads((tmp_path / "one.json").read_text())
    assert record["command"] == "certirl reproduce one"
    assert record["arguments"] == {"count": 3, "seed": 5}
    assert record["result"] == {"most": 4.0, "array": [0, 1]}
    assert {"python", "certirl", "numpy", "scipy", "highspy", "clarabel"} <= set(record["versions"])
    with (tmp_path / "one.csv").open() as stream:
        assert [row["value"] for row in csv.DictReader(stream)] == ["25", "36", "49"]
    assert memory.exists() and not list(tmp_path.glob("*.tmp"))


def test_other_code_has_another_memory(tmp_path):
    (tmp_path / "code").mkdir()
    names = set()
    for text in ("answer = 1", "answer = 2"):
        (tmp_path / "code" / "helper.py").write_text(text)
        experiment = SimpleNamespace(__file__=str(tmp_path / "code" / "figure.py"), run=Experiment.run)
        names.add(study.conduct(experiment, Arguments(), name="one", out=tmp_path, command="x", workers=1))
    assert len(names) == 2


def test_other_arguments_have_another_memory(tmp_path):
    first, second = (
        study.conduct(Experiment, Arguments(seed=seed), name="one", out=tmp_path, command="x", workers=1)
        for seed in (0, 1)
    )
    assert first != second


def test_what_is_finished_is_not_computed_again(tmp_path, monkeypatch, capsys):
    class Figure:
        @staticmethod
        def savefig(path, **_):
            path.write_bytes(b"picture")

    class Drawn(Experiment):
        runs = 0

        @classmethod
        def run(cls, arguments, runner):
            cls.runs += 1
            return replace(Experiment.run(arguments, runner), figure=Figure)

    monkeypatch.setitem(sys.modules, "certirl.paper.figures.figure1", Drawn)
    words = ["reproduce", "figure1", "--fast", "--workers", "1", "--out", str(tmp_path)]
    again = "figure1 (finished before; --again computes it again): it works"
    for more, runs, said in (
        ([], 1, "figure1 (0 s): it works"),
        ([], 1, again),
        (["--again"], 2, "figure1 (0 s): it works"),
        (["--seed", "1"], 3, "figure1 (0 s): it works"),
        (["--seed", "1"], 3, again),
    ):
        assert main([*words, *more]) == 0
        assert capsys.readouterr().out.startswith(said) and Drawn.runs == runs
    (tmp_path / "figure1.png").unlink()
    assert main([*words, "--seed", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["figure1"]["result"]["most"] == 4.0 and Drawn.runs == 4
    assert not list(tmp_path.glob(".*"))  # no trials are kept once a study is finished


@pytest.mark.slow
def test_ctrl_c_keeps_what_is_done_and_the_same_command_finishes(tmp_path):
    command = [sys.executable, "-m", "certirl", "reproduce", "figure2", "--fast", "--workers", "2"]
    command += ["--out", str(tmp_path)]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        memory = list(tmp_path.glob(".figure2-*.trials"))
        if memory and len(memory[0].read_text().splitlines()) >= 2:
            break
        time.sleep(0.05)
    os.kill(running.pid, signal.SIGINT)
    _, errors = running.communicate(timeout=60)
    assert running.returncode == 130
    assert errors.strip() == "certirl: interrupted"
    kept = memory[0].read_text().splitlines()
    assert len(kept) >= 2 and not (tmp_path / "figure2.json").exists()
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "figure2" in done.stdout and (tmp_path / "figure2.png").stat().st_size > 1000
    assert not list(tmp_path.glob(".*"))


def test_options_choose_size_seed_and_trials():
    def chosen(experiment, **options):
        return study.chosen(experiment, **{"fast": False, "seed": 0, "trials": None} | options)

    assert chosen(figure3, trials=320, seed=4).trials == 320
    assert chosen(figure3, fast=True).trials == figure3.FAST.trials
    assert chosen(figure1, trials=7) == chosen(figure1)  # which has none
    with pytest.raises(ValueError, match="trials must be a whole number, at least 2"):
        chosen(figure4, trials=1)


def test_an_unknown_study_is_a_sentence(capsys):
    assert main(["reproduce", "figure9"]) == 2
    assert "figure9" in capsys.readouterr().err


def test_the_wheel_is_the_package_and_its_checker_and_nothing_else():
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    wheel = tomllib.loads(text)["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel == {"packages": ["src/certirl", "src/certirl_check"]}


# --- statistics ------------------------------------------------------------------------------------------------------


def test_a_line_finds_its_slope_as_often_as_it_says():
    rng = np.random.default_rng(0)
    x = np.arange(10.0)
    hits = 0
    for _ in range(400):
        fit = fit_line(x, 2.0 - 0.5 * x + rng.normal(size=10))
        hits += fit.low <= -0.5 <= fit.high
    assert 0.92 < hits / 400 < 0.98


def test_a_power_law_is_recovered_and_needs_positive_numbers():
    x = np.geomspace(1, 100, 7)
    fit = fit_power_law(x, 3 * x**-0.5)
    assert fit.slope == pytest.approx(-0.5) and np.exp(fit.intercept) == pytest.approx(3) and fit.r2 > 0.999999
    with pytest.raises(ValueError, match="positive numbers"):
        fit_power_law(x, -x)
    with pytest.raises(ValueError, match="three points"):
        fit_line([1, 2], [1, 2])


def test_the_bootstrap_of_yes_and_no_is_the_same_short_and_long():
    outcomes = np.arange(200) < 60
    short = bootstrap(outcomes, rng=np.random.default_rng(0), draws=4000)
    long = bootstrap(outcomes.astype(float), rng=np.random.default_rng(1), draws=4000)
    exact = binomial_interval(60, 200)
    assert np.allclose(short, long, atol=0.011) and np.allclose(short, exact, atol=0.02)


def test_binomial_intervals_cover():
    rng, hits = np.random.default_rng(2), 0
    for count in rng.binomial(50, 0.1, 1000):
        low, high = binomial_interval(int(count), 50)
        hits += low <= 0.1 <= high
    assert hits >= 950


@pytest.mark.parametrize(
    ("shares", "expected"),
    [
        ([0.2, 0.8, 1.0], 200.0 * 2**0.5),
        ([0.95, 0.99, 1.0], 100.0),
        ([0.2, 0.95, 0.5], np.inf),
        ([1.0, 0.8, 1.0], 200 * 2**0.5),
    ],
)
def test_crossings_are_read_off_for_good(shares, expected):
    assert crossing([100, 200, 400], shares, 0.9) == pytest.approx(expected)


# --- what the figures judge with -------------------------------------------------------------------------------------


@pytest.mark.parametrize("problem", [random_polynomial(seed=3), thermostat()], ids=str)
def test_margin_rows_are_the_margins_of_each_function(problem):
    basis = Legendre(4).on(problem.domain)
    states = np.linspace(*problem.domain[0], 5)
    rows = problem.margin_rows(basis, states, discount=0.7, expert=1)
    alpha = np.array([0.3, -1.0, 0.5, 2.0])
    direct = problem.margins(Reward(basis, alpha), states, discount=0.7, expert=1)
    assert np.allclose(rows @ alpha, direct, atol=1e-12)


def test_two_states_judge_a_polynomial_problem():
    rng = np.random.default_rng(0)
    for seed in range(20):
        problem = random_polynomial(seed=seed)
        reward = Reward(Legendre(6).on(problem.domain), rng.normal(size=6))
        two = problem.margins(reward, np.array([0.0, 1.0]), discount=0.7).min()
        assert two == pytest.approx(problem.true_margin(reward, discount=0.7), abs=1e-9)


def test_margins_of_many_steps_approach_the_margins():
    problem = random_polynomial(seed=1)
    reward, states = Reward(Legendre(5).on(problem.domain), np.array([0, 1, 2, -1, 1.0])), np.linspace(-1, 1, 5)
    whole = problem.margins(reward, states, discount=0.7)
    one = problem.margins(reward, states, discount=0.7, steps=1)
    rows = np.array([problem.margins(reward, states, discount=0.7, steps=k) for k in (20, 60)])
    assert np.abs(rows[1] - whole).max() < 1e-8 and np.abs(rows[0] - whole).max() < 1e-2
    y, w = np.polynomial.legendre.leggauss(60)
    density = problem.density(y, states, 0) - problem.density(y, states, 2)
    assert np.allclose(one[1], density @ (w * reward(y)), atol=1e-10)
