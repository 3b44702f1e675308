"""Hardware data with sources: element types, targets, rates, atoms; and the cost of shared memory accesses.

Everything made of layouts is imported when one of its names is first used: launching kernels needs only the data of
element types and targets, and no tensor-layouts.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from cutegen.hardware.dtypes import DTYPES, PACKED, WORDS, DType, dtype
from cutegen.hardware.multiplies import MULTIPLIES, Instruction, Issuer, Multiply, OperandSource
from cutegen.hardware.naming import GPU_NAMES, resolve_target
from cutegen.hardware.rates import SM_RATES, SmRates
from cutegen.hardware.targets import GPUS, TARGETS, Gpu, Target, runs_on, target, targets_with
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
    from cutegen.hardware.gmma import (
        GMMA_LAYOUTS,
        GmmaLayout,
        MatrixDescriptor,
        NoDescriptorError,
        OperandDescriptors,
        operand_descriptors,
    )
    from cutegen.hardware.ldmatrix import LdmatrixTrace, ldmatrix_trace, order_of_byte_loads, view_in_order
    from cutegen.hardware.mma_atoms import MMA_ATOMS, UNIVERSAL_FMA, WGMMA_ATOMS, MmaAtom
    from cutegen.hardware.tcgen05 import TCGEN05_ATOMS

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
    "gmma",
    "ldmatrix",
    "mma_atoms",
    "tcgen05",
)


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    for module in _OF_LAYOUTS:
        found = vars(import_module(f"{__name__}.{module}"))
        globals().update({each: found[each] for each in __all__ if each in found})
    return globals()[name]
