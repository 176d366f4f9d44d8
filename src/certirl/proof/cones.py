"""Cones of value functions, each with the mixture of rows that should refute it; settled on training data.

Forecasts only: whatever is chosen here, the proof is that of docs/notes/refutation.md.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
from dataclasses import dataclass

import numpy as np

from certirl.fit.program import least_norm
from certirl.functions.extrema import first_of_least
from certirl.ground.domain import Array

# Cones are halved until the training data clear the forecast error this many times over, or there are so many.
COMFORT, CONES = 2.0, 300


@dataclass(frozen=True, eq=False)
class Fan:
    """Cones that cover the w-space, in coordinates in which the noise is round; forecasts only, nothing is proved."""

    points: Array  # the rows ρ_i [m, p]; rival by rival where there are shares
    contrast: Array  # how much of every action's P_cφ is in a row [m, A], with sum 0
    lever: Array  # [k_s, m]; squared lengths are the variances of fits at the states of the rows, for unit noise
    noise: Array  # covariances of φ(s') within and between actions [A, A, p, p]
    values: Array  # φ at some states [p, …], for the range of w·φ
    tail: float  # this and the next two will enter the bounds
    samples: float
    L: float
    shares: Array | None
    most: int  # cones

    def grown(self) -> tuple[Array, Array]:
        """Halve the least clear cone of a simplex, and so on: cones ``[F, p, p]``, a direction a row, and mixtures."""
        p, corners, number = self.points.shape[1], self._simplex(), itertools.count()
        heap, new = list[tuple[float, int, Array, Array]](), [np.delete(corners, v, axis=0) for v in range(p + 1)]
        while True:
            for cone in new:
                clearance, mixture = self._against(cone)
                heapq.heappush(heap, (clearance, next(number), cone, mixture))
            clearance, _, cone, _ = heap[0]
            known = self._lowest(cone).max() >= 0  # one direction is a reward, on training data
            if p == 1 or known or clearance > COMFORT or len(heap) >= self.most:
                return np.array([entry[2] for entry in heap]), np.array([entry[3] for entry in heap])
            heapq.heappop(heap)
            i, j = divmod(first_of_least((cone @ cone.T).ravel()), p)  # the widest angle
            new = [cone.copy(), cone.copy()]
            new[0][i] = new[1][j] = (cone[i] + cone[j]) / np.linalg.norm(cone[i] + cone[j])

    def _simplex(self) -> Array:
        """p + 1 unit vectors with sum zero; the first one is a reward, if the training data allow any."""
        from scipy.linalg import helmert

        p = self.points.shape[1]
        corners = helmert(p + 1).T * np.sqrt(1 + 1 / p)
        reward, _ = least_norm(self.points / (float(np.linalg.norm(self.points, axis=1).max()) or 1.0))
        if reward is not None:  # reflect the first corner into it
            mirror = corners[0] - reward / np.linalg.norm(reward)
            corners = corners - 2 * np.outer(corners @ mirror, mirror) / max(float(mirror @ mirror), 1e-30)
        return corners

    def _against(self, cone: Array) -> tuple[float, Array]:
        """How many errors x(λ) clears zero by, and the λ ≥ 0 with w_v·x(λ) ≤ −1 in every direction and least error."""
        p, forms = len(cone), self._forms(cone)
        error = self._error(forms)
        pull = cone @ self.points.T + self.tail * np.ptp(cone @ self.values, axis=1)[:, None]
        unit, heavy = float(np.abs(pull).max()) or 1.0, 1e3 * float(np.abs(error).max())
        error = np.vstack([error, heavy * self._astray()])
        system = np.block([[error, np.zeros((len(error), p))], [heavy / unit * pull, heavy * np.eye(p)]])
        goal = np.concatenate([np.zeros(len(error)), np.full(p, -heavy)])
        mixture = self._shared(_least(system, goal, slack=p))
        h = (self.contrast * mixture[:, None]).T @ self.lever.T
        return -float((pull @ mixture / np.sqrt(np.einsum("vab,ab->v", forms, h @ h.T))).max()), mixture

    def vanishing(self, axes: Array) -> Array:
        """The mixture that is shortest, along the axes ``[v, p]`` and with its error: ``[m]``."""
        error = self._error(self._forms(axes))
        system = np.vstack([axes @ self.points.T, error])
        heavy = 1e3 * float(np.abs(system).max())
        system = np.vstack([system, heavy * self._astray()])
        goal = np.append(np.zeros(len(system)), heavy)
        return self._shared(_least(np.vstack([system, np.full(len(self.points), heavy)]), goal))

    def _lowest(self, directions: Array) -> Array:
        """The least w·ρ of all rows, or Σ_a ν_a times the least of each rival's, for every direction."""
        each = directions @ self.points.T
        if self.shares is None:
            return np.asarray(each.min(axis=1))
        return np.asarray(each.reshape(len(directions), len(self.shares), -1).min(axis=2) @ self.shares)

    def _astray(self) -> Array:
        """Rows that vanish for mixtures with the right shares ``[R, m]``."""
        if self.shares is None:
            return np.zeros((0, len(self.points)))
        own = np.repeat(np.eye(len(self.shares)), len(self.points) // len(self.shares), axis=1)
        return own - self.shares[:, None]

    def _shared(self, mixture: Array) -> Array:
        """The mixture with its shares put right."""
        if self.shares is None:
            return mixture
        groups = mixture.reshape(len(self.shares), -1) + 1e-12
        return (groups * (self.shares / groups.sum(axis=1))[:, None]).ravel()

    def _forms(self, cone: Array) -> Array:
        """C_v ``[A, A]`` with Σ_cd C_v,cd h_c·h_d about the squared error of w_v·x, h_c = Σ λ_i contrast_ic lever_i."""
        square = np.ptp(cone @ self.values, axis=1)[:, None, None] ** 2
        largest = (2.3 * self.L) ** 2 / 2 * float((self.lever**2).sum(axis=0).max())
        missed = self.tail**2 / 4 * self.samples * len(self.noise)
        estimation = 2 * self.L * np.einsum("vi,abij,vj->vab", cone, self.noise, cone)
        return np.asarray(estimation + square * (largest + missed) * np.eye(len(self.noise)))

    def _error(self, forms: Array) -> Array:
        """The matrix whose product with λ is as long as the error of x(λ), on average over the forms ``[A·k_s, m]``."""
        mixed = self.contrast @ np.linalg.cholesky(forms.mean(axis=0))
        return np.asarray((mixed.T[:, None] * self.lever).reshape(-1, len(mixed)))


def _least(system: Array, goal: Array, slack: int = 0) -> Array:
    """The λ ≥ 0 that brings system @ λ closest to the goal, without its slack and scaled to sum 1; even if none is."""
    from scipy.optimize import nnls

    weights = np.zeros(system.shape[1])
    with contextlib.suppress(RuntimeError):  # the solver gave up
        weights, _ = nnls(system, goal, maxiter=30 * sum(system.shape))
    weights = weights[: len(weights) - slack]
    return weights / weights.sum() if weights.any() else np.full(len(weights), 1 / len(weights))
