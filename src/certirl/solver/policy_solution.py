"""The record a person reads when the expert depends on the state: a reward, what it explains, and where it does not."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from certirl.data.simulator import as_ended
from certirl.data.terminal import Ends
from certirl.data.transitions import counted
from certirl.fit.conflicts import Conflict
from certirl.fit.termination import Choices
from certirl.functions.bases import Basis
from certirl.functions.cells import Cells, expanded, from_spec
from certirl.functions.inequalities import binomial_interval
from certirl.ground import archive
from certirl.ground.archive import Stored
from certirl.ground.domain import Array, Domain, as_actions, as_states, describe, freeze, like_input
from certirl.ground.doors import as_count, as_flag, as_number, shown
from certirl.ground.status import NO_SUMS, STATUSES, Finding, unverified, weakest
from certirl.proof.policy_certificate import PolicyCertificate

KIND = "policy solution"
GOOD, DISTRUST = 0.1, 0.7  # model error over action effect
_SHARES = ("greedy_share", "outside_share", "planned_share")
_ARRAYS = ("states", "shortfall", "profile", "action_values")


@dataclass(frozen=True, eq=False)
class StateFunction:
    """``f(s) = Σ c_i φ_i(s)``, and 0 in terminal states: a learned reward, or its value.

    Attributes:
        basis: the functions.
        coefficients: ``[k]``.
        ended: states ``[n, d]`` to whether they are terminal ``[n]``; None if none is, or if nobody says which.
        zero_at_ends: terminal states are worth 0, also where ``ended`` is not known; set by itself where it is.
        forgotten: there are terminal states, but the file that this was read from could not keep which.
    """

    thread_safe: ClassVar[bool] = True
    basis: Basis | Cells
    coefficients: Array
    ended: Callable[[Array], Any] | None = None
    zero_at_ends: bool = False
    forgotten: bool = False

    def __post_init__(self) -> None:
        freeze(self)
        object.__setattr__(self, "zero_at_ends", self.zero_at_ends or self.ended is not None)

    @property
    def domain(self) -> Domain:
        """The box of the states."""
        return self.basis.domain

    def __call__(self, states: ArrayLike) -> Any:
        """A float for one state, ``[n]`` for many. States must lie in the domain."""
        if self.forgotten:
            raise ValueError(
                "a file keeps terminal states only where a few boxes describe them, and these it could not: pass them "
                "again, solution = solution.with_terminal(simulator.terminal)"
            )
        rows = as_states(states, self.basis.domain)
        values = expanded(self.basis, rows, self.coefficients)
        if self.ended is not None:
            values = np.where(self.ended(rows), 0.0, values)
        return like_input(values, states, self.basis.dimension)


@dataclass(frozen=True)
class Share:
    """How often something held at some states, with an exact 95 % interval (Clopper and Pearson).

    Attributes:
        count: of states at which it held.
        n: states.
        kind: which states these are.
    """

    count: int
    n: int
    kind: str = "fresh states"

    @property
    def low(self) -> float:
        """The lower end."""
        return binomial_interval(self.count, self.n)[0] if self.n else 0.0

    @property
    def high(self) -> float:
        """The upper end."""
        return binomial_interval(self.count, self.n)[1] if self.n else 1.0

    def __str__(self) -> str:
        share = self.count / max(self.n, 1)
        return f"{share:.1%} of {self.n:,} {self.kind} (95 % interval {self.low:.1%} to {self.high:.1%})"


@dataclass(frozen=True)
class Diagnostics:
    """What the data say about how far to trust the answer.

    Attributes:
        model_error: of the estimated effects, over the effect of an action, both as root mean squares of V: of the rows
            if these were regressed, else of the functions behind `PolicySolution.greedy` alone.
        growth: γ·ρ(T̂), of the policy's matrix on V's functions; at 1 or more the series behind the matrix form
            diverges. The value form does not use it.
        uncovered: the share of the box where data are missing: grid points of the reward without a state nearby, or,
            for a log, where the effects of some action are extrapolated.
        ties: the share of comparisons left out since both actions do the same there.
        unexplained: the share of states at which some action would be better than the expert's.
        residual, largest_residual: of R against V − γ max_a P_aV: root mean square, and at most.
        seen: next states were looked at directly.
        going_on: what going on is worth more than ending at least, where that was chosen: the expert shuns the end and
            no comparison says by how much; None if it was not.
        choices: mean chances, over all comparisons, of an end that only the expert's action brings (sought), and of one
            that only the rival's brings (shunned); None without terminal states.
    """

    model_error: float
    growth: float
    uncovered: float
    ties: float
    unexplained: float
    residual: float
    largest_residual: float
    seen: bool
    going_on: float | None = None
    choices: tuple[float, float] | None = None

    @property
    def estimates(self) -> str:
        """What `model_error` is about: where next states are seen without noise, only `greedy` is estimated."""
        return "the functions behind greedy" if self.seen else "estimated effects"

    def sentences(self) -> dict[str, str]:
        """Each number with what it means."""
        trust = "good" if self.model_error < GOOD else "distrust it" if self.model_error > DISTRUST else "usable"
        grows = "the matrix form would diverge silently" if self.growth >= 1 else "the matrix form would converge"
        missing = f"no data for {self.uncovered:.1%} of the box: what is said there is extrapolated"
        return {
            "model": f"{self.estimates} are off by {self.model_error:.2g} of an action's effect: {trust}",
            "growth": f"γ·ρ(T̂) = {self.growth:.3g}: {grows}; the value form needs no such series",
            "coverage": missing if self.uncovered else "data everywhere in the box",
            "ties": f"{self.ties:.1%} of comparisons left out: both actions do the same there",
            "slack": f"at {self.unexplained:.1%} of states some other action looks better than the expert's",
            "residual": f"R misses V − γ max P_aV by {self.residual:.2g} (rms), {self.largest_residual:.2g} at most",
        }


@dataclass(frozen=True, eq=False)
class PolicySolution:
    """The answer of `solve` for an expert that depends on the state.

    Attributes:
        status: "certified"; "validated" (R was tried on fresh states and by planning on R alone, and passed); "solved"
            (the expert is explained where there are data, but R was not tried, or did not pass); "infeasible" (it is
            proved that no reward in the class explains the expert); or "undetermined".
        reason: the status in a sentence.
        reward: R, callable; 0 in terminal states, and scaled so that the expert's margin is 1 away from switches.
        value: V, callable, the expert's value under R up to the residual.
        discount, n_actions: the problem.
        states: where the expert was compared with its rivals ``[n, d]``.
        shortfall: by how much the expert's advantage stays below what was asked for, at these states ``[n]``.
        profile: the margin asked for at these states ``[n]``: 0 at a switch, 1 beyond the tube.
        columns: functions of the state of the estimated effects.
        action_values: (P̂_aV)(s) in these functions ``[A, m]``, up to what all actions share.
        greedy_share: fresh states at which no action has a better V than the expert's.
        outside_share: the same among states outside the tube.
        planned_share: states at which planning on R alone chooses as the expert; None if it was not tried.
        planned_regret: what the expert loses against the plan on R alone, measured by R, as a share of what acting at
            random loses (see `planning.Comparison`); None if it was not tried.
        planned_loss: what the plan loses against the expert, measured by V, in the same unit; None if it was not tried.
        diagnostics: how far to trust it.
        samples: states at which every action was seen, or the fewest transitions of an action.
        most_samples: transitions of the action with most; None if all have as many.
        choice: how bases came about.
        assumption: what must be believed of the expert.
        periodic: coordinates that go around.
        certificate: the proof, or the attempt at one; None if none was asked for.
        conflict: states and actions outside the tube at which no V in its functions agrees with the expert, as far as
            the data's own rows say; None if there are none.
        refutation: what was proved about the absence of any reward, in words; None if that was not tried.
        ends: the terminal states in boxes, as learned from marked ones or from asking the simulator; None without any.
        from_file: it was read from a file, where ``ends`` stand for what the simulator says.
        file: where it was read from, with a status and a certificate that the file claims; None if it was found here.
        verified: it was found here, or `certirl.check` confirmed its file.
        findings: what is known about the answer; status and reason are those of the weakest (`claim.weakest`).
    """

    status: str
    reason: str
    reward: StateFunction
    value: StateFunction
    discount: float
    n_actions: int
    states: Array
    shortfall: Array
    profile: Array
    columns: Basis | Cells
    action_values: Array
    greedy_share: Share | None
    outside_share: Share | None
    planned_share: Share | None
    diagnostics: Diagnostics
    samples: int
    choice: str
    assumption: str = ""
    periodic: tuple[int, ...] = ()
    certificate: PolicyCertificate | None = None
    conflict: Conflict | None = None
    refutation: str | None = None
    ends: Ends | None = None
    from_file: bool = False
    file: str | None = None
    verified: bool = True
    most_samples: int | None = None
    expert: ClassVar[None] = None  # depends on the state, and is not kept
    planned_regret: float | None = None
    planned_loss: float | None = None
    findings: tuple[Finding, ...] = ()

    def __post_init__(self) -> None:
        freeze(self)

    def judged(self, *findings: Finding) -> PolicySolution:
        """The same with these findings instead of those it had: they alone decide the status."""
        status, reason = weakest(findings)
        return replace(self, findings=findings, status=status, reason=reason)

    def greedy(self, states: ArrayLike) -> NDArray[np.intp]:
        """The action with the best estimated (P̂_aV)(s) at each state ``[n]``."""
        rows = as_states(states, self.columns.domain)
        return np.stack([expanded(self.columns, rows, own) for own in self.action_values]).argmax(axis=0)

    def unexplained(self, count: int = 10) -> tuple[Array, Array]:
        """The states where the expert is explained worst ``[m, d]``, and by how much it falls short there ``[m]``."""
        order = np.argsort(-self.shortfall, kind="stable")[:count]
        order = order[self.shortfall[order] > 0]
        return self.states[order], self.shortfall[order]

    def with_terminal(self, ended: Callable[[Array], Any]) -> PolicySolution:
        """The same, told again which states are terminal: a file keeps boxes at most."""
        rule = ended if isinstance(ended, Ends) else as_ended(ended)
        reward, value = (replace(own, ended=rule, forgotten=False) for own in (self.reward, self.value))
        return replace(self, reward=reward, value=value, from_file=False)

    def __str__(self) -> str:
        own = [f"  {name:<9}{text}" for name, text in self._lines()]
        if self.status == "infeasible" and self.refutation is not None:
            first, *more = self.refutation.splitlines()
            first = first if self.file is None else unverified(first, self.file, NO_SUMS)
            return "\n".join([first, *more, *own[:3]])
        if self.certificate is None:
            return "\n".join([self._headline(), *own])
        headline, *proof = str(self.certificate).splitlines()
        names = () if self.certificate.holds else ("  planning", "  conflict", "  absence")  # a proof overrules them
        return "\n".join([headline, own[0], *(line for line in own if line.startswith(names)), *proof])

    def _headline(self) -> str:
        if self.status == "undetermined":
            return f"Undetermined: {self.reason}."
        if self.status == "solved":
            return f"Solved, not validated: {self.reason}."
        return f"Validated, not certified: {self.reason}."

    def _lines(self) -> list[tuple[str, str]]:
        told = self.diagnostics.sentences()
        which = "none will do; the nearest: " if self.status == "infeasible" else ""
        lines = [("reward", f"{which}{self.reward.basis} on {describe(self.reward.domain)}; {told['residual']}")]
        shares = []
        if self.greedy_share is not None:
            shares.append(f"V prefers its action at {self.greedy_share}, the switching tube included")
        if self.outside_share is not None and str(self.outside_share) not in self.reason:
            shares.append(f"outside the tube at {self.outside_share}")
        lines.append(("expert", "; ".join([*shares, told["slack"]])))
        if self.status != "infeasible":
            lines.append(("planning", self._planned()))
        if self.conflict is not None and self.status != "infeasible":
            how = "seen without noise" if self.conflict.seen else "estimated"
            lines.append(("conflict", f"{self.conflict}; {how}"))
        if self.refutation is not None and self.status != "infeasible":
            lines.append(("absence", self.refutation.splitlines()[0]))
        kind = "every action at each, seen without noise" if self.diagnostics.seen else "transitions of each action"
        unit = "states, " if self.diagnostics.seen else ""
        counts = counted((self.samples, self.most_samples or self.samples))
        lines.append(("data", f"{counts} {unit}{kind}; discount {self.discount:g}; {self.choice}"))
        lines.append(("checks", "; ".join(told[name] for name in ("model", "growth", "coverage", "ties"))))
        if self.ends is not None:
            lines.append(("ends", self._ended()))
        return [*lines, ("assumed", self._assumed())]

    def _planned(self) -> str:
        """What planning on R alone does."""
        if self.planned_share is None or self.planned_regret is None or self.planned_loss is None:
            return "on R alone: not tried"
        by_reward = f"by R the expert loses {self.planned_regret:.1%} to the plan"
        by_value = f"by V the plan loses {self.planned_loss:.1%} to the expert"
        share = f"on R alone: agrees with the expert at {self.planned_share}"
        return f"{share}; {by_reward}, {by_value} (acting at random loses 100%)"

    def _ended(self) -> str:
        """Which states are terminal, how the expert chooses, and what a file lost of it."""
        assert self.ends is not None
        told = self.ends
        errors = f"missing {told.missed:.1%} and mistaking {told.mistaken:.1%} of held-out states"
        parts = [f"terminal where {told}, learned from {told.n:,} states, {errors}"]
        if not told.trusted:
            parts = [f"no few boxes describe the terminal states ({errors})"]
        if self.diagnostics.choices is not None:
            sought, shunned = self.diagnostics.choices
            parts.append(
                f"where one of two actions ends it, that is the expert's in {sought:.2%} of comparisons and the "
                f"rival's in {shunned:.2%}"
            )
            if Choices(sought, shunned).mixed:
                parts.append(
                    "some ends are sought and others shunned: what going on is worth was left to the comparisons"
                )
        if self.from_file:
            parts.append(
                "read from a file, which keeps "
                + ("these boxes and not the simulator's own rule" if told.trusted else "no rule")
                + "; with_terminal(simulator.terminal) gives it back"
            )
        return "; ".join(parts)

    def _assumed(self) -> str:
        """What no number above covers."""
        own = f"{self.assumption}; " if self.assumption else ""
        if self.diagnostics.going_on is not None:
            own += (
                f"going on is worth at least {self.diagnostics.going_on:.3g} more than ending, by choice: the expert "
                "never ends where it could go on, which leaves that open; with less, R's error could pay for an end; "
            )
        if self.diagnostics.seen:
            return (
                f"{own}dynamics without noise have no density, so nothing can be certified beyond the states looked "
                "at; a little process noise makes the theory whole, for the noisy dynamics"
            )
        return f"{own}estimated effects stand for the true ones; shares speak of states as they were drawn"

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write it to an npz file (suffix added if missing); `certirl.load` reads it.

        Which states are terminal is kept as boxes, as far as these describe them, and that they are worth 0.
        """
        packed = {*_ARRAYS, "reward", "value", "columns", "diagnostics", "certificate", "conflict", "ends"}
        packed |= {*_SHARES, "from_file", "file", "verified"}
        header: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in packed}
        arrays: dict[str, Any] = {name: getattr(self, name) for name in _ARRAYS}
        for name in ("reward", "value"):
            own = getattr(self, name)
            header[f"{name}_basis"], arrays[name] = own.basis.spec(), own.coefficients
        header["zero_at_ends"] = self.reward.zero_at_ends
        header["columns"], header["diagnostics"] = self.columns.spec(), asdict(self.diagnostics)
        for name in _SHARES:
            share = getattr(self, name)
            header[name] = None if share is None else [share.count, share.n, share.kind]
        if self.ends is not None:
            arrays["ends"] = self.ends.boxes
            own_rule = isinstance(self.reward.ended, Ends)
            header["ends"] = [self.ends.missed, self.ends.mistaken, self.ends.n, own_rule]
        if self.certificate is not None:
            header["certificate"], numbers = self.certificate.packed()
            arrays |= {f"certificate_{name}": value for name, value in numbers.items()}
        if self.conflict is not None:
            header["conflict"], numbers = self.conflict.packed()
            arrays |= {f"conflict_{name}": value for name, value in numbers.items()}
        return archive.write(path, KIND, header, arrays)

    def plot(self, *, path: Any = None, plane: tuple[int, int] = (0, 1)) -> Any:
        """Draw the reward beside the map of what is not explained; write it to ``path`` if given."""
        from certirl import policy_plots

        return policy_plots.policy(self, path=path, plane=plane)


def unpacked(stored: Stored, file: str) -> PolicySolution:
    """What `PolicySolution.save` wrote, every field within its range; refused where it contradicts itself."""
    A, columns = stored.count("n_actions", least=2), from_spec(stored.field("columns"))
    ended, forgotten, ends, own_rule = None, False, None, True
    if "ends" in stored:
        missed, mistaken, n, own_rule = stored.field("ends")
        missed, mistaken = (as_number(x, "a share of ends", least=0, most=1) for x in (missed, mistaken))
        boxes = stored.array("ends", (None, 2, columns.dimension), infinite=True)
        ends = Ends(boxes, missed, mistaken, as_count(n, "the states that ends were learned from"))
        ended, forgotten, own_rule = ends if ends.trusted else None, not ends.trusted, as_flag(own_rule, "own rule")
    zero, functions = stored.flag("zero_at_ends"), dict[str, Any]()
    for name in ("reward", "value"):
        basis = from_spec(stored.field(f"{name}_basis"))
        functions[name] = StateFunction(basis, stored.array(name, (basis.size,)), ended, zero, forgotten)
    states = as_states(stored.array("states", (None, columns.dimension)), columns.domain)
    if any(own.domain != columns.domain for own in functions.values()):
        raise ValueError("reward, value and columns must have one domain")
    certificate = PolicyCertificate.unpacked(stored.part("certificate"), file) if "certificate" in stored else None
    shares: dict[str, Any] = {name: _unpacked_share(stored, name) for name in _SHARES}
    findings = _unpacked_findings(stored)
    status, reason = weakest(findings)
    if stored.text("status", STATUSES) != status:
        raise ValueError(f"the status is {stored.text('status')!r}, and the findings allow {status!r}")
    found = PolicySolution(
        status=status,
        reason=reason,
        findings=findings,
        **functions,
        discount=stored.number("discount", least=0, most=1, strict=True),
        n_actions=A,
        states=states,
        shortfall=stored.array("shortfall", (len(states),)),
        profile=stored.array("profile", (len(states),)),
        columns=columns,
        action_values=stored.array("action_values", (A, columns.size)),
        **shares,
        planned_regret=stored.maybe("number", "planned_regret", least=0, infinite=True),
        planned_loss=stored.maybe("number", "planned_loss", least=0, infinite=True),
        diagnostics=_unpacked_diagnostics(stored.part("diagnostics")),
        samples=stored.count("samples"),
        most_samples=stored.maybe("count", "most_samples"),
        choice=stored.text("choice"),
        assumption=stored.text("assumption"),
        periodic=tuple(as_count(c, "a periodic coordinate", least=0) for c in stored.field("periodic")),
        certificate=certificate,
        conflict=_unpacked_conflict(stored.part("conflict"), columns, A) if "conflict" in stored else None,
        refutation=stored.maybe("text", "refutation"),
        ends=ends,
        from_file=not own_rule,
        file=file,
        verified=False,
    )
    holds = certificate is not None and certificate.holds
    if holds != (found.status == "certified"):
        bound = "a certificate that holds" if holds else "no certificate that holds"
        raise ValueError(f"the status is {found.status!r}, with {bound}")
    if certificate is not None:
        _check_about(found, certificate)
    return found


def _check_about(found: PolicySolution, certificate: PolicyCertificate) -> None:
    """Refuse a certificate that is about another problem than its solution."""
    s = certificate.surrogate
    for name, own, told in (
        ("discount", found.discount, s.discount),
        ("number of actions", found.n_actions, s.n_actions),
        ("domain", describe(found.reward.domain), describe(s.columns.domain)),
    ):
        if own != told:
            raise ValueError(f"the solution has the {name} {own}, its certificate {told}")
    _check_reward(found.reward, certificate)


def _check_reward(reward: StateFunction, certificate: PolicyCertificate) -> None:
    """Refuse sums that were made with another reward: Σ Y_c must follow from those of the reward's functions."""
    s, e = certificate.surrogate, certificate.evidence
    if reward.zero_at_ends or e.reached.shape[1] != len(reward.coefficients):
        raise ValueError(
            "the sums over next states must be those of the functions of the reward, without terminal states"
        )
    coefficients, gram = reward.coefficients / s.unit, e.gram[:, 0]
    pieces = np.linalg.solve(s.mix, e.drift[:, :, 0].T).T + np.einsum("aij,aj->ai", s.Z, gram)
    gained = s.columns.sup()[0] * e.reached @ coefficients
    sums = gained + s.discount * pieces @ s.fits.ravel() - np.einsum("ai,ai->a", s.fits, gram)
    size = np.abs(coefficients).max() * reward.basis.size + np.abs(s.fits).max() * s.columns.size**2
    if (np.abs(sums - e.surprise[:, 0]) > 1e-9 * size * e.counts).any():
        raise ValueError("the sums were made with another reward")


def _unpacked_share(stored: Stored, name: str) -> Share | None:
    if stored.field(name) is None:
        return None
    *numbers, kind = stored.field(name)
    count, n = (as_count(x, name, least=0) for x in numbers)
    if count > n:
        raise ValueError(f"{name} must be a count and the number it is out of, got {count} and {n}")
    return Share(count, n, str(kind))


def _unpacked_findings(stored: Stored) -> tuple[Finding, ...]:
    pairs = stored.field("findings")
    for pair in pairs if isinstance(pairs, list) else [pairs]:
        if not isinstance(pair, list) or len(pair) != 2 or not all(isinstance(text, str) for text in pair):
            raise ValueError(f"a finding must be a status and a sentence, got {shown(pair)}")
    return tuple(Finding(*pair) for pair in pairs)


def _unpacked_conflict(stored: Stored, columns: Basis | Cells, n_actions: int) -> Conflict:
    states = as_states(stored.array("states", (None, columns.dimension)), columns.domain)
    taken, actions = (
        as_actions(stored.array(name, (len(states),), kinds="iu"), n_actions=n_actions) for name in ("taken", "actions")
    )
    words: dict[str, Any] = {"functions": stored.text("functions"), "seen": stored.flag("seen")}
    return Conflict(states, taken, actions, stored.array("weights", (len(states),)), stored.number("residual"), **words)


def _unpacked_diagnostics(stored: Stored) -> Diagnostics:
    names = ("model_error", "growth", "uncovered", "ties", "unexplained", "residual", "largest_residual")
    numbers = {name: stored.number(name, infinite=True, undefined=True) for name in names}
    choices = None
    if stored.field("choices") is not None:
        sought, shunned = (as_number(x, "diagnostics choices", least=0, most=1) for x in stored.field("choices"))
        choices = sought, shunned
    going_on = stored.maybe("number", "going_on")
    return Diagnostics(**numbers, seen=stored.flag("seen"), going_on=going_on, choices=choices)
