"""Certify a reward for any expert: one who always takes one action, one who switches, one who mixes actions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from certirl.data.design import Near
from certirl.data.expert_grid import ExpertGrid, compared, expert_grid
from certirl.data.policy import Policy, as_policy
from certirl.data.simulator import Simulator
from certirl.data.source import as_source
from certirl.data.transitions import Piece, Transitions
from certirl.fit.bellman import check_problem
from certirl.functions.bases import Basis, as_basis
from certirl.functions.bounded import BoundedReward, bounded
from certirl.functions.reward import RewardLike, known_expert, unpack
from certirl.ground.domain import Domain, as_domain
from certirl.ground.doors import as_number
from certirl.ground.progress import Report
from certirl.ground.work import on
from certirl.proof.certify import (
    FIT_SHARE,
    Certificate,
    check_delta,
    check_enough,
    check_settings,
    split,
)
from certirl.proof.certify import certify as certify_constant
from certirl.proof.policy_certificate import PolicyCertificate, conclude_policy
from certirl.proof.policy_evidence import PolicySurrogate, fit_policy_surrogate, gather
from certirl.proof.tail import TailLike
from certirl.proof.tubes import tent_marks
from certirl.proof.weigh import check_box, check_columns

# Of the domain's width: the half-width of the tube if none is asked for; of three coordinates a coarser look is taken.
TUBE, TUBE_OF_THREE = 0.025, 0.05
SHARE, BESIDE = 0.3, 2.0  # of fresh states drawn beside the switches, and within so many half-widths of the tube
MOST_FUNCTIONS = 300  # π_dφ_j on a box: their sums of products are as many squared times a thousand numbers
WIDTHS = (1.0, 0.8, 0.65, 0.5, 0.4, 0.3, 0.2)  # of the tents, as shares of the tube


def certify(
    reward: Any,
    source: Simulator | Transitions,
    *,
    delta: float = 0.05,
    tail: TailLike = None,
    discount: float | None = None,
    expert: Any = None,
    columns: Basis | None = None,
    samples: int | None = None,
    rng: Any = None,
    reward_range: tuple[float, float] | None = None,
    paired: bool | None = None,
    progress: bool | Report | None = None,
    map: Any = None,
    tube: float | None = None,
) -> Certificate | PolicyCertificate:
    """Prove, from data the reward has not seen, that the expert is strictly optimal under it: D_a(s) ≥ margin > 0.

    At every state for an expert who always takes one action; for any other farther than ``tube`` from the states where
    it switches, with a bound on what it can lose nearer to them.

    Args:
        reward: a `Solution`, a `Reward`, or any bounded function of states ``[n, d]``: also what another library gave.
        source: a simulator, or transitions that were not used to find the reward.
        delta: the probability of a false certificate.
        tail: how far P_a f, |f| ≤ 1, can lie outside the span of the columns: a number (0 if exactly representable), a
            `Smooth` bound on derivatives, or a function of the column basis. Without it nothing is "certified".
        discount: γ; known from a solution.
        expert: an action, or a function of states ``[n, d]`` to actions ``[n]`` or to probabilities ``[n, A]``; known
            from a solution.
        columns: the functions of the state, for example ``Legendre(3)``; known from a solution.
        samples: fresh transitions per action to draw, 100,000 if left out; for simulators only.
        rng: a seed or Generator; needed with a simulator, and for splitting a log.
        reward_range: bounds on a plain function; looked up on a grid, and added to the assumptions, if left out.
        paired: ask a simulator with the same states and random numbers for every action, so that noise cancels between
            actions; left out, it is done where a trial shows that rows keep their random numbers.
        progress: True, False, a function ``(done, total)``, or None for a line if standard error is a terminal.
        map: where to work through data: a number of threads, a Dask client or an executor; threads on all cores if
            left out. Results do not depend on it.
        tube: a half-width, for experts who switch; a fortieth of the domain's (least) width if left out.
    """
    settings: dict[str, Any] = {"delta": delta, "tail": tail, "samples": samples, "rng": rng, "paired": paired}
    settings |= {"reward_range": reward_range, "progress": progress, "map": map, "discount": discount}
    known = known_expert(reward, expert)
    if known is None or isinstance(known, int | np.integer):
        if tube is not None:
            raise ValueError("an expert who always takes one action never switches: leave tube out")
        return certify_constant(reward, source, expert=expert, columns=columns, **settings)
    return _certify_policy(reward, source, known, columns, tube, **settings)


def _certify_policy(
    reward: Any,
    source: Any,
    expert: Any,
    columns: Basis | None,
    tube: float | None,
    *,
    delta: float,
    tail: TailLike,
    discount: float | None,
    samples: int | None,
    rng: Any,
    reward_range: tuple[float, float] | None,
    paired: bool | None,
    progress: bool | Report | None,
    map: Any,
) -> PolicyCertificate:
    """The same for experts who switch or mix."""
    delta = check_delta(delta)
    count = check_settings(source, samples, tail=tail, paired=paired, progress=progress)
    function, policy, columns, discount = _what_is_asked(reward, source, expert, columns, discount)
    check_enough(source, count, columns.size)
    case = SwitchingCase.of(policy, columns, tube, discount, tail)
    notes: tuple[str, ...] = ("the reward was chosen without looking at these transitions",)
    found = bounded(function, columns.domain, reward_range).normalised()
    notes += found.assumptions
    given: dict[str, Any] = {"role": "certify", "paired": paired, "design": case.design}
    training, fresh = split(source, columns, count, rng, FIT_SHARE, progress, **given)
    with on(map):
        surrogate = case.surrogate(found, training)
        return case.conclude(surrogate, fresh, delta, notes=notes)


class SwitchingCase(NamedTuple):
    """What is to be proved of a reward, whichever it is.

    Attributes:
        policy: the expert.
        columns: φ, on the domain.
        lookup: what the expert does.
        allowed: the half-width of the tube asked for.
        discount: γ.
        tail: as in `certify`.
    """

    policy: Policy
    columns: Basis
    lookup: ExpertGrid
    allowed: float
    discount: float
    tail: TailLike

    @classmethod
    def of(cls, policy: Policy, columns: Basis, tube: float | None, discount: float, tail: TailLike) -> SwitchingCase:
        """Look the expert up."""
        check_columns(columns)
        functions = policy.n_actions * columns.size
        if columns.dimension > 1 and functions > MOST_FUNCTIONS:
            raise ValueError(
                f"{policy.n_actions} actions and {columns.size} columns make {functions} functions, and on a box "
                f"{MOST_FUNCTIONS} are the most: pass fewer columns, say up to a lower total degree"
            )
        lookup = expert_grid(policy, columns.domain)
        return cls(compared(policy, lookup), columns, lookup, allowed_tube(tube, columns.domain), discount, tail)

    @property
    def design(self) -> bool | Near:
        """Where to draw states: more beside the switches, where margins are thin."""
        places, widths = self.lookup.switches, np.full(self.columns.dimension, BESIDE * self.allowed)
        return Near(self.columns, places, widths, SHARE) if len(places) else True

    def surrogate(self, reward: RewardLike, training: Iterable[Piece]) -> PolicySurrogate:
        """The guesses that training data make for a reward."""
        known = reward if isinstance(reward, BoundedReward) else bounded(reward, self.columns.domain)
        tents: dict[str, Any] = {"switches": tent_marks(self.lookup), "widths": self.allowed * np.array(WIDTHS)}
        problem: dict[str, Any] = {"columns": self.columns, "discount": self.discount}
        return fit_policy_surrogate(known, self.policy, training, **problem, **tents)

    def conclude(
        self, surrogate: PolicySurrogate, fresh: Iterable[Piece], delta: float, **notes: Any
    ) -> PolicyCertificate:
        """The certificate that fresh data give; further arguments are those of `conclude_policy`."""
        evidence = gather(surrogate, fresh)
        return conclude_policy(
            surrogate, evidence, self.lookup, allowed=self.allowed, delta=delta, tail=self.tail, **notes
        )


def _what_is_asked(
    reward: Any, source: Any, expert: Any, columns: Basis | None, discount: float | None
) -> tuple[RewardLike, Policy, Basis, float]:
    """The reward as a function, π, the columns on the domain, and γ, from a solution where not given."""
    function, discount, _ = unpack(reward, discount, 0)
    if discount is None or columns is None:
        raise ValueError(
            "a reward alone does not know the problem: pass discount and columns, say columns=Legendre(15)"
        )
    domain = as_domain(source.domain)
    check_box(domain)
    as_source(source).check_without_terminal()
    discount = check_problem(discount, 0, source.n_actions)
    columns = as_basis(columns, domain, name="columns", like="certirl.Legendre(15)")
    return function, as_policy(expert, source.n_actions), columns, discount


def allowed_tube(tube: float | None, domain: Domain) -> float:
    """The half-width asked for, or a share of the domain."""
    width = min(high - low for low, high in domain)
    share = TUBE if len(domain) < 3 else TUBE_OF_THREE
    if tube is None:
        return share * width
    return as_number(tube, "tube", least=0, most=width, strict=True, meaning="a half-width")
