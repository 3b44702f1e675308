"""C's way out: the chain on the accumulators, and the copies between them and global memory."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from cutegen.hardware import (
    DType,
    StmatrixAtom,
)
from cutegen.hardware.units import WARP
from cutegen.plan.values.copies import TileCopy
from cutegen.plan.values.opcodes import load_element
from cutegen.plan.values.smem import SmemTile
from cutegen.spec import Step as ChainStep


@dataclass(frozen=True, slots=True)
class EpilogueTensor:
    """Tensor that the epilogue reads or writes beside C, by its name in the kernel: "source" (C as it was), "bias" ...

    `operand` is what an expression calls it. Base address and leading stride are multiples of `align_bytes`.
    """

    name: str
    dtype: DType
    modes: tuple[str, ...]
    major: str
    align_bytes: int
    operand: str

    @property
    def table(self) -> str:
        """The table of the spec's `problem` that speaks of it."""
        return self.name.partition("_")[0]


@dataclass(frozen=True, slots=True)
class Fusion:
    """The chain `steps` from an accumulator to C, with the tensors and the scalars that it names.

    `source_behind_beta` says that C as it was is not read when beta is 0.
    """

    steps: tuple[ChainStep, ...]
    tensors: tuple[EpilogueTensor, ...]
    scalars: tuple[str, ...]
    source_behind_beta: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class EpilogueParts:
    """C's tile in parts of extents `tile`, which leave one after the other; each of `warpgroups` has `count` of them.

    A thread's sums are its warpgroup's parts, one behind the other: `columns` side by side along N, then the next rows.
    Of several `ctas` that have the tile each brings out as many parts of every warpgroup, one CTA behind the other.
    Where K is split up to `sharers` CTAs add what slices left, each a part at a time: which, is known at run time.
    Where C leaves through shared memory, a warpgroup has `buffers` for them there, the one that takes turns with it
    among them: one where all of its sums are a part, else two; `stmatrix` writes them where that is not None, else
    plain stores.
    """

    tile: tuple[int, int]
    columns: int
    count: int
    warpgroups: int
    ctas: int = 1
    sharers: int = 1
    buffers: int = 0
    stmatrix: StmatrixAtom | None = None

    @property
    def at_once(self) -> bool:
        """True where all of a warpgroup's sums are one part, which is stored while the next tile is multiplied."""
        return self.buffers == 1

    @property
    def vectors_held(self) -> bool:
        """True where a warp loads its share of vectors before the main loop: it knows its parts then."""
        return self.ctas == self.sharers == 1

    def elements_held(self, mode: str) -> int:
        """The elements that a lane holds of a vector along M or N: a warp has 16 rows of a part, and all columns."""
        return self.count // self.columns if mode == "m" else -(-self.columns * self.tile[1] // WARP)

    @property
    def of_tile(self) -> int:
        """Parts of the CTA's tile."""
        return self.count * self.warpgroups

    @property
    def of_cta(self) -> int:
        """Parts that one CTA may bring out of one warpgroup's sums."""
        return self.count // self.ctas

    @property
    def written_out(self) -> int:
        """Parts that the text of a kernel has one behind the other: a loop goes through those that are shared."""
        return self.of_cta if self.sharers == 1 else 1

    def first(self, number: int, adding: int, warpgroup: int) -> int:
        """The first part of a warpgroup that the `number`-th of `adding` CTAs adds, from 0; then every `adding`-th.

        Warpgroups' parts are counted one warpgroup behind the other: a CTA beyond one's parts has another's, or none.
        """
        return (number - warpgroup * self.of_cta) % adding

    @property
    def stmatrix_opcodes(self) -> dict[str, int]:
        """`stmatrix` as often as the PTX text holds it: each of four warps stores 16 rows."""
        if self.stmatrix is None:
            return {}
        matrices = self.tile[1] // 8 * 2
        return {self.stmatrix.ptx: self.written_out * matrices // self.stmatrix.matrices}


@dataclass(frozen=True, slots=True, kw_only=True)
class EpiloguePlan:
    """C's way out: through shared memory `smem` and then by `store`, or straight from registers when both are None.

    With `parts` shared memory and store are those of one part.
    """

    dtype: DType
    major: str
    align_bytes: int
    fusion: Fusion
    smem: SmemTile | None
    store: TileCopy | None
    parts: EpilogueParts | None = None

    @property
    def part(self) -> tuple[int, int] | None:
        """Rows and columns of a part, where C leaves in parts."""
        return self.parts.tile if self.parts else None

    @property
    def stmatrix(self) -> StmatrixAtom | None:
        """Instruction that writes a part to shared memory; None for plain stores."""
        return self.parts.stmatrix if self.parts else None

    @property
    def major_mode(self) -> int:
        """Index of the contiguous mode in (M, N)."""
        return ("m", "n").index(self.major)

    @property
    def pieces(self) -> int:
        """Tiles like `smem` that C's tile is made of."""
        return self.parts.of_tile if self.parts else 1

    @property
    def boxes(self) -> int:
        """Boxes that bulk tensor copies store of C's tile."""
        return self.pieces * sum(self.store.boxes_issued.values()) if self.store else 0

    def opcodes(self) -> dict[str, int]:
        """Return its opcodes that can be told from others in the PTX text: bulk stores, `stmatrix`, loads of held
        vectors.
        """
        return {**self.store_opcodes(), **(self.parts.stmatrix_opcodes if self.parts else {}), **self.held_opcodes()}

    def held_opcodes(self) -> dict[str, int]:
        """The loads of vectors that stand before the main loop."""
        loads: Counter[str] = Counter()
        if self.parts is not None and self.parts.vectors_held:
            for x in self.fusion.tensors:
                if len(x.modes) == 1:
                    loads[load_element(x.dtype)] += self.parts.elements_held(x.major)
        return dict(loads)

    def store_opcodes(self) -> dict[str, int]:
        """Bulk tensor stores of C's tile, as often as the PTX text holds them; plain stores are not counted."""
        written = self.parts.written_out if self.parts else 1
        return {opcode: written * boxes for opcode, boxes in (self.store.boxes_issued if self.store else {}).items()}
