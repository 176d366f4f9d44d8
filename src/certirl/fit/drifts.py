"""How the drifts of the actions are related, m_a in ``s' = s + m_a(s) + noise``: what a log has to determine.

Each action has a drift of its own, to be found from its own rows, unless it is declared that the actions share one and
differ by a vector each. Exogenous coordinates z have one drift g(z) whatever the action: all rows tell of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from certirl.fit.regression import Choices, Terms, choices_of
from certirl.functions.bases import Basis, of_degree
from certirl.ground.doors import as_count, by_door
from certirl.ground.records import Record, internal

FEWEST = 100  # states, or transitions of an action, that a regression needs
FEWEST_SHARED = 10  # transitions of an action that tell its vector, where the drift is shared
DEGREES = (0.2, 0.4, 0.6, 1.0)  # of the columns of a drift, in units of the degree of V
SHARED_DEGREES = (1, 2, 3, 4, 6)  # of a shared drift, if none is asked for
MOST_DEGREE = 20
SURE = 5.0  # standard errors by which one prediction is worse than another
CLEARLY = 0.1  # of the squared error: a declaration that costs more is contradicted
NO_PROOF = "a shared drift is an assumption that estimates rest on, and no proof does"


@dataclass(frozen=True)
@internal
class Drifts(Record):
    """A drift of each action, found from the rows of this action alone."""

    fewest: ClassVar[int] = FEWEST
    are_shared: ClassVar[bool] = False

    @internal
    def terms(self, dimension: int, exogenous: tuple[int, ...]) -> tuple[Terms, ...]:
        """What is regressed on what: the coordinates that actions move, and the others."""
        shared = "slopes" if self.are_shared else "none"
        if not exogenous:
            return (Terms(shared=shared),)
        moved = tuple(axis for axis in range(dimension) if axis not in exogenous)
        return Terms(moved, shared=shared), Terms(exogenous, of=exogenous, shared="all")

    @internal
    def choices(self, basis: Basis) -> Choices:
        """Columns to choose from, in units of the degree of V's functions."""
        return choices_of(basis, DEGREES, DEGREES[0])


EACH_ITS_OWN = Drifts()


@dataclass(frozen=True)
class SharedDrift(Drifts):
    """Declares ``s' = m(s) + b_a + noise`` of a log: one function m for all actions, and a vector for each of them.

    What an action does is then known wherever the state is, if it was tried somewhere: ten transitions are enough to be
    accepted. It is an assumption: `solve` prints it, compares it with one drift for each action on held-out data, and
    says so in its first line if these contradict it. Steps that end at the edge of the box are taken to be stopped
    there.

    Attributes:
        degree: of m, a polynomial of the state (in periodic coordinates of its sines and cosines): 1 for an affine m,
            ``s' = A s + b_a``. Chosen by held-out data if left out.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> states = rng.uniform(15, 25, 2_000)
        >>> heats = (states < 20).astype(int)  # a thermostat: heating was never tried where it is warm
        >>> after = np.clip(0.9 * states + 1.6 + heats + 0.2 * rng.normal(size=2_000), 15, 25)
        >>> log = certirl.Transitions(states, heats, after, domain=(15, 25))
        >>> asked = {"discount": 0.9, "expert": lambda states: states[:, 0] < 20}
        >>> solution = certirl.solve(log, dynamics=certirl.dynamics.SharedDrift(degree=1), **asked)
        >>> bool(solution.reward(20.0) > max(solution.reward(18.0), solution.reward(22.0)))
        True
    """

    degree: int | None = None
    are_shared: ClassVar[bool] = True
    fewest: ClassVar[int] = FEWEST_SHARED

    def __post_init__(self) -> None:
        if self.degree is not None:
            as_count(self.degree, "degree", most=MOST_DEGREE)

    @internal
    def choices(self, basis: Basis) -> Choices:
        """Columns of the degree asked for, or of few degrees."""
        degrees = SHARED_DEGREES if self.degree is None else (self.degree,)
        each = [of_degree(basis.domain, degree, basis.periodic_axes) for degree in degrees]
        return Choices(each, each[0])


class Against(NamedTuple):
    """A shared drift compared with one for each action, on held-out data.

    Attributes:
        worse: by how much its squared error is larger, as a share of that of the others; negative if it is smaller.
        errors: the same in standard errors.
        where: which data these are.
    """

    worse: float
    errors: float
    where: str

    @property
    def contradicted(self) -> bool:
        """Whether the data contradict that the drift is shared."""
        return self.errors > SURE and self.worse > CLEARLY

    def __str__(self) -> str:
        if np.isnan(self.worse):
            return "too few transitions of each action to compare the shared drift with one for each"
        how = f"{abs(self.worse):.1%} {'worse' if self.worse > 0 else 'better'} than"
        how = "as well as" if round(abs(self.worse), 3) == 0 else how
        return f"the shared drift predicts {how} one for each action on held-out {self.where}"


def shared_instead() -> str:
    """What to declare where actions were tried too seldom, or not everywhere."""
    declared = by_door("dynamics=certirl.dynamics.SharedDrift()", "--shared-drift")
    return f"where an action moves the state by the same vector everywhere, {declared} needs it tried somewhere only"
