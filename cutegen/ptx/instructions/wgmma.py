"""`wgmma`: matrix multiplications of a warpgroup, asynchronous, with operands in shared memory.

Source: PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions"; the fragment figures of m64nNk8, m64nNk16 and
m64nNk32. Lane `l` of warp `w` holds row 16 w + l / 4 (and the row 8 below it), a 32-bit register holds consecutive
columns. A wait has its own basic block; the rest are ordinary steps.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cutegen.ptx.arithmetic.rounding import Array
from cutegen.ptx.arithmetic.tensor_core import TensorCore, factor, multiply_wide_floats, multiply_wide_integers
from cutegen.ptx.instructions.matrix import fragment_a, input_dtype
from cutegen.ptx.machine.blocks import End, executing
from cutegen.ptx.machine.descriptor import chunk_addresses
from cutegen.ptx.machine.lowering import Lowering, Modifiers, Predicate, Step
from cutegen.ptx.machine.rows import Row, Ways
from cutegen.ptx.machine.warp import Path, Warp
from cutegen.ptx.machine.warpgroup import Compute, MmaForm, Operands, Warpgroup
from cutegen.ptx.text.flow import Ends
from cutegen.ptx.text.syntax import Immediate, Instruction, Operand, Register, ScalarType, Vector, scalar_type
from cutegen.ptx.watch.actor import tensor_core
from cutegen.ptx.watch.async_registers import RegisterList, register_list
from cutegen.ptx.watch.violations import ViolationKind

_MMA_ROWS = 64
_MOST_COLUMNS = 256
_K_BITS = 256
_FRAGMENT_REGISTERS = 4
_SHAPE = re.compile(r"m64n(\d+)k(\d+)")
_B64 = scalar_type("b64")
_F8 = {"e4m3", "e5m2"}
_INTEGERS = {"s8", "u8"}


def _held_rows(instruction: Instruction) -> set[int]:
    """The rows of the 32-bit file that a `wgmma.mma_async` uses: accumulators, and A if it is in registers."""
    vectors = [operand for operand in instruction.operands[:2] if isinstance(operand, Vector)]
    return {item.row for vector in vectors for item in vector.items if isinstance(item, Register)}


def lower_wgmma(context: Lowering, instruction: Instruction) -> Step:
    """Every `wgmma` instruction except `wgmma.wait_group`."""
    modifiers, name = Modifiers(instruction), instruction.parts[1] if len(instruction.parts) > 1 else ""
    if name not in ("fence", "commit_group", "mma_async"):
        raise instruction.error("expected wgmma.fence, .mma_async, .commit_group or .wait_group")
    for word in (name, "sync", "aligned"):
        modifiers.need(word)
    if name == "mma_async":
        return _lower_mma(context, instruction, modifiers)
    modifiers.finish()
    if instruction.operands:
        raise instruction.error(f"wgmma.{name} has no operands")
    site = context.site
    if name == "fence":
        return lambda warp: warp.cta.warpgroups.of(warp, site).fence(warp, site)
    return lambda warp: warp.cta.warpgroups.of(warp, site).commit(warp, site)


def _group_wait(context: Lowering, instruction: Instruction, predicate: Predicate | None, ways: Ways) -> End:
    """The end of a block with `wgmma.wait_group.sync.aligned n`."""
    modifiers = context.modifiers(instruction, 1)
    for word in ("wait_group", "sync", "aligned"):
        modifiers.need(word)
    modifiers.finish()
    newest, site = _integer(instruction, instruction.operands[0], range(1 << 31)), context.site

    def end(warp: Warp, path: Path) -> Warpgroup | None:
        mask = executing(warp, predicate)
        if mask.any():
            if (mask != warp.mask).any():
                message = "its predicate differs between the lanes of a warp"
                warp.cta.fault(ViolationKind.DIVERGENCE, site, warp.thread0 + int(np.argmin(mask)), message)
            group = warp.cta.warpgroups.of(warp, site)
            if not group.wait(warp, site, newest):
                return group
        path.block = ways.following
        return None

    return end


@dataclass(frozen=True, slots=True)
class _Types:
    """The types and the shape of a multiplication."""

    d: ScalarType
    a: ScalarType
    b: ScalarType
    columns: int
    saturates: bool


def _take_types(instruction: Instruction, modifiers: Modifiers) -> _Types:
    shape = next((word for word in instruction.parts if _SHAPE.fullmatch(word)), None)
    match = _SHAPE.fullmatch(shape or "")
    if shape is None or match is None:
        raise instruction.error("expected a shape, as m64n128k16")
    modifiers.flag(shape)
    saturates = modifiers.flag("satfinite")
    d, a, b = (modifiers.type() for _ in range(3))
    modifiers.finish()
    columns, depth = int(match[1]), int(match[2])
    names = {a.name, b.name}
    floats = (d.name in ("f16", "f32") and (names == {"f16"} or names <= _F8)) or (
        d.name == "f32" and names in ({"bf16"}, {"tf32"})
    )
    integers = d.name == "s32" and names <= _INTEGERS
    if not (floats or integers) or (saturates and not integers):
        raise instruction.error(f"wgmma of types .{d.name} .{a.name} .{b.name} does not exist, or is not supported")
    has_columns = columns % 16 == 0 or columns in (8, 24) if integers else columns % 8 == 0
    if not (has_columns and 8 <= columns <= _MOST_COLUMNS) or depth != _K_BITS // a.bits:
        raise instruction.error(f"shape {shape} of .{a.name} does not exist")
    return _Types(d, a, b, columns, saturates)


@dataclass(frozen=True, slots=True)
class _Signs:
    """Immediates after scale-d: the operands that are negated, and those that are not K-major."""

    negates_a: bool = False
    negates_b: bool = False
    transposes_a: bool = False
    transposes_b: bool = False


def _read_signs(instruction: Instruction, types: _Types, *, a_in_registers: bool) -> _Signs:
    rest = instruction.operands[4:]
    scales = 0 if types.d.name == "s32" else 2
    transposes = 0 if types.a.bits != 16 else 1 if a_in_registers else 2
    if len(rest) != scales + transposes:
        raise instruction.error(f"expected {4 + scales + transposes} operands, found {len(instruction.operands)}")
    negated = [_integer(instruction, operand, (-1, 1)) < 0 for operand in rest[:scales]] or [False, False]
    transposed = [_integer(instruction, operand, (0, 1)) == 1 for operand in rest[scales:]]
    transposed = [False] * (2 - transposes) + transposed
    return _Signs(*negated, *transposed)


def _integer(instruction: Instruction, operand: Operand, allowed: range | tuple[int, ...]) -> int:
    value = operand.value if isinstance(operand, Immediate) else None
    if not isinstance(value, int) or value not in allowed:
        wanted = "a number of groups" if isinstance(allowed, range) else " or ".join(map(str, allowed))
        raise instruction.error(f"expected the immediate {wanted}")
    return value


def _lower_mma(context: Lowering, instruction: Instruction, modifiers: Modifiers) -> Step:
    """`wgmma.mma_async.sync.aligned.shape.d.a.b d, a, b-desc, scale-d{, scale-a, scale-b{, trans-a}{, trans-b}}`."""
    if "sp" in instruction.parts:
        raise instruction.error("sparse wgmma is not supported")
    types = _take_types(instruction, modifiers)
    operands = instruction.operands
    if len(operands) < 4:
        raise instruction.error("expected d, a, b-desc and scale-d")
    in_registers = isinstance(operands[1], Vector)
    signs = _read_signs(instruction, types, a_in_registers=in_registers)
    form = _form(context, instruction, types, signs)
    a = None if in_registers else context.source(instruction, operands[1], _B64)
    b = context.source(instruction, operands[2], _B64)
    scale, inverted = context.predicate(instruction, operands[3])
    site = context.access(instruction, "shared", 16)

    def step(warp: Warp) -> None:
        group = warp.cta.warpgroups.of(warp, site)
        accumulates = bool(_uniform(warp, site, scale, "scale-d")) != inverted
        descriptor = None if a is None else _uniform(warp, site, a, "the descriptor of A")
        given = Operands(descriptor, _uniform(warp, site, b, "the descriptor of B"), accumulates)
        group.issue(warp, form, given)

    return step


def _uniform(warp: Warp, site: int, cell: int, what: str) -> int:
    """The value that all lanes have in a cell."""
    values = warp.cells[cell]
    if (values != values[0]).any():
        lane = int(np.argmax(values != values[0]))
        warp.cta.fault(ViolationKind.DIVERGENCE, site, warp.thread0 + lane, f"{what} differs between lanes")
    return int(values[0])


def _form(context: Lowering, instruction: Instruction, types: _Types, signs: _Signs) -> MmaForm:
    operands, columns = instruction.operands, types.columns
    d = _registers(context, instruction, operands[0], columns * types.d.bits // 64)
    a = None
    if isinstance(operands[1], Vector):
        a = _registers(context, instruction, operands[1], _FRAGMENT_REGISTERS)
    a_major, b_major = not signs.transposes_a, not signs.transposes_b
    a_bits, b_bits = input_dtype(types.a), input_dtype(types.b)
    return MmaForm(
        site=context.site,
        shape=columns << 16 | types.a.bits << 8 | types.d.bits,
        d=d,
        a=a,
        a_chunks=lambda bits: chunk_addresses(bits, _MMA_ROWS, k_major=a_major),
        b_chunks=lambda bits: chunk_addresses(bits, columns, k_major=b_major),
        a_matrix=_k_major(a_bits) if a_major else _mn_major,
        b_matrix=_k_major(b_bits) if b_major else _mn_major,
        a_fragment=lambda registers: fragment_a(registers, a_bits),
        d_fragment=_d_fragment_of_half if types.d.bits == 16 else _D_FRAGMENTS[types.d.name],
        d_registers=_d_registers_of_half if types.d.bits == 16 else _d_registers,
        compute=_computation(types, signs),
    )


def _registers(context: Lowering, instruction: Instruction, operand: Operand, count: int) -> RegisterList:
    items = context.vector(instruction, operand, count)
    named = [(item.row, item.name) for item in items if isinstance(item, Register) and item.file_bits == 32]
    if len({row for row, _ in named}) != count:
        raise instruction.error(f"expected {count} 32-bit registers, all different")
    return register_list(named)


def _computation(types: _Types, signs: _Signs) -> Compute:
    dtype = np.dtype({"f16": np.float16, "f32": np.float32, "s32": np.int32}[types.d.name])

    def compute(core: TensorCore, a: Array, b: Array, c: Array | None) -> Array:
        given = np.zeros((_MMA_ROWS, types.columns), dtype) if c is None else c
        if types.d.name == "s32":
            return multiply_wide_integers(a, b, given, saturate=types.saturates)
        left = factor(types.a, a, negated=signs.negates_a)
        right = factor(types.b, b, negated=signs.negates_b)
        return multiply_wide_floats(core, types.a, left, right, given)

    return compute


def _k_major(element: np.dtype) -> Callable[[Array], Array]:
    """(rows, 2) chunks -> (rows, K) elements."""
    return lambda chunks: chunks.view(element).reshape(len(chunks), -1)


def _mn_major(chunks: Array) -> Array:
    """(16, rows / 8) chunks of 16-bit elements -> (rows, 16) elements."""
    return chunks.view(np.uint16).reshape(len(chunks), -1).T


def _d_fragment(registers: Array, element: np.dtype) -> Array:
    """(N / 2, 32) registers of one warp's accumulators -> (16, N)."""
    parts = registers.view(element).reshape(-1, 2, 2, 8, 4)  # (N / 8, row half, column of a pair, row, pair)
    return np.ascontiguousarray(parts.transpose(1, 3, 0, 4, 2)).reshape(16, -1)


_D_FRAGMENTS: dict[str, Callable[[Array], Array]] = {
    "f32": lambda registers: _d_fragment(registers, np.dtype(np.float32)),
    "s32": lambda registers: _d_fragment(registers, np.dtype(np.int32)),
}


def _d_registers(rows: Array) -> Array:
    """(16, N) -> the registers of one warp; the inverse of `_d_fragment`."""
    parts = np.ascontiguousarray(rows).view(np.uint32).reshape(2, 8, -1, 4, 2)
    return np.ascontiguousarray(parts.transpose(2, 0, 4, 1, 3)).reshape(-1, 32)


def _d_fragment_of_half(registers: Array) -> Array:
    """(N / 4, 32) registers of two float16 each -> (16, N)."""
    parts = registers.view(np.float16).reshape(-1, 2, 8, 4, 2)  # (N / 8, row half, row, pair, column of a pair)
    return np.ascontiguousarray(parts.transpose(1, 2, 0, 3, 4)).reshape(16, -1)


def _d_registers_of_half(rows: Array) -> Array:
    """(16, N) float16 -> the registers of one warp."""
    parts = np.ascontiguousarray(rows).reshape(2, 8, -1, 4, 2)
    return np.ascontiguousarray(parts.transpose(2, 0, 1, 3, 4)).view(np.uint32).reshape(-1, 32)


ROWS = {
    "wgmma": Row(step=lower_wgmma),
    "wgmma.mma_async": Row(
        step=lower_wgmma, holds=_held_rows, agent=tensor_core("wgmma.mma_async", awaited_by="wgmma.wait_group")
    ),
    "wgmma.wait_group": Row(end=_group_wait, ends=Ends.WAIT),
}
