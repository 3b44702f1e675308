"""Fills the template of a kernel that multiplies by `tcgen05.mma`: each constant with its decision as the comment."""

from dataclasses import dataclass
from typing import Any

from cutegen.algebra import inner_layout, offsets_2d
from cutegen.contract.launch import RESULT
from cutegen.hardware.factor_atoms import ATOM_ROWS, ATOM_WORDS, PER_WORD, copy_of
from cutegen.hardware.gmma import VECTOR_BYTES
from cutegen.hardware.tcgen05 import PAIR, columns_allocated, instruction_descriptor, kind_of
from cutegen.hardware.units import WARP
from cutegen.plan import GemmPlan
from cutegen.plan.epilogue.store import MATRICES
from cutegen.plan.kernel.accumulator import Home
from cutegen.plan.kernel.pipeline import MMA, OF_FACTORS, PRODUCER, Pipeline
from cutegen.plan.mainloop.tensor_memory import ACCUMULATOR, EPILOGUE, SCHEDULER, TILES
from cutegen.plan.operands.factors import are_held
from cutegen.plan.values.fragments import CopiedToTmem
from cutegen.plan.values.path import OperandPath
from cutegen.render import epilogue, factors, scheduler, warpgroup
from cutegen.render.bulk import fed_by_boxes, pipeline_holes, plain_holes
from cutegen.render.constants import ConstantsByDecision, c_constants
from cutegen.render.epilogue import constants_of
from cutegen.render.groups import RestHoles, begin_of, cleared, group_constants, listed_factors, search_holes
from cutegen.render.holes import chain_holes, gemm_context, host_parts, numerics
from cutegen.render.pairs import pair_constants
from cutegen.render.quantized import quantized_constants, quantized_holes
from cutegen.render.tensors import tensor_holes


def context(plan: GemmPlan) -> dict[str, Any]:
    """Return the template's holes."""
    instruction, _, _ = plan.atom.instruction.partition(".")
    common = gemm_context(plan, _settled(plan), f"a {instruction} GEMM fed by bulk tensor copies")
    clustered = plan.mma.shares_copies
    edge = ("CopyUniversalOp",) if plan.epilogue.edge is not None else ()
    number_types = numerics(plan).replace("Int32", "Int16, Int32") if clustered else numerics(plan)
    return {
        **common,
        **chain_holes(plan, 16 if plan.split_k else 12, deeper=4, part=""),
        **pipeline_holes(plan),
        **scheduler.persistent_holes(plan),
        **scheduler.each_tile(plan),
        "tiles_of_issuer": scheduler.each_tile(plan, "tile" if _knows_tiles(plan) else "_")["each_tile"],
        **_sum_holes(plan),
        **scheduler.sum_holes(plan),
        **scheduler.cluster_holes(plan),
        "sum_threads": "SUM_THREADS",
        "after_barriers": "drained + BUFFERS",
        **search_holes(plan, next(x.matrix for x in common["tensors"] if x.name == RESULT)),
        **_copy_holes(plan),
        "cta_group": plan.atom.ctas,
        "shared": _shared(plan),
        "accumulator": _accumulator(plan),
        "pipeline_of_factors": (apart := plan.loop.pipeline(OF_FACTORS)),
        "after_k_tiles": "empty" if apart is None else "factors_empty",
        "arrive_of_factors": "full" if apart is None else "factors_full",
        "answers": plan.loop.pipeline(TILES),
        "mma_ptx": plan.atom.ptx,
        "drain": _drain(plan),
        "rest": _rest(plan),
        **_factor_holes(plan),
        "parts": _text_parts(plan),
        "imports": [
            f"from cutlass import {number_types}",
            "from cutlass._mlir.dialects import llvm",
            f"from cutlass.cute.nvgpu import {', '.join((*edge, *_modules(plan)))}",
        ],
        **plain_holes(warpgroup.tensors_beside(plan, common["tensors"])),
        **quantized_holes(plan, common["tensors"]),
        "slots": " * 2",
        "warps_of_group": plan.loop.role(EPILOGUE).group_threads // WARP,
        "groups": plan.loop.role(EPILOGUE).groups,
        "to_shared": warpgroup.to_shared(plan.epilogue),
    }


def _modules(plan: GemmPlan) -> tuple[str, ...]:
    """Return the modules of `cute.nvgpu` that the text names."""
    of_warp = plan.mma.accumulator.atom.threads == WARP
    used = {"cpasync": True, "tcgen05": plan.atom.ctas == PAIR, "warp": of_warp}
    return tuple(name for name, is_used in used.items() if is_used)


def _text_parts(plan: GemmPlan) -> tuple[str, ...]:
    """Return the parts of the kernel's text, in the order of their functions."""
    quantized = plan.epilogue.fusion.quantization is not None
    unmapped = quantized or bool(warpgroup.tensors_beside(plan, (tensor_holes(x) for x in plan.launch.tensors)))
    grouped, addressed = plan.scheduler.groups is not None, bool(plan.epilogue.addressed)
    return (
        *epilogue.math_functions(plan),
        *scheduler.order_parts(plan),
        *epilogue.tensor_functions(plan),
        *(("functions/tensors.py.j2#store_vectors",) if plan.epilogue.edge else ()),
        *(("functions/tensors.py.j2#matrix_of_batch",) if unmapped or addressed else ()),
        *scheduler.persistent_parts(plan),
        *_shared_parts(plan),
        "functions/wgmma.py.j2#shared_tile",
        "functions/boxes.py.j2#tensor_map_coordinates",
        *(("functions/boxes.py.j2#pair_coordinates",) if warpgroup.has_pairs_of_contiguous_columns(plan) else ()),
        "functions/wgmma.py.j2#bulk_partition",
        "functions/boxes.py.j2#next_stage",
        "functions/boxes.py.j2#copy_k_tile",
        # The tile first: it says at which column its factors begin.
        *(("schedulers/tile_of_mma.py.j2",) if _knows_tiles(plan) else ()),
        *_factor_parts(plan),
        *_tensor_memory_parts(plan),
        f"pipelines/sums_of_{'blocks' if _adds_blocks(plan) else 'tiles'}.py.j2",
        "roles/producer_mma_epilogue.py.j2",
        "roles/producer_of_tiles.py.j2",
        "roles/mma_warp.py.j2",
        *_rest_parts(plan),
        "roles/epilogue_warps.py.j2",
        "pipelines/described_stages.py.j2",
        f"pipelines/boxes_of_{'groups' if grouped else 'matrices'}.py.j2",
        f"pipelines/c_of_{'groups' if addressed else 'matrices'}.py.j2",
        "pipelines/accumulator.py.j2",
        *(("pipelines/answers.py.j2",) if plan.loop.pipeline(TILES) else ()),
        *_drained_parts(plan),
        *warpgroup.stored_parts(plan),
        *host_parts(plan),
    )


def _tensor_memory_parts(plan: GemmPlan) -> tuple[str, ...]:
    """Return the parts of `tcgen05`, if sums are in tensor memory; a family with another home has its own."""
    if plan.mma.accumulator.home is not Home.TENSOR_MEMORY:
        return ()
    return (
        "functions/tcgen05.py.j2#tensor_memory",
        "functions/tcgen05.py.j2#order",
        *_commit_parts(plan),
        f"functions/tcgen05.py.j2#{'multiply_scaled' if _scales_products(plan) else 'multiply'}",
        "functions/tcgen05.py.j2#load_sums",
        "mma/elected_thread.py.j2",
    )


def _factor_parts(plan: GemmPlan) -> tuple[str, ...]:
    """Return the parts of factors, if there are any: their copies, and how threads read them, or the instruction."""
    if not factors.scales(plan):
        return ()
    if _adds_blocks(plan):
        read, way = ("read_factors", "held") if are_held(plan.operands) else ("read_factors_of_wave", "of_waves")
        functions = (f"functions/factors.py.j2#{name}" for name in (read, "add_scaled_wave"))
        apart, held = "pipelines/factors_apart.py.j2", f"pipelines/factors_{way}.py.j2"
        return (apart, *factors.factor_parts(plan), *factors.place_parts(plan), *functions, held)
    columns = ("pipelines/columns_of_tiles.py.j2",) if _begins_within_atoms(plan) else ()
    packed = any(begin_of(plan, plan.launch.tensor(x.name)) for x in factors.factors_of(plan))
    of_groups = ("pipelines/atoms_of_groups.py.j2",) if packed and not plan.scheduler.cuts_k else ()
    return (*factors.copy_parts(plan), "pipelines/factors_in_tensor_memory.py.j2", *of_groups, *columns)


def _drained_parts(plan: GemmPlan) -> tuple[str, ...]:
    """Return the parts of sums on their way to the epilogue: part by part, or those of slices that CTAs add."""
    if _adds_blocks(plan):
        return scheduler.slice_parts(plan)
    if plan.split_k is None:
        assert plan.epilogue.parts is not None
        loaded = "sums" if plan.epilogue.fusion.pairs is None else "pairs"
        if plan.epilogue.parts.waves > 1:
            loaded = "waves"
        return "epilogues/drained.py.j2", f"epilogues/drained_{loaded}.py.j2"
    return ("epilogues/drained_at_once.py.j2", *scheduler.slice_parts(plan))


def _answers(plan: GemmPlan) -> tuple[str, ...]:
    """Return the constants of the warp that asks for tiles, if one does."""
    tiles = plan.loop.pipeline(TILES)
    if tiles is None:
        return ()
    warps = sum(role.warps for role in plan.roles if role.name != SCHEDULER)
    return (f"SCHEDULER_WARP, ANSWERS, ANSWER_BYTES = {warps}, {tiles.stages}, {tiles.payload_bytes}",)


def _rest_parts(plan: GemmPlan) -> tuple[str, ...]:
    """Return the parts that set what follows a group's part of K to 0, if groups have parts of K."""
    if not plan.scheduler.cuts_k:
        return ()
    rest, stages = (
        "mainloops/rest_of_k.py.j2",
        f"pipelines/cleared_stages{'_of_cluster' * plan.mma.shares_copies}.py.j2",
    )
    within = plan.k_vector > 1
    if _scales_products(plan):
        nan = ("pipelines/factors_of_no_block.py.j2",) if within else ()
        return (rest, "mainloops/rest_of_factors.py.j2", *nan, stages)
    before = ("mainloops/before_k.py.j2", "pipelines/first_k_tile_cleared.py.j2") if within else ()
    return (*before, rest, stages)


def _rest(plan: GemmPlan) -> RestHoles:
    """Return how the threads that multiply set the rest of a k-tile to 0: those of one warp meet without a barrier."""
    threads = plan.mma.role.threads
    barrier = f"cute.arch.barrier(barrier_id={warpgroup.REST_BARRIER}, number_of_threads={threads})"
    meet = "cute.arch.sync_warp()" if threads == WARP else barrier
    return RestHoles(**cleared(plan), what="it", thread=f"tidx % {threads}", threads=f"{threads}", meet=meet)


def _knows_tiles(plan: GemmPlan) -> bool:
    """Return whether the warp that multiplies must know its tiles: their k-tiles, or where factors begin."""
    return plan.scheduler.cuts_k or (_scales_products(plan) and _begins_within_atoms(plan))


def _adds_blocks(plan: GemmPlan) -> bool:
    """Return whether the warps that drain sums of blocks of K scale them, and add them to others."""
    return plan.mma.accumulator.promotion is not None


def _scales_products(plan: GemmPlan) -> bool:
    """Return whether the instruction scales what it multiplies, by factors in tensor memory."""
    return factors.scales(plan) and not _adds_blocks(plan)


def _sum_holes(plan: GemmPlan) -> dict[str, str]:
    """Return what a buffer has the sums of, and whether those of a k-tile, which may have a name, are added to it."""
    if not _adds_blocks(plan):
        drained = "four drain it, while the next tile is multiplied into\nanother buffer."
        return {"summed": "tile", "k_tile_of_sums": "k_tile", "adds": "k_tile > 0", "about_sums": drained}
    warps = plan.loop.role(EPILOGUE).warps
    return {
        "summed": "block",
        "k_tile_of_sums": "_",
        "adds": "False",
        "about_sums": f"{warps} scale the sums of each block of K, and add them to\nothers.",
    }


def _begins_within_atoms(plan: GemmPlan) -> bool:
    """Return whether tiles of B may begin within an atom of factors."""
    return plan.cta_tile[1] % ATOM_ROWS != 0


def _factor_holes(plan: GemmPlan) -> dict[str, Any]:
    """Return the holes of factors in tensor memory."""
    first = " + first_column" if _begins_within_atoms(plan) else ""
    return {
        **factors.factor_holes(plan),
        "to_tmem": copy_of(plan.atom.ctas),
        "factor_columns": f", factors_a, factors_b{first}" if _scales_products(plan) else "",
    }


def _in_tensor_memory(x: OperandPath) -> CopiedToTmem:
    """Return the copies of factors to tensor memory."""
    copy = x.s2r.to_tmem
    assert copy is not None
    return copy


def _factor_constants(plan: GemmPlan) -> ConstantsByDecision:
    """Return where the factors of a k-tile are: descriptors of their atoms, and columns of tensor memory.

    Those of sums of blocks are where threads read them.
    """
    if _adds_blocks(plan):
        return factors.factor_constants(plan)
    settled: ConstantsByDecision = {}
    for x in factors.factors_of(plan):
        kind, copy, name = kind_of(plan.atom), _in_tensor_memory(x), constants_of(x.name)
        atoms_of_rows, stage = x.tile[0], x.smem.bytes // plan.stages // VECTOR_BYTES
        # A k-block reads words of an atom, or of the one that its factors begin in.
        assert kind.block_k is not None
        of_instruction = plan.atom.shape_mnk[2] * plan.atom.a_dtype.values // kind.block_k
        firsts = [block * of_instruction for block in range(plan.mma.k_blocks)]
        columns = tuple(first // PER_WORD * atoms_of_rows * copy.atom_columns for first in firsts)
        steps = tuple(int(step) for step in offsets_2d(copy.atoms).ravel())
        settled[f"s2r.{x.name}"] = (
            *_atoms_of_tile(plan, x, name),
            f"{name}_DESCRIPTOR = {copy.first.encode():#018x}",
            f"{name}_STEPS, {name}_STAGE_STEP = {steps}, {stage}  # of 16 bytes, to atoms and stages",
            f"FACTORS_{x.operand} = {columns}  # columns from a stage's first to those of k-blocks",
        )
    if settled:
        ids = tuple(block * of_instruction % PER_WORD for block in range(plan.mma.k_blocks))
        of_a, of_b = (plan.columns_of(x.name) for x in factors.factors_of(plan))
        settled["s2r.scale_b"] = (
            *settled["s2r.scale_b"],
            f"FACTORS_COLUMN, STAGE_COLUMNS, FACTOR_IDS = {of_a.first}, {of_b.end - of_a.first}, {ids}",
            f"SCALE_B_COLUMN = {of_b.first - of_a.first}  # of a stage",
        )
    return settled


def _atoms_of_tile(plan: GemmPlan, x: OperandPath, name: str) -> tuple[str, ...]:
    """Return the words of a tile of factors, and of a list of atoms the box that has those of a block of rows."""
    blocks, words = x.tile
    if listed_factors(plan) is None:
        return (f"{name}_TILE = {factors.tile_of(plan, x)}",)
    return (f"{name}_BOX, {name}_BOXES = ({words // ATOM_WORDS}, {ATOM_WORDS}), {blocks}  # of a stage",)


def _allocated(plan: GemmPlan) -> int:
    """Return the columns of tensor memory that a CTA allocates."""
    return columns_allocated(plan.tensor_memory[-1].end)


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedHoles:
    """Holes in the text of pipelines that one CTA has, a pair, or a cluster: how roles wait, and where they arrive.

    `wait` is for a barrier at which other CTAs arrive too. `tile_of_b` is the tile along N of B's copies.
    """

    wait: str = "cute.arch.mbarrier_wait"
    wait_for_tile: str = "cute.arch.mbarrier_wait"
    release_stage: str = "commit(empty + stage)"
    complete_sums: str = "commit(multiplied + buffer)"
    release_tile: str = "cute.arch.mbarrier_arrive(drained + buffer)"
    tile_of_b: str = "tile_n"
    first_row: str = "rank_m"
    or_its_peer: str = ""


def _shared(plan: GemmPlan) -> SharedHoles:
    """Return what roles of one CTA do alone, what those of a pair do together, and those of a cluster."""
    to_copiers = "commit_to(empty + stage, copiers)"
    if plan.atom.ctas == PAIR:
        return SharedHoles(
            wait="wait_in_cluster",
            wait_for_tile="wait_in_cluster",
            release_stage=to_copiers,
            complete_sums="commit_to(multiplied + buffer, pair)",
            release_tile="arrive_in_cluster(drained + buffer, leader)",
            tile_of_b="tile_n * 2 + rank % 2" if plan.epilogue.fusion.pairs is None else "(tile_n, rank % 2)",
            first_row="leader % CLUSTER_M",
            or_its_peer=" and its peer",
        )
    return SharedHoles(release_stage=to_copiers) if plan.mma.shares_copies else SharedHoles()


def _copy_holes(plan: GemmPlan) -> dict[str, Any]:
    """Return the holes of copies that several CTAs of a cluster receive."""
    (of_a, of_b), (along_n, along_m), paired = plan.mma.sharing, scheduler.sharers(plan), plan.atom.ctas == PAIR
    row, column = ", row_mask" if of_a > 1 else "", ", column_mask" if of_b > 1 else ""
    return {
        "masks": row + column,
        "copy_options": {
            "a": ", mcast_mask=row_mask" if row else "",
            "b": ", mcast_mask=column_mask" if column else "",
        },
        "shared_by": {
            "a": f", rank_n, {along_n}" if row else "",
            "b": f", rank_m{' // 2' if paired else ''}, {along_m}" if column else "",
        },
        "first_of_column": f"rank_n * CLUSTER_M{' + rank_m % 2' if paired else ''}",
    }


def _shared_parts(plan: GemmPlan) -> tuple[str, ...]:
    """Return the parts of stages and tensor memory that a CTA has alone, or shares with others."""
    (of_a, of_b), paired = plan.mma.sharing, plan.atom.ctas == PAIR
    multiplied = f"roles/mma_of_{'pair' if paired else 'cta'}.py.j2"
    if not plan.mma.shares_copies:
        return multiplied, "pipelines/columns_of_cta.py.j2", "pipelines/k_tiles.py.j2"
    return (
        *(("functions/waits.py.j2#arrive_in_cluster",) if paired or plan.scheduler.cuts_k else ()),
        "functions/waits.py.j2#wait_in_cluster",
        *(("schedulers/masks_of_a.py.j2",) if of_a > 1 else ()),
        *(("schedulers/masks_of_b.py.j2",) if of_b > 1 else ()),
        multiplied,
        "pipelines/columns_of_cluster.py.j2",
        "pipelines/shared_k_tiles.py.j2",
        f"pipelines/announced_by_{'leader' if paired else 'each'}.py.j2",
    )


def _commit_parts(plan: GemmPlan) -> tuple[str, ...]:
    """Return the functions by which the end of multiplications arrives: at one CTA, or at several."""
    alone = ("functions/tcgen05.py.j2#commit",) if plan.atom.ctas == 1 else ()
    return (*alone, *(("functions/tcgen05.py.j2#commit_to",) if plan.mma.shares_copies else ()))


def _copiers(plan: GemmPlan) -> tuple[str, ...]:
    """Return the masks of the CTAs that copy what one CTA, or a pair, multiplies: of the ranks 0 and what follows."""
    (m, n, _), ctas = plan.mma.cluster, plan.atom.ctas
    rows = sum(((1 << ctas) - 1) << m * i for i in range(n))
    return (f"COPIERS_OF_ROWS, COPIERS_OF_COLUMNS = {rows:#b}, {(1 << m) - 1:#b}",) if plan.mma.shares_copies else ()


def _accumulator(plan: GemmPlan) -> Pipeline:
    """Return the pipeline of tensor memory."""
    found = plan.loop.pipeline(ACCUMULATOR)
    assert found is not None
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainHoles:
    """Holes of the warps that drain tensor memory: the load of a part, its registers, and who has which sums.

    `operation`, `threads` and `permutation` make the tiled MMA by which they partition a part of C: as many columns
    at a time as one `stmatrix` stores. A buffer has `columns`, a group of warps those `of_group`, and a warp `lanes`.
    """

    ptx: str
    registers: int
    about: tuple[str, ...]
    group: str
    operation: str
    threads: str
    permutation: str
    columns: str
    of_group: str
    lanes: str


def _drain(plan: GemmPlan) -> DrainHoles:
    """Return how the sums of a part are loaded: 16-bit sums share registers."""
    assert plan.epilogue.part is not None
    sums, rows, width = plan.mma.accumulator, plan.epilogue.part[0], plan.columns_of_load
    assert sums.drain is not None
    fragments, halves = sums.atom.threads == WARP, sums.threads // sums.group_threads
    beside = halves if _adds_blocks(plan) else 1  # groups with columns of all lanes
    about: tuple[str, ...] = (
        "# Warp i reaches lanes 32 i to 32 i + 31 of tensor memory, so thread t has row t of a part.",
    )
    if fragments:
        about = ("# Warp i reaches lanes 32 i to 32 i + 15 of tensor memory: 16 rows, like the fragment of an mma.",)
    elif halves > 1:
        about = (
            "# Warp i reaches lanes 32 i to 32 i + 31 of tensor memory. Half of the columns are in the upper half",
            "# of the lanes, so that two warps have all rows of one half.",
        )
    if beside > 1:
        about = (
            "# Warp i reaches 32 lanes of tensor memory, from 32 (i mod 4) on, so a thread has a row of a part.",
            f"# Each of {beside} groups of four warps has columns side by side.",
        )
    stmatrix = plan.epilogue.stmatrix
    columns = 16 if stmatrix is not None and stmatrix.matrices == MATRICES[0] else 8
    return DrainHoles(
        ptx=sums.drain.opcode(width),
        registers=sums.registers_of(rows * width // sums.group_threads),
        about=about,
        group="0, tidx" if halves == 1 else f"tidx // {sums.group_threads}, tidx % {sums.group_threads}",
        operation="warp.MmaF16BF16Op(cutlass.Float16, cutlass.Float32, (16, 8, 16))"
        if fragments
        else "cute.nvgpu.MmaUniversalOp(cutlass.Float32)",
        threads=f"({sums.group_threads // WARP}, 1, 1)" if fragments else "(PART_M, 1, 1)",
        permutation=f", permutation_mnk=(PART_M, {columns}, 16)" if fragments else "",
        columns="CTA_N" if halves == beside else f"(CTA_N // {halves})",
        of_group="CTA_N" if beside == 1 else f"CTA_N // {beside}",
        lanes="warp_idx * (32 << 16)" if beside == 1 else f"warp_idx % 4 * (32 << 16) + group * (CTA_N // {beside})",
    )


def _settled(plan: GemmPlan) -> ConstantsByDecision:
    """Return the constants of each decision on the main loop."""
    sums, allocated = plan.mma.accumulator, _allocated(plan)
    producer, mma = (_first_warp(plan, name) for name in (PRODUCER, MMA))
    return {
        **fed_by_boxes(plan),
        "mma.atom": (
            *_instruction_constants(plan),
            f"ACCUMULATOR_DTYPE = cutlass.{plan.atom.c_dtype.dsl_name}",
            f"PRODUCER_WARP, MMA_WARP, THREADS = {producer}, {mma}, {plan.threads}",
        ),
        **({"schedule.tiles": answers} if (answers := _answers(plan)) else {}),
        "mma.promote_k": _blocks(plan),
        "epilogue.pairs": pair_constants(plan.epilogue.fusion.pairs),
        "mma.accumulator": (f"BUFFERS, COLUMNS = {sums.buffers}, {allocated}  # columns of {sums.home}",),
        "schedule.cluster": (*scheduler.cluster_constants(plan), *_copiers(plan)),
        **group_constants(plan),
        "descriptor.a": _descriptors(plan, plan.a),
        "descriptor.b": _descriptors(plan, plan.b),
        **_factor_constants(plan),
        "epilogue.smem": (
            *warpgroup.part_constants(plan),
            *((f"SUM_THREADS = {sums.threads}",) if plan.split_k else ()),
            *c_constants(plan),
        ),
        **quantized_constants(plan),
    }


def _blocks(plan: GemmPlan) -> tuple[str, ...]:
    """Return the columns that a thread loads at a time, and the bytes of factors, if it adds sums of blocks."""
    if (promotion := plan.mma.accumulator.promotion) is None:
        return ()
    apart = plan.loop.pipeline(OF_FACTORS)
    return (
        f"WAVES, WAVE_COLUMNS = {promotion.waves[1]}, {plan.mma.accumulator.block[1]}",
        *(() if apart is None else (f"FACTOR_BYTES = {apart.payload_bytes}  # of a stage",)),
    )


def _first_warp(plan: GemmPlan, name: str) -> int:
    """Return the first warp of a role: roles have consecutive warps, in order."""
    names = [role.name for role in plan.roles]
    return sum(role.warps for role in plan.roles[: names.index(name)])


def _instruction_constants(plan: GemmPlan) -> tuple[str, ...]:
    """Return the k-blocks, and the instruction: `tcgen05.mma` has a descriptor, another one its shape."""
    if plan.mma.accumulator.home is not Home.TENSOR_MEMORY:
        return (f"MMA_SHAPE, K_BLOCKS = {plan.atom.shape_mnk}, {plan.mma.k_blocks}",)
    instruction = instruction_descriptor(plan.atom, plan.a.major_mode, plan.b.major_mode).encode()
    return (f"K_BLOCKS, INSTRUCTION_DESCRIPTOR = {plan.mma.k_blocks}, 0x{instruction:X}",)


def _descriptors(plan: GemmPlan, x: OperandPath) -> tuple[str, ...]:
    """Return an operand's descriptor at address 0, and the steps to its k-blocks and stages, in units of 16 bytes."""
    described = x.s2r.described
    assert described is not None
    unswizzled = offsets_2d(inner_layout(x.smem.layout_of_one_stage))[0, :: plan.atom.shape_mnk[2]]
    steps = tuple(int(offset) * x.dtype.bytes // VECTOR_BYTES for offset in unswizzled)
    name, stage = x.name.upper(), x.smem.bytes // plan.stages // VECTOR_BYTES
    return (
        f"{name}_DESCRIPTOR = {described.first.encode():#018x}",
        f"{name}_STEPS, {name}_STAGE_STEP = {steps}, {stage}  # of 16 bytes, to k-blocks and stages",
    )
