"""A plugin of pytest for tests/mutants.py: which lines tests run, and what they say of mutants.

`--lines-to FILE` writes the lines and the seconds of every test that passes. What several tests share (a fixture of a
module, a cached value, what is made when a module is read) is run by each test that uses it. Needs Python 3.12.

`--mutants FILE` reads mutants with their tests, and adds a line with the result of each to a file. All tests are
collected once; every mutant is put into a fork of this process, as the new code of the functions that it changes.
"""

import contextlib
import functools
import gc
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import types
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src"
ROOMS = tuple(f"{SOURCE / room}/" for room in ("certirl/proof", "certirl/fit", "certirl_check"))


def pytest_addoption(parser):
    parser.addoption("--lines-to", type=Path)
    parser.addoption("--mutants", type=Path)


def pytest_configure(config):
    for option, plugin in (("--lines-to", _Lines), ("--mutants", _Mutants)):
        if config.getoption(option):
            config.pluginmanager.register(plugin(config.getoption(option)))


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
        self._turn_to([*self.now, name])
        began = time.process_time()
        try:
            yield
        finally:
            self.seconds[name] = max(time.process_time() - began, self.seconds[name])
            self._turn_to(self.now[:-1])

    def _turn_to(self, now):
        """From here on lines are those of the last of these; each is reported once."""
        self.now = now
        sys.monitoring.restart_events()

    def _line(self, code, line):
        if code.co_filename.startswith(ROOMS):
            self.lines[self.now[-1]].add((code.co_filename[len(f"{SOURCE}/") :], line))
        return sys.monitoring.DISABLE

    def pytest_collection(self):
        tool = sys.monitoring.COVERAGE_ID
        sys.monitoring.use_tool_id(tool, "lines")
        sys.monitoring.register_callback(tool, sys.monitoring.events.LINE, self._line)
        sys.monitoring.set_events(tool, sys.monitoring.events.LINE)

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
        self._turn_to([item.nodeid])
        began = time.process_time()
        fixtures = (one for name in item.fixturenames for one in item._fixtureinfo.name2fixturedefs.get(name, ()))
        self.uses[item.nodeid] |= {item.nodeid.split("::")[0], *(f"{one.baseid} {one.argname}" for one in fixtures)}
        yield
        self.seconds[item.nodeid] = time.process_time() - began
        self._turn_to([""])

    def pytest_runtest_logreport(self, report):
        self.passed[report.nodeid] = self.passed.get(report.nodeid, True) and report.passed

    def pytest_unconfigure(self):
        sys.monitoring.set_events(sys.monitoring.COVERAGE_ID, 0)
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


class _Mutants:
    """Runs the tests of every mutant in a fork of this process, several at a time."""

    def __init__(self, path):
        asked = json.loads(path.read_text())
        self.mutants, self.processes, self.seconds = asked["mutants"], asked["processes"], asked["seconds"]
        self.out, self.failed, self.running = Path(asked["out"]), "", {}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items):
        self.items = {item.nodeid: item for item in items}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session):
        gc.unfreeze()  # frozen objects are not listed
        self.functions = defaultdict(list)
        for function in (one for one in gc.get_objects() if isinstance(one, types.FunctionType)):
            if function.__code__.co_filename.startswith(ROOMS):
                self.functions[function.__code__].append(function)
        gc.freeze()
        waiting = list(reversed(self.mutants))
        while waiting or self.running:
            while waiting and len(self.running) < self.processes:
                self._begin(waiting.pop(), session.config)
            self._wait()
        return True

    def _begin(self, mutant, config):
        folder = tempfile.mkdtemp()
        process = os.fork()
        if process:
            self.running[process] = mutant, folder, time.monotonic()
            return
        try:
            result = self._result(mutant, config, folder)
        except SyntaxError:
            result = {"result": "not Python", "by": ""}
        except BaseException as problem:
            result = {"result": "no result", "by": repr(problem)[:300]}
        Path(folder, "result").write_text(json.dumps(result))
        os._exit(0)

    def _result(self, mutant, config, folder):
        """Of the tests of a mutant; runs in a fork."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        resource.setrlimit(resource.RLIMIT_CPU, (self.seconds, self.seconds))
        config._tmp_path_factory._basetemp = Path(folder)
        old, new = (codes(compile(text, str(SOURCE / mutant["file"]), "exec")) for text in mutant["texts"])
        for name, these in old.items():
            others = new.get(name, [])
            for one, other in zip(these, others, strict=False) if len(these) == len(others) else ():
                for function in self.functions.get(one, ()) if one != other else ():
                    function.__code__ = other
        order = [(self.items[name], limit) for name, limit in mutant["tests"].items() if name in self.items]
        for (item, limit), (following, _) in zip(order, [*order[1:], (None, 0)], strict=False):
            signal.setitimer(signal.ITIMER_PROF, limit)  # whose signal ends the process
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if self.failed:
                return {"result": "killed", "by": self.failed}
        return {"result": "lives", "by": ""}

    def pytest_runtest_logreport(self, report):
        if report.failed:
            self.failed = self.failed or report.nodeid

    def _wait(self):
        """For the end of a fork, whose result is written down."""
        process, status = os.waitpid(-1, os.WNOHANG)
        if not process:
            time.sleep(0.02)
            for waited, (_, _, began) in self.running.items():
                if time.monotonic() - began > 20 * self.seconds:  # nothing is computed any more
                    os.kill(waited, signal.SIGKILL)
            return
        mutant, folder, began = self.running.pop(process)
        ends = {signal.SIGPROF: "endless", signal.SIGXCPU: "late", signal.SIGKILL: "late"}
        found, code = Path(folder, "result"), os.WTERMSIG(status)
        result = json.loads(found.read_text()) if found.exists() else {"result": ends.get(code, "killed"), "by": ""}
        shutil.rmtree(folder, ignore_errors=True)
        made = {name: value for name, value in mutant.items() if name not in ("texts", "tests")}
        made |= {**result, "tests": len(mutant["tests"]), "seconds": round(time.monotonic() - began, 1)}
        with self.out.open("a") as stream:
            stream.write(json.dumps(made, ensure_ascii=False) + "\n")
        print(
            f"{made['result']} in {made['seconds']:.0f} s: {made['id']} {made['by']}", file=sys.__stderr__, flush=True
        )


def codes(code):
    """A code object and all those inside it, by name and line."""
    found = defaultdict(list, {(code.co_qualname, code.co_firstlineno): [code]})
    for inner in code.co_consts:
        for name, those in codes(inner).items() if isinstance(inner, types.CodeType) else ():
            found[name] += those
    return found
