"""What a refutation fixes before fresh data are read: comparisons, cones of value functions, mixtures.

For V = w·ψ the expert asks for w·ρ_i > 0 at every comparison i of a state with an alternative action. The w-space is
cut into cones, each spanned by p directions, and each cone is given one mixture x = Σ λ_iρ_i: if w_v·x < 0 for the
directions of the cone then w·x < 0 for every w in it, and some comparison fails. All of this is chosen on training
data; whatever is chosen, the proof is that of docs/notes/certificate.md, section 12.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from certirl.data.moments import Moments
from certirl.data.policy import ExpertGrid
from certirl.fit.bellman import MAX_CONDITION, indistinct
from certirl.fit.program import least_norm, non_negative
from certirl.functions.bases import Basis
from certirl.functions.extrema import first_of_least
from certirl.functions.frame import frame
from certirl.functions.inequalities import log_term
from certirl.ground import archive
from certirl.ground.archive import Shape
from certirl.ground.domain import Array
from certirl.ground.records import Record, internal
from certirl.proof.case import Case, Part

# Cones are halved until training data exceed the forecast error CLEAR times, or until there are CONES of them.
CLEAR, CONES = 2.0, 300
NARROW = 1 - 1e-6  # cosine of the angles of a cone that is not worth splitting
BESIDE = (1.0, 1.5, 2.5)  # distances of comparisons from the switches, in units of the tube
MOST_BESIDE = 200  # comparisons beside the switches
_FLAT, _AT_ONCE = 1e-10, 30  # of least squares: what counts as no slope, and columns that are added at once


@internal
class Comparisons(NamedTuple):
    """States, alternative actions and the expert, ordered by alternative action."""

    states: Array  # ``[m, d]``, all farther than the tube from the expert's switches
    actions: NDArray[np.intp]  # the alternative ``[m]``
    probabilities: Array  # of the expert's actions at the states ``[m, A]``

    @property
    def contrast(self) -> Array:
        """π_c(s_i) − 1_{c=a_i}, the coefficient of P_c in comparison i ``[m, A]``."""
        return np.asarray(self.probabilities - np.eye(self.probabilities.shape[1])[self.actions])

    def rows(self, fits: Array, columns: Basis) -> Array:
        """ρ_i by fits of P_cψ in the columns ``[A, p, k]``: ``[m, p]``."""
        return np.asarray(np.einsum("mc,cij,mj->mi", self.contrast, fits, columns.values(self.states), optimize=True))


def comparisons(case: Case, part: Part) -> Comparisons:
    """The expert against every alternative, at states that the columns tell apart; none if the tube holds all."""
    states = part.columns.grid(4 * part.columns.size + 1)
    if case.switching is not None:
        states = np.concatenate([states, case.switching.states[_beside(case.switching, case.tube)]])
        states = states[_distances(case.switching, states) > case.tube]
    probabilities = case.policy.probabilities(states)
    actions, at = np.nonzero(probabilities.T < 1)
    return Comparisons(states[at], actions, probabilities[at])


def _beside(grid: ExpertGrid, tube: float) -> NDArray[np.intp]:
    """Cells of the expert's grid whose middles are little farther from the switches than the tube."""
    chosen = []
    for share in BESIDE:
        away = grid.away - share * tube - grid.reach / 2  # switches are somewhere in their cells
        near = np.flatnonzero((away > 0) & (away <= grid.reach))
        chosen.append(near[:: max(-(-len(near) * len(BESIDE) // MOST_BESIDE), 1)])
    return np.concatenate(chosen)


def _distances(grid: ExpertGrid, states: Array) -> Array:
    """The distance of states ``[n, d]`` to the nearest cell that holds a switch ``[n]``."""
    blocks = np.array_split(states, -(-len(states) * len(grid.switches) // 2**20))
    gaps = (np.maximum(np.abs(rows[:, None] - grid.switches) - grid.cells.sides / 2, 0.0) for rows in blocks)
    return np.concatenate([np.linalg.norm(gap, axis=2).min(axis=1) for gap in gaps])


@archive.record
@dataclass(frozen=True, eq=False)
@internal
class Cover(Record):
    """Cones that cover the value functions of a component, and the mixtures that should exclude them.

    Its numbers are w·x for the p directions w of every cone and its mixture x, and ±e_i·x for the last mixture.
    """

    name: str  # of the component; empty for the only one
    coordinates: tuple[int, ...] | None  # of whole states, which it looks at; None for all
    functions: Basis  # ψ, the class of V; the first is constant and left out, so that p = K − 1
    columns: Basis  # φ, k of them
    states: Annotated[Array, Shape("m columns.dimension")]  # of the comparisons ``[m, d]``
    actions: Annotated[NDArray[np.intp], Shape("m")]  # the alternative actions ``[m]``
    probabilities: Annotated[Array, Shape("m A")]  # of the expert's actions at the states ``[m, A]``
    corners: Annotated[Array, Shape("p p")]  # c_1 … c_p, with c_0 = −Σ c_i the corners of a simplex around 0 ``[p, p]``
    # (cone, u, v, e): two cones, with u + 2^e v for u and for v, replace the cone ``[F − p − 1, 4]``
    splits: Annotated[NDArray[np.intp], Shape("S 4")]
    # λ ≥ 0 with sum 1, one for each cone and a last one whose mixture nearly vanishes ``[F + 1, m]``
    mixtures: Annotated[Array, Shape("F m")]
    # guesses of P_cψ_2 … P_cψ_K in the harmonics of the columns ``[A, p, k]``; any guess is sound
    fits: Annotated[Array, Shape("A p columns.size")]
    slopes: Annotated[Array, Shape("N")]  # λ of the deviation bound of every number ``[F p + 2p]``
    shares: Annotated[Array, Shape("N")]  # of δ, for every number ``[F p + 2p]``

    @property
    def comparisons(self) -> Comparisons:
        """States, alternatives and expert."""
        return Comparisons(self.states, self.actions, self.probabilities)

    @property
    def cones(self) -> int:
        """How many, F."""
        return len(self.mixtures) - 1

    @property
    def alternatives(self) -> Array:
        """The weight of every alternative action in every mixture ``[F + 1, A]``."""
        return np.asarray(self.mixtures @ np.eye(self.probabilities.shape[1])[self.actions])

    @property
    def which(self) -> NDArray[np.intp]:
        """The mixture of every number ``[F p + 2p]``."""
        p = len(self.corners)
        return np.repeat(np.arange(self.cones + 1), [p] * self.cones + [2 * p])

    @cached_property
    def directions(self) -> Array:
        """w of every number, of unit ‖·‖₁ ``[F p + 2p, p]``."""
        p, cones = len(self.corners), _first_cones(np.vstack([-self.corners.sum(axis=0), self.corners]))
        for number, u, v, exponent in self.splits:
            _split_cone(cones, number, u, v, exponent)
        rows = np.vstack([*cones, np.eye(p), -np.eye(p)])
        return rows / np.abs(rows).sum(axis=1, keepdims=True)

    @property
    def pulls(self) -> Array:
        """g with Σ_i λ_iΣ_c contrast_ic (P_cf)(s_i) = Σ_c g_c·(coefficients of P_cf), by mixture ``[F + 1, A, k]``."""
        x = frame(self.columns).values(self.states)
        return np.asarray(np.einsum("fm,mc,mk->fck", self.mixtures, self.comparisons.contrast, x, optimize=True))


def _first_cones(simplex: Array) -> list[Array]:
    """The cones ``[p, p]``, a direction a row, between the corners ``[p + 1, p]`` of a simplex around 0."""
    return [np.delete(simplex, v, axis=0) for v in range(len(simplex))]


def _split_cone(cones: list[Array], number: int, u: int, v: int, exponent: int) -> None:
    """Replace a cone by two, with u + 2^e v for u in the first, which keeps its place, and for v in the other."""
    first, second = cones[number], cones[number].copy()
    first[u] = second[v] = first[u] + 2.0**exponent * first[v]
    cones.append(second)


class Regression(NamedTuple):
    """Least squares on training data."""

    fits: Array  # P̂_cψ_i in the columns, i ≥ 2 ``[A, p, k]``
    noise: Array  # covariances of ψ(s') − E[ψ(s') | s] within and between actions, over all states ``[A, A, p, p]``
    precision: Array  # (Σ x xᵀ)⁻¹ for one transition, averaged over the actions ``[k, k]``


def obstacle(case: Case, rows: Sequence[Comparisons], moments: Sequence[Moments]) -> str:
    """Why nothing can be chosen on these training data, in a sentence; empty if nothing prevents it."""
    if not all(len(compared.states) for compared in rows):
        return f"a tube of half-width {case.tube:g} around the expert's switches leaves no state to compare"
    for sums in moments:
        few = (sums.counts <= sums.columns.size) | (np.linalg.cond(sums.gram) > MAX_CONDITION)
        if few.any():
            action = int(few.argmax())
            return indistinct(action, sums.columns.size, int(sums.counts[action]), "training")
    return ""


def regression(moments: Moments, functions: int) -> Regression:
    """Fit the first functions of the moments' rows by their columns."""
    k = moments.columns.size
    cross, outer = moments.cross[:, 1:functions], moments.outer[:, :, 1:functions, 1:functions]
    inverse = np.linalg.inv(moments.gram)
    fits = cross @ inverse
    explained = np.einsum("aij,blj->abil", fits, cross)
    if not moments.paired:
        explained = explained * np.eye(len(fits))[:, :, None, None]
    noise = (outer - explained) / np.maximum(moments.counts - k, 1)[:, None, None, None]
    precision = (inverse * moments.counts[:, None, None]).mean(axis=0)
    return Regression(fits, (noise + noise.transpose(1, 0, 3, 2)) / 2, precision)


@dataclass(frozen=True, eq=False)
class ConeSearch(Record):
    """The search for cones and mixtures in coordinates in which the noise is round: forecasts, no proof."""

    points: Array  # the rows ρ_i ``[m, p]``; ordered by alternative action
    contrast: Array  # the coefficient of every P_c in a row ``[m, A]``, with sum 0
    lever: Array  # ``[k, m]``; squared lengths are the variances of fits at the states of the rows, for unit noise
    noise: Array  # covariances of ψ(s') within and between actions ``[A, A, p, p]``
    values: Array  # ψ at some states ``[p, …]``, for the range of w·ψ
    tail: float  # τ
    samples: float  # fresh transitions per action that are planned
    log_term: float  # L that is planned
    alternatives: Array  # ν of the alternatives, in order, that every mixture has ``[A − 1]``; a single 1 for any
    most: int  # the most cones

    @cached_property
    def reward(self) -> Array | None:
        """A direction in which all rows are positive; None if there is none: the training data conflict."""
        return least_norm(self.points / (float(np.linalg.norm(self.points, axis=1).max()) or 1.0))[0]

    def grown(self) -> tuple[Array, Array, Array]:
        """Split the cone that is least clearly excluded, and so on: corners, splits and mixtures, as in `Cover`."""
        simplex, splits = self._simplex(), list[tuple[int, int, int, int]]()
        p, cones = len(simplex) - 1, _first_cones(simplex)
        mixtures, heap, new = [np.empty(0)] * (p + 1), list[tuple[float, int]](), list(range(p + 1))
        start: NDArray[np.intp] = np.arange(0, len(self.points), max(len(self.points) // 50, 1))
        while True:
            for number in new:
                clearance, mixtures[number] = self._against(cones[number], start)
                heapq.heappush(heap, (clearance, number))
            clearance, number = heap[0]
            cone = cones[number]
            lengths = np.linalg.norm(cone, axis=1)
            angles = (cone @ cone.T) / np.multiply.outer(lengths, lengths)
            hopeless = self._lowest(cone).max() >= 0  # one direction is a reward, on training data
            if hopeless or angles.min() > NARROW or clearance > CLEAR or len(heap) >= self.most:
                return simplex[1:], np.array(splits, dtype=np.intp).reshape(-1, 4), np.array(mixtures)
            heapq.heappop(heap)
            u, v = divmod(first_of_least(angles.ravel()), p)  # the widest angle
            exponent = int(np.clip(np.rint(np.log2(lengths[u] / lengths[v])), -100, 100))
            splits.append((number, u, v, exponent))
            new, start = [number, len(cones)], np.flatnonzero(mixtures[number])
            _split_cone(cones, number, u, v, exponent)
            mixtures.append(np.empty(0))

    def _simplex(self) -> Array:
        """p + 1 unit vectors with sum zero; the first one is a reward, if the training data allow any."""
        from scipy.linalg import helmert

        p = self.points.shape[1]
        corners = helmert(p + 1).T * np.sqrt(1 + 1 / p)
        if self.reward is not None:  # reflect the first corner into it
            mirror = corners[0] - self.reward / np.linalg.norm(self.reward)
            corners = corners - 2 * np.outer(corners @ mirror, mirror) / max(float(mirror @ mirror), 1e-30)
        return np.asarray(corners)

    def _against(self, directions: Array, start: NDArray[np.intp]) -> tuple[float, Array]:
        """By how many errors x(λ) is below zero, and the λ ≥ 0 of least error with w_v·x(λ) ≤ −1 for all directions."""
        cone = directions / np.linalg.norm(directions, axis=1, keepdims=True)
        p, forms = len(cone), self._forms(cone)
        error = self._error(forms)
        pull = cone @ self.points.T + self.tail * np.ptp(cone @ self.values, axis=1)[:, None]
        unit, heavy = float(np.abs(pull).max()) or 1.0, 1e3 * float(np.abs(error).max())
        error = np.vstack([error, heavy * self._imbalance()])
        system = np.block([[error, np.zeros((len(error), p))], [heavy / unit * pull, heavy * np.eye(p)]])
        goal = np.concatenate([np.zeros(len(error)), np.full(p, -heavy)])
        mixture = self._balanced(_least(system, goal, start, slack=p))
        h = (self.contrast * mixture[:, None]).T @ self.lever.T
        return -float((pull @ mixture / np.sqrt(np.einsum("vab,ab->v", forms, h @ h.T))).max()), mixture

    def vanishing(self, axes: Array) -> Array:
        """The mixture that is shortest, along the axes ``[v, p]`` and with its error: ``[m]``."""
        error = self._error(self._forms(axes))
        system = np.vstack([axes @ self.points.T, error])
        heavy = 1e3 * float(np.abs(system).max())
        system = np.vstack([system, heavy * self._imbalance()])
        start = np.arange(min(len(axes), len(self.points)))
        goal = np.append(np.zeros(len(system)), heavy)
        return self._balanced(_least(np.vstack([system, np.full(len(self.points), heavy)]), goal, start))

    def _lowest(self, directions: Array) -> Array:
        """The least w·ρ of all rows, or Σ_a ν_a times the least of each alternative's, for every direction."""
        each = (directions @ self.points.T).reshape(len(directions), len(self.alternatives), -1)
        return np.asarray(each.min(axis=2) @ self.alternatives)

    def _imbalance(self) -> Array:
        """Rows that vanish for mixtures with the right weights of the alternatives ``[R, m]``."""
        members = np.repeat(np.eye(len(self.alternatives)), len(self.points) // len(self.alternatives), axis=1)
        return np.asarray(members - self.alternatives[:, None])

    def _balanced(self, mixture: Array) -> Array:
        """The mixture, scaled to the right weight of every alternative."""
        groups = mixture.reshape(len(self.alternatives), -1)
        groups = np.where(groups.any(axis=1, keepdims=True), groups, 1.0)
        return np.asarray((groups * (self.alternatives / groups.sum(axis=1))[:, None]).ravel())

    def _forms(self, cone: Array) -> Array:
        """C_v ``[A, A]`` with Σ_cd C_v,cd h_c·h_d about the squared error of w_v·x, h_c = Σ λ_i contrast_ic lever_i."""
        square = np.ptp(cone @ self.values, axis=1)[:, None, None] ** 2
        largest = (2.3 * self.log_term) ** 2 / 2 * float((self.lever**2).sum(axis=0).max())
        missed = self.tail**2 / 4 * self.samples * len(self.noise)
        estimation = 2 * self.log_term * np.einsum("vi,abij,vj->vab", cone, self.noise, cone)
        return np.asarray(estimation + square * (largest + missed) * np.eye(len(self.noise)))

    def _error(self, forms: Array) -> Array:
        """The matrix whose product with λ is as long as the error of x(λ), on average over the forms ``[A·k, m]``."""
        mixed = self.contrast @ np.linalg.cholesky(forms.mean(axis=0))
        return np.asarray((mixed.T[:, None] * self.lever).reshape(-1, len(mixed)))


def cover_of(
    part: Part,
    functions: Basis,
    compared: Comparisons,
    fitted: Regression,
    *,
    samples: int,
    delta: float,
    alternatives: Array | None,
    most: int | None,
    only_conflicts: bool,
) -> Cover | None:
    """Choose cones and mixtures; slopes and shares are left empty.

    ``functions`` are the class of V of this component, ``compared`` the comparisons, ``fitted`` of training data;
    ``samples`` fresh transitions per action are planned. ``alternatives`` are ν ``[A − 1]``, for sums of components,
    None for any weights; ``most`` is the number of cones, `CONES` if left out. With ``only_conflicts`` the answer is
    None if some value function obeys all comparisons on training data.
    """
    p, contrast, tail = functions.size - 1, compared.contrast, part.tail or 0.0
    features = part.columns.values(compared.states)
    variances, vectors = np.linalg.eigh(np.einsum("cd,cdij->ij", contrast.T @ contrast, fitted.noise) / len(contrast))
    top = variances[-1] if variances[-1] > 1e-12 else np.inf  # less is rounding: deterministic dynamics
    whitener = np.linalg.inv(np.linalg.cholesky((vectors * np.maximum(variances / top, 1e-9)) @ vectors.T))
    search = ConeSearch(
        points=compared.rows(fitted.fits, part.columns) @ whitener.T,
        contrast=contrast,
        lever=np.linalg.cholesky(fitted.precision / samples).T @ features.T,
        noise=np.einsum("xi,abij,yj->abxy", whitener, fitted.noise, whitener, optimize=True),
        values=whitener @ functions.values(functions.grid(4 * functions.size + 1)).T[1:],
        tail=tail if np.isfinite(tail) else 0.0,
        samples=samples,
        log_term=log_term(p * (CONES + 2), delta),
        alternatives=np.ones(1) if alternatives is None else alternatives,
        most=CONES if most is None else most,
    )
    if only_conflicts and alternatives is None and search.reward is not None:
        return None
    corners, splits, mixtures = search.grown()
    axes = np.vstack([np.eye(p), -np.eye(p)]) @ np.linalg.inv(whitener)
    mixtures = np.vstack([mixtures, search.vanishing(axes)])
    used = mixtures.any(axis=0)
    return Cover(
        name=part.name,
        coordinates=part.coordinates,
        functions=functions,
        columns=part.columns,
        states=compared.states[used],
        actions=compared.actions[used],
        probabilities=compared.probabilities[used],
        corners=corners @ whitener,
        splits=splits,
        mixtures=mixtures[:, used],
        fits=frame(part.columns).coefficients(fitted.fits),
        slopes=np.empty(0),
        shares=np.empty(0),
    )


def _least(system: Array, goal: Array, start: NDArray[np.intp], slack: int = 0) -> Array:
    """The λ ≥ 0 that brings system @ λ closest to the goal, without its slack and scaled to sum 1; even if none is.

    Few columns have weight: those of ``start`` are tried first, then those along which the distance still falls.
    """
    size, weights, before = system.shape[1], np.zeros(system.shape[1]), np.inf
    working = np.union1d(start, np.arange(size - slack, size))
    level = _FLAT * np.linalg.norm(system, axis=0) * np.linalg.norm(goal)
    while (solved := non_negative(system[:, working], goal)) is not None:
        weights = np.bincount(working, weights=solved, minlength=size).astype(float)
        rest = goal - system @ weights
        falls = system.T @ rest - level
        falls[working] = 0.0
        new = np.argsort(-falls, kind="stable")[:_AT_ONCE]
        if not (falls[new] > 0).any() or not (distance := float(rest @ rest)) < before:
            break
        working, before = np.union1d(np.flatnonzero(weights), new[falls[new] > 0]), distance
    weights = weights[: size - slack]
    return np.asarray(weights / weights.sum() if weights.any() else np.full(len(weights), 1 / len(weights)))
