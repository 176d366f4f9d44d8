"""Are there enough functions of the state? What held-out data say about families and numbers of columns."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from certirl.data.moments import accumulate
from certirl.data.simulator import Simulator, as_generator, check_simulator, draw
from certirl.data.transitions import CHUNK, Piece, Transitions, pieces
from certirl.fit.choose import FOLDS, TARGETS, held_out_errors
from certirl.functions.bases import FAMILIES, Basis, Fourier, Legendre
from certirl.ground.domain import Array, as_domain, one_coordinate
from certirl.ground.doors import as_count, shown

SAMPLES = 20_000  # transitions per action that are drawn, where no number is given
MOST = 200  # columns that can be tried


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """The error of predicting functions of the next state from the first functions of the state, on data left out.

    Attributes:
        kind: the family of the columns.
        columns: numbers of columns tried ``[m]``.
        excess: held-out error above the best, as a share of it ``[m]``; infinite where the data could not decide.
        standard_error: of the excess, from paired folds ``[m]``.
        best: the number with the least error.
        asked: the number in question, if one was given.
    """

    kind: str
    columns: Array
    excess: Array
    standard_error: Array
    best: int
    asked: int | None

    @property
    def too_small(self) -> bool:
        """More columns than asked for predict better by more than two standard errors."""
        if self.asked is None or self.asked >= self.best:
            return False
        at = int(np.flatnonzero(self.columns == self.asked)[0])
        return bool(self.excess[at] > 2 * self.standard_error[at])

    @property
    def verdict(self) -> str:
        """One sentence."""
        if self.asked is None:
            return f"{self.best} columns predict held-out data best"
        if self.too_small:
            return f"{self.asked} columns are too few: {self.best} predict held-out data better, beyond doubt"
        return f"nothing in these data says that {self.asked} columns are too few"

    def __str__(self) -> str:
        rows = [
            f"  {n:>3}  {_above(e, s) if np.isfinite(e) else '-'}{'   best' if n == self.best else ''}"
            for n, e, s in zip(self.columns, self.excess, self.standard_error, strict=True)
        ]
        tail = "  A sample cannot rule out what lies beyond: a certificate still needs a declared tail."
        return "\n".join([f"{self.kind}: {self.verdict}.", "  columns, error above the best", *rows, tail])


def _above(excess: float, error: float) -> str:
    """In percent; of large numbers three digits."""
    return f"{excess:+.3%} ± {error:.3%}" if excess < 10 else f"{100 * excess:+.3g}% ± {100 * error:.3g}%"


def diagnose(
    source: Simulator | Transitions,
    *,
    family: type[Basis] | Basis = Legendre,
    columns: int | None = None,
    most: int = 15,
    samples: int | None = None,
    rng: Any = None,
) -> Diagnosis:
    """Compare numbers of columns by held-out prediction; says when the number in question is too small.

    Args:
        source: a simulator or logged transitions.
        family: `Legendre`, `Fourier` or `Chebyshev`.
        columns: the number in question, if there is one.
        most: the largest number to try.
        samples: transitions per action to draw, 20,000 if left out; for simulators only.
        rng: a seed or Generator; needed with a simulator.
    """
    kind = family if isinstance(family, type) else type(family)
    if kind not in FAMILIES.values():
        raise TypeError(f"family must be one of {', '.join(FAMILIES)}, got {shown(family)}")
    if columns is not None:
        columns = as_count(columns, "columns", most=MOST)
    most = max(as_count(most, "most", most=MOST), columns or 1)
    if isinstance(source, Transitions):
        if samples is not None:
            raise ValueError("samples is for simulators: a log is used as it is, leave samples out")
    else:
        check_simulator(source)
    domain = as_domain(source.domain)
    one_coordinate(domain, "a diagnosis is")
    basis, targets = kind(most).on(domain), kind(TARGETS).on(domain)
    stream: Iterable[Piece]
    if isinstance(source, Transitions):
        stream = pieces(source, CHUNK)
    else:
        count = SAMPLES if samples is None else samples
        stream = draw(source, basis, count, as_generator(rng, "diagnose", plain=True), design=True)
    (folds,) = accumulate(stream, [(targets, basis)], n_actions=source.n_actions, folds=FOLDS)
    step = 2 if kind is Fourier else 1
    sizes = np.unique([*range(1, most + 1, step), *([columns] if columns else [])])
    errors = held_out_errors(folds).T[sizes - 1]
    best = int(np.argmin(errors.mean(axis=1)))
    with np.errstate(invalid="ignore"):
        gaps = (errors - errors[best]) / errors[best].mean()
        spread = gaps.std(axis=1, ddof=1) / np.sqrt(FOLDS)
    return Diagnosis(kind.kind, sizes, gaps.mean(axis=1), spread, int(sizes[best]), columns)
