"""The command line: demo, solve, show, coverage, moments, merge, check, plan, reproduce, bench."""

from __future__ import annotations

import argparse
import importlib
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path
from typing import Any, NoReturn

from certirl import __version__
from certirl.cli import inputs
from certirl.data import moments
from certirl.data.formats import find_tables
from certirl.fit.recover import OBJECTIVES
from certirl.functions.bases import Legendre
from certirl.ground import archive, doors
from certirl.ground import interrupts as _interrupts
from certirl.ground.work import place
from certirl.problems import random_polynomial
from certirl.solver.solution import load
from certirl.solver.solve import solve

_EXAMPLES = """first steps:
  certirl demo                                                 a problem with known truth, solved and certified
  certirl coverage log.csv                                     what a log can tell, and what it cannot
  certirl solve log.csv --discount 0.9 --expert 0              the expert always takes action 0
  certirl solve log.csv --discount 0.9 --expert seen.csv       it depends on the state: demonstrations in seen.csv
  certirl solve log.csv --discount 0.9 --expert observed       the expert made the log
  certirl show reward.npz --plot again.png                     print and draw what was saved
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; mistakes are one sentence on standard error and exit code 2."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    try:
        _interrupts.begin_work()
        with _lasting_output():
            parser = _parser()
            if not words:
                parser.print_help()
                return 0
            options = parser.parse_args(inputs.as_argparse_reads(words))
            with doors.options(inputs.option_names(options)):
                return int(options.run(options))
    except KeyboardInterrupt:
        return _interrupted()
    except (ValueError, TypeError, OSError, ImportError, MemoryError, SystemError) as problem:
        if _interrupts.happened():
            return _interrupted()
        if isinstance(problem, SystemError):
            raise
        _complain(_sentence(problem))
        return 2


def _interrupted() -> int:
    _interrupts.end()
    _complain("interrupted")
    return _interrupts.CODE


def _complain(sentence: str) -> None:
    if sys.stderr is not None:
        with suppress(OSError):
            print(f"certirl: {sentence}", file=sys.stderr, flush=True)


def _sentence(problem: BaseException) -> str:
    """What to say of an error: its own sentence, or one for what the system says in another way."""
    if isinstance(problem, MemoryError):
        wanted = re.search(r"allocate ([\d.]+?)\.? (\wi?B|bytes)", str(problem))
        size = f": {wanted[1]} {wanted[2]} in one piece" if wanted else ""
        return f"there is not enough memory{size}; use fewer functions, actions or coordinates, or certirl moments"
    if isinstance(problem, OSError) and problem.errno is not None:
        return f"cannot use {problem.filename}: {str(problem.strerror).lower()}"
    return " ".join(str(problem).split())


class _Output:
    """Standard output that cannot stop the work: a failure is kept, and nothing more is written after it.

    What the encoding of a terminal does not have is written as an escape.
    """

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.failure: OSError | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def write(self, text: str) -> int:
        encoding = getattr(self.stream, "encoding", None) or "utf-8"
        self._try(self.stream.write, text.encode(encoding, "backslashreplace").decode(encoding))
        return len(text)

    def flush(self) -> None:
        self._try(self.stream.flush)

    def _try(self, action: Callable[..., object], *arguments: Any) -> None:
        if self.failure is None:
            try:
                action(*arguments)
            except OSError as problem:
                self.failure = problem
                with suppress(OSError, ValueError):  # or what is still in its buffer would fail again at the exit
                    os.dup2(os.open(os.devnull, os.O_WRONLY), self.stream.fileno())


@contextmanager
def _lasting_output() -> Iterator[None]:
    """A context in which a failing standard output stops no command; a closed pipe is not an error."""
    if sys.stdout is None:
        yield
        return
    output = _Output(sys.stdout)
    try:
        with redirect_stdout(output):
            yield
    finally:
        output.flush()
    if output.failure is not None and not isinstance(output.failure, BrokenPipeError):
        raise OSError(f"standard output could not be written: {str(output.failure.strerror).lower()}")


def demo(options: argparse.Namespace) -> int:
    """Solve a problem whose truth is known until the answer is proved, and say whether it is right."""
    seed = doors.as_count(options.seed, "seed", least=0)
    number = doors.as_count(options.problem, "problem", least=0)
    most = doors.as_count(options.samples, "samples")
    _check_outputs(options)
    problem = random_polynomial(seed=number, actions=3, degree=10)
    print("certirl demo: find a reward that explains an expert, and prove it, on a problem whose truth is known.")
    print()
    print(f"Problem:   {problem}, discount 0.7. The expert takes action 0 at every state.")
    print("Given:     next states drawn from a simulator, as many as are needed. The formulas of the dynamics are not")
    print("           given, only that they depend on the state through its first 3 Legendre functions.")
    print("Wanted:    a reward under which action 0 is strictly better than the others at every state in [-1, 1],")
    print("           with a proof that is wrong with probability 0.05 at most.", flush=True)
    with place(options.workers, options.scheduler) as where:
        solution = solve(
            problem,
            discount=0.7,
            basis=Legendre(11),
            columns=3,
            delta=0.05,
            tail=0,
            samples=most,
            rng=seed,
            map=where,
        )
    truth, right = "", False
    if solution.reward is not None:
        margin = problem.true_margin(solution.reward, discount=solution.discount)
        right = margin > 0
        truth = (
            f"Truth:     computed from the formulas, which the solver did not use: the smallest margin is {margin:.3f},"
            f"\n           so action 0 is {'strictly optimal at every state' if right else 'NOT optimal everywhere'}."
        )
    hint = "   (certirl check proves it again, with other arithmetic; certirl.load reads it in Python)"
    lines = ["", solution, *(["", truth] if truth else []), ""]
    _deliver(
        solution,
        options,
        lines,
        label="Solution",
        hint=hint,
        draw=lambda path: solution.plot(problem=problem, path=path),
    )
    return 0 if right else 1


def solve_file(options: argparse.Namespace) -> int:
    """Solve from logged transitions, or from moments."""
    _check_outputs(options, [*find_tables(options.data), *inputs.demonstrations_of(options)])
    if "expert" not in options.given:
        print("Expert: action 0 (default); --expert names another.")
    with place(options.workers, options.scheduler) as where:
        solution = inputs.solved(options, where)
    _deliver(solution, options, [solution], label="Solution", draw=lambda path: solution.plot(path=path))
    return 0 if solution.status in ("solved", "validated", "certified") else 1


def show(options: argparse.Namespace) -> int:
    """Print, and with --plot draw, a file that certirl saved."""
    _check_outputs(options, [options.file])
    record: Any = load(options.file)
    if options.plot and not hasattr(record, "plot"):
        raise ValueError(f"there is no picture of {type(record).__name__}: leave --plot out")
    _deliver(record, options, [record], draw=lambda path: record.plot(path=path))
    return 0


def cover(options: argparse.Namespace) -> int:
    """Say where in the state space a log can support a statement, and where it cannot."""
    from certirl import plots
    from certirl.data.coverage import coverage

    _check_outputs(options, find_tables(options.data))
    log = inputs.read_log(options)
    basis = inputs.basis_of(options, len(log.domain))
    covered = coverage(log, basis=basis, periodic=tuple(options.periodic))
    _deliver(covered, options, [covered], draw=lambda path: plots.coverage(covered, path=path))
    return 0


def measure_files(options: argparse.Namespace) -> int:
    """Sum up tables of any length into moments."""
    from certirl.data import tables

    _check_outputs(options, find_tables(options.data))
    basis: Any = inputs.basis_of(options, inputs.columns_of(options).dimension)
    with place(options.workers, options.scheduler) as where:
        log = tables.stream(options.data, allow_repeats=options.allow_repeats, **inputs.reading(options))
        measured = moments.measure(log, basis=basis, columns=options.columns, progress=None, map=where)
    lines: list[Any] = [measured]
    if options.domain is None:
        lines += ["The domain was taken from the data; shards that are to be merged need the same --domain LOW HIGH."]
    _deliver(measured, options, lines, label="Moments", hint="   (certirl solve and certirl merge read it)")
    return 0


def merge_files(options: argparse.Namespace) -> int:
    """Add up moments of different data."""
    _check_outputs(options, options.files)
    merged = moments.merge(map(moments.load, options.files), allow_repeats=options.allow_repeats)
    _deliver(merged, options, [merged], label="Moments")
    return 0


def check_file(options: argparse.Namespace) -> int:
    """Derive a saved certificate again, with other arithmetic."""
    from certirl.checker import main

    return main(options.file)


def plan(options: argparse.Namespace) -> int:
    """Print the samples that the theorems ask for."""
    from certirl.theory import ASSUMED, requirements

    names = ("discount", "beta", *ASSUMED, "rho", "columns")
    print(requirements(**{name: getattr(options, name) for name in names}))
    return 0


def reproduce(options: argparse.Namespace) -> int:
    """Run the paper's experiments."""
    names = inputs.STUDIES if options.study == "all" else [options.study]
    _imported("experiments", "study").reproduce(names, options)
    return 0


def bench(options: argparse.Namespace) -> int:
    """Measure the speed of the kernels and of whole passes on this machine, beside its limits."""
    _imported("benchmarks", "bench").run(options.out, fast=options.fast)
    return 0


def _imported(folder: str, name: str) -> Any:
    """A file of experiments/ or benchmarks/: beside src/ in a checkout, inside the package in a wheel."""
    package = Path(__file__).resolve().parents[1]
    for place_of_files in (package / folder, package.parents[1] / folder):
        if (place_of_files / f"{name}.py").exists():
            sys.path.insert(0, str(place_of_files))  # other processes import from there as well
            return importlib.import_module(name)
    raise FileNotFoundError(f"{folder}/{name}.py is missing: install certirl again, or run certirl from a checkout")


def _check_outputs(options: argparse.Namespace, read: Sequence[Any] = ()) -> None:
    """Refuse before the work what would fail after it, and a result in place of the data."""
    from certirl import plots

    written = [archive.check_writable(options.output)] if hasattr(options, "output") else []
    if getattr(options, "plot", None):
        written.append(archive.check_writable(options.plot, plots.SUFFIXES))
    inputs_read = {Path(path).resolve() for path in read}
    for target in written:
        if target.resolve() in inputs_read:
            raise ValueError(f"{target} is an input; write the result elsewhere with --output")


def _deliver(
    record: Any,
    options: argparse.Namespace,
    lines: Sequence[Any],
    *,
    label: str = "",
    hint: str = "",
    draw: Callable[[Path], Any] | None = None,
) -> None:
    """Write the record and its picture, then print; files that could not be written are an error only after that.

    Args:
        record: the result.
        options: with ``output`` and ``plot``, where the command has them.
        lines: what to print first.
        label: what to call the record where its file is named.
        hint: what can be done with the file.
        draw: writes the picture to a path.
    """
    printed, problems = [str(line) for line in lines], []
    if label:
        where, problem = _saved(record, options.output)
        printed += [f"{label}: {where}{hint}"] if where else []
        problems += [problem] if problem else []
    if draw is not None and options.plot and getattr(record, "reward", record) is not None:
        printed += _drawn(draw, options.plot, problems)
    print("\n".join(printed))
    if problems:
        raise OSError("; ".join(problems))


def _saved(record: Any, output: str) -> tuple[str, str]:
    """Where the record was saved, in the temporary folder if nowhere else; and what went wrong."""
    try:
        replaced = archive.target_of(output).exists()
        return f"{record.save(output)}{' (replaced)' * replaced}", ""
    except OSError as problem:
        first = _sentence(problem)
    try:
        elsewhere = Path(tempfile.mkdtemp(prefix="certirl-")) / Path(output).name
        return str(saved := record.save(elsewhere)), f"{first}; it was saved as {saved} instead"
    except OSError as problem:
        return "", f"{first}, and {_sentence(problem)}: it is only printed"


def _drawn(draw: Callable[[Path], Any], picture: str, problems: list[str]) -> list[str]:
    from certirl import plots

    try:
        target = archive.target_of(picture, plots.SUFFIXES)
        replaced = target.exists()
        draw(target)
    except (ImportError, ValueError) as missing:
        return [f"No picture: {missing}"]
    except OSError as problem:
        problems.append(_sentence(problem))
        return []
    return [f"Picture: {target}{' (replaced)' * replaced}"]


class _Parser(argparse.ArgumentParser):
    """Mistakes in options are one sentence, too; an option is given once, unless it takes several values."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        for kind, key, what in (
            ("action", None, inputs.Once),
            ("type", int, inputs.whole),
            ("type", float, inputs.number),
        ):
            self.register(kind, key, what)

    def error(self, message: str) -> NoReturn:
        sentence = re.sub(r"^argument (?:-o/)?(\S+?): (?=must |is )", r"\1 ", message).removeprefix("argument ")
        self.exit(2, f"certirl: {' '.join(sentence.split())}; {self.prog} --help explains\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="certirl",
        description="Inverse reinforcement learning in continuous state spaces, with proofs.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"certirl {__version__}")
    commands = parser.add_subparsers(required=True, metavar="command")
    _add_demo(commands.add_parser("demo", help="solve a problem with known truth and draw it"))
    _add_solve(commands.add_parser("solve", help="find a reward that explains an expert, from a log or moments"))
    shower = commands.add_parser("show", help="print and draw what certirl saved")
    shower.add_argument("file", help="what certirl saved (.npz)")
    shower.add_argument("--plot", metavar="PICTURE", help="where a picture goes (default: none)")
    shower.set_defaults(run=show)
    _add_coverage(commands.add_parser("coverage", help="say where in the state space a log has enough data"))
    _add_moments(commands.add_parser("moments", help="sum up tables of any length, for solve and merge"))
    _add_merge(commands.add_parser("merge", help="add up moments of different data"))
    checker = commands.add_parser("check", help="prove a saved certificate again, independently")
    checker.add_argument("file", help="what certirl saved (.npz)")
    checker.set_defaults(run=check_file)
    _add_plan(commands.add_parser("plan", help="print the samples the theorems ask for"))
    _add_reproduce(commands.add_parser("reproduce", help="run the paper's experiments and draw its figures"))
    bencher = commands.add_parser("bench", help="measure the kernels and whole passes against peers and limits")
    bencher.add_argument("--fast", action="store_true", help="a first look, in less than 20 seconds")
    inputs.add_folder(bencher, "certirl-bench")
    bencher.set_defaults(run=bench)
    return parser


def _add_reproduce(command: argparse.ArgumentParser) -> None:
    command.add_argument("study", choices=[*inputs.STUDIES, "all"], help="which; samples goes beyond the paper")
    inputs.add_study_options(command, "certirl-reproduced")
    command.set_defaults(run=reproduce)


def _add_demo(command: argparse.ArgumentParser) -> None:
    command.add_argument("--problem", type=int, default=7, help="seed of the random polynomial problem (default 7)")
    command.add_argument("--samples", type=int, default=1_000_000, help="transitions per action to draw at most")
    command.add_argument("--seed", type=int, default=0, help="seed of the draws (default 0)")
    command.add_argument("--output", default="certirl-demo.npz", help="where the solution goes")
    command.add_argument("--plot", default="certirl-demo.png", help="where the picture goes")
    inputs.add_place(command, "threads")
    command.set_defaults(run=demo)


def _add_solve(command: argparse.ArgumentParser) -> None:
    command.add_argument("--discount", type=float, required=True, help="γ, strictly between 0 and 1")
    command.add_argument(
        "--expert", default="0", metavar="WHO",
        help="the action it always takes (default 0); or a file of its demonstrations, with columns state, action (and "
        f"episode, if they come in episodes) or .npz with arrays states, actions; or the word {inputs.OBSERVED}: the "
        "expert made the log, and its policy is learned from the actions there",
    )  # fmt: skip
    command.add_argument(
        "--errors", type=float, metavar="SHARE",
        help="up to this share of the expert's demonstrated actions may be mistakes (default: none is declared)",
    )  # fmt: skip
    inputs.add_log(command, also="; or one file that certirl moments wrote")
    functions = command.add_argument_group("functions of the state")
    inputs.add_basis(functions, "chosen from held-out data")
    functions.add_argument(
        "--columns", type=int, metavar="N",
        help="how many describe what actions do (default: chosen from held-out data); for an expert who depends on the "
        "state only with --delta",
    )  # fmt: skip
    form = command.add_argument_group("what is asked of the reward")
    form.add_argument("--objective", choices=OBJECTIVES, help=f"for an expert of one action (default {OBJECTIVES[0]})")
    form.add_argument(
        "--cover",
        type=float,
        metavar="RADIUS",
        help="for one action: the paper's cover instead of the continuum",
    )
    form.add_argument("--slack", type=float, metavar="PRICE", help="soft form: the price of a shortfall")
    form.add_argument(
        "--margin", type=float, metavar="SHARE",
        help="for experts who depend on the state: within this share of the box beside a switch less is asked",
    )  # fmt: skip
    form.add_argument(
        "--smoothness", type=float, metavar="PRICE",
        help="for experts who depend on the state: the price of a rough value function",
    )  # fmt: skip
    proof = command.add_argument_group("certificate")
    proof.add_argument("--delta", type=float, help="certify, with at most this probability of a false certificate")
    proof.add_argument("--tail", type=float, help="how far the dynamics reach beyond --columns (0: not at all)")
    proof.add_argument(
        "--tube", type=float, metavar="WIDTH",
        help="for experts who depend on the state: nearer than this to a switch nothing need be proved",
    )  # fmt: skip
    where = command.add_argument_group("results and work")
    where.add_argument("-o", "--output", default="reward.npz", help="where the solution goes (default reward.npz)")
    where.add_argument("--plot", default="reward.png", help="where the picture goes (default reward.png; '' for none)")
    inputs.add_place(where, "threads")
    command.set_defaults(run=solve_file)


def _add_coverage(command: argparse.ArgumentParser) -> None:
    inputs.add_log(command)
    inputs.add_basis(command, "moderate ones, for the number of coordinates")
    command.add_argument("--plot", metavar="PICTURE", help="where a picture goes (default: none)")
    command.set_defaults(run=cover)


def _add_moments(command: argparse.ArgumentParser) -> None:
    inputs.add_log(command)
    inputs.add_basis(command, "legendre", default="legendre")
    command.add_argument("--columns", type=int, metavar="N", help="functions of the state (default: as many)")
    command.add_argument("--allow-repeats", action="store_true", help="let a file and its copy both count")
    command.add_argument("-o", "--output", default="moments.npz", help="where they go (default moments.npz)")
    inputs.add_place(command, "threads")
    command.set_defaults(run=measure_files)


def _add_merge(command: argparse.ArgumentParser) -> None:
    command.add_argument("files", nargs="+", help="what certirl moments wrote (.npz)")
    command.add_argument("--allow-repeats", action="store_true", help="let the same data count twice")
    command.add_argument("-o", "--output", default="merged.npz", help="where the sum goes (default merged.npz)")
    command.set_defaults(run=merge_files)


def _add_plan(command: argparse.ArgumentParser) -> None:
    command.add_argument("--discount", type=float, required=True, help="γ")
    command.add_argument("--beta", type=float, required=True, help="β-separability: the best margin with ‖α‖₁ = 1")
    command.add_argument("--delta", type=float, help="probability of failure")
    command.add_argument("--size", type=int, help="functions in the basis, k")
    command.add_argument("--actions", type=int, help="number of actions")
    command.add_argument("--cover", type=float, help="cover radius c")
    command.add_argument("--rho", type=float, help="Lipschitz constant ρ of the criterion")
    command.add_argument("--norm", type=float, help="Δ, bound on the norm of every Z")
    command.add_argument("--inner-norm", type=float, help="Δ₂, the same without the constant function")
    command.add_argument("--difference", type=float, help="bound on the norm of T − Z without the constant function")
    command.add_argument("--columns", type=int, help="functions of the state, k_s")
    command.add_argument("--tail", type=float, help="norm of what truncation leaves out")
    command.set_defaults(run=plan)


if __name__ == "__main__":
    raise SystemExit(main())
