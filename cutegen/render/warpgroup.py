"""Fills the template of a kernel that multiplies by wgmma: each constant with its decision as the comment."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cutegen.hardware import DType
from cutegen.hardware.units import LINE_BYTES, WARPGROUP
from cutegen.plan import GemmPlan
from cutegen.plan.kernel.role import Turns
from cutegen.plan.main_loops import PROMOTED_TILES
from cutegen.plan.values.epilogue import EpilogueParts, EpiloguePlan
from cutegen.plan.values.path import OperandPath
from cutegen.render.bulk import empty_barrier, fed_by_boxes, plain_tensors, role_context
from cutegen.render.constants import Settled, c_constants
from cutegen.render.holes import chain_holes, gemm_context, numerics
from cutegen.spec import STORE

MOST_AT_ONCE = 8
"""K-blocks up to which descriptors are computed by one sum: with sixteen each needs a move from a register (ptxas 13).
"""
_FIRSTS = {"m": "warp_rows", "n": "columns"}
"""The beginning of a warp's share of a vector, along each mode, as named in the template."""


def context(plan: GemmPlan) -> dict[str, Any]:
    """Return the template's holes."""
    common = gemm_context(plan, _settled(plan), "a wgmma GEMM fed by bulk tensor copies")
    mma, (operation, types) = plan.mma, _operation(plan.atom.a_dtype)
    holds_vectors = _parts(plan).vectors_held
    indent = 16 if plan.split_k else 12  # of the epilogue
    beside, prefetched = plain_tensors(plan, common["tensors"]), {each.operand for each in plan.prefetched}
    if holds_vectors:
        beside = [replace(x, firsts=_FIRSTS[x.along]) if x.along else x for x in beside]
    return {
        **common,
        "dialects": "llvm" if mma.promoted_sets == 2 or plan.launch.spread or plan.pace else "",
        "held_vectors": [x for x in beside if x.firsts],
        **chain_holes(plan, indent, deeper=8 if _pins_parts(plan) else 4, part="", holds_vectors=holds_vectors),
        "plain_tensors": beside,
        "pins_parts": _pins_parts(plan),
        "parts_at_once": _parts(plan).at_once,
        "operation": operation,
        "operand_types": types,
        "operand_majors": ", ".join(_major(x) for x in plan.operands),
        **role_context(plan),
        "by_warpgroups": True,
        "sum_threads": "SUM_THREADS",
        "stmatrix": plan.epilogue.stmatrix is not None,
        "prefetched": [x for x in common["tensors"] if x.name in prefetched],
        "ahead": f"{'ahead_m' if 'a' in prefetched else '_'}, {'ahead_n' if 'b' in prefetched else '_'}",
        "pingpong": mma.role.alternates,
        "ends_in_turns": mma.role.turns is Turns.LAST_K_TILES,
        "main_loop": f"gemm/sm90_{'promoting' if mma.promote_k else 'main'}_loop.py.j2",
        "promoted_sets": mma.promoted_sets,
        "descriptors_at_once": _finds_descriptors_at_once(plan),
        "staggered": mma.staggered,
        "promotes_each": mma.promote_k == plan.cta_tile[2],
        "adds": "False" if mma.promote_k == plan.cta_tile[2] else "k_tile % PROMOTE_TILES != 0",
        "tile_range": _tile_range(plan),
        "shares_copies": mma.shares_copies,
        "tile_of_cta": _tile_of_cta(plan),
        **_sums_context(plan),
        **_host_clusters(plan),
        "a_multicast": mma.cluster[1] > 1,
        "b_multicast": mma.cluster[0] > 1,
        "masks": (", row_mask" if mma.cluster[1] > 1 else "") + (", column_mask" if mma.cluster[0] > 1 else ""),
        "writers": ", writers" if mma.shares_copies else "",
        "numerics": numerics(plan).replace("Int32", "Int16, Int32") if mma.shares_copies else numerics(plan),
        "to_shared": _to_shared(plan.epilogue),
    }


def _finds_descriptors_at_once(plan: GemmPlan) -> bool:
    """Return whether a descriptor is computed from its stage and k-block in one sum, not in two steps.

    One sum has 32 bits, since the upper half of all descriptors is equal, and takes a third of the instructions.
    However, the compiler keeps each k-block's offset in a register: sixteen k-blocks need more uniform registers than
    exist, and promoted sums leave none (selected tiles would spill).
    """
    return plan.mma.k_blocks <= MOST_AT_ONCE and not plan.mma.promote_k


def _pins_parts(plan: GemmPlan) -> bool:
    """Return whether a branch keeps the arithmetic of each part in place.

    If a chain reads nothing, ptxas would otherwise compute all parts before the first is stored. If it reads vectors,
    shuffles keep it in place; a branch is still faster with ping-pong, and slower elsewhere. ptxas would move
    conversions to bf16 that are stored one by one before the wait for the sums, and then serialize every `wgmma`
    (C7514).
    """
    fusion = plan.epilogue.fusion
    if plan.epilogue.smem is None and plan.epilogue.dtype.name == "bf16":
        return True
    read = [x for x in fusion.tensors if x.name != STORE]
    return bool(fusion.steps) and (not read or (plan.mma.role.alternates and all(len(x.modes) == 1 for x in read)))


def _to_shared(epilogue: EpiloguePlan) -> tuple[str, ...]:
    """Return the lines that store a part of C from registers to its place in shared memory."""
    place = "tRsC[None, None, None, slot]"
    if epilogue.stmatrix is not None:
        return (f"cute.copy(r2s_c, thr_r2s.retile(tCrD), {place})",)
    if epilogue.major == "n":
        return (f"cute.autovec_copy(tCrD, {place})",)
    return ("for i in cutlass.range_constexpr(cute.size(tCrD)):", f"    {place}[i] = tCrD[i]")


def _tile_range(plan: GemmPlan) -> str:
    """Return the tiles of a warpgroup among those of its CTA: all of them, or every other one."""
    step = "clusters" if plan.mma.shares_copies else "ctas"
    return (
        f"first_tile + group * {step}, tiles, 2 * {step}" if plan.mma.role.alternates else f"first_tile, tiles, {step}"
    )


def _tile_of_cta(plan: GemmPlan) -> str:
    """Return the tile of one CTA within the block of tiles of its cluster."""
    along_n = "tile_n" if plan.split_k else "tile_n * CLUSTER_N + rank_n"
    return f"tile_m * CLUSTER_M + rank_m, {along_n}"


def _sums_context(plan: GemmPlan) -> dict[str, object]:
    """Return the names of the tensor core's sums on their way to the epilogue, if slices are added.

    `owned` are the number of a CTA's tile, or of its share, within one result, and their count, if these are not the
    CTA's tiles.
    """
    (m, _, k), accumulators = plan.mma.cluster, "tCrR" if _converts_sums(plan) else "tCrC"
    tile, tiles = ("tile * CLUSTER_M + rank_m", "tiles * CLUSTER_M") if m > 1 else ("tile", "tiles")
    factor = f"({tile})" if m > 1 else tile
    owned = f"{factor} * CLUSTER_K + rank_k, {tiles} * CLUSTER_K" if k > 1 else f"{tile}, {tiles}"
    parts = "PARTS // CLUSTER_K" if k > 1 else "PARTS"
    one, of = ("own", "owned") if (m, k) != (1, 1) else ("tile", "tiles")
    return {
        "accumulators": accumulators,
        "converts_sums": _converts_sums(plan),
        "converts_left": _converts_sums(plan) and k == 1,
        "sums_left": "tCrX" if k > 1 else accumulators,
        "slices_left": "SLICE_GROUPS" if k > 1 else "SPLIT_K",
        "part_begin": "tCrX.iterator + share_part" if k > 1 else f"{accumulators}.iterator + part",
        "owned": owned if (m, k) != (1, 1) else "",
        "counted": f"{one}, {of}",
        "counter": f"counters + (Int64(batch) * {of} + {one})",
        "added_part": "share_part" if k > 1 else "part",
        "parts_of_cta": parts,
        "parts_to_add": f"{parts} * (SUM_THREADS // 128)",
    }


def _host_clusters(plan: GemmPlan) -> dict[str, str]:
    """Return the host's expressions for a result's clusters if K is split, the CTAs of one, and its extents."""
    m, _, k = plan.mma.cluster
    along_m = "cute.ceil_div(m, CTA_M * CLUSTER_M)" if m > 1 else "cute.ceil_div(m, CTA_M)"
    ctas = {(True, False): "CLUSTER_M", (False, True): "CLUSTER_K", (True, True): "(CLUSTER_M * CLUSTER_K)"}
    return {
        "cluster_tiles": f"{along_m} * cute.ceil_div(n, CTA_N)",
        "cluster_ctas": ctas.get((m > 1, k > 1), ""),
        "cluster_extents": f"({'CLUSTER_M' if m > 1 else 1}, {'CLUSTER_K' if k > 1 else 1}, 1)",
    }


def _operation(element: DType) -> tuple[str, str]:
    """Return the DSL's operation, and its operand types: 16-bit operands share one."""
    if element.bits == 16:
        return "MmaF16BF16Op", "A_DTYPE"
    return "MmaI8Op" if element.is_integer else "MmaF8Op", "A_DTYPE, B_DTYPE"


def _major(operand: OperandPath) -> str:
    return f"OperandMajorMode.{'K' if operand.major == 'k' else 'MN'}"


def _settled(plan: GemmPlan) -> Settled:
    """Return the constants of each decision on the main loop."""
    return {
        **fed_by_boxes(plan),
        "mma.atom": (
            f"MMA_SHAPE, K_BLOCKS = {plan.atom.shape_mnk}, {plan.mma.k_blocks}",
            f"ACCUMULATOR_DTYPE = cutlass.{plan.atom.c_dtype.dsl_name}",
        ),
        "mma.atom_layout": (f"MMA_ATOM_LAYOUT = {plan.tiled_mma.atom_layout.shape}", *_warps(plan)),
        "mma.promote_k": _promotion(plan),
        "schedule.consumers": (),  # only a comment: the loop over tiles shows the decision
        "schedule.last_k_tiles": (),  # only a comment: the loop over k-tiles shows the decision
        "schedule.promoted_sums": (),
        "schedule.cluster": _cluster_constants(plan),
        **_eviction_constants(plan),
        **_prefetch_constants(plan),
        "schedule.pace": (f"K_TILE_CYCLES = {plan.pace}",) if plan.pace else (),
        "epilogue.smem": (*_part_constants(plan), *c_constants(plan)),
    }


def _warps(plan: GemmPlan) -> tuple[str, ...]:
    """Return the number of MMA warps, and of those that read a stage, in all CTAs that receive it."""
    empty = empty_barrier(plan)
    ctas = empty.arrivals[0].ctas
    where = f": {empty.count // ctas} in each of {ctas} CTAs" if ctas > 1 else ""
    return (
        *((f"SUM_THREADS = {plan.tiled_mma.threads}",) if plan.split_k else ()),
        f"MMA_WARPS, THREADS = {plan.mma.role.warps}, {plan.threads}",
        f"EMPTY_ARRIVALS = {empty.count}  # MMA warps that read a stage{where}",
    )


def _converts_sums(plan: GemmPlan) -> bool:
    """Return whether stored sums of slices have another type than the tensor core's sums."""
    return plan.split_k is not None and plan.split_k.dtype is not plan.atom.c_dtype


def _promotion(plan: GemmPlan) -> tuple[str, ...]:
    tiles = plan.mma.promote_k // plan.cta_tile[2]
    if plan.mma.promoted_sets > 1:
        return (f"K_TILES_PER_TURN = {PROMOTED_TILES}  # straight-line code, in which the sets of registers alternate",)
    return (f"PROMOTE_TILES = {tiles}",) if tiles > 1 else ()


def _eviction_constants(plan: GemmPlan) -> Settled:
    """Return the policy, once. Source: CUTLASS `cute/arch/copy_sm90_desc.hpp`, `TMA::CacheHintSm90`."""
    policy = "EVICT_FIRST = 0x12F0000000000000  # the createpolicy encoding of L2::evict_first"
    return {f"g2s.{name}.l2": () if i else (policy,) for i, name in enumerate(plan.evicted_first)}


def _prefetch_constants(plan: GemmPlan) -> Settled:
    line = f"LINE_BITS = {8 * LINE_BYTES}  # of L2"
    return {
        f"g2s.{x.operand}.prefetch": (f"{x.operand.upper()}_PREFETCHED = {x.k_tiles}", *(() if i else (line,)))
        for i, x in enumerate(plan.prefetched)
    }


def _cluster_constants(plan: GemmPlan) -> tuple[str, ...]:
    """Return the masks; bit r is the CTA of rank r, and ranks run along M first."""
    m, n, k = plan.mma.cluster
    slices = f"CLUSTER_K = {k}"
    if (split := plan.split_k) is not None and split.leaves_sums:
        slices = f"CLUSTER_K, SLICE_GROUPS = {k}, {split.partials}"
    lines = (
        f"CLUSTER_M, CLUSTER_N = {m}, {n}" if (m, n) != (1, 1) and k == 1 else "",
        f"CLUSTER_M = {m}" if m > 1 and k > 1 else "",
        f"ROW_MASK = {sum(1 << m * i for i in range(n)):#b}" if n > 1 else "",
        f"COLUMN_MASK = {(1 << m) - 1:#b}" if m > 1 else "",
        slices if k > 1 else "",
    )
    return tuple(filter(None, lines))


def _part_constants(plan: GemmPlan) -> tuple[str, ...]:
    """Return the constants of the parts of a warpgroup's sums, in the order of its registers: along N first."""
    parts = _parts(plan)
    (m, n), store = parts.tile, parts.stmatrix
    return (
        f"PART_M, PART_N = {m}, {n}  # of C, per store of one warpgroup",
        f"PARTS, PARTS_N, PART_VALUES = {parts.count}, {parts.columns}, {m * n // WARPGROUP}",
        *(() if store is None else (f"C_TRANSPOSE, C_MATRICES = {store.transpose}, {store.matrices}",)),
    )


def _parts(plan: GemmPlan) -> EpilogueParts:
    parts = plan.epilogue.parts
    assert parts is not None  # warpgroups store C only in parts
    return parts
