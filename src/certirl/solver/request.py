"""A call of `solve` as a record: its arguments after all checks, which are made here and before anything is drawn."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from certirl.data.moments import Moments
from certirl.data.policy import Policy, as_policy
from certirl.data.simulator import as_generator, as_samples, as_trials, check_simulator
from certirl.data.source import Source, as_source, for_simulators
from certirl.data.tables import as_log
from certirl.data.transitions import Transitions
from certirl.fit.bellman import check_problem
from certirl.fit.declared import Declared, as_declared
from certirl.fit.drifts import EACH_ITS_OWN, NO_PROOF, Drifts
from certirl.functions.bases import Basis, as_basis
from certirl.functions.components import Component, as_components
from certirl.ground.domain import Box, as_domain
from certirl.ground.doors import as_count, as_delta, as_flag, as_number, by_door, setting
from certirl.ground.records import Record
from certirl.ground.status import Finding, Seen, call
from certirl.ground.work import check_progress
from certirl.proof.case import DECLARED, Declaration, check_box, check_declaration, without_switches
from certirl.proof.cells import Deterministic
from certirl.proof.seen import tail_seen
from certirl.proof.suboptimality import as_share
from certirl.proof.tails import TailLike, check_tail, is_number
from certirl.solver.methods import FeatureForm, Method, Program, ValueForm, as_method

SAMPLES, PROOF_SAMPLES = 10_000, 1_000_000  # transitions per action without and with a proof, if none are asked for
NO_PROOF_FROM_MOMENTS = "a certificate needs transitions that the reward was not computed from, and moments keep none"


@dataclass(frozen=True, eq=False)
class Request(Record):
    """A call of `solve` after all checks; what is left out there is decided here."""

    source: Source | None  # a simulator or a log; None for moments
    moments: Moments | None  # the moments; None for a simulator or a log
    policy: Policy  # the expert
    method: Method  # by which the reward is found
    discount: float  # γ
    # domain, n_actions: of the source
    domain: Box
    n_actions: int
    columns: Any  # as in `solve`
    # names, coordinates and bases, one for a state that is not divided; none if the basis is to be chosen
    components: tuple[Component, ...]
    samples: int  # transitions per action, or the most of them
    trials: int | None  # the most transitions per action by which the answer is tried; None for as many as it took
    # paired, delta, tail, dynamics, tube, regret, suboptimality, progress: as in `solve`
    paired: bool | None
    delta: float | None
    tail: TailLike
    dynamics: Declaration | None
    tube: float | None
    regret: float | None
    suboptimality: float | None
    progress: Any
    drifts: Drifts  # of the actions of a log; shared where that is declared as dynamics
    declared: Mapping[int, Any]  # what actions of a log do whose effect is declared; a simulator then does so itself
    rng: Any  # a seed or Generator; None for a log without one

    @cached_property
    def generator(self) -> np.random.Generator:
        """The one generator of the call."""
        return self.origin.generator(self.rng)

    @property
    def origin(self) -> Source:
        """The source of transitions, a simulator or a log."""
        assert self.source is not None
        return self.source

    @property
    def is_log(self) -> bool:
        """Whether the source is a log, from which no more can be drawn."""
        return self.source is not None and self.source.is_log

    @property
    def is_simulator(self) -> bool:
        """Whether transitions can be drawn."""
        return self.source is not None and not self.source.is_log

    @property
    def log_rows(self) -> int | None:
        """The rows of the log; None for a simulator."""
        return None if self.source is None or self.source.states is None else len(self.source.states)

    @property
    def basis(self) -> Any:
        """Of the only component; None if it is to be chosen."""
        return self.components[0].basis if self.components else None

    @property
    def by_states(self) -> ValueForm | FeatureForm:
        """The method, where it compares actions at states."""
        assert not isinstance(self.method, Program)
        return self.method

    @property
    def seen(self) -> Seen:
        """What to declare in place of no tail, by the data."""
        return partial(tail_seen, self.origin, chosen=self.columns is None)

    def completed(self, finding: Finding) -> Finding:
        """The same with the whole call that is next, in place of what to change in this one."""
        changed = finding.next
        if changed == "basis=None" and self.basis is None:  # nothing would change
            changed = "print(solution.unexplained())" if self.policy.constant is None else "print(solution.witness)"
        wider = re.search(r"columns=(\d+)", changed)
        if wider and isinstance(self.method, Program) and self.basis is not None and int(wider[1]) > self.basis.size:
            as_many = f"basis=certirl.{self.basis.family}({wider[1]}), {wider[0]}"
            changed = changed.replace(wider[0], as_many if self.basis.dimension == 1 else "basis=None, columns=None")
        if self.source is None:
            changed = re.sub(r"^samples=([\d_]+)$", "  # with moments of about \\1 transitions of each action", changed)
            return replace(finding, next=call("certirl.solve", changed) if changed else "")
        rng = None if self.delta is None else self.rng
        return replace(finding, next=self.source.again(changed, "certirl.solve", rng))

    @property
    def problem(self) -> dict[str, Any]:
        """γ and the action that the expert always takes."""
        return {"discount": self.discount, "expert": self.policy.constant}


def request(
    source: Any,
    *,
    discount: Any,
    expert: Any,
    method: Any,
    basis: Any,
    columns: Any,
    components: Any,
    effects: Any,
    samples: Any,
    trials: Any,
    paired: Any,
    delta: Any,
    tail: Any,
    dynamics: Any,
    tube: Any,
    regret: Any,
    suboptimality: Any,
    rng: Any,
    progress: Any,
) -> Request:
    """The call of `solve` with these arguments, checked before anything is drawn."""
    check_progress(progress)
    check_tail(tail)
    source = as_log(source)
    is_measured = isinstance(source, Moments)
    declared = Declared() if effects is None else _declared(effects, source)
    if not isinstance(source, Transitions):
        source, declared = declared.over(source), Declared()
    elif declared and delta is not None:
        source, declared = declared.filled(source), Declared()
    origin = None if is_measured else as_source(source)
    policy = as_policy(expert, source.n_actions, getattr(source, "action_names", ()))
    is_constant = policy.constant is not None
    if not is_constant and is_measured:
        raise TypeError("an expert that depends on the state needs transitions or a simulator: moments keep no states")
    discount = check_problem(discount, policy.constant or 0, source.n_actions)
    delta = None if delta is None else as_delta(delta)
    drifts = EACH_ITS_OWN
    if isinstance(dynamics, Drifts):
        drifts, dynamics = _shared(dynamics, origin, delta), None
    if delta is not None and is_measured:
        raise ValueError(f"{NO_PROOF_FROM_MOMENTS}: leave {setting('delta')} out, or give the transitions instead")
    if delta is not None and origin is not None:
        origin.check_without_terminal()
    if dynamics is not None:
        given = {"delta": delta, "tail": tail, "tube": tube, "regret": regret, "paired": paired}
        given |= {"suboptimality": suboptimality}
        _check_dynamics(dynamics, origin, given | {"components": components}, method)
    if paired is not None:
        as_flag(paired, "paired")
    if tube is not None:
        as_number(tube, "tube", least=0, strict=True, meaning="a half-width")
    if regret is not None:
        as_number(regret, "regret", least=0, most=1, strict=True, meaning="a share of the value's span")
    asked = Request(
        source=origin,
        moments=source if is_measured else None,
        policy=policy,
        method=as_method(method, origin, is_constant=is_constant, drifts=drifts),
        discount=discount,
        domain=source.rows.domain if origin is None else origin.domain,
        n_actions=source.n_actions,
        columns=columns,
        components=(),
        samples=(SAMPLES if delta is None else PROOF_SAMPLES) if samples is None else as_samples(samples),
        trials=None if trials is None else as_trials(trials),
        paired=paired,
        delta=delta,
        tail=tail,
        dynamics=dynamics,
        tube=tube,
        regret=regret,
        suboptimality=as_share(suboptimality),
        progress=progress,
        drifts=drifts,
        declared=declared.moves,
        rng=rng,
    )
    given = {"samples": samples, "trials": trials, "paired": paired, "tail": tail, "tube": tube, "regret": regret}
    given |= {"suboptimality": suboptimality}
    _check_effect(asked, given | {"components": components, "columns": columns, "effects": effects})
    asked.method.check(asked, several=components is not None)
    if rng is not None:
        as_generator(rng)  # refused here, also where nothing is drawn
    _warn_of_noise(asked)
    asked = replace(asked, components=_components(asked, basis, components))
    if delta is not None and components is None:
        check_box(asked.domain)
    if is_number(tail) and columns is None:  # otherwise columns are chosen by the tail
        write = by_door("pass columns as well", "write --columns N, too")
        raise ValueError(f"the tail {tail} belongs to the columns it was computed for: {write}")
    return asked


def _declared(effects: Any, source: Any) -> Declared:
    """The actions whose effect is declared."""
    if isinstance(source, Moments):
        raise ValueError("moments are sums over transitions of every action: leave effects out, or pass transitions")
    if not isinstance(source, Transitions):
        check_simulator(source)
    return as_declared(effects, source.n_actions, as_domain(source.domain))


def _shared(drifts: Drifts, origin: Source | None, delta: float | None) -> Drifts:
    """Drifts that are declared to be shared; refused where nothing is regressed, or more is asked than estimates."""
    declared = by_door(f"dynamics={drifts!r}", "--shared-drift")
    if origin is None or not origin.is_log:
        what = "moments keep no transitions" if origin is None else "a simulator is asked what every action does"
        raise ValueError(f"{declared} is for logs, and {what}: leave it out")
    if delta is not None:
        raise ValueError(f"{NO_PROOF}: leave {declared}, or {setting('delta')}, out")
    return drifts


def _check_dynamics(dynamics: Any, origin: Source | None, given: Mapping[str, Any], method: Any) -> None:
    """Refuse a declaration of the dynamics that proves nothing here, and settings that are of no use to it."""
    check_declaration(dynamics, given)
    if origin is None:
        raise ValueError(f"{NO_PROOF_FROM_MOMENTS}: leave dynamics out, or give the transitions instead")
    if isinstance(method, FeatureForm):
        raise ValueError(
            "a proof with declared dynamics is about a reward on a grid: leave the features, or dynamics, out"
        )
    dynamics.check(origin)
    if dynamics.is_random and given["delta"] is None:
        declared = by_door(f"dynamics={type(dynamics).__name__}(…)", DECLARED[type(dynamics).__name__].option)
        raise ValueError(f"{declared} is for a certificate: pass {setting('delta')} too, or leave it out")
    if isinstance(dynamics, Deterministic) and (dynamics.points is None or dynamics.value is not None):
        raise ValueError("solve needs dynamics=certirl.dynamics.Deterministic(…, points=41), say, without a value")


def _check_effect(asked: Request, given: Mapping[str, Any]) -> None:
    """Refuse keywords that would be without effect."""
    why = dict[str, str]()
    if not asked.is_simulator:
        why |= {name: for_simulators(name) for name in ("samples", "paired", "trials")}
        why["regret"] = "no more can be drawn from a log: leave regret out, the certificate states what is proved"
    if asked.delta is None:
        by_program = ("suboptimality",) if isinstance(asked.method, Program) else ()
        for name in {"tail", "tube", "regret", "suboptimality"}.difference(by_program):
            why[name] = (
                f"{setting(name)} is for a certificate: pass {setting('delta')} too, or leave {setting(name)} out"
            )
    elif asked.is_simulator:
        why["effects"] = "a proof rests on draws of every action: leave effects out, or delta"
    if asked.policy.constant is not None:
        why |= {name: without_switches(name) for name in ("tube", "regret")}
    why |= asked.method.unused(asked)
    for name, value in given.items():
        if value is not None and name in why:
            raise ValueError(why[name])


def _warn_of_noise(asked: Request) -> None:
    """Warn of a simulator whose noise is not independent; before a proof it is an error, found later."""
    if asked.delta is None and asked.source is not None:
        fault = asked.source.noise_fault(most=min(asked.samples // 10, 1_000))
        if fault:
            warnings.warn(fault, stacklevel=4)


def _components(asked: Request, basis: Any, components: Any) -> tuple[Component, ...]:
    """Groups of coordinates with the functions of each; none if these are to be chosen."""
    columns, is_chosen = asked.columns, asked.method.chooses_functions
    each = list(columns) if isinstance(columns, list | tuple) else [columns]
    if basis is None and is_chosen and all(isinstance(functions, Basis) for functions in each):
        basis = columns
    if components is not None:
        return as_components(components, basis, asked.domain)
    if basis is not None:
        return as_basis(basis, asked.domain).components
    if columns is not None and is_chosen:
        as_count(columns, "columns", meaning="a whole number of functions of the state")
    return ()
