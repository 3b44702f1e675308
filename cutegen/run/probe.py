"""A compiled probe to call: tiles of A and B in, the contents of each thread's registers out."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cutegen.build import Artifact, open_artifact
from cutegen.contract.launch import OPERANDS, PROBE, REGISTERS, CallSize, LaunchContract
from cutegen.contract.problem import ProblemShape
from cutegen.errors import ArtifactError, OperandError
from cutegen.run.call import streams
from cutegen.run.call.check import CheckedCall, check_inputs, leading, place
from cutegen.run.call.memory_overlap import check_address
from cutegen.run.call.operands import TensorView, view_of
from cutegen.run.call.storage import CallTensor, call_tensors, numpy_dtype
from cutegen.run.driver import Driver, load_driver
from cutegen.run.gpu.launch import GpuKernel
from cutegen.run.plan_table import PlanTable
from cutegen.support.typed_json import read

if TYPE_CHECKING:
    from cutegen.ptx import LaunchReport
    from cutegen.run.cpu import CpuKernel


class Registers(NamedTuple):
    """Registers of the threads for A and for B: (threads, values), a row per thread.

    A row is tCrA or tCrB, (MMA, MMA_X, MMA_K) with the first mode fastest, one stage after the other.
    """

    a: Any
    b: Any


@dataclass(frozen=True, slots=True)
class ProbeContract:
    """Launch of a probe; `extents` (M, N, K) fill every stage, `values` of A and of B are those of a thread."""

    launch: LaunchContract
    extents: tuple[int, int, int]
    values: tuple[int, int]

    @classmethod
    def of(cls, artifact: Artifact) -> ProbeContract:
        """Read an artifact's `plan.json`. Raises ArtifactError if it is not a probe."""
        plan = PlanTable.of(artifact, PROBE)
        m, n, k = read(tuple[int, int, int], plan.table.get("tile"), plan.file, "tile")
        stages = read(int, plan.table.get("stages"), plan.file, "stages")
        values = read(_Values, plan.table.get("values"), plan.file, "values")
        if min(m, n, k, stages, values.a, values.b) < 1:
            raise ArtifactError(f"{plan.file}: tile, stages, values: found a value below 1; expected at least 1")
        return cls(plan.launch, (m, n, stages * k), (stages * values.a, stages * values.b))


@dataclass(frozen=True, slots=True)
class _Values:
    """Registers of a thread per k-tile, for A and for B."""

    a: int
    b: int


class Probe:
    """Only the loads of a GEMM from shared memory to registers: `probe(a, b)` returns what each thread received.

    Operands on a GPU are loaded there, on the current stream; for operands in host memory the PTX is executed.
    """

    def __init__(self, artifact: Artifact, *, driver: Callable[[], Driver] = load_driver) -> None:
        self.artifact = artifact
        self.contract = ProbeContract.of(artifact)
        self._load_driver = driver
        launch = self.contract.launch
        self._gpu = GpuKernel(launch, artifact.cubin, artifact.manifest.inputs.gpu_arch, driver)

    @classmethod
    def open(cls, path: Path | str) -> Probe:
        """Open the artifact in the folder `path`. Raises ArtifactError."""
        return cls(open_artifact(path))

    def __call__(self, a: Any, b: Any) -> Registers:
        """Return the values that each thread receives of `a` (M,K) and `b` (K,N), in tables of `a`'s framework.

        M, N and K are those of the CTA tile and of all its stages (`contract.extents`); the strides give the major.
        Operands are those of a `Kernel`. Raises OperandError if one does not fit, DeviceError, PtxFault.
        """
        call, views, registers = self._prepare(a, b)
        addresses = tuple(view.pointer for view in views)
        if call.device[0] == "cpu":
            self._cpu.prepare(call)(addresses, (), 0)
        else:
            self._gpu.prepare(call)(addresses, (), self._order(call, views))
        return registers

    def execute(self, a: Any, b: Any, **options: Any) -> tuple[Registers, LaunchReport]:
        """Execute on host operands and also return the executor's report; `options` are those of `Program.launch`."""
        call, views, registers = self._prepare(a, b)
        if call.device[0] != "cpu":
            raise OperandError(operand="a", found="GPU memory", expected="host memory", fix="call the probe instead")
        return registers, self._cpu.prepare(call).execute(tuple(view.pointer for view in views), (), **options)

    def __repr__(self) -> str:
        m, n, k = self.contract.extents
        return f"Probe({self.contract.launch.entry}, a ({m}, {k}), b ({k}, {n}))"

    def _prepare(self, a: Any, b: Any) -> tuple[CheckedCall, tuple[TensorView, ...], Registers]:
        """Return checked operands, and fresh tables for the result."""
        view_a, view_b = view_of(a, "a"), view_of(b, "b")
        check_inputs(self.contract.launch, view_a.form, view_b.form)
        m, n, k = self.contract.extents
        for name, view, shape in (("a", view_a, (m, k)), ("b", view_b, (k, n))):
            if tuple(view.form.shape) != shape:
                raise OperandError(
                    operand=name,
                    found=f"shape {tuple(view.form.shape)}",
                    expected=f"{shape}, which fills every stage of one CTA's shared memory",
                )
        tensors = call_tensors(self.contract.launch)
        results = [tensors[role] for role in REGISTERS.values()]
        registers = Registers(
            *(
                _poisoned(tensor, (self.contract.launch.threads, values), a, view_a.form.framework)
                for tensor, values in zip(results, self.contract.values, strict=True)
            )
        )
        tables = (view_of(table, tensor.name) for tensor, table in zip(results, registers, strict=True))
        views = (view_a, view_b, *tables)
        placed = {role: place(tensor, view.form) for (role, tensor), view in zip(tensors.items(), views, strict=True)}
        for each, view in zip(placed.values(), views, strict=True):
            check_address(each, view.pointer)
        strides = {role: leading(placed[role]) for role in OPERANDS}
        size = CallSize(problem=ProblemShape(m, n, k), strides=strides)
        return CheckedCall(size, view_a.form.device, placed), views, registers

    def _order(self, call: CheckedCall, views: tuple[TensorView, ...]) -> int:
        """Return the stream to launch on, which waits for the streams that the operands name."""
        stream = streams.current_stream(views, call.device)
        for producer in streams.producers(stream, views):
            self._load_driver().order_after(call.device[1], stream, producer)
        return stream

    @cached_property
    def _cpu(self) -> CpuKernel:
        from cutegen.run.cpu import CpuKernel  # imports the PTX executor, which GPU calls do not need

        return CpuKernel(self.contract.launch, self.artifact.ptx)


def _poisoned(tensor: CallTensor, shape: tuple[int, int], like: Any, framework: str) -> Any:
    """Return a table of NumPy or torch on `like`'s device; all bits are set, so that an unwritten register shows."""
    integer, dtype_name = f"int{tensor.dtype.bits}", tensor.dtype.torch_name
    if framework == "torch":
        torch = sys.modules["torch"]
        table = torch.full(shape, -1, dtype=getattr(torch, integer), device=like.device)
        return table.view(getattr(torch, dtype_name))
    if framework == "numpy":
        return np.full(shape, -1, integer).view(numpy_dtype(dtype_name, like.dtype))
    raise OperandError(
        operand="a", found=f"an array of {framework}", expected="an array of torch or NumPy, like the tables"
    )
