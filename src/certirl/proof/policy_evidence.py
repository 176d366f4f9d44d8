"""What fresh data say about a reward and an expert who switches: sums that a certificate needs, mergeable like moments.

Before the fresh data are touched a `PolicySurrogate` is fixed: R, a guess V = R + γ Σ_c π_c·P̂_cV of the expert's value,
and guesses of what every action does to V and to the functions π_dφ_j, which every error of V is made of.
docs/notes/switching.md has statements and proofs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from certirl.data.moments import Moments, accumulate
from certirl.data.policy import Policy
from certirl.data.transitions import Chunk, Piece, chunks_of
from certirl.functions.bases import Basis
from certirl.functions.bounded import BoundedReward
from certirl.functions.cells import Cells
from certirl.functions.extrema import minimum
from certirl.functions.frames import frame
from certirl.functions.reward import RewardLike, values_of
from certirl.ground import archive
from certirl.ground.domain import Array, freeze
from certirl.ground.work import fold
from certirl.kernels.tensors import on_host
from certirl.proof.tallies import Tally

# Directions in which û hardly varies still need a size to be measured in: a share of the largest.
_FLOOR = 1e-3
_BLOCK = 2048  # rows worked on at once: in cache, and well below what `bounds` allows for in one chain of additions
_GRID = 2001  # states at which the highest and the lowest value are looked for


@archive.record
@dataclass(frozen=True, eq=False)
class PolicySurrogate:
    """Everything that is fixed before the fresh data are seen.

    Attributes:
        columns: φ, the k functions of the state.
        reward: R, any bounded function of states ``[n, d]``; None once read from a file.
        policy: π; None once read from a file.
        discount: γ.
        fits: P̂_cV in the columns ``[A, k]``, so that V = R + γ Σ_c π_c·(P̂_cV).
        Z: P̂_c(π_dφ_j) in the columns ``[A, A·k, k]``, functions ordered by d, then j.
        mix: the functions f_i = Σ mix_i,dj π_dφ_j that errors are measured in ``[A·k, A·k]``, invertible.
        low, high: V lies between them.
        switches: where the expert switches, as far as that is known ``[z]``; on a box how far every point of a grid is
            from there ``[g_1, …, g_d]``. Any numbers are sound.
        widths: half-widths of tents around the switches ``[w]``: how often they are visited bounds the regret.
        tent_fits: P̂_c of the tents ``[A, w, k]``.
        drop: π_dφ_j where V̂ is highest less where it is lowest, as far as a grid shows ``[A·k]``.
        dropped: V̂ there, the difference.
        places: these two states ``[2, d]``.
        unit: a power of two; all of these, R among them, are those of the user's reward divided by it.
    """

    columns: Basis
    reward: RewardLike | None
    policy: Policy | None
    discount: float
    fits: Array
    Z: Array
    mix: Array
    low: float
    high: float
    switches: Array
    widths: Array
    tent_fits: Array
    drop: Array
    dropped: float
    places: Array
    unit: float = 1.0

    def __post_init__(self) -> None:
        freeze(self)

    @property
    def n_actions(self) -> int:
        """A."""
        return len(self.fits)

    def pieces(self, states: Array) -> Array:
        """π_dφ_j at states ``[n, A·k]``."""
        assert self.policy is not None
        return _pieces(self.policy, self.columns, states)

    def value(self, states: Array) -> Array:
        """V at states ``[n]``."""
        return self.value_of(states, self.pieces(states))

    def value_of(self, states: Array, pieces: Array) -> Array:
        """The same where π_dφ_j is known already."""
        assert self.reward is not None
        return values_of(self.reward, states) + self.discount * pieces @ self.fits.ravel()

    def tents(self, states: Array) -> Array:
        """1 at a switch, falling to 0 at each half-width from it ``[w, n]``."""
        away = frame(self.columns).away(states, self.switches)
        return np.maximum(0.0, 1 - away / self.widths[:, None])


def _pieces(policy: Policy, columns: Basis, states: Array) -> Array:
    shares, phi = policy.probabilities(states), columns.values(states)
    return np.asarray((shares[:, :, None] * phi[:, None, :]).reshape(len(states), -1))


@dataclass(frozen=True, eq=False)
class _Observables:
    """The functions π_dφ_j and the reward, side by side, to be measured at next states like a row basis."""

    columns: Basis
    policy: Policy
    reward: RewardLike

    @property
    def size(self) -> int:
        return self.policy.n_actions * self.columns.size + 1

    def values(self, states: Array) -> Array:
        return np.column_stack([_pieces(self.policy, self.columns, states), values_of(self.reward, states)])


def fit_policy_surrogate(
    reward: BoundedReward,
    policy: Policy,
    training: Iterable[Piece],
    *,
    columns: Basis,
    discount: float,
    switches: Array,
    widths: Array,
) -> PolicySurrogate:
    """Guess V = R + γP_πV and the operators by least squares on training data, which is walked through three times."""
    rows: Any = _Observables(columns, policy, reward)
    ((moments,),) = accumulate(training, [(rows, columns)], n_actions=policy.n_actions)
    tents: dict[str, Any] = {"switches": switches, "widths": widths}
    return surrogate_from(moments, reward, policy, training, discount=discount, **tents)


def surrogate_from(
    moments: Moments,
    reward: BoundedReward,
    policy: Policy,
    training: Iterable[Piece],
    *,
    discount: float,
    switches: Array,
    widths: Array,
) -> PolicySurrogate:
    """The same from moments whose rows are π_dφ_j and the reward; what is left of V is looked up in the data again."""
    columns, A, k = moments.columns, policy.n_actions, moments.columns.size
    regression = moments.cross @ np.linalg.pinv(moments.gram, hermitian=True)  # a poor guess is sound, only wasteful
    Z, of_reward = regression[:, :-1], regression[:, -1]
    system = np.eye(A * k) - discount * np.concatenate(list(Z), axis=1).T  # V = R + γ Σ π_c fits_c is its own guess
    fits = np.linalg.solve(system, of_reward.ravel()).reshape(A, k)
    low = reward.low + discount * min(minimum(columns, fit)[1] for fit in fits)
    high = reward.high - discount * min(minimum(columns, -fit)[1] for fit in fits)
    rough = PolicySurrogate(
        columns,
        reward,
        policy,
        discount,
        fits,
        Z,
        np.zeros((0, A * k)),
        low,
        high,
        np.asarray(switches, dtype=float),
        np.asarray(widths, dtype=float),
        np.zeros((A, len(widths), k)),
        np.zeros(A * k),
        0.0,
        np.zeros((2, columns.dimension)),
        reward.unit,
    )
    seen = gather(rough, training)
    mixed = _directions(rough, seen)
    fitted = np.einsum("awi,aij->awj", seen.visits, np.linalg.pinv(seen.gram, hermitian=True))
    grid = columns.grid(_GRID)
    value = rough.value(grid)
    places = grid[[value.argmax(), value.argmin()]]
    ends = rough.pieces(places)
    drops: dict[str, Any] = {"drop": ends[0] - ends[1], "dropped": float(np.ptp(value)), "places": places}
    return replace(rough, mix=mixed, tent_fits=fitted, **drops)


def _directions(surrogate: PolicySurrogate, seen: PolicyEvidence) -> Array:
    """Principal directions of û = (I − γP̂_π)⁻¹e, e the error of the fits, as training data let us expect them.

    The remainder is a scalar product of û and of what the operators miss of each function, bounded by two lengths:
    least if both have coefficients of equal size, so every direction is scaled by the root of its expected size in û
    over its size as a function.
    """
    A, k = surrogate.fits.shape
    inverse, spread = np.linalg.pinv(seen.gram, hermitian=True), frame(surrogate.columns).lifted(seen.spread)
    errors = np.einsum("aij,abjk,bkl->aibl", inverse, spread, inverse).reshape(A * k, A * k)
    resolvent = np.linalg.inv(np.eye(A * k) - surrogate.discount * np.concatenate(list(surrogate.Z), axis=1))
    sizes, directions = np.linalg.eigh(surrogate.discount**2 * resolvent.T @ errors @ resolvent)
    sizes = np.sqrt(np.maximum(sizes, 0.0))
    sizes = np.maximum(sizes, _FLOOR * sizes.max())
    spans = (directions.T @ surrogate.pieces(surrogate.columns.grid(_GRID)).T).std(axis=1)
    return np.sqrt(sizes / np.maximum(spans, _FLOOR * spans.max()))[::-1, None] * directions.T[::-1]


@archive.record
@dataclass(frozen=True, eq=False)
class PolicyEvidence(Tally):
    """Sums over fresh transitions, with x = φ(s) and χ the products of two columns.

    Y_c = V(s') − P̂_cV(s), E_ci = f_i(s') − P̂_cf_i(s), O_cw is that of a tent.

    Attributes:
        counts: transitions per action ``[A]``.
        gram: Σ x xᵀ ``[A, k, k]``.
        surprise: Σ x Y_c ``[A, k]``.
        spread: Σ χ Y_cY_d ``[A, A, M]``; zero for c ≠ d unless paired. On a box M stands for M_1, …, M_d.
        drift: Σ x E_ci ``[A, m, k]``.
        wobble: Σ χ E_ciE_di ``[A, A, m, M]``.
        visits: Σ x O_cw ``[A, w, k]``.
        visit_spread: Σ χ O_cw² ``[A, w, M]``.
        reached: Σ ψ_i(s') for the functions ψ of a reward that is an expansion ``[A, k_R]``, else empty: no bound needs
            them, but with them ΣY follows from R, which ties R to the sums.
        paired: every state was tried with every action.
    """

    firsts: ClassVar = ("surprise", "drift", "visits")
    seconds: ClassVar = ("gram", "spread", "wobble", "visit_spread", "reached")
    counts: NDArray[np.int64]
    gram: Array
    surprise: Array
    spread: Array
    drift: Array
    wobble: Array
    visits: Array
    visit_spread: Array
    reached: Array
    paired: bool


POLICY_SUMS = PolicyEvidence.names()


def gather(surrogate: PolicySurrogate, stream: Iterable[Piece]) -> PolicyEvidence:
    """Walk through fresh data once, chunks side by side; memory does not grow with its length."""
    sums = fold(partial(_of_chunk, surrogate), chunks_of(stream))
    if (sums.counts == 0).any():
        raise ValueError(f"action {int(sums.counts.argmin())} was never tried: nothing can be said about it")
    return sums


def _of_chunk(surrogate: PolicySurrogate, chunk: Chunk) -> PolicyEvidence:
    A, k, m = surrogate.n_actions, surrogate.columns.size, len(surrogate.mix)
    wide = frame(surrogate.columns).wide
    shapes: dict[str, tuple[int, ...]] = {
        "gram": (A, k, k),
        "surprise": (A, k),
        "spread": (A, A, *wide),
        "drift": (A, m, k),
        "wobble": (A, A, m, *wide),
        "visits": (A, len(surrogate.widths), k),
        "visit_spread": (A, len(surrogate.widths), *wide),
        "reached": (A, 0 if (basis := _basis(surrogate)) is None else basis.size),
    }
    sums = {name: np.zeros(shape) for name, shape in shapes.items()}
    counts, groups = np.zeros(A, dtype=np.int64), set()
    for piece in on_host(chunk.pieces(), surrogate.columns.domain, _BLOCK):
        groups.add(len(piece.actions))
        counts[list(piece.actions)] += len(piece.states)
        _add(surrogate, piece, sums)
    if groups - {1, A}:
        raise ValueError(f"a state must be tried with one action or with all {A}, got {max(groups - {1, A})}")
    if len(groups) > 1:
        raise ValueError("paired and unpaired data must be weighed separately")
    return PolicyEvidence(counts, **sums, paired=groups == {A})


def _basis(surrogate: PolicySurrogate) -> Basis | Cells | None:
    """The functions of a reward that is an expansion."""
    return surrogate.reward.basis if isinstance(surrogate.reward, BoundedReward) else None  # type: ignore[return-value]


def _add(surrogate: PolicySurrogate, piece: Piece, sums: dict[str, Array]) -> None:
    """One piece: residuals of V, of the functions f_i and of the tents, then their products."""
    chosen, own = list(piece.actions), frame(surrogate.columns)
    x, chi = surrogate.columns.values(piece.states), own.tables(piece.states)
    ends = piece.next_states.reshape(len(chosen) * len(x), -1)
    functions = np.vstack([surrogate.mix, np.zeros((1, surrogate.mix.shape[1]))])
    pieces = surrogate.pieces(ends)
    values = functions @ pieces.T
    values[-1] = surrogate.value_of(ends, pieces)
    values = values.reshape(len(functions), len(chosen), len(x))
    near = surrogate.tents(ends).reshape(-1, len(chosen), len(x))
    residuals, basis = [], _basis(surrogate)
    for i, c in enumerate(chosen):
        if basis is not None:
            sums["reached"][c] += basis.summed(piece.next_states[i])
        fits = np.vstack([surrogate.mix @ surrogate.Z[c], surrogate.fits[c]])
        residuals.append(values[:, i] - fits @ x.T)
        visits = near[:, i] - surrogate.tent_fits[c] @ x.T
        sums["gram"][c] += x.T @ x
        sums["drift"][c] += residuals[i][:-1] @ x
        sums["surprise"][c] += residuals[i][-1] @ x
        sums["visits"][c] += visits @ x
        sums["visit_spread"][c] += own.sums(chi, visits**2)
    for i, c in enumerate(chosen):
        for j, d in enumerate(chosen[: i + 1]):
            products = own.sums(chi, residuals[i] * residuals[j])
            for one, other in {(c, d), (d, c)}:
                sums["wobble"][one, other] += products[:-1]
                sums["spread"][one, other] += products[-1]
