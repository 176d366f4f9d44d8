"""A confidence set for the log-odds of a soft expert's actions, from decisions that may depend on all earlier ones.

The log-odds against a reference action are L_a(s) = θ_a·x(s), up to a declared tail. Decisions are reduced to sums at
one point θ̂ (`Odds`), from which a bound |v·(θ − θ̂)| ≤ ‖v W‖ follows for all vectors v at once: section 3 of
docs/notes/soft-experts.md. Numbers in brackets are those of its equations.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import exp, inf, log, sqrt
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from certirl.fit.logit import (
    Choices,
    all_but,
    blocks_of,
    choices,
    effects_of,
    information,
    maximise,
    placed,
    score,
    whitening,
)
from certirl.functions.bases import Basis
from certirl.ground import archive
from certirl.ground.archive import Shape
from certirl.ground.domain import Array
from certirl.ground.records import Record, internal

FIRST = 0.05  # the share of the decisions that fixes the prior of Lemma 1, and nothing else
SCALES = (0.25, 0.06, 0.015)  # κ: precisions of the prior, as shares of the information that is expected
_GROUPS = 24  # of decisions whose log-odds are known equally well
_HOPELESS = 1_000.0  # a leverage with which nothing can be said, and (4) would overflow
_FARTHEST = 64.0  # radii are looked for up to this multiple of the least one
_MOST_CORNERS = 10  # actions up to which all corners of a box are tried
_ROUNDING = 1e-9  # of lengths: sums over decisions and roots of matrices


@archive.record
@dataclass(frozen=True, eq=False)
@internal
class Odds(Record):
    """Sums over decisions at one point θ̂; A actions, K functions x, m = (A − 1)K coefficients."""

    basis: Basis  # x
    reference: int  # the action 0 of the formulas
    coefficients: Annotated[Array, Shape("A basis.size")]  # θ̂ of every action, zero for the reference ``[A, K]``
    tail: float  # how far log-odds can be from combinations of the x
    counts: Annotated[NDArray[np.int64], Shape("g")]  # decisions in each group ``[g]``
    leverages: Annotated[Array, Shape("g")]  # the largest B(s)² of a decision in each group, by (3) ``[g]``
    information: Annotated[Array, Shape("g m m")]  # Î of each group ``[g, m, m]``
    score: Annotated[Array, Shape("m")]  # the slope of the log-likelihood at θ̂ ``[m]``
    gram: Annotated[Array, Shape("basis.size basis.size")]  # Σ x xᵀ ``[K, K]``
    prior: Annotated[Array, Shape("m m")]  # Λ, the information that earlier decisions let us expect ``[m, m]``

    @property
    def n_actions(self) -> int:
        """A."""
        return len(self.coefficients)

    @property
    def others(self) -> list[int]:
        """The actions but the reference, in the order of their coefficients."""
        return all_but(self.reference, self.n_actions)

    @property
    def whitening(self) -> Array:
        """W with W Wᵀ = Î⁻¹ ``[m, m]``."""
        return whitening(self.information.sum(axis=0))

    def at(self, states: Array) -> Choices:
        """x, log-odds and probabilities at states ``[n, d]``."""
        return choices(self.basis, self.coefficients, states)

    def effects(self, states: Array) -> Array:
        """π̂_c x_j, what log(1 + Σ e^L) changes by with each coefficient, at states ``[n, d]``: ``[n, m]``."""
        return effects_of(self.at(states), self.others)

    def bends(self, states: Array) -> Array:
        """½(diag π̂ − π̂π̂ᵀ) ⊗ xxᵀ, the form by which log(1 + Σ e^L) changes to second order ``[n, m, m]``."""
        here = self.at(states)
        chances = here.chances[:, self.others]
        forms = (np.eye(len(self.others)) * chances[:, None] - chances[:, :, None] * chances[:, None]) / 2
        squares = here.x[:, :, None] * here.x[:, None]
        whole = forms[:, :, None, :, None] * squares[:, None, :, None]
        return np.asarray(whole.reshape(len(states), len(self.score), -1))

    def remainder(self, reach: Array, states: Array) -> Array:
        """(8): what the error of the log-odds adds to log(1 + Σ e^L) beyond its second order, at most ``[n]``."""
        here = self.at(states)
        each = whitened(here.x, reach)
        apart, spread = np.sqrt(leverage(here.x, reach)), spread_of(here.chances[:, self.others], each)
        return self.bound_remainder(here.chances, spread, np.linalg.norm(each, axis=2), apart)

    def bound_remainder(self, chances: Array, spread: Array, far: Array, apart: Array, rise: float = 0.0) -> Array:
        """(8) from π̂ ``[n, A]`` and sizes of the log-odds' error.

        These are its standard deviation under π̂ ``[n]``, how ``far`` off each action but the reference is
        ``[n, A − 1]`` and how far two are ``apart`` ``[n]``; ``rise`` is how far log-odds can move from where the
        chances are taken.
        """
        corners = convex_rest(chances, self.others, far + self.tail)
        if rise:
            corners = exp(rise) * np.expm1(corners)
        wide = apart + 2 * self.tail
        whole, spread = np.minimum(corners, wide**2 / 8), spread * exp(rise / 2)
        third = (bend(wide) - 0.5) * (spread + self.tail) ** 2 + self.tail * spread + self.tail**2 / 2
        return np.asarray(np.minimum(third, np.maximum(whole, spread**2 / 2)))

    def functionals(self, states: Array, action: int) -> Array:
        """v with v·θ = θ_a·x(s) at states ``[n, d]``: ``[n, m]``."""
        return placed(self.basis.values(states), len(self.others))[self.others.index(action)]

    def reach(self, delta: float) -> Array | None:
        """W of (6): |v·(θ − θ̂)| ≤ ‖v W‖ for all v at once, but for probability δ ``[m, m]``; None without a bound."""
        found = (self._reach(scale * self.prior, log(len(SCALES) / delta)) for scale in SCALES)
        total = self.information.sum(axis=0)
        return min((W for W in found if W is not None), key=lambda W: float((W * (total @ W)).sum()), default=None)

    def _reach(self, prior: Array, events: float) -> Array | None:
        """The same with one prior, but for probability e^−L."""
        if self.leverages.max() > _HOPELESS:
            return None
        total, white = self.information.sum(axis=0), self.whitening
        posterior = np.linalg.inv(prior + total)
        more = np.expm1(2 * self.tail + self.leverages / 2)
        spread = float(more @ np.einsum("ij,gji->g", posterior, self.information)) / 2
        near = events + _half_log_det(prior, total) + spread
        far = events + _half_log_det(prior, np.kron(np.eye(len(self.others)), self.gram) / 2)
        slope = float(np.linalg.norm(white.T @ self.score))
        slope += self.tail * exp(self.tail) * sqrt(float(self.counts.sum()))
        forms = white.T @ np.concatenate([self.information, prior[None]]) @ white

        def form(r: float) -> Array:
            """How the likelihood is curved at least, up to r, less what the prior takes."""
            weights = [*(exp(-2 * self.tail) * bend(-r * np.sqrt(self.leverages))), -0.5]
            curved = np.tensordot(weights, forms, axes=(0, 0))
            return np.asarray(curved + curved.T) / 2

        def gained(r: float) -> float:
            """What the likelihood gains over r in the direction in which it gains least: (4)."""
            return float(np.linalg.eigvalsh(form(r))[0]) * r**2 - slope * r

        radii = sqrt(2 * near) * np.geomspace(1.0, _FARTHEST, 100)
        gains = np.array([gained(r) for r in radii])
        if not (gains > max(near, far)).any():
            return None
        place = int((gains > near).argmax())
        low, high = float(radii[place - 1]) if place else 0.0, float(radii[place])
        for _ in range(30):
            middle = (low + high) / 2
            low, high = (low, middle) if gained(middle) > near else (middle, high)
        return (1 + _ROUNDING) * sqrt(near + slope * high) * white @ whitening(form(high))


def bend(z: Array) -> Array:
    """ψ(z) = (e^z − 1 − z)/z²."""
    z = np.asarray(z, dtype=float)
    small = np.abs(z) < 1e-4
    safe = np.where(small, 1.0, z)
    return np.where(small, 0.5 + z / 6 + z**2 / 24, (np.expm1(safe) - safe) / safe**2)


def gather_odds(
    basis: Basis,
    states: Array,
    actions: NDArray[np.intp],
    n_actions: int,
    *,
    first: NDArray[np.bool_],
    later: float = 1 / FIRST - 1,
    reference: int = 0,
    tail: float = 0.0,
) -> Odds:
    """Sums over decisions, actions ``[n]`` at states ``[n, d]``, at the point of greatest likelihood.

    The ``first`` decisions ``[n]`` fix the prior and count no further; ``later`` is how much more is expected of all
    others than of these, fixed beforehand. The rest is as in `Odds`.
    """
    early, rest = ((states[chosen], actions[chosen]) for chosen in (first, ~first))
    start = np.zeros((n_actions, basis.size))
    guess = maximise(basis, *early, start, reference)
    prior = later * information(basis, early[0], guess, reference) + np.eye((n_actions - 1) * basis.size)
    fit = maximise(basis, *rest, guess, reference)
    white = whitening(information(basis, rest[0], fit, reference))
    leverages = np.concatenate([leverage(basis.values(block), white) for block in blocks_of(rest[0])])
    edges = np.quantile(leverages, 1 - np.geomspace(1.0, 1 / len(leverages), _GROUPS + 1)[:-1])
    groups = np.clip(np.searchsorted(edges, leverages, side="right") - 1, 0, _GROUPS - 1)
    kept = [group for group in range(_GROUPS) if (groups == group).any()]
    parts = [information(basis, rest[0][groups == group], fit, reference) for group in kept]
    return Odds(
        basis=basis,
        reference=reference,
        coefficients=fit,
        tail=tail,
        counts=np.array([int((groups == group).sum()) for group in kept]),
        leverages=np.array([float(leverages[groups == group].max()) for group in kept]),
        information=np.stack(parts),
        score=score(basis, *rest, fit, reference),
        gram=np.sum([x.T @ x for x in map(basis.values, blocks_of(rest[0]))], axis=0),
        prior=prior,
    )


class Parts(NamedTuple):
    """R_a − r_0 at n states: the estimate, and what it can be off by for each reason."""

    estimate: Array  # of the log-odds and of γ(P_0 − P_a)V ``[n]``
    odds: Array  # the error of the log-odds to first order, what it does to V included ``[n]``
    # the error of the dynamics, V being the value at the middle of the log-odds, below the estimate and above it ``[2,
    # n]``; for known noise to first order
    dynamics: Array
    rest: Array  # everything of second order, and what cells and rounding can do, below and above ``[2, n]``


def convex_rest(chances: Array, others: list[int], far: Array) -> Array:
    """The most of log Σ π_c e^y_c − Σ π_c y_c for |y_c| ≤ far_c, y_0 = 0: it is convex, largest at a corner ``[n]``."""
    if len(others) > _MOST_CORNERS:
        return np.full(len(chances), inf)
    most = np.zeros(len(chances))
    for signs in product((-1.0, 1.0), repeat=len(others)):
        y = np.zeros(chances.shape)
        y[:, others] = far * signs
        mean = (chances * y).sum(axis=1)
        most = np.maximum(most, np.log((chances * np.exp(y - mean[:, None])).sum(axis=1)))
    return most


def spread_of(chances: Array, each: Array) -> Array:
    """The root of Σ π_c‖v_c − Σ π_d v_d‖² ``[…]``, v_0 = 0, for chances ``[…, A − 1]`` and v ``[…, A − 1, m]``."""
    squares = (chances * (each**2).sum(axis=-1)).sum(axis=-1)
    return np.asarray(np.sqrt(np.maximum(squares - ((chances[..., None] * each).sum(axis=-2) ** 2).sum(axis=-1), 0.0)))


def whitened(x: Array, white: Array) -> Array:
    """(e_c ⊗ x) W of every action but the reference ``[n, A − 1, m]``."""
    return np.stack([x @ part for part in white.reshape(-1, x.shape[1], white.shape[1])], axis=1)


def leverage(x: Array, white: Array) -> Array:
    """(3): the largest ‖((e_c − e_d) ⊗ x) W‖² of two actions, e_0 = 0 for the reference ``[n]``."""
    each = whitened(x, white)
    apart = [each[:, c] - each[:, d] for c in range(each.shape[1]) for d in range(c)]
    return np.max([np.einsum("ni,ni->n", v, v) for v in [*np.moveaxis(each, 1, 0), *apart]], axis=0)


def _half_log_det(prior: Array, total: Array) -> float:
    """½ log det(1 + Λ⁻¹M)."""
    return float(np.linalg.slogdet(prior + total)[1] - np.linalg.slogdet(prior)[1]) / 2
