"""Which weights of features an expert allows, with probability 1 − δ: all others are refuted (docs/notes/ranges.md).

A certificate of each feature, as a reward, bounds what it adds to every advantage at every state. A mixture of states
and actions at which all weights beyond an end would make another action better is the proof that there are none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from certirl.data.policy import as_policy
from certirl.data.source import as_source
from certirl.fit.program import numbers_of
from certirl.fit.ranges import WeightRanges
from certirl.functions.features import Features
from certirl.functions.reward import Reward
from certirl.ground.domain import Array
from certirl.ground.doors import as_delta
from certirl.proof.certificate import Certificate
from certirl.proof.certify import certify

MOST_FEATURES = 8
ALONG = {1: 1_001, 2: 45}  # states along each coordinate at which weights are refuted, by the number of coordinates
_ALONG_MORE = 13
_OUTWARDS = (1e-4, 1e-3, 1e-2, 0.1)  # by which an end is moved until a refutation is found, as shares of it
_SMALLEST = 1e-2  # an end nearer to 0 is moved as this one
_ROUNDING = 1e-14  # of the bands, outwards
_SETTINGS = ("expert", "tail", "columns", "samples", "rng", "tube", "paired", "progress", "map")


def prove_ranges(
    found: WeightRanges,
    features: Features,
    ratios: Sequence[tuple[int, int]],
    signs: Array,
    source: Any,
    *,
    expert: Any,
    discount: float,
    delta: float,
    settings: dict[str, Any],
) -> WeightRanges:
    """The ranges outside of which no weights make the expert optimal, with probability 1 − δ.

    The sizes of the estimated ranges ``found`` are the units; ``ratios`` are pairs of features, ``signs`` those that
    were asked for: −1, 0 (any) or 1, and ``settings`` others of `certify`.
    """
    p = features.size
    if any(features.acting) or "terminal" in features.functions:
        raise ValueError("ranges are proved for features of the state alone: leave delta out")
    if p > MOST_FEATURES:
        raise ValueError(f"ranges are proved for at most {MOST_FEATURES} features, got {p}: leave delta out")
    for name in settings:
        if name not in _SETTINGS:
            raise TypeError(f"ranges with delta take source and {', '.join(_SETTINGS)}, as certify does; got {name!r}")
    delta = as_delta(delta)
    asked: dict[str, Any] = {"expert": expert, "discount": discount, "delta": delta / p, **settings}
    proofs = tuple(certify(Reward(features, unit), source, **asked) for unit in np.eye(p))
    low, high = _bands(proofs, source, expert)
    units = np.where(found.sizes > 0, found.sizes, 1.0)
    cones = [
        cone
        for sign in (np.array(each) for each in product((1.0, -1.0), repeat=p))
        if (sign * signs >= 0).all()
        and not (cone := _Cone(sign, np.where(sign > 0, high, -low) / units)).refutes(np.zeros(p))
    ]
    scale = float(np.abs(found.found[:p] * units).sum())
    ends = [[_farthest(cones, side, partial(_Cone.weight, index=i)) for side in (-1, 1)] for i in range(p)]
    ratio = [[_farthest(cones, side, partial(_Cone.ratio, pair=pair)) for side in (-1, 1)] for pair in ratios]
    inside = np.array(ends) * (scale / units)[:, None]
    turned = np.reshape(ratio, (-1, 2)) * np.array([units[j] / units[i] for i, j in ratios]).reshape(-1, 1)
    least, largest = np.concatenate([inside, turned]).T
    return replace(found, low=least, high=largest, compared=len(low), left_out=0, proofs=proofs)


def _bands(proofs: Sequence[Certificate], source: Any, expert: Any) -> tuple[Array, Array]:
    """Bounds of what each feature adds to the advantage of an action of the expert's over another one ``[K, p]``."""
    origin = as_source(source)
    states = origin.domain.mesh(ALONG.get(len(origin.domain), _ALONG_MORE))
    taken = as_policy(expert, origin.n_actions, origin.action_names).probabilities(states) > 0
    each = []
    for proof in proofs:
        (ground,) = proof.grounds
        parts = []
        for band in ground.bands.pairs:
            (b, a), curve = band.pair, band.estimate(states)
            ends = curve - band.radius(states, 0), curve + band.radius(states, 1)
            for better, (low, high) in ((b, ends), (a, (-ends[1], -ends[0]))):
                parts.append(ground.surrogate.unit * np.stack([low, high])[:, taken[:, better]])
        each.append(np.concatenate(parts, axis=1))
    low, high = np.stack(each, axis=2)
    kept = np.isfinite(low).all(axis=1) & np.isfinite(high).all(axis=1)
    return (low - _ROUNDING * np.abs(low))[kept], (high + _ROUNDING * np.abs(high))[kept]


def _farthest(cones: Sequence[_Cone], side: int, end: Callable[..., float]) -> float:
    """The least (side −1) or largest end of all signs that are not refuted; NaN if all are."""
    return max((side * end(cone, side=side) for cone in cones), default=np.nan) * side


class _Cone(NamedTuple):
    """Weights with these signs: z = σcθ ≥ 0 with Bz ≥ 0."""

    signs: Array  # σ ``[p]``
    rows: Array  # B ``[K, p]``

    def weight(self, *, index: int, side: int) -> float:
        """The least or largest cθ of a feature where Σ z = 1, or beyond."""
        goal = side * self.signs[index] * np.eye(len(self.signs))[index]
        return side * self._bound(goal, np.ones(len(goal)), max(float(goal.max()), 0.0))

    def ratio(self, *, pair: tuple[int, int], side: int) -> float:
        """The least or largest ratio of two cθ, or beyond."""
        upper, lower = pair
        unit = np.eye(len(self.signs))
        goal = side * self.signs[upper] * self.signs[lower] * unit[upper]
        return side * self._bound(goal, unit[lower], np.inf)

    def _bound(self, goal: Array, unit: Array, most: float) -> float:
        """A number t that goal @ z / unit @ z exceeds nowhere: all that is beyond is refuted; at most ``most``."""
        from scipy.optimize import linprog

        best = linprog(
            -goal, A_ub=-self.rows, b_ub=np.zeros(len(self.rows)), A_eq=unit[None], b_eq=[1.0], method="highs"
        )
        if best.status != 0:
            return most
        reached = -float(best.fun)
        for share in _OUTWARDS:
            end = reached + share * max(abs(reached), _SMALLEST)
            if end < most and self.refutes(goal - end * unit):
                return end
        return most

    def refutes(self, goal: Array) -> bool:
        """Whether a mixture y of rows has goal + yB < 0, so that no z ≠ 0 has goal @ z ≥ 0."""
        from scipy.optimize import linprog

        count, p = self.rows.shape
        answer = linprog(
            np.append(np.zeros(count), -1.0),
            A_ub=np.column_stack([self.rows.T, np.ones(p)]),
            b_ub=-goal,
            bounds=[*[(0, None)] * count, (None, 1)],
            method="highs",
        )
        mixed = numbers_of(answer.x, count + 1) if answer.status == 0 else None
        if mixed is None:
            return False
        y = np.maximum(mixed[:-1], 0.0)
        size = np.abs(goal) + y @ np.abs(self.rows)
        return bool((goal + y @ self.rows < -4 * (count + 2) * 2.0**-53 * size).all())
