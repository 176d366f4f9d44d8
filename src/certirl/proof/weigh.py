"""Evidence and its lower bounds, for one coordinate or for a box: which room answers is decided here alone."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from certirl.data.transitions import Piece
from certirl.functions.bases import Basis
from certirl.functions.box_products import check_closed, level
from certirl.functions.boxes import ProductBasis
from certirl.ground.domain import Domain, describe
from certirl.ground.doors import by_door
from certirl.proof import bounds, evidence
from certirl.proof.bounds import BAND_SHARE, LowerBound
from certirl.proof.box_bounds import condition, lower_bounds_on_box
from certirl.proof.box_evidence import BoxEvidence, gather_on_box, lifted_all
from certirl.proof.evidence import Evidence, Surrogate

AnyEvidence = Evidence | BoxEvidence
MOST_COORDINATES = 3
MOST_COLUMNS = 200  # of a proof: time grows with more than their third power


def check_box(domain: Domain) -> None:
    """Refuse, with a sentence, boxes over which nothing can be proved everywhere."""
    if len(domain) > MOST_COORDINATES:
        python = (
            "certirl.scenario speaks of all but a small share of the states, and "
            f"components={[[c] for c in range(len(domain))]} of coordinates that move independently"
        )
        raise ValueError(
            f"a certificate over a whole box is for {MOST_COORDINATES} coordinates at most, got the domain "
            f"{describe(domain)}; " + by_door(python, "leave --delta out")
        )


def check_columns(columns: Basis) -> None:
    """Refuse columns that level functions cannot replace, and more than can be weighed in about a minute."""
    if columns.size > MOST_COLUMNS:
        raise ValueError(
            f"columns must be at most {MOST_COLUMNS} functions for a proof, got {columns} with {columns.size:,}"
        )
    if isinstance(columns, ProductBasis):
        check_closed(columns)


def gather(surrogate: Surrogate, stream: Iterable[Piece]) -> AnyEvidence:
    """Walk through fresh data once, chunks side by side; memory does not grow with its length."""
    if isinstance(surrogate.columns, ProductBasis):
        return gather_on_box(surrogate, stream)
    return evidence.gather(surrogate, stream)


def lower_bounds(surrogate: Surrogate, found: AnyEvidence, *, delta: float, tail: float) -> list[LowerBound]:
    """With probability 1 − δ over the fresh data, D_a(s) ≥ margin for every state and every rival a."""
    if isinstance(found, BoxEvidence):
        return lower_bounds_on_box(surrogate, found, delta=delta, tail=tail)
    return bounds.lower_bounds(surrogate, found, delta=delta, tail=tail)


def forecast_bounds(
    surrogate: Surrogate, found: AnyEvidence, growth: float, *, delta: float, tail: float
) -> list[LowerBound]:
    """The bounds that ``growth`` times as much data would give, if nothing surprised: for planning only."""
    if isinstance(found, BoxEvidence):
        return lower_bounds_on_box(surrogate, found, delta=delta, tail=tail, growth=growth)
    return bounds.lower_bounds(surrogate, found.forecast(growth), delta=delta, tail=tail)


def spending_of(found: AnyEvidence, delta: float) -> dict[str, float]:
    """How δ is split, by name."""
    first, second = BAND_SHARE * delta, (1 - BAND_SHARE) * delta
    if isinstance(found, BoxEvidence):
        names = ("size of the residual", "recursion", "operators")
        return {"first order": first, **{f"second order, {name}": second / len(names) for name in names}}
    return {"first order": first, "second order": second}


def well_determined(surrogate: Surrogate, found: AnyEvidence, most: float) -> bool:
    """Whether the fresh states tell the columns apart."""
    if (found.counts < surrogate.columns.size).any():
        return False
    if isinstance(found, BoxEvidence) and isinstance(surrogate.columns, ProductBasis):
        return condition(lifted_all(level(surrogate.columns), found.gram)) <= most
    return bool((np.linalg.cond(found.gram) <= most).all())
