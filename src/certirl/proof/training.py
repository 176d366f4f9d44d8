"""Surrogates from training data: least squares for operators, a fixed point for the value, directions of its error."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import prod
from typing import Any, NamedTuple

import numpy as np

from certirl.data.moments import Moments
from certirl.data.transitions import Piece
from certirl.functions.frame import frame
from certirl.functions.reward import BoundedReward
from certirl.ground.domain import Array
from certirl.kernels.tensors import on_host
from certirl.proof.case import Case
from certirl.proof.shares import planned_shares
from certirl.proof.sums import Evidence, gather
from certirl.proof.surrogate import Surrogate, in_family, mesh_of, pairs_of

_GRID = 2001  # states at which the highest and the lowest value are looked for
FORECAST = 65_536  # training transitions per action that are looked at again, about
_SOME = 8192  # training states from which the size of the residuals of all functions is estimated
_WHOLE = 0.003  # how much the size of π_d h_j counts over the whole domain, where π_d may be zero: ranges need it
_FLOOR = 1e-12  # of the largest eigenvalue
MOST_CROSSED = 2_000  # sums per pair of actions up to which residuals of V̂ and of each f_i are multiplied


class Fit(NamedTuple):
    """What training data fix.

    Attributes:
        surrogates: of the components with a reward.
        evidence: that of the training data themselves, one for each surrogate, for forecasts.
    """

    surrogates: tuple[Surrogate, ...]
    evidence: tuple[Evidence, ...]


def fit_surrogates(
    case: Case,
    reward: Any,
    training: Iterable[Piece],
    *,
    moments: Sequence[Moments] | None = None,
    again: Iterable[Piece] | None = None,
    samples: int | None = None,
    delta: float = 0.05,
) -> Fit:
    """Guess V = R + γP_πV and the operators by least squares on training data, for every component with a reward.

    Args:
        case: what is to be proved.
        reward: a function of states, a `BoundedReward`, or a `Reward`, with one part for each component.
        training: data that the evidence will not use.
        moments: sums over training data of the reward's functions at next states and the columns, one for each
            component, where there are such; else ``training`` is walked through for them.
        again: training data of which the first are walked through again, for the size of the residuals; ``training`` if
            left out.
        samples: fresh transitions per action that are planned, four times those of ``again`` if left out.
        delta: the probability of failure that is planned: with ``samples`` it decides how δ is divided among points.
    """
    blanks = [
        _blank(case, part, bounded)
        for part, bounded in zip(case.parts, case.rewards(reward), strict=True)
        if bounded is not None
    ]
    if moments is not None and all(_serve(moments[blank.component], blank) for blank in blanks):
        regressions = [_from_moments(moments[blank.component], blank) for blank in blanks]
    else:
        regressions = [_regression(sums, blank) for sums, blank in zip(gather(blanks, training), blanks, strict=True)]
    rough = [_solved(blank, *regression) for blank, regression in zip(blanks, regressions, strict=True)]
    data = _leading(training if again is None else again, FORECAST)
    turned = [
        replace(guess, **_directions(guess, sums, _residual_covariance(guess, data)))
        for guess, sums in zip(rough, gather(rough, data), strict=True)
    ]
    evidence, surrogates = gather(turned, data), []
    for guess, sums in zip(turned, evidence, strict=True):
        surrogate = replace(guess, noise=_noise(guess, sums))
        planned = 4 * int(sums.counts.min()) if samples is None else samples
        shares = planned_shares(case, surrogate, sums, planned, delta / len(turned))
        surrogates.append(replace(surrogate, shares=shares))
    return Fit(tuple(surrogates), evidence)


def _leading(stream: Iterable[Piece], most: int) -> list[Piece]:
    """The first pieces of a stream that hold so many transitions of every action, in memory."""
    held: list[Piece] = []
    counts: dict[int, int] = {}
    for piece in stream:
        if all(counts.get(action, 0) < most for action in piece.actions):
            held.append(piece)
            counts |= {action: counts.get(action, 0) + len(piece.states) for action in piece.actions}
        elif min(counts.values()) >= most:
            break
    return held


def _blank(case: Case, part: Any, reward: BoundedReward) -> Surrogate:
    """A surrogate whose guesses are zero: its residuals are the functions themselves."""
    A, k, m, w = case.policy.n_actions, part.columns.size, part.columns.size * len(case.used), len(case.widths)
    pairs = pairs_of(A, case.used, True)
    compared = sum(c != d for c, d in pairs)
    points = (compared, 2, *mesh_of(part.columns, compared).counts)
    return Surrogate(
        columns=part.columns,
        reward=reward,
        policy=case.policy,
        used=case.used,
        discount=case.discount,
        fits=np.zeros((A, k)),
        Z=np.zeros((A, m, k)),
        mix=np.eye(m),
        directions=0,
        noise=np.zeros((len(pairs), 2, *frame(part.columns).wide)),
        shares=np.full(points, 1 / np.prod(points)),
        low=reward.low,
        high=reward.high,
        marks=case.marks,
        widths=case.widths,
        tent_fits=np.zeros((A, w, k)),
        places=np.zeros((2, part.columns.dimension)),
        drop=np.zeros(m),
        dropped=0.0,
        unit=reward.unit,
        component=part.number,
        coordinates=part.coordinates,
    )


def _regression(sums: Evidence, blank: Surrogate) -> tuple[Array, Array, Array]:
    """P̂_c of π_d h_j, of R and of the tents, from sums of the functions themselves."""
    inverse = np.linalg.pinv(blank.frame.lifted(sums.gram), hermitian=True)  # a poor guess is sound, only wasteful
    return sums.operator_residuals @ inverse, np.einsum("ai,aij->aj", sums.residuals, inverse), sums.visits @ inverse


def _serve(moments: Moments, blank: Surrogate) -> bool:
    """Whether moments hold what a regression needs."""
    reward = blank.reward
    return (
        blank.constant
        and in_family(reward, blank.columns)
        and moments.columns == blank.columns
        and moments.rows == blank.columns.resized(moments.rows.size)
        and moments.rows.size >= max(len(reward.coefficients), blank.columns.size)
    )


def _from_moments(moments: Moments, blank: Surrogate) -> tuple[Array, Array, Array]:
    """The same from moments in the functions of the columns."""
    k, change, alpha = blank.columns.size, blank.frame.change, blank.reward.coefficients
    regression = moments.cross @ np.linalg.pinv(moments.gram, hermitian=True)
    Z = np.linalg.solve(change, regression[:, :k] @ change)
    return Z, np.einsum("i,aij->aj", alpha, regression[:, : len(alpha)]) @ change, blank.tent_fits


def _solved(blank: Surrogate, Z: Array, of_reward: Array, tent_fits: Array) -> Surrogate:
    """V̂ = R + γ Σ_c π_c·(P̂_cV̂) by its fixed point, with its range."""
    used, k, U = list(blank.used), blank.columns.size, len(blank.used)
    Z = Z.copy()
    first = np.eye(k)[0]
    Z[:, ::k] += ((first - Z[:, ::k].sum(axis=1)) / U)[:, None]  # constants are mapped to themselves
    m = Z.shape[1]
    system = np.eye(m) - blank.discount * np.concatenate(list(Z[used]), axis=1).T
    value = np.linalg.solve(system, of_reward[used].ravel())
    fits = of_reward + blank.discount * np.einsum("i,aij->aj", value, Z)
    fits[used] = value.reshape(U, k)
    low, high = _value_range(blank, fits[used])
    guess = replace(blank, Z=Z, fits=fits, tent_fits=tent_fits, low=low, high=high)
    grid = blank.columns.grid(_GRID)
    values = guess.value(grid)
    places = grid[[values.argmax(), values.argmin()]]
    ends = guess.pieces(places)
    return replace(guess, places=places, drop=ends[0] - ends[1], dropped=float(np.ptp(values)))


def _value_range(blank: Surrogate, fits: Array) -> tuple[float, float]:
    """Bounds on V̂: exact where it is one expansion, else from the range of R and those of the fits."""
    harmonics, reward, gamma = blank.frame, blank.reward, blank.discount
    if blank.constant and in_family(reward, blank.columns):
        alpha = reward.coefficients
        wide = frame(blank.columns.resized(max(len(alpha), harmonics.size)).closed())
        curve = wide.coefficients(np.pad(alpha, (0, wide.size - len(alpha))))
        curve[: harmonics.size] += gamma * fits[0]
        return wide.minimum(curve)[1], -wide.minimum(-curve)[1]
    low = min(harmonics.minimum(fit)[1] for fit in fits)
    high = max(-harmonics.minimum(-fit)[1] for fit in fits)
    return reward.low + gamma * low, reward.high + gamma * high


def _noise(surrogate: Surrogate, evidence: Evidence) -> Array:
    """Second moments of the residuals per transition, for all pairs of actions ``[P, 2, *wide]``."""
    every, noise = surrogate.pairs(True), np.zeros_like(surrogate.noise)
    for place, pair in enumerate(surrogate.pairs(evidence.paired)):
        noise[every.index(pair), 0] = evidence.residual_moments[place]
        noise[every.index(pair), 1] = evidence.operator_moments[place]
    return noise / float(evidence.counts.min())


def _residual_covariance(surrogate: Surrogate, data: Iterable[Piece]) -> Array:
    """The mean of E_c(π_d h_j)E_c(π_d' h_j'), added up over the actions, from some of the data ``[m, m]``."""
    m, s = surrogate.Z.shape[1], surrogate
    total, counts = np.zeros((s.n_actions, m, m)), np.zeros(s.n_actions)
    for piece in data:
        view = piece if s.coordinates is None else piece.view(s.coordinates)
        for held in on_host([view], s.columns.domain, _SOME):
            x = s.frame.values(held.states).T
            for c, ends in zip(held.actions, held.next_states, strict=True):
                if counts[c] < _SOME:
                    residuals = s.pieces(ends).T - s.Z[c] @ x
                    total[c] += residuals @ residuals.T
                    counts[c] += len(ends)
            if (counts >= _SOME).all():
                return np.asarray((total / counts[:, None, None]).sum(axis=0))
    return np.asarray((total / np.maximum(counts, 1)[:, None, None]).sum(axis=0))


def _directions(surrogate: Surrogate, evidence: Evidence, residuals: Array) -> dict[str, Any]:
    """Functions f_i for which (size of û)·(size of the residuals of the f_i) is expected to be least.

    f_0 = 1, of which no operator error is made. In the others û = (I − γP̂_π)⁻¹e, e the error of the fits, and the
    residuals have the same diagonal covariance, as far as training data show: the geometric mean of both.
    """
    harmonics, used, gamma = surrogate.frame, list(surrogate.used), surrogate.discount
    k, m = harmonics.size, surrogate.Z.shape[1]
    inverse = np.linalg.pinv(harmonics.lifted(evidence.gram), hermitian=True)
    errors, moments = np.zeros((len(used), k, len(used), k)), harmonics.lifted(evidence.residual_moments)
    for (c, d), moment in zip(surrogate.pairs(evidence.paired), moments, strict=True):
        if c in used and d in used:
            i, j = used.index(c), used.index(d)
            errors[i, :, j] = inverse[c] @ moment @ inverse[d]
            errors[j, :, i] = errors[i, :, j].T
    resolvent = np.linalg.inv(np.eye(m) - gamma * np.concatenate(list(surrogate.Z[used]), axis=1))
    covariance = gamma**2 * resolvent.T @ errors.reshape(m, m) @ resolvent
    constant = np.zeros(m)
    constant[::k] = 1.0
    others = np.linalg.qr(np.column_stack([constant, np.eye(m)]))[0][:, 1:m]
    values = harmonics.dense_values
    sizes = residuals + _WHOLE * np.kron(np.eye(len(used)), values.T @ values / len(values))
    rows = _balanced(others.T @ sizes @ others, others.T @ covariance @ others) @ others.T
    crossed = (m - 1) * prod(harmonics.wide) <= MOST_CROSSED
    return {"mix": np.vstack([constant, rows]), "directions": m - 1 if crossed else 0}


def _balanced(sizes: Array, covariance: Array) -> Array:
    """F such that F·sizes·Fᵀ and F⁻ᵀ·covariance·F⁻¹ are the same diagonal matrix, largest first ``[n, n]``."""
    if not len(sizes):
        return sizes
    values, vectors = np.linalg.eigh(sizes)
    values = np.maximum(values, _FLOOR * values[-1])
    half, back = (vectors * np.sqrt(values)) @ vectors.T, (vectors / np.sqrt(values)) @ vectors.T
    spread, turns = np.linalg.eigh(half @ covariance @ half)
    spread = np.maximum(spread, _FLOOR * spread[-1]) if spread[-1] > 0 else np.ones(len(spread))  # without noise
    return np.asarray((spread[:, None] ** 0.25 * (turns.T @ back))[::-1])
