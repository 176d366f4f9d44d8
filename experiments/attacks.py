"""A second attack on every statement of the library, against a truth that is exact: is any of them false?

    python experiments/attacks.py [--fast] [--workers 2] [--out experiments/results]

Next states are atoms with polynomial chances (`atoms`), so that values, advantages, tubes, regrets and best policies
are known without quadrature. Most problems are barely wrong: the least true margin lies below zero by a ten-thousandth
to a fifth of the largest one, and every certificate is false. The others are right by as little, so that bounds above
the truth are seen there too. The problems aim at the steps of the proofs that could break: narrow dips and equal
ripples between the points of a band, a single column, Gram matrices of clustered states, rare atoms of huge value,
large constants, rewards from 1e-250 to 1e250, jumps, tails exactly as large as declared, common random numbers read
from the other end, few samples, large δ.

- constant: experts of one action on an interval. boxes: on two and three coordinates. sums: over components.
- policies: experts who switch or mix on an interval. box policies: on two coordinates.
- columns: both kinds of experts on two coordinates with 36 to 91 columns, the error of the value bounded at points.
- solve: `solve` with delta, whatever it answers. refutations: of problems that are barely solvable. scenarios.
- assumptions: rewards and experts that break what the certificate prints as assumed; counted apart.

For every run the claimed bound is compared with the truth, and (estimate − truth)/losses is recorded: above 1 the bound
is false. Of a refutation it is the estimate over its error: above 1 the class is refuted.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

import atoms
import certirl
import study
from certirl import trials
from certirl.data.simulator import draw
from certirl.data.source import as_source
from certirl.functions.bases import Basis
from certirl.functions.components import SumBasis, as_components
from certirl.functions.inequalities import binomial_interval
from certirl.functions.reward import bounded
from certirl.proof.case import Case
from certirl.proof.certificate import Certificate, conclude
from certirl.proof.certify import planned, split
from certirl.proof.sums import gather
from certirl.proof.training import fit_surrogates

DELTAS = (0.01, 0.05, 0.2, 0.5)
DISCOUNTS = (0.3, 0.5, 0.7, 0.9, 0.97, 0.99)
DOMAINS = ((-1.0, 1.0), (0.0, 1.0), (-5.0, 100.0), (1000.0, 1001.0), (-1e-3, 1e-3))
SCALES = 250  # powers of ten that rewards are multiplied by, up to
SLACK = 1e-10  # of the value's span: rounding of the truth


@dataclass(frozen=True)
class Arguments:
    """The full size, in runs; ``--fast`` shrinks it."""

    constant: int = 2_500
    boxes: int = 300
    sums: int = 350
    policies: int = 750
    box_policies: int = 60
    columns: int = 300
    solve: int = 300
    refutations: int = 500
    scenarios: int = 200
    assumptions: int = 150
    seed: int = 0


REPEATED = tuple(name for name in asdict(Arguments()) if name != "seed")
FAST = Arguments(**dict.fromkeys(REPEATED, 8))


# --- what the runs share ---------------------------------------------------------------------------------------------


def lowest(rng: np.random.Generator) -> float:
    """The least margin as a share of the largest: below zero by a little, in one run of five above it."""
    return float(-(10 ** rng.uniform(-4, -0.7)) if rng.random() < 0.8 else 10 ** rng.uniform(-3, -0.3))


def settings(rng: np.random.Generator) -> dict[str, Any]:
    """δ and γ."""
    return {"delta": float(rng.choice(DELTAS, p=[0.15, 0.25, 0.25, 0.35])), "discount": float(rng.choice(DISCOUNTS))}


def some_samples(rng: np.random.Generator, fewest: int, most: float) -> int:
    """Transitions per action: from as few as can be, or from ten times that, to ten to the power ``most``."""
    least = fewest if rng.random() < 0.3 else 10 * fewest
    return int(10 ** max(rng.uniform(np.log10(least), most, 2))) if least < 10**most else least


def some_columns(rng: np.random.Generator, most: int) -> Basis:
    """A family of one coordinate, on some interval."""
    family = (certirl.Legendre, certirl.Fourier, certirl.Chebyshev)[rng.integers(3)]
    return family(int(rng.integers(1, most + 1))).on((DOMAINS[rng.integers(len(DOMAINS))],))


def some_box(rng: np.random.Generator, dimension: int) -> Basis:
    """Products of polynomials and waves."""
    index = str(rng.choice(["total", "full"]))
    most = 5 if dimension == 2 and index == "total" else 4 if dimension == 2 else 3
    factors: list[Basis] = [certirl.Legendre(int(rng.integers(2, most + 1))) for _ in range(dimension)]
    if rng.random() < 0.3:
        factors[0] = certirl.Fourier(3)
    if rng.random() < 0.2:
        factors[-1] = certirl.Chebyshev(factors[-1].size)
    domain = [(-1.0, 1.0), DOMAINS[rng.integers(len(DOMAINS))], (0.0, 2.0)][:dimension]
    return certirl.product(*factors, index=index).on(tuple(domain))


def some_reward(
    rng: np.random.Generator, mixture: atoms.Mixture, values: np.ndarray, columns: Basis
) -> tuple[Any, dict[str, Any], str, float]:
    """A reward with these values at the atoms but for scale and offset; keywords for `certify`, its form, its scale.

    Between the atoms it is an expansion, constant in pieces, or wild.
    """
    scale = 1.0 if rng.random() < 0.6 else float(10 ** rng.uniform(-SCALES, SCALES))
    offset = float(np.ptp(values) * 10 ** rng.uniform(2, 10)) if rng.random() < 0.15 else 0.0
    values, domain = scale * (values + offset), columns.domain
    form = str(rng.choice(["same family", "another family", "jumps", "jumps, declared", "wild, declared"]))
    if form == "same family" or (form == "another family" and columns.dimension > 1):
        size = max(columns.size, len(values) + 2)
        return atoms.as_expansion(columns.resized(size), mixture.atoms, values), {}, "same family", scale
    if form == "another family":
        others = [f for f in (certirl.Legendre, certirl.Fourier, certirl.Chebyshev) if f.kind != columns.kind]
        basis = others[rng.integers(2)](len(values) + 3).on(domain)
        return atoms.as_expansion(basis, mixture.atoms, values), {}, form, scale
    steps = atoms.by_nearest(mixture.atoms, values, domain)
    if form == "jumps":
        return steps, {}, form, scale
    low, high = float(values.min()), float(values.max())
    if form == "jumps, declared":
        return steps, {"reward_range": (low, high)}, form, scale
    swing = float(rng.choice([0.1, 10.0])) * (high - low)

    def wild(states: np.ndarray) -> np.ndarray:
        rows = np.asarray(states, dtype=float).reshape(-1, len(domain))
        met = (rows[:, None] == mixture.atoms).all(axis=2).any(axis=1)
        waves = np.cos(1e4 * rows.sum(axis=1))
        return np.asarray(np.where(met, steps(rows), np.clip(steps(rows) + swing * waves, low - swing, high + swing)))

    return wild, {"reward_range": (low - swing, high + swing)}, form, scale


def some_source(
    rng: np.random.Generator, mixture: atoms.Mixture, columns: Basis, samples: int
) -> tuple[Any, dict[str, Any], str]:
    """The simulator, asked in one of three ways, or a log: of states near the ends, in a cluster, at few places."""
    kind = str(rng.choice(["simulator", "paired", "unpaired", "log", "log, ends", "log, cluster", "log, few places"]))
    seed = int(rng.integers(2**31))
    if not kind.startswith("log"):
        how = {"simulator": None, "paired": True, "unpaired": False}[kind]
        return mixture, {"samples": samples, "paired": how, "rng": seed}, kind
    return some_log(rng, mixture, columns, samples, kind), {"rng": seed}, kind


def some_log(
    rng: np.random.Generator, mixture: atoms.Mixture, columns: Basis, samples: int, kind: str
) -> certirl.Transitions:
    """A log of independent rows; some actions are taken more often than others."""
    count, A = samples * mixture.n_actions, mixture.n_actions
    low, high = np.array(mixture.domain).T
    t = rng.random((count, len(low)))
    if kind == "log, ends":
        t = rng.beta(0.3, 0.3, t.shape)
    if kind == "log, cluster":
        near = rng.random(count) < rng.uniform(0.5, 0.95)
        t = np.where(near[:, None], rng.random(len(low)) + 0.02 * (t - 0.5), t)
    if kind == "log, few places":
        places = rng.random((columns.size + int(rng.integers(1, 5)), len(low)))
        t = places[rng.integers(len(places), size=count)]
    states = low + (high - low) * np.clip(t, 0.0, 1.0)
    actions = rng.choice(A, size=count, p=(rng.dirichlet(np.ones(A)) + 0.3) / (1 + 0.3 * A))
    actions[:A] = np.arange(A)
    reached = np.empty_like(states)
    for a in range(A):
        reached[actions == a] = mixture.sample(states[actions == a], a, rng)
    return certirl.Transitions(states, actions, reached, domain=mixture.domain, n_actions=A, independent=True)


def some_dynamics(
    rng: np.random.Generator, space: Basis, *, actions: int, expert: int, low: float
) -> tuple[atoms.Mixture, np.ndarray, str]:
    """Dynamics, V at the atoms, and how they were made."""
    kind = str(rng.choice(["planned", "rare", "slow", "program"], p=[0.3, 0.2, 0.3, 0.2]))
    if kind == "program":
        return *atoms.by_program(rng, space, actions=actions, expert=expert, lowest=low), kind
    slow = kind == "slow" and space.dimension == 1 and space.size > 1
    ground = atoms.slow_ground(rng, space) if slow else atoms.some_ground(rng, space.domain, rare=kind == "rare")
    return *atoms.against_one(rng, ground, space, actions=actions, expert=expert, lowest=low), kind


def compared(found: Any, true: float, span: float, scale: float) -> dict[str, Any]:
    """A bound and the truth, in units of the scale."""
    lost = sum(found.losses.values())
    known = np.isfinite([lost, found.estimated, true]).all() and lost > 0
    return {
        "holds": bool(found.holds),
        "wrong": bool(true <= 0),
        "false": bool(found.holds and true <= 0),
        "above": bool(found.margin > true + SLACK * span),
        "bounded": bool(known),
        "ratio": float((found.estimated - true) / lost) if known else None,
        "margin": float(found.margin / scale),
        "truth": float(true / scale),
    }


def banded(found: Any, true: atoms.Truth, expert: int) -> dict[str, Any]:
    """Every estimated curve and its losses, from which the bound was read, against the advantage at all states.

    The proof bounds the error of the whole curve, on both sides: a sharper test than its least value.
    """
    _, states, phi = atoms.looked_at(true.mixture.space)
    (ground,), worst = found.grounds, 0.0
    for band in ground.bands.pairs:
        b, a = band.pair
        gap = true.scale * (phi @ (true.outcomes[b] - true.outcomes[a])) / ground.surrogate.unit
        error = band.estimate(states) - gap
        for side, sign in ((0, 1.0), (1, -1.0)):
            radius = band.radius(states, side)
            if np.isfinite(radius).all() and (radius > 0).all():
                worst = max(worst, float((sign * error / radius).max()))
    return {"ratio at states": worst, "statements": {"curve farther from the truth than its losses": worst > 1}}


def judged(found: Any, true: atoms.Truth, expert: int, scale: float) -> dict[str, Any]:
    """A certificate for an expert of one action, against the truth."""
    return compared(found, true.margin(expert), true.span, scale) | banded(found, true, expert)


def attempted(kind: str, task: dict[str, Any], work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The record of a run; a call that the library refuses counts as no statement."""
    try:
        return {"kind": kind} | task | work()
    except ValueError as problem:
        return {"kind": kind} | task | {"refused": str(problem)[:60]}


# --- experts of one action -------------------------------------------------------------------------------------------


def judge_constant(seed: int) -> dict[str, Any]:
    """One certificate on an interval."""
    rng = np.random.default_rng([seed, 101])
    columns, task = some_columns(rng, int(rng.choice([2, 3, 6, 14]))), settings(rng)
    beyond = bool(columns.size > 1 and rng.random() < 0.2)  # one function more than the columns: a tail
    space, actions = columns.resized(columns.size + beyond), int(rng.choice([2, 2, 3, 4]))
    kind = f"constant, {'tail' if beyond else 'one column' if columns.size == 1 else columns.kind}"
    return certified_constant(rng, kind, task, columns, space, actions, 2 * columns.size + 6, 4.6)


def judge_box(seed: int) -> dict[str, Any]:
    """One certificate on two or three coordinates."""
    rng = np.random.default_rng([seed, 102])
    dimension, task = (2, 2, 3)[seed % 3], settings(rng)
    columns, actions = some_box(rng, dimension), int(rng.integers(2, 4))
    kind = f"boxes, {dimension} coordinates"
    return certified_constant(rng, kind, task, columns, columns, actions, 3 * columns.size + 10, 4.5)


def judge_columns(seed: int) -> dict[str, Any]:
    """One certificate on two coordinates with many columns, the error of the value bounded at points."""
    rng = np.random.default_rng([seed, 110])
    task, degree = settings(rng) | {"discount": float(rng.choice(DISCOUNTS[:4]))}, int(rng.integers(7, 13))
    columns = certirl.product(certirl.Legendre(degree + 1), certirl.Legendre(degree + 1)).on(((-1.0, 1.0),) * 2)
    if seed % 3 == 2:
        return certified_box_policy(rng, "columns, policies", task, columns, 5.3, prove=at_points)
    actions = int(rng.integers(2, 4))
    asked = columns, columns, actions, 10 * columns.size, 5.3
    return certified_constant(rng, "columns, one action", task, *asked, prove=at_points)


def at_points(
    reward: Any,
    source: Any,
    *,
    expert: Any,
    columns: Basis,
    discount: float,
    delta: float,
    rng: int,
    tail: Any,
    tube: float | None = None,
    reward_range: Any = None,
    samples: int = 10_000,
    paired: bool | None = None,
    **_: Any,
) -> Certificate:
    """A certificate as of `certirl.certify`, its bound on the error of the value not chosen but given: at points."""
    origin = as_source(source)
    given: dict[str, Any] = {} if tube is None else {"tube": tube}
    case = Case.of(expert, [columns], n_actions=source.n_actions, discount=discount, tail=tail, **given)
    how = {"role": "certify", "paired": paired, "design": case.design}
    training, fresh = split(origin, columns, samples, rng, False, **how)
    plan = {"samples": planned(origin, samples, fresh), "delta": delta}
    fit = fit_surrogates(case, bounded(reward, source.domain, reward_range), training, pointwise=True, **plan)
    return conclude(case, fit.surrogates, gather(fit.surrogates, fresh), delta=delta)


def certified_constant(
    rng: np.random.Generator,
    kind: str,
    task: dict[str, Any],
    columns: Basis,
    space: Basis,
    actions: int,
    least: int,
    most: float,
    prove: Callable[..., Any] = certirl.certify,
) -> dict[str, Any]:
    """One certificate of an expert of one action, whose dynamics lie in ``space``, against the truth."""
    expert = int(rng.integers(actions))
    mixture, value, made = some_dynamics(rng, space, actions=actions, expert=expert, low=lowest(rng))
    values = atoms.rewards_at(mixture, value, expert, task["discount"])
    reward, keywords, form, scale = some_reward(rng, mixture, values, columns)
    samples = some_samples(rng, least, most)
    source, how, asked = some_source(rng, mixture, columns, samples)
    tail = mixture.tail(columns.size) if space.size > columns.size else 0
    true = atoms.truth(mixture, reward, expert, task["discount"])
    keywords = {"tail": tail, "expert": expert, "columns": columns, "progress": False, "map": 1} | task | keywords | how
    record = task | {"n": samples, "source": asked, "form": form, "made": made}
    return attempted(kind, record, lambda: judged(prove(reward, source, **keywords), true, expert, scale))


class Together:
    """Mixtures side by side; ``shared`` gives all components of a row the same random number."""

    thread_safe = True

    def __init__(self, parts: Sequence[atoms.Mixture], *, shared: bool) -> None:
        self.parts, self.shared, self.n_actions = parts, shared, parts[0].n_actions
        self.domain = tuple(side for part in parts for side in part.domain)
        ends = np.cumsum([0, *(len(part.domain) for part in parts)])
        self.groups = [list(range(a, b)) for a, b in pairwise(ends)]

    def sample(self, states: np.ndarray, action: int, rng: np.random.Generator) -> np.ndarray:
        """Draw s' for each state."""
        u = rng.random((len(states), len(self.parts)))
        if self.shared:
            u = np.repeat(u[:, :1], len(self.parts), axis=1)
        pairs = zip(self.parts, self.groups, u.T, strict=True)
        return np.hstack([part.led(states[:, group], action, own) for part, group, own in pairs])


def some_sum(rng: np.random.Generator, discount: float, low: float) -> tuple[Together, list[Any], list[np.ndarray]]:
    """Components, their columns and the values at their atoms; the last one cancels the advantage of the others."""
    actions, count = int(rng.integers(2, 4)), int(rng.integers(2, 4))
    spaces: list[Basis] = [
        (certirl.Legendre, certirl.Fourier)[rng.integers(2)](int(rng.integers(1, 6))).on(((-1.0, 1.0),))
        for _ in range(count)
    ]
    if rng.random() < 0.2:
        spaces[0] = certirl.product(certirl.Legendre(2), certirl.Legendre(3), index="full").on(((-1.0, 1.0),) * 2)
    parts, values, minima = [], [], []
    for j, space in enumerate(spaces):
        share = -rng.uniform(0.02, 0.5) if j == count - 1 else rng.uniform(0.02, 0.5)
        ground = atoms.some_ground(rng, space.domain, rare=bool(rng.random() < 0.15))
        mixture, value = atoms.against_one(rng, ground, space, actions=actions, expert=0, lowest=share)
        curves = np.einsum("akj,j->ak", mixture.weights[:1] - mixture.weights[1:], value)
        parts.append(mixture)
        values.append(value)
        minima.append([atoms.least(space, curve[None])[0] for curve in curves])
    before, last = np.sum(minima[:-1], axis=0), np.array(minima[-1])
    factor = (before[last < 0] / -last[last < 0]).min()  # at which the first alternative is as good as the expert
    values[-1] = values[-1] * factor * (1 - low)
    return Together(parts, shared=bool(rng.random() < 0.3)), spaces, values


def true_sum(together: Together, rewards: Sequence[Any], discount: float) -> tuple[float, float]:
    """min over alternatives of Σ_j min D_ja, and the span of V."""
    total, span = np.zeros(together.n_actions - 1), 0.0
    for part, reward in zip(together.parts, rewards, strict=True):
        true = atoms.truth(part, reward, 0, discount)
        curves = true.outcomes[:1] - true.outcomes[1:]
        total += [atoms.least(part.space, curve[None])[0] * true.scale for curve in curves]
        span += true.span
    return float(total.min()), span


def judge_sum(seed: int) -> dict[str, Any]:
    """One certificate of a sum of rewards, each an expansion in its component's family."""
    rng = np.random.default_rng([seed, 103])
    task = settings(rng)
    together, spaces, values = some_sum(rng, task["discount"], lowest(rng))
    bases = [space.resized(max(space.size, len(own) + 2)) for space, own in zip(spaces, values, strict=True)]
    parts = as_components(together.groups, bases, together.domain)
    rewards = tuple(
        atoms.as_expansion(basis, part.atoms, atoms.rewards_at(part, own, 0, task["discount"]))
        for basis, part, own in zip(bases, together.parts, values, strict=True)
    )
    reward = certirl.Reward.sum(rewards, [own.coordinates for own in parts], [own.name for own in parts])
    samples, paired = some_samples(rng, 60, 4.5), bool(rng.integers(2))
    true, span = true_sum(together, rewards, task["discount"])

    def work() -> dict[str, Any]:
        places: Any = SumBasis(parts)
        few = max(samples // 4, max(space.size for space in spaces) + 2)
        training, fresh = (
            draw(together, places, n, own, design=True, paired=paired)
            for n, own in zip((few, samples), rng.spawn(2), strict=True)
        )
        case = Case.of(0, spaces, n_actions=together.n_actions, discount=task["discount"], tail=0, components=parts)
        surrogates = fit_surrogates(case, reward, training, samples=samples, delta=task["delta"]).surrogates
        proof = conclude(case, surrogates, gather(surrogates, fresh), delta=task["delta"])
        return compared(proof, true, span, 1.0)

    source = "paired" if paired else "unpaired"
    return attempted("sums", task | {"n": samples, "source": source, "form": "same family", "made": "planned"}, work)


# --- experts who switch ----------------------------------------------------------------------------------------------


def some_policy(rng: np.random.Generator) -> tuple[Basis, np.ndarray, atoms.Pieces, float, str] | None:
    """Columns, curves of the actions, an expert, its tube and its kind; None if the draw gave no such expert.

    The expert takes the highest curve; or moves a switch, by more than the tube or by less; or misses a piece; or mixes
    an action with a copy of it, or with another that is worse.
    """
    family = (certirl.Legendre, certirl.Legendre, certirl.Chebyshev, certirl.Fourier)[rng.integers(4)]
    columns = family(int(rng.integers(2, 8))).on((DOMAINS[rng.integers(len(DOMAINS))],))
    ((low, high),) = columns.domain
    width, actions = high - low, int(rng.integers(2, 4))
    curves = np.array([atoms.shape(rng, columns) for _ in range(actions)])
    curves[:, 0] += rng.uniform(-0.2, 0.2, actions)
    right = atoms.greedy(columns, curves)
    tube = width * float(rng.choice([0.01, 0.025, 0.06, 0.12]))
    kind = str(rng.choice(["right", "moved", "moved", "moved within", "missed", "mixes copies", "mixes others"]))
    if not 1 <= len(right.switches) <= 6:
        return None
    switches, shares = right.switches.copy(), right.shares.copy()
    if kind.startswith("moved"):
        which = rng.integers(len(switches))
        by = rng.uniform(0.2, 0.8) if kind == "moved within" else 1 + 10 ** rng.uniform(-2, 0)
        switches[which] += rng.choice([-1, 1]) * tube * by
        if not (np.diff([low, *switches, high]) > width / 1000).all():
            return None
    if kind == "missed":
        which = int(rng.integers(len(switches)))
        switches, shares = np.delete(switches, which), np.delete(shares, which + int(rng.integers(2)), axis=0)
        same = (shares[1:] == shares[:-1]).all(axis=1)
        switches, shares = switches[~same], shares[np.concatenate([[True], ~same])]
    if kind.startswith("mixes"):
        taken = int(shares[rng.integers(len(shares))].argmax())
        if kind == "mixes copies":
            curves = np.vstack([curves, curves[taken]])
            shares = np.pad(shares, ((0, 0), (0, 1)))
            other = len(curves) - 1
        else:
            other = int(rng.choice([a for a in range(actions) if a != taken]))
        share = float(rng.uniform(0.05, 0.95))
        own = shares[:, taken] == 1
        shares[own, taken], shares[own, other] = share, 1 - share
        if rng.random() < 0.5:  # and slightly wrong besides
            switches = switches + rng.choice([-1, 1]) * tube * (1 + 10 ** rng.uniform(-2, 0))
            if not (np.diff([low, *switches, high]) > width / 1000).all():
                return None
    expert = atoms.Pieces(switches, shares)
    grid = np.linspace(low, high, 2001)
    return (columns, curves, expert, tube, kind) if (expert.away(grid) > 1.2 * tube).any() else None


def where_it_errs(
    rng: np.random.Generator, ground: atoms.Ground, space: Basis, curves: np.ndarray, expert: atoms.Pieces
) -> atoms.Ground:
    """The ground with its likeliest atom, or all atoms, moved to states where the expert errs."""
    ((low, high),) = space.domain
    grid = np.linspace(low, high, 1001)
    ahead = atoms.features(space, grid) @ curves.T
    wrong = grid[ahead.max(axis=1) - (expert(grid) * ahead).sum(axis=1) > 1e-9]
    if not len(wrong) or rng.random() < 0.5:
        return ground
    places, chances = ground.atoms.copy(), ground.chances.copy()
    if rng.random() < 0.5:
        places = rng.choice(wrong, size=places.shape)
    else:
        chances[chances.argmax()] += 3.0
        places[chances.argmax()] = rng.choice(wrong)
    return replace(ground, atoms=places, chances=chances / chances.sum())


def judge_policy(seed: int) -> dict[str, Any]:
    """One certificate of an expert who switches on an interval."""
    rng = np.random.default_rng([seed, 104])
    chosen = None
    while chosen is None:
        chosen = some_policy(rng)
    columns, curves, expert, tube, kind = chosen
    task = settings(rng)
    beyond = bool(rng.random() < 0.15)
    space = columns.resized(columns.size + beyond)
    if beyond:
        curves = np.hstack([curves, rng.normal(size=(len(curves), 1)) * 10 ** rng.uniform(-5, -2)])
    ground = atoms.some_ground(rng, columns.domain, rare=bool(rng.random() < 0.2))
    if rng.random() < 0.3:
        ground = atoms.slow_ground(rng, space)
    ground = where_it_errs(rng, ground, space, curves, expert)
    mixture, _ = atoms.planned(rng, ground, curves, space)
    values = atoms.rewards_at(mixture, ground.value, expert, task["discount"])
    reward, keywords, form, scale = some_reward(rng, mixture, values, columns)
    samples = some_samples(rng, 4 * columns.size + 10, 4.9)
    source, how, asked = some_source(rng, mixture, columns, samples)
    sure = bool((expert.shares.max(axis=1) == 1).all()) and rng.random() < 0.8
    keywords = {"tail": mixture.tail(columns.size) if beyond else 0, "tube": tube, "columns": columns} | keywords
    keywords |= {"expert": (lambda s: expert(s).argmax(axis=1)) if sure else expert, "progress": False, "map": 1}
    true = atoms.truth(mixture, reward, expert, task["discount"])

    def work() -> dict[str, Any]:
        found: Any = certirl.certify(reward, source, **task, **keywords, **how)
        return judged_policy(found, true, expert, reward, task["discount"], scale)

    record = task | {"n": samples, "source": asked, "form": form, "made": kind}
    return attempted(
        f"policies, {'tail' if beyond else 'mixing' if kind.startswith('mixes') else 'sure'}", record, work
    )


def judged_policy(
    found: Any,
    true: atoms.Truth,
    expert: Any,
    reward: Any,
    discount: float,
    scale: float,
    beside: np.ndarray | None = None,
) -> dict[str, Any]:
    """Every statement of a certificate of an expert who switches, against the truth at many states and some besides."""
    domain, unit = true.mixture.domain, true.scale
    along = {1: 8001, 2: 161}[len(domain)]
    grid = atoms.mesh([np.linspace(low, high, along) for low, high in domain])
    grid = grid if beside is None else np.concatenate([grid, beside])
    slack = SLACK * true.span
    ahead, best = unit * true.advantage(grid), unit * true.advantage(grid, best=True)
    shares = expert(grid)
    taken = shares > 0
    margins = np.where(taken, ahead, np.inf).min(axis=1) - np.where(taken, -np.inf, ahead).max(axis=1)
    away = expert.away(grid)
    tube = found.tube  # None if it is looked up as an expert of one action
    nowhere = 0.0 if found.margin > 0 else np.inf
    allowed, settled, ties = (0.0, nowhere, 0.0) if tube is None else (tube.allowed, tube.settled, tube.ties)
    least = float(margins[away > allowed * (1 + 1e-9)].min())
    lost = discount * (best.max(axis=1) - (shares * ahead).sum(axis=1))
    looked = found.grounds[0].surrogate.columns.grid(2001)
    value = [
        np.asarray(reward(own), dtype=float).reshape(len(own))
        + discount * (expert(own) * unit * true.advantage(own)).sum(axis=1)
        for own in (grid, looked)
    ]
    apart = float(np.ptp(np.concatenate(value)))
    cell = 0.0 if tube is None else tube.grid.reach
    beyond = away > settled + cell
    clearly = best.max(axis=1)[:, None] - best > slack  # what no best policy takes
    mixed = np.where(taken, ahead, -np.inf).max(axis=1) - np.where(taken, ahead, np.inf).min(axis=1)
    clear = away > 2 * cell
    some = grid[clear][:: max(int(clear.sum()) // 600, 1)]
    guess, low = found.advantage(some)
    here, own = unit * true.advantage(some), expert(some) > 0
    gap = (np.where(own, here, np.inf).min(axis=1)[:, None] - here).T
    with np.errstate(invalid="ignore", divide="ignore"):
        pointwise = np.where(own.T | ~np.isfinite(low), -np.inf, (guess - gap) / (guess - low))
    flags = {
        "wrong where proved": bool((margins[found.proves(grid)] <= -slack).any()),
        "regret below the truth": bool(found.regret < lost.max() - slack),
        "span above the truth": bool((found.value_span or 0.0) > apart + slack),
        "best policy elsewhere beyond settled": bool((~taken & ~clearly).any(axis=1)[beyond].any()),
        "ties above": bool(ties < mixed[clear].max() - slack),
        "advantage above at a state": bool((low > gap + slack)[~own.T].any()),
    }
    worst = float(pointwise.max())
    keywords = compared(found, least, true.span, scale)
    return keywords | {"statements": flags, "ratio at states": worst if np.isfinite(worst) else None}


def judge_box_policy(seed: int) -> dict[str, Any]:
    """One certificate of an expert who switches on two coordinates: at lines, or at a circle."""
    rng = np.random.default_rng([seed, 105])
    task, degree = settings(rng), int(rng.integers(2, 4))
    columns = certirl.product(certirl.Legendre(degree + 1), certirl.Legendre(degree + 1)).on(((-1.0, 1.0),) * 2)
    return certified_box_policy(rng, "policies, two coordinates", task, columns, 5.2)


def certified_box_policy(
    rng: np.random.Generator,
    kind: str,
    task: dict[str, Any],
    columns: Basis,
    most: float,
    prove: Callable[..., Any] = certirl.certify,
) -> dict[str, Any]:
    """One certificate of an expert who switches at a line or at a circle, whose dynamics lie in the columns."""
    degree, actions = columns.factors[0].size - 1, int(rng.integers(2, 4))
    low = float(-(10 ** rng.uniform(-2, -0.5))) if rng.random() < 0.7 else 0.0  # how far curves lie beside the switches
    slope, tube = rng.uniform(-0.3, 0.3, 2), float(rng.choice([0.05, 0.1, 0.2]))
    expert: Any
    if rng.random() < 0.6:
        angle = rng.uniform(0, 2 * np.pi)
        normal, place = np.array([np.cos(angle), np.sin(angle)]), float(rng.uniform(-0.4, 0.4))
        expert = atoms.Line(normal, np.array([place]), (1, 0), columns.domain, actions)

        def side(s: np.ndarray) -> np.ndarray:
            return (s @ normal - place) * (1 + s @ slope)
    else:
        centre, radius = rng.uniform(-0.2, 0.2, 2), float(rng.uniform(0.35, 0.6))
        expert = atoms.Disc(centre, radius, (1, 0), actions)

        def side(s: np.ndarray) -> np.ndarray:
            around = radius**2 - ((s - centre) ** 2).sum(axis=1)
            return around * (1 + s @ slope) if degree >= 3 else around

    gap = atoms.fitted(columns, lambda s: side(s) + low * (1 + 0.3 * s[:, 0]))
    curves = np.zeros((actions, columns.size))
    curves[0], curves[1] = gap / 2, -gap / 2
    if actions == 3:
        curves[2] = -0.2 * atoms.shape(rng, columns)
        curves[2, 0] -= np.abs(gap).sum() / 2
    ground = atoms.some_ground(rng, columns.domain, rare=bool(rng.random() < 0.15))
    mixture, _ = atoms.planned(rng, ground, curves, columns)
    values = atoms.rewards_at(mixture, ground.value, expert, task["discount"])
    reward, keywords, form, scale = some_reward(rng, mixture, values, columns)
    samples = some_samples(rng, 1000, most)
    source, how, asked = some_source(rng, mixture, columns, samples)
    keywords = {"tail": 0, "tube": tube, "columns": columns, "expert": expert, "progress": False, "map": 1} | keywords
    true = atoms.truth(mixture, reward, expert, task["discount"])

    def work() -> dict[str, Any]:
        found: Any = prove(reward, source, **task, **keywords, **how)
        return judged_policy(found, true, expert, reward, task["discount"], scale)

    return attempted(kind, task | {"n": samples, "source": asked, "form": form, "made": "planned"}, work)


# --- solve, refute, scenario -----------------------------------------------------------------------------------------


def judge_solve(seed: int) -> dict[str, Any]:
    """`solve` with delta: a certificate must be true of its own reward; what is solvable must not be infeasible."""
    rng = np.random.default_rng([seed, 106])
    task = settings(rng)
    kind = ("line", "line", "log", "box", "sum", "policy")[seed % 6]
    low, most = float(rng.choice([-1, 1])) * 10 ** rng.uniform(-3, -0.5), int(10 ** rng.uniform(2.7, 4))
    keywords: dict[str, Any] = {"tail": 0, "progress": False, "map": 1, "rng": int(rng.integers(2**31))} | task
    record = task | {"n": most, "source": kind, "form": "found", "made": "planned"}
    if kind == "sum":
        together, spaces, values = some_sum(rng, task["discount"], low)
        sizes = [space.size for space in spaces]
        bases = [s.resized(max(s.size, len(v) + 1)) for s, v in zip(spaces, values, strict=True)]

        def work_on_sum() -> dict[str, Any]:
            most_of = max(most, 20 * max(sizes) + 101)
            found: Any = certirl.solve(
                together, components=together.groups, expert=0, basis=bases, columns=sizes, samples=most_of, **keywords
            )
            parts = None if found.reward is None else found.reward.parts
            return answered(found, low > 0, lambda: true_sum(together, parts or (), task["discount"]))

        return attempted("solve, sums", record, work_on_sum)
    if kind == "policy":
        chosen = None
        while (
            chosen is None or not (chosen[-1][:5] in ("right", "moved") or chosen[-1] == "missed") or chosen[0].size > 4
        ):
            chosen = some_policy(rng)
        columns, curves, expert, tube, made = chosen
        ground = atoms.some_ground(rng, columns.domain)
        mixture, _ = atoms.planned(rng, ground, curves, columns)
        most = int(10 ** rng.uniform(3.5, 4.7))

        def work_on_policy() -> dict[str, Any]:
            basis = certirl.Legendre(int(rng.integers(3, 9)))
            found: Any = certirl.solve(
                mixture,
                expert=lambda s: expert(s).argmax(axis=1),
                columns=columns,
                tube=tube,
                basis=basis,
                samples=most,
                **keywords,
            )
            fits = made == "right" and basis.size >= len(ground.atoms)  # then some V of the class explains the expert
            said = {"infeasible": found.status == "infeasible", "solvable": fits}
            said |= {"false": bool(said["infeasible"] and fits), "holds": found.status == "certified"}
            if found.certificate is not None:
                true = atoms.truth(mixture, found.reward, expert, task["discount"])
                more = judged_policy(found.certificate, true, expert, found.reward, task["discount"], 1.0)
                said = more | said | {"false": said["false"] or more["false"]}
            return said

        return attempted("solve, policies", record | {"n": most, "made": made}, work_on_policy)
    columns = some_box(rng, 2) if kind == "box" else some_columns(rng, 5)
    while kind == "box" and columns.size > 10:
        columns = some_box(rng, 2)
    actions = int(rng.integers(2, 4))
    ground = atoms.some_ground(rng, columns.domain, rare=bool(rng.random() < 0.1))
    mixture, _ = atoms.against_one(rng, ground, columns, actions=actions, expert=0, lowest=low)
    basis = columns.resized(max(columns.size, len(ground.atoms) + int(rng.integers(0, 3)), 2))
    source: Any = mixture
    keywords |= {"basis": basis, "columns": columns.size, "expert": 0}
    if kind == "log":
        source = some_log(rng, mixture, columns, most, str(rng.choice(["log", "log, ends"])))
    else:
        keywords["samples"] = max(most, 20 * columns.size + 101)

    def work() -> dict[str, Any]:
        found: Any = certirl.solve(source, **keywords)

        def true_margin() -> tuple[float, float]:
            true = atoms.truth(mixture, found.reward, 0, task["discount"])
            return true.margin(0), true.span

        distinct = len(np.unique(ground.atoms, axis=0)) == len(ground.atoms)
        return answered(found, low > 0 and distinct, true_margin)

    return attempted(f"solve, {kind}", record, work)


def answered(found: Any, solvable: bool, true_margin: Callable[[], tuple[float, float]]) -> dict[str, Any]:
    """The answer of `solve`: certified, refuted or neither."""
    said: dict[str, Any] = {"infeasible": found.status == "infeasible", "solvable": solvable}
    said |= {"false": bool(said["infeasible"] and solvable), "holds": found.status == "certified"}
    if found.certificate is not None and found.reward is not None:
        more = compared(found.certificate, *true_margin(), 1.0)
        said = more | said | {"false": said["false"] or more["false"]}
    return said


def judge_refutation(seed: int) -> dict[str, Any]:
    """A class in which some V makes the expert optimal by little: a refutation is false, and so is a lower ceiling."""
    rng = np.random.default_rng([seed, 107])
    delta, kind = float(rng.choice(DELTAS)), ("one action", "one action", "policy", "sum")[seed % 4]
    columns = certirl.Legendre(int(rng.integers(2, 6))).on(((-1.0, 1.0),))
    size, samples = int(rng.integers(2, 6)), int(10 ** rng.uniform(1.8, 4.3))
    keywords: dict[str, Any] = {"delta": delta, "tail": 0, "samples": samples, "progress": False, "map": 1}
    keywords |= {"rng": int(rng.integers(2**31)), "paired": [None, True, False][rng.integers(3)]}
    record = {"delta": delta, "n": samples, "source": str(keywords["paired"]), "form": "class", "made": kind}
    margin, A = 10 ** rng.uniform(-4, -1), int(rng.integers(2, 6))

    def known_value() -> tuple[atoms.Ground, np.ndarray]:
        ground = atoms.some_ground(rng, columns.domain)
        if len(np.unique(ground.atoms)) < size:
            places = rng.uniform(-1, 1, (size + 1, 1))
            ground = atoms.Ground(places, np.full(len(places), 1 / len(places)), np.zeros(len(places)))
        w = rng.normal(size=size - 1)
        value = certirl.Legendre(size).on(columns.domain).values(ground.atoms)[:, 1:] @ w
        return replace(ground, value=value), w

    def concluded(found: Any, best: float) -> dict[str, Any]:
        return {
            "holds": bool(found.holds),
            "wrong": True,
            "false": bool(found.holds),
            "above": bool(found.ceiling < best * (1 - 1e-9)),
            "bounded": True,
            "ratio": float(found.estimated / (found.estimated - found.margin)),
            "truth": best,
            "margin": float(found.ceiling),
        }

    if kind == "sum":
        made = []
        for _ in range(2):
            ground, w = known_value()
            mixture, _ = atoms.against_one(rng, ground, columns, actions=A, expert=0, lowest=margin)
            curves = np.einsum("akj,j->ak", mixture.weights[:1] - mixture.weights[1:], ground.value)
            made.append((mixture, w, np.array([atoms.least(columns, c[None])[0] for c in curves])))
        together = Together([own[0] for own in made], shared=False)
        best = sum(own[2] for own in made).min() / sum(np.abs(own[1]).sum() for own in made)

        def work_on_sum() -> dict[str, Any]:
            found = certirl.refute(
                together,
                components=together.groups,
                expert=0,
                basis=certirl.Legendre(size),
                columns=columns.size,
                **keywords,
            )
            return concluded(found, float(best))

        return attempted("refutations, sums", record, work_on_sum)
    ground, w = known_value()
    if kind == "policy":
        curves, expert = np.zeros((A, columns.size)), None
        while expert is None or not 1 <= len(expert.switches) <= 4:
            A = int(rng.integers(2, 4))
            curves = np.array([atoms.shape(rng, columns) for _ in range(A)])
            expert = atoms.greedy(columns, curves)
        mixture, _ = atoms.planned(rng, ground, curves, columns)
        chosen = expert
        tube = float(rng.choice([0.01, 0.05, 0.1]))

        def work_on_policy() -> dict[str, Any]:
            found = certirl.refute(
                mixture,
                expert=lambda s: chosen(s).argmax(axis=1),
                basis=certirl.Legendre(size),
                columns=columns.size,
                tube=tube,
                **keywords,
            )
            ahead = (
                features_of(mixture, found.grounds[0].cover.states)
                @ np.einsum("akj,j->ak", mixture.weights, ground.value).T
            )
            taken = chosen(found.grounds[0].cover.states).argmax(axis=1)
            gaps = ahead[np.arange(len(ahead)), taken][:, None] - ahead
            gaps[np.arange(len(ahead)), taken] = np.inf
            return concluded(found, max(float(gaps.min()), 0.0) / np.abs(w).sum())

        return attempted("refutations, policies", record, work_on_policy)
    mixture, _ = atoms.against_one(rng, ground, columns, actions=A, expert=0, lowest=margin)
    curves = np.einsum("akj,j->ak", mixture.weights[:1] - mixture.weights[1:], ground.value)
    best = atoms.least(columns, curves)[0] / np.abs(w).sum()
    return attempted(
        "refutations, one action",
        record,
        lambda: concluded(
            certirl.refute(mixture, expert=0, basis=certirl.Legendre(size), columns=columns.size, **keywords),
            float(best),
        ),
    )


def features_of(mixture: atoms.Mixture, states: np.ndarray) -> np.ndarray:
    """The functions of a mixture's chances at states."""
    return atoms.features(mixture.space, states)


def judge_scenario(seed: int) -> dict[str, Any]:
    """A reward that is wrong at slightly more states than a scenario may leave out."""
    rng = np.random.default_rng([seed, 108])
    task, share = settings(rng), float(rng.choice([0.1, 0.3, 0.5]))
    dimension = (1, 1, 2)[seed % 3]
    space: Any = some_columns(rng, 6) if dimension == 1 else some_box(rng, 2)
    while space.size < 2:
        space = some_columns(rng, 6)
    task["discount"] = float(rng.choice([0.3, 0.5, 0.7, 0.9]))
    low, high = np.array(space.domain).T
    states = low + (high - low) * (
        np.linspace(0, 1, 20001)[:, None] if dimension == 1 else np.random.default_rng(0).random((40000, 2))
    )
    phi, gap = atoms.features(space, states), atoms.shape(rng, space)
    gap[0] -= np.quantile(phi @ gap, min(share * (1 + 10 ** rng.uniform(-2, 0)), 0.9))
    ground = atoms.some_ground(rng, space.domain, rare=bool(rng.random() < 0.2))
    mixture, _ = atoms.planned(rng, ground, np.array([np.zeros(space.size), -gap]), space)
    values = atoms.rewards_at(mixture, ground.value, 0, task["discount"])
    reward = atoms.by_nearest(mixture.atoms, values, space.domain)
    true = atoms.truth(mixture, reward, 0, task["discount"])
    margins = true.scale * phi @ (true.outcomes[0] - true.outcomes[1])
    few = int(np.ceil(np.log(task["delta"]) / np.log1p(-0.9 * share)))  # the fewest states that can show it
    states_asked = None if rng.random() < 0.7 else 4 * few
    samples = int(10 ** rng.uniform(1, np.log10(20_000 / (states_asked or few))))
    keywords = {"share": share, "expert": 0, "samples": samples, "progress": False, "states": states_asked}
    keywords |= {"reward_range": (float(values.min()), float(values.max())), "rng": int(rng.integers(2**31))}
    keywords |= {"paired": [None, True, False][rng.integers(3)]}
    record = task | {"n": samples, "source": str(keywords["paired"]), "form": "jumps, declared", "made": "planned"}

    def work() -> dict[str, Any]:
        found = trials.scenario(reward, mixture, **keywords, **task)
        below = float((margins < found.margin - SLACK * true.span).mean())
        return {
            "holds": found.holds,
            "wrong": bool((margins < 0).mean() > share),
            "false": bool(found.holds and (margins <= 0).mean() > share * (1 + 1e-3)),
            "above": bool(below > share * (1 + 1e-2)),
            "bounded": True,
            "ratio": None,
            "states below, over the share": below / share,
            "margin": found.margin,
            "truth": float(np.quantile(margins, share)),
        }

    return attempted(f"scenarios, {dimension} coordinate{'s' * (dimension > 1)}", record, work)


# --- assumptions that are broken -------------------------------------------------------------------------------------


def judge_assumption(seed: int) -> dict[str, Any]:
    """A reward with a spike between the states where its range is looked up, a range too narrow, a hidden switch."""
    rng = np.random.default_rng([seed, 109])
    if seed % 3 == 2:
        return judge_hidden_switch(rng)
    columns, task = certirl.Legendre(int(rng.integers(1, 4))).on(((-1.0, 1.0),)), settings(rng)
    ground = atoms.some_ground(rng, columns.domain, rare=True)
    mixture, value = atoms.against_one(rng, ground, columns, actions=2, expert=0, lowest=lowest(rng))
    values = atoms.rewards_at(mixture, value, 0, task["discount"])
    kind = ("range of a spike looked up", "range declared too narrow")[seed % 3]
    base = atoms.by_nearest(mixture.atoms[:-1], values[:-1], columns.domain)

    def reward(states: np.ndarray) -> np.ndarray:
        rows = np.asarray(states, dtype=float).reshape(-1, 1)
        return np.asarray(np.where(np.abs(rows - mixture.atoms[-1])[:, 0] < 1e-9, values[-1], base(rows)))

    keywords: dict[str, Any] = {"tail": 0, "expert": 0, "columns": columns, "progress": False, "map": 1}
    if seed % 3 == 1:
        keywords["reward_range"] = (float(values[:-1].min()), float(values[:-1].max()))
    samples = int(10 ** rng.uniform(2, 4))
    true = atoms.truth(mixture, reward, 0, task["discount"])
    record = task | {"n": samples, "source": "simulator", "form": "spike", "made": "rare"}
    return attempted(
        f"assumptions, {kind}",
        record,
        lambda: judged(
            certirl.certify(reward, mixture, samples=samples, rng=int(rng.integers(2**31)), **keywords, **task),
            true,
            0,
            1.0,
        ),
    )


def judge_hidden_switch(rng: np.random.Generator) -> dict[str, Any]:
    """An expert that errs within one cell of the grid on which it is looked up, at the likeliest atom."""
    space, task = certirl.Legendre(2).on(((-1.0, 1.0),)), settings(rng)
    curves, place = np.array([[0.0, 1.0], [0.0, -1.0]]), float(rng.uniform(0.4, 0.9))
    place = (np.floor(place * 2000) + 0.5) / 2000  # the middle of a cell
    expert = atoms.Pieces(np.array([0.0, place - 1e-5, place + 1e-5]), np.eye(2)[[1, 0, 1, 0]])
    ground = atoms.some_ground(rng, space.domain)
    chances, spots = ground.chances.copy(), ground.atoms.copy()
    chances[0], spots[0] = 2.0, place
    ground = replace(ground, atoms=spots, chances=chances / chances.sum())
    mixture, _ = atoms.planned(rng, ground, curves, space)
    values = atoms.rewards_at(mixture, ground.value, expert, task["discount"])
    reward = atoms.by_nearest(mixture.atoms, values, space.domain)
    true, samples = atoms.truth(mixture, reward, expert, task["discount"]), some_samples(rng, 1000, 5)
    keywords: dict[str, Any] = {"tail": 0, "tube": 0.1, "columns": space, "expert": expert, "progress": False, "map": 1}
    record = task | {"n": samples, "source": "simulator", "form": "jumps", "made": "hidden switch"}

    def work() -> dict[str, Any]:
        found: Any = certirl.certify(reward, mixture, samples=samples, rng=int(rng.integers(2**31)), **keywords, **task)
        return judged_policy(found, true, expert, reward, task["discount"], 1.0, beside=np.array([[place]]))

    return attempted("assumptions, expert switches within a cell", record, work)


JUDGES: dict[str, Callable[[int], dict[str, Any]]] = {
    "constant": judge_constant,
    "boxes": judge_box,
    "sums": judge_sum,
    "policies": judge_policy,
    "box_policies": judge_box_policy,
    "columns": judge_columns,
    "solve": judge_solve,
    "refutations": judge_refutation,
    "scenarios": judge_scenario,
    "assumptions": judge_assumption,
}


# --- counting --------------------------------------------------------------------------------------------------------


def counted(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """How many statements were made, how many were false, and how near the worst came to it."""
    said = [run for run in runs if "refused" not in run]
    near = [run for run in said if run.get("ratio") is not None]
    table: dict[str, Any] = {
        "runs": len(runs),
        "refused in a sentence": len(runs) - len(said),
        "in truth wrong": sum(run.get("wrong", False) for run in said),
        "finite bounds": sum(run.get("bounded", False) for run in said),
        "certified": sum(run["holds"] for run in said),
        "false": sum(run["false"] for run in said),
        "bounds above the truth": sum(run.get("above", False) for run in said),
        "largest ratio": max((run["ratio"] for run in near), default=None),
        "of seed": max(near, key=lambda run: run["ratio"])["seed"] if near else None,
    }
    wrong = sum(run["false"] or run.get("above", False) or any(run.get("statements", {}).values()) for run in said)
    table["95 % interval of the share of runs with anything false"] = binomial_interval(wrong, len(said) or 1)
    at_states = [run["ratio at states"] for run in said if run.get("ratio at states") is not None]
    if at_states:
        table["largest ratio at a state"] = max(at_states)
        names = dict.fromkeys(name for run in said for name in run.get("statements", {}))
        table["other statements"] = {
            name: sum(run.get("statements", {}).get(name, False) for run in said) for name in names
        }
    beyond = [run["states below, over the share"] for run in said if "states below, over the share" in run]
    if beyond:
        table["largest share of states below the margin, over the share allowed"] = max(beyond)
    if any("infeasible" in run for run in said):
        table["infeasible"] = sum(run.get("infeasible", False) for run in said)
    return table


def run(arguments: Arguments, runner: study.Runner) -> study.Findings:
    """All runs, counted by kind and by δ; those that break a printed assumption apart."""
    runs: list[dict[str, Any]] = []
    for part, judge in JUDGES.items():
        seeds = study.seeds(arguments, getattr(arguments, part))
        found = runner(judge, seeds, unit=part.replace("_", " "))
        runs += [run | {"seed": seed, "part": part} for seed, run in zip(seeds, found, strict=True)]
    fair = [run for run in runs if run["part"] != "assumptions"]
    kinds = sorted({run["kind"] for run in runs})
    proofs = [run for run in fair if run["part"] not in ("refutations", "scenarios")]
    numbers = {
        "all but broken assumptions": counted(fair),
        "certificates but those of one column": counted(
            [run for run in proofs if run["kind"] != "constant, one column"]
        ),
        "by delta": {str(delta): counted([run for run in fair if run["delta"] == delta]) for delta in DELTAS},
        "by kind": {kind: counted([run for run in runs if run["kind"] == kind]) for kind in kinds},
        "by kind and delta: runs, with anything false": {
            kind: {
                str(delta): _share([r for r in runs if r["kind"] == kind and r["delta"] == delta]) for delta in DELTAS
            }
            for kind in kinds
        },
        "by source": {name: counted(_of(fair, "source", name)) for name in sorted({run["source"] for run in fair})},
        "by form of the reward": {
            name: counted(_of(fair, "form", name)) for name in sorted({run["form"] for run in fair})
        },
    }
    total = numbers["all but broken assumptions"]
    sentence = (
        f"of {total['runs']:,} runs, {total['in truth wrong']:,} of them on wrong problems, {total['false']} ended "
        f"in a false statement and {total['bounds above the truth']} bounds lay above the truth"
    )
    return study.Findings(numbers, [], None, sentence)


def _of(runs: Sequence[dict[str, Any]], name: str, value: str) -> list[dict[str, Any]]:
    return [run for run in runs if run[name] == value]


def _share(runs: Sequence[dict[str, Any]]) -> list[int]:
    said = [run for run in runs if "refused" not in run]
    wrong = [run["false"] or run.get("above", False) or any(run.get("statements", {}).values()) for run in said]
    return [len(said), sum(wrong)]


if __name__ == "__main__":
    raise SystemExit(study.main(sys.modules[__name__]))
