"""Every layout of the main loop under its name in CuTe's tutorial, one line each.

    sA sB                         shared memory, (BLK_X, BLK_K, PIPE)
    tAgA tAsA tBgB tBsB           one thread's copy from global to shared memory, (CPY, CPY_X, CPY_K, k-tiles or PIPE)
    tCsA tCsB tCgC                one thread's partition for the MMA: shared A and B, global C
    tCrA tCrB tCrC                its registers, (MMA, MMA_X, MMA_K) and (MMA, MMA_M, MMA_N), or descriptors
    tXsA tXrA tXsB tXrB           its copy from shared memory to these registers
    mmaC, ca, cb, copyA, copyB    thread-value layouts of the tiled MMA and of the copies

The tutorial is CUTLASS, examples/cute/tutorial/sgemm_sm80.cu; tests compare the names with its output.
"""

from collections.abc import Mapping
from typing import Any

from cutegen.algebra import Dyn, Layout, LayoutExpr, OperandName, format_layout, inner_layout, make_layout, modes
from cutegen.algebra.layout import IntTree
from cutegen.contract.problem import ProblemShape
from cutegen.errors import RequestError
from cutegen.hardware import DType
from cutegen.hardware.gmma import VECTOR_BYTES
from cutegen.plan import GemmPlan
from cutegen.plan.swapped import shape_multiplied
from cutegen.plan.values.fragments import FragmentCopy
from cutegen.plan.values.path import OperandPath
from cutegen.show.view import View
from cutegen.support.words import round_up


def view(plan: GemmPlan, thread: int, problem: ProblemShape, *, everything: bool = False) -> View:
    """Write name and layout, one line each, like the tutorial's print statements."""
    layouts = {name: format_layout(layout) for name, layout in partitions(plan, problem, thread).items()}
    lines = [f"{name} {layout}" for name, layout in layouts.items()]
    return View(
        (lines,),
        {"spec": plan.spec.name, "problem": list(problem.extents.values()), "thread": thread, "layouts": layouts},
    )


def partitions(plan: GemmPlan, problem: ProblemShape, thread: int) -> Mapping[str, LayoutExpr]:
    """Return the layouts of `thread` for a problem, in the tutorial's order.

    Copies that threads do not execute (TMA) have no thread-value layouts and are left out. Extents and strides of
    global memory are run-time integers, as in a kernel. If A and B are swapped, the names are the kernel's. Raises
    RequestError for an invalid thread or extent.
    """
    if not 0 <= thread < plan.threads_of_sums:
        last = plan.threads_of_sums - 1
        raise RequestError(f"thread: found {thread}; expected 0 to {last}, a thread that has sums")
    thread %= plan.tiled_mma.threads  # what an elected thread multiplies is of its CTA, the same for every thread
    m, n, k = (shape_multiplied(problem) if plan.swapped else problem).extents.values()
    if min(m, n, k) < 1:
        raise RequestError(f"problem: found {problem}; expected extents of at least 1")
    a, b = _of_operand(plan, plan.a, (m, k), thread), _of_operand(plan, plan.b, (n, k), thread)
    gC = _global_c(plan, (m, n))
    found = {
        **a,
        **b,
        "tCgC": plan.tiled_mma.partition("C", gC, thread).layout,
        "tCrC": plan.tiled_mma.fragment("C", gC, thread),
        **{f"mmaC.get_layout{op}_TV()": plan.tiled_mma.tv_layout(op) for op in _OPERANDS},
    }
    return {name: found[name] for name in NAMES if name in found}


_OPERANDS: tuple[OperandName, ...] = ("A", "B", "C")
_TV_LAYOUTS = tuple(f"{copy}.get_layout{side}_TV()" for copy in ("ca", "cb", "copyA", "copyB") for side in "SD")
NAMES = (
    *("sA", "sB", "tAgA", "tAsA", "tBgB", "tBsB", "tCgC", "tCsA", "tCsB", "tCrA", "tCrB", "tCrC"),
    *("tXsA", "tXrA", "tXsB", "tXrB"),
    *(f"mmaC.get_layout{op}_TV()" for op in _OPERANDS),
    *_TV_LAYOUTS,
)


def _of_operand(plan: GemmPlan, operand: OperandPath, extents: tuple[int, int], thread: int) -> dict[str, LayoutExpr]:
    x = operand.operand
    s, g = operand.smem.layout, _global_tiles(operand, extents)
    share = plan.tiled_mma.partition(x, s, thread).layout
    return {
        f"s{x}": s,
        **operand.g2s.partitions(x, g, s, thread),
        f"tCs{x}": share,
        **operand.s2r.by_source(
            copied=lambda copy: _of_copy(plan, operand, copy, thread),
            described=lambda _: {f"tCr{x}": _descriptors(share, operand.dtype)},
            read=lambda _: {},
            to_tmem=lambda _: {},
        ),
    }


def _of_copy(plan: GemmPlan, operand: OperandPath, copy: FragmentCopy, thread: int) -> dict[str, LayoutExpr]:
    """Return the registers and the copy that fills them."""
    x, load = operand.operand, copy.tiled_copy
    fragment = plan.tiled_mma.fragment(x, operand.smem.layout_of_one_stage, thread)
    return {
        f"tCr{x}": fragment,
        f"tXs{x}": load.partition_s(operand.smem.layout, thread).layout,
        f"tXr{x}": copy.retile(fragment),
        f"c{operand.name}.get_layoutS_TV()": load.layout_src_tv,
        f"c{operand.name}.get_layoutD_TV()": load.layout_dst_tv,
    }


def _descriptors(share: LayoutExpr, element: DType) -> Layout:
    """Return the start of each instruction's descriptor, (1, MMA_X, MMA_K, PIPE) in units of 16 bytes."""
    unit = VECTOR_BYTES // element.bytes
    begins = make_layout(*modes(inner_layout(share))[1:])
    return make_layout(Layout(1, 0), *modes(Layout(begins.shape, _divided(begins.stride, unit))))


def _divided(strides: IntTree, by: int) -> Any:
    """Return strides in units of `by` elements."""
    return tuple(_divided(stride, by) for stride in strides) if isinstance(strides, tuple) else int(strides) // by


def _global_tiles(operand: OperandPath, extents: tuple[int, int]) -> Layout:
    """Return the CTA's tiles along K, gA or gB: (BLK_X, BLK_K, k-tiles)."""
    tile_x, tile_k = operand.tile
    tiles = Dyn(-(-extents[1] // tile_k))
    lead = _leading(extents[operand.major_mode], operand.align_bytes, operand.dtype.bytes)
    strides = (lead, 1, tile_k) if operand.major_mode == 1 else (1, lead, lead * tile_k)
    return Layout((tile_x, tile_k, tiles), strides)


def _global_c(plan: GemmPlan, extents: tuple[int, int]) -> Layout:
    """Return the CTA's tile gC: (BLK_M, BLK_N)."""
    c = plan.epilogue
    lead = _leading(extents[c.major_mode], c.align_bytes, c.dtype.bytes)
    return Layout(plan.cta_tile[:2], (lead, 1) if c.major_mode == 1 else (1, lead))


def _leading(extent: int, align_bytes: int, element_bytes: int) -> Dyn:
    """Return the smallest leading stride that the operand's alignment allows, in elements."""
    return Dyn(round_up(extent, align_bytes // element_bytes))
