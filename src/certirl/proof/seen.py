"""A tail as the data show it: noise and slope of an affine drift, for a person who knows the law to declare.

No data prove a tail: what is written here would be the declaration if the noise had the law that it seems to have.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from certirl.data.source import Source
from certirl.functions.bases import Basis, of_degree
from certirl.ground.domain import Array
from certirl.ground.status import change, rounded_down
from certirl.proof.case import bounding_tail, enough_columns
from certirl.proof.contradictions import of_tail
from certirl.proof.tails import GaussianNoise

ROWS = 4_000  # transitions of each action that are looked at
SURE = 3.0  # standard errors by which a declaration keeps away from an estimate
CHEAP = 20  # a tail below this part of one that no margin survives costs little
BENT = 0.02  # of the variance of what an affine drift leaves: curvature that explains more makes the drift none
OTHER_LAW = 1.2  # of the distance of distribution functions, times √n: from here on the noise is not Gaussian
CUT = 0.01  # the chance of an end under noise that is clipped there: with more and no row at it, noise is truncated


def tail_seen(source: Source, columns: Sequence[Basis], discount: float, *, chosen: bool = False) -> str:
    """What to declare in a call that named no tail, as `status.change` writes it.

    Where data do not look like an affine drift with Gaussian noise: that the columns are exact.

    Args:
        source: the data, or a simulator.
        columns: the functions of the state, of each component.
        discount: γ.
        chosen: columns are chosen by the tail, where one is declared.
    """
    first, tail = columns[0], noise_seen(source)
    if tail is None:
        asked = {"columns": first.size} if chosen and len(columns) == 1 else {}
        return change("if these columns describe the dynamics exactly", tail=0, **asked)
    settings: dict[str, Any] = {}
    if not chosen and len(columns) == 1:
        enough = enough_columns(tail, first, lambda basis: bounding_tail(basis, discount) / CHEAP)
        settings = {} if enough is None or enough.size <= first.size else {"columns": enough.size}
    law = "at least" if not tail.truncated else "exactly"
    cut = ", truncated=True" if tail.truncated else ""
    settings["tail"] = f"certirl.dynamics.GaussianNoise({tail.std:g}, slope={tail.slope:g}{cut})"
    return change(
        f"if the noise is Gaussian, of {law} {tail.std:g}{' and cut off' * tail.truncated}, as it seems", **settings
    )


def noise_seen(source: Source) -> GaussianNoise | None:
    """The least Gaussian noise and the slope of an affine drift that data show; None where they look otherwise."""
    if source.periodic:
        return None
    domain, log = source.domain, source.data
    if not source.is_log:
        draws = source.for_purpose("checks").stream(ROWS, of_degree(domain, 3), np.random.default_rng(0), paired=False)
        log = draws.record()
    least, slopes, cut = np.inf, np.zeros((len(domain), len(domain))), False
    for action in range(source.n_actions):
        rows = np.flatnonzero(log.actions == action)[:ROWS]
        if len(rows) < 40 * (len(domain) + 1):
            return None
        states, ends = domain.shares(log.states[rows]), np.asarray(log.next_states[rows])
        for axis, (low, high) in enumerate(domain):
            after = (ends[:, axis] - low) / (high - low)
            found = _affine(states, after)
            if found is None:
                return None
            slope, std, error, is_cut = found
            width, widths = high - low, domain.width
            slopes[axis] = np.maximum(slopes[axis], (np.abs(slope) + SURE * error) * width / widths)
            sure = 1.0 if is_cut else 1 - SURE / np.sqrt(2 * len(rows))
            least, cut = min(least, std * width * sure), cut or is_cut
    if not 1e-3 * float(domain.width.min()) < least:
        return None
    tail = GaussianNoise(
        rounded_down(least, 2), slope=-rounded_down(-float(np.linalg.norm(slopes, 2)), 2), truncated=cut
    )
    return None if of_tail(tail, source) else tail


def _affine(states: Array, after: Array) -> tuple[Array, float, Array, bool] | None:
    """Slope ``[d]``, noise, standard errors of the slope and whether noise is cut off at 0 and 1; None if not affine.

    The likeliest drift where noise is clipped at 0 and 1, and where it is cut off there.
    """
    from scipy.optimize import minimize
    from scipy.special import log_ndtr, ndtr

    x, at = np.column_stack([np.ones(len(states)), states]), np.digitize(after, [1e-12, 1 - 1e-12])
    theta = np.linalg.lstsq(x, after, rcond=None)[0]
    start = np.append(theta, np.log(max(float(np.std(after - x @ theta)), 1e-9)))
    is_cut = not (at != 1).any()

    def costs(asked: Array) -> float:
        mean, std = x @ asked[:-1], np.exp(asked[-1])
        z = (after - mean) / std
        of_rows = -(z**2) / 2 - asked[-1]
        if is_cut:
            inside = np.maximum(ndtr((1 - mean) / std) - ndtr(-mean / std), 1e-300)
            return float(-np.mean(of_rows - np.log(inside)))
        return float(-np.mean(np.choose(at, [log_ndtr(-mean / std), of_rows, log_ndtr((mean - 1) / std)])))

    best = minimize(costs, start, method="BFGS").x
    mean, std = x @ best[:-1], float(np.exp(best[-1]))
    if not np.isfinite(best).all() or not 0 < std < 2:
        return None
    far = (np.minimum(mean, 1 - mean) > SURE * std) & (at == 1)
    if far.sum() > 10 * x.shape[1] and _is_bent(states[far], (after - mean)[far]):
        return None
    below, above = ndtr(-mean / std), ndtr((1 - mean) / std)
    place, spread = ndtr((after - mean) / std), np.random.default_rng(0).uniform(size=len(after))
    place = (
        (place - below) / (above - below)
        if is_cut
        else np.choose(at, [spread * below, place, above + spread * (1 - above)])
    )
    steps = np.arange(len(place) + 1) / len(place)
    ordered = np.sort(place)
    if max((steps[1:] - ordered).max(), (ordered - steps[:-1]).max()) > OTHER_LAW / np.sqrt(len(place)):
        return None
    errors = std * np.sqrt(np.diag(np.linalg.pinv(x.T @ x)))[1:]
    return best[1:-1], std, errors, is_cut and float(np.mean(below + 1 - above)) > CUT


def _is_bent(states: Array, left: Array) -> bool:
    """Whether squares of the state explain what an affine drift leaves, beyond chance."""
    terms = np.column_stack([np.ones(len(states)), states, states**2, states**3])
    fitted = terms @ np.linalg.lstsq(terms, left, rcond=None)[0]
    share = float((fitted**2).sum() / max(float((left**2).sum()), 1e-300))
    return share > BENT + 4 * terms.shape[1] / len(states)
