"""What a proof costs in time and memory, forecast from a walk through a few of its transitions."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from math import prod
from typing import Any, NamedTuple

import numpy as np

from certirl.data.source import Pool
from certirl.data.transitions import CHUNK, Piece
from certirl.functions.reward import Reward
from certirl.ground.work import chosen_place, cores, duration, on
from certirl.proof.case import Case
from certirl.proof.functionals import BLOCK
from certirl.proof.sums import Evidence, gather
from certirl.proof.surrogate import Surrogate
from certirl.proof.training import FORECAST, blank_surrogate, measured_moments

_LEAST, _FEW = 64, 4_096  # states of every action that are walked through, fewest and most
_SECONDS = 0.2  # that the walk may take, about
_MATRICES, _FUNCTIONALS, _NUMBERS = 8, 4, 16  # arrays of the size of the operators, of a block of points, of all points
_AGAIN = 4  # walks through the training transitions that forecasts read again
_COPIES = 2  # of a log, while it is divided


class Cost(NamedTuple):
    """What a proof costs, about."""

    transitions: int  # of all actions, for training and for the proof
    seconds: float  # for walking through them
    bytes: float  # of memory, beside the log
    most: bool  # whether fewer may do, since they are drawn

    def __str__(self) -> str:
        data = f"a proof from {'at most ' * self.most}{self.transitions:,} transitions"
        return f"{data} takes about {duration(self.seconds)} and {max(self.bytes / 1e6, 1):,.0f} MB"


def cost(case: Case, training: Pool, per_action: int, share: float) -> Cost:
    """Forecast a proof: the time of sums over a few transitions, and the memory that its arrays need.

    Of training data a few are read; from a pool that grows as many are drawn as are needed. ``per_action`` are
    transitions of every action for training and for the proof, ``share`` that of training.
    """
    transitions = per_action * case.policy.n_actions
    surrogates = [_typical(case, part) for part in case.parts]
    pieces = _few(training.leading(_FEW), case.policy.n_actions)
    with on(1):
        _timed(surrogates, pieces, _LEAST)  # compiles what is compiled
        first, _ = _timed(surrogates, pieces, _LEAST)
        rows = int(np.clip(_LEAST * _SECONDS / first, _LEAST, _FEW))
        seconds, sums = _timed(surrogates, pieces, rows)
    walked = sum(_cut(piece, rows).size for piece in pieces)
    again = _AGAIN * min(share * transitions, FORECAST * case.policy.n_actions)
    workers = _workers(-(-transitions // CHUNK))
    memory = _memory(case, surrogates, sums, workers)
    if not training.grows:
        memory += _COPIES * transitions * 8 * (2 * pieces[0].states.shape[1] + 1)
    return Cost(transitions, seconds / walked * (transitions + again) / workers, memory, training.grows)


def _typical(case: Case, part: Any) -> Surrogate:
    """A surrogate with arrays of the sizes that those of a proof have."""
    reward = Reward(part.columns, np.eye(part.columns.size)[-1])
    (bounded,) = replace(case, parts=(part,)).rewards(reward)
    assert bounded is not None
    empty = blank_surrogate(case, part, bounded)
    return replace(empty, **measured_moments(empty))


def _few(stream: Iterable[Piece], n_actions: int) -> list[Piece]:
    """Some pieces with every action, of a few states each."""
    pieces: list[Piece] = []
    for piece in stream:
        if any(set(piece.actions) == set(held.actions) for held in pieces):
            continue
        pieces.append(_cut(piece, _FEW))
        if len({action for held in pieces for action in held.actions}) == n_actions:
            break
    return pieces


def _timed(surrogates: Sequence[Surrogate], pieces: Sequence[Piece], rows: int) -> tuple[float, tuple[Evidence, ...]]:
    """The seconds that the sums over the first rows of the pieces take, and the sums."""
    few = [_cut(piece, rows) for piece in pieces]
    start = time.perf_counter()
    sums = gather(surrogates, few)
    return time.perf_counter() - start, sums


def _cut(piece: Piece, rows: int) -> Piece:
    return Piece(piece.actions, piece.states[:rows], piece.next_states[:, :rows])


def _workers(chunks: int) -> int:
    place = chosen_place.get()
    return min(place if isinstance(place, int) else cores(), chunks)


def _memory(case: Case, surrogates: Sequence[Surrogate], sums: Sequence[Evidence], workers: int) -> float:
    """Sums of every worker, twice while they are added up; rows that are worked on; matrices, functionals at points."""
    arrays = (getattr(evidence, field.name) for evidence in sums for field in fields(evidence))
    held = sum(array.nbytes for array in arrays if isinstance(array, np.ndarray))
    rows = 8 * CHUNK * (1 + case.policy.n_actions) * max(part.columns.dimension for part in case.parts) * 2
    return float((workers + 2) * 2 * held + workers * rows + 8 * max(map(_bounds, surrogates)))


def _bounds(surrogate: Surrogate) -> int:
    """Numbers that the bounds of a surrogate are computed from."""
    (A, k), m, points = surrogate.fits.shape, len(surrogate.mix), prod(surrogate.shares.shape[2:])
    dense = len(surrogate.frame.dense.states) * (k if surrogate.pointwise else k + 3 * A * m)
    blocks = _FUNCTIONALS * A * min(points, BLOCK) * k + _NUMBERS * len(surrogate.compared) * points
    return _MATRICES * A * m * k + 3 * m * m + dense + blocks
