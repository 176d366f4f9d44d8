"""Every public object has an example that runs, and is on one page of the reference.

A public class, function or method has ``Example:`` with ``>>>`` lines in its docstring; the names ``certirl`` and
``np`` are there. The example of a method continues that of its class. Properties and fields have theirs in the example
of the class, and a method that overrides another needs none of its own.
"""

import doctest
import inspect
import re
import types
from collections import Counter

import numpy as np
import pytest

import certirl
from pages import ROOT
from surface import methods, surface

PAGES = sorted((ROOT / "docs" / "api").glob("*.md"))
NAMESPACES = [name for name, module in certirl._MODULES.items() if module.count(".") < 2]


def documented():
    """Every public class, function and method with its own docstring, by name."""
    objects = dict(surface())
    for name, owner in surface().items():
        if inspect.isclass(owner):
            objects |= {f"{name}.{method}": function for method, function in methods(owner).items()}
    return objects


def overrides(name):
    """Whether a method replaces one that has an example."""
    owner, _, method = name.rpartition(".")
    bases = surface()[owner].__mro__[1:] if owner in surface() and inspect.isclass(surface()[owner]) else ()
    return any(">>>" in (inspect.getdoc(vars(base).get(method)) or "") for base in bases)


OBJECTS = documented()
EXAMPLES = {name: value for name, value in OBJECTS.items() if ">>>" in (value.__doc__ or "")}


def test_every_public_object_has_an_example():
    assert len(EXAMPLES) > 180
    assert [name for name in OBJECTS if name not in EXAMPLES and not overrides(name)] == []


@pytest.mark.thinned(3)
@pytest.mark.parametrize("name", [name for name in surface() if name in EXAMPLES])
def test_examples_print_what_they_show(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    missing = []
    names = run(name, {"certirl": certirl, "np": np}, missing)
    for method in EXAMPLES:
        if method.rpartition(".")[0] == name and name not in missing:
            run(method, names, missing)
    if missing:
        pytest.skip(f"optional packages of {', '.join(missing)} are not installed")


def run(name, names, missing):
    """Run the example of an object, with these names at hand; returns all names after it."""
    text, names = inspect.getdoc(EXAMPLES[name]), dict(names)
    assert re.search(r"^Examples?:\n+    >>>", text, re.M), "an example stands under Example:"
    example = doctest.DocTestParser().get_doctest(text, names, name, None, 0)
    try:
        doctest.DebugRunner(optionflags=doctest.ELLIPSIS).run(example, clear_globs=False)
    except doctest.UnexpectedException as problem:
        error = problem.exc_info[1]
        if isinstance(error, ImportError) and not str(error.name).startswith("certirl"):  # an optional package
            missing.append(name)
        else:
            raise error from None
    except doctest.DocTestFailure as failure:
        pytest.fail(f"{name}: {failure.example.source}shows {failure.example.want}but prints {failure.got}")
    return example.globs


@pytest.mark.parametrize("name", NAMESPACES)
def test_a_namespace_shows_what_it_names_alone(name):
    try:
        namespace = getattr(certirl, name)
    except ImportError as problem:
        pytest.skip(str(problem))
    assert isinstance(namespace, types.ModuleType)
    assert sorted(dir(namespace)) == sorted(namespace.__all__)
    assert all(getattr(namespace, inner).__module__.startswith("certirl.") for inner in namespace.__all__)


def test_every_public_name_is_on_one_page_of_the_reference():
    pytest.importorskip("gymnasium", reason="the names of certirl.gym are looked up, which needs gymnasium")
    text = "\n".join(page.read_text() for page in PAGES)
    names = re.findall(r"^\.\. auto(?:class|exception|function):: ([\w.]+)", text, re.M)
    assert [name for name, count in Counter(names).items() if count > 1] == []
    assert {*names} == {*surface()}
