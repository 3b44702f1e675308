"""Fills the template of a kernel that multiplies by wgmma: each constant with its decision as the comment."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from cutegen.contract.launch import OPERANDS, RESULT
from cutegen.hardware import DType
from cutegen.hardware.units import LINE_BYTES, WARP, WARPGROUP
from cutegen.plan import GemmPlan
from cutegen.plan.kernel.pipeline import SLICES, TURN, Scope, Turns
from cutegen.plan.kernel.program import Action
from cutegen.plan.values.epilogue import EpilogueParts, EpiloguePlan
from cutegen.plan.values.path import OperandPath
from cutegen.render import bulk, epilogue, scheduler
from cutegen.render.constants import ConstantsByDecision, c_constants
from cutegen.render.factors import factor_constants, factor_holes, factor_parts, scales, scaling_parts
from cutegen.render.groups import RestHoles, cleared, group_constants, search_holes
from cutegen.render.holes import chain_holes, gemm_context, host_parts, numerics
from cutegen.render.pairs import pair_constants, pair_holes, vectors_of_members
from cutegen.render.quantized import quantized_constants, quantized_holes, quantized_parts
from cutegen.render.tensors import TensorHoles, tensor_holes
from cutegen.spec import STORE

WAIT_FOR = "functions/waits.py.j2#wait_for"
"""The wait for a stage that polls."""
REST_BARRIER = 8
"""The `bar.sync` of all threads that multiply: 0 is that of the begin, and warpgroups have the next ones."""
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
    prefetched = {each.operand for each in plan.prefetched}
    number_types = numerics(plan).replace("Int32", "Int16, Int32") if mma.shares_copies else numerics(plan)
    quantized = plan.epilogue.fusion.quantization is not None
    in_ptx = _alternates_sets(plan) or scales(plan) or plan.launch.spread or plan.pace or quantized
    dialects = ["llvm"] if in_ptx else []
    dialects += ["nvvm"] if any(x.g2s.fetch is Action.FETCH for x in plan.operands) else []
    warp = ("warp",) if plan.epilogue.stmatrix is not None else ()
    edge = ("CopyUniversalOp",) if plan.epilogue.edge is not None else ()
    return {
        **common,
        **chain_holes(plan, indent, deeper=8 if _pins_parts(plan) else 4, part="", holds_vectors=holds_vectors),
        **bulk.pipeline_holes(plan),
        **scheduler.persistent_holes(plan),
        **scheduler.sum_holes(plan),
        **scheduler.cluster_holes(plan),
        **(clusters := _cluster_holes(plan)),
        "ahead_of_wait": _ahead_holes(plan, clusters["copy_options"]),
        **_turn_holes(plan),
        **_rest_holes(plan),
        "waves": _ROWS if (promotion := mma.accumulator.promotion) and promotion.waves[0] > 1 else _MEMBERS,
        **search_holes(plan, next(x.matrix for x in common["tensors"] if x.name == RESULT)),
        "parts": _text_parts(plan),
        "imports": [
            f"from cutlass import {number_types}",
            *((f"from cutlass._mlir.dialects import {', '.join(dialects)}",) if dialects else ()),
            f"from cutlass.cute.nvgpu import {', '.join((*edge, 'OperandMajorMode', 'cpasync', *warp, 'warpgroup'))}",
        ],
        **bulk.plain_holes(beside := tensors_beside(plan, common["tensors"])),
        "held_vectors": [x for x in beside if x.firsts],
        "operation": operation,
        "operand_types": types,
        "operand_majors": ", ".join(_major(x) for x in (plan.a, plan.b)),
        **factor_holes(plan),
        **quantized_holes(plan, common["tensors"]),
        "sum_threads": "SUM_THREADS",
        "after_barriers": "empty + STAGES",
        "prefetched": [_prefetch_holes(x) for x in common["tensors"] if x.name in prefetched],
        "ahead": f"{'ahead_m' if 'a' in prefetched else '_'}, {'ahead_n' if 'b' in prefetched else '_'}",
        "slots": "" if _parts(plan).at_once else " * 2",
        "warps_of_group": WARPGROUP // WARP,
        "to_shared": to_shared(plan.epilogue),
    }


def _text_parts(plan: GemmPlan) -> tuple[str, ...]:
    """Return the parts of the kernel's text, in the order of their functions."""
    quantized = plan.epilogue.fusion.quantization is not None
    unmapped = quantized or bool(tensors_beside(plan, (tensor_holes(x) for x in plan.launch.tensors)))
    grouped, addressed = plan.scheduler.groups is not None, bool(plan.epilogue.addressed)
    return (
        *epilogue.math_functions(plan),
        *scheduler.order_parts(plan),
        *(() if grouped else ("functions/tile_order.py.j2#first_tile",)),
        *epilogue.tensor_functions(plan, holds_vectors=_holds_vectors(plan)),
        *(("functions/tensors.py.j2#store_vectors",) if plan.epilogue.edge else ()),
        *(("functions/tensors.py.j2#matrix_of_batch",) if unmapped or plan.prefetched or addressed else ()),
        *scheduler.persistent_parts(plan),
        *_mask_parts(plan),
        *scheduler.slice_parts(plan),
        "functions/wgmma.py.j2#mma_operation",
        "functions/wgmma.py.j2#shared_tile",
        "functions/boxes.py.j2#tensor_map_coordinates",
        *(("functions/boxes.py.j2#pair_coordinates",) if has_pairs_of_contiguous_columns(plan) else ()),
        "functions/wgmma.py.j2#bulk_partition",
        "functions/boxes.py.j2#next_stage",
        *_turn_parts(plan),
        "functions/boxes.py.j2#copy_k_tile",
        *(("functions/waits.py.j2#wait_until", "roles/pace.py.j2") if plan.pace else ()),
        *_multiply_parts(plan),
        f"schedulers/{'rows_of_groups' if plan.skips_rows else 'whole_tiles'}.py.j2",
        *(("functions/boxes.py.j2#prefetch_k_tiles", "mainloops/prefetch.py.j2") if plan.prefetched else ()),
        *(("functions/waits.py.j2#leave_if",) if plan.launch.spread else ()),
        "roles/producer_and_mma.py.j2",
        f"roles/producer{'_of_tiles' if grouped else ''}.py.j2",
        "roles/mma_warpgroups.py.j2",
        *bulk.register_parts(plan),
        "pipelines/described_stages.py.j2",
        f"pipelines/boxes_of_{'groups' if grouped else 'matrices'}.py.j2",
        f"pipelines/c_of_{'groups' if addressed else 'matrices'}.py.j2",
        "pipelines/k_tiles.py.j2",
        *factor_parts(plan),
        *_first_copy_parts(plan),
        *_pipeline_parts(plan),
        *(("pipelines/stagger.py.j2",) if _is_staggered(plan) else ()),
        *stored_parts(plan),
        *host_parts(plan),
    )


def _pipeline_parts(plan: GemmPlan) -> tuple[str, ...]:
    """Return the parts of the pipelines that not every kernel has."""
    of_cluster = bulk.ab_pipeline(plan).scope is Scope.CLUSTER
    return (
        *(("pipelines/k_tiles_of_cluster.py.j2",) if of_cluster else ()),
        *(("pipelines/turn.py.j2",) if plan.loop.pipeline(TURN) else ()),
        *(("pipelines/slices.py.j2",) if plan.loop.pipeline(SLICES) else ()),
    )


def _turn_parts(plan: GemmPlan) -> tuple[str, ...]:
    """Return the part of warpgroups that multiply tiles in turn."""
    if not plan.mma.role.alternates:
        return ()
    return (f"pipelines/tiles_{'of_groups_' if plan.scheduler.cuts_k else ''}in_turn.py.j2",)


def _mask_parts(plan: GemmPlan) -> tuple[str, ...]:
    """Return the parts that say which CTAs of a cluster receive a copy."""
    m, n, _ = plan.mma.cluster
    return (*(("schedulers/masks_of_a.py.j2",) if n > 1 else ()), *(("schedulers/masks_of_b.py.j2",) if m > 1 else ()))


def _multiply_parts(plan: GemmPlan) -> tuple[str, ...]:
    """Return the parts that multiply k-tiles, and promote their sums."""
    mma, at_once, promotion = plan.mma, _finds_descriptors_at_once(plan), plan.mma.accumulator.promotion
    in_waves = promotion is not None and prod(promotion.waves) > 1
    two_sets = _alternates_sets(plan)
    rest = ("mainloops/rest_of_k.py.j2",) if plan.scheduler.cuts_k else ()
    if plan.k_vector > 1:
        rest = (*rest, "mainloops/before_k.py.j2", "pipelines/begin_cleared.py.j2")
    release = (
        f"release{'_by_predicate' if two_sets or scales(plan) else ''}{'_in_cluster' if mma.shares_copies else ''}"
    )
    multiply = (
        "functions/wgmma.py.j2#multiply",
        f"mma/descriptors_{'at_once' if at_once else 'of_stage'}.py.j2",
        f"functions/wgmma.py.j2#{release}",
    )
    if scales(plan):
        assert promotion is not None
        scaled = (WAIT_FOR, *multiply, *scaling_parts(plan))
        k_tiles = f"mainloops/scaled_{'in_turns' if promotion.k_tiles_per_turn > 1 else 'singly'}.py.j2"
        if in_waves:
            return (*scaled, "mainloops/scaling_waves.py.j2", "functions/factors.py.j2#add_scaled_wave", k_tiles)
        way = "two_sets" if two_sets else "each" if promotion.k == plan.cta_tile[2] else "some"
        loop = "mainloops/scaled_sums.py.j2", f"mainloops/scaling_{way}.py.j2"
        return (*scaled, *loop, *((k_tiles,) if way == "each" else ()))
    if promotion is not None:
        way = "each" if promotion.k == plan.cta_tile[2] else "some"
        return (*multiply, *rest, f"mainloops/promoting_{'two_sets' if two_sets else way}.py.j2")
    order = (
        "pipelines/k_tiles_in_turn.py.j2" if mma.role.turns is Turns.LAST_K_TILES else "mainloops/k_tiles_at_will.py.j2"
    )
    by_blocks = ("mainloops/rest_by_blocks.py.j2",) if mma.skips_k_blocks else ()
    # With promoted sums such waits are up to 1 % slower (docs/lab/hopper_experiments.md).
    return (WAIT_FOR, *multiply, *rest, *by_blocks, "mainloops/wgmma.py.j2", order)


def _first_copy_parts(plan: GemmPlan) -> tuple[str, ...]:
    """Return the parts that make the barriers ready and request the first k-tile."""
    clustered, programmatic = plan.mma.shares_copies, plan.launch.programmatic
    if plan.scheduler.source.searched:
        waits = ("schedulers/programmatic.py.j2",) if programmatic else ()
        waits = (*(("schedulers/weights_to_l2.py.j2",) if plan.launch.ahead else ()), *waits)
        return (f"pipelines/barriers_first{'_in_cluster' if clustered else ''}.py.j2", *waits)
    if plan.launch.ahead:
        return (
            "pipelines/copies_ahead.py.j2",
            f"pipelines/barriers{'_of_cluster' if clustered else ''}_ready.py.j2",
            "schedulers/programmatic.py.j2",
        )
    return (
        f"pipelines/first_copies{'_in_cluster' if clustered else ''}.py.j2",
        f"pipelines/copy_{'later' if clustered or programmatic else 'at_once'}.py.j2",
        *(("schedulers/programmatic.py.j2",) if programmatic else ()),
    )


def stored_parts(plan: GemmPlan) -> tuple[str, ...]:
    """Return the parts of an epilogue that computes and stores C in parts."""
    steps, smem = plan.epilogue.fusion.steps, plan.epilogue.smem
    at_once, stmatrix = _parts(plan).at_once, plan.epilogue.stmatrix is not None
    beside = tensors_beside(plan, (tensor_holes(x) for x in plan.launch.tensors))
    through_f32 = epilogue.goes_through_f32(plan)
    quantized = (quantization := plan.epilogue.fusion.quantization) is not None
    values = (
        ("pairs" if _has_pairs(plan) else "chain")
        if steps or quantized
        else "rounded_through_f32"
        if through_f32
        else "rounded"
    )
    held = {x.along for x in beside if x.firsts}
    used = {
        "epilogues/parts": True,
        "epilogues/pinned_parts" if _pins_parts(plan) else "epilogues/free_parts": True,
        f"epilogues/{_places(plan)}": True,
        "epilogues/pairs_of_columns": _has_pairs(plan),
        "epilogues/part_operands": True,
        f"epilogues/part_{values}": True,
        "epilogues/others_in_registers": values == "pairs" and not _parts(plan).drained,
        "epilogues/part_values": values in ("pairs", "chain")
        and _parts(plan).waves == 1
        and not (quantization and quantization.of_rows),
        "epilogues/source_behind_beta": bool(steps) and plan.epilogue.fusion.source_behind_beta,
        "epilogues/slices_of_threads": bool(beside) or not stmatrix,
        "epilogues/part_coordinates": bool(beside) or quantized,
        "epilogues/in_parts": not at_once,
        "epilogues/held_vectors": bool(held),
        "epilogues/held_rows": "m" in held,
        "epilogues/held_columns": "n" in held,
        "pipelines/c_store": smem is not None,
        "pipelines/c_at_once": at_once,
        "pipelines/c_in_two_buffers": smem is not None and not at_once,
        "epilogues/part_from_registers": smem is None,
        "epilogues/stmatrix": smem is not None and stmatrix,
        "epilogues/store_by_elements": smem is not None and not stmatrix and not plan.epilogue.by_chunks,
        "epilogues/store_by_chunks": plan.epilogue.by_chunks,
    }
    tensors = bulk.tensor_parts(plan) if quantized or any(not x.firsts for x in beside) else ()
    return (*(f"{name}.py.j2" for name, is_used in used.items() if is_used), *tensors, *quantized_parts(plan))


def _places(plan: GemmPlan) -> str:
    """Return the part that says where a group's parts of C are: one has the tile, or several side by side."""
    if _parts(plan).drained and _parts(plan).warpgroups > 1:
        return "groups_along_n"
    return "group_of_a_tile" if plan.mma.role.alternates or _parts(plan).drained else "groups_of_a_tile"


def _has_pairs(plan: GemmPlan) -> bool:
    """Return whether the epilogue takes pairs of columns."""
    return plan.epilogue.fusion.pairs is not None


def has_pairs_of_contiguous_columns(plan: GemmPlan) -> bool:
    """Return whether the columns that are in pairs are contiguous in memory."""
    pairs = plan.epilogue.fusion.pairs
    return pairs is not None and plan.operand(pairs.operand).major == pairs.of


def _holds_vectors(plan: GemmPlan) -> bool:
    """Return whether warps load any vectors before they multiply."""
    return any(x.firsts for x in tensors_beside(plan, (tensor_holes(x) for x in plan.launch.tensors)))


def tensors_beside(plan: GemmPlan, tensors: Iterable[TensorHoles]) -> list[TensorHoles]:
    """Return the tensors without a tensor map; a vector that warps hold has the names of its first elements."""
    beside = bulk.plain_tensors(plan, tensors)
    if _parts(plan).vectors_held:
        beside = [replace(x, firsts=_FIRSTS[x.along]) if x.along else x for x in beside]
    if (pairs := plan.epilogue.fusion.pairs) is None:
        return beside
    return [each for x in beside for each in (vectors_of_members(x, pairs) if x.along == pairs.of else (x,))]


@dataclass(frozen=True, slots=True)
class PrefetchHoles:
    """An operand whose first k-tiles waiting warps prefetch: the extent of its tile, and its first row."""

    title: str
    name: str
    shape: str
    stride: str
    extent: str
    first: str


def _prefetch_holes(x: TensorHoles) -> PrefetchHoles:
    along = {"a": "m", "b": "n"}[x.name]
    extent = f"CTA_{along.upper()}"
    return PrefetchHoles(x.title, x.name, x.shape, x.stride, extent, f"ahead_{along} * {extent}")


def _cluster_holes(plan: GemmPlan) -> dict[str, Any]:
    """Return the holes of copies that several CTAs of a cluster receive, and of the order in which they add slices."""
    (m, n, k), shares = plan.mma.cluster, plan.mma.shares_copies
    names = [x.name for x in plan.operands]
    policy = {x: ", cache_policy=Int64(EVICT_FIRST)" if x in plan.evicted_first else "" for x in names}
    row, column = ", row_mask" if n > 1 else "", ", column_mask" if m > 1 else ""
    following = "(rank_k + step) % CLUSTER_K"
    return {
        "masks": row + column,
        "copy_options": {
            "a": (", mcast_mask=row_mask" if n > 1 else "") + policy["a"],
            "b": (", mcast_mask=column_mask" if m > 1 else "") + policy["b"],
        },
        "shared_by": {"a": ", rank_n, CLUSTER_N" if n > 1 else "", "b": ", rank_m, CLUSTER_M" if m > 1 else ""},
        "first_of_column": f"{'rank_k' if k > 1 else 'rank_n'} * CLUSTER_M",
        "writers": ", writers" if shares else "",
        "rank": "rank" if shares else "rank_k",
        "peer": f"rank % CLUSTER_M + {following} * CLUSTER_M" if shares else following,
    }


@dataclass(frozen=True, slots=True)
class AheadHoles:
    """An operand whose first k-tiles are copied before the others', and that of the `other`: source and copy of one.

    With groups they are prefetched from its `box`, a `tile` at a time.
    """

    name: str
    box: str
    tile: str
    title: str
    source: str
    copy: str
    other: str
    source_of_other: str
    copy_of_other: str


def _ahead_holes(plan: GemmPlan, options: Mapping[str, str]) -> AheadHoles | None:
    """Return the holes of the operand that is copied before a predecessor on the stream ends, if one is."""
    if not plan.launch.ahead:
        return None
    (name,), pairs = plan.launch.ahead, pair_holes(plan)
    lines = [name, pairs.coordinates[name], pairs.tile[name]]
    for each in (name, *(other for other in OPERANDS if other != name)):
        x, rows = each.upper(), {"a": "m", "b": "n"}[each]
        source = f"source_{each} = t{x}c{x}[None, tile_{rows}, first_k_tile + each, batch]"
        copy = f"cute.copy(map_{each}, source_{each}, t{x}s{x}[None, each], tma_bar_ptr=full + each{options[each]})"
        lines += [x, source, copy]
    return AheadHoles(*lines)


def _turn_holes(plan: GemmPlan) -> dict[str, str]:
    """Return the holes of warpgroups that take turns."""
    in_turn = plan.mma.role.turns is Turns.LAST_K_TILES
    return {
        **scheduler.each_tile(plan),
        "slice_of_group": "0" if plan.mma.role.alternates else "group * 128",
        "of_stages": "stage, phase, held, last" if in_turn else "stage: Int32, phase: Int32",
        "so_is_last": "; so is the stage `last`, if it is `held` from an earlier k-tile" if in_turn else "",
    }


def _rest_holes(plan: GemmPlan) -> dict[str, Any]:
    """Return the holes of groups of K, whose last k-tile may hold more than the group has: it is cleared from there on.

    Straight-line code has the k-tiles before it. Of warpgroups that take turns in the last k-tiles, the first clears.
    """
    cuts_k, role = plan.scheduler.cuts_k, plan.mma.role
    in_turn = role.turns is Turns.LAST_K_TILES
    before_last, threads = "(k_tiles - 1)", str(WARPGROUP) if role.alternates or in_turn else "MMA_WARPS * 32"
    barrier = f"REST_BARRIER + cute.arch.thread_idx()[0] // {WARPGROUP}" if role.alternates else "REST_BARRIER"
    k_tiles = "left" if in_turn else "k_tiles"
    return {
        "whole_k_tiles": "whole" if plan.mma.skips_k_blocks else k_tiles,
        "each_k_tile": "later" if cuts_k else "_",
        "in_turns": before_last if cuts_k else "k_tiles",
        "after_turns": f"{before_last} // K_TILES_PER_TURN * K_TILES_PER_TURN, k_tiles"
        if cuts_k
        else "k_tiles % K_TILES_PER_TURN",
        "rest": RestHoles(
            **cleared(plan),
            what="the tile" if role.alternates else "it first" if in_turn else "it",
            thread=f"tidx % {WARPGROUP}" if role.alternates else "tidx",
            threads=threads,
            meet=f"cute.arch.barrier(barrier_id={barrier}, number_of_threads={threads})",
            of_lane="stops - begins" + (" + begins % K_VECTOR" if plan.k_vector > 1 else ""),
            k_tiles=k_tiles,
            cleared="rest * Int32(group == 0)" if in_turn else "rest",
        ),
    }


def _finds_descriptors_at_once(plan: GemmPlan) -> bool:
    """Return whether a descriptor is computed from its stage and k-block in one sum, not in two steps.

    One sum has 32 bits, since the upper half of all descriptors is equal, and takes a third of the instructions.
    However, the compiler keeps each k-block's offset in a register: sixteen k-blocks need more uniform registers than
    exist, and promoted sums leave none (selected tiles would spill).
    """
    return plan.mma.k_blocks <= MOST_AT_ONCE and plan.mma.accumulator.promotion is None


def _alternates_sets(plan: GemmPlan) -> bool:
    """Return whether promoted sums alternate between two sets of registers."""
    promotion = plan.mma.accumulator.promotion
    return promotion is not None and promotion.sets == 2


def _is_staggered(plan: GemmPlan) -> bool:
    """Return whether the second warpgroup runs one k-tile later."""
    promotion = plan.mma.accumulator.promotion
    return promotion is not None and promotion.staggered


def _pins_parts(plan: GemmPlan) -> bool:
    """Return whether a branch keeps the arithmetic of each part in place.

    If a chain reads nothing, ptxas would otherwise compute all parts before the first is stored. If it reads vectors,
    shuffles keep it in place; a branch is still faster with ping-pong, and slower elsewhere. ptxas would move
    conversions to bf16 that are stored one by one before the wait for the sums, and then serialize every `wgmma`
    (C7514).
    """
    fusion = plan.epilogue.fusion
    if _parts(plan).drained:  # each part waits for its own loads
        return False
    if plan.epilogue.smem is None and plan.epilogue.dtype.name == "bf16":
        return True
    read = [x for x in fusion.tensors if x.name != STORE]
    return bool(fusion.steps) and (not read or (plan.mma.role.alternates and all(len(x.modes) == 1 for x in read)))


def to_shared(epilogue: EpiloguePlan) -> tuple[str, ...]:
    """Return the lines that store a part of C from registers to its place in shared memory."""
    place = "tRsC[None, None, None, slot]"
    if epilogue.stmatrix is not None:
        return (f"cute.copy(r2s_c, thr_r2s.retile(tCrD), {place})",)
    if epilogue.by_chunks:
        return (f"store_by_chunks(tCrD, {place})",)
    if epilogue.major == "n":
        return (f"cute.autovec_copy(tCrD, {place})",)
    return ("for i in cutlass.range_constexpr(cute.size(tCrD)):", f"    {place}[i] = tCrD[i]")


def _operation(element: DType) -> tuple[str, str]:
    """Return the DSL's operation, and its operand types: 16-bit operands share one."""
    if element.bits == 16:
        return "MmaF16BF16Op", "A_DTYPE"
    return "MmaI8Op" if element.is_integer else "MmaF8Op", "A_DTYPE, B_DTYPE"


def _major(operand: OperandPath) -> str:
    return f"OperandMajorMode.{'K' if operand.major == 'k' else 'MN'}"


def _settled(plan: GemmPlan) -> ConstantsByDecision:
    """Return the constants of each decision on the main loop."""
    return {
        **bulk.fed_by_boxes(plan),
        "mma.atom": (
            f"MMA_SHAPE, K_BLOCKS = {plan.atom.shape_mnk}, {plan.mma.k_blocks}",
            f"ACCUMULATOR_DTYPE = cutlass.{plan.atom.c_dtype.dsl_name}",
        ),
        "mma.atom_layout": (f"MMA_ATOM_LAYOUT = {plan.tiled_mma.atom_layout.shape}", *_warps(plan)),
        "mma.promote_k": _promotion(plan),
        "schedule.consumers": (),  # only a comment: the loop over tiles shows the decision
        "schedule.last_k_tiles": (),  # only a comment: the loop over k-tiles shows the decision
        "schedule.promoted_sums": _waves(plan),
        **factor_constants(plan),
        "schedule.cluster": scheduler.cluster_constants(plan),
        **_eviction_constants(plan),
        **_prefetch_constants(plan),
        "schedule.pace": (f"K_TILE_CYCLES = {plan.pace}",) if plan.pace else (),
        **group_constants(plan),
        "epilogue.pairs": pair_constants(plan.epilogue.fusion.pairs),
        **quantized_constants(plan),
        "epilogue.smem": (*part_constants(plan), *c_constants(plan)),
    }


def _warps(plan: GemmPlan) -> tuple[str, ...]:
    """Return the number of MMA warps, and of those that read a stage, in all CTAs that receive it."""
    empty = bulk.empty_barrier(plan)
    ctas = empty.arrivals[0].ctas
    where = f": {empty.count // ctas} in each of {ctas} CTAs" if ctas > 1 else ""
    return (
        *((f"SUM_THREADS = {plan.mma.accumulator.threads}",) if plan.split_k else ()),
        f"MMA_WARPS, THREADS = {plan.mma.role.warps}, {plan.threads}",
        f"EMPTY_ARRIVALS = {empty.count}  # MMA warps that read a stage{where}",
        *((f"REST_BARRIER = {REST_BARRIER}  # beside those of the warpgroups",) if plan.scheduler.cuts_k else ()),
    )


def _waves(plan: GemmPlan) -> tuple[str, ...]:
    promotion = plan.mma.accumulator.promotion
    return () if promotion is None or prod(promotion.waves) == 1 else (f"WAVES = {prod(promotion.waves)}",)


@dataclass(frozen=True, slots=True)
class WaveHoles:
    """Blocks of sums that a warpgroup multiplies one after the other: rows of A's descriptors, or columns of B's.

    One set of partial sums has those of a `tile`; `of_each` and `one` are words.
    """

    name: str
    operand: str
    multiplied: str
    tile: str
    of_each: str
    one: str


_ROWS = WaveHoles(
    "rows", "tCrA", "rows_of_wave(tCrA, wave), tCrB", "CTA_M // WAVES, CTA_N", "each block of rows", "one block of rows"
)
_MEMBERS = WaveHoles(
    "columns",
    "tCrB",
    "tCrA, columns_of_wave(tCrB, wave)",
    "CTA_M, CTA_N // WAVES",
    "each member of the pairs",
    "one member",
)


def _promotion(plan: GemmPlan) -> tuple[str, ...]:
    if (promotion := plan.mma.accumulator.promotion) is None:
        return ()
    tiles = promotion.k // plan.cta_tile[2]
    if (turn := promotion.k_tiles_per_turn) > 1:
        why = "in which the sets of registers alternate" if promotion.sets > 1 else "in which waits overlap additions"
        return (f"K_TILES_PER_TURN = {turn}  # straight-line code, {why}",)
    return (f"PROMOTE_TILES = {tiles}",) if tiles > 1 else ()


def _eviction_constants(plan: GemmPlan) -> ConstantsByDecision:
    """Return the policy, once. Source: CUTLASS `cute/arch/copy_sm90_desc.hpp`, `TMA::CacheHintSm90`."""
    policy = "EVICT_FIRST = 0x12F0000000000000  # the createpolicy encoding of L2::evict_first"
    return {f"g2s.{name}.l2": () if i else (policy,) for i, name in enumerate(plan.evicted_first)}


def _prefetch_constants(plan: GemmPlan) -> ConstantsByDecision:
    line = f"LINE_BITS = {8 * LINE_BYTES}  # of L2"
    return {
        f"g2s.{x.operand}.prefetch": (f"{x.operand.upper()}_PREFETCHED = {x.k_tiles}", *(() if i else (line,)))
        for i, x in enumerate(plan.prefetched)
    }


def part_constants(plan: GemmPlan) -> tuple[str, ...]:
    """Return the constants of the parts of a warpgroup's sums, in the order of its registers: along N first."""
    parts = _parts(plan)
    (m, n), store = parts.tile, parts.stmatrix
    values = m * n // plan.mma.accumulator.group_threads
    return (
        f"PART_M, PART_N = {m}, {n}  # of C, per store of one warpgroup",
        f"PARTS, PARTS_N = {parts.count}, {parts.columns}"
        if parts.drained and plan.split_k is None and plan.mma.accumulator.promotion is None
        else f"PARTS, PARTS_N, PART_VALUES = {parts.count}, {parts.columns}, {values}",
        *((f"WAVES, WAVE_N = {parts.waves}, {parts.columns_of_wave}",) if parts.waves > 1 else ()),
        *(() if store is None else (f"C_TRANSPOSE, C_MATRICES = {store.transpose}, {store.matrices}",)),
    )


def _parts(plan: GemmPlan) -> EpilogueParts:
    parts = plan.epilogue.parts
    assert parts is not None  # warpgroups store C only in parts
    return parts
