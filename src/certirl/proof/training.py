"""Surrogates from training data: least squares for operators, a fixed point for the value, directions, shares of δ."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import product
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from certirl.data.moments import Moments
from certirl.data.policy import ExpertGrid
from certirl.data.transitions import Piece
from certirl.functions.frame import frame
from certirl.functions.reward import BoundedReward
from certirl.functions.spread import spread_points
from certirl.ground.domain import Array
from certirl.kernels.tensors import on_host
from certirl.proof.bands import expected_bands, shares_of
from certirl.proof.case import Case
from certirl.proof.contradictions import of_fit, refuse
from certirl.proof.functionals import workings
from certirl.proof.sums import Evidence, gather
from certirl.proof.surrogate import Surrogate, in_family, mesh_of, pairs_of, tuples_of

_GRID = 2001  # states at which the highest and the lowest value are looked for
FORECAST = 65_536  # training transitions per action that a forecast walks through again, about
_SOME = 8192  # training states from which the size of the residuals of all functions is estimated
_WHOLE = 0.003  # how much the size of π_d h_j counts over the whole domain, where π_d may be zero: ranges need it
_FLOOR = 1e-12  # of the largest eigenvalue
_SHARP, _LEVEL = 0.5, 0.45  # by the forecast, and evenly over what is read; the rest evenly over everything
_MOMENTS, _RANGES, _RADII = 1.3, 1.1, 1.1  # times what training data let us expect
_DOUBT = 0.5  # standard deviations by which margins may be smaller than forecast
_MOST_LOG, _ROUNDS = 40.0, 50  # the largest L, and steps of the bisection
MOST_MEASURED = 600  # functions f_i up to which second moments of their residuals are gathered at all
_DOUBLINGS = 6  # attempts to tell which bound on the error of V̂ is smaller
MOST_POWERS = 20_000  # sums up to which third and fourth powers of the residuals of V̂ are summed
MOST_CROSSED = 2_000  # sums per pair of actions up to which residuals of V̂ and of each f_i are multiplied


class Fit(NamedTuple):
    """What training data fix."""

    surrogates: tuple[Surrogate, ...]  # of the components with a reward
    evidence: tuple[Evidence, ...]  # that of the training data themselves, one for each surrogate, for forecasts


def fit_surrogates(
    case: Case,
    reward: Any,
    training: Iterable[Piece],
    *,
    moments: Sequence[Moments] | None = None,
    again: Iterable[Piece] | None = None,
    samples: int | None = None,
    delta: float = 0.05,
    pointwise: bool | None = None,
) -> Fit:
    """Guess V = R + γP_πV and the operators by least squares on training data, for every component with a reward.

    The evidence will not use the training data, which are walked through unless there are moments of them in the
    functions of the reward and the columns, for each component. The first of ``again``, or of ``training``, serve for
    the size of the residuals. By the fresh transitions per action that are planned (``samples``, four times those of
    ``again`` if left out) and ``delta`` it is decided how δ is divided among points. ``pointwise`` is whether the error
    of V̂ is bounded at points or by its length; left out, the smaller forecast decides.
    """
    if case.sampling != "independent":
        pointwise = False  # Hoeffding's inequality would need weights that were fixed before
    blanks = [
        blank_surrogate(case, part, bounded)
        for part, bounded in zip(case.parts, case.rewards(reward), strict=True)
        if bounded is not None
    ]
    if moments is not None and all(_serve(moments[blank.component], blank) for blank in blanks):
        regressions = [_from_moments(moments[blank.component], blank) for blank in blanks]
    else:
        regressions = [_regression(sums, blank) for sums, blank in zip(gather(blanks, training), blanks, strict=True)]
    rough = [_solved(blank, *regression) for blank, regression in zip(blanks, regressions, strict=True)]
    data = _leading(training if again is None else again, FORECAST, case.policy.n_actions)
    observed = [action for action in range(case.policy.n_actions) if action not in case.made]
    refuse(of_fit(case.parts, case.tail, data, actions=observed, sampling=case.sampling))
    turned = [
        replace(guess, **_directions(guess, sums, _residual_covariance(guess, data), pointwise))
        for guess, sums in zip(rough, gather(rough, data), strict=True)
    ]
    designs = [None] * len(turned) if case.sampling == "independent" else _designs(blanks, training, samples)
    fits = []
    for guess, sums, design in zip(turned, gather(turned, data), designs, strict=True):
        surrogate = replace(guess, noise=_noise(guess, sums), design=design)
        planned = 4 * int(sums.counts.min()) if samples is None else samples
        shares = planned_shares(case, surrogate, sums, planned, delta / len(turned))
        chosen = replace(surrogate, shares=shares), sums
        fits.append(chosen if pointwise is not None else _better(case, *chosen, planned, delta / len(turned)))
    surrogates, evidence = zip(*fits, strict=True)
    return Fit(surrogates, evidence)


def _designs(blanks: Sequence[Surrogate], training: Iterable[Piece], samples: int | None) -> list[Array | None]:
    """Σ χ of training data, scaled to the number of fresh transitions that are expected of the action with fewest."""
    designs: list[Array | None] = []
    for blank, sums in zip(blanks, gather(blanks, training), strict=True):
        sums.check_determine(blank.columns, kind="training")
        designs.append(sums.gram if samples is None else sums.gram * (samples / float(sums.counts.min())))
    return designs


def _leading(stream: Iterable[Piece], most: int, n_actions: int) -> list[Piece]:
    """The first pieces of a stream with a given number of transitions of every action, in memory."""
    held: list[Piece] = []
    counts: dict[int, int] = {}
    for piece in stream:
        if all(counts.get(action, 0) < most for action in piece.actions):
            held.append(piece)
            counts |= {action: counts.get(action, 0) + len(piece.states) for action in piece.actions}
        elif len(counts) == n_actions and min(counts.values()) >= most:
            break
    return held


def blank_surrogate(case: Case, part: Any, reward: BoundedReward) -> Surrogate:
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
        noise=np.zeros((len(pairs), 1, *frame(part.columns).wide)),
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
        and moments.rows.size >= max(len(reward.coefficients(blank.used[0])), blank.columns.size)
    )


def _from_moments(moments: Moments, blank: Surrogate) -> tuple[Array, Array, Array]:
    """The same from moments in the functions of the columns."""
    k, change, alpha = blank.columns.size, blank.frame.change, blank.reward.coefficients(blank.used[0])
    regression = moments.cross @ np.linalg.pinv(moments.gram, hermitian=True)
    Z = np.linalg.solve(change, regression[:, :k] @ change)
    return Z, np.einsum("i,aij->aj", alpha, regression[:, : len(alpha)]) @ change, blank.tent_fits


def _solved(blank: Surrogate, Z: Array, of_reward: Array, tent_fits: Array) -> Surrogate:
    """V̂ = Σ_c π_c·(R_c + γ P̂_cV̂) by its fixed point, with its range."""
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
    if len(blank.marks):  # beside a switch rounding would decide what the expert does
        away = grid[blank.distances(grid) > 0]
        grid = away if len(away) else grid
    values = guess.value(grid)
    places = grid[[values.argmax(), values.argmin()]]
    ends = guess.pieces(places)
    return replace(guess, places=places, drop=ends[0] - ends[1], dropped=float(np.ptp(values)))


def _value_range(blank: Surrogate, fits: Array) -> tuple[float, float]:
    """Bounds on V̂: exact where it is one expansion, else from the range of R and those of the fits."""
    harmonics, reward, gamma = blank.frame, blank.reward, blank.discount
    if blank.constant and in_family(reward, blank.columns):
        wide, curve = blank.expansion(fits[0], blank.used[0])
        return wide.minimum(curve)[1], -wide.minimum(-curve)[1]
    low = min(harmonics.minimum(fit)[1] for fit in fits)
    high = max(-harmonics.minimum(-fit)[1] for fit in fits)
    return reward.low + gamma * low, reward.high + gamma * high


def _noise(surrogate: Surrogate, evidence: Evidence) -> Array:
    """Second moments of the residuals per transition, for all pairs of actions ``[P, 2, *wide]``."""
    every, noise = surrogate.pairs(True), np.zeros_like(surrogate.noise)
    places = [every.index(pair) for pair in surrogate.pairs(evidence.paired)]
    noise[places, 0] = evidence.residual_moments
    if not surrogate.pointwise:
        noise[places, 1] = evidence.operator_moments
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


def _directions(surrogate: Surrogate, evidence: Evidence, residuals: Array, pointwise: bool | None) -> dict[str, Any]:
    """Functions f_i for which (size of û)·(size of the residuals of the f_i) is expected to be least.

    f_0 = 1, of which no operator error is made. In the others û = (I − γP̂_π)⁻¹e, e the error of the fits, and the
    residuals have the same diagonal covariance, as far as training data show: the geometric mean of both. The scale of
    the f_i, which no bound depends on, is such that their residuals have a mean square length of 1.
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
    square = float(np.einsum("ij,ij->", rows @ residuals, rows)) / surrogate.n_actions
    rows = rows / np.sqrt(square) if square > 0 else rows
    return {"mix": np.vstack([constant, rows]), **measured_moments(surrogate, pointwise)}


def measured_moments(surrogate: Surrogate, pointwise: bool | None = None) -> dict[str, Any]:
    """Which moments are gathered: second ones of the f_i unless there are too many f_i, and higher ones of V̂ if few."""
    noise, none = surrogate.noise, len(surrogate.mix) > MOST_MEASURED if pointwise is None else pointwise
    crossed = not none and is_crossed(surrogate)
    kinds = np.zeros((len(noise), 1 if none else 2, *noise.shape[2:]))
    powers = len(tuples_of(surrogate.n_actions, surrogate.used, True)) * prod(surrogate.frame.wider) <= MOST_POWERS
    return {"noise": kinds, "directions": len(surrogate.mix) - 1 if crossed else 0, "powers": powers}


def is_crossed(surrogate: Surrogate) -> bool:
    """Whether residuals of V̂ and of each f_i are multiplied: there are not too many of them."""
    return (len(surrogate.mix) - 1) * prod(surrogate.frame.wide) <= MOST_CROSSED


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


def _better(
    case: Case, surrogate: Surrogate, evidence: Evidence, samples: int, delta: float
) -> tuple[Surrogate, Evidence]:
    """Bound the error of V̂ by its length or at points, whichever is forecast to leave the larger margin.

    Where neither leaves any with the transitions that are planned, four times as many decide, and so on.
    """
    if surrogate.pointwise or not evidence.determine(surrogate.columns):
        return surrogate, evidence
    lean = replace(surrogate, noise=surrogate.noise[:, :1], directions=0)
    moments, cross = evidence.operator_moments[:0], evidence.cross_moments[:, :0]
    options = (surrogate, evidence), (lean, replace(evidence, operator_moments=moments, cross_moments=cross))
    heights, read = _heights(case, surrogate)
    asked = np.isfinite(heights) if np.isfinite(heights).any() else read
    if not asked.any():
        return surrogate, evidence
    heights = np.where(np.isfinite(heights), heights, 0.0)  # where nothing is asked for the radii decide
    tail = case.parts[surrogate.component].tail or 0.0
    for step in range(_DOUBLINGS):
        margins = []
        for option, sums in options:
            forecast = expected_bands(option, sums, 4**step * samples, delta=delta, tail=tail, only_pairs=True)
            radii = np.stack([(pair.estimation + pair.second_order).reshape(2, -1) for pair in forecast.pairs])
            margins.append(float((heights - radii)[asked].min()))
        if max(margins) > -np.inf:
            break
    return options[int(margins[1] > margins[0])]


def planned_shares(case: Case, surrogate: Surrogate, evidence: Evidence, samples: int, delta: float) -> Array:
    """Divide the part of δ for the bands among pairs of actions, sides and points ``[C, 2, N_1, …, N_d]``: section 8.

    Any shares that add up to 1 are sound. Few points decide a margin: those where the expert's advantage is thin or the
    band wide. There an event may be rare, elsewhere it need not be. The evidence is that of training data, ``samples``
    fresh transitions per action are planned, and δ is that of the certificate.
    """
    if not evidence.determine(surrogate.columns):
        return np.full(surrogate.shares.shape, 1 / surrogate.shares.size)  # too few training data for a forecast
    growth, points = samples / float(evidence.counts.min()), workings(surrogate, evidence, forecast=True).compared
    moments = np.stack([np.tile(point.noise.value, (2, 1)) for point in points.values()])
    ranges = np.stack([np.tile(point.noise.largest[:, 0], (2, 1)) for point in points.values()])
    heights, read = _heights(case, surrogate)
    expected, bound = _MOMENTS * moments / growth, _RANGES * ranges / growth
    shares = _divided(read, heights - _DOUBT * np.sqrt(moments), expected, bound, delta * shares_of(surrogate)["band"])
    return shares.reshape(len(points), 2, *surrogate.mesh.counts)


def _heights(case: Case, surrogate: Surrogate) -> tuple[Array, NDArray[np.bool_]]:
    """The expert's advantage that is forecast at the points, infinite where it is not asked for, and what is read.

    ``[C, 2, N]`` each.
    """
    if case.grid is not None:
        return _heights_around(case.grid, case.allowed, surrogate, is_exact=case.suboptimality is None)
    values = surrogate.frame.values(surrogate.mesh.states)
    curves = np.stack([values @ (surrogate.fits[b] - surrogate.fits[a]) for b, a in surrogate.compared])
    sides = np.array([[b in surrogate.used, a in surrogate.used] for b, a in surrogate.compared])
    read = np.broadcast_to(sides[:, :, None], (len(curves), 2, curves.shape[1]))
    return np.where(read, np.stack([curves, -curves], axis=1), np.inf), read


def _heights_around(
    grid: ExpertGrid, tube: float, surrogate: Surrogate, *, is_exact: bool
) -> tuple[Array, NDArray[np.bool_]]:
    """The same for an expert that switches: the least advantage in the cells around each point, outside the tube."""
    mesh, harmonics = surrogate.mesh, surrogate.frame
    axes = [spread_points(part, n)[:, 0] for part, n in zip(harmonics.parts, mesh.counts, strict=True)]
    after = [np.searchsorted(axis, cells) for axis, cells in zip(axes, grid.cells.middles(), strict=True)]
    corners = [
        np.ravel_multi_index(
            np.ix_(*(np.clip(i - shift, 0, n - 1) for i, shift, n in zip(after, side, mesh.counts, strict=True))),
            mesh.counts,
        ).ravel()
        for side in product((0, 1), repeat=harmonics.dimension)
    ]
    outside, near = grid.away + grid.reach > tube, grid.away <= tube
    heights = np.full((len(surrogate.compared), 2, len(mesh.states)), np.inf)
    read = np.zeros(heights.shape, dtype=bool)
    for pair, (b, a) in enumerate(surrogate.compared):
        curve = harmonics.on_axes(harmonics.tensor(surrogate.fits[b] - surrogate.fits[a]), grid.cells.middles()).ravel()
        for side, (best, other, sign) in enumerate(((b, a, 1.0), (a, b, -1.0))):
            better = grid.taken[best] & ~(grid.taken[other] & is_exact)
            for corner in corners:
                asked = better & outside
                np.minimum.at(heights[pair, side], corner[asked], sign * curve[asked])
                read[pair, side, corner[better | (near & grid.taken[best])]] = True
    return heights, read


def _divided(read: NDArray[np.bool_], heights: Array, expected: Array, bound: Array, delta: float) -> Array:
    """Shares that add up to 1, most of them where margins are forecast to be thin; all arrays ``[C, 2, N]``.

    ``read`` are the bounds that are read, ``heights`` the advantage that is forecast, infinite where none is asked for,
    ``expected`` is ΣZ² of the fresh data, ``bound`` that on |Z|; δ is that of all bands together.
    """
    everything = np.full(read.shape, 1 / read.size)
    if not read.any():
        return everything
    level, margins = read / read.sum(), np.isfinite(heights)
    if not margins.any():
        return np.asarray((_SHARP + _LEVEL) * level + (1 - _SHARP - _LEVEL) * everything)
    height, v, b = heights[margins], np.maximum(expected[margins], 1e-300), np.maximum(bound[margins], 1e-150)

    def spent(margin: float) -> Array:
        """e^−L at every point, with the L that leaves the margin.

        The least radius of `inequalities.sloped` is r = yΣZ²/b, where y − log(1 + y) = Lb²/ΣZ².
        """
        radius = np.maximum(height - margin, 0.0) / _RADII
        y = np.minimum(radius * b, 1e150 * v) / v  # at most 1e150, without overflow
        small = np.minimum(y, 1e-4)
        gaps = np.where(y < 1e-4, small**2 / 2 - small**3 / 3, y - np.log1p(y))
        return np.exp(-np.minimum(gaps * v / b**2, _MOST_LOG))

    low = high = float(height.min())
    while spent(low).sum() > delta and high - low < 1e6 * (abs(high) + 1):
        low -= 2 * (high - low) + 1e-6 * (abs(high) + 1e-9)
    for _ in range(_ROUNDS):
        middle = (low + high) / 2
        low, high = (middle, high) if spent(middle).sum() <= delta else (low, middle)
    sharp = np.zeros(read.shape)
    sharp[margins] = spent(low)
    return np.asarray(_SHARP * sharp / sharp.sum() + _LEVEL * level + (1 - _SHARP - _LEVEL) * everything)
