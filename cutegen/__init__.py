"""Write a layout spec, get a compiled tensor-core GEMM kernel, and see why it is right.

    spec = cutegen.load_spec("sm80_hgemm_tn")    # or cutegen.GemmSpec(...)
    plan = cutegen.plan(spec)                    # plan.explain(), plan.decisions, plan.smem_bytes ...
    kernel = cutegen.compile(spec)               # from the cache, or built
    c = kernel(a, b)                             # the same as a @ b

Importing this needs neither the CuTe DSL nor torch nor a GPU.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from cutegen.errors import CutegenError
from cutegen.plan import GemmPlan, ProbePlan, plan
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

if TYPE_CHECKING:
    from cutegen.run import Kernel, Probe
    from cutegen.straight_line import compile, emit

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
    "Probe",
    "ProbePlan",
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

# Rendering, building and running take as long to import as all the rest, so those rooms open when first asked for.
_OPENED_LATER = {
    "Kernel": "cutegen.run",
    "Probe": "cutegen.run",
    "compile": "cutegen.straight_line",
    "emit": "cutegen.straight_line",
}


def __getattr__(name: str) -> Any:
    if name not in _OPENED_LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_OPENED_LATER[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
