"""Soft experts: whether bands contain the rewards, how wide they are, and how near the estimates come.

    python experiments/soft.py [--only coverage|width|accuracy] [--fast] [--workers N] [--seed S] [--out DIR]

*Coverage*: random soft experts whose log-odds are polynomials of the state, in one and two coordinates, two to four
actions; decisions are all steps of their own episodes, which depend on each other, and transitions are the same rows
(known noise), those of a simulator (columns and a tail) or independent rows of their own. The rewards that this makes
true are solved for by quadrature, without any basis of the library, and compared with `solution.band` on a dense grid.
*Width*: half the width of the band in the middle of `certirl.problems.soft_walk`, whose log-odds are made polynomials
of degree 3 or 4, beside 1.96 standard errors, against the number of decisions. *Accuracy*: the rewards of
`certirl.problems.soft_walk` itself from its own episodes, beside maximum entropy on bins, which is told the same.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import ndtr

import certirl
import study
from certirl import plots

PLACES = {1: 60, 2: 26}  # of the quadrature between the ends, along each coordinate
DENSE = {1: 201, 2: 41}  # states along each coordinate at which a band is compared with the truth
DELTA, EPISODE = 0.05, 50  # δ; steps of an episode of the walk
MIDDLE = np.linspace(-0.8, 0.8, 81)  # where widths are measured
SEEN = np.linspace(-0.9, 0.9, 721)  # where estimates are compared with the truth
SHRUNK = (0.5, 0.25, 0.1)  # shares of the width: how often the truth would be outside then
OWN, ORDER, DRAWN, ROWS = "known noise, own episodes", "known noise, one trajectory", "columns, simulator", "columns"
PLANE = "columns, simulator, two coordinates"
KINDS = (OWN, DRAWN, ROWS, PLANE, ORDER, DRAWN, ROWS, PLANE)


@dataclass(frozen=True)
class Arguments:
    """How many random experts, and numbers of steps with their repetitions."""

    runs: int = 520
    own: tuple[int, ...] = (10_000, 20_000, 40_000, 80_000, 160_000, 400_000)
    drawn: tuple[int, ...] = (20_000, 40_000, 100_000, 200_000, 400_000)
    repeats: int = 3
    steps: tuple[int, ...] = (2_000, 20_000, 200_000)
    seeds: int = 5
    whole: int = 2_000_000
    seed: int = 0


FAST = Arguments(runs=6, own=(40_000,), drawn=(40_000,), repeats=1, steps=(2_000,), seeds=1, whole=100_000)


@dataclass(frozen=True, eq=False)
class Expert:
    """A soft expert with log-odds in a basis, on [−1, 1] or a square: every coordinate moves by itself.

    The next value of a coordinate is offset + slope·value with normal noise, clipped to [−1, 1] or drawn again.
    """

    basis: Any  # of the log-odds
    theta: Any  # their coefficients, 0 for action 0 ``[A, K]``
    offsets: Any  # ``[A, d]``
    slope: float
    std: float
    discount: float
    clipped: bool = True
    thread_safe = True

    @property
    def n_actions(self) -> int:
        """A."""
        return len(self.theta)

    @property
    def dimension(self) -> int:
        """Coordinates."""
        return int(self.offsets.shape[1])

    @property
    def domain(self) -> Any:
        """The box."""
        return ((-1.0, 1.0),) * self.dimension

    def odds(self, states: Any) -> Any:
        """Log-odds ``[n, A]``."""
        return self.basis.values(states) @ self.theta.T

    def sample(self, states: Any, action: Any, rng: np.random.Generator) -> Any:
        """Next states, for one action or one of each state."""
        mean = self.slope * states + self.offsets[action]
        after = mean + self.std * rng.normal(size=states.shape)
        if self.clipped:
            return np.clip(after, -1.0, 1.0)
        while (beyond := np.abs(after) > 1).any():
            after[beyond] = mean[beyond] + self.std * rng.normal(size=int(beyond.sum()))
        return after

    def decide(self, states: Any, rng: np.random.Generator) -> Any:
        """Actions."""
        chances = np.exp(self.odds(states))
        chances /= chances.sum(axis=1, keepdims=True)
        return (rng.random(len(states))[:, None] > np.cumsum(chances, axis=1)[:, :-1]).sum(axis=1)

    def log(
        self, episodes: int, steps: int, rng: np.random.Generator, *, independent: bool | None = None
    ) -> certirl.Transitions:
        """Episodes from states that are drawn evenly, one after the other; or independent rows, or one trajectory."""
        numbers = np.repeat(np.arange(episodes), steps) if independent is None else None
        settings: dict[str, Any] = {"episodes": numbers, "independent": independent}
        states, rows = rng.uniform(-1, 1, (episodes, self.dimension)), []
        for _ in range(steps):
            actions = self.decide(states, rng)
            after = self.sample(states, actions, rng)
            rows.append((states, actions, after))
            states = after
        parts = [np.stack(part, axis=1).reshape(episodes * steps, -1) for part in zip(*rows, strict=True)]
        start, actions, after = parts[0], parts[1][:, 0], parts[2]
        return certirl.Transitions(start, actions, after, self.domain, self.n_actions, **settings)

    def rewards(self, states: Any) -> Any:
        """R_a − r_0 of every action at states ``[n, d]``, r_0 being a number: ``[A, n]``."""
        ahead = [self._law(states, action) @ self._value for action in range(self.n_actions)]
        return np.stack([self.odds(states)[:, a] + self.discount * (ahead[0] - each) for a, each in enumerate(ahead)])

    @cached_property
    def _places(self) -> tuple[Any, Any]:
        places, weights = np.polynomial.legendre.leggauss(PLACES[self.dimension])
        return np.concatenate([[-1.0], places, [1.0]]), np.concatenate([[0.0], weights, [0.0]])

    @cached_property
    def _value(self) -> Any:
        places = self._places[0]
        nodes = np.stack(np.meshgrid(*[places] * self.dimension, indexing="ij"), axis=-1).reshape(-1, self.dimension)
        cost = np.log(np.exp(self.odds(nodes)).sum(axis=1))
        return np.linalg.solve(np.eye(len(nodes)) - self.discount * self._law(nodes, 0), cost)

    def _law(self, states: Any, action: int) -> Any:
        """What values at the places of the quadrature count for in means over next states."""
        places, weights = self._places
        each = []
        for axis in range(self.dimension):
            mean = self.slope * states[:, axis] + self.offsets[action, axis]
            z = (places - mean[:, None]) / self.std
            rows = np.exp(-(z**2) / 2) / (np.sqrt(2 * np.pi) * self.std) * weights
            if self.clipped:
                rows[:, 0], rows[:, -1] = ndtr(z[:, 0]), ndtr(-z[:, -1])
            each.append(rows / rows.sum(axis=1, keepdims=True))
        return reduce(lambda one, two: (one[:, :, None] * two[:, None]).reshape(len(one), -1), each)


def random_expert(seed: int, kind: str) -> Expert:
    """A random soft expert."""
    rng = np.random.default_rng([seed, 26])
    plane, actions = kind == PLANE, int(rng.integers(2, 5))
    side = certirl.Legendre(2 if plane else int(rng.integers(2, 4)))
    basis = certirl.product(side, side) if plane else side
    theta = rng.normal(size=(actions, basis.size)) * 0.5
    theta[0] = 0
    return Expert(
        basis,
        theta,
        offsets=rng.uniform(-0.3, 0.3, (actions, 1 + plane)),
        slope=float(rng.uniform(0.3, 0.6 if plane else 0.8)),
        std=float(rng.uniform(0.5, 0.7) if plane else rng.uniform(0.3, 0.5)),
        discount=float(rng.uniform(0.4, 0.9)),
    )


def judge(task: list[Any]) -> dict[str, Any]:
    """One random soft expert, its band against the truth."""
    seed, kind = task
    rng, expert = np.random.default_rng([seed, 27]), random_expert(seed, kind)
    steps, samples = int(10 ** rng.uniform(3.6, 4.8)), int(10 ** rng.uniform(3.9, 4.9))
    episodes, length = (1, min(steps, 10_000)) if kind == ORDER else (steps // EPISODE, EPISODE)
    log, source = expert.log(episodes, length, rng, independent=False if kind == ORDER else None), None
    asked: dict[str, Any] = {}
    if kind in (OWN, ORDER):
        asked = {"dynamics": certirl.dynamics.AffineGaussian(expert.std)}
    else:
        tail = certirl.dynamics.GaussianNoise(expert.std, slope=expert.slope)
        asked = {"columns": columns_for(tail, expert.dimension), "tail": tail, "rng": seed}
    if kind in (DRAWN, PLANE):
        source = expert
        asked["samples"] = samples
    if kind == ROWS:
        log = expert.log(2 * samples, 1, rng, independent=True)
    asked |= {"basis": expert.basis, "delta": DELTA, "discount": expert.discount}
    soft = certirl.SoftExpert(None if source is None else log, reference=0)
    solution = certirl.solve(log if source is None else source, expert=soft, **asked)
    side = np.linspace(-1, 1, DENSE[expert.dimension])
    states = np.stack(np.meshgrid(*[side] * expert.dimension, indexing="ij"), axis=-1).reshape(-1, expert.dimension)
    truth, far, half = expert.rewards(states), 0.0, []
    for action in range(1, expert.n_actions):
        low, high = solution.band(states, action)
        if np.isfinite(high - low).all():
            far = max(far, float((np.abs(truth[action] - (low + high) / 2) / ((high - low) / 2)).max()))
            half.append(float(np.median(high - low)) / 2)
    return {
        "kind": kind,
        "actions": expert.n_actions,
        "decisions": len(log),
        "bounded": bool(half),
        "missed": far > 1,
        "farthest": far,
        "half width": float(np.median(half)) if half else None,
    }


def columns_for(tail: Any, dimension: int) -> Any:
    """As few columns as leave a tail of 0.0003 on an interval, 0.002 on a square."""
    sizes = range(5, 30)
    if dimension == 1:
        return next(basis for k in sizes if tail.number(basis := certirl.Legendre(k)) < 3e-4)
    each = (certirl.product(certirl.Legendre(k), certirl.Legendre(k)) for k in sizes)
    return next(basis for basis in each if tail.number(basis) < 2e-3)


def coverage(arguments: Arguments, runner: study.Runner) -> dict[str, Any]:
    """Whether bands contain the rewards at all states."""
    tasks = [[arguments.seed + i, KINDS[i % len(KINDS)]] for i in range(arguments.runs)]
    runs = runner(judge, tasks, unit="logs")
    kinds = {kind: [run for run in runs if run["kind"] == kind] for kind in dict.fromkeys(KINDS)}
    return {"delta": DELTA, "all": counted(runs)} | {kind: counted(own) for kind, own in kinds.items() if own}


def counted(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Of some logs how many have a band, how many of these miss the truth, and how near the others come to it."""
    bounded = [run for run in runs if run["bounded"]]
    far = np.array([run["farthest"] for run in bounded] or [0.0])
    return {
        "logs": len(runs),
        "with a band": len(bounded),
        "missed": sum(run["missed"] for run in bounded),
        "largest error over half the width": float(far.max()),
        "its median": float(np.median(far)),
        "missed by bands of a share of the width": {f"{share:g}": int((far > share).sum()) for share in SHRUNK},
        "half width, median": float(np.median([run["half width"] for run in bounded] or [np.nan])),
    }


def walk_with(size: int, *, clipped: bool) -> Expert:
    """`soft_walk` with log-odds that are made polynomials, by least squares."""
    walk, basis = certirl.problems.soft_walk(clipped=clipped), certirl.Legendre(size)
    states = np.linspace(-1, 1, 2001)[:, None]
    odds = np.log(walk.chances(states))
    theta = np.linalg.lstsq(basis.values(states), odds - odds[:, :1], rcond=None)[0].T
    return Expert(basis, theta, np.array(walk.drifts)[:, None], walk.pull, walk.std, walk.discount, clipped)


def measure(task: list[Any]) -> dict[str, Any]:
    """The band of one log in the middle of the walk."""
    what, size, steps, seed = task
    rng, known = np.random.default_rng([seed, steps, 28]), what == OWN
    expert = walk_with(size, clipped=known)
    log = expert.log(steps // EPISODE, EPISODE, rng)
    source: Any = log
    soft, asked = certirl.SoftExpert(reference=0), dict[str, Any]()
    if known:
        asked = {"dynamics": certirl.dynamics.AffineGaussian(expert.std)}
    else:
        asked = {"columns": certirl.Legendre(21), "tail": tail_of(expert), "samples": steps, "rng": seed}
        source, soft = expert, certirl.SoftExpert(log, reference=0)
    solution = certirl.solve(source, discount=expert.discount, expert=soft, basis=expert.basis, delta=DELTA, **asked)
    return {"what": what, "functions": size, "steps": steps} | widths(solution, expert)


def tail_of(expert: Expert) -> Any:
    """What is declared of the walk whose noise is drawn again."""
    return certirl.dynamics.GaussianNoise(expert.std, slope=expert.slope, truncated=True)


def widths(solution: Any, expert: Expert) -> dict[str, Any]:
    """Half the width of a band in the middle, its reasons, and 1.96 standard errors: medians."""
    truth, band, sides, errors, reasons = expert.rewards(MIDDLE[:, None]), solution.proof, [], [], []
    inside = True
    for action in range(1, expert.n_actions):
        low, high = solution.band(MIDDLE, action)
        inside &= bool(((low <= truth[action]) & (truth[action] <= high)).all())
        sides.append((high - low) / 2)
        errors.append(1.96 * solution.standard_error(MIDDLE, action))
        reasons.append(band.losses(MIDDLE[:, None], action))
    each = {name: np.median([reason[name] for reason in reasons]) for name in reasons[0]}
    return {"half width": np.median(sides), "asymptotic": np.median(errors), "contains": inside, "of which": each}


def measure_rows(task: list[Any]) -> dict[str, Any]:
    """The band by columns from one log of its own episodes: decisions of a tenth of them, a row of each other one.

    The row is the first with an action that was named beforehand for its episode: rows of different episodes are
    independent, and the decisions are of other episodes than the rows.
    """
    size, total, steps, seed = task
    rng, expert = np.random.default_rng([seed, steps, 29]), walk_with(size, clipped=False)
    episodes = total // steps
    log = expert.log(episodes, steps, rng)
    named = log.actions.reshape(episodes, steps) == (np.arange(episodes) % expert.n_actions)[:, None]
    numbers = np.arange(episodes)[named.any(axis=1)]
    decides = np.arange(episodes) % 10 == 0
    numbers = numbers[~decides[numbers]]
    rows = numbers * steps + named[numbers].argmax(axis=1)
    source = certirl.Transitions(
        log.states[rows], log.actions[rows], log.next_states[rows], log.domain, expert.n_actions, independent=True
    )
    soft = certirl.SoftExpert(log.where(np.repeat(decides, steps)), reference=0)
    asked: dict[str, Any] = {"basis": expert.basis, "delta": DELTA, "columns": certirl.Legendre(17)}
    solution = certirl.solve(source, discount=expert.discount, expert=soft, tail=tail_of(expert), rng=seed, **asked)
    return {"steps of an episode": steps, "rows of each action": source.counts.tolist()} | widths(solution, expert)


def width(arguments: Arguments, runner: study.Runner) -> study.Findings:
    """How wide bands are, against the number of steps."""
    seeds = range(arguments.seed, arguments.seed + arguments.repeats)
    tasks = [[OWN, size, n, seed] for size in (4, 5) for n in arguments.own for seed in seeds]
    tasks += [[DRAWN, 5, n, seed] for n in arguments.drawn for seed in seeds]
    runs, lines = runner(measure, tasks, unit="logs"), []
    for what, size in ((OWN, 4), (OWN, 5), (DRAWN, 5)):
        for n in arguments.drawn if what == DRAWN else arguments.own:
            own = [run for run in runs if [run["what"], run["functions"], run["steps"]] == [what, size, n]]
            lines.append({"what": what, "degree of the log-odds": size - 1, "steps": n} | medians(own))
    rows = runner(measure_rows, [[5, arguments.whole, steps, arguments.seed] for steps in (50, 20, 10, 5)], unit="logs")
    summary = {"delta": DELTA, "bands": lines, f"columns, own {arguments.whole:,} steps": rows}
    return study.Findings(summary, [], drawn(lines), SENTENCE)


def medians(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Over logs; a band that is not bounded counts as infinite."""

    def median(values: list[Any]) -> float:
        return float(np.median([np.inf if value is None else value for value in values]))

    numbers = {name: median([run[name] for run in runs]) for name in ("half width", "asymptotic")}
    reasons = {name: median([run["of which"].get(name) for run in runs]) for name in runs[0]["of which"]}
    return numbers | {
        "contain the truth": f"{sum(run['contains'] for run in runs)} of {len(runs)}",
        "of which": reasons,
    }


def drawn(lines: list[dict[str, Any]]) -> Any:
    """The picture: half the width against the number of steps, dashed what it would be by standard errors."""
    figure, axes = plots.panels(1, 1, size=(6.2, 4.2))
    ax, names = axes[0, 0], dict.fromkeys((line["what"], line["degree of the log-odds"]) for line in lines)
    for colour, (what, degree) in zip(("C0", "C1", "C2"), names, strict=False):
        own = [line for line in lines if (line["what"], line["degree of the log-odds"]) == (what, degree)]
        n = [line["steps"] for line in own]
        ax.loglog(n, [line["half width"] for line in own], "o-", color=colour, label=f"{what}, degree {degree}")
        ax.loglog(n, [line["asymptotic"] for line in own], "--", color=colour)
    ax.plot([], [], "k--", label="1.96 standard errors, at each state by itself")
    ax.set(
        xlabel="decisions (with a simulator as many transitions of each action)",
        ylabel="half width, median",
        ylim=(0.01, 20),
    )
    ax.legend(fontsize=8)
    return figure


class Bins:
    """Maximum entropy on bins, the reward of action 0 being given: the likeliest rewards of all others in each bin.

    The policy is that of soft value iteration with the dynamics as counted between bins.
    """

    def __init__(self, count: int, log: certirl.Transitions, given: Any, discount: float) -> None:
        self.count, self.discount, A = count, discount, log.n_actions
        here, after = self.of(log.states), self.of(log.next_states)
        self.law = np.full((A, count, count), 1e-3 / count)
        np.add.at(self.law, (log.actions, here, after), 1.0)
        self.law /= self.law.sum(axis=2, keepdims=True)
        self.taken = np.zeros((count, A))
        np.add.at(self.taken, (here, log.actions), 1.0)
        middles = -1 + (np.arange(count) + 0.5) * 2 / count
        self.rewards, self.value = np.tile(given(middles)[:, None], (1, A)), np.zeros(count)
        start = self.rewards[:, 1:].ravel()
        self._loss(minimize(self._loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 2000}).x)

    def of(self, states: Any) -> Any:
        """The bins of states."""
        return np.clip(((states[:, 0] + 1) / 2 * self.count).astype(int), 0, self.count - 1)

    def __call__(self, states: Any, action: int) -> Any:
        """The reward."""
        return self.rewards[self.of(states), action]

    def _loss(self, free: Any) -> tuple[float, Any]:
        """Minus the log-likelihood, with a small ridge, and its slope."""
        self.rewards[:, 1:] = free.reshape(self.count, -1)
        for _ in range(100):  # Newton's method for V = log Σ exp Q
            utilities = self.rewards + self.discount * (self.law @ self.value).T
            top = utilities.max(axis=1)
            soft = top + np.log(np.exp(utilities - top[:, None]).sum(axis=1))
            policy = np.exp(utilities - soft[:, None])
            inner = np.eye(self.count) - self.discount * np.einsum("na,ank->nk", policy, self.law)
            step = np.linalg.solve(inner, soft - self.value)
            self.value = self.value + step
            if np.abs(step).max() < 1e-10:
                break
        total = float((self.taken * (utilities - soft[:, None])).sum())
        direct = self.taken - self.taken.sum(axis=1, keepdims=True) * policy
        later = np.linalg.solve(inner.T, self.discount * np.einsum("na,ank->k", direct, self.law))
        slope = (direct + policy * later[:, None])[:, 1:].ravel()
        ridge = 1e-3
        return ridge / 2 * float(free @ free) - total, ridge * free - slope


def estimate(task: list[Any]) -> dict[str, Any]:
    """Errors of the rewards of the walk from one log of its own episodes."""
    steps, seed = task
    walk = certirl.problems.soft_walk()
    log = walk.log(episodes=steps // EPISODE, steps=EPISODE, rng=seed)

    def given(states: Any) -> Any:
        return walk.reward(states, 0)

    soft = certirl.SoftExpert(reference=0, reference_reward=given)
    fixed: dict[str, Any] = {"basis": certirl.Legendre(5), "columns": certirl.Legendre(7)}
    found: dict[str, Any] = {
        "certirl": certirl.solve(log, discount=walk.discount, expert=soft).reward,
        "certirl, degrees of the prototype": certirl.solve(log, discount=walk.discount, expert=soft, **fixed).reward,
    }
    found |= {f"{count} bins": Bins(count, log, given, walk.discount) for count in (20, 50)}
    errors = {}
    for name, reward in found.items():
        off = np.stack([reward(SEEN[:, None], a) - walk.reward(SEEN, a) for a in range(1, walk.n_actions)])
        errors[name] = {"rms": np.sqrt(np.mean(off**2)), "largest": np.abs(off).max()}
    return {"steps": steps, "errors": errors}


def accuracy(arguments: Arguments, runner: study.Runner) -> dict[str, Any]:
    """How near estimated rewards come to the truth: means over logs."""
    seeds = range(arguments.seed, arguments.seed + arguments.seeds)
    runs, lines = runner(estimate, [[n, seed] for n in arguments.steps for seed in seeds], unit="logs"), []
    for n in arguments.steps:
        own = [run["errors"] for run in runs if run["steps"] == n]
        each = {
            name: {kind: float(np.mean([errors[name][kind] for errors in own])) for kind in ("rms", "largest")}
            for name in own[0]
        }
        lines.append({"steps": n, "logs": len(own)} | each)
    return {"error of R(s, a), a = 1 and 2, |s| < 0.9": lines}


SENTENCE = "whether bands for the rewards of soft experts contain them, how wide they are, and how near estimates come"
REPEATED = ("runs",)
PARTS = {"coverage": coverage, "width": width, "accuracy": accuracy}


if __name__ == "__main__":
    raise SystemExit(study.main(sys.modules[__name__]))
