"""The walk for experts that depend on the state: data and a policy in, a reward with what it explains out.

No setting belongs to an environment. V gets as many functions as stay cheap, angles their frequencies; effects are seen
directly where two draws agree and regressed where they do not, with columns chosen by held-out data; the reward is
piecewise linear on a grid of a size set by the number of states; margins fall to 0 beside a switch by rule.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from certirl._map import one_blas_thread
from certirl.bases import Basis, as_basis
from certirl.bellman import check_problem
from certirl.cells import MOST_COORDINATES, Cells
from certirl.conflicts import find_conflict
from certirl.domain import Array, Domain, as_domain
from certirl.doors import as_flag
from certirl.effects import (
    circular_axes,
    drawn,
    drawn_effects,
    is_deterministic,
    live_states,
    next_states,
    noise_beside_effects,
    placed_states,
    regress,
    regressed_effects,
    seen_effects,
    value_basis,
)
from certirl.ending import LiftedFit, choices, fit_lifted_value, shuns_the_end
from certirl.ends import Ends, learn_ends
from certirl.moves import leads_better, regress_moves
from certirl.planning import plan
from certirl.policies import as_policy
from certirl.policy_checks import Seen, World, action_values, spectral_radius, uncovered, unvisited
from certirl.policy_solution import DISTRUST, Diagnostics, PolicySolution, Share, StateFunction
from certirl.progress import Report, announcer
from certirl.recover import check_slack
from certirl.simulator import (
    Ended,
    as_generator,
    as_samples,
    can_pair,
    check_simulator,
    device_of,
    periodic_of,
    terminal_of,
)
from certirl.transitions import Transitions
from certirl.value_program import (
    PRICE,
    Comparisons,
    Margin,
    ValueFit,
    check_margin,
    comparisons,
    fit_value,
    profile_at,
)

MOST_STATES = 30_000  # at which the expert is compared: more cost time and change nothing
MOST_SAMPLES = 1_000_000  # transitions of every action, all of which are kept with their functions
STAGES = 3  # of which progress is reported
FEWEST = 100  # states, or transitions of an action, that can say anything
UNEXPLAINED = 0.3  # of the states: from here on nothing is called explained
FRESH = 5_000  # states of the validated statement
MOST_POINTS, MOST_ALONE = 6_400, 200  # of the reward's grid; of one coordinate
STATES_PER_POINT = 1.5
FAINT = 0.1  # noise beside effects, both squared, at which drawn next states are looked at as they are
DESCRIBED = 20_000  # states from which a simulator's terminal ones are described in boxes
DRAWS = 32  # next states of each fresh state, where they are random
PLANNED_COORDINATES = 2  # up to which planning on R takes a second


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
    paired: bool | None = None,
    progress: bool | Report | None = None,
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
        paired: draw with the same random numbers for every action; by a trial if left out.
        progress: as in `solve`; a function receives (done, total) of the stages.
    """
    log, stage = isinstance(source, Transitions), _stages(progress)
    if not log:
        _check_source(source, samples, paired)
    discount = check_problem(discount, 0, source.n_actions)
    check_margin(margin)
    check_slack(price)
    policy, domain = as_policy(expert, source.n_actions), as_domain(source.domain)
    generator = as_generator(0 if log and rng is None else rng, "solve_policy")
    periodic = periodic_of(source)
    phi = value_basis(domain, periodic) if basis is None else as_basis(basis, domain)
    periodic = periodic if basis is None else circular_axes(phi)
    ended, ends = _ends(source, domain)
    world = World(source, policy, domain, periodic, ended, discount, ends)
    # Many small products: with several threads they wait for each other more than they work.
    with one_blas_thread:
        if log or not is_deterministic(source, generator):
            seen = _estimated(world, phi, samples, generator, paired)
        else:
            states = placed_states(source, phi, min(samples, MOST_STATES), generator)
            seen = Seen(seen_effects(source, phi, states, generator), None, None, len(states))
        stage(f"1 of {STAGES}: what the actions do is known at {len(seen.effects):,} states")
        rows = comparisons(seen.effects, policy, margin=margin)
        psi = _reward_basis(domain, periodic, len(seen.effects)) if reward_basis is None else reward_basis.on(domain)
        paid = PRICE if price is None else price
        given: dict[str, Any] = {"discount": discount, "reward_basis": psi, "price": paid}
        played: Any = seen.moves if log else source
        if world.ended is not None and shuns_the_end(played, policy, seen.effects, rows, discount):
            lifted = fit_lifted_value(seen.effects, rows, **given)
            stage(f"2 of {STAGES}: V and R are found")
            solution = _concluded(world, seen, rows, lifted.fit, generator, margin, lifted)
        else:
            fit = fit_value(seen.effects, rows, **given)
            stage(f"2 of {STAGES}: V and R are found")
            solution = _concluded(world, seen, rows, fit, generator, margin)
        stage(f"3 of {STAGES}: errors are estimated and fresh states tried")
        return solution


def _stages(progress: bool | Report | None) -> Callable[[str], None]:
    """Where a line about every stage goes."""
    watch, numbers = announcer(progress), iter(range(1, STAGES + 1))
    return lambda line: watch(line, next(numbers), STAGES)


def _check_source(simulator: Any, samples: Any, paired: Any) -> None:
    """Refuse what cannot be asked, or too seldom."""
    check_simulator(simulator)
    if device_of(simulator) is not None:
        raise ValueError("a policy is not for simulators of a device yet: pass one that works with NumPy arrays")
    as_samples(samples, least=FEWEST, most=MOST_SAMPLES)
    if paired is not None:
        as_flag(paired, "paired")


def _reward_basis(domain: Domain, periodic: tuple[int, ...], n: int) -> Cells | Basis:
    """Piecewise linear on a grid as fine as the states can fill; beyond four coordinates polynomials."""
    if len(domain) > MOST_COORDINATES:
        return value_basis(domain, periodic, MOST_POINTS // 10)
    points = min(MOST_POINTS, n / STATES_PER_POINT)
    along = max(int(points ** (1 / len(domain))), 3)
    return Cells((min(along, MOST_ALONE),) * len(domain), periodic).on(domain)


def _estimated(world: World, phi: Basis, samples: int, rng: np.random.Generator, paired: bool | None) -> Seen:
    """Effects where next states are random: looked at if noise is small beside them, else by least squares."""
    source = world.source
    if isinstance(source, Transitions):
        return _from_log(world, _without_standing(source), phi, rng)
    paired = can_pair(source, phi, rng.spawn(1)[0], asked=paired)
    states = min(samples, MOST_STATES)
    if noise_beside_effects(source, phi, rng) < FAINT * (samples // states):
        effects = drawn_effects(source, phi, live_states(source, states, rng), samples // states, rng)
        return Seen(effects, None, None, samples)
    return _from_log(world, drawn(source, samples, rng.spawn(1)[0], paired=paired), phi, rng)


def _from_log(world: World, log: Transitions, phi: Basis, rng: np.random.Generator) -> Seen:
    """Effects by least squares on the state: of V's functions, or of the state itself if held-out data say so."""
    if log.counts.min() == 0:
        never = ", ".join(map(str, np.flatnonzero(log.counts == 0)))
        raise ValueError(
            f"action {never} was never taken in the log, so that nothing is known of what it does; actions are counted "
            "from 0"
        )
    if log.counts.min() < FEWEST:
        raise ValueError(
            f"action {int(log.counts.argmin())} has {int(log.counts.min())} transitions: too few to tell what it does, "
            f"at least {FEWEST} of every action are needed"
        )
    over = log.terminal if world.ended is None else None  # boxes that hold the marked states speak for these
    states = log.states if world.ended is None else log.states[~world.ended(log.states)]
    if isinstance(world.source, Transitions) and not log.paired:
        states = states[rng.permutation(len(states))]
    else:  # every action was drawn from the same ones
        states = states[: len(states) // log.n_actions]
    states, fewest, most = states[:MOST_STATES], int(log.counts.min()), int(log.counts.max())
    moves = regress_moves(log, phi, ended=world.ended, periodic=world.periodic, rng=rng)
    if leads_better(moves, regress(log, phi, ended=world.ended, over=over, factor=1.0), log, rng):
        return Seen(moves.effects(phi, states, rng), None, log, fewest, moves, True, most)
    regression = regress(log, phi, ended=world.ended, over=over)
    effects = regressed_effects(regression, states, world.ended, world.periodic)
    return Seen(effects, regression, log, fewest, moves, False, most)


def _without_standing(log: Transitions) -> Transitions:
    """Without the rows that lead from terminal states to themselves: V is 0 there, whatever the action."""
    if log.terminal is None:
        return log
    return log.where(~(log.terminal & (log.states == log.next_states).all(axis=1)))


def _ends(source: Any, domain: Domain) -> tuple[Ended | None, Ends | None]:
    """Which states are terminal: the simulator's own word, or what the marks of a log teach; and it in boxes."""
    if isinstance(source, Transitions):
        if source.terminal is None or not source.terminal.any():
            return None, None
        ends = learn_ends(source.next_states, source.terminal)
        return (ends, ends) if ends.trusted else (None, ends)
    ended = terminal_of(source)
    if ended is None:
        return None, None
    low, high = np.array(domain).T
    states = low + (high - low) * np.random.default_rng(0).random((DESCRIBED, len(low)))
    over = ended(states)
    return ended, learn_ends(states, over) if over.any() else None


def _concluded(
    world: World,
    seen: Seen,
    rows: Comparisons,
    fit: ValueFit,
    rng: np.random.Generator,
    margin: Margin,
    lifted: LiftedFit | None = None,
) -> PolicySolution:
    effects, n = seen.effects, len(seen.effects)
    reward = StateFunction(fit.reward_basis, _sober(world, seen, fit), world.ended)
    value = StateFunction(effects.basis, fit.value, world.ended)
    columns, ahead, model_error = action_values(world, seen, fit, lifted)
    advantages = rows.gains @ fit.value
    worse, short = np.zeros(n, dtype=bool), np.zeros(n)
    worse[rows.which[(advantages < 0) & (rows.margins > 0)]] = True
    np.maximum.at(short, rows.which, fit.shortfall)
    compared = max(len(rows) + rows.ties, 1)
    diagnostics = Diagnostics(
        model_error=model_error,
        growth=world.discount * spectral_radius(effects, rows),
        uncovered=uncovered(world, seen, fit),
        ties=rows.ties / compared,
        unexplained=float(worse.mean()),
        residual=float(np.sqrt(np.mean(fit.residuals**2))),
        largest_residual=fit.residual,
        seen=effects.seen,
        going_on=None if lifted is None else lifted.least,
        choices=None if world.ended is None else choices(effects, rows),
    )
    shares = _validated(world, seen, value, reward, rng, margin, lifted is not None)
    status, reason = _status(len(rows), diagnostics, shares[0])
    choice = f"V has {effects.basis.size} functions" + (
        f", effects {effects.columns.size} by held-out data" if effects.columns is not None else ""
    )
    if seen.moved and seen.moves is not None:
        choice += f", moves of the state {seen.moves.columns.size}, which held-out data prefer"
    return PolicySolution(
        status, reason, reward, value, world.discount, effects.n_actions, effects.states, short, rows.profile,
        columns, ahead, *shares, diagnostics, seen.samples, choice, world.policy.assumption, world.periodic,
        ends=world.ends, most_samples=seen.most,
        conflict=find_conflict(effects, world.policy, rows, np.maximum(rows.margins - advantages, 0.0)),
    )  # fmt: skip


def _sober(world: World, seen: Seen, fit: ValueFit) -> Array:
    """R's coefficients; of a log, the lowest of those with states around them wherever there are none.

    Extrapolated, R would promise something somewhere, and planning would go and look for it where nothing is known.
    """
    if not isinstance(world.source, Transitions):
        return fit.reward
    empty = unvisited(fit.reward_basis, seen.effects.states)
    return fit.reward if empty.all() else np.where(empty, fit.reward[~empty].min(), fit.reward)


def _status(comparisons: int, told: Diagnostics, share: Share | None) -> tuple[str, str]:
    if not comparisons:
        return "undetermined", "all actions do the same at every state, so that nothing tells the expert's from them"
    if not told.seen and told.model_error > DISTRUST:
        return "undetermined", (
            f"the estimated effects are off by {told.model_error:.2g} of an action's effect: more transitions are "
            "needed, or less noise"
        )
    if told.unexplained > UNEXPLAINED:
        return "undetermined", (
            f"some other action looks better than the expert's at {told.unexplained:.0%} of the states: the expert may "
            "follow no reward, or one that these functions cannot express"
        )
    if share is None:
        return "solved", f"the expert is explained at {1 - told.unexplained:.1%} of the log's states"
    return "validated", "checked on fresh states"


def _validated(
    world: World,
    seen: Seen,
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
