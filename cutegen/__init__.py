"""Write a layout spec, get a compiled tensor-core GEMM kernel, and see why it is right.

    spec = cutegen.load_spec("sm80_hgemm_tn")    # or cutegen.GemmSpec(...)
    plan = cutegen.plan(spec)                    # plan.explain(), plan.decisions, plan.smem_bytes ...
    kernel = cutegen.compile(spec)               # from the cache, or built
    c = kernel(a, b)                             # the same as a @ b

Importing this needs neither the CuTe DSL nor torch nor a GPU.
"""

from __future__ import annotations

from cutegen.errors import CutegenError
from cutegen.plan import GemmPlan
from cutegen.run import Kernel
from cutegen.spec import (
    Epilogue,
    G2s,
    G2sCopy,
    GemmSpec,
    Mma,
    Operand,
    Problem,
    Raster,
    S2r,
    S2rCopy,
    Schedule,
    Smem,
    SmemLayout,
    Tile,
    load_spec,
    shipped_specs,
)
from cutegen.straight_line import compile, emit, plan

__all__ = [
    "CutegenError",
    "Epilogue",
    "G2s",
    "G2sCopy",
    "GemmPlan",
    "GemmSpec",
    "Kernel",
    "Mma",
    "Operand",
    "Problem",
    "Raster",
    "S2r",
    "S2rCopy",
    "Schedule",
    "Smem",
    "SmemLayout",
    "Tile",
    "compile",
    "emit",
    "load_spec",
    "plan",
    "shipped_specs",
]
