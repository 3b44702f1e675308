"""Fills the parts of a kernel that scales the sums of blocks of K by factors of A and B."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cutegen.algebra import Layout
from cutegen.plan import GemmPlan
from cutegen.plan.kernel.program import Action
from cutegen.plan.operands.factors import most_blocks
from cutegen.plan.values.path import OperandPath
from cutegen.render import epilogue
from cutegen.render.constants import ConstantsByDecision
from cutegen.render.groups import batches_of, begin_of, listed_factors
from cutegen.render.pairs import extents_of_members
from cutegen.render.python_text import constant
from cutegen.render.tensors import extents_of, tensor_holes

K_TILES = ("k_tile", "first_k_tile", "first_k_tile + each")
"""The k-tiles whose factors templates copy."""


@dataclass(frozen=True, slots=True)
class FactorHoles:
    """Holes of the factors of A or B: each block is of `rows` x `of_k` elements, rows along `mode`.

    Those that lanes copy lie at `pointer`, with `stride`; a tile of C needs `needed` of each of the `members` of pairs.
    `places` is the call that finds those of a thread's sums, `of_sums` the tensor and the places to read them from:
    those of rows are held. A stage `holds` words or factors. The box of factors of a tile of C begins at the block
    `first` of the matrix `batch`. Along K the box of each of `K_TILES` begins as `along_k` says, and has the k-tile's
    own at `column`. One of `copies` begins at such a block of rows, and has a place before that of the stage. The CTAs
    of a cluster whose `mask` the copy has receive it from the one that is `first_of_cluster`.
    """

    name: str
    title: str
    constants: str
    side: str
    mode: str
    extents: str
    rows: int
    of_k: int
    places: str
    of_sums: str
    first: str
    copies: tuple[tuple[str, str], ...]
    batch: str
    along_k: Mapping[str, str]
    column: str
    holds: str
    first_of_cluster: str
    mask: str
    pointer: str
    stride: str
    members: int
    needed: int


def scales(plan: GemmPlan) -> bool:
    """Return whether a kernel scales sums of blocks of K."""
    return bool(factors_of(plan))


def factor_parts(plan: GemmPlan) -> tuple[str, ...]:
    """Return the parts of the factors' copies and of the threads that read them, if there are any."""
    if not scales(plan):
        return ()
    in_boxes = [_in_boxes(x) for x in factors_of(plan)]
    return (
        *copy_parts(plan),
        *(("pipelines/factors_of_threads.py.j2",) if any(in_boxes) else ()),
        *(() if all(in_boxes) else ("pipelines/factors_of_lanes.py.j2",)),
    )


def copy_parts(plan: GemmPlan) -> tuple[str, ...]:
    """Return the parts of the factors' stages and boxes: each CTA's own, or those that a cluster receives together."""
    boxes, together = any(map(_in_boxes, factors_of(plan))), any(x.g2s.receivers > 1 for x in factors_of(plan))
    listed = listed_factors(plan) is not None
    used = {
        "factor_stages": True,
        "factors": boxes,
        f"factors_of_{'lists' if listed else 'matrices'}": boxes,
        f"factors_of_{'cluster' if together else 'cta'}": boxes,
    }
    return tuple(f"pipelines/{name}.py.j2" for name, is_used in used.items() if is_used)


def scaling_parts(plan: GemmPlan) -> tuple[str, ...]:
    """Return the parts by which threads find and read the factors of their sums."""
    rows = any(x.block[0] == 1 for x in factors_of(plan))
    held = ("functions/factors.py.j2#from_first",) if rows else ()
    return (*place_parts(plan), *held, "functions/factors.py.j2#read_factors")


def place_parts(plan: GemmPlan) -> tuple[str, ...]:
    """Return the parts by which threads find the factors of their sums."""
    of_pairs = {_members(plan, x) > 1 for x in factors_of(plan)}
    return (
        *(("functions/factors.py.j2#places_of_factors",) if False in of_pairs else ()),
        *(("functions/factors.py.j2#places_of_pairs",) if True in of_pairs else ()),
    )


def factor_holes(plan: GemmPlan) -> dict[str, Any]:
    """Return the holes of the factors."""
    thread, batches = "thread" if plan.mma.role.alternates else "tidx", batches_of(plan)
    counted = any(x.box_steps[1] > 1 for x in factors_of(plan))
    return {
        "number_of_k_tile": "each" if counted else "_",
        "factors": (found := [_of_path(plan, x, batches[x.name]) for x in factors_of(plan)]),
        "factors_in_boxes": [x for x in found if _in_boxes(plan.operand(x.name))],
        "factors_of_lanes": [x for x in found if not _in_boxes(plan.operand(x.name))],
        "thread_of_tile": thread,
    }


def _in_boxes(x: OperandPath) -> bool:
    """Return whether bulk tensor copies move an operand."""
    return x.g2s.fetch is Action.BULK_FETCH


def _of_path(plan: GemmPlan, x: OperandPath, batch: str) -> FactorHoles:
    packed = bool(begin_of(plan, plan.launch.tensor(x.name)))
    return _holes(plan, x, batch, _members(plan, x), k_tiles=x.block[1] // plan.cta_tile[2], packed=packed)


def factor_constants(plan: GemmPlan) -> ConstantsByDecision:
    """Return the tile of the factors of a k-tile, and which of a thread's factors scales which of its sums."""
    settled: ConstantsByDecision = {}
    for x in factors_of(plan):
        name = epilogue.constants_of(x.name)
        read = x.s2r.read
        assert read is not None
        assert read.of_sums is not None
        assert read.first is not None
        settled[f"s2r.{x.name}"] = (
            f"{name}_TILE = {tile_of(plan, x)}",
            *_layout(f"{name}_OF_SUMS", read.of_sums),
            *_layout(f"{name}_FIRST", read.first),
        )
    return settled


def _members(plan: GemmPlan, x: OperandPath) -> int:
    """Return the members of pairs that an operand's rows belong to."""
    pairs = plan.epilogue.fusion.pairs
    return 2 if pairs is not None and pairs.operand == x.operand.lower() else 1


def tile_of(plan: GemmPlan, x: OperandPath) -> tuple[object, int]:
    """Return the tile of factors; a box has a mode for the members of pairs, if there are several."""
    (rows, of_k), members = x.tile, _members(plan, x)
    return (rows if members == 1 or not _in_boxes(x) else (rows // members, members), of_k)


def _layout(name: str, layout: Layout) -> tuple[str, ...]:
    return (*constant(f"{name}_SHAPE", layout.shape), *constant(f"{name}_STRIDE", layout.stride))


def factors_of(plan: GemmPlan) -> tuple[OperandPath, ...]:
    """Return the paths of the factors of A and B, if there are any."""
    return tuple(x for x in plan.operands if not x.is_multiplied)


def _holes(plan: GemmPlan, x: OperandPath, batch: str, members: int, *, k_tiles: int, packed: bool) -> FactorHoles:
    mode, (rows, of_k), number = x.modes[0], x.block, "mn".index(x.modes[0])
    begin = f"tile_{mode} * CTA_{mode.upper()}" if members == 1 else f"tile_{mode} * (CTA_{mode.upper()} // 2)"
    first = f"begin + {begin}" if packed else begin if rows == 1 else f"{begin} // {rows}"
    if packed and x.block_elems > 1:
        first = f"first_atom + tile_{mode}"
    along_rows, along_k = x.box_steps
    listed = listed_factors(plan) is not None
    places = f"tCcP, {number}, first, {begin}, {rows}, {_rest(first, along_rows)}"
    first, extents = _rounded(first, along_rows), extents_of(x.modes, x.block, x.block_elems)
    if listed:
        extents = tensor_holes(plan.launch.tensor(x.name), plan.launch.groups).shape
    if members > 1:
        places = f"places_of_pairs({places}, CTA_{mode.upper()} // 2, {x.tile[0] // 2})"
        if _in_boxes(x):
            first, extents = f"({first}, 0)", extents_of_members(x)
    places = places if members > 1 else f"places_of_factors({places})"
    tensor, factors = tensor_holes(plan.launch.tensor(x.name)), f"s{epilogue.title(x.name)}, {places}"
    return FactorHoles(
        name=x.name,
        title=epilogue.title(x.name),
        constants=epilogue.constants_of(x.name),
        side=x.operand.lower(),
        mode=mode,
        extents=extents,
        rows=rows,
        of_k=of_k,
        places=places,
        of_sums=f"from_first({factors})" if rows == 1 else factors,
        first=first,
        batch=batch,
        holds=f"a factor for each block of {rows} x {of_k}"
        if x.block_elems == 1
        else f"words of {rows} rows by 4 factors",
        copies=_rows_of_list(x, mode) if listed else ((first, ""),),
        along_k={each: "0" if listed else _along_k(x, each, k_tiles) for each in K_TILES},
        column=_rest(_block_of("first_k_tile + each", k_tiles), along_k),
        first_of_cluster="rank_n == 0" if x.operand == "A" else "rank_m == 0",
        mask=f", mcast_mask={'row_mask' if x.operand == 'A' else 'whole_column'}" if x.g2s.receivers > 1 else "",
        pointer=tensor.pointer,
        stride=tensor.stride,
        members=members,
        needed=most_blocks(plan.cta_tile[number] // members, rows),
    )


def _along_k(x: OperandPath, k_tile: str, k_tiles: int) -> str:
    """Return where the box of a k-tile begins along K: at a factor, or at a word of atoms."""
    if x.block_elems > 1:
        return f"{k_tile} * {x.tile[1]}"
    return _rounded(_block_of(k_tile, k_tiles), x.box_steps[1])


def _rows_of_list(x: OperandPath, mode: str) -> tuple[tuple[str, str], ...]:
    """Return the atom of a list at which the box of each block of rows begins, and its place before the stage."""
    along_k = f"k_tile * {x.tile[1] // x.block_elems}"
    return tuple((f"first_of_{mode} + {row} * atoms_of_k + {along_k}", f"{row}, ") for row in range(x.tile[0]))


def _block_of(k_tile: str, k_tiles: int) -> str:
    """Return the number of the block of K that a k-tile is of."""
    return k_tile if k_tiles == 1 else f"{_term(k_tile)} // {k_tiles}"


def _rounded(first: str, step: int) -> str:
    """Return where a box begins that has the factor `first`, at a multiple of `step`."""
    return first if step == 1 else f"{_term(first)} // {step} * {step}"


def _rest(first: str, step: int) -> str:
    """Return how many factors such a box has before it."""
    return "0" if step == 1 else f"{_term(first)} % {step}"


def _term(words: str) -> str:
    return f"({words})" if {"+", "//"} & set(words.split()) else words
