"""How much the expert determines of the weights of features: their ranges over all rewards that explain it as well.

A reward found explains comparisons of the expert with other actions: those outside the switching tube at which
``D_a(s) = Σ θ_i g_i ≥ 0``. All weights θ that explain every one of them are a cone, cut by linear constraints, and with
the mean advantage of the reward found a polytope: the least and the largest θ_i are two linear programs. The ratio
θ_i/θ_j does not depend on the unit, so that θ_j = 1, or −1, replaces the mean advantage (Charnes and Cooper).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from certirl.fit.program import numbers_of
from certirl.ground.domain import Array
from certirl.ground.doors import as_listed, closest, shown
from certirl.ground.records import Record
from certirl.ground.status import chance

FEASIBLE = 1e-6  # by which an answer of the solver may miss a row, relative to its largest number
_SOLVED = 0  # the status of scipy's solver
_SMALL = 1e-9  # of the largest weight, in units of the features' sizes: a weight that is never larger is 0


@dataclass(frozen=True, eq=False)
class WeightRanges(Record):
    """Weights of features and their ratios over all rewards that explain the expert.

    Without a proof: the rewards of the same features, with the signs that were asked for, under which the expert's
    action is at least as good as the other in all ``compared`` comparisons, those outside the switching tube in which
    this holds for the reward found. Weights have its unit, a mean advantage in these comparisons. It is a statement
    about the estimated effects; an end is infinite where nothing is determined.

    With proofs: with probability 1 − δ, all such rewards under which the expert is optimal, with the sum of size times
    absolute weight as for the reward found. Ends are NaN where there are none.

    Attributes:
        names: of the features, then of the ratios asked for, ``"a / b"``.
        found: of the reward found ``[q]``; NaN for a ratio to a weight of 0.
        low, high: the least and the largest ``[q]``.
        sizes: of the features: the root mean square of what each adds to the advantage, for a weight of 1 ``[p]``.
        compared: the comparisons.
        left_out: comparisons outside the switching tube at which the reward found does not explain the expert.
        proofs: certificates of the features, each as a reward, with δ divided among them; empty without a proof.

    Example:
        >>> room, method = certirl.problems.comfort(), certirl.FeatureForm({"s²": lambda states: states[:, 0] ** 2})
        >>> log = certirl.steps.sample(room.dynamics, basis=certirl.Legendre(5), samples=200, rng=0)
        >>> ranges = certirl.solve(log, discount=0.9, expert=room.expert, method=method).ranges()
        >>> ranges.names, bool((ranges.low <= ranges.found).all()), bool((ranges.found <= ranges.high).all())
        (('s²',), True, True)
    """

    names: tuple[str, ...]
    found: Array
    low: Array
    high: Array
    sizes: Array
    compared: int
    left_out: int = 0
    proofs: tuple[Any, ...] = ()

    @property
    def delta(self) -> float | None:
        """The probability of a false statement; None without a proof."""
        return sum(proof.delta for proof in self.proofs) if self.proofs else None

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What the proofs rest on, in sentences."""
        return tuple(dict.fromkeys(sentence for proof in self.proofs for sentence in proof.assumptions))

    @property
    def texts(self) -> list[str]:
        """Each range in words ``[q]``, its ends rounded away from it."""
        return [f"{outward(low, -1)} to {outward(high, 1)}" for low, high in zip(self.low, self.high, strict=True)]

    @property
    def summary(self) -> str:
        """The ranges of the weights, in words."""
        count = len(self.sizes)
        return ", ".join(map(" ".join, zip(self.names[:count], self.texts[:count], strict=True)))

    def _headline(self) -> str:
        return self.summary

    def __str__(self) -> str:
        wide = max(map(len, (*self.names, "weight")))
        lines = [f"{'weight':<{wide}} {'least':>10} {'found':>10} {'largest':>10}"]
        for name, low, found, high in zip(self.names, self.low, self.found, self.high, strict=True):
            lines.append(f"{name:<{wide}} {outward(low, -1):>10} {number(found):>10} {outward(high, 1):>10}")
        return "\n".join([*lines, *self._over()])

    def _over(self) -> list[str]:
        """Over which rewards the ranges are, and what that rests on."""
        which = "all rewards of these features"
        if self.proofs:
            lacking = [proof.tail is None for proof in self.proofs]
            sure = f"with probability {chance(sum(proof.delta for proof in self.proofs))}"
            sure += ", if the tail is zero," if any(lacking) else ""
            if np.isnan(self.low[: len(self.sizes)]).any():
                which = "no reward of these features makes the expert optimal"
            else:
                which = f"of {which} that make the expert optimal"
            return [f"{sure} {which}", *(f"assumed: {sentence}" for sentence in self.assumptions)]
        rest = f"; at {self.left_out:,} more this reward does not explain it" if self.left_out else ""
        where = f"at {self.compared:,} comparisons outside the switching tube{rest}"
        return [f"of {which} that explain the expert {where}; not a proof"]

    def plot(self, *, ax: Any = None, path: Any = None) -> Any:
        """Draw the ranges of the weights, and of the ratios; write the picture to ``path`` if given.

        Example:
            >>> axes = ranges.plot(path="ranges.png")
        """
        from certirl import plots

        return plots.weight_ranges(self, ax=ax, path=path)


def number(value: float) -> str:
    """A weight with three digits; a dash for NaN."""
    if not np.isfinite(value):
        return "–" if np.isnan(value) else "∞" if value > 0 else "−∞"
    return f"{value + 0.0:.3g}".replace("-", "−")


def outward(value: float, side: int) -> str:
    """The end of a range with three digits, rounded away from the range."""
    if not np.isfinite(value) or value == 0:
        return number(value)
    unit = 10.0 ** (np.floor(np.log10(abs(value))) - 2)
    return number(float(side * np.ceil(side * value / unit - 1e-9) * unit))


def as_ratios(ratios: Any, names: Sequence[str]) -> list[tuple[int, int]]:
    """Pairs of features by name, as pairs of numbers."""
    pairs = []
    for pair in as_listed(ratios, "ratios"):
        each = as_listed(pair, "each of ratios")
        for name in each:
            if name not in names:
                listed = ", ".join(map(repr, names))
                raise ValueError(f"ratios names {shown(name)}{closest(name, names)}; the features are {listed}")
        if len(each) != 2 or each[0] == each[1]:
            raise ValueError(f'each of ratios must be two features, ("a", "b") for a / b, got {shown(pair)}')
        pairs.append((names.index(each[0]), names.index(each[1])))
    return pairs


def weight_ranges(
    names: tuple[str, ...], gains: Array, signs: Array, weights: Array, ratios: Sequence[tuple[int, int]] = ()
) -> WeightRanges:
    """The ranges over all weights that explain what these explain.

    Args:
        names: of the features.
        gains: what each adds to the advantage, for a weight of 1, at all comparisons outside the tube ``[r, p]``.
        signs: −1, 0 (any) or 1 for each feature ``[p]``.
        weights: of the reward found ``[p]``.
        ratios: pairs of features.
    """
    sizes = np.sqrt(np.mean(gains**2, axis=0))
    units = np.where(sizes > 0, sizes, 1.0)
    advantages = gains @ weights
    kept = advantages >= 0
    cone = _Cone(gains[kept] / units, float(advantages[kept].sum()), signs)
    ends = np.array([[cone.end(index, side) for side in (-1, 1)] for index in range(len(names))])
    largest = float(np.abs(ends[np.isfinite(ends)]).max(initial=0.0))
    found, each = list(weights), [(low, high) for low, high in ends / units[:, None]]
    for upper, lower in ratios:
        below = weights[lower]
        found.append(weights[upper] / below if below else np.nan)
        sides = [side for side, end in zip((-1, 1), ends[lower], strict=True) if side * end > _SMALL * largest]
        unit = units[lower] / units[upper]
        each.append(tuple(unit * end for end in cone.ratio(upper, lower, sides)))
    low, high = np.array(each).T
    named = (*names, *(f"{names[upper]} / {names[lower]}" for upper, lower in ratios))
    # What is found lies within, to the rounding of the solver.
    inside = np.where(np.isnan(found), low, found)
    return WeightRanges(
        named,
        np.array(found),
        np.minimum(low, inside),
        np.maximum(high, inside),
        sizes,
        int(kept.sum()),
        int((~kept).sum()),
    )


class _Cone(NamedTuple):
    """All weights x, in units of the features' sizes, with rows @ x ≥ 0 and the signs."""

    rows: Array  # ``[r, p]``
    total: float  # of rows @ x, for the reward found
    signs: Array  # ``[p]``

    def end(self, index: int, side: int) -> float:
        """The least (side −1) or largest x of a feature where the sum of rows @ x is the total."""
        if not self.total > 0:
            return float(side * np.inf)
        mean = self.total / len(self.rows)
        return mean * self._end(index, side, self.rows.mean(axis=0))

    def ratio(self, upper: int, lower: int, sides: Sequence[int]) -> tuple[float, float]:
        """The least and the largest ratio of two weights, where the lower one has a sign of these."""
        unit = np.arange(self.rows.shape[1]) == lower
        if not sides:
            return -np.inf, np.inf
        each = [[sign * self._end(upper, sign * side, sign * unit) for side in (-1, 1)] for sign in sides]
        return min(low for low, _ in each), max(high for _, high in each)

    def _end(self, index: int, side: int, unit: Array) -> float:
        """The least or largest x of a feature where unit @ x = 1; infinite where the solver names none."""
        from scipy.optimize import linprog

        p = self.rows.shape[1]
        bounds = [(0 if sign > 0 else None, 0 if sign < 0 else None) for sign in self.signs]
        answer = linprog(
            -side * np.eye(p)[index],
            A_ub=-self.rows,
            b_ub=np.zeros(len(self.rows)),
            A_eq=unit[None].astype(float),
            b_eq=[1.0],
            bounds=bounds,
            method="highs",
        )
        x = numbers_of(answer.x, p) if answer.status == _SOLVED else None
        if x is None or (self.rows @ x).min(initial=0.0) < -FEASIBLE * (1 + np.abs(x).max()):
            return float(side * np.inf)
        return float(x[index])
