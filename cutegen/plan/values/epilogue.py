"""The store path of C: the chain on the accumulators, and the copies from them to global memory."""

from collections import Counter
from dataclasses import dataclass

from cutegen.algebra import Layout, offsets, size
from cutegen.contract.launch import RESULT
from cutegen.contract.problem import FactorsOfC, Groups, Pairs
from cutegen.contract.tensor_map import BOX_MULTIPLE_BYTES
from cutegen.hardware import DType, StmatrixAtom
from cutegen.hardware.units import BANK_BYTES, WARP
from cutegen.plan.values.copies import TileCopy, VectorCopy, load_element
from cutegen.plan.values.operand import SmemTile
from cutegen.spec import Step as ChainStep

ROWS_OF_WARP = 16
"""Rows of a part that a warp has."""


def largest_bytes(tile_of_c: tuple[int, int]) -> int:
    """Return the bytes of a word for each column of a tile of C and the rows that a warp has of it."""
    return tile_of_c[0] // ROWS_OF_WARP * tile_of_c[1] * BANK_BYTES


@dataclass(frozen=True, slots=True)
class EpilogueTensor:
    """Tensor that the epilogue reads or writes besides C, by its name in the kernel: "source" (the old C), "bias" ...

    `operand` is its name in an expression. Base address and leading stride are multiples of `align_bytes`. An element
    of factors stands for a `block` of C.
    """

    name: str
    dtype: DType
    modes: tuple[str, ...]
    major: str
    align_bytes: int
    operand: str
    block: tuple[int, int] | None = None

    @property
    def table(self) -> str:
        """The table of the spec's `problem` that describes it."""
        return self.name.partition("_")[0]


@dataclass(frozen=True, slots=True)
class Quantization:
    """C as 8-bit floats, with `factors` of its blocks, rounded as `scale` says.

    A block is a line of a tile: 128 columns of a row, or in the swapped product 128 rows of a column. If `of_threads`,
    a thread has all columns of a row of a part; otherwise fragments of an mma are among lanes.
    """

    factors: EpilogueTensor
    scale: FactorsOfC
    of_threads: bool = False

    @property
    def block(self) -> tuple[int, int]:
        """Rows and columns of a tile that share a factor."""
        assert self.factors.block is not None
        return self.factors.block

    @property
    def of_rows(self) -> bool:
        """True if a block is in the rows of several warps, so that its largest magnitude goes through shared memory."""
        return self.block[0] > 1

    @property
    def of_quads(self) -> bool:
        """True if four lanes have a block, pairs of its columns each."""
        return not (self.of_threads or self.of_rows)

    @property
    def warps(self) -> int:
        """Warps that have a block together."""
        return self.block[0] // ROWS_OF_WARP if self.of_rows else 1

    @property
    def lanes(self) -> Layout:
        """Lanes that have a line together, as distances from the first: four a row, eight a column, or the thread's."""
        if self.of_threads:
            return Layout(1, 0)
        return Layout((2, 2, 2), (4, 8, 16)) if self.of_rows else Layout((2, 2), (1, 2))

    def lines(self, columns: int) -> tuple[Layout, Layout]:
        """Return which line each of a thread's values of a part of so many columns is of, and the first of each line.

        A thread has one line, or two columns of each eight, of rows r and r + 8.
        """
        if self.of_threads:
            return Layout(columns, 0), Layout(1, 0)
        if self.of_rows:
            return Layout((2, 2, columns // 8), (1, 0, 2)), Layout((2, columns // 8), (1, 4))
        return Layout((2, 2, columns // 8), (0, 1, 0)), Layout((2,), (2,))

    def storing_lane(self, columns: int, value: int) -> int:
        """Return which of the lanes that have a line together stores its factor, for one of a thread's values.

        Of a quad the first stores that of row r, the second that of row r + 8: one instruction for both.
        """
        of_values, _ = self.lines(columns)
        return int(offsets(of_values)[value % size(of_values)]) if self.of_quads else 0

    def largest_stores(self, tile_of_c: tuple[int, int]) -> int:
        """Return the instructions of all warps that store largest magnitudes of a tile: a column of four lanes each."""
        return self.largest_bytes(tile_of_c) // (4 * self.factors.dtype.bytes)

    def largest_bytes(self, tile_of_c: tuple[int, int]) -> int:
        """Return the shared memory for the largest magnitudes of each warp's columns; 0 if registers have all."""
        return largest_bytes(tile_of_c) if self.of_rows else 0


@dataclass(frozen=True, slots=True)
class Fusion:
    """The chain `steps` from an accumulator to C, with the tensors and the scalars that it names.

    `source_behind_beta` means that the old C is not read if beta is 0. With `pairs` of columns C has half of the sums'
    columns. A tile's columns are then those of the first member, and after them as many of the second; in a swapped
    product these are its rows. A `quantization` follows the chain.
    """

    steps: tuple[ChainStep, ...]
    tensors: tuple[EpilogueTensor, ...]
    scalars: tuple[str, ...]
    source_behind_beta: bool
    pairs: Pairs | None = None
    quantization: Quantization | None = None

    @property
    def beside_c(self) -> tuple[EpilogueTensor, ...]:
        """Tensors that the chain names, and the factors of C."""
        return self.tensors if self.quantization is None else (*self.tensors, self.quantization.factors)

    @property
    def members(self) -> int:
        """Sums of each element of C: two if its chain takes pairs."""
        return 1 if self.pairs is None else 2

    @property
    def modes(self) -> tuple[str, str]:
        """The modes of C."""
        return ("m", "n") if self.pairs is None else self.pairs.modes_of_result

    def tile_of_c(self, tile: tuple[int, int]) -> tuple[int, int]:
        """Return the extents of C that a tile of sums becomes."""
        return tile if self.pairs is None else self.pairs.tile_of_result(tile)


@dataclass(frozen=True, slots=True, kw_only=True)
class EpilogueParts:
    """C's tile in parts of extents `tile`, stored one after the other; each of `warpgroups` has `count` of them.

    A thread's sums are its warpgroup's parts in order: `columns` of them along N, then the next rows. If several `ctas`
    have the tile, each stores equally many consecutive parts of every warpgroup. If K is split, up to `sharers` CTAs
    add the slices, one part at a time; the assignment is known at run time. If C is stored through shared memory, a
    warpgroup has `buffers` there, also in ping-pong: one if all of its sums are one part, else two. `stmatrix` writes
    them if it is not None, else plain stores do. `drained` parts are loaded from tensor memory, a row of a part by each
    thread: in `waves` of columns, whose elements of C are computed before the next are loaded.
    """

    tile: tuple[int, int]
    columns: int
    count: int
    warpgroups: int
    ctas: int = 1
    sharers: int = 1
    buffers: int = 0
    stmatrix: StmatrixAtom | None = None
    drained: bool = False
    waves: int = 1

    @property
    def columns_of_wave(self) -> int:
        """Columns of C that are computed at a time."""
        return self.tile[1] // self.waves

    @property
    def at_once(self) -> bool:
        """True if all of a warpgroup's sums are one part, which is stored while the next tile is multiplied."""
        return self.buffers == 1

    @property
    def vectors_held(self) -> bool:
        """True if a warp that multiplies loads its share of vectors before the main loop: its parts are known then."""
        return self.ctas == self.sharers == 1 and not self.drained

    def elements_held(self, mode: str) -> int:
        """Return the elements of a vector along M or N per lane: a warp has 16 rows of a part, and all columns."""
        return self.count // self.columns if mode == "m" else -(-self.columns * self.tile[1] // WARP)

    @property
    def of_tile(self) -> int:
        """Parts of the CTA's tile."""
        return self.count * self.warpgroups

    @property
    def of_cta(self) -> int:
        """Parts of one warpgroup's sums that one CTA may store."""
        return self.count // self.ctas

    @property
    def written_out(self) -> int:
        """Parts in the text of a kernel: shared parts are in a loop."""
        return self.of_cta if self.sharers == 1 else 1

    def first(self, number: int, adding: int, warpgroup: int) -> int:
        """Return the first part of a warpgroup for the `number`-th of `adding` CTAs; it adds every `adding`-th.

        Parts are numbered across warpgroups: a CTA beyond the parts of one has parts of another, or none.
        """
        return (number - warpgroup * self.of_cta) % adding

    @property
    def stmatrix_opcodes(self) -> dict[str, int]:
        """The count of `stmatrix` in the PTX text: each of four warps stores 16 rows."""
        if self.stmatrix is None:
            return {}
        matrices = self.tile[1] // 8 * 2
        return {self.stmatrix.ptx: self.written_out * matrices // self.stmatrix.matrices}


@dataclass(frozen=True, slots=True, kw_only=True)
class EpiloguePlan:
    """The store path of C: through shared memory `smem` and by `store`, or straight from registers if both are None.

    With `parts`, shared memory and store are those of one part. If tiles end where another group's rows or columns
    begin, a warpgroup's threads copy the last ones of a group by `edge` from shared memory.
    """

    dtype: DType
    major: str
    align_bytes: int
    fusion: Fusion
    smem: SmemTile | None
    store: TileCopy | None
    parts: EpilogueParts | None = None
    edge: VectorCopy | None = None

    @property
    def part(self) -> tuple[int, int] | None:
        """Rows and columns of a part, if C is stored in parts."""
        return self.parts.tile if self.parts else None

    @property
    def stmatrix(self) -> StmatrixAtom | None:
        """Instruction that writes a part to shared memory; None for plain stores."""
        return self.parts.stmatrix if self.parts else None

    @property
    def by_chunks(self) -> bool:
        """True if one address of shared memory serves the pairs of 8-bit elements that a thread has of a chunk.

        They are of two rows of an instruction's fragment, in 16 bytes of each.
        """
        quantization = self.fusion.quantization
        return self.smem is not None and quantization is not None and quantization.of_quads

    @property
    def addressed(self) -> tuple[str, ...]:
        """Tensors with a map that threads access too."""
        return () if self.edge is None else (RESULT,)

    @property
    def major_mode(self) -> int:
        """Index of the contiguous mode in (M, N)."""
        return ("m", "n").index(self.major)

    def box_step(self, groups: Groups) -> int:
        """Return the elements at whose multiples a box of C may begin, where groups begin at any; 1 for every row."""
        along = groups.packs(("m", "n")) and groups.of == self.major
        return max(1, BOX_MULTIPLE_BYTES // self.dtype.bytes) if along else 1

    @property
    def pieces(self) -> int:
        """Number of tiles like `smem` in C's tile."""
        return self.parts.of_tile if self.parts else 1

    @property
    def boxes(self) -> int:
        """Boxes of C's tile that bulk tensor copies store."""
        return self.pieces * sum(self.store.boxes_issued.values()) if self.store else 0

    def opcodes(self) -> dict[str, int]:
        """Return its identifiable opcodes in the PTX text: bulk stores, `stmatrix`, loads of held vectors."""
        return {**self.store_opcodes(), **(self.parts.stmatrix_opcodes if self.parts else {}), **self.held_opcodes()}

    def held_opcodes(self) -> dict[str, int]:
        """Return the loads of vectors before the main loop."""
        loads: Counter[str] = Counter()
        if self.parts is not None and self.parts.vectors_held:
            for x in self.fusion.tensors:
                if len(x.modes) == 1:
                    loads[load_element(x.dtype)] += self.parts.elements_held(x.major)
        return dict(loads)

    def store_opcodes(self) -> dict[str, int]:
        """Return the count of bulk tensor stores of C's tile in the PTX text; plain stores are not counted."""
        written = self.parts.written_out if self.parts else 1
        return {opcode: written * boxes for opcode, boxes in (self.store.boxes_issued if self.store else {}).items()}
