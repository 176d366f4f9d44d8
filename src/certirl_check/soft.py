"""Bands for the rewards of soft experts derived again from their sums: docs/notes/soft-experts.md, sections 3 to 5.

Nothing here is shared with the code that made the band. Numbers in brackets are those of the note's equations. What
rests on the sums is computed in plain floating point: a band is confirmed up to one millionth of its width.
"""

from __future__ import annotations

import math
from itertools import product
from typing import NamedTuple

import numpy as np

from certirl_check.bands import Derivation
from certirl_check.certificates import Side
from certirl_check.claims import DRAWS, LikelyClaim, at_most, failed, short
from certirl_check.deviations import hoeffding_norm
from certirl_check.enclosures import Enclosure, Floats, enclosed
from certirl_check.grounds import Ground
from certirl_check.harmonics import Functions
from certirl_check.known_noise import PEAK, DriftSums, Noise
from certirl_check.records import RELATIVE, TIGHT, DamagedError, ImpossibleError, Record, TooLittleError

SCALES = (0.25, 0.06, 0.015)  # of the expected information, in Λ
RADII = np.geomspace(1.0, 64.0, 100)  # at which (4) is looked at, in units of the least radius
CORNERS = 10  # actions up to which all corners of a box are looked at
CELLS, PARTS = 1000, 8  # between nodes, and parts of a cell at whose ends polynomials are looked at
ROUNDING = 1e-12  # of what is computed at the nodes: "Rounding" of known-noise.md
ALONG = {1: 4000, 2: 200, 3: 50}  # cells along each coordinate, for suprema of functions that are no expansions
BLOCK, STATES = 4096, 128  # states worked on at once
# How δ is spent, by whether the noise is known.
SHARES = {True: {"log-odds", "drifts"}, False: {"log-odds", "dynamics", "dynamics of the log-odds"}}
_AS_READ = "the dynamics are those of the log as it was read: "  # begins what was done to a log


def psi(z: Floats) -> Floats:
    """(e^z − 1 − z)/z²."""
    small = np.abs(z) < 0.01
    safe = np.where(small, 1.0, z)
    series = 1 / 2 + z / 6 + z**2 / 24 + z**3 / 120 + z**4 / 720
    return np.where(small, series, (np.expm1(safe) - safe) / safe**2)


def lengths(rows: Floats) -> Floats:
    """Of vectors, along the last axis."""
    return np.sqrt((rows**2).sum(axis=-1))


def span(functions: Floats, root: Floats) -> float:
    """The most by which Σ z_j f_j differs between two states, |v·z| ≤ ‖v root‖ for all v, by values ``[n, j]``."""
    return 2 * float(lengths((functions - (functions.max(axis=0) + functions.min(axis=0)) / 2) @ root).max())


class Here(NamedTuple):
    """What log-odds say at n states."""

    odds: Floats  # [n, A]
    chances: Floats  # π̂ [n, A]
    cost: Floats  # −log π̂_0 [n]
    each: Floats  # v_a with v_a·θ = θ_a·x, 0 for the reference [n, A, m]
    first: Floats  # Σ π̂_a v_a [n, m]
    second: Floats  # F of (7) [n, m, m]


class Sizes(NamedTuple):
    """Of the error of log-odds at n places, W of (6) taken into account."""

    far: Floats  # of every action, the square of ‖v_a W‖ [n, A]
    apart: Floats  # the largest square of ‖(v_a − v_b)W‖ [n]
    spread: Floats  # v² of (8) [n]


class LogOdds:
    """Log-odds of decisions and their confidence set (section 3); names as in a file."""

    def __init__(self, record: Record) -> None:
        self.basis, self.reference, self.tail = (
            record.functions("basis"),
            record.whole("reference"),
            record.number("tail"),
        )
        if not self.basis.closed:
            raise ImpossibleError(f"{self.basis} are no functions that bounds can rest on")
        self.coefficients = record.array("coefficients", (None, K := self.basis.size))
        self.actions = len(self.coefficients)
        if self.actions < 2 or self.reference >= self.actions:
            raise DamagedError("the file names a reference that there is not, or one action")
        self.others = [a for a in range(self.actions) if a != self.reference]
        self.size = m = (self.actions - 1) * K
        self.information = record.array("information", (None, m, m))
        groups = len(self.information)
        self.counts = record.array("counts", (groups,), "iu").astype(float)
        self.leverages, self.score = record.array("leverages", (groups,)), record.array("score", (m,))
        self.gram, self.prior = record.array("gram", (K, K)), record.array("prior", (m, m))

    def contradictions(self) -> list[str]:
        """What sums over decisions cannot be."""
        n, A = float(self.counts.sum()), self.actions
        total, whole = self.information.sum(axis=0), np.kron(np.eye(A - 1), self.gram)
        forms = [*self.information, self.prior, whole / 2 - total]
        room = 1e-8 * (np.abs(whole).max() + np.abs(self.prior).max())
        symmetric = all(np.abs(form - form.T).max() <= room for form in forms)
        definite = symmetric and all(np.linalg.eigvalsh(form)[0] >= -room for form in forms)
        known = definite and min(np.linalg.eigvalsh(form)[0] for form in (total, self.prior)) > 0
        # tr Î⁻¹Î_r = Σ π_cπ_d‖(e_c − e_d) ⊗ x‖² over c < d is at most (1 − 1/A)/2 times the leverage.
        shares = np.trace(np.linalg.solve(total, self.information), axis1=1, axis2=2) if known else np.zeros(1)
        constant = n * float(self.basis.change.middle[0, 0]) ** 2
        return failed(
            (self.tail >= 0, "the tail of the log-odds is below 0"),
            (not self.coefficients[self.reference].any(), "the log-odds of the reference are not 0"),
            (len(self.counts) and (self.counts >= 1).all(), "there are groups without decisions"),
            (definite, "the information is not that of decisions: a form is not symmetric, or too large"),
            (not definite or known, "the information of the decisions is singular"),
            ((shares <= self.counts * self.leverages * (1 - 1 / A) / 2 + 1e-6).all(), "leverages are too small"),
            (abs(self.gram[0, 0] / constant - 1) <= 1e-8, "the Gram matrix is one of another number of decisions"),
            ((self.score**2 <= n * np.diag(whole) * (1 + TIGHT)).all(), "the slope is larger than decisions allow"),
        )

    def at(self, states: Floats) -> Here:
        """At states ``[n, d]``."""
        x = values(self.basis, states)
        odds = x @ self.coefficients.T
        top = odds.max(axis=1, keepdims=True)
        chances = np.exp(odds - top)
        total = chances.sum(axis=1, keepdims=True)
        chances, each = chances / total, self.each(x)
        first = (chances[:, :, None] * each).sum(axis=1)
        squares = np.swapaxes(chances[:, :, None] * each, 1, 2) @ each
        return Here(
            odds, chances, (top + np.log(total))[:, 0], each, first, (squares - first[:, :, None] * first[:, None]) / 2
        )

    def each(self, x: Floats) -> Floats:
        """v_a of functions x ``[n, K]``: ``[n, A, m]``."""
        places = np.eye(self.actions)[:, self.others]
        return (places[:, :, None] * x[:, None, None]).reshape(len(x), self.actions, -1)

    def sets(self, delta: float) -> Floats:
        """W of (6), from the smallest of the sets that hold at once but for a probability ``[m, m]``."""
        found = [self._set(scale * self.prior, math.log(len(SCALES) / delta)) for scale in SCALES]
        known, total = [W for W in found if W is not None], self.information.sum(axis=0)
        if not known:
            raise TooLittleError("there are too few decisions to bound the log-odds")
        return min(known, key=lambda W: float(np.trace(W.T @ total @ W)))

    def _set(self, prior: Floats, events: float) -> Floats | None:
        """The same by (4) with one Λ; None where (4) holds nowhere."""
        total, tau = self.information.sum(axis=0), self.tail
        root, b = np.linalg.inv(np.linalg.cholesky(total)), np.sqrt(self.leverages)
        shares = np.trace(np.linalg.solve(prior + total, self.information), axis1=1, axis2=2)
        half = np.kron(np.eye(self.actions - 1), self.gram) / 2
        near, far = (
            events + (np.linalg.slogdet(prior + part)[1] - np.linalg.slogdet(prior)[1]) / 2 for part in (total, half)
        )
        near += float(np.expm1(2 * tau + self.leverages / 2) @ shares) / 2
        if not near < 1e100:
            return None
        slope = float(lengths(root @ self.score)) + tau * math.exp(tau) * math.sqrt(self.counts.sum())

        def curvature(r: float) -> Floats:
            return math.exp(-2 * tau) * np.tensordot(psi(-b * r), self.information, axes=1) - prior / 2

        def gain(r: float) -> float:
            form = root @ curvature(r) @ root.T
            return r**2 * float(np.linalg.eigvalsh((form + form.T) / 2)[0]) - r * slope

        radii = math.sqrt(2 * near) * RADII
        gains = np.array([gain(r) for r in radii])
        if not gains.max() > max(near, far):
            return None
        least = int(np.argmax(gains > near))
        low, high = (0.0, *radii)[least], radii[least]
        for _ in range(50):
            middle = (low + high) / 2
            low, high = (low, middle) if gain(middle) > near else (middle, high)
        return math.sqrt(near + slope * high) * np.linalg.inv(np.linalg.cholesky(curvature(high))).T

    def sizes(self, each: Floats, W: Floats, chances: Floats) -> Sizes:
        """Of v_a ``[…, A, m]``, beside probabilities ``[…, A]``."""
        products = (rows := each @ W) @ np.swapaxes(rows, -1, -2)
        far = np.diagonal(products, axis1=-2, axis2=-1)
        apart = (far[..., :, None] + far[..., None, :] - 2 * products).max(axis=(-1, -2))
        mean = (chances[..., None, :] @ products @ chances[..., :, None])[..., 0, 0]
        return Sizes(far, apart, np.maximum((chances * far).sum(axis=-1) - mean, 0.0))

    def remainder(self, chances: Floats, sizes: Sizes, rise: float = 0.0) -> Floats:
        """q̄ of (8) ``[n]``, where log-odds can be this far from those of the probabilities."""
        tau, far = self.tail, np.sqrt(sizes.far[:, self.others])
        wide, spread = np.sqrt(sizes.apart) + 2 * tau, np.sqrt(sizes.spread) * math.exp(rise / 2)
        many = len(self.others) > CORNERS
        corners = np.full(len(wide), math.inf if many else 0.0)
        for signs in () if many else product((-1.0, 1.0), repeat=len(self.others)):
            y = np.zeros(chances.shape)
            y[:, self.others] = (far + tau) * signs
            y -= (chances * y).sum(axis=1, keepdims=True)
            corners = np.maximum(corners, np.log((chances * np.exp(y)).sum(axis=1)))
        if rise:  # E e^y − 1 for probabilities up to e^rise times those, y of mean 0
            corners = math.exp(rise) * np.expm1(corners)
        third = (psi(wide) - 0.5) * (spread + tau) ** 2 + tau * spread + tau**2 / 2
        return np.minimum(third, np.maximum(np.minimum(corners, wide**2 / 8), spread**2 / 2))


def values(functions: Functions, states: Floats, along: int | None = None) -> Floats:
    """Functions at states ``[n, d]``, or their derivatives along a coordinate: ``[n, K]``."""
    return functions.at(states, along).middle @ functions.change.middle.T


# Known noise.


class Step:
    """One action from n states: what a function, linear between nodes, is expected to be after it."""

    def __init__(self, line: Floats, nodes: Floats, std: float) -> None:
        noise = Noise(line, nodes, std)
        parts = (noise.means, noise.slopes, noise.bends)
        # Its mean and the first two derivatives of it by the drift, for values at the nodes [n, N + 1].
        self.mean, self.slope, self.bend = (-np.diff(part, prepend=0.0, append=0.0) for part in parts)
        self.mean[:, 0] += 1.0
        # Probabilities of the lower end, every cell and the upper end, and their derivatives [n, N + 2].
        self.masses = -np.diff(noise.below, prepend=1.0, append=0.0)
        self.moved = -np.diff(noise.density, prepend=0.0, append=0.0)


class Parts(NamedTuple):
    """R_a − r_0 at n states: the estimate, and how far below and above it the reward can be."""

    estimate: Floats
    below: Floats
    above: Floats


class KnownNoise:
    """γ(P_0 − P_a)V for affine drifts and known noise, states in [−1, 1]: section 5."""

    def __init__(self, sums: DriftSums, odds: LogOdds, W: Floats, discount: float, delta: float) -> None:
        self.sums, self.odds, self.W, self.gamma = sums, odds, W, discount
        self.std, self.drifts, own = sums.std / sums.half, sums.drifts(delta), odds.reference
        self.theta, self.roots = self.drifts.theta, np.linalg.cholesky(self.drifts.shape)
        self.nodes, self.h = np.linspace(-1.0, 1.0, CELLS + 1), 2 / CELLS
        # κ_1 to κ_4: half of the integral of the density's derivatives, in size.
        halves = (1.0, 2 * math.exp(-0.5), 1 + 4 * math.exp(-1.5), 3.52)
        self.k1, self.k2, self.k3, self.k4 = (PEAK * x / self.std ** (i + 1) for i, x in enumerate(halves))
        step, here, gamma = self._step(own, self.nodes), odds.at(self._states(self.nodes)), discount
        B = self.B = np.linalg.inv(np.eye(CELLS + 1) - gamma * step.mean)
        self.V = B @ (here.cost - (here.cost.max() + here.cost.min()) / 2)
        x = self._x(self.nodes)
        self.u1 = B @ np.concatenate([gamma * (step.slope @ self.V)[:, None] * x, here.first], axis=1)
        source, size = gamma * self._turn(step, np.pad(x, ((0, 0), (0, odds.size))), slice(None)), 2 + odds.size
        source[:, 2:, 2:] += here.second
        self.u2 = B @ source.reshape(CELLS + 1, -1)
        self.height = float(np.ptp(self.V))
        self.s1 = span(self.u1[:, :2], self.roots[own]) + span(self.u1[:, 2:], W)
        middle = (self.u2.max(axis=0) + self.u2.min(axis=0)) / 2
        self.s2 = 2 * float(self._ends((self.u2 - middle).reshape(-1, size, size), [own]).max())
        self._rest(step, here)

    def _states(self, places: Floats) -> Floats:
        return (self.sums.low + self.sums.half * (places + 1))[:, None]

    def _step(self, action: int, places: Floats) -> Step:
        return Step(self._x(places) @ self.theta[action], self.nodes, self.std)

    @staticmethod
    def _x(places: Floats) -> Floats:
        return np.stack([np.ones_like(places), places], axis=1)

    def _turn(self, step: Step, x: Floats, kept: slice | list[int]) -> Floats:
        """½H''δ² + δ ∂u_1 as forms ``[n, q, q]``, δ = x·z ``[n, q]`` and u_1 one of the z that are kept."""
        slope = np.zeros(x.shape)
        slope[:, kept] = step.slope @ self.u1
        both = x[:, :, None] * ((step.bend @ self.V / 2)[:, None] * x + slope)[:, None]
        return (both + np.swapaxes(both, 1, 2)) / 2

    def _ends(self, forms: Floats, actions: list[int]) -> Floats:
        """The most of −zᵀMz and of zᵀMz, z the errors of these drifts and of the log-odds ``[2, n]``."""
        p, W = 2 * len(actions), self.W
        root = np.zeros((p, p))
        for i, c in enumerate(actions):
            root[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = self.roots[c]
        mixed = 2 * np.linalg.svd(root.T @ forms[:, :p, p:] @ W, compute_uv=False)[:, 0]
        own = [np.linalg.eigvalsh(R.T @ part @ R) for R, part in ((root, forms[:, :p, :p]), (W, forms[:, p:, p:]))]
        return np.stack([mixed + sum(np.maximum(sign * e, 0.0).max(axis=1) for e in own) for sign in (-1, 1)])

    def _moves(self, step: Step) -> tuple[Floats, Floats]:
        """|∂u_2| and |∂'u_1|, at most ``[n]``."""
        own, bend = self.odds.reference, step.bend @ self.u1
        turned = (step.slope @ self.u2).reshape(len(bend), bend.shape[1], -1)
        return self._ends(turned, [own]).max(axis=0), lengths(bend[:, :2] @ self.roots[own]) + lengths(
            bend[:, 2:] @ self.W
        )

    def _third(self, far: Floats, slope: Floats, bend: Floats) -> Floats:
        """g_c."""
        return self.k3 * (self.height + self.s1) * far**3 / 6 + far**2 / 2 * (bend + self.k2 * self.s2) + far * slope

    def _far(self, action: int, places: Floats) -> Floats:
        return lengths(self._x(places) @ self.roots[action])

    def _kernel(self, step: Step) -> Floats:
        """∫|k'| over the lower end, the cells and the upper end, at most ``[n, N + 2]``."""
        weights = self.gamma * step.slope @ self.B
        steepest = PEAK / self.std**3 + np.abs(weights).sum(axis=1) * self.k2 / 2
        return np.abs(step.moved + weights @ self.masses) + self.h**2 / 4 * steepest[:, None]

    def _remainder(self, here: Here, degree: int, rise: float) -> Floats:
        """q̄ in the lower end, the cells and the upper end; the largest ‖(v_a − v_b)W‖ is kept."""
        odds, whole = self.odds, PARTS * CELLS
        each = odds.each(values(odds.basis, self._states(np.linspace(-1.0, 1.0, whole + 1))))
        near = np.clip(PARTS * np.arange(CELLS + 1)[:, None] + np.arange(-PARTS, PARTS + 1), 0, whole)
        found = odds.sizes(each[near], self.W, here.chances[:, None])
        between = (self.h / PARTS) ** 2 / 8 * _bent(2 * degree)
        self.widest = math.sqrt(float(found.apart.max()) / (1 - between))
        most = Sizes(*(part.max(axis=1) + between * self.widest**2 for part in found))
        left = odds.remainder(here.chances, most, rise * self.h)
        return -_in_cells(-left)  # at a node it holds in the cells at both sides

    def _rest(self, step: Step, here: Here) -> None:
        """f̄ of (11) and Ω of (12)."""
        odds, gamma, h, D = self.odds, self.gamma, self.h, self.odds.basis.axes[0].top
        k2, k3, k4, S, own = self.k2, self.k3, self.k4, self.height + self.s1, odds.reference
        far = self._far(own, self.nodes)
        steep, turn, eps = float(np.abs(self.theta[:, 1]).max()), float(lengths(self.roots[own][1])), float(far.max())
        slopes = self.sums.half * values(odds.basis, self._states(self.nodes), 0) @ odds.coefficients.T
        rho = float(np.ptp(slopes, axis=1).max()) / (1 - h**2 / 8 * _bent(D))
        known = self._remainder(here, D, rho) + odds.tail
        Y = self.widest
        e = D**2 * rho + rho**2 / 4 + Y * (rho**2 / 2 + 2 * D**2 * rho + _bent(D))
        e += Y**2 * (1.2 * rho**2 + 2.5 * D**2 * rho + 2 / 3 * D**4) + gamma * steep**2 * k2 * (S + self.s2)
        e += gamma * S * (steep**2 * k3 * eps + 2 * steep * k2 * turn)
        e += gamma * self.height * (steep**2 * k4 * eps**2 / 2 + 2 * steep * k3 * eps * turn + k2 * turn**2)
        mu, far, (slope, bend) = steep * h, _in_cells(far), map(_in_cells, self._moves(step))
        known = known + h**2 / 8 * e + gamma * self._third(far, slope + mu * k2 * self.s2, bend + mu * k3 * self.s1)
        self.masses, self.beta = step.masses, gamma * h**2 / 8 * steep**2 * k2 / (1 - gamma)
        shares = gamma * far * (k2 * (far + 2 * mu) / 2 + 2 * self.k1 * self.beta)
        system = np.eye(CELLS + 2) - gamma * far[:, None] * _in_cells(self._kernel(step))
        self.f = np.linalg.solve(system, np.stack([known, shares], axis=1))  # of 1 and of Ω [N + 2, 2]
        if not (self.f > 0).all():
            raise TooLittleError("the drifts are too uncertain for any bound")
        self.later = gamma * self.B @ self.masses
        apart = np.abs(self.later - gamma * self.B.mean(axis=0) @ self.masses) @ self.f
        most = self.f.max(axis=0) + apart.max(axis=0) + 2 * self._uneven(gamma / (1 - gamma))
        growth = float(2 * most[1] + 2 * self.beta)
        if not growth < 1:
            raise TooLittleError("the value is too uncertain for any bound")
        self.omega = float(2 * most[0]) / (1 - growth)
        self.fbar = self.f @ [1.0, self.omega]
        sizes = float(np.abs(self.V).max()) + self.height + self.s1 + self.s2 + self.omega
        self.rounding = ROUNDING * (self.std / h + CELLS + 1) * sizes / (1 - gamma)

    def _uneven(self, weight: float | Floats) -> Floats:
        """What ∫|k|f̄ over the cells exceeds Σ|∫k|f̄ by, where ∂k is this much of ½κ_2; of 1 and of Ω."""
        return self.h**2 * self.k2 / 8 * np.multiply.outer(weight, self.f[1:-1].sum(axis=0))

    def parts(self, states: Floats, action: int) -> Parts:
        """(13)."""
        odds, gamma, own, m = self.odds, self.gamma, self.odds.reference, self.odds.size
        places = np.clip((states[:, 0] - self.sums.low) / self.sums.half - 1, -1.0, 1.0)
        steps, x, here = [self._step(c, places) for c in (own, action)], self._x(places), odds.at(states)
        apart = steps[0].mean - steps[1].mean
        drifts, moved, scale = np.zeros((len(x), odds.actions, 2)), apart @ self.u1, np.array([1.0, self.omega])
        drifts[:, own] = moved[:, :2]
        kept = [0, 1, *range(4, 4 + m)]  # of (τ_0, τ_a, Δ) what u_1 and u_2 depend on
        forms, rest = np.zeros((len(x), 4 + m, 4 + m)), 2 * self.beta * self.omega
        forms[:, np.array(kept)[:, None], kept] = (apart @ self.u2).reshape(-1, 2 + m, 2 + m)
        for i, (sign, c, step) in enumerate(zip((1, -1), (own, action), steps, strict=True)):
            drifts[:, c] += sign * (step.slope @ self.V)[:, None] * x
            forms += sign * self._turn(step, np.pad(x, ((0, 0), (2 * i, 2 + m - 2 * i))), kept)
            far = self._far(c, places)
            wandering = self._kernel(step) @ self.fbar + (self.k2 * far / 2 + 2 * self.k1 * self.beta) * self.omega
            rest = rest + self._third(far, *self._moves(step)) + far * wandering
        kernel = steps[0].masses - steps[1].masses + apart @ self.later
        weights = 2 + gamma * np.abs(apart @ self.B).sum(axis=1)
        rest = rest + np.abs(kernel) @ self.fbar + self._uneven(weights) @ scale
        first = lengths((here.each[:, action] + gamma * moved[:, 2:]) @ self.W) + gamma * self.drifts.size(drifts)
        lost = first + odds.tail + gamma * (rest + self._ends(forms, [own, action])) + self.rounding
        return Parts(here.odds[:, action] + gamma * apart @ self.V, *lost)


def _bent(degree: int) -> float:
    """Markov: |p''| ≤ this times sup|p| on [−1, 1]."""
    return degree**2 * (degree**2 - 1) / 3


def _in_cells(at_nodes: Floats) -> Floats:
    """The first, the larger end of every cell, and the last ``[N + 2, …]``."""
    return np.concatenate([at_nodes[:1], np.maximum(at_nodes[:-1], at_nodes[1:]), at_nodes[-1:]])


# Columns.


class Columns:
    """γ(P_0 − P_a)V by columns with a tail and independent rows: section 4."""

    def __init__(
        self, ground: Ground, changes: Floats, odds: LogOdds, W: Floats, discount: float, delta: float
    ) -> None:
        self.ground, self.odds, self.W, self.gamma = ground, odds, W, discount
        self.work, self.columns, self.changes = Derivation(ground), ground.columns, changes
        self.bands = {band.pair: band for band in self.work.bands()}
        self.counts, self.tau = ground.shares.shape[2:], ground.tau
        self.mesh, self.factor = self.columns.mesh(self.counts), self.columns.inflation(self.counts)
        self.L = math.log((2 + 4 * ground.actions * len(self.mesh)) / delta)
        self.inverse, grams = self.work.solved[1].middle, ground.grams.middle
        vector = self._weights(self.work.error[0])  # N
        self.centre = self.inverse @ np.einsum("cik,cjk->ij", vector, changes)  # c_f
        forms = vector @ grams @ np.swapaxes(vector, 1, 2)
        self.noise_of_vector = 0.0  # β with its tail
        if len(self.inverse):
            tops = np.maximum(np.linalg.eigvalsh(forms)[:, -1], 0.0)
            trace, top = enclosed(np.trace(forms.sum(axis=0))), float(np.linalg.eigvalsh(forms.sum(axis=0))[-1])
            self.noise_of_vector = float(hoeffding_norm(trace, top, enclosed(self.L)).middle)
            self.noise_of_vector += (1 + discount) * self.tau * float(np.sqrt(ground.counts * tops).sum())
        # Of γP_0(I − γP_0)⁻¹ of the functions: what is observed, in the harmonics [k, j], and ϱ_0.
        self.later = self._observed(self._weights(self.work.through_error(enclosed(np.eye(self.columns.size)))))
        self.rho0 = self._rho(self.work.through_error(self.mesh), discount)
        self._spans()

    def _weights(self, functionals: Enclosure) -> Floats:
        """ωG⁻¹ ``[A, n, k]``."""
        return (functionals @ self.ground.precision).middle

    def _turned(self, weights: Floats) -> Floats:
        """η̂ ``[n, m − 1]``."""
        return np.einsum("cnk,cik->ni", weights, self.work.operators.middle)

    def _observed(self, weights: Floats) -> Floats:
        """⟨ω, d̂(f)⟩ + η̂·c_f of every function f ``[n, j]``."""
        return np.einsum("cnk,cjk->nj", weights, self.changes) + self._turned(weights) @ self.centre

    def _rho(self, functionals: Enclosure, direct: float) -> tuple[Floats, float]:
        """ϱ of (9) for functionals at the mesh: the noise there, and what the tail adds everywhere."""
        ground, weights = self.ground, self._weights(functionals)
        squares = np.maximum(((weights @ ground.grams.middle) * weights).sum(axis=-1), 0.0)
        plain = np.sqrt(squares).sum(axis=0) ** 2 if ground.paired else squares.sum(axis=0)
        most = self.factor * float(np.sqrt(ground.counts[:, None] * squares).sum(axis=0).max())
        noise = np.sqrt(2 * self.L * plain) + self.noise_of_vector * lengths(self._turned(weights) @ self.inverse)
        return noise, self.tau * (direct + (1 + self.gamma) * most)

    def _split(self, rows: Floats) -> tuple[Floats, Floats, Floats]:
        """kW ``[n, m]``, WᵀKW ``[n, m, m]`` and what is observed of q̄ ``[n]``, from all functions ``[n, j]``."""
        m = self.odds.size
        forms = np.zeros((len(rows), m, m))
        forms[:, *np.triu_indices(m)] = rows[:, m:-1]
        forms = forms + np.swapaxes(forms, 1, 2) - forms * np.eye(m)
        return rows[:, :m] @ self.W, self.W.T @ forms @ self.W, rows[:, -1]

    def _spans(self) -> None:
        """h of (9) for y + ΔᵀFΔ and for q̄: suprema over the middles of cells, and what they miss within cells."""
        odds, W, basis = self.odds, self.W, self.odds.basis
        inner, outer = _mesh(basis, basis.dense), _mesh(self.columns, self.columns.dense)
        inside, outside = basis.inflation(basis.dense), self.columns.inflation(self.columns.dense)
        count, ends = ALONG[basis.dimension], np.array(basis.box)
        half = np.ptp(ends, axis=1) / (2 * count)
        even = [low + side * (2 * np.arange(count) + 1) for (low, _), side in zip(ends, half, strict=True)]
        middles = np.stack(np.meshgrid(*even, indexing="ij"), axis=-1).reshape(-1, basis.dimension)
        farthest = inside * float(lengths(odds.each(values(basis, inner)) @ W).max())
        apart, rise, moved, moved_last = np.zeros(odds.actions), 0.0, 0.0, 0.0  # within a cell, at most
        for j, side in enumerate(half):
            slopes = values(basis, inner, j)
            apart += side * inside * lengths(odds.each(slopes) @ W).max(axis=0)
            rise += side * inside * float(np.ptp(slopes @ odds.coefficients.T, axis=1).max())
            lines, forms, last = self._split(self.columns.at(outer, j).middle @ self.later)
            moved += side * outside * float((lengths(lines) + _largest(forms)).max())
            moved_last += side * outside * float(np.abs(last).max())
        most_apart = float(apart.max())
        few = self._changed(middles[:: max(len(middles) // BLOCK, 1)])[0]
        line, form, _ = self._split((few.max(axis=0) + few.min(axis=0))[None] / 2)  # k* and K*, any
        first, high, low = 0.0, -math.inf, math.inf
        for start in range(0, len(middles), BLOCK):
            rows, here = self._changed(middles[start : start + BLOCK])
            lines, forms, last = self._split(rows)
            far, wide, spread = odds.sizes(here.each, W, here.chances)
            root = np.sqrt(spread)
            # π̂_c moves by the factor e^rise in a cell, y_c by the most that is apart.
            bent = (math.exp(rise) * (root + most_apart) ** 2 - spread) / 2
            first = max(first, float((lengths(lines - line) + _largest(forms - form) + bent).max()))
            sizes = Sizes((np.sqrt(far) + apart) ** 2, (np.sqrt(wide) + 2 * most_apart) ** 2, (root + most_apart) ** 2)
            high = max(high, float((odds.remainder(here.chances, sizes, rise) + last).max()))
            low = min(low, float(last.min()))
        first += rise * farthest + most_apart + moved
        second, growth = (high - low) / 2 + moved_last, self.rho0[1] + self.factor * float(self.rho0[0].max())
        if not growth < 1:
            raise TooLittleError("there are too few transitions for what the log-odds' error does to the value")
        self.h, self.h_last = first / (1 - growth), second / (1 - growth)

    def _changed(self, states: Floats) -> tuple[Floats, Here]:
        """f + γP_0(I − γP_0)⁻¹f as observed, of q̄ without q̄ itself, at states ``[n, j]``."""
        here, m = self.odds.at(states), self.odds.size
        rows = self.columns.at(states).middle @ self.later
        rows[:, :m] += here.first
        rows[:, m:-1] += here.second[:, *np.triu_indices(m)]
        return rows, here

    def _at(self, numbers: Floats, states: Floats) -> tuple[Floats, Floats]:
        """Σ|w_i|v_i and Σw_iv_i of numbers v at the mesh ``[N_1, …]``, w the weights of Lemma 8 at states ``[n]``."""
        places = [axis.place(x) for axis, x in zip(self.columns.axes, states.T, strict=True)]
        tables = [table.middle for table in self.columns.weights(self.counts, places)]
        weights = tables[0]
        for table in tables[1:]:
            weights = (weights[:, None] * table).reshape(-1, len(states))
        return numbers.reshape(-1) @ np.abs(weights), numbers.reshape(-1) @ weights

    def _radius(self, side: Side, states: Floats) -> Floats:
        """How far (T1) of certificate.md allows D_ba to be below its curve, or above it, at states ``[n]``."""
        here, there = side.total[side.side], side.total[1 - side.side]
        between = (self._at(here + there, states)[0] + self._at(here - there, states)[1]) / 2
        least = self._at(here, states)[0] / self._at(np.ones_like(here), states)[0]
        return np.maximum(np.minimum(between, side.most), least) + side.band.tail + side.band.rounding

    def parts(self, states: Floats, action: int) -> Parts:
        """(10)."""
        blocks = [self._parts(states[i : i + STATES], action) for i in range(0, len(states), STATES)]
        return Parts(*(np.concatenate(each) for each in zip(*blocks, strict=True)))

    def _parts(self, states: Floats, action: int) -> Parts:
        odds, gamma, own, h = self.odds, self.gamma, self.odds.reference, self.columns.at(states).middle
        pair = (min(own, action), max(own, action))
        sides = [Side(self.bands[pair], side, self.columns) for side in (0, 1)]
        radii, sign = [self.ground.unit * self._radius(side, states) for side in sides], 1 if own < action else -1
        curve = self.ground.unit * sign * h @ self.bands[pair].curve.middle
        noise, tail = self._rho(self.work.functionals((own, action), self.mesh), 2.0)
        rho, rho0 = (
            np.minimum(self._at(part, states)[0], self.factor * float(part.max())) + beyond
            for part, beyond in ((noise, tail), self.rho0)
        )
        functionals = self.work.functionals((own, action), enclosed(np.eye(self.columns.size)))
        lines, forms, last = self._split(gamma * h @ self._observed(self._weights(functionals)))
        # γ(P_0 + P_a)U of q̄ is 2γP_0U less γ(P_0 − P_a)U.
        ahead = 2 * (h @ self.later[:, -1] + self.h_last * rho0) - last + gamma * self.h_last * rho
        here, ends = odds.at(states), np.linalg.eigvalsh(forms)
        lost = lengths(here.each[:, action] @ self.W + lines) + gamma * self.h * rho + np.maximum(ahead, 0.0)
        lost += (1 + 2 * gamma / (1 - gamma)) * odds.tail
        below, above = (gamma * radius for radius in (radii if sign > 0 else radii[::-1]))
        below, above = below + np.maximum(-ends[:, 0], 0.0), above + np.maximum(ends[:, -1], 0.0)
        return Parts(here.odds[:, action] + gamma * curve, lost + below, lost + above)


def _mesh(functions: Functions, counts: tuple[int, ...]) -> Floats:
    """The points of a mesh ``[N, d]``."""
    sides = zip(functions.axes, counts, strict=True)
    along = [axis.low + (axis.spread(n).middle + 1) / 2 * (axis.high - axis.low) for axis, n in sides]
    return np.stack(np.meshgrid(*along, indexing="ij"), axis=-1).reshape(-1, len(counts))


def _largest(forms: Floats) -> Floats:
    """The largest size of an eigenvalue of symmetric matrices ``[n]``."""
    return np.abs(np.linalg.eigvalsh(forms)).max(axis=1)


# The claim.


class BandClaim(LikelyClaim):
    """A band as a file holds it, alone or within the solution for a soft expert; names as in a file."""

    def __init__(self, record: Record, solution: Record | None) -> None:
        super().__init__(record, solution)
        self.derived, self.odds, self.tail = math.nan, LogOdds(record.record("odds")), record.tail()
        self.discount, self.reward = record.number("discount"), record.number("reference_reward")
        self.actions, self.box = self.odds.actions, self.odds.basis.box
        self.states = record.array("states", (None, len(self.box)))
        shape = (self.actions, len(self.states))
        self.low, self.high = (record.array(name, shape, finite=False) for name in ("low", "high"))
        if record.whole("reference") != self.odds.reference or not len(self.states):
            raise DamagedError("the band has another reference than its log-odds, or no states")
        dynamics = record.record("dynamics", "KnownDynamics", "ColumnDynamics")
        self.sums: DriftSums | Ground
        if dynamics.kind == "KnownDynamics":
            self.sums, self.changes = DriftSums(dynamics), np.zeros((0, 0, 0))
        else:
            m, self.sums = self.odds.size, Ground(dynamics.record("ground"))
            functions = m * (m + 3) // 2 + 1
            self.changes = dynamics.array("changes", (self.sums.actions, functions, self.sums.columns.size))

    @staticmethod
    def claimed(record: Record) -> tuple[float, str]:
        """No margin, and why a band is none: it is not bounded, or it depends on a tail that is not known."""
        low, high = (record.array(name, (None, None), finite=False) for name in ("low", "high"))
        wide = np.delete(np.where(np.isfinite(high) & np.isfinite(low), 0.0, np.inf), record.whole("reference"), axis=0)
        bounded = wide.size > 0 and math.isfinite(float(np.median(wide)))
        known = "" if record.entry("tail") is not None else "no tail was declared"
        return math.nan, known if bounded else "the band is not bounded"

    def contradictions(self) -> list[str]:
        """What cannot be in the file."""
        sums, box = self.sums, np.array(self.box)
        shares = SHARES[isinstance(sums, DriftSums)]
        inside = (self.states >= box[:, 0]).all() and (self.states <= box[:, 1]).all()
        known = (self.low[self.odds.reference] == self.reward) & (self.high[self.odds.reference] == self.reward)
        wrong = super().contradictions() + self.odds.contradictions() + sums.contradictions()
        wrong += failed(
            (set(self.spending) == shares, f"the parts of δ are not {', '.join(sorted(shares))}"),
            (0 < self.discount < 1, f"the discount {self.discount:g} is not between 0 and 1"),
            (inside, "the band names states outside the domain"),
            (known.all(), "the reward of the reference is another in the band"),
            (sums.actions == self.actions, "decisions and transitions are about other actions"),
        )
        if isinstance(sums, Ground):
            wrong += self._other_ground(sums)
        else:
            polynomials = "Fourier" not in self.odds.basis.families
            wrong += failed(
                (((sums.low, sums.high),) == self.box, "decisions and transitions are about other states"),
                (self.tail == 0, "known noise has no tail"),
                (polynomials, "log-odds beside known noise are polynomials"),
            )
        return wrong + ([] if self.solution is None else self._other_solution(self.solution))

    def _other_solution(self, solution: Record) -> list[str]:
        """Where a solution is about another problem than its band, or says more than bands prove."""
        stated, reference = solution.number("discount"), solution.entry("reference")
        return failed(
            (solution.status != "certified", "the file says that it is certified, by what is a band"),
            (stated == self.discount, f"the band has discount {self.discount:g}, the solution {stated:g}"),
            (reference == self.odds.reference, "the solution has another reference than its band"),
            (len(solution.wholes("counts")) == self.actions, "the solution has other actions than its band"),
        )

    def _other_ground(self, ground: Ground) -> list[str]:
        """Whether what bounds (P_0 − P_a)V is about another value."""
        odds, changes, reward = self.odds, self.changes, ground.reward
        ends = [odds.basis.range(row) for row in odds.coefficients]
        low, high = (math.log(sum(math.exp(end) for end in side)) for side in zip(*ends, strict=True))
        room = RELATIVE * (high - low + abs(high))
        ranged = ground.unit * reward.low <= low + room and ground.unit * reward.high >= high - room
        peaks = odds.basis.change.size.sum(axis=1)
        sizes = np.tile(peaks, self.actions - 1)
        bends = np.outer(sizes, sizes)[np.triu_indices(odds.size)] / 8  # ½π(1 − π) and ½π_cπ_d are at most ⅛
        limits = ground.counts[:, None] * np.append(sizes, bends)
        small = (np.abs(changes[:, :-1]).max(axis=2) <= limits * (1 + TIGHT)).all()
        left = (np.abs(changes[:, -1]).max(axis=1) <= changes[:, -1, 0] * (1 + TIGHT)).all()
        return failed(
            (ground.columns.box == self.box, "decisions and transitions are about other states"),
            (ground.coordinates is None, "the value is one of some coordinates alone"),
            (ground.used == (odds.reference,), "the value is that of another expert"),
            (ground.discount == self.discount, "the value has another discount"),
            (ground.delta == self.spending.get("dynamics"), "the parts of δ are not those of the band"),
            (ground.tail == self.tail, "the band has another tail than its columns"),
            (not ground.ordered, "rows that depend on each other allow no band by columns"),
            (ranged and reward.basis is None and not reward.of_actions, "the value is that of another reward"),
            (small and left, "the sums of what log-odds change are larger than log-odds allow"),
        )

    def conclude(self) -> list[str]:
        """Derive the band at the states of the file, and say whether it is narrower than what follows."""
        sums, wrong = self.sums, list[str]()
        try:
            W = self.odds.sets(self.spending["log-odds"])
            effects: KnownNoise | Columns
            if isinstance(sums, Ground):
                rest = self.spending["dynamics of the log-odds"]
                effects = Columns(sums, self.changes, self.odds, W, self.discount, rest)
            else:
                effects = KnownNoise(sums, self.odds, W, self.discount, self.spending["drifts"])
            found = {a: effects.parts(self.states, a) for a in self.odds.others}
        except TooLittleError as problem:
            bounded = np.isfinite(self.low[self.odds.others]).any() or np.isfinite(self.high[self.odds.others]).any()
            return failed((not bounded, f"no band follows from the sums: {problem}"))
        half, self.found = np.zeros((2, len(found), len(self.states))), found
        for i, (a, parts) in enumerate(found.items()):
            middle, room = self.reward + parts.estimate, RELATIVE * (parts.below + parts.above + np.abs(parts.estimate))
            low, high = middle - parts.below, middle + parts.above
            room += TIGHT * abs(self.reward)
            half[:, i] = (high - low) / 2, (self.high[a] - self.low[a]) / 2
            holds = (self.low[a] <= low + room).all() and (self.high[a] >= high - room).all()
            wrong += failed((holds, f"the band of action {a} is narrower than what follows from the sums"))
        derived, stated = np.median(half.reshape(2, -1), axis=1)
        self.account = [("band", f"±{short(derived)} wide in the median; the file says ±{short(stated)}")]
        self.statement = (
            f"with probability at least {self.probability} the rewards of all actions at all states of "
            f"{self.odds.basis.domain} lie in the band, ±{at_most(max(derived, stated))} wide in the median, if that "
            f"of action {self.odds.reference} is {self.reward:g} everywhere"
        )
        return wrong

    def lines(self) -> list[tuple[str, str]]:
        """What is claimed of which problem, from how much."""
        sums, odds = self.sums, self.odds
        tail = f", up to {short(odds.tail)}" * (odds.tail > 0)
        rows, decisions = int(sums.counts.sum()), int(odds.counts.sum())
        noise = f"columns {sums.columns}" if isinstance(sums, Ground) else f"noise of standard deviation {sums.std:g}"
        return [
            ("problem", f"{self.actions} actions; discount {self.discount:g}; states in {odds.basis.domain}; {noise}"),
            ("odds", f"of each action against {odds.reference}, combinations of {odds.basis}{tail}"),
            *self.account,
            ("data", f"{decisions:,} decisions and {rows:,} transitions; {len(self.states):,} states were looked at"),
            ("spent", self.spent),
        ]

    def trusted(self) -> list[str]:
        """What no file can show."""
        sums, odds = self.sums, self.odds
        within = f"within {short(odds.tail)} of combinations" if odds.tail else "combinations"
        if isinstance(sums, Ground):
            rest = [DRAWS.format(", those of what the log-odds change among them"), sums.assumption]
        else:
            rest = sums.trusted()
        noted = [text for text in self.record.texts("assumptions") if text.startswith(_AS_READ)]
        return [
            "the expert takes action a at state s with probability proportional to exp Q_a(s), in the unit of rewards",
            "the stored sums are over decisions of this expert; given everything before it, each decision follows "
            f"these probabilities, whose log-odds are {within} of {odds.basis}",
            "the number of decisions, or of independent episodes, was fixed beforehand, and the first of them fixed "
            "the expected information",
            *rest,
            *noted,
            "δ was fixed before the data were seen; other attempts count in δ",
        ]
