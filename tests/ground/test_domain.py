"""The box of states: checked at the door, and not again."""

import pickle

import numpy as np
import pytest

import certirl
from certirl.ground import domain
from refusals import refused
from systems import Moving

WALK = Moving(((0.0, 10.0),), (0.5, -0.5), std=1.0)


@pytest.mark.parametrize("expert", [0, lambda states: states[:, 0] > 5], ids=["action", "policy"])
def test_a_solve_checks_its_domain_once(monkeypatch, expert):
    checked, check = [], domain._checked
    monkeypatch.setattr(domain, "_checked", lambda value: checked.append(value) or check(value))
    certirl.solve(WALK, discount=0.9, expert=expert, samples=2_000, rng=0)
    assert checked == [WALK.domain]


@pytest.mark.parametrize("value", [(0, 10), [(0, 10), (-1.5, 2)], np.array([[0.0, 1.0]])], ids=str)
def test_a_checked_domain_is_a_tuple_of_pairs_of_floats_and_stays_what_it_is(value):
    box = domain.as_domain(value)
    assert box == tuple((float(low), float(high)) for low, high in np.reshape(value, (-1, 2)))
    assert str(box) == str(tuple(map(tuple, box))) and hash(box) == hash(tuple(map(tuple, box)))
    assert domain.as_domain(box) is box and domain.as_domain(box[0]) == box[:1]
    assert domain.as_domain(pickle.loads(pickle.dumps(box))) == box


def test_a_tuple_with_an_unchecked_pair_is_checked():
    (pair,) = domain.as_domain((0, 1))
    refused("low < high", domain.as_domain, (pair, (1.0, 0.0)))
