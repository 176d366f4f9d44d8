"""The walk for experts that depend on the state: data and a policy in, a reward with what it explains out.

No setting belongs to an environment. V gets as many functions as stay cheap, angles their frequencies; effects are seen
directly where two draws agree and regressed where they do not, with columns chosen by held-out data; the reward is
piecewise linear on a grid of a size set by the number of states; margins fall to 0 beside a switch by rule.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from certirl._map import one_blas_thread
from certirl.bases import Basis
from certirl.bellman import check_problem
from certirl.cells import MOST_COORDINATES, Cells, expanded
from certirl.conflicts import find_conflict
from certirl.coverage import coverage
from certirl.domain import Array, Domain, as_domain
from certirl.effects import (
    Effects,
    Ended,
    Regression,
    circular_axes,
    features,
    is_deterministic,
    live_states,
    next_states,
    placed_states,
    regress,
    regressed_effects,
    richer,
    seen_effects,
    terminal_of,
    value_basis,
)
from certirl.ending import LiftedFit, fit_lifted_value, shuns_the_end
from certirl.planning import plan
from certirl.policies import Policy, as_policy
from certirl.policy_solution import DISTRUST, Diagnostics, PolicySolution, Share, StateFunction
from certirl.simulator import as_generator, can_pair, check_simulator, device_of, sample
from certirl.transitions import Transitions
from certirl.value_program import (
    PRICE,
    SMOOTH,
    Comparisons,
    Margin,
    ValueFit,
    comparisons,
    fit_value,
    least_squares,
    profile_at,
)

MOST_STATES = 30_000  # at which the expert is compared: more cost time and change nothing
FEWEST = 100  # states that can say anything
FRESH = 5_000  # states of the validated statement
MOST_POINTS, MOST_ALONE = 6_400, 200  # of the reward's grid; of one coordinate
STATES_PER_POINT = 1.5
DRAWS = 32  # next states of each fresh state, where they are random
PLANNED_COORDINATES = 2  # up to which planning on R takes a second
NEAR = 0.05  # a grid point with less weight of states around it rests on its neighbours


def solve_policy(
    source: Any,
    expert: Any,
    *,
    discount: float,
    basis: Basis | None = None,
    reward_basis: Basis | Cells | None = None,
    samples: int = 10_000,
    rng: Any = None,
    margin: Margin = None,
    price: float | None = None,
) -> PolicySolution:
    """Find R under which what the expert does is best wherever it can be: ``(P_π − P_a)V(s) ≥ m(s) − ξ(s)``.

    Args:
        source: a simulator, which may say ``terminal(states)`` and ``periodic``, or logged `Transitions`.
        expert: a function of states ``[n, d]`` giving actions ``[n]`` or probabilities ``[n, A]``; a `Policy`; or an
            object with ``predict``.
        discount: γ.
        basis: the functions of V, which say what goes around: a log does not; by rule if left out.
        reward_basis: the functions of R; `Cells` on a grid that the states can fill if left out.
        samples: states to ask a simulator about, or transitions of every action if it is noisy.
        rng: a seed or Generator; needed with a simulator.
        margin: half-width of the tube beside a switch over which margins rise from 0 to 1, as a share of the box; or a
            function of states giving m(s); by rule if left out.
        price: of a squared shortfall, in units of a squared residual of R.
    """
    log = isinstance(source, Transitions)
    if not log:
        _check_source(source, samples)
    check_problem(discount, 0, source.n_actions)
    policy, domain = as_policy(expert, source.n_actions), as_domain(source.domain)
    generator = as_generator(0 if log and rng is None else rng, "solve_policy")
    periodic = tuple(int(axis) for axis in getattr(source, "periodic", ()))
    phi = value_basis(domain, periodic) if basis is None else basis.on(domain)
    periodic = periodic if basis is None else circular_axes(phi)
    world = _World(source, policy, domain, periodic, terminal_of(source), discount)
    # Many small products: with several threads they wait for each other more than they work.
    with one_blas_thread:
        if log or not is_deterministic(source, generator):
            seen = _regressed(world, phi, samples, generator)
        else:
            states = placed_states(source, phi, min(samples, MOST_STATES), generator)
            seen = _Seen(seen_effects(source, phi, states, generator), None, None, len(states))
        rows = comparisons(seen.effects, policy, margin=margin)
        psi = _reward_basis(domain, periodic, len(seen.effects)) if reward_basis is None else reward_basis.on(domain)
        paid = PRICE if price is None else price
        given: dict[str, Any] = {"discount": discount, "reward_basis": psi, "price": paid}
        if shuns_the_end(source, policy, seen.effects, rows, discount):
            lifted = fit_lifted_value(seen.effects, rows, **given)
            return _concluded(world, seen, rows, lifted.fit, generator, margin, lifted)
        return _concluded(world, seen, rows, fit_value(seen.effects, rows, **given), generator, margin)


def _check_source(simulator: Any, samples: Any) -> None:
    """Refuse what cannot be asked, or too seldom."""
    check_simulator(simulator)
    if device_of(simulator) is not None:
        raise ValueError("a policy is not for simulators of a device yet: pass one that works with NumPy arrays")
    if isinstance(samples, bool) or not isinstance(samples, int | np.integer) or samples < FEWEST:
        raise ValueError(f"samples must be a whole number of states, at least {FEWEST}, got {samples!r}")


class _World(NamedTuple):
    """The problem."""

    source: Any
    policy: Policy
    domain: Domain
    periodic: tuple[int, ...]
    ended: Ended | None
    discount: float


class _Seen(NamedTuple):
    """What the data gave: effects, the regression behind them with its transitions, and how many there were."""

    effects: Effects
    regression: Regression | None
    log: Transitions | None
    samples: int


def _reward_basis(domain: Domain, periodic: tuple[int, ...], n: int) -> Cells | Basis:
    """Piecewise linear on a grid as fine as the states can fill; beyond four coordinates polynomials."""
    if len(domain) > MOST_COORDINATES:
        return value_basis(domain, periodic, MOST_POINTS // 10)
    points = min(MOST_POINTS, n / STATES_PER_POINT)
    along = max(int(points ** (1 / len(domain))), 3)
    return Cells((min(along, MOST_ALONE),) * len(domain), periodic).on(domain)


def _regressed(world: _World, phi: Basis, samples: int, rng: np.random.Generator) -> _Seen:
    """Effects by least squares on the state, from a log or from draws with common random numbers."""
    log = world.source
    if not isinstance(log, Transitions):
        paired = can_pair(log, phi, rng.spawn(1)[0])
        log = sample(log, basis=phi, samples=samples, rng=rng.spawn(1)[0], design=True, paired=paired)
    if log.counts.min() == 0:
        never = ", ".join(map(str, np.flatnonzero(log.counts == 0)))
        raise ValueError(f"action {never} was never taken in the log, so that nothing is known of what it does")
    log = _without_standing(log)
    regression = regress(log, phi, ended=world.ended, over=log.terminal)
    states = log.states if world.ended is None else log.states[~np.asarray(world.ended(log.states), dtype=bool)]
    if log.paired:
        states = states[: len(states) // log.n_actions]
    states = states[rng.permutation(len(states))[:MOST_STATES]]
    effects = regressed_effects(regression, states, world.ended, world.periodic)
    return _Seen(effects, regression, log, int(log.counts.min()))


def _without_standing(log: Transitions) -> Transitions:
    """Without the rows that lead from terminal states to themselves: V is 0 there, whatever the action."""
    if log.terminal is None:
        return log
    return log.where(~(log.terminal & (log.states == log.next_states).all(axis=1)))


def _concluded(
    world: _World,
    seen: _Seen,
    rows: Comparisons,
    fit: ValueFit,
    rng: np.random.Generator,
    margin: Margin,
    lifted: LiftedFit | None = None,
) -> PolicySolution:
    effects, n = seen.effects, len(seen.effects)
    reward = StateFunction(fit.reward_basis, fit.reward, world.ended)
    value = StateFunction(effects.basis, fit.value, world.ended)
    columns, action_values, model_error = _action_values(world, seen, fit, lifted)
    advantages = rows.gains @ fit.value
    worse, short = np.zeros(n, dtype=bool), np.zeros(n)
    worse[rows.which[(advantages < 0) & (rows.margins > 0)]] = True
    np.maximum.at(short, rows.which, fit.shortfall)
    compared = max(len(rows) + rows.ties, 1)
    diagnostics = Diagnostics(
        model_error=model_error,
        growth=world.discount * _spectral_radius(effects, rows),
        uncovered=_uncovered(world, seen, fit),
        ties=rows.ties / compared,
        unexplained=float(worse.mean()),
        residual=float(np.sqrt(np.mean(fit.residuals**2))),
        largest_residual=fit.residual,
        seen=effects.seen,
        going_on=None if lifted is None else lifted.least,
    )
    shares = _validated(world, seen, value, reward, rng, margin, lifted is not None)
    status, reason = _status(len(rows), diagnostics, shares[0])
    choice = f"V has {effects.basis.size} functions" + (
        f", effects {effects.columns.size} by held-out data" if effects.columns is not None else ""
    )
    return PolicySolution(
        status, reason, reward, value, world.discount, effects.n_actions, effects.states, short, rows.profile,
        columns, action_values, *shares, diagnostics, seen.samples, choice, world.policy.assumption, world.periodic,
        conflict=find_conflict(effects, world.policy, rows, np.maximum(rows.margins - advantages, 0.0)),
    )  # fmt: skip


def _status(comparisons: int, told: Diagnostics, share: Share | None) -> tuple[str, str]:
    if not comparisons:
        return "undetermined", "all actions do the same at every state, so that nothing tells the expert's from them"
    if not told.seen and told.model_error > DISTRUST:
        return "undetermined", (
            f"the estimated effects are off by {told.model_error:.2g} of an action's effect: more transitions are "
            "needed, or less noise"
        )
    if share is None:
        return "solved", f"the expert is explained at {1 - told.unexplained:.1%} of the log's states"
    return "validated", "checked on fresh states"


def _action_values(
    world: _World, seen: _Seen, fit: ValueFit, lifted: LiftedFit | None
) -> tuple[Basis | Cells, Array, float]:
    """(P̂_aV)(s) as functions of the state, with their held-out error over the effect of an action."""
    if seen.regression is not None:
        assert seen.log is not None
        fitted = seen.regression.weights @ fit.value
        return seen.regression.columns, fitted, _regression_error(world, seen, fit, fitted)
    effects, goals = seen.effects, seen.effects.after @ fit.value
    states = effects.states
    if lifted is not None:  # no choice is made where every action ends it, and a cliff there would spoil the rest
        states, goals = states[~lifted.doomed], goals[:, ~lifted.doomed]
    fold = np.arange(len(states)) % 5 == 0
    candidates: list[Basis | Cells] = [richer(effects.basis, factor) for factor in (1.0, 1.6)]
    candidates += [fit.reward_basis] if isinstance(fit.reward_basis, Cells) else []
    candidates = [one for one in candidates if one.size <= 0.4 * len(states)] or [richer(effects.basis, 0.5)]
    errors = [_missed(one, states, goals, fold) for one in candidates]
    best = candidates[int(np.argmin(errors))]
    effect = float(np.sqrt(np.mean((goals - goals.mean(axis=0)) ** 2) * 2))
    return best, least_squares(best, states, SMOOTH)(goals.T)[1].T, min(errors) / max(effect, 1e-300)


def _missed(columns: Basis | Cells, states: Array, goals: Array, fold: NDArray[np.bool_]) -> float:
    """The root mean square error on a fold that the fit has not seen."""
    _, fitted = least_squares(columns, states[~fold], SMOOTH)(goals[:, ~fold].T)
    found = np.stack([expanded(columns, states[fold], own) for own in fitted.T])
    return float(np.sqrt(np.mean((found - goals[:, fold]) ** 2)))


def _regression_error(world: _World, seen: _Seen, fit: ValueFit, fitted: Array) -> float:
    """Model error over action effect where next states are random.

    What a fit misses at two neighbouring states agrees in its own error and not in their noise, so that the mean
    product of held-out misses of neighbours estimates the squared error without the noise; it is at least what
    sampling leaves in a row.
    """
    from scipy.spatial import KDTree

    assert seen.regression is not None and seen.log is not None
    log, low, total, count = seen.log, np.array(world.domain)[:, 0], 0.0, 0
    width = np.diff(np.array(world.domain), axis=1)[:, 0]
    ends = features(seen.regression.basis, log.next_states, world.ended, log.terminal) @ fit.value
    for action in range(log.n_actions):
        states, goals = log.states[log.actions == action], ends[log.actions == action]
        fold = np.arange(len(states)) % 2 == 0
        values = seen.regression.columns.values(states)
        gram = values[~fold].T @ values[~fold]
        gram[np.diag_indices(len(gram))] += 1e-9 * np.trace(gram) / len(gram)
        missed = (goals - values @ np.linalg.solve(gram, values[~fold].T @ goals[~fold]))[fold]
        places = ((states - low) / width)[fold]
        _, neighbours = KDTree(places).query(places, k=2)
        total, count = total + float(missed @ missed[neighbours[:, 1]]), count + len(missed)
    found = np.stack([expanded(seen.regression.columns, seen.effects.states, own) for own in fitted])
    effect = float(np.sqrt(np.mean((found - found.mean(axis=0)) ** 2) * 2))
    # A difference of two actions has the errors of both; a fit on half of the data has twice that of the whole.
    squared = max(total / count, float(fit.value @ seen.regression.noise @ fit.value))
    return float(np.sqrt(squared)) / max(effect, 1e-300)


def _spectral_radius(effects: Effects, rows: Comparisons) -> float:
    """ρ(T̂) of the policy's square matrix on V's functions, by least squares."""
    gram = effects.now.T @ effects.now
    gram[np.diag_indices(len(gram))] += 1e-9 * np.trace(gram) / len(gram)
    return float(np.abs(np.linalg.eigvals(np.linalg.solve(gram, effects.now.T @ rows.expert))).max())


def _uncovered(world: _World, seen: _Seen, fit: ValueFit) -> float:
    """The share of R's grid points without states around them; of a log, of the box where an action is extrapolated."""
    if isinstance(world.source, Transitions) and seen.regression is not None and seen.log is not None:
        return float(coverage(seen.log, basis=seen.regression.columns).blind_share.max())
    if not isinstance(fit.reward_basis, Cells):
        return 0.0
    index, value = fit.reward_basis.corners(seen.effects.states)
    return float((np.bincount(index.ravel(), value.ravel(), fit.reward_basis.size) < NEAR).mean())


def _validated(
    world: _World,
    seen: _Seen,
    value: StateFunction,
    reward: StateFunction,
    rng: np.random.Generator,
    margin: Margin,
    lifted: bool,
) -> tuple[Share | None, Share | None, Share | None]:
    """Shares of fresh states at which the expert's action is best: for V, outside the tube, and planning on R."""
    if isinstance(world.source, Transitions):
        return None, None, None
    states = live_states(world.source, FRESH, rng)
    draws = 1 if seen.effects.seen else DRAWS
    total = np.zeros((world.source.n_actions, len(states)))
    for _ in range(draws):
        for action, moved in enumerate(next_states(world.source, states, rng)):
            total[action] += value(moved) / draws
    support = world.policy.support(states)
    best = total >= total.max(axis=0) - 1e-9 * np.ptp(total)
    good = (best.T | ~support).all(axis=1)  # whatever the expert may do is among the best
    outside = profile_at(states, seen.effects, world.policy, margin=margin) >= 1.0
    planned = None
    if len(world.domain) <= PLANNED_COORDINATES:
        chosen = plan(world.source, reward, discount=world.discount, draws=draws)(states)
        agrees = support[np.arange(len(states)), chosen]
        if lifted:  # V is positive wherever it goes on: where every action ends it there is nothing to agree on
            agrees = agrees[total.max(axis=0) > 0]
        planned = Share(int(agrees.sum()), len(agrees))
    return Share(int(good.sum()), len(states)), Share(int(good[outside].sum()), int(outside.sum())), planned
