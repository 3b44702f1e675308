"""Hardware data with sources: element types, targets, rates, atoms; and the cost of shared memory accesses.

Everything made of layouts is imported when one of its names is first used: launching kernels needs only the data of
element types and targets, and no tensor-layouts. Functions with the name of their module, such as `gmma_layouts`, are
imported from there.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from cutegen.hardware.dtypes import DTYPES, PACKED, WORDS, DType, dtype
from cutegen.hardware.gpus import GPUS, Gpu
from cutegen.hardware.instructions import Instruction
from cutegen.hardware.multiplies import MULTIPLIES, Issuer, Multiply, OperandSource
from cutegen.hardware.naming import GPU_NAMES, resolve_target
from cutegen.hardware.rates import SM_RATES, SmRates
from cutegen.hardware.targets import TARGETS, Target, runs_on, target, targets_with
from cutegen.hardware.wavefronts import (
    alike,
    ideal_wavefronts,
    line_write_wavefronts,
    merged_phases,
    phases,
    wavefronts,
)

if TYPE_CHECKING:
    from cutegen.hardware.copy_atoms import (
        BULK_TENSOR,
        CP_ASYNC_ATOMS,
        LDMATRIX_ATOMS,
        TMA_LOAD,
        TMA_LOAD_MULTICAST,
        TMA_LOAD_MULTICAST_OF_PAIR,
        TMA_LOAD_OF_PAIR,
        TMA_STORE,
        UNIVERSAL,
        UNIVERSAL_BITS,
        BulkTensorAtom,
        CopyAtom,
        CpAsyncAtom,
        LdmatrixAtom,
        StmatrixAtom,
        cp_async_atom,
        ldmatrix_atom,
        ldmatrix_atoms,
        universal_atom,
    )
    from cutegen.hardware.fma_atom import UNIVERSAL_FMA
    from cutegen.hardware.fragment_order import order_of_byte_loads, view_in_order
    from cutegen.hardware.gmma_layouts import GMMA_LAYOUTS, GmmaLayout
    from cutegen.hardware.ldmatrix import LdmatrixTrace, ldmatrix_trace
    from cutegen.hardware.matrix_descriptor import (
        MatrixDescriptor,
        NoDescriptorError,
        OperandDescriptors,
        operand_descriptors,
    )
    from cutegen.hardware.mma_atoms import MMA_ATOMS, MmaAtom
    from cutegen.hardware.tcgen05_atoms import TCGEN05_ATOMS
    from cutegen.hardware.wgmma_atoms import WGMMA_ATOMS

__all__ = [
    "BULK_TENSOR",
    "CP_ASYNC_ATOMS",
    "DTYPES",
    "GMMA_LAYOUTS",
    "GPUS",
    "GPU_NAMES",
    "LDMATRIX_ATOMS",
    "MMA_ATOMS",
    "MULTIPLIES",
    "PACKED",
    "SM_RATES",
    "TARGETS",
    "TCGEN05_ATOMS",
    "TMA_LOAD",
    "TMA_LOAD_MULTICAST",
    "TMA_LOAD_MULTICAST_OF_PAIR",
    "TMA_LOAD_OF_PAIR",
    "TMA_STORE",
    "UNIVERSAL",
    "UNIVERSAL_BITS",
    "UNIVERSAL_FMA",
    "WGMMA_ATOMS",
    "WORDS",
    "BulkTensorAtom",
    "CopyAtom",
    "CpAsyncAtom",
    "DType",
    "GmmaLayout",
    "Gpu",
    "Instruction",
    "Issuer",
    "LdmatrixAtom",
    "LdmatrixTrace",
    "MatrixDescriptor",
    "MmaAtom",
    "Multiply",
    "NoDescriptorError",
    "OperandDescriptors",
    "OperandSource",
    "SmRates",
    "StmatrixAtom",
    "Target",
    "alike",
    "cp_async_atom",
    "dtype",
    "ideal_wavefronts",
    "ldmatrix_atom",
    "ldmatrix_atoms",
    "ldmatrix_trace",
    "line_write_wavefronts",
    "merged_phases",
    "operand_descriptors",
    "order_of_byte_loads",
    "phases",
    "resolve_target",
    "runs_on",
    "target",
    "targets_with",
    "universal_atom",
    "view_in_order",
    "wavefronts",
]

_OF_LAYOUTS = (
    "copy_atoms",
    "fma_atom",
    "fragment_order",
    "gmma_layouts",
    "ldmatrix",
    "matrix_descriptor",
    "mma_atoms",
    "tcgen05_atoms",
    "wgmma_atoms",
)


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    for module in _OF_LAYOUTS:
        found = vars(import_module(f"{__name__}.{module}"))
        globals().update({each: found[each] for each in __all__ if each in found})
    return globals()[name]
