"""What holds for all tests."""

import gc
import os
import shutil
import signal
import sys
from collections import Counter

import numpy as np
import pytest
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings

import oracle
from certirl.data.policy import CELLS_ALONG
from certirl.show import plots

# A shell lets what it starts in the background ignore Ctrl-C, and so do the children of that; some tests send it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# The same inputs in every run, and few; no file of what was tried.
_CHECKS = [HealthCheck.too_slow, HealthCheck.filter_too_much]
hypothesis_settings.register_profile(
    "few", derandomize=True, max_examples=25, deadline=None, database=None, suppress_health_check=_CHECKS
)
hypothesis_settings.load_profile("few")


def pytest_configure():
    oracle.watch()


@pytest.hookimpl(tryfirst=True)
def pytest_collection():
    """What is collected stays: looking through it for garbage is a tenth of the time of the tests."""
    gc.disable()


def pytest_collection_finish():
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark as slow what starts a Dask cluster, and of the parameters of a thinned test all but every n-th."""
    seen = Counter()
    for item in (item for item in items if not item.get_closest_marker("slow")):
        thinned = item.get_closest_marker("thinned")
        if "client" in item.fixturenames or (thinned and seen[item.function] % thinned.args[0]):
            item.add_marker(pytest.mark.slow)
        seen[item.function] += 1


def _state():
    """What later tests of the same process depend on."""
    return {
        "folder": os.getcwd(),
        "files saved there": {name for name in os.listdir() if name.endswith((".npz", ".png", ".html", ".csv"))},
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


@pytest.fixture(autouse=True)
def _coarse(request):
    """Look experts up at fewer states and draw smaller pictures than for users, but in tests that are slow or fine."""
    if any(request.node.get_closest_marker(name) for name in ("slow", "fine")):
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        for dimension, cells in ((1, 1000), (2, 100), (3, 30)):
            patch.setitem(CELLS_ALONG, dimension, cells)
        patch.setattr(plots, "DPI", 50)
        yield


@pytest.fixture(autouse=True)
def _confirmed(request, tmp_path_factory):
    """Fail a test that makes a certificate, a refutation or a solution which the independent checker rejects."""
    yield
    records = oracle.made()
    if records and not request.node.get_closest_marker("unchecked"):
        folder = tmp_path_factory.mktemp("claims")
        faults = [fault for record in records if (fault := oracle.fault(record, folder))]
        shutil.rmtree(folder)
        assert not faults, "\n".join(faults)
