"""Gymnasium environments as simulators, as sources of logged episodes, and as places to try a learned reward.

    env = gymnasium.make("Pendulum-v1")
    simulator = certirl.gym.simulator(env, actions=[-2, 0, 2])       # states (θ, θ̇), θ around a circle
    plan = certirl.planning.plan(simulator, discount=0.99)           # an expert, from the environment's own reward
    log = certirl.gym.rollouts(env, plan, episodes=20, rng=0, actions=[-2, 0, 2])

Everything here works in state coordinates: what ``env.unwrapped.state`` holds, or what a ``get_state`` hook says.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from certirl.classic import Physics, physics_of, placed
from certirl.domain import Array, Domain, as_domain, as_states, describe
from certirl.environments import Handle, Stepped, Transitioned, handle, known_bounds
from certirl.episodes import Episode
from certirl.policies import Policy, as_policy
from certirl.reward import unpack
from certirl.simulator import as_generator

try:
    import gymnasium
except ImportError:
    raise ImportError('certirl.gym needs gymnasium, 1.0 or later: pip install "certirl[gym]"') from None

PROBES = 64  # states at which vectorised physics must agree with the environment's own step
AGREEMENT = 1e-9  # of the width of a coordinate
SIDE_BY_SIDE = 64  # episodes played at once, so that a policy is asked about many states in one call
_TRIAL_EPISODES, _TRIAL_STEPS, _WIDER = 100, 500, 1.2  # where bounds come from random play


@dataclass(frozen=True, eq=False)
class EnvSimulator:
    """An environment as a simulator: s' for any state and action, without its clock.

    Terminal states are absorbing. Without noise the dynamics are deterministic: P_a(·|s) is a point, not a density, so
    nothing that rests on a density or on its smoothness (a `Smooth` tail) can be claimed, and a certificate would need
    a tail declared by hand; what is left is a validated statement. A little noise makes the theory whole, for the noisy
    environment. Even then states next to the edge of the terminal set are sent to either side of a jump.

    Attributes:
        name: of the environment.
        physics: its dynamics in state coordinates.
        controls: what the environment is given for each action ``[A]``.
        domain: one (low, high) per coordinate; next states beyond are stopped at the edge (see ``notes``).
        periodic: coordinates that go around.
        noise: standard deviation of what is added to each coordinate of a next state; mirrored at the edges.
        notes: what was estimated or changed, in sentences.
    """

    name: str
    physics: Physics
    controls: tuple[Any, ...]
    domain: Domain
    periodic: tuple[int, ...]
    noise: tuple[float, ...]
    notes: tuple[str, ...] = ()

    @property
    def n_actions(self) -> int:
        """The number of actions."""
        return len(self.controls)

    @property
    def thread_safe(self) -> bool:
        """Vectorised physics may be asked by several threads at once, an environment that is stepped may not."""
        return self.physics.thread_safe

    @property
    def deterministic(self) -> bool:
        """No noise was asked for, and the physics is written as a function; a stepped environment may be random."""
        return not any(self.noise) and self.physics.thread_safe

    def __str__(self) -> str:
        how = "vectorised" if self.physics.thread_safe else "stepped row by row"
        lines = [f"{self.name}: {self.n_actions} actions on {describe(self.domain)}, {how}"]
        if self.periodic:
            lines.append(f"  coordinates {', '.join(map(str, self.periodic))} go around")
        if any(self.noise):
            lines.append(f"  noise of standard deviation {', '.join(f'{value:.3g}' for value in self.noise)}")
        return "\n".join([*lines, *(f"  {note}" for note in self.notes)])

    def terminal(self, states: Any) -> NDArray[np.bool_]:
        """Which states end an episode ``[n]``; they are absorbing."""
        return self.physics.terminal(as_states(states, self.domain))

    def step(self, states: Any, action: int, rng: Any = None) -> tuple[Array, Array]:
        """Next states ``[n, d]`` before noise, and the environment's own rewards ``[n]``; 0 from terminal states on."""
        rows = as_states(states, self.domain)
        alive = ~self.physics.terminal(rows)
        after, rewards = rows.copy(), np.zeros(len(rows))
        if alive.any():
            moved, rewards[alive] = self.physics.step(rows[alive], self.controls[action], rng)
            after[alive] = placed(moved, self.domain, self.periodic)
        return after, rewards

    def sample(self, states: Array, action: int, rng: np.random.Generator) -> Array:
        """One next state for each state ``[n, d]``."""
        after, _ = self.step(states, action, rng)
        if not any(self.noise):
            return after
        shaken = after + rng.standard_normal(after.shape) * self.noise
        shaken = placed(shaken, self.domain, self.periodic, reflect=True)
        return np.where(self.terminal(states)[:, None], after, shaken)

    def outcomes(self, states: Array, action: int, rng: Any = None) -> tuple[Array, Array]:
        """Next states ``[m, n, d]`` with weights ``[m]`` for expectations: exact to third order in the noise."""
        after, _ = self.step(states, action, rng)
        d, shift = len(self.domain), np.diag(self.noise)[np.array(self.noise) > 0]
        if not len(shift):
            return after[None], np.ones(1)
        ended = self.terminal(states)[:, None]
        shift = np.concatenate([shift, -shift]) * np.sqrt(len(shift))
        moved = [placed(after + one, self.domain, self.periodic, reflect=True) for one in shift]
        return np.where(ended, after, np.stack(moved).reshape(-1, len(after), d)), np.full(len(shift), 1 / len(shift))

    def reward(self, states: Array, action: int, next_states: Any = None) -> Array:
        """The environment's own reward for a step ``[n]``; 0 in terminal states."""
        return self.step(states, action, np.random.default_rng(0))[1]


def simulator(
    env: Any,
    *,
    actions: int | Sequence[Any] | None = None,
    domain: Any = None,
    periodic: Sequence[int] | None = None,
    noise: float | Sequence[float] = 0.0,
    set_state: Callable[[Any, Array], None] | None = None,
    get_state: Callable[[Any], Any] | None = None,
    terminal: Callable[[Array], Any] | None = None,
    rng: Any = 0,
) -> EnvSimulator:
    """Make a simulator of an environment whose state can be set.

    MountainCar, Pendulum and CartPole are vectorised; the physics is compared with the environment's own ``step``
    first, and an environment that disagrees is stepped row by row, as is every other one (about 10 µs a row). The
    environment itself is copied and stays as it is.

    Args:
        env: a gymnasium environment or the name of one; or an object with ``transition(state, action)``, as in seals.
        actions: of a Box action space, the controls to choose from (``[-2, 0, 2]``) or how many evenly spaced levels;
            of a Discrete one, some of its actions. All of them if left out.
        domain: one (low, high) per coordinate; what the environment says if left out, and where it says nothing a
            fifth more than the range of random play.
        periodic: coordinates that go around, such as angles; known for Pendulum.
        noise: standard deviation of the process noise as a share of the width of each coordinate: one for all, or one
            for each.
        set_state: ``set_state(env, state)``, for environments that keep it elsewhere than in ``env.unwrapped.state``.
        get_state: ``get_state(env)``, likewise.
        terminal: states ``[n, d]`` to whether they end an episode ``[n]``; known for the environments named above.
        rng: for the random play behind estimated bounds, and the states at which physics is compared.
    """
    owned = handle(env, actions=actions, get_state=get_state, set_state=set_state, own=True)
    stepped = owned.physics(terminal)
    written = None if terminal or set_state or owned.transition else physics_of(owned.env)
    generator, notes = as_generator(rng, "gym.simulator"), []
    around = _coordinates(periodic, written)
    box, estimated = _box(domain, known_bounds(owned, written), around, owned, generator)
    notes += estimated
    physics: Physics = stepped
    if written is not None:
        agrees = _agrees(written, stepped, owned, box, around, generator)
        physics = written if agrees else Stepped(owned, written.terminal)
        if not agrees:
            notes.append("its step is not that of the environment it is made from: stepped row by row")
    width = np.diff(np.array(box), axis=1)[:, 0]
    spread = np.asarray(noise, dtype=np.float64)
    if spread.shape not in {(), (len(box),)} or not np.isfinite(spread).all() or (spread < 0).any():
        raise ValueError(f"noise must be a share ≥ 0 of the widths, one number or {len(box)} of them, got {noise!r}")
    deviations = tuple((spread * width).tolist())
    made = EnvSimulator(owned.name, physics, owned.controls, box, around, deviations, tuple(notes))
    return EnvSimulator(
        made.name, physics, made.controls, box, around, deviations, (*notes, *_stopped(made, owned, generator))
    )
