"""Certified inverse reinforcement learning in continuous state spaces.

    solution = certirl.solve(simulator, discount=0.9, expert=0, rng=0)

The thing that is judged comes first, the data or the simulator second, the rest by keyword. What few users need stands
in namespaces: `certirl.dynamics` (what is known of the dynamics), `certirl.logs`, `certirl.diagnose`, `certirl.steps`,
`certirl.trials`, `certirl.planning`, `certirl.gym`, `certirl.plots`, `certirl.export`, `certirl.problems` and
`certirl.paper`.
"""

import importlib as _importlib
import pkgutil as _pkgutil
import re as _re

__version__ = "0.1.0"

# Every name stands once, with its module, in the stub beside this file.
_STUB = (_pkgutil.get_data(__name__, "__init__.pyi") or b"").decode()
_MODULES = {name: module for module, name in _re.findall(r"^from (\S+) import (\w+) as \2$", _STUB, _re.MULTILINE)}
__all__ = sorted(_MODULES)


def __getattr__(name: str) -> object:
    """Import a public name on first use."""
    if name not in _MODULES:
        raise AttributeError(f"module 'certirl' has no attribute {name!r}")
    module = _MODULES[name]
    if module.count(".") < 2:  # certirl or a room of it: the name is one of its modules
        return _importlib.import_module(f"{module}.{name}")
    return getattr(_importlib.import_module(module), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
