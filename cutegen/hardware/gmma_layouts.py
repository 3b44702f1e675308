"""Shared-memory layouts that `wgmma` reads by a descriptor: atoms of 8 rows of 16, 32, 64 or 128 swizzled bytes.

Atoms and names: CUTLASS `cute/atom/mma_traits_sm90_gmma.hpp`, GMMA::Layout_K_SW128_Atom and its like; their order of
preference: `cutlass/gemm/collective/builders/sm90_common.inl`, ss_smem_selector. Meaning of the modes: PTX ISA, "Shared
Memory Matrix Layout" of wgmma. A bulk tensor copy with the same swizzle writes the same layouts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cutegen.algebra import ComposedLayout, Layout, LayoutExpr, Swizzle, tile_to_shape

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
        return tile_to_shape(self.atom(element_bits), extents, (*order, *range(2, len(extents))))


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
