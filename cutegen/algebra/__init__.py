"""CuTe's layout algebra as cutegen uses it: layouts and their text, numpy tables, TiledMma, TiledCopy, wavefronts.

Layouts, swizzles and composition are tensor-layouts'; what stands on top of them, exactly as CuTe C++ has it, is here.
"""

from __future__ import annotations

from cutegen.algebra.compact import fragment_like, ordered_layout, tile_to_shape
from cutegen.algebra.layout import (
    ComposedLayout,
    Layout,
    LayoutExpr,
    Swizzle,
    coalesce,
    complement,
    compose,
    cosize,
    inner_layout,
    make_layout,
    mode,
    modes,
    right_inverse,
    size,
)
from cutegen.algebra.ldmatrix import LdmatrixTrace, ldmatrix_trace
from cutegen.algebra.notation import Dyn, format_layout, parse_layout
from cutegen.algebra.partition import Partition
from cutegen.algebra.tables import offsets, offsets_2d
from cutegen.algebra.tiled_copy import CopyAtomLike, TiledCopy
from cutegen.algebra.tiled_mma import MmaAtomLike, OperandName, TiledMma
from cutegen.algebra.wavefronts import ideal_wavefronts, phases, wavefronts

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
    "coalesce",
    "complement",
    "compose",
    "cosize",
    "format_layout",
    "fragment_like",
    "ideal_wavefronts",
    "inner_layout",
    "ldmatrix_trace",
    "make_layout",
    "mode",
    "modes",
    "offsets",
    "offsets_2d",
    "ordered_layout",
    "parse_layout",
    "phases",
    "right_inverse",
    "size",
    "tile_to_shape",
    "wavefronts",
]
