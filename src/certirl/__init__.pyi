"""The public names: what ``certirl`` imports when it is first used, and what type checkers see."""

from certirl import diagnose as diagnose
from certirl import dynamics as dynamics
from certirl import logs as logs
from certirl import paper as paper
from certirl import problems as problems
from certirl import steps as steps
from certirl import trials as trials
from certirl.data import export as export
from certirl.data.demonstrations import policy_from as policy_from
from certirl.data.transitions import Transitions as Transitions
from certirl.environments import gym as gym
from certirl.environments import planning as planning
from certirl.functions.bases import Chebyshev as Chebyshev
from certirl.functions.bases import Fourier as Fourier
from certirl.functions.bases import Legendre as Legendre
from certirl.functions.bases import product as product
from certirl.functions.cells import Cells as Cells
from certirl.functions.reward import Reward as Reward
from certirl.ground.doors import UserCodeError as UserCodeError
from certirl.proof.certificate import Certificate as Certificate
from certirl.proof.certify import certify as certify
from certirl.proof.certify import refute as refute
from certirl.proof.refutation import Refutation as Refutation
from certirl.show import plots as plots
from certirl.solver.check import check as check
from certirl.solver.differences import compare as compare
from certirl.solver.estimator import InverseRL as InverseRL
from certirl.solver.methods import FeatureForm as FeatureForm
from certirl.solver.methods import Program as Program
from certirl.solver.methods import SoftExpert as SoftExpert
from certirl.solver.methods import ValueForm as ValueForm
from certirl.solver.soft_solution import SoftSolution as SoftSolution
from certirl.solver.solution import Solution as Solution
from certirl.solver.solution import load as load
from certirl.solver.solve import solve as solve
from certirl.solver.stability import stability as stability

__all__: list[str]
__version__: str
