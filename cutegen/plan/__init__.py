"""What is decided: a spec becomes a plan, by small rules in one visible order, each with its reason.

>>> from cutegen.spec import load_spec
>>> plan(load_spec("sm80_hgemm_tn")).smem_bytes
98304
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from cutegen.arch import Target
from cutegen.arch import target as find_target
from cutegen.plan.decision import Choice, Decision, Rejected
from cutegen.plan.gemm_plan import GemmPlan, Occupancy, Predictions, Sectors, Wavefronts
from cutegen.plan.launch import LaunchContract, LaunchGeometry, TensorContract
from cutegen.plan.sm80 import plan_sm80
from cutegen.spec import GemmSpec

__all__ = [
    "FAMILIES",
    "Choice",
    "Decision",
    "GemmPlan",
    "LaunchContract",
    "LaunchGeometry",
    "Occupancy",
    "Predictions",
    "Rejected",
    "Sectors",
    "TensorContract",
    "Wavefronts",
    "plan",
]

DEFAULT_TARGET = "sm_80"

FAMILIES: Mapping[str, Callable[[GemmSpec, Target], GemmPlan]] = MappingProxyType({"sm80": plan_sm80})
"""The planner of each instruction family. A family is a row here and a package beside `plan/sm80`."""


def plan(spec: GemmSpec, target: str | Target = DEFAULT_TARGET) -> GemmPlan:
    """Decide everything that `spec` leaves open. Raises SpecError where the spec cannot be met on `target`."""
    return FAMILIES[spec.family](spec, target if isinstance(target, Target) else find_target(target))
