"""What predicts actions: the step before, columns of a table, or nothing more, where experts err."""

import numpy as np
import pytest

import certirl
from refusals import refused


def room(seed, *, band=0.0, by_hour=False, errs=0.0, steps=2_000):
    """A table of a room that is heated to 20 °C, or 17 °C at night, or within a band, with mistakes."""
    rng, rows, inside, heat = np.random.default_rng(seed), [], 20.0, 0
    for step in range(steps):
        wanted = 17.0 if by_hour and step % 96 < 28 else 20.0
        heat = int(inside < wanted - band) if inside < wanted - band or inside > wanted + band else heat
        heat = int(rng.integers(2)) if rng.random() < errs else heat
        rows.append((inside, heat))
        inside = float(np.clip(inside + 0.5 * (heat - 0.5) + 0.1 * rng.normal(), 10, 30))
    values = np.array(rows)
    time = np.datetime64("2026-01-01") + np.arange(steps) * np.timedelta64(15, "m")
    door = np.array(["open", "shut"])[rng.integers(2, size=steps)]
    table = {"temperature": values[:, 0], "heat": values[:, 1].astype(int), "time": time}
    return table | {"power": 2.5 * values[:, 1], "wind": rng.normal(size=steps), "door": door}


READ = {"state": "temperature", "action": "heat", "step": "time"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "advice"),
    [
        ({"band": 0.5}, 'add the action before, lag="action"'),
        ({"by_hour": True}, "add the hour of time to state (and to exogenous"),
        ({}, "the state says what the expert does"),
        ({"errs": 0.3}, "the rest is not predicted by anything here: an expert who errs is expert=certirl.SoftExpert"),
        ({"errs": 1.0}, "the state says nothing of the actions: log what the expert sees"),
    ],
)
def test_what_is_missing_is_named_and_what_is_not_is_not(kind, advice):
    for seed in range(3):
        found = certirl.diagnose.predictors(room(seed, **kind), **READ)
        text = str(found)
        assert found.advice.startswith(advice) and len(text.splitlines()) <= 10
        assert {each.by for each in found.predictions} >= {
            "nothing",
            "the state",
            "the state and wind",
            "the state and door",
        }
        assert "held out by parts of few episodes" in text


def test_a_further_column_is_read_from_every_table_and_belongs_to_its_row(tmp_path):
    rng, files = np.random.default_rng(0), []
    for day in range(6):
        states, wind = rng.uniform(-1, 1, 300), rng.uniform(-1, 1, 300)
        table = np.column_stack([rng.permutation(300), states, wind, states > wind])
        files.append(tmp_path / f"{day}.csv")
        np.savetxt(files[-1], table, delimiter=",", header="step,state,wind,action", comments="")
    found = certirl.diagnose.predictors(files, step="step")
    assert found.advice.startswith("add wind to state") and found.kind == "episodes" and found.rows == 6 * 298
    assert found.predictions[1].wrong > 0.2 > 0.1 > found.predictions[4].wrong
    plain = certirl.logs.read(files, step="step")
    assert [each.by for each in certirl.diagnose.predictors(plain).predictions][-1] == "the state and the state before"
    refused("step is for tables", certirl.diagnose.predictors, plain, step="step", kind=TypeError)


def test_likelihood_and_mistakes_are_those_of_held_out_rows():
    """Of actions drawn with known probabilities, whatever the state: −Σ p log p, and 1 − max p."""
    rng, chances = np.random.default_rng(0), np.array([0.6, 0.3, 0.1])
    states, actions = rng.uniform(-1, 1, 6_000), rng.choice(3, p=chances, size=6_000)
    nothing, state = certirl.diagnose.predictors(
        certirl.Transitions(states, actions, rng.uniform(-1, 1, 6_000))
    ).predictions[:2]
    assert nothing.wrong == pytest.approx(0.4, abs=0.03)
    assert nothing.likelihood == pytest.approx((chances * np.log(chances)).sum(), abs=0.02)
    assert nothing.likelihood - 0.02 < state.likelihood + 0.03 and state.wrong < 0.45


def test_a_long_table_is_ten_lines():
    table = room(0, band=0.5) | {f"column {k}": np.random.default_rng(k).normal(size=2_000) for k in range(9)}
    lines = str(certirl.diagnose.predictors(table, **READ)).splitlines()
    assert len(lines) == 10 and "more columns do not say more" not in lines[1] and "9 more columns" in lines[-1]
