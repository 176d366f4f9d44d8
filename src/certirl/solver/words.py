"""What is printed of a solution, line by line: a few lines for a person, each begun by what it is about."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import isfinite
from typing import TYPE_CHECKING

import numpy as np

from certirl.data.transitions import action_in_words, counted
from certirl.fit.witness import place_of
from certirl.functions.ends import in_words
from certirl.functions.extrema import TIE, ranked
from certirl.functions.features import Features
from certirl.ground.domain import number_of
from certirl.ground.status import Finding, chance, weakest

if TYPE_CHECKING:
    from certirl.solver.soft_solution import SoftSolution
    from certirl.solver.solution import Solution

SHOWN = 3  # components named in the print
SHOWN_ACTIONS = 8  # whose numbers of transitions are printed one by one
SAMPLED = {"episodes": " of episodes", "order": " in the order of time"}
Texts = Iterable[str | None]


def in_lines(headline: str, lines: Mapping[str, Texts]) -> str:
    """A print: the headline, and each line that has texts with its name before it."""
    each = {name: "; ".join(text for text in texts if text) for name, texts in lines.items()}
    return "\n".join([f"{headline}.", *(f"  {name:<9}{text}" for name, text in each.items() if text)])


class Words:
    """The print of a solution; the kinds of answers differ in what their lines say."""

    def __init__(self, solution: Solution) -> None:
        self.of, self.stats, self.texts = solution, solution.stats, solution.stats.lines()
        self.proof = solution.certificate or solution.refutation
        self.is_proved = self.proof is not None and solution.status in ("certified", "infeasible")
        self.claimed = {} if solution.certificate is None else dict(solution.certificate.lines())

    def __str__(self) -> str:
        return in_lines(self.headline(), self.lines() | {"next": [self.of.next]})

    def headline(self) -> str:
        """The first line: the status with its cause."""
        raise NotImplementedError

    def lines(self) -> dict[str, Texts]:
        """All other lines, by name; those without texts are left out."""
        raise NotImplementedError

    def action(self, action: int) -> str:
        """An action, by name where the data have names."""
        return action_in_words(action, self.stats.action_names)

    @property
    def who(self) -> str:
        """The expert."""
        return "the expert" if self.of.expert is None else self.action(self.of.expert)

    @property
    def tube(self) -> Texts:
        """How far from a switch the expert is proved best, and its regret."""
        proof = self.of.certificate
        where = self.claimed.get("tube") or self.claimed.get("undecided")
        if proof is None or not isfinite(proof.margin) or where is None:
            return []
        return [where, f"regret {self.claimed['regret']}"]

    @property
    def refuted(self) -> str:
        """What is proved of all rewards."""
        if self.of.refutation is None:
            return ""
        return self.of.refutation.lines()[0] if self.of.status == "infeasible" else self.of.refutation.statement

    @property
    def unexplained(self) -> str:
        """That no reward of the class explains the expert."""
        if self.of.refutation is not None:
            return self.of.refutation.statement
        origin = "exact" if self.stats.form == "exact" else "estimated"
        return f"Infeasible: no reward in this class explains {self.who} under the {origin} dynamics"

    @property
    def data(self) -> Texts:
        """The transitions, the discount and how operators were estimated."""
        solution, asked = self.of, self.stats.asked
        if self.stats.noiseless:
            data = f"{number_of(solution.samples, 'state')}, every action at each, observed without noise"
        elif solution.samples:
            data = f"{self._counts()}{SAMPLED.get(self.stats.sampling, '')}"
        else:
            data = f"exact operators of {solution.n_actions} actions"
        if asked is not None and asked.trials:
            data += f", trials {asked.trials:,} more"
        about = f"{data}, discount {solution.discount:g}, {self.stats.form or self.stats.choice}"
        return [about, *(self.stats.log_notes if self.proof is None else ())]

    def _counts(self) -> str:
        """The transitions of each action, by name where the data have names."""
        n_actions = self.of.n_actions
        names = self.stats.action_names or [f"action {action}:" for action in range(n_actions)]
        counts = self.stats.counts * (n_actions // len(self.stats.counts))
        if len(counts) > SHOWN_ACTIONS or (not self.stats.action_names and len(set(counts)) == 1):
            return f"{counted(counts)} transitions for each of {n_actions} actions"
        each = ", ".join(f"{name} {count:,}" for name, count in zip(names, counts, strict=True))
        return f"{sum(counts):,} transitions ({each})"


class ProgramWords(Words):
    """The print of an answer of a program, for an expert who always takes one action."""

    def headline(self) -> str:
        """The first line: the status with its cause."""
        solution = self.of
        if solution.status == "certified" and solution.certificate is not None:
            if solution.certificate.delta == 0 or getattr(solution.certificate, "suboptimality", None) is not None:
                return solution.certificate.statement
            sure = chance(solution.certificate.delta)
            return f"Certified with probability {sure}: {self.who} is strictly optimal at every state"
        if solution.status == "solved":
            noise = ", within the noise" if solution.within_noise else ""
            origin = "exact" if self.stats.form == "exact" else "estimated"
            optimal = f"{self.who} is strictly optimal under the {origin} dynamics"
            return f"Solved, not certified{noise}: {optimal if self._is_plain else solution.reason}"
        return self.unexplained if solution.status == "infeasible" else f"Undetermined: {solution.reason}"

    @property
    def _is_plain(self) -> bool:
        """Whether nothing but noise, which has its own words, stands against the answer."""
        usual = 1 + self.of.within_noise
        return self.of.certificate is None and len(self.of.findings) <= usual and self.of.margin > 0

    def lines(self) -> dict[str, Texts]:
        """All other lines, by name; those without texts are left out."""
        witness = self.of.witness
        is_conflict = witness is not None and self.of.status != "certified"
        return {
            "reward": [self._reward()],
            "parts": [self._contributions()] if len(self.of.components) > 1 and self.of.reward is not None else [],
            "margin": [self.claimed.get("margin") or self._margin()],
            "tube": self.tube,
            "witness": [witness.in_words(self.stats.action_names)] if witness is not None and is_conflict else [],
            "proof": [self.refuted],
            "data": self.data,
            "basis": [self.stats.choice] if self.proof is None else [],
            "checks": [self.texts.get("independence"), self._slack(), self.texts.get("program")],
            "assumed": [] if self.proof is None else self.proof.assumptions,
        }

    def _reward(self) -> str:
        if self.of.reward is not None:
            return str(self.of.reward)
        if len(self.of.components) > 1:
            return f"none that adds up over {len(self.of.components)} components"
        return f"none in {self.of.basis} on {self.of.domain.words}"

    def _contributions(self) -> str:
        """The components that contribute most, and what each adds to the margin against every alternative action."""
        solution, contributions = self.of, self.of.contributions
        order = ranked(np.abs(contributions).sum(axis=1), np.arange(len(contributions)))
        each = []
        for j in order[:SHOWN]:
            added = ", ".join(f"{value:+.2g}" for value in np.round(contributions[j], 3) + 0.0)
            each.append(f"{solution.components[j].name} {added}")
        rest = f"; {len(order) - SHOWN} more" if len(order) > SHOWN else ""
        against = "each alternative action"
        if len(solution.alternatives) < 3:
            against = f"action{'s' * (len(solution.alternatives) > 1)} {' and '.join(map(str, solution.alternatives))}"
            if self.stats.action_names:
                against = " and ".join(map(self.action, solution.alternatives))
        return f"contribution to the margin against {against}: {'; '.join(each)}{rest}"

    def _margin(self) -> str:
        solution = self.of
        if solution.witness is not None:
            return ""
        if solution.state is None or solution.action is None:
            return "none"
        error = ""
        if solution.standard_error > TIE * abs(solution.margin):  # less is rounding
            error = f"; standard error {solution.standard_error:.2g}"
            error += ": more samples are needed" if solution.within_noise else ""
        place = f"at {place_of(solution.state)} against {self.action(solution.action)}"
        return f"{solution.margin:.4g} at worst, {place}{error}"

    def _slack(self) -> str:
        """The largest shortfall, and where it is."""
        states, actions, shortfall = self.of.compared.states, self.of.compared.actions, self.of.compared.shortfall
        if actions is None or not shortfall.any():
            return ""
        worst = ranked(shortfall, actions, states)[0]
        return f"slack up to {shortfall[worst]:.3g} ({self.action(int(actions[worst]))} at {place_of(states[worst])})"


class ValueWords(Words):
    """The print of an answer of the value form, whose reward was tried rather than solved for."""

    def headline(self) -> str:
        """The first line: the status with its cause."""
        solution = self.of
        if solution.status == "certified" and solution.certificate is not None:
            return f"{solution.certificate.statement}{self._costs()}"
        if solution.status == "infeasible" and (solution.refutation is not None or solution.reward is not None):
            return self.unexplained
        more = {"solved": ", not validated", "validated": ", not certified"}.get(solution.status, "")
        return f"{solution.status.capitalize()}{more}: {self._first.sentence}{self._costs()}"

    def _costs(self) -> str:
        """What actions cost, where R is a reward of the state less such costs."""
        costs = None if self.of.reward is None else self.of.reward.costs
        if costs is None:
            return ""
        each = [f"{self.action(action)} costs {costs[action]:.3g}" for action in np.flatnonzero(costs).tolist()]
        return f"; R is a reward of the state less a cost of each action: {', '.join(each[:SHOWN_ACTIONS])}"

    @property
    def _first(self) -> Finding:
        """The finding of the first line: why a proof failed, where all trials passed."""
        is_unproved = self.of.status == "validated" and self.of.certificate is not None
        return self.of.findings[0] if is_unproved else weakest(self.of.findings)

    def lines(self) -> dict[str, Texts]:
        """All other lines, by name; those without texts are left out."""
        solution = self.of
        trials = {} if self.is_proved or solution.reward is None else self.texts
        slack = trials.get("slack")  # V is free to prefer the expert where a reward of features does not explain it
        slack = f"by R itself, {slack}" if slack and solution.path is not None else slack
        assumed = self.proof.assumptions if self.proof is not None and self.is_proved else ()
        status = solution.status if solution.status in ("undetermined", "solved", "validated") else None
        also = [each.sentence for each in solution.findings if each.status == status and each is not self._first]
        return {
            "reward": [self._reward()],
            "weights": [self._determined()],
            "expert": [trials.get("fresh states"), slack],
            "margin": [self.claimed.get("margin")],
            "tube": self.tube,
            "planning": [trials.get("planning"), trials.get("ends")] if solution.witness is None else [],
            "witness": [self._conflict()],
            "proof": [self.refuted],
            "data": self.data,
            "checks": [*also, trials.get("model"), trials.get("coverage"), self.texts.get("independence")],
            "terminal": [trials.get("terminal"), self._ends(), self._replaced()],
            "assumed": assumed or [self.texts.get("assumed")],
        }

    def _reward(self) -> str:
        solution = self.of
        if solution.reward is None:
            return "none in these features"
        which = "no reward explains the expert; best fit: " if solution.status == "infeasible" else ""
        if solution.path is not None:
            return f"{which}{solution.reward}; {solution.path.summary}"
        reward = f"{which}{solution.reward.basis} on {solution.domain.words}"
        if isinstance(solution.reward.basis, Features):  # that of V by the simulator, exactly
            return reward
        return f"{reward}; {self.texts['residual']}"

    def _determined(self) -> str:
        """How much the expert determines of the weights of features."""
        path = self.of.path
        if path is None or path.gains is None or self.of.status == "infeasible":
            return ""
        return f"determined: {path.ranges().summary} (estimated; print(solution.ranges()))"

    def _conflict(self) -> str:
        witness = self.of.witness
        if witness is None or self.of.status == "certified":
            return ""
        conflict = witness.in_words(self.stats.action_names)
        origin = "observed without noise" if witness.noiseless else "estimated"
        return conflict if self.of.status == "infeasible" else f"{conflict}; {origin}"

    def _ends(self) -> str:
        """What V is at the ends that the expert avoids."""
        if self.of.value is None or self.of.value.ends is None:
            return ""
        ends = self.of.value.ends
        return f"ends that the expert avoids ({in_words(ends.boxes)}) are worth {ends.worth:.3g}, all others 0"

    def _replaced(self) -> str:
        """What a file lost of the rule which states are terminal."""
        boxes, reward = self.stats.terminal, self.of.reward
        if reward is None or self.of.file is None or boxes is None:
            return ""
        if not reward._forgotten and reward.ended is not boxes:  # a log's own boxes, or a rule that was given back
            return ""
        rule = "no rule" if reward._forgotten else "these boxes and not the simulator's own rule"
        return f"read from a file, which keeps {rule}; with_terminal(simulator.terminal) gives it back"


class SoftWords:
    """The print of the rewards of a soft expert."""

    def __init__(self, solution: SoftSolution) -> None:
        self.of = solution

    def __str__(self) -> str:
        return in_lines(self.headline(), self.lines() | {"next": [self.of.next]})

    def headline(self) -> str:
        """The first line: the status with its cause, and how much of the decisions the rewards explain."""
        of, finding = self.of, weakest(self.of.findings)
        share = of.likelihood.share
        explained = f"they explain {share:.1%} of what the state says of the decisions" if share < 1 else ""
        sentence = of.proof.statement if of.proof is not None and of.status == "bounded" else finding.sentence
        return f"{of.status.capitalize()}: {'; '.join(text for text in (sentence, explained) if text)}"

    def lines(self) -> dict[str, Texts]:
        """All other lines, by name; those without texts are left out."""
        of, first = self.of, weakest(self.of.findings)
        likelihood, mean = of.likelihood, of.calibration
        off = float((mean[2] * np.abs(mean[0] - mean[1])).sum() / mean[2].sum())
        names = [f"{name} " for name in of.action_names] or [f"action {action}: " for action in range(of.n_actions)]
        counts = ", ".join(f"{name}{count:,}" for name, count in zip(names, of.counts, strict=True))
        error = f"standard error {of.median_error:.2g} in the median, for many data"
        return {
            "reward": [f"{of.reward}" if isinstance(of.reward.basis, Features) else str(of.reward.basis), error],
            "also": [each.sentence for each in of.findings if each is not first and each.status == first.status],
            "expert": [
                f"log-odds in {of.odds.basis}",
                f"held-out decisions are {off:.2g} away from their predicted probabilities",
                *(f"{test.what}: p = {test.chance:.2g}" for test in of.tests),
            ],
            "data": [
                f"{likelihood.decisions:,} decisions, {sum(of.counts):,} transitions ({counts})",
                f"discount {of.discount:g}, effects in {of.columns}",
                *of.log_notes,
            ],
            "assumed": of.assumed if of.proof is None else of.proof.assumptions,
        }


def words_of(solution: Solution) -> Words:
    """The print of a solution, by how its reward was found."""
    return ValueWords(solution) if solution._by_value else ProgramWords(solution)
