"""Writes the tile scheduler of groups: the parts of its text, and what fills their holes."""

from collections.abc import Mapping
from dataclasses import dataclass

from cutegen.contract.launch import OPERANDS, RESULT, TensorContract
from cutegen.contract.problem import Groups
from cutegen.hardware.factor_atoms import ATOM_BYTES, NAN_WORDS
from cutegen.plan import GemmPlan
from cutegen.plan.schedule.groups import KEY
from cutegen.plan.values.path import OperandPath
from cutegen.render.constants import ConstantsByDecision
from cutegen.render.epilogue import title
from cutegen.render.pairs import pair_holes

_OTHER = {"m": "n", "n": "m"}
PAST_ATOMS = 1 << 30
"""The number of an atom of factors that no memory of a GPU has."""


@dataclass(frozen=True, slots=True)
class PackedTensor:
    """A tensor that has the groups one after another: `begin` are the coordinates of the group's first element."""

    title: str
    begin: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupHoles:
    """Names and expressions of the scheduler for the mode `of` groups.

    `tiles` are those of the group of a lane, `ctas` those of a launch, `cta` is a CTA's number and their number on the
    device, and `threads` of it clear. What no group has begins at `rest`. To clear C: one group's `matrix`, the `other`
    mode, the type of an element's `bits`, the ranges of its two modes, the contiguous one inside, and an element's
    `place`.
    """

    of: str
    tiles: str
    packed: tuple[PackedTensor, ...]
    ctas: str
    cta: str
    threads: str
    rest: str = ""
    matrix: str = ""
    other: str = ""
    bits: str = ""
    across_first: str = "0"
    across_last: str = "extent"
    along_first: str = "0"
    along_last: str = "extent"
    place: str = ""


def group_parts(plan: GemmPlan) -> tuple[str, ...]:
    """Return the parts that find the groups' tiles, and set what no group has to 0; nothing without groups."""
    groups = plan.scheduler.groups
    if groups is None:
        return ()
    scheduler, layout = plan.scheduler.source.template, f"schedulers/{groups.layout}_groups.py.j2"
    parts = ("functions/lanes.py.j2#sum_of_lanes", scheduler, layout)
    if not groups.leaves_elements:
        return parts
    past_ends = ("schedulers/clear_past_ends.py.j2",) if groups.layout == "packed" else ()
    return (*parts, "schedulers/clear.py.j2", *past_ends)


def group_holes(plan: GemmPlan, c_shape: str, c_stride: str) -> dict[str, GroupHoles]:
    """Return the holes of the scheduler of groups; `c_shape` and `c_stride` are C's. Nothing without groups."""
    groups = plan.scheduler.groups
    if groups is None:
        return {}
    of, tensors = groups.of, plan.launch.tensors
    packed = tuple(PackedTensor(title(x.name), _begin(x, of)) for x in tensors if groups.packs(x.modes))
    sides = {mode: f"cute.ceil_div({mode}, CTA_{mode.upper()})" for mode in "mn"}
    resident, in_cluster = plan.scheduler.resident, "CLUSTER_M * CLUSTER_N"
    holes = GroupHoles(
        of=of,
        tiles=f"Int32(first_group + cute.arch.lane_idx() < groups) * {sides['m']} * {sides['n']}",
        packed=packed,
        ctas="multiprocessors" if resident == 1 else f"{resident} * multiprocessors",
        cta=(
            f"first_tile * {in_cluster} + rank, clusters * {in_cluster}"
            if plan.mma.shares_copies
            else "first_tile, ctas"
        ),
        threads=f"{plan.loop.storing.threads}" if plan.scheduler.source.searched else "THREADS",
        rest="last_end" if groups.layout == "packed" else "size_of(ends[batch], room)",
    )
    return {"grouped": holes if of == "k" else _clearing(plan, holes, sides, c_shape, c_stride)}


def _clearing(plan: GemmPlan, holes: GroupHoles, sides: dict[str, str], c_shape: str, c_stride: str) -> GroupHoles:
    """Return the holes of groups of rows or columns, which leave a part of C."""
    of, other, c = holes.of, _OTHER[holes.of], plan.launch.tensor(RESULT)
    rest, inner = ("first", "last"), c.major == of
    across, along = (("0", "extent"), rest) if inner else (rest, ("0", "extent"))
    names = ("along", "across") if inner else ("across", "along")
    return GroupHoles(
        of=of,
        tiles=f"cute.ceil_div(stops - begins, CTA_{of.upper()}) * {sides[other]}",
        packed=holes.packed,
        ctas=holes.ctas,
        cta=holes.cta,
        threads=holes.threads,
        rest=holes.rest,
        matrix=f"matrix_of_batch(c, {c_shape}, {c_stride}, batch_stride_c, batch, batches)",
        other=plan.epilogue.fusion.modes["mn".index(other)],
        bits=f"Int{plan.epilogue.dtype.bits}",
        across_first=across[0],
        across_last=across[1],
        along_first=along[0],
        along_last=along[1],
        place=", ".join(names if of == "m" else names[::-1]),
    )


def group_constants(plan: GemmPlan) -> ConstantsByDecision:
    """Return the constant of groups along the contiguous mode of an operand, whose boxes begin at vectors."""
    if plan.scheduler.vector > 1:
        return {KEY: (f"GROUP_VECTOR = {plan.scheduler.vector}  # elements, at whose multiples boxes begin",)}
    vector = (f"K_VECTOR = {plan.k_vector}  # elements, at whose multiples boxes begin",) if plan.k_vector > 1 else ()
    return {KEY: lines} if (lines := (*vector, *_atom_constants(plan))) else {}


def _atom_constants(plan: GemmPlan) -> tuple[str, ...]:
    """Return the constants of groups of K with atoms of factors: a place past all, and a word of NaN."""
    if (listed := listed_factors(plan)) is None:
        return ()
    nan = (f"NAN_FACTORS = {NAN_WORDS[listed.dtype.name]:#x}",) if plan.k_vector > 1 else ()
    return (
        f"K_ATOM = {listed.block[1]}  # elements of K of an atom of factors",
        f"PAST_ATOMS = 1 << {PAST_ATOMS.bit_length() - 1}  # as many have {PAST_ATOMS * ATOM_BYTES >> 30} GiB",
        *nan,
    )


def listed_factors(plan: GemmPlan) -> OperandPath | None:
    """Return the path of factors whose atoms are a list, by the groups of K that they are of, if there are any."""
    groups = plan.scheduler.groups
    if groups is None:
        return None
    return next((x for x in plan.operands if plan.launch.tensor(x.name).lists(groups)), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstHoles:
    """Holes of stores by vectors that leave out what a tile has before its group; without any they store all of it."""

    parameter: str = ""
    passed: str = ""
    said: str = ""
    others: str = ""
    of_vector: str = ""
    of_element: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchHoles:
    """Names and expressions of roles that find their tiles among those of groups, and of copies that begin where a
    group does.

    `across` are the tiles of the modes that groups do not have, `tiles` those of a lane's group, `grid` those of one
    group along M and N. `counted` are what is numbered beside tiles. `boxes` are the coordinates of a tensor's matrix,
    `c` is C, and `whole_part` tells whether all of a part is the group's; `first` are those of the rest.
    """

    across: str
    tiles: str
    grid: str
    boxes: Mapping[str, str]
    c: str = ""
    whole_part: str = ""
    first: FirstHoles = FirstHoles()
    counted: str = ""


def search_holes(plan: GemmPlan, c: str) -> dict[str, SearchHoles]:
    """Return the holes of roles that search; `c` is the expression of a group's C. Nothing if none do."""
    groups = plan.scheduler.groups
    if groups is None or not plan.scheduler.source.searched:
        return {}
    of, sides = groups.of, _tiles_along(plan)
    return {
        "searched": SearchHoles(
            across=" * ".join(side for mode, side in sides.items() if mode != of),
            tiles=(
                "Int32(first_group + cute.arch.lane_idx() < groups) * across"
                if of == "k"
                else f"{_tiles_along(plan, **{of: _extent(plan)})[of]} * across"
            ),
            grid=", ".join(sides.values()),
            boxes={
                each.name: _boxes(plan, groups, each)
                for each in plan.launch.tensors
                if each.name in (*OPERANDS, RESULT)
            },
            c=c,
            whole_part="" if of == "k" else _whole_part(plan, groups),
            first=_first(plan, groups),
            counted="" if listed_factors(plan) is None else ", first_atoms, atoms",
        )
    }


def _whole_part(plan: GemmPlan, groups: Groups) -> str:
    """Return the test that all of a part of C is the group's, and that a box may begin there."""
    of, step = groups.of, plan.epilogue.box_step(groups)
    whole = f"(part_{of} + 1) * PART_{of.upper()} <= {of}"
    if plan.scheduler.vector > 1:
        whole = f"part_{of} * PART_{of.upper()} >= before and {whole}"
    return whole if step == 1 else f"begin % {step} == 0 and {whole}"


def _first(plan: GemmPlan, groups: Groups) -> FirstHoles:
    """Return the holes of stores of what is a group's, of a part that may begin before it."""
    if plan.scheduler.vector == 1:
        return FirstHoles()
    at = "mn".index(groups.of)
    return FirstHoles(
        parameter=", before: Int32",
        passed=", before",
        said=", or before `before`",
        others="precedes or ",
        of_vector=f" and tDcC[last, i, j][{at}] >= before",
        of_element=f" and tDcC[v, i, j][{at}] >= before",
    )


def _extent(plan: GemmPlan) -> str:
    """Return the extent of a lane's group, from the vector on at which its tiles begin."""
    if plan.scheduler.vector == 1:
        return "stops - begins"
    return "(stops - begins + begins % GROUP_VECTOR) * Int32(stops > begins)"


def _tiles_along(plan: GemmPlan, **extents: str) -> dict[str, str]:
    """Return the expressions of the tiles along M and N, or of the blocks of a cluster's tiles, in given `extents`."""
    clusters = dict(zip("mn", plan.mma.cluster[:2], strict=True))
    tiles = {x: f"CTA_{x.upper()}{f' * CLUSTER_{x.upper()}' if clusters[x] > 1 else ''}" for x in "mn"}
    return {mode: f"cute.ceil_div({extents.get(mode, mode)}, {tile})" for mode, tile in tiles.items()}


def _boxes(plan: GemmPlan, groups: Groups, tensor: TensorContract) -> str:
    """Return the coordinates in its tensor map of a matrix that packs groups, from a group's begin on, or of each."""
    packs = groups.packs(tensor.modes)
    if tensor.name in OPERANDS and not packs:
        return pair_holes(plan).coordinates[tensor.name]
    modes = tuple("room" if packs and mode == groups.of else mode for mode in tensor.modes)
    coordinates = f"map_coordinates(({', '.join(modes)}, {1 if packs else 'batches'}), {tensor.name.upper()}_MAJOR)"
    if not packs:
        return coordinates
    begin = ", ".join("begin" if mode == groups.of else "0" for mode in tensor.modes)
    return f"cute.domain_offset(({begin}, 0), {coordinates})"


@dataclass(frozen=True, slots=True)
class RestHoles:
    """Holes of what sets the rest of a k-tile to 0: the `threads` that multiply `what`, which then `meet`.

    `thread` is the number of one among them. A tile of a lane's group has K `of_lane`. They store elements of `a` and
    `b`, or eight bytes at a time along their rows, from `cleared` on. Of the `k_tiles` multiplied at a time, the last
    may be such a rest.
    """

    a: str
    b: str
    what: str
    thread: str
    threads: str
    meet: str
    of_lane: str = "stops - begins"
    k_tiles: str = "k_tiles"
    cleared: str = "rest"


def cleared(plan: GemmPlan) -> dict[str, str]:
    """Return the stages of A and B by the words of which threads set the rest of a k-tile to 0."""
    return {
        x.name: f"s{x.name.upper()}" if x.major == "k" else f"cute.recast_tensor(s{x.name.upper()}, Int64)"
        for x in plan.operands
        if x.is_multiplied
    }


def batches_of(plan: GemmPlan) -> dict[str, str]:
    """Return which of its matrices a tile copies, or stores: of the batch, of its group, or the only one."""
    groups, tensors = plan.scheduler.groups, plan.launch.tensors
    return {x.name: "0" if groups is not None and groups.packs(x.modes) else "batch" for x in tensors}


def begin_of(plan: GemmPlan, tensor: TensorContract) -> str:
    """Return where a group begins in a tensor that has them one after another; "" for any other."""
    groups = plan.scheduler.groups
    return _begin(tensor, groups.of) if groups is not None and groups.packs(tensor.modes) else ""


def _begin(tensor: TensorContract, of: str) -> str:
    """Return where a group begins in a tensor; a vector has the two modes of C."""
    modes = tensor.modes if len(tensor.modes) == 2 else ("m", "n")
    return f"({', '.join('begin' if mode == of else '0' for mode in modes)})"
