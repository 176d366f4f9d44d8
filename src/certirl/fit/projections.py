"""(P̂_a f)(s) as a function of the state, for any functions f of the next state, by one regression for each action."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from certirl.data.transitions import Transitions, action_in_words
from certirl.fit.declared import Declared, Resets
from certirl.fit.effects import blocks
from certirl.fit.regression import solve_normal
from certirl.functions.bases import Basis
from certirl.ground.domain import Array
from certirl.ground.records import Record

NOTHING_DECLARED = Declared()


@dataclass(frozen=True, eq=False)
class Projections(Record):
    """(P̂_a f)(s) = Σ_j c_aj x_j(s) for any functions f of the next state, by least squares.

    Attributes:
        columns: x, functions of the state.
        log: the transitions, their actions numbered as the regressions.
        over: which next states are terminal, where every f is 0 ``[n]``; None if none is.
        inverses: (Σ x xᵀ)⁻¹ over the transitions of each regression ``[E, k, k]``.
        regressed: the action of each regression ``[E]``.
        which: the regression on which the coefficients of an action rest ``[A]``.
        shares: what they are of its coefficients ``[A, k, k]``.
    """

    columns: Basis
    log: Transitions
    over: Array | None
    inverses: Array
    regressed: list[int]
    which: NDArray[np.intp]
    shares: Array

    @classmethod
    def of(
        cls, log: Transitions, columns: Basis, over: Array | None, resets: Declared = NOTHING_DECLARED
    ) -> Projections:
        """The regressions of these transitions; an action with too few of them is refused.

        Args:
            log: of all actions but those that reset the state.
            columns: x.
            over: which next states are terminal ``[n]``.
            resets: actions under which P_af is P_bf at one state.
        """
        counts, k = log.counts, columns.size
        if counts.min() <= k:
            rarest = int(counts.argmin())
            raise ValueError(
                f"{action_in_words(rarest, log.action_names)} has {counts[rarest]:,} transitions, too few to tell {k} "
                "functions of the state apart: use fewer columns, or record more"
            )
        grams = np.zeros((log.n_actions, k, k))
        for rows in blocks(len(log)):
            x = columns.values(log.states[rows])
            for action in range(log.n_actions):
                own = x[log.actions[rows] == action]
                grams[action] += own.T @ own
        n_actions = log.n_actions + len(resets.moves)
        others = resets.estimated(n_actions)
        which, shares = np.zeros(n_actions, dtype=np.intp), np.tile(np.eye(k), (n_actions, 1, 1))
        which[others] = np.arange(len(others))
        for action, moves in resets.moves.items():
            assert isinstance(moves, Resets)
            which[action] = others.index(moves.then)
            shares[action] = np.outer(columns._constant(), columns.values(moves._place)[0])
        inverses = np.stack([solve_normal(gram, np.eye(k)) for gram in grams])
        return cls(columns, log, over, inverses, others, which, shares)

    @property
    def n_actions(self) -> int:
        """A."""
        return len(self.which)

    def expected(self, functions: Callable[[Array], Array]) -> Array:
        """c of every action for functions of states ``[n, q]``: ``[A, k, q]``."""
        cross: Array = np.zeros(())
        for rows in blocks(len(self.log)):
            x, values, actions = self._block(rows, functions)
            cross = cross + np.stack([x[actions == a].T @ values[actions == a] for a in range(self.log.n_actions)])
        return np.asarray(self.shares @ (self.inverses @ cross)[self.which])

    def spread(self, function: Callable[[Array], Array], fitted: Array) -> Array:
        """The covariance of c for one function of states, of all actions ``[A, k, A, k]``, whatever the noise.

        Args:
            function: of states, ``[n, 1]``.
            fitted: c ``[A, k]``.
        """
        (A, k), total = fitted.shape, np.zeros_like(self.inverses)
        for rows in blocks(len(self.log)):
            x, values, actions = self._block(rows, function)
            residuals = values[:, 0] - np.einsum("nk,nk->n", x, fitted[self.regressed][actions])
            for action in range(len(total)):
                own = x[actions == action] * residuals[actions == action, None]
                total[action] += own.T @ own
        freedom = self.log.counts / (self.log.counts - k)
        each, spread = self.inverses @ (total * freedom[:, None, None]) @ self.inverses, np.zeros((A, k, A, k))
        for one, other in product(range(A), repeat=2):
            if self.which[one] == self.which[other]:
                spread[one, :, other] = self.shares[one] @ each[self.which[one]] @ self.shares[other].T
        return spread

    def _block(self, rows: slice, functions: Callable[[Array], Array]) -> tuple[Array, Array, Array]:
        values = functions(self.log.next_states[rows])
        if self.over is not None:
            values = np.where(self.over[rows, None], 0.0, values)
        return self.columns.values(self.log.states[rows]), values, self.log.actions[rows]
