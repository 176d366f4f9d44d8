"""The commands that find and prove rewards: demo, solve, certify, cells."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from certirl.cli import inputs
from certirl.cli import options as table
from certirl.cli.output import Answer, check_outputs, code_of, deliver
from certirl.cli.parsing import DONE, INFEASIBLE, NOT_PROVED, UNDETERMINED, Verb
from certirl.data.simulator import check_simulator
from certirl.fit.recover import OBJECTIVES
from certirl.functions.bases import Legendre
from certirl.ground import doors
from certirl.ground.work import place
from certirl.problems import random_polynomial
from certirl.solver.solution import Solution, load
from certirl.solver.solve import solve

GRIDS = {"MountainCar-v0": (91, 71), "Pendulum-v1": (100, 101)}  # with lines at the faces of terminal states


def demo(options: argparse.Namespace) -> Answer:
    """Solve a problem whose truth is known until the answer is proved, and say whether it is right."""
    seed = doors.as_count(options.seed, "seed", least=0)
    number = doors.as_count(options.problem, "problem", least=0)
    most = doors.as_count(options.samples, "samples")
    check_outputs(options)
    problem = random_polynomial(seed=number, actions=3, degree=10)
    print("certirl demo: find a reward that explains an expert, and prove it, on a problem whose truth is known.")
    print()
    print(f"Problem:   {problem}, discount 0.7. The expert takes action 0 at every state.")
    print("Given:     next states drawn from a simulator, as many as are needed. The formulas of the dynamics are not")
    print("           given, only that they depend on the state through its first 3 Legendre functions.")
    print("Wanted:    a reward under which action 0 is strictly better than the others at every state in [-1, 1],")
    print("           with a proof that is wrong with probability 0.05 at most.", flush=True)
    with place(options.workers, options.scheduler) as where:
        asked: dict[str, Any] = {"basis": Legendre(11), "columns": 3, "delta": 0.05, "tail": 0, "samples": most}
        solution = solve(problem, expert=0, discount=0.7, rng=seed, map=where, **asked)
    lines, code = ["", solution, ""], code_of(solution.status, proof=True)
    if solution.reward is not None:
        margin = problem.true_margin(solution.reward, discount=solution.discount)
        verdict = "strictly optimal at every state" if margin > 0 else "NOT optimal everywhere"
        code = UNDETERMINED if code == DONE and not margin > 0 else code
        truth = f"computed from the formulas, which the solver did not use: the smallest margin is {margin:.3f}"
        lines += [f"Truth:     {truth},", f"           so action 0 is {verdict}.", ""]
    hint = "   (certirl report makes a page of it; certirl check proves it again, with other arithmetic)"

    def draw(path: Path) -> None:
        solution.plot(problem=problem, path=path)

    return deliver(solution, options, code, label="Solution", hint=hint, lines=lines, draw=draw)


def solve_file(options: argparse.Namespace) -> Answer:
    """Solve from logged transitions, from moments, or with a simulator."""
    check_outputs(options, [*inputs.files_of(options), *inputs.demonstrations_of(options)])
    if "expert" not in options.given:
        print("Expert: action 0 (default); --expert names another.")
    with place(options.workers, options.scheduler) as where:
        solution = inputs.solved(options, where)
    return deliver(solution, options, code_of(solution.status, proof=options.delta is not None), label="Solution")


def certify_file(options: argparse.Namespace) -> Answer:
    """Certify a saved reward on transitions that it was not found from."""
    check_outputs(options, [options.reward, *inputs.files_of(options)])
    with place(options.workers, options.scheduler) as where:
        certificate = inputs.certified(options, where)
    return deliver(certificate, options, DONE if certificate.holds else NOT_PROVED, label="Certificate")


def prove_by_cells(options: argparse.Namespace) -> Answer:
    """Prove a policy of a system without noise at every state: its plan, an expert, or what is greedy for a value."""
    from certirl.environments.planning import plan
    from certirl.environments.simulators import simulator as simulator_of
    from certirl.proof.case import DECLARED, no_case
    from certirl.proof.cells import Deterministic, ValueReward
    from certirl.proof.certify import certify

    check_outputs(options, [options.value] if options.value else [])
    seed = doors.as_count(options.seed, "seed", least=0)
    inputs.check_named(options.environment)
    is_named = not inputs.is_file(options.environment)
    if is_named and options.actions is not None:
        raise ValueError(f"--actions is for environments, and {options.environment} has its own: leave it out")
    if options.learned and options.value:
        raise ValueError("--value is used in place of a value that is learned: leave --learned out")
    simulator: Any = inputs.simulator_at(options.environment) if is_named else None
    simulator = simulator_of(options.environment, actions=options.actions) if simulator is None else simulator
    check_simulator(simulator)
    if (count := len(simulator.domain)) > DECLARED["Deterministic"].coordinates:
        raise ValueError(
            f"{options.environment} has {count} coordinates: {no_case('Deterministic', f'{count} coordinates')}"
        )
    if options.points is None and options.environment not in GRIDS:
        each = " ".join(["41"] * len(simulator.domain))
        raise ValueError(f"write --points {each}, say: how many the grid of the value has along each coordinate")
    points = tuple(GRIDS[options.environment] if options.points is None else options.points)
    points = points if len(points) > 1 else points[0]
    expert = None if options.expert is None else _expert_by_cells(options.expert)
    if options.value:
        value: Any = _value_in(options.value)
    else:
        expert = plan(simulator, discount=options.discount, points=points) if expert is None else expert
        learned = options.learned or options.expert is not None
        value = solve(simulator, expert=expert, discount=options.discount, rng=seed) if learned else expert
    declared = Deterministic(options.lipschitz, points, options.refine)
    if expert is None:  # also of a solution that knows its expert
        value = ValueReward(value, simulator, options.discount)
    proof = certify(value, simulator, expert=expert, discount=options.discount, dynamics=declared, rng=seed)
    code, label = (DONE, "Proof") if proof.decided.any() else (NOT_PROVED, "Result")
    return deliver(proof, options, code, label=label)


def _expert_by_cells(word: str) -> Any:
    """The action or the function of states that ``--expert`` names."""
    inputs.check_named(word)
    if not word.strip().isdecimal() and inputs.is_file(word):
        raise ValueError(f"--expert must be an action, a whole number, or a function, FILE.py:NAME, got {word!r}")
    return int(word) if word.strip().isdecimal() else inputs.policy_at(word)


def _value_in(file: str) -> Any:
    """The solution in a file, whose value is meant."""
    with doors.options({}):  # what is wrong in the file was no option
        record = load(file)
    if not isinstance(record, Solution):
        raise ValueError(f"--value must be a file of a solution, and {file} holds {type(record).__name__}")
    return record


_GRIDS_IN_WORDS = ", ".join(f"{' '.join(map(str, points))} for {name}" for name, points in GRIDS.items())
VERBS = (
    Verb(
        "demo",
        "solve a problem with known truth, prove the answer and draw it",
        "[options]",
        [("certirl demo", "takes some seconds and writes certirl-demo.npz and certirl-demo.png")],
        {
            "data": {
                "--problem N": "seed of the random polynomial problem (default 7)",
                "--samples N": "transitions of every action to draw at most (default 1,000,000)",
                "--seed N": "seed of the draws (default 0)",
            },
            **table.result("solution goes (default certirl-demo.npz)", table.BESIDE),
            **table.THREADS,
        },
        demo,
        (NOT_PROVED, INFEASIBLE, UNDETERMINED),
        defaults={"problem": 7, "samples": 1_000_000, "seed": 0, "output": "certirl-demo.npz"},
    ),
    Verb(
        "solve",
        "find a reward that explains an expert, from a log, moments or a simulator, and prove it if asked",
        "DATA … --discount γ [options]",
        [
            ("certirl solve log.csv --discount 0.9 --expert 0", "the expert always takes action 0"),
            (
                "certirl solve log.csv --discount 0.9 --domain 0 10 --columns 5 --delta 0.05 --tail 0",
                "with a proof that is false with probability 0.05 at most",
            ),
            (
                "certirl solve walk.py:Walk --discount 0.9 --expert walk.py:policy --delta 0.05 --tail smooth:2:0.5",
                "with a simulator, from which more is drawn until the proof is complete",
            ),
        ],
        {
            **table.log("a file of certirl moments", table.SIMULATOR),
            **table.expert("γ, strictly between 0 and 1", "default 0"),
            "reward": {
                **table.basis("by held-out data"),
                "--columns N": table.COLUMNS.format("chosen; for policies with --delta only"),
                "--objective OBJECTIVE": f"for one action (default {OBJECTIVES[0]} on intervals)",
                "--cover RADIUS": "for one action: the paper's cover of the states",
                "--slack PRICE": "soft form: the price of a shortfall",
                "--margin SHARE": "for policies: half-width of a tube, a share of the box",
                "--smoothness PRICE": "for policies: the price of a rough value function",
                "--shared-drift N": "of a log: one drift of degree N (0: any), plus vectors",
            },
            **table.proof(
                "certify; the probability of an error, at most",
                {
                    "--regret SHARE": "for policies: the regret at most, a share of the value's span",
                    "--trials N": "for policies: draws of each action that try the answer",
                },
                "default 10,000; to prove 1,000,000",
            ),
            **table.result("solution goes (default reward.npz)", table.BESIDE),
            **table.THREADS,
        },
        solve_file,
        (NOT_PROVED, INFEASIBLE, UNDETERMINED),
        defaults={"expert": "0", "output": "reward.npz"},
        required=("discount",),
    ),
    Verb(
        "certify",
        "prove that a saved reward explains the expert, from transitions that it was not found from",
        "REWARD DATA … [options]",
        [
            ("certirl certify reward.npz fresh.csv --tail 0", "discount, expert, columns, domain as in the solution"),
            (
                "certirl certify reward.npz walk.py:Walk --discount 0.9 --expert 0 --columns 5 --tail 0",
                "a reward alone, on draws of a simulator",
            ),
            (
                "certirl certify reward.npz log.csv --known-noise 1.5",
                "affine drift, Gaussian noise of standard deviation 1.5; the log of the reward may serve again",
            ),
        ],
        {
            "": {"reward REWARD": "a solution or a reward that certirl saved (.npz)"},
            **table.log(table.SIMULATOR),
            **table.expert("γ (default: as in the solution)", "default: as in the solution"),
            **table.proof(
                "the probability of a false certificate, at most (default 0.05)",
                {"--columns N": table.COLUMNS.format("as in the solution")},
                "default 100,000; with --known-noise 10,000",
            ),
            **table.result("certificate goes (default certificate.npz)", "none"),
            **table.THREADS,
        },
        certify_file,
        (NOT_PROVED,),
        defaults={"delta": 0.05, "output": "certificate.npz", "plot": ""},
    ),
    Verb(
        "cells",
        "prove where a policy is optimal in a system without noise, at every state and without error",
        "SYSTEM --discount γ [options]",
        [
            ("certirl cells MountainCar-v0 --discount 0.9", "the plan, for the reward of the planned value"),
            (
                "certirl cells Pendulum-v1 --actions 3 --discount 0.9 --learned --plot proof.png",
                "the same plan, for a reward that is learned from it",
            ),
            (
                "certirl cells tray.py:Tray --discount 0.9 --points 41 --lipschitz 0.9",
                "a simulator of one coordinate, whose next states differ by 0.9 |s − s'| at most",
            ),
            (
                "certirl cells tray.py:Tray --discount 0.9 --points 41 --lipschitz 0.9 --expert tray.py:keep",
                "an expert of your own, for a reward that is learned from it",
            ),
        ],
        {
            "": {
                "environment SYSTEM": "a Gymnasium environment without noise: MountainCar-v0, Pendulum-v1; or a "
                "simulator, FILE.py:NAME or MODULE:NAME, with --lipschitz; for a plan it needs reward(states, action, "
                "next_states)"
            },
            "problem": {
                "--discount GAMMA": "γ, strictly between 0 and 1",
                "--actions N": "values of each continuous action, such as the torque of a pendulum",
                "--expert WHO": "the policy that is proved: an action, or a function of states, FILE.py:NAME (default: "
                "the plan); its value is learned by solve",
                "--learned": "of a plan, too, the value is learned by solve (default: as planned)",
                "--value SOLUTION": "a saved solution (.npz), whose value is used instead; without --expert the policy "
                "is greedy for it",
            },
            "proof": {
                "--points N …": f"of the grid of the value along each coordinate (default: {_GRIDS_IN_WORDS})",
                "--refine N": "cells along each side of a cell of the grid (default 4)",
                "--lipschitz L …": "bounds on |∂ next coordinate i / ∂ coordinate j|, row by row: for all actions, or "
                f"one table for each (default: built in for {' and '.join(GRIDS)})",
                "--seed N": "of draws (default 0)",
            },
            **table.result("proof goes (default proof.npz)", "none"),
        },
        prove_by_cells,
        (NOT_PROVED,),
        defaults={"refine": 4, "seed": 0, "output": "proof.npz", "plot": ""},
        required=("discount",),
    ),
)
