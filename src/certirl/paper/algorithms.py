"""The paper's two algorithms as plain calls: its basis, its form of the estimate, its program on a cover."""

from __future__ import annotations

from certirl.data.moments import Moments
from certirl.data.transitions import Transitions
from certirl.fit.bellman import Operators, bellman, estimate
from certirl.fit.recover import Recovery, recover
from certirl.functions.bases import Fourier
from certirl.ground.doors import typed

__all__ = ["algorithm1", "algorithm2"]


@typed
def algorithm1(data: Transitions | Moments, *, size: int) -> Operators:
    """The estimate ``Ẑ^a = (2/n) Σ φ(s')φ(s)ᵀ`` of every action in k trigonometric functions (Algorithm 1).

    As printed: the plain mean, with every row estimated, also the first one, which is known. `certirl.steps.estimate`
    has other bases, less variance, and takes states from anywhere.

    Args:
        data: transitions, or their moments in trigonometric functions, from states drawn uniformly.
        size: k, the truncation parameter.

    Example:
        >>> problem = certirl.problems.random_polynomial(seed=0)
        >>> log = certirl.steps.sample(problem, basis=certirl.Fourier(11), samples=20_000, rng=0)
        >>> Z = certirl.paper.algorithm1(log, size=11)
        >>> Z.Z.shape, Z.form
        ((3, 11, 11), 'mean')
    """
    return estimate(data, basis=Fourier(size), form="mean", deflate=False)


@typed
def algorithm2(operators: Operators, *, discount: float, cover: float, expert: int = 0) -> Recovery:
    """The reward of least ``‖α‖₁`` with ``αᵀF̂^aφ(s) ≥ 1`` at the points of a cover (Algorithm 2, steps 2 to 4).

    Between the points the margin may be smaller, and the true margin is another one: `certirl.solve` works on the whole
    interval and proves what it says.

    Args:
        operators: what `algorithm1` returns, its step 1.
        discount: γ.
        cover: c; ⌈2/c⌉ states of [-1, 1] leave none farther than that from one of them.
        expert: the action that the expert always takes, the paper's a_1.

    Example:
        >>> problem = certirl.problems.random_polynomial(seed=0)
        >>> log = certirl.steps.sample(problem, basis=certirl.Fourier(11), samples=20_000, rng=0)
        >>> Z = certirl.paper.algorithm1(log, size=11)
        >>> found = certirl.paper.algorithm2(Z, discount=0.7, cover=0.05)
        >>> found.status, bool(problem.true_margin(found.reward, discount=0.7) > 0)
        ('solved', True)
    """
    return recover(bellman(operators, discount=discount, expert=expert), objective="l1", cover=cover)
