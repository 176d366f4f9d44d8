"""Statuses of answers, the findings behind them, the reasons of every solver, and the words of certificates."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_FLOOR, Decimal
from enum import Enum
from math import ceil, inf, isfinite
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from certirl.ground import archive
from certirl.ground.doors import called, setting
from certirl.ground.records import Record, internal

ANEW = "another call needs another {} and spends its own δ"
FRESH = 0.6  # of the transitions, at least, are fresh ones, with some to spare
DECLARE_TAIL = "declare a tail, see docs/certificates.md#where-to-get-a-tail"
Seen = Callable[[Sequence[Any], float], str]  # what to declare, by columns and γ: `proof.seen.tail_seen`
# From the weakest to the strongest: an answer has the weakest status of its findings.
STATUSES = ("undetermined", "infeasible", "solved", "estimated", "validated", "bounded", "certified")


@archive.record
@dataclass(frozen=True)
class Finding(Record):
    """A fact about an answer, and the strongest status that an answer with it can have.

    Attributes:
        status: one of `STATUSES`.
        cause: what was found, without a capital and without a full stop.
        cure: what to change, in the same form; empty if nothing needs to be changed.
        next: the call to try next, with … for what stays as it was; empty if none is known or needed.

    Example:
        >>> problem = certirl.problems.random_polynomial(seed=7)
        >>> solution = certirl.solve(problem, expert=0, discount=0.7, basis=certirl.Legendre(7), columns=3, rng=0)
        >>> finding = solution.findings[0]
        >>> finding.status, finding.sentence
        ('solved', 'the expert is strictly optimal under these operators')
    """

    status: Annotated[str, archive.Words(*STATUSES)]
    cause: str
    cure: str = ""
    next: str = ""

    @property
    def sentence(self) -> str:
        """The cause and the cure."""
        return f"{self.cause}: {self.cure}" if self.cure else self.cause


def weakest(findings: Iterable[Finding]) -> Finding:
    """The first of the findings that allow least: its status is the answer's, its cause and cure are the first line."""
    every = tuple(findings)
    unknown = [finding.status for finding in every if finding.status not in STATUSES]
    if unknown or not every:
        raise ValueError(f"a status must be one of {', '.join(STATUSES)}, got {', '.join(unknown) or 'none'}")
    return min(every, key=lambda finding: STATUSES.index(finding.status))


def change(note: str = "", /, **settings: Any) -> str:
    """Settings of a call as Python writes them, texts as they are; with what must be so for them as a comment.

    ``samples`` are transitions of each action in all: of a log the rows that it should have follow from them.
    """
    written = (f"{name}={f'{value:_}' if isinstance(value, int) else value}" for name, value in settings.items())
    return ", ".join(written) + (f"  # {note}" if note else "")


def call(function: str, changed: str) -> str:
    """The call of a function with what `change` wrote; … stands for all that stays as it was."""
    settings, _, note = changed.partition("  # ")
    return f"{function}({', '.join(filter(None, ['…', settings]))})" + (f"  # {note}" if note else "")


class Reason(Enum):
    """Why an answer has its status, for every solver: the status, the cause, what to change, and the same as a call.

    Braces stand for what `finding` is given.
    """

    def finding(self, next: str = "", **words: Any) -> Finding:
        """The finding, with these words in place of the braces, and what to change in the call, as by `change`."""
        status, *texts = self.value
        found = Finding(status, *(text.format(**words) if words else text for text in texts))
        return replace(found, next=next) if next else found

    # Of the program for an expert who always takes one action.
    SOLVED = "solved", "the expert is strictly optimal under these operators"
    SOFT = (
        "undetermined",
        "the expert is explained up to the slack shown; where slack is used it is not optimal under this reward",
        "",
        "method=certirl.Program(…, slack=None)",
    )
    COVER = (
        "undetermined",
        "the margin is 1 at the cover points but falls to zero or below between them, since the cover is too coarse",
        "leave cover out to solve on the whole domain",
        "method=certirl.Program(…, cover=None)",
    )
    DIVERGES = (
        "undetermined",
        "{which}γT has spectral radius 1 or more on non-constant functions, so that the value series diverges: the "
        "operators are too noisy",
        "use more samples, fewer columns or a smaller discount",
    )
    SOLVER = (
        "undetermined",
        "the solver stopped without an answer, or its answer failed the check that follows",
        "try another objective or fewer functions",
    )
    ROUNDS = (
        "undetermined",
        "the rounds ran out before the margin was uniform",
        "allow more rounds or a larger tolerance",
    )
    WITHIN_NOISE = (
        "solved",
        "within the noise: the margin is {margin:.3g} with standard error {error:.2g}, from {samples:,} transitions of "
        "an action",
        "use more samples",
    )
    DEPENDENT = "undetermined", "{test}", "a sum of rewards may be wrong; see certirl.diagnose.components"

    WITHIN = "solved", "the expert's action is optimal within {share:.2g} of what R spans under these operators"
    NOT_WITHIN = (
        "undetermined",
        "no reward was found under which the estimates put the expert's action within {share:g} of what R spans of "
        "the best",
        "declare a larger suboptimality, or use other functions",
    )

    # Of contradicting constraints.
    CONFLICT = (
        "infeasible",
        "no reward in this class makes the expert strictly optimal: the constraints named here cancel each other",
    )
    ALIKE = (
        "undetermined",
        "in the estimates action {action} has the same effect as the expert's action at every state: no reward "
        "distinguishes them",
    )
    UNDECIDED = (
        "undetermined",
        "the estimated constraints contradict each other, {but}: neither a reward nor its absence is proved",
        "{cure}",
    )
    REFUTED = "infeasible", "{claim}"
    REFUTED_WITHOUT_TAIL = "undetermined", "if the tail is zero, " + REFUTED[1], DECLARE_TAIL

    # Of certificates.
    CERTIFIED = "certified", "{proved}"
    UNPROVED = "solved", "{what} is not proved", "{missing}"
    NO_TAIL = (
        "solved",
        "no tail was declared (if {columns} describe the dynamics exactly, the margin{where} is at least "
        "{margin:.3g} with probability {sure})",
        "declare one with {write}, see docs/certificates.md#where-to-get-a-tail",
    )
    CONTRADICTED = (
        "undetermined",
        "fresh data put the margin of the reward at {fresh:.3g}, where training data put it at {training:.3g}",
        "allow more samples",
    )

    # Of soft experts.
    ESTIMATED = (
        "estimated",
        "the rewards of {actions} actions, in units of the noise, with a standard error of {error:.2g} in the median",
    )
    BOUNDED = "bounded", "with probability {sure} the rewards of all actions at all states lie in the band"
    NO_BAND = "estimated", "{band}", "{cure}"
    REJECTED = (
        "estimated",
        "no reward of this kind gives these decisions (p = {chance:.2g}), and this one is the nearest",
        "{cure}",
    )
    ROUGH_ODDS = (
        "estimated",
        "log-odds in {basis} do not describe the decisions (p = {chance:.2g})",
        "name a larger basis, or log what else the expert sees",
    )
    REMEMBERS = (
        "estimated",
        "decisions depend on the action before, beyond what the state says (p = {chance:.2g})",
        "add to the state what the expert remembers, the last action say",
    )
    UNEXPLAINED_CHOICES = (
        "undetermined",
        "the state says nothing of the decisions",
        "log what the expert sees",
    )

    # Of the value form and of trials of its reward.
    UNTRIED = (
        "solved",
        "the reward was not tried, neither on fresh states nor by planning on R alone",
        "",
        "trials=None",
    )
    ALL_ALIKE = (
        "undetermined",
        "all actions have the same effect at every state, so that nothing distinguishes the expert's",
        "",
        "print(solution.action_values(solution.compared.states))",
    )
    INEXACT_EFFECTS = (
        "undetermined",
        "estimated effects have an error of {error:.2g} of an action's effect",
        "more transitions are needed, or less noise",
    )
    INEXACT_GREEDY = (
        "solved",
        "the action values of solution.greedy have an error of {error:.2g} of an action's effect",
        "do not rely on them",
    )
    MEMORY = "solved", "the next state depends on the step before: {test}", "{cure}"
    MOVED = (
        "solved",
        "actions seem to move an exogenous coordinate: {test}",
        "do not declare it exogenous; or, if they cannot, add what the expert knew of its next value as a coordinate",
    )
    UNTRIED_NEARBY = (
        "undetermined",
        "at {share:.0%} of the log's states some action was never tried nearby, so that what it does there is a guess",
        "add transitions in which every action is tried; {instead}",
        "dynamics=certirl.dynamics.SharedDrift()  # if an action moves the state by the same vector everywhere",
    )
    NOT_SHARED = (
        "undetermined",
        "{compared}",
        "the actions do not share it, leave dynamics out, or add to the state what else the next state depends on",
        "dynamics=None",
    )
    UNPREDICTABLE = (
        "undetermined",
        "the log's actions cannot be predicted from its states "
        "({errors:.0%} wrong; guessing errs at about {chance:.0%})",
        "",
        "expert=certirl.SoftExpert()",
    )
    UNEXPLAINED = (
        "undetermined",
        "some other action looks better than the expert's at {share:.0%} of the states: the expert may follow no "
        "reward, or one that these functions cannot express",
        "",
        "basis=None",
    )
    NO_FEATURES = (
        "infeasible",
        "no weights of these features, with the signs asked for, make the expert's action better than the others on "
        "average",
        "add features or leave signs out",
        "method=None",
    )
    ALL_IN_TUBE = (
        "undetermined",
        "every fresh state lies in the tube beside a switch, so that nothing was judged",
        "choose a smaller margin",
    )
    PREFERRED = (
        "validated",
        "outside the switching tube V prefers the expert's action at {share}",
    )
    PREFERRED_TOO_SELDOM = "solved", PREFERRED[1] + "; validated means a lower end above {least:.0%}"
    PLANNED = "validated", "planning on R alone{model} is {gap:.1%} away from the expert"
    PLANNED_IN_MODEL = "solved", PLANNED[1]
    PLANNED_AWAY = "solved", PLANNED[1] + "; validated means up to {most:.0%}"
    PLANNED_TOO_COARSELY = (
        "solved",
        "under R itself the plan on R alone{model} earns {gap:.1%} less than the expert: the plan is too coarse "
        "to judge R",
    )
    PLANNED_FAR_AWAY = (
        "undetermined",
        PLANNED[1] + ", so that R does not explain it",
        "try fewer or other functions of V, or more samples",
    )
    REACHES_THE_SAME = "validated", "episodes of the plan on R alone have about the same {what} as the expert's"
    REACHES_AVOIDED = (
        "solved",
        "planning on R alone reaches ends that the expert avoids in {plan:.1%} of {episodes:,} episodes, the expert in "
        "{expert:.1%}; validated means at most {limit:.0%} more",
        "use more samples or other functions; print(solution.stats) names these ends",
    )
    FEATURES_REACH_AVOIDED = (
        *REACHES_AVOIDED[:2],
        "a reward of features is 0 at all ends and cannot tell them apart, leave features out",
        "method=None",
    )
    TOO_FEW_EPISODES = (
        "solved",
        "planning on R alone reaches ends that the expert avoids in {plan:.1%} of {episodes:,} episodes, the expert in "
        "{expert:.1%}, which may be up to {most:.1%} more (95%) and validated means at most {limit:.0%}",
        "allow more trials",
    )
    REACHES_NO_END = (
        "solved",
        "planning on R alone reaches no end within {steps} steps in {plan:.1%} of {episodes:,} episodes, the expert in "
        "{expert:.1%}; validated means at most {limit:.0%} more",
        "use more samples or other functions",
    )
    EARNS_LESS = (
        "solved",
        "by the simulator's own reward the plan on R alone earns less than the expert, by at least {loss:.1%} of what "
        "random actions lose; validated means at most {limit:.0%}",
        "use more samples or other functions",
    )
    NOT_FOLLOWED = (
        "solved",
        "{trials:,} trials are too few to follow the plan on R alone to the ends of its episodes",
        "allow {needed:,} trials",
    )
    NOT_PLANNED = "solved", "planning on R alone was not tried: {why}"
    NO_MODEL = (
        "solved",
        "planning on R alone was not tried: a model of the next state, drift plus noise that is the same everywhere, "
        "has {misfit:.3g} times the squared error at held-out states that noise alone leaves (at most {most:.3g})",
        "log what else the next state depends on, or plan in a simulator",
    )
    NO_FRESH_STATES = (
        "solved",
        "the expert is explained at {share:.1%} of the log's states, and a log has no fresh states to try that on",
    )


@internal
class Claim(archive.Saved):
    """A lower bound on a margin: ``margin`` = ``estimated`` − the sum of ``losses``."""

    _derived: ClassVar[tuple[str, ...]] = ("word", "holds", "statement", "samples", "tail", "next")
    rows_in_words: ClassVar[str] = "fresh transitions per action"  # what the numbers of samples count
    holds: bool  # the margin is positive and the tail was declared
    # margin, estimated: the bound, and the estimate that the losses are subtracted from
    margin: float
    estimated: float
    losses: dict[str, float]  # by name
    delta: float  # the probability of a false statement
    spending: dict[str, float]  # how δ was split, by name
    tail: float | None  # τ, or None if none was declared; then the word is "conditional", never "certified"
    samples_needed: int | None  # fresh transitions per action that should suffice; None if no such number is known
    grounds: tuple[Any, ...] = ()  # what the bounds rest on, of each component; empty where there are no columns
    assumptions: tuple[str, ...]  # what must be true besides, in words
    about: dict[str, str]  # the call, what it was about and what is next as it knows it, in words by name
    bounds_regret: bool = False  # whether it bounds what the expert loses, where that says more than the margin
    # that the margin may have either sign by its estimate, in words; empty if it has one beyond its noise
    in_noise: str = ""
    # what to do about a tail that leaves no margin however many transitions there are; empty for any other
    excessive_tail: str = ""
    close_tail: str = ""  # which tail a margin that holds needs, where the tail costs much of it; else empty
    samples: int  # that it rests on
    required: float = 0.0  # what the margin must exceed; below 0 for an inexact expert
    verb: ClassVar[str] = "certify"  # the function that makes it

    @property
    @internal
    def spare(self) -> float:
        """By how much the margin exceeds what is required of it; a proof has some to spare."""
        return self.margin - self.required

    @property
    def statement(self) -> str:
        """The headline."""
        raise NotImplementedError

    @property
    def declared(self) -> dict[str, str]:
        """What was declared of the dynamics, in words by name."""
        tail = "none was declared" if self.tail is None else f"{self.tail:g}"
        return {"columns": "; ".join(dict.fromkeys(str(ground.columns) for ground in self.grounds)), "tail": tail}

    def report(
        self,
        path: str | os.PathLike[str],
        *,
        title: str | None = None,
        author: str | None = None,
        date: Any = None,
        checked: bool = False,
    ) -> Path:
        """Write one page about the proof, to be read in a browser, printed and signed; returns its path.

        Args:
            path: where it is written; ".html" is added to a name without it.
            title: of the page.
            author: who wrote it.
            date: of the page, as "2026-12-31" or of `datetime`; today if left out.
            checked: derive the proof again by the independent checker and print its verdict.

        Example:
            >>> heated = certirl.problems.thermostat(noise=3.0)
            >>> given = {"discount": 0.7, "columns": certirl.Legendre(7), "tail": heated.tail, "samples": 20_000}
            >>> certirl.certify(lambda states: states[:, 0], heated, expert=0, rng=1, **given).report("proof").name
            'proof.html'
        """
        from certirl.show import report

        return report.write(self, path, title=title, author=author, date=date, checked=checked)

    def _headline(self) -> str:
        return self.statement

    @internal
    def change(self, tail: Any = None, seen: Seen | None = None) -> str:
        """What to change in the call that made it, as by `change`; empty if it holds, or nothing is known to help.

        Args:
            tail: the declaration behind τ.
            seen: writes what to declare in place of no tail, by what the data show.
        """
        if self.holds or self.margin == inf:
            return ""
        declared = ""
        if seen is not None and self.tail is None:
            declared = seen([ground.columns for ground in self.grounds], getattr(self, "discount", 0.5))
        if self.spare > 0:
            return declared
        most = self._enough()
        more = change(samples=rounded_up(most)) if most else ""
        return ", ".join(filter(None, [more, declared]))

    def _enough(self) -> float:
        """Transitions of each action, fresh and others, with which to try again; 0 if no number is known to help."""
        if self.samples_needed is not None:
            return self.samples_needed / FRESH
        if self.in_noise:
            return 4 * self.samples / FRESH
        return 0.0

    @internal
    def advised(self, step: str) -> Self:
        """The same, which knows the call to try next."""
        claim: Any = self  # a frozen dataclass
        about = {name: text for name, text in self.about.items() if name != "next"}
        told: Self = replace(claim, about=about | ({"next": step} if step else {}))
        return told

    @property
    def next(self) -> str:
        """The call to try next, or the command, with … for what stays as it was; empty if there is none.

        Example:
            >>> heated = certirl.problems.thermostat(noise=3.0)
            >>> given = {"discount": 0.7, "columns": certirl.Legendre(7), "tail": heated.tail, "samples": 1_000}
            >>> print(certirl.certify(lambda states: states[:, 0], heated, expert=0, rng=1, **given).next)
            certirl.certify(…, samples=4_700, rng=2)
        """
        if (step := self.about.get("next", "")) or not (changed := self.change()):
            return called(step)
        return called(changed if is_complete(changed) else call(f"certirl.{self.verb}", changed))

    @property
    def word(self) -> str:
        """One of "certified", "conditional" (on a tail of zero, as none was declared) and "not certified"."""
        proved = 0 < self.spare < inf
        return "not certified" if not proved else "certified" if self.tail is not None else "conditional"

    @property
    def condition(self) -> str:
        """What the bound rests on besides the printed assumptions, for a sentence; empty with a declared tail."""
        return "" if self.tail is not None else ", if the tail is zero,"

    @property
    def missing(self) -> str:
        """What keeps it from being certified, in words; empty if it is."""
        if self.holds:
            return ""
        if self.margin == inf:
            return "no action is left to compare with those that the expert takes"
        if self.spare > 0:
            return "conditional on a tail of zero: declare a tail to make it a certificate"
        if self.samples_needed is not None:
            declared = "" if self.tail is not None else " once a tail is declared"
            enough = f"about {two_digits(self.samples_needed)} {self.rows_in_words} should suffice{declared}"
            return f"{enough} ({ANEW.format(setting('rng'))})"
        if self.excessive_tail or self.in_noise:
            return self.excessive_tail or self.in_noise
        if not isfinite(self.margin):
            return "too few transitions for any bound"
        if self.estimated - self.required <= self.losses.get("truncation tail", 0.0):
            tail = " or the tail is too large" if self.tail or self.tail is None else ""
            small = f"below the {self.required:.3g} allowed" if self.required else "not positive"
            return f"no number of samples suffices: the estimated margin is {small}{tail}"
        return "many more samples are needed; their number cannot be estimated"

    @internal
    def account(self, where: str = "", digits: int = 3) -> str:
        """The estimate and the losses that matter, as a difference: "0.944 estimated − 0.53 estimation − 0.016 grid".

        Args:
            where: the place of the estimate, in words.
            digits: of the estimate.
        """
        if not isfinite(self.estimated):
            return "no estimate"
        matter = 5e-4 * abs(self.estimated)
        losses = [f" − {value:.2g} {name}" for name, value in self.losses.items() if value > matter]
        losses += [f" ({self.close_tail})"] if self.close_tail else []
        return f"{self.estimated:.{digits}g} estimated{where}" + "".join(losses if isfinite(self.margin) else ())

    @property
    def without_bound(self) -> str:
        """What is printed in place of a bound that is infinite."""
        return "no bound" if self.excessive_tail else "no bound yet"

    @property
    def proved(self) -> str:
        """The margin and its account, in a line."""
        more = "" if self.holds else f" ({self.missing})"
        least = f"at least {rounded_down(self.margin):.3g}" if isfinite(self.margin) else self.without_bound
        return f"{least}: {self.account()}{more}"


def rounded_down(value: float, digits: int = 3) -> float:
    """A number rounded down to some digits: what stands after "at least"."""
    if not isfinite(value) or value == 0:
        return value
    exact = Decimal(value)
    return float(exact.quantize(Decimal(1).scaleb(exact.adjusted() + 1 - digits), ROUND_FLOOR))


def percent_up(share: float, decimals: int = 2) -> str:
    """A share in percent, rounded up: what stands after "at most"."""
    unit = 10.0 ** (decimals + 2)
    return f"{ceil(share * unit) / unit:.{decimals}%}"


def distinct_digits(*numbers: float) -> list[str]:
    """Numbers with two significant digits, or with as many as tell unequal ones apart."""
    for digits in range(2, 18):
        texts = [f"{number:.{digits}g}" for number in numbers]
        if len(set(texts)) == len(set(numbers)):
            break
    return texts


def rounded_up(count: float) -> int:
    """A number rounded up to two significant digits."""
    unit = 10 ** max(len(str(ceil(count))) - 2, 0)
    return ceil(count / unit) * unit


def is_complete(changed: str) -> bool:
    """Whether what is next is a call already, and not what to change in one."""
    return "(" in changed.partition("=")[0]


def two_digits(count: int) -> str:
    """A number with two significant digits and separators: 1,100,000."""
    return f"{float(f'{count:.2g}'):,.0f}"


def chance(delta: float) -> str:
    """1 − δ for a sentence; never 1."""
    return f"{1 - delta:.6g}" if delta >= 1e-4 else f"1 − {delta:.3g}"
