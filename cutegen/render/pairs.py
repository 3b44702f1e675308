"""Pairs of columns as code: B's columns with a mode for the members, and a vector of them for each member.

C has `p` columns. Those of B are `(p, 2)`, or `((PAIR_COLUMNS, p // PAIR_COLUMNS), 2)` if several of a member follow
one another: the same shape for every order in memory, with other strides. In a kernel that multiplies B by A they are
rows of A, and of C.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from cutegen.contract.launch import RESULT
from cutegen.contract.problem import Pairs
from cutegen.plan import GemmPlan
from cutegen.plan.values.path import OperandPath
from cutegen.render.epilogue import MEMBERS, members_in_order
from cutegen.render.tensors import TensorHoles, extents_of


@dataclass(frozen=True, slots=True, kw_only=True)
class PairHoles:
    """Holes of a kernel whose C has the extent `rows, columns`, and `rows_of_tile` of it in a tile.

    `coordinates` are those of A and B in their tensor maps, `tile` are a CTA's rows of each. The sums of a tile's
    `first` half and of its `second` are `apart` parts from one another; `p` counts the pairs, of which `counted` tells
    more, and `checked` counts them on the host. `title` is that of the operand that has them. C has `tile_of_c` of a
    tile, `contiguous` elements of a row or column, and a thread has `sums_of_thread`.
    """

    rows: str = "m"
    columns: str = "n"
    rows_of_tile: str = "CTA_M"
    coordinates: Mapping[str, str]
    tile: Mapping[str, str]
    first: str = "x"
    second: str = "y"
    apart: str = ""
    title: str = ""
    tile_of_c: str = "(CTA_M, CTA_N)"
    contiguous: str
    sums_of_thread: str = "tCgC.shape"
    p: str = ""
    counted: str = ""
    checked: str = ""
    about: str = ""


_ROWS = {"a": "m", "b": "n"}
"""The mode of an operand's rows."""


def pair_holes(plan: GemmPlan) -> PairHoles:
    """Return what the templates write for C's extent, and for A and B."""
    coordinates = {x: f"map_coordinates(({rows}, k, batches), {x.upper()}_MAJOR)" for x, rows in _ROWS.items()}
    tile = {x: f"CTA_{rows.upper()}" for x, rows in _ROWS.items()}
    if plan.atom.ctas > 1:  # each CTA copies its share of B
        tile["b"] += f" // {plan.atom.ctas}"
    pairs = plan.epilogue.fusion.pairs
    if pairs is None:
        return PairHoles(coordinates=coordinates, tile=tile, contiguous=plan.epilogue.major)
    shape, x, title = f"({_shape(pairs, 'p')}, 2)", pairs.operand, pairs.operand.upper()
    row_major = plan.operand(x).major == pairs.of
    first, second = members_in_order(pairs)
    rows, columns = plan.epilogue.fusion.modes
    along, other = ("column", "row") if pairs.of == "m" else ("row", "column")
    coordinates[x] = (
        f"pair_coordinates({shape}, k, batches)"
        if row_major
        else f"map_coordinates(({shape}, k, batches), {title}_MAJOR)"
    )
    # Of CTAs that multiply together, each has the columns of one member.
    tile[x] = f"({_shape(pairs, f'CTA_{pairs.of.upper()} // 2')}, {2 // plan.atom.ctas})"
    return PairHoles(
        title=title,
        tile_of_c="(CTA_M // 2, CTA_N)" if pairs.of == "m" else "(CTA_M, CTA_N // 2)",
        contiguous=plan.launch.tensor(RESULT).major,
        sums_of_thread="tiled_mma.partition_shape_C((CTA_M, CTA_N))",
        rows=rows,
        columns=columns,
        rows_of_tile="CTA_M // 2" if pairs.of == "m" else "CTA_M",
        coordinates=coordinates,
        tile=tile,
        first=first,
        second=second,
        apart="PARTS" if pairs.of == "m" else "PARTS_N",
        p=f"cute.assume({pairs.of} // 2, divby={title}_ALIGN_ELEMS)" if row_major else f"{pairs.of} // 2",
        counted=f"{other}s of C: one for each pair of {title}'s",
        checked=f"{pairs.of} // 2",
        about=f"A {along} of sums has all {other}s of one member of the pairs, and then as many of the other",
    )


def _shape(pairs: Pairs, columns: str) -> str:
    """Return the shape of a member's columns."""
    if pairs.width in (None, 1):
        return columns
    return f"(PAIR_COLUMNS, {columns} // PAIR_COLUMNS)"


def _stride(pairs: Pairs, unit: str) -> tuple[str, str]:
    """Return the stride of a member's columns, and of the members, for a column's stride `unit`, "1" or a name."""
    times = "" if unit == "1" else f" * {unit}"
    if pairs.width is None:
        return unit, f"p{times}"
    if pairs.width == 1:
        return f"2{times}", unit
    return f"({unit}, 2 * PAIR_COLUMNS{times})", f"PAIR_COLUMNS{times}"


def tensors_of_pairs(plan: GemmPlan, tensors: list[TensorHoles]) -> list[TensorHoles]:
    """Return the holes of a kernel's tensors, with a mode for the members and a vector for each, if it has pairs."""
    if (pairs := plan.epilogue.fusion.pairs) is None:
        return tensors
    found: list[TensorHoles] = []
    for x in tensors:
        if x.name == pairs.operand:
            found.append(matrix_of_pairs(x, pairs, plan.operand(x.name).major))
        elif x.along == pairs.of:
            found += vectors_of_members(x, pairs)
        else:
            found.append(x)
    return found


def matrix_of_pairs(x: TensorHoles, pairs: Pairs, major: str) -> TensorHoles:
    """Return the holes of the operand that has them, with a mode for the members among its columns."""
    leading = f"ld{pairs.operand}"
    columns, members = _stride(pairs, "1" if major == pairs.of else leading)
    of_k = leading if major == pairs.of else "1"
    return replace(x, shape=f"(({_shape(pairs, 'p')}, 2), k)", stride=f"(({columns}, {members}), {of_k})")


def extents_of_members(x: OperandPath) -> str:
    """Return the extents of factors with a mode for the members of pairs, each with its blocks."""
    (mode, k), (rows, of_k) = x.modes, x.block
    return f"(({mode} // {2 * rows}, 2), {extents_of((k,), (of_k,), x.block_elems)[1:-1]})"


def matrix_of_members(x: TensorHoles, factors: OperandPath) -> TensorHoles:
    """Return the holes of K-major factors with a mode for the members of pairs, each with its blocks."""
    blocks = f"{factors.modes[0]} // {2 * factors.block[0]}"
    return replace(x, shape=extents_of_members(factors), stride=f"((ld{x.name}, {blocks} * ld{x.name}), 1)")


def vectors_of_members(x: TensorHoles, pairs: Pairs) -> tuple[TensorHoles, TensorHoles]:
    """Return the holes of a vector along the mode of the pairs for the gates and for the ups."""
    unit = x.stride.strip("()").split(", ")["mn".index(pairs.of)]
    columns, members = _stride(pairs, unit)
    shape, stride = (f"m, {_shape(pairs, 'p')}", f"0, {columns}")
    if pairs.of == "m":
        shape, stride = (f"{_shape(pairs, 'p')}, n", f"{columns}, 0")
    made = replace(x, shape=f"({shape})", stride=f"({stride})")
    second = replace(made, pointer=f"{x.name} + {members}")
    gate, up = (made, second) if pairs.first == "gate" else (second, made)
    return gate, replace(up, title=f"{x.title}{MEMBERS['up'].upper()}")


def pair_constants(pairs: Pairs | None) -> tuple[str, ...]:
    """Return the constant of the columns of a member that follow one another, if there is one."""
    if pairs is None or pairs.width in (None, 1):
        return ()
    return (f"PAIR_COLUMNS = {pairs.width}  # of each member in turn",)
