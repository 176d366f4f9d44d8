"""The steps of `solve`, one by one: `sample` → `measure` → `estimate` → `bellman` → `recover`."""

from certirl.data.moments import Moments, measure
from certirl.data.simulator import sample
from certirl.fit.bellman import bellman, estimate, operators
from certirl.fit.recover import recover

__all__ = ["Moments", "bellman", "estimate", "measure", "operators", "recover", "sample"]
__dir__ = __all__.copy
