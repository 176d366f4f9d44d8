"""What a soft expert's reward owes to the dynamics, where drifts are affine and the noise is known.

Section 5 of docs/notes/soft-experts.md; numbers in brackets are those of its equations.
"""

from __future__ import annotations

from math import exp, inf

import numpy as np
from scipy.linalg import block_diag
from scipy.special import ndtr

from certirl.fit.logit import Choices
from certirl.ground.domain import Array, Box
from certirl.proof.drift import COEFFICIENTS, PEAK, Drift
from certirl.proof.known_noise import _ROUNDING, _Kernel
from certirl.proof.odds import Odds, Parts, whitened

CELLS = 1000  # between nodes
_FINER = 8  # places in a cell at which polynomials are looked at
_FOURTH = 3.52  # half of ∫|φ''''|, times √2π
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
        sizes = (1.0, 2 * exp(-0.5), 1 + 4 * exp(-1.5), _FOURTH)  # times those of a density at its peak
        self.k1, self.k2, self.k3, self.k4 = (PEAK * size / std ** (n + 1) for n, size in enumerate(sizes))
        self.own = drift.shape[odds.reference]
        self._solve()

    def _solve(self) -> None:
        """V̂, its derivatives U by the drift of the reference and F by the log-odds, and by both; what is left."""
        odds, gamma, nodes = self.odds, self.gamma, self.nodes
        kernel, size = self._kernel(odds.reference, nodes), len(nodes)
        operator = np.eye(size)
        operator[:, 0] -= gamma
        means = kernel.mean()
        operator[:, 1:] -= gamma * means
        operator[:, :-1] += gamma * means
        self.resolvent = np.linalg.inv(operator)
        choices = odds.at(self._states(nodes))
        self.value = self.resolvent @ (choices.cost - (choices.cost.max() + choices.cost.min()) / 2)
        x = np.stack([np.ones(size), nodes], axis=1)
        self.by_drift = self.resolvent @ (gamma * (kernel.slope() @ np.diff(self.value))[:, None] * x)
        self.by_odds = self.resolvent @ odds.effects(self._states(nodes))
        slopes, bend = self._turns(kernel, nodes)
        forms = np.zeros((size, slopes.shape[2], slopes.shape[2]))
        forms[:, :COEFFICIENTS] += gamma * slopes
        forms[:, :, :COEFFICIENTS] += gamma * np.swapaxes(slopes, 1, 2)
        forms[:, :COEFFICIENTS, :COEFFICIENTS] += gamma * bend
        forms[:, COEFFICIENTS:, COEFFICIENTS:] += odds.bends(self._states(nodes))
        self.by_two = self.resolvent @ forms.reshape(size, -1)
        self.root = np.linalg.cholesky(self.own)
        self.height = float(np.ptp(self.value))
        self.spans = _span(self.by_drift, self.root) + _span(self.by_odds, self.reach)
        middle = (self.by_two.max(axis=0) + self.by_two.min(axis=0)) / 2
        self.bends = 2 * float(self._size(self.by_two - middle).max())
        self._bound_rest(choices, kernel)

    def _turns(self, kernel: _Kernel, places: Array) -> tuple[Array, Array]:
        """Of δ_c·d/dy E u₁(clip(y + ξ)) half the form in τ_c and (τ_0, Δ), and of ½H''(m̂_c)δ_c² that in τ_c."""
        x = np.stack([np.ones_like(places), places], axis=1)
        slopes = kernel.slope() @ np.diff(np.column_stack([self.by_drift, self.by_odds]), axis=0)
        bend = kernel.curvature() @ np.diff(self.value)
        return x[:, :, None] * slopes[:, None] / 2, bend[:, None, None] / 2 * x[:, :, None] * x[:, None]

    def _size(self, forms: Array) -> Array:
        """The most of |(τ_0, Δ)ᵀM(τ_0, Δ)| for forms M as rows ``[n, (2 + m)²]``: ``[n]``."""
        return np.asarray(np.max(_ends(forms, self.root, self.reach), axis=0))

    def _remainder(self, choices: Choices, rise: float) -> Array:
        """(8): what the log-odds' error adds to −log π_0 beyond its second order, at most, in the cells at a node."""
        odds, degree, count = self.odds, 2 * self.odds.basis.degree, len(self.nodes)
        places = self._states(np.linspace(-1.0, 1.0, (count - 1) * _FINER + 1))
        each = whitened(odds.basis.values(places), self.reach)
        squares = np.pad(each @ np.swapaxes(each, 1, 2), ((0, 0), (0, 1), (0, 1)))
        own = np.einsum("ncc->nc", squares)
        apart = (own[:, :, None] + own[:, None] - 2 * squares).max(axis=(1, 2))
        bent = self.bent / _FINER**2
        self.widest = _sup(apart, degree, bent) ** 0.5
        chances, sizes = choices.chances[:, [*odds.others, odds.reference]], np.zeros((2 + len(odds.others), count))
        for shift in range(-_FINER, _FINER + 1):  # along the cells at a node, with its chances
            near = np.clip(np.arange(count) * _FINER + shift, 0, len(places) - 1)
            spread = (chances * own[near]).sum(axis=1) - np.einsum("nc,ncd,nd->n", chances, squares[near], chances)
            sizes = np.maximum(sizes, [spread, apart[near], *own[near, :-1].T])
        spread, wide, *far = np.sqrt(sizes + bent * _most_bent(degree) * self.widest**2)
        return odds.bound_remainder(choices.chances, spread, np.stack(far, axis=1), wide, rise * self.step)

    def _bound_rest(self, choices: Choices, kernel: _Kernel) -> None:
        """f of (11) in every cell and at both ends, and Ω of (12)."""
        odds, gamma, nodes, drift = self.odds, self.gamma, self.nodes, self.drift
        spread, square = drift.spread(nodes)[odds.reference], odds.basis.degree**2
        slopes = self.half * odds.basis.derivative(self._states(nodes)) @ odds.coefficients.T
        rise = _sup(np.ptp(slopes, axis=1), odds.basis.degree, self.bent)
        left = self._remainder(choices, rise)
        steep, turning, far = float(np.abs(drift.coefficients[:, 1]).max()), float(self.own[1, 1]) ** 0.5, spread.max()
        between = square * rise + rise**2 / 4
        between += self.widest * (rise**2 / 2 + 2 * square * rise + _most_bent(odds.basis.degree))
        between += self.widest**2 * (1.2 * rise**2 + 2.5 * square * rise + square**2 * 2 / 3)
        between += gamma * steep**2 * self.k2 * (self.height + self.spans + self.bends)
        between += gamma * (self.height + self.spans) * (steep**2 * self.k3 * far + 2 * steep * self.k2 * turning)
        between += gamma * self.height * (steep**2 * self.k4 * far**2 / 2 + 2 * steep * self.k3 * far * turning)
        between += gamma * self.height * self.k2 * turning**2
        move = steep * self.step  # of drifts within a cell
        slope, bend = (_in_cells(part) for part in self._moves(kernel))
        wide = _in_cells(spread)
        masses = self._masses(odds.reference, nodes)
        self.later = gamma * self.resolvent @ masses  # w less f at the nodes is this times f
        wandering = gamma * wide[:, None] * _in_cells(self._wandering(odds.reference, nodes, kernel))
        known = -_in_cells(-left) + odds.tail + self.bent * between
        known += gamma * self._moved(wide, slope + move * self.k2 * self.bends, bend + move * self.k3 * self.spans)
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
        sizes = float(np.abs(self.value).max()) + self.height + self.spans + self.bends + self.span
        self.rounding = _ROUNDING * (drift.std / self.step + len(nodes)) * sizes / (1 - gamma)

    def _moves(self, kernel: _Kernel) -> tuple[Array, Array]:
        """The derivative by y of E u₂(clip(y + ξ)), and the second one of E u₁(clip(y + ξ)), at most ``[n]``."""
        roots = (self.by_drift @ self.root, self.by_odds @ self.reach)
        turned = sum(np.linalg.norm(kernel.curvature() @ np.diff(root, axis=0), axis=1) for root in roots)
        return self._size(kernel.slope() @ np.diff(self.by_two, axis=0)), np.asarray(turned)

    def _moved(self, spread: Array, slope: Array, bend: Array) -> Array:
        """What is of third order in (P_c − T_c)(V̂ + u₁ + u₂), at most."""
        third = self.k3 * (self.height + self.spans) * spread**3 / 6
        return np.asarray(third + spread**2 / 2 * (bend + self.k2 * self.bends) + spread * slope)

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
        size = COEFFICIENTS + len(odds.score)
        forms, rest = np.zeros((len(states), COEFFICIENTS + size, COEFFICIENTS + size)), np.zeros(len(states))
        kept = np.delete(np.arange(COEFFICIENTS + size), range(COEFFICIENTS, 2 * COEFFICIENTS))
        forms[:, kept[:, None], kept] = (apart @ np.diff(self.by_two, axis=0)).reshape(-1, size, size)
        spread = drift.spread(places)
        for sign, c, here in ((1, own, kept[:COEFFICIENTS]), (-1, action, np.arange(COEFFICIENTS, 2 * COEFFICIENTS))):
            by_drift[:, c] += sign * (kernels[c].slope() @ np.diff(self.value))[:, None] * x
            slopes, bend = self._turns(kernels[c], places)
            forms[:, here[:, None], kept] += sign * slopes
            forms[:, kept[:, None], here] += sign * np.swapaxes(slopes, 1, 2)
            forms[:, here[:, None], here] += sign * bend
            near = self._wandering(c, places, kernels[c]) @ self.source
            rest += self._moved(spread[c], *self._moves(kernels[c]))
            rest += spread[c] * (near + self._turned(spread[c]) * self.span)
        weights = gamma * apart @ np.diff(self.resolvent, axis=0)
        masses = self._masses(own, places) - self._masses(action, places) + apart @ np.diff(self.later, axis=0)
        scale = np.array([1.0, self.span])
        rest += np.abs(masses) @ self.source + self._uneven(2 + np.abs(weights).sum(axis=1)) @ scale
        roots = block_diag(self.root, np.linalg.cholesky(drift.shape[action]))
        return Parts(
            estimate,
            np.linalg.norm(by_odds @ self.reach, axis=1),
            np.tile(gamma * drift.size(by_drift), (2, 1)),
            odds.tail + gamma * (rest + 2 * self.lines * self.span + _ends(forms, roots, self.reach)) + self.rounding,
        )


def _ends(forms: Array, root: Array, reach: Array) -> Array:
    """The most of −zᵀMz and of zᵀMz, z = (τ, Δ), for the sets of τ and of Δ ``[2, n]``."""
    p, size = len(root), len(root) + len(reach)
    whole = forms.reshape(len(forms), size, size)
    both = 2 * np.linalg.norm(root.T @ whole[:, :p, p:] @ reach, ord=2, axis=(1, 2))
    parts = (root.T @ whole[:, :p, :p] @ root, reach.T @ whole[:, p:, p:] @ reach)
    ends = sum(np.maximum(np.linalg.eigvalsh(part)[:, [0, -1]].T * [[-1.0], [1.0]], 0.0) for part in parts)
    return np.asarray(both + ends)


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
