"""Which functions, how much noise, which discount: a few small trials, what each of them says, and which to take.

One thing is changed at a time: the functions of V first, then the process noise, then γ. Every trial is the walk of
`solve_policy` with little data, and its diagnostics decide. In one coordinate a small certificate forecasts another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from certirl.data.policy import Policy, as_policy
from certirl.data.simulator import as_generator, as_samples, check_simulator, periodic_of
from certirl.data.source import as_source
from certirl.data.transitions import Transitions
from certirl.fit.effects import live_states, next_states, value_basis
from certirl.functions.bases import Basis, Fourier, Legendre, as_basis
from certirl.ground.domain import as_domain
from certirl.ground.doors import as_number, as_probability, shown
from certirl.proof.certify_policies import allowed_tube, certify
from certirl.proof.policy_bounds import bands
from certirl.proof.policy_certificate import PolicyCertificate, read
from certirl.proof.weigh import MOST_COORDINATES
from certirl.solver.prove_policy import MOST_COLUMNS
from certirl.solver.solution import DISTRUST, Solution
from certirl.solver.solve_policy import FEWEST, MOST_SAMPLES, solve_policy

SIZES, MOST = (5, 9, 15, 25), (30, 90, 220)  # functions tried in one coordinate; at most, in several
NOISES, DISCOUNTS = (0.0, 0.03, 0.1), (0.9, 0.99)
WORTH, UNEXPLAINED = 0.01, 0.05  # shares of states: worth more functions; too many to call the expert explained
ADDS_UP = 0.5  # of the margin: what R's error may add up to
FORECAST, DELTA, LADDER = 20_000, 0.05, (100_000, 300_000, 1_000_000)  # data behind a forecast; its δ; fresh data
MEDIAN = 0.9539  # of how far two normal numbers of variance 1 are apart
# Gaussian noise of σ, in units of half the width, leaves about e^(−d²σ²/2) beyond degree d, unless the drift stretches:
# this over σ is the degree at which 10⁻⁴ is left.
SMOOTHS = float(np.sqrt(2 * np.log(1e4)))
HEADER = ["V in", "noise", "γ", "unexplained", "ties", "no data", "model", "γρ(T̂)"]
HEADER += ["R misses", "plans so", "certificate"]
STILL = "Without noise there is no density: an expert can be validated or contradicted there, never certified."


@dataclass(frozen=True, eq=False)
class Trial:
    """One way to set things, and what came of it.

    Attributes:
        basis: the functions of V.
        noise: process noise as a share of the widths; None if the simulator was taken as it is.
        solution: of little data.
        certificate: what a certificate would need, in words.
        forecast: fresh transitions per action that it should need, if the tail is zero; None if there is no forecast.
    """

    basis: Basis
    noise: float | None
    solution: Solution
    certificate: str = "-"
    forecast: int | None = None

    @property
    def discount(self) -> float:
        """γ."""
        return self.solution.discount

    @property
    def unexplained(self) -> float:
        """The share of states at which some other action looks better than the expert's."""
        return self.solution.stats.unexplained

    @property
    def agrees(self) -> float | None:
        """The share of fresh states at which planning on R alone does as the expert; None if that was not tried."""
        share = self.solution.stats.planned_share
        return None if share is None else share.count / max(share.n, 1)

    @property
    def trusted(self) -> bool:
        """The estimated effects are good enough to speak of."""
        told = self.solution.stats
        return told.noiseless or told.model_error <= DISTRUST

    def cells(self) -> list[str]:
        """The row of the table."""
        told, noise = self.solution.stats, "own" if self.noise is None else f"{self.noise:g}"
        shares = [f"{share:.1%}" for share in (told.unexplained, told.ties, told.uncovered)]
        numbers = [f"{told.model_error:.2g}", f"{told.growth:.2f}", f"{told.residual:.2g}"]
        numbers += ["-" if self.agrees is None else f"{self.agrees:.1%}"]
        return [str(self.basis).split(" (")[0], noise, f"{self.discount:g}", *shares, *numbers, self.certificate]


@dataclass(frozen=True, eq=False)
class Advice:
    """What to take, and why.

    Attributes:
        trials: all of them, in order.
        best: the one to take.
        reasons: a sentence for every choice.
        simulator: with the noise of the best trial.
    """

    trials: tuple[Trial, ...]
    best: Trial
    reasons: tuple[str, ...]
    simulator: Any

    @property
    def settings(self) -> dict[str, Any]:
        """Of `solve`: ``certirl.solve(advice.simulator, expert=expert, rng=0, **advice.settings)``."""
        return {"basis": self.best.basis, "discount": self.best.discount}

    def __str__(self) -> str:
        rows = [HEADER, *(trial.cells() for trial in self.trials)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        marks = ["  ", *("* " if trial is self.best else "  " for trial in self.trials)]
        table = [mark + "  ".join(map(str.ljust, row, widths)).rstrip() for mark, row in zip(marks, rows, strict=True)]
        noise = "" if self.best.noise is None else f", noise {self.best.noise:g}"
        first = f"Take {self.best.basis}{noise}, γ = {self.best.discount:g}."
        return "\n".join([first, *(f"  {reason}" for reason in self.reasons), *table])


def advise(
    simulator: Any,
    expert: Any,
    *,
    discounts: Sequence[float] | float = DISCOUNTS,
    noises: Sequence[float] | None = None,
    bases: Sequence[Basis] | None = None,
    samples: int = 4_000,
    tube: float | None = None,
    rng: Any = None,
) -> Advice:
    """Try a few settings of `solve` for an expert who depends on the state, and say which to take.

    Args:
        simulator: a simulator; or a function of the process noise that makes one. Those of `certirl.gym` can change
            their noise themselves; any other is taken as it is.
        expert: a function of states, as for `solve`.
        discounts: γ to choose from.
        noises: standard deviations of process noise to choose from, as shares of the widths.
        bases: functions of V to choose from; by rule if left out, frequencies for coordinates that go around.
        samples: states, or transitions per action, of every trial.
        tube: the half-width of the certificate that is forecast; as in `certify`.
        rng: a seed or Generator.
    """
    if isinstance(simulator, Transitions):
        raise TypeError("advise tries things out and needs a simulator; certirl.coverage says what a log can tell")
    gammas = sorted(as_probability(one, "discounts") for one in _several(discounts, "discounts"))
    made = _maker(simulator, noises)
    asked_noises = NOISES if noises is None else _several(noises, "noises")
    levels: list[Any] = [None]
    if made is not None:
        levels = sorted(as_number(one, "noises", least=0) for one in asked_noises)
    bases = None if bases is None else _several(bases, "bases")
    if not gammas or not levels or (bases is not None and not len(bases)):
        raise ValueError("advise needs at least one discount, one noise and one basis to choose from")
    as_samples(samples, least=FEWEST, most=MOST_SAMPLES)
    sources = {noise: simulator if made is None else made(noise) for noise in levels}
    first, trials, generator = sources[levels[0]], list[Trial](), as_generator(rng, "advise")
    check_simulator(first)
    domain, policy = as_domain(first.domain), as_policy(expert, first.n_actions)
    around, alone = periodic_of(first), len(domain) == 1
    if tube is not None and not alone:
        raise ValueError("tube is for the forecast of a certificate, made in one coordinate only: leave tube out")
    allowed_tube(tube, domain)
    if bases is None:
        family = Fourier if around else Legendre
        bases = [family(size) for size in SIZES] if alone else [value_basis(domain, around, most) for most in MOST]

    def attempt(basis: Basis, noise: Any, discount: float) -> Trial:
        form: dict[str, Any] = {"basis": basis, "samples": samples, "rng": generator.spawn(1)[0], "progress": False}
        trials.append(Trial(basis, noise, solve_policy(sources[noise], policy, discount=discount, **form)))
        return trials[-1]

    few_first = sorted((as_basis(one, domain, name="bases") for one in bases), key=lambda one: one.size)
    best, reasons = _best_basis([attempt(basis, levels[0], gammas[0]) for basis in few_first])
    if alone:
        tried = [best, *(attempt(best.basis, noise, gammas[0]) for noise in levels[1:])]
        asked = [_forecast(trial, sources[trial.noise], policy, tube, generator.spawn(1)[0]) for trial in tried]
        trials = [asked[tried.index(trial)] if trial in tried else trial for trial in trials]
        best, why = _best_noise(asked)
    else:
        why = (_in_several_coordinates(len(domain), seen=best.solution.stats.noiseless),)
    best, last = _best_discount([best, *(attempt(best.basis, best.noise, gamma) for gamma in gammas[1:])])
    return Advice(tuple(trials), best, (*reasons, *why, *last), sources[best.noise])


def _in_several_coordinates(dimension: int, *, seen: bool) -> str:
    """What can be proved where no forecast is made."""
    if seen:
        return "Without noise there is no density, so nothing can be certified."
    if dimension > MOST_COORDINATES:
        return f"Certificates are for {MOST_COORDINATES} coordinates at most, got {dimension}."
    return "Certificates are not forecast in several coordinates: ask certirl.solve with delta, tail and columns."


def _several(values: Any, name: str) -> Sequence[Any]:
    """One value, or a list of them."""
    if isinstance(values, str):
        raise TypeError(f"{name} must be a list to choose from, got {shown(values)}")
    return list(values) if isinstance(values, Iterable) else [values]


def _maker(simulator: Any, noises: Sequence[float] | None) -> Callable[[Any], Any] | None:
    """Noise to a simulator with it; None if this one is as it is."""
    if callable(simulator) and (isinstance(simulator, type) or not hasattr(simulator, "sample")):
        return simulator
    found = getattr(simulator, "with_noise", None)
    if found is None and noises is not None:
        raise ValueError(f"{type(simulator).__name__} cannot change its noise: pass a function that makes it from one")
    return found


def _forecast(trial: Trial, source: Any, policy: Policy, tube: float | None, rng: np.random.Generator) -> Trial:
    """With what a certificate should need, from a small one."""
    columns = trial.solution.columns
    if as_source(source).has_terminal_states:
        return replace(trial, certificate="terminal states")
    if trial.solution.stats.noiseless or not isinstance(columns, Basis):
        return replace(trial, certificate="no density")
    states = live_states(source, 1_000, rng)
    apart = np.abs(next_states(source, states, rng) - next_states(source, states, rng))
    noise = float(np.median(apart)) / MEDIAN / (np.ptp(columns.domain) / 2)  # in which angles that wrap do not count
    columns = columns.resized(max(columns.size, int(np.ceil(SMOOTHS / max(noise, 1e-3)))))  # held-out data miss a tail
    if columns.size > MOST_COLUMNS:
        return replace(trial, certificate=f"needs {columns.size} columns")
    asked: dict[str, Any] = {"discount": trial.discount, "samples": FORECAST, "rng": rng, "progress": False}
    reward = solve_policy(source, policy, basis=trial.basis, **asked).reward
    small = certify(reward, source, expert=policy, columns=columns, tube=tube, **asked)
    assert isinstance(small, PolicyCertificate)
    for n in LADDER:
        found = bands(small.surrogate, small.evidence.forecast(n / small.samples), delta=DELTA, tail=0.0)
        if read(small.surrogate, found, small.lookup, small.allowed).margin > 0:
            return replace(trial, forecast=n, certificate=f"about {n:,}")
    return replace(trial, certificate=f"beyond {LADDER[-1]:,}")


def _best_basis(tried: list[Trial]) -> tuple[Trial, tuple[str, ...]]:
    """The fewest functions that leave hardly more unexplained than any."""
    trusted = [trial for trial in tried if trial.trusted]
    if not trusted:
        best = min(tried, key=lambda trial: trial.solution.stats.model_error)
        off = best.solution.stats.model_error
        return best, (f"No trial can be trusted, effects are off by {off:.2g} of an action's: allow more samples.",)
    least = min(trial.unexplained for trial in trusted)
    best = next(trial for trial in trusted if trial.unexplained <= least + WORTH)
    words = [f"{best.basis} leaves {best.unexplained:.1%} of states unexplained"]
    words += [f"{one.basis} left {one.unexplained:.1%}" for one in tried if one.basis.size < best.basis.size][-1:]
    words += [f"more functions gain less than {WORTH:.0%}"] if best is not trusted[-1] else []
    if best.unexplained > UNEXPLAINED:
        words += ["so the expert contradicts itself there, or V needs other functions: print solve(…).witness"]
    return best, ("; ".join(words) + ".",)


def _best_noise(tried: list[Trial]) -> tuple[Trial, tuple[str, ...]]:
    """The least noise with which a certificate is within reach; else the first."""
    told, within = (STILL,) * tried[0].solution.stats.noiseless, [t for t in tried if t.trusted and t.forecast]
    if not within:
        return tried[0], (*told, "No noise that was tried puts a certificate within reach.") if len(tried) > 1 else told
    best = within[0]
    noise = "Its own noise" if best.noise is None else f"Noise {best.noise:g}"
    whose = ", and it would speak of the dynamics with that noise" if best.noise else ""
    asks = f"{best.certificate} fresh transitions per action at γ = {best.discount:g} and with a tail near zero"
    return best, (*told, f"{noise} puts a certificate within reach, {asks}{whose}.")


def _best_discount(tried: list[Trial]) -> tuple[Trial, tuple[str, ...]]:
    """The largest γ at which planning on R still does as the expert, or at which what R misses does not add up."""
    if len(tried) == 1:
        return tried[0], ()
    known = [trial.agrees for trial in tried if trial.agrees is not None]
    if len(known) == len(tried):
        best = [trial for trial, share in zip(tried, known, strict=True) if share >= max(known) - WORTH][-1]
        shares = ", ".join(f"{trial.agrees:.1%} of states at γ = {trial.discount:g}" for trial in tried)
        return best, (f"Planning on R alone does as the expert at {shares}: the largest that keeps this up.",)
    sums = [trial.solution.stats.residual / (1 - trial.discount) for trial in tried]  # in units of the margin
    last = max((i for i, total in enumerate(sums) if total <= ADDS_UP), default=0)
    return tried[last], (f"At γ = {tried[last].discount:g} what R misses adds up to {sums[last]:.2g} of the margin.",)
