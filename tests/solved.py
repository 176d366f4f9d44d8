"""Problems that several tests look at, solved once for all of them, when the first asks."""

import functools

import certirl

POLYNOMIAL = certirl.problems.random_polynomial(seed=7)


@functools.cache
def solution():
    """A reward of a problem with exact columns, from 20,000 transitions of each action."""
    return certirl.solve(
        POLYNOMIAL, expert=0, basis=certirl.Legendre(11), columns=3, discount=0.7, samples=20_000, rng=0
    )


@functools.cache
def certified():
    """A solution with a certificate."""
    asked = {"basis": certirl.Legendre(11), "columns": 3, "discount": 0.7, "delta": 0.05, "tail": 0, "rng": 0}
    return certirl.solve(POLYNOMIAL, expert=0, **asked)
