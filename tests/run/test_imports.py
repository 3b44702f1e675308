"""What a process imports that opens a cached kernel and calls it: neither the planner nor, on a GPU, the executor."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import cutegen
from cutegen.build import Cache
from tests.house.documents import ROOT
from tests.pack.conftest import pack_path as pack_path

OPEN = """
import sys
import numpy as np
from cutegen import Kernel
"""

ON_A_GPU = """
from cutegen.run.driver import Driver
from cutegen.run.kernel import open_artifact
from tests.run.conftest import CudaArray, FakeApi

api = FakeApi({capability})
kernel = Kernel(open_artifact({folder!r}), driver=lambda: Driver(api))
api.parameters = kernel.contract.parameters
a, b, out = (CudaArray(np.zeros(shape, np.float16)) for shape in ((64, 32), (64, 32), (64, 64)))
b.array = b.array.T
for _ in range(2):
    kernel(a, b, out=out)
assert len(api.launches) == 2
"""

OUT_OF_A_PACK = """
import cutegen
with cutegen.load_pack({folder!r}) as pack:
    kernel = pack.open(pack.entries[0])
a, b, out = np.ones((8, 16), np.float16), np.ones((8, 16), np.float16).T, np.full((8, 8), np.nan, np.float16)
{call}
"""
CALLED = "kernel(a, b, out=out); assert (out == 16).all()"

ON_THE_CPU = """
kernel = Kernel.open({folder!r})
a, b, out = np.ones((8, 16), np.float16), np.ones((8, 16), np.float16).T, np.full((8, 8), np.nan, np.float16)
kernel(a, b, out=out)
assert (out == 16).all()
"""


NOT_TO_RUN = {"jinja2", "rich", "tensor_layouts", "torch", "typer"}
"""Packages of the planner, of the command line and of operands, which whoever runs a kernel need not have."""


def rooms_after(script: str) -> set[str]:
    """The rooms of cutegen that a fresh interpreter has after `script`, and of the packages NOT_TO_RUN those too."""
    script = f"{OPEN}{script}\nprint('\\n' + '\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    modules = done.stdout.splitlines()
    return {name.split(".")[1] for name in modules if name.startswith("cutegen.")} | NOT_TO_RUN.intersection(modules)


@pytest.fixture
def folder(request: pytest.FixtureRequest, kernels: Cache) -> Path:
    name, arch = request.param
    return cutegen.compile(cutegen.load_spec(name), arch, cache=kernels).artifact.path


@pytest.mark.dsl
@pytest.mark.parametrize(("call", "brings"), [("", set()), (CALLED, {"ptx"})])
def test_a_kernel_out_of_a_pack_needs_no_more(call: str, brings: set[str], pack_path: Path) -> None:
    rooms = rooms_after(OUT_OF_A_PACK.format(folder=str(pack_path), call=call))
    assert {"run", "contract", "dispatch"} <= rooms
    assert rooms & {"plan", "render", "ptx", "spec", "api", "verify", "pack", *NOT_TO_RUN} == brings


def test_the_rooms_that_are_looked_for_are_there() -> None:
    assert {path.name for path in (ROOT / "cutegen").iterdir()} >= {"plan", "render", "ptx", "spec"}
    assert rooms_after("cutegen = sys.modules['cutegen']; cutegen.plan, cutegen.emit") >= {
        "plan",
        "render",
        "tensor_layouts",
    }


@pytest.mark.dsl
@pytest.mark.parametrize(
    ("folder", "capability"),
    [(("sm80_hgemm_tn", "sm_80"), (8, 0)), (("sm120_hgemm_tn", "sm_90"), (9, 0))],
    indirect=["folder"],
)
def test_a_call_on_a_gpu_needs_no_planner_and_no_executor(folder: Path, capability: tuple[int, int]) -> None:
    rooms = rooms_after(ON_A_GPU.format(folder=str(folder), capability=capability))
    assert {"run", "contract"} <= rooms
    assert rooms & {"plan", "render", "ptx", "spec", "api", "verify", *NOT_TO_RUN} == set()


@pytest.mark.dsl
@pytest.mark.parametrize("folder", [("sm80_hgemm_tn", "sm_80")], indirect=True)
def test_a_call_on_the_cpu_brings_the_executor_and_nothing_else(folder: Path) -> None:
    rooms = rooms_after(ON_THE_CPU.format(folder=str(folder)))
    assert "ptx" in rooms
    assert rooms & {"plan", "render", "spec", "api", "verify", *NOT_TO_RUN} == set()
