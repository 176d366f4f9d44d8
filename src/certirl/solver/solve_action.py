"""An expert who always takes one action: from an estimate to a reward, from a log or draws to a proof."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from certirl.data.moments import Moments
from certirl.data.simulator import Simulator, as_generator, draw
from certirl.data.source import divide
from certirl.data.transitions import CHUNK, Piece, Transitions, pieces
from certirl.data.trials import can_pair
from certirl.fit.bellman import bellman
from certirl.fit.choose import MOST_COLUMNS_ON_A_BOX, Choice, as_asked, as_measured, given_basis, nothing_given, places
from certirl.fit.estimate import estimate
from certirl.fit.recover import recover
from certirl.functions.bases import Basis
from certirl.functions.extrema import value_range
from certirl.ground.domain import as_domain
from certirl.ground.progress import announcer, watched_stream
from certirl.proof.certify import conclude
from certirl.proof.evidence import surrogate_of
from certirl.proof.refutation import Refutation
from certirl.proof.refute import refute
from certirl.proof.tail import TailLike, is_number, tail_number
from certirl.proof.weigh import check_columns, gather
from certirl.solver.prove import TRAINING_SHARE, check_budget, least_budget, left_for_refutation, prove
from certirl.solver.solution import Solution, build

PILOT = 4_000  # transitions per action that choose basis and columns before a certificate is sought
MOST_COLUMNS_FOR_A_TAIL = 60


def estimated(
    source: Any,
    basis: Basis | None,
    columns: int | None,
    samples: int,
    rng: Any,
    form: str,
    progress: Any,
    asked: dict[str, Any],
    program: dict[str, Any],
) -> Solution:
    """One pass over the data, all of it for the estimate."""
    discount, expert = asked["discount"], asked["expert"]
    if isinstance(source, Moments):
        moments, choice = source, as_measured(source, basis, columns)
    else:
        # The paper's mean form needs independent states from the basis's weight; least squares can do better.
        stream, count = _stream(source, basis, samples, rng, better=form == "least-squares", paired=asked["paired"])
        if form == "mean" and columns is None and basis is not None:
            columns = basis.size  # the paper's square matrix
        stream = watched_stream(stream, count, progress)
        moments, choice = _choose(stream, source, basis, columns, discount, expert)
    operators = estimate(moments.leading(choice.basis.size, choice.columns), form=form)
    criterion = bellman(operators, discount=discount, expert=expert)
    recovery = recover(criterion, objective=asked["objective"], **program)
    return build([operators], [criterion], recovery, choice=choice.why)


def _stream(
    source: Simulator | Transitions,
    basis: Basis | None,
    samples: int,
    rng: Any,
    *,
    better: bool,
    paired: bool | None,
) -> tuple[Iterable[Piece], int]:
    """The data in pieces, and how many transitions they hold."""
    if isinstance(source, Transitions):
        return pieces(source, CHUNK), len(source)
    generator, where = as_generator(rng), basis or places(as_domain(source.domain))
    paired = better and can_pair(source, where, generator, asked=paired)
    stream = draw(source, where, samples, generator, design=better, paired=paired)
    return stream, samples * source.n_actions


def _choose(
    stream: Iterable[Piece], source: Any, basis: Basis | None, columns: int | None, discount: float, expert: int
) -> tuple[Moments, Choice]:
    domain, n_actions = as_domain(source.domain), source.n_actions
    if basis is None:
        asked: dict[str, Any] = {"columns": columns, "discount": discount, "expert": expert}
        return nothing_given(stream, domain, n_actions=n_actions, periodic=getattr(source, "periodic", ()), **asked)
    return given_basis(stream, basis.on(domain), n_actions=n_actions, columns=columns)


def _settled(
    stream: Iterable[Piece],
    source: Any,
    basis: Basis | None,
    columns: int | None,
    tail: TailLike,
    asked: dict[str, Any],
) -> Choice:
    """Basis and columns from data that no certificate will rest on."""
    if columns is None and is_number(tail):
        raise ValueError("a tail given as a number belongs to the columns it was computed for: pass columns as well")
    moments, choice = _choose(stream, source, basis, columns, asked["discount"], asked["expert"])
    if columns is None and tail is not None:
        choice = _widened(moments, choice, tail, asked["discount"], asked["expert"])
    return choice


def proved_by_draws(
    source: Any,
    basis: Basis | None,
    columns: int | None,
    rng: Any,
    max_samples: int,
    progress: Any,
    proof: dict[str, Any],
    asked: dict[str, Any],
) -> Solution:
    """A pilot settles what was left open; then draw until it is proved."""
    generator, pilot = as_generator(rng), 0
    if basis is not None and columns is not None:
        choice = as_asked(basis.on(as_domain(source.domain)), columns)
    else:
        pilot = min(PILOT, max(max_samples // 4, 1))
        stream, _ = _stream(source, basis, pilot, generator.spawn(1)[0], better=True, paired=asked["paired"])
        choice = _settled(stream, source, basis, columns, proof["tail"], asked)
    check_columns(choice.basis.resized(choice.columns))
    least = least_budget(choice.columns)
    check_budget(max_samples, choice.columns, -(-4 * least // 3) if pilot else least)  # a quarter goes to the pilot
    found = prove(
        source,
        basis=choice.basis,
        columns=choice.columns,
        max_samples=max(max_samples - pilot, 1),
        rng=generator,
        watch=announcer(progress),
        **proof,
        **asked,
    )
    refutation, drawn = None, found.samples + pilot
    rest = left_for_refutation(max_samples - pilot, found.samples, choice.columns)
    if found.recovery.status == "infeasible" and len(as_domain(source.domain)) == 1 and rest:
        # The attempts spent δ(1 − 2^−i); half of what they left pays for the proof that there is no reward.
        left = proof["delta"] / 2 ** (found.attempts + 1)
        more: dict[str, Any] = {"samples": rest, "rng": generator, "paired": asked["paired"]}
        refutation = _refuted(source, choice, left, proof["tail"], asked["expert"], **more)
        drawn += rest
    return build(
        [found.operators],
        [found.criterion],
        found.recovery,
        choice=choice.why,
        certificate=found.certificate,
        refutation=refutation,
        drawn=[drawn],
    )


def proved_by_log(
    source: Transitions,
    basis: Basis | None,
    columns: int | None,
    rng: Any,
    progress: Any,
    proof: dict[str, Any],
    asked: dict[str, Any],
) -> Solution:
    """A log is divided once: one part finds the reward, the other proves it."""
    training, fresh = divide(source, TRAINING_SHARE, as_generator(0 if rng is None else rng))
    if basis is not None and columns is not None:
        choice = as_asked(basis.on(source.domain), columns)
    else:
        choice = _settled(pieces(training, CHUNK), source, basis, columns, proof["tail"], asked)
    check_columns(choice.basis.resized(choice.columns))
    n_actions, problem = source.n_actions, {name: asked[name] for name in ("discount", "expert")}
    moments, _ = given_basis(pieces(training, CHUNK), choice.basis, n_actions=n_actions, columns=choice.columns)
    operators = estimate(moments)
    criterion = bellman(operators, **problem)
    recovery = recover(criterion, objective=asked["objective"])
    certificate = refutation = None
    if recovery.status == "infeasible" and len(source.domain) == 1:
        refutation = _refuted(fresh, choice, proof["delta"], proof["tail"], asked["expert"], rng=rng)
    if recovery.status == "solved" and recovery.reward is not None:
        surrogate = surrogate_of(recovery.reward, moments, **problem)
        proving = watched_stream(pieces(fresh, CHUNK), len(fresh), progress)
        certificate = conclude(surrogate, gather(surrogate, proving), **proof)
    proofs: dict[str, Any] = {"certificate": certificate, "refutation": refutation}
    return build([operators], [criterion], recovery, choice=choice.why, drawn=source.counts.tolist(), **proofs)


def _refuted(
    source: Any,
    choice: Choice,
    delta: float,
    tail: TailLike,
    expert: int,
    *,
    rng: Any,
    samples: int | None = None,
    paired: bool | None = None,
) -> Refutation:
    """Whether the conflict is robust to the sampling error, on data of its own."""
    asked: dict[str, Any] = {"basis": choice.basis, "columns": choice.columns, "delta": delta, "tail": tail}
    return refute(source, expert=expert, samples=samples, rng=rng, paired=paired, progress=False, **asked)


def _widened(moments: Moments, choice: Choice, tail: TailLike, discount: float, expert: int) -> Choice:
    """More columns, and rows with them, until what lies beyond costs less than a tenth of the margin."""
    operators = estimate(moments.leading(choice.basis.size, choice.columns))
    found = recover(bellman(operators, discount=discount, expert=expert))
    if found.value is None:
        return choice
    low, high = value_range(choice.basis, found.value)
    for columns in _wider(choice):
        basis = choice.basis.resized(max(choice.basis.size, columns))
        number = tail_number(tail, basis.resized(columns)) or 0.0
        if number * (high - low) * (1 + (2 * columns) ** 0.5) / (1 - discount) < 0.1:
            return Choice(basis, columns, f"{choice.why}; {columns} columns make the tail {number:.2g}")
    return choice


def _wider(choice: Choice) -> Iterable[int]:
    """Numbers of columns from the chosen one on; on boxes those that complete a degree."""
    if len(choice.basis.domain) == 1:
        return range(choice.columns, MOST_COLUMNS_FOR_A_TAIL)
    sizes = choice.basis.resized(MOST_COLUMNS_ON_A_BOX).complete_sizes()[:-1]
    return [size for size in sizes if size >= choice.columns]
