"""Settings of `solve` that few problems need, and the table of what applies to which problem."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np

from certirl.data.moments import Moments
from certirl.data.policy import Policy, as_policy
from certirl.data.simulator import Simulator, as_generator, as_samples, as_trials, device_of
from certirl.data.source import Source, as_source, for_simulators
from certirl.data.tables import as_log
from certirl.fit.bellman import FORMS, check_problem
from certirl.fit.effects import FEWEST
from certirl.fit.features import Preference
from certirl.fit.recover import OBJECTIVES, as_radius, check_slack
from certirl.fit.value_program import Margin, check_margin
from certirl.functions.bases import Basis, as_basis
from certirl.functions.cells import MOST_COORDINATES
from certirl.functions.components import Component, as_components
from certirl.functions.features import Feature, check_features, check_no_actions, check_no_terminal
from certirl.ground.domain import Box
from certirl.ground.doors import as_count, as_delta, as_flag, as_number, by_door, setting, shown
from certirl.ground.records import Record
from certirl.ground.work import check_progress
from certirl.proof.case import REFUSED, check_box, without_switches
from certirl.proof.tails import TailLike, check_tail, is_number


@dataclass(frozen=True, kw_only=True)
class Settings(Record):
    """How `solve` finds a reward and what a proof must show; None leaves the choice to `solve`.

    Attributes:
        objective: of the program for an expert of one action: "least-variance" (the value function that the data
            determine best), "l1" (the paper's ‖α‖₁) or "max-margin"; for a proof the better of the first two if None.
        form: of the estimate: "least-squares", the default, or "mean" (the paper's, for simulators).
        cover: solve on the paper's cover of this radius instead of on the continuum.
        slack: price of a shortfall, for experts that are only nearly optimal.
        margin: for an expert that depends on the state, the half-width of the tube beside a switch over which margins
            rise from 0 to 1, as a share of the box; or a function of states.
        smoothness: for the same experts, the price of a rough V: of its terms, each times the square of its degree. By
            default 10⁻⁴ where effects are regressed from noisy data, and 0 elsewhere and for a proof; of both the one
            whose plan is nearer to the expert where some ends are sought and others avoided.
        paired: draw every action with the same states and random numbers, so that noise cancels; by a trial if None.
        tube: with ``delta``, how far from a switch the expert must be proved strictly best, in units of the state.
        regret: with ``delta``, go on until following the expert costs at most this share of the span of the value.
        features: R is a sum of few of these functions by name, of states or of states and an action; ``"terminal"`` is
            built in: docs/features.md.
        signs: −1 or 1 for features whose weights must not be positive or not be negative.
        guess: a designer's weights of features; as few of them as possible are changed.

    Example:
        >>> certirl.Settings(objective="l1", paired=False).objective
        'l1'
    """

    objective: str | None = None
    form: str | None = None
    cover: float | None = None
    slack: float | None = None
    margin: Margin = None
    smoothness: float | None = None
    paired: bool | None = None
    tube: float | None = None
    regret: float | None = None
    features: Mapping[str, Feature] | None = None
    signs: Mapping[str, int] | None = None
    guess: Mapping[str, float] | None = None

    def __post_init__(self) -> None:
        for name, choices in (("objective", OBJECTIVES), ("form", FORMS)):
            value = getattr(self, name)
            if value is not None and value not in choices:
                raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {shown(value)}")
        check_slack(self.slack)
        check_margin(self.margin)
        if self.smoothness is not None:
            as_number(self.smoothness, "smoothness", least=0, meaning="a price")
        if self.paired is not None:
            as_flag(self.paired, "paired")
        for name, meaning in {"cover": "a radius", "tube": "a half-width"}.items():
            if getattr(self, name) is not None:
                as_number(getattr(self, name), name, least=0, strict=True, meaning=meaning)
        if self.regret is not None:
            as_number(self.regret, "regret", least=0, most=1, strict=True, meaning="a share of the value's span")

        if self.features is not None:
            check_features(self.features)
            Preference.of(tuple(self.features), self.signs, self.guess)
        for name in ("signs", "guess"):
            if self.features is None and getattr(self, name) is not None:
                raise ValueError(f"{name} is for rewards of features: pass features too, or leave {name} out")

    def given(self) -> dict[str, Any]:
        """The settings that are not left to `solve`, by name.

        :meta private:
        """
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if value is not None}


SAMPLES, PROOF_SAMPLES = 10_000, 1_000_000  # transitions per action without and with a proof, if none are asked for
MOST_BY_VALUE = 1_000_000  # transitions per action of the value form, which keeps all of them with their functions
NO_PROOF_FROM_MOMENTS = "a certificate needs transitions that the reward was not computed from, and moments keep none"


@dataclass(frozen=True, eq=False)
class Request(Record):
    """A call of `solve` after all checks; what is left out there is decided here.

    Attributes:
        source: a simulator or a log; None for moments.
        moments: the moments; None for a simulator or a log.
        policy: the expert.
        by_value: the value form finds the reward: for experts that depend on the state and for terminal states.
        discount: γ.
        domain, n_actions: of the source.
        columns: as in `solve`.
        components: names, coordinates and bases, one for a state that is not divided; none if the basis is to be
            chosen.
        samples: transitions per action, or the most of them.
        trials: the most transitions per action by which the answer is tried; None for as many as it took.
        delta, tail, progress: as in `solve`.
        settings: as in `solve`.
        rng: a seed or Generator; None for a log without one.
    """

    source: Source | None
    moments: Moments | None
    policy: Policy
    by_value: bool
    discount: float
    domain: Box
    n_actions: int
    columns: Any
    components: tuple[Component, ...]
    samples: int
    trials: int | None
    delta: float | None
    tail: TailLike
    progress: Any
    settings: Settings
    rng: Any

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
    def log_rows(self) -> int | None:
        """The rows of the log; None for a simulator."""
        return None if self.source is None or self.source.states is None else len(self.source.states)

    @property
    def basis(self) -> Any:
        """Of the only component; None if it is to be chosen."""
        return self.components[0].basis if self.components else None

    @property
    def problem(self) -> dict[str, Any]:
        """γ and the action that the expert always takes."""
        return {"discount": self.discount, "expert": self.policy.constant}


def request(
    source: Any,
    *,
    discount: Any,
    expert: Any,
    basis: Any,
    columns: Any,
    components: Any,
    samples: Any,
    trials: Any,
    delta: Any,
    tail: Any,
    rng: Any,
    settings: Any,
    progress: Any,
) -> Request:
    """Check the arguments of `solve`, before anything is drawn."""
    check_progress(progress)
    check_tail(tail)
    if not isinstance(settings, Settings):
        raise TypeError(f"settings must be certirl.Settings(…), got {shown(settings)}")
    source = as_log(source)
    moments = source if isinstance(source, Moments) else None
    origin = None if moments is not None else as_source(source)
    policy = as_policy(expert, source.n_actions, getattr(source, "action_names", ()))
    is_policy = policy.constant is None
    if is_policy and origin is None:
        raise TypeError("an expert that depends on the state needs transitions or a simulator: moments keep no states")
    discount = check_problem(discount, policy.constant or 0, source.n_actions)
    delta = None if delta is None else as_delta(delta)
    of_features = settings.features is not None
    if of_features and origin is None:
        raise TypeError("features are functions of states: pass transitions or a simulator, moments keep no states")
    if of_features and delta is not None:
        check_no_actions(settings.features)
    if of_features and origin is not None and not origin.has_terminal_states:
        check_no_terminal(settings.features)
    by_value = is_policy or of_features or (delta is None and origin is not None and origin.has_terminal_states)
    passed = settings.given() | {
        name: value
        for name, value in {
            "samples": samples,
            "trials": trials,
            "tail": tail,
            "components": components,
            "columns": columns,
        }.items()
        if value is not None
    }
    domain, several = source.rows.domain if origin is None else origin.domain, components is not None
    count = (SAMPLES if delta is None else PROOF_SAMPLES) if samples is None else as_samples(samples)
    asked = Request(
        source=origin,
        moments=moments,
        policy=policy,
        by_value=by_value,
        discount=discount,
        domain=domain,
        n_actions=source.n_actions,
        columns=columns,
        components=(),
        samples=count,
        trials=None if trials is None else as_trials(trials),
        delta=delta,
        tail=tail,
        progress=progress,
        settings=settings,
        rng=rng,
    )
    refused = _refused(asked)
    for name in passed:
        if name in refused:
            raise ValueError(refused[name])
    _check_combination(asked, several=several)
    if origin is not None and delta is None:  # before a proof it is an error
        fault = origin.noise_fault(most=min(count // 10, 1_000))
        if fault:
            warnings.warn(fault, stacklevel=3)
    if rng is not None:
        as_generator(rng)  # refused here, also where nothing is drawn
    parts: tuple[Component, ...] = ()
    each = list(columns) if isinstance(columns, list | tuple) else [columns]
    if basis is None and not by_value and all(isinstance(functions, Basis) for functions in each):
        basis = columns
    if several:
        parts = as_components(components, basis, domain)
    elif basis is not None:
        parts = as_basis(basis, domain).components
    if columns is not None and not parts and not by_value:
        as_count(columns, "columns", meaning="a whole number of functions of the state")
    if delta is not None and not several:
        check_box(domain)
    if tail is not None and columns is None:  # otherwise columns are chosen by the tail
        write = by_door("pass columns as well", "write --columns N, too")
        if is_number(tail):
            raise ValueError(f"the tail {tail} belongs to the columns it was computed for: {write}")
    if by_value and delta is None and origin is not None and not origin.is_log:
        _check_simulator(origin.data, count)
    return replace(asked, components=parts)


def _refused(asked: Request) -> dict[str, str]:
    """The keywords and settings that would be without effect, each with the sentence that says so."""
    is_policy, is_proof, refused = asked.policy.constant is None, asked.delta is not None, dict[str, str]()
    if asked.is_log or asked.source is None:
        refused |= {name: for_simulators(name) for name in ("samples", "paired", "trials")}
    if asked.is_log:
        refused["regret"] = "no more can be drawn from a log: leave regret out, the certificate states what is proved"
    if not is_proof:
        for name in ("tail", "tube", "regret"):
            refused[name] = (
                f"{setting(name)} is for a certificate: pass {setting('delta')} too, or leave {setting(name)} out"
            )
    by_state = "is for experts that depend on the state: leave it out for an expert of one action"
    if not is_policy:
        refused |= {name: without_switches(name) for name in ("tube", "regret")}
        refused["margin"] = f"{setting('margin')} {by_state}"
    if not asked.by_value:
        refused |= {name: f"{setting(name)} {by_state}" for name in ("smoothness", "trials")}
    elif asked.settings.features is not None:
        refused["smoothness"] = "smoothness is not for rewards of features, which are as smooth as these: leave it out"
    elif len(asked.domain) > MOST_COORDINATES:
        refused["smoothness"] = (
            f"{setting('smoothness')} is for up to {MOST_COORDINATES} coordinates, these states have "
            f"{len(asked.domain)}: leave it out"
        )
    if asked.by_value:
        names: tuple[str, ...] = ("objective", "form", "cover")
        why = "is for experts that always take one action: leave it out for a policy"
        if not is_policy:
            names = (*names, "components", *([] if is_proof else ["columns"]))
            of_features = asked.settings.features is not None
            what = "rewards of features" if of_features else "problems with terminal states"
            why = f"is not for {what}: leave it out"
        refused |= {name: f"{setting(name)} {why}" for name in names}
        if is_policy:
            refused["components"] = REFUSED["policy", "sum"]
        if is_policy and not is_proof:
            refused["columns"] = (
                f"{setting('columns')} is for the certificate of a policy: pass {setting('delta')} too, or leave it out"
            )
    return refused


def _check_simulator(simulator: Simulator, samples: int) -> None:
    """Refuse a simulator on a device, and numbers of samples with which the value form does not work."""
    if device_of(simulator) is not None:
        raise ValueError(
            "experts that depend on the state, and terminal states, need a simulator that works with NumPy arrays"
        )
    as_samples(samples, least=2 * FEWEST, most=MOST_BY_VALUE)


def _check_combination(asked: Request, *, several: bool) -> None:
    """Refuse combinations of settings that exclude each other."""
    source, settings, is_proof = asked.source, asked.settings, asked.delta is not None
    is_plain = settings.form in (None, FORMS[0]) and settings.cover is None and settings.slack is None
    if is_proof and source is None:
        raise ValueError(f"{NO_PROOF_FROM_MOMENTS}: leave {setting('delta')} out, or give the transitions instead")
    if is_proof and source is not None:
        source.check_without_terminal()
    if is_proof and not asked.by_value and not is_plain:
        names = f"{by_door('form, cover', setting('cover'))} and {setting('slack')}"
        raise ValueError(f"a certificate needs all constraints, without slack, at all states: leave {names} out")
    if several and source is None:
        raise ValueError("components need transitions or a simulator: moments keep one coordinate alone")
    if several and not is_plain:
        raise ValueError(
            "components are solved by least squares, with all constraints at all states: leave form, cover and slack "
            "out"
        )
    if settings.form == "mean":
        if source is None or source.is_log:
            raise ValueError("the mean form needs states drawn from the basis's weight: use least-squares for a log")
        if settings.paired:
            raise ValueError("the mean form draws the states of every action by themselves: leave paired out")
    if settings.cover is not None:
        as_radius(settings.cover, asked.domain)
