"""Problems whose truth is known, for tests, experiments and examples.

A `Problem` is a simulator with densities on an interval or a box; it computes its exact operators, its tails and the
true margin of any reward. `Independent` puts problems side by side as components. Experts who depend on the state are
planned and judged by `optimal_policy`, `next_values`, `regret` and `judge`.
"""

from certirl.problems.dynamics import (
    Circle,
    Independent,
    PolynomialProblem,
    Thermostat,
    Whirl,
    circle,
    factorised,
    independent,
    random_independent,
    random_polynomial,
    thermostat,
    unsolvable,
    whirl,
)
from certirl.problems.problem import Problem
from certirl.problems.switching import (
    Greedy,
    Judgement,
    Steps,
    SwitchingProblem,
    Truth,
    comfort,
    judge,
    next_values,
    optimal_policy,
    regret,
)

__all__ = [
    "Circle",
    "Greedy",
    "Independent",
    "Judgement",
    "PolynomialProblem",
    "Problem",
    "Steps",
    "SwitchingProblem",
    "Thermostat",
    "Truth",
    "Whirl",
    "circle",
    "comfort",
    "factorised",
    "independent",
    "judge",
    "next_values",
    "optimal_policy",
    "random_independent",
    "random_polynomial",
    "regret",
    "thermostat",
    "unsolvable",
    "whirl",
]
