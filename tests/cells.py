"""Proofs by cells, as tests ask for them."""

import certirl


def prove(simulator, expert=None, *, value=None, reward=None, discount=None, **declared):
    """A proof for a reward, or for the reward of a value, which may be a plan, a solution or a function."""
    value = expert if value is None and reward is None else value  # a plan
    if reward is not None:
        declared["value"] = value
    elif not hasattr(value, "value"):
        value = certirl.planning.ValueReward(value, simulator, discount)
    asked = {"expert": expert, "discount": discount, "dynamics": certirl.dynamics.Deterministic(**declared)}
    return certirl.certify(value if reward is None else reward, simulator, **asked)
