"""Evidence without noise: every sum is its mean, as if of very many transitions, so that inequalities become exact.

And bands that are what a test says.
"""

import numpy as np

from certirl.functions.frame import frame
from certirl.proof.bands import Band
from certirl.proof.sums import Evidence
from certirl.proof.surrogate import Paid


def a_band(columns, curve, radius):
    """The same radius on both sides; the curve in the columns."""
    both = np.broadcast_to(radius, (2, *np.shape(radius)))
    nothing = np.zeros_like(both)
    return Band((0, 1), columns, frame(columns).coefficients(curve), both, nothing, 0.0, 0.0, Paid.nothing(columns))


def exact_evidence(surrogate, truth, states, n=1e10):
    """What n transitions of every action from these states would say if nothing were random.

    Args:
        surrogate: with its policy.
        truth: `certirl.problems.Truth` of the problem.
        states: ``[m, d]``, tried equally often.
        n: transitions per action.
    """
    s, own, many = surrogate, surrogate.frame, n / len(states)
    x, tables = own.values(states), own.tables(states)
    A = s.n_actions
    functions = np.column_stack([s.pieces(truth.states), s.value(truth.states), s.tents(truth.states).T])
    m, between = s.Z.shape[1], truth.interpolation(states)
    expected = [between @ (truth.kernels[c] @ functions) for c in range(A)]
    pairs, wide, w = len(s.pairs(True)), own.wide, len(s.widths)
    return Evidence(
        counts=np.full(A, int(n)),
        gram=np.tile(many * own.sums(tables, np.ones((1, len(states)))), (A, *[1] * len(wide))),
        residuals=many * np.stack([(expected[c][:, m] - x @ s.fits[c]) @ x for c in range(A)]),
        residual_moments=np.zeros((pairs, *wide)),
        cross_moments=np.zeros((pairs, s.directions, *wide)),
        powers=np.zeros((len(s.tuples(True)), *own.wider)) if s.powers else None,
        operator_residuals=many * np.stack([(expected[c][:, :m] - x @ s.Z[c].T).T @ x for c in range(A)]),
        operator_moments=np.zeros((0 if s.pointwise else pairs, *wide)),
        visits=many * np.stack([(expected[c][:, m + 1 :] - x @ s.tent_fits[c].T).T @ x for c in range(A)]),
        visit_moments=np.zeros((A, w, *wide)),
        reached=np.zeros((A, 0)),
        paired=True,
    )
