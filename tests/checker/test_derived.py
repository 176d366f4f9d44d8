"""What the checker derives from sums, part by part: the same as the library, in another way."""

import numpy as np
import pytest
from saved_records import (
    LINE,
    PLANE,
    STEADY,
    STEADY_PLANE,
    TORN,
    TORN_PLANE,
    Coins,
    _certify,
    _episodes,
    _plane_reward,
    at_points,
    away_from_zero,
    climb,
    proof,
)

import certirl
from certirl import Chebyshev, Fourier, Legendre, product
from certirl.problems import circle, random_polynomial
from certirl_check import bands as second
from certirl_check.certificates import Certificate
from certirl_check.records import read


class Returning(Coins):
    """Half of the next states lie beside the state where the expert switches."""

    def sample(self, states, action, rng):
        return np.where(super().sample(states, action, rng) > 0, 0.1, -0.8)


TAIL = {"tail": 0.003}
THREE_ACTIONS = Coins([(0.7,), (0.3,), (0.55,)], (0.1, 0.2, -0.1))
BACK = Returning((0.5, 0.5), (0.4, -0.4))
SWITCHING = {"expert": away_from_zero, "tube": 0.4}


class Three:
    """Three coins, all to the right or all to the left."""

    n_actions, domain = 2, ((-1.0, 1.0),) * 3

    def sample(self, states, action, rng):
        return np.where(rng.random(states.shape) < (0.7, 0.3)[action] + 0.1 * states, 0.8, -0.8)


def _solved(problem, basis, columns, tail, samples=50_000, **changes):
    """Of a learned reward, under another basis, other columns and data."""
    solution = certirl.solve(problem, basis=basis, columns=columns, expert=0, discount=0.7, rng=0, samples=20_000)
    return certirl.certify(solution, problem, tail=tail, rng=1, samples=samples, **changes)


MAKERS = {
    "action": lambda: _certify(climb, STEADY, Legendre(2), **TAIL),
    "three actions": lambda: _certify(climb, THREE_ACTIONS, Legendre(2), **TAIL),
    "visits": lambda: _certify(climb, BACK, Legendre(2), **SWITCHING, **TAIL),
    "visits in episodes": lambda: _certify(climb, _episodes(BACK), Legendre(2), None, **SWITCHING, **TAIL),
    "box": lambda: _certify(_plane_reward(), STEADY_PLANE, PLANE, **TAIL),
    "sum": lambda: proof("sum"),
    "policy": lambda: _certify(climb, TORN, Legendre(2), **SWITCHING, **TAIL),
    "policy box": lambda: _certify(climb, TORN_PLANE, PLANE, samples=40_000, **SWITCHING | {"tube": 0.5}, **TAIL),
    "policy at points": lambda: at_points(MAKERS["policy"]),
    "episodes": lambda: _certify(climb, _episodes(STEADY), Legendre(2), None, **TAIL),
    "Chebyshev, unpaired": lambda: _solved(random_polynomial(seed=7), Chebyshev(11), 3, 0, 100_000, paired=False),
    "one column": lambda: _solved(random_polynomial(seed=7), Legendre(11), 1, None),
    "a circle": lambda: _solved(circle(), Fourier(9), 9, circle().tail),
    "unpaired, at points": lambda: at_points(
        lambda: _solved(random_polynomial(seed=7), Legendre(11), 3, 0.001, 200_000, paired=False)
    ),
    "three coordinates": lambda: _certify(lambda s: s.sum(axis=1), Three(), product(*[LINE] * 3)),
    "episodes of a policy": lambda: _certify(climb, _episodes(TORN), Legendre(2), None, **SWITCHING, **TAIL),
}


@pytest.mark.thinned(3)
@pytest.mark.parametrize("kind", MAKERS)
def test_the_checker_derives_every_part_of_the_bands_that_the_library_has(kind, tmp_path):
    made = MAKERS[kind]()
    derived = Certificate(read(made.save(tmp_path / "made.npz")), None)
    for ground, other in zip(made.grounds, derived.grounds, strict=True):
        work, here = second.Derivation(other), ground.bands
        there = {band.pair: band for band in work.bands()}
        for band in here.pairs:
            same = there[band.pair]
            scale = float((band.estimation + band.second_order).max() + band.tail)
            assert same.curve.middle == pytest.approx(band.curve, abs=1e-9 * scale + band.floating)
            for own, again in (
                (band.estimation, same.estimation),
                (band.second_order, same.second),
                (np.array(band.tail), np.array(same.tail)),
            ):
                assert own.shape == again.shape and own.ravel() == pytest.approx(again.ravel(), rel=1e-7)
                assert (again >= own * (1 - 1e-12)).all()  # rounded to the safe side
            assert 0.2 * band.floating < same.rounding < 5 * band.floating
        if here.visits.size:
            assert work.visits() == pytest.approx(here.visits, rel=1e-7) and (here.visits < 1).any()
            assert work.span() == pytest.approx(here.span, rel=1e-7) and here.span > 0
