"""A claim is tested at a small size by `make test`, and at its full size among the slow tests."""

import pytest


def sizes(small, *larger):
    """The values of a parameter, or of several by tuples: those after the first are slow."""
    values = (one if isinstance(one, tuple) else (one,) for one in larger)
    return [small, *(pytest.param(*one, marks=pytest.mark.slow) for one in values)]
