"""What a plan says of its decisions, and what a refused spec is told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest

from cutegen.errors import SpecError
from cutegen.plan import GemmPlan, plan
from cutegen.plan.values.decision import Decision
from cutegen.spec import GemmSpec, Mma
from tests.plan.specs import fma_spec, gemm

PLANNED: dict[str, Callable[[], GemmPlan]] = {
    "sm80": lambda: plan(gemm("mnn"), "sm_80"),
    "8 deep": lambda: plan(gemm(mma=Mma(atom="SM80_16x8x8_F32F16F16F32_TN")), "sm_80"),
    "simt": lambda: plan(fma_spec(align=4), "sm_80"),
    "sm120": lambda: plan(replace(gemm(), family="sm120"), "sm_90"),
    "for a problem": lambda: plan(gemm(), "sm_90", problem=(192, 192, 8192)),
    "many tiles": lambda: plan(gemm(), "sm_90", problem=(32768, 8192, 4096)),
}
"""Plans of each family, and of problems whose size matters."""


def planned(name: str) -> GemmPlan:
    """A plan of the table."""
    return PLANNED[name]()


@cache
def open_plan() -> GemmPlan:
    """The plan of a spec that says nothing but its operands."""
    return plan(gemm(), "sm_80")


def decisions(found: GemmPlan) -> dict[str, Decision]:
    """The decisions by their keys."""
    return {decision.key: decision for decision in found.decisions}


def decision(found: GemmPlan, key: str) -> Decision:
    """The decision on a key."""
    return decisions(found)[key]


def chosen(found: GemmPlan) -> dict[str, str]:
    """What is chosen, by key."""
    return {key: each.chosen for key, each in decisions(found).items()}


def rejected(found: GemmPlan, key: str) -> dict[str, str]:
    """What is rejected for a key, with the reasons."""
    return {each.what: each.why for each in decision(found, key).rejected}


def refusal(spec: GemmSpec, arch: str = "sm_80") -> str:
    """The message of a spec that is refused."""
    with pytest.raises(SpecError) as caught:
        plan(spec, arch)
    return str(caught.value)
