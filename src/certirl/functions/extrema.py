"""The exact minimum of an expansion over its whole domain: the oracle that replaces the paper's cover."""

from __future__ import annotations

import numpy as np

from certirl.functions import extrema_boxes
from certirl.functions.bases import Basis
from certirl.functions.boxes import ProductBasis
from certirl.ground.domain import Array

TIE = extrema_boxes.TIE


def local_minima(
    basis: Basis, coefficients: Array, *, exact: bool = True, below: float | None = None
) -> tuple[Array, Array]:
    """Local minima of Σ c_i φ_i over the interval, the ends included; on boxes see `extrema_boxes`.

    The candidates are the roots of the derivative (eigenvalues of a companion matrix), the two ends, and a grid that
    guards against a root lost to rounding; all are polished by Newton's method. A value at a stationary point is
    second-order accurate, so a root known to 1e-8 gives the minimum to rounding.

    Args:
        basis: the family and the interval.
        coefficients: c ``[k]``.
        exact: find the roots; without them a finer grid stands in, quicker for large k and blind to narrow dips.
        below: on boxes, where the global minimum is dear, any minimum below this will do in its place.

    Returns:
        States ``[m, d]`` in order and the values there ``[m]``; the global minimum is among them.
    """
    coefficients = np.asarray(coefficients, dtype=np.float64)
    basis = basis.resized(len(coefficients))
    if isinstance(basis, ProductBasis):
        return extrema_boxes.local_minima(basis, coefficients, exact=exact, below=below)
    states, values = _lowest(basis, coefficients, _candidates(basis, coefficients, exact=exact))
    return states[:, None], values


def minimum(basis: Basis, coefficients: Array) -> tuple[Array, float]:
    """The state ``[d]`` at which Σ c_i φ_i is smallest, and its value there; on boxes, a proved bound below it.

    A solved program leaves minima that are equal but for rounding, or a curve that is constant: of all states that tie
    the smallest is named, the low end of the interval included.
    """
    if isinstance(basis, ProductBasis):
        return extrema_boxes.minimum(basis.resized(len(coefficients)), coefficients)
    basis = basis.resized(len(coefficients))
    states = _candidates(basis, coefficients, exact=True)
    least = float((basis.values(states) @ coefficients).min())
    states = np.append(basis.domain[0][0], states)
    return states[first_of_least(basis.values(states) @ coefficients), None], least


def first_of_least(values: Array) -> int:
    """Which is the least; the first of those that tie but for rounding, as minima of a solved program do."""
    return int(extrema_boxes.least(values).argmax())


def ranked(weights: Array, *places: Array) -> Array:
    """The order from the largest weight to the smallest; weights that are equal but for rounding by their places.

    Args:
        weights: ``[m]``.
        places: what decides between equal weights, ascending, the first one first: ``[m]`` or ``[m, d]`` each.
    """
    keys = [np.atleast_2d(np.asarray(place).T) for place in places]
    return np.lexsort([*np.concatenate(keys)[::-1], -np.round(weights / (np.abs(weights).max() * TIE or 1.0))])


def _candidates(basis: Basis, coefficients: Array, *, exact: bool) -> Array:
    """States of an interval among which every local minimum is, in order ``[m]``."""
    states = basis.grid((4 if exact else 8) * basis.size + 1)[:, 0]
    if exact:
        states = np.unique(np.concatenate([states, basis.parts[0].stationary_points(coefficients)]))
    return _polished(basis, coefficients, _lowest(basis, coefficients, states)[0])


def _lowest(basis: Basis, coefficients: Array, states: Array) -> tuple[Array, Array]:
    """Those of the ordered states whose value is not above their neighbours'."""
    values = basis.values(states) @ coefficients
    padded = np.concatenate([[np.inf], values, [np.inf]])
    lowest = (values <= padded[:-2]) & (values <= padded[2:])
    return states[lowest], values[lowest]


def _polished(basis: Basis, coefficients: Array, states: Array) -> Array:
    """The states and, beside each, where two Newton steps on the slope lead; in order."""
    ((low, high),) = basis.domain
    reach, step = (high - low) / basis.size, 1e-6 * (high - low)
    moved = states
    for _ in range(2):
        around = np.concatenate([moved - step, moved + step])  # a hair outside the interval is harmless
        behind, ahead = (basis.derivative(around) @ coefficients).reshape(2, -1)
        bend = (ahead - behind) / (2 * step)
        move = -(ahead + behind) / 2 / np.where(bend > 0, bend, np.inf)
        moved = np.clip(np.where(np.abs(moved + move - states) < reach, moved + move, moved), low, high)
    return np.unique(np.concatenate([states, moved]))
