"""Problems whose truth is known, for tests, experiments and examples.

A `Problem` is a simulator with densities on an interval or a box; it computes its exact operators, its tails and the
true margin of any reward. `Independent` puts problems side by side as components. Experts who depend on the state are
planned and judged by `optimal_policy`, `next_values`, `regret` and `judge`.
"""

from certirl.problems.dynamics import Circle as Circle
from certirl.problems.dynamics import Independent as Independent
from certirl.problems.dynamics import PolynomialProblem as PolynomialProblem
from certirl.problems.dynamics import Problem as Problem
from certirl.problems.dynamics import Thermostat as Thermostat
from certirl.problems.dynamics import Whirl as Whirl
from certirl.problems.dynamics import circle as circle
from certirl.problems.dynamics import factorised as factorised
from certirl.problems.dynamics import independent as independent
from certirl.problems.dynamics import random_independent as random_independent
from certirl.problems.dynamics import random_polynomial as random_polynomial
from certirl.problems.dynamics import thermostat as thermostat
from certirl.problems.dynamics import unsolvable as unsolvable
from certirl.problems.dynamics import whirl as whirl
from certirl.problems.paid import Harvest as Harvest
from certirl.problems.paid import Queue as Queue
from certirl.problems.paid import harvest as harvest
from certirl.problems.paid import queue as queue
from certirl.problems.soft import Buses as Buses
from certirl.problems.soft import buses as buses
from certirl.problems.soft import read_buses as read_buses
from certirl.problems.switching import Judgement as Judgement
from certirl.problems.switching import Steps as Steps
from certirl.problems.switching import SwitchingProblem as SwitchingProblem
from certirl.problems.switching import Truth as Truth
from certirl.problems.switching import comfort as comfort
from certirl.problems.switching import judge as judge
from certirl.problems.switching import next_values as next_values
from certirl.problems.switching import optimal_policy as optimal_policy
from certirl.problems.switching import regret as regret
from certirl.problems.walk import SoftWalk as SoftWalk
from certirl.problems.walk import soft_walk as soft_walk

__all__ = [
    "Problem",
    "Steps",
    "buses",
    "circle",
    "comfort",
    "factorised",
    "harvest",
    "independent",
    "judge",
    "optimal_policy",
    "queue",
    "random_independent",
    "random_polynomial",
    "read_buses",
    "regret",
    "soft_walk",
    "thermostat",
    "unsolvable",
    "whirl",
]
__dir__ = __all__.copy
