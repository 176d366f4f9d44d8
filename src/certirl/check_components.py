"""A second opinion on the certificate of a sum: every component's margins derived again, exactly, and added up.

D_a(s) = Σ_j D_ja(s_j) if the components move independently, so that bounds add up; each component has its own part of
δ. A component without a reward adds nothing. What is derived for one component is what `check` derives for a
certificate of one coordinate; nothing here is shared with the code that made the certificate.
"""

from __future__ import annotations

from dataclasses import fields
from fractions import Fraction
from typing import Any

import numpy as np

from certirl import check
from certirl.check import SLACK, Parts


def derive(header: dict[str, Any], arrays: dict[str, Any]) -> tuple[list[Parts], list[str]]:
    """The parts of Σ_j D_ja(s_j) ≥ margin for every rival, or why there are none: a way for `check.check`."""
    wrong, sums = _contradictions(header, arrays), list[Parts]()
    for told in header["certificate"]["components"]:
        parts, problems = check.derive(*_alone(header, arrays, told))
        name = header["reward"]["names"][told["component"]]
        wrong += [f"component {name}: {problem}" for problem in problems]
        sums = list(map(_added, sums, parts)) if sums else parts
    return ([] if wrong else sums), wrong


def _added(one: Parts, other: Parts) -> Parts:
    return Parts(*(getattr(one, field.name) + getattr(other, field.name) for field in fields(Parts)))


def _alone(
    header: dict[str, Any], arrays: dict[str, Any], told: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """One component as if it were a certificate of its own, at its own part of δ."""
    j = int(told["component"])
    claim = told | {"delta": sum(Fraction(x) for x in told["spending"].values())}
    own = {name: header[name] for name in ("n_actions", "discount", "expert")}
    start = f"certificate_{j}_"
    sums = {f"certificate_{name[len(start) :]}": x for name, x in arrays.items() if name.startswith(start)}
    basis = header["reward"]["bases"][j]
    return own | {"basis": basis, "certificate": claim}, sums | {"reward": arrays[f"reward_{j}"]}


def _contradictions(header: dict[str, Any], arrays: dict[str, Any]) -> list[str]:
    """What cannot be said of components, of their rewards, or of parts of a probability."""
    claim, groups = header["certificate"], header["reward"]["coordinates"]
    told, wrong = claim["components"], []
    numbers = [int(own["component"]) for own in told]
    coordinates = sorted(int(c) for group in groups for c in group)
    if coordinates != list(range(len(coordinates))):
        wrong.append("the components do not hold every coordinate once")
    if len(set(numbers)) != len(numbers) or not all(0 <= j < len(groups) for j in numbers) or not numbers:
        wrong.append("the bounds are not those of different components")
    if any(np.any(arrays[f"reward_{j}"]) for j in range(len(groups)) if j not in numbers):
        wrong.append("a component with a reward has no bound")
    looks = [(bool(own["paired"]), *arrays[f"certificate_{own['component']}_counts"].tolist()) for own in told]
    if len(set(looks)) > 1:
        wrong.append("the components were not looked at in the same transitions")
    tails = [own["tail"] for own in told]
    if any((own is None) != (claim["tail"] is None) or (own or 0) > (claim["tail"] or 0) for own in tails):
        wrong.append("the tails of the components are not what is claimed of all")
    spending, delta = {name: Fraction(x) for name, x in claim["spending"].items()}, Fraction(claim["delta"])
    shared = sum(x for name, x in spending.items() if name.endswith("evenly)"))
    own = sum(Fraction(x) for part in told for x in part["spending"].values())
    if min(spending.values()) < 0 or not 0 < delta < 1 or abs(sum(spending.values()) - delta) > SLACK * delta:
        wrong.append("the parts of δ are not probabilities that add up to δ")
    if own > shared * (1 + SLACK):
        wrong.append("the components spend more of δ than they were given")
    return wrong
