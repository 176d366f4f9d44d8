"""Certified inverse reinforcement learning in continuous state spaces.

    solution = certirl.solve(simulator, discount=0.9, expert=0, rng=0)

The steps behind it are public: `sample` → `measure` → `estimate` → `bellman` → `recover` → `certify`.
"""

import importlib as _importlib
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

if _TYPE_CHECKING:
    from certirl import paper as paper
    from certirl import problems as problems
    from certirl.data import export as export
    from certirl.data import tables as tables
    from certirl.data.coverage import coverage as coverage
    from certirl.data.demonstrations import policy_from as policy_from
    from certirl.data.episodes import Episode as Episode
    from certirl.data.episodes import from_episodes as from_episodes
    from certirl.data.independence import find_components as find_components
    from certirl.data.independence import independent as independent
    from certirl.data.moments import Moments as Moments
    from certirl.data.moments import measure as measure
    from certirl.data.simulator import sample as sample
    from certirl.data.transitions import Transitions as Transitions
    from certirl.environments import gym as gym
    from certirl.environments import planning as planning
    from certirl.fit.bellman import bellman as bellman
    from certirl.fit.bellman import estimate as estimate
    from certirl.fit.choose import diagnose as diagnose
    from certirl.fit.recover import recover as recover
    from certirl.functions.bases import Basis as Basis
    from certirl.functions.bases import Chebyshev as Chebyshev
    from certirl.functions.bases import Fourier as Fourier
    from certirl.functions.bases import Legendre as Legendre
    from certirl.functions.bases import product as product
    from certirl.functions.cells import Cells as Cells
    from certirl.functions.reward import Reward as Reward
    from certirl.ground.doors import UserCodeError as UserCodeError
    from certirl.proof.cells import Deterministic as Deterministic
    from certirl.proof.certificate import Certificate as Certificate
    from certirl.proof.certify import certify as certify
    from certirl.proof.certify import refute as refute
    from certirl.proof.densities import tail_from_density as tail_from_density
    from certirl.proof.known_noise import AffineGaussian as AffineGaussian
    from certirl.proof.refutation import Refutation as Refutation
    from certirl.proof.rollout import rollout_check as rollout_check
    from certirl.proof.rollout import scenario as scenario
    from certirl.proof.tails import AdditiveNoise as AdditiveNoise
    from certirl.proof.tails import GaussianNoise as GaussianNoise
    from certirl.proof.tails import LaplaceNoise as LaplaceNoise
    from certirl.proof.tails import Smooth as Smooth
    from certirl.proof.tails import UniformNoise as UniformNoise
    from certirl.show import plots as plots
    from certirl.solver.check import check as check
    from certirl.solver.estimator import InverseRL as InverseRL
    from certirl.solver.settings import Settings as Settings
    from certirl.solver.solution import Solution as Solution
    from certirl.solver.solution import load as load
    from certirl.solver.solve import solve as solve

__version__ = "0.1.0"

# Where each public name is defined; it is imported when it is first used.
_MODULES = {
    "InverseRL": "solver.estimator",
    "AdditiveNoise": "proof.tails",
    "AffineGaussian": "proof.known_noise",
    "Basis": "functions.bases",
    "Cells": "functions.cells",
    "Certificate": "proof.certificate",
    "Chebyshev": "functions.bases",
    "Deterministic": "proof.cells",
    "Episode": "data.episodes",
    "Fourier": "functions.bases",
    "GaussianNoise": "proof.tails",
    "LaplaceNoise": "proof.tails",
    "Legendre": "functions.bases",
    "Moments": "data.moments",
    "Refutation": "proof.refutation",
    "Reward": "functions.reward",
    "Settings": "solver.settings",
    "Smooth": "proof.tails",
    "Solution": "solver.solution",
    "Transitions": "data.transitions",
    "UniformNoise": "proof.tails",
    "UserCodeError": "ground.doors",
    "bellman": "fit.bellman",
    "certify": "proof.certify",
    "check": "solver.check",
    "coverage": "data.coverage",
    "diagnose": "fit.choose",
    "estimate": "fit.bellman",
    "find_components": "data.independence",
    "from_episodes": "data.episodes",
    "independent": "data.independence",
    "load": "solver.solution",
    "measure": "data.moments",
    "policy_from": "data.demonstrations",
    "product": "functions.bases",
    "recover": "fit.recover",
    "refute": "proof.certify",
    "rollout_check": "proof.rollout",
    "sample": "data.simulator",
    "scenario": "proof.rollout",
    "solve": "solver.solve",
    "tail_from_density": "proof.densities",
}
_NAMESPACES = {
    "export": "data.export",
    "gym": "environments.gym",
    "paper": "paper",
    "planning": "environments.planning",
    "plots": "show.plots",
    "problems": "problems",
    "tables": "data.tables",
}
__all__ = sorted([*_MODULES, *_NAMESPACES])


def __getattr__(name: str) -> _Any:
    """Import a public name on first use."""
    if name in _NAMESPACES:
        return _importlib.import_module(f"certirl.{_NAMESPACES[name]}")
    if name in _MODULES:
        return getattr(_importlib.import_module(f"certirl.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'certirl' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
