"""What data and a simulator can support, asked before a reward is."""

from certirl.data.coverage import coverage
from certirl.data.independence import find_components as components
from certirl.data.independence import independent
from certirl.data.memory import diagnose_memory as memory
from certirl.data.predictors import diagnose_predictors as predictors
from certirl.fit.choose import diagnose_columns as columns

__all__ = ["columns", "components", "coverage", "independent", "memory", "predictors"]
__dir__ = __all__.copy
