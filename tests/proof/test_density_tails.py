"""τ from a density: never below the true error, close to it, and honest about what was declared."""

import math
import re

import numpy as np
import pytest

import certirl
from certirl import dynamics
from certirl.functions.bases import Fourier, Legendre, product
from certirl.proof.contradictions import _in_cells
from certirl.proof.tails import tail_in_words

STD, SLOPE = 1.5, 0.9


def mirrored(y, s, action, std=STD):
    """The density of an affine drift plus Gaussian noise, mirrored at 15 and 25."""
    mean = s[:, :1] + 0.1 * (18 - s[:, :1]) + (1.5, -1.5)[action]
    turns = 20 * np.arange(-1, 2)[:, None]
    images = np.concatenate([turns + y[:, 0], turns + 30 - y[:, 0]])
    return np.exp(-(((images[:, None] - mean) / std) ** 2) / 2).sum(axis=0) / (std * math.sqrt(2 * math.pi))


def clipped(y, s, action):
    """The same before the next states are placed."""
    mean = s[:, :1] + 0.1 * (18 - s[:, :1]) + (1.5, -1.5)[action]
    return np.exp(-(((y[:, 0] - mean) / STD) ** 2) / 2) / (STD * math.sqrt(2 * math.pi))


def derivative(order, std=STD):
    """A bound on the derivative of a Gaussian density moved by an affine drift."""
    return dynamics.Smooth(order, (SLOPE / std) ** order * math.sqrt(math.factorial(order)))


CURVED = 2 / STD**2  # twice ∫|p''| of a Gaussian density, 4·0.242/std², for what is mirrored


def interpolation_error(density, action, k, low, high, reach=None):
    """max_s ∫|p − its interpolant at k Chebyshev points|dy, by a fine sum."""
    first, last = reach or (low, high)
    y, s = np.linspace(first, last, 4001)[:, None], np.linspace(low, high, 301)[:, None]
    nodes = (low + high) / 2 + (high - low) / 2 * np.cos((np.arange(k) + 0.5) * np.pi / k)
    basis = Legendre(k, (low, high))
    weights = basis.values(s) @ np.linalg.inv(basis.values(nodes))
    missed = density(y, s, action) - weights @ density(y, nodes[:, None], action)
    return float((np.abs(missed).sum(axis=1) * (last - first) / 4000).max())


def test_a_density_gives_a_tail_that_is_proved_and_close():
    tail = dynamics.tail_from_density(
        mirrored, (15, 25), n_actions=2, smooth=derivative(6), curvature=CURVED, points=2_000
    )
    rough = dynamics.tail_from_density(
        mirrored, (15, 25), n_actions=2, smooth=derivative(2), curvature=CURVED, points=400
    )
    noise = dynamics.GaussianNoise(STD, slope=SLOPE)
    for k in (7, 13):
        truth = max(interpolation_error(mirrored, action, k, 15, 25) for action in (0, 1))
        columns = Legendre(k, (15, 25))
        assert truth < tail.number(columns) < 1.12 * truth < noise.number(columns)
        wide = dynamics.tail_from_density(
            clipped, (15, 25), n_actions=2, next_domain=(6, 33), smooth=derivative(6), curvature=CURVED / 2
        )
        assert tail.number(columns) < wide.number(columns) < noise.number(columns)
        assert tail.number(columns) < rough.number(columns) < derivative(2).number(columns) / 10


@pytest.mark.parametrize("share", [0.6, 1.2])
def test_a_curvature_on_a_box_is_contradicted_if_it_is_too_small(share):
    """∫∫|∂²p/∂y_1²| of two independent Gaussian coordinates is that of one, 4·0.242/std²."""
    std, box = 0.5, ((-4, 4), (-4, 4))

    def density(y, s, action):
        apart = (y[None] - 0.2 * s[:, None]) / std
        return np.exp(-(apart**2).sum(axis=2) / 2) / (2 * math.pi * std**2)

    smooth = [dynamics.Smooth(2, (0.2 / std) ** 2 * math.sqrt(2))] * 2
    curvature = [share * 4 * 0.242 / std**2, 4 / std**2]
    tail = dynamics.tail_from_density(density, box, n_actions=1, smooth=smooth, curvature=curvature, points=80)
    columns = product(Legendre(4), Legendre(4), index="full")
    if share < 1:
        with pytest.raises(ValueError, match=r"contradicted by the density of action 0.* in coordinate 0"):
            tail.number(columns)
    else:
        assert tail.number(columns) < 1


@pytest.mark.slow
def test_densities_on_a_box():
    std = 3.0

    def density(y, s, action):
        return mirrored(y[:, [0]], s[:, [0]], action, std) * mirrored(y[:, [1]], s[:, [1]], action, std)

    box = ((15, 25), (15, 25))
    columns = product(Legendre(3), Legendre(3), index="full")
    tail = dynamics.tail_from_density(
        density, box, n_actions=1, smooth=[derivative(4, std)] * 2, curvature=2 / std**2, points=40
    )
    accurate = dynamics.tail_from_density(density, box, n_actions=1).number(columns)
    single = dynamics.tail_from_density(lambda *asked: mirrored(*asked, std), (15, 25), n_actions=1).number(Legendre(3))
    assert single < accurate < tail.number(columns) < 3 * accurate


def test_what_is_declared_is_printed_and_what_is_not_is_no_proof():
    columns = Legendre(9, (15, 25))
    accurate = dynamics.tail_from_density(mirrored, (15, 25), n_actions=2)
    declared = dynamics.tail_from_density(
        mirrored, (15, 25), n_actions=2, smooth=derivative(4), curvature=CURVED, points=800
    )
    assert accurate(columns) == accurate.number(columns) == pytest.approx(declared.number(columns), rel=0.1)
    assert "since this was computed from a declared density, without a bound" in tail_in_words(accurate, 0.1, columns)
    assert "a declared density, without a bound" in tail_in_words(accurate, 0.0, columns)
    words = tail_in_words(declared, 0.1, columns)
    assert "∂^4_s" in words and f"≤ {CURVED:g}" in words and "without a bound" not in words
    room = certirl.problems.thermostat(noise=3.0)
    asked = {"discount": 0.7, "expert": 0, "columns": Legendre(7), "tail": room.tail, "samples": 9_000, "rng": 1}
    assert declared.number(Fourier(9, (15, 25))) == math.inf  # the two ends are not one state
    assert (
        "without a bound on the error of the computation"
        in certirl.certify(lambda s: s[:, 0], room, **asked).assumptions[0]
    )


def test_declarations_and_densities_are_checked():
    settings = {"n_actions": 2, "smooth": derivative(4), "curvature": CURVED}
    columns = Legendre(9, (15, 25))
    for wrong, words in (
        ({"curvature": CURVED / 10}, r"curvature .* is contradicted by the density of action 0"),
        ({"smooth": dynamics.Smooth(2, 0.01)}, "is contradicted by the density of action 0: in coordinate 0 it is at"),
    ):
        with pytest.raises(ValueError, match=words):
            dynamics.tail_from_density(mirrored, (15, 25), **settings | wrong).number(columns)
    with pytest.raises(ValueError, match=r"sums up to 0\.\d+ over 3,\d+ next states in \[15, 25\], not to 1"):
        dynamics.tail_from_density(lambda y, s, a: 0.9 * mirrored(y, s, a), (15, 25), **settings).number(columns)
    with pytest.raises(ValueError, match=r"array \[states, next states\], here \(5, 3\d+\), got the shape \(3\d+, 5\)"):
        dynamics.tail_from_density(lambda y, s, a: mirrored(y, s, a).T, (15, 25), **settings).number(columns)
    with pytest.raises(ValueError, match=r"sums up to 0\.\d+ over 3,\d+ next states in \[15, 25\]"):
        dynamics.tail_from_density(clipped, (15, 25), **settings).number(columns)
    with pytest.raises(ValueError, match="next_domain must have 1 coordinates"):
        dynamics.tail_from_density(clipped, (15, 25), next_domain=[(5, 35)] * 2, **settings)
    for density, words in (
        (lambda y, s, a: np.where(y[:, 0] > 20, np.nan, mirrored(y, s, a)), "not below 0 .*, got nan for s' = "),
        (lambda y, s, a: np.log(mirrored(y, s, a)), r"not below 0 \(not its logarithm\), got -"),
        (lambda y, s, a: 2 * mirrored(y, s, a), r"sums up to 2 over .* pass next_domain=\(low, high\)"),
    ):
        for bounds in (settings, {"n_actions": 2}):
            with pytest.raises(ValueError, match=words):
                dynamics.tail_from_density(density, (15, 25), **bounds).number(columns)
    with pytest.raises(ValueError, match=r"curvature must be a number, or one for each of 1 coordinates, got \[1, 2\]"):
        dynamics.tail_from_density(mirrored, (15, 25), **settings | {"curvature": [1, 2]})
    with pytest.raises(ValueError, match=r"smooth must be certirl\.dynamics\.Smooth\(order, bound\), .* got 60"):
        dynamics.tail_from_density(mirrored, (15, 25), **settings | {"smooth": 60})
    with pytest.raises(ValueError, match="pass both, or leave both out"):
        dynamics.tail_from_density(mirrored, (15, 25), n_actions=2, curvature=1.0)
    with pytest.raises(ValueError, match="one for each coordinate"):
        dynamics.tail_from_density(mirrored, (15, 25), n_actions=2, smooth=[derivative(2)] * 2, curvature=1.0)
    with pytest.raises(TypeError, match=r"density must be a function \(next_states, states, action\)"):
        dynamics.tail_from_density(lambda y: y, (15, 25), n_actions=2)
    with pytest.raises(ValueError, match="the density is one of 1 coordinates, and the columns have 2"):
        dynamics.tail_from_density(mirrored, (15, 25), n_actions=2).number(product(Legendre(2), Legendre(2)))
    assert certirl.problems.circle().tail.number(Fourier(9)) < 0.1


def test_a_kink_counts_with_its_change_of_slope():
    def laplace(y, s, action):
        return np.exp(-np.abs(y[:, 0] - 0.5 * s[:, :1] - action) / 2) / 4

    asked = {"n_actions": 1, "next_domain": (-40, 45), "smooth": dynamics.Smooth(2, 0.5**2 * 2 / 2**2)}
    bound = dynamics.tail_from_density(laplace, (0, 4), curvature=2 / 2**2, **asked)
    truth = interpolation_error(laplace, 0, 9, 0, 4, reach=(-40, 45))
    assert truth < bound.number(Legendre(9, (0, 4))) < 1.5 * truth
    with pytest.raises(ValueError, match=r"ds' in coordinate 0 of the next state is at least 0\.\d+ somewhere; a kink"):
        dynamics.tail_from_density(laplace, (0, 4), curvature=0.4, **asked).number(Legendre(9))


def test_what_makes_a_tail_of_a_density_large_is_named_with_its_remedy():
    def said(**settings):
        bounds = {"smooth": derivative(6), "curvature": 1 / STD**2}
        tail = dynamics.tail_from_density(clipped, (15, 25), n_actions=2, **bounds, **settings)
        columns = Legendre(17, (15, 25))
        return tail.number(columns), tail.remedy(columns, 1e-3)

    number, words = said(next_domain=(5, 35), points=200)
    assert number > 1e-3 and re.search(r"^the error of integrals .*: pass points=\d+ to tail_from_density$", words)
    more = int(re.search(r"points=(\d+)", words)[1])
    assert said(next_domain=(5, 35), points=more)[0] < 1e-3
    assert "pass a wider next_domain to tail_from_density" in said(next_domain=(10, 30))[1]


def test_integrals_that_are_too_coarse_cost_no_time():
    def density(y, s, action):
        asked.append(len(s))
        return np.exp(-((y[None, :, 0] - s[:, None, 0]) ** 2 + (y[None, :, 1] - s[:, None, 1]) ** 2) / 2) / (2 * np.pi)

    asked = []
    bounds = {"smooth": dynamics.Smooth(4, 99.0), "curvature": 90.0, "next_domain": [(-6, 6)] * 2, "points": 30}
    tail = dynamics.tail_from_density(density, [(-1, 1)] * 2, n_actions=1, **bounds)
    for size in (3, 6):
        assert tail.number(product(Legendre(size), Legendre(size)).on(((-1, 1), (-1, 1)))) == 1.0
    assert sum(asked) < 50


def test_a_curvature_that_is_too_small_at_some_states_is_contradicted_and_only_states_of_the_box_are_asked_for():
    """Noise of standard deviation 1.5 at one end and 0.75 at the other, where ∫|∂²p/∂y²| is four times as large."""

    def density(y, s, action):
        seen.append(s)
        std = 1.5 - 0.075 * (s[:, :1] - 15)
        return np.exp(-(((y[:, 0] - 20) / std) ** 2) / 2) / (std * math.sqrt(2 * math.pi))

    seen, asked = [], {"n_actions": 1, "next_domain": (10, 30), "smooth": dynamics.Smooth(4, 1.0), "points": 800}
    at_ends = [4 * 0.242 / std**2 for std in (1.5, 0.75)]
    for curvature in (at_ends[0], at_ends[1] / 2):
        tail = dynamics.tail_from_density(density, (15, 25), curvature=curvature, **asked)
        with pytest.raises(ValueError, match=r"curvature .* is contradicted by the density of action 0"):
            tail.number(Legendre(9, (15, 25)))
    true = dynamics.tail_from_density(density, (15, 25), curvature=1.01 * at_ends[1], **asked)
    assert true.number(Legendre(9, (15, 25))) < 1
    places = np.concatenate(seen)
    assert 15 <= places.min() < 15.2 and 24.8 < places.max() <= 25


def test_what_holds_in_a_cell_is_the_mean_over_its_corners():
    table = np.random.default_rng(0).normal(size=(2, 4, 5))  # two states, and next states in two coordinates
    corners = [table[:, i : i + 3, j : j + 4] for i in (0, 1) for j in (0, 1)]
    assert _in_cells(table, (0, 1)) == pytest.approx(sum(corners) / 4)
    assert _in_cells(table, (1,)) == pytest.approx((table[:, :, 1:] + table[:, :, :-1]) / 2)
