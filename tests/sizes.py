"""A claim is tested at a small size by `make test`, and at its full size among the slow tests."""

import pytest


def sizes(small, *larger):
    """The values of a parameter: those after the first are slow."""
    return [small, *(pytest.param(one, marks=pytest.mark.slow) for one in larger)]
