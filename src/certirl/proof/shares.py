"""How the part of δ for the bands is divided among pairs of actions, sides and points, before fresh data are read.

Any shares that add up to 1 are sound. Few points decide a margin: those where the expert's advantage is thin or the
band wide. There an event may be rare, elsewhere it need not be.
"""

from __future__ import annotations

from itertools import product

import numpy as np
from numpy.typing import NDArray

from certirl.ground.domain import Array
from certirl.proof.bands import shares_of, workings
from certirl.proof.case import MAX_CONDITION, Case
from certirl.proof.sums import Evidence
from certirl.proof.surrogate import Surrogate

_SHARP, _LEVEL = 0.5, 0.45  # by the forecast, and evenly over what is read; the rest evenly over everything
_MOMENTS, _RANGES, _RADII = 1.3, 1.1, 1.1  # times what training data let us expect
_DOUBT = 0.5  # standard deviations by which margins may be smaller than forecast
_MOST_LOG, _ROUNDS = 40.0, 50  # the largest L, and steps of the bisection


def planned_shares(case: Case, surrogate: Surrogate, evidence: Evidence, samples: int, delta: float) -> Array:
    """The shares for a surrogate ``[C, 2, N_1, …, N_d]``.

    Args:
        case: what is to be proved.
        surrogate: everything else is fixed already.
        evidence: the evidence of training data.
        samples: fresh transitions per action that are planned.
        delta: of the certificate.
    """
    gram = surrogate.frame.lifted(evidence.gram)
    if (evidence.counts < surrogate.columns.size).any() or (np.linalg.cond(gram) > MAX_CONDITION).any():
        return np.full(surrogate.shares.shape, 1 / surrogate.shares.size)  # too few training data for a forecast
    growth, points = samples / float(evidence.counts.min()), workings(surrogate, evidence).points
    moments = np.stack([np.tile(point.noise.value, (2, 1)) for point in points.values()])
    ranges = np.stack([np.tile(point.noise.largest[:, 0], (2, 1)) for point in points.values()])
    heights, read = (_at_points if case.grid is None else _around_points)(case, surrogate)
    expected, bound = _MOMENTS * moments / growth, _RANGES * ranges / growth
    shares = divided(read, heights - _DOUBT * np.sqrt(moments), expected, bound, delta * shares_of(surrogate)["band"])
    return shares.reshape(len(points), 2, *surrogate.mesh.counts)


def _at_points(case: Case, surrogate: Surrogate) -> tuple[Array, NDArray[np.bool_]]:
    """The expert's advantage that is forecast at the points, infinite where it is not asked for, and what is read.

    For an expert of one action ``[C, 2, N]`` each.
    """
    values = surrogate.frame.values(surrogate.mesh.states)
    curves = np.stack([values @ (surrogate.fits[b] - surrogate.fits[a]) for b, a in surrogate.compared])
    sides = np.array([[b in surrogate.used, a in surrogate.used] for b, a in surrogate.compared])
    read = np.broadcast_to(sides[:, :, None], (len(curves), 2, curves.shape[1]))
    return np.where(read, np.stack([curves, -curves], axis=1), np.inf), read


def _around_points(case: Case, surrogate: Surrogate) -> tuple[Array, NDArray[np.bool_]]:
    """The same for an expert that switches: the least advantage in the cells around each point, outside the tube."""
    grid, mesh, harmonics = case.grid, surrogate.mesh, surrogate.frame
    assert grid is not None
    axes = [part.spread_points(n)[:, 0] for part, n in zip(harmonics.parts, mesh.counts, strict=True)]
    after = [np.searchsorted(axis, cells) for axis, cells in zip(axes, grid.axes, strict=True)]
    corners = [
        np.ravel_multi_index(
            np.ix_(*(np.clip(i - shift, 0, n - 1) for i, shift, n in zip(after, side, mesh.counts, strict=True))),
            mesh.counts,
        ).ravel()
        for side in product((0, 1), repeat=harmonics.dimension)
    ]
    outside, near = grid.away + grid.reach > case.tube, grid.away <= case.tube
    heights = np.full((len(surrogate.compared), 2, len(mesh.states)), np.inf)
    read = np.zeros(heights.shape, dtype=bool)
    for pair, (b, a) in enumerate(surrogate.compared):
        curve = harmonics.on_axes(harmonics.tensor(surrogate.fits[b] - surrogate.fits[a]), grid.axes).ravel()
        for side, (best, other, sign) in enumerate(((b, a, 1.0), (a, b, -1.0))):
            better = grid.taken[best] & ~grid.taken[other]
            for corner in corners:
                asked = better & outside
                np.minimum.at(heights[pair, side], corner[asked], sign * curve[asked])
                read[pair, side, corner[better | (near & grid.taken[best])]] = True
    return heights, read


def divided(read: NDArray[np.bool_], heights: Array, expected: Array, bound: Array, delta: float) -> Array:
    """Shares that add up to 1, most of them where margins are forecast to be thin; all arrays ``[C, 2, N]``.

    Args:
        read: bounds that are read.
        heights: the advantage that is forecast, infinite where none is asked for.
        expected: ΣZ² of the fresh data.
        bound: |Z|.
        delta: of all bands together.
    """
    everything = np.full(read.shape, 1 / read.size)
    if not read.any():
        return everything
    level, margins = read / read.sum(), np.isfinite(heights)
    if not margins.any():
        return np.asarray((_SHARP + _LEVEL) * level + (1 - _SHARP - _LEVEL) * everything)
    height, v, b = heights[margins], np.maximum(expected[margins], 1e-300), np.maximum(bound[margins], 1e-150)

    def spent(margin: float) -> Array:
        """e^−L at every point, with the L that leaves the margin.

        The least radius of `inequalities.sloped` is r = yΣZ²/b, where y − log(1 + y) = Lb²/ΣZ².
        """
        radius = np.maximum(height - margin, 0.0) / _RADII
        y = np.minimum(radius * b, 1e150 * v) / v  # at most 1e150, without overflow
        small = np.minimum(y, 1e-4)
        gaps = np.where(y < 1e-4, small**2 / 2 - small**3 / 3, y - np.log1p(y))
        return np.exp(-np.minimum(gaps * v / b**2, _MOST_LOG))

    low = high = float(height.min())
    while spent(low).sum() > delta and high - low < 1e6 * (abs(high) + 1):
        low -= 2 * (high - low) + 1e-6 * (abs(high) + 1e-9)
    for _ in range(_ROUNDS):
        middle = (low + high) / 2
        low, high = (middle, high) if spent(middle).sum() <= delta else (low, middle)
    sharp = np.zeros(read.shape)
    sharp[margins] = spent(low)
    return np.asarray(_SHARP * sharp / sharp.sum() + _LEVEL * level + (1 - _SHARP - _LEVEL) * everything)
