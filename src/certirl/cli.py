"""The command line: demo, solve, show, coverage, moments, merge, check, plan, reproduce, bench."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from certirl import __version__, additive, archive, inputs, moments
from certirl._map import on
from certirl.bases import Legendre
from certirl.problems import random_polynomial
from certirl.recover import OBJECTIVES
from certirl.scheduler import place
from certirl.solve import solve
from certirl.solve_files import OBSERVED, solved
from certirl.study import add_options, add_place

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
    parser = _parser()
    if not (sys.argv[1:] if arguments is None else arguments):
        parser.print_help()
        return 0
    options = parser.parse_args(arguments)
    try:
        return int(options.run(options))
    except BrokenPipeError:  # whoever read the output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (ValueError, TypeError, OSError, ImportError, MemoryError) as problem:
        print(f"certirl: {problem}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("certirl: interrupted", file=sys.stderr)
        return 130


def demo(options: argparse.Namespace) -> int:
    """Solve a problem whose truth is known until the answer is proved, and say whether it is right."""
    problem = random_polynomial(seed=options.problem, actions=3, degree=10)
    print(f"{problem}; the expert always takes action 0; the dynamics are only sampled.")
    print("Known of the dynamics: they depend on the state through its first 3 Legendre functions (tail=0).\n")
    with place(options.workers, options.scheduler) as where:
        solution = solve(
            problem,
            discount=0.7,
            basis=Legendre(11),
            columns=3,
            delta=0.05,
            tail=0,
            max_samples=options.max_samples,
            rng=options.seed,
            map=where,
        )
    print(solution)
    if solution.reward is None:
        return 1
    margin = problem.true_margin(solution.reward, discount=solution.discount)
    verdict = "strictly optimal at every state" if margin > 0 else "NOT optimal everywhere"
    print(f"\nThe truth, which the solver did not see: minimum margin {margin:.3f}, the expert is {verdict}.")
    _write_picture(lambda path: solution.plot(problem=problem, path=path), options.plot)
    print(f"Solution: {solution.save(options.output)}   (certirl.load reads it, certirl check proves it again)")
    return 0 if margin > 0 else 1


def solve_file(options: argparse.Namespace) -> int:
    """Solve from logged transitions, or from moments."""
    _check_output(options.output, options.data, options.plot)
    with place(options.workers, options.scheduler) as where:
        solution = solved(options, where)
    print(solution)
    print(f"Solution: {solution.save(options.output)}")
    if solution.reward is not None and options.plot:
        _write_picture(lambda path: solution.plot(path=path), options.plot)
    return 0 if solution.status in ("solved", "validated", "certified") else 1


def show(options: argparse.Namespace) -> int:
    """Print, and perhaps draw, whatever certirl saved."""
    kind = archive.read(options.file)[0]
    record = moments.load(options.file) if kind == "moments" else additive.load(options.file)
    print(record)
    if options.plot:
        if not hasattr(record, "plot"):
            raise ValueError(f"there is no picture of {kind}: leave --plot out")
        _write_picture(lambda path: record.plot(path=path), options.plot)
    return 0


def cover(options: argparse.Namespace) -> int:
    """Say where in the state space a log can support a statement, and where it is blind."""
    from certirl import plots
    from certirl.coverage import coverage

    log = inputs.read_log(options)
    basis = inputs.basis_of(options, len(log.domain))
    found = coverage(log, basis=basis, periodic=tuple(options.periodic))
    print(found)
    if options.plot:
        _write_picture(lambda path: plots.coverage(found, path=path), options.plot)
    return 0


def measure_files(options: argparse.Namespace) -> int:
    """Sum up tables of any length into moments."""
    from certirl import tables

    _check_output(options.output, options.data)
    columns, box = inputs.recognised(options), {"domain": options.domain, "n_actions": options.actions}
    source: Any = options.data
    basis: Any = inputs.basis_of(options, len(options.domain or [None]))
    if columns is not None:
        print(inputs.told_about(columns))
        more = {"periodic": options.periodic, "outside": options.outside, "episode_column": columns.episode}
        source, box = tables.stream_episodes(options.data, **box, **more), {}
    with place(options.workers, options.scheduler) as where:
        measured = tables.measure(
            source,
            basis=basis,
            columns=options.columns,
            allow_repeats=options.allow_repeats,
            map=where,
            **box,
        )
    print(measured)
    if options.domain is None:
        print("The domain was taken from the data; shards that are to be merged need the same --domain LOW HIGH.")
    print(f"Moments: {measured.save(options.output)}   (certirl solve and certirl merge read it)")
    return 0


def merge_files(options: argparse.Namespace) -> int:
    """Add up moments of different data."""
    _check_output(options.output, options.files)
    merged = moments.merge(map(moments.load, options.files), allow_repeats=options.allow_repeats)
    print(merged)
    print(f"Moments: {merged.save(options.output)}")
    return 0


def check_file(options: argparse.Namespace) -> int:
    """Derive a saved certificate again, with other arithmetic."""
    from certirl.check import main

    return main(options.file)


def plan(options: argparse.Namespace) -> int:
    """Print what the theorems ask for."""
    from certirl import theorems

    asked = {name: value for name, value in vars(options).items() if name != "run" and value is not None}
    print(theorems.plan(**asked))
    return 0


def reproduce(options: argparse.Namespace) -> int:
    """Run the paper's experiments."""
    from certirl.reproduce import STUDIES, reproduce

    with place(options.workers, options.scheduler) as where, on(where if options.scheduler else None):
        reproduce(STUDIES if options.study == "all" else [options.study], options)
    return 0


def bench(options: argparse.Namespace) -> int:
    """Measure how fast this machine is, and how fast it could be."""
    from certirl.bench import run

    run(options.out, fast=options.fast)
    return 0


def _check_output(output: str, inputs: Sequence[str], picture: str | None = None) -> None:
    """Refuse before the work what would spoil it after: a folder that is not there, a result in place of the data."""
    if picture and not Path(picture).parent.is_dir():
        raise FileNotFoundError(f"there is no folder {Path(picture).parent} to write {Path(picture).name} to")
    target = archive.target_of(output).resolve()
    if target in {Path(path).resolve() for path in inputs}:
        raise ValueError(f"{output} is an input; write the result elsewhere with --output")


def _write_picture(draw: Callable[[str], Any], path: str) -> None:
    try:
        draw(path)
    except ImportError as missing:
        print(f"No picture: {missing}")
    else:
        print(f"Picture: {path}")


class _Parser(argparse.ArgumentParser):
    """Mistakes in options are one sentence, too."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"certirl: {message}; {self.prog} --help explains\n")


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
    _add_coverage(commands.add_parser("coverage", help="say where a log can speak and where it is blind"))
    _add_moments(commands.add_parser("moments", help="sum up tables of any length, for solve and merge"))
    _add_merge(commands.add_parser("merge", help="add up moments of different data"))
    checker = commands.add_parser("check", help="prove a saved certificate again, independently")
    checker.add_argument("file", help="what certirl saved (.npz)")
    checker.set_defaults(run=check_file)
    _add_plan(commands.add_parser("plan", help="print the samples the theorems ask for"))
    _add_reproduce(commands.add_parser("reproduce", help="run the paper's experiments and draw its figures"))
    bencher = commands.add_parser("bench", help="measure the kernels and whole passes against peers and limits")
    bencher.add_argument("--fast", action="store_true", help="a first look, in less than 20 seconds")
    bencher.add_argument("--out", type=Path, default=Path("certirl-bench"), help="folder (default certirl-bench)")
    bencher.set_defaults(run=bench)
    return parser


def _add_reproduce(command: argparse.ArgumentParser) -> None:
    from certirl.reproduce import STUDIES

    command.add_argument("study", choices=[*STUDIES, "all"], help="which; samples goes beyond the paper")
    add_options(command, "certirl-reproduced")
    command.set_defaults(run=reproduce)


def _add_demo(command: argparse.ArgumentParser) -> None:
    command.add_argument("--problem", type=int, default=7, help="seed of the random polynomial problem (default 7)")
    command.add_argument("--max-samples", type=int, default=500_000, help="transitions per action to stop at")
    command.add_argument("--seed", type=int, default=0, help="seed of the draws (default 0)")
    command.add_argument("--output", default="certirl-demo.npz", help="where the solution goes")
    command.add_argument("--plot", default="certirl-demo.png", help="where the picture goes")
    add_place(command, "threads")
    command.set_defaults(run=demo)


def _add_solve(command: argparse.ArgumentParser) -> None:
    command.add_argument("data", nargs="+", help=f"{inputs.DATA}; or one file that certirl moments wrote")
    command.add_argument("--discount", type=float, required=True, help="γ, strictly between 0 and 1")
    command.add_argument(
        "--expert", default="0", metavar="WHO",
        help="the action it always takes (default 0); or a file of its demonstrations, with columns state, action (and "
        f"episode, if they come in episodes) or .npz with arrays states, actions; or the word {OBSERVED}: the "
        "expert made the log, and its policy is learned from the actions there",
    )  # fmt: skip
    inputs.add_states(command)
    inputs.add_episodes(command)
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
        "--cover", type=float, metavar="RADIUS", help="for one action: the paper's cover instead of the continuum"
    )
    form.add_argument("--slack", type=float, metavar="PRICE", help="soft form: the price of a shortfall")
    form.add_argument(
        "--margin", type=float, metavar="SHARE",
        help="for experts who depend on the state: within this share of the box beside a switch less is asked",
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
    add_place(where, "threads")
    command.set_defaults(run=solve_file)


def _add_coverage(command: argparse.ArgumentParser) -> None:
    command.add_argument("data", nargs="+", help=inputs.DATA)
    inputs.add_states(command)
    inputs.add_episodes(command)
    inputs.add_basis(command, "moderate ones, for the number of coordinates")
    command.add_argument("--plot", metavar="PICTURE", help="where a picture goes (default: none)")
    command.set_defaults(run=cover)


def _add_moments(command: argparse.ArgumentParser) -> None:
    command.add_argument("data", nargs="+", help=inputs.DATA)
    inputs.add_states(command)
    inputs.add_episodes(command)
    inputs.add_basis(command, "legendre", default="legendre")
    command.add_argument("--columns", type=int, metavar="N", help="functions of the state (default: as many)")
    command.add_argument("--allow-repeats", action="store_true", help="let a file and its copy both count")
    command.add_argument("-o", "--output", default="moments.npz", help="where they go (default moments.npz)")
    add_place(command, "threads")
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
