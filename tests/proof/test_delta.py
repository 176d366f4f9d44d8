"""δ is spent once: the failures that a proof allows add up, each with its probability, to the parts of δ it prints.

Bounds are loose, so that counting false certificates cannot see a δ that is spent twice; counting events can. Every
statement of `functions.inequalities` that a bound calls is an event, with probability e^−L or a stated multiple of it.
"""

from collections import Counter

import numpy as np
import pytest
from saved_records import CERTIFICATES, REFUTATIONS, proof

from certirl.functions.inequalities import EVENTS, MIXED_EVENTS
from certirl.proof import bands as module
from certirl.proof import refutation
from certirl.proof.drift import RIDGES, DriftSums, _gram, _radii
from certirl.proof.refutation import CEILING

BOTH_SIDES = 2


class Spent:
    """The probabilities of the events of `bands`, by the part of δ that pays for them."""

    def __init__(self, patch):
        self.parts, self.inside, self.seen = Counter(), [], []
        for name in ("_size", "_visits", "_span", "_expected_length", "_at_points", "_norms"):
            self._within(patch, name)
        for name in ("sloped", "mixed_norm", "hoeffding_norm", "empirical_bernstein"):
            self._counted(patch, name)

    def _within(self, patch, name):
        plain = getattr(module, name)

        def within(*values, **settings):
            self.inside.append(name)
            found = plain(*values, **settings)
            self.inside.pop()
            if name == "_norms":  # of each function the trace, the largest eigenvalue and the norm
                self._pay(len(found) * MIXED_EVENTS * np.exp(-values[1]))
            return found

        patch.setattr(module, name, within)

    def _counted(self, patch, name):
        plain = getattr(module, name)

        def counted(*values, **settings):
            found = plain(*values, **settings)
            L = values[3] if name == "mixed_norm" else values[2]
            if name == "sloped" and np.ndim(L):  # L of each side and point; V and V̂ share their event
                if not any(L is other for other in self.seen):
                    self.seen.append(L)
                    self._pay(np.exp(-L).sum())
            elif name == "sloped":  # at points, on both sides; there Hoeffding's inequality is a second event
                self._pay((1 + ("_at_points" in self.inside)) * BOTH_SIDES * np.size(found) * np.exp(-L))
            elif "_norms" not in self.inside:
                each = {"mixed_norm": MIXED_EVENTS, "hoeffding_norm": 1, "empirical_bernstein": EVENTS}[name]
                self._pay(each * np.size(found) * np.exp(-L))
            return found

        patch.setattr(module, name, counted)

    def _pay(self, probability):
        if "_expected_length" not in self.inside:  # which is for planning
            regret = {"_visits", "_span"} & {*self.inside}
            self.parts["regret" if regret else "size of the error" if self.inside else "band"] += probability


@pytest.mark.parametrize("kind", CERTIFICATES)
def test_the_events_of_a_certificate_add_up_to_the_parts_of_delta_that_it_prints(kind, monkeypatch):
    found, spent = proof(kind), Spent(monkeypatch)
    for ground in found.grounds:
        module.bands(ground.surrogate, ground.evidence, delta=ground.delta, tail=ground.tail or 0.0)
    assert {*spent.parts} <= {*found.spending}
    for name, part in spent.parts.items():
        assert part == pytest.approx(found.spending[name], rel=1e-6), name
    assert sum(found.spending.values()) == pytest.approx(found.delta) == 0.05


@pytest.mark.parametrize("kind", REFUTATIONS)
def test_the_events_of_a_refutation_add_up_to_the_parts_of_delta_that_it_prints(kind, monkeypatch):
    found, spent = proof(kind), []
    plain = refutation.sloped
    counted = lambda *values: (spent.append(np.exp(-values[2])), plain(*values))[1]  # noqa: E731
    monkeypatch.setattr(refutation, "sloped", counted)
    delta = sum(found.spending[name] for name in ("cones", "ceiling"))
    for ground in found.grounds:
        refutation.Bounds(ground.cover, ground.sums, ground.tail or 0.0).errors(ground.cover, delta)
    total = sum(each.sum() for each in spent)
    assert total == pytest.approx(delta, rel=1e-6)
    assert found.spending["ceiling"] == pytest.approx(CEILING * delta)
    assert sum(found.spending.values()) == pytest.approx(found.delta) == 0.05


@pytest.mark.parametrize("rows", ["independent", "paired", "dependent"])
def test_the_events_of_known_noise_add_up_to_delta(rows):
    """Scores are less spread than Gaussian ones of 2 or 4 entries; a mixture for each ridge where rows depend."""
    rng = np.random.default_rng(0)
    states, actions = rng.uniform(-1, 1, 400), np.tile([0, 1], 200)
    sums = DriftSums.of(states, actions, 0.8 * states + 0.1 * rng.normal(size=400), 2, rows)
    radii = _radii(sums, 0.05)
    if rows == "dependent":
        grams = [_gram(sums, action) for action in range(2)]
        wide = [sum(np.linalg.slogdet(np.eye(2) + gram / ridge)[1] for gram in grams) for ridge, _ in radii]
        failures = [np.exp((each - square) / 2) for each, (_, square) in zip(wide, radii, strict=True)]
        assert [ridge for ridge, _ in radii] == [*RIDGES]
    else:  # r² bounds the sum over both actions; of paired rows each action has an event of its own
        ((_, square),) = radii
        each = square / 2 if rows == "paired" else square
        level = np.linspace(0, each, 100_001)[:-1]
        above = np.exp(-level / 2) * (2 if rows == "paired" else 4 + level)  # E(χ² − level)₊
        failures = [(2 if rows == "paired" else 1) * (above / (each - level)).min()]
    assert sum(failures) == pytest.approx(0.05, rel=1e-4)
