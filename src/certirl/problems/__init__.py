"""Problems whose truth is known, for tests, studies and examples."""

from certirl.problems.intervals import (
    Circle,
    DevicePolynomial,
    PolynomialProblem,
    Problem,
    Thermostat,
    circle,
    factorised,
    random_polynomial,
    thermostat,
    unsolvable,
)

__all__ = [
    "Circle",
    "DevicePolynomial",
    "PolynomialProblem",
    "Problem",
    "Thermostat",
    "circle",
    "factorised",
    "random_polynomial",
    "thermostat",
    "unsolvable",
]
