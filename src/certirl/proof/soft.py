"""Bands for the rewards of a soft expert: R_a − r_0 = log(π_a/π_0) + γ(P_0 − P_a)V at all states, by probability 1 − δ.

V is the value of the constant expert who takes the reference action 0, under the reward r_0 − log π_0. The log-odds are
in a set that decisions give (`certirl.proof.odds`); at the middle of this set (P_0 − P_a)V is bounded as for any
constant expert, and what the log-odds' error does to it follows to first order from the same dynamics, with a bound on
what is left. docs/notes/soft-experts.md has statement and proof.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from certirl.data.policy import as_policy
from certirl.data.source import Source, as_source
from certirl.data.transitions import Piece, Transitions, chunks_of
from certirl.functions.bases import Basis, as_basis
from certirl.functions.frame import frame
from certirl.functions.reward import bounded
from certirl.ground import archive
from certirl.ground.archive import Shape
from certirl.ground.domain import Array, Box, as_states, mesh
from certirl.ground.doors import as_delta, as_number, as_probability
from certirl.ground.records import Record, internal
from certirl.ground.status import chance
from certirl.kernels.tensors import on_host
from certirl.proof.case import AS_READ, Case
from certirl.proof.certificate import Ground, conclude
from certirl.proof.certify import check_draws, check_settings, planned, split
from certirl.proof.drift import DriftSums, rows_of
from certirl.proof.known_noise import AffineGaussian, Drifts, rows_assumed
from certirl.proof.odds import FIRST, Odds, Parts, gather_odds
from certirl.proof.soft_columns import ColumnEffects, changes
from certirl.proof.soft_noise import KnownEffects
from certirl.proof.sums import gather
from certirl.proof.tails import TailLike, tail_in_words
from certirl.proof.training import fit_surrogates

# How δ is spent, by what is declared of the dynamics.
KNOWN_SHARES = {"log-odds": 0.5, "drifts": 0.5}
COLUMN_SHARES = {"log-odds": 0.4, "dynamics": 0.5, "dynamics of the log-odds": 0.1}
_TABLE = {1: 101, 2: 21, 3: 9}  # states along each coordinate in the table of a band
_ROWS = 1 << 14  # transitions worked on at once


@archive.record
@dataclass(frozen=True, eq=False)
@internal
class KnownDynamics(Drifts):
    """What a band rests on where drifts are affine and the noise is known."""

    def effects(self, odds: Odds, reach: Array, discount: float, spending: dict[str, float]) -> KnownEffects:
        """γ(P_0 − P_a)V with its bounds."""
        return KnownEffects(self.drift(spending["drifts"]), self.domain, discount, odds, reach)

    @property
    def rows(self) -> NDArray[Any]:
        """Transitions of each action ``[A]``."""
        return self.sums.counts

    @property
    def tail(self) -> float:
        """τ: there is none."""
        return 0.0


@archive.record
@dataclass(frozen=True, eq=False)
@internal
class ColumnDynamics(Record):
    """What a band rests on where columns with a tail are declared."""

    ground: Ground  # of the constant expert who takes the reference action, under −log π̂_0
    # Σ x f(s') over the fresh rows of every action, f what −log π̂_0 changes by with the log-odds up to second order,
    # and the most of what is left ``[A, n, k]``
    changes: Annotated[Array, Shape("A n k")]

    def effects(self, odds: Odds, reach: Array, discount: float, spending: dict[str, float]) -> ColumnEffects:
        """γ(P_0 − P_a)V with its bounds."""
        return ColumnEffects(self.ground, self.changes, odds, reach, spending["dynamics of the log-odds"])

    @property
    def domain(self) -> Box:
        """The box of states."""
        return self.ground.columns.domain

    @property
    def rows(self) -> NDArray[Any]:
        """Transitions of each action ``[A]``."""
        return self.ground.evidence.counts

    @property
    def tail(self) -> float | None:
        """τ; None if none was declared."""
        return self.ground.tail


@archive.record
@dataclass(frozen=True, eq=False)
@internal
class Band(Record):
    """With probability at least 1 − δ, bounds on the reward of every action at every state, the expert being soft."""

    reference: int  # the action whose reward is given
    reference_reward: float  # r_0
    discount: float  # γ
    delta: float  # the probability of a false statement
    spending: dict[str, float]  # how δ was split, by name
    tail: float | None  # τ of the dynamics; None if none was declared
    odds: Odds  # what the decisions say
    dynamics: KnownDynamics | ColumnDynamics  # what the transitions say
    assumptions: tuple[str, ...]  # what must be true besides, in words
    states: Annotated[Array, Shape("p d")]  # of the table below ``[p, d]``
    # low, high: the bounds there ``[A, p]``
    low: Annotated[Array, Shape("A p", infinite=True)]
    high: Annotated[Array, Shape("A p", infinite=True)]
    action_names: tuple[str, ...] = ()  # of the actions, if the data have them

    def __call__(self, states: ArrayLike, action: int) -> tuple[Array, Array]:
        """Bounds on the reward of an action at states ``[n, d]``, at all of them at once: ``(low, high)``."""
        places = as_states(states, self.dynamics.domain)
        if action == self.reference:
            known = np.full(len(places), self.reference_reward)
            return known, known
        parts = self._parts(places, action)
        if parts is None:
            nothing = np.full(len(places), np.inf)
            return -nothing, nothing
        middle, (below, above) = self.reference_reward + parts.estimate, parts.odds + parts.dynamics + parts.rest
        wrong = ~np.isfinite(below + above + middle)
        return np.where(wrong, -np.inf, middle - below), np.where(wrong, np.inf, middle + above)

    def losses(self, states: ArrayLike, action: int) -> dict[str, Array]:
        """Half the width of the band at states ``[n, d]`` by its reasons ``[n]``; empty without a band."""
        parts = self._parts(as_states(states, self.dynamics.domain), action)
        if parts is None:
            return {}
        return {
            "log-odds": parts.odds,
            "dynamics": parts.dynamics.mean(axis=0),
            "second order": parts.rest.mean(axis=0),
        }

    def _parts(self, places: Array, action: int) -> Parts | None:
        return None if self._effects is None else self._effects.parts(places, action)

    @cached_property
    def _effects(self) -> KnownEffects | ColumnEffects | None:
        reach = self.odds.reach(self.spending["log-odds"])
        return None if reach is None else self.dynamics.effects(self.odds, reach, self.discount, self.spending)

    @property
    def half_width(self) -> float:
        """The median of half the width, over the states of the table and the actions but the reference."""
        return float(np.median((self.high - self.low)[self.odds.others]) / 2)

    @property
    def holds(self) -> bool:
        """Whether the band is bounded somewhere, and a tail was declared."""
        return bool(np.isfinite(self.half_width) and self.tail is not None)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write everything to an npz file, the suffix added if missing."""
        return archive.save(self, path)

    @property
    def statement(self) -> str:
        """What is bounded, and how closely."""
        rows = f"{int(self.odds.counts.sum()):,} decisions and {int(self.dynamics.rows.sum()):,} transitions"
        if not np.isfinite(self.half_width):
            return f"{rows} say too little for a band"
        condition = "" if self.tail is not None else ", if the tail is zero,"
        return (
            f"with probability {chance(self.delta)}{condition} the rewards of all actions at all states lie in the "
            f"band, ±{self.half_width:.2g} wide in the median, from {rows}"
        )

    def __str__(self) -> str:
        word = "Bounded" if np.isfinite(self.half_width) else "No band"
        return "\n".join(
            [f"{word}: {self.statement}", *(f"  assumed: {assumption}" for assumption in self.assumptions)]
        )


def prove_band(
    basis: Basis,
    decisions: Transitions,
    source: Any = None,
    *,
    discount: float,
    reference: int = 0,
    reference_reward: float = 0.0,
    delta: float = 0.05,
    odds_tail: float = 0.0,
    dynamics: AffineGaussian | None = None,
    columns: Basis | None = None,
    tail: TailLike = None,
    samples: int | None = None,
    rng: Any = None,
    paired: bool | None = None,
) -> Band:
    """Bound the rewards R_a of a soft expert at all states, from decisions and from transitions.

    The basis is that of the log-odds log(π_a/π_0), which can be ``odds_tail`` from its combinations; decisions are
    states and actions of the expert. The source is that of the dynamics: a simulator, a log, or None for the log of the
    decisions. At every state the reference action has the reference reward. Columns are for rows that are independent.
    The rest is as in `certify`.
    """
    delta, gamma = as_delta(delta), as_probability(discount, "discount")
    origin, choices = as_source(decisions if source is None else source), as_source(decisions)
    domain, log_of = origin.domain, choices.data
    if not isinstance(log_of, Transitions):
        raise TypeError("decisions must be transitions of the expert: a simulator takes none")
    basis = as_basis(basis, domain, name="basis", like="certirl.Legendre(5)")
    if (dynamics is None) == (columns is None):
        raise ValueError("declare one thing of the dynamics: dynamics=certirl.dynamics.AffineGaussian(…) or columns=…")
    tail_of_odds = as_number(odds_tail, "odds_tail", least=0)
    if log_of.domain != domain or log_of.n_actions != origin.n_actions:
        raise ValueError(
            f"decisions are about {log_of.n_actions} actions on {log_of.domain.words}, the dynamics about "
            f"{origin.n_actions} on {domain.words}: both must be the same"
        )
    first, later, counted = _first(log_of, choices.sampling)
    odds = gather_odds(
        basis, log_of.states, log_of.actions, origin.n_actions,
        first=first, later=later, reference=reference, tail=tail_of_odds,
    )  # fmt: skip
    shares = COLUMN_SHARES if dynamics is None else KNOWN_SHARES
    spending = {name: share * delta for name, share in shares.items()}
    found: KnownDynamics | ColumnDynamics
    if dynamics is not None:
        found, words = _known(origin, dynamics, basis, samples, rng, spending)
    else:
        assert columns is not None
        found, words = _columns(origin, columns, tail, odds, gamma, samples, rng, paired, spending)
    states = mesh([np.linspace(low, high, _TABLE[len(domain)]) for low, high in domain])
    nothing = np.zeros((origin.n_actions, len(states)))
    given = as_number(reference_reward, "reference_reward")
    blank = Band(
        reference, given, gamma, delta, spending, found.tail, odds, found,
        (*_of_odds(odds), counted, *words, *(AS_READ + note for note in origin.notes)),
        states, nothing, nothing, origin.action_names,
    )  # fmt: skip
    sides = np.array([blank(states, action) for action in range(origin.n_actions)])
    band = replace(blank, low=sides[:, 0], high=sides[:, 1])
    vars(band)["_effects"] = blank._effects  # which take most of the time
    return band


def _of_odds(odds: Odds) -> Iterable[str]:
    """What is assumed of the decisions, in words."""
    span = f"combinations of {odds.basis}" if not odds.tail else f"within {odds.tail:g} of combinations of {odds.basis}"
    yield "the expert takes action a at state s with probability proportional to exp Q_a(s), in the unit of the reward"
    yield f"given everything before it, each decision follows these probabilities, whose log-odds are {span}"


def _first(log: Transitions, sampling: str) -> tuple[NDArray[np.bool_], float, str]:
    """The decisions that fix the prior, how much more the others are expected to say, and what was fixed beforehand.

    Every twentieth independent row or episode, or the first twentieth of a trajectory.
    """
    every = round(1 / FIRST)
    numbers, counted = np.arange(len(log)), "the number of decisions was fixed beforehand"
    if sampling == "episodes" and log.episodes is not None:
        places = np.unique(log.episodes, return_inverse=True)[1]
        if places.max(initial=0) >= every:
            numbers, sampling = places, "independent"
            counted = "episodes are independent of each other, and their number was fixed beforehand"
    count = int(numbers.max(initial=-1)) + 1
    first = numbers % every == 0 if sampling == "independent" else numbers < count // every
    early = len(np.unique(numbers[first]))
    return first, (count - early) / max(early, 1), counted


def _known(
    origin: Source,
    declared: AffineGaussian,
    odds_basis: Basis,
    samples: int | None,
    rng: Any,
    spending: dict[str, float],
) -> tuple[KnownDynamics, list[str]]:
    drawn = declared.transitions(origin, samples, rng)
    if any(part.periodic for part in odds_basis.parts):
        raise ValueError(
            "log-odds beside known noise must be polynomials of the state, got "
            f"{odds_basis}: write certirl.Legendre({odds_basis.size})"
        )
    kind, assumed = rows_assumed(origin)
    log = drawn()
    found = KnownDynamics(origin.domain, declared.std, DriftSums.of(*rows_of(log), origin.n_actions, kind))
    found.refuse_contradicted(log, spending["drifts"])
    return found, [found.assumption, assumed]


def _columns(
    origin: Source,
    columns: Basis,
    tail: TailLike,
    odds: Odds,
    discount: float,
    samples: int | None,
    rng: Any,
    paired: bool | None,
    spending: dict[str, float],
) -> tuple[ColumnDynamics, list[str]]:
    """The ground of the constant expert 0 under −log π̂_0, with what the log-odds' error does to it."""
    if origin.sampling != "independent":
        known = "declare dynamics=certirl.dynamics.AffineGaussian(…), or " if len(origin.domain) == 1 else ""
        raise ValueError(
            "a band by columns needs independent rows, as the log-odds of episodes depend on where their steps lead: "
            f"{known}name a simulator or independent rows as source, SoftExpert(log) for the decisions"
        )
    count = check_settings(origin, samples, tail=tail, paired=paired, progress=False)
    columns = as_basis(columns, origin.domain, name="columns", like="certirl.Legendre(17)")
    policy = as_policy(odds.reference, origin.n_actions, origin.action_names)
    case = Case.of(policy, [columns], n_actions=origin.n_actions, discount=discount, tail=tail, source=origin)
    check_draws(origin, count, case)
    origin.check_has_noise()
    ends = np.array([odds.basis.value_range(row) for row in odds.coefficients])
    costs = tuple(map(float, np.logaddexp.reduce(ends, axis=0)))
    reward = bounded(lambda states: odds.at(states).cost, origin.domain, costs)
    training, fresh = split(origin, columns, count, rng, False, role="certify", paired=paired, design=case.design)
    fit = fit_surrogates(case, reward, training, samples=planned(origin, count, fresh), delta=spending["dynamics"])
    (fixed,) = fit.surrogates
    surrogate = replace(fixed, shares=np.full(fixed.shares.shape, 1 / fixed.shares.size))
    certificate = conclude(case, [surrogate], gather([surrogate], fresh), delta=spending["dynamics"])
    (ground,) = certificate.grounds
    of_tail, rows = (
        tail_in_words(tail, case.parts[0].tail, columns),
        case.assumptions([0], paired=ground.evidence.paired),
    )
    words = [of_tail, *(word for word in rows if word != of_tail)]
    return ColumnDynamics(ground, _change_sums(odds, spending["log-odds"], columns, fresh)), words


def _change_sums(odds: Odds, delta: float, columns: Basis, stream: Iterable[Piece]) -> Array:
    """Σ x f(s') over the rows of every action, f the functions of `changes` ``[A, m + 1, k]``."""
    size, harmonics = len(odds.score), frame(columns)
    total = np.zeros((odds.n_actions, size * (size + 3) // 2 + 1, columns.size))
    reach = odds.reach(delta)
    if reach is None:
        return total
    for chunk in chunks_of(stream):
        for held in on_host(list(chunk.pieces()), columns.domain, _ROWS):
            x = harmonics.values(held.states)
            for action, ends in zip(held.actions, held.next_states, strict=True):
                total[action] += changes(odds, reach, ends).T @ x
    return total
