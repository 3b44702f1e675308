"""One operand's CTA tile: as the spec gives it, and in shared memory, with its layout and the alternatives."""

from dataclasses import asdict, dataclass
from typing import Any

from cutegen import algebra
from cutegen.algebra import Extents, LayoutExpr
from cutegen.contract.launch import OPERANDS
from cutegen.hardware import DType, dtype
from cutegen.plan.geometry import contiguity
from cutegen.plan.smem_layouts import VECTOR_BYTES, LayoutOption, requested_options
from cutegen.spec import MODES, GemmSpec, Operand
from cutegen.spec.parts import DEFAULT_ALIGN_BYTES

# One operand's CTA tile as the spec gives it, before any decision.


LAST_MODE = 1
"""Mode of K in A's (M, K) and B's (N, K), and of N in C's (M, N)."""
SIDES: dict[str, algebra.OperandName] = {"a": "A", "b": "B", "c": "C"}


@dataclass(frozen=True, slots=True, kw_only=True)
class OperandTile:
    """A, B or C: `extents` of its tile along its two modes, `major_mode` the contiguous one.

    Memory has elements of `dtype`; the instruction reads them as `multiplied`. `requested` are the shared layouts that
    the spec allows, none if it leaves them open; `vector_elems` is the longest vector that they keep contiguous along
    the contiguous mode, `last_elems` along the last. A `block` of rows and columns of K has `block_elems` elements.
    A tensor map of it has `map_modes`; its boxes begin at multiples of `box_step` elements of the contiguous mode. At
    most `run_elems` elements of a row of the tile follow one another in global memory; None is all of them.
    """

    name: str
    operand: algebra.OperandName
    dtype: DType
    multiplied: DType
    modes: tuple[str, str]
    extents: tuple[int, int]
    major_mode: int
    align_bytes: int
    smem_key: str
    requested: tuple[LayoutOption, ...]
    vector_elems: int
    last_elems: int
    block: tuple[int, int] = (1, 1)
    block_elems: int = 1
    box_step: int = 1
    map_modes: int = 3
    run_elems: int | None = None

    @property
    def major(self) -> str:
        """The contiguous mode's letter."""
        return self.modes[self.major_mode]


def operand_tile(spec: GemmSpec, name: str, cta_tile: Extents) -> OperandTile:
    """Return the operand `name` of `spec`. Raises SpecError if its shared layout cannot hold the tile."""
    operand = spec.problem.operand(name)
    element = dtype(operand.dtype)
    x, y = (cta_tile["mnk".index(mode)] for mode in MODES[name])
    major_mode = MODES[name].index(operand.major)
    asked = spec.epilogue.smem if name == "c" else getattr(spec.smem, name)
    smem_key = "epilogue.smem" if name == "c" else f"smem.{name}"
    requested = requested_options(spec, smem_key, asked, (x, y), major_mode, element.bytes)
    vector_elems = VECTOR_BYTES // element.bytes
    last_elems = vector_elems if major_mode == LAST_MODE else 1
    if requested:
        layout = algebra.tile_to_shape(requested[0].atom, (x, y))
        vector_elems, last_elems = (
            min(VECTOR_BYTES // element.bytes, contiguity(layout, (x, y), mode)) for mode in (major_mode, LAST_MODE)
        )
    map_modes, run_elems = 3, None
    pairs = None if spec.epilogue.pairs is None else spec.epilogue.pairs.value
    if pairs is not None and name == pairs.operand:
        map_modes += len(pairs.modes(pairs.multiple)) - 1
        run_elems = min(pairs.width or x // 2, x // 2) if major_mode != LAST_MODE else None
    return OperandTile(
        name=name,
        operand=SIDES[name],
        dtype=element,
        multiplied=element,
        modes=MODES[name],
        extents=(x, y),
        major_mode=major_mode,
        align_bytes=align_bytes(operand),
        smem_key=smem_key,
        requested=requested,
        vector_elems=vector_elems,
        last_elems=last_elems,
        map_modes=map_modes,
        run_elems=run_elems,
    )


def k_tile_bytes_of_each(spec: GemmSpec, cta_tile: Extents) -> tuple[int, ...]:
    """Return the bytes of a k-tile of each operand, without padding.

    >>> from cutegen.spec import load_spec
    >>> k_tile_bytes_of_each(load_spec("sm80_hgemm_tn"), (128, 64, 32))
    (8192, 4096)
    """
    found = []
    for name in OPERANDS:
        (rows, k), operand = MODES[name], getattr(spec.problem, name)
        found.append(cta_tile["mnk".index(rows)] * cta_tile["mnk".index(k)] * dtype(operand.dtype).bytes)
    return tuple(found)


def align_bytes(operand: Operand) -> int:
    """Return the alignment of base address and leading stride: 16 bytes, the widest access, or the spec's."""
    return operand.align or DEFAULT_ALIGN_BYTES


# Shared memory of a tile: its layout, the ranked alternatives, and the cost of accesses to it.


@dataclass(frozen=True, slots=True)
class Wavefronts:
    """Shared-memory wavefronts of one kind of access: the minimum for its bytes, and those that its addresses need."""

    ideal: int
    predicted: int

    @property
    def ways(self) -> float:
        """Wavefronts relative to the ideal: 1 is free of bank conflicts, 8 is an 8-way conflict on every access."""
        return self.predicted / self.ideal

    def times(self, count: int) -> "Wavefronts":
        """Return the wavefronts of so many accesses."""
        return Wavefronts(count * self.ideal, count * self.predicted)

    def plus(self, accesses: int) -> "Wavefronts":
        """Return these and so many accesses without bank conflicts."""
        return Wavefronts(self.ideal + accesses, self.predicted + accesses)


@dataclass(frozen=True, slots=True)
class Sectors:
    """32-byte sectors of global memory that one access to a whole tile touches, and the minimum for its bytes."""

    ideal: int
    predicted: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SmemCandidate:
    """One row of the ranking of shared-memory layouts: wavefronts are for one tile, written once and read once.

    `write` counts bank conflicts. `lines` is the cost of writes by lines if copies bypass L1; None for other copies.
    """

    name: str
    atom: LayoutExpr
    swizzle: algebra.Swizzle | None
    pad_elems: int
    tile_bytes: int
    write: Wavefronts
    read: Wavefronts
    lines: Wavefronts | None = None

    @property
    def wavefronts(self) -> int:
        """Wavefronts that the ranking compares first: reads, and writes (by line if copies are counted by line)."""
        return (self.lines or self.write).predicted + self.read.predicted

    def to_json(self) -> dict[str, Any]:
        """Return its costs."""
        return {
            "write": asdict(self.write),
            "lines": None if self.lines is None else asdict(self.lines),
            "read": asdict(self.read),
            "wavefronts": self.wavefronts,
            "bytes": self.tile_bytes,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class SmemTile:
    """An operand's shared memory: `layout` maps (X, Y) or (X, Y, PIPE) coordinates to element offsets."""

    layout: LayoutExpr
    chosen: SmemCandidate
    bytes: int
    ranking: tuple[SmemCandidate, ...]

    @property
    def swizzle(self) -> algebra.Swizzle | None:
        """The swizzle, or None for a plain or padded layout."""
        return self.chosen.swizzle

    @property
    def pad_elems(self) -> int:
        """Elements added to each row or column of the contiguous mode."""
        return self.chosen.pad_elems

    @property
    def layout_of_one_stage(self) -> LayoutExpr:
        """The layout without its PIPE mode: (X, Y) -> element offset in the first stage."""
        inner = algebra.inner_layout(self.layout)
        return algebra.with_inner(self.layout, algebra.make_layout(algebra.mode(inner, 0), algebra.mode(inner, 1)))

    def ranking_table(self) -> list[dict[str, Any]]:
        """Return the ranking as plain tables, best first; `used` marks the layout in use, if it is ranked."""
        return [{"layout": row.name, "used": row == self.chosen, **row.to_json()} for row in self.ranking]
