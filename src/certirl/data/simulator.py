"""Simulators, transitions drawn from them, and designs of the states that are drawn."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Lock
from typing import Any, Literal, Protocol, get_args, runtime_checkable
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from certirl.data.transitions import CHUNK, Piece, Stream, Transitions, pieces_per_chunk
from certirl.functions.bases import Basis, as_basis
from certirl.ground.domain import Array, Box, Domain, as_axes, as_domain, as_exogenous, as_n_actions, as_states
from certirl.ground.doors import as_count, as_flag, as_flags, as_reals, call, setting, shown, takes
from certirl.ground.records import Record, internal
from certirl.kernels import tensors

Design = Callable[[int, np.random.Generator], Array]  # a number of states and random numbers to states [n, d]
Terminal = Callable[[Array], NDArray[np.bool_]]  # states [n, d] to which of them are terminal [n]
TORCH_DEVICES = ("cpu", "cuda", "mps", "xpu", "hip")
NO_TERMINAL_STATES = (
    "a proof is for problems without terminal states, beside which the next value jumps; certirl.solve without delta "
    "takes terminal states and tries the answer on fresh states"
)
FEWEST_TRIALS = 100  # transitions per action by which an answer can be tried
MOST_KEPT = 10**9  # transitions in one record: 24 GB or more
MOST_SAMPLES = 10**11  # transitions per action: hours of work on one machine
_CLIP = "clip them in sample: np.clip(next_states, low, high)"
# The share of states next to the ends of a coordinate, times degree + 2, by the number of coordinates that have ends.
_ENDS = (0.9, 1.5, 1.8)


@runtime_checkable
class Simulator(Protocol):
    """Anything with these three members: the MDP without its reward.

    Optional attributes:

    - ``thread_safe = True`` if several threads may call it at once;
    - ``device`` ("cuda", …) if it takes torch tensors and a torch Generator of that device and returns a tensor;
    - ``periodic = (0, …)``, the periodic coordinates, and ``exogenous = (1, …)``, those that no action moves;
    - ``action_names`` and ``coordinate_names``, for prints and pictures;
    - ``terminal(states)``, which states are terminal: `solve` then gives them the value 0.

    ``sample`` and ``terminal`` receive a copy of the states, which they may change. All random numbers must come from
    ``rng``, and those of different rows must be independent: proofs are refused if a short trial shows otherwise.

    Example:
        >>> class Walk:
        ...     n_actions, domain = 2, ((0.0, 10.0),)
        ...
        ...     def sample(self, states, action, rng):
        ...         return np.clip(states + (0.5, -0.5)[action] + rng.normal(size=states.shape), 0, 10)
        >>> certirl.solve(Walk(), expert=0, discount=0.9, samples=500, columns=3, rng=0).status
        'solved'
    """

    @property
    def n_actions(self) -> int:
        """The number of actions; they are called 0, 1, …."""

    @property
    def domain(self) -> Domain:
        """One ``(low, high)`` per coordinate."""

    def sample(self, states: Array, action: int, rng: np.random.Generator) -> NDArray[Any]:
        """Draw one next state for each state ``[n, d]``; for d = 1 also as ``[n]``.

        Example:
            >>> room = certirl.problems.thermostat()
            >>> room.sample(np.array([[18.0], [22.0]]), 0, np.random.default_rng(0)).shape
            (2, 1)
        """
        ...


class RoleGenerator(np.random.Generator):
    """A generator made by `as_generator` for one role, as are those spawned from it."""


def as_generator(rng: Any, role: str = "", *, plain: bool = False) -> RoleGenerator:
    """A generator for one task, from a seed or a Generator of the user; one that was made here as it is.

    Draws use generators spawned from its seed sequence, which do not depend on the numbers drawn from it before.

    The same seed gives different roles independent numbers, and so do two Generators of the same seed, so that a
    certificate with the seed of its solution does not see the same data again. With ``plain`` a seed is used without
    the role, which then applies to Generators alone.
    """
    if rng is None:
        raise TypeError("rng is needed wherever something is drawn: pass a seed (rng=0) or a numpy Generator")
    if isinstance(rng, RoleGenerator):
        return rng
    try:
        if isinstance(rng, bool | np.bool_) or (hasattr(rng, "__len__") and not len(rng)):  # an empty seed
            raise TypeError
        generator = np.random.default_rng(rng)
    except (TypeError, ValueError):
        raise TypeError(f"rng must be a seed or a numpy Generator, got {shown(rng)}") from None
    bits = generator.bit_generator
    seed = bits.seed_seq
    if not isinstance(seed, np.random.SeedSequence):
        raise TypeError("rng must know its seed, to spawn from: make it with np.random.default_rng(seed)")
    is_seed = not isinstance(rng, np.random.Generator)
    if not role or (plain and is_seed):
        return RoleGenerator(bits)
    if not is_seed:  # the next child, so that the same Generator gives new numbers at the next call
        (seed,) = seed.spawn(1)
    key = (*seed.spawn_key, crc32(role.encode()))
    return RoleGenerator(type(bits)(np.random.SeedSequence(seed.entropy, spawn_key=key)))


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
    exogenous_of(simulator)


def terminal_of(simulator: Any) -> Terminal | None:
    """The simulator's function ``terminal(states)``, checked; None if it has no such function."""
    terminal = getattr(simulator, "terminal", None)
    return None if terminal is None else as_terminal(terminal, device_of(simulator))


def as_terminal(terminal: Any, device: Any = None) -> Terminal:
    """A user's function that says which states are terminal, with its answers checked."""
    if not callable(terminal) or not takes(terminal, None):
        raise TypeError(f"the simulator's terminal must be a function of states [n, d], got {shown(terminal)}")
    return partial(_terminal_states, terminal, device)


def _terminal_states(terminal: Callable[[Any], Any], device: Any, states: Any) -> NDArray[np.bool_]:
    given = states
    if device is not None:
        given = tensors.torch().tensor(states, device=device, dtype=tensors.torch().float32)

    def read(answer: Any) -> NDArray[np.bool_]:
        on_host = answer.cpu().numpy() if tensors.is_tensor(answer) else answer
        return as_flags(on_host, len(states), "the simulator's terminal(states)")

    return np.asarray(call(terminal, given, what="the simulator's terminal", read=read))


def periodic_of(simulator: Any) -> tuple[int, ...]:
    """The periodic coordinates of a simulator or a log, by its attribute ``periodic``."""
    return _axes_of(simulator, "periodic", as_axes)


def exogenous_of(simulator: Any) -> tuple[int, ...]:
    """The coordinates of a simulator or a log that no action moves, by its attribute ``exogenous``."""
    return _axes_of(simulator, "exogenous", as_exogenous)


def _axes_of(simulator: Any, name: str, check: Callable[..., tuple[int, ...]]) -> tuple[int, ...]:
    axes, names = getattr(simulator, name, None), getattr(simulator, "coordinate_names", ())
    if axes is None:
        return ()
    return check(axes, len(as_domain(simulator.domain)), name=f"the simulator's {name}", names=names)


def described(simulator: Any) -> dict[str, Any]:
    """What a simulator says of its coordinates and actions, as arguments of `Transitions`."""
    names = {name: getattr(simulator, name, ()) for name in ("action_names", "coordinate_names")}
    return {"periodic": periodic_of(simulator), "exogenous": exogenous_of(simulator), **names}


def device_of(simulator: Any) -> Any:
    """The torch device whose tensors the simulator takes; None for NumPy."""
    device = getattr(simulator, "device", None)
    named = isinstance(device, str) and device.partition(":")[0] in TORCH_DEVICES
    return device if named or tensors.is_tensor(device) else None


def as_samples(samples: Any, *, least: int = 1, most: int = MOST_SAMPLES) -> int:
    """A number of transitions per action."""
    return as_count(samples, "samples", least=least, most=most, meaning="a whole number of transitions per action")


def as_trials(trials: Any) -> int:
    """A number of transitions per action by which an answer is tried."""
    number = as_count(trials, "trials", least=0, most=MOST_KEPT, meaning="a whole number of transitions per action")
    if 0 < number < FEWEST_TRIALS:
        raise ValueError(f"{setting('trials')} must be 0, for no trial, or at least {FEWEST_TRIALS}, got {number}")
    return number


Purpose = Literal["answer", "checks", "trials"]
REMEMBERED = 1 << 21  # numbers of drawn transitions that are kept for a second reading: 16 MB


@internal
class Counts:
    """The rows that a simulator was asked about, by purpose and action; several threads may add to it.

    The purposes are ``answer``, what the answer is made of; ``checks`` of how the simulator draws; ``trials`` of the
    answer. Transitions that were too many to be kept do not count at a further reading.
    """

    def __init__(self, n_actions: int) -> None:
        self.rows = {purpose: np.zeros(n_actions, dtype=np.int64) for purpose in get_args(Purpose)}
        self.room, self._lock = REMEMBERED, Lock()  # for numbers that can still be kept

    def add(self, purpose: Purpose, action: int | slice, rows: int) -> None:
        """Count some rows of an action, or of several."""
        with self._lock:
            self.rows[purpose][action] += rows

    def most(self, purpose: Purpose) -> int:
        """The rows for a purpose, of the action with most."""
        return int(self.rows[purpose].max())

    def reserve(self, size: int) -> bool:
        """Take room for some numbers; whether there was as much."""
        with self._lock:
            fits = size <= self.room
            self.room -= size * fits
        return fits


@internal
class Counted:
    """A user's simulator, whose attributes it has, with every row counted that it is asked about for a purpose."""

    def __init__(self, simulator: Any, counts: Counts | None = None, purpose: Purpose = "answer") -> None:
        self.simulator, self.purpose, self.domain = bare(simulator), purpose, as_domain(simulator.domain)
        self.counts = Counts(self.simulator.n_actions) if counts is None else counts
        self.__wrapped__ = self.simulator

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.simulator, name)
        return partial(self._outcomes, value) if name == "outcomes" else value

    def _outcomes(self, outcomes: Callable[..., Any], states: Array, action: int) -> Any:
        self.counts.add(self.purpose, action, len(states))
        return outcomes(states, action)

    @property
    def n_actions(self) -> int:
        """Of the simulator."""
        return self.simulator.n_actions

    def sample(self, states: Array, action: int, rng: Any) -> NDArray[Any]:
        """Count the states and ask the simulator about them."""
        self.counts.add(self.purpose, action, len(states))
        return self.simulator.sample(states, action, rng)

    def __reduce__(self) -> Any:  # elsewhere nothing is counted: see `Draws.sent`
        return bare, (self.simulator,)


def bare(simulator: Any) -> Any:
    """The user's own simulator."""
    return simulator.simulator if isinstance(simulator, Counted) else simulator


def counted_as(simulator: Any, purpose: Purpose) -> Any:
    """The simulator with its rows counted for another purpose; one that is not counted as it is."""
    return Counted(simulator, simulator.counts, purpose) if isinstance(simulator, Counted) else simulator


@dataclass(frozen=True, eq=False)
@internal
class Draws(Stream):
    """A stream of n transitions of every action, drawn when it is read: the same each time."""

    simulator: Simulator  # the dynamics
    basis: Basis  # states are drawn from its weight or by its design
    n: int  # transitions for each action
    # the source of the random numbers of all pieces, which do not depend on the order of their reading
    seed: np.random.SeedSequence
    generator: Any  # the kind of bit generator
    whole: int  # transitions of every action in the stream of which this is a part
    design: bool | Design  # True for the basis's design for least squares, False for its weight; or another design
    paired: bool  # the same states and the same random numbers for every action
    first: int = 0  # the number of the first piece, if this is a chunk of a longer stream
    refuse_terminal: bool = False  # refuse terminal states, among the states drawn and their next states
    keeps: bool = False  # keep what is read for a further reading, as far as there is room
    # the pieces that were read before by their numbers, empty for one that was not kept
    kept: dict[int, list[Piece]] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """The number of transitions."""
        return self.n * self.simulator.n_actions

    def chunks(self) -> list[Draws]:
        """The same in parts of whole pieces."""
        rows = self._piece * pieces_per_chunk(-(-self.n // self._piece))
        return [
            replace(self, n=min(rows, self.n - start), first=self.first + start // self._piece)
            for start in range(0, self.n, rows)
        ]

    def pieces(self) -> Iterator[Piece]:
        """Ask the simulator, piece by piece; what was kept is not asked again."""
        for number, size in self._sizes():
            for piece in self.kept.get(number) or self._drawn(number):
                yield Piece(piece.actions, piece.states[:size], piece.next_states[:, :size])

    def sent(self) -> Draws:
        """The same for a worker elsewhere, which does not count: its rows are counted here."""
        if isinstance(self.simulator, Counted):
            for number, _ in self._sizes():
                if number not in self.kept:
                    self.simulator.counts.add(self.simulator.purpose, slice(None), self._size(number))
                    self.kept[number] = []
        return replace(self, simulator=bare(self.simulator), kept={})

    def _sizes(self) -> Iterator[tuple[int, int]]:
        """The number of each piece, and how many of its first rows belong to these draws."""
        for number, start in enumerate(range(0, self.n, self._piece), start=self.first):
            yield number, min(self._piece, self.n - start)

    def _size(self, number: int) -> int:
        return min(self._piece, self.whole - number * self._piece)

    def _drawn(self, number: int) -> Iterator[Piece]:
        """A whole piece of the stream; kept if there is room."""
        size, terminal = self._size(number), terminal_of(self.simulator) if self.refuse_terminal else None
        asked = replace(self, simulator=bare(self.simulator)) if number in self.kept else self
        counts = self.simulator.counts if self.keeps and isinstance(self.simulator, Counted) else None
        numbers = len(self._domain) * size * 2 * self.simulator.n_actions
        keeps, kept = counts is not None and not self.on_device and counts.reserve(numbers), list[Piece]()
        for piece in asked._asked(size, number):
            if terminal is not None and any(terminal(s).any() for s in (piece.states, *piece.next_states)):
                raise ValueError(NO_TERMINAL_STATES)
            if keeps:
                kept.append(piece)
            yield piece
        self.kept[number] = kept

    def _asked(self, size: int, number: int) -> Iterator[Piece]:
        """A whole piece, of all actions at once or of each."""
        if not self.paired:
            for action in range(self.simulator.n_actions):
                rng = self.generator_of(number, action)
                states = self.states(size, rng)
                yield Piece((action,), states, ask(self.simulator, states, action, rng, self._domain)[None])
            return
        rng = self.generator_of(number)
        states = self.states(size, rng)
        answers, aligned = ask_all(self.simulator, states, rng)
        if not aligned:
            raise ValueError(
                "the simulator uses more random numbers for some actions than for others: pass paired=False"
            )
        yield Piece(tuple(range(self.simulator.n_actions)), states, answers)

    @property
    def per_action(self) -> int:
        """Transitions of every action."""
        return self.n

    def leading(self, size: int) -> Draws:
        """The first draws, at most this many of every action."""
        return replace(self, n=min(self.n, size))

    def record(self) -> Transitions:
        """All transitions as a record."""
        domain, pieces = self._domain, list(tensors.on_host(self, self._domain, CHUNK))
        return Transitions(
            np.concatenate([np.tile(piece.states, (len(piece.actions), 1)) for piece in pieces]),
            np.concatenate([np.repeat(piece.actions, len(piece.states)) for piece in pieces]),
            np.concatenate([piece.next_states.reshape(-1, len(domain)) for piece in pieces]),
            domain=domain,
            n_actions=self.simulator.n_actions,
            paired=self.paired,
            **described(self.simulator),
        )

    @property
    def on_device(self) -> bool:
        """Whether its pieces are tensors of a device."""
        return device_of(self.simulator) is not None

    @property
    def _domain(self) -> Box:
        return as_domain(self.simulator.domain)

    @property
    def _piece(self) -> int:
        return CHUNK if not self.on_device else tensors.PIECE // len(self._domain)

    def generator_of(self, *key: int) -> Any:
        """The generator of a piece, or of an action in it."""
        child = np.random.SeedSequence(self.seed.entropy, spawn_key=(*self.seed.spawn_key, *key))
        device = device_of(self.simulator)
        return np.random.Generator(self.generator(child)) if device is None else tensors.generator(child, device)

    def states(self, size: int, rng: Any) -> Any:
        """States at which the simulator is asked ``[size, d]``."""
        if callable(self.design):
            return self.design(size, rng)
        if self.on_device:
            return tensors.draw_states(self.basis, size, rng, design=self.design)
        return (self.basis.design if self.design else self.basis.sample)(size, rng)


def draw(
    simulator: Simulator,
    basis: Basis,
    n: int,
    rng: Any,
    *,
    design: bool | Design = False,
    paired: bool = False,
    refuse_terminal: bool = False,
    keeps: bool = False,
) -> Draws:
    """A stream of n transitions of every action, as in `Draws`; nothing is drawn before it is read.

    Pairs have the same states and the same random numbers for every action. The transitions of each action have the
    same distribution as before, but where a simulator turns equal random numbers into similar noise, as most do, that
    noise cancels in the difference between two actions, on which the criterion depends.
    """
    check_simulator(simulator)
    n, bits = as_samples(n), as_generator(rng).bit_generator
    (seed,) = bits.seed_seq.spawn(1)  # type: ignore[attr-defined]
    basis = basis.on(as_domain(simulator.domain))
    return Draws(simulator, basis, n, seed, type(bits), n, design, paired, refuse_terminal=refuse_terminal, keeps=keeps)


def ask(simulator: Simulator, states: Any, action: int, rng: Any, domain: Box) -> Any:
    """Next states ``[n, d]`` from one call of the simulator, checked.

    The simulator receives a copy of the states, and its answer is copied before another call can overwrite it.
    """
    on_device, name = device_of(simulator) is not None, f"next states of the simulator for action {action}"

    def read(answer: Any) -> Any:
        if on_device:
            return tensors.as_tensor_states(answer, domain, name=name)
        return as_states(as_reals(answer, name), domain, name=name, instead=_CLIP)

    answer = call(simulator.sample, states, action, rng, what="the simulator's sample", read=read)
    if len(answer) != len(states):
        raise ValueError(
            f"the simulator's sample(states, {action}, rng) got {len(states)} states and returned {len(answer)}"
        )
    return answer


def ask_all(simulator: Simulator, states: Any, rng: Any) -> tuple[Any, bool]:
    """Next states ``[A, n, d]`` with equal random numbers; whether all used equally many."""
    answers, positions, domain = [], set(), as_domain(simulator.domain)
    on_device = device_of(simulator) is not None
    for action in range(simulator.n_actions):
        again = rng.clone_state() if on_device else copy.deepcopy(rng)
        answers.append(ask(simulator, states, action, again, domain))
        positions.add(again.get_state().numpy().tobytes() if on_device else repr(again.bit_generator.state))
    return (tensors.torch().stack(answers) if on_device else np.stack(answers)), len(positions) == 1


def sample(
    simulator: Simulator, *, basis: Basis, samples: int, rng: Any, design: bool = False, paired: bool = False
) -> Transitions:
    """Draw ``samples`` transitions of every action (Algorithm 1, steps 1–2).

    Args:
        simulator: the dynamics.
        basis: states are drawn from its weight, as the mean form of `estimate` needs.
        samples: transitions for each action.
        rng: a seed or Generator.
        design: draw states by the design for least squares instead (`Basis.design`).
        paired: use the same states and random numbers for every action, so that noise cancels between actions.

    Example:
        >>> problem = certirl.problems.random_polynomial(seed=7)
        >>> print(certirl.steps.sample(problem, basis=certirl.Legendre(5), samples=100, rng=0))
        300 transitions on [-1, 1]; per action: 100, 100, 100
    """
    check_simulator(simulator)
    as_basis(basis, as_domain(simulator.domain))
    as_samples(samples, most=MOST_KEPT // simulator.n_actions)
    as_flag(design, "design")
    as_flag(paired, "paired")
    return draw(simulator, basis, samples, as_generator(rng, "sample"), design=design, paired=paired).record()


def check_rollouts(states: int, samples: int, steps: int) -> None:
    """Refuse, with a sentence, rollouts that would take days."""
    if states * samples * steps > MOST_SAMPLES:
        raise ValueError(
            f"states={states:,}, samples={samples:,} and steps={steps:,} make {states * samples * steps:,} steps for "
            f"each first action, more than {MOST_SAMPLES:,}: ask for fewer"
        )


@dataclass(frozen=True, eq=False)
class Even(Record):
    """States for which least squares is about equally accurate everywhere.

    The largest φᵀG⁻¹φ, the variance of a fit of k functions at a state, is at least k/n. For polynomials and uniform
    states it is k²/n, for the arcsine distribution (`Basis.design`) 2k/n, on boxes up to 4.5k/n at the corners. Here
    some of the states are next to the ends of each coordinate instead, and it is about 1.3k/n.
    """

    bases: tuple[Basis, ...]  # one, or one for each component of the state
    # those of each component; None for all, with a single basis
    coordinates: tuple[tuple[int, ...] | None, ...] = (None,)

    def __call__(self, count: int, rng: Any) -> Any:
        """States ``[count, d]``, tensors if ``rng`` is a generator of a device."""
        size = sum(basis.dimension for basis in self.bases)
        columns: list[Any] = [None] * size
        if isinstance(rng, np.random.Generator):
            uniform, cosine, stack = rng.random((size, count)), np.cos, partial(np.stack, axis=1)
        else:
            torch = tensors.torch()
            uniform = torch.rand(size, count, generator=rng, device=rng.device)
            cosine, stack = torch.cos, partial(torch.stack, dim=1)
        for basis, coordinates in zip(self.bases, self.coordinates, strict=True):
            with_ends = basis.dimension - len(basis.periodic_axes)
            for part, place in zip(basis.parts, range(size) if coordinates is None else coordinates, strict=True):
                u, ((low, high),) = uniform[place], part.domain
                t = 2 * u - 1 if part.periodic else cosine(toward_ends(u, part.degree, with_ends))
                columns[place] = ((low + high) / 2 + (high - low) / 2 * t).clip(low, high)
        return stack(columns)


def toward_ends(uniform: Any, degree: int, coordinates: int) -> Any:
    """Angles θ from uniform numbers: even on [0, π], but for a share next to its ends.

    ``degree`` is that of the functions in this coordinate, ``coordinates`` the number of those that have ends.
    """
    if degree == 0:
        return np.pi * uniform
    width, share = 0.5 / degree, _ENDS[min(coordinates, len(_ENDS)) - 1] / (degree + 2)
    end = share / 2 + (1 - share) * width / np.pi  # the probability of angles within the width of an end
    outer, inner = width / end, (np.pi - 2 * width) / (1 - 2 * end)
    middle, last = (uniform - end).clip(0.0, 1 - 2 * end), (uniform - (1 - end)).clip(0.0, end)
    return outer * (uniform.clip(0.0, end) + last) + inner * middle


@dataclass(frozen=True, eq=False)
class Near(Record):
    """A basis's even design, with a share of the states near given places instead.

    With three in ten of the states near two places, the variance of a polynomial fit halves there, and grows by less
    than a half elsewhere.
    """

    basis: Basis  # its design gives the other states
    places: Array  # the given states ``[z, d]``
    widths: Array  # the largest distance from a place along each coordinate ``[d]``
    share: float  # the share of states near a place

    def __call__(self, count: int, rng: np.random.Generator) -> Array:
        """States ``[count, d]``."""
        states: Array = Even((self.basis,))(count, rng)
        chosen = rng.random(count) < self.share
        centres = self.places[rng.integers(len(self.places), size=count)]
        moved = centres + self.widths * rng.uniform(-1.0, 1.0, states.shape)
        low, high = self.basis.domain.ends
        return np.where(chosen[:, None], np.clip(moved, low, high), states)
