"""What a soft expert's reward owes to the dynamics, by columns with a tail and independent rows.

Section 4 of docs/notes/soft-experts.md; numbers in brackets are those of its equations.
"""

from __future__ import annotations

from math import exp, inf

import numpy as np

from certirl.fit.logit import placed
from certirl.functions.frame import frame
from certirl.functions.inequalities import hoeffding_norm, log_term
from certirl.ground.domain import Array, mesh
from certirl.proof.certificate import Ground
from certirl.proof.functionals import workings
from certirl.proof.odds import Odds, Parts, leverage, spread_of

_BLOCK = 4096  # states worked on at once
_CELLS = {1: 4000, 2: 200, 3: 50}  # along each coordinate, for suprema of functions that are no expansions


class ColumnEffects:
    """γ(P_0 − P_a)V from columns with a tail and independent rows: section 4. 0 is the reference.

    The ground is that of the constant expert 0 under −log π̂_0, ``sums`` are Σ x f(s') over the rows of every action, f
    the functions of `changes` ``[A, m + 1, k]``, and δ is for the error that the log-odds cause.
    """

    def __init__(self, ground: Ground, sums: Array, odds: Odds, reach: Array, delta: float) -> None:
        s = ground.surrogate
        self.odds, self.reach, self.unit, self.gamma = odds, reach, s.unit, s.discount
        self.work, self.bands = workings(s, ground.evidence), {band.pair: band for band in ground.bands.pairs}
        self.sums, self.frame, self.mesh = sums, s.frame, s.frame.mesh(s.shares.shape[2:])
        work, self.tail = self.work, (ground.tail or 0.0)
        weights = work.of_error(np.linalg.inv(s.mix).T[1:])
        self.centre = np.einsum("cik,cjk->ij", weights, sums)
        self.centre = np.full_like(self.centre, inf) if work.inverse is None else work.inverse @ self.centre
        form = np.sum(weights @ work.gram @ weights.swapaxes(1, 2), axis=0)
        self.events = log_term(2 + 4 * odds.n_actions * len(self.mesh.states), delta)
        self.vector = (1 + self.gamma) * self.tail * work.error.magnified
        if len(form):
            self.vector += float(hoeffding_norm(np.trace(form), np.linalg.eigvalsh(form)[-1], self.events))
        self._bound_values()

    def _noise(self, weights: Array, direct: float) -> tuple[Array, float]:
        """Of functionals at the mesh the noise and the tail, for a function of half-span 1: (9) ``[N]``."""
        work = self.work
        squares = np.maximum(np.einsum("cni,cij,cnj->cn", weights, work.gram, weights), 0.0)
        whole = np.sqrt(squares).sum(axis=0) ** 2 if work.e.paired else squares.sum(axis=0)
        turned = np.full(len(whole), inf)
        if work.inverse is not None:
            turned = np.linalg.norm(work.observed(weights) @ work.inverse, axis=1)
        magnified = self.mesh.factor * float(np.sqrt(work.e.counts[:, None] * squares).sum(axis=0).max())
        noise = np.sqrt(2 * self.events * whole) + self.vector * turned
        return noise, self.tail * (direct + (1 + self.gamma) * magnified)

    def _curves(self, weights: Array) -> Array:
        """What functionals say of the functions of `changes`, in the harmonics, from weights at each ``[k, m + 1]``."""
        return np.asarray(np.einsum("cnk,cjk->nj", weights, self.sums) + self.work.observed(weights) @ self.centre)

    def _bound_values(self) -> None:
        """h of (9) for what the log-odds' error does to V up to second order, and for the most of what is left."""
        odds, W, inner, own = self.odds, self.reach, frame(self.odds.basis).dense, self.frame.dense
        self.curve = self._curves(self.work.of_error(np.eye(self.frame.size)))
        self.noise, self.rest = self._noise(self.work.of_error(self.frame.values(self.mesh.states)), self.gamma)
        growth = self.rest + self.mesh.factor * float(self.noise.max())
        count, sides = _CELLS[odds.basis.dimension], np.array(odds.basis.domain)
        half = np.diff(sides, axis=1)[:, 0] / (2 * count)
        middles = mesh([low + side * (2 * np.arange(count) + 1) for low, side in zip(sides[:, 0], half, strict=True)])
        others = len(odds.others)
        # How far functions can move from the middle of a cell within it.
        far = inner.factor * max(_lengths(rows @ W).max() for rows in placed(odds.basis.values(inner.states), others))
        apart, rise, turned, risen = np.zeros(others), 0.0, 0.0, 0.0
        for axis, side in enumerate(half):
            slopes = odds.basis.derivative(inner.states, axis)
            apart += side * inner.factor * np.array([_lengths(rows @ W).max() for rows in placed(slopes, others)])
            rise += side * inner.factor * float(np.ptp(slopes @ odds.coefficients.T, axis=1).max())
            steep = self.frame.basis.derivative(own.states, axis) / self.frame.basis.sup() @ self.curve
            lines, forms, last = self._split(steep)
            turned += side * own.factor * float((_lengths(lines) + _largest(forms)).max())
            risen += side * own.factor * float(np.abs(last).max())
        few = self._changed(middles[:: max(len(middles) // _BLOCK, 1)])
        middle, form, _ = self._split((few.max(axis=0) + few.min(axis=0))[None] / 2)  # any would do
        first, most, least = 0.0, -inf, inf
        for start in range(0, len(middles), _BLOCK):
            block = middles[start : start + _BLOCK]
            choices, (lines, forms, last) = odds.at(block), self._split(self._changed(block))
            each = np.stack([rows @ W for rows in placed(choices.x, others)], axis=1)
            spread, reach = spread_of(choices.chances[:, odds.others], each), _lengths(each) + apart
            moved = (exp(rise) * (spread + apart.max()) ** 2 - spread**2) / 2
            first = max(first, float((_lengths(lines - middle) + _largest(forms - form) + moved).max()))
            wide = np.sqrt(leverage(choices.x, W)) + 2 * float(apart.max())
            top = odds.bound_remainder(choices.chances, spread + float(apart.max()), reach, wide, rise)
            most, least = max(most, float((top + last).max())), min(least, float(last.min()))
        first += rise * float(far) + float(apart.max()) + turned
        second = (most - least) / 2 + risen
        self.first, self.second = (size / (1 - growth) if growth < 1 else inf for size in (first, second))

    def parts(self, states: Array, action: int) -> Parts:
        """(10) at states ``[n, d]``."""
        odds, gamma, own = self.odds, self.gamma, self.odds.reference
        pair = (min(own, action), max(own, action))
        band, sign = self.bands[pair], 1.0 if own < action else -1.0
        below, above = (gamma * self.unit * band.radius(states, side) for side in (0, 1))
        noise, tail = self._noise(self.work.weights(own, action, self.frame.values(self.mesh.states)), 2.0)
        radius, stayed = self._between(noise, states) + tail, self._between(self.noise, states) + self.rest
        h = self.frame.values(states)
        curve = gamma * h @ self._curves(self.work.weights(own, action, np.eye(self.frame.size)))
        lines, forms, last = self._split(curve)
        later = h @ self.curve[:, -1] + self.second * stayed  # γP_0 of the most that is left
        rest = gamma * self.first * radius + odds.tail * (1 + 2 * gamma / (1 - gamma))
        rest += np.maximum(2 * later - last + gamma * self.second * radius, 0.0)
        ends = np.linalg.eigvalsh(forms)[:, [0, -1]].T
        return Parts(
            odds.at(states).odds[:, action] + gamma * self.unit * sign * band.estimate(states),
            _lengths(odds.functionals(states, action) @ self.reach + lines),
            np.stack([below, above] if sign > 0 else [above, below]),
            rest + np.maximum([-ends[0], ends[1]], 0.0),
        )

    def _changed(self, states: Array) -> Array:
        """`changes` but the last, and what is observed of γP_0(I − γP_0)⁻¹ of each ``[n, …]``."""
        size = len(self.odds.score)
        later = self.frame.values(states) @ self.curve
        later[:, :size] += self.odds.effects(states)
        later[:, size:-1] += self.odds.bends(states)[:, *np.triu_indices(size)]
        return np.asarray(later)

    def _split(self, rows: Array) -> tuple[Array, Array, Array]:
        """By each coefficient times W ``[n, m]``, by two between Wᵀ and W ``[n, m, m]``, and the last ``[n]``."""
        size, W = len(self.odds.score), self.reach
        forms = np.zeros((len(rows), size, size))
        forms[:, *np.triu_indices(size)] = rows[:, size:-1]
        forms[:, *np.tril_indices(size)] = np.swapaxes(forms, 1, 2)[:, *np.tril_indices(size)]
        return rows[:, :size] @ W, W.T @ forms @ W, rows[:, -1]

    def _between(self, noise: Array, states: Array) -> Array:
        """Bounds at the mesh as bounds at states ``[n]``."""
        blended = self.frame.blended(noise.reshape(1, *self.mesh.counts), states)[0, 0]
        return np.asarray(np.minimum(blended, self.mesh.factor * noise.max()))


def changes(odds: Odds, reach: Array, states: Array) -> Array:
    """What log(1 + Σ e^L) changes by, at states ``[n, d]``, by first and second order, and the most of what is left.

    With each coefficient, with the products of each two, and at most: ``[n, m + m(m + 1)/2 + 1]``.
    """
    size = len(odds.score)
    upper = odds.bends(states)[:, *np.triu_indices(size)]
    return np.column_stack([odds.effects(states), upper, odds.remainder(reach, states)])


def _lengths(rows: Array) -> Array:
    """Of vectors, along the last axis."""
    return np.asarray(np.linalg.norm(rows, axis=-1))


def _largest(forms: Array) -> Array:
    """The largest size of an eigenvalue of symmetric matrices ``[n, m, m]``: ``[n]``."""
    return np.asarray(np.abs(np.linalg.eigvalsh(forms)).max(axis=1))
