"""Holes that the templates of all families share: parameters, tensors, the epilogue, the self-check."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from cutegen.algebra import Layout
from cutegen.contract.launch import COUNTERS, ENDS, OPERANDS, RESULT, SUMS, Parameter, gemm_parameters, integers
from cutegen.contract.problem import PAIR
from cutegen.hardware import DType
from cutegen.plan import GemmPlan
from cutegen.plan.kernel.pipeline import Scope
from cutegen.plan.values.fragments import LdmatrixLoads
from cutegen.plan.values.path import OperandPath
from cutegen.render import epilogue
from cutegen.render.about import about
from cutegen.render.constants import MEMORY, head, memory_constants, shared_constants, united
from cutegen.render.groups import begin_of, group_holes
from cutegen.render.pairs import matrix_of_members, matrix_of_pairs, pair_holes
from cutegen.render.python_text import LINE_WIDTH, comment, docstring
from cutegen.render.scheduler import order_holes, scheduler_constants, sharers
from cutegen.render.self_check import agreement, checked_mnk, random_matrix, self_check, tolerance
from cutegen.render.spec_lines import spec_lines
from cutegen.render.tensors import TensorHoles, extents_of, tensor_holes


def gemm_context(plan: GemmPlan, settled: Mapping[str, tuple[str, ...]], title: str) -> dict[str, Any]:
    """Return the holes of every template; `settled` are the constants of each decision, by its key."""
    steps = plan.epilogue.fusion.steps
    comments: dict[str, tuple[str, ...]] = {"problem.b.transposed": (), "schedule.swap": ()}
    settled = united(
        shared_constants(plan), scheduler_constants(plan), settled, comments, {MEMORY: memory_constants(plan)}
    )
    return {
        "plan": plan,
        **stage_holes(plan),
        "title": docstring(f"{plan.kernel_name}: {plan.spec.description or title}"),
        "constants": [x.text for x in head(plan.decisions, settled)],
        "about": about(plan.loop),
        "spec_lines": spec_lines(plan),
        **order_holes(plan),
        "formula": "epilogue(A[M,K] * B[N,K])" if steps else "A[M,K] * B[N,K]",
        "through_f32": epilogue.goes_through_f32(plan),
        "sums_in_f32": epilogue.sums_in_f32(plan),
        "as_c": epilogue.rounded(plan.epilogue.dtype, "C_DTYPE"),
        "random_a": random_matrix(plan.a.modes, plan.a.major, plan.a.dtype),
        "random_b": random_matrix(plan.b.modes, plan.b.major, plan.b.dtype),
        "parameters": (parameters := [parameter_holes(x) for x in plan.launch.parameters]),
        "assumed": [x for x in parameters if x.divisor],
        **_host_holes(plan),
        **epilogue.type_holes(plan),
        "self_check": self_check(plan),
        "tensors": (
            tensors := [
                replace(tensor_holes(x, plan.launch.groups), begin=begin_of(plan, x)) for x in plan.launch.tensors
            ]
        ),
        "matrices_beside": [x for x in tensors if x.name not in (*OPERANDS, RESULT) and not x.along],
        "pairs": pair_holes(plan),
        "tolerance": tolerance(plan),
        "checked": checked_mnk(plan),
    }


def host_parts(plan: GemmPlan) -> tuple[str, ...]:
    """Return the parts of the host side that every schedule has: how a result is checked."""
    stored = epilogue.stored_types(plan)
    return (
        *(("host/integers.py.j2",) if any(x.is_integer for x in stored) else ()),
        *(("host/narrow_floats.py.j2",) if any(x.is_float8 for x in stored) else ()),
        "host/norm.py.j2" if agreement(plan) is None else "host/agreement.py.j2",
    )


def value_parts(plan: GemmPlan) -> tuple[str, ...]:
    """Return the parts by which a tile's accumulators become values of C, if each thread has all of its own at once."""
    fusion = plan.epilogue.fusion
    if not fusion.steps:
        return (f"epilogues/rounded{'_through_f32' if epilogue.goes_through_f32(plan) else ''}.py.j2",)
    columns = ("by_columns",) if fusion.pairs is None else ("pairs_of_columns", "by_columns_of_pairs")
    return (
        *(f"epilogues/{name}.py.j2" for name in columns),
        *(("epilogues/coordinates.py.j2",) if fusion.tensors else ()),
        *(("epilogues/source_behind_beta.py.j2",) if fusion.source_behind_beta else ()),
    )


def fragment_context(plan: GemmPlan) -> dict[str, Any]:
    """Return the holes of templates that load fragments to registers for `mma.sync`."""
    return {
        "mma": _mma_holes(plan),
        "fragments": _fragment_holes(plan),
        "converted": [(x.operand, f"cutlass.{x.multiplied.dsl_name}") for x in converted_operands(plan)],
    }


def converted_operands(plan: GemmPlan) -> list[OperandPath]:
    """Return the operands that are converted in registers before they are multiplied."""
    return [x for x in plan.operands if x.multiplied is not x.dtype]


def own_operation(plan: GemmPlan) -> tuple[str, ...]:
    """Return the parts that define the operation of `mma.sync`, if the DSL lacks it."""
    kind = "integers" if plan.atom.a_dtype.is_integer else "floats"
    return ("mma/own_operation.py.j2", f"mma/{kind}.py.j2") if _mma_holes(plan).own else ()


def mma_functions(plan: GemmPlan) -> tuple[str, ...]:
    """Return the parts that define what the DSL lacks of `mma.sync`."""
    return (*own_operation(plan), *(("mma/tf32.py.j2",) if plan.mma.rounds_to_tf32 else ()))


def fragment_parts(plan: GemmPlan) -> tuple[str, ...]:
    """Return the parts that load fragments to registers and multiply them by `mma.sync`."""
    return (
        "mma/mma_sync.py.j2",
        *(f"mma/{name}.py.j2" for name in _permuted(plan)),
        *(("mma/converted.py.j2",) if converted_operands(plan) else ()),
        "mma/loads.py.j2" if plan.b.fragment_copy.view is None else "mma/reordered_loads.py.j2",
    )


def mma_imports(plan: GemmPlan, *dialects: str) -> list[str]:
    """Return the imports of what `mma.sync` needs of the DSL, and of other `dialects`."""
    own = _mma_holes(plan).own
    imported = [*(("cute_nvgpu",) if own else ()), *dialects]
    return [
        *(("from cutlass._mlir import ir",) if plan.atom.a_dtype.is_integer else ()),
        *((f"from cutlass._mlir.dialects import {', '.join(imported)}",) if imported else ()),
        *(("from cutlass.cute.atom import Trait, make_atom", "from cutlass.cute.core import _pack_shape") * own),
    ]


def _permuted(plan: GemmPlan) -> dict[str, int]:
    """Return the modes of the tiled MMA's tile that are layouts, not only extents, by the name of the variable."""
    permutation = plan.tiled_mma.permutation
    return {name: mode for mode, name in enumerate(("rows", "columns")) if isinstance(permutation[mode], Layout)}


def _permutation(plan: GemmPlan) -> str:
    """Return the argument of `make_tiled_mma`: extents, or layouts of the permuted modes."""
    names = {mode: name for name, mode in _permuted(plan).items()}
    if not names:
        return "MMA_PERMUTATION"
    return f"({', '.join(names.get(mode, f'MMA_PERMUTATION[{mode}]') for mode in range(3))})"


def numerics(plan: GemmPlan) -> str:
    """Return the number types that a tensor-core kernel imports: float32 only if its text computes in it."""
    fusion = plan.epilogue.fusion
    in_f32 = fusion.steps or fusion.quantization or epilogue.goes_through_f32(plan) or plan.mma.rounds_to_tf32
    return "Float32, Int32, Int64" if in_f32 else "Int32, Int64"


_POINTERS_BESIDE = {ENDS: "(Int32, 1)", SUMS: "(SUM_DTYPE, SUM_VECTOR)", COUNTERS: "(Int32, 1)"}
"""Element type and alignment, in elements, of the addresses that a launch passes beside the tensors."""


_CHECKED_GROUPS = ("", "1, ", "1, 0, ")
"""Numbers that the self-check passes behind the extents, if these are none, one or two: one group, nothing cleared."""


def _host_holes(plan: GemmPlan) -> dict[str, Any]:
    """Return the holes of the host side, which makes tensor maps."""
    launch = plan.launch
    beside = launch.pointers[len(launch.tensors) :]
    workspace = tuple(name for name in beside if name in (SUMS, COUNTERS))
    host = launch.parameters
    if launch.maps:
        host = gemm_parameters(launch.tensors, launch.scalars, (), workspace, groups=launch.groups)
    tensors = {tensor.name: tensor_holes(tensor, launch.groups) for tensor in launch.tensors}
    return {
        "host_parameters": [parameter_holes(x) for x in host],
        "host_assumed": [each for x in host if launch.maps and (each := parameter_holes(x)).divisor],
        "pointer_kinds": [
            *(f"({x.dtype}, {x.align})" for x in tensors.values()),
            *(_POINTERS_BESIDE[name] for name in beside),
        ],
        "compiled_with": [
            *(example for x in host if (example := parameter_holes(x).example)),
            *(("Int32(1)",) * (2 if plan.scheduler.source.fills_gpu else 1)),
        ],
        "addressed": f"(*tensors, {', '.join(beside)})" if beside else "tensors",
        "checked_groups": _CHECKED_GROUPS[len(integers(launch.groups)) - len("mnk")],
        **group_holes(plan, tensors[RESULT].shape, tensors[RESULT].stride),
        "launched_with": "multiprocessors, " if plan.scheduler.source.fills_gpu else "",
        "maps": [_map_holes(plan, tensors[each.name]) for each in launch.maps],
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class OperandHoles:
    """Holes in a template's text, not its constants, for an operand of a k-tile.

    `title` is its part of a CuTe name, as in sA; `share` is the prefix of a thread's partition for copying, as in tAsA.
    `extents` are those of its matrix, `tile` those of its share of the CTA tile, at `coordinate` in tiles, and `inside`
    those of the tile's elements inside the matrix: one for each pair of columns. `place` is added to the address of the
    shared memory.
    """

    name: str
    title: str
    constants: str
    share: str
    extents: str
    tile: str
    inside: str
    coordinate: str
    place: str
    g2s_op: str
    through_registers: bool

    def fetch(self, k_tile: str, stage: str, whole: str) -> str:
        """Return the call that begins to copy a k-tile to a stage, or to registers."""
        share, x = self.share, self.title
        if self.through_registers:
            return f"load_g2r({share}g{x}, {share}r{x}, {share}c{x}, {k_tile}, {self.extents}, {whole})"
        tensors = f"{share}g{x}, {share}s{x}, {share}c{x}, {k_tile}, {stage}, {self.extents}"
        return f"copy_g2s({tensors}, {self.constants}_MAJOR, {self.constants}_CACHE, {whole})"


def operand_holes(plan: GemmPlan) -> list[OperandHoles]:
    """Return what the templates write for each operand."""
    return [_operand(plan, x) for x in plan.operands]


def stage_holes(plan: GemmPlan) -> dict[str, list[OperandHoles]]:
    """Return the holes of the stages in shared memory."""
    operands = operand_holes(plan)
    swizzled = {x.name for x in plan.operands if x.smem.swizzle is not None}
    return {"operands": operands, "swizzled": [x for x in operands if x.name in swizzled]}


def _operand(plan: GemmPlan, x: OperandPath) -> OperandHoles:
    title, constants, plain = epilogue.title(x.name), epilogue.constants_of(x.name), x.g2s.through_registers
    cache = "GLOBAL" if x.g2s.bypasses_l1 else "ALWAYS"
    tile = ", ".join(
        f"CTA_{mode.upper()}" if of == 1 else f"CTA_{mode.upper()} // {of}"
        for mode, of in zip(x.modes, x.block, strict=True)
    )
    pairs, modes, inside = plan.epilogue.fusion.pairs, x.modes, tile
    if pairs is not None and x.name == pairs.operand:
        modes, inside = (PAIR, "k"), f"CTA_{pairs.of.upper()} // 2, CTA_K"
        tile = f"{pair_holes(plan).tile[x.name]}, CTA_K"
    return OperandHoles(
        name=x.name,
        title=title,
        constants=constants,
        share=f"t{title}",
        extents=extents_of(modes, x.block, x.block_elems),
        tile=f"({tile})",
        inside=f"({inside})",
        coordinate=f"(tile_{x.modes[0]}, None)",
        place=f" + SMEM_{constants}_OFFSET_BYTES" if plan.memory.offset_bytes(x.name) else "",
        g2s_op="CopyUniversalOp()" if plain else f"cpasync.CopyG2SOp(LoadCacheMode.{cache})",
        through_registers=plain,
    )


@dataclass(frozen=True, slots=True)
class MapHoles:
    """A tensor map that the host makes: its tensor, and the lines that make it."""

    tensor: TensorHoles
    lines: tuple[str, ...]


def _map_holes(plan: GemmPlan, tensor: TensorHoles) -> MapHoles:
    pairs = plan.epilogue.fusion.pairs
    if pairs is not None and tensor.name == pairs.operand:
        tensor = matrix_of_pairs(tensor, pairs, plan.operand(tensor.name).major)
    if pairs is not None and tensor.name == f"scale_{pairs.operand}":
        tensor = matrix_of_members(tensor, plan.operand(tensor.name))
    of_c = "(CTA_M, CTA_N)" if plan.epilogue.part is None else "(PART_M, PART_N)"
    of_operands = {name: f"({rows}, CTA_K)" for name, rows in pair_holes(plan).tile.items()} | {RESULT: of_c}
    tile = of_operands.get(tensor.name, f"{tensor.constants}_TILE")
    x, made = tensor.title, f"map_{tensor.name}, _ = cpasync.make_tiled_tma_atom("
    shares = dict(zip(OPERANDS, zip(plan.mma.sharing, sharers(plan), strict=True), strict=True)).get(tensor.name)
    path = next((x for x in plan.operands if x.name == tensor.name), None)
    copied = None if path is None else path.g2s
    filled = None if path is None else plan.pipeline_of(path)
    # The bytes of both CTAs of a pair arrive at one of them, unless each has the stages for itself.
    group = "tcgen05.CtaGroup.TWO" if plan.atom.ctas > 1 and filled is not None and filled.scope != Scope.CTA else ""
    if copied is not None and copied.receivers > 1:
        shares = copied.receivers, "1"  # whole boxes
    name, smem = tensor.name, f"{tensor.constants}_SMEM"
    stride = f"({tensor.stride[1:-1]}, batch_stride_{name})"
    extents, matrix = f"({tensor.shape[1:-1]}, batches)", f"m{x} = cute.make_tensor({name}, cute.make_layout("
    tensors: tuple[str, ...] = (f"{matrix}{extents}, stride={stride}))",)
    if "ceil_div" in tensor.shape:
        tensors = f"extents = {extents}", f"{matrix}extents, stride={stride}))"
    layouts: tuple[str, ...] = (
        f"s{x}_layout = cute.make_layout({smem}_SHAPE[:2], stride={smem}_STRIDE[:2])",
        f"s{x}_layout = cute.make_composed_layout(cute.make_swizzle({smem}_SWIZZLE_BITS, 4, 3), 0, s{x}_layout)",
    )
    if plan.launch.groups is not None and plan.launch.tensor(name).lists(plan.launch.groups):
        tile = f"{tensor.constants}_BOX"
        layouts = (f"s{x}_layout = cute.make_layout({tile}, stride=({tile}[1], 1))",)
    if shares is not None and shares[0] > 1:
        shared = f"    cpasync.CopyBulkTensorTileG2SMulticastOp({group}), m{x}, s{x}_layout, {tile}, {shares[1]}"
        return MapHoles(tensor, (*tensors, *layouts, made, shared, ")"))
    op = "S2GOp" if tensor.name == RESULT else "G2SOp"
    copy = _call(made.removesuffix("("), f"cpasync.CopyBulkTensorTile{op}({group}), m{x}, s{x}_layout, {tile}")
    return MapHoles(tensor, (*tensors, *layouts, *copy))


def _call(function: str, arguments: str) -> tuple[str, ...]:
    """Return a call in a function's body: on one line if it fits."""
    line = f"{function}({arguments})"
    return (line,) if len(line) <= LINE_WIDTH - 4 else (f"{function}(", f"    {arguments}", ")")


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

    `zero` is an accumulator's first value; `a_integer` and `b_integer` are the constructors of the compiler's types of
    integer A and B.
    """

    operation: str
    ptx: str
    own: bool
    zero: str
    a_integer: str
    b_integer: str
    permutation: str


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
        zero="0" if a.is_integer else "0.0",
        a_integer=_integer(a),
        b_integer=_integer(b),
        permutation=_permutation(plan),
    )


def _integer(element: DType) -> str:
    return "get_unsigned" if element.is_unsigned else "get_signed"


@dataclass(frozen=True, slots=True, kw_only=True)
class FragmentHoles:
    """Names of the copies to fragments, and of the fragments that they fill."""

    a_load: str
    b_load: str
    a_filled: str
    b_filled: str


def _fragment_holes(plan: GemmPlan) -> FragmentHoles:
    """Return what the templates write for the two copies."""
    assert plan.a.fragment_copy.view is None  # the rows of A's atom match those of ldmatrix
    filled = {x.operand: "stored" for x in converted_operands(plan)}
    return FragmentHoles(
        a_load=_load(plan.a),
        b_load=_load(plan.b),
        a_filled=f"{filled.get('A', 'tCr')}A",
        b_filled=f"{filled.get('B', 'tCr')}B",
    )


def _load(operand: OperandPath) -> str:
    x = operand.name.upper()

    def by_ldmatrix(copy: LdmatrixLoads) -> str:
        operation = "LdMatrix8x8x16bOp" if copy.atom.element_bits == 16 else "LdMatrix16x16x8bOp"
        return f"warp.{operation}({x}_TRANSPOSE, {x}_MATRICES), {x}_DTYPE"

    plain = f"CopyUniversalOp(), {x}_DTYPE, num_bits_per_copy={x}_S2R_BITS"
    return operand.fragment_copy.by_kind(ldmatrix=by_ldmatrix, plain=lambda _: plain)


def _divisor(stride: str) -> str:
    """Return the constant of which a stride parameter is a multiple."""
    tensor = stride.removeprefix("batch_stride_").removeprefix("ld")
    return f"{epilogue.constants_of(tensor)}_ALIGN_ELEMS"
