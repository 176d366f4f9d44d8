"""Algorithm 1, the transition operators as matrices, and the Bellman criterion in coordinates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from certirl.data.moments import Moments, measure
from certirl.data.policy import no_action
from certirl.data.transitions import Transitions
from certirl.functions.bases import Basis
from certirl.ground.domain import Array
from certirl.ground.doors import as_probability, as_reals, typed
from certirl.ground.records import Record

FORMS = ("least-squares", "mean")

# Beyond this the least-squares answer has lost most of its digits, and some direction of the states was hardly seen.
MAX_CONDITION = 1e8


@dataclass(frozen=True, eq=False)
class Operators(Record):
    """``P_a φ_i ≈ Σ_j Z^a_ij φ_j``: the action of each transition operator on the basis, estimated or exact.

    Attributes:
        basis: the rows φ_1 … φ_k; the columns are its first k_s functions.
        Z: ``[A, k, k_s]``.
        noise: covariances of φ(s') − E[φ(s') | s] within and between actions, averaged over the states
            ``[A, A, k, k]``; zero between actions unless they were drawn with common random numbers, NaN if given.
        precision: (Σ x xᵀ)⁻¹ per action ``[A, k_s, k_s]``; the variance of a least-squares estimate is noise times
            this. Zero if exact, NaN (not known) in the mean form and if given.
        counts: transitions per action ``[A]``; zeros when exact or given.
        form: "least-squares", "mean", "exact" or "given".
        condition: the worst condition number of a Gram matrix of the states.

    Example:
        >>> problem = certirl.problems.random_polynomial(seed=7)
        >>> log = certirl.steps.sample(problem, basis=certirl.Legendre(5), samples=5_000, rng=0)
        >>> operators = certirl.steps.estimate(log, basis=certirl.Legendre(5))
        >>> bool(abs(operators.Z - problem.operators(certirl.Legendre(5)).Z).max() < 0.1)
        True
    """

    basis: Basis
    Z: Array
    noise: Array
    precision: Array
    counts: NDArray[np.int64]
    form: str
    condition: float

    @property
    def n_actions(self) -> int:
        """The number of actions, A."""
        return len(self.Z)

    @property
    def columns(self) -> int:
        """The number of functions of the state, k_s."""
        return int(self.Z.shape[2])


@typed
def estimate(
    data: Moments | Transitions,
    *,
    basis: Basis | None = None,
    columns: int | None = None,
    form: str = "least-squares",
    deflate: bool = True,
) -> Operators:
    """Estimate Z (Algorithm 1): ``(∫μ/n) Σ φ(s')φ(s)ᵀ``, or the least-squares form ``(Σ y xᵀ)(Σ x xᵀ)⁻¹``.

    The mean form is the paper's and is unbiased only if states were drawn from the weight of the basis; least squares
    takes states from anywhere and has less variance.

    Args:
        data: moments, or transitions to measure first.
        basis: the row basis; needed with transitions only.
        columns: the number of functions of the state, k_s; all that the data hold if left out.
        form: "least-squares" or "mean".
        deflate: set the first row to (1, 0, 0, …), which it is: P_a maps the constant to itself. Without it the row is
            estimated as the paper does, and noise can make a constant reward look useful.

    Example:
        >>> problem = certirl.problems.random_polynomial(seed=7)
        >>> log = certirl.steps.sample(problem, basis=certirl.Legendre(5), samples=500, rng=0)
        >>> operators = certirl.steps.estimate(log, basis=certirl.Legendre(5), columns=3)
        >>> operators.Z.shape, operators.form
        ((3, 5, 3), 'least-squares')
    """
    if form not in FORMS:
        raise ValueError(f"form must be one of {', '.join(map(repr, FORMS))}, got {form!r}")
    moments = _as_moments(data, basis, columns)
    k, ks = moments.rows.size, moments.columns.size
    if ks > k:
        raise ValueError(f"columns must be at most the {k} functions of the basis, got {ks}")
    if (moments.counts < 1).any():
        missing = int((moments.counts < 1).argmax())
        raise ValueError(f"action {missing} was never seen; every action needs transitions")
    precision, condition = _inverse_gram(moments, required=form == "least-squares")
    freedom = np.maximum(moments.counts - ks, 1)[:, None, None, None]
    regression = moments.cross @ precision
    n = moments.counts[:, None, None]
    Z = regression if form == "least-squares" else moments.rows.mass / n * moments.cross
    explained = np.einsum("aij,blj->abil", regression, moments.cross)
    if not moments.paired:
        explained *= np.eye(moments.n_actions)[:, :, None, None]
    noise = (moments.outer - explained) / freedom
    if form == "mean":  # its variance is another: that of φ(s')φ(s), which these sums do not hold
        precision = np.full_like(precision, np.nan)
    if deflate:
        Z[:, 0, :] = 0.0
        Z[:, 0, 0] = 1.0
    noise = (noise + noise.transpose(1, 0, 3, 2)) / 2
    return Operators(moments.rows, Z, noise, precision, moments.counts, form, condition)


@typed
def operators(Z: Any, basis: Basis) -> Operators:
    """Operators that were estimated elsewhere, or are known: for `bellman` and `recover`.

    What an estimate from transitions knows beside Z is lost: the error of Z. So the program cannot weigh it
    (``recover(…, objective="l1")`` or ``"max-margin"``), margins have no standard error, and nothing is proved.

    Args:
        Z: ``P_a φ_i ≈ Σ_j Z^a_ij φ_j``, ``[A, k, k_s]``; the first row, of the constant, is taken as (1, 0, …).
        basis: the functions φ, k of them, on their domain.

    Example:
        >>> basis = certirl.Legendre(3)
        >>> drift = np.array([np.diag([1.0, 0.5, 0.2]), np.diag([1.0, 0.5, 0.2])])
        >>> drift[0, 1, 0], drift[1, 1, 0] = 0.5, -0.5  # action 0 moves states up, action 1 down
        >>> criterion = certirl.steps.bellman(certirl.steps.operators(drift, basis), discount=0.7, expert=0)
        >>> reward = certirl.steps.recover(criterion, objective="l1").reward
        >>> reward(0.9) > reward(-0.9)
        True
    """
    matrices = np.array(as_reals(Z, "Z"), dtype=np.float64)
    k = basis.size
    if matrices.ndim != 3 or matrices.shape[1] != k or not 1 <= matrices.shape[2] <= k or len(matrices) < 2:
        raise ValueError(
            f"Z must be matrices [A, {k}, k_s] of at least two actions, with at most {k} columns, for {basis}; "
            f"got shape {list(matrices.shape)}"
        )
    if not np.isfinite(matrices).all():
        raise ValueError("Z must be finite numbers")
    matrices[:, 0] = np.eye(matrices.shape[2])[0]
    A, ks = len(matrices), matrices.shape[2]
    unknown = np.full((A, A, k, k), np.nan), np.full((A, ks, ks), np.nan)
    return Operators(basis, matrices, *unknown, np.zeros(A, dtype=np.int64), "given", float("nan"))


def _as_moments(data: Moments | Transitions, basis: Basis | None, columns: int | None) -> Moments:
    if isinstance(data, Transitions):
        if basis is None:
            raise ValueError("estimate(transitions) needs a basis, for example basis=certirl.Legendre(11)")
        return measure(data, basis=basis, columns=columns)
    if not isinstance(data, Moments):
        raise TypeError(f"estimate needs Moments or Transitions, got {type(data).__name__}")
    if basis is not None and basis.on(data.rows.domain).resized(data.rows.size) != data.rows:
        raise ValueError(f"these moments were measured in {data.rows}; measure again to use {basis}")
    size = data.rows.size if basis is None else basis.size
    return data.leading(size, min(size, data.columns.size) if columns is None else columns)


def indistinct(action: int, functions: int, count: int, kind: str = "") -> str:
    """The sentence about states, of this ``kind``, of an action that do not tell the functions apart."""
    transitions = "1 transition" if count == 1 else f"{count:,} transitions"
    return (
        f"the {kind + ' ' if kind else ''}states of action {action} cannot tell {functions} functions apart "
        f"({transitions}): use more data, fewer columns, or states that cover the domain "
        "(certirl.diagnose.coverage shows where there are none)"
    )


def _inverse_gram(moments: Moments, *, required: bool) -> tuple[Array, float]:
    """(Σ x xᵀ)⁻¹ for each action and the worst condition number; refuses where states do not tell the columns apart."""
    inverses, worst = np.zeros_like(moments.gram), 1.0
    for action, gram in enumerate(moments.gram):
        eigenvalues, vectors = np.linalg.eigh(gram)
        floor = eigenvalues[-1] / MAX_CONDITION
        condition = eigenvalues[-1] / eigenvalues[0] if eigenvalues[0] > 0 else np.inf
        if required and (eigenvalues[0] < floor or moments.counts[action] <= len(gram)):
            raise ValueError(indistinct(action, moments.columns.size, int(moments.counts[action])))
        inverses[action] = (vectors / np.maximum(eigenvalues, floor)) @ vectors.T
        worst = max(worst, float(condition))
    return inverses, worst


def exact_operators(
    rows: Basis,
    columns: int | None,
    ends: Array,
    quadrature: tuple[Array, Array],
    moved: Callable[[Array, Array, int, Array], tuple[Array, Array]],
    n_actions: int,
) -> Operators:
    """What `estimate` would say of infinitely many transitions: ``Z_ij = ∫ (P_a φ_i)(s) φ_j(s) μ(s) ds`` by quadrature.

    The quadrature has states ``[n, d]`` and their weights for μ ``[n]``; ``ends`` are its next states ``[m, d]``.
    ``moved`` makes of (states, weights, action, values at the ends ``[m, k]``) P_a of these functions ``[n, k]`` and
    the weight with which the ends are visited ``[m]``.
    """
    narrow = rows.resized(rows.size if columns is None else columns)
    s, weights = quadrature
    phi, psi = rows.values(ends), narrow.values(s)
    Z, noise = [], np.zeros((n_actions, n_actions, rows.size, rows.size))
    for action in range(n_actions):
        expected, visits = moved(s, weights, action, phi)
        Z.append(expected.T @ (weights[:, None] * psi))
        Z[-1][0] = np.eye(narrow.size)[0]  # the constant is mapped to itself, without rounding
        second = (phi * visits[:, None]).T @ phi
        noise[action, action] = (second - (expected * weights[:, None]).T @ expected) / rows.mass
    return Operators(
        basis=rows,
        Z=np.array(Z),
        noise=noise,
        precision=np.zeros((n_actions, narrow.size, narrow.size)),
        counts=np.zeros(n_actions, dtype=np.int64),
        form="exact",
        condition=1.0,
    )


@dataclass(frozen=True, eq=False)
class Bellman(Record):
    """``D_a(s) = αᵀ F^a φ(s)``: the expert's advantage over action a for R = αᵀφ (Lemma 2).

    Attributes:
        basis: the functions φ of rewards and values, k of them.
        discount: γ.
        expert: the action π that the expert always takes.
        alternatives: the other actions, in the order of the matrices below.
        F: (I − γT)⁻¹(T − Z^a) ``[A − 1, k, k_s]``; the first row is zero, since constant rewards change nothing.
        advantage: T − Z^a ``[A − 1, k, k_s]``: the same criterion in value coordinates, D_a(s) = wᵀ(T − Z^a)φ(s).
        T: the expert's operator ``[k, k_s]``.
        noise: residual covariances of the next state's functions ``[A, A, k, k]``, the expert first.
        precision: inverse Gram sums in the same order ``[A, k_s, k_s]``.
        condition: condition number of I − γT on non-constant functions.
        spectral_radius: of γT on non-constant functions; the paper's series converges only below 1.

    Example:
        >>> operators = certirl.problems.random_polynomial(seed=7).operators(certirl.Legendre(7))
        >>> criterion = certirl.steps.bellman(operators, discount=0.7, expert=0)
        >>> criterion.condition < 2, criterion.spectral_radius < 1
        (True, True)
    """

    basis: Basis
    discount: float
    expert: int
    alternatives: tuple[int, ...]
    F: Array
    advantage: Array
    T: Array
    noise: Array
    precision: Array
    condition: float
    spectral_radius: float

    @property
    def columns(self) -> Basis:
        """The functions of the state in which each D_a is expanded, k_s of them."""
        return self.basis.resized(self.T.shape[1])

    @property
    def spreads(self) -> Array:
        """The covariance of the noise in T̂ − Ẑ^a, per transition ``[A − 1, k, k]``."""
        others = np.arange(1, len(self.noise))
        return np.asarray(self.noise[0, 0] + self.noise[others, others] - self.noise[0, others] - self.noise[others, 0])

    @property
    def roughness(self) -> Array:
        """The matrix ``[k, k]`` of ∫Σ_j(∂²R/∂s_j²)² for the reward R whose value is V = wᵀφ."""
        rewards = np.stack([self.reward_of(value) for value in np.eye(len(self.T))])
        return np.asarray(rewards @ self.basis._roughness() @ rewards.T)

    @property
    def spread(self) -> Array:
        """The same, averaged over the alternatives ``[k, k]``."""
        return np.asarray(self.spreads.mean(axis=0))

    def reward_of(self, value: Array) -> Array:
        """α = w − γTᵀw: the reward whose value under the expert is V = wᵀφ.

        Example:
            >>> value = np.eye(7)[1]
            >>> np.allclose(criterion.value_of(criterion.reward_of(value)), value)
            True
        """
        alpha = np.array(value)
        alpha[: self.T.shape[1]] -= self.discount * (self.T.T @ value)
        return alpha

    def value_of(self, alpha: Array) -> Array:
        """w = (I − γTᵀ)⁻¹α: the expert's value under the reward R = αᵀφ.

        Example:
            >>> alpha = np.eye(7)[1]
            >>> np.allclose(criterion.reward_of(criterion.value_of(alpha)), alpha)
            True
        """
        return np.linalg.solve(np.eye(len(alpha)) - self.discount * _square(self.T).T, alpha)

    def margins(self, alpha: Array) -> Array:
        """The coefficients of D_a in the columns, one row for each alternative: ``[A − 1, k_s]``.

        Example:
            >>> recovery = certirl.steps.recover(criterion)
            >>> criterion.margins(recovery.reward.coefficients).shape
            (2, 7)
        """
        return np.einsum("i,aij->aj", alpha, self.F)

    def error_forms(self, alpha: Array) -> Array:
        """Q_a with Var D̂_a(s) ≈ φ(s)ᵀQ_aφ(s), to first order in the error of the operators: ``[A − 1, k_s, k_s]``.

        From F̂ − F ≈ (I − γT)⁻¹[(T̂ − T)(I + γF) − (Ẑ − Z)]: the expert's error enters through (I + γF)φ(s), that of the
        alternative through φ(s), each with the spread of V = wᵀφ times the inverse Gram matrix of its states; with
        common random numbers the covariance of the two is subtracted.

        Example:
            >>> criterion.error_forms(np.eye(7)[1]).shape
            (2, 7, 7)
        """
        w, ks = self.value_of(alpha), self.T.shape[1]
        lift = np.eye(ks) + self.discount * self.F[:, :ks, :]
        spread = np.einsum("i,abij,j->ab", w, self.noise, w)
        own = spread[0, 0] * np.einsum("aji,jk,akl->ail", lift, self.precision[0], lift)
        other = np.diagonal(spread)[1:, None, None] * self.precision[1:]
        shared = spread[0, 1:, None, None] * np.einsum("aji,jk->aik", lift, self.precision[0])
        return np.asarray(own + other - shared - shared.transpose(0, 2, 1))


@typed
def bellman(operators: Operators, *, discount: float, expert: int = 0) -> Bellman:
    """Form ``F^a = (I − γT)⁻¹(T − Z^a)``: the paper's geometric series, solved instead of summed.

    The constant function is deflated: with the first row of every Z^a equal to (1, 0, 0, …) the first row of F is zero
    and the others need only the block of T without its first row and column, whose norm is far below 1.

    Args:
        operators: estimated or exact.
        discount: γ, strictly between 0 and 1.
        expert: the action the expert always takes.

    Example:
        >>> operators = certirl.problems.random_polynomial(seed=7).operators(certirl.Legendre(7))
        >>> criterion = certirl.steps.bellman(operators, discount=0.7, expert=0)
        >>> criterion.F.shape, criterion.alternatives
        ((2, 7, 7), (1, 2))
    """
    discount = check_problem(discount, expert, operators.n_actions, of_states=False)
    alternatives = alternatives_of(expert, operators.n_actions)
    order = [expert, *alternatives]
    T = operators.Z[expert]
    advantage = T - operators.Z[list(alternatives)]
    inner = np.eye(len(T)) - discount * _square(T)
    eigenvalues = np.linalg.eigvals(_square(T)[1:, 1:]) if len(T) > 1 else np.zeros(1)
    return Bellman(
        basis=operators.basis,
        discount=discount,
        expert=int(expert),
        alternatives=alternatives,
        F=np.linalg.solve(inner, advantage),
        advantage=advantage,
        T=T,
        noise=operators.noise[np.ix_(order, order)],
        precision=operators.precision[order],
        condition=float(np.linalg.cond(inner[1:, 1:])) if len(T) > 1 else 1.0,
        spectral_radius=float(discount * np.abs(eigenvalues).max()),
    )


def alternatives_of(expert: int, n_actions: int) -> tuple[int, ...]:
    """The actions that the expert does not take, in order."""
    return tuple(a for a in range(n_actions) if a != expert)


def check_problem(discount: Any, expert: Any, n_actions: int, *, of_states: bool = True) -> float:
    """γ as a float; refuse, with a sentence, a discount, an expert or a number of actions that make no problem."""
    check_expert(expert, n_actions, of_states=of_states)
    return as_probability(discount, "discount")


def check_expert(expert: Any, n_actions: int, *, of_states: bool = True) -> None:
    """Refuse, with a sentence, what is none of at least two actions; arguments as for `check_problem`."""
    if n_actions < 2:
        raise ValueError("there is only one action, so nothing distinguishes the expert: at least two are needed")
    if isinstance(expert, bool) or not isinstance(expert, int | np.integer) or not 0 <= expert < n_actions:
        raise ValueError(no_action(expert, n_actions, of_states=of_states))


def _square(T: Array) -> Array:
    """T with zero columns up to k: functions beyond k_s are mapped to, never from."""
    return np.pad(T, ((0, 0), (0, T.shape[0] - T.shape[1])))
