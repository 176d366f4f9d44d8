"""Certified inverse reinforcement learning in continuous state spaces.

    solution = certirl.solve(simulator, discount=0.9, expert=0, rng=0)

The steps behind it are public: `sample` → `measure` → `estimate` → `bellman` → `recover`.
"""

from certirl.ground import interrupts as _interrupts  # noqa: F401  # first: from here on Ctrl-C is one line

# isort: split
import importlib
from typing import Any

from certirl import problems
from certirl.checker.files import Verdict, check
from certirl.data.coverage import Coverage, coverage
from certirl.data.demonstrations import Demonstrated, policy_from
from certirl.data.episodes import Episode, from_episodes
from certirl.data.independence import Independence, find_components, independent
from certirl.data.moments import Moments, measure
from certirl.data.policy import Policy, as_policy
from certirl.data.simulator import Simulator, sample
from certirl.data.transitions import TensorTransitions, Transitions
from certirl.fit.bellman import Bellman, bellman
from certirl.fit.diagnose import Diagnosis, diagnose
from certirl.fit.estimate import Operators, estimate
from certirl.fit.recover import Recovery, recover
from certirl.fit.witness import Witness
from certirl.functions.bases import Basis, Chebyshev, Fourier, Legendre
from certirl.functions.boxes import ProductBasis, product
from certirl.functions.cells import Cells
from certirl.functions.reward import Reward
from certirl.proof.certify import Certificate
from certirl.proof.certify_policies import certify
from certirl.proof.policy_certificate import PolicyCertificate
from certirl.proof.refutation import Refutation
from certirl.proof.refute import refute
from certirl.proof.rollout import RolloutCheck, Scenario, rollout_check, scenario
from certirl.proof.tail import Smooth
from certirl.solver.advise import Advice, advise
from certirl.solver.solution import Solution, load
from certirl.solver.solve import solve

__version__ = "0.1.0"

__all__ = [
    "Advice",
    "Basis",
    "Bellman",
    "Cells",
    "Certificate",
    "Chebyshev",
    "Coverage",
    "Demonstrated",
    "Diagnosis",
    "Episode",
    "Fourier",
    "Independence",
    "Legendre",
    "Moments",
    "Operators",
    "Policy",
    "PolicyCertificate",
    "ProductBasis",
    "Recovery",
    "Refutation",
    "Reward",
    "RolloutCheck",
    "Scenario",
    "Simulator",
    "Smooth",
    "Solution",
    "TensorTransitions",
    "Transitions",
    "Verdict",
    "Witness",
    "advise",
    "as_policy",
    "bellman",
    "certify",
    "check",
    "coverage",
    "diagnose",
    "estimate",
    "find_components",
    "from_episodes",
    "independent",
    "load",
    "measure",
    "planning",
    "plots",
    "policy_from",
    "problems",
    "product",
    "recover",
    "refute",
    "rollout_check",
    "sample",
    "scenario",
    "solve",
    "tables",
    "theory",
]

_LAZY = {
    "gym": "environments.gym",
    "planning": "environments.planning",
    "plots": "plots",
    "tables": "data.tables",
    "theory": "theory",
}


def __getattr__(name: str) -> Any:
    """Import modules that most users do not need on first use."""
    if name in _LAZY:
        return importlib.import_module(f"certirl.{_LAZY[name]}")
    raise AttributeError(f"module 'certirl' has no attribute {name!r}")
