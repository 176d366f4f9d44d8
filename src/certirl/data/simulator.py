"""The dynamics as something one can ask: a simulator, and states drawn from a basis's weight to ask it about."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, runtime_checkable
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from certirl.data.transitions import Piece, Transitions, concatenate, pieces_per_chunk
from certirl.functions.bases import Basis, as_basis
from certirl.ground.domain import Array, Domain, as_axes, as_domain, as_n_actions, as_states
from certirl.ground.doors import alone, as_count, as_flag, as_flags, as_reals, lend, shown, takes
from certirl.kernels import tensors

# Rows per piece: kernels cut it into blocks that stay in cache; between two of their calls a thread must wait for its
# turn in the interpreter, so that calls on shorter pieces would keep several threads from working side by side.
CHUNK = 1 << 16
Placing = Callable[[int, np.random.Generator], Array]  # how many states, and with which random numbers
Ended = Callable[[Array], NDArray[np.bool_]]  # states [n, d] to which of them are terminal [n]
TORCH_DEVICES = ("cpu", "cuda", "mps", "xpu", "hip")
NO_ENDS = (
    "a proof is for problems without terminal states, beside which the next value jumps; certirl.solve without delta "
    "takes terminal states and tries the answer on fresh states"
)
# A trial of a simulator's random numbers: states, copies of each, calls, and the ratio of variances above which rows
# are not independent; the probability of that for rows that are is below 1e-15.
_TRIAL_STATES, _TRIAL_ROWS, _TRIAL_CALLS, _TRIAL_RATIO = 4, 64, 8, 6.0
_TRIAL_COPIES, _TRIAL_MOVED = 4096, 64  # rows of one state, and how many of them must differ from the most common
_TRIAL_CORRELATION = 0.25  # of ranks, at a shift: sixteen standard deviations
_TRIAL_ROUNDING = 1e-6  # of the width: smaller differences are those of single precision
MOST_KEPT = 10**9  # transitions in one record: 24 GB or more
MOST_SAMPLES = 10**11  # transitions per action: hours of work on one machine


@runtime_checkable
class Simulator(Protocol):
    """Anything with these three members: the MDP without its reward.

    A simulator that may be asked by several threads at once can say so with an attribute ``thread_safe = True``. One
    with an attribute ``device`` ("cuda", …) is asked with torch tensors and a torch Generator of that device, and
    answers with a tensor.
    Periodic coordinates may be named in an attribute ``periodic = (0, …)``, and a method ``terminal(states)`` may say
    which states end an episode: `solve` then gives them the value 0.

    ``sample`` and ``terminal`` receive a copy of the states, which they may change. All random numbers must come from
    ``rng``, and those of different rows must be independent: proofs are refused if a short trial shows otherwise.
    """

    @property
    def n_actions(self) -> int:
        """The number of actions; they are called 0, 1, …."""
        ...

    @property
    def domain(self) -> Domain:
        """One ``(low, high)`` per coordinate."""
        ...

    def sample(self, states: Array, action: int, rng: np.random.Generator) -> NDArray[Any]:
        """Draw one next state for each of the states ``[n, d]``; ``[n]`` may be returned when d = 1."""
        ...


class Stream(np.random.Generator):
    """A generator that `as_generator` made: its role is settled, and so is that of all that are spawned from it."""


def as_generator(rng: Any, role: str = "", *, plain: bool = False) -> Stream:
    """A generator for one task, from a seed or a Generator of the user; never from the global state.

    Draws use generators spawned from this one, that is from its seed sequence, not from where its stream stands.

    Args:
        rng: a seed or a Generator; one that was made here is returned as it is.
        role: the task. The same seed gives different roles independent numbers, and so do two Generators of the same
            seed, so that a certificate with the seed of its solution does not see the same data again.
        plain: a seed is used without the role, which then applies to Generators alone.
    """
    if rng is None:
        raise TypeError("rng is needed wherever something is drawn: pass a seed (rng=0) or a numpy Generator")
    if isinstance(rng, Stream):
        return rng
    try:
        generator = np.random.default_rng(None if isinstance(rng, bool | np.bool_) else rng)
    except (TypeError, ValueError):
        generator = None
    if generator is None or isinstance(rng, bool | np.bool_):
        raise TypeError(f"rng must be a seed or a numpy Generator, got {shown(rng)}")
    bits = generator.bit_generator
    seed = bits.seed_seq
    if not isinstance(seed, np.random.SeedSequence):
        raise TypeError("rng must know its seed, to spawn from: make it with np.random.default_rng(seed)")
    is_seed = not isinstance(rng, np.random.Generator)
    if not role or (plain and is_seed):
        return Stream(bits)
    if not is_seed:  # the next child, so that the same Generator gives new numbers at the next call
        (seed,) = seed.spawn(1)
    key = (*seed.spawn_key, crc32(role.encode()))
    return Stream(type(bits)(np.random.SeedSequence(seed.entropy, spawn_key=key)))


def check_simulator(simulator: Any) -> None:
    """Refuse, with a sentence, what cannot be asked for transitions."""
    if isinstance(simulator, type):
        name = simulator.__name__
        raise TypeError(f"the simulator must be an object, got the class {name}: write {name}(…)")
    if not isinstance(simulator, Simulator):
        missing = [name for name in ("n_actions", "domain", "sample") if not hasattr(simulator, name)]
        raise TypeError(
            f"{type(simulator).__name__} is neither Transitions nor a simulator: it has no {', '.join(missing)}; "
            "a simulator has n_actions, domain and sample(states, action, rng)"
        )
    as_n_actions(simulator.n_actions, name="the simulator's n_actions")
    if not callable(simulator.sample) or not takes(simulator.sample, None, 0, None):
        raise TypeError("the simulator's sample must be a function sample(states, action, rng)")
    terminal_of(simulator)
    periodic_of(simulator)


def terminal_of(source: Any) -> Ended | None:
    """Which states of a simulator end an episode, by its own ``terminal``; None if it has no such function."""
    found = None if isinstance(source, Transitions) else getattr(source, "terminal", None)
    return None if found is None else as_ended(found, device_of(source))


def as_ended(terminal: Any, device: Any = None) -> Ended:
    """A function of the user that says which states are terminal, behind its door."""
    if not callable(terminal) or not takes(terminal, None):
        raise TypeError(f"the simulator's terminal must be a function of states [n, d], got {shown(terminal)}")
    return partial(_ended, terminal, device)


def _ended(terminal: Callable[[Any], Any], device: Any, states: Any) -> NDArray[np.bool_]:
    with alone(terminal):
        if device is None:
            answer = terminal(lend(states))
        else:
            answer = terminal(tensors.torch().tensor(states, device=device, dtype=tensors.torch().float32))
            answer = answer.cpu().numpy() if tensors.is_tensor(answer) else answer
        return as_flags(answer, len(states), "the simulator's terminal(states)")


def periodic_of(source: Any) -> tuple[int, ...]:
    """The coordinates of a simulator that are periodic, by its own attribute; none of a log."""
    found = getattr(source, "periodic", None)
    return () if found is None else as_axes(found, len(as_domain(source.domain)), name="the simulator's periodic")


def as_samples(samples: Any, name: str = "samples", *, least: int = 1, most: int = MOST_SAMPLES) -> int:
    """A number of transitions per action."""
    return as_count(samples, name, least=least, most=most, meaning="a whole number of transitions per action")


@dataclass(frozen=True, eq=False)
class Draws:
    """n transitions of every action, to be drawn whenever someone walks through them: the same each time.

    Attributes:
        simulator: the dynamics.
        basis: states are drawn from its weight, or from its design.
        n: how many for each action.
        seed: from which every piece gets generators of its own, so that it does not matter who draws it.
        generator: the kind of bit generator.
        design: draw states from the basis's design for least squares, or from one given.
        paired: the same states and the same random numbers for every action.
        first: the number of the first piece, when this is a chunk of a longer one.
        endless: refuse terminal states, among those drawn and those that follow.
    """

    simulator: Simulator
    basis: Basis
    n: int
    seed: np.random.SeedSequence
    generator: Any
    design: bool | Placing
    paired: bool
    first: int = 0
    endless: bool = False

    def __iter__(self) -> Iterator[Piece]:
        return self.pieces()

    def chunks(self) -> list[Draws]:
        """The same in parts of whole pieces."""
        rows = self._piece * pieces_per_chunk(-(-self.n // self._piece))
        return [
            replace(self, n=min(rows, self.n - start), first=self.first + start // self._piece)
            for start in range(0, self.n, rows)
        ]

    def pieces(self) -> Iterator[Piece]:
        """Ask the simulator, piece by piece."""
        domain, every = as_domain(self.simulator.domain), tuple(range(self.simulator.n_actions))
        ended = terminal_of(self.simulator) if self.endless else None
        for number, start in enumerate(range(0, self.n, self._piece), start=self.first):
            size = min(self._piece, self.n - start)
            if self.paired:
                stream = self._generator(number)
                states = self._states(size, stream)
                answers, aligned = _ask_all(self.simulator, states, stream, domain)
                if not aligned:
                    raise ValueError(
                        "the simulator uses more random numbers for some actions than for others: pass paired=False"
                    )
                yield _going_on(Piece(every, states, answers), ended)
            else:
                for action in every:
                    stream = self._generator(number, action)
                    states = self._states(size, stream)
                    answer = ask(self.simulator, states, action, stream, domain)
                    yield _going_on(Piece((action,), states, answer[None]), ended)

    @property
    def on_device(self) -> bool:
        """Whether its pieces are tensors of a device."""
        return device_of(self.simulator) is not None

    @property
    def _piece(self) -> int:
        return CHUNK if not self.on_device else tensors.PIECE // len(as_domain(self.simulator.domain))

    def _generator(self, *key: int) -> Any:
        child = np.random.SeedSequence(self.seed.entropy, spawn_key=(*self.seed.spawn_key, *key))
        device = device_of(self.simulator)
        return np.random.Generator(self.generator(child)) if device is None else tensors.generator(child, device)

    def _states(self, size: int, stream: Any) -> Any:
        if callable(self.design):
            return self.design(size, stream)
        if device_of(self.simulator) is not None:
            return tensors.draw_states(self.basis, size, stream, design=self.design)
        return (self.basis.design if self.design else self.basis.sample)(size, stream)


def _going_on(piece: Piece, ended: Ended | None) -> Piece:
    """The piece, if nothing in it is terminal."""
    if ended is not None and any(ended(states).any() for states in (piece.states, *piece.next_states)):
        raise ValueError(NO_ENDS)
    return piece


def draw(
    simulator: Simulator,
    basis: Basis,
    n: int,
    rng: Any,
    *,
    design: bool | Placing = False,
    paired: bool = False,
    endless: bool = False,
) -> Draws:
    """Plan to ask the simulator for n transitions of every action; nothing is drawn before someone walks through.

    Args:
        simulator: the dynamics.
        basis: states are drawn from its weight.
        n: how many for each action.
        rng: a seed or Generator, which this spawns from once.
        design: draw states from the basis's design for least squares instead, or by a function (count, rng).
        paired: the same states and the same random numbers for every action. Each action's transitions are as random as
            before, but where a simulator turns equal random numbers into similar noise, as most do, that noise cancels
            in the difference between two actions, which is all that the criterion looks at.
        endless: refuse terminal states.
    """
    check_simulator(simulator)
    n = as_samples(n)
    bits = as_generator(rng).bit_generator
    (own,) = bits.seed_seq.spawn(1)  # type: ignore[attr-defined]
    return Draws(simulator, basis.on(as_domain(simulator.domain)), n, own, type(bits), design, paired, 0, endless)


def noise_fault(simulator: Simulator) -> str:
    """What is wrong with the random numbers of a simulator, in a sentence; empty if a short trial finds nothing.

    A few states, each repeated in many rows, are asked about in several calls with generators of fixed seeds, so that
    no stream of the user's rng is touched. The same seed must give the same answers. If rows are independent, the mean
    over the rows of a state varies from call to call by 1/√rows of what rows vary among themselves: the ratio of both
    variances is then about 1, an average of F(calls − 1, …), and far above it if rows share random numbers. If numbers
    are used again for later rows of a call, the answers to copies of one state repeat themselves after a shift.
    """
    domain, device = as_domain(simulator.domain), device_of(simulator)
    low, high = np.array(domain).T
    places = low + (high - low) * np.random.default_rng(0).random((_TRIAL_STATES, len(low)))

    def asked(rows: Any, action: int, number: int) -> Array:
        seed = np.random.SeedSequence(number)
        stream = np.random.default_rng(seed) if device is None else tensors.generator(seed, device)
        if device is not None:
            rows = tensors.torch().tensor(rows, device=device, dtype=tensors.torch().float32)
        found = ask(simulator, rows, action, stream, domain)
        values = found if device is None else found.double().cpu().numpy()
        return np.asarray((values - low) / (high - low))

    def answer(action: int, number: int) -> Array:
        return asked(np.repeat(places, _TRIAL_ROWS, axis=0), action, number).reshape(_TRIAL_STATES, _TRIAL_ROWS, -1)

    for action in range(simulator.n_actions):
        calls = np.stack([answer(action, number) for number in range(_TRIAL_CALLS)])
        if np.abs(calls[0] - answer(action, 0)).max() > _TRIAL_ROUNDING:
            return (
                f"the simulator does not draw from the rng it is given: asked twice about the same states and action "
                f"{action} with the same rng, it answers differently; take every random number from rng, keep no state"
            )
        within = calls.var(axis=2, ddof=1).mean(axis=0)
        between = _TRIAL_ROWS * calls.mean(axis=2).var(axis=0, ddof=1)
        noisy = between > _TRIAL_ROUNDING**2
        ratios = np.where(noisy, between / np.maximum(within, _TRIAL_ROUNDING**2), 0.0)
        if (ratios.mean(axis=0) > _TRIAL_RATIO).any():
            return (
                "the rows of one call share random numbers: of copies of one state the simulator's answers for action "
                f"{action} vary together from call to call; draw for every row by itself, say rng.random(len(states))"
            )
        shift = _repeated_after(asked(np.repeat(places[:1], _TRIAL_COPIES, axis=0), action, 0))
        if shift:
            return (
                f"rows of one call share random numbers: the simulator's answers to {_TRIAL_COPIES:,} copies of one "
                f"state for action {action} repeat after {shift} rows; draw for every row by itself, say "
                "rng.random(len(states))"
            )
    return ""


def _repeated_after(values: Array) -> int:
    """The shift at which the columns of values ``[n, d]`` repeat themselves in rank; 0 if there is none.

    For independent rows the correlation of ranks at each shift is about N(0, 1/n), whatever the law. Where fewer than
    ``_TRIAL_MOVED`` rows differ from the most common value, a few coincidences would look like a repetition.
    """
    for column in values.T:
        _, ranks, counts = np.unique(column.round(12), return_inverse=True, return_counts=True)
        if len(column) - counts.max() < _TRIAL_MOVED:
            continue
        middle = (np.cumsum(counts) - (counts + 1) / 2)[ranks]
        spectrum = np.fft.rfft(middle - middle.mean(), 2 * len(column))
        sums = np.fft.irfft(np.abs(spectrum) ** 2)[: len(column) // 2]
        shifts = np.abs(sums) > _TRIAL_CORRELATION * sums[0]
        if shifts[1:].any():
            return int(shifts[1:].argmax()) + 1
    return 0


def check_rollouts(states: int, samples: int, steps: int) -> None:
    """Refuse, with a sentence, rollouts that would take days."""
    if states * samples * steps > MOST_SAMPLES:
        raise ValueError(
            f"states={states:,}, samples={samples:,} and steps={steps:,} make {states * samples * steps:,} moves for "
            f"each first action, more than {MOST_SAMPLES:,}: ask for fewer"
        )


def can_pair(simulator: Simulator, basis: Basis, rng: Any, *, asked: bool | None = None) -> bool:
    """Whether rows keep their random numbers from action to action, tried on a few hundred states.

    If not, a row of one action shares its randomness with another row of the next (think of rejection sampling), rows
    are no longer independent of each other, and pairs must not be formed. Every action must use up equally many random
    numbers, and hand them out alike: row by row, so that the first states get the same answers when they are asked
    about alone, or column by column, but not one this way and one that. What was asked for is not tried.
    """
    check_simulator(simulator)
    if asked is not None:
        return as_flag(asked, "paired")
    few = draw(simulator, basis, 256, rng, design=True)
    stream, domain = few._generator(0), as_domain(simulator.domain)
    states = few._states(256, stream)
    answers, aligned = _ask_all(simulator, states, stream, domain)
    if device_of(simulator) is not None:
        return aligned
    first, _ = _ask_all(simulator, states[:100].copy(), stream, domain)
    row_by_row = {np.array_equal(one, other[:100]) for one, other in zip(first, answers, strict=True)}
    return aligned and len(row_by_row) == 1


def device_of(simulator: Any) -> Any:
    """The device whose tensors it takes; None for NumPy, and for a device that is none of torch's."""
    device = getattr(simulator, "device", None)
    named = isinstance(device, str) and device.partition(":")[0] in TORCH_DEVICES
    return device if named or tensors.is_tensor(device) else None


def _ask_all(simulator: Simulator, states: Any, stream: Any, domain: Domain) -> tuple[Any, bool]:
    """The answers of all actions to the same states and random numbers, and whether all used equally many of these."""
    answers, following = [], set()
    on_device = device_of(simulator) is not None
    for action in range(simulator.n_actions):
        own = stream.clone_state() if on_device else copy.deepcopy(stream)
        answers.append(ask(simulator, states, action, own, domain))
        following.add(own.get_state().numpy().tobytes() if on_device else repr(own.bit_generator.state))
    return (tensors.torch().stack(answers) if on_device else np.stack(answers)), len(following) == 1


def ask(simulator: Simulator, states: Any, action: int, rng: Any, domain: Domain) -> Any:
    """Next states ``[n, d]`` of one call of the simulator, which receives a copy of the states; its answer is checked.

    The answer is copied before another call can overwrite it.
    """
    on_device, name = device_of(simulator) is not None, f"next states of the simulator for action {action}"
    with alone(simulator):
        answer = simulator.sample(states.clone() if on_device else lend(states), action, rng)
        if on_device:
            answer = tensors.as_tensor_states(answer, domain, name=name)
        else:
            answer = as_states(as_reals(answer, name), domain, name=name)
    if len(answer) != len(states):
        raise ValueError(
            f"the simulator's sample(states, {action}, rng) got {len(states)} states and returned {len(answer)}"
        )
    return answer


def sample(
    simulator: Simulator, *, basis: Basis, samples: int, rng: Any, design: bool = False, paired: bool = False
) -> Transitions:
    """Draw ``samples`` transitions of every action (Algorithm 1, steps 1–2).

    Args:
        simulator: the dynamics.
        basis: states are drawn from its weight, as the mean form of `estimate` needs.
        samples: how many for each action.
        rng: a seed or Generator.
        design: draw states where least squares wants them instead (`Basis.design`).
        paired: use the same states and random numbers for every action, so that noise cancels between actions.
    """
    check_simulator(simulator)
    domain, n_actions = as_domain(simulator.domain), simulator.n_actions
    as_basis(basis, domain)
    as_samples(samples, most=MOST_KEPT // n_actions)
    as_flag(design, "design")
    as_flag(paired, "paired")
    rng = as_generator(rng, "sample")
    return concatenate(
        Transitions(
            np.tile(piece.states, (len(piece.actions), 1)),
            np.repeat(piece.actions, len(piece.states)),
            piece.next_states.reshape(-1, len(domain)),
            domain=domain,
            n_actions=n_actions,
            paired=paired,
        )
        for piece in draw(simulator, basis, samples, rng, design=design, paired=paired)
    )
