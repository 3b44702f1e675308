"""Writes the tile scheduler: the parts of its text, what fills their holes, and its constants."""

from cutegen.plan import GemmPlan
from cutegen.plan.kernel.scheduler import SUM_VECTOR_ELEMS, SplitK
from cutegen.render.constants import ConstantsByDecision
from cutegen.render.groups import group_parts, listed_factors

_WRITERS = "schedulers/writers_of_blocks.py.j2"


def scheduler_constants(plan: GemmPlan) -> ConstantsByDecision:
    """Return the constants of the order of tiles, and of the slices of K."""
    return {
        "schedule.raster": (f"RASTER_GROUP = {plan.scheduler.order.group}",),
        **_split_constants(plan.split_k),
    }


def cluster_constants(plan: GemmPlan) -> tuple[str, ...]:
    """Return the masks; bit r is the CTA of rank r, and ranks run along M first."""
    (m, n, k), (of_a, of_b), ctas = plan.mma.cluster, plan.mma.sharing, plan.atom.ctas
    slices = f"CLUSTER_K = {k}"
    if (split := plan.split_k) is not None and split.leaves_sums:
        slices = f"CLUSTER_K, SLICE_GROUPS = {k}, {split.partials}"
    lines = (
        f"CLUSTER_M, CLUSTER_N = {m}, {n}" if (m, n) != (1, 1) and k == 1 else "",
        f"CLUSTER_M = {m}" if m > 1 and k > 1 else "",
        f"ROW_MASK = {sum(1 << m * i for i in range(of_a)):#b}" if of_a > 1 else "",
        f"COLUMN_MASK = {sum(1 << ctas * i for i in range(of_b)):#b}" if of_b > 1 else "",
        slices if k > 1 else "",
    )
    return tuple(filter(None, lines))


def sharers(plan: GemmPlan) -> tuple[str, str]:
    """Return the numbers of CTAs that share copies of A and of B, by their names in the kernel."""
    return "CLUSTER_N", "CLUSTER_M" if plan.atom.ctas == 1 else f"CLUSTER_M // {plan.atom.ctas}"


def _split_constants(split_k: SplitK | None) -> ConstantsByDecision:
    if split_k is None:
        return {}
    if split_k.atomics:
        return {"schedule.split_k": (f"SPLIT_K = {split_k.slices}",)}
    return {
        "schedule.split_k": (
            f"SPLIT_K, SLICES_IN_FLIGHT = {split_k.slices}, {split_k.in_flight}"
            if split_k.leaves_sums
            else f"SPLIT_K = {split_k.slices}",
            f"SUM_DTYPE, SUM_VECTOR = cutlass.{split_k.dtype.dsl_name}, {SUM_VECTOR_ELEMS}",
            *(("BEGUN, ARRIVED, DONE, GONE = 0, 8, 16, 24  # bits at which a counter's bytes begin",) * split_k.shared),
        )
    }


def order_parts(plan: GemmPlan) -> tuple[str, ...]:
    """Return the parts of the order of tiles."""
    zigzag = ("schedulers/zigzag.py.j2",) if plan.scheduler.order.zigzag else ()
    return ("functions/tile_order.py.j2#tile_order", *zigzag)


def grid_parts(plan: GemmPlan) -> tuple[str, ...]:
    """Return the parts that say which tiles, or which slice of one, a CTA computes, if every thread does everything."""
    if of_groups := group_parts(plan):
        return (*of_groups, "schedulers/whole_k.py.j2")
    source = plan.scheduler.source
    k = ("schedulers/ctas.py.j2", "schedulers/whole_k_tiles.py.j2", "schedulers/whole_k.py.j2")
    return (source.template, *(k if source.loops else _grid_slice_parts(plan)))


def _grid_slice_parts(plan: GemmPlan) -> tuple[str, ...]:
    """Return the parts of a CTA's only tile, or its slice of one."""
    split = plan.split_k
    if split is None:
        return "schedulers/whole_k.py.j2", "schedulers/cta_of_a_tile.py.j2"
    slices = "schedulers/slices_of_a_tile.py.j2"
    if split.atomics:
        return slices, "schedulers/atomics.py.j2"
    converted = ("schedulers/converted_sums.py.j2",) if split.dtype.name != plan.atom.c_dtype.name else ()
    return (slices, "schedulers/workspace.py.j2", "schedulers/last_cta_adds.py.j2", *converted)


def persistent_parts(plan: GemmPlan) -> tuple[str, ...]:
    """Return the parts that say which tiles, and which k-tiles of them, a persistent CTA computes."""
    if of_groups := group_parts(plan):
        clustered = "schedulers/clusters_of_groups.py.j2", _WRITERS
        places = clustered if plan.mma.shares_copies else ("schedulers/ctas_of_groups.py.j2",)
        k = "of_each_group" if plan.scheduler.cuts_k else "of_all_groups"
        if plan.k_vector > 1:
            k = "from_vectors"
        at_vectors = ("schedulers/groups_from_vectors.py.j2",) if plan.scheduler.vector > 1 else ()
        atoms = ("schedulers/atoms_of_each_group.py.j2",) if listed_factors(plan) is not None else ()
        return (*of_groups, *places, f"schedulers/k_tiles_{k}.py.j2", *at_vectors, *atoms)
    return (plan.scheduler.source.template, *_place_parts(plan))


def _place_parts(plan: GemmPlan) -> tuple[str, ...]:
    """Return the parts of the place of a persistent CTA among the others."""
    m, _, k = plan.mma.cluster
    if plan.scheduler.source.takes_over:
        return ("schedulers/whole_k_tiles.py.j2",)
    place: tuple[str, ...]
    if plan.mma.shares_copies:
        place = ("schedulers/clusters_of_slices.py.j2",) if k > 1 else ("schedulers/clusters.py.j2", _WRITERS)
    elif k > 1:
        place = ("schedulers/clusters_along_k.py.j2",)
    else:
        place = ("schedulers/every_second_sm.py.j2" if plan.launch.spread else "schedulers/ctas.py.j2",)
    if plan.split_k is None:
        block = ("schedulers/blocks_of_tiles.py.j2",) if plan.mma.shares_copies else ()
        return (*place, *block, "schedulers/whole_k_tiles.py.j2")
    along_m = ("schedulers/tiles_along_m.py.j2",) if m > 1 else ()
    launch = ("schedulers/slices_in_clusters.py.j2",) if plan.mma.cluster != (1, 1, 1) else ()
    return (*place, *along_m, *launch)


def slice_parts(plan: GemmPlan) -> tuple[str, ...]:
    """Return the parts that add the slices of K, in a cluster, in a workspace, or in both."""
    split, (m, _, k) = plan.split_k, plan.mma.cluster
    if split is None:
        return ("schedulers/all_parts.py.j2",)
    converts = _converts_sums(plan)
    rank = ("schedulers/rank_of_slice.py.j2",) if plan.mma.shares_copies else ()
    in_cluster = "schedulers/sums_in_cluster.py.j2", *rank, *(("schedulers/converted_share.py.j2",) if converts else ())
    converted = ("schedulers/converted_tile.py.j2",) if converts and k == 1 else ()
    owned = ("schedulers/owned_shares.py.j2",) if (m, k) != (1, 1) else ()
    left = "schedulers/workspace.py.j2", "schedulers/ctas_add.py.j2", *converted, *owned
    return (
        "schedulers/slices_of_k_tiles.py.j2",
        *(in_cluster if k > 1 else ()),
        *(left if split.leaves_sums else ("schedulers/share_of_parts.py.j2",)),
    )


def order_holes(plan: GemmPlan) -> dict[str, str]:
    """Return the names of the mode along which the order's bands lie, and of the other one."""
    along = plan.scheduler.order.along
    return {"along": along, "across": "m" if along == "n" else "n"}


def grid_holes(plan: GemmPlan) -> dict[str, str]:
    """Return the holes of a grid of CTAs that compute one tile each, or a slice of one, and of its workspace."""
    return {
        "ctas_of_a_tile": "one CTA" if plan.split_k is None else "SPLIT_K CTAs",
        "tile_parameters": "",
        "of_share": "",
        "sum_threads": "THREADS",
        "slices_left": "SPLIT_K",
        "checked_tiles": "-(-m // CTA_M) * -(-n // CTA_N)",
        "sums_of_tile": "SPLIT_K",
        "counters_of_tiles": "tiles",
    }


def persistent_holes(plan: GemmPlan) -> dict[str, str]:
    """Return the holes of a grid of persistent CTAs, and the head of a producer's loop over their tiles."""
    step = "clusters" if plan.mma.shares_copies else "ctas"
    return {
        "ctas": step,
        "fills": "launches a CTA for each tile"
        if plan.scheduler.source.takes_over
        else "fills the GPU with one CTA per SM, or fewer for few tiles",
        "tiles_of_producer": _head(plan, "first_tile", step),
        "past_k": str(_past_k(plan)),
        "grid_y": "1" if plan.split_k is None else "SPLIT_K",
        "slices_of_tile": "" if plan.split_k is None else "SPLIT_K * ",
    }


def _past_k(plan: GemmPlan) -> int:
    """Return the first k-tile that has nothing of a K that is 0: no element of A and B, and no factor of a block.

    The tensor map of an empty matrix has one element.
    """
    return max(1, *(x.block[1] // plan.cta_tile[2] for x in plan.operands))


def each_tile(plan: GemmPlan, tile: str = "tile") -> dict[str, str]:
    """Return the head and the begin of the loop over a role's tiles; two warpgroups may have every other one each."""
    step = "clusters" if plan.mma.shares_copies else "ctas"
    in_turn = plan.mma.role.alternates and not plan.scheduler.cuts_k  # else each looks at the other one's tiles too
    first, step = (f"first_tile + group * {step}", f"2 * {step}") if in_turn else ("first_tile", step)
    return {"each_tile": _head(plan, first, step, tile), "first_and_step": f"{first}, {step}"}


def _head(plan: GemmPlan, first: str, step: str, tile: str = "tile") -> str:
    """Return the head of a loop over numbers of tiles; searched ones, or those taken over, end where none is left."""
    if plan.scheduler.source.searched or plan.scheduler.source.takes_over:
        return "while tile < tiles"
    return f"for {tile} in cutlass.range({first}, tiles, {step}, unroll=1)"


def sum_holes(plan: GemmPlan) -> dict[str, object]:
    """Return the names of the tensor core's sums on their way to the epilogue, if slices are added.

    `owned` are the number of a CTA's tile, or of its share, within one result, and their count, if these are not the
    CTA's tiles.
    """
    (m, _, k), accumulators = plan.mma.cluster, "tCrR" if _converts_sums(plan) else "tCrC"
    tile, tiles = ("tile * CLUSTER_M + rank_m", "tiles * CLUSTER_M") if m > 1 else ("tile", "tiles")
    factor = f"({tile})" if m > 1 else tile
    owned = f"{factor} * CLUSTER_K + rank_k, {tiles} * CLUSTER_K" if k > 1 else f"{tile}, {tiles}"
    parts = "PARTS // CLUSTER_K" if k > 1 else "PARTS"
    pairs = plan.epilogue.fusion.pairs
    part = "part" if pairs is None or pairs.of == "m" else "(part + row * PARTS_N)"
    one, of = ("own", "owned") if (m, k) != (1, 1) else ("tile", "tiles")
    return {
        "accumulators": accumulators,
        "tile_parameters": ", tile: Int32, tiles: Int32",
        "of_share": " // CLUSTER_K" if k > 1 else "",
        "added": "share" if k > 1 else "tile",
        "adders": "clusters" if k > 1 else "slices",
        "sums_left": "tCrX" if k > 1 else accumulators,
        "slices_left": "SLICE_GROUPS" if k > 1 else "SPLIT_K",
        "part_begin": "tCrX.iterator + share_part" if k > 1 else f"{accumulators}.iterator + {part}",
        "owned": owned,
        "counted": f"{one}, {of}",
        "counter": f"counters + (Int64(batch) * {of} + {one})",
        "added_part": "share_part" if k > 1 else "part",
        "parts_of_cta": parts,
        "parts_to_add": f"{parts} * (SUM_THREADS // 128)",
    }


def cluster_holes(plan: GemmPlan) -> dict[str, str]:
    """Return the host's expressions for a result's clusters if K is split, the CTAs of one, and its extents."""
    m, _, k = plan.mma.cluster
    along_m = "cute.ceil_div(m, CTA_M * CLUSTER_M)" if m > 1 else "cute.ceil_div(m, CTA_M)"
    ctas = {(True, False): "CLUSTER_M", (False, True): "CLUSTER_K", (True, True): "(CLUSTER_M * CLUSTER_K)"}
    return {
        "cluster_tiles": f"{along_m} * cute.ceil_div(n, CTA_N)",
        "cluster_ctas": ctas.get((m > 1, k > 1), ""),
        "cluster_extents": f"({'CLUSTER_M' if m > 1 else 1}, {'CLUSTER_K' if k > 1 else 1}, 1)",
        "launched_ctas": "clusters * CLUSTER_M" if m > 1 else "clusters",
        "checked_tiles": f"-(-m // {'(CTA_M * CLUSTER_M)) * CLUSTER_M' if m > 1 else 'CTA_M)'} * -(-n // CTA_N)",
        "sums_of_tile": "SLICE_GROUPS" if k > 1 else "SPLIT_K",
        "counters_of_tiles": "tiles * CLUSTER_K" if k > 1 else "tiles",
    }


def _converts_sums(plan: GemmPlan) -> bool:
    """Return whether stored sums of slices have another type than the tensor core's sums."""
    return plan.split_k is not None and plan.split_k.dtype is not plan.atom.c_dtype
