"""What all answers of `solve` have in common: findings that decide the status, files, pictures and reports."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from certirl.data.coverage import Coverage
from certirl.functions.features import Feature, Features
from certirl.functions.reward import Reward
from certirl.ground import archive
from certirl.ground.doors import called
from certirl.ground.records import Record, internal
from certirl.ground.status import STATUSES, Finding, weakest


@internal
class Answer(Record):
    """An answer of `solve`.

    Attributes:
        findings: the facts that decide `status` and `reason`.
        reward: R, or None.
        about: the call and what it was about, in words by name.
    """

    findings: tuple[Finding, ...]
    reward: Any
    about: dict[str, str]

    @cached_property
    def _weakest(self) -> Finding:
        return weakest(self.findings)

    @property
    def status(self) -> str:
        """The status that all findings allow.

        "certified" (proved); "validated" (R was tried on fresh states and by planning on R alone, and passed); "solved"
        (the expert is explained by the data, but this was not proved or tried, or did not pass); "infeasible" (no
        reward in the class explains the expert); or "undetermined". Of a soft expert "bounded" (with probability 1 − δ
        the rewards lie in a band at every state) or "estimated" (with asymptotic standard errors alone).
        """
        return self._weakest.status

    @property
    def reason(self) -> str:
        """The cause of the status in a sentence, and what to change; the line "checks" names further causes."""
        return self._weakest.sentence

    @property
    def next(self) -> str:
        """The call to try next, or the command, with … for what stays as it was; empty if the answer is what was asked.

        Example:
            >>> problem = certirl.problems.random_polynomial(seed=7)
            >>> asked = {"discount": 0.7, "expert": 0, "basis": certirl.Legendre(7), "columns": 3, "delta": 0.05}
            >>> print(certirl.solve(problem, rng=0, **asked).next)
            certirl.solve(…, tail=0, rng=1)  # if these columns describe the dynamics exactly
        """
        order = sorted(self.findings, key=lambda finding: STATUSES.index(finding.status))
        return called(next((finding.next for finding in order if finding.next), ""))

    @internal
    def noted(self, finding: Finding) -> Self:
        """The same with one more finding, named first, which does not change the status."""
        return self._with(findings=(replace(finding, status=self.status), *self.findings))

    @internal
    def doubted(self, finding: Finding) -> Self:
        """The same with one more finding, named first, as weak as the status of the others, or weaker."""
        return self.judged(replace(finding, status=weakest([finding, *self.findings]).status), *self.findings)

    @internal
    def judged(self, *findings: Finding) -> Self:
        """The same with these findings in place of its own: they alone decide the status."""
        return self._with(findings=findings)

    def _with(self, **changed: Any) -> Self:
        answer: Any = self  # a frozen dataclass
        copy: Self = replace(answer, **changed)
        return copy

    def with_features(self, features: Mapping[str, Feature]) -> Self:
        """A copy with the functions of a reward of features, of which a file keeps names, weights and trial values.

        Example:
            >>> room, method = certirl.problems.comfort(), certirl.FeatureForm({"s²": lambda s: s[:, 0] ** 2})
            >>> log = certirl.steps.sample(room.dynamics, basis=certirl.Legendre(5), samples=200, rng=0)
            >>> of_features = certirl.solve(log, discount=0.9, expert=room.expert, method=method)
            >>> again = certirl.load(of_features.save("room.npz")).with_features(method.features)
            >>> again.reward(0.5) == of_features.reward(0.5)
            True
        """
        if not isinstance(self.reward, Reward) or not isinstance(self.reward.basis, Features):
            raise ValueError("this reward is no sum of features: it needs no functions")
        return self._with(reward=replace(self.reward, basis=self.reward.basis._with_functions(features)))

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write everything to an npz file (suffix added if missing); `certirl.load` reads it back.

        The expert is not kept, nor the functions of features. Which states are terminal is kept as boxes, as far as
        these describe them.

        Example:
            >>> path = solution.save("answer")
            >>> path.name, certirl.load(path).reward(0.3, 1) == solution.reward(0.3, 1)
            ('answer.npz', True)
        """
        return archive.save(self, path)

    def report(
        self,
        path: str | os.PathLike[str],
        *,
        title: str | None = None,
        author: str | None = None,
        date: Any = None,
        checked: bool = False,
        coverage: Coverage | None = None,
    ) -> Path:
        """Write one page about the answer, to be read in a browser, printed and signed; returns its path.

        Args:
            path: where it is written; ".html" is added to a name without it.
            title: of the page.
            author: who wrote it.
            date: of the page, as "2026-12-31" or of `datetime`; today if left out.
            checked: derive the proof again by the independent checker and print its verdict.
            coverage: of the log, as `certirl.diagnose.coverage` returns it; drawn if given.

        Example:
            >>> solution.report("answer.html", title="Room 3", author="A. Auditor", date="2026-12-31").name
            'answer.html'
        """
        from certirl.show import report

        words: dict[str, Any] = {"title": title, "author": author, "date": date}
        return report.write(self, path, **words, checked=checked, coverage=coverage)
