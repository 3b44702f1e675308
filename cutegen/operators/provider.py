"""cutegen as a provider of `cutlass.operators`: for given arguments and a target, the operator that cutegen selects.

The interface is that of nvidia-cutlass-operators 0.3, which is a beta. Its own operators are lists of tiles; cutegen
plans one kernel for the arguments' extents. Names in capitals and attributes are the interface's.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import cutlass
from cutlass.operators import (
    CompiledArtifact,
    DenseTensor,
    GemmArguments,
    IndexPtrGroupedGemmArguments,
    Operator,
    OperatorMetadata,
    Provider,
    RuntimeArguments,
    Status,
    TargetSm,
    metadata,
    mma,
    register_provider,
)

from cutegen.api import request_of
from cutegen.build import Cache, build
from cutegen.dispatch.request import Matrix, Request
from cutegen.dispatch.resolve import Given
from cutegen.errors import RequestError
from cutegen.hardware import TARGETS, Instruction, Target
from cutegen.hardware.targeting import present_target
from cutegen.operators.in_place import ENDS, plan_of, request_in_place, serves
from cutegen.plan import GemmPlan
from cutegen.run import Kernel
from cutegen.run.call.operands import CPU, Form

_TYPES = {
    "f16": cutlass.Float16,
    "bf16": cutlass.BFloat16,
    "f32": cutlass.Float32,
    "e4m3": cutlass.Float8E4M3FN,
    "e5m2": cutlass.Float8E5M2,
    "s8": cutlass.Int8,
    "u8": cutlass.Uint8,
    "s32": cutlass.Int32,
}
_NAMES = {known: name for name, known in _TYPES.items()}
_INSTRUCTIONS: Mapping[Instruction, type[mma.MmaInstruction]] = {
    Instruction.FMA: mma.MmaInstruction,  # the interface has no class for it
    Instruction.MMA_SYNC: mma.AmpereMma,
    Instruction.WGMMA: mma.HopperWgmma,
    Instruction.TCGEN05: mma.BlackwellTcgen05Mma,
}
_COLUMNS = {"a": "k", "b": "n", "out": "n"}
"""The last mode of each operand: (L,M,K), (L,K,N), (L,M,N)."""
_DLPACK_CPU = 1


@register_provider("cutegen")
class CutegenProvider(Provider):  # type: ignore[misc]
    """Provider of the kernels that cutegen plans and builds."""


class PlannedOperator(Operator):  # type: ignore[misc]
    """An operator with a kernel that is planned, and compiled when it is asked for.

    The kernel computes every problem whose operands have the types, contiguous modes and alignments that the metadata
    states. It runs on one compute capability, although the interface takes `sm_80` as a promise for later ones.
    """

    def __init__(self, metadata: OperatorMetadata, request: Request, plan: GemmPlan) -> None:
        super().__init__(metadata)
        self.request, self.plan = request, plan

    @staticmethod
    @abstractmethod
    def _tensors(args: RuntimeArguments) -> Mapping[str, Any]:
        """Return the arguments' operands by cutegen's names."""

    @staticmethod
    @abstractmethod
    def _operands(
        args: RuntimeArguments, constraints: Mapping[str, Any], accumulator: Any
    ) -> metadata.OperandsMetadata:
        """Return the metadata of operands with such constraints."""

    @classmethod
    def _generate_operators(
        cls,
        metadata_filter: Callable[[OperatorMetadata], bool] | None,
        epilogue_args: Any = None,
        target_sm: TargetSm | None = None,
        args: RuntimeArguments | None = None,
    ) -> list[Operator]:
        """Return the operator for the arguments on each target; none without arguments, or with an epilogue."""
        if args is None or epilogue_args is not None:
            return []
        found = []
        for target in _targets(target_sm):
            try:
                request = request_in_place(_given(cls._tensors(args)), target.name)
                made = cls(cls._metadata_of(args, request, plan := plan_of(request)), request, plan)
            except RequestError:  # the reason is for `supports` of an operator that exists
                continue
            if metadata_filter is None or metadata_filter(made.metadata):
                found.append(made)
        return found

    @classmethod
    def _metadata_of(cls, args: RuntimeArguments, request: Request, plan: GemmPlan) -> OperatorMetadata:
        matrices = {"a": request.a, "b": request.b, "out": request.c}
        constraints = {name: _constraints(name, matrix) for name, matrix in matrices.items()}
        aligned = ".".join(str(each.align_bytes) for each in matrices.values())
        problem = "x".join(map(str, request.problem.table().values()))
        return OperatorMetadata(
            operator_name=f"cutegen.{request.name}_{request.c.dtype}_{request.c.major}_{aligned}_{problem}_{request.target}",
            operator_class=cls,
            supported_targets=[_sm_of(plan.target)],
            operands=cls._operands(args, constraints, _TYPES[plan.mma.atom.c_dtype.name]),
            design=metadata.BLASDesignMetadata(
                mma_instruction_type=_INSTRUCTIONS[plan.mma.atom.instruction],
                tile_shape=(*plan.launch.cta_tile, plan.mma.cta_tile[2]),
                cluster_shape=_cluster(plan),
                num_smem_stages=plan.stages,
            ),
        )

    def _supports(self, args: RuntimeArguments, target_sm: TargetSm | None = None) -> Status:
        """Check what metadata does not state: the compute capability, and that no operand must be copied."""
        mine = _sm_of(self.plan.target)
        if target_sm is not None and target_sm.cc != mine.cc:
            return Status.fail(f"found target {target_sm}; expected {mine}, for which the kernel is planned")
        try:
            asked = request_in_place(_given(self._tensors(args)), self.request.target)
        except RequestError as error:
            return Status.fail(error)
        if not serves(self.request, asked):
            return Status.fail(f"found {asked}; expected operands as of {self.request}")
        return Status.success()

    def _compile(self, args: RuntimeArguments, target_sm: TargetSm | None = None) -> CompiledArtifact:
        """Return the kernel, from cutegen's cache or compiled. Raises RequestError for another target, CompileError."""
        mine = _sm_of(self.plan.target)
        if target_sm is not None and target_sm.cc != mine.cc:
            raise RequestError(f"operators: found target {target_sm}; expected {mine}, for which the kernel is planned")
        kernel = Kernel(build(request_of(self.plan), Cache.from_environment()))
        return CompiledArtifact(compiled_obj=kernel, operator_obj=self, compiled_for=mine)

    def _run(
        self, args: RuntimeArguments, compiled_artifact: CompiledArtifact, stream: Any, workspace: Any = None
    ) -> None:
        """Launch on the stream; a kernel that needs a workspace has its own. Raises OperandError, DeviceError."""
        tensors = {name: each.runtime_tensor for name, each in self._tensors(args).items()}
        compiled_artifact.compiled_obj(tensors.pop("a"), tensors.pop("b"), **tensors, stream=stream)


@CutegenProvider.register
class GemmOperator(PlannedOperator):
    """`out = A @ B`, also of a batch."""

    supported_args_type = GemmArguments
    designed_for_min_cc = 80

    @staticmethod
    def _tensors(args: GemmArguments) -> Mapping[str, Any]:
        return {"a": _dense("A", args), "b": _dense("B", args), "out": _dense("out", args)}

    @staticmethod
    def _operands(
        args: GemmArguments, constraints: Mapping[str, Any], accumulator: Any
    ) -> metadata.GemmOperandsMetadata:
        return metadata.GemmOperandsMetadata(constraints["a"], constraints["b"], constraints["out"], accumulator)


@CutegenProvider.register
class GroupedGemmOperator(PlannedOperator):
    """A product for each group of rows, of columns, or of parts of K, whose ends are on the device."""

    supported_args_type = IndexPtrGroupedGemmArguments
    designed_for_min_cc = 80

    @staticmethod
    def _tensors(args: IndexPtrGroupedGemmArguments) -> Mapping[str, Any]:
        return {**GemmOperator._tensors(args), ENDS: _dense("offsets", args)}

    @staticmethod
    def _operands(
        args: IndexPtrGroupedGemmArguments, constraints: Mapping[str, Any], accumulator: Any
    ) -> metadata.IndexPtrGroupedGemmOperandsMetadata:
        ends = metadata.DenseTensorConstraints(dtype=cutlass.Int32, stride=(1,), divisibility=1)
        return metadata.IndexPtrGroupedGemmOperandsMetadata(
            constraints["a"], constraints["b"], constraints["out"], ends, args.offsets_along, accumulator
        )


def _targets(sm: TargetSm | None) -> Iterator[Target]:
    """Return cutegen's target of this compute capability; without one the present GPU's, else all."""
    if sm is None:
        here = present_target()
        yield from TARGETS.values() if here is None else [here]
        return
    yield from (each for each in TARGETS.values() if each.compute_capability == (sm.major, sm.minor))


def _sm_of(target: Target) -> TargetSm:
    return TargetSm(target.gpu_arch.removeprefix("sm_"))


def _cluster(plan: GemmPlan) -> tuple[int, int, int]:
    """Return the CTAs of a cluster along M and N of C, and K."""
    m, n, k = plan.mma.cluster
    return (n, m, k) if plan.swapped else (m, n, k)


def _dense(name: str, args: RuntimeArguments) -> Any:
    """Return the tensor of an operand. Raises RequestError for operands of other kinds, which have several."""
    operand = getattr(args, name)
    if not isinstance(operand, DenseTensor):
        raise RequestError(f"operators: {name}: found a {type(operand).__name__}; expected a DenseTensor")
    return operand.tensor


def _given(tensors: Mapping[str, Any]) -> Given:
    return {name: (_form(name, tensor), tensor.data_ptr) for name, tensor in tensors.items()}


def _form(name: str, tensor: Any) -> Form:
    """Return the form of a wrapped tensor. Raises RequestError for an element type that cutegen does not have."""
    if tensor.dtype not in _NAMES:
        raise RequestError(f"operators: {name}: found {tensor.dtype}; expected one of {', '.join(_TYPES)}")
    return Form(
        tuple(tensor.shape), tuple(tensor.stride), _NAMES[tensor.dtype], _device(tensor), "torch", read_only=False
    )


def _device(tensor: Any) -> tuple[str, int]:
    """Return where a wrapped tensor is: on the first GPU, if it is fake or does not say."""
    try:
        kind, ordinal = tensor.__dlpack_device__()
    except (NotImplementedError, ValueError):
        return "cuda", 0
    return CPU if int(kind) == _DLPACK_CPU else ("cuda", int(ordinal))


def _constraints(name: str, matrix: Matrix) -> metadata.DenseTensorConstraints:
    """Return the constraints on an operand, of three dimensions or of the last two."""
    stride = (0, 0, 1) if matrix.major == _COLUMNS[name] else (0, 1, 0)
    element = _TYPES[matrix.dtype]
    return metadata.DenseTensorConstraints(
        dtype=element,
        stride=stride,
        divisibility=max(1, matrix.align_bytes * 8 // element.width),
        ptr_alignment_bytes=matrix.align_bytes,
    )
