"""What fresh data say about one fixed reward: the sums that a certificate needs, mergeable like moments.

Before the fresh data are touched a `Surrogate` is fixed: the reward R, a guess V of the expert's value, and guesses of
what every action does to V and to the column functions. The evidence then measures how wrong these guesses are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, TypeGuard

import numpy as np
from numpy.typing import NDArray

from certirl.data.moments import Moments, accumulate, worthwhile
from certirl.data.transitions import CHUNK, Chunk, Piece, chunks_of
from certirl.functions.bases import Basis
from certirl.functions.extrema import minimum
from certirl.functions.products import lifted
from certirl.functions.reward import Reward, RewardLike, values_of
from certirl.ground import archive
from certirl.ground.domain import Array
from certirl.ground.work import fold
from certirl.kernels.residuals import FusedResiduals, Guesses, StackedResiduals, residual_sums
from certirl.kernels.tensors import on_host
from certirl.proof.tallies import Tally


@archive.record
@dataclass(frozen=True, eq=False)
class Surrogate:
    """Everything that is fixed before the fresh data are seen.

    Attributes:
        columns: the k_s functions of the state.
        reward: R, any bounded function of states ``[n, d]``.
        discount, expert: γ and π.
        g: P̂_πV, so that V = R + γ Σ g_j φ_j ``[k_s]``; any choice is sound, a good one leaves little to be found out.
        fits: P̂_cV for every action ``[A, k_s]``; that of the expert is g.
        Z: P̂_cφ_i for every action ``[A, k_s, k_s]``, first row (1, 0, …).
        low, high: V lies between them.
        unit: a power of two; all of these, R among them, are those of the user's reward divided by it.
    """

    columns: Basis
    reward: RewardLike
    discount: float
    expert: int
    g: Array
    fits: Array
    Z: Array
    low: float
    high: float
    unit: float = 1.0

    @property
    def rivals(self) -> tuple[int, ...]:
        """The other actions."""
        return tuple(a for a in range(len(self.Z)) if a != self.expert)

    def value(self, states: Array) -> Array:
        """V at states ``[n]``."""
        return values_of(self.reward, states) + self.discount * (self.columns.values(states) @ self.g)


@dataclass(frozen=True, eq=False)
class _Observables:
    """The column functions and the reward, side by side, to be measured at next states like a row basis."""

    columns: Basis
    reward: RewardLike

    @property
    def size(self) -> int:
        return self.columns.size + 1

    def values(self, states: Array) -> Array:
        return np.column_stack([self.columns.values(states), values_of(self.reward, states)])


def fit_surrogate(
    reward: RewardLike,
    training: Iterable[Piece],
    *,
    columns: Basis,
    n_actions: int,
    discount: float,
    expert: int,
    reward_range: tuple[float, float] | None = None,
    unit: float = 1.0,
) -> Surrogate:
    """Guess V = R + γP_πV and the operators by least squares on training data.

    Args:
        reward: R.
        training: data that the evidence will not use.
        columns: the functions of the state.
        n_actions: how many actions there are.
        discount: γ.
        expert: π.
        reward_range: bounds on R; needed unless R is an expansion in the same family.
        unit: what the user's reward was divided by.
    """
    rows: Any = _Observables(columns, reward)
    if same_family(reward, columns):
        rows = columns.resized(max(reward.basis.size, columns.size))
    ((moments,),) = accumulate(training, [(rows, columns)], n_actions=n_actions)
    found = surrogate_of(reward, moments, discount=discount, expert=expert, reward_range=reward_range)
    return replace(found, unit=unit)


def surrogate_of(
    reward: RewardLike,
    moments: Moments,
    *,
    discount: float,
    expert: int,
    reward_range: tuple[float, float] | None = None,
) -> Surrogate:
    """The same from moments of the training data, whose rows hold the columns and the reward."""
    columns, ks = moments.columns, moments.columns.size
    regression = moments.cross @ np.linalg.pinv(moments.gram, hermitian=True)  # a poor guess is sound, only wasteful
    Z = regression[:, :ks].copy()
    Z[:, 0] = np.eye(ks)[0]
    of_reward = regression[:, -1]  # as in `_Observables`
    if same_family(reward, columns):
        of_reward = np.einsum("i,aij->aj", reward.coefficients, regression[:, : reward.basis.size])
    g = np.linalg.solve(np.eye(ks) - discount * Z[expert].T, of_reward[expert])
    fits = of_reward + discount * np.einsum("i,aij->aj", g, Z)
    fits[expert] = g  # the same to rounding, and then exactly
    low, high = _value_range(reward, columns, discount * g, reward_range)
    return Surrogate(columns, reward, discount, expert, g, fits, Z, low, high)


def _value_range(
    reward: RewardLike, columns: Basis, added: Array, reward_range: tuple[float, float] | None
) -> tuple[float, float]:
    """Bounds on V = R + Σ added_j φ_j: exact for an expansion in the same family, else from the declared range of R."""
    if same_family(reward, columns):
        basis, total = _plus_expansion(reward, columns, added)
        return minimum(basis, total)[1], -minimum(basis, -total)[1]
    if reward_range is None:
        raise ValueError("a reward that is not an expansion in this basis needs reward_range=(low, high)")
    low, high = reward_range
    return low + minimum(columns, added)[1], high - minimum(columns, -added)[1]


def same_family(reward: RewardLike, columns: Basis) -> TypeGuard[Reward]:
    """Whether R is an expansion in the columns' family, on their interval."""
    if not isinstance(reward, Reward) or not isinstance(reward.basis, Basis) or reward.zero_at_terminal:
        return False
    return reward.basis.resized(columns.size) == columns


def _plus_expansion(reward: Reward, columns: Basis, added: Array) -> tuple[Basis, Array]:
    """R + Σ added_j φ_j as one expansion."""
    total = np.zeros(max(reward.basis.size, columns.size))
    total[: reward.basis.size] += reward.coefficients
    total[: columns.size] += added
    return reward.basis.resized(len(total)), total  # type: ignore[union-attr]


@archive.record
@dataclass(frozen=True, eq=False)
class Evidence(Tally):
    """Sums over fresh transitions, with x = φ(s).

    The surprise of action c is Y_c = V(s') − P̂_cV(s), that of function i is E_ci = φ_i(s') − P̂_cφ_i(s). A contrast is
    the expert's surprise less the rival's if data are paired, and the action's own surprise otherwise.

    Attributes:
        counts: transitions per action ``[A]``.
        gram: Σ x xᵀ ``[A, k_s, k_s]``.
        surprise: Σ x Y_c ``[A, k_s]``.
        spread: Σ x xᵀ Y_c Y_d ``[A, A, k_s, k_s]``; zero for c ≠ d unless paired.
        drift: Σ E_ci x ``[A, k_s, k_s]``.
        wobble: Σ x xᵀ (contrast of E_ci)² ``[A, k_s, k_s, k_s]``, i first.
        reached: Σ ψ_i(s') for the functions ψ of a reward that is an expansion in the columns' family ``[A, k]``, else
            the columns: no bound needs them, but with them ΣY follows from R, which ties R to the sums.
        paired: every state was tried with every action.
    """

    firsts: ClassVar = ("surprise", "drift")
    seconds: ClassVar = ("gram", "spread", "wobble", "reached")
    counts: NDArray[np.int64]
    gram: Array
    surprise: Array
    spread: Array
    drift: Array
    wobble: Array
    reached: Array
    paired: bool


SUMS = Evidence.names()


def gather(surrogate: Surrogate, stream: Iterable[Piece], *, kernel: str | None = None) -> Evidence:
    """Walk through fresh data once, chunks side by side; memory does not grow with its length.

    Args:
        surrogate: fixed beforehand.
        stream: the fresh data.
        kernel: one of `residuals.KERNELS`; left out, the fastest that is installed, can do it and is worth loading.
    """
    (evidence,) = gather_views([surrogate], stream, None, kernel=kernel)
    return evidence


def gather_views(
    surrogates: Sequence[Surrogate],
    stream: Iterable[Piece],
    views: Sequence[Sequence[int]] | None,
    *,
    kernel: str | None = None,
) -> list[Evidence]:
    """The same in one walk for several surrogates, each of which looks at its own coordinates of the states."""
    chunks, looks = chunks_of(stream), None if views is None else tuple(map(tuple, views))
    kernel = kernel or worthwhile(chunks, 3 * max(surrogate.columns.size for surrogate in surrogates))
    return fold(partial(_of_chunk, tuple(surrogates), looks, kernel), chunks, _side_by_side)


def _of_chunk(
    surrogates: tuple[Surrogate, ...], views: tuple[tuple[int, ...], ...] | None, kernel: str | None, chunk: Chunk
) -> list[Evidence]:
    sums = [_Sums(surrogate, kernel) for surrogate in surrogates]
    for piece in chunk.pieces():
        for index, part in enumerate(sums):
            seen = piece if views is None else piece.view(views[index])
            # Products of four functions are no work for single precision: tensors come to the host.
            for held in on_host([seen], surrogates[index].columns.domain, CHUNK):
                part.take(held)
    return [part.evidence() for part in sums]


def _side_by_side(one: list[Evidence], other: list[Evidence]) -> list[Evidence]:
    return [a + b for a, b in zip(one, other, strict=True)]


class _Sums:
    """Evidence in the making, one set of sums for every group of actions that were tried together.

    The residuals of an action are its E_1, …, E_k and its Y; with pairs, E of a rival stands for the contrast.
    """

    def __init__(self, surrogate: Surrogate, kernel: str | None = None) -> None:
        self.surrogate, self.kernel = surrogate, kernel
        self.counts = np.zeros(len(surrogate.Z), dtype=np.int64)
        self._sums: dict[tuple[int, ...], StackedResiduals | FusedResiduals] = {}

    @property
    def kernels(self) -> set[str]:
        """How the sums are made."""
        return {sums.kernel for sums in self._sums.values()}

    @property
    def paired(self) -> bool:
        return all(len(group) == len(self.counts) for group in self._sums)

    def take(self, piece: Piece) -> None:
        group = tuple(piece.actions)
        if group not in self._sums:
            if group != tuple(range(len(self.counts))) and len(group) > 1:
                raise ValueError("a piece of data holds one action, or all of them in order")
            self._sums[group] = residual_sums(self._guesses(list(group)), kernel=self.kernel)
        self._sums[group].add(piece.states, piece.next_states)
        self.counts[list(group)] += len(piece.states)

    def _guesses(self, chosen: list[int]) -> Guesses:
        s = self.surrogate
        Z, together = s.Z[chosen], len(chosen) > 1
        if together:
            Z = s.Z[s.expert] - Z
            Z[s.expert] = s.Z[s.expert]
        fits = np.concatenate([Z, s.fits[chosen, None]], axis=1)
        return Guesses(s.columns, *split_value(s), fits, s.expert if together else None)

    def evidence(self) -> Evidence:
        if any(len(group) == len(self.counts) for group in self._sums) and not self.paired:
            raise ValueError("paired and unpaired data must be weighed separately")
        s, A, ks = self.surrogate, len(self.counts), self.surrogate.columns.size
        gram, first = np.zeros((A, ks, ks)), np.zeros((A, ks + 1, ks))
        spread, wobble = np.zeros((A, A, ks, ks)), np.zeros((A, ks, ks, ks))
        reached = np.zeros((A, split_value(s)[0].size))
        for group, sums in self._sums.items():
            chosen = list(group)
            gram[chosen], first[chosen], squares, products, reached[chosen] = sums.sums()
            wobble[chosen] = lifted(squares, s.columns)
            one, other = np.array(chosen)[np.array(sums.guesses.pairs)]
            spread[one, other] = spread[other, one] = lifted(products, s.columns)
        drift = first[:, :-1].copy()
        if self.paired:
            for rival in s.rivals:
                drift[rival] = drift[s.expert] - drift[rival]
        return Evidence(self.counts, gram, first[:, -1], spread, drift, wobble, reached, paired=self.paired)


def check_reward(surrogate: Surrogate, evidence: Evidence) -> None:
    """Refuse sums that were made with another reward than an expansion in the columns' family, of one coordinate.

    V = R + γ Σ g_jφ_j must have the range that the sums were made with, and Σ Y_c = Σ V(s') − Σ P̂_cV(s) must follow
    from the sums of the reward's functions at the next states: so the reward in a file is tied to its sums.
    """
    if not same_family(surrogate.reward, surrogate.columns):
        raise ValueError("the columns must be of the family of the reward, on its interval")
    rows, value, _ = split_value(surrogate)
    size = float(np.abs(value) @ rows.sup())
    found = minimum(rows, value)[1], -minimum(rows, -value)[1]
    if not np.allclose(found, (surrogate.low, surrogate.high), rtol=0, atol=1e-9 * size):
        raise ValueError(
            f"V of the reward reaches from {found[0]:.6g} to {found[1]:.6g}, but the sums were made with a V from "
            f"{surrogate.low:.6g} to {surrogate.high:.6g}"
        )
    sums = rows.sup()[0] * evidence.reached @ value - np.einsum("ai,ai->a", surrogate.fits, evidence.gram[:, 0])
    if (np.abs(sums - evidence.surprise[:, 0]) > 1e-9 * evidence.counts * size).any():
        raise ValueError("the sums were made with another reward")


def split_value(surrogate: Surrogate) -> tuple[Basis, Array, RewardLike | None]:
    """V = Σ weights_j φ_j + rest, where a reward of the columns' family leaves no rest: one evaluation serves both."""
    reward, columns = surrogate.reward, surrogate.columns
    added = surrogate.discount * surrogate.g
    if not same_family(reward, columns):
        return columns, added, reward
    return *_plus_expansion(reward, columns, added), None
