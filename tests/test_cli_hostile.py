"""What is typed wrongly, cannot be written or is interrupted: one sentence in the command's words, nothing lost."""

import numpy as np
import pytest

from certirl import doors
from certirl._map import fold, on


def test_settings_are_named_as_the_user_writes_them():
    assert doors.setting("outside", "'clip'") == "outside='clip'" and doors.setting("tail") == "tail"
    with doors.options({"outside": "--outside", "domain": "--domain LOW HIGH", "n_actions": "--actions"}):
        assert doors.setting("outside", "'clip'") == "--outside clip" and doors.setting("outside") == "--outside"
        assert doors.setting("domain", "((low, high), …)") == "--domain LOW HIGH"
        assert doors.setting("tail", "0") == "tail=0"  # no option of this command
        with pytest.raises(ValueError, match=r"^--actions must be a whole number, at least 1, got -3$"):
            doors.as_count(-3, "n_actions")
    with pytest.raises(ValueError, match=r"^n_actions must be"):
        doors.as_count(-3, "n_actions")


def test_settings_are_named_alike_on_other_threads():
    with doors.options({"n_actions": "--actions"}), on(2):
        assert fold(lambda _: [doors.setting("n_actions")], range(4)) == ["--actions"] * 4
    assert fold(lambda _: np.array([doors.setting("n_actions")]), [0]) == ["n_actions"]
