"""The choice of a basis and of numbers of functions, by held-out data; `diagnose` prints the errors."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from certirl.data.moments import Moments, accumulate, total
from certirl.data.simulator import Simulator
from certirl.data.source import as_source
from certirl.data.transitions import Piece, Transitions
from certirl.fit.bellman import MAX_CONDITION, bellman, estimate
from certirl.fit.recover import recover
from certirl.functions.bases import FAMILIES as ALL_FAMILIES
from certirl.functions.bases import MOST_FUNCTIONS, Basis, Fourier, Legendre, fewest, of_degree, product
from certirl.functions.components import Component, as_columns
from certirl.functions.extrema import minimum
from certirl.ground.domain import Array, Box, one_coordinate
from certirl.ground.doors import as_count, shown
from certirl.ground.records import Record

FOLDS = 5
EXACT = 1e-12  # held-out errors below this share of the mean square are rounding
# The held-out error averages over the states while the criterion is a minimum over them: too few columns are wrong
# without a sign of it, too many only cost samples. So at least this many columns are taken.
FEWEST_COLUMNS = 3
MOST_COLUMNS = 25
ROW_SIZES = (7, 11, 15, 21)
FAMILIES: tuple[type[Basis], ...] = (Legendre, Fourier)
# Functions of the next state that every family of columns must predict when families are compared.
TARGETS = 9
# On boxes, where functions cost more: the most columns to compare, and the most rows to start from.
MOST_COLUMNS_ON_A_BOX = 200
MOST_ROWS_ON_A_BOX = 70
MOST_COLUMNS_FOR_A_TAIL = 100
DIAGNOSED, MOST_DIAGNOSED = 20_000, 200  # `diagnose_columns`: transitions per action if left out, and columns at most
TailNumber = Callable[[Component, Basis], float]


@dataclass(frozen=True)
class Choice(Record):
    """The functions that were chosen."""

    # with the functions of rewards and values of each, on its own box; one for a state that is not divided
    components: tuple[Component, ...]
    columns: tuple[int, ...]  # the numbers of functions of the state
    why: str  # how they were chosen, in a sentence that the solution prints

    @property
    def bases(self) -> tuple[Basis, ...]:
        """The functions of rewards and values of each component."""
        return tuple(component.basis for component in self.components)

    @property
    def spaces(self) -> tuple[Basis, ...]:
        """The functions of the state of each component."""
        return tuple(basis.resized(size) for basis, size in zip(self.bases, self.columns, strict=True))

    def moments(self, stream: Iterable[Piece], n_actions: int) -> list[Moments]:
        """The moments of every component, by reading a stream once."""
        pairs = list(zip(self.bases, self.spaces, strict=True))
        views = _views(self.components)
        return [sums for (sums,) in accumulate(stream, pairs, n_actions=n_actions, views=views)]


def as_asked(components: tuple[Component, ...], columns: Any) -> Choice | None:
    """The choice if functions and columns are both given, else None."""
    if columns is None or not components:
        return None
    meaning = "a whole number of functions of the basis"
    each = zip(components, as_columns(columns, [component.basis for component in components]), strict=True)
    sizes = tuple(as_count(size, "columns", most=part.basis.size, meaning=meaning) for part, size in each)
    return _of_components(components, sizes, "as asked")


def _of_components(components: tuple[Component, ...], sizes: tuple[int, ...], how: str) -> Choice:
    named = ", ".join(sorted({str(component.basis) for component in components}))
    where = "for each component" if len(components) > 1 else f"on {components[0].basis.domain.words} as asked"
    least, most = min(sizes), max(sizes)
    count = f"{least}" if least == most else f"{least} to {most}"
    return Choice(components, sizes, f"{named} {where}, {count} columns {how}")


def _views(components: Sequence[Component]) -> list[tuple[int, ...]] | None:
    """The coordinates of each component; None if one holds all."""
    return None if len(components) == 1 else [component.coordinates for component in components]


def as_measured(moments: Moments, basis: Basis | None, columns: int | None) -> Choice:
    """The functions of moments that were measured before, or as many of them as are asked for."""
    rows = moments.rows
    if basis is not None:
        rows = basis.on(moments.rows.domain)
        if rows.resized(moments.rows.size) != moments.rows or rows.size > moments.rows.size:
            raise ValueError(f"these moments were measured in {moments.rows}; measure again to use {basis}")
    most = min(rows.size, moments.columns.size)
    if columns is not None:
        columns = as_count(columns, "columns", most=most, meaning="a whole number of the functions measured")
    columns = most if columns is None else columns
    why = f"{rows} on {rows.domain.words}, {columns} columns: the data came as moments"
    return Choice(rows.components, (columns,), why)


def choose(
    stream: Iterable[Piece],
    domain: Box,
    *,
    n_actions: int,
    components: tuple[Component, ...],
    columns: Any,
    discount: float,
    expert: int,
    periodic: Sequence[int] = (),
) -> tuple[list[Moments], Choice]:
    """Measure the data in the functions asked for, or in those that predict held-out data best: one walk."""
    asked = as_asked(components, columns)
    if asked is not None:
        return asked.moments(stream, n_actions), asked
    if not components:
        return _choose_all(stream, domain, n_actions, columns, periodic, discount=discount, expert=expert)
    bases = [component.basis for component in components]
    pairs = [(rows, rows.resized(min(rows.size, _most_columns(rows)))) for rows in bases]
    folds = accumulate(stream, pairs, n_actions=n_actions, folds=FOLDS, views=_views(components))
    sizes = tuple(map(best_columns, folds))
    moments = [total(each).leading(rows.size, size) for each, rows, size in zip(folds, bases, sizes, strict=True)]
    return moments, _of_components(components, sizes, "by held-out prediction")


def _most_columns(basis: Basis) -> int:
    return MOST_COLUMNS_ON_A_BOX if basis.dimension > 1 else MOST_COLUMNS


def _choose_all(
    stream: Iterable[Piece],
    domain: Box,
    n_actions: int,
    columns: Any,
    periodic: Sequence[int],
    *,
    discount: float,
    expert: int,
) -> tuple[list[Moments], Choice]:
    """Choose the family by how well its columns predict common targets, then the columns, then the rows.

    On a box the family is given: polynomials by total degree, with frequencies for periodic coordinates.
    """
    if columns is not None:
        columns = as_count(columns, "columns", most=MOST_FUNCTIONS, meaning="a whole number of functions of the state")
    bases = _largest_bases(domain, periodic, columns or 1)
    pairs = [(basis, basis) for basis in bases]
    if len(bases) > 1:
        targets = bases[0].resized(TARGETS)
        pairs += [(targets, basis.resized(TARGETS)) for basis in bases]
    results = accumulate(stream, pairs, n_actions=n_actions, folds=FOLDS)
    winner, why = best_family(results[len(bases) :]) if len(bases) > 1 else (0, "")
    basis, folds = bases[winner], results[winner]
    count, reason = (best_columns(folds), "least held-out error") if columns is None else (columns, "as asked")
    sizes = (*ROW_SIZES, count) if len(domain) == 1 else sorted(basis.complete_sizes()[:2:-2]) or [basis.size]
    size = best_size(folds, count, discount=discount, expert=expert, sizes=sizes)
    basis = basis.resized(size)
    name = f"{basis.family} ({why})" if why else f"{basis.family} for a periodic coordinate"
    if len(domain) > 1:
        name = f"Legendre{', Fourier for periodic coordinates,' * bool(periodic)} up to total degree {basis.degree}"
    sentence = f"{name}, {count} columns ({reason}), {size} rows (held-out margin)"
    return [total(folds).leading(size, count)], Choice(basis.components, (count,), sentence)


def _largest_bases(domain: Box, periodic: Sequence[int], least: int = 1) -> list[Basis]:
    """The bases to choose from, with the most functions to measure: one for each family, or one on a box."""
    if len(domain) == 1:
        return [family(max(*ROW_SIZES, least)).on(domain) for family in ((Fourier,) if periodic else FAMILIES)]
    degrees = (of_degree(domain, degree, periodic) for degree in range(2, 11))
    usual = [of_degree(domain, 1, periodic), *(basis for basis in degrees if basis.size <= MOST_ROWS_ON_A_BOX)][-1]
    return [usual.resized(max(usual.size, least))._closed()]


def places(domain: Box) -> Basis:
    """A basis whose design says where to ask a simulator before a basis is chosen."""
    return product(*[Legendre(2)] * len(domain))


def widened(moments: Sequence[Moments], choice: Choice, tail: TailNumber, discount: float, expert: int) -> Choice:
    """More columns, and rows with them, until the tails of all components cost less than a tenth of the margin.

    If no number of columns does that, those with which the tail costs least. Without a reward yet, the span of V is
    taken for 1, the least that a margin of 1 can have.

    ``tail`` says τ of a component with some columns.
    """
    criteria = [bellman(estimate(each), discount=discount, expert=expert) for each in moments]
    recovery = recover(criteria, components=choice.components)
    components, sizes, numbers = list[Component](), list[int](), list[float]()
    for at, (component, columns) in enumerate(zip(choice.components, choice.columns, strict=True)):
        rows, span = component.basis, 1.0
        if recovery.values:
            span = -minimum(rows, recovery.values[at])[1] - minimum(rows, -recovery.values[at])[1]
        most = 0.1 / len(moments) / max(span, 1e-300)
        choices = [rows.resized(size) for size in _wider(rows, columns)]
        wider, _ = fewest(choices, partial(_tail_cost, partial(tail, component), discount, most))
        components.append(replace(component, basis=rows.resized(max(rows.size, wider.size))))
        sizes.append(wider.size)
        numbers.append(tail(component, wider))
    count = ", ".join(f"{size} columns make the tail {number:.2g}" for size, number in zip(sizes, numbers, strict=True))
    return Choice(tuple(components), tuple(sizes), f"{choice.why}; {count}")


def _tail_cost(tail: Callable[[Basis], float], discount: float, most: float, columns: Basis) -> float:
    return tail(columns) * tail_factor(columns, discount) / most


def tail_factor(columns: Basis, discount: float) -> float:
    """About how many times τ of the span of V the tail of a certificate costs: with Ω = 2(2ᵈk)^½ in its formula."""
    return 1 + (1 + discount) * (2**columns.dimension * columns.size) ** 0.5


def _wider(basis: Basis, columns: int) -> Sequence[int]:
    """Numbers of columns from the chosen one on; on boxes those that complete a degree."""
    if basis.dimension == 1:
        return range(columns, MOST_COLUMNS_FOR_A_TAIL)
    sizes = basis.resized(MOST_COLUMNS_ON_A_BOX).complete_sizes()[:-1]
    return [size for size in sizes if size >= columns]


def cheapest(
    asked: Sequence[Component], columns: Any, domain: Box, periodic: Sequence[int], cost: TailNumber
) -> list[Sequence[Component]]:
    """For every family that can be chosen the columns that cost less than 1, or least, as bases of components.

    ``cost`` is that of a component with some columns; a number of columns is chosen by `widened` if none is given.
    """
    families = [asked] if asked else [basis.components for basis in _largest_bases(domain, periodic)]
    return [
        [
            replace(each, basis=fewest([each.basis.resized(size) for size in sizes], partial(cost, each))[0])
            for each in components
            for sizes in [[columns] if columns else _wider(each.basis, 1)]
        ]
        for components in families
    ]


def best_family(compared: Sequence[Sequence[Moments]]) -> tuple[int, str]:
    """The family that predicts held-out targets better than the first by more than one standard error, and why."""
    errors = [held_out_errors(folds)[:, best_columns(folds) - 1] for folds in compared]
    if not all(np.isfinite(error).all() for error in errors):
        return 0, "too little data to compare families"
    gaps = [errors[0] - error for error in errors]
    gains = [float(gap.mean()) for gap in gaps]
    best = int(np.argmax(gains))
    if best and gains[best] > gaps[best].std(ddof=1) / len(gaps[best]) ** 0.5:
        return best, f"held-out error {gains[best] / errors[0].mean():.2%} below {compared[0][0].columns.kind}"
    others = ", ".join(folds[0].columns.kind for folds in compared[1:])
    return 0, f"{others} predicts held-out data no better"


def held_out_errors(folds: Sequence[Moments]) -> Array:
    """Mean squared error of predicting φ(s') from the first c functions of s, for every c: ``[folds, k_s]``.

    Everything needed is in the moments: Σ‖y − Bx‖² = tr(Σ yyᵀ − 2BΣ xyᵀ + BΣ xxᵀBᵀ). In coordinates that make the
    training Gram matrix the identity (its Cholesky factor is nested, as the bases are) the fits of all c are leading
    blocks of one. Infinite where the other folds cannot determine B; no less than rounding, so that predictions which
    are exact but for rounding are equally good.
    """
    whole = total(folds)
    errors = np.full((len(folds), whole.columns.size), np.inf)
    for left_out, test in enumerate(folds):
        gram = whole.gram - test.gram
        usable = _determined(gram, whole.counts - test.counts)
        if not usable:
            continue
        c = slice(usable)
        white = np.linalg.inv(np.linalg.cholesky(gram[:, c, c]))
        fit = (whole.cross - test.cross)[:, :, c] @ white.transpose(0, 2, 1)
        explained = np.einsum("aij,aij->j", fit, test.cross[:, :, c] @ white.transpose(0, 2, 1))
        doubly = np.einsum(
            "aij,aij->ij", fit.transpose(0, 2, 1) @ fit, white @ test.gram[:, c, c] @ white.transpose(0, 2, 1)
        )
        squares = np.einsum("aaii->", test.outer)
        missed = squares - 2 * explained.cumsum() + np.diag(doubly.cumsum(0).cumsum(1))
        errors[left_out, c] = np.maximum(missed, EXACT * squares) / max(test.counts.sum(), 1)
    return errors


def _determined(gram: Array, counts: NDArray[np.int64]) -> int:
    """How many leading columns every action's Gram matrix tells apart; more columns are never better conditioned."""

    def well(columns: int) -> bool:
        return bool((np.linalg.cond(gram[:, :columns, :columns]) <= MAX_CONDITION).all())

    return bisect_left(range(1, min(gram.shape[1], int(counts.min())) + 1), True, key=lambda c: not well(c))


def _candidates(moments: Moments) -> Sequence[int]:
    """The numbers of columns to compare: complete sets of functions with a lowest degree in every coordinate."""
    columns = moments.columns
    most = min(moments.rows.size, _most_columns(columns))
    sizes = [size for size in columns.complete_sizes() if size <= most]
    fewest = [1 if part.periodic else FEWEST_COLUMNS - 1 for part in columns.parts]
    return [size for size in sizes if (columns.degrees[:size].max(axis=0) >= fewest).all()] or sizes[-1:]


def best_columns(folds: Sequence[Moments]) -> int:
    """The number of functions of the state that predicts held-out data best."""
    candidates, errors = _candidates(folds[0]), held_out_errors(folds).mean(axis=0)
    return candidates[int(np.argmin([errors[columns - 1] for columns in candidates]))]


def held_out_signal(folds: Sequence[Moments], size: int, columns: int, *, discount: float, expert: int) -> Array:
    """The worst margin of a reward on the fold it was not fitted to, in units of its value's noise: ``[folds]``."""
    signals = np.full(len(folds), -np.inf)
    for left_out, fold in enumerate(folds):
        try:
            train = estimate(total(other for i, other in enumerate(folds) if i != left_out).leading(size, columns))
            test = bellman(estimate(fold.leading(size, columns)), discount=discount, expert=expert)
        except ValueError:  # too little data in a fold for this size
            continue
        fitted = bellman(train, discount=discount, expert=expert)
        value = recover(fitted, tolerance=1e-4).value
        if value is not None:
            curves = np.einsum("i,aij->aj", value, test.advantage)
            worst = min(minimum(test.columns, curve)[1] for curve in curves)
            signals[left_out] = worst / max(float(value @ fitted.spread @ value), 1e-300) ** 0.5
    return signals


def best_size(
    folds: Sequence[Moments], columns: int, *, discount: float, expert: int, sizes: Sequence[int] = ROW_SIZES
) -> int:
    """The smallest row size whose held-out signal is within one standard error of the best."""
    sizes = [size for size in sizes if columns <= size <= folds[0].rows.size]
    signals = np.array([held_out_signal(folds, size, columns, discount=discount, expert=expert) for size in sizes])
    means: Array = signals.mean(axis=1)
    best = int(means.argmax())
    if not np.isfinite(means[best]):
        return sizes[0]
    for index, size in enumerate(sizes[:best]):
        gap: Array = signals[best] - signals[index]
        if np.isfinite(gap).all() and gap.mean() <= gap.std(ddof=1) / np.sqrt(len(gap)):
            return size
    return sizes[best]


@dataclass(frozen=True, eq=False)
class Diagnosis(Record):
    """Held-out errors of predicting functions of the next state from the first functions of the state.

    Attributes:
        kind: the family of the columns.
        columns: numbers of columns tried ``[m]``.
        excess: held-out error above the least one, as a share of it ``[m]``; infinite where the data are too few.
        standard_error: of the excess, from paired folds ``[m]``.
        best: the number with the least error.
        asked: the number in question; None if there is none.

    Example:
        >>> room = certirl.problems.thermostat()
        >>> diagnosis = certirl.diagnose.columns(room, columns=1, most=5, samples=2_000, rng=0)
        >>> diagnosis.best > 1, diagnosis.columns.tolist(), diagnosis.excess.shape
        (True, [1, 2, 3, 4, 5], (5,))
    """

    kind: str
    columns: Array
    excess: Array
    standard_error: Array
    best: int
    asked: int | None
    _derived: ClassVar[tuple[str, ...]] = ("too_small", "verdict")

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


def diagnose_columns(
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

    Example:
        >>> room = certirl.problems.thermostat()
        >>> diagnosis = certirl.diagnose.columns(room, columns=1, most=5, samples=2_000, rng=0)
        >>> diagnosis.too_small
        True
    """
    kind = family if isinstance(family, type) else type(family)
    if kind not in ALL_FAMILIES.values():
        raise TypeError(f"family must be one of {', '.join(ALL_FAMILIES)}, got {shown(family)}")
    if columns is not None:
        columns = as_count(columns, "columns", most=MOST_DIAGNOSED)
    most = max(as_count(most, "most", most=MOST_DIAGNOSED), columns or 1)
    data = as_source(source)
    count = data.number_to_draw(samples, usual=DIAGNOSED)
    one_coordinate(data.domain, "a diagnosis is")
    basis, targets = kind(most).on(data.domain), kind(TARGETS).on(data.domain)
    generator = data.generator(rng, "diagnose", plain=True)
    stream = data.stream(count, basis, generator, paired=False)
    (folds,) = accumulate(stream, [(targets, basis)], n_actions=data.n_actions, folds=FOLDS)
    step = 2 if kind is Fourier else 1
    sizes = np.unique([*range(1, most + 1, step), *([columns] if columns else [])])
    errors = held_out_errors(folds).T[sizes - 1]
    best = int(np.argmin(errors.mean(axis=1)))
    with np.errstate(invalid="ignore"):
        excess = (errors - errors[best]) / errors[best].mean()
        standard_error = excess.std(axis=1, ddof=1) / np.sqrt(FOLDS)
    return Diagnosis(kind.kind, sizes, excess.mean(axis=1), standard_error, int(sizes[best]), columns)
