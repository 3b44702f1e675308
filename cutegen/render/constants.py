"""The constants of decisions in a kernel's text: by the keys of the decisions, in a head of one block per decision."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cutegen.algebra import Layout, inner_layout
from cutegen.contract.launch import RESULT
from cutegen.hardware import DType
from cutegen.plan import Decision, GemmPlan
from cutegen.plan.kernel.memory import BARRIERS
from cutegen.plan.kernel.pipeline import AB, OF_FACTORS, mbarriers_bytes
from cutegen.plan.values.copies import TileCopy, VectorCopy
from cutegen.plan.values.fragments import FragmentCopy, LdmatrixLoads
from cutegen.plan.values.operand import SmemTile
from cutegen.plan.values.path import OperandPath
from cutegen.render.python_text import comment, constant

# The constants of decisions in a kernel's text, by the keys of the decisions.


Lines = tuple[str, ...]
ConstantsByDecision = dict[str, Lines]
"""The lines of constants by the keys of decisions; () if a decision appears only in a comment."""


def united(*tables: Mapping[str, Lines]) -> ConstantsByDecision:
    """Merge the tables; no two have the same decision."""
    found: ConstantsByDecision = {}
    for table in tables:
        assert not (twice := found.keys() & table.keys()), f"written twice: {', '.join(sorted(twice))}"
        found |= table
    return found


def shared_constants(plan: GemmPlan) -> ConstantsByDecision:
    """Return the constants common to all families: the tile, A and B, the epilogue's tensors.

    The constants of C are not: a family may store it in parts.
    """
    operands, tensors = plan.operands, plan.epilogue.fusion.tensors
    return {
        "tile.cta": (f"CTA_M, CTA_N, CTA_K = {', '.join(map(str, plan.cta_tile))}",),
        **{f"g2s.{x.name}": _operand_constants(x) for x in operands},
        **{f"smem.{x.name}": _tile_constants(f"{x.name.upper()}_SMEM", x.smem, x.g2s, plan.stages) for x in operands},
        **{
            f"problem.{table}": tuple(
                line for x in tensors if x.table == table for line in _element_constants(x.name, x.dtype, x.align_bytes)
            )
            for table in dict.fromkeys(x.table for x in tensors)
        },
    }


def _operand_constants(operand: OperandPath) -> Lines:
    """Return the constants of A's or B's type, alignment and copies to shared memory."""
    x, copy = operand.name.upper(), operand.g2s
    layout = () if copy.through_registers else (_major_constant(x, operand.major_mode, operand.modes),)
    cache = copy.by_kind(vectors=lambda copy: _cache_constant(x, copy), boxes=lambda _: ())
    return (
        *_element_constants(x, operand.dtype, operand.align_bytes, *layout, *cache),
        *_copy_constants(f"{x}_G2S", copy),
    )


def c_constants(plan: GemmPlan) -> Lines:
    """Return the constants of C's type and alignment, and of its tile in shared memory, if any."""
    c = plan.epilogue
    mapped = "c" in {each.name for each in plan.launch.maps}
    layout = (_major_constant("C", c.major_mode, ("m", "n")),) if mapped else ()
    lines = _element_constants("C", c.dtype, c.align_bytes, *layout)
    if c.smem is None or c.store is None:
        return lines
    edge = () if c.edge is None else _vector_constants("EDGE", c.edge)
    return (*lines, *_tile_constants("C_SMEM", c.smem, c.store), *_copy_constants("C_STORE", c.store), *edge)


def _element_constants(name: str, dtype: DType, align_bytes: int, *between: str) -> Lines:
    x = name.upper()
    return (f"{x}_DTYPE = cutlass.{dtype.dsl_name}", *between, f"{x}_ALIGN_ELEMS = {align_bytes // dtype.bytes}")


def _major_constant(x: str, major_mode: int, modes: tuple[str, str]) -> str:
    return f"{x}_MAJOR = {major_mode}  # {modes[major_mode]} is contiguous in ({', '.join(modes)})"


def _cache_constant(x: str, copy: VectorCopy) -> Lines:
    """Return the cache operator of `cp.async`."""
    if copy.through_registers:
        return ()
    return (f"{x}_CACHE = nvvm.LoadCacheModifierKind.{'CG' if copy.bypasses_l1 else 'CA'}",)


def _copy_constants(prefix: str, copy: TileCopy) -> Lines:
    """Return width, threads and values of a copy by threads; boxes have none."""
    return copy.by_kind(vectors=lambda copy: _vector_constants(prefix, copy), boxes=lambda _: ())


def _vector_constants(prefix: str, copy: VectorCopy) -> Lines:
    return (
        f"{prefix}_BITS = {copy.bits}",
        *constant(f"{prefix}_THREADS", (copy.threads.shape, copy.threads.stride)),
        f"{prefix}_VALUES = {copy.values.shape}",
    )


def _tile_constants(prefix: str, smem: SmemTile, copy: TileCopy, stages: int = 1) -> Lines:
    """Return shape, stride and swizzle of a tile in shared memory, the swizzle in the form of `copy`.

    The extent of a mode of several stages is the constant STAGES.
    """
    inner, swizzle = inner_layout(smem.layout), smem.swizzle
    shape = inner.shape
    if stages > 1:
        assert isinstance(shape, tuple)
        assert shape[-1] == (1, stages), shape
        shape = (*shape[:-1], (1, Name("STAGES")))
    of_layout = () if swizzle is None else constant(f"{prefix}_SWIZZLE", (swizzle.bits, swizzle.base, swizzle.shift))
    return (
        *constant(f"{prefix}_SHAPE", shape),
        *constant(f"{prefix}_STRIDE", inner.stride),
        *copy.by_kind(
            vectors=lambda _: of_layout, boxes=lambda copy: (f"{prefix}_SWIZZLE_BITS = {copy.swizzle_bits}",)
        ),
    )


def mma_constants(plan: GemmPlan, threads: str, *, multiplies: bool = True) -> ConstantsByDecision:
    """Return the constants of a tiled MMA and of the loads of its fragments; `threads` has those of a CTA."""
    k_blocks, atoms = plan.mma.k_blocks, plan.tiled_mma.tile_mnk[2] // plan.atom.shape_mnk[2]
    return {
        "mma.atom": (
            f"MMA_SHAPE = {plan.atom.shape_mnk}",
            f"ACCUMULATOR_DTYPE = cutlass.{plan.atom.c_dtype.dsl_name}",
        ),
        "mma.atom_layout": (f"MMA_ATOM_LAYOUT = {plan.tiled_mma.atom_layout.shape}", threads),
        "mma.permutation": (
            f"MMA_PERMUTATION = {plan.tiled_mma.tile_mnk}",
            *_layout_constant("MMA_ROWS", plan.tiled_mma.permutation[0]),
            *_layout_constant("MMA_COLUMNS", plan.tiled_mma.permutation[1]),
            f"K_BLOCKS, ATOMS_PER_BLOCK = {k_blocks}, {atoms}" if multiplies else f"K_BLOCKS = {k_blocks}",
        ),
        "mma.tf32": (),  # only a comment: the main loop shows the decision
        "s2r.a": _fragment_constants("A", plan.a.fragment_copy),
        "s2r.b": _fragment_constants("B", plan.b.fragment_copy),
    }


def _fragment_constants(prefix: str, copy: FragmentCopy) -> Lines:
    """Return the instruction that loads fragments of one operand."""
    return copy.by_kind(
        ldmatrix=lambda copy: _ldmatrix_constants(prefix, copy),
        plain=lambda copy: (f"{prefix}_S2R_BITS = {copy.bits}",),
    )


def _ldmatrix_constants(prefix: str, copy: LdmatrixLoads) -> Lines:
    kind = f"{prefix}_TRANSPOSE, {prefix}_MATRICES = {copy.transpose}, {copy.matrices}"
    if copy.view is None:
        return (kind,)
    tv = _layout_constant(f"{prefix}_S2R_TV", copy.tiled_copy.layout_tv)
    return (kind, *tv, *_layout_constant(f"{prefix}_S2R_VIEW", copy.view))


def _layout_constant(name: str, value: int | Layout) -> Lines:
    """Return a layout's shape and stride; no line for an extent."""
    return constant(name, (value.shape, value.stride)) if isinstance(value, Layout) else ()


# The constants at the head of a kernel: one block per decision, and the offset of each part of shared memory.
#
# A launcher takes its numbers from here, and `cutegen.render.edited` reads them back: each number appears once, and
# derived numbers are written as formulas.


MEMORY = "shared memory"
"""The block of the head that belongs to no decision."""


@dataclass(frozen=True, slots=True)
class Constants:
    """The lines of the head of one decision."""

    comment: tuple[str, ...]
    code: tuple[str, ...]

    @property
    def text(self) -> str:
        """The lines of the block."""
        return "\n".join((*self.comment, *self.code))


class Name(str):
    """The name of an earlier constant, inside a value."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def head(decisions: Iterable[Decision], settled: Mapping[str, tuple[str, ...]]) -> list[Constants]:
    """Return the blocks in the decisions' order, each with its decision as the comment.

    The number of stages precedes constants that use it, and the offsets follow all blocks of shared memory.
    """
    found = [x for x in decisions if x.key in settled]
    stages = [x for x in found if x.key == "tile.stages"]
    others = [x for x in found if x.key != "tile.stages"]
    first = next((i for i, x in enumerate(others) if x.key.startswith("smem.")), len(others))
    ordered = [*others[:first], *stages, *others[first:]]
    blocks = [Constants(comment(f"{x.key}: {x.chosen} ({x.why})"), settled[x.key]) for x in ordered]
    behind = 1 + max(i for i, x in enumerate(ordered) if x.key in ("tile.stages", "smem.b", "epilogue.smem"))
    words = comment(f"{MEMORY}: {_parts(settled[MEMORY])}")
    return [*blocks[:behind], Constants(words, settled[MEMORY]), *blocks[behind:]]


def _parts(lines: Iterable[str]) -> str:
    names = "".join(lines)
    others = {"SMEM_SCALE_": "their factors", "SMEM_C_": "C's boxes", "SMEM_BARRIERS_": "the barriers"}
    beside = [words for name, words in others.items() if name in names]
    in_place = "; then C in their place" if " max(" in names else ""
    return ", ".join(("A's stages, B's", *beside)) + in_place


def memory_constants(plan: GemmPlan) -> tuple[str, ...]:
    """Return the offset of each region of shared memory, and the total bytes, by the number of stages.

    A region that begins at a boundary after the end of the previous one has a number instead of a sum. One in the place
    of others has no constant: it begins at 0.
    """
    contents = _contents(plan)
    lines: list[str] = []
    end: tuple[str, int] = "", 0
    in_place = ""
    for region in plan.memory.regions:
        words, size = contents[region.name]
        if region.offset_bytes > 0:
            name = f"SMEM_{region.name.upper()}_OFFSET_BYTES"
            lines.append(_sum(name, end, region.offset_bytes))
            end = f"{name} + {words}", region.offset_bytes + size
        elif not end[0]:
            end = words, size
        elif region.name == RESULT and size > sum(contents[x.name][1] for x in plan.operands) // plan.stages:
            in_place = words
    shared = (f"max({end[0]}, {in_place})", max(end[1], int(in_place))) if in_place else end
    return *lines, _sum("SMEM_BYTES", shared, plan.smem_bytes)


def _contents(plan: GemmPlan) -> dict[str, tuple[str, int]]:
    """Return what lies in each region, without gaps: a formula of its bytes by the number of stages, and its value."""
    stages, c = plan.stages, plan.epilogue.smem
    of_k_tiles = tuple(x for x in map(plan.loop.pipeline, (AB, OF_FACTORS)) if x is not None)
    times = "STAGES * " if stages > 1 else ""
    found = {x.name: (f"{times}{x.smem.bytes // stages}", x.smem.bytes) for x in plan.operands}
    found[RESULT] = (f"{c.bytes}", c.bytes) if c else ("0", 0)
    found |= {x.name: (f"{x.bytes}", x.bytes) for x in plan.memory.regions if x.name not in found}
    if (barriers := plan.memory.find(BARRIERS)) is not None and of_k_tiles:
        staged = mbarriers_bytes(of_k_tiles)
        beside, of_stages = barriers.bytes - staged, f"{times}{staged // stages}"
        found[BARRIERS] = f"{of_stages} + {beside}" if beside else of_stages, barriers.bytes
    return found


def _sum(name: str, formula: tuple[str, int], wanted: int) -> str:
    """Return a constant as a formula, or as a number if the formula's value differs."""
    words, value = formula
    return f"{name} = {words if value == wanted else wanted}"
