"""The dynamics as something one can ask: a simulator, and states drawn from a basis's weight to ask it about."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from certirl.bases import Basis
from certirl.domain import Array, Domain, as_domain, as_states
from certirl.transitions import Transitions, concatenate

# Rows per piece: small enough for the features of a piece to stay in cache, large enough to keep NumPy busy.
CHUNK = 8192


@runtime_checkable
class Simulator(Protocol):
    """Anything with these three members: the MDP without its reward.

    Attributes:
        n_actions: the number of actions; they are called 0, 1, ….
        domain: one ``(low, high)`` per coordinate.
    """

    n_actions: int
    domain: Domain

    def sample(self, states: Array, action: int, rng: np.random.Generator) -> NDArray[Any]:
        """Draw one next state for each of the states ``[n, d]``; ``[n]`` may be returned when d = 1."""
        ...


def as_generator(rng: Any) -> np.random.Generator:
    """A Generator, or a seed to make one from; never the global state."""
    if rng is None:
        raise TypeError("rng is needed wherever something is drawn: pass a seed (rng=0) or a numpy Generator")
    try:
        return np.random.default_rng(rng)
    except (TypeError, ValueError):
        raise TypeError(f"rng must be a seed or a numpy Generator, got {rng!r}") from None


def check_simulator(simulator: Any) -> None:
    """Refuse, with a sentence, what cannot be asked for transitions."""
    if not isinstance(simulator, Simulator):
        missing = [name for name in ("n_actions", "domain", "sample") if not hasattr(simulator, name)]
        raise TypeError(
            f"{type(simulator).__name__} is neither Transitions nor a simulator: it has no {', '.join(missing)}; "
            "a simulator has n_actions, domain and sample(states, action, rng)"
        )
    if simulator.n_actions < 2:
        raise ValueError(f"inverse reinforcement learning needs at least two actions, got {simulator.n_actions}")


def draw(simulator: Simulator, basis: Basis, n: int, rng: Any) -> Iterator[tuple[int, Array, Array]]:
    """Ask the simulator for n transitions of every action, in pieces ``(action, states, next_states)``.

    States are drawn from the weight of the basis. Every piece has its own generator, spawned in order, so that the
    stream does not depend on who works through it.
    """
    check_simulator(simulator)
    if n < 1:
        raise ValueError(f"samples must be a positive number of transitions per action, got {n}")
    domain = as_domain(simulator.domain)
    basis = basis.on(domain)
    parent = as_generator(rng)
    for start in range(0, n, CHUNK):
        size = min(CHUNK, n - start)
        for action, stream in enumerate(parent.spawn(simulator.n_actions)):
            states = basis.sample(size, stream)
            answer = simulator.sample(states, action, stream)
            next_states = as_states(answer, domain, name=f"next states of action {action}")
            if len(next_states) != size:
                raise ValueError(f"sample(states, {action}, rng) got {size} states and returned {len(next_states)}")
            yield action, states, next_states


def sample(simulator: Simulator, *, basis: Basis, samples: int, rng: Any) -> Transitions:
    """Draw ``samples`` transitions of every action, with states from the weight of the basis (Algorithm 1, steps 1–2)."""
    check_simulator(simulator)
    domain, n_actions = as_domain(simulator.domain), simulator.n_actions
    return concatenate(
        Transitions(states, np.full(len(states), action), next_states, domain=domain, n_actions=n_actions)
        for action, states, next_states in draw(simulator, basis, samples, rng)
    )
