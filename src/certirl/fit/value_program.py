"""The value form: a value function that prefers what the expert does, and the reward that has it.

For any V the reward ``R_V = V − γP_πV`` has V as the expert's value, and the expert is optimal for it if and only if
``(P_π − P_a)V ≥ 0`` for every action a. So V = wᵀφ is sought with ``(P_π − P_a)V(s) ≥ m(s) − ξ(s)``: no matrix of the
policy, no inverse, and γ does not enter the rows. The reward R = ρᵀψ has functions of its own, and what it misses of
R_V is part of the objective. Rows may fall short at a price, so that there is always an answer; the shortfall says
where the expert is not explained.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from certirl.data.policy import Policy
from certirl.fit.effects import Effects, MeanEffects, blocks
from certirl.functions.cells import Cells
from certirl.functions.functions import Functions
from certirl.functions.sigmoids import Sigmoids
from certirl.ground.domain import Array, Box
from certirl.ground.doors import as_number, as_reals, by_door, call, shown, takes
from certirl.ground.records import Record, freeze

TUBE = 0.05  # half-width over which margins rise from 0 to 1 beside a switch, as a share of the box
PRICE = 10.0  # of a squared shortfall, in units of a squared residual
SIGMOID_PRICE = 1e3  # the same where random sigmoids describe R: what they miss of it must not decide on V
SMOOTH = 1e-2  # of squared second differences of a piecewise-linear reward, beside its squared residuals
SMOOTHNESS = 3e-4  # price of a rough V where effects are regressed: noise leaves high degrees to chance
SMALL = 1e-6  # of ‖w‖², in units of the functions' own size
NEIGHBOURS = 15  # whose majority says what the expert does around a state
ROUNDING = 1e-8  # of V's functions: differences of two actions that a regression makes by itself
TIE = 1e-9  # actions whose effects differ by less, relative to the typical difference, are the same to V
FIRST = 4_000  # rows of a first solve, from which the whole starts
ENOUGH = 1e-6  # a step that gains less than this share of the objective is the last
ROUGH = 1e-2  # the same for the first solve
STEPS = 100  # of Newton's method, at most
WIDTHS = (2.0, 4.0, 8.0)  # of random sigmoids, that are compared
TRIED = 6_000  # states on which they are

Margin = float | Callable[[Array], Any] | None


@dataclass(frozen=True, eq=False)
class Comparisons(Record):
    """One row for each state and alternative action: by how much P_πV must exceed P_aV.

    Attributes:
        effects: of the actions.
        chances: the expert's probabilities of the actions ``[n, A]``.
        margins: m(s) ``[m]``, 0 beside a switch.
        which: the row of the state in `Effects` ``[m]``.
        alternatives: the alternative action ``[m]``; in rows that ask for a tie, the one that ties.
        signs: 1 ``[m]``; -1 in rows that ask P_aV to be no less than P_πV, for a tie.
        profile: m at every state ``[n]``.
        ties: how many comparisons were left out since both actions have the same effect.
    """

    effects: Effects
    chances: Array
    margins: Array
    which: NDArray[np.intp]
    alternatives: NDArray[np.intp]
    signs: Array
    profile: Array
    ties: int

    def __post_init__(self) -> None:
        freeze(self)

    def __len__(self) -> int:
        return len(self.margins)

    def gains(self, rows: NDArray[np.intp]) -> Array:
        """(P_π − P_a)φ(s) of some rows ``[r, k]``."""
        which = self.which[rows]
        after = self.effects.after(self.alternatives[rows], which)
        return self.signs[rows, None] * (self.effects.of_policy(self.chances, which) - after)

    def advantages(self, w: Array) -> Array:
        """(P_π − P_a)V(s) of all rows ``[m]`` for the coefficients w ``[k]``."""
        ahead = self.effects.ahead(w)
        expert = np.einsum("na,an->n", self.chances, ahead)
        return self.signs * (expert[self.which] - ahead[self.alternatives, self.which])

    def at(self, kept: NDArray[np.bool_]) -> Comparisons:
        """The rows of some states ``[n]``."""
        rows, place = kept[self.which], np.cumsum(kept) - 1
        return replace(
            self,
            effects=self.effects.at(kept),
            chances=self.chances[kept],
            margins=self.margins[rows],
            which=place[self.which[rows]],
            alternatives=self.alternatives[rows],
            signs=self.signs[rows],
            profile=self.profile[kept],
        )


class Prices(NamedTuple):
    """What actions cost, and the gap that this closes."""

    costs: Array  # c, 0 for the cheapest action ``[A]``
    # The share of the states at which some other action looks better than the expert's, with costs and without.
    left: float = np.nan
    without: float = np.nan

    @property
    def words(self) -> str:
        """Why there are costs."""
        return f"costs of actions leave {self.left:.1%} of the states unexplained, R(s) alone {self.without:.1%}"


@dataclass(frozen=True, eq=False)
class ValueFit(Record):
    """The answer of the program.

    Attributes:
        value: w ``[k]``, coefficients of V.
        reward: ρ, coefficients of R in its own basis.
        reward_basis: that basis.
        shortfall: ξ of every comparison ``[m]``.
        residuals: R − (V − γ max_a P_aV) at every state that R was fitted to, and at further ones.
        costs: (R_π − R_a)/γ of every comparison ``[m]``, of a reward that depends on the action.
        prices: the costs of actions where R(s, a) = r(s) − c_a, with r as ρ; None for a reward of the state.
    """

    value: Array
    reward: Array
    reward_basis: Functions
    shortfall: Array
    residuals: Array
    costs: Array | float = 0.0
    prices: Prices | None = None

    @property
    def residual(self) -> float:
        """ε, the largest residual."""
        return float(np.abs(self.residuals).max(initial=0.0))


def comparisons(effects: Effects, policy: Policy, *, margin: Margin = None) -> Comparisons:
    """All rows: the expert's action is better than every other by m(s), and actions that it mixes tie.

    Args:
        effects: of the actions.
        policy: the expert.
        margin: the half-width of the tube beside a switch over which margins rise to 1, as a share of the box; or a
            function of states giving m(s); chosen if left out.
    """
    effects, chances = effects.stored(), policy.probabilities(effects.states)
    profile = profile_at(effects.states, effects.states, policy, effects.basis.domain, effects.periodic, margin=margin)
    differences, longest = np.empty((effects.n_actions, len(effects))), 0.0
    for block in effects.blocks():
        after = effects.after_each(block)
        expert = np.einsum("ra,ark->rk", chances[block], after)
        longest = max(longest, float(np.linalg.norm(expert, axis=1).max()))
        differences[:, block] = np.linalg.norm(expert - after, axis=2)
    margins, which, alternatives, signs = [], [], [], []
    for action in range(effects.n_actions):
        loses, mixes = chances[:, action] == 0, (chances[:, action] > 0) & (chances[:, action] < 1)
        for sign, rows, wanted in ((1.0, loses, 1.0), (1.0, mixes, 0.0), (-1.0, mixes, 0.0)):
            margins.append(wanted * profile[rows])
            which.append(np.flatnonzero(rows))
            alternatives.append(np.full(int(rows.sum()), action))
            signs.append(np.full(int(rows.sum()), sign))
    of_state, of_action = np.concatenate(which), np.concatenate(alternatives)
    size = differences[of_action, of_state]
    kept = size > max(TIE * float(np.median(size[size > 0])), ROUNDING * longest) if (size > 0).any() else size > 0
    return Comparisons(
        effects=effects,
        chances=chances,
        margins=np.concatenate(margins)[kept],
        which=of_state[kept],
        alternatives=of_action[kept],
        signs=np.concatenate(signs)[kept],
        profile=profile,
        ties=int((~kept).sum()),
    )


def check_margin(margin: Any) -> None:
    """Refuse, with a sentence, what is no margin."""
    if margin is None:
        return
    if not callable(margin):
        other = by_door(", or a function of states,", "")
        meaning = f"the half-width of a tube as a share of the box{other}"
        as_number(margin, "margin", least=0, most=1, strict=True, meaning=meaning)
    elif isinstance(margin, type) or not takes(margin, None):
        raise TypeError(f"margin must be a number or a function of states [n, d], got {shown(margin)}")


def profile_at(
    states: Array, data: Array, policy: Policy, domain: Box, periodic: tuple[int, ...], *, margin: Margin = None
) -> Array:
    """m(s) ``[n]`` at any states: from 0 at a switch to 1 beyond the tube."""
    check_margin(margin)
    if callable(margin):
        answer = call(margin, states, what="margin", read=lambda answer: as_reals(answer, "margin(states)"))
        values = answer.astype(np.float64).reshape(-1)
        if values.shape != (len(states),) or not np.isfinite(values).all() or (values < 0).any():
            raise ValueError(f"margin(states) must be one number ≥ 0 for each of {len(states)} states")
        return values
    if margin is None:
        # A tube narrower than the distance between states would hold none of them.
        margin = max(TUBE, len(data) ** (-1.0 / data.shape[1]))
    return np.clip(distance_to_switch(states, data, policy, domain, periodic) / margin, 0.0, 1.0)


def distance_to_switch(states: Array, data: Array, policy: Policy, domain: Box, periodic: tuple[int, ...]) -> Array:
    """The distance to the nearest state of the data where the expert acts otherwise ``[n]``, in units of the box.

    The action at a state is that of the majority of the nearest states of the data: single errors of an expert that is
    only nearly optimal are no switches, and must not reduce the margin around them.
    """
    from scipy.spatial import KDTree

    kinds, labels = np.unique(policy.support(data) @ (1 << np.arange(policy.n_actions)), return_inverse=True)
    places, points = (domain.chart(rows, periodic) for rows in (states, data))
    tree, count = KDTree(points), min(NEIGHBOURS, len(points))
    of_data, of_states = (
        _majority(labels[tree.query(rows, k=count)[1].reshape(len(rows), count)], len(kinds))
        for rows in (points, places)
    )
    distances = np.full(len(states), np.inf)
    for label in np.unique(of_states):
        if (of_data != label).any():
            distances[of_states == label] = KDTree(points[of_data != label]).query(places[of_states == label])[0]
    return distances


def _majority(labels: NDArray[np.intp], kinds: int) -> NDArray[np.intp]:
    """The commonest of each row's labels ``[n]``."""
    return np.stack([(labels == kind).sum(axis=1) for kind in range(kinds)]).argmax(axis=0)


def fit_value(
    rows: Comparisons,
    *,
    discount: float,
    reward_basis: Functions,
    price: float = PRICE,
    smoothness: float = 0.0,
    adjust: Callable[[Array], Array] | None = None,
    further: Effects | None = None,
) -> ValueFit:
    """``min price·mean ξ² + mean (R − R_V)² + smoothness·Σ(q²w)² + small·‖w‖²``, all rows at once.

    For given w the best R is linear in w, so that it is eliminated first; what remains is a smooth convex problem in
    the few coefficients of V, which Newton's method solves in some tens of steps.

    Where an alternative action looks better than the expert's, R_V pays for the expert's action, and a plan on R would
    return there to collect: a shortfall ξ is worth up to ξ/(1 − γ). So R is fitted again in the end, to
    ``V − γ max_a P_aV``, under which V itself is the best value. Where the expert is explained nothing changes.

    Args:
        rows: the comparisons.
        discount: γ.
        reward_basis: functions ψ of the reward.
        price: of a shortfall.
        smoothness: price of roughness: of the terms of V, each times the square of its degree q.
        adjust: w to the w that R is fitted to in the end.
        further: effects at states where R is judged and not fitted.
    """
    effects, size = rows.effects, rows.effects.size
    fitted = LeastSquares(reward_basis, effects.states)
    squares, targets, scale = np.zeros((size, size)), np.zeros((reward_basis.size, size)), np.zeros(size)
    for block in effects.blocks():
        now = effects.before(block)
        target = now - discount * effects.of_policy(rows.chances, block)  # (V − γP_πV)(s) = target @ w
        squares += target.T @ target
        targets += fitted.moments(target, block)
        scale += np.einsum("nk,nk->k", now, now)
    missed = squares - targets.T @ fitted.solve(targets)
    curvature = (missed + missed.T) / (2 * len(effects)) + SMALL * np.diag(scale / len(effects) + 1e-300)
    if smoothness:
        roughness = (effects.degrees.astype(float) ** 2).sum(axis=1) ** 2
        curvature = curvature + smoothness * np.diag(roughness * scale / len(effects))
    curvature = curvature + price * effects.noise
    w = _newton(rows, curvature, price)
    if adjust is not None:
        w = adjust(w)
    wanted = _reward_at(effects, w, discount)
    reward = fitted(wanted)
    residuals = reward_basis.combined(effects.states, reward) - wanted
    if further is not None:
        more = reward_basis.combined(further.states, reward) - _reward_at(further, w, discount)
        residuals = np.concatenate([residuals, more])
    shortfall = np.maximum(rows.margins - rows.advantages(w), 0.0)
    return ValueFit(w, reward, reward_basis, shortfall, residuals)


def _reward_at(effects: Effects, w: Array, discount: float) -> Array:
    """V − γ max_a P_aV at the states of the effects ``[n]``."""
    return np.asarray(effects.value(w) - discount * effects.ahead(w).max(axis=0))


def choose_width(rows: Comparisons, *, reward_basis: Any, **program: Any) -> tuple[Comparisons, Any]:
    """The rows, and the functions of R, with random sigmoids of the width that explains held-out states best."""
    sigmoids, n = rows.effects.basis, len(rows.effects)
    stride = max(n // TRIED, 1)
    tried, held_out = (np.arange(n) % stride == 0, (np.arange(n) // stride) % 3 == 0)
    training, test = rows.at(tried & ~held_out), rows.at(tried & held_out)
    is_basis_free = isinstance(rows.effects, MeanEffects)  # other effects are numbers of these very functions
    if not isinstance(sigmoids, Sigmoids) or not is_basis_free or not (len(training) and len(test)):
        return rows, reward_basis

    def with_width(some: Comparisons, width: float) -> Comparisons:
        return replace(some, effects=replace(some.effects, basis=sigmoids.of_width(width)))

    shortfalls = []
    for width in WIDTHS:
        value = fit_value(with_width(training, width), reward_basis=reward_basis.of_width(width), **program).value
        missing = np.maximum(test.margins - with_width(test, width).advantages(value), 0.0)
        shortfalls.append(float(np.mean(missing**2)))
    best = WIDTHS[int(np.argmin(shortfalls))]
    return with_width(rows, best), reward_basis.of_width(best)


def as_grid(basis: Functions) -> Cells | None:
    """The grid of a piecewise linear reward; None for other functions."""
    return basis if isinstance(basis, Cells) else None


class LeastSquares:
    """Coefficients of functions ψ that fit goals at given states best; on a grid second differences are penalised."""

    def __init__(self, basis: Functions, states: Array) -> None:
        from scipy.linalg import cho_factor, cho_solve

        grid, ridge = as_grid(basis), 1e-9 * len(states) / basis.size
        self._basis, self._states = basis, states
        self._hats: Any = None
        if grid is None:
            gram: Any = np.zeros((basis.size, basis.size))
            for psi in map(self._values, blocks(len(states))):
                gram += psi.T @ psi
        else:
            self._hats = hats = grid.matrix(states)
            gram = (hats.T @ hats + grid._roughness() * (SMOOTH * len(states) / grid.size)).tocsc()
        if grid is not None and grid.dimension <= 2:
            from scipy.sparse import eye_array
            from scipy.sparse.linalg import splu

            self.solve: Callable[[Array], Array] = splu((gram + ridge * eye_array(grid.size)).tocsc()).solve
            return
        normal = gram if grid is None else gram.toarray()
        normal[np.diag_indices(basis.size)] += ridge
        factor = cho_factor(normal, lower=True, overwrite_a=True, check_finite=False)
        self.solve = lambda moments: cho_solve(factor, moments, check_finite=False)

    def _values(self, rows: slice) -> Any:
        return self._basis.values(self._states[rows]) if self._hats is None else self._hats[rows]

    def moments(self, goals: Array, rows: slice) -> Array:
        """Σ ψ(s) g over some of the states, with goals g ``[r, …]`` there."""
        return np.asarray(self._values(rows).T @ goals)

    def __call__(self, goals: Array) -> Array:
        """The coefficients ``[k, …]`` for goals ``[n, …]``."""
        total = np.zeros((self._basis.size, *goals.shape[1:]))
        for rows in blocks(len(goals)):
            total += self.moments(goals[rows], rows)
        return self.solve(total)


def _newton(rows: Comparisons, curvature: Array, price: float) -> Array:
    """The w that minimises ``price·mean max(0, m − Gw)² + wᵀQw``."""
    w, stride = np.zeros(len(curvature)), len(rows) // FIRST
    if not len(rows):
        return w
    if stride > 1:
        w = _descend(rows.at(np.arange(len(rows.effects)) % stride == 0), curvature, price, w, ROUGH)
    return _descend(rows, curvature, price, w, ENOUGH)


def _descend(rows: Comparisons, curvature: Array, price: float, w: Array, enough: float) -> Array:
    """Newton's steps from w, until one gains less than the share ``enough`` of the objective.

    Of the rows G that fall short, GᵀG and Gᵀm are kept; after a step only those rows are evaluated that fall short
    before it and not after it, or the other way round.
    """
    weight, ahead, margins = price / len(rows), rows.advantages(w), rows.margins
    counted, gram, moments = np.zeros(len(rows), dtype=bool), np.zeros_like(curvature), np.zeros(len(w))
    missing = np.maximum(margins - ahead, 0.0)
    value = weight * float(missing @ missing) + float(w @ curvature @ w)
    for _ in range(STEPS):
        short = missing > 0
        for sign, changed in ((1.0, short & ~counted), (-1.0, counted & ~short)):
            index = np.flatnonzero(changed)
            for block in blocks(len(index)):
                gains = rows.gains(index[block])
                gram += sign * (gains.T @ gains)
                moments += sign * (margins[index[block]] @ gains)
        counted = short
        slope = 2 * (curvature @ w) - 2 * weight * (moments - gram @ w)
        hessian = 2 * curvature + 2 * weight * gram
        hessian[np.diag_indices(len(w))] += 1e-13 * np.trace(hessian)
        direction = -np.linalg.solve(hessian, slope)
        along, bent = rows.advantages(direction), curvature @ direction
        length = _best_length(margins - ahead, along, float(w @ bent), float(direction @ bent), weight)
        next_w, next_ahead = w + length * direction, ahead + length * along
        missing = np.maximum(margins - next_ahead, 0.0)
        next_value = weight * float(missing @ missing) + float(next_w @ curvature @ next_w)
        if next_value >= value:  # by rounding
            break
        w, ahead, gained, value = next_w, next_ahead, value - next_value, next_value
        if gained <= enough * value:
            break
    return w


def _best_length(room: Array, along: Array, linear: float, quadratic: float, weight: float) -> float:
    """Where ``weight·Σ max(0, room − t·along)² + 2t·linear + t²·quadratic`` is least, by Newton steps in a bracket."""
    low, high, t = 0.0, np.inf, 1.0
    for _ in range(40):
        rest = room - t * along
        short = rest > 0
        rates = along[short]
        # Plain sums: threads of a matrix library would take longer here.
        slope = linear + t * quadratic - weight * float((rates * rest[short]).sum())
        bend = quadratic + weight * float((rates * rates).sum())
        low, high = (t, high) if slope < 0 else (low, t)
        new = t - slope / bend if bend > 0 else 2 * t
        if not low < new < high:
            new = (low + high) / 2 if np.isfinite(high) else 2 * t
        if abs(new - t) <= 1e-9 * t:
            return new
        t = new
    return t
