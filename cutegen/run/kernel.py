"""A compiled GEMM that can be called like `a @ b`."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from cutegen.build import Artifact, open_artifact
from cutegen.errors import ArtifactError, OperandError
from cutegen.plan.launch import LaunchContract, ProblemSize
from cutegen.ptx import IN_ORDER, LaunchReport, Policy
from cutegen.ptx.program import DEFAULT_MAX_STEPS
from cutegen.run import streams
from cutegen.run.check import CheckedCall, check_address, check_apart, check_call, check_inputs
from cutegen.run.cpu import CpuKernel, CpuLaunch
from cutegen.run.driver import Driver, load_driver
from cutegen.run.gpu import GpuKernel
from cutegen.run.operands import Form, TensorView, view_of
from cutegen.run.storage import MatrixStorage, call_tensors, empty

_REMEMBERED_FORMS = 256

Launch = Callable[[int, int, int, int], None]
"""Takes the addresses of A, B and C, and a stream."""


class Kernel:
    """A compiled GEMM, `C = A B`, loaded from an artifact.

    Operands on a GPU are multiplied there, asynchronously on the current stream, so a call can be captured in a CUDA
    graph. Operands in host memory are multiplied by executing the kernel's PTX on the CPU, which is slow and follows
    every instruction; `execute` does the same and reports what it saw. A kernel can be called from several threads.
    """

    def __init__(self, artifact: Artifact, *, driver: Callable[[], Driver] = load_driver) -> None:
        self.artifact = artifact
        self.contract = _contract(artifact)
        self._load_driver = driver
        self._gpu = GpuKernel(self.contract, artifact.cubin, artifact.manifest.inputs.gpu_arch, driver)
        self._result = call_tensors(self.contract)[2]
        self._thread = _PerThread(self._prepare, self._result_storage)

    @classmethod
    def open(cls, path: Path | str) -> Kernel:
        """Open the artifact in the folder `path`. Raises ArtifactError."""
        return cls(open_artifact(path))

    def __call__(self, a: Any, b: Any, *, out: Any = None, stream: Any = None) -> Any:
        """`a @ b`, for `a` (M,K) and `b` (K,N) whose strides say the major; returns (M,N), or `out` if it is given.

        Operands are torch tensors, NumPy arrays, or objects with `__cuda_array_interface__` or DLPack. Without `out`,
        the result is allocated by `a`'s framework, its leading stride padded to what the kernel was compiled for.
        Without `stream`, the work goes to torch's current stream, to the stream that an operand names, or to the
        default stream.

        Raises OperandError when an operand does not fit, DeviceError when the GPU cannot run the kernel, PtxFault when
        the kernel does something undefined on the CPU.
        """
        handle = None if stream is None else streams.stream_handle(stream)
        view_a, view_b = view_of(a, "a", handle), view_of(b, "b", handle)
        if out is None:
            storage = self._thread.result_storage(view_a.form, view_b.form)
            out = empty(storage, self._result.dtype.torch_name, a, view_a.form, handle)
        view_out = view_of(out, "out", handle)
        prepared = self._thread.prepare(view_a.form, view_b.form, view_out.form)
        prepared.check_addresses(view_a.pointer, view_b.pointer, view_out.pointer)
        if prepared.launch is not None:
            handle = self._order(prepared.call, handle, view_a, view_b, view_out)
            prepared.launch(view_a.pointer, view_b.pointer, view_out.pointer, handle)
        return out

    def execute(
        self,
        a: Any,
        b: Any,
        *,
        out: Any,
        policy: Policy | str = IN_ORDER,
        jobs: int = 1,
        max_steps: int = DEFAULT_MAX_STEPS,
        progress: Callable[[int, int], None] | None = None,
    ) -> LaunchReport:
        """`out[:] = a @ b` for operands in host memory, by executing the PTX; returns what the executor saw on the way.

        The report has each instruction's executions, shared-memory wavefronts and global sectors. `policy` is the order
        of CTAs, warps and sides of a branch ("in-order", "reversed", "random:SEED"), `jobs` the processes to spread the
        CTAs over, `max_steps` a limit on warp instructions; `progress(done, total)` is told of finished CTAs.

        Raises OperandError when an operand does not fit or is not in host memory, or when the result is empty;
        LaunchError for a policy or a number of jobs that cannot be; PtxFault when the kernel does something undefined.
        """
        view_a, view_b, view_out = view_of(a, "a"), view_of(b, "b"), view_of(out, "out")
        if view_a.form.device[0] == "cuda":
            raise OperandError(
                operand="a",
                found="memory of a GPU",
                expected="host memory, on which the kernel's PTX can be executed",
                fix="call the kernel to run it on the GPU",
            )
        prepared = self._thread.prepare(view_a.form, view_b.form, view_out.form)
        prepared.check_addresses(view_a.pointer, view_b.pointer, view_out.pointer)
        if not isinstance(prepared.launch, CpuLaunch):
            raise OperandError(
                operand="out", found=f"shape {view_out.form.shape}", expected="at least one element to compute"
            )
        return prepared.launch.execute(
            view_a.pointer,
            view_b.pointer,
            view_out.pointer,
            policy=policy,
            jobs=jobs,
            max_steps=max_steps,
            progress=progress,
        )

    def problem_size(self, a: Any, b: Any, out: Any) -> ProblemSize:
        """The integers that a call with these operands hands to the kernel. Raises OperandError."""
        return check_call(self.contract, view_of(a, "a").form, view_of(b, "b").form, view_of(out, "out").form).size

    def __repr__(self) -> str:
        a, b, c = (f"{t.name}: {t.dtype} {t.major}-major" for t in self.contract.tensors)
        m, n = self.contract.cta_tile
        return (
            f"Kernel({self.contract.entry}, {a}, {b}, {c}, CTA tile {m}x{n}, {self.artifact.manifest.inputs.gpu_arch})"
        )

    def _result_storage(self, a: Form, b: Form) -> MatrixStorage:
        return self._result.storage(check_inputs(self.contract, a, b))

    def _prepare(self, a: Form, b: Form, out: Form) -> _PreparedCall:
        call = check_call(self.contract, a, b, out)
        if call.size.m == 0 or call.size.n == 0:
            return _PreparedCall(call, None)
        backend = self._gpu if call.device[0] == "cuda" else self._cpu
        return _PreparedCall(call, backend.prepare(call))

    def _order(self, call: CheckedCall, stream: int | None, *operands: TensorView) -> int:
        """The stream to launch on, made to wait for the streams that the operands name."""
        if call.device[0] == "cpu":
            return 0
        a, b, out = operands
        chosen = streams.current_stream(a, b, out, call.device) if stream is None else stream
        if a.stream or b.stream or out.stream:
            for producer in streams.producers(chosen, a, b, out):
                self._load_driver().order_after(call.device[1], chosen, producer)
        return chosen

    @cached_property
    def _cpu(self) -> CpuKernel:
        return CpuKernel(self.contract, self.artifact.ptx)


@dataclass(frozen=True, slots=True)
class _PreparedCall:
    """Checked forms, and the launch for them; None when the result is empty."""

    call: CheckedCall
    launch: Launch | None

    def check_addresses(self, a: int, b: int, out: int) -> None:
        """Raises OperandError for an unaligned address, or a result that shares memory with an input."""
        call = self.call
        check_address(call.a, a)
        check_address(call.b, b)
        check_address(call.out, out)
        check_apart(call.out, out, call.a, a)
        check_apart(call.out, out, call.b, b)


class _PerThread(threading.local):
    """The calls prepared on each thread: a launch's parameter block must not be shared between threads."""

    def __init__(
        self,
        prepare: Callable[[Form, Form, Form], _PreparedCall],
        result_storage: Callable[[Form, Form], MatrixStorage],
    ) -> None:
        self.prepare = lru_cache(maxsize=_REMEMBERED_FORMS)(prepare)
        self.result_storage = lru_cache(maxsize=_REMEMBERED_FORMS)(result_storage)


def _contract(artifact: Artifact) -> LaunchContract:
    try:
        return LaunchContract.from_json(json.loads(artifact.plan_json)["launch"])
    except (KeyError, TypeError, ValueError) as error:
        raise ArtifactError(
            f"{artifact.path}: plan.json holds no launch contract that this version reads: {error!r}"
        ) from error
