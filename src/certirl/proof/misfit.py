"""Do data contradict a declared tail? A test for lack of fit, for every kind of tail and of columns.

A tail τ says that some combination p of the columns is within τ of P_a f, for every |f| ≤ 1. Weights w that depend on
the states alone, and for which Σ w_r φ(s_r) = 0, remove p: |Σ w_r f(s'_r)| ≤ τ Σ|w_r| + noise, and by Hoeffding's
inequality the noise is at most (2 Σw_r² log(2/η))^½ but for probability η. docs/notes/certificate.md, section 19.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import log

import numpy as np

from certirl.data.transitions import Piece
from certirl.functions.bases import Basis
from certirl.ground.domain import Array
from certirl.kernels.tensors import on_host
from certirl.proof.case import Case

_MISTAKEN = 1e-6  # the probability that a true declaration is refused
_MORE = 6  # functions beyond the columns, from which the weights are made
_MOST_COLUMNS = 150
_DEGREES, _PLACES = 4, (-0.5, 0.0, 0.5)  # of the functions of each coordinate of the next state
_ROWS = 65_536  # of a piece that are held at once
_SLACK = 1e-7  # for rounding


def check_fit(case: Case, data: Sequence[Piece]) -> None:
    """Refuse a declared tail that the rows contradict; they must be independent, given their states.

    Args:
        case: what is to be proved.
        data: the rows, or the first of them.
    """
    if case.sampling != "independent":
        return
    n_actions = case.policy.n_actions
    for part in case.parts:
        if part.tail is None or part.columns.size > _MOST_COLUMNS:
            continue
        comparisons = len(case.parts) * n_actions * _MORE * part.columns.dimension * (_DEGREES + len(_PLACES))
        views = (piece if part.coordinates is None else piece.view(part.coordinates) for piece in data)
        held = list(on_host(views, part.columns.domain, _ROWS))
        for action in range(n_actions):
            states, ends = _rows(held, action, part.columns.dimension)
            least = distance_from(part.columns, states, ends, log(2 * comparisons / _MISTAKEN))
            if least > part.tail + _SLACK:
                name = f" of {part.name}" if part.name else ""
                raise ValueError(
                    f"the data contradict the declared tail{name}: under action {action} the mean of a function f of "
                    f"the next state, |f| ≤ 1, differs from all combinations of {part.columns.size} "
                    f"{part.columns.kind} functions of the state by at least {least:.2g} somewhere, and "
                    f"τ = {part.tail:.2g} is declared: use more columns, or declare a larger tail"
                )


def distance_from(columns: Basis, states: Array, ends: Array, level: float) -> float:
    """A lower bound on the distance of some P f, |f| ≤ 1, from all combinations of the columns; 0 if none is seen.

    Args:
        columns: the functions of the state.
        states: of the rows of one action ``[n, d]``.
        ends: their next states ``[n, d]``.
        level: log(2/η) of each comparison.
    """
    if len(states) <= 2 * columns.size:
        return 0.0
    x, more = columns.values(states), columns.resized(columns.size + _MORE).values(states)[:, -_MORE:]
    gram, weights = x.T @ x, more
    for _ in range(2):  # once more for what rounding left
        weights = weights - x @ np.linalg.lstsq(gram, x.T @ weights, rcond=1e-12)[0]
    left = columns.size * np.abs(x.T @ weights).max(axis=0) / np.maximum(np.abs(weights).sum(axis=0), 1e-300)
    weights = weights[:, ((weights**2).mean(axis=0) > 1e-6) & (left < _SLACK)]
    low, high = np.array(columns.domain).T
    places = np.clip((2 * ends - low - high) / (high - low), -1.0, 1.0)
    waves = [np.cos(degree * np.arccos(places)) for degree in range(1, _DEGREES + 1)]
    functions = np.hstack([*waves, *(np.where(places > place, 1.0, -1.0) for place in _PLACES)])
    seen = np.abs(weights.T @ functions) - np.sqrt(2 * level * (weights**2).sum(axis=0))[:, None]
    return float((seen / np.abs(weights).sum(axis=0)[:, None]).max(initial=0.0))


def _rows(held: Iterable[Piece], action: int, dimension: int) -> tuple[Array, Array]:
    """States and next states of an action ``[n, d]``."""
    own = [(piece.states, piece.next_states[piece.actions.index(action)]) for piece in held if action in piece.actions]
    states, ends = zip(*own, strict=True) if own else ((np.zeros((0, dimension)),),) * 2
    return np.concatenate(states), np.concatenate(ends)
