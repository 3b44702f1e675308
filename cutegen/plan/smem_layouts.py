"""Shared-memory layouts of a tile: those a spec gives, and those compared if it leaves them open."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from cutegen import algebra
from cutegen.algebra import ComposedLayout, Layout, LayoutExpr, Swizzle, inner_layout, offsets, size
from cutegen.hardware import Instruction
from cutegen.hardware.gmma import GMMA_LAYOUTS, GmmaLayout, gmma_layouts
from cutegen.spec import FAMILIES, GemmSpec, SmemLayout
from cutegen.spec.checks import SwizzleBits
from cutegen.support.words import extents

VECTOR_BYTES = 16
ATOM_ROWS = 8
ATOM_WIDTHS_VECTORS = (8, 4, 2, 1)  # 128 bytes, one row of banks, and its halves
PADS_VECTORS = range(1, 8)
ANY_TILE = "a pad suits any tile"


@dataclass(frozen=True, slots=True)
class LayoutOption:
    """A layout of a tile: `atom` is repeated over it; `turned` if its contiguous mode is not the matrix's."""

    atom: LayoutExpr
    swizzle: Swizzle | None = None
    pad_elems: int = 0
    turned: bool = False

    @property
    def name(self) -> str:
        """The name in the ranking."""
        if self.swizzle is not None:
            rows = extents(size(part) for part in algebra.modes(inner_layout(self.atom)))
            return f"Swizzle<{self.swizzle.bits},{self.swizzle.base},{self.swizzle.shift}> on {rows}"
        if self.pad_elems:
            return f"{'turned, ' if self.turned else ''}pad {self.pad_elems}"
        return f"plain {algebra.format_layout(self.atom)}"


def all_options(
    tile: tuple[int, int],
    major_mode: int,
    element_bytes: int,
    vector_bytes: int = VECTOR_BYTES,
    *,
    turned: bool = False,
) -> Iterator[LayoutOption]:
    """Return the plain tile, every useful pad, and every Swizzle<B,M,S> that keeps vectors of 2^M elements contiguous.

    All swizzles of the widest atom are listed, and for narrower ones only CuTe's own: S = 3 and M a vector. With
    `turned` the transposed tile is included too, which splits vectors.
    """
    vector_elems = vector_bytes // element_bytes
    vector_base = vector_elems.bit_length() - 1
    for mode in (major_mode, 1 - major_mode) if turned else (major_mode,):
        yield LayoutOption(rows_of_tile(tile, mode), turned=mode != major_mode)
        for pad in (vectors * vector_elems for vectors in PADS_VECTORS):
            yield LayoutOption(rows_of_tile(tile, mode, pad), pad_elems=pad, turned=mode != major_mode)
    for i, atom in enumerate(_atoms(tile, major_mode, VECTOR_BYTES // element_bytes)):
        atom_bits = size(atom).bit_length() - 1
        for base, shift, bits in _swizzles(vector_base, atom_bits):
            if i == 0 or (base, shift) == (vector_base, 3):
                swizzle = Swizzle(bits, base, shift)
                yield LayoutOption(ComposedLayout(swizzle, atom), swizzle=swizzle)


def _swizzles(vector_base: int, atom_bits: int) -> Iterator[tuple[int, int, int]]:
    """Yield (base, shift, bits) of the swizzles whose period fits an atom of 2^atom_bits elements."""
    for base in (vector_base, vector_base + 1):
        for shift in range(1, atom_bits - base):
            for bits in range(1, min(shift, atom_bits - base - shift) + 1):
                yield base, shift, bits


def rows_of(rows: int, width: int, major_mode: int, pad_elems: int = 0) -> Layout:
    """Return rows of `width` contiguous elements, one after the other; rows are along mode 0 if that is contiguous.

    >>> rows_of(8, 64, 1, 4), rows_of(8, 64, 0)
    (Layout((8, 64), (68, 1)), Layout((64, 8), (1, 64)))
    """
    pitch = width + pad_elems
    return Layout((rows, width), (pitch, 1)) if major_mode == 1 else Layout((width, rows), (1, pitch))


def rows_of_tile(tile: tuple[int, int], major_mode: int, pad_elems: int = 0) -> Layout:
    """Return the layout of a tile whose rows follow one another, with `pad_elems` between them."""
    return rows_of(tile[1 - major_mode], tile[major_mode], major_mode, pad_elems)


def _atoms(tile: tuple[int, int], major_mode: int, vector_elems: int) -> Iterator[Layout]:
    """Return atoms of 8 rows, widest first: (8, w):(w, 1), or its mirror for a tile that is contiguous along mode 0."""
    for vectors in ATOM_WIDTHS_VECTORS:
        width = vectors * vector_elems
        if tile[major_mode] % width == 0 and tile[1 - major_mode] % ATOM_ROWS == 0:
            yield rows_of(ATOM_ROWS, width, major_mode)


def requested_options(
    spec: GemmSpec,
    key: str,
    asked: SmemLayout | Literal[False] | None,
    tile: tuple[int, int],
    major_mode: int,
    element_bytes: int,
) -> tuple[LayoutOption, ...]:
    """Return the layouts that the spec allows, none if it leaves them open; a swizzle leaves its atom's width open.

    Raises SpecError for a layout that cannot hold the tile.
    """
    if not isinstance(asked, SmemLayout):
        return ()
    if asked.pad is not None:
        return (LayoutOption(rows_of_tile(tile, major_mode, asked.pad), pad_elems=asked.pad),)
    if asked.layout is not None and asked.layout in GMMA_LAYOUTS:
        return (_named_layout(spec, f"{key}.layout", GMMA_LAYOUTS[asked.layout], tile, 8 * element_bytes),)
    if asked.layout is not None:
        return (_given_layout(spec, f"{key}.layout", asked.layout, tile),)
    if asked.swizzle is not None:
        swizzle, vector_elems = Swizzle(*asked.swizzle), VECTOR_BYTES // element_bytes
        atoms = tuple(_atoms(tile, major_mode, vector_elems))
        # Without tensor cores, copies as narrow as the layout requires are chosen.
        by_fma = spec.family is not None and Instruction.FMA in FAMILIES[spec.family].needs
        least_elems = 1 if by_fma else vector_elems
        _check_base(spec, f"{key}.swizzle", swizzle, least_elems)
        _check_swizzle(spec, f"{key}.swizzle", swizzle, tile, vector_elems, atoms)
        return tuple(LayoutOption(ComposedLayout(swizzle, atom), swizzle=swizzle) for atom in atoms)
    return ()


def _check_base(spec: GemmSpec, key: str, swizzle: Swizzle, least_elems: int) -> None:
    bits, base, shift = swizzle.bits, swizzle.base, swizzle.shift
    least = least_elems.bit_length() - 1
    if bits and base < least:
        further = SwizzleBits()((bits, least, shift)) is None
        raise spec.error(
            key,
            found=f"[{bits}, {base}, {shift}]: base {base} keeps 2^{base} = {2**base} elements together",
            expected=f"at least {least}: a row or copy of {VECTOR_BYTES} bytes is 2^{least} = {least_elems} elements",
            fix=f"[{bits}, {least}, {shift}]" if further else f"[3, {least}, 3] swizzles rows of 128 bytes",
        )


def _period_elems(swizzle: Swizzle) -> int:
    return int(2 ** (swizzle.bits + swizzle.base + swizzle.shift))


def _check_swizzle(
    spec: GemmSpec, key: str, swizzle: Swizzle, tile: tuple[int, int], vector_elems: int, atoms: tuple[Layout, ...]
) -> None:
    bits, base, shift = swizzle.bits, swizzle.base, swizzle.shift
    least = vector_elems.bit_length() - 1
    period, elems = _period_elems(swizzle), tile[0] * tile[1]
    if bits and elems % period:
        shortest = 2 ** (least + 2)
        raise spec.error(
            key,
            found=f"[{bits}, {base}, {shift}]: a period of 2^{bits + base + shift} = {period} elements",
            expected=f"a period that divides the tile's {extents(tile)} = {elems} elements",
            fix=looks_like_bytes(swizzle, VECTOR_BYTES // vector_elems, lambda own: not elems % _period_elems(own))
            or (ANY_TILE if elems % shortest else f"[1, {least}, 1] has the shortest, {shortest}"),
        )
    if not atoms:
        raise spec.error(
            key,
            found=f"a tile of {extents(tile)}",
            expected=f"a multiple of an atom of {ATOM_ROWS} rows of {vector_elems} elements",
            fix=ANY_TILE,
        )


def _named_layout(
    spec: GemmSpec, key: str, named: GmmaLayout, tile: tuple[int, int], element_bits: int
) -> LayoutOption:
    """Return CUTLASS's layout atom, over a tile as its collectives repeat it: first along the mode across rows."""
    if not named.divides(tile, element_bits):
        width = named.width(element_bits)
        atom = (ATOM_ROWS, width) if named.major_mode == 1 else (width, ATOM_ROWS)
        filling = [other.name for other in gmma_layouts(tile, named.major_mode, element_bits)]
        raise spec.error(
            key,
            found=f'"{named.name}", an atom of {extents(atom)} elements of {element_bits} bits',
            expected=f"an atom that divides the operand's tile {extents(tile)}",
            fix=f'"{filling[0]}" does' if filling else ANY_TILE,
        )
    swizzle, along = named.mode.swizzle(element_bits), named.width(element_bits)
    across = ATOM_ROWS if named.major_mode == 1 else tile[1]  # along M first, which is how atoms are repeated anyway
    rows = rows_of(across, along, named.major_mode)
    return LayoutOption(rows if swizzle is None else ComposedLayout(swizzle, rows), swizzle=swizzle)


def in_elements(swizzle: Swizzle | None, element_bytes: int) -> Swizzle | None:
    """Return the same swizzle on offsets in elements if the given one looks like one of bytes, else None.

    Swizzles of bytes keep 16 of them together and XOR bits three apart: Swizzle<B,4,3>, as PTX describes them.

    >>> in_elements(Swizzle(3, 4, 3), 2), in_elements(Swizzle(3, 3, 3), 2)
    (Swizzle(3, 3, 3), None)
    """
    vector_elems = VECTOR_BYTES // element_bytes
    of_bytes = swizzle is not None and (swizzle.base, swizzle.shift) == (4, 3) and 1 <= swizzle.bits <= 3
    if swizzle is None or not of_bytes or vector_elems == VECTOR_BYTES:
        return None
    return Swizzle(swizzle.bits, vector_elems.bit_length() - 1, 3)


def looks_like_bytes(
    swizzle: Swizzle | None, element_bytes: int, fits: Callable[[Swizzle], bool] = lambda own: True
) -> str:
    """Return what to write instead of a swizzle that looks like one of bytes; empty for any other.

    Empty too where `fits` refuses the swizzle in elements: a fix must not lead to the next refusal.
    """
    own = in_elements(swizzle, element_bytes)
    if own is None or swizzle is None or not fits(own):
        return ""
    given, meant = (f"[{x.bits}, {x.base}, {x.shift}]" for x in (swizzle, own))
    return f"{meant} is it in elements of {element_bytes} bytes: {given} looks like a swizzle of bytes"


def _given_layout(spec: GemmSpec, key: str, text: str, tile: tuple[int, int]) -> LayoutOption:
    atom = algebra.parse_layout(text)
    if size(inner_layout(atom)) == 1:
        raise spec.error(key, found=f'"{text}", one element', expected="an atom of more than one element")
    try:
        layout = algebra.tile_to_shape(atom, tile)
    except ValueError as error:
        raise spec.error(
            key,
            found=f'"{text}": {error}',
            expected=f"an atom that divides the operand's tile {extents(tile)}",
        ) from error
    table = offsets(layout)
    if len(np.unique(table)) != len(table):
        raise spec.error(
            key,
            found=f'"{text}", which maps two elements of the tile {extents(tile)} to one offset',
            expected="a distinct offset for each element",
        )
    last = int(offsets(inner_layout(layout)).max())
    if int(table.max()) > last:
        raise spec.error(
            key,
            found=f'"{text}": the swizzle maps to offset {int(table.max())}, past the last of the tile, {last}',
            expected="a swizzle that permutes the tile's own offsets",
        )
    return LayoutOption(atom, swizzle=atom.outer if isinstance(atom, ComposedLayout) else None)
