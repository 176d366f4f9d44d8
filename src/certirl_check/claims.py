"""What claims of all kinds have in common: how they are derived again, and the words of every answer."""

from __future__ import annotations

import math
from typing import Any

from certirl_check.records import TIGHT, DamagedError, Record

_MOST_DELTA = 0.5  # beyond it a statement may fail more often than it holds
DRAWS = (
    "the stored sums are over fresh transitions of these dynamics{}; given all their states and actions, next states "
    "from different states are independent, and each follows the dynamics of its action and lies in the domain: no "
    "transition is there, or missing, because of its next state"
)
IN_ORDER = (
    "the stored sums are over all later rows of a log of these dynamics{}, in the order of time; given everything "
    "before it, each next state follows the dynamics of its action and lies in the domain; whether a step is a row was "
    "decided before its next state was: no step or episode is missing because of where it led; the number of rows, or "
    "of independent episodes, was fixed beforehand"
)
FIXED_BEFORE = "{} and δ were fixed before these transitions were drawn; other attempts count in δ"
# What a margin bounds, for rewards of the state and for rewards of state and action.
DIFFERENCE = ("(P_b − P_a)V(s)", "(P_b − P_a)V(s) + (R(s, b) − R(s, a))/γ")
SEPARATE = "given the action, each component's next state depends on its own state alone"


def short(x: float, digits: int = 4) -> str:
    """A number, rounded to some digits."""
    return f"{x:.{digits}g}"


def at_least(x: float, digits: int = 4) -> str:
    """A number, rounded down to some digits: what stands after "at least"."""
    if not math.isfinite(x) or (rounded := float(short(x, digits))) <= x:
        return short(x, digits)
    return short(rounded - 10.0 ** (math.floor(math.log10(abs(rounded))) - digits + 1), digits)


def at_most(x: float, digits: int = 4) -> str:
    """The same, rounded up."""
    return at_least(-x, digits).removeprefix("-") if x else "0"


def failed(*conditions: tuple[Any, str]) -> list[str]:
    """The sentences of the conditions that do not hold."""
    return [sentence for holds, sentence in conditions if not holds]


class Claim:
    """What a record claims, and what follows from it."""

    def __init__(self, record: Record, solution: Record | None) -> None:
        self.record, self.solution = record, solution  # as the file holds it; None if the claim is alone in its file
        self.derived = -math.inf  # the margin that follows
        self.statement = ""  # what is confirmed, spelled out
        self.account = list[tuple[str, str]]()  # how the margin was derived, in lines by name

    @staticmethod
    def claimed(record: Record) -> tuple[float, str]:
        """The margin that a record claims, and why it claims nothing if it does not."""
        margin = record.bound("margin")
        return margin, "" if 0 < margin < math.inf else "the margin is not positive"

    def contradictions(self) -> list[str]:
        """What cannot be in the file, in sentences."""
        raise NotImplementedError

    def other_problem(
        self, solution: Record, problem: tuple[float, int], expert: int | None, proved: bool
    ) -> list[str]:
        """Where a solution is about another problem than its certificate, or certified by what is no proof.

        The problem is γ and the number of actions, the expert the one action that is always taken or None.
        """
        (discount, actions), action = problem, solution.entry("expert")
        own = solution.number("discount"), solution.whole("n_actions")
        taken = action is None or solution.whole("expert") == expert
        return failed(
            (proved or solution.status != "certified", "the file says that it is certified, by what is no proof"),
            (own[0] == discount, f"the certificate has discount {discount:g}, the solution {own[0]:g}"),
            (own[1] == actions, f"the certificate has {actions} actions, the solution {own[1]}"),
            (taken, f"the solution is about expert {action}, its certificate about another"),
        )

    def conclude(self) -> list[str]:
        """Derive what is claimed, and say what of the file does not follow."""
        raise NotImplementedError

    def lines(self) -> list[tuple[str, str]]:
        """What is claimed of which problem, from how much, by name."""
        raise NotImplementedError

    def trusted(self) -> list[str]:
        """What no file can show, in sentences."""
        raise NotImplementedError


class LikelyClaim(Claim):
    """A claim that holds with probability 1 − δ; names as in a file."""

    def __init__(self, record: Record, solution: Record | None) -> None:
        super().__init__(record, solution)
        self.margin = self.claimed(record)[0]
        self.delta, self.spending = record.number("delta"), record.named("spending")
        if not self.spending:
            raise DamagedError("spending should be numbers by name, got none")

    def contradictions(self) -> list[str]:
        """What δ and its parts cannot be."""
        delta, total = self.delta, math.fsum(self.spending.values())
        spent = min(self.spending.values()) >= 0 and abs(total - delta) <= TIGHT * abs(delta)
        meaning = "a statement that may fail with that probability is no certificate"
        return failed(
            (spent, "the parts of δ are not probabilities that add up to δ"),
            (0 < delta <= _MOST_DELTA, f"δ = {delta:g}: {meaning}"),
        )

    def compare_margin(self, estimate: float, slack: float, *, holds: bool, required: float = 0.0) -> list[str]:
        """What of the margin does not follow; the account says how it was derived."""
        lost = short(estimate - self.derived, 2)
        account = (
            f"{short(estimate)} estimated − {lost} lost = {short(self.derived)}; the file says {short(self.margin)}"
        )
        self.account = [("margin", account)]
        larger = f"the claimed margin is larger than what follows from the sums, {short(self.derived)}"
        wanted = f"above {short(required)}" if required else "positive"
        return failed(
            (self.derived > required or not holds, f"the margin that follows from the sums is not {wanted}"),
            (self.margin <= self.derived + slack, larger),
        )

    @property
    def notes(self) -> list[str]:
        """What was done to the log while it was read, as assumptions."""
        return [f"the dynamics are those of the log as it was read: {note}" for note in self.record.texts("log_notes")]

    @property
    def spent(self) -> str:
        """δ and its parts in words."""
        return f"δ = {self.delta:.6g}: " + ", ".join(f"{short(x)} {name}" for name, x in self.spending.items())

    @property
    def probability(self) -> str:
        """1 − δ in words that never say 1."""
        return f"{1 - self.delta:.6g}" if self.delta >= 1e-4 else f"1 − {self.delta:.3g}"


class Within:
    """How much less than the best an action of an inexact expert may be worth; names as in a file."""

    def __init__(self, record: Record) -> None:
        self.share, self.span = record.number("share"), record.number("span")
        self.places, self.actions = record.array("places", (2, None)), record.wholes("actions")
        if not (0 < self.share < 1 and self.span >= 0 and len(self.actions) == 2):
            raise DamagedError("a suboptimality should be a share of the difference of a reward at two places")

    def __str__(self) -> str:
        amount, span = at_most(self.amount), at_least(self.span)
        return (
            f"every action that the expert takes is worth at most {amount} less than any other, if it is followed "
            f"afterwards: {self.share:g} of {span}, which the reward spans at least"
        )

    @property
    def amount(self) -> float:
        """The share of what the reward spans."""
        return self.share * self.span

    def required(self, discount: float) -> float:
        """What a margin must exceed."""
        return -self.amount / discount


def within_of(record: Record) -> Within | None:
    """What a record declares of an inexact expert; None where the margin must be positive."""
    part = record.optional("suboptimality", "Suboptimality")
    return None if part is None else Within(part)


def claimed_within(record: Record, discount: float) -> tuple[float, str]:
    """The margin that a record claims, and why it claims nothing if it does not, of an inexact expert too."""
    margin, within = record.bound("margin"), within_of(record)
    if within is None:
        return Claim.claimed(record)
    is_claimed = within.required(discount) < margin < math.inf
    return margin, "" if is_claimed else "the margin is smaller than an inexact expert may have"
