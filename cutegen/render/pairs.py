"""Pairs of columns as code: B's columns with a mode for the members, and a vector of them for each member.

C has `p` columns. Those of B are `(p, 2)`, or `((PAIR_COLUMNS, p // PAIR_COLUMNS), 2)` if several of a member follow
one another: the same shape for every order in memory, with other strides.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from cutegen.contract.pairs import Pairs
from cutegen.plan import GemmPlan
from cutegen.render.chain import MEMBERS, members_in_order
from cutegen.render.tensors import TensorHoles


@dataclass(frozen=True, slots=True, kw_only=True)
class PairHoles:
    """Holes of a kernel whose C has `columns`; `coordinates` are B's in its tensor map, `tile` is the CTA's of them.

    `first` and `second` are the sums of a tile's first half and of its second.
    """

    columns: str
    coordinates: str
    tile: str
    first: str = "x"
    second: str = "y"
    p: str = "n // 2"


def pair_holes(plan: GemmPlan) -> PairHoles:
    """Return what the templates write for C's columns, and for B's."""
    pairs = plan.epilogue.fusion.pairs
    if pairs is None:
        return PairHoles(columns="n", coordinates="map_coordinates((n, k, batches), B_MAJOR)", tile="CTA_N")
    shape = f"({_shape(pairs, 'p')}, 2)"
    n_major = plan.b.major == "n"
    first, second = members_in_order(pairs)
    return PairHoles(
        columns="p",
        coordinates=f"pair_coordinates({shape}, k, batches)"
        if n_major
        else f"map_coordinates(({shape}, k, batches), B_MAJOR)",
        tile=f"({_shape(pairs, 'CTA_N // 2')}, 2)",
        first=first,
        second=second,
        p="cute.assume(n // 2, divby=B_ALIGN_ELEMS)" if n_major else "n // 2",
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


def matrix_of_pairs(x: TensorHoles, pairs: Pairs, major: str) -> TensorHoles:
    """Return B's holes, with a mode for the members among its columns."""
    columns, members = _stride(pairs, "1" if major == "n" else "ldb")
    of_k = "ldb" if major == "n" else "1"
    return replace(x, shape=f"(({_shape(pairs, 'p')}, 2), k)", stride=f"(({columns}, {members}), {of_k})")


def vectors_of_members(x: TensorHoles, pairs: Pairs) -> tuple[TensorHoles, TensorHoles]:
    """Return the holes of a vector along N for the gates and for the ups."""
    unit = x.stride.strip("()").split(", ")[1]
    columns, members = _stride(pairs, unit)
    made = replace(x, shape=f"(m, {_shape(pairs, 'p')})", stride=f"(0, {columns})")
    second = replace(made, pointer=f"{x.name} + {members}")
    gate, up = (made, second) if pairs.first == "gate" else (second, made)
    return gate, replace(up, title=f"{x.title}{MEMBERS['up'].upper()}")


def pair_constants(pairs: Pairs | None) -> tuple[str, ...]:
    """Return the constant of the columns of a member that follow one another, if there is one."""
    if pairs is None or pairs.width in (None, 1):
        return ()
    return (f"PAIR_COLUMNS = {pairs.width}  # of each member in turn",)
