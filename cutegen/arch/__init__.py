"""The hardware as cited rows: element types, targets, rates, atoms; and what accesses to shared memory cost."""

from __future__ import annotations

from cutegen.arch.copy_atoms import (
    BULK_TENSOR,
    COPY_ATOMS,
    CP_ASYNC_ATOMS,
    LDMATRIX_ATOMS,
    TMA_LOAD,
    TMA_STORE,
    UNIVERSAL,
    UNIVERSAL_BITS,
    BulkTensorAtom,
    CopyAtom,
    CpAsyncAtom,
    LdmatrixAtom,
    cp_async_atom,
    ldmatrix_atom,
    ldmatrix_atoms,
    universal_atom,
)
from cutegen.arch.dtypes import DTYPES, DType, dtype
from cutegen.arch.fma_atom import UNIVERSAL_FMA, fma_atom
from cutegen.arch.fragment_order import order_of_byte_loads, view_in_order
from cutegen.arch.gmma_layouts import GMMA_LAYOUTS, GmmaLayout, gmma_layouts
from cutegen.arch.gpus import GPUS, Gpu
from cutegen.arch.instructions import Instruction
from cutegen.arch.ldmatrix import LdmatrixTrace, ldmatrix_trace
from cutegen.arch.line_writes import line_write_wavefronts
from cutegen.arch.mma_atoms import MMA_ATOMS, MmaAtom, OperandSource
from cutegen.arch.naming import GPU_NAMES, resolve_target
from cutegen.arch.rates import SM_RATES, SmRates
from cutegen.arch.targets import TARGETS, Target, target, targets_with
from cutegen.arch.wavefronts import ideal_wavefronts, merged_phases, phases, wavefronts
from cutegen.arch.wgmma_atoms import WGMMA_ATOMS

__all__ = [
    "BULK_TENSOR",
    "COPY_ATOMS",
    "CP_ASYNC_ATOMS",
    "DTYPES",
    "GMMA_LAYOUTS",
    "GPUS",
    "GPU_NAMES",
    "LDMATRIX_ATOMS",
    "MMA_ATOMS",
    "SM_RATES",
    "TARGETS",
    "TMA_LOAD",
    "TMA_STORE",
    "UNIVERSAL",
    "UNIVERSAL_BITS",
    "UNIVERSAL_FMA",
    "WGMMA_ATOMS",
    "BulkTensorAtom",
    "CopyAtom",
    "CpAsyncAtom",
    "DType",
    "GmmaLayout",
    "Gpu",
    "Instruction",
    "LdmatrixAtom",
    "LdmatrixTrace",
    "MmaAtom",
    "OperandSource",
    "SmRates",
    "Target",
    "cp_async_atom",
    "dtype",
    "fma_atom",
    "gmma_layouts",
    "ideal_wavefronts",
    "ldmatrix_atom",
    "ldmatrix_atoms",
    "ldmatrix_trace",
    "line_write_wavefronts",
    "merged_phases",
    "order_of_byte_loads",
    "phases",
    "resolve_target",
    "target",
    "targets_with",
    "universal_atom",
    "view_in_order",
    "wavefronts",
]
