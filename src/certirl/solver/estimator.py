"""An estimator with the habits of scikit-learn: ``InverseRL(discount=0.9).fit(X, a, X_next).predict(X)``.

``clone``, ``set_params``, data frames, pipelines and searches over settings work as with estimators of scikit-learn,
which must be installed.
"""

from __future__ import annotations

import warnings
from contextlib import suppress
from operator import eq
from typing import Any, Self, cast

import numpy as np
from numpy.typing import NDArray

try:
    from sklearn.base import BaseEstimator
    from sklearn.utils.validation import check_array, check_is_fitted, validate_data
except ImportError:
    raise ImportError(
        'certirl.InverseRL needs scikit-learn, 1.6 or later: pip install "certirl[demonstrations]"'
    ) from None

from certirl.data.demonstrations import policy_from
from certirl.data.transitions import Transitions
from certirl.functions.reward import Reward
from certirl.ground.doors import shown
from certirl.solver.solution import Solution
from certirl.solver.solve import solve

FEWEST = 200  # rows that are looked at: fewer are no sign of their order


class InverseRL(BaseEstimator):  # type: ignore[misc]
    """Learns a reward from the steps of an expert, or from a log and what is known of the expert.

    What ``fit(X, a, X_next)`` takes as the expert:

    - By default the rows are demonstrations: the expert took action ``a[i]`` at the state ``X[i]``. Its policy is
      estimated from them. The same rows show what the actions do, so that of an action at states where the expert never
      takes it little is known (`certirl.diagnose.coverage` shows where).
    - With ``expert`` the rows may be of any origin, and the expert is an action that it always takes, a function of
      states to actions, or a model with ``predict``.

    Args:
        discount: γ, strictly between 0 and 1. Data do not tell it: under most discounts some reward explains the same
            actions, so that `score` ties. A search over it (GridSearchCV) would return the first, and warns.
        expert: None, an action, a function of states ``[n, d]`` to actions, or a model with ``predict``.
        domain: the box of states, as in `Transitions`; the smallest box around the data if None.
        periodic: the periodic coordinates, as in `Transitions`.
        exogenous: the coordinates that no action moves, as in `Transitions`.
        method: as in `solve`, and so are ``basis``, ``columns``, ``components``, ``delta``, ``tail`` and ``tube``.
        basis: the functions of rewards and values.
        columns: functions of the state.
        components: groups of coordinates that move independently.
        delta: probability of a false proof; only with ``expert``, as the data of a proof must not say who it is.
        tail: what is known of the dynamics beyond the columns.
        tube: how far from a switch the expert must be proved strictly best.
        random_state: a seed or Generator, for what is held out.

    Attributes:
        solution_: the `Solution`, with its status and print.
        reward_: the reward, a function of states; None if there is none.
        classes_: the actions, sorted where they can be; action number i of the solution is ``classes_[i]``.
        n_features_in_: the number of coordinates, d.
        feature_names_in_: their names, if X is a data frame.

    Example:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> X, a = rng.uniform(0, 10, (3_000, 1)), rng.choice(["down", "up"], 3_000)
        >>> X_next = np.clip(X + np.where(a == "up", 0.5, -0.5)[:, None] + rng.normal(size=X.shape), 0, 10)
        >>> model = certirl.InverseRL(discount=0.9, expert="up").fit(X, a, X_next)
        >>> model.predict([[2.0], [8.0]]).tolist()
        ['up', 'up']
    """

    def __init__(
        self,
        discount: float = 0.9,
        *,
        expert: Any = None,
        domain: Any = None,
        periodic: Any = (),
        exogenous: Any = (),
        method: Any = None,
        basis: Any = None,
        columns: Any = None,
        components: Any = None,
        delta: float | None = None,
        tail: Any = None,
        tube: float | None = None,
        random_state: Any = 0,
    ) -> None:
        self.discount = discount
        self.expert = expert
        self.domain = domain
        self.periodic = periodic
        self.exogenous = exogenous
        self.method = method
        self.basis = basis
        self.columns = columns
        self.components = components
        self.delta = delta
        self.tail = tail
        self.tube = tube
        self.random_state = random_state

    solution_: Solution
    reward_: Reward | None
    classes_: NDArray[Any]
    n_features_in_: int
    feature_names_in_: NDArray[Any]

    def fit(self, X: Any, y: Any, X_next: Any = None, *, terminal: Any = None, episodes: Any = None) -> Self:
        """Learn the reward; returns the estimator.

        Args:
            X: states ``[n, d]``, an array or a data frame.
            y: the actions a, of any type that can be a key of a dictionary ``[n]``.
            X_next: the next states ``[n, d]``; if omitted, the next row of the same episode is the next state, and the
                last row of an episode has none. Rows of which the next is as far away as any other are refused: they
                look shuffled, as the folds of a search may be.
            terminal: which next states are terminal ``[n]``, as in `Transitions`.
            episodes: the number of the episode of each row ``[n]``; needed without X_next, ``np.zeros(n)`` for one.

        Example:
            >>> X = np.random.default_rng(0).uniform(0, 10, (500, 1))
            >>> a = np.where(np.arange(500) % 2, "up", "down")
            >>> X_next = np.clip(X + np.where(a == "up", 0.5, -0.5)[:, None], 0, 10)
            >>> certirl.InverseRL(expert="up").fit(X, a, X_next).classes_.tolist()
            ['down', 'up']
        """
        states, labels = validate_data(self, X, dtype=np.float64, ensure_min_samples=2), _labels(y)
        if len(labels) != len(states):
            raise ValueError(f"there must be one action for each of {len(states)} states, got {len(labels)}")
        if X_next is None and episodes is None:
            raise ValueError(
                "where does an action lead? pass X_next, the next states, or episodes, the episode of each row, where "
                "rows are in order (np.zeros(len(X)) for one episode)"
            )
        if X_next is not None:
            after = check_array(X_next, dtype=np.float64, input_name="X_next")
        else:
            if np.shape(episodes) != (len(states),):
                raise ValueError(f"episodes must be one number or name for each of {len(states)} rows")
            of_row = np.unique(np.asarray(episodes), return_inverse=True)[1]
            rows = np.flatnonzero(of_row[1:] == of_row[:-1])
            _check_order(states, rows)
            after, terminal = states[rows + 1], None if terminal is None else np.asarray(terminal)[rows]
            states, labels, episodes = states[rows], [labels[row] for row in rows], of_row[rows]
        classes = _classes(labels)
        if len(classes) < 2:
            only = "".join(f", all of action {shown(label)}" for label in classes.tolist())
            raise ValueError(
                f"rows of two actions or more are needed, got {len(labels)} rows of {len(classes)} class of "
                f"actions{only}: the effects of the expert's action are compared with those of others"
            )
        if self.expert is None and self.delta is not None:
            raise ValueError(
                "a proof must rest on data that had no part in saying who the expert is: pass expert=…, such as a "
                "policy that certirl.policy_from estimated from other data, or leave delta out"
            )
        names = tuple(map(str, classes.tolist()))
        numbers = {label: number for number, label in enumerate(classes.tolist())}
        log = Transitions(
            states,
            np.array([numbers[label] for label in labels]),
            after,
            domain=self.domain,
            n_actions=len(classes),
            terminal=terminal,
            episodes=episodes,
            periodic=self.periodic,
            exogenous=self.exogenous,
            action_names=names if len(set(names)) == len(names) else (),
            coordinate_names=tuple(getattr(self, "feature_names_in_", ())),
        )
        self.classes_ = classes
        self.solution_ = solve(
            log,
            discount=self.discount,
            expert=self._policy(log, numbers),
            method=self.method,
            basis=self.basis,
            columns=self.columns,
            components=self.components,
            delta=self.delta,
            tail=self.tail,
            tube=self.tube,
            rng=self.random_state,
        )
        self.reward_ = self.solution_.reward
        return self

    def _policy(self, log: Transitions, numbers: dict[Any, int]) -> Any:
        """The expert as `solve` takes it: of numbers of actions."""
        expert = self.expert
        if expert is None:
            return policy_from(log, rng=self.random_state)
        choose = getattr(expert, "predict", expert)
        if not callable(choose):
            if expert not in numbers:
                listed = ", ".join(map(shown, numbers))
                raise ValueError(f"the expert must be one of the actions {listed}, got {shown(expert)}")
            return numbers[expert]

        def policy(rows: Any) -> NDArray[np.intp]:
            chosen = _labels(choose(rows))
            for label in chosen:
                if label not in numbers:
                    listed = ", ".join(map(shown, numbers))
                    raise ValueError(f"the expert must take one of the actions {listed}, got {shown(label)}")
            return np.array([numbers[label] for label in chosen])

        return policy

    def set_params(self, **params: Any) -> Self:
        """The same with other settings; warns where the discount changes, as a search over it would choose by chance.

        Example:
            >>> certirl.InverseRL(discount=0.9).set_params(columns=5).columns
            5
        """
        if "discount" in params and repr(params["discount"]) != repr(self.discount):
            warnings.warn(
                "the score cannot choose a discount, since under most of them some reward explains the same actions: "
                "set InverseRL(discount=…) by what is known of the expert",
                stacklevel=2,
            )
        return cast(Self, super().set_params(**params))

    def predict(self, X: Any) -> NDArray[Any]:
        """The best action at each state by the estimated dynamics and the learned reward ``[n]``.

        Example:
            >>> X = np.random.default_rng(0).uniform(0, 10, (500, 1))
            >>> a = np.where(np.arange(500) % 2, "up", "down")
            >>> X_next = np.clip(X + np.where(a == "up", 0.5, -0.5)[:, None], 0, 10)
            >>> certirl.InverseRL(expert="up").fit(X, a, X_next).predict([[3.0], [6.0]]).tolist()
            ['up', 'up']
        """
        check_is_fitted(self)
        states = validate_data(self, X, dtype=np.float64, reset=False)
        if self.reward_ is None:
            raise ValueError(f"there is no reward to act by: {self.solution_.reason}")
        return self.classes_[self.solution_.greedy(states)]

    def score(self, X: Any, y: Any) -> float:
        """The share of states at which the predicted action is the one in ``y``.

        It can choose what estimates depend on (method, basis, columns), not the discount, and it proves nothing:
        `solution_` has the status.

        Example:
            >>> X = np.random.default_rng(0).uniform(0, 10, (500, 1))
            >>> a = np.where(np.arange(500) % 2, "up", "down")
            >>> X_next = np.clip(X + np.where(a == "up", 0.5, -0.5)[:, None], 0, 10)
            >>> certirl.InverseRL(expert="up").fit(X, a, X_next).score(X, a)
            0.5
        """
        predicted, labels = self.predict(X).tolist(), _labels(y)
        if len(predicted) != len(labels):
            raise ValueError(f"there must be one action for each of {len(predicted)} states, got {len(labels)}")
        return sum(map(eq, predicted, labels)) / len(labels)


def _check_order(states: NDArray[Any], rows: NDArray[np.intp]) -> None:
    """Refuse many rows of which those that follow do not look like the next states.

    Of independent rows the mean squared step is twice the variance (von Neumann), up to about 2/√n of that.
    """
    n, twice = len(rows), 2 * states.var(axis=0)
    if n < FEWEST or not twice.any():
        return
    steps = np.mean((states[rows + 1] - states[rows]) ** 2, axis=0)[twice > 0] / twice[twice > 0]
    if (steps > 1 - 3 / np.sqrt(n)).all():
        raise ValueError(
            f"without X_next the next of {n:,} rows of X is the next state, but it is as far away as any other, as if "
            "rows were shuffled: pass X_next, or X[:-1], a[:-1] and X[1:] if they are in order"
        )


def _labels(actions: Any) -> list[Any]:
    """Actions of any kind as a list, one for each row."""
    array = actions.to_numpy() if hasattr(actions, "to_numpy") else actions
    if isinstance(array, str | bytes) or not hasattr(array, "__len__"):
        raise ValueError(f"y, the actions, must be a list or an array, one for each state, got {shown(actions)}")
    if isinstance(array, np.ndarray):
        if array.ndim == 2 and array.shape[1] == 1:
            array = array[:, 0]
        if array.ndim != 1:
            raise ValueError(f"the actions must have the shape [n], got {list(array.shape)}")
        return array.tolist()
    return list(array)


def _classes(labels: list[Any]) -> NDArray[Any]:
    """The different actions, sorted where they can be, else in the order in which they occur."""
    different = list(dict.fromkeys(labels))
    with suppress(TypeError):
        different.sort()
    kinds = {type(label) for label in different}
    if len(kinds) == 1 and kinds <= {bool, int, float, str}:
        return np.array(different)
    classes = np.empty(len(different), dtype=object)
    classes[:] = different
    return classes
