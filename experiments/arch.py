"""Systems of drift and Gaussian noise from the literature on stochastic verification: certified from samples.

    python experiments/arch.py [--fast] [--workers N] [--seed S] [--out DIR]

- building: two rooms and their radiators, the four-dimensional building automation system of ARCH-COMP's category of
  stochastic models (matrices in degrees Celsius, a step of 15 minutes, air supplied at 17 to 20 °C); given the action
  each room moves with its radiator alone, so that there are two components of two coordinates. The expert always
  supplies the warmest air.
- room: one room with a heater and a cooler; the expert heats below 20 °C and cools above.

Next states are clipped to the box. Nothing but samples and the declaration `GaussianNoise(std, slope)` goes into a
certificate; the truth is computed from the model by quadrature, with atoms at the walls, and compared.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtr

import certirl
import study

Array = Any
NODES = (60, 40)  # of the quadrature along each coordinate of a component, two walls not counted


@dataclass(frozen=True, eq=False)
class Affine:
    """s' = clip(As + Bu_a + c + noise): an affine drift for each action, and independent Gaussian noise."""

    matrix: Array
    control: Array
    constant: Array
    std: Array
    inputs: tuple[float, ...]
    domain: tuple[tuple[float, float], ...]
    components: tuple[tuple[int, ...], ...]
    thread_safe: bool = True

    @property
    def n_actions(self) -> int:
        """One for each input."""
        return len(self.inputs)

    def means(self, states: Array, action: int) -> Array:
        """Where the drift leads."""
        return states @ self.matrix.T + self.control * self.inputs[action] + self.constant

    def sample(self, states: Array, action: int, rng: Any) -> Array:
        """One next state for each state."""
        low, high = np.array(self.domain).T
        return np.clip(self.means(states, action) + self.std * rng.standard_normal(states.shape), low, high)

    @property
    def tail(self) -> certirl.GaussianNoise:
        """What is declared."""
        return certirl.GaussianNoise(std=self.std, slope=np.abs(self.matrix))

    def nodes(self, group: Sequence[int]) -> Array:
        """States of a component at which the truth is computed: Gauss points and both walls of each coordinate."""
        along = [self._rule(axis, count)[0] for axis, count in zip(group, NODES, strict=False)]
        return np.stack(np.meshgrid(*along, indexing="ij"), axis=-1).reshape(-1, len(group))

    def _rule(self, axis: int, count: int) -> tuple[Array, Array]:
        low, high = self.domain[axis]
        x, weights = np.polynomial.legendre.leggauss(count)
        inner = (low + high) / 2 + (high - low) / 2 * x
        return np.concatenate([[low], inner, [high]]), (high - low) / 2 * weights

    def kernel(self, states: Array, action: int, group: Sequence[int]) -> Array:
        """The probabilities, with the weights of the rule, of the nodes of a component from its states."""
        whole = np.tile(np.mean(self.domain, axis=1), (len(states), 1))
        whole[:, list(group)] = states
        means, answer = self.means(whole, action), np.ones((len(states), 1))
        for axis, count in zip(group, NODES, strict=False):
            (low, high), mean = self.domain[axis], means[:, [axis]]
            (points, weights), std = self._rule(axis, count), self.std[axis]
            inner = np.exp(-(((points[1:-1] - mean) / std) ** 2) / 2) / (std * np.sqrt(2 * np.pi)) * weights
            along = np.hstack([ndtr((low - mean) / std), inner, ndtr((mean - high) / std)])
            answer = (answer[:, :, None] * along[:, None, :]).reshape(len(states), -1)
        return answer

    def mesh(self, group: Sequence[int]) -> Array:
        """States of a component over which the least advantage is taken."""
        axes = [np.linspace(*self.domain[axis], 41 if len(group) > 1 else 1_001) for axis in group]
        return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(group))


def building() -> Affine:
    """Two rooms (zones) with radiators: temperatures of the zones, then of the water that leaves the radiators."""
    matrix = [[0.6682, 0, 0.02632, 0], [0, 0.6830, 0, 0.02096], [1.0005, 0, -0.000499, 0], [0, 0.8004, 0, 0.1996]]
    return Affine(
        matrix=np.array(matrix),
        control=np.array([0.1320, 0.1402, 0.0, 0.0]),
        constant=np.array([3.4378, 2.9272, 13.0207, 10.4166]),
        std=np.sqrt([1 / 12.9199, 1 / 12.9199, 1 / 2.5826, 1 / 3.2276]),
        inputs=(20.0, 19.0, 18.0, 17.0),
        domain=((19.0, 21.0), (19.0, 21.0), (30.0, 36.0), (30.0, 36.0)),
        components=((0, 2), (1, 3)),
    )


def room() -> Affine:
    """One room: a tenth of the difference to 18 °C is lost in a step, an action adds or takes 1.5 degrees."""
    return Affine(
        matrix=np.array([[0.9]]),
        control=np.array([1.0]),
        constant=np.array([1.8]),
        std=np.array([1.5]),
        inputs=(1.5, -1.5),
        domain=((15.0, 25.0),),
        components=((0,),),
    )


def thermostat(states: Array) -> Array:
    """Heat below 20 °C, cool above."""
    return (states[:, 0] > 20).astype(int)


def true_margin(model: Affine, rewards: Sequence[Any], discount: float) -> float:
    """The least advantage of action 0 over all states and other actions: minima of the components add up."""
    total = np.zeros(model.n_actions)
    for group, reward in zip(model.components, rewards, strict=True):
        nodes, mesh = model.nodes(group), model.mesh(group)
        value = np.linalg.solve(np.eye(len(nodes)) - discount * model.kernel(nodes, 0, group), reward(nodes))
        ahead = [model.kernel(mesh, action, group) @ value for action in range(model.n_actions)]
        total += [float((ahead[0] - other).min()) for other in ahead]
    return float(total[1:].min())


def true_advantage(model: Affine, reward: Any, discount: float, beyond: float) -> float:
    """The least advantage of the thermostat's action over the other at states farther from its switch than this."""
    group = model.components[0]
    nodes, mesh = model.nodes(group), model.mesh(group)
    mesh = mesh[np.abs(mesh[:, 0] - 20) > beyond]
    chosen = np.stack([model.kernel(nodes, action, group) for action in (0, 1)])
    kernel = chosen[thermostat(nodes), np.arange(len(nodes))]
    value = np.linalg.solve(np.eye(len(nodes)) - discount * kernel, reward(nodes))
    ahead = np.stack([model.kernel(mesh, action, group) @ value for action in (0, 1)])
    taken, rows = thermostat(mesh), np.arange(len(mesh))
    return float((ahead[taken, rows] - ahead[1 - taken, rows]).min())


@dataclass(frozen=True)
class Arguments:
    """Which systems, how many seeds of each, and the most transitions of each action."""

    systems: tuple[str, ...] = ("room", "building")  # the small one first: memory is the most of a process so far
    seeds: int = 2
    samples: int = 1_000_000
    discount: float = 0.7
    delta: float = 0.05
    seed: int = 0


FAST = Arguments(systems=("room",), seeds=1, samples=100_000)


def trial(task: Sequence[Any]) -> dict[str, Any]:
    """Find and certify a reward, and compute the truth about it."""
    name, seed, samples, discount, delta = task
    start, used = time.perf_counter(), time.process_time()
    asked: dict[str, Any] = {"discount": discount, "delta": delta, "samples": samples, "rng": seed}
    if name == "building":
        model = building()
        sizes = ((15, 5), (17, 9))
        bases = [certirl.product(*map(certirl.Legendre, pair), index="full") for pair in sizes]
        groups = {"components": [list(group) for group in model.components], "basis": bases}
        columns = [basis.size for basis in bases]
        solution = certirl.solve(model, expert=0, tail=model.tail, columns=columns, **groups, **asked)
    else:
        model = room()
        solution = certirl.solve(model, expert=thermostat, tail=model.tail, **asked)
    seconds, processor = time.perf_counter() - start, time.process_time() - used
    truth = None
    if solution.reward is not None and solution.certificate is not None:
        if name == "building":
            truth = true_margin(model, solution.reward.parts, discount)
        else:
            truth = true_advantage(model, solution.reward, discount, solution.certificate.tube.allowed)
    return {
        "system": name,
        "seed": seed,
        "status": solution.status,
        "margin": None if solution.certificate is None else solution.certificate.margin,
        "true margin": truth,
        "transitions per action": solution.samples,
        "seconds": seconds,
        "processor seconds": processor,
        "gigabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
        "printed": str(solution),
    }


def run(arguments: Arguments, runner: study.Runner) -> study.Findings:
    """All systems and seeds."""
    tasks = [
        [name, arguments.seed + number, arguments.samples, arguments.discount, arguments.delta]
        for name in arguments.systems
        for number in range(arguments.seeds)
    ]
    runs, summary = runner(trial, tasks, unit="certificates"), {}
    for name in arguments.systems:
        trials = [run for run in runs if run["system"] == name]
        proved = [t for t in trials if t["status"] == "certified"]
        summary[name] = {
            "seeds": len(trials),
            "certified": len(proved),
            "false": sum(t["true margin"] < t["margin"] for t in proved),
            "transitions per action": [t["transitions per action"] for t in trials],
            "margins": [t["margin"] for t in trials],
            "true margins": [t["true margin"] for t in trials],
            "processor seconds, most": max(t["processor seconds"] for t in trials),
            "gigabytes, most": max(t["gigabytes"] for t in trials),
            "printed, first seed": trials[0]["printed"].splitlines(),
        }
    sentence = "; ".join(f"{name}: {row['certified']} of {row['seeds']} certified" for name, row in summary.items())
    table = [{key: value for key, value in run.items() if key != "printed"} for run in runs]
    return study.Findings(summary, table, None, f"{sentence}, {sum(r['false'] for r in summary.values())} falsely.")


if __name__ == "__main__":
    raise SystemExit(study.main(sys.modules[__name__]))
