"""CuTe's layout algebra as cutegen uses it: layouts and their text, numpy tables, TiledMma, TiledCopy.

Layouts, swizzles and composition come from tensor-layouts; this package adds the rest, exactly as in CuTe C++.
"""

from cutegen.algebra.expressions import parse_expression
from cutegen.algebra.layout import (
    ComposedLayout,
    Dyn,
    Layout,
    LayoutExpr,
    Partition,
    Swizzle,
    compose,
    cosize,
    format_layout,
    inner_layout,
    leaves,
    make_layout,
    mode,
    modes,
    offsets,
    offsets_2d,
    offsets_by_row,
    parse_layout,
    size,
    spec_notation,
    tile_to_shape,
    with_inner,
)
from cutegen.algebra.tiled import Extents, OperandName, TiledCopy, TiledMma

__all__ = [
    "ComposedLayout",
    "Dyn",
    "Extents",
    "Layout",
    "LayoutExpr",
    "OperandName",
    "Partition",
    "Swizzle",
    "TiledCopy",
    "TiledMma",
    "compose",
    "cosize",
    "format_layout",
    "inner_layout",
    "leaves",
    "make_layout",
    "mode",
    "modes",
    "offsets",
    "offsets_2d",
    "offsets_by_row",
    "parse_expression",
    "parse_layout",
    "size",
    "spec_notation",
    "tile_to_shape",
    "with_inner",
]
