"""Places on an element's path. Threads are numbered within the CTA, bytes from where each docstring says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from cutegen.algebra import LayoutExpr, Swizzle, inner_layout, modes
from cutegen.algebra.layout import ComposedLayout
from cutegen.errors import RequestError
from cutegen.hardware.units import BANK_BYTES, BANKS, SECTOR_BYTES, WARP
from cutegen.show.follow.window import Window
from cutegen.spec import MODES
from cutegen.support.words import naturals, round_up

ELEMENT_MODES = {**MODES, **{f"scale_{name}": MODES[name] for name in MODES}}
"""The modes of each operand whose elements can be followed."""


@dataclass(frozen=True, slots=True)
class Element:
    """An element of a complete matrix: `operand` is its role, coordinates are (m, k), (n, k) or (m, n).

    Those of a factor, of "scale_a", "scale_b" or "scale_c", count blocks. With groups the matrices are one group's.
    """

    operand: str
    coordinate: tuple[int, int]

    @classmethod
    def parse(cls, text: str) -> Element:
        """Parse `a,12,40`. Raises RequestError.

        >>> Element.parse("a,12,40")
        Element(operand='a', coordinate=(12, 40))
        """
        name, _, numbers = text.partition(",")
        operand, coordinate = name.strip().lower(), naturals(numbers) or ()
        if operand not in ELEMENT_MODES or len(coordinate) != 2:
            expected = (
                "a, b or c and its two coordinates, as in a,12,40: a(m, k), b(n, k), c(m, n); "
                "scale_a, scale_b and scale_c are the factors of their blocks"
            )
            raise RequestError(f"--element: found {text!r}; expected {expected}")
        return cls(operand, (coordinate[0], coordinate[1]))

    @property
    def modes(self) -> tuple[str, str]:
        """The letters of its two coordinates."""
        return ELEMENT_MODES[self.operand]

    def check(self, extents: tuple[int, int]) -> None:
        """Raise RequestError if a matrix of these extents does not have it."""
        for letter, at, extent in zip(self.modes, self.coordinate, extents, strict=True):
            if not 0 <= at < extent:
                raise RequestError(
                    f"--element: found {letter} {at}; expected 0 to {extent - 1}, because {self.operand} has {extent} "
                    f"along {letter}; --problem M,N,K sets a larger problem"
                )

    def __str__(self) -> str:
        """Return the element in the notation of users."""
        x, y = self.coordinate
        return f"{self.operand}({x}, {y})"


@dataclass(frozen=True, slots=True, kw_only=True)
class GlobalLocation:
    """A place in a matrix in global memory; `byte` and `sector` count from the matrix's first byte.

    `leading_elems` is the stride of the non-contiguous mode: the smallest that the alignment allows. `tile` has the
    numbers of the CTA's tile along both modes, `within` the coordinates in it.
    """

    extents: tuple[int, int]
    major: str
    leading_elems: int
    byte: int
    tile: tuple[int, int]
    within: tuple[int, int]

    @classmethod
    def of(
        cls,
        element: Element,
        extents: tuple[int, int],
        window: Window,
        *,
        major: str,
        align_bytes: int,
        element_bytes: int,
    ) -> GlobalLocation:
        """Return the place of an element of a matrix of `extents`."""
        along = element.modes.index(major)
        leading = round_up(extents[along], max(1, align_bytes // element_bytes))
        coordinate = element.coordinate
        return cls(
            extents=extents,
            major=major,
            leading_elems=leading,
            byte=(coordinate[1 - along] * leading + coordinate[along]) * element_bytes,
            tile=window.tile,
            within=window.within,
        )

    @property
    def sector(self) -> int:
        """The number of its 32-byte sector."""
        return self.byte // SECTOR_BYTES

    @property
    def byte_in_sector(self) -> int:
        """The offset in that sector, in bytes."""
        return self.byte % SECTOR_BYTES


class _OfThread:
    """A property of one thread."""

    __slots__ = ()
    thread: int

    @property
    def warp(self) -> int:
        """The thread's warp."""
        return self.thread // WARP

    @property
    def lane(self) -> int:
        """The thread's lane."""
        return self.thread % WARP


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorStep(_OfThread):
    """The vector with which a thread moves the element: `step` of the `steps` that it executes per tile.

    The vector begins at `first` (tile coordinates) and has `elems` elements; this is the `index`-th. The lanes
    `lanes_first` to `lanes_last` of its warp move in the same phase of shared memory, in `wavefronts`. The complete
    request of the warp touches `warp_sectors` sectors of global memory.
    """

    instruction: tuple[str, ...]
    thread: int
    step: int
    steps: int
    bits: int
    first: tuple[int, int]
    elems: int
    index: int
    lanes_first: int
    lanes_last: int
    wavefronts: int
    warp_sectors: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxStep:
    """The box of a bulk tensor copy that moves the element, issued by one thread.

    `box` of `boxes` along the contiguous mode, `extents` contiguous mode first; the element is the `along`-th of row
    `row` of the box. If `shares` CTAs of a cluster copy the tile together, the `share`-th multicasts this row.
    """

    instruction: tuple[str, ...]
    box: int
    boxes: int
    extents: tuple[int, int]
    row: int
    along: int
    share: int = 0
    shares: int = 1


CopyStep: TypeAlias = VectorStep | BoxStep
"""The instruction that moves an element between global and shared memory."""


@dataclass(frozen=True, slots=True)
class SwappedBit:
    """A bit of a byte offset that the swizzle XORs with a higher one (or lower); `by` is the value of that one."""

    bit: int
    with_bit: int
    by: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedLocation:
    """A place in shared memory.

    `offset_bytes` counts from the first byte of the tile (over all stages), `address_bytes` from the CTA's first byte
    of dynamic shared memory. `plain_bytes` is the offset before the swizzle; it differs in the bits that are XORed.
    """

    stage: int
    offset_bytes: int
    address_bytes: int
    plain_bytes: int
    swizzle: Swizzle | None
    xor: tuple[SwappedBit, ...]

    @property
    def bank(self) -> int:
        """The bank of its first byte."""
        return self.address_bytes // BANK_BYTES % BANKS

    @classmethod
    def of(cls, layout: LayoutExpr, place: tuple[int, int, int], element_bytes: int, base_bytes: int) -> SharedLocation:
        """Locate element `place` (X, Y, stage) of a layout to element offsets; the tile is at `base_bytes`."""
        inner = inner_layout(layout)
        plain = int(inner(*(place if len(modes(inner)) == 3 else place[:2])))
        swizzle, offset = (layout.outer, layout.offset) if isinstance(layout, ComposedLayout) else (None, 0)
        placed = plain if swizzle is None else int(swizzle(plain + offset))
        return cls(
            stage=place[2],
            offset_bytes=placed * element_bytes,
            address_bytes=base_bytes + placed * element_bytes,
            plain_bytes=(plain + offset) * element_bytes,
            swizzle=swizzle,
            xor=() if swizzle is None else _swapped(swizzle, plain + offset, element_bytes.bit_length() - 1),
        )


def _swapped(swizzle: Swizzle, offset: int, byte_bits: int) -> tuple[SwappedBit, ...]:
    """Return every bit that `swizzle` changes or may change, as bits of byte offsets, lowest first."""
    low, high = swizzle.base, swizzle.base + abs(swizzle.shift)
    if swizzle.shift < 0:
        low, high = high, low
    return tuple(
        SwappedBit(low + i + byte_bits, high + i + byte_bits, offset >> (high + i) & 1) for i in range(swizzle.bits)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Held(_OfThread):
    """A value of a thread: the `value`-th of its tCrA, tCrB or tCrC, at `place` (MMA, MMA_X, MMA_Y) of it.

    `register` counts the 32-bit registers of those values; the value begins at bit `bits_from` of it.
    """

    thread: int
    value: int
    place: tuple[int, int, int]
    register: int
    bits_from: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FragmentLoad:
    """The load that moves the element to a thread's registers, the `number`-th of `loads` of its k-block.

    For `ldmatrix`, `matrix` is the matrix of the instruction, which is its phase, and `row` the row in it.
    `addressing_lane` gives the address of its 16 bytes, `row_address_bytes` of dynamic shared memory. `register` is the
    destination register that holds the element in the receiving thread. For plain loads each lane addresses what it
    receives, and `matrix` and `row` are None. `wavefronts` are those of the phase.
    """

    instruction: str
    warp: int
    k_block: int
    number: int
    loads: int
    phase: int
    matrix: int | None
    row: int | None
    addressing_lane: int
    row_address_bytes: int
    wavefronts: int
    lane: int
    register: int
    bits_from: int
    held: Held


@dataclass(frozen=True, slots=True, kw_only=True)
class DescriptorRead:
    """A block of the operand that a `wgmma` reads in place, by the descriptor `encoded` (with the CTA's own addresses).

    The block begins at `start_bytes` of dynamic shared memory. The element is in its row `row`, in core matrix `core`
    (of 8 rows of 16 bytes, rows first), row `core_row`, byte `core_byte`. `warpgroups` multiply it,
    none if one thread does.
    """

    layout: str
    encoded: int
    start_bytes: int
    lbo_bytes: int
    sbo_bytes: int
    block: int
    k_block: int
    row: int
    along_k: int
    core: tuple[int, int]
    core_row: int
    core_byte: int
    warpgroups: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class AccumulatorHits:
    """The values of a thread's tCrC that products of the element are added to, or that a factor of C divides."""

    thread: int
    values: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PairMember:
    """A column of B in a kernel with pairs of columns: the `member` of column `pair` of C."""

    pair: int
    member: str


@dataclass(frozen=True, slots=True)
class ScaledBlock:
    """The block of a factor: rows of its operand, and elements of K of each."""

    rows: range
    k: range


@dataclass(frozen=True, slots=True)
class TensorMemoryLocation:
    """A factor's byte in tensor memory: at the same `lane` of each quarter, in a column of the CTA's."""

    lane: int
    column: int
    byte: int


@dataclass(frozen=True, slots=True)
class SumsLocation:
    """Sums in tensor memory: their lanes, and columns that count from the first of their tile's buffer.

    `instruction` loads them.
    """

    lanes: tuple[int, ...]
    columns: tuple[int, ...]
    instruction: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OperandElementPath:
    """An element of A or B, or a factor of one. `read_as` is the kernel's name: the other one if A and B are swapped.

    `k_tile` counts from the matrix's first; `slice` is the CTA's slice if K is split. `shared.stage` is the stage of
    this k-tile in a CTA's first tile. An element `meets` the sums that its products are added to, in the row or column
    `line` of C's tile, a factor those that it scales.
    """

    element: Element
    read_as: str
    dtype: str
    source: GlobalLocation
    k_tile: int
    slice: int
    slices: int
    copy: CopyStep
    shared: SharedLocation
    loads: tuple[FragmentLoad, ...]
    reads: tuple[DescriptorRead, ...]
    meets: tuple[AccumulatorHits, ...]
    line: int
    pair: PairMember | None = None
    scales: ScaledBlock | None = None
    tensor_memory: TensorMemoryLocation | None = None
    sums: SumsLocation | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedResult:
    """C's element in shared memory: in the `part` of the tile that is stored at once, written by `instruction`.

    With `stmatrix` it is in the `matrix`-th matrix of the `number`-th of a warp's instructions, in row `row`, which
    `addressing_lane` addresses. With plain stores these are None, and the thread that holds the element writes it.
    """

    instruction: str
    part: int
    parts: int
    place: SharedLocation
    number: int | None = None
    matrix: int | None = None
    row: int | None = None
    addressing_lane: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FactorOfResult:
    """The factor of a quantized element, of the `columns` of C in its row: `threads` find their largest magnitude.

    If they are of several warps, these meet at the bytes `shared` of the CTA's shared memory, one for each 16 rows of
    the tile. The factor is at `coordinate` of those of C, `offset_elems` from the first, and `stored_by` a thread.
    """

    coordinate: tuple[int, int]
    columns: range
    threads: tuple[int, ...]
    shared: tuple[int, ...]
    stored_by: int
    offset_elems: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultElementPath:
    """An element of C, from its accumulators to global memory; without `staged` its thread stores it itself.

    It is of one sum, `held` by a thread. With pairs of columns it is of the sums of both `members`, by their names. A
    quantized one is divided by its `factor` before it is rounded.
    """

    element: Element
    dtype: str
    read_as: str
    held: Held
    sums: SumsLocation | None
    members: Mapping[str, Held]
    staged: StagedResult | None
    store: CopyStep | None
    target: GlobalLocation
    slices: int
    factor: FactorOfResult | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultFactorPath:
    """A factor of a quantized C, from the accumulators of its block, `meets`, to global memory.

    Its tile is that of C, in blocks; `first` is the first value of its block in the kernel's tile.
    """

    element: Element
    dtype: str
    read_as: str
    first: tuple[int, int]
    meets: tuple[AccumulatorHits, ...]
    factor: FactorOfResult
    target: GlobalLocation
    slices: int


ElementPath: TypeAlias = OperandElementPath | ResultElementPath | ResultFactorPath
