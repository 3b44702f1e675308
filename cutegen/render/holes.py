"""Holes that the templates of all families share: parameters, tensors, the epilogue, the self-check."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cutegen.algebra import Layout
from cutegen.contract import TensorContract
from cutegen.contract.launch import COUNTERS, ENDS, SUMS, Parameter, gemm_parameters, leading_stride
from cutegen.hardware import DType
from cutegen.plan import GemmPlan
from cutegen.plan.values.fragments import LdmatrixLoads
from cutegen.plan.values.path import OperandPath
from cutegen.render import epilogue
from cutegen.render.constants import shared_constants, united
from cutegen.render.head import MEMORY, head, memory_constants
from cutegen.render.python_text import comment, docstring
from cutegen.render.self_check import checked_mnk, random_matrix, self_check, tolerance
from cutegen.render.spec_lines import spec_lines
from cutegen.spec import STORE


def gemm_context(plan: GemmPlan, settled: Mapping[str, tuple[str, ...]], title: str) -> dict[str, Any]:
    """Return the holes of every template; `settled` are the constants of each decision, by its key."""
    fusion = plan.epilogue.fusion
    steps = fusion.steps
    narrow = epilogue.is_narrow(plan)
    helpers = epilogue.helpers(steps, narrow=narrow)
    comments: dict[str, tuple[str, ...]] = {"problem.b.transposed": (), "schedule.swap": ()}
    settled = united(shared_constants(plan), settled, comments, {MEMORY: memory_constants(plan)})
    return {
        "plan": plan,
        "title": docstring(f"{plan.kernel_name}: {plan.spec.description or title}"),
        "constants": head(plan.decisions, settled),
        "spec_lines": spec_lines(plan),
        "along": plan.scheduler.order.along,
        "across": "m" if plan.scheduler.order.along == "n" else "n",
        "formula": "epilogue(A[M,K] * B[N,K])" if steps else "A[M,K] * B[N,K]",
        "through_f32": epilogue.goes_through_f32(plan),
        "sums_in_f32": epilogue.sums_in_f32(plan),
        "as_c": epilogue.rounded(plan.epilogue.dtype, "C_DTYPE"),
        "random_a": random_matrix(plan.a.modes, plan.a.major, plan.a.dtype),
        "random_b": random_matrix(plan.b.modes, plan.b.major, plan.b.dtype),
        "parameters": [parameter_holes(x) for x in plan.launch.parameters],
        **_host_holes(plan),
        "self_check": self_check(plan),
        "tensors": [tensor_holes(x) for x in plan.launch.tensors],
        "stores_registers": (plan.epilogue.smem is None and not plan.launch.adds_to_result)
        or any(x.name == STORE for x in fusion.tensors),
        "adds_slices": plan.split_k is not None and plan.split_k.leaves_sums,
        "slice_sums": plan.mma.cluster[2] > 1,
        "reads_unsigned": epilogue.reads_unsigned(fusion),
        "loads_operands": any(x.name != STORE and len(x.modes) == 2 for x in fusion.tensors),
        "held_vectors": (),
        "loads_vectors": any(len(x.modes) == 1 for x in fusion.tensors),
        "helpers": helpers | epilogue.conversions(plan),
        "narrow_results": narrow,
        "beta_guards_c": fusion.source_behind_beta,
        "clusters": plan.mma.cluster != (1, 1, 1),
        "c_staged": plan.epilogue.smem is not None,
        "tolerance": tolerance(plan),
        "checked": checked_mnk(plan),
    }


def fragment_context(plan: GemmPlan) -> dict[str, Any]:
    """Return the holes of templates that load fragments to registers for `mma.sync`."""
    mma = _mma_holes(plan)
    return {
        "mma": mma,
        "fragments": _fragment_holes(plan),
        "numerics": numerics(plan),
        "dialects": "cute_nvgpu" if mma.own else "",
    }


def numerics(plan: GemmPlan) -> str:
    """Return the number types that a tensor-core kernel imports: float32 only if its text computes in it."""
    in_f32 = plan.epilogue.fusion.steps or epilogue.goes_through_f32(plan) or plan.mma.rounds_to_tf32
    return "Float32, Int32, Int64" if in_f32 else "Int32, Int64"


_POINTERS_BESIDE = {ENDS: "(Int32, 1)", SUMS: "(SUM_DTYPE, SUM_VECTOR)", COUNTERS: "(Int32, 1)"}
"""Element type and alignment, in elements, of the addresses that a launch passes beside the tensors."""


def _host_holes(plan: GemmPlan) -> dict[str, Any]:
    """Return the holes of the host side, which makes tensor maps."""
    launch = plan.launch
    beside = launch.pointers[len(launch.tensors) :]
    workspace = tuple(name for name in beside if name in (SUMS, COUNTERS))
    host = launch.parameters
    if launch.maps:
        host = gemm_parameters(launch.tensors, launch.scalars, (), workspace, groups=launch.groups)
    tensors = {tensor.name: tensor_holes(tensor) for tensor in launch.tensors}
    return {
        "pointers_beside": [_POINTERS_BESIDE[name] for name in beside],
        "host_parameters": [parameter_holes(x) for x in host],
        "maps": [_map_holes(plan, tensors[each.name]) for each in launch.maps],
    }


@dataclass(frozen=True, slots=True)
class MapHoles:
    """A tensor map that the host makes: its tensor, its copy, and the tile."""

    tensor: TensorHoles
    op: str
    tile: str
    shares: str


def _map_holes(plan: GemmPlan, tensor: TensorHoles) -> MapHoles:
    of_c = "(CTA_M, CTA_N)" if plan.epilogue.part is None else "(PART_M, PART_N)"
    tile = {"a": "(CTA_M, CTA_K)", "b": "(CTA_N, CTA_K)", "c": of_c}[tensor.name]
    if tensor.name == "c":
        return MapHoles(tensor, "CopyBulkTensorTileS2GOp", tile, "")
    along = {"a": 1, "b": 0}[tensor.name]
    if plan.mma.cluster[along] == 1:
        return MapHoles(tensor, "CopyBulkTensorTileG2SOp", tile, "")
    return MapHoles(tensor, "CopyBulkTensorTileG2SMulticastOp", tile, f"CLUSTER_{'MN'[along]}")


def chain_holes(
    plan: GemmPlan, indent: int, *, deeper: int = 4, part: str = "[part]", holds_vectors: bool = False
) -> dict[str, Any]:
    """Return the decision on the epilogue's chain, as a comment at `indent`, and the chain's code, so much `deeper`.

    `part` and `holds_vectors` are those of `kernel_lines`.
    """
    found = (x for x in plan.decisions if x.key in ("epilogue.ops", "epilogue.expression"))
    return {
        "chain": tuple(line for x in found for line in comment(f"{x.key}: {x.chosen} ({x.why})", indent)),
        "steps": epilogue.kernel_lines(
            plan.epilogue.fusion,
            part,
            indent=indent + deeper,
            narrow=epilogue.is_narrow(plan),
            holds_vectors=holds_vectors,
        ),
    }


_PARAMETER_TYPES = {
    "ptr": "cute.Pointer",
    "i32": "Int32",
    "i64": "Int64",
    "f32": "Float32",
    "tensormap": "cute.CopyAtom",
}


@dataclass(frozen=True, slots=True)
class ParameterHoles:
    """A parameter of the kernel: its name, its type in the DSL, and for a number a value to compile with.

    A stride is a multiple of the constant `divisor`.
    """

    name: str
    type: str
    example: str
    divisor: str


def parameter_holes(parameter: Parameter) -> ParameterHoles:
    """Return what the template writes for one parameter."""
    name, kind = parameter.name, _PARAMETER_TYPES[parameter.type]
    divisor = _divisor(name) if parameter.type == "i64" else ""
    examples = {
        "ptr": "",
        "tensormap": "",
        "f32": f"{kind}(1.0)",
        "i32": f"{kind}(1)",
        "i64": f"{kind}({divisor})",
    }
    return ParameterHoles(name, kind, examples[parameter.type], divisor)


@dataclass(frozen=True, slots=True)
class MmaHoles:
    """Names of the kernel's MMA: `own` if it defines the operation itself.

    `columns` means that its tile along N is a layout, not only an extent; `a_integer` and `b_integer` are the
    constructors of the compiler's types of integer A and B.
    """

    operation: str
    ptx: str
    own: bool
    integer: bool
    a_integer: str
    b_integer: str
    columns: bool


def _mma_holes(plan: GemmPlan) -> MmaHoles:
    """Return the operation; module `warp` has those for operands of one type only, and none for integers."""
    a, b = plan.atom.a_dtype, plan.atom.b_dtype
    own = a.is_integer or a is not b
    if own:
        operation = "MmaOperation()"
    elif a.name == "tf32":
        operation = "warp.MmaTF32Op(MMA_SHAPE)"
    else:
        name = "MmaF16BF16Op" if a.bits == 16 else "MmaFP8Op"
        operation = f"warp.{name}(A_DTYPE, ACCUMULATOR_DTYPE, MMA_SHAPE)"
    return MmaHoles(
        operation,
        plan.atom.ptx,
        own=own,
        integer=a.is_integer,
        a_integer=_integer(a),
        b_integer=_integer(b),
        columns=isinstance(plan.tiled_mma.permutation[1], Layout),
    )


def _integer(element: DType) -> str:
    return "get_unsigned" if element.is_unsigned else "get_signed"


@dataclass(frozen=True, slots=True, kw_only=True)
class FragmentHoles:
    """Names of the copies to fragments; `b_reordered` if B's numbers values in its own order."""

    a_load: str
    b_load: str
    b_reordered: bool
    all_ldmatrix: bool


def _fragment_holes(plan: GemmPlan) -> FragmentHoles:
    """Return what the templates write for the two copies."""
    assert plan.a.fragment_copy.view is None  # the rows of A's atom match those of ldmatrix
    return FragmentHoles(
        a_load=_load(plan.a),
        b_load=_load(plan.b),
        b_reordered=plan.b.fragment_copy.view is not None,
        all_ldmatrix=all(x.s2r.by_ldmatrix for x in plan.operands),
    )


def _load(operand: OperandPath) -> str:
    x = operand.name.upper()

    def by_ldmatrix(copy: LdmatrixLoads) -> str:
        operation = "LdMatrix8x8x16bOp" if copy.atom.element_bits == 16 else "LdMatrix16x16x8bOp"
        return f"warp.{operation}({x}_TRANSPOSE, {x}_MATRICES), {x}_DTYPE"

    plain = f"CopyUniversalOp(), {x}_DTYPE, num_bits_per_copy={x}_S2R_BITS"
    return operand.fragment_copy.by_kind(ldmatrix=by_ldmatrix, plain=lambda _: plain)


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorHoles:
    """A tensor in global memory; `title` is its part of a CuTe name. A vector lies `along` a mode, the `mode`-th.

    `firsts` names the first coordinates of the elements that a warp holds, if it does.
    """

    name: str
    title: str
    dtype: str
    align: str
    shape: str
    stride: str
    along: str
    mode: int
    firsts: str = ""


def tensor_holes(tensor: TensorContract) -> TensorHoles:
    """Return what the template writes for a tensor in global memory."""
    constants = epilogue.constants_of(tensor.name)
    leading = leading_stride(tensor)
    matrix = len(tensor.modes) == 2
    contiguous, other = ("1", leading) if matrix else (leading or "1", "0")
    modes = tensor.modes if matrix else ("m", "n")
    return TensorHoles(
        name=tensor.name,
        title=epilogue.title(tensor.name),
        dtype=f"{constants}_DTYPE",
        align=f"{constants}_ALIGN_ELEMS",
        shape=f"({', '.join(modes)})",
        stride=f"({other}, {contiguous})" if tensor.major == modes[1] else f"({contiguous}, {other})",
        along="" if matrix else tensor.major,
        mode=modes.index(tensor.major),
    )


def _divisor(stride: str) -> str:
    """Return the constant of which a stride parameter is a multiple."""
    tensor = stride.removeprefix("batch_stride_").removeprefix("ld")
    return f"{epilogue.constants_of(tensor)}_ALIGN_ELEMS"
