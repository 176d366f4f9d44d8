"""Trials of a simulator's random numbers: for a proof, and for pairs of actions."""

from __future__ import annotations

from typing import Any

import numpy as np

from certirl.data.simulator import Simulator, ask, ask_all, check_simulator, device_of, draw
from certirl.functions.bases import Basis
from certirl.ground.domain import Array, as_domain
from certirl.ground.doors import as_flag
from certirl.kernels import tensors

# States, copies of each, calls, and the ratio of variances above which rows are not independent; independent rows
# exceed it with a probability below 1e-15.
_STATES, _ROWS, _CALLS, _RATIO = 4, 64, 8, 6.0
_COPIES, _MOVED = 4096, 64  # rows of one state, and how many of them must differ from the most common answer
_CORRELATION = 0.25  # of ranks, at a shift: sixteen standard deviations
_ROUNDING = 1e-6  # of the width: smaller differences are those of single precision
_FEW = 256  # states at which pairs are tried


def noise_fault(simulator: Simulator) -> str:
    """A sentence about faulty random numbers of a simulator; empty if a trial finds none.

    A few states, each repeated in many rows, are passed in several calls with generators of fixed seeds, so that no
    generator of the user is used. The same seed must give the same answers. If rows are independent, the mean over the
    rows of a state varies from call to call by 1/√rows of the variation among rows: the ratio of both variances is then
    about 1, an average of F(calls − 1, …), and far above 1 if rows share random numbers. If random numbers are used
    again for later rows of a call, the answers to copies of one state repeat after a shift.
    """
    low, high = np.array(as_domain(simulator.domain)).T
    states = low + (high - low) * np.random.default_rng(0).random((_STATES, len(low)))
    for action in range(simulator.n_actions):
        copies = np.repeat(states, _ROWS, axis=0)
        calls = np.stack([_answers(simulator, copies, action, seed) for seed in range(_CALLS)])
        if np.abs(calls[0] - _answers(simulator, copies, action, 0)).max() > _ROUNDING:
            return (
                f"the simulator does not draw from the rng it is given: asked twice about the same states and action "
                f"{action} with the same rng, it answers differently; take every random number from rng, keep no state"
            )
        calls = calls.reshape(_CALLS, _STATES, _ROWS, -1)
        within = calls.var(axis=2, ddof=1).mean(axis=0)
        between = _ROWS * calls.mean(axis=2).var(axis=0, ddof=1)
        ratios = np.where(between > _ROUNDING**2, between / np.maximum(within, _ROUNDING**2), 0.0)
        if (ratios.mean(axis=0) > _RATIO).any():
            return (
                "the rows of one call share random numbers: of copies of one state the simulator's answers for action "
                f"{action} vary together from call to call; draw for every row by itself, say rng.random(len(states))"
            )
        shift = _repeated_after(_answers(simulator, np.repeat(states[:1], _COPIES, axis=0), action, 0))
        if shift:
            return (
                f"rows of one call share random numbers: the simulator's answers to {_COPIES:,} copies of one state "
                f"for action {action} repeat after {shift} rows; draw for every row by itself, say "
                "rng.random(len(states))"
            )
    return ""


def _answers(simulator: Simulator, states: Any, action: int, number: int) -> Array:
    """Next states as shares of the widths ``[n, d]``, with a generator of this seed."""
    domain, device, seed = as_domain(simulator.domain), device_of(simulator), np.random.SeedSequence(number)
    low, high = np.array(domain).T
    if device is None:
        answer = ask(simulator, states, action, np.random.default_rng(seed), domain)
    else:
        rows = tensors.torch().tensor(states, device=device, dtype=tensors.torch().float32)
        answer = ask(simulator, rows, action, tensors.generator(seed, device), domain).double().cpu().numpy()
    return np.asarray((answer - low) / (high - low))


def _repeated_after(values: Array) -> int:
    """The shift after which the ranks in a column of values ``[n, d]`` repeat, or 0.

    For independent rows the correlation of ranks at each shift is about N(0, 1/n), whatever their distribution. Where
    fewer than ``_MOVED`` rows differ from the most common value, a few coincidences would look like a repetition.
    """
    for column in values.T:
        _, ranks, counts = np.unique(column.round(12), return_inverse=True, return_counts=True)
        if len(column) - counts.max() < _MOVED:
            continue
        middle = (np.cumsum(counts) - (counts + 1) / 2)[ranks]
        spectrum = np.fft.rfft(middle - middle.mean(), 2 * len(column))
        sums = np.fft.irfft(np.abs(spectrum) ** 2)[: len(column) // 2]
        shifts = np.abs(sums) > _CORRELATION * sums[0]
        if shifts[1:].any():
            return int(shifts[1:].argmax()) + 1
    return 0


def can_pair(simulator: Simulator, basis: Basis, rng: Any, *, asked: bool | None = None) -> bool:
    """Whether rows keep their random numbers from action to action, by a trial.

    If not, a row of one action shares its random numbers with another row of the next (as in rejection sampling), rows
    are no longer independent of each other, and pairs must not be formed. Every action must use equally many random
    numbers, and distribute them alike: row by row, so that the first states get the same answers when they are asked
    about alone, or column by column, but not one action this way and one that.

    Args:
        simulator: the dynamics.
        basis: its design gives the states.
        rng: a seed or Generator.
        asked: the answer, if the user gave one: then nothing is tried.
    """
    check_simulator(simulator)
    if asked is not None:
        return as_flag(asked, "paired")
    draws = draw(simulator, basis, _FEW, rng, design=True)
    generator = draws.generator_of(0)
    states = draws.states(_FEW, generator)
    answers, aligned = ask_all(simulator, states, generator)
    if draws.on_device:
        return aligned
    fewer, _ = ask_all(simulator, states[:100].copy(), generator)
    row_by_row = {np.array_equal(few, many[:100]) for few, many in zip(fewer, answers, strict=True)}
    return aligned and len(row_by_row) == 1
