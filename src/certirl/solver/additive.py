"""The record a person reads when the state has components: what was found, how sure it is, and who contributes."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from certirl.data.transitions import counted
from certirl.fit.bellman import rivals_of
from certirl.fit.decompose import AdditiveWitness, Conflict
from certirl.functions import components
from certirl.functions.components import AdditiveReward
from certirl.functions.extrema import TIE, ranked
from certirl.ground import archive
from certirl.ground.archive import Stored
from certirl.ground.domain import Array, as_states, freeze
from certirl.ground.doors import as_count, as_number
from certirl.ground.status import chance
from certirl.proof import policy_certificate
from certirl.proof.certify_components import AdditiveCertificate
from certirl.solver import policy_solution, solution
from certirl.solver.solution import HEADLINES, check_about, check_statuses, headline

KIND = "additive solution"
SHOWN = 3  # components named in the print
_ARRAYS = ("minima", "standard_errors")


@dataclass(frozen=True, eq=False)
class AdditiveSolution:
    """The answer of `solve` with components.

    Attributes:
        status: "certified", "solved", "infeasible" or "undetermined".
        reason: the status in a sentence: what happened and what to change.
        reward: R = Σ_j R_j, callable on states ``[n, d]``; None if there is none.
        margin: the smallest estimated D_a(s) over all states and rivals, NaN without a reward.
        worst_state, worst_action: where it is reached ``[d]``.
        minima: the estimated min D_ja of every component and rival ``[J, A − 1]``; their sums are the margins.
        standard_errors: of these, at their places ``[J, A − 1]``.
        curves: coefficients of each D_ja in the columns, one array ``[A − 1, k_s]`` per component.
        names: of the components.
        samples, most_samples: transitions per action used: the fewest and the most.
        discount, expert, n_actions: the problem.
        columns: the number of functions of the state, for each component.
        objective, rounds, rows: the program, how often it was solved, and with how many rows.
        choice: how bases and columns came about.
        independence: what the data say about the independence of the components, in words.
        independent: whether they let it stand.
        witness: the conflict, if infeasible.
        certificate: the proof, or the attempt at one; None if none was asked for.
        refutation: what was proved about the absence of any sum, in words; None if that was not tried.
        file: where it was read from, with a status and a certificate that the file claims; None if it was found here.
        verified: it was found here, or `certirl.check` confirmed its file.
    """

    status: str
    reason: str
    reward: AdditiveReward | None
    margin: float
    worst_state: Array | None
    worst_action: int | None
    minima: Array
    standard_errors: Array
    curves: tuple[Array, ...]
    names: tuple[str, ...]
    samples: int
    most_samples: int
    discount: float
    expert: int
    n_actions: int
    columns: tuple[int, ...]
    objective: str
    rounds: int
    rows: int
    choice: str
    independence: str
    independent: bool
    witness: AdditiveWitness | None = None
    certificate: AdditiveCertificate | None = None
    refutation: str | None = None
    file: str | None = None
    verified: bool = True

    def __post_init__(self) -> None:
        freeze(self)

    @property
    def rivals(self) -> tuple[int, ...]:
        """The actions the expert does not take, in order."""
        return rivals_of(self.expert, self.n_actions)

    def margins(self, states: ArrayLike) -> Array:
        """The estimated D_a(s) = Σ_j D_ja(s_j) of each rival at states ``[n, d]``: ``[A − 1, n]``."""
        if self.reward is None:
            raise ValueError(f"there is no reward: {self.reason}")
        rows, total = as_states(states, self.reward.domain), np.zeros(1)
        for own, part, curve in zip(self.reward.coordinates, self.reward.parts, self.curves, strict=True):
            total = total + curve @ part.basis.resized(curve.shape[1]).values(rows[:, list(own)]).T
        return total

    @property
    def standard_error(self) -> float:
        """Of the margin; NaN without a reward."""
        if self.worst_action is None:
            return float("nan")
        return float(np.linalg.norm(self.standard_errors[:, self.rivals.index(self.worst_action)]))

    @property
    def within_noise(self) -> bool:
        """The margin is positive but below three of its standard errors: it may well be an accident of the data."""
        return bool(0 < self.margin < 3 * self.standard_error)

    def __str__(self) -> str:
        return "\n".join([self._headline(), *(f"  {name:<9}{text}" for name, text in self._lines())])

    def _headline(self) -> str:
        sure = chance(self.certificate.delta) if self.certificate else ""
        noise = ", within the noise" if self.within_noise else ""
        words = {"expert": self.expert, "origin": "estimated", "reason": self.reason, "noise": noise, "sure": sure}
        return headline(self, HEADLINES[self.status].format(**words))

    def _lines(self) -> list[tuple[str, str]]:
        counts = counted((self.samples, self.most_samples))
        lines = [
            ("reward", str(self.reward) if self.reward else f"none that adds up over {len(self.names)} components")
        ]
        if self.reward is not None:
            lines.append(("parts", self._contributions()))
        lines.append(self._margin_line())
        lines.append(("data", f"{counts} transitions for each of {self.n_actions} actions, discount {self.discount:g}"))
        if self.certificate is None:
            lines.append(("basis", self.choice))
            marked = [line.strip() for line in (self.refutation or "").splitlines() if "assumed: " in line]
            lines += [("assumed", "; ".join(line.removeprefix("assumed: ") for line in marked))] if marked else []
        else:
            lines.append(("assumed", "; ".join(self.certificate.assumptions)))
        solves = f"{self.rounds} solve{'s' * (self.rounds != 1)}, {self.rows} rows"
        program = f"joint {self.objective} program over {len(self.names)} components exact on the continuum, {solves}"
        return [*lines, ("checks", f"{self.independence}; {program}")]

    def _contributions(self) -> str:
        """The components that do most, and what each adds to the margin against every rival."""
        order = ranked(np.abs(self.minima).sum(axis=1), np.arange(len(self.minima)))
        each = []
        for j in order[:SHOWN]:
            against = ", ".join(f"{value:+.2g}" for value in np.round(self.minima[j], 3) + 0.0)
            each.append(f"{self.names[j]} {against}")
        rest = f"; {len(order) - SHOWN} more" if len(order) > SHOWN else ""
        rivals = " and ".join(map(str, self.rivals)) if len(self.rivals) < 3 else "each rival"
        return f"what each adds against {rivals}: {'; '.join(each)}{rest}"

    def _margin_line(self) -> tuple[str, str]:
        if self.witness is not None:
            return "witness", str(self.witness)
        if self.certificate is not None:
            return "margin", self.certificate.proved
        if self.worst_state is None:
            return "margin", "none"
        place = ", ".join(f"{x:.4g}" for x in self.worst_state[:4]) + (" …" if len(self.worst_state) > 4 else "")
        known = self.standard_error > TIE * abs(self.margin)  # less is rounding
        error = f"; standard error {self.standard_error:.2g}" if known else ""
        more = ": more samples are needed" if self.within_noise else ""
        return "margin", f"{self.margin:.4g} at worst, at s = ({place}) against action {self.worst_action}{error}{more}"

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write everything to an npz file (suffix added if missing); `certirl.load` reads it back."""
        packed = (*_ARRAYS, "reward", "worst_state", "curves", "witness", "certificate", "file", "verified")
        header: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in packed}
        arrays: dict[str, Any] = {name: getattr(self, name) for name in _ARRAYS}
        arrays |= {f"curve_{j}": curve for j, curve in enumerate(self.curves)}
        if self.reward is not None:
            header["reward"], numbers = self.reward.packed()
            arrays |= numbers | {"worst_state": self.worst_state}
        if self.witness is not None:
            rows = [[row.component, row.state.tolist(), row.action, row.weight] for row in self.witness.rows]
            shares = [[action, share] for action, share in self.witness.shares.items()]
            header["witness"] = {"shares": shares, "rows": rows, "residual": self.witness.residual}
        if self.certificate is not None:
            header["certificate"], numbers = self.certificate.packed()
            arrays |= {f"certificate_{name}": value for name, value in numbers.items()}
        return archive.write(path, KIND, header, arrays)

    def plot(self, *, path: Any = None) -> Any:
        """Draw the reward of every component; write the picture to ``path`` if given."""
        if self.reward is None:
            raise ValueError(f"there is no reward to draw: {self.reason}")
        return self.reward.plot(path=path)


def load(path: str | os.PathLike[str], *, verify: bool = False) -> Any:
    """Read what `save` of a solution of any kind, of an additive reward or of a policy's certificate wrote.

    Fields that are missing, out of range or of the wrong shape, and certificates whose numbers their own sums do not
    lead to, are refused. What is left is what the file claims: its ``verified`` is False.

    Args:
        path: the file.
        verify: derive the certificate again with `certirl.check`, which takes longer, and refuse what it refutes. What
            it confirms is ``verified``, with the assumptions that the check has to trust.
    """
    kind, header, arrays = archive.read(path)
    if kind not in _READERS:
        raise ValueError(f"{path} holds a certirl {kind}, not a solution, a reward or a certificate")
    try:
        found = _READERS[kind](Stored(header, arrays), str(path))
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as problem:
        raise ValueError(f"{path} is damaged or was changed: {problem}") from None
    return _checked(found, path) if verify else found


def _checked(found: Any, path: str | os.PathLike[str]) -> Any:
    """The record, verified if the independent check confirms its file."""
    from certirl.checker.files import check

    verdict = check(path)
    if verdict.verdict == "refuted":
        raise ValueError(f"{path} is refuted by certirl check: {'; '.join(verdict.reasons)}")
    if verdict.verdict != "confirmed":
        return found
    claim = getattr(found, "certificate", found)
    claim = replace(claim, verified=True, assumptions=verdict.trusted)
    return (
        claim
        if claim is found or not hasattr(found, "certificate")
        else replace(found, verified=True, certificate=claim)
    )


def _unpacked(stored: Stored, file: str) -> AdditiveSolution:
    """What `AdditiveSolution.save` wrote, every field within its range; refused where it contradicts itself."""
    names, A = stored.texts("names"), stored.count("n_actions", least=2)
    reward = AdditiveReward.unpacked(stored.part("reward"), stored.arrays) if "reward" in stored else None
    sizes = [as_count(size, "columns") for size in stored.field("columns")]
    if len(sizes) != len(names) or (reward is not None and reward.names != names):
        raise ValueError(f"names and columns must be those of the {len(names)} components of the reward")
    certificate = worst_state = None
    if reward is not None:
        worst_state = as_states(stored.array("worst_state", (len(reward.domain),))[None], reward.domain)[0]
        if "certificate" in stored:
            certificate = AdditiveCertificate.unpacked(stored.part("certificate"), reward, file)
    shape = (len(names), A - 1) if reward is not None else (None, None)
    arrays: dict[str, Any] = {name: stored.array(name, shape) for name in _ARRAYS}
    texts: dict[str, Any] = {name: stored.text(name) for name in ("objective", "choice", "independence")}
    found = AdditiveSolution(
        status=stored.text("status", HEADLINES),
        reason=stored.text("reason"),
        reward=reward,
        margin=stored.number("margin", undefined=reward is None),
        worst_state=worst_state,
        worst_action=stored.maybe("count", "worst_action", most=A - 1),
        **arrays,
        curves=tuple(stored.array(f"curve_{j}", (A - 1, size)) for j, size in enumerate(sizes if reward else [])),
        names=names,
        samples=stored.count("samples"),
        most_samples=stored.count("most_samples", least=stored.count("samples")),
        discount=stored.number("discount", least=0, most=1, strict=True),
        expert=stored.count("expert", most=A - 1),
        n_actions=A,
        columns=tuple(sizes),
        **texts,
        rounds=stored.count("rounds"),
        rows=stored.count("rows"),
        independent=stored.flag("independent"),
        witness=_unpacked_witness(stored, A) if "witness" in stored else None,
        certificate=certificate,
        refutation=stored.maybe("text", "refutation"),
        file=file,
        verified=False,
    )
    check_statuses(found)
    if certificate is not None and reward is not None:
        for own in certificate.grounds:
            check_about(found, own.surrogate, reward.parts[own.component].basis.resized(sizes[own.component]))
    return found


def _unpacked_witness(stored: Stored, n_actions: int) -> AdditiveWitness:
    words = stored.part("witness")
    rows = []
    for name, state, action, weight in words.field("rows"):
        own = np.array([as_number(x, "a state of the witness") for x in state])
        action = as_count(action, "an action of the witness", least=0, most=n_actions - 1)
        rows.append(Conflict(str(name), own, action, as_number(weight, "a weight of the witness")))
    shares = {
        as_count(a, "an action of the witness", least=0, most=n_actions - 1): as_number(x, "a share", least=0)
        for a, x in words.field("shares")
    }
    return AdditiveWitness(shares, tuple(rows), words.number("residual", least=0))


_READERS: dict[str, Callable[[Stored, str], Any]] = {
    "solution": solution.unpacked,
    KIND: _unpacked,
    components.KIND: lambda stored, file: AdditiveReward.unpacked(stored.part("reward"), stored.arrays),
    policy_solution.KIND: policy_solution.unpacked,
    policy_certificate.KIND: policy_certificate.PolicyCertificate.unpacked,
}
