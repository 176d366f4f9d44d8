"""From files to a solution: a log or moments, and an expert."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from certirl.cli.inputs import basis_of, read_log
from certirl.data import moments
from certirl.data.coverage import coverage
from certirl.data.demonstrations import policy_from
from certirl.data.dependence import dependence
from certirl.data.formats import find_files
from certirl.data.policy import Policy
from certirl.data.transitions import Transitions
from certirl.fit.effects import value_basis
from certirl.functions.bases import Basis
from certirl.ground import archive, doors
from certirl.solver.settings import NO_PROOF_FROM_MOMENTS, Settings
from certirl.solver.solve import solve

OBSERVED = "observed"
MOSTLY = 0.5  # of the states: where some action is extrapolated at more of them, no answer is given


def solved(options: argparse.Namespace, where: Any) -> Any:
    """The answer of `solve` to the options of a command; ``where`` is its map."""
    kinds = [archive.kind_of(path) for path in options.data]
    return (_from_moments if any(kinds) else _from_log)(options, {**_asked(options), "map": where})


def _asked(options: argparse.Namespace) -> dict[str, Any]:
    """The settings of `solve` that do not depend on the data; None where none is asked for."""
    asked = {name: getattr(options, name) for name in ("discount", "columns", "delta", "tail")}
    names = ("objective", "cover", "slack", "margin", "tube")
    return asked | {"settings": Settings(**{name: getattr(options, name) for name in names})}


def _from_log(options: argparse.Namespace, asked: dict[str, Any]) -> Any:
    expert = expert_of(options)
    if not expert.is_constant and options.objective is not None:
        raise ValueError("--objective is for experts who always take one action: leave it out")
    _check_proof(options, constant=expert.is_constant)
    log = read_log(options)
    sign = dependence(log) if options.delta is not None else None
    if sign is not None:
        raise ValueError(f"{sign}, or leave --delta out")
    if not expert.is_constant:
        policy = policy_of(expert, log, options.periodic)
        return solve(log, expert=policy, basis=_value_functions(options, log), **asked)
    basis = basis_of(options, len(log.domain))
    if options.periodic and basis is None:
        raise ValueError("--periodic needs --basis with an expert who always takes one action, say --basis legendre")
    return solve(log, expert=expert.action, basis=basis, **asked)


def _check_proof(options: argparse.Namespace, *, constant: bool) -> None:
    """Refuse in the words of options what `solve` would refuse in those of Python."""
    if options.delta is None:
        return
    if options.domain is None:
        raise ValueError("a certificate needs a declared domain: write --domain LOW HIGH, once for each coordinate")
    if not constant and options.tail is not None and options.columns is None:
        raise ValueError("--tail belongs to the columns it was computed for: write --columns N, too")


def _from_moments(options: argparse.Namespace, asked: dict[str, Any]) -> Any:
    if len(options.data) > 1:
        raise ValueError(
            "one moments file can be solved, and no other file with it: certirl merge puts several together"
        )
    for name in ("domain", "actions", "periodic", "episode_column", "outside"):
        if getattr(options, name):
            option = f"--{name.replace('_', '-')}"
            raise ValueError(f"{option} belongs to transitions, and moments were measured with theirs: leave it out")
    with doors.options({}):  # what is wrong in the file was no option
        measured = moments.load(options.data[0])
    expert = expert_of(options)
    if not expert.is_constant:
        raise ValueError("an expert who depends on the state needs transitions: moments keep no states")
    print(measured)
    basis = basis_of(options, measured.rows.dimension)
    solution = solve(measured, expert=expert.action, basis=basis, **asked)
    print(f"{NO_PROOF_FROM_MOMENTS.capitalize()}.")
    return solution


@dataclass(frozen=True)
class Expert:
    """The expert that ``--expert`` names.

    Attributes:
        action: the action it always takes; None if it depends on the state.
        file: of demonstrations; None if the log was made by the expert.
    """

    action: int | None
    file: str | None = None

    @property
    def is_constant(self) -> bool:
        """Whether it always takes one action."""
        return self.action is not None


def expert_of(options: argparse.Namespace) -> Expert:
    """An action, the word "observed", or a file."""
    word = str(options.expert).strip()
    if word.lstrip("+-").isdecimal():
        return Expert(int(word))
    if word == OBSERVED:
        if options.delta is not None:
            raise ValueError(
                "a certificate must rest on data that had no part in saying who the expert is: give the expert's "
                "demonstrations in a file of their own, --expert FILE, or leave --delta out"
            )
        return Expert(None)
    if not word or not Path(word).exists():
        raise ValueError(
            f"--expert must be an action (a whole number), the word {OBSERVED}, or a file of demonstrations; "
            + (f"there is no file {word}" if word else "it is empty")
        )
    kind = archive.kind_of(word)
    if kind is not None:
        raise ValueError(f"--expert must be a file of demonstrations, and {word} is a file of certirl ({kind})")
    if Path(word).resolve() in {file.resolve() for file in find_files(options.data)}:
        raise ValueError(f"{word} is the log itself: write --expert {OBSERVED} if the expert made it")
    return Expert(None, word)


def demonstrations_of(options: argparse.Namespace) -> tuple[Path, ...]:
    """The files that ``--expert`` names."""
    expert = expert_of(options)
    return () if expert.file is None else find_files(expert.file)


def policy_of(expert: Expert, log: Transitions, periodic: Sequence[int]) -> Policy:
    """The policy of an expert that depends on the state, estimated from its actions."""
    from certirl.data.tables import read_demonstrations

    if expert.file is None:
        _check_alternatives(log, periodic)
        return policy_from(log, periodic=periodic)
    states, actions, episodes = read_demonstrations(expert.file)
    try:
        if states.shape[1] != len(log.domain):
            raise ValueError(f"states have {states.shape[1]} coordinates, those of the log {len(log.domain)}")
        settings: dict[str, Any] = {"domain": log.domain, "n_actions": log.n_actions, "periodic": periodic}
        return policy_from(states, actions, episodes=episodes, **settings)
    except ValueError as problem:
        raise ValueError(f"{expert.file}: {problem}") from None


def _value_functions(options: argparse.Namespace, log: Transitions) -> Basis | None:
    """The functions of V that were asked for, or the usual ones for periodic coordinates."""
    basis = basis_of(options, len(log.domain))
    return value_basis(log.domain, tuple(options.periodic)) if basis is None and options.periodic else basis


def _check_alternatives(log: Transitions, periodic: Sequence[int]) -> None:
    """Refuse a log of the expert in which other actions were hardly ever tried."""
    found = coverage(log, periodic=tuple(periodic))
    if found.never_taken:
        raise ValueError(
            f"action {', '.join(map(str, found.never_taken))} was never taken in the log, so that nothing tells what "
            "the expert avoided: add transitions in which it is tried, or lower --actions"
        )
    share = float(found.extrapolated(log.states).mean())
    if share > MOSTLY:
        where = [sentence for sentence in found.sentences if "taken only" in sentence] or found.sentences
        raise ValueError(
            f"the log does not show what the actions do that the expert avoids: at {share:.0%} of its states some "
            f"action was never tried nearby ({'; '.join(where)}); add transitions in which every action is tried"
        )
    if not found.complete:
        lines = (f"  {sentence[0].upper()}{sentence[1:]}." for sentence in found.sentences)
        print("\n".join(["What the log does not show:", *lines]))
