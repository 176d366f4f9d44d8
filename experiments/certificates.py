"""Are certificates true, and what do they cost? Soundness, power, discount and theorems, in one command.

    python experiments/certificates.py [--fast] [--workers 2] [--out experiments/results]

- soundness: thousands of certificates on polynomial, thermostat, circle, unsolvable and nearly degenerate problems, for
  rewards that are right, wrong, and wrong by as little as can be; false ones are counted against the truth.
- power: transitions per action until `solve` certifies, on the paper's random problems, and what each idea is worth.
- discounts: the same at γ = 0.7, 0.9, 0.95.
- paid: the soundness of rewards of state and action, most of them wrong by as little as can be: experts of one action
  and experts who switch, intervals and a box, columns and known noise, rewards of every form.
- theorems: n by Theorem 6 as printed and deflated, by the certificate, and where the method in truth succeeds.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import certirl
import judging
import study
from certirl import paper
from certirl.data.moments import accumulate
from certirl.data.simulator import draw
from certirl.functions.bases import Basis
from certirl.problems import PolynomialProblem, Problem
from certirl.proof.case import Case
from certirl.proof.certificate import conclude
from certirl.proof.certify import certify
from certirl.proof.sums import gather
from certirl.proof.training import fit_surrogates


@dataclass(frozen=True)
class Arguments:
    """The full size; ``--fast`` shrinks it."""

    runs: int = 3_000
    problems: int = 40
    discount_problems: int = 20
    theorem_problems: int = 5
    most: int = 2_000_000
    paid: int = 1_000
    seed: int = 0


FAST = Arguments(runs=120, paid=16, problems=4, discount_problems=2, theorem_problems=1, most=100_000)

# --- soundness -------------------------------------------------------------------------------------------------------


def nearly_degenerate(seed: int) -> PolynomialProblem:
    """Action 2 is the expert's action but for one part in twenty."""
    problem = certirl.problems.random_polynomial(seed=seed)
    centre, edge = problem.centre.copy(), problem.edge.copy()
    centre[2], edge[2] = (0.95 * x[0] + 0.05 * x[2] for x in (centre, edge))
    return PolynomialProblem(f"nearly degenerate {seed}", centre, edge)


def a_problem(seed: int) -> tuple[Problem, Basis, int, float]:
    """One of five kinds in turn, with random settings: problem, basis, columns, discount."""
    rng = np.random.default_rng([seed, 1])
    discount = float(rng.choice([0.5, 0.7, 0.9]))
    kind = seed % 10
    if kind < 4:
        return certirl.problems.random_polynomial(seed=seed), certirl.Legendre(11), 3, discount
    if kind < 6:
        power = (float(rng.uniform(1.0, 2.5)), 0.0, float(-rng.uniform(0.2, 2.5)))
        problem = certirl.problems.thermostat(power=power, leak=0.4, noise=float(rng.uniform(2.5, 4.0)))
        return problem, certirl.Legendre(9), 9, discount
    if kind < 8:
        homes = (0.0, float(rng.uniform(1.0, 3.0)), float(-rng.uniform(1.0, 3.0)))
        settings = {"pull": float(rng.uniform(0.1, 0.3)), "noise": float(rng.uniform(0.7, 1.3))}
        return certirl.problems.circle(homes=homes, **settings), certirl.Fourier(9), 9, discount
    if kind == 8:
        return certirl.problems.unsolvable(seed=seed), certirl.Legendre(11), 3, discount
    return nearly_degenerate(seed), certirl.Legendre(11), 3, discount


def judge(seed: int) -> dict[str, Any] | None:
    """One run: find a reward, perhaps spoil it, certify it on fresh data, compare with the truth."""
    problem, basis, columns, discount = a_problem(seed)
    rng = np.random.default_rng([seed, 2])
    delta = float(rng.choice([0.05, 0.2]))
    paired = bool(rng.integers(2))
    solved = certirl.solve(problem, expert=0, basis=basis, columns=columns, discount=discount, samples=15_000, rng=rng)
    if solved.reward is None:
        return None
    reward, spoiled = solved.reward, bool(rng.random() < 0.4)
    if spoiled:
        grid = np.linspace(*problem.domain[0], 801)
        noise = judging.noise_of(reward, rng)
        reward = judging.barely_wrong(reward, noise, lambda r: [problem.margins(r, grid, discount=discount)])
    placed = basis.on(problem.domain)
    data = certirl.steps.sample(problem, basis=placed, samples=60_000, rng=rng, design=True, paired=paired)
    given = {"discount": discount, "expert": 0, "columns": placed.resized(columns)}
    found = certify(reward, data, delta=delta, tail=problem.tail, rng=rng, **given)
    truth = problem.true_margin(reward, discount=discount)
    return {
        "kind": problem.name.rstrip(" 0123456789"),
        "delta": delta,
        "paired": paired,
        "spoiled": spoiled,
        "holds": found.holds,
        "false": bool(found.holds and truth <= 0),
        "above": bool(truth < found.margin),  # the bound itself is wrong, whether or not it is positive
    }


def soundness(arguments: Arguments, runner: study.Runner) -> dict[str, Any]:
    """Count false certificates and bounds above the truth."""
    runs = [
        run for run in runner(judge, study.seeds(arguments, arguments.runs), unit="certificates") if run is not None
    ]
    table = judging.bounds_by_delta(runs)
    kinds = sorted({run["kind"] for run in runs})
    by_kind = {kind: sum(run["holds"] for run in runs if run["kind"] == kind) for kind in kinds}
    return {"by delta": table, "certified by kind": by_kind, "certified": sum(run["holds"] for run in runs)}


# --- rewards of state and action -------------------------------------------------------------------------------------

OTHER = 0.3  # of the actions' own coefficients, beside those that all share


def paying(basis: Basis, actions: int, rng: np.random.Generator, size: float = 1.0) -> certirl.Reward:
    """A random reward of which every action has its own part."""
    shared, own = rng.normal(size=basis.size), OTHER * rng.normal(size=(actions, basis.size))
    return certirl.Reward(basis, size * (shared + own))


def in_form(reward: certirl.Reward, form: str) -> Any:
    """The same reward, or its values at points, in another form."""
    if form == "a function":
        return lambda states, action: reward(states, action)
    if form == "hats":
        grid = certirl.Cells((401,)).on(reward.domain)
        return certirl.Reward(grid, np.stack([reward(grid.points(), a) for a in range(len(reward.coefficients))]))
    return reward


def paid_always(seed: int, rng: np.random.Generator) -> dict[str, Any]:
    """An expert of one action on an interval, whose margin is what actions pay and what they lead to."""
    problem, basis, columns, discount = a_problem(4 * (seed % 1000) if seed % 2 else 10 * seed + 4)
    basis = basis.on(problem.domain).resized(min(basis.size, 7))
    right, grid = paying(basis, problem.n_actions, rng), np.linspace(*problem.domain[0], 401)

    def curves(reward: certirl.Reward) -> list[np.ndarray]:
        return [problem.margins(reward, grid, discount=discount)]

    least = min(0.0, float(curves(right)[0].min()))
    right = right.with_costs(np.where(np.arange(problem.n_actions) > 0, -1.3 * discount * least + 0.1, 0.0))
    reward = spoiled(right, paying(basis, problem.n_actions, rng), curves, rng)
    reward = in_form(reward, str(rng.choice(["an expansion", "hats", "a function"])))
    paired = bool(rng.integers(2))
    settings = {"columns": basis.resized(columns), "tail": problem.tail, "samples": 40_000, "paired": paired}
    found = certirl.certify(reward, problem, expert=0, discount=discount, delta=DELTA, rng=rng, map=1, **settings)
    return told(found, problem.true_margin(reward, discount=discount))


def paid_on_box(seed: int, rng: np.random.Generator) -> dict[str, Any]:
    """The same in two coordinates."""
    problem = certirl.problems.random_independent(seed=seed)
    columns = certirl.product(certirl.Legendre(3), certirl.Legendre(3), index="full").on(problem.domain)
    discount, states = float(rng.choice([0.3, 0.5])), problem.domain.mesh(41)
    right = paying(columns, problem.n_actions, rng)

    def curves(reward: certirl.Reward) -> list[np.ndarray]:
        return [problem.margins(reward, states, discount=discount)]

    least = min(0.0, float(curves(right)[0].min()))
    right = right.with_costs(np.where(np.arange(problem.n_actions) > 0, -1.3 * discount * least + 0.1, 0.0))
    reward = spoiled(right, paying(columns, problem.n_actions, rng), curves, rng)
    asked = {"columns": columns, "tail": 0, "samples": 60_000, "discount": discount, "delta": DELTA}
    plain = rng.random() < 0.3
    found = certirl.certify(in_form(reward, "a function" if plain else ""), problem, expert=0, rng=rng, map=1, **asked)
    return told(found, problem.true_margin(reward, discount=discount))


def paid_switching(seed: int, rng: np.random.Generator) -> dict[str, Any]:
    """An expert who switches, optimal for a random reward of actions."""
    import switching

    while True:
        dynamics = certirl.problems.random_polynomial(seed=int(rng.integers(2**31)))
        right, discount = paying(certirl.Legendre(4), dynamics.n_actions, rng), float(rng.choice([0.5, 0.7]))
        expert = certirl.problems.optimal_policy(dynamics, right, discount=discount)
        if expert.switches and np.abs(expert.switches).max() < 0.8 and switching.leaves_room(expert):
            break
    problem, tube = certirl.problems.SwitchingProblem(dynamics, right, discount, expert), float(rng.choice([0.15, 0.3]))
    outside = expert.away(switching.GRID) > tube

    def curves(reward: certirl.Reward) -> list[np.ndarray]:
        return [switching.gaps(problem, reward, expert)[:, outside]]

    reward = spoiled(right, paying(certirl.Legendre(4), dynamics.n_actions, rng), curves, rng)
    reward = in_form(reward, str(rng.choice(["an expansion", "hats", "a function"])))
    asked = {"columns": certirl.Legendre(3), "tail": 0, "tube": tube, "samples": 100_000, "delta": DELTA}
    found = certirl.certify(reward, dynamics, expert=expert, discount=discount, rng=rng, map=1, **asked)
    compared = switching.compared(found, problem, reward, expert)
    least = float(curves(reward)[0].min())
    return told(found, least) | {"above": any(compared[name] for name in switching.WRONG)}


def paid_known_noise(seed: int, rng: np.random.Generator) -> dict[str, Any]:
    """Known noise, for experts of one action and experts who switch."""
    from known_noise import Line

    actions, discount, std = int(rng.integers(2, 4)), float(rng.uniform(0.4, 0.9)), float(rng.uniform(0.2, 0.6))
    theta = np.stack([rng.uniform(-0.5, 0.5, actions), rng.uniform(0.5, 0.9, actions)], axis=1)
    system, grid, points = Line(theta, std, (-1.0, 1.0)), np.linspace(-1, 1, 201), np.arange(201)
    cut, tube = (float(rng.uniform(-0.3, 0.3)), 0.1) if rng.random() < 0.6 else (2.0, None)

    def chosen(states: Any) -> Any:
        return (states > cut).astype(int)

    # R_a = V − γP_aV − g_a: the expert's value is V, and his action better by g_a, which is 0 where he switches.
    value = sum(rng.normal() / (j + 1) * np.sin((j + 1) * grid + rng.uniform(0, 6)) for j in range(3))
    taken, gap = chosen(grid), 0.1 + rng.uniform(0, 1, (actions, 1)) * np.abs(grid - np.where(tube, cut, 5.0))
    gap[:2] = gap[:2] - (0.1 if tube else 0.0)
    gap[taken, points] = 0.0
    ahead = system.after(value, chosen, 0.0)
    right, other = value - discount * ahead - gap, rng.normal(size=(actions, 1)) * np.cos(3 * grid + rng.uniform(0, 6))
    outside = np.abs(grid - cut) > (tube or 0.0)

    def curves(rewards: np.ndarray) -> list[np.ndarray]:
        worth = system.after(list(rewards), chosen, discount) + rewards / discount
        gaps = worth[taken, points] - worth
        gaps[taken, points] = np.inf
        return [gaps[:, outside]]

    def between(ours: np.ndarray, theirs: np.ndarray, share: float) -> np.ndarray:
        return (1 - share) * ours + share * theirs

    if rng.random() < WRONG:
        right = judging.barely_wrong(right, other, curves, mix=between)
    reward = certirl.Reward(certirl.Cells((201,), box=((-1, 1),)), right)
    known = certirl.dynamics.AffineGaussian(std, cells=400)
    asked = {"samples": int(10 ** rng.uniform(3, 5)), "rng": rng, "tube": tube, "delta": DELTA, "discount": discount}
    expert = (lambda states: chosen(states[:, 0])) if tube else 0
    found = certirl.certify(reward, system, dynamics=known, expert=expert, **asked)
    truth = curves(right)[0]
    above = (np.nan_to_num(found.advantage(grid[outside])[1], nan=-np.inf) > truth + 1e-6).any()
    return told(found, float(truth.min())) | {"above": bool(above)}


WRONG, DELTA = 0.75, 0.05  # the share of rewards that are spoiled
PAYING = {"one action": paid_always, "a box": paid_on_box, "switches": paid_switching, "known noise": paid_known_noise}


def spoiled(right: certirl.Reward, other: certirl.Reward, curves: Any, rng: np.random.Generator) -> certirl.Reward:
    """Most of the rewards: barely wrong; the others as they are."""
    return judging.barely_wrong(right, other, curves) if rng.random() < WRONG else right


def told(found: Any, truth: float) -> dict[str, Any]:
    """What a certificate said, and whether it is true."""
    false = bool(found.holds and truth <= 0)
    confirmed = certirl.check(found).verdict == "confirmed" if found.holds else True
    above = bool(found.margin > truth)
    return {"holds": found.holds, "false": false, "above": above, "true": truth > 0, "confirmed": confirmed}


def judge_paid(seed: int) -> dict[str, Any]:
    """One certificate of a reward of actions, compared with the truth and derived again by the checker."""
    kind = list(PAYING)[seed % len(PAYING)]
    return {"kind": kind} | PAYING[kind](seed, np.random.default_rng([seed, 5]))


def paid(arguments: Arguments, runner: study.Runner) -> dict[str, Any]:
    """Count what is false of rewards of state and action."""
    runs = runner(judge_paid, study.seeds(arguments, arguments.paid), unit="certificates")
    table = {}
    for kind in [*PAYING, "all"]:
        chosen = [run for run in runs if kind in (run["kind"], "all")]
        table[kind] = {
            "runs": len(chosen),
            "of which wrong rewards": sum(not run["true"] for run in chosen),
            "certified": sum(run["holds"] for run in chosen),
            "false certificates": sum(run["false"] for run in chosen),
            "bounds above the truth": sum(run["above"] for run in chosen),
            "certificates that the checker does not confirm": sum(not run["confirmed"] for run in chosen),
        }
    return table


# --- power -----------------------------------------------------------------------------------------------------------


def prove_one(arguments: Sequence[Any]) -> dict[str, Any]:
    """Transitions per action at which `solve` certifies the random problem of this seed."""
    seed, discount, most = arguments
    problem = certirl.problems.random_polynomial(seed=seed)
    start = time.perf_counter()
    solution = certirl.solve(
        problem,
        expert=0,
        basis=certirl.Legendre(11),
        columns=3,
        discount=discount,
        delta=0.05,
        tail=0,
        samples=most,
        rng=seed,
    )
    n = solution.samples if solution.status == "certified" else float("inf")
    true = solution.reward is not None and problem.true_margin(solution.reward, discount=discount) > 0
    return {"seed": seed, "n": n, "true": true, "seconds": time.perf_counter() - start}


VARIANTS: dict[str, dict[str, Any]] = {
    "all of it": {},
    "independent draws": {"paired": False},
    "uniform states": {"design": False},
    "‖α‖₁ instead of least variance": {"objective": "l1"},
    "even split": {"share": 0.5},
    "none of it": {"paired": False, "design": False, "objective": "l1", "share": 0.5},
}


def attempt(problem: Problem, n: int, rng: np.random.Generator, **variant: Any) -> bool:
    """One certificate with n transitions per action in all and δ = 0.05 for it alone."""
    columns, share = certirl.Legendre(3).on(problem.domain), variant.get("share", 0.3)
    way = {"design": variant.get("design", True), "paired": variant.get("paired", True)}
    training = list(draw(problem, columns, int(share * n), rng.spawn(1)[0], **way))
    basis = columns.resized(11)
    ((moments,),) = accumulate(training, [(basis, columns)], n_actions=problem.n_actions)
    criterion = certirl.steps.bellman(certirl.steps.estimate(moments), discount=0.7)
    reward = certirl.steps.recover(criterion, objective=variant.get("objective", "least-variance")).reward
    if reward is None:
        return False
    case = Case.of(0, columns, n_actions=problem.n_actions, discount=0.7, tail=0)
    fresh = n - int(share * n)
    surrogates = fit_surrogates(case, reward, training, samples=fresh).surrogates
    evidence = gather(surrogates, draw(problem, columns, fresh, rng.spawn(1)[0], **way))
    return conclude(case, surrogates, evidence, delta=0.05).holds


def ablate(arguments: Sequence[Any]) -> float:
    """The first n on a grid of ratio √2 at which a variant certifies."""
    seed, name, most = arguments
    problem, n = certirl.problems.random_polynomial(seed=seed), 2_000.0
    while n <= most:
        if attempt(problem, int(n), np.random.default_rng([seed, int(n)]), **VARIANTS[name]):
            return int(n)
        n *= 2**0.5
    return float("inf")


def power(arguments: Arguments, runner: study.Runner) -> dict[str, Any]:
    """How many transitions `solve` needs, and how many without each idea."""
    runs = runner(
        prove_one, [[seed, 0.7, arguments.most] for seed in study.seeds(arguments, arguments.problems)], unit="problems"
    )
    ns = with_infinity(run["n"] for run in runs)
    ideas = {}
    for name in VARIANTS:
        firsts = with_infinity(
            runner(
                ablate, [[seed, name, arguments.most] for seed in study.seeds(arguments, arguments.discount_problems)]
            )
        )
        ideas[name] = {"median n": float(np.median(firsts)), "certified": float(np.isfinite(firsts).mean())}
    return {
        "median n": float(np.median(ns)),
        "certified": float(np.isfinite(ns).mean()),
        "false": sum(run["n"] is not None and not run["true"] for run in runs),
        "seconds, median and most": [float(f([run["seconds"] for run in runs])) for f in (np.median, np.max)],
        "one attempt with delta = 0.05, by variant": ideas,
        "runs": runs,
    }


def discounts(arguments: Arguments, runner: study.Runner) -> dict[str, Any]:
    """The same for larger discounts."""
    table = {}
    for discount in (0.7, 0.9, 0.95):
        tasks = [[seed, discount, arguments.most] for seed in study.seeds(arguments, arguments.discount_problems)]
        ns = with_infinity(run["n"] for run in runner(prove_one, tasks, unit="problems"))
        table[str(discount)] = {"median n": float(np.median(ns)), "certified": float(np.isfinite(ns).mean())}
    return table


# --- theorems --------------------------------------------------------------------------------------------------------


def succeeds(problem: Problem, n: int) -> float:
    """Share of twenty data sets of n transitions per action from which `solve` finds a truly right reward."""
    right = 0
    for rng in range(20):
        found = certirl.solve(
            problem, expert=0, basis=certirl.Legendre(11), columns=3, discount=0.7, samples=n, rng=rng
        )
        right += found.reward is not None and problem.true_margin(found.reward, discount=0.7) > 0
    return right / 20


def compare(arguments: Sequence[int]) -> dict[str, Any]:
    """Transitions per action for one problem: by Theorem 6 in both forms, to certify, to be right in 95 % of runs."""
    seed, most = arguments
    problem, basis = certirl.problems.random_polynomial(seed=seed), certirl.Legendre(11)
    facts = paper.constants(problem.operators(basis, 3), discount=0.7)
    common = {"beta": facts.beta, "discount": 0.7, "delta": 0.05, "k": 11, "n_actions": 3}
    printed = paper.theorem6(cover=0.05, rho=facts.rho, norm=facts.norm, **common)
    deflated = paper.theorem6_deflated(
        inner_norm=facts.inner_norm,
        difference=facts.difference,
        basis=basis,
        columns=3,
        **common,
    )
    n = 125
    while succeeds(problem, n) < 0.95 and n < most:
        n *= 2
    return {
        "seed": seed,
        "1/beta": 1 / facts.beta if facts.beta > 0 else float("inf"),
        "as printed": printed.samples,
        "deflated": deflated.samples,
        "certificate": prove_one((seed, 0.7, most))["n"],
        "right in 95 % of runs": n,
    }


def compared(arguments: Arguments, runner: study.Runner) -> dict[str, Any]:
    """One row for each problem."""
    return {
        "problems": runner(
            compare, [[seed, arguments.most] for seed in study.seeds(arguments, arguments.theorem_problems)]
        )
    }


def with_infinity(numbers: Iterable[float | None]) -> np.ndarray:
    """The numbers as floats; infinity where trials, written as JSON, have null."""
    return np.array([np.inf if n is None else n for n in numbers])


SENTENCE = "whether certificates are true, and what they cost"
REPEATED = ("runs", "paid")
PARTS = {"soundness": soundness, "paid": paid, "power": power, "discounts": discounts, "theorems": compared}


if __name__ == "__main__":
    raise SystemExit(study.main(sys.modules[__name__]))
