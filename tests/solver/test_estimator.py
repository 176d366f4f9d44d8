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
@pytest.mark.slow
@parametrize_with_checks([certirl.InverseRL()])
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


def test_without_next_states_the_rows_are_one_episode_in_order():
    rng = np.random.default_rng(0)
    a, X = rng.integers(2, size=800), np.empty((801, 1))
    X[0] = 5.0
    for step, action in enumerate(a):
        X[step + 1] = np.clip(X[step] + (-0.5, 0.5)[action] + 0.3 * rng.normal(), 0, 10)
    model = certirl.InverseRL(0.9, expert=1, **QUICK)
    first = model.fit(X[:-1], a, X[1:]).reward_.coefficients
    second = clone(model).fit(X, [*a, 0]).reward_.coefficients  # the last row has no next state
    np.testing.assert_array_equal(first, second)
    shuffled = rng.permutation(len(X))
    with pytest.raises(
        ValueError, match="the next row is as far away as any other, as if rows were shuffled: pass X_n"
    ):
        clone(model).fit(X[shuffled], np.array([*a, 0])[shuffled])


def test_it_is_cloned_searched_and_named_like_other_estimators():
    pandas = pytest.importorskip("pandas")
    X, a, X_next = log_of(("down", "up"))
    frame = pandas.DataFrame(X, columns=["place"])
    model = certirl.InverseRL(0.9, expert="up", **QUICK)
    copy = clone(model).set_params(discount=0.5)
    assert (model.discount, copy.discount, copy.get_params()["expert"]) == (0.9, 0.5, "up")
    with pytest.raises(NotFittedError):
        copy.predict(X)
    copy.fit(frame, pandas.Series(a), frame + (X_next - X))
    assert copy.feature_names_in_.tolist() == ["place"] and copy.solution_.discount == 0.5
    search = GridSearchCV(model, {"discount": [0.5, 0.9]}, cv=2).fit(X, a, X_next=X_next)
    assert search.best_params_["discount"] in (0.5, 0.9) and search.predict(X[:2]).tolist() == ["up", "up"]
    assert repr(certirl.InverseRL(0.5)) == "InverseRL(discount=0.5)"


def test_mistakes_are_one_sentence():
    X, a, X_next = log_of(("down", "up"))
    for settings, words in (
        ({"expert": "left"}, "must be one of the actions 'down', 'up', got 'left'"),
        ({"delta": 0.05}, "had no part in saying who the expert is"),
        ({"discount": 1.5}, "discount"),
    ):
        with pytest.raises(ValueError, match=words):
            certirl.InverseRL(**settings).fit(X, a, X_next)
    for actions, words in (
        ("up", "must be a list"),
        (a[:-1], "each of 1200 states"),
        (["up"] * len(a), "1 class"),
    ):
        with pytest.raises(ValueError, match=words):
            certirl.InverseRL().fit(X, actions, X_next)
