"""Plans with one thing changed, to see a proof notice it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cutegen.plan import GemmPlan
from cutegen.plan.kernel.memory import MemoryMap, Region


def with_region(found: GemmPlan, name: str, **fields: Any) -> GemmPlan:
    """The plan with these fields of a region of its shared memory, and a launch that provides all bytes."""
    regions = (replace(region, **fields) if region.name == name else region for region in found.memory.regions)
    return with_regions(found, *regions)


def moved(found: GemmPlan, **by: int) -> GemmPlan:
    """The plan with regions so many bytes further, or nearer."""
    for name, of in by.items():
        found = with_region(found, name, offset_bytes=found.memory.offset_bytes(name) + of)
    return found


def with_regions(found: GemmPlan, *regions: Region) -> GemmPlan:
    """The plan with these regions of shared memory alone."""
    memory = MemoryMap(regions)
    return replace(found, memory=memory, launch=replace(found.launch, dynamic_smem_bytes=memory.bytes))


def with_path(found: GemmPlan, name: str, **fields: Any) -> GemmPlan:
    """The plan with these fields of the path of an operand."""
    paths = (replace(path, **fields) if path.name == name else path for path in found.operands)
    return replace(found, operands=tuple(paths))
