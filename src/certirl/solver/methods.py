"""The methods by which `solve` finds a reward: the program, the value form, the feature form; and soft experts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from certirl.data.source import Source
from certirl.fit.bellman import FORMS
from certirl.fit.drifts import EACH_ITS_OWN, FEWEST, Drifts
from certirl.fit.features import Preference
from certirl.fit.recover import OBJECTIVES, as_radius, check_slack
from certirl.fit.value_program import Margin, check_margin
from certirl.functions.cells import MOST_COORDINATES
from certirl.functions.features import Feature, check_features, check_no_terminal
from certirl.ground.domain import Array, as_axes
from certirl.ground.doors import as_flag, as_number, by_door, setting, shown
from certirl.ground.records import Record, internal
from certirl.proof.case import COUPLED

if TYPE_CHECKING:
    from certirl.solver.request import Request

MOST_STATES = 1_000_000  # transitions per action that are kept with the functions at their states
STATE = "state"  # R(s), the same for all actions
FOR_POLICIES = "is for experts that depend on the state: leave it out for an expert of one action"
FOR_ONE_ACTION = "is for experts that always take one action: leave it out for a policy"


@dataclass(frozen=True, kw_only=True)
class Program(Record):
    """A convex program over coefficients: for experts that always take one action, where no state is terminal.

    Attributes:
        objective: "least-variance" (the value function that the data determine best), "smoothest" (the smoothest R with
            0.8 of that margin over the noise), "l1" (the paper's ‖α‖₁) or "max-margin". If None
            the second on intervals without slack, else the first; for a proof the better of the first and "l1".
        form: of the estimate: "least-squares" or "mean" (the paper's, for simulators).
        cover: solve on the paper's cover of this radius instead of on the continuum.
        slack: price of a shortfall, for experts that are only nearly optimal.

    Example:
        >>> problem = certirl.problems.random_polynomial(seed=7)
        >>> asked = {"expert": 0, "discount": 0.7, "basis": certirl.Legendre(7), "rng": 0}
        >>> certirl.solve(problem, method=certirl.Program(objective="l1", form="mean"), **asked).stats.objective
        'l1'
    """

    objective: str | None = None
    form: str = FORMS[0]
    cover: float | None = None
    slack: float | None = None
    chooses_functions: ClassVar[bool] = True  # of rewards and of the state, together

    def __post_init__(self) -> None:
        for name, choices in (("objective", OBJECTIVES), ("form", FORMS)):
            value = getattr(self, name)
            if value not in choices and (name, value) != ("objective", None):
                raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {shown(value)}")
        if self.cover is not None:
            as_number(self.cover, "cover", least=0, strict=True, meaning="a radius")
        check_slack(self.slack)

    @internal
    def check(self, asked: Request, *, several: bool) -> None:
        """Refuse problems that the program does not solve, and fields that do not fit this one."""
        if asked.policy.constant is None:
            raise ValueError(f"method=certirl.Program(…) {FOR_ONE_ACTION}")
        if asked.source is not None and asked.source.has_terminal_states:
            raise ValueError("method=certirl.Program(…) is not for problems with terminal states: leave it out")
        if asked.drifts.are_shared:
            raise ValueError("method=certirl.Program(…) regresses each action by itself: leave it, or dynamics, out")
        is_plain = self.form == FORMS[0] and self.cover is None and self.slack is None
        names = f"{by_door('form, cover', setting('cover'))} and {setting('slack')}"
        if asked.delta is not None and not is_plain:
            raise ValueError(f"a certificate needs all constraints, without slack, at all states: leave {names} out")
        if several and not is_plain:
            raise ValueError(
                f"components are solved by least squares, with all constraints at all states: leave {names} out"
            )
        if self.form == "mean" and not asked.is_simulator:
            raise ValueError("the mean form needs states drawn from the basis's weight: use least-squares for a log")
        if self.form == "mean" and asked.paired:
            raise ValueError("the mean form draws the states of every action by themselves: leave paired out")
        if self.cover is not None:
            as_radius(self.cover, asked.domain)

    @internal
    def unused(self, asked: Request) -> dict[str, str]:
        """Why some keywords would be without effect, by name."""
        why = {"trials": f"{setting('trials')} {FOR_POLICIES}"}
        if asked.is_log and asked.delta is None:
            why["effects"] = (
                "the program needs transitions of every action: pass method=certirl.ValueForm(), or leave effects out"
            )
        if asked.source is None:
            why["components"] = "components need transitions or a simulator: moments keep one coordinate alone"
        return why


@dataclass(frozen=True, kw_only=True)
class ValueForm(Record):
    """Comparisons of actions at many states: for experts that depend on the state, and for terminal states.

    Attributes:
        margin: for an expert that depends on the state, the half-width of the tube beside a switch over which margins
            rise from 0 to 1, as a share of the box; or a function of states.
        smoothness: price of a rough V: of its terms, each times the square of its degree. By default 3·10⁻⁴ where
            effects are regressed from noisy data, and 0 elsewhere; where some ends are sought and others avoided, the
            one of both whose plan is nearer to the expert. Above 0, R is the smoothest of the rewards that errors of
            the regression cannot tell apart.
        slack: price of a shortfall, for experts that are only nearly optimal.
        costs: of actions: R(s, a) = r(s) − c_a is allowed, and used where a reward of the state alone leaves a gap that
            costs close. For experts that depend on the state, unless they avoid every terminal state.
        of: the coordinates that R depends on, by names or numbers; all if left out. V depends on all of them.

    Example:
        >>> room = certirl.problems.comfort()
        >>> asked = {"discount": 0.9, "expert": room.expert, "samples": 2_000, "rng": 2}
        >>> certirl.solve(room.dynamics, method=certirl.ValueForm(margin=0.1), **asked).status
        'validated'
    """

    margin: Margin = None
    smoothness: float | None = None
    slack: float | None = None
    costs: bool = True
    of: tuple[int | str, ...] | None = None
    chooses_functions: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_margin(self.margin)
        if self.smoothness is not None:
            as_number(self.smoothness, "smoothness", least=0, meaning="a price")
        check_slack(self.slack)
        as_flag(self.costs, "costs")

    @internal
    def check(self, asked: Request, *, several: bool) -> None:
        """Refuse problems that the value form does not solve, and fields that do not fit this one."""
        _check_states(asked, self.margin)
        for name in ("smoothness", "of"):
            if getattr(self, name) is not None and len(asked.domain) > MOST_COORDINATES:
                raise ValueError(
                    f"{setting(name)} is for up to {MOST_COORDINATES} coordinates, these states have "
                    f"{len(asked.domain)}: leave it out"
                )
        if self.of is not None and asked.delta is not None:
            raise ValueError(f"a proof is of a reward of all coordinates: leave {setting('of')} or delta out")
        self.coordinates(asked.origin)

    @internal
    def coordinates(self, source: Source) -> tuple[int, ...]:
        """The numbers of the coordinates that R depends on."""
        d = len(source.domain)
        of = as_axes(range(d) if self.of is None else self.of, d, name="of", names=source.coordinate_names)
        if not of:
            raise ValueError(f"{setting('of')} must name a coordinate that the reward depends on, got none")
        return of

    @internal
    def unused(self, asked: Request) -> dict[str, str]:
        """Why some keywords would be without effect, by name."""
        return _without_effect(asked, "the value form, as of problems with terminal states")


@dataclass(frozen=True)
class FeatureForm(Record):
    """Comparisons as in the value form, with R a sum of few functions that a person names: docs/features.md.

    Attributes:
        features: functions of states, or of states and an action, by name; ``"terminal"`` is built in.
        signs: −1 or 1 for features whose weights must not be positive or not be negative.
        guess: a designer's weights; as few of them as possible are changed.
        margin: as in `ValueForm`.
        slack: price of a shortfall, for experts that are only nearly optimal.

    Example:
        >>> room = certirl.problems.comfort()
        >>> asked = {"discount": 0.9, "expert": room.expert, "samples": 500, "rng": 0}
        >>> method = certirl.FeatureForm({"s²": lambda states: states[:, 0] ** 2}, signs={"s²": -1})
        >>> certirl.solve(room.dynamics, method=method, **asked).path.names
        ('s²',)
    """

    features: Mapping[str, Feature]
    signs: Mapping[str, int] | None = None
    guess: Mapping[str, float] | None = None
    margin: Margin = None
    slack: float | None = None
    chooses_functions: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_features(self.features)
        Preference.of(tuple(self.features), self.signs, self.guess)
        check_margin(self.margin)
        check_slack(self.slack)

    @internal
    def check(self, asked: Request, *, several: bool) -> None:
        """Refuse problems for which there are no rewards of these features."""
        _check_states(asked, self.margin)
        if not asked.origin.has_terminal_states:
            check_no_terminal(self.features)

    @internal
    def unused(self, asked: Request) -> dict[str, str]:
        """Why some keywords would be without effect, by name."""
        return _without_effect(asked, "rewards of features")


@dataclass(frozen=True, eq=False)
class SoftExpert(Record):
    """An expert who takes action a at state s with probability proportional to exp Q_a(s), in the unit of the reward.

    Q_a = R_a + γP_aV, V = log Σ exp Q_a. Every other expert of `solve` is taken to be exact; this one errs, the less
    the more it costs, and its decisions say how much worse the other actions are. In econometrics: dynamic discrete
    choice with logit errors.

    Attributes:
        decisions: a log of its decisions; None: the log that `solve` is called with, the expert's own, say.
        reference: the action whose reward is given, by number or name.
        reference_reward: this reward: a number, or a function of states.
        reward: "state" for a reward that is the same for all actions; then no reference is needed.
        tail: for bands, how far log-odds can be from combinations of the functions of ``solve(…, basis=…)``.

    Example:
        >>> walk = certirl.problems.soft_walk()
        >>> log = walk.log(episodes=400, steps=50, rng=0)
        >>> known = certirl.SoftExpert(reference=0, reference_reward=lambda states: walk.reward(states, 0))
        >>> solution = certirl.solve(log, discount=walk.discount, expert=known)
        >>> error = solution.reward([0.3, 0.5], 1) - walk.reward([0.3, 0.5], 1)
        >>> solution.status, bool((abs(error) < 4 * solution.standard_error([0.3, 0.5], 1)).all())
        ('estimated', True)
    """

    decisions: Any = None
    _: KW_ONLY
    reference: int | str = 0
    reference_reward: float | Callable[[Array], Any] = 0.0
    reward: str | None = None
    tail: float = 0.0

    def __post_init__(self) -> None:
        if self.reward not in (None, STATE):
            raise ValueError(f"reward must be None or {STATE!r}, got {shown(self.reward)}")
        if not callable(self.reference_reward):
            as_number(self.reference_reward, "reference_reward")
        if self.reward == STATE and self.reference_reward != 0:
            raise ValueError('with reward="state" no action has a reward of its own: leave reference_reward out')
        as_number(self.tail, "tail", least=0)


Method: TypeAlias = Program | ValueForm | FeatureForm


def usual_method(
    source: Source | None, *, is_constant: bool, drifts: Drifts = EACH_ITS_OWN
) -> type[Program] | type[ValueForm]:
    """The method that is taken if none is named; the source of moments is None."""
    if is_constant and not drifts.are_shared and (source is None or not source.has_terminal_states):
        return Program
    return ValueForm


def _check_states(asked: Request, margin: Margin) -> None:
    """Refuse moments, a margin without switches, a simulator on a device, and numbers of samples beyond the limits."""
    if asked.source is None:
        raise TypeError("rewards are compared at states: pass transitions or a simulator, moments keep no states")
    if margin is not None and asked.policy.constant is not None:
        raise ValueError(f"{setting('margin')} {FOR_POLICIES}")
    if asked.delta is None:
        asked.source.check_states(asked.samples, 2 * FEWEST, MOST_STATES)


def _without_effect(asked: Request, what: str) -> dict[str, str]:
    """Components, and columns without the proof that they are for."""
    if asked.policy.constant is None:
        columns = f"{setting('columns')} is for the certificate of a policy"
        why = {
            "components": COUPLED,
            "columns": f"{columns}: pass {setting('delta')} too, or leave it out",
        }
    else:
        why = {name: f"{setting(name)} is not for {what}: leave it out" for name in ("components", "columns")}
    return why if asked.delta is None else {"components": why["components"]}


def as_method(method: Any, source: Source | None, *, is_constant: bool, drifts: Drifts) -> Method:
    """The method, or the usual one for None."""
    if method is None:
        return usual_method(source, is_constant=is_constant, drifts=drifts)()
    if not isinstance(method, Program | ValueForm | FeatureForm):
        kinds = "certirl.Program(…), certirl.ValueForm(…) or certirl.FeatureForm(…)"
        raise TypeError(f"method must be {kinds}, got {shown(method)}")
    return method
