import tracemalloc

import numpy as np
import pytest

import certirl
from certirl.data.moments import accumulate, total
from certirl.data.simulator import Counted, draw
from certirl.data.transitions import CHUNK
from certirl.fit.choose import held_out_errors
from certirl.ground.work import on
from sizes import sizes

PROBLEM = certirl.problems.random_polynomial(seed=7)
BASES = [certirl.Fourier(9), certirl.Legendre(9), certirl.Chebyshev(9)]


@pytest.mark.parametrize("basis", BASES, ids=str)
@pytest.mark.parametrize("form", ["mean", "least-squares"])
def test_estimates_converge_to_the_exact_operators(basis, form):
    exact = PROBLEM.operators(basis).Z
    errors = []
    for n in (4_000, 64_000):
        data = certirl.steps.sample(PROBLEM, basis=basis, samples=n, rng=1)
        errors.append(np.abs(certirl.steps.estimate(data, basis=basis, form=form).Z - exact).mean())
    assert errors[1] < errors[0] / 2.5  # four times smaller, but for luck
    assert errors[1] < 0.02


@pytest.mark.thinned(3)
@pytest.mark.parametrize("basis", BASES, ids=str)
@pytest.mark.parametrize("count", sizes(50, 200))
def test_the_mean_form_is_unbiased_and_its_spread_is_as_stated(basis, count):
    exact = PROBLEM.operators(basis).Z
    runs = np.array(
        [
            certirl.steps.estimate(
                certirl.steps.sample(PROBLEM, basis=basis, samples=500, rng=r), basis=basis, form="mean"
            ).Z
            for r in range(count)
        ]
    )
    spread = runs.std(axis=0, ddof=1) / np.sqrt(len(runs)) + 1e-12
    assert (np.abs(runs.mean(axis=0) - exact) / spread).max() < 5.5


def test_least_squares_has_less_variance_than_the_mean():
    basis = certirl.Legendre(9)
    exact = PROBLEM.operators(basis, 3).Z
    errors = {"mean": [], "least-squares": []}
    for r in range(60):
        data = certirl.steps.sample(PROBLEM, basis=basis, samples=500, rng=r)
        for form in errors:
            errors[form].append(
                ((certirl.steps.estimate(data, basis=basis, columns=3, form=form).Z - exact) ** 2).sum()
            )
    saved = np.array(errors["mean"]) - np.array(errors["least-squares"])  # a fifth of the error, beyond doubt
    assert saved.mean() > 6 * saved.std(ddof=1) / np.sqrt(len(saved))
    assert 0.15 < saved.sum() / np.sum(errors["mean"]) < 0.25


def test_moments_equal_the_plain_sums():
    data = certirl.steps.sample(PROBLEM, basis=certirl.Legendre(5), samples=300, rng=0)
    moments = certirl.steps.measure(data, basis=certirl.Legendre(5), columns=3)
    states, next_states = data.of_action(1)
    x, y = certirl.Legendre(3).values(states), certirl.Legendre(5).values(next_states)
    np.testing.assert_allclose(moments.cross[1], sum(np.outer(b, a) for a, b in zip(x, y, strict=True)), atol=1e-10)
    np.testing.assert_allclose(moments.gram[1], x.T @ x, atol=1e-10)
    np.testing.assert_allclose(moments.outer[1, 1], y.T @ y, atol=1e-10)
    assert not moments.paired and np.abs(moments.outer[0, 1]).max() == 0
    assert moments.counts.tolist() == [300, 300, 300]


def test_moments_add_up_and_lead():
    basis = certirl.Fourier(7)
    one, two = (certirl.steps.sample(PROBLEM, basis=basis, samples=n, rng=n) for n in (200, 333))
    both = certirl.Transitions(
        *(np.concatenate([getattr(one, f), getattr(two, f)]) for f in ("states", "actions", "next_states")),
        domain=PROBLEM.domain,
    )
    added = certirl.steps.measure(one, basis=basis) + certirl.steps.measure(two, basis=basis)
    whole = certirl.steps.measure(both, basis=basis)
    for name in ("counts", "gram", "cross", "outer"):
        np.testing.assert_allclose(getattr(added, name), getattr(whole, name), atol=1e-10)
    small = certirl.steps.measure(both, basis=certirl.Fourier(5), columns=3)
    np.testing.assert_allclose(whole.leading(5, 3).cross, small.cross, atol=1e-10)


def test_paired_moments_hold_the_covariance_between_actions():
    basis = certirl.Legendre(4)
    data = certirl.steps.sample(PROBLEM, basis=basis, samples=500, rng=0, paired=True)
    moments = certirl.steps.measure(data, basis=basis)
    one, two = (basis.values(data.of_action(a)[1]) for a in (0, 2))
    np.testing.assert_allclose(moments.outer[0, 2], one.T @ two, atol=1e-9)
    alone = certirl.steps.measure(certirl.steps.sample(PROBLEM, basis=basis, samples=500, rng=1), basis=basis)
    mixed = moments + alone
    assert not mixed.paired and np.abs(mixed.outer[0, 2]).max() == 0
    np.testing.assert_allclose(mixed.outer[2, 2], moments.outer[2, 2] + alone.outer[2, 2])
    paired = certirl.steps.estimate(moments).noise
    Z = certirl.steps.estimate(moments, deflate=False).Z
    steps = [data.of_action(a) for a in range(3)]
    residuals = [basis.values(y) - basis.values(x) @ Z[a].T for a, (x, y) in enumerate(steps)]
    np.testing.assert_allclose(paired[0, 2], residuals[0].T @ residuals[2] / (500 - 4), atol=1e-9)


def test_each_action_of_a_pair_has_its_own_law():
    """Common random numbers couple the actions and leave each one's distribution alone."""
    basis = certirl.Legendre(7)
    data = certirl.steps.sample(PROBLEM, basis=basis, samples=60_000, rng=0, paired=True)
    exact = PROBLEM.operators(basis, 3).Z
    assert np.abs(certirl.steps.estimate(data, basis=basis, columns=3).Z - exact).max() < 0.05
    states = [data.of_action(a)[0] for a in range(3)]
    np.testing.assert_array_equal(states[0], states[2])


def test_folds_are_disjoint_and_complete():
    basis = certirl.Legendre(5).on(PROBLEM.domain)
    pieces = list(draw(PROBLEM, basis, 2_001, 0))
    (folds,) = accumulate(iter(pieces), [(basis, basis)], n_actions=3, folds=5)
    ((whole,),) = accumulate(iter(pieces), [(basis, basis)], n_actions=3)
    assert total(folds).counts.tolist() == [2_001] * 3
    np.testing.assert_allclose(total(folds).cross, whole.cross, atol=1e-9)


def test_the_first_row_is_known_not_estimated():
    data = certirl.steps.sample(PROBLEM, basis=certirl.Legendre(6), samples=50, rng=0)
    for form in ("mean", "least-squares"):
        Z = certirl.steps.estimate(data, basis=certirl.Legendre(6), form=form).Z
        np.testing.assert_array_equal(Z[:, 0], np.tile(np.eye(6)[0], (3, 1)))
    raw = certirl.steps.estimate(data, basis=certirl.Legendre(6), form="mean", deflate=False).Z
    assert np.abs(raw[:, 0, 1:]).max() > 1e-3


def test_three_columns_are_exact_for_the_papers_problems():
    full, narrow = PROBLEM.operators(certirl.Legendre(11)).Z, PROBLEM.operators(certirl.Legendre(11), 3).Z
    np.testing.assert_allclose(full[:, :, :3], narrow, atol=1e-14)
    assert np.abs(full[:, :, 3:]).max() < 1e-12


def test_logged_states_from_anywhere_are_fine_for_least_squares():
    rng = np.random.default_rng(0)
    states = rng.beta(2, 1, 60_000) * 2 - 1
    actions = rng.integers(3, size=60_000)
    next_states = np.empty_like(states)
    for a in range(3):
        next_states[actions == a] = PROBLEM.sample(states[actions == a], a, rng)
    data = certirl.Transitions(states, actions, next_states, domain=(-1, 1))
    exact = PROBLEM.operators(certirl.Legendre(7), 3).Z
    error = {form: np.abs(certirl.steps.estimate(data, basis=certirl.Legendre(7), columns=3, form=form).Z - exact).max()
             for form in ("mean", "least-squares")}  # fmt: skip
    assert error["least-squares"] < 0.1 < error["mean"]


@pytest.mark.slow
@pytest.mark.parametrize("keeps", [False, True])
def test_memory_does_not_grow_with_the_number_of_samples(keeps):
    basis = certirl.Legendre(11).on(PROBLEM.domain)
    peaks = []
    for n in (8 * CHUNK, 8 * CHUNK, 32 * CHUNK):  # the first call loads what is compiled
        tracemalloc.start()
        with on(1):  # with several threads the peak depends on which chunks meet
            accumulate(draw(Counted(PROBLEM), basis, n, 0, keeps=keeps), [(basis, basis)], n_actions=3)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[2] < 1.1 * peaks[1] < 64e6


def test_noise_is_the_conditional_covariance_of_the_next_functions():
    basis = certirl.Legendre(5)
    data = certirl.steps.sample(PROBLEM, basis=basis, samples=100_000, rng=0)
    estimated, exact = certirl.steps.estimate(data, basis=basis).noise, PROBLEM.operators(basis).noise
    np.testing.assert_allclose(estimated, exact, atol=0.02)


def test_a_singular_gram_matrix_is_refused_with_the_cure():
    data = certirl.Transitions(
        np.tile([0.1, 0.2], 30), np.tile([0, 1], 30).repeat(1), np.linspace(-1, 1, 60), domain=(-1, 1)
    )
    with pytest.raises(ValueError, match="fewer columns, or states that cover"):
        certirl.steps.estimate(data, basis=certirl.Legendre(5))


def test_an_action_never_seen_is_named():
    data = certirl.Transitions(np.linspace(-1, 1, 50), np.zeros(50), np.linspace(1, -1, 50), n_actions=2)
    with pytest.raises(ValueError, match="action 1 was never seen"):
        certirl.steps.estimate(data, basis=certirl.Legendre(3))


def test_moments_of_different_bases_do_not_add():
    data = certirl.steps.sample(PROBLEM, basis=certirl.Legendre(5), samples=30, rng=0)
    with pytest.raises(ValueError, match="same bases"):
        certirl.steps.measure(data, basis=certirl.Legendre(5)) + certirl.steps.measure(data, basis=certirl.Fourier(5))


def test_the_condition_is_that_of_the_columns_and_the_precision_their_inverse():
    data = certirl.steps.sample(PROBLEM, basis=certirl.Legendre(5), samples=400, rng=0)
    found = certirl.steps.estimate(data, basis=certirl.Legendre(5), columns=3)
    grams = certirl.steps.measure(data, basis=certirl.Legendre(5), columns=3).gram
    assert found.precision == pytest.approx(np.linalg.inv(grams))
    assert found.condition == pytest.approx(np.linalg.cond(grams).max())


def test_held_out_errors_are_those_of_regressions_without_the_part_held_out():
    basis, rng = certirl.Legendre(4), np.random.default_rng(0)
    data = certirl.steps.sample(PROBLEM, basis=basis, samples=90, rng=0)
    states, ends = (np.concatenate([data.of_action(a)[i] for a in range(3)]) for i in (0, 1))
    actions, part = np.repeat(range(3), 90), rng.integers(3, size=270)
    rows, asked = (states, actions, ends), {"n_actions": 3, "domain": PROBLEM.domain}
    logs = [certirl.Transitions(*(one[part == i] for one in rows), **asked) for i in range(3)]
    found = held_out_errors([certirl.steps.measure(log, basis=basis, columns=4) for log in logs])
    before, after = (basis.on(PROBLEM.domain).values(places) for places in (states, ends))
    for left_out in range(3):
        for columns in range(1, 5):
            square = 0.0
            for action in range(3):
                fitted, held = ((actions == action) & chosen for chosen in (part != left_out, part == left_out))
                fit = np.linalg.lstsq(before[fitted, :columns], after[fitted], rcond=None)[0]
                square += ((after[held] - before[held, :columns] @ fit) ** 2).sum()
            assert found[left_out, columns - 1] == pytest.approx(square / (part == left_out).sum())
