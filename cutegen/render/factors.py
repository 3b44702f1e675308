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
    """Holes of the factors of A or B: each block is of `rows` x `of_k` elements.

    `mode` is the one of C whose sums they scale. A stage `holds` words or factors. A tile of C begins at row `begin` of
    the operand or of a group's, and its tile of factors at the block `first` of the matrix `batch`. Along K the factors
    of a k-tile begin at so many `k_elems` for each.
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
    k_elems: str
    holds: str


def scales(plan: GemmPlan) -> bool:
    """Return whether a kernel scales sums of blocks of K."""
    return bool(factors_of(plan))


def factor_parts(plan: GemmPlan) -> tuple[str, ...]:
    """Return the part of the factors' copies, if there are any."""
    return ("pipelines/factors.py.j2", "pipelines/factors_of_threads.py.j2") if scales(plan) else ()


def factor_holes(plan: GemmPlan) -> dict[str, Any]:
    """Return the holes of the factors."""
    thread, batches = "thread" if plan.mma.role.alternates else "tidx", batches_of(plan)
    return {
        "factors": [
            _holes(x, batches[x.name], packed=bool(begin_of(plan, plan.launch.tensor(x.name))))
            for x in factors_of(plan)
        ],
        "thread_of_tile": thread,
    }


def factor_constants(plan: GemmPlan) -> ConstantsByDecision:
    """Return the tile of the factors of a k-tile, and which of a thread's factors scales which of its sums."""
    settled: ConstantsByDecision = {}
    for x in factors_of(plan):
        name = epilogue.constants_of(x.name)
        read = x.s2r.by_source(
            copied=lambda _: None, described=lambda _: None, read=lambda read: read, to_tmem=lambda _: None
        )
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


def factors_of(plan: GemmPlan) -> tuple[OperandPath, ...]:
    """Return the paths of the factors of A and B, if there are any."""
    return tuple(x for x in plan.operands if not x.is_multiplied)


def _holes(x: OperandPath, batch: str, *, packed: bool) -> FactorHoles:
    mode, (rows, of_k) = x.modes[0], x.block
    begin = f"tile_{mode} * CTA_{mode.upper()}"
    return FactorHoles(
        name=x.name,
        title=epilogue.title(x.name),
        constants=epilogue.constants_of(x.name),
        side=x.operand.lower(),
        extents=extents_of(x.modes, x.block, x.block_elems),
        rows=rows,
        of_k=of_k,
        mode="mn".index(mode),
        begin=begin,
        first=f"begin + {begin}" if packed else begin if rows == 1 else f"{begin} // {rows}",
        batch=batch,
        holds=f"a factor for each block of {rows} x {of_k}"
        if x.block_elems == 1
        else f"words of {rows} rows by 4 factors",
        k_elems="" if x.block_elems == 1 else f" * {x.tile[1]}",
    )
