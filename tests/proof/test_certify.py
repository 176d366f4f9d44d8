"""Certify a reward in hand: what it takes, what it says, what it refuses."""

import numpy as np
import pytest

import certirl
import files
from certirl.proof.certify import certify
from solved import POLYNOMIAL as PROBLEM
from solved import certified, solution

COLUMNS = certirl.Legendre(3).on(PROBLEM.domain)
GIVEN = {"discount": 0.7, "expert": 0, "columns": COLUMNS, "rng": 1}


@pytest.fixture(scope="module")
def certificate():
    return certify(solution().reward, PROBLEM, tail=0, samples=50_000, **GIVEN)


def test_a_right_reward_is_certified_below_its_true_margin(certificate):
    truth = PROBLEM.true_margin(solution().reward, discount=0.7)
    assert certificate.holds and certificate.word == "certified"
    assert 0 < certificate.margin < truth
    assert abs(certificate.estimated - truth) < sum(certificate.losses.values())


def test_the_losses_add_up(certificate):
    assert certificate.margin == pytest.approx(certificate.estimated - sum(certificate.losses.values()), abs=1e-12)
    assert set(certificate.losses) == {
        "estimation",
        "grid",
        "second order",
        "truncation tail",
        "floating point",
    }
    assert 0 < certificate.losses["floating point"] < 1e-6


def test_assumptions_are_named(certificate):
    text = str(certificate)
    assert "independent" in text and "without looking" in text and "exactly a combination" in text


def test_without_a_tail_it_is_conditional_never_certified():
    found = certify(solution().reward, PROBLEM, samples=50_000, **GIVEN)
    assert found.margin > 0 and not found.holds
    assert found.word == "conditional" and "NOT DECLARED" in str(found) and "ertified with" not in str(found)


def test_more_samples_are_asked_for_and_suffice():
    few = certify(solution().reward, PROBLEM, tail=0, samples=4_000, **GIVEN)
    assert not few.holds and few.samples_needed > few.samples
    assert certify(solution().reward, PROBLEM, tail=0, samples=int(2.5 * few.samples_needed), **GIVEN).holds


def test_a_wrong_reward_is_not_certified():
    found = certify(lambda s: np.sin(3 * s), PROBLEM, tail=0, samples=20_000, **GIVEN)
    assert not found.holds and found.samples_needed is None
    assert any("reward stays within" in words for words in found.assumptions)


def test_any_function_can_be_certified():
    """The same reward as an expansion, as a plain function and as a polynomial: the same proof."""
    power = np.polynomial.Polynomial(
        np.polynomial.legendre.leg2poly(solution().reward.coefficients * np.sqrt(np.arange(11) + 0.5))
    )
    exact = certify(solution().reward, PROBLEM, tail=0, samples=60_000, **GIVEN)
    for other in (lambda s: solution().reward(s), lambda s: power(s[:, 0])):
        found = certify(other, PROBLEM, tail=0, samples=60_000, **GIVEN)
        assert found.holds
        assert found.estimated == pytest.approx(exact.estimated, rel=1e-6)
        assert found.margin <= exact.margin + 1e-9  # its range is known less well


def test_a_solution_brings_its_own_problem(certificate):
    assert certify(solution(), PROBLEM, tail=0, samples=50_000, rng=1).margin == certificate.margin


def test_a_certificate_survives_the_file(tmp_path):
    again = certirl.load(certified().save(tmp_path / "proof.npz"))
    for one, other in ((again, certified()), (again.certificate, certified().certificate)):
        assert files.lines_of(one) == files.lines_of(other)
    (one,), (other,) = again.certificate.grounds, certified().certificate.grounds
    np.testing.assert_array_equal(one.evidence.residual_moments, other.evidence.residual_moments)


@pytest.mark.parametrize(
    ("settings", "error", "sentence"),
    [
        ({"delta": 0.0}, ValueError, "delta must be a probability of error between 1e-100 and 0.5"),
        ({"tail": -1.0}, ValueError, "not below 0"),
        ({"reward": 3.0}, TypeError, "must be a function"),
        ({"discount": None}, ValueError, "pass discount=0.9, say"),
        ({"columns": None}, ValueError, r"pass columns=Legendre\(7\), say"),
        ({"expert": None}, ValueError, "pass expert=0, say"),
        ({"discount": 1.0}, ValueError, "strictly between 0 and 1"),
        ({"expert": 5}, ValueError, "one of the actions"),
        ({"samples": 3}, ValueError, "samples must be at least 4 for 3 columns, got 3"),
        ({"rng": None}, TypeError, "rng is needed"),
    ],
)
def test_bad_settings_of_certify(settings, error, sentence):
    with pytest.raises(error, match=sentence):
        certify(**{"reward": solution().reward, "source": PROBLEM, "tail": 0, "samples": 1_000, **GIVEN, **settings})


def test_a_tail_of_one_proves_nothing():
    with pytest.raises(ValueError, match=r"^3 columns give τ = 1; .*: use at least 5 columns \(τ = "):
        certify(solution().reward, PROBLEM, tail=certirl.dynamics.Smooth(5, 1.0), samples=20_000, **GIVEN)


@pytest.mark.slow
def test_a_huge_constant_costs_digits_and_makes_no_false_certificate():
    flat = certirl.Reward(certirl.Legendre(1, (-1, 1)), [1e6])
    for seed in range(20):
        found = certify(
            flat, PROBLEM, tail=0, discount=0.7, expert=0, columns=COLUMNS.resized(1), samples=500, rng=seed
        )
        assert not found.holds


def test_a_domain_read_off_the_data_is_no_ground_for_a_proof():
    data = certirl.steps.sample(PROBLEM, basis=COLUMNS, samples=500, rng=0)
    undeclared = certirl.Transitions(data.states, data.actions, data.next_states)
    with pytest.raises(ValueError, match="declared domain"):
        certify(solution().reward, undeclared, tail=0, **GIVEN | {"columns": certirl.Legendre(3)})
    with pytest.raises(ValueError, match="declared domain"):
        certirl.solve(undeclared, expert=0, basis=certirl.Legendre(5), columns=3, discount=0.7, delta=0.05, tail=0)


def test_columns_can_be_a_number_as_for_solve():
    room = certirl.problems.thermostat(noise=3.0)
    asked = {"discount": 0.7, "expert": 0, "tail": room.tail, "samples": 2_000, "rng": 1}
    by_number, by_basis = (
        certirl.certify(lambda states: states[:, 0], room, columns=columns, **asked)
        for columns in (7, certirl.Legendre(7))
    )
    assert by_number.margin == by_basis.margin
    with pytest.raises(ValueError, match="columns must be a basis, or a whole number of functions"):
        certirl.certify(lambda states: states[:, 0], room, columns=0, **asked)
