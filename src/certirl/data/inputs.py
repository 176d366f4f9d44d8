"""Inputs: coordinates that were declared exogenous, and what a log says against it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from certirl.data.memory import DEGREES, FEWEST, MATERIAL, MOST, NOISELESS, corrected, links, neighbours
from certirl.data.transitions import Transitions, coordinates_in_words
from certirl.functions.bases import of_degree
from certirl.ground.domain import Array
from certirl.ground.records import internal

LEVEL = 1e-6  # of false alarms


@internal
def moved_inputs(log: Transitions, level: float = LEVEL) -> str:
    """What says that actions move the exogenous coordinates of a log, as a clause; empty if nothing clearly does.

    Steps from neighbouring states at which different actions were taken are compared, two by two. An expert may act on
    what moves the inputs, such as their trend, and moves nothing: what the difference of the two states and of those
    one step before explains is taken out first.
    """
    first, second = linked = links(log)
    before = np.full(len(log), -1)
    before[second] = first
    rows = np.flatnonzero(before >= 0) if len(second) else np.arange(len(log))
    rows = rows[np.linspace(0, len(rows) - 1, min(len(rows), MOST)).astype(int)]
    if not log.exogenous or len(rows) < FEWEST:
        return ""
    places, actions = log.domain.chart(log.states[rows], log.periodic), log.actions[rows]
    one, other = neighbours(log, rows, linked, same=False)
    if len(one) < FEWEST:
        return ""
    known = [places]
    if len(second):
        known.append(log.domain.chart(log.states[before[rows]], log.periodic))
    acted = (actions[:, None] == np.arange(1, log.n_actions)).astype(float)
    explained, _ = np.linalg.qr(np.concatenate([part[one] - part[other] for part in known], axis=1))
    x, y = (
        part[one] - part[other] - explained @ (explained.T @ (part[one] - part[other]))
        for part in (acted, _left_open(log, rows))
    )
    z = np.abs(y.T @ x) / np.sqrt(np.maximum((y**2).T @ x**2, 1e-300))
    share = ((x @ np.linalg.lstsq(x, y, rcond=None)[0]) ** 2).sum(axis=0) / np.maximum((y**2).sum(axis=0), 1e-300)
    most = int(np.where(share > MATERIAL, z.max(axis=1), 0.0).argmax())
    if share[most] <= MATERIAL or corrected(z[most], z.size) > level:
        return ""
    name = coordinates_in_words([log.exogenous[most]], log.coordinate_names)
    return (
        f"actions explain {share[most]:.0%} of what is left open of the next {name}, between neighbouring states where "
        "they differ"
    )


def _left_open(log: Transitions, rows: NDArray[np.intp]) -> Array:
    """What a polynomial of the state leaves open of the steps of exogenous coordinates, whatever the action."""
    axes, columns = list(log.exogenous), of_degree(log.domain, DEGREES.get(len(log.domain), 3), log.periodic)
    step = log.domain.displacement(log.states[rows], log.next_states[rows], log.periodic) / log.domain.width
    fitted, _ = np.linalg.qr(columns.values(log.states[rows]))
    left = step - fitted @ (fitted.T @ step)
    left[:, (left**2).mean(axis=0) < NOISELESS * step.var(axis=0) + 1e-20] = 0.0
    return np.asarray(left[:, axes])
