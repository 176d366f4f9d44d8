"""What the options of the commands stand for: sources, bases, experts, and calls of the library."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from certirl.cli.options import OBSERVED
from certirl.data import moments
from certirl.data.coverage import MOSTLY, coverage
from certirl.data.demonstrations import policy_from
from certirl.data.dependence import dependence
from certirl.data.episodes import OUTSIDE
from certirl.data.formats import Columns, find_tables, in_table, names_file, open_table
from certirl.data.source import Logged, Source, as_source
from certirl.data.tables import Names, read, read_demonstrations, recognise
from certirl.data.transitions import Transitions, action_in_words
from certirl.fit.drifts import EACH_ITS_OWN, Drifts, SharedDrift, shared_instead
from certirl.functions.bases import FAMILIES, MOST_FUNCTIONS, Basis, Fourier, product
from certirl.functions.reward import Reward
from certirl.ground import archive, doors
from certirl.ground.domain import as_domain
from certirl.ground.doors import as_count
from certirl.proof.case import tail_too_large
from certirl.proof.certificate import Certificate
from certirl.proof.certify import certify
from certirl.solver.methods import FOR_ONE_ACTION, FOR_POLICIES, Program, ValueForm, usual_method
from certirl.solver.request import NO_PROOF_FROM_MOMENTS
from certirl.solver.solution import Solution, load
from certirl.solver.solve import solve
from certirl.solver.value_form import proof_columns

if TYPE_CHECKING:
    from certirl.proof.known_noise import AffineGaussian

# Options about tables
COLUMNS = ("state", "action", "next_state", "episode", "step", "terminated", "delimiter", "missing", "longest_step")
_OBJECT = re.compile(r"(?P<module>.+\.py|[A-Za-z_]\w*(?:\.\w+)*):(?P<name>[A-Za-z_]\w*)")


def basis_of(options: argparse.Namespace, coordinates: int, periodic: Sequence[int] = ()) -> Basis | None:
    """The basis asked for: one family, Fourier for periodic coordinates, or products."""
    check_axes(options.periodic, coordinates)
    periodic = (*options.periodic, *periodic)
    if options.basis is None:
        if options.size is not None:
            raise ValueError("--size goes with --basis; without a basis both are chosen from the data")
        return None
    size = 11 if options.size is None else as_count(options.size, "size", most=MOST_FUNCTIONS)
    family = FAMILIES[options.basis.capitalize()]
    parts = [Fourier(size) if axis in periodic else family(size) for axis in range(coordinates)]
    return parts[0] if coordinates == 1 else product(*parts)


def columns_of(options: argparse.Namespace) -> Columns:
    """What the columns of the first file mean; tables of episodes are announced."""
    file = find_tables(options.data)[0]
    kind = archive.kind_of(file)
    if kind is not None:
        raise ValueError(f"{file} is a file of certirl ({kind}), not a table of transitions")
    names = Names(**names_of(options))
    with in_table(file):
        columns = recognise(open_table(file, names.delimiter), names)
    if columns.by_episode:
        other = "; --episode '' takes every row by itself" if columns.next_states else ""
        print(f"Read as episodes: {columns}{other}.")
    check_axes(options.periodic, columns.dimension)
    return columns


def names_of(options: argparse.Namespace) -> dict[str, Any]:
    """The columns that are named, as settings of `certirl.logs.read`."""
    names = {name: getattr(options, name) for name in COLUMNS}
    return {name: value for name, value in names.items() if value is not None}


def reading(options: argparse.Namespace) -> dict[str, Any]:
    """The settings of `certirl.logs.read` and `stream` behind the options."""
    actions = {"actions" if isinstance(options.actions, tuple) else "n_actions": options.actions}
    return {
        "domain": options.domain,
        **(options.actions if isinstance(options.actions, dict) else actions),
        "periodic": options.periodic,
        "exogenous": [int(name) if name.isdecimal() else name for name in options.exogenous or ()],
        "outside": options.outside or OUTSIDE[0],
        "lag": options.lag or (),
        **names_of(options),
    }


def read_log(options: argparse.Namespace) -> Transitions:
    """The transitions of the files; what was recognised or chosen is printed."""
    columns_of(options)
    log = read(options.data, **reading(options))
    print(log)
    if options.domain is None:
        print(f"The domain {log.domain.words} was taken from the data; --domain LOW HIGH sets it.")
    return log


def check_axes(periodic: Sequence[int], coordinates: int) -> None:
    """Refuse periodic coordinates that do not exist."""
    wrong = [axis for axis in periodic if axis not in range(coordinates)]
    if wrong:
        there = "coordinate 0" if coordinates == 1 else f"coordinates 0 … {coordinates - 1}"
        raise ValueError(f"--periodic {wrong[0]} names no coordinate: the states have {there}")


def solved(options: argparse.Namespace, where: Any) -> Solution:
    """The answer of `solve` to the options of a command; ``where`` is its map."""
    names = ("discount", "columns", "delta", "tail", "tube", "regret", "suboptimality", "samples", "trials")
    drifts, dynamics = drifts_of(options), dynamics_of(options)
    if drifts.are_shared and dynamics is not None:
        raise ValueError("--shared-drift is for estimates, --known-noise for proofs: leave one of them out")
    declared = drifts if drifts.are_shared else dynamics
    asked = {name: getattr(options, name) for name in names} | {"map": where, "dynamics": declared}
    for kind in (Program, ValueForm):  # what is wrong in itself is refused before anything is read
        kind(**_fields(options, kind))
    seed = None if options.seed is None else as_count(options.seed, "seed", least=0)
    if any(archive.kind_of(path) for path in options.data if is_file(path)):
        return _from_moments(options, asked | {"rng": seed, "method": method_of(options, None, is_constant=True)})
    expert = expert_of(options)
    if options.delta is not None:
        _check_proof(options, options.domain, expert)
    source = source_of(options)
    rng = 0 if seed is None else seed
    expert = expert.known_to(source.action_names)
    asked["method"] = method_of(options, source, is_constant=expert.is_constant)
    known = policy_of(expert, source, options) if expert.action is None else expert.action
    basis = basis_of(options, len(source.domain), source.periodic)
    return solve(source.data, expert=known, basis=basis, rng=rng, **asked)


def _fields(options: argparse.Namespace, kind: type[Program] | type[ValueForm]) -> dict[str, Any]:
    """The fields of a method that are given as options."""
    given = {field.name: getattr(options, field.name, None) for field in fields(kind)}
    return {name: value for name, value in given.items() if value is not None}


def method_of(options: argparse.Namespace, source: Source | None, *, is_constant: bool) -> Program | ValueForm:
    """The usual method with the fields asked for; options of the other method are refused."""
    kind = usual_method(source, is_constant=is_constant, drifts=drifts_of(options))
    given, other = _fields(options, kind), _fields(options, ValueForm if kind is Program else Program)
    for name in other.keys() - given.keys():
        raise ValueError(f"--{name} {FOR_POLICIES if kind is Program else FOR_ONE_ACTION}")
    return kind(**given)


def drifts_of(options: argparse.Namespace) -> Drifts:
    """What the options declare of the drifts of a log's actions."""
    degree = getattr(options, "shared_drift", None)
    return EACH_ITS_OWN if degree is None else SharedDrift(degree or None)


def dynamics_of(options: argparse.Namespace) -> AffineGaussian | None:
    """What the options declare of the dynamics in place of columns and a tail."""
    if options.known_noise is None:
        return None
    from certirl.proof.known_noise import AffineGaussian  # which imports SciPy

    return AffineGaussian(options.known_noise)


def certified(options: argparse.Namespace, where: Any) -> Certificate:
    """The answer of `certify` to the options of a command; ``where`` is its map."""
    dynamics = dynamics_of(options)
    by_tail = dynamics is None
    for name in () if by_tail else ("tail", "columns", "workers", "scheduler"):
        if getattr(options, name) is not None:
            raise ValueError(f"a proof with --known-noise has no use for --{name}: leave it out")
    with doors.options({}):  # what is wrong in the file was no option
        record = load(options.reward)
    if not isinstance(record, Solution | Reward):
        raise ValueError(f"{options.reward} holds {type(record).__name__}, and no reward that could be certified")
    if isinstance(record, Solution) and record.reward is None:
        raise ValueError(f"there is no reward in {options.reward}: {record.reason}")
    reward: Any = record.reward if isinstance(record, Solution) else record
    if any(archive.kind_of(path) for path in options.data if is_file(path)):
        raise ValueError(f"{NO_PROOF_FROM_MOMENTS}: name the transitions instead")
    is_log = not object_of(options.data)
    if isinstance(record, Solution):  # what is not given is as in the solution
        options.discount = record.discount if options.discount is None else options.discount
        options.actions = record.n_actions if options.actions is None and is_log else options.actions
        options.expert = record.expert if options.expert is None else options.expert
    missing = [f"--{name}" for name in ("discount", "expert") if getattr(options, name) is None]
    if missing:
        raise ValueError(f"{options.reward} does not say all of the problem: write {' and '.join(missing)}, too")
    domain = reward.domain if options.domain is None else options.domain
    columns: Any = None
    if by_tail and (options.columns is not None or getattr(record, "expert", None) is None):
        columns = _columns(options, domain)
    expert = expert_of(options)
    bases = [columns]
    if columns is None:
        bases = [estimate.columns for estimate in getattr(record, "components", ())]
    _check_proof(options, domain, expert, bases)
    options.domain = domain if is_log else options.domain
    source = source_of(options)
    expert = expert.known_to(source.action_names)
    asked: dict[str, Any] = {
        "discount": options.discount,
        "expert": expert.action if expert.action is not None else policy_of(expert, source, options),
        "rng": 0 if options.seed is None else as_count(options.seed, "seed", least=0),
    }
    asked |= {name: getattr(options, name) for name in ("delta", "samples", "tube", "suboptimality")}
    if dynamics is not None:
        return certify(record, source.data, dynamics=dynamics, **asked)
    return certify(record, source.data, columns=columns, tail=options.tail, map=where, **asked)


def _check_proof(options: argparse.Namespace, domain: Any, expert: Expert, columns: Sequence[Basis] = ()) -> None:
    """Refuse, before anything is read or drawn, a proof that cannot be found: without a domain, or with its tail."""
    if object_of(options.data):
        domain = as_source(simulator_at(object_of(options.data))).domain
    if domain is None:
        raise ValueError("a certificate needs a declared domain: write --domain LOW HIGH, once for each coordinate")
    if options.tail is None or (not columns and options.columns is None and expert.is_constant):
        return  # nothing is declared, or columns are chosen by the data
    for basis in columns or [_columns(options, domain)]:
        sentence = tail_too_large(options.tail, basis, options.discount)
        if sentence:
            raise ValueError(sentence)


def _columns(options: argparse.Namespace, domain: Any) -> Basis:
    return proof_columns(options.columns, options.tail, as_domain(domain), options.discount, tuple(options.periodic))


def source_of(options: argparse.Namespace) -> Source:
    """The log in the files, or the simulator that is named in their place."""
    if object_of(options.data):
        _refuse_table_options(options, "a simulator has its own")
        return as_source(simulator_at(object_of(options.data)))
    log = read_log(options)
    source = Logged(log)
    sentence = dependence(log, source.sampling) if getattr(options, "delta", None) is not None else ""
    if sentence:
        raise ValueError(sentence)
    if getattr(options, "delta", None) is not None and source.sampling == "order":
        print("The rows count in the order of time, as steps of a trajectory.")
    return source


def _refuse_table_options(options: argparse.Namespace, why: str) -> None:
    for name in ("domain", "actions", "periodic", "exogenous", "outside", *COLUMNS):
        if getattr(options, name):
            raise ValueError(f"--{name.replace('_', '-')} belongs to transitions, and {why}: leave it out")


def is_file(word: str) -> bool:
    """Whether a word names a file rather than an object."""
    return not _OBJECT.fullmatch(word) or Path(word).exists()


def check_named(word: str) -> None:
    """Refuse a Python file without the name of an object in it."""
    if word.endswith(".py"):
        raise ValueError(f"{word} is a Python file: write {word}:NAME, with the name of the object in it")


def object_of(words: Sequence[str]) -> str:
    """The word that names a simulator; empty for files."""
    for word in words:
        check_named(word)
    names = [word for word in words if not is_file(word)]
    if names and len(words) > 1:
        raise ValueError(f"{names[0]} is a simulator: name it alone, without {next(w for w in words if w != names[0])}")
    return names[0] if names else ""


def files_of(options: argparse.Namespace) -> tuple[Path, ...]:
    """The files that ``data`` names; none where it names a simulator."""
    return () if object_of(options.data) else find_tables(options.data)


def simulator_at(word: str) -> Any:
    """The simulator FILE.py:NAME or MODULE:NAME; a class or a function is called to make it."""
    simulator = imported(word)
    if not hasattr(simulator, "sample") or isinstance(simulator, type):
        if not callable(simulator):
            raise ValueError(f"{word} is no simulator, which has n_actions, domain and sample(states, action, rng)")
        simulator = doors.call(simulator, what=word)
    return simulator


def policy_at(word: str) -> Any:
    """The function of states FILE.py:NAME or MODULE:NAME; a class is called to make it."""
    function = imported(word)
    return doors.call(function, what=word) if isinstance(function, type) else function


def imported(word: str) -> Any:
    """The object FILE.py:NAME or MODULE:NAME; its file is run once."""
    match = _OBJECT.fullmatch(word)
    assert match is not None
    is_path = match["module"].endswith(".py")
    if is_path and not Path(match["module"]).is_file():
        raise FileNotFoundError(f"there is no file {match['module']}")
    with doors.users(f"the import of {word}"):
        module = _module_at(Path(match["module"]).resolve()) if is_path else _module(match["module"])
    if module is None:
        raise ValueError(f"{word} cannot be imported: there is no module {match['module']}")
    if not hasattr(module, match["name"]):
        raise ValueError(f"{word} names nothing: {match['module']} has no {match['name']}")
    return getattr(module, match["name"])


def _module(name: str) -> ModuleType | None:
    """The module of a name; None if there is none."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as problem:
        if f"{name}.".startswith(f"{problem.name}."):
            return None
        raise  # one that the module itself imports


def _module_at(path: Path) -> ModuleType:
    """The module in a file, under its own name unless another module has it, with its folder to import from."""
    name = path.stem
    while name in sys.modules and Path(str(getattr(sys.modules[name], "__file__", ""))).resolve() != path:
        name += "_"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        sys.path.insert(0, str(path.parent))
        try:
            spec.loader.exec_module(sys.modules[name])
        except BaseException:
            del sys.modules[name]
            raise
    return sys.modules[name]


def _from_moments(options: argparse.Namespace, asked: dict[str, Any]) -> Solution:
    if len(options.data) > 1:
        raise ValueError(
            "one moments file can be solved, and no other file with it: certirl merge puts several together"
        )
    _refuse_table_options(options, "moments were measured with theirs")
    with doors.options({}):  # what is wrong in the file was no option
        measured = moments.load(options.data[0])
    expert = expert_of(options).known_to(measured.action_names)
    if expert.action is None:
        raise ValueError("an expert who depends on the state needs transitions: moments keep no states")
    print(measured)
    basis = basis_of(options, measured.rows.dimension)
    solution = solve(measured, expert=expert.action, basis=basis, **asked)
    print(f"{NO_PROOF_FROM_MOMENTS.capitalize()}.")
    return solution


@dataclass(frozen=True)
class Expert:
    """The expert that ``--expert`` names."""

    action: int | None  # the action it always takes; None if it depends on the state
    file: str | None = None  # of demonstrations; None if there is none
    function: Any = None  # of states; None if there is none
    # of the action it always takes, before the data say its number. Without any of these the log was made by the expert
    name: str = ""

    @property
    def is_constant(self) -> bool:
        """Whether it always takes one action."""
        return self.action is not None or bool(self.name)

    def known_to(self, names: Sequence[str]) -> Expert:
        """The same with the number of its action, by the names of actions in the data."""
        if not self.name:
            return self
        if self.name not in names:
            raise ValueError(_no_expert(self.name, names))
        return Expert(list(names).index(self.name))


def _no_expert(word: str, names: Sequence[str] = ()) -> str:
    """That a word names no expert."""
    named = f"one of {', '.join(names)}" if names else "a name with --actions left,right"
    there = f"there is no file {word}" if word else "it is empty"
    return (
        f"--expert must be an action (a whole number, or {named}), the word {OBSERVED}, or a file of demonstrations; "
        f"{there}"
    )


def expert_of(options: argparse.Namespace) -> Expert:
    """An action, the word "observed", a file of demonstrations, or a function of states."""
    word = str(options.expert).strip()
    action = int(word) if word.lstrip("+-").isdecimal() else None
    if action is None and isinstance(options.actions, tuple) and word in options.actions:
        action = options.actions.index(word)
    if options.errors is not None and (action is not None or not is_file(word)):
        raise ValueError("--errors is for experts who are known by demonstrations: leave it out")
    if action is not None:
        return Expert(action)
    if word == OBSERVED:
        if options.delta is not None:
            raise ValueError(
                "a certificate must rest on data that had no part in saying who the expert is: give the expert's "
                "demonstrations in a file of their own, --expert FILE, or leave --delta out"
            )
        if object_of(options.data):
            raise ValueError(f"--expert {OBSERVED} is for logs: name an action, a file of demonstrations or a function")
        return Expert(None)
    check_named(word)
    if word and not is_file(word):
        return Expert(None, None, policy_at(word))
    if not word or (not Path(word).exists() and (names_file(word) or isinstance(options.actions, tuple))):
        raise ValueError(_no_expert(word, options.actions if isinstance(options.actions, tuple) else ()))
    if not Path(word).exists():
        if options.errors is not None:
            raise ValueError(_no_expert(word))
        return Expert(None, name=word)
    kind = archive.kind_of(word)
    if kind is not None:
        raise ValueError(f"--expert must be a file of demonstrations, and {word} is a file of certirl ({kind})")
    if Path(word).resolve() in {file.resolve() for file in files_of(options)}:
        raise ValueError(f"{word} is the log itself: write --expert {OBSERVED} if the expert made it")
    return Expert(None, word)


def demonstrations_of(options: argparse.Namespace) -> tuple[Path, ...]:
    """The files that ``--expert`` names."""
    expert = expert_of(options)
    return () if expert.file is None else find_tables(expert.file)


def policy_of(expert: Expert, source: Source, options: argparse.Namespace) -> Any:
    """The policy of an expert that depends on the state: its function, or an estimate from its actions."""
    if expert.function is not None:
        return expert.function
    if expert.file is None:
        log: Any = source.data
        _check_alternatives(log, drifts_of(options))
        return policy_from(log, errors=options.errors)
    names = {"actions": source.action_names or None, **names_of(options)}
    (states, actions, episodes), _ = read_demonstrations(expert.file, **names)
    try:
        if states.shape[1] != len(source.domain):
            those = f"those of {source.noun} {len(source.domain)}"
            raise ValueError(f"states have {states.shape[1]} coordinates, {those}")
        settings: dict[str, Any] = {"domain": source.domain, "n_actions": source.n_actions}
        settings |= {"periodic": source.periodic, "errors": options.errors}
        return policy_from(states, actions, episodes=episodes, **settings)
    except ValueError as problem:
        raise ValueError(f"{expert.file}: {problem}") from None


def _check_alternatives(log: Transitions, drifts: Drifts) -> None:
    """Refuse a log of the expert in which other actions were hardly ever tried."""
    covered = coverage(log)
    if covered.never_taken:
        missing = ", ".join(action_in_words(action, log.action_names) for action in covered.never_taken)
        raise ValueError(
            f"{missing} was never taken in the log, so that nothing tells what the expert avoided: add "
            "transitions in which it is tried, or lower --actions"
        )
    if drifts.are_shared:
        return
    share = float(covered.extrapolated(log.states).mean())
    if share > MOSTLY:
        where = [sentence for sentence in covered.sentences if "taken only" in sentence] or covered.sentences
        raise ValueError(
            f"the log does not show what the actions do that the expert avoids: at {share:.0%} of its states some "
            f"action was never tried nearby ({'; '.join(where)}); add transitions in which every action is "
            f"tried; {shared_instead()}"
        )
    if not covered.complete:
        lines = (f"  {sentence[0].upper()}{sentence[1:]}." for sentence in covered.sentences)
        print("\n".join(["What the log does not show:", *lines]))
