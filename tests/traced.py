"""A plugin of pytest for tests/mutants.py: `--lines-to FILE` tells which lines tests run, `--order FILE` runs some.

What several tests share (a fixture of a module, a cached value, what is made when a module is read) is run by each test
that uses it. The tests of an order are run in it, each for as many seconds at most as are written beside it. They are
seconds of the processor, so that they do not depend on what else it does.
"""

import contextlib
import functools
import json
import signal
import sys
import threading
import time
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src"
ROOMS = tuple(f"{SOURCE / room}/" for room in ("certirl/proof", "certirl/fit", "certirl_check"))


def pytest_addoption(parser):
    parser.addoption("--lines-to", type=Path)
    parser.addoption("--order", type=Path)


def pytest_configure(config):
    for option, plugin in (("--lines-to", _Lines), ("--order", _Order)):
        if config.getoption(option):
            config.pluginmanager.register(plugin(config.getoption(option)))


class _Order:
    def __init__(self, path):
        self.seconds = json.loads(path.read_text())

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items):
        found = {item.nodeid: item for item in items}
        items[:] = [found[name] for name in self.seconds if name in found]

    def pytest_runtest_logstart(self, nodeid):
        signal.setitimer(signal.ITIMER_PROF, self.seconds[nodeid])  # whose signal ends the process

    def pytest_unconfigure(self):
        signal.setitimer(signal.ITIMER_PROF, 0)


class _Lines:
    """The lines and the seconds of each test and of what several tests share, and which test uses what."""

    def __init__(self, path):
        self.path, self.now, self.passed = path, [""], {}
        self.lines, self.uses, self.seconds = defaultdict(set), defaultdict(set), defaultdict(float)
        functools.cache = functools.partial(self._cache, functools.cache)
        functools.lru_cache = functools.partial(self._cache, functools.lru_cache)

    def _cache(self, make, *values, **settings):
        """A decorator that says who asked for a value."""
        if not (values and callable(values[0])):
            return lambda function: self._asked(function, make(*values, **settings)(function))
        return self._asked(values[0], make(*values, **settings))

    def _asked(self, function, cached):
        file = function.__code__.co_filename if hasattr(function, "__code__") else ""  # a compiled one has no code
        if not file.startswith(str(ROOT)):
            return cached

        @functools.wraps(cached)
        def asked(*values, **settings):
            with self._shared(f"{function.__module__}.{function.__qualname__} {hash((values, *settings.items()))}"):
                return cached(*values, **settings)

        asked.cache_clear, asked.cache_info = cached.cache_clear, cached.cache_info
        return asked

    @contextlib.contextmanager
    def _shared(self, name):
        self.uses[self.now[-1]].add(name)
        self.now.append(name)
        began = time.process_time()
        try:
            yield
        finally:
            self.seconds[name] = max(time.process_time() - began, self.seconds[name])
            self.now.pop()

    def _call(self, frame, event, value):
        return self._line if frame.f_code.co_filename.startswith(ROOMS) else None

    def _line(self, frame, event, value):
        if event == "line":
            self.lines[self.now[-1]].add((frame.f_code.co_filename[len(f"{SOURCE}/") :], frame.f_lineno))
        return self._line

    def pytest_collection(self):
        threading.settrace(self._call)
        sys.settrace(self._call)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_make_collect_report(self, collector):
        with self._shared(collector.nodeid):
            yield

    @pytest.hookimpl(hookwrapper=True)
    def pytest_fixture_setup(self, fixturedef):
        several = fixturedef.scope != "function"
        with self._shared(f"{fixturedef.baseid} {fixturedef.argname}") if several else contextlib.nullcontext():
            yield

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item):
        began, self.now = time.process_time(), [item.nodeid]
        fixtures = (one for name in item.fixturenames for one in item._fixtureinfo.name2fixturedefs.get(name, ()))
        self.uses[item.nodeid] |= {item.nodeid.split("::")[0], *(f"{one.baseid} {one.argname}" for one in fixtures)}
        yield
        self.seconds[item.nodeid], self.now = time.process_time() - began, [""]

    def pytest_runtest_logreport(self, report):
        self.passed[report.nodeid] = self.passed.get(report.nodeid, True) and report.passed

    def pytest_unconfigure(self):
        sys.settrace(None)
        threading.settrace(None)
        found = {}
        for test in (name for name, passed in self.passed.items() if passed):
            parts, waiting, lines = {test}, [test], defaultdict(list)
            while waiting:
                new = self.uses[waiting.pop()] - parts
                parts |= new
                waiting += new
            for file, line in sorted(set().union(*(self.lines[one] for one in parts))):
                lines[file].append(line)
            found[test] = {"seconds": sum(self.seconds[one] for one in parts), "lines": lines}
        self.path.write_text(json.dumps(found))
