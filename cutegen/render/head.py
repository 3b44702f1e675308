"""The constants at the head of a kernel: one block per decision, and the offset of each part of shared memory.

A launcher takes its numbers from here, and `cutegen.render.edited` reads them back: each number appears once, and
derived numbers are written as formulas.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cutegen.plan import Decision, GemmPlan
from cutegen.plan.kernel.pipeline import AB
from cutegen.render.python_text import comment

MEMORY = "shared memory"
"""The block of the head that belongs to no decision."""


@dataclass(frozen=True, slots=True)
class Constants:
    """The lines of the head of one decision."""

    comment: tuple[str, ...]
    code: tuple[str, ...]


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
    beside = [words for name, words in (("SMEM_C_", "C's boxes"), ("SMEM_BARRIERS_", "the barriers")) if name in names]
    in_place = "; then C in their place" if " max(" in names else ""
    return ", ".join(("A's stages, B's", *beside)) + in_place


def memory_constants(plan: GemmPlan) -> tuple[str, ...]:
    """Return the offset of each part of shared memory, and the total bytes, by the number of stages.

    A part that begins at a boundary after the end of the previous one has a number instead of a sum.
    """
    stages = plan.stages
    a, b = (x.smem.bytes // stages for x in plan.operands)
    times = "STAGES * " if stages > 1 else ""
    end_of_b = f"SMEM_B_OFFSET_BYTES + {times}{b}", plan.smem.b_offset_bytes + b * stages
    of_b = _sum("SMEM_B_OFFSET_BYTES", (f"{times}{a}", a * stages), plan.smem.b_offset_bytes)
    c_bytes = plan.epilogue.smem.bytes if plan.epilogue.smem else 0
    barriers = plan.smem.barriers_offset_bytes
    if barriers is None:
        shared = f"max({end_of_b[0]}, {c_bytes})", max(end_of_b[1], c_bytes)
        return of_b, _sum("SMEM_BYTES", shared if c_bytes > a + b else end_of_b, plan.smem_bytes)
    lines, end = [of_b], end_of_b
    if plan.epilogue.smem is not None and (c := plan.smem.c_offset_bytes) is not None:
        lines.append(_sum("SMEM_C_OFFSET_BYTES", end, c))
        end = f"SMEM_C_OFFSET_BYTES + {c_bytes}", c + c_bytes
    lines.append(_sum("SMEM_BARRIERS_OFFSET_BYTES", end, barriers))
    ab = plan.loop.pipeline(AB)
    assert ab is not None
    beside = plan.smem_bytes - barriers - ab.mbarriers_bytes
    in_all = f"SMEM_BARRIERS_OFFSET_BYTES + {times}{ab.mbarriers_bytes // stages}{f' + {beside}' if beside else ''}"
    return *lines, f"SMEM_BYTES = {in_all}"


def _sum(name: str, formula: tuple[str, int], wanted: int) -> str:
    """Return a constant as a formula, or as a number if the formula's value differs."""
    words, value = formula
    return f"{name} = {words if value == wanted else wanted}"
