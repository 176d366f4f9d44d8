"""What holds for all tests."""

import os
import signal
import sys

import numpy as np
import pytest

# A shell lets what it starts in the background ignore Ctrl-C, and so do the children of that; some tests send it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark the tests that start a Dask cluster as slow."""
    for item in items:
        if "client" in item.fixturenames:
            item.add_marker(pytest.mark.slow)


def _state():
    """What later tests of the same process depend on."""
    return {
        "folder": os.getcwd(),
        "hidden modules": {name for name, module in sys.modules.copy().items() if module is None},
        "handler of Ctrl-C": signal.getsignal(signal.SIGINT),
        "floating-point errors": np.geterr(),
    }


@pytest.fixture(autouse=True)
def _left_as_it_was():
    """Fail a test that leaves the state of the process changed; libraries may add variables to the environment."""
    state, variables = _state(), dict(os.environ)
    yield
    assert _state() == state
    changed = {name for name, value in variables.items() if os.environ.get(name) != value}
    assert changed - {"PYTEST_CURRENT_TEST"} == set()
