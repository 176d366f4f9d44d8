"""τ from additive noise: never below the true error, and close to it."""

import math
import re
from itertools import product as product_of

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.special import ndtr

import certirl
from certirl import dynamics, steps
from certirl.data.source import as_source
from certirl.functions.bases import Chebyshev, Fourier, Legendre, product
from certirl.proof.certificate import UNLIMITED
from certirl.proof.contradictions import of_tail
from certirl.proof.tails import _truncated, least_columns, tail_number
from systems import Moving

POINTS = 240
ANGLES = (np.arange(POINTS) + 0.5) * np.pi / POINTS


def truncation_error(drift, k, noise=lambda y: np.exp(-(y**2) / 2) / math.sqrt(2 * math.pi)):
    """sup_x ∫|p(y − m(x)) − its Chebyshev series in x of k terms|dy, by quadrature."""
    means = drift(np.cos(ANGLES))
    y = np.linspace(means.min() - 9, means.max() + 9, 3001)
    kernel = noise(y[None] - means[:, None])
    waves = np.cos(np.outer(np.arange(k), ANGLES))
    coefficients = 2 / POINTS * waves @ kernel
    coefficients[0] /= 2
    return float((np.abs(kernel - waves.T @ coefficients).sum(axis=1) * (y[1] - y[0])).max())


def distance_from_polynomials(values, x, k):
    """The least sup-norm distance on the points from polynomials of k terms."""
    columns = np.polynomial.chebyshev.chebvander(x, k - 1)
    one = np.ones((len(x), 1))
    rows = np.block([[columns, -one], [-columns, -one]])
    cost = np.r_[np.zeros(k), 1.0]
    answer = linprog(cost, A_ub=rows, b_ub=np.r_[values, -values], bounds=[(None, None)] * k + [(0, None)])
    return float(answer.fun)


@pytest.mark.parametrize(
    ("r", "k"), [(0.3, 3), (1, 5), (1, 9), (2.4, 9), (2.4, 13), (5, 17), (5, 25), (10, 38), (10, 49)]
)
def test_gaussian_noise_bounds_the_quadrature_closely(r, k):
    number = dynamics.GaussianNoise(std=0.5, slope=0.5 * r).number(Legendre(k))
    truth = truncation_error(lambda x: r * x, k)
    assert truth <= number <= 3.5 * truth
    elsewhere = dynamics.GaussianNoise(std=2.0, slope=r / 4).number(Chebyshev(k, (-3.0, 13.0)))
    assert elsewhere == pytest.approx(number)


def test_more_columns_more_noise_and_less_slope_make_the_tail_smaller():
    def number(k=9, std=1.0, slope=2.0, **more):
        return dynamics.GaussianNoise(std, slope=slope, **more).number(Legendre(k))

    assert number(11) < number() < number(7)
    assert number(std=1.1) < number() < number(slope=2.1) < number(slope=2.1, rate=0.1)
    assert number(slope=0.0) < 1e-12
    assert number(slope=0.0, truncated=True) < 1e-12 and number(slope=0.0, rate=1.0, truncated=True) < 1e-3
    assert number(k=3, slope=1e6) == 1.0


def test_gaussian_noise_on_boxes_and_circles():
    # A product of two independent coordinates: the coefficients are products, and so is the sum of all of them.
    r, basis = (0.8, 1.5), product(Legendre(6), Legendre(9), index="full")
    noise = dynamics.GaussianNoise(std=(1.0, 2.0), slope=((r[0], 0.0), (0.0, 2 * r[1])))
    each = [dynamics.GaussianNoise(1.0, slope=slope).number(Legendre(k)) for slope, k in zip(r, (6, 9), strict=True)]
    assert max(each) < noise.number(basis) < 6 * sum(each)
    total = product(Legendre(9), Legendre(9))
    assert noise.number(total) < noise.number(product(Legendre(8), Legendre(8)))
    # A rotation: the Lipschitz constant is better than bounds on the entries.
    turned = dynamics.GaussianNoise(0.5, slope=0.6).number(total)
    assert turned < dynamics.GaussianNoise(0.5, slope=((0.5, 0.34), (0.34, 0.5))).number(total)
    # On a circle P_a multiplies a wave of frequency j by exp(−j²σ²/2).
    circle, std = Fourier(7, (0.0, 2 * math.pi)), 0.7
    number = dynamics.GaussianNoise(std, slope=1.0).number(circle)
    y = np.linspace(0, 2 * math.pi, 20_001)[:-1]
    missed = sum(2 * np.exp(-((j * std) ** 2) / 2) * np.cos(j * y) / (2 * math.pi) for j in range(4, 40))
    truth = np.abs(missed).mean() * 2 * math.pi
    assert truth <= number <= 3.5 * truth
    fewer = [dynamics.GaussianNoise(std, slope=1.0).number(Fourier(k, (0.0, 2 * math.pi))) for k in (5, 6)]
    assert number < fewer[0] == fewer[1]  # a sine without its cosine counts nothing


def test_gaussian_noise_of_a_rotation_bounds_the_quadrature():
    matrix, k = 0.6 * np.array([[math.cos(0.6), -math.sin(0.6)], [math.sin(0.6), math.cos(0.6)]]) / 0.5, 6
    angles = (np.arange(24) + 0.5) * np.pi / 24
    x = np.stack(np.meshgrid(np.cos(angles), np.cos(angles), indexing="ij"), axis=-1).reshape(-1, 2)
    y = np.linspace(-6, 6, 61)
    means = x @ matrix.T
    sides = [np.exp(-((y - means[:, [i]]) ** 2) / 2) / math.sqrt(2 * math.pi) for i in (0, 1)]
    kernel = (sides[0][:, :, None] * sides[1][:, None, :]).reshape(len(x), -1)
    basis = product(Chebyshev(k), Chebyshev(k))
    waves = basis.values(x)
    weights = (waves**2).mean(axis=0)
    series = waves.T @ kernel / len(x) / weights[:, None]
    truth = float((np.abs(kernel - waves @ series).sum(axis=1) * (y[1] - y[0]) ** 2).max())
    assert truth <= dynamics.GaussianNoise(0.5, slope=0.6).number(basis) <= 10 * truth


@pytest.mark.parametrize(("noise", "sizes"), [(1.5, (7, 13, 17)), (3.0, (5, 9))])
def test_truncated_noise_bounds_the_quadrature(noise, sizes):
    room = certirl.problems.thermostat(noise=noise)
    for k in sizes:
        truth = room.tail(Legendre(k)) / 1.01
        number = dynamics.GaussianNoise(noise, slope=0.9, truncated=True).number(Legendre(k, (15, 25)))
        assert truth <= number <= 12 * truth
        assert number > dynamics.GaussianNoise(noise, slope=0.9).number(Legendre(k, (15, 25)))
    assert of_tail(dynamics.GaussianNoise(noise, slope=0.9, truncated=True), as_source(room)) == ""
    assert "contradicts" in of_tail(dynamics.GaussianNoise(noise, slope=0.3, truncated=True), as_source(room))


def test_truncated_noise_certifies_a_thermostat(tmp_path):
    room, noise = certirl.problems.thermostat(noise=3.0), dynamics.GaussianNoise(3.0, slope=0.9, truncated=True)
    solution = certirl.solve(room, discount=0.7, expert=0, delta=0.05, tail=noise, samples=60_000, rng=0)
    assert solution.status == "certified" and "given that it lies in the box" in str(solution)
    assert 0 < solution.certificate.margin < room.true_margin(solution.reward, discount=0.7)
    assert certirl.check(solution.save(tmp_path / "room.npz")).verdict == "confirmed"


def test_truncated_noise_on_a_box_bounds_the_quadrature():
    whirl, box = certirl.problems.whirl(), product(Legendre(8), Legendre(8))
    turned, entries = (
        dynamics.GaussianNoise(0.5, slope=slope, truncated=True).number(box)
        for slope in (0.6, ((0.5, 0.34), (0.34, 0.5)))
    )
    assert whirl.tail(box) < turned < 40 * whirl.tail(box) and turned < entries < 1
    affine, curved = (
        dynamics.GaussianNoise(0.5, slope=0.9, truncated=True, rate=rate).number(Legendre(11)) for rate in (0.0, 0.2)
    )
    assert affine < curved < 0.02
    assert dynamics.GaussianNoise(0.5, slope=0.0, truncated=True).number(box) < 1e-9


@pytest.mark.thinned(2)
@pytest.mark.parametrize("width", [0.7, 3.0, 6.7, 40.0])
def test_the_mass_of_truncated_noise_off_the_real_line_is_bounded(width):
    """∫|p(y − m)/Z(m)|dy ≤ exp(κv²/2) at complex m, by quadrature along a long line of means."""
    pairs = _truncated((width,))
    assert pairs[0][0] > 2 and all(kappa >= 1 for _, kappa in pairs)
    y, weights = np.polynomial.legendre.leggauss(400)
    y, weights = width / 2 * (y + 1), width / 2 * weights
    for mean in np.linspace(-9, width / 2, 60):
        density = np.exp(-((y - mean) ** 2) / 2 + min(mean, 0.0) ** 2 / 2)
        for farthest, kappa in pairs:
            chi = np.abs((weights * density) @ np.exp(1j * farthest * y)) / (weights @ density)
            assert chi >= math.exp(-kappa * farthest**2 / 2)


def test_drifts_that_are_not_affine():
    for rate, k in ((0.5, 11), (1.0, 13), (2.0, 25)):
        number = dynamics.GaussianNoise(1.0, slope=1.5, rate=rate).number(Legendre(k))
        truth = truncation_error(lambda x, rate=rate: 1.5 / rate * np.sin(rate * x), k)
        assert truth <= number < 1e-2
    smooth = dynamics.GaussianNoise(1.0, derivatives=(1.5, 1.5, 1.5, 1.5, 1.5, 1.5))
    assert truncation_error(lambda x: 1.5 * np.sin(x), 25) <= smooth.number(Legendre(25)) < 0.1
    affine = dynamics.GaussianNoise(1.0, derivatives=(1.5, 0, 0, 0, 0, 0))
    assert affine.number(Legendre(25)) < smooth.number(Legendre(25))


@pytest.mark.parametrize("k", [5, 11])
def test_noise_with_few_derivatives(k):
    x = np.cos(np.linspace(0, np.pi, 161))
    for tail, cumulative in (
        (
            dynamics.LaplaceNoise(0.7, slope=1.2),
            lambda y: np.where(y < 0, np.exp(-np.abs(y) / 0.7), 2 - np.exp(-np.abs(y) / 0.7)) / 2,
        ),
        (dynamics.UniformNoise(0.7, slope=1.2), lambda y: np.clip((y + 0.7) / 1.4, 0, 1)),
        (dynamics.GaussianNoise(0.7, derivatives=(1.2, 0.0)), lambda y: ndtr(y / 0.7)),
    ):
        number = tail.number(Legendre(k))
        for edge in (0.0, 0.3, -1.0):  # f = sign(s' − edge)
            worst = distance_from_polynomials(1 - 2 * cumulative(edge - 1.2 * x), x, k)
            assert worst <= number
        assert number < 1.8 * (1.2 / 0.7) / k


def test_components_use_the_numbers_of_their_coordinates():
    noise = dynamics.GaussianNoise(std=(1.0, 2.0, 4.0), slope=((1, 0, 0), (0, 1, 0), (0, 0, 1)))
    numbers = [tail_number(noise, Legendre(7), coordinates=(axis,)) for axis in range(3)]
    assert numbers == [dynamics.GaussianNoise(std, slope=1).number(Legendre(7)) for std in (1.0, 2.0, 4.0)]


def test_declarations_are_checked():
    with pytest.raises(ValueError, match=r"a function of the columns or a number not below 0, got 'gaussian:1:0.5'"):
        tail_number("gaussian:1:0.5", Legendre(3))
    for settings, words in (
        ({"std": 0.0, "slope": 1}, "std must be a positive number"),
        ({"std": 1.0}, "declare either slope"),
        ({"std": 1.0, "slope": 1, "derivatives": (1,)}, "declare either slope"),
        ({"std": 1.0, "slope": -1}, "slope must be a number from 0 on"),
        ({"std": 1.0, "slope": (1, 2)}, "slope must be a number from 0 on"),
        ({"std": 1.0, "derivatives": (1, np.inf)}, "derivatives"),
        ({"std": 1.0, "derivatives": (1,), "rate": 1}, "rate goes with slope"),
        ({"std": 1.0, "derivatives": (1,), "truncated": True}, "truncated goes with slope"),
    ):
        with pytest.raises(ValueError, match=words):
            dynamics.GaussianNoise(**settings)
    box = product(Legendre(3), Legendre(3))
    with pytest.raises(ValueError, match="entries for 3 coordinates, and the state has 2"):
        dynamics.GaussianNoise((1, 1, 1), slope=1).number(box)
    with pytest.raises(ValueError, match="slope has entries for 3 coordinates, and the state has 2"):
        dynamics.GaussianNoise(1, slope=np.eye(3)).change([1.0, 1.0])
    with pytest.raises(ValueError, match="needs slope as a matrix"):
        dynamics.GaussianNoise(1, slope=1, rate=1).number(box)
    assert dynamics.GaussianNoise(1, slope=1, truncated=True).number(Fourier(5)) == math.inf
    with pytest.raises(ValueError, match="one coordinate"):
        dynamics.LaplaceNoise(1, slope=1).number(box)


ROOM = Moving(((15.0, 25.0),), (3.3, 0.3), keep=0.9, std=1.5)


def test_a_room_of_a_user_is_certified_and_checked(tmp_path):
    noise = dynamics.GaussianNoise(std=1.5, slope=0.9)
    kept = certirl.solve(
        ROOM, discount=0.7, expert=lambda states: states[:, 0] > 20, delta=0.05, tail=noise, samples=100_000, rng=0
    )
    assert kept.status == "certified"
    assert "ξ is Gaussian of standard deviation at least 1.5" in str(kept)
    kept.save(tmp_path / "room.npz")
    assert certirl.check(tmp_path / "room.npz").verdict == "confirmed"


def test_forecasts_and_prints_say_which_tail_is_needed(capsys):
    asked = {"discount": 0.7, "expert": 0, "delta": 0.05, "tail": dynamics.GaussianNoise(std=1.5, slope=0.9), "rng": 0}
    solution = certirl.solve(ROOM, basis=Legendre(11), columns=10, samples=20_000, progress=True, **asked)
    words = r"10 columns give τ = 0\.0\d+[;,] this margin needs τ < "
    assert re.search(rf"per action: .*; {words}", capsys.readouterr().err)
    certificate = solution.certificate
    assert certificate.holds and re.search(rf"truncation tail \({words}", str(solution))
    lost = certificate.losses["truncation tail"]
    assert certificate.tail_needed == pytest.approx(certificate.tail * (certificate.margin + lost) / lost)


def test_declarations_that_the_data_contradict_are_refused():
    true = dynamics.GaussianNoise(std=1.5, slope=0.9)
    asked = {"discount": 0.7, "expert": 0, "delta": 0.05}
    log = steps.sample(ROOM, basis=Legendre(5), samples=20_000, rng=1)
    for source in (ROOM, log):
        assert of_tail(true, as_source(source)) == ""
        for wrong in (
            dynamics.GaussianNoise(std=3.0, slope=0.9),
            dynamics.GaussianNoise(std=1.5, slope=0.3),
            dynamics.GaussianNoise(std=1.5, derivatives=(0.3, 0.0)),
            dynamics.Smooth(order=1, bound=0.1),
            dynamics.UniformNoise(10.0, slope=0.9),
            *([dynamics.GaussianNoise(std=2.0, slope=0.9)] if source is not log else []),  # a third too large
        ):
            with pytest.raises(
                ValueError, match=r"tail contradicts the data: if .* declare less noise or a larger slope"
            ):
                certirl.solve(source, tail=wrong, columns=13, **asked)
    with pytest.raises(ValueError, match="contradicts the data"):
        certirl.certify(
            lambda s: s[:, 0], ROOM, tail=dynamics.GaussianNoise(3.0, slope=0.9), columns=Legendre(13), **asked
        )


def test_true_declarations_on_a_box_are_not_contradicted():
    class Turn:
        n_actions, domain = 1, ((-1.0, 1.0), (-1.0, 1.0))

        def sample(self, states, action, rng):
            turned = 0.6 * states @ np.array([[0.8, 0.6], [-0.6, 0.8]])
            return np.clip(turned + rng.normal(scale=0.5, size=states.shape), -1, 1)

    assert of_tail(dynamics.GaussianNoise(0.5, slope=0.6), as_source(Turn())) == ""
    assert of_tail(dynamics.GaussianNoise(0.5, slope=((0.48, 0.36), (0.36, 0.48))), as_source(Turn())) == ""
    assert "contradicts" in of_tail(dynamics.GaussianNoise(1.0, slope=0.6), as_source(Turn()))


class Skew:
    """An affine drift on an interval that is no circle; action 0 is worse than 1 below 15.5 for the reward s."""

    n_actions, domain = 2, ((15.0, 25.0),)

    def sample(self, states, action, rng):
        drift = 20 + (0.8 * (states - 20) if action == 0 else -3.6)
        return np.clip(drift + rng.normal(scale=2.0, size=states.shape), 15.0, 25.0)


def test_periodic_columns_need_a_circle():
    """All that is declared is true, but not for periodic columns: certified in each of three runs, before."""
    noise, columns = dynamics.GaussianNoise(2.0, slope=0.8), Fourier(9, (15.0, 25.0))
    asked = {"discount": 0.4, "expert": 0, "columns": columns, "rng": 0, "reward_range": (15, 25)}
    log = steps.sample(Skew(), basis=Legendre(5), samples=40_000, rng=1)
    for source, tail in product_of((Skew(), log), (noise, dynamics.Smooth(1, 0.4))):
        with pytest.raises(ValueError, match="periodic in coordinate 0 take its two ends for one state"):
            certirl.certify(lambda s: s[:, 0], source, tail=tail, **asked)
    ring = certirl.problems.circle(homes=(0.0, 2.5), pull=0.4, noise=0.8)
    circle = certirl.certify(
        lambda s: np.cos(s[:, 0]), ring, tail=dynamics.GaussianNoise(0.8, slope=0.4, rate=1.0), samples=4_000,
        **(asked | {"columns": Fourier(9), "reward_range": (-1, 1)}),
    )  # fmt: skip
    assert "P_a f and its derivatives are periodic in coordinate 0" in circle.assumptions[0]


def test_tails_of_many_orders_or_little_noise_are_at_most_one():
    for tail, columns in (
        (dynamics.Smooth(200, 1.0), Legendre(300, (-1000, 1000))),
        (dynamics.Smooth(400, 1.0), Fourier(3, (-1000, 1000))),
        (dynamics.Smooth(9, 1e-9), Legendre(3)),
        (dynamics.GaussianNoise(1e-200, derivatives=[1, 1, 1]), Legendre(9)),
        (dynamics.GaussianNoise(1e-200, slope=1), Legendre(9)),
        (dynamics.GaussianNoise(1, slope=1e300), Legendre(9)),
        (dynamics.LaplaceNoise(0.1, slope=1), Legendre(4)),
    ):
        assert tail.number(columns) == 1.0
    assert 0 < dynamics.Smooth(400, 1.0).number(Legendre(450)) < 1e-300
    many = dynamics.GaussianNoise(1, derivatives=[1] * 200).number(Legendre(9))
    assert many == dynamics.GaussianNoise(1, derivatives=[1] * 20).number(Legendre(9))
    with pytest.raises(ValueError, match=r"scale must be .* 1e-100"):
        dynamics.LaplaceNoise(1e-200, slope=1)


@pytest.mark.parametrize("order", [1, 2, 3, 5])
def test_as_many_columns_as_derivatives_miss_what_a_monomial_misses(order):
    """Of all functions whose derivative of order p is at most b, b·sᵖ/p! is the farthest from p polynomials."""
    s = 20 + 5 * np.cos(np.linspace(0, np.pi, 401))
    bound = 0.5 * (2 / 5) ** order
    truth = distance_from_polynomials(bound * (s - 20) ** order / math.factorial(order), (s - 20) / 5, order)
    assert dynamics.Smooth(order, bound).number(Legendre(order, (15, 25))) == pytest.approx(truth, rel=1e-3)


def test_the_fewest_columns_whose_tail_is_below_a_limit():
    def halves(columns):
        return 0.5**columns.size

    for tail, limit, found in (
        (halves, lambda columns: 0.01, 7),
        (halves, lambda columns: 0.01 / columns.size, 10),
        (0.0, lambda columns: 1e-9, 3),
        (None, lambda columns: 0.5, 3),
    ):
        columns, number, enough = least_columns(tail, Legendre(3), limit, most=40)
        assert (columns.size, enough) == (found, True)
        assert number == (tail_number(tail, columns) or 0.0) < limit(columns)
    columns, number, enough = least_columns(halves, Legendre(3), lambda columns: 1e-30, most=12)
    assert not enough and number == halves(columns)


def test_what_is_wanting_of_a_tail_is_a_margin_without_end_of_data():
    """Where no data would do: the largest τ that leaves a margin, and the columns whose τ is half of it, or less."""
    asked = {"discount": 0.7, "expert": 0, "columns": Legendre(7), "samples": 20_000, "rng": 1}
    for tail in (0.03, 0.1):
        proof = certirl.certify(lambda s: s[:, 0], certirl.problems.thermostat(noise=3.0), tail=tail, **asked)
        share = proof.tail_needed / tail
        assert not proof.holds and 0 < share < 1
        assert proof._margin_with(UNLIMITED, tails=share) >= 0 > proof._margin_with(UNLIMITED, tails=1.15 * share)
        words = proof.enough_columns(lambda columns, tail=tail: tail * 0.8 ** (columns.size - 7))
        size = int(re.search(r"use at least (\d+) columns", words)[1])

        def limit(count, needed=proof.tail_needed):
            return needed / 2 * (1 + math.sqrt(7)) / (1 + math.sqrt(count))

        assert tail * 0.8 ** (size - 7) < limit(size) and tail * 0.8 ** (size - 8) >= limit(size - 1)


def test_the_experts_action_is_proved_best_where_the_margin_is_positive():
    room = certirl.problems.thermostat(noise=3.0)
    asked = {"discount": 0.7, "expert": 0, "columns": Legendre(7), "tail": room.tail, "rng": 1}
    for samples, holds in ((20_000, True), (300, False)):
        proof = certirl.certify(lambda s: 0.5 * s[:, 0], room, samples=samples, **asked)
        assert proof.holds == holds and proof.margin < 1
        assert proof.proves([16.0, 20.0, 24.0]).tolist() == [holds] * 3
