"""CuTe's layout algebra as cutegen uses it: layouts and their text, numpy tables, TiledMma, TiledCopy, wavefronts.

Layouts, swizzles and composition are tensor-layouts'; what stands on top of them, exactly as CuTe C++ has it, is here.
"""

from __future__ import annotations

from cutegen.algebra.compact import tile_to_shape
from cutegen.algebra.fragment_order import order_of_byte_loads, view_in_order
from cutegen.algebra.layout import (
    ComposedLayout,
    Layout,
    LayoutExpr,
    Swizzle,
    compose,
    cosize,
    inner_layout,
    leaves,
    make_layout,
    mode,
    modes,
    size,
    with_inner,
)
from cutegen.algebra.ldmatrix import LdmatrixTrace, ldmatrix_trace
from cutegen.algebra.line_writes import line_write_wavefronts
from cutegen.algebra.notation import Dyn, format_layout, parse_layout, spec_notation
from cutegen.algebra.partition import Partition
from cutegen.algebra.tables import offsets, offsets_2d, offsets_by_row
from cutegen.algebra.tiled_copy import CopyAtomLike, TiledCopy
from cutegen.algebra.tiled_mma import MmaAtomLike, OperandName, TiledMma
from cutegen.algebra.wavefronts import ideal_wavefronts, merged_phases, phases, wavefronts

__all__ = [
    "ComposedLayout",
    "CopyAtomLike",
    "Dyn",
    "Layout",
    "LayoutExpr",
    "LdmatrixTrace",
    "MmaAtomLike",
    "OperandName",
    "Partition",
    "Swizzle",
    "TiledCopy",
    "TiledMma",
    "compose",
    "cosize",
    "format_layout",
    "ideal_wavefronts",
    "inner_layout",
    "ldmatrix_trace",
    "leaves",
    "line_write_wavefronts",
    "make_layout",
    "merged_phases",
    "mode",
    "modes",
    "offsets",
    "offsets_2d",
    "offsets_by_row",
    "order_of_byte_loads",
    "parse_layout",
    "phases",
    "size",
    "spec_notation",
    "tile_to_shape",
    "view_in_order",
    "wavefronts",
    "with_inner",
]
