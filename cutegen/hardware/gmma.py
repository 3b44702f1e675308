"""Operands that `wgmma` and `tcgen05.mma` read in shared memory: swizzled layouts of 8 rows, and their descriptors."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from cutegen import algebra
from cutegen.algebra import ComposedLayout, Layout, LayoutExpr, Swizzle, make_layout, modes
from cutegen.algebra.layout import IntTree, zipped_divide

# Shared-memory layouts that `wgmma` reads by a descriptor: atoms of 8 rows of 16, 32, 64 or 128 swizzled bytes.
#
# Atoms and names: CUTLASS `cute/atom/mma_traits_sm90_gmma.hpp`, GMMA::Layout_K_SW128_Atom and its like; their order of
# preference: `cutlass/gemm/collective/builders/sm90_common.inl`, ss_smem_selector. Meaning of the modes: PTX ISA,
# "Shared Memory Matrix Layout" of wgmma. A bulk tensor copy with the same swizzle writes the same layouts.


VECTOR_BYTES = 16
"""Bytes that a swizzle keeps together, and the unit of a descriptor's fields."""
ATOM_ROWS = 8


@dataclass(frozen=True, slots=True)
class SwizzleMode:
    """Swizzle of a row's bytes: bits 4 to 4 + `bits` of an address, each XORed with the bit three above it.

    `code` is its value in a matrix descriptor.
    """

    name: str
    bits: int
    code: int

    @property
    def row_bytes(self) -> int:
        """The bytes of a row of the atom.

        >>> [mode.row_bytes for mode in SWIZZLE_MODES]
        [128, 64, 32, 16]
        """
        return VECTOR_BYTES << self.bits

    @property
    def period_bytes(self) -> int:
        """The bytes after which the pattern repeats; a tile's address is a multiple of them."""
        return ATOM_ROWS * self.row_bytes if self.bits else VECTOR_BYTES

    def swizzle(self, element_bits: int) -> Swizzle | None:
        """Return the same on offsets in elements; None for the mode without a swizzle."""
        return Swizzle(self.bits, _vector_elems(element_bits).bit_length() - 1, 3) if self.bits else None


SW128, SW64, SW32, INTER = (
    SwizzleMode("SW128", 3, 1),
    SwizzleMode("SW64", 2, 2),
    SwizzleMode("SW32", 1, 3),
    SwizzleMode("INTER", 0, 0),
)
SWIZZLE_MODES = (SW128, SW64, SW32, INTER)
"""Swizzle modes in order of preference: the wider a row, the fewer banks serve two of them at once."""


@dataclass(frozen=True, slots=True)
class GmmaLayout:
    """A layout atom for elements of any type; `major_mode` is its contiguous mode, 1 for K, 0 for M or N."""

    mode: SwizzleMode
    major_mode: int

    @property
    def name(self) -> str:
        """CUTLASS's name."""
        return f"Layout_{'MN' if self.major_mode == 0 else 'K'}_{self.mode.name}_Atom"

    def atom(self, element_bits: int) -> LayoutExpr:
        """Map (M|N, K) to offsets in elements.

        >>> from cutegen.algebra import format_layout
        >>> format_layout(GMMA_LAYOUTS["Layout_K_SW128_Atom"].atom(16))
        'Sw<3,3,3> o _0 o (_8,_64):(_64,_1)'
        """
        width = self.width(element_bits)
        rows = (ATOM_ROWS, width), (width, 1)
        affine = Layout(*rows) if self.major_mode == 1 else Layout(*(part[::-1] for part in rows))
        swizzle = self.mode.swizzle(element_bits)
        return affine if swizzle is None else ComposedLayout(swizzle, affine)

    def width(self, element_bits: int) -> int:
        """Return the elements of a row."""
        return self.mode.row_bytes * 8 // element_bits

    def divides(self, tile: Sequence[int], element_bits: int) -> bool:
        """Return whether complete atoms fill a tile of these extents along (M|N, K)."""
        along, across = tile[self.major_mode], tile[1 - self.major_mode]
        return along % self.width(element_bits) == 0 and across % ATOM_ROWS == 0

    def tile(self, extents: Sequence[int], element_bits: int) -> LayoutExpr:
        """Repeat the atom over a tile (M|N, K, stages), rows first, in the order of a bulk tensor copy's boxes.

        Raises ValueError if atoms do not fill the tile.
        """
        order = (0, 1) if self.major_mode == 1 else (1, 0)
        return algebra.tile_to_shape(self.atom(element_bits), extents, (*order, *range(2, len(extents))))


def _vector_elems(element_bits: int) -> int:
    return VECTOR_BYTES * 8 // element_bits


GMMA_LAYOUTS: Mapping[str, GmmaLayout] = {
    layout.name: layout for layout in (GmmaLayout(mode, major) for major in (1, 0) for mode in SWIZZLE_MODES)
}
"""Layouts by name, K-major ones first, each in order of preference."""


def gmma_layouts(tile: Sequence[int], major_mode: int, element_bits: int) -> tuple[GmmaLayout, ...]:
    """Return those whose atoms fill the tile, the preferred one first.

    >>> [layout.name for layout in gmma_layouts((128, 32), 1, 16)]
    ['Layout_K_SW64_Atom', 'Layout_K_SW32_Atom', 'Layout_K_INTER_Atom']
    """
    of_major = (layout for layout in GMMA_LAYOUTS.values() if layout.major_mode == major_mode)
    return tuple(layout for layout in of_major if layout.divides(tile, element_bits))


# Matrix descriptors: how an instruction finds an operand's block in shared memory, derived from a layout and proved.
#
# PTX ISA, "Shared Memory Matrix Layout" and "Matrix Descriptor Format" of wgmma; the fields as in CUTLASS
# `cute/arch/mma_sm90_desc.hpp`, and their meaning by major and swizzle in `cute/atom/mma_traits_sm90_gmma.hpp`,
# make_gmma_desc. A block is rows of A or N of B by 32 bytes of K. Those of `tcgen05` differ in the version, bits 46 to
# 48 (CUTLASS `cute/arch/mma_sm100_desc.hpp`); a swizzle's code has one more bit there, below the others, which is 0.


BLOCK_K_BYTES = 32
_FIELD = (1 << 14) - 1
_LINE_SHIFT = 7


class NoDescriptorError(ValueError):
    """A layout that no matrix descriptor describes; the message is the reason, without a final period."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixDescriptor:
    """One block: `start_bytes` is its address, `lbo_bytes` the leading and `sbo_bytes` the stride byte offset.

    `base_offset` is the 128-byte line, of 8, at which the swizzle's pattern begins: 0 if the tile's address is a
    multiple of its period, as everywhere here. `version` is that of the instruction's descriptors.
    """

    start_bytes: int = 0
    lbo_bytes: int
    sbo_bytes: int
    mode: SwizzleMode
    base_offset: int = 0
    version: int = 0

    def encode(self) -> int:
        """Return the 64 bits that the instruction takes.

        >>> from cutegen.hardware.gmma import SW128
        >>> hex(MatrixDescriptor(start_bytes=2048, lbo_bytes=16, sbo_bytes=1024, mode=SW128).encode())
        '0x4000004000010080'
        """
        fields = zip((self.start_bytes, self.lbo_bytes, self.sbo_bytes), (0, 16, 32), strict=True)
        placed = sum((value // VECTOR_BYTES & _FIELD) << shift for value, shift in fields)
        return placed | self.version << 46 | self.base_offset << 49 | self.mode.code << 62

    @classmethod
    def decode(cls, bits: int) -> Self:
        """Decode 64 bits into a descriptor."""
        start, lbo, sbo = ((bits >> shift & _FIELD) * VECTOR_BYTES for shift in (0, 16, 32))
        mode = next(mode for mode in SWIZZLE_MODES if mode.code == bits >> 62)
        return cls(
            start_bytes=start,
            lbo_bytes=lbo,
            sbo_bytes=sbo,
            mode=mode,
            base_offset=bits >> 49 & 7,
            version=bits >> 46 & 7,
        )

    def advanced(self, steps: int) -> Self:
        """Return the block that begins `steps` times 16 bytes further: the same sum on the 64 bits."""
        return replace(self, start_bytes=self.start_bytes + steps * VECTOR_BYTES)

    def canonical(self, rows: int, major_mode: int, element_bytes: int) -> Layout:
        """Map (M|N, K) of the block to offsets in elements from its start, before the swizzle.

        If M or N is the contiguous mode, it is rounded up to complete swizzled rows.
        """
        row, vector, lbo, sbo, k = (
            each // element_bytes
            for each in (self.mode.row_bytes, VECTOR_BYTES, self.lbo_bytes, self.sbo_bytes, BLOCK_K_BYTES)
        )
        interleaved = self.mode is INTER
        if major_mode == 1:
            halves = Layout((vector, k // vector), (1, lbo if interleaved else vector))
            return make_layout(Layout((ATOM_ROWS, rows // ATOM_ROWS), (row, sbo)), halves)
        along, across = (sbo, lbo) if interleaved else (lbo, sbo)
        eights = Layout((ATOM_ROWS, k // ATOM_ROWS), (row, across))
        return make_layout(Layout((row, -(-rows // row)), (1, along)), eights)

    def addresses(self, rows: int, major_mode: int, element_bytes: int) -> NDArray[np.int64]:
        """Return the byte at which the instruction reads each element of the block: int64[rows, K].

        The swizzle uses the address, counted from the start of the pattern.
        """
        placed = (
            algebra.offsets_2d(self.canonical(rows, major_mode, element_bytes))[:rows] * element_bytes
            + self.start_bytes
        )
        line = (placed >> _LINE_SHIFT) - self.base_offset
        return placed ^ (line & (1 << self.mode.bits) - 1) * VECTOR_BYTES


@dataclass(frozen=True, slots=True)
class OperandDescriptors:
    """Every block of an operand's tile that begins at address 0: the first one, and the steps to the others.

    `steps` maps (M|N block, K block, stage) to units of 16 bytes, which are added to the 64 bits of `first`.
    """

    first: MatrixDescriptor
    steps: Layout


def operand_descriptors(layout: LayoutExpr, major_mode: int, element_bytes: int, rows: int) -> OperandDescriptors:
    """Return the descriptors of a tile (M|N, K, stages) in shared memory, in blocks of `rows`: A's 64, or the atom's N.

    Raises NoDescriptorError if the instruction cannot read the layout.

    >>> from cutegen.hardware.gmma import GMMA_LAYOUTS
    >>> of_a = operand_descriptors(GMMA_LAYOUTS["Layout_K_SW128_Atom"].tile((128, 64), 16), 1, 2, rows=64)
    >>> hex(of_a.first.encode()), of_a.steps
    ('0x4000004000010000', Layout((2, 4), (512, 2)))
    """
    block, rest = _blocks(algebra.inner_layout(layout), rows, element_bytes)
    first = _first(block, _mode(layout, element_bytes), major_mode, element_bytes)
    steps = Layout(rest.shape, _in_vectors(rest.stride, element_bytes))
    _prove(first, steps, algebra.with_inner(layout, make_layout(block, rest)), major_mode, element_bytes)
    return OperandDescriptors(first, steps)


def _mode(layout: LayoutExpr, element_bytes: int) -> SwizzleMode:
    if not isinstance(layout, ComposedLayout):
        return INTER
    known = {mode.swizzle(element_bytes * 8): mode for mode in SWIZZLE_MODES if mode is not INTER}
    if layout.offset:
        raise NoDescriptorError(f"its swizzle begins {layout.offset} elements into the pattern")
    if layout.outer not in known:
        names = ", ".join(map(_swizzle_name, known))
        raise NoDescriptorError(f"{_swizzle_name(layout.outer)} is not one of wgmma's swizzles, {names}")
    return known[layout.outer]


def _swizzle_name(swizzle: Swizzle) -> str:
    return f"Swizzle<{swizzle.bits},{swizzle.base},{swizzle.shift}>"


def _blocks(layout: Layout, rows: int, element_bytes: int) -> tuple[Layout, Layout]:
    """Return (M|N, K) of the first block, and (M|N block, K block, stage) of the starts of all blocks."""
    k = BLOCK_K_BYTES // element_bytes
    x, y = map(algebra.size, modes(layout)[:2])
    if x % rows or y % k:
        raise NoDescriptorError(f"blocks of {rows}x{k} do not fill a tile of {x}x{y}")
    try:
        return zipped_divide(layout, (rows, k))
    except ValueError as error:
        raise NoDescriptorError(f"blocks of {rows}x{k} and the layout's do not nest") from error


def _first(block: Layout, mode: SwizzleMode, major_mode: int, element_bytes: int) -> MatrixDescriptor:
    """Return the descriptor whose strides are the block's own. A mode with one repetition gets stride 0."""
    placed = algebra.offsets_2d(block) * element_bytes
    row, vector = mode.row_bytes // element_bytes, VECTOR_BYTES // element_bytes

    def stride(x: int, y: int) -> int:
        return int(placed[x, y]) if x < placed.shape[0] and y < placed.shape[1] else 0

    if major_mode == 1:
        # With swizzled rows, both halves of K are in one row, and the field is 1 and not read.
        lbo, sbo = (stride(0, vector) if mode is INTER else VECTOR_BYTES), stride(ATOM_ROWS, 0)
    else:
        along, across = stride(row, 0), stride(0, ATOM_ROWS)
        lbo, sbo = (across, along) if mode is INTER else (along, across)
    for name, value in (("leading", lbo), ("stride", sbo)):
        if value % VECTOR_BYTES or not 0 <= value <= _FIELD * VECTOR_BYTES:
            most = _FIELD * VECTOR_BYTES
            raise NoDescriptorError(f"its {name} byte offset is {value}, not a multiple of {VECTOR_BYTES} up to {most}")
    return MatrixDescriptor(lbo_bytes=lbo, sbo_bytes=sbo, mode=mode)


def _in_vectors(strides: IntTree, element_bytes: int) -> IntTree:
    """Return strides in elements as multiples of 16 bytes."""
    if isinstance(strides, tuple):
        return tuple(_in_vectors(stride, element_bytes) for stride in strides)
    if strides * element_bytes % VECTOR_BYTES:
        raise NoDescriptorError(f"blocks begin {strides * element_bytes} bytes apart, not a multiple of {VECTOR_BYTES}")
    return strides * element_bytes // VECTOR_BYTES


def _prove(first: MatrixDescriptor, steps: Layout, blocks: LayoutExpr, major_mode: int, element_bytes: int) -> None:
    """Compare the address of each element of each block with the layout's. Raises NoDescriptorError at the first."""
    rows, k = map(algebra.size, modes(modes(algebra.inner_layout(blocks))[0]))
    stored = algebra.offsets(blocks).reshape(-1, k, rows) * element_bytes
    for block, step in enumerate(algebra.offsets(steps)):
        read = first.advanced(int(step)).addresses(rows, major_mode, element_bytes).T
        wrong = np.argwhere(read != stored[block])
        if len(wrong):
            at, row = wrong[0]
            raise NoDescriptorError(
                f"element ({row}, {at}) of block {block} is at byte {stored[block, at, row]}, but the instruction "
                f"reads {read[at, row]}"
            )
