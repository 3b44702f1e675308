"""Fills the parts of a kernel that scales the sums of blocks of K by factors of A and B."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cutegen.algebra import Layout
from cutegen.plan import GemmPlan
from cutegen.plan.values.path import OperandPath
from cutegen.render import epilogue
from cutegen.render.constants import ConstantsByDecision
from cutegen.render.groups import batches_of, begin_of
from cutegen.render.python_text import constant
from cutegen.render.tensors import extents_of


@dataclass(frozen=True, slots=True)
class FactorHoles:
    """Holes of the factors of A or B: each is for `rows` x `of_k` elements.

    `mode` is the one of C whose sums they scale. A tile of C begins at row `begin` of the operand or of a group's, and
    its tile of factors at the factor `first` of the matrix `batch`.
    """

    name: str
    title: str
    constants: str
    side: str
    extents: str
    rows: int
    of_k: int
    mode: int
    begin: str
    first: str
    batch: str


def scales(plan: GemmPlan) -> bool:
    """Return whether a kernel scales sums of blocks of K."""
    return bool(_factors(plan))


def factor_parts(plan: GemmPlan) -> tuple[str, ...]:
    """Return the part of the factors' copies, if there are any."""
    return ("pipelines/factors.py.j2",) if scales(plan) else ()


def factor_holes(plan: GemmPlan) -> dict[str, Any]:
    """Return the holes of the factors."""
    thread, batches = "thread" if plan.mma.role.alternates else "tidx", batches_of(plan)
    return {
        "factors": [
            _holes(x, batches[x.name], packed=bool(begin_of(plan, plan.launch.tensor(x.name)))) for x in _factors(plan)
        ],
        "thread_of_tile": thread,
    }


def factor_constants(plan: GemmPlan) -> ConstantsByDecision:
    """Return the tile of the factors of a k-tile, and which of a thread's factors scales which of its sums."""
    settled: ConstantsByDecision = {}
    for x in _factors(plan):
        name = epilogue.constants_of(x.name)
        read = x.s2r.by_source(copied=lambda _: None, described=lambda _: None, read=lambda read: read)
        assert read is not None
        assert read.of_sums is not None
        assert read.first is not None
        settled[f"s2r.{x.name}"] = (
            f"{name}_TILE = {x.tile}",
            *_layout(f"{name}_OF_SUMS", read.of_sums),
            *_layout(f"{name}_FIRST", read.first),
        )
    return settled


def _layout(name: str, layout: Layout) -> tuple[str, ...]:
    return (*constant(f"{name}_SHAPE", layout.shape), *constant(f"{name}_STRIDE", layout.stride))


def _factors(plan: GemmPlan) -> tuple[OperandPath, ...]:
    return tuple(x for x in plan.operands if not x.is_multiplied)


def _holes(x: OperandPath, batch: str, *, packed: bool) -> FactorHoles:
    mode, (rows, of_k) = x.modes[0], x.block
    begin = f"tile_{mode} * CTA_{mode.upper()}"
    return FactorHoles(
        name=x.name,
        title=epilogue.title(x.name),
        constants=epilogue.constants_of(x.name),
        side=x.operand.lower(),
        extents=extents_of(x.modes, x.block),
        rows=rows,
        of_k=of_k,
        mode="mn".index(mode),
        begin=begin,
        first=f"begin + {begin}" if packed else begin if rows == 1 else f"{begin} // {rows}",
        batch=batch,
    )
