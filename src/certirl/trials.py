"""Trials of a reward by rollouts of a simulator, which assume nothing of columns or tails."""

from certirl.proof.rollout import rollout_check, scenario

__all__ = ["rollout_check", "scenario"]
__dir__ = __all__.copy
