"""A compiled GEMM that is called like `a @ b`."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cutegen.build import Artifact, open_artifact
from cutegen.contract.launch import GEMM, OPERANDS, RESULT, CallSize, LaunchContract
from cutegen.errors import OperandError
from cutegen.run.call import streams
from cutegen.run.call.cached_calls import CachedCalls, Launch
from cutegen.run.call.check import CheckedCall, check_call, check_inputs
from cutegen.run.call.epilogue_operands import Extras
from cutegen.run.call.memory_overlap import Placed, check_address, check_apart
from cutegen.run.call.operands import Form, TensorView, count_write, view_of
from cutegen.run.call.storage import MatrixStorage, call_tensor, empty
from cutegen.run.call.transposed_copies import Transposed, kept_copies, span_elems
from cutegen.run.driver import Driver, load_driver
from cutegen.run.gpu.launch import GpuKernel
from cutegen.run.plan_table import PlanTable

if TYPE_CHECKING:
    from cutegen.ptx import LaunchReport, Policy
    from cutegen.run.cpu import CpuKernel

_REMEMBERED_FORMS = 256


class Kernel:
    """A compiled GEMM, `C = A B` with the epilogue of its spec, loaded from an artifact.

    Operands on a GPU are multiplied there, asynchronously on the current stream, so a CUDA graph can capture the call.
    For operands in host memory, the call executes the kernel's PTX on the CPU, which is slow and checks every
    instruction; `execute` does the same and reports counts. Several threads can call one kernel.
    """

    def __init__(self, artifact: Artifact, *, driver: Callable[[], Driver] = load_driver) -> None:
        self.artifact = artifact
        self._read = PlanTable.of(artifact, GEMM).launch
        self.contract = self._read.of_a_call()
        self._transposed = _transposed(self._read)
        self._load_driver = driver
        self._gpu = GpuKernel(self._read, artifact.cubin, artifact.manifest.inputs.gpu_arch, driver)
        self._extras = Extras.of(self.contract)
        self._result = call_tensor(self.contract.tensor(RESULT))
        self._thread = _PerThread(self._prepare, self._result_storage)

    @classmethod
    def open(cls, path: Path | str) -> Kernel:
        """Open the artifact in the folder `path`. Raises ArtifactError if it does not hold a GEMM."""
        return cls(open_artifact(path))

    def __call__(
        self,
        a: Any,
        b: Any,
        *,
        out: Any = None,
        scale_a: Any = None,
        scale_b: Any = None,
        c: Any = None,
        residual: Any = None,
        bias: Any = None,
        bias_n: Any = None,
        bias_m: Any = None,
        scale_m: Any = None,
        scale_n: Any = None,
        aux: Any = None,
        scale_c: Any = None,
        offs: Any = None,
        sizes: Any = None,
        alpha: float | None = None,
        beta: float | None = None,
        stream: Any = None,
    ) -> Any:
        """`a @ b`, for `a` (M,K) and `b` (K,N) whose strides give the major; returns (M,N), or `out` if it is given.

        Pass the factors of blocks by name, if the spec has them, in the order of their operand: for blocks of (1, 128)
        and (128, 128) `scale_a` (M, K / 128) and `scale_b` (K / 128, N / 128), extents rounded up.

        Pass exactly the operands of the spec's epilogue, by name: `c` and `residual` (M,N), `bias` (N,) or (M,), or
        both `bias_n` and `bias_m`, `scale_m` (M,) and `scale_n` (N,), each of which may be one element instead, the
        scalars `alpha` and `beta`, and `aux` (M,N), which is written. A quantized result is written with its factors to
        `out` and `scale_c` (M, N / 128). Any tensor may have a batch L before its extents:
        `a`, `b` or an epilogue input without one is used for the whole batch.

        A kernel of groups takes `offs`, their ends, or `sizes`, (G,) of int32 on the device; no launch waits for the
        host. With groups of M `a` is (rows,K), `b` (G,K,N), the result (rows,N), and a vector along N (N,) or (G,N);
        padded ones have (G,rows,K) and (G,rows,N). With groups of K `a` is (M,K), `b` (K,N), the result (G,M,N).
        Elements of a new result that no group has are 0; those of `out` stay.

        Operands are torch tensors, NumPy arrays, or objects with `__cuda_array_interface__` or DLPack. Without `out`,
        the result is allocated by `a`'s framework, its leading stride padded as the kernel requires. `out` may be `c`
        or `residual`. Without `stream`, the work goes to torch's current stream, to the stream that an operand names,
        or to the default stream.

        Raises OperandError if an operand does not fit, DeviceError if the GPU cannot run the kernel, PtxFault if the
        kernel does something undefined on the CPU.
        """
        if self._transposed is not None:
            b = self._transposed(b, None if stream is None else streams.stream_handle(stream))
        vectors = bias is bias_n is bias_m is scale_m is scale_n is offs is sizes is None
        plain = vectors and scale_a is scale_b is c is residual is aux is scale_c is alpha is beta is None
        known = self._thread.known
        result = known(a, b, out, stream) if plain else None
        if result is None:
            tensors, scalars = self._extras.take(
                scale_a,
                scale_b,
                c,
                residual,
                bias,
                bias_n,
                bias_m,
                scale_m,
                scale_n,
                aux,
                scale_c,
                offs,
                sizes,
                alpha,
                beta,
            )
            if not plain:
                result = known(a, b, out, stream, [tensor for _, tensor in tensors], scalars)
        if result is not None:
            announce(result, out, aux, scale_c)
            return result
        handle = None if stream is None else streams.stream_handle(stream)
        view_a, view_b, given = view_of(a, "a", handle), view_of(b, "b", handle), out
        beside, grouped = [view_of(x, name, handle) for name, x in tensors], self._read.groups is not None
        if out is None:
            ends = (beside[-1].form,) if grouped else ()
            storage = self._thread.result_storage(view_a.form, view_b.form, *ends)
            out = empty(storage, self._result.dtype.torch_name, a, view_a.form, handle)
        views: tuple[TensorView, ...] = (view_a, view_b, view_of(out, "out", handle), *beside)
        prepared = self._thread.prepare(*[view.form for view in views], clears=grouped and given is None)
        pointers = tuple([view.pointer for view in views])  # a list is faster than a generator
        prepared.check_addresses(pointers)
        if prepared.launch is not None:
            prepared.launch(pointers, scalars, self._order(prepared.call, handle, views))
            prepared.announce((given, aux, scale_c), pointers)
            if prepared.call.device[0] == "cuda" and all(view.form.framework == "torch" for view in views):
                known.remember(a, b, given, out, prepared, prepared.call.device[1], [tensor for _, tensor in tensors])
        return out

    def execute(
        self,
        a: Any,
        b: Any,
        *,
        out: Any,
        policy: Policy | str = "in-order",
        jobs: int = 1,
        max_steps: int | None = None,
        progress: Callable[[int, int], None] | None = None,
        **extras: Any,
    ) -> LaunchReport:
        """Execute the PTX for operands in host memory, and return the executor's report.

        `extras` are the other operands of a call, by name. The report has each instruction's executions, shared-memory
        wavefronts and global sectors. `policy` is the order of CTAs, warps and sides of a branch ("in-order",
        "reversed", "random:SEED"), `jobs` the number of processes for the CTAs, `max_steps` a limit on warp
        instructions that replaces the executor's own; `progress(done, total)` receives the finished CTAs.

        Raises OperandError if an operand does not fit or is not in host memory, or if the result is empty; LaunchError
        for an invalid policy or number of jobs; PtxFault if the kernel does something undefined.
        """
        tensors, scalars = self._extras.take_named(extras)
        if self._transposed is not None:
            b = self._transposed(b, None)
        views = {name: view_of(x, name) for name, x in (("a", a), ("b", b), ("out", out), *tensors)}
        if views["a"].form.device[0] == "cuda":
            raise OperandError(
                operand="a",
                found="GPU memory",
                expected="host memory, for execution of the kernel's PTX",
                fix="call the kernel to run it on the GPU",
            )
        prepared = self._thread.prepare(*[view.form for view in views.values()])
        pointers = tuple(view.pointer for view in views.values())
        prepared.check_addresses(pointers)
        if prepared.launch is None:
            raise OperandError(
                operand="out", found=f"shape {views['out'].form.shape}", expected="at least one element to compute"
            )
        prepared.announce((out, extras.get("aux"), extras.get("scale_c")), pointers)
        limit = {} if max_steps is None else {"max_steps": max_steps}
        launch = self._cpu.prepare(prepared.call)
        return launch.execute(pointers, scalars, policy=policy, jobs=jobs, progress=progress, **limit)

    def call_size(self, a: Any, b: Any, out: Any, **extras: Any) -> CallSize:
        """Return the integers that a call with these operands passes to the kernel. Raises OperandError."""
        tensors, _ = self._extras.take_named(extras)
        if self._transposed is not None:
            b = self._transposed(b, None)
        operands = (("a", a), ("b", b), ("out", out), *tensors)
        return check_call(self._read, *(view_of(x, name).form for name, x in operands)).size

    def prepare(self, *forms: Form, clears: bool = False) -> PreparedCall:
        """Return the launch for operands of these forms, in the order of `contract.passed`, for this thread alone.

        For callers that cache it with what they know of their operands. With `clears` it sets what no group has of the
        result to 0. Raises OperandError if they do not fit.
        """
        return self._thread.prepare(*forms, clears=clears)

    def __repr__(self) -> str:
        a, b, c = (f"{t.name}: {t.dtype} {t.major}-major" for t in map(self.contract.tensor, (*OPERANDS, RESULT)))
        m, n = self.contract.cta_tile
        return (
            f"Kernel({self.contract.entry}, {a}, {b}, {c}, CTA tile {m}x{n}, {self.artifact.manifest.inputs.gpu_arch})"
        )

    def _result_storage(self, a: Form, b: Form, ends: Form | None = None) -> MatrixStorage:
        return self._result.storage(check_inputs(self._read, a, b, ends))

    def _prepare(self, *forms: Form, clears: bool = False) -> PreparedCall:
        call = check_call(self._read, *forms, clears=clears)
        if call.size.problem.empty:
            return PreparedCall.of(call, None)
        backend = self._gpu if call.device[0] == "cuda" else self._cpu
        return PreparedCall.of(call, backend.prepare(call))

    def _order(self, call: CheckedCall, stream: int | None, views: tuple[TensorView, ...]) -> int:
        """Return the stream to launch on, which waits for the streams that the operands name."""
        if call.device[0] == "cpu":
            return 0
        chosen = streams.current_stream(views, call.device) if stream is None else stream
        if [view for view in views if view.stream]:
            for producer in streams.producers(chosen, views):
                self._load_driver().order_after(call.device[1], chosen, producer)
        return chosen

    @cached_property
    def _cpu(self) -> CpuKernel:
        from cutegen.run.cpu import CpuKernel  # imports the PTX executor, which GPU calls do not need

        return CpuKernel(self._read, self.artifact.ptx)


@dataclass(frozen=True, slots=True)
class PreparedCall:
    """Checked forms, those of `placed` in the order of the addresses, and the launch; None for an empty result."""

    call: CheckedCall
    placed: tuple[Placed, ...]
    launch: Launch | None
    apart: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, call: CheckedCall, launch: Launch | None) -> PreparedCall:
        """Return pairs that must not overlap: each written one with all before it and all later read ones."""
        placed = tuple(call.placed.values())
        written = [each.tensor.written for each in placed]
        everyone = range(len(written))
        pairs = tuple((i, j) for i in everyone if written[i] for j in everyone if j < i or (j > i and not written[j]))
        return cls(call, placed, launch, pairs)

    def check_addresses(self, pointers: tuple[int, ...]) -> None:
        """Raise OperandError for an unaligned address, or a result that shares memory with another operand."""
        placed = self.placed
        for each, pointer in zip(placed, pointers, strict=True):
            if pointer % each.align_bytes:
                check_address(each, pointer)
        for i, j in self.apart:
            mine, other, address, others = placed[i], placed[j], pointers[i], pointers[j]
            if address < others + other.span_bytes and others < address + mine.span_bytes:
                check_apart(mine, address, other, others)

    def announce(self, written: tuple[Any, ...], pointers: tuple[int, ...]) -> None:
        """Tell torch what this call writes, and drop copies of it; None is not a tensor of the caller."""
        for operand in written:
            if operand is not None:
                count_write(operand)
        if not kept_copies.entries:
            return
        for each, pointer in zip(self.placed, pointers, strict=True):
            if each.tensor.written:
                kept_copies.written(pointer, pointer + each.span_bytes)


class _PerThread(threading.local):
    """The calls prepared on each thread: threads must not share a launch's parameter block."""

    def __init__(self, prepare: Callable[..., PreparedCall], result_storage: Callable[..., MatrixStorage]) -> None:
        self.known = CachedCalls()
        self.prepare = lru_cache(maxsize=_REMEMBERED_FORMS)(prepare)
        self.result_storage = lru_cache(maxsize=_REMEMBERED_FORMS)(result_storage)


def announce(result: Any, given: Any, *beside: Any) -> None:
    """Tell torch what a repeated call wrote of the caller's tensors, and drop copies of what it wrote."""
    for operand in (given, *beside):
        if operand is not None:
            count_write(operand)
    if kept_copies.entries:
        for written in (result, *beside):
            if written is not None:
                begin, elems = written.data_ptr(), span_elems(written.shape, written.stride())
                kept_copies.written(begin, begin + elems * written.element_size())


def _transposed(read: LaunchContract) -> Transposed | None:
    """Return the store for copies of B if the kernel reads it with another major than calls pass."""
    if not read.given:
        return None
    given, copied = (call_tensor(contract.tensor("b")) for contract in (read.of_a_call(), read))
    return Transposed(given, copied)
