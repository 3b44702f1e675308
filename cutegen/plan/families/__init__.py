"""The families of kernels by name; they are registered only here.

A family is a composition (`family.py`) of an MMA, a main loop and a schedule; `compositions.py` has them all. To add
one, compose it and `register` it with its row for specs.
"""

from __future__ import annotations

from cutegen.plan.families.compositions import SIMT, SM80, SM90, SM100, SM120
from cutegen.plan.families.family import Family
from cutegen.spec import FAMILIES as SPEC_FAMILIES
from cutegen.spec import Family as SpecFamily

__all__ = ["FAMILIES", "Family", "register"]

FAMILIES: dict[str, Family] = {family.name: family for family in (SM80, SM120, SM90, SM100, SIMT)}
"""Every family of kernels, in the order of the documentation."""


def register(family: Family, instructions: str) -> None:
    """Register `family` for specs, which say its `instructions` in words, for the planner and for the renderer.

    Raises ValueError if the name is taken.
    """
    if family.name in FAMILIES:
        raise ValueError(f"family {family.name}: found a family of this name; expected a new name")
    SPEC_FAMILIES[family.name] = SpecFamily(family.name, instructions, family.keys)
    FAMILIES[family.name] = family
