"""What a proof costs is said before it begins: the memory is right within a factor, and the line comes first."""

import tracemalloc
from dataclasses import replace

import pytest

import certirl
from certirl.data.source import Pool
from certirl.proof.case import Case, tail_too_large
from certirl.proof.cost import cost

PROBLEM = certirl.problems.random_polynomial(seed=7)
ROOM = certirl.problems.comfort()
WHIRL = certirl.problems.whirl(noise=1.0)
SQUARE = certirl.product(certirl.Legendre(4), certirl.Legendre(4))
CASES = {
    "action": (PROBLEM, 0, certirl.Legendre(7).on(PROBLEM.domain), 40_000),
    "policy": (ROOM.dynamics, ROOM.expert, certirl.Legendre(5).on(ROOM.dynamics.domain), 20_000),
    "box": (WHIRL, 0, SQUARE.on(WHIRL.domain), 20_000),
}


@pytest.mark.thinned(3)
@pytest.mark.parametrize("name", CASES)
def test_memory_is_forecast_within_a_factor_of_four(name):
    simulator, expert, columns, samples = CASES[name]
    log = certirl.steps.sample(simulator, basis=columns, samples=samples, rng=0)
    case = Case.of(expert, columns, n_actions=log.n_actions, discount=0.5, tail=0)
    forecast = cost(case, Pool([log]), samples, 0.2)
    reward = certirl.Reward(columns, [0.0, 1.0] + [0.0] * (columns.size - 2))
    tracemalloc.start()
    certirl.certify(reward, log, expert=expert, discount=0.5, columns=columns, tail=0, map=1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak / 4 < forecast.bytes < 4 * peak
    assert forecast.transitions == samples * log.n_actions and forecast.seconds > 0
    assert str(forecast).startswith(f"a proof from {forecast.transitions:,} transitions takes about ")
    assert cost(case, Pool([log]), 1_000 * samples, 0.2).seconds > 20 * forecast.seconds


def test_the_forecast_is_the_first_line_and_changes_nothing(capsys):
    asked = {
        "expert": 0,
        "discount": 0.7,
        "basis": certirl.Legendre(11),
        "columns": 3,
        "delta": 0.05,
        "tail": 0,
        "samples": 6_000,
    }
    shown = certirl.solve(PROBLEM, rng=0, progress=True, **asked)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("certirl: a proof from at most 18,000 transitions takes about ")
    assert sum("a proof from" in line for line in lines) == 1 and len(lines) > 1
    silent = certirl.solve(PROBLEM, rng=0, progress=False, **asked)
    assert capsys.readouterr().err == "" and silent.certificate.margin == shown.certificate.margin
    certificate = certirl.certify(silent, PROBLEM, tail=0, samples=5_000, rng=1, progress=True)
    assert "a proof from at most 15,000 transitions" in capsys.readouterr().err
    assert certificate.margin == certirl.certify(silent, PROBLEM, tail=0, samples=5_000, rng=1).margin


@pytest.mark.parametrize("size", [3, 13])
def test_a_tail_is_hopeless_where_it_costs_more_than_the_span_of_the_value(size):
    """Above the limit the tail costs more than any margin can be; below it the sentence is empty."""
    columns, discount = certirl.Legendre(size).on(PROBLEM.domain), 0.7
    limit = 2 / ((1 + discount) * (3 + size**0.5))
    assert tail_too_large(0.999 * limit, columns, discount) == "" and tail_too_large(None, columns, discount) == ""
    sentence = tail_too_large(1.001 * limit, columns, discount)
    assert sentence.startswith(f"{size} columns give τ = ") and f"a proof needs τ < {limit:.2g}" in sentence
    reward = certirl.Reward(certirl.Legendre(3).on(PROBLEM.domain), [0.0, 1.0, 0.0])
    asked = {"discount": discount, "expert": 0, "columns": columns, "samples": 50_000, "rng": 0}
    proof = certirl.certify(reward, PROBLEM, tail=0.0, **asked)
    (ground,) = proof.grounds
    lost = replace(ground, tail=1.001 * limit).bands.pairs[0].everywhere(0)["truncation tail"]
    assert lost > ground.surrogate.high - ground.surrogate.low
    assert replace(ground, tail=1.001 / discount).bands.pairs[0].everywhere(0)["truncation tail"] == float("inf")


def test_bounds_on_derivatives_say_how_many_columns_they_need():
    columns = certirl.Legendre(5).on(((-1.0, 1.0),))
    sentence = tail_too_large(certirl.dynamics.Smooth(2, 8.0), columns, 0.9)
    assert sentence.endswith("use at least 12 columns (τ = 0.15)")
    assert tail_too_large(certirl.dynamics.Smooth(2, 8.0), columns.resized(12), 0.9) == ""
    assert tail_too_large(certirl.dynamics.Smooth(2, 8.0), columns.resized(11), 0.9) != ""
