"""A special case is a value of the general one: logs, one component, one factor, an action that is a function.

That all other cases are proved, saved, read and checked is in test_cases.
"""

import numpy as np
import pytest

import certirl
from certirl import Legendre, product, steps
from checker.saved_records import SETTINGS, STEADY, TORN, away_from_zero, climb

LINE = Legendre(2)


@pytest.mark.parametrize("expert", ["constant", "policy"])
def test_a_log_is_proved_and_confirmed_too(expert, tmp_path):
    log = steps.sample(STEADY if expert == "constant" else TORN, basis=Legendre(3), samples=8_000, rng=1)
    asked = (
        {"columns": LINE, "expert": 0}
        if expert == "constant"
        else {"columns": LINE, "expert": away_from_zero, "tube": 0.5}
    )
    settings = {name: value for name, value in SETTINGS.items() if name != "rng"}
    solution = certirl.solve(log, **settings, **asked, **({"basis": Legendre(3)} if expert == "constant" else {}))
    assert solution.status == "certified"
    assert certirl.check(solution.save(tmp_path / "log.npz")).verdict == "confirmed"


def _margin(reward=climb, **changes):
    asked = {"columns": LINE, "samples": 8_000, "expert": 0}
    return certirl.certify(reward, STEADY, **SETTINGS | asked | changes).margin


def test_special_cases_have_the_margin_of_the_general_one():
    line = certirl.Reward(LINE.on(((-1.0, 1.0),)), np.array([0.0, 1.0]))
    plain = _margin(line)
    assert plain > 0
    assert _margin(certirl.Reward.sum([line], [[0]])) == pytest.approx(plain, abs=1e-9)
    assert _margin(line, columns=product(LINE).on(line.domain)) == pytest.approx(plain, abs=1e-9)
    assert _margin(expert=lambda s: np.zeros(len(s), dtype=int)) == pytest.approx(_margin(), abs=1e-9)
    problem = certirl.problems.random_polynomial(seed=3)
    asked = SETTINGS | {"basis": Legendre(7), "columns": 3, "expert": 0, "samples": 200_000}
    whole, alone = (certirl.solve(problem, **asked, **more) for more in ({}, {"components": [[0]]}))
    assert whole.certificate.holds and whole.samples == alone.samples
    assert alone.certificate.margin == pytest.approx(whole.certificate.margin, abs=1e-9)
