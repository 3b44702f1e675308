"""Writes the tile scheduler of groups: the parts of its text, and what fills their holes."""

from __future__ import annotations

from dataclasses import dataclass

from cutegen.contract.launch import RESULT, TensorContract
from cutegen.plan import GemmPlan
from cutegen.render.epilogue import title

_OTHER = {"m": "n", "n": "m"}


@dataclass(frozen=True, slots=True)
class PackedTensor:
    """A tensor that has the groups one after another: `begin` are the coordinates of the group's first element."""

    title: str
    begin: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupHoles:
    """Names and expressions of the scheduler for the mode `of` groups.

    `tiles` are those of the group of a lane, `ctas` those of a launch. To clear C: one group's `matrix`, the `other`
    mode, the type of an element's `bits`, the ranges of its two modes, the contiguous one inside, and an element's
    `place`.
    """

    of: str
    tiles: str
    packed: tuple[PackedTensor, ...]
    ctas: str
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
    parts = (plan.scheduler.source.template, f"schedulers/{groups.layout}_groups.py.j2")
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
    resident = plan.scheduler.resident
    holes = GroupHoles(
        of=of,
        tiles=f"Int32(first_group + cute.arch.lane_idx() < groups) * {sides['m']} * {sides['n']}",
        packed=packed,
        ctas="multiprocessors" if resident == 1 else f"{resident} * multiprocessors",
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
        matrix=f"matrix_of_batch(c, {c_shape}, {c_stride}, batch_stride_c, batch, batches)",
        other=other,
        bits=f"Int{plan.epilogue.dtype.bits}",
        across_first=across[0],
        across_last=across[1],
        along_first=along[0],
        along_last=along[1],
        place=", ".join(names if of == "m" else names[::-1]),
    )


def _begin(tensor: TensorContract, of: str) -> str:
    """Return where a group begins in a tensor; a vector has the two modes of C."""
    modes = tensor.modes if len(tensor.modes) == 2 else ("m", "n")
    return f"({', '.join('begin' if mode == of else '0' for mode in modes)})"
