"""The constants at the head of a kernel: one block per decision, and the offset of each part of shared memory.

A launcher takes its numbers from here, and `cutegen.render.edited` reads them back: each number appears once, and
derived numbers are written as formulas.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cutegen.contract.launch import RESULT
from cutegen.plan import Decision, GemmPlan
from cutegen.plan.kernel.memory import BARRIERS
from cutegen.plan.kernel.pipeline import AB, OF_FACTORS, mbarriers_bytes
from cutegen.render.python_text import comment

MEMORY = "shared memory"
"""The block of the head that belongs to no decision."""


@dataclass(frozen=True, slots=True)
class Constants:
    """The lines of the head of one decision."""

    comment: tuple[str, ...]
    code: tuple[str, ...]

    @property
    def text(self) -> str:
        """The lines of the block."""
        return "\n".join((*self.comment, *self.code))


class Name(str):
    """The name of an earlier constant, inside a value."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def head(decisions: Iterable[Decision], settled: Mapping[str, tuple[str, ...]]) -> list[Constants]:
    """Return the blocks in the decisions' order, each with its decision as the comment.

    The number of stages precedes constants that use it, and the offsets follow all blocks of shared memory.
    """
    found = [x for x in decisions if x.key in settled]
    stages = [x for x in found if x.key == "tile.stages"]
    others = [x for x in found if x.key != "tile.stages"]
    first = next((i for i, x in enumerate(others) if x.key.startswith("smem.")), len(others))
    ordered = [*others[:first], *stages, *others[first:]]
    blocks = [Constants(comment(f"{x.key}: {x.chosen} ({x.why})"), settled[x.key]) for x in ordered]
    behind = 1 + max(i for i, x in enumerate(ordered) if x.key in ("tile.stages", "smem.b", "epilogue.smem"))
    words = comment(f"{MEMORY}: {_parts(settled[MEMORY])}")
    return [*blocks[:behind], Constants(words, settled[MEMORY]), *blocks[behind:]]


def _parts(lines: Iterable[str]) -> str:
    names = "".join(lines)
    others = {"SMEM_SCALE_": "their factors", "SMEM_C_": "C's boxes", "SMEM_BARRIERS_": "the barriers"}
    beside = [words for name, words in others.items() if name in names]
    in_place = "; then C in their place" if " max(" in names else ""
    return ", ".join(("A's stages, B's", *beside)) + in_place


def memory_constants(plan: GemmPlan) -> tuple[str, ...]:
    """Return the offset of each region of shared memory, and the total bytes, by the number of stages.

    A region that begins at a boundary after the end of the previous one has a number instead of a sum. One in the place
    of others has no constant: it begins at 0.
    """
    contents = _contents(plan)
    lines: list[str] = []
    end: tuple[str, int] = "", 0
    in_place = ""
    for region in plan.memory.regions:
        words, size = contents[region.name]
        if region.offset_bytes > 0:
            name = f"SMEM_{region.name.upper()}_OFFSET_BYTES"
            lines.append(_sum(name, end, region.offset_bytes))
            end = f"{name} + {words}", region.offset_bytes + size
        elif not end[0]:
            end = words, size
        elif region.name == RESULT and size > sum(contents[x.name][1] for x in plan.operands) // plan.stages:
            in_place = words
    shared = (f"max({end[0]}, {in_place})", max(end[1], int(in_place))) if in_place else end
    return *lines, _sum("SMEM_BYTES", shared, plan.smem_bytes)


def _contents(plan: GemmPlan) -> dict[str, tuple[str, int]]:
    """Return what lies in each region, without gaps: a formula of its bytes by the number of stages, and its value."""
    stages, c = plan.stages, plan.epilogue.smem
    of_k_tiles = tuple(x for x in map(plan.loop.pipeline, (AB, OF_FACTORS)) if x is not None)
    times = "STAGES * " if stages > 1 else ""
    found = {x.name: (f"{times}{x.smem.bytes // stages}", x.smem.bytes) for x in plan.operands}
    found[RESULT] = (f"{c.bytes}", c.bytes) if c else ("0", 0)
    found |= {x.name: (f"{x.bytes}", x.bytes) for x in plan.memory.regions if x.name not in found}
    if (barriers := plan.memory.find(BARRIERS)) is not None and of_k_tiles:
        staged = mbarriers_bytes(of_k_tiles)
        beside, of_stages = barriers.bytes - staged, f"{times}{staged // stages}"
        found[BARRIERS] = f"{of_stages} + {beside}" if beside else of_stages, barriers.bytes
    return found


def _sum(name: str, formula: tuple[str, int], wanted: int) -> str:
    """Return a constant as a formula, or as a number if the formula's value differs."""
    words, value = formula
    return f"{name} = {words if value == wanted else wanted}"
