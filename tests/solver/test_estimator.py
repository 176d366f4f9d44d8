"""The estimator has the habits of scikit-learn, and learns what `solve` learns."""

import numpy as np
import pytest

pytest.importorskip("sklearn", minversion="1.6")

from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import parametrize_with_checks

import certirl
from certirl.fit.drifts import Drifts

QUICK = {"basis": certirl.Legendre(5), "columns": 3}


def log_of(labels, n=1_200, seed=0):
    """Steps on [0, 10], down by the first action and up by the second, taken at random."""
    rng = np.random.default_rng(seed)
    X, number = rng.uniform(0, 10, (n, 1)), rng.integers(2, size=n)
    X_next = np.clip(X + np.where(number, 0.5, -0.5)[:, None] + 0.3 * rng.normal(size=(n, 1)), 0, 10)
    return X, [labels[i] for i in number], X_next


# The checks fit 10 to 80 rows; the library refuses to estimate the effect of an action from fewer than 100.
# They give no next states: their rows are taken to be one episode.
class OneEpisode(certirl.InverseRL):
    def fit(self, X, y):
        return super().fit(X, y, episodes=np.zeros(len(y) if hasattr(y, "__len__") else 0))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the score cannot choose a discount")
@parametrize_with_checks([OneEpisode()])
def test_the_checks_of_scikit_learn_pass(estimator, check, monkeypatch):
    monkeypatch.setattr(Drifts, "fewest", 1)
    check(estimator)


@pytest.mark.parametrize("labels", [("down", "up"), (0.5, -0.5), (("a", 1), ("b", 2)), (3, "up"), (False, True)])
def test_actions_may_be_of_any_kind(labels):
    X, a, X_next = log_of(labels)
    model = certirl.InverseRL(0.9, expert=labels[1], **QUICK).fit(X, a, X_next)
    numbers = [model.classes_.tolist().index(label) for label in a]
    log = certirl.Transitions(X, numbers, X_next, n_actions=2)
    same = certirl.solve(log, discount=0.9, expert=model.classes_.tolist().index(labels[1]), rng=0, **QUICK)
    np.testing.assert_array_equal(model.reward_.coefficients, same.reward.coefficients)
    assert model.solution_.status == same.status == "solved"
    assert model.predict(X).tolist() == [labels[1]] * len(X)
    assert model.score(X, a) == a.count(labels[1]) / len(a)


def test_rows_are_demonstrations_unless_an_expert_is_named():
    rng = np.random.default_rng(1)
    X = rng.uniform(0, 10, (1_500, 1))
    wanted = np.where(X[:, 0] > 5, "down", "up")
    a = np.where(rng.random(1_500) < 0.15, np.where(wanted == "up", "down", "up"), wanted)  # the expert errs at times
    X_next = np.clip(X + np.where(a == "up", 0.5, -0.5)[:, None] + 0.3 * rng.normal(size=X.shape), 0, 10)
    model = certirl.InverseRL(0.9).fit(X, a, X_next)
    assert model.reward_(5.0) > model.reward_(9.0) and model.reward_(5.0) > model.reward_(1.0)
    assert model.score(X, wanted) > 0.9
    named = certirl.InverseRL(0.9, expert=lambda rows: np.where(rows[:, 0] > 5, "down", "up")).fit(X, a, X_next)
    assert named.score(X, wanted) > 0.9
    again = certirl.InverseRL(0.9, expert=named).fit(X, a, X_next)  # a model with predict is an expert, too
    assert again.score(X, wanted) > 0.9


def test_without_next_states_the_next_row_of_an_episode_is_the_next_state():
    rng = np.random.default_rng(0)
    a, X = rng.integers(2, size=800), np.empty((801, 1))
    X[0] = 5.0
    for step, action in enumerate(a):
        X[step + 1] = np.clip(X[step] + (-0.5, 0.5)[action] + 0.3 * rng.normal(), 0, 10)
    model = certirl.InverseRL(0.9, expert=1, **QUICK)
    first = model.fit(X[:-1], a, X[1:]).reward_.coefficients
    second = clone(model).fit(X, [*a, 0], episodes=np.zeros(801)).reward_.coefficients  # the last row has none
    np.testing.assert_array_equal(first, second)
    halves, ends = np.arange(801) > 400, np.delete(np.arange(800), 400)
    cut = clone(model).fit(X, [*a, 0], episodes=halves).reward_.coefficients
    np.testing.assert_array_equal(
        cut, clone(model).fit(X[ends], a[ends], X[ends + 1], episodes=halves[ends] * 1).reward_.coefficients
    )
    with pytest.raises(ValueError, match="pass X_next, the next states, or episodes"):
        clone(model).fit(X, [*a, 0])
    shuffled = rng.permutation(len(X))
    with pytest.raises(
        ValueError, match="is the next state, but it is as far away as any other, as if rows were shuffled: pass X_n"
    ):
        clone(model).fit(X[shuffled], np.array([*a, 0])[shuffled], episodes=np.zeros(801))


def test_it_is_cloned_searched_and_named_like_other_estimators():
    pandas = pytest.importorskip("pandas")
    X, a, X_next = log_of(("down", "up"))
    frame = pandas.DataFrame(X, columns=["place"])
    model = certirl.InverseRL(0.9, expert="up", **QUICK)
    with pytest.warns(UserWarning, match="the score cannot choose a discount"):
        copy = clone(model).set_params(discount=0.5)
    assert (model.discount, copy.discount, copy.get_params()["expert"]) == (0.9, 0.5, "up")
    with pytest.raises(NotFittedError):
        copy.predict(X)
    copy.fit(frame, pandas.Series(a), frame + (X_next - X))
    assert copy.feature_names_in_.tolist() == ["place"] and copy.solution_.discount == 0.5
    with pytest.warns(UserWarning, match="the score cannot choose a discount"):
        GridSearchCV(model, {"discount": [0.5, 0.9]}, cv=2).fit(X, a, X_next=X_next)
    search = GridSearchCV(model, {"columns": [2, 3]}, cv=2).fit(X, a, X_next=X_next)
    assert search.best_params_["columns"] in (2, 3) and search.predict(X[:2]).tolist() == ["up", "up"]
    assert repr(certirl.InverseRL(0.5)) == "InverseRL(discount=0.5)"


def test_mistakes_are_one_sentence():
    X, a, X_next = log_of(("down", "up"))
    for settings, words in (
        ({"expert": "left"}, "must be one of the actions 'down', 'up', got 'left'"),
        ({"expert": lambda rows: ["left"] * len(rows)}, "must take one of the actions 'down', 'up', got 'left'"),
        ({"delta": 0.05}, "had no part in saying who the expert is"),
        ({"discount": 1.5}, "discount"),
    ):
        with pytest.raises(ValueError, match=words):
            certirl.InverseRL(**settings).fit(X, a, X_next)
    for actions, words in (
        ("up", "must be a list"),
        (a[:-1], "each of 1200 states"),
        (["up"] * len(a), "1 class of actions, all of action 'up'"),
    ):
        with pytest.raises(ValueError, match=words):
            certirl.InverseRL().fit(X, actions, X_next)
