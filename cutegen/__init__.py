"""Write a layout spec, get a compiled tensor-core GEMM kernel, and see why it is correct.

    spec = cutegen.load_spec("sm80_hgemm_tn")    # or cutegen.GemmSpec(...)
    plan = cutegen.plan(spec)                    # plan.explain(), plan.decisions, plan.smem_bytes ...
    kernel = cutegen.compile(spec)               # from the cache, or built
    c = kernel(a, b)                             # the same as a @ b

Importing this needs neither the CuTe DSL nor torch nor a GPU.
"""

import sys
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    __version__: str
    from cutegen.api import compile, emit
    from cutegen.dispatch.pack import Pack, load_pack
    from cutegen.dispatch.settings import matmul_settings
    from cutegen.errors import CutegenError
    from cutegen.grouped_mm import grouped_mm
    from cutegen.matmul import explain, matmul, prepare
    from cutegen.plan import GemmPlan, ProbePlan
    from cutegen.run import Kernel, Probe
    from cutegen.scaled_grouped_mm import scaled_grouped_mm
    from cutegen.scaled_mm import scaled_mm
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
    from cutegen.torch_ops.float8 import Float8Copies, float8_linear
    from cutegen.torch_ops.linear import Linear
    from cutegen.torch_ops.quantize import quantize
    from cutegen.torch_ops.replacing import replace_linear, restore_linear
    from cutegen.tuned.answer import plan

__all__ = [
    "CutegenError",
    "Epilogue",
    "Float8Copies",
    "G2s",
    "G2sCopy",
    "GemmPlan",
    "GemmSpec",
    "Kernel",
    "Linear",
    "Mma",
    "Operand",
    "Pack",
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
    "explain",
    "float8_linear",
    "grouped_mm",
    "load_pack",
    "load_spec",
    "matmul",
    "matmul_settings",
    "plan",
    "prepare",
    "quantize",
    "replace_linear",
    "restore_linear",
    "scaled_grouped_mm",
    "scaled_mm",
    "shipped_specs",
]

_ROOMS = {
    "cutegen.errors": ("CutegenError",),
    "cutegen.plan": ("GemmPlan", "ProbePlan"),
    "cutegen.run": ("Kernel", "Probe"),
    "cutegen.api": ("compile", "emit"),
    "cutegen.tuned.answer": ("plan",),
    "cutegen.matmul": ("explain", "matmul", "prepare"),
    "cutegen.grouped_mm": ("grouped_mm",),
    "cutegen.scaled_grouped_mm": ("scaled_grouped_mm",),
    "cutegen.scaled_mm": ("scaled_mm",),
    "cutegen.torch_ops.float8": ("Float8Copies", "float8_linear"),
    "cutegen.torch_ops.linear": ("Linear",),
    "cutegen.torch_ops.quantize": ("quantize",),
    "cutegen.torch_ops.replacing": ("replace_linear", "restore_linear"),
    "cutegen.dispatch.settings": ("matmul_settings",),
    "cutegen.dispatch.pack": ("Pack", "load_pack"),
}
# All other names are those of the spec package. Each package is imported when one of its names is first used: opening a
# cached kernel needs neither the planner nor the executor.
_ROOM_OF = {name: room for room, names in _ROOMS.items() for name in names}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return _version()
    if name not in __all__:
        return _room(name)
    value = globals()[name] = getattr(_imported(_ROOM_OF.get(name, "cutegen.spec"), name), name)
    return value


def _version() -> str:
    """Return the installed distribution's version, read when it is first asked for: that takes 40 ms."""
    from importlib.metadata import version

    value = globals()["__version__"] = version(__name__)
    return value


def _room(name: str) -> ModuleType:
    """Return a package by its name, such as `cutegen.errors`, as if it had been imported."""
    if name.startswith("_") or find_spec(f"{__name__}.{name}") is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _imported(f"{__name__}.{name}", name)


def _imported(room: str, name: str) -> ModuleType:
    """Import the package of `name`. Raises ImportError with a fix if a dependency is not installed."""
    try:
        return import_module(room)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith(__name__):
            raise
        needs = f"cutegen.{name} needs {error.name}, which is not installed"
        if error.name == "torch":  # an extra, which complete installations may lack too
            raise ImportError(f"{needs}: pip install 'cutegen[torch]'") from error
        raise ImportError(
            f"{needs}: this installation only runs kernels; pip install cutegen, with its dependencies, adds the rest"
        ) from error


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _Package(ModuleType):
    """The package, in which `plan` is the function and not the package, whichever is imported first."""

    def __setattr__(self, name: str, value: object) -> None:
        # The import system sets each subpackage as an attribute of the package.
        if not (name in _ROOM_OF and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
