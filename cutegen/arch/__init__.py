"""The hardware as cited rows: element types, targets, rates, MMA atoms, copy atoms."""

from __future__ import annotations

from cutegen.arch.copy_atoms import (
    BULK_TENSOR,
    COPY_ATOMS,
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
from cutegen.arch.gpus import GPUS, Gpu
from cutegen.arch.mma_atoms import MMA_ATOMS, MmaAtom
from cutegen.arch.naming import GPU_NAMES, resolve_target
from cutegen.arch.rates import SM_RATES, SmRates
from cutegen.arch.targets import TARGETS, Target, target

__all__ = [
    "BULK_TENSOR",
    "COPY_ATOMS",
    "DTYPES",
    "GPUS",
    "GPU_NAMES",
    "MMA_ATOMS",
    "SM_RATES",
    "TARGETS",
    "TMA_LOAD",
    "TMA_STORE",
    "UNIVERSAL",
    "UNIVERSAL_BITS",
    "UNIVERSAL_FMA",
    "BulkTensorAtom",
    "CopyAtom",
    "CpAsyncAtom",
    "DType",
    "Gpu",
    "LdmatrixAtom",
    "MmaAtom",
    "SmRates",
    "Target",
    "cp_async_atom",
    "dtype",
    "fma_atom",
    "ldmatrix_atom",
    "ldmatrix_atoms",
    "resolve_target",
    "target",
    "universal_atom",
]
