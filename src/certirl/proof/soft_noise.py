"""What a soft expert's reward owes to the dynamics, where drifts are affine and the noise is known.

Section 5 of docs/notes/soft-experts.md; numbers in brackets are those of its equations.
"""

from __future__ import annotations

from math import exp, inf

import numpy as np
from scipy.special import ndtr

from certirl.ground.domain import Array, Box
from certirl.proof.drift import PEAK, Drift
from certirl.proof.known_noise import _ROUNDING, _Kernel
from certirl.proof.odds import Choices, Odds, Parts, convex_rest, leverage, placed

CELLS = 1000  # between nodes
_BLOCK = 512  # states worked on at once


class KnownEffects:
    """γ(P_0 − P_a)V for affine drifts and known Gaussian noise, on an interval that is [−1, 1] here: section 5.

    Functions of the state are linear between nodes; vectors of them stand in columns. 0 is the reference.
    """

    def __init__(self, drift: Drift, box: Box, discount: float, odds: Odds, reach: Array) -> None:
        ((low, high),) = box
        self.low, self.half, self.gamma = low, (high - low) / 2, discount
        self.drift, self.odds, self.reach = drift, odds, reach
        self.nodes = np.linspace(-1.0, 1.0, CELLS + 1)
        self.step = 2 / CELLS
        self.bent = self.step**2 / 8  # times a second derivative: how far functions are from lines between nodes
        std = drift.std
        self.k1, self.k2, self.k3 = PEAK / std, 2 * PEAK * exp(-0.5) / std**2, PEAK * (1 + 4 * exp(-1.5)) / std**3
        self.own = drift.shape[odds.reference]
        self._solve()

    def _solve(self) -> None:
        """V̂ and its derivatives U by the drift of the reference and F by the log-odds; then what is left."""
        odds, gamma, nodes = self.odds, self.gamma, self.nodes
        kernel, size = self._kernel(odds.reference, nodes), len(nodes)
        operator = np.eye(size)
        operator[:, 0] -= gamma
        means = kernel.mean()
        operator[:, 1:] -= gamma * means
        operator[:, :-1] += gamma * means
        self.resolvent = np.linalg.inv(operator)
        choices = odds.at(self._states(nodes))
        slopes = self.half * odds.basis.derivative(self._states(nodes)) @ odds.coefficients.T
        rise = _sup(np.ptp(slopes, axis=1), odds.basis.degree, self.bent)
        second = self._second_order(choices, rise)
        reward = choices.cost + second / 2
        self.value = self.resolvent @ (reward - (reward.max() + reward.min()) / 2)
        x = np.stack([np.ones(size), nodes], axis=1)
        self.by_drift = self.resolvent @ (gamma * (kernel.slope() @ np.diff(self.value))[:, None] * x)
        self.by_odds = self.resolvent @ odds.effects(self._states(nodes))
        self.height = float(np.ptp(self.value))
        self.spans = _span(self.by_drift, np.linalg.cholesky(self.own)) + _span(self.by_odds, self.reach)
        self._bound_rest(second, rise, kernel)

    def _second_order(self, choices: Choices, rise: float) -> Array:
        """(8): what the log-odds' error adds to −log π_0 beyond its first order, at most, in the cells at a node."""
        odds, degree = self.odds, 2 * self.odds.basis.degree

        def around(squares: Array) -> Array:
            """Roots of polynomials in the cells at a node, at most."""
            sup = _sup(squares, degree, self.bent)
            far = np.sqrt(squares + self.bent * _most_bent(degree) * sup)
            return np.maximum(far, np.maximum(np.append(far[1:], far[-1]), np.append(far[0], far[:-1])))

        apart = leverage(choices.x, self.reach)
        each = [(rows @ self.reach) ** 2 for rows in placed(choices.x, len(odds.others))]
        far = np.stack([around(rows.sum(axis=1)) for rows in each], axis=1) + odds.tail
        self.widest = _sup(apart, degree, self.bent) ** 0.5
        corners = exp(rise * self.step) * np.expm1(convex_rest(choices.chances, odds.others, far))
        return np.asarray(np.minimum(corners, (around(apart) + 2 * odds.tail) ** 2 / 8))

    def _bound_rest(self, second: Array, rise: float, kernel: _Kernel) -> None:
        """f of (11) in every cell and at both ends, and Ω of (12)."""
        odds, gamma, nodes, drift = self.odds, self.gamma, self.nodes, self.drift
        spread, degree = drift.spread(nodes)[odds.reference], odds.basis.degree
        steep, turning = float(np.abs(drift.coefficients[:, 1]).max()), float(self.own[1, 1]) ** 0.5
        between = degree**2 * rise + rise**2 / 4
        between += self.widest * (rise**2 / 2 + 2 * degree**2 * rise + _most_bent(degree))
        between += gamma * steep**2 * self.k2 * (self.height + self.spans)
        between += gamma * self.height * (steep**2 * self.k3 * float(spread.max()) + 2 * steep * self.k2 * turning)
        move = steep * self.step  # of drifts within a cell
        slope = _in_cells(self._slope(kernel)) + move * self.k2 * self.spans
        bend = _in_cells(self._bend(kernel)) + move * self.k3 * self.height
        wide = _in_cells(spread)
        masses = self._masses(odds.reference, nodes)
        self.later = gamma * self.resolvent @ masses  # w less f at the nodes is this times f
        wandering = gamma * wide[:, None] * _in_cells(self._wandering(odds.reference, nodes, kernel))
        known = _in_cells(second) + _in_cells(-second) / 2 + odds.tail + self.bent * between
        known += gamma * self._moved(wide, slope, bend)
        self.lines = gamma * self.bent * steep**2 * self.k2 / (1 - gamma)  # of Ω: how far w is from lines, smoothed
        share = gamma * wide * self._turned(wide + 2 * move)
        self.sources = np.linalg.solve(np.eye(len(known)) - wandering, np.stack([known, share], axis=1)).T
        if not (self.sources > 0).all():
            self.sources = np.full((2, len(known)), inf)
        weights = self.later - gamma * self.resolvent.mean(axis=0) @ masses
        tops = (np.abs(weights) @ self.sources.T).max(axis=0) + self.sources.max(axis=1)
        first, growth = 2 * tops + 4 * self._uneven(np.array([gamma / (1 - gamma)]))[0] + [0.0, 2 * self.lines]
        self.span = float(first / (1 - growth)) if growth < 1 else inf
        self.source = np.array([1.0, self.span]) @ self.sources
        sizes = float(np.abs(self.value).max()) + self.height + self.spans + self.span
        self.rounding = _ROUNDING * (drift.std / self.step + len(nodes)) * sizes / (1 - gamma)

    def _slope(self, kernel: _Kernel) -> Array:
        """The derivative of E u₁(clip(y + ξ)) by y at most, u₁ the first order of the error of V̂."""
        roots = (self.by_drift @ np.linalg.cholesky(self.own), self.by_odds @ self.reach)
        return np.asarray(sum(np.linalg.norm(kernel.slope() @ np.diff(root, axis=0), axis=1) for root in roots))

    def _bend(self, kernel: _Kernel) -> Array:
        return np.abs(kernel.curvature() @ np.diff(self.value))

    def _moved(self, spread: Array, slope: Array, bend: Array) -> Array:
        """|(P_c − T_c)u₁| and |H(m_c) − H(m̂_c) − H'(m̂_c)δ_c| at most, together."""
        square = spread**2 / 2
        return np.asarray(spread * slope + square * (self.k2 * self.spans + bend + self.k3 * self.height * spread / 3))

    def _uneven(self, weights: Array) -> Array:
        """∫|density| less |∫ density|, over all cells, where a density is this much of normal ones ``[n, 2]``."""
        return np.asarray(self.step**2 * self.k2 / 8 * weights[:, None] * self.sources[:, 1:-1].sum(axis=1))

    def _wandering(self, action: int, places: Array, kernel: _Kernel) -> Array:
        """∫|k'| over the lower end, all cells and the upper end, ∂/∂y E w(clip(y + ξ)) = ∫k'f ``[n, N + 2]``."""
        std = self.drift.std
        u = (self.nodes - self._line(action, places)[:, None]) / std
        density = PEAK * np.exp(-(u**2) / 2) / std
        weights = self.gamma * kernel.slope() @ np.diff(self.resolvent, axis=0)
        whole = weights @ self._masses(self.odds.reference, self.nodes)
        whole -= np.diff(density, axis=1, prepend=0.0, append=0.0)
        steep = PEAK / std**3 + np.abs(weights).sum(axis=1) * self.k2 / 2
        return np.asarray(np.abs(whole) + self.step**2 / 4 * steep[:, None])

    def _turned(self, spread: Array) -> Array:
        """What the derivative of E w(clip(y + ξ)) can change by, and be off between nodes, as a share of Ω."""
        return np.asarray(self.k2 * spread / 2 + 2 * self.k1 * self.lines)

    def _states(self, places: Array) -> Array:
        return (self.low + self.half * (places + 1))[:, None]

    def _line(self, action: int, places: Array) -> Array:
        return self.drift.coefficients[action] @ np.stack([np.ones_like(places), places])

    def _kernel(self, action: int, places: Array) -> _Kernel:
        return _Kernel(self._line(action, places), self.nodes, self.drift.std)

    def _masses(self, action: int, places: Array) -> Array:
        """T_c: of the lower end, of all cells, of the upper end ``[n, N + 2]``."""
        below = ndtr((self.nodes - self._line(action, places)[:, None]) / self.drift.std)
        return np.diff(below, axis=1, prepend=0.0, append=1.0)

    def parts(self, states: Array, action: int) -> Parts:
        """(13) at states ``[n, 1]``."""
        starts = range(0, len(states), _BLOCK)
        blocks = zip(*(self._parts(states[i : i + _BLOCK], action) for i in starts), strict=True)
        return Parts(*(np.concatenate(block, axis=-1) for block in blocks))

    def _parts(self, states: Array, action: int) -> Parts:
        odds, gamma, drift, own = self.odds, self.gamma, self.drift, self.odds.reference
        places = np.clip((states[:, 0] - self.low) / self.half - 1, -1.0, 1.0)
        kernels = {c: self._kernel(c, places) for c in (own, action)}
        apart = kernels[own].mean() - kernels[action].mean()
        estimate = odds.at(states).odds[:, action] + gamma * apart @ np.diff(self.value)
        by_odds = odds.functionals(states, action) + gamma * apart @ np.diff(self.by_odds, axis=0)
        x = np.stack([np.ones_like(places), places], axis=1)
        by_drift = np.zeros((len(states), odds.n_actions, 2))
        by_drift[:, own] = apart @ np.diff(self.by_drift, axis=0)
        spread, rest = drift.spread(places), np.zeros(len(states))
        for sign, c in ((1, own), (-1, action)):
            by_drift[:, c] += sign * (kernels[c].slope() @ np.diff(self.value))[:, None] * x
            rest += self._moved(spread[c], self._slope(kernels[c]), self._bend(kernels[c]))
            near = self._wandering(c, places, kernels[c]) @ self.source
            rest += spread[c] * (near + self._turned(spread[c]) * self.span)
        weights = gamma * apart @ np.diff(self.resolvent, axis=0)
        masses = self._masses(own, places) - self._masses(action, places) + apart @ np.diff(self.later, axis=0)
        scale = np.array([1.0, self.span])
        rest += np.abs(masses) @ self.source + self._uneven(2 + np.abs(weights).sum(axis=1)) @ scale
        return Parts(
            estimate,
            np.linalg.norm(by_odds @ self.reach, axis=1),
            np.tile(gamma * drift.size(by_drift), (2, 1)),
            np.tile(odds.tail + gamma * (rest + 2 * self.lines * self.span) + self.rounding, (2, 1)),
        )


def _in_cells(values: Array) -> Array:
    """The larger end of every cell, with the values at both ends of the interval ``[N + 2, …]``."""
    return np.concatenate([values[:1], np.maximum(values[1:], values[:-1]), values[-1:]])


def _most_bent(degree: int) -> float:
    """Markov: the second derivative on [−1, 1] of a polynomial that nowhere exceeds 1 there."""
    return degree**2 * (degree**2 - 1) / 3


def _sup(values: Array, degree: int, bent: float) -> float:
    """The supremum of polynomials, from their values at evenly spaced nodes."""
    return float(values.max()) / (1 - bent * _most_bent(degree))


def _span(functions: Array, root: Array) -> float:
    """The span of a combination Σ v_j f_j, |v·z| ≤ ‖z root‖ for all z, from values of the f_j ``[n, j]``."""
    middle = (functions.max(axis=0) + functions.min(axis=0)) / 2
    return 2 * float(np.linalg.norm((functions - middle) @ root, axis=1).max())
