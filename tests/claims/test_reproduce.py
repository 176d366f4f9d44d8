"""What each figure shows is asserted on its fast size, of some on a smaller one too; every file is written."""

import importlib
import json
import sys
from dataclasses import replace

import numpy as np
import pytest

from certirl.cli.paper import STUDIES
from certirl.paper import study

FIGURES = {name: importlib.import_module(f"certirl.paper.figures.{name}") for name in STUDIES}
SMALL = {
    "figure1": {"samples": (2_000, 300_000)},
    "rollouts": {"problems": 1, "states": 50},
}
both_sizes = pytest.mark.parametrize("size", ["small", pytest.param("fast", marks=pytest.mark.slow)])
fast_size = pytest.mark.parametrize("size", [pytest.param("fast", marks=pytest.mark.slow)])


@pytest.fixture
def found(tmp_path):
    """Run an experiment at its fast size, or at the one above."""

    def run(name, size):
        experiment = FIGURES[name]
        arguments = experiment.FAST if size == "fast" else replace(experiment.FAST, **SMALL[name])
        study.conduct(experiment, arguments, name=name, out=tmp_path, command="test", workers=1, progress=False)
        for suffix in ("png", "csv"):
            assert (tmp_path / f"{name}.{suffix}").stat().st_size > 300
        return json.loads((tmp_path / f"{name}.json").read_text())["result"]

    return run


@both_sizes
def test_figure1_proves_the_margin_with_many_samples_and_not_with_few(found, size):
    few, many = found("figure1", size).values()
    assert few["smallest: truth at least"] < 0 < many["smallest: truth at least"]
    for panel in (few, many):
        assert panel["smallest: truth at least"] <= panel["smallest: truth"]
        assert panel["smallest: between the points at least"] <= panel["smallest: estimate"]


@fast_size
def test_figure2_error_falls_as_the_root_of_n_below_theorem_3(found, size):
    lines = found("figure2", size)
    assert len(lines) == 6
    for line in lines.values():
        assert abs(line["exponent of n"] + 0.5) < 0.03
        assert line["share below Theorem 3"] == 1.0


@fast_size
def test_figure3_log_of_failures_grows_with_n(found, size):
    result = found("figure3", size)
    assert abs(result["problem"]["near enough"]["691"]["1/β by ‖α‖_∞"] - 26.5) < 0.1
    for line in result["lines"].values():
        assert line["slope in n/k²"] > 0 and line["R²"] > 0.6
    slopes = [result["lines"][f"{method}, k = 9"]["slope per 1,000 samples"] for method in ("the paper", "certirl")]
    assert slopes[1] > 3 * slopes[0]


@fast_size
def test_figure4_samples_needed_grow_with_inverse_beta(found, size):
    result = found("figure4", size)
    laws = {method: result["exponents of 1/β"][method]["1/β by ‖α‖₁"] for method in ("the paper", "certirl")}
    assert laws["the paper"]["95 % interval"][0] > 0
    assert laws["certirl"]["exponent"] > 0  # whether beyond doubt is not settled by so few problems
    for method in ("the paper", "certirl"):
        rows = [row for row in result["n for 90%"] if row["method"] == method]
        ns = [row["n"] if row["n"] is not None else np.inf for row in rows]
        assert ns[-1] > 3 * ns[0]


@both_sizes
@pytest.mark.slow
def test_rollouts_agree_with_quadrature_and_favour_the_expert(found, size):
    result = found("rollouts", size)
    assert 0.9 < result["within two standard errors"] < 0.99
    for run in result["runs"]:
        if run["right"]:
            assert run["favour the expert"] == run["comparisons"]


@fast_size
def test_samples_are_ordered_right_then_certified_then_promised(found, size):
    for row in found("samples", size)["problems"]:
        assert row["right, certirl"] < row["certified"] < row["Theorem 6"]
        assert row["as printed"] is None  # Δ < 1/(2γ) fails: no promise


def test_the_problem_of_figure3_is_the_one_that_the_search_finds():
    figure3 = FIGURES["figure3"]
    known = {seed: figure3.methods.problem_constants([seed, 0.7, 0.05]) for seed in (87, 691, 846, 949)}
    assert all(abs(constants["1/β by ‖α‖_∞"] - 26.5) < 0.1 for constants in known.values())
    assert max(known, key=lambda seed: known[seed]["Δ"]) == figure3.Arguments.problem


def test_every_experiment_has_the_papers_numbers_and_a_smaller_version():
    assert FIGURES["figure3"].Arguments().trials == 240 and FIGURES["figure4"].Arguments().trials == 160
    assert FIGURES["figure2"].Arguments().sizes == (5, 15, 25)
    rollouts = FIGURES["rollouts"].Arguments()
    assert (rollouts.states, rollouts.steps, rollouts.rollouts) == (100, 6, 6000)
    for name in STUDIES:
        assert FIGURES[name].Arguments() != FIGURES[name].FAST


def test_a_missing_matplotlib_is_said_before_the_work(found, monkeypatch, tmp_path):
    for name in [name for name in sys.modules if name.startswith("matplotlib")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setattr(FIGURES["figure1"], "run", lambda *asked: pytest.fail("it worked, and could keep nothing"))
    with pytest.raises(ImportError, match="plots need matplotlib: pip install"):
        found("figure1", "small")
    assert not any(tmp_path.iterdir())
