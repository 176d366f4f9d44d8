"""The one call: data or simulator in, solution out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from certirl.bases import Basis
from certirl.bellman import bellman
from certirl.choose import FAMILIES, given_basis, nothing_given
from certirl.domain import as_domain
from certirl.estimate import FORMS, estimate
from certirl.progress import Report, watched
from certirl.recover import OBJECTIVES, recover
from certirl.simulator import CHUNK, Simulator, check_simulator, draw
from certirl.solution import Solution, build
from certirl.transitions import Piece, Transitions, pieces


def solve(
    source: Simulator | Transitions,
    *,
    discount: float,
    expert: int = 0,
    basis: Basis | None = None,
    columns: int | None = None,
    samples: int = 10_000,
    rng: Any = None,
    objective: str = "least-variance",
    form: str = "least-squares",
    cover: float | None = None,
    slack: float | None = None,
    progress: bool | Report | None = None,
) -> Solution:
    """Find a reward under which the expert's action is strictly optimal: ``min_s D_a(s) ≥ 1`` for every rival a.

    Args:
        source: a simulator (anything with ``n_actions``, ``domain`` and ``sample(states, action, rng)``), or logged
            `Transitions`.
        discount: γ, strictly between 0 and 1.
        expert: the action the expert always takes.
        basis: the functions φ of rewards and values, say ``Legendre(11)``; chosen from held-out data if left out.
        columns: how many of them describe the state; chosen from held-out data if left out.
        samples: transitions to draw for each action; for simulators only.
        rng: a seed or Generator; needed with a simulator.
        objective: "least-variance", "l1" (the paper's) or "max-margin".
        form: "least-squares", for which a simulator is asked with common random numbers at well-placed states, or
            "mean" (the paper's: independent states from the weight of the basis).
        cover: solve on the paper's cover of this radius instead of on the continuum.
        slack: soft form for experts that are only nearly optimal: the price of a shortfall.
        progress: True, False, a function ``(done, total)``, or None for a line if standard error is a terminal.
    """
    _check(source, discount, expert, form, objective)
    if isinstance(source, Transitions):
        n_actions, domain, count = source.n_actions, source.domain, len(source)
        stream: Iterator[Piece] = pieces(source, CHUNK)
    else:
        check_simulator(source)
        n_actions, domain, count = source.n_actions, as_domain(source.domain), samples * source.n_actions
        # The paper's mean form needs independent states from the basis's weight; least squares can do better.
        better = form == "least-squares"
        stream = draw(source, basis or FAMILIES[0](1), samples, rng, design=better, paired=better)
    stream = watched(stream, count, lambda piece: piece.size, progress)
    if basis is None:
        moments, choice = nothing_given(
            stream, domain, n_actions=n_actions, columns=columns, discount=discount, expert=expert
        )
    else:
        if form == "mean" and columns is None:
            columns = basis.size  # the paper's square matrix
        moments, choice = given_basis(stream, basis.on(domain), n_actions=n_actions, columns=columns)
    operators = estimate(moments.leading(choice.basis.size, choice.columns), form=form)
    criterion = bellman(operators, discount=discount, expert=expert)
    recovery = recover(criterion, objective=objective, cover=cover, slack=slack)
    return build(operators, criterion, recovery, choice=choice.why)


def _check(source: Any, discount: float, expert: int, form: str, objective: str) -> None:
    """Refuse before drawing anything what would be refused after."""
    if not 0 < discount < 1:
        raise ValueError(f"discount must lie strictly between 0 and 1, got {discount}")
    if form not in FORMS:
        raise ValueError(f"form must be one of {', '.join(map(repr, FORMS))}, got {form!r}")
    if objective not in OBJECTIVES:
        raise ValueError(f"objective must be one of {', '.join(map(repr, OBJECTIVES))}, got {objective!r}")
    n_actions = getattr(source, "n_actions", None)
    if n_actions is not None and n_actions < 2:
        raise ValueError("there is only one action, so nothing distinguishes the expert: at least two are needed")
    if n_actions is not None and not 0 <= expert < n_actions:
        raise ValueError(f"expert must be one of the actions 0 … {n_actions - 1}, got {expert}")
