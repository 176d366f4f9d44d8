"""Diagnosis of the number of columns: held-out errors of predicting the next state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from certirl.data.moments import accumulate
from certirl.data.simulator import Simulator
from certirl.data.source import as_source
from certirl.data.transitions import Transitions
from certirl.fit.choose import FOLDS, TARGETS, held_out_errors
from certirl.functions.bases import FAMILIES, Basis, Fourier, Legendre
from certirl.ground.domain import Array, one_coordinate
from certirl.ground.doors import as_count, shown

SAMPLES = 20_000  # transitions per action that are drawn, where no number is given
MOST = 200  # columns that can be tried


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """Held-out errors of predicting functions of the next state from the first functions of the state.

    Attributes:
        kind: the family of the columns.
        columns: numbers of columns tried ``[m]``.
        excess: held-out error above the least one, as a share of it ``[m]``; infinite where the data are too few.
        standard_error: of the excess, from paired folds ``[m]``.
        best: the number with the least error.
        asked: the number in question; None if there is none.
    """

    kind: str
    columns: Array
    excess: Array
    standard_error: Array
    best: int
    asked: int | None

    @property
    def too_small(self) -> bool:
        """More columns than those in question predict better, by more than two standard errors."""
        if self.asked is None or self.asked >= self.best:
            return False
        at = int(np.flatnonzero(self.columns == self.asked)[0])
        return bool(self.excess[at] > 2 * self.standard_error[at])

    @property
    def verdict(self) -> str:
        """The result in a sentence."""
        if self.asked is None:
            return f"{self.best} columns predict held-out data best"
        if self.too_small:
            better = f"{self.best} predict held-out data better, by more than two standard errors"
            return f"{self.asked} columns are too few: {better}"
        return f"nothing in these data says that {self.asked} columns are too few"

    def __str__(self) -> str:
        rows = [
            f"  {n:>3}  {_above(e, s) if np.isfinite(e) else '-'}{'   best' if n == self.best else ''}"
            for n, e, s in zip(self.columns, self.excess, self.standard_error, strict=True)
        ]
        tail = "  A sample cannot show that no further functions are needed: a certificate needs a declared tail."
        return "\n".join([f"{self.kind}: {self.verdict}.", "  columns, error above the best", *rows, tail])


def _above(excess: float, error: float) -> str:
    """An excess with its standard error in percent; large numbers with three digits."""
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
    """Compare numbers of columns by held-out errors, and say whether the number in question is too small.

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
    data = as_source(source)
    data.check_settings(samples=samples)
    one_coordinate(data.domain, "a diagnosis is")
    basis, targets = kind(most).on(data.domain), kind(TARGETS).on(data.domain)
    generator = data.generator(rng, "diagnose", plain=True)
    stream = data.stream(SAMPLES if samples is None else samples, basis, generator, paired=False)
    (folds,) = accumulate(stream, [(targets, basis)], n_actions=data.n_actions, folds=FOLDS)
    step = 2 if kind is Fourier else 1
    sizes = np.unique([*range(1, most + 1, step), *([columns] if columns else [])])
    errors = held_out_errors(folds).T[sizes - 1]
    best = int(np.argmin(errors.mean(axis=1)))
    with np.errstate(invalid="ignore"):
        excess = (errors - errors[best]) / errors[best].mean()
        standard_error = excess.std(axis=1, ddof=1) / np.sqrt(FOLDS)
    return Diagnosis(kind.kind, sizes, excess.mean(axis=1), standard_error, int(sizes[best]), columns)
