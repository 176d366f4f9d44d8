"""The one certificate path: constant expert, interval and single component are values of the same code."""

import sys
from dataclasses import fields, replace

import numpy as np
import pytest

import certirl
from certirl import Chebyshev, Fourier, Legendre
from certirl.data.simulator import draw
from certirl.data.transitions import CHUNK
from certirl.functions.components import as_components
from certirl.proof.bands import bands
from certirl.proof.case import Case
from certirl.proof.certificate import conclude, forecast
from certirl.proof.certify import certify
from certirl.proof.sums import _EvidenceTotals, gather
from certirl.proof.training import fit_surrogates

DISCOUNT = 0.7


def solved(problem, basis, columns, samples=4_000, seed=0):
    """A reward from training data, with the draws and moments it came from."""
    narrow = basis.on(problem.domain).resized(columns)
    found = certirl.solve(problem, expert=0, discount=DISCOUNT, basis=basis, columns=columns, samples=samples, rng=seed)
    assert found.reward is not None
    return narrow, found.reward


def proved(problem, columns, reward, expert=0, samples=20_000, seed=1, paired=True, tail=0.0, components=None, **asked):
    """A certificate from draws."""
    case = Case.of(
        expert,
        columns,
        n_actions=problem.n_actions,
        discount=DISCOUNT,
        tail=tail,
        components=components,
        **asked,
    )
    training, fresh = np.random.default_rng(seed).spawn(2)
    basis = columns if components is None else columns[0]
    draws = {"design": case.design, "paired": paired}
    surrogates, _ = fit_surrogates(case, reward, draw(problem, basis, samples // 4, training, **draws))
    return conclude(case, surrogates, gather(surrogates, draw(problem, basis, samples, fresh, **draws)), delta=0.05)


@pytest.fixture(scope="module")
def polynomial():
    problem = certirl.problems.random_polynomial(seed=7)
    return problem, *solved(problem, Legendre(11), 3)


def test_an_action_and_a_function_that_always_takes_it_have_the_same_margin(polynomial):
    problem, columns, reward = polynomial
    by_number = proved(problem, columns, reward)
    by_function = proved(problem, columns, reward, expert=lambda s: np.zeros(len(s), dtype=int))
    assert by_function.margin == pytest.approx(by_number.margin, abs=1e-9)
    assert by_function.losses == pytest.approx(by_number.losses, abs=1e-9)
    assert by_number.tube is None and by_function.tube is None
    assert by_number.regret == by_function.regret
    assert any("expert takes only" in words for words in by_function.assumptions)


def test_one_component_is_the_plain_case(polynomial):
    problem, columns, reward = polynomial
    component = as_components([[0]], Legendre(11), problem.domain)
    whole = certirl.Reward.sum([reward], [[0]])
    plain = proved(problem, columns, reward)
    summed = proved(problem, [columns], whole, components=component)
    assert summed.margin == plain.margin
    assert summed.losses == plain.losses
    assert (summed.state == plain.state).all()


def test_the_family_of_the_columns_does_not_matter(polynomial):
    problem, columns, reward = polynomial
    other = certirl.Chebyshev(3).on(problem.domain)
    case = [Case.of(0, own, n_actions=3, discount=DISCOUNT, tail=0.0) for own in (columns, other)]
    data = [list(draw(problem, columns, n, seed, paired=True)) for n, seed in ((3_000, 0), (9_000, 1))]
    found = []
    for one in case:
        surrogates, _ = fit_surrogates(one, reward, data[0])
        found.append(conclude(one, surrogates, gather(surrogates, data[1]), delta=0.05))
    # The range of V is exact for an expansion in the columns' own family only.
    assert found[0].estimated == pytest.approx(found[1].estimated, rel=1e-6)


def test_the_margin_is_below_the_truth_and_certifies(polynomial):
    problem, columns, reward = polynomial
    certificate = proved(problem, columns, reward, samples=60_000)
    assert certificate.holds
    assert 0 < certificate.margin <= problem.true_margin(reward, discount=DISCOUNT)
    assert certificate.margin == pytest.approx(certificate.estimated - sum(certificate.losses.values()))
    assert sum(certificate.spending.values()) == pytest.approx(0.05)
    assert certificate.regret == 0
    text = str(certificate)
    assert text.startswith("Certified with probability 0.95: margin at least")
    assert "60,000 fresh transitions per action" in text


@pytest.mark.parametrize("paired", [True, False])
def test_evidence_adds_up(polynomial, paired):
    problem, columns, reward = polynomial
    case = Case.of(0, columns, n_actions=3, discount=DISCOUNT, tail=0.0)
    surrogates, _ = fit_surrogates(case, reward, draw(problem, columns, 2_000, 0, paired=paired))
    pieces = list(draw(problem, columns, 30_000, 1, paired=paired))
    (whole,) = gather(surrogates, pieces)
    halves = [
        type(piece)(piece.actions, piece.states[part], piece.next_states[:, part])
        for piece in pieces
        for part in (slice(None, 9_000), slice(9_000, None))
    ]
    first, second = (gather(surrogates, halves[start::2])[0] for start in range(2))
    added = first + second
    for name in (
        "counts",
        "gram",
        "residuals",
        "residual_moments",
        "operator_residuals",
        "operator_moments",
        "reached",
    ):
        assert np.allclose(getattr(added, name), getattr(whole, name), rtol=1e-9, atol=1e-6), name
    assert added.paired == whole.paired == paired


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize(
    ("basis", "columns", "directions"),
    [(Legendre(11), 3, 2), (Legendre(5), 9, 0), (Fourier(9), 4, 3), (Fourier(9), 5, 0), (Chebyshev(7), 7, 6)],
)
def test_compiled_sums_are_those_of_numpy(basis, columns, directions, paired):
    pytest.importorskip("numba")
    problem, rng, k = certirl.problems.random_polynomial(seed=7), np.random.default_rng(0), columns
    placed = basis.on(problem.domain)
    case = Case.of(1, placed.resized(k), n_actions=3, discount=DISCOUNT, tail=0.0)
    reward = certirl.Reward(placed, rng.normal(size=basis.size))
    ((surrogate,), _) = fit_surrogates(case, reward, draw(problem, placed, 500, 0, paired=paired), pointwise=False)
    surrogate = replace(surrogate, directions=directions, Z=rng.normal(size=(3, k, k)), fits=rng.normal(size=(3, k)))
    sums = [_EvidenceTotals(surrogate, compiled=compiled) for compiled in (False, True)]
    for piece in draw(problem, placed, 2_000, 1, paired=paired):
        for own in sums:
            own.take(piece)
    assert [own.length == CHUNK for own in sums] == [False, True]
    plain, compiled = (own.sums() for own in sums)
    for name in (field.name for field in fields(plain)):
        one, other = np.asarray(getattr(plain, name)), np.asarray(getattr(compiled, name))
        assert np.allclose(one, other, rtol=1e-9, atol=1e-9 * max(np.abs(one).max(initial=0), 1)), name


def test_second_moments_are_sums_of_products_of_residuals(polynomial):
    """Every sum of the evidence against a loop over the transitions."""
    problem, columns, reward = polynomial
    case = Case.of(1, columns, n_actions=3, discount=DISCOUNT, tail=0.0)
    ((s,), _) = fit_surrogates(case, reward, draw(problem, columns, 300, 0, paired=True))
    (piece,) = draw(problem, columns, 200, 1, paired=True)
    (evidence,) = gather([s], [piece])
    x, values = s.frame.values(piece.states), [s.evaluation(ends)[0].T for ends in piece.next_states]
    fits = np.concatenate([s.mix[1:] @ s.Z, s.fits[:, None]], axis=1)
    residuals = [value - x @ fit.T for value, fit in zip(values, fits, strict=True)]
    for place, (c, d) in enumerate(s.pairs(True)):
        one, other = residuals[c], residuals[d]
        forms = [one[:, -1] * other[:, -1], (one[:, :-1] * other[:, :-1]).sum(axis=1)]
        forms += [(one[:, -1] * other[:, i] + one[:, i] * other[:, -1]) / 2 for i in range(s.directions)]
        sums = [evidence.residual_moments[place], evidence.operator_moments[place], *evidence.cross_moments[place]]
        for form, moment in zip(forms, sums, strict=True):
            assert np.allclose(s.frame.lifted(moment), (x * form[:, None]).T @ x)
    for c in range(3):
        assert np.allclose(evidence.residuals[c], x.T @ residuals[c][:, -1])
        assert np.allclose(s.mix[1:] @ evidence.operator_residuals[c], residuals[c][:, :-1].T @ x)


def test_paired_and_unpaired_evidence_do_not_add_up(polynomial):
    problem, columns, reward = polynomial
    case = Case.of(0, columns, n_actions=3, discount=DISCOUNT, tail=0.0)
    surrogates, _ = fit_surrogates(case, reward, draw(problem, columns, 2_000, 0, paired=True))
    one, other = (gather(surrogates, draw(problem, columns, 500, 1, paired=paired))[0] for paired in (True, False))
    with pytest.raises(ValueError, match="separately"):
        one + other


KINDS = {
    "polynomial": (lambda: certirl.problems.random_polynomial(seed=3), Legendre(11), 3),
    "thermostat": (lambda: certirl.problems.thermostat(noise=3.0), Legendre(9), 9),
    "circle": (certirl.problems.circle, Fourier(9), 9),
}


@pytest.mark.thinned(5)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("paired", [True, False])
def test_no_bound_exceeds_the_truth(kind, paired):
    make, basis, columns = KINDS[kind]
    problem = make()
    narrow, reward = solved(problem, basis, columns)
    truth = problem.true_margin(reward, discount=DISCOUNT)
    for seed in range(6):
        samples = (1_000, 5_000, 25_000)[seed % 3]
        found = proved(problem, narrow, reward, samples=samples, seed=seed, paired=paired, tail=problem.tail)
        assert found.margin <= truth


def test_a_forecast_is_near_what_fresh_data_give(polynomial):
    problem, columns, reward = polynomial
    case = Case.of(0, columns, n_actions=3, discount=DISCOUNT, tail=0.0)
    surrogates, seen = fit_surrogates(case, reward, draw(problem, columns, 10_000, 0, paired=True))
    told = forecast(case, surrogates, seen, samples=60_000, delta=0.05)
    found = conclude(case, surrogates, gather(surrogates, draw(problem, columns, 60_000, 1, paired=True)), delta=0.05)
    assert told.share == pytest.approx(found.margin / found.estimated, abs=0.1)
    assert forecast(case, surrogates, seen, samples=600_000, delta=0.05).share > told.share


def test_the_curve_is_exact_where_the_guess_is_wrong_and_nothing_is_noise():
    """With as many draws as make noise small the corrected curve finds what the guesses missed."""
    problem = certirl.problems.random_polynomial(seed=5)
    columns, reward = solved(problem, Legendre(11), 3)
    case = Case.of(0, columns, n_actions=3, discount=DISCOUNT, tail=0.0)
    ((few,), _) = fit_surrogates(case, reward, draw(problem, columns, 300, 0, paired=True))
    (seen,) = gather([few], draw(problem, columns, 400_000, 1, design=True, paired=True))
    band = bands(few, seen, delta=0.05, tail=0.0).pairs[0]
    ((many,), _) = fit_surrogates(case, reward, draw(problem, columns, 400_000, 2, design=True, paired=True))
    states = columns.grid(101)
    best = many.frame.values(states) @ (many.fits[0] - many.fits[1])
    assert (
        np.abs(band.estimate(states) - best).max() < 0.1 * np.abs(few.fits[0] - few.fits[1] - band.curve).sum() + 0.05
    )


def test_certify_takes_any_expert(polynomial):
    problem, columns, reward = polynomial
    asked = {"discount": DISCOUNT, "columns": columns, "tail": 0.0, "samples": 40_000, "rng": 3}
    found = certify(reward, problem, expert=0, **asked)
    assert found.holds and found.samples == 32_000
    assert "reward, columns and samples were chosen without looking at these transitions" in found.assumptions
    again = certify(reward, problem, expert=lambda s: np.zeros(len(s)), **asked)
    assert again.margin == pytest.approx(found.margin, abs=1e-9)


def test_certify_takes_a_log(polynomial):
    problem, columns, reward = polynomial
    log = certirl.steps.sample(problem, basis=columns, samples=40_000, rng=5, design=True, paired=True)
    found = certify(reward, log, expert=0, discount=DISCOUNT, columns=columns, tail=0.0)
    assert found.holds
    assert found.margin <= problem.true_margin(reward, discount=DISCOUNT)


def test_certify_takes_a_sum():
    problem = certirl.problems.factorised(seed=0, components=3)
    asked = {"discount": DISCOUNT, "rng": 0}
    solution = certirl.solve(problem, expert=0, components=problem.components, columns=3, samples=10_000, **asked)
    found = certify(solution, problem, tail=0, samples=60_000, **asked)
    truth = problem.true_margins(solution.reward, discount=DISCOUNT)
    assert found.holds
    assert (found.bounds.sum(axis=0) <= truth).all()
    assert found.margin == pytest.approx(found.bounds.sum(axis=0).min())
    assert found.losses["estimation"] > 0
    assert "given the action, each component's next state depends on its own state alone" in found.assumptions


def test_numba_that_was_missing_once_is_found_later(monkeypatch):
    pytest.importorskip("numba")
    problem = certirl.problems.random_polynomial(seed=7)
    placed = Legendre(5).on(problem.domain)
    case = Case.of(1, placed.resized(3), n_actions=3, discount=DISCOUNT, tail=0.0)
    ((surrogate,), _) = fit_surrogates(case, certirl.Reward(placed, np.eye(5)[1]), draw(problem, placed, 500, 0))
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "certirl.kernels.fused", None)
        assert _EvidenceTotals(surrogate, compiled=True).length < CHUNK
    assert _EvidenceTotals(surrogate, compiled=True).length == CHUNK


@pytest.mark.parametrize("count", [1, 2, 3])
def test_components_without_a_reward_are_left_out_of_a_proof(count):
    problem = certirl.problems.factorised(seed=0, components=max(count, 2))
    parts = as_components(problem.components if count > 1 else [[0, 1]], Legendre(3), problem.domain)
    columns = [part.basis for part in parts]
    case = Case.of(0, columns, n_actions=problem.n_actions, discount=DISCOUNT, tail=0.0, components=parts)
    own = [certirl.Reward(basis, float(number != 1) * np.eye(basis.size)[1]) for number, basis in enumerate(columns)]
    whole = certirl.Reward.sum(own, [part.coordinates for part in parts])
    assert [one is None for one in case.rewards(whole)] == [number == 1 for number in range(count)]
