"""Systems of the study `arch`: their constants, their law by quadrature, and bands that contain the exact values."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm

import arch

WIDTH = "width of the band, median"


@pytest.fixture(params=arch.SYSTEMS)
def system(request):
    return arch.SYSTEMS[request.param]()


def test_the_thermostat_with_its_controller_is_the_polynomial_of_the_file():
    s = np.linspace(17, 23, 7)[:, None]
    hot, cold = (arch.thermostat().drift(s, action) for action in (0, 1))
    u = 0.8 - 0.0120155 * s
    drift = cold + (hot - cold) * (u - 0.5) / (0.66 - 0.5)  # affine in the input
    np.testing.assert_allclose(drift, 4.32 + 0.7455988625 * s + 0.0017422474999999999 * s**2, rtol=1e-12)


def test_declared_slopes_bound_the_drift(system):
    rng = np.random.default_rng(0)
    low, high = np.array(system.domain).T
    states, step = rng.uniform(low, high, (200, len(low))), 1e-6 * (high - low)
    for action in range(system.n_actions):
        for axis in range(len(low)):
            moved = states + step * (np.arange(len(low)) == axis)
            slopes = np.abs(system.drift(moved, action) - system.drift(states, action)) / step[axis]
            assert (slopes <= np.asarray(system.slope)[:, axis] + 1e-6).all()


def test_the_rate_bounds_the_derivatives_of_the_oscillator():
    """Of s_1' = s_1 + 0.1((1 − s_0²)s_1 − s_0) + u: second ones 0.2|s_1| and 0.2|s_0|, the third 0.2."""
    for h in (0.5, 1.0, 5.0):
        system = arch.van_der_pol(h, 5)
        least = np.asarray(system.slope)[1].min()  # all of them contain s_0, and all but one s_1
        assert 0.2 * h <= least * system.rate * (1 + 1e-12) and least * system.rate**2 * (1 + 1e-12) >= 0.2


def test_quadrature_is_the_law_that_is_sampled(system):
    """The mean of the clipped next state: by quadrature, by a formula, and of samples."""
    rng, group = np.random.default_rng(1), system.components[-1]
    truth, whole = arch.Truth(system, group), np.mean(system.domain, axis=1)
    states = np.tile(whole, (3, 1))
    states[:, list(group)] = rng.uniform(*np.array(system.domain)[list(group)].T, (3, len(group)))
    axis, (low, high) = group[0], system.domain[group[0]]
    for action in range(system.n_actions):
        kernel = truth.kernel(states[:, list(group)], action)
        np.testing.assert_allclose(truth.ahead(np.ones(len(truth.states)), kernel), 1, atol=1e-9)
        mean, std = system.drift(states, action)[:, axis], system.std[axis]
        a, b = (low - mean) / std, (high - mean) / std
        inner = mean * (norm.cdf(b) - norm.cdf(a)) + std * (norm.pdf(a) - norm.pdf(b))
        exact = low * norm.cdf(a) + inner + high * norm.sf(b)
        np.testing.assert_allclose(truth.ahead(truth.states[:, 0], kernel), exact, rtol=1e-9, atol=1e-9)
        drawn = system.sample(np.repeat(states, 4_000, axis=0), action, rng)[:, axis].reshape(3, -1)
        np.testing.assert_allclose(drawn.mean(axis=1), exact, atol=5 * std / np.sqrt(4_000))


@pytest.mark.thinned(3)
def test_the_expert_is_best_under_the_goal(system):
    if system.switches:
        expert = arch.Best(system, 0.7)
        truth = arch.Truth(system, system.components[0])
        value = truth.value(system.goal[0](truth.states), 0.7, expert(truth.states))
        best = truth.value(system.goal[0](truth.states), 0.7, None)
        assert len(np.unique(expert(truth.states))) > 1
        assert (best - value).max() < 1e-3 * np.ptp(best)
    else:
        assert arch.least_advantage(system, system.goal, 0.7) > 0


def test_bands_contain_the_exact_values():
    found = arch.repeat(["contraction", 3, 15_000, 0.7, 0.05])
    assert found["finite"] == found["contained"] == 1 and found["cells"] == 45
    least, largest = found["exact values, least and largest"]
    assert least == pytest.approx(0, abs=1e-9) and 0.3 < largest < 0.32  # 0 against the action with the same shift
    assert found["error of the quadrature"] < 1e-9


def test_the_page_gives_the_numbers_of_the_study():
    folder = Path(arch.__file__).parent
    parts = {name: json.loads((folder / "results" / f"arch_{name}.json").read_text())["result"] for name in arch.PARTS}
    repeated, known, page = parts.pop("repeated"), parts.pop("known"), (folder / "README.md").read_text()
    result = {name: row for part in parts.values() for name, row in part.items()}
    assert arch.page(result) in page
    for name in arch.SYSTEMS:
        row = result[name]
        assert row["certified"] == row["seeds"] and row["false"] == 0, name
        assert all(check["verdict"] == "confirmed" for check in row["check"]), name
        assert all(bands["contained"] == bands["finite"] == 1 for bands in row["bands"]), name
        assert all(bands["error of the quadrature"] < 1e-3 * (bands[WIDTH]) for bands in row["bands"]), name
    assert max(result["building"]["transitions per action"]) < 10**6
    for name, row in repeated.items():
        assert row["runs with finite bands"] == row["runs"], name
        assert row["runs with an exact value outside"] <= 0.05 * row["runs"], name
    for name, trials in known.items():
        most = max(trial["transitions per action"] for trial in trials)
        assert f"the {name} from {most:,}" in " ".join(page.split()) and all(trial["certified"] for trial in trials)
        assert all(trial["margin"] < trial["true margin"] for trial in trials)
    runs = sum(row["runs"] for row in repeated.values())
    outside = sum(row["runs with an exact value outside"] for row in repeated.values())
    assert f"In {runs:,} repeated runs ({outside} with an exact value outside)" in page
