"""Certified inverse reinforcement learning in continuous state spaces.

    solution = certirl.solve(simulator, discount=0.9, expert=0, rng=0)

The steps behind it are public: `sample` → `measure` → `estimate` → `bellman` → `recover`.
"""

from certirl import _interrupts as _interrupts  # first: from here on Ctrl-C is one line

# isort: split
import importlib
from typing import Any

from certirl import problems
from certirl.additive import AdditiveSolution, load
from certirl.advise import Advice, advise
from certirl.bases import Basis, Chebyshev, Fourier, Legendre
from certirl.bellman import Bellman, bellman
from certirl.boxes import ProductBasis, product
from certirl.cells import Cells
from certirl.certify import Certificate
from certirl.certify_policies import certify
from certirl.check import Verdict, check
from certirl.components import AdditiveReward
from certirl.conflicts import Conflict
from certirl.coverage import Coverage, coverage
from certirl.demonstrations import Demonstrated, policy_from
from certirl.diagnose import Diagnosis, diagnose
from certirl.episodes import Episode, from_episodes
from certirl.estimate import Operators, estimate
from certirl.independence import Independence, find_components, independent
from certirl.moments import Moments, measure
from certirl.policies import Policy, as_policy
from certirl.policy_certificate import PolicyCertificate
from certirl.policy_solution import PolicySolution
from certirl.recover import Recovery, Witness, recover
from certirl.refute import Refutation, refute
from certirl.refute_components import AdditiveRefutation, refute_sum
from certirl.reward import Reward
from certirl.rollout import RolloutCheck, rollout_check
from certirl.scenario import Scenario, scenario
from certirl.simulator import Simulator, sample
from certirl.solution import Solution
from certirl.solve import solve
from certirl.tail import Smooth
from certirl.transitions import TensorTransitions, Transitions

__version__ = "0.1.0"

__all__ = [
    "AdditiveRefutation",
    "AdditiveReward",
    "AdditiveSolution",
    "Advice",
    "Basis",
    "Bellman",
    "Cells",
    "Certificate",
    "Chebyshev",
    "Conflict",
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
    "PolicySolution",
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
    "box_problems",
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
    "refute_sum",
    "rollout_check",
    "sample",
    "scenario",
    "solve",
    "switching_problems",
    "tables",
    "tabular",
    "theorems",
]

_LAZY = ("box_problems", "gym", "planning", "plots", "switching_problems", "tables", "tabular", "theorems")


def __getattr__(name: str) -> Any:
    """Rooms that not everyone enters are opened on first use."""
    if name in _LAZY:
        return importlib.import_module(f"certirl.{name}")
    raise AttributeError(f"module 'certirl' has no attribute {name!r}")
