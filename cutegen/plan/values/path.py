"""The way of an operand from global memory to the instruction that reads it, hop by hop.

```text
global memory --g2s--> stages of shared memory --s2r--> registers --convert--> multiplied
                                               `------> in place, by descriptor, or by threads that scale with it
```

A plan has one path for each operand that its k-tiles consist of. Everything that is said of all operands, such as the
bytes of a stage, is a sum over its paths: nothing asks how many there are.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from cutegen.algebra import OperandName, TiledMma
from cutegen.hardware import DType, OperandSource, Target
from cutegen.hardware.units import REGISTER_BITS
from cutegen.plan.geometry import Coordinates, Place, place_of_value, shares_of_threads
from cutegen.plan.kernel.program import Action, Step
from cutegen.plan.values.copies import AccessKey, Landing, TileCopy
from cutegen.plan.values.fragments import FragmentCopy, Fragments
from cutegen.plan.values.operand import SmemTile

ROWS: tuple[OperandName, OperandName] = ("A", "B")
"""Sides of the product, in the order of the rows that they have: along M, and along N."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperandPath:
    """The way of an operand; `name` is its role in a call, `tile` its (X, K) share of the CTA tile.

    `operand` is the side of the product whose rows it has: A has M, B has N. Memory holds elements of `dtype`, which
    are converted in registers if the instruction multiplies others. A `block` of rows and columns of K has
    `block_elems` elements of factors along K; an element of A or B is its own.
    """

    name: str
    operand: OperandName
    dtype: DType
    multiplied: DType
    modes: tuple[str, str]
    major: str
    align_bytes: int
    tile: tuple[int, int]
    g2s: TileCopy
    smem: SmemTile
    s2r: Fragments
    block: tuple[int, int] = (1, 1)
    block_elems: int = 1
    box_step: int = 1
    """Elements of the contiguous mode at whose multiples a box begins, where the first that a tile needs may be any."""

    @property
    def major_mode(self) -> int:
        """Index of the contiguous mode in `modes`."""
        return self.modes.index(self.major)

    @property
    def box_steps(self) -> tuple[int, int]:
        """The multiples of elements at which its boxes begin, along both modes."""
        return (self.box_step, 1) if self.major_mode == 0 else (1, self.box_step)

    @property
    def is_multiplied(self) -> bool:
        """True for A and B; factors scale sums."""
        return self.block == (1, 1)

    @property
    def home(self) -> OperandSource:
        """The end of its way, where the instruction reads it."""
        return self.s2r.home

    @property
    def read_key(self) -> str:
        """Key of the accesses that read it in shared memory: of loads to registers, or of the MMA itself."""
        return AccessKey.s2r(self.name) if self.s2r.in_registers else AccessKey.mma(self.name)

    @property
    def read_action(self) -> Action:
        """The step that reads it in shared memory: its loads, or the multiplications that read it or that it scales."""
        return self.s2r.action

    @property
    def fragment_copy(self) -> FragmentCopy:
        """The copy of its fragments to registers, if its multiplier reads them there."""
        copy = self.s2r.copied
        assert copy is not None, f"{self.name} is read from shared memory"
        return copy

    @property
    def covers(self) -> tuple[int, int]:
        """Rows and columns of K that its tile is for."""
        return self.tile[0] * self.block[0], self.tile[1] // self.block_elems * self.block[1]

    def loads(self, tiled_mma: TiledMma) -> Counter[str]:
        """Instructions that a warp, or a single thread, issues to load the fragments or factors of one k-tile."""
        return self.s2r.opcodes(self.operand, self.tile, self.dtype, tiled_mma)

    def landing(self, tiled_mma: TiledMma, target: Target) -> Landing:
        """Destination of its copies of a k-tile."""
        stage = self.smem.layout_of_one_stage
        return Landing(tile=self.tile, element=self.dtype, stage=stage, tiled_mma=tiled_mma, target=target)

    def opcodes(self, step: Step, tiled_mma: TiledMma, target: Target) -> Counter[str]:
        """Return the instructions that each participating thread, or warp, issues for it in a step on a k-tile."""
        if step.action is Action.LOAD or step.action is self.read_action is Action.TO_TMEM:
            return self.loads(tiled_mma)
        return self.g2s.opcodes(step, self.landing(tiled_mma, target))


def k_tile_bytes(paths: Iterable[OperandPath], side: OperandName | None = None) -> int:
    """Return the bytes of a k-tile in global memory: of all operands, or of those of one side of the product."""
    return sum(x.tile[0] * x.tile[1] * x.dtype.bytes for x in paths if side in (None, x.operand))


# Table of the element that each register of each thread receives before an MMA, from layout algebra.


@dataclass(frozen=True, slots=True)
class FragmentTable:
    """The fragments of one k-tile: the MMA's operands, independent of the instruction that loads them.

    `coordinates` int64[thread, value] are column-major in the operand's (X, K) tile. Values are in the order of tCrA or
    tCrB, of `extents` (MMA, MMA_X, MMA_K), first mode fastest; `bits` is the width of one.
    """

    operand: OperandName
    tile: tuple[int, int]
    coordinates: Coordinates
    extents: Place
    bits: int

    @property
    def values(self) -> int:
        """Values of a thread."""
        return int(self.coordinates.shape[1])

    @property
    def registers(self) -> int:
        """Registers of a thread, of 32 bits each."""
        return self.values * self.bits // REGISTER_BITS

    def place(self, value: int) -> Place:
        """Return the coordinate of a value in (MMA, MMA_X, MMA_K)."""
        return place_of_value(self.extents, value)

    def element(self, coordinate: int) -> tuple[int, int]:
        """Return (x, k) of a column-major coordinate."""
        return coordinate % self.tile[0], coordinate // self.tile[0]


def fragment_table(tiled_mma: TiledMma, operand: OperandPath) -> FragmentTable:
    """Return what each thread of `tiled_mma` holds of one k-tile of `operand`.

    >>> from cutegen.plan import plan
    >>> from cutegen.spec import load_spec
    >>> gemm = plan(load_spec("sm80_hgemm_tn"), "sm_80")
    >>> table = fragment_table(gemm.tiled_mma, gemm.a)
    >>> [table.element(coordinate) for coordinate in table.coordinates[5, :4].tolist()]
    [(1, 2), (1, 3), (9, 2), (9, 3)]
    """
    coordinates, extents = shares_of_threads(tiled_mma, operand.operand, operand.tile)
    return FragmentTable(
        operand=operand.operand,
        tile=operand.tile,
        coordinates=coordinates,
        extents=extents,
        bits=operand.dtype.bits,
    )
