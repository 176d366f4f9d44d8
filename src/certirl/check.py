"""A second opinion on a saved certificate: D_a(s) ≥ margin for all s, derived again from its sums in exact arithmetic.

A program of its own: it shares no code with the certificate's, solves no program and uses no floating point. Given the
declared assumptions (the tail, independent draws) and sums that are what they say, its margin is a proof.
"""

from __future__ import annotations

import json
import math
import os
import sys
import zipfile
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from certirl.rational import (
    ONE,
    PI,
    PI_ABOVE,
    Table,
    circle,
    cos_below,
    eliminate,
    identity,
    log_above,
    root_above,
    stacked,
)

EVENTS = 3  # e^−L each: the second moment, above, below
SLACK = Fraction(1, 10**6)  # of claims computed in floating point
ALIKE = Fraction(1, 10**3)  # how well the parts of a margin must agree
_STEP = 8192  # the length of the stretches over which the sums were taken
_TOLERANCE = Fraction(1, 2**32)  # of minima, relative to the sum of the coefficients
