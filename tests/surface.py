"""The public surface: what the pages of the reference list and what needs an example.

Public is what ``certirl.__all__`` and the ``__all__`` of its namespaces name, and every class of certirl that a public
signature, field or property mentions, or that a public class is derived from: among them the records that a user gets
without making them. Not public are names with an underscore, and what is marked as ``internal``, whose docstrings tell
Sphinx to leave it out as well: they are for other modules of the library.
"""

from __future__ import annotations

import functools
import inspect
import re
import sys
import types
import typing
from collections.abc import Iterator
from typing import Any

import certirl

PRIVATE = ":meta private:"


def is_private(name: str, value: Any) -> bool:
    return name.startswith("_") or PRIVATE in (inspect.getdoc(value) or "")


def exported() -> dict[str, Any]:
    """What is named by an ``__all__``, by its full name; namespaces that cannot be imported are left out."""
    names = {}
    for name in certirl.__all__:
        try:
            value = getattr(certirl, name)
        except ImportError:  # its package is not installed
            continue
        if isinstance(value, types.ModuleType):
            names |= {f"certirl.{name}.{inner}": getattr(value, inner) for inner in value.__all__}
        else:
            names[f"certirl.{name}"] = value
    return names


def classes(hint: Any) -> Iterator[type]:
    """The classes of certirl in an annotation."""
    if _is_ours(hint):
        yield hint
    for inner in typing.get_args(hint):
        yield from classes(inner)


def functions(owner: type) -> dict[str, Any]:
    """The public methods and properties that a class has from classes of certirl, as functions, by name."""
    methods = dict[str, Any]()
    for base in reversed(owner.__mro__):
        if _is_ours(base):
            methods |= {name: value for name, value in vars(base).items() if not name.startswith("_")}
    unwrapped = {name: _function(value) for name, value in methods.items()}
    return {
        name: value for name, value in unwrapped.items() if inspect.isfunction(value) and not is_private(name, value)
    }


def _is_ours(value: Any) -> bool:
    return isinstance(value, type) and value.__module__.split(".")[0] in ("certirl", "certirl_check")


def _function(value: Any) -> Any:
    if isinstance(value, property):
        return value.fget
    if isinstance(value, functools.cached_property):
        return value.func
    return getattr(value, "__func__", value)


def annotations(value: Any) -> Iterator[tuple[str, str]]:
    """The annotations of a function, or of the public fields of a class, each as text with its module."""
    owners = [value] if not inspect.isclass(value) else [base for base in value.__mro__ if _is_ours(base)]
    for owner in owners:
        for name, hint in inspect.get_annotations(inspect.unwrap(owner)).items():
            if not name.startswith("_"):
                yield owner.__module__, hint if isinstance(hint, str) else str(hint)


@functools.cache
def imported_for_types() -> dict[str, type]:
    """Classes by name, for those that a module imports for type checkers only; the checker shares none of them."""
    modules = [module for name, module in sys.modules.copy().items() if name.startswith("certirl.")]
    ours = [value for module in modules for value in vars(module).values() if _is_ours(value)]
    return {value.__name__: value for value in ours if not value.__module__.startswith("certirl_check")}


def mentioned(value: Any) -> Iterator[type]:
    """The public classes that a public object mentions: in its signature, its fields, its methods and properties."""
    for source in [value, *functions(value).values()] if inspect.isclass(value) else [value]:
        for module, text in annotations(source):
            for word in re.findall(r"\w+", text):
                hint = vars(sys.modules[module]).get(word, imported_for_types().get(word))
                yield from (cls for cls in classes(hint) if not is_private(cls.__name__, cls))


@functools.cache
def surface() -> dict[str, Any]:
    """Every public function and class, by its full name; each once, with the public classes that it is derived from."""
    public = exported()
    queue = list(public.values())
    for value in queue:
        bases = [base for base in value.__mro__ if _is_ours(base)] if inspect.isclass(value) else []
        for cls in [*bases, *mentioned(value)]:
            if not is_private(cls.__name__, cls) and not any(cls is listed for listed in queue):
                public[f"{cls.__module__}.{cls.__qualname__}"] = cls
                queue.append(cls)
    return public


def methods(owner: type) -> dict[str, Any]:
    """The public methods that a class or a private base of it defines, without properties."""
    found = {}
    for name, function in functions(owner).items():
        base = next(base for base in owner.__mro__ if name in vars(base))
        is_method = not isinstance(vars(base)[name], property | functools.cached_property)
        if is_method and (base is owner or is_private(base.__name__, base)):
            found[name] = function
    return found
