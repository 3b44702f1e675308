"""Matrix instructions of a warp: `ldmatrix`, `stmatrix`, `movmatrix`, `mma.sync`.

Source: PTX ISA, "Warp-level Matrix Instructions", the fragment figures of m16n8k8, m16n8k16 and m16n8k32. In a
fragment lane `l` is (l / 4, l % 4); a 32-bit register holds 32 / bits consecutive elements.
"""

from collections.abc import Callable

import numpy as np

from cutegen.ptx.arithmetic.rounding import Array
from cutegen.ptx.arithmetic.tensor_core import multiply_floats, multiply_integers
from cutegen.ptx.machine.convergence import check_whole
from cutegen.ptx.machine.lowering import FusedStep, Lowerer, Lowering, Modifiers, Step
from cutegen.ptx.machine.rows import Row
from cutegen.ptx.machine.spaces import resolve_space, to_shared
from cutegen.ptx.machine.undefined import from_whole_warp
from cutegen.ptx.machine.warp import LANES, Warp
from cutegen.ptx.text.syntax import Instruction, Operand, ScalarType

_ROW_BYTES = 16
_COUNTS = {"x1": 1, "x2": 2, "x4": 4}
_SHAPES = {
    ("m16n8k8", 16): 8,
    ("m16n8k16", 16): 16,
    ("m16n8k4", 32): 4,
    ("m16n8k8", 32): 8,
    ("m16n8k16", 8): 16,
    ("m16n8k32", 8): 32,
}


def _take_matrix_words(modifiers: Modifiers, *shapes: str) -> tuple[str, int, bool, str]:
    """(shape, number of matrices, transposed, state space) of an `ldmatrix` or `stmatrix` that allows `shapes`."""
    modifiers.need("sync")
    modifiers.need("aligned")
    shape = modifiers.need(*shapes)
    of_bytes = shape == "m16n16"
    count = _COUNTS[modifiers.need("x1", "x2") if of_bytes else modifiers.need("x1", "x2", "x4")]
    transposed = bool(modifiers.need("trans")) if of_bytes else modifiers.flag("trans")
    space = "shared" if modifiers.flag("shared", "shared::cta") else "generic"
    modifiers.type("b8" if of_bytes else "b16")
    modifiers.finish()
    return shape, count, transposed, space


def _row_addresses(
    context: Lowering, instruction: Instruction, operand: Operand, written: str, rows: int
) -> Callable[[Warp], Array]:
    """The shared addresses of the first `rows` lanes; all lanes of the warp must be active."""
    space = resolve_space(context, instruction, written, operand)
    if space not in ("shared", "generic"):
        raise instruction.error(f"the variable is in {space} memory; expected shared memory")
    base, offset = context.address(instruction, operand)
    site = context.access(instruction, "shared", _ROW_BYTES)

    def addresses(warp: Warp) -> Array:
        check_whole(warp, site)
        found = warp.addresses(base, offset)[:rows]
        return found if space == "shared" else to_shared(found)

    return addresses


def lower_ldmatrix(context: Lowering, instruction: Instruction) -> Step:
    """`ldmatrix.sync.aligned.m8n8.xN{.trans}.shared.b16 r, [p]`, or `.m16n16.xN.trans.shared.b8`.

    Lane l gets elements 2 (l % 4) and the next of row l / 4. With 8-bit elements it gets 4 (l % 4) and the next three,
    of row l / 4 and, in the next register, of row l / 4 + 8.
    """
    shape, count, transposed, written = _take_matrix_words(context.modifiers(instruction, 2), "m8n8", "m16n16")
    element, side = (np.uint16, 8) if shape == "m8n8" else (np.uint8, 16)
    registers = count * side // 8
    targets = context.rows32(instruction, context.vector(instruction, instruction.operands[0], registers))
    addresses = _row_addresses(context, instruction, instruction.operands[1], written, side * count)
    site, givers = context.site, LANES[: side * count]

    def step(warp: Warp) -> None:
        rows = warp.cta.shared.read(warp, site, addresses(warp), _ROW_BYTES, givers=givers)
        elements = rows.view(element).reshape(count, side, side)
        if transposed:
            elements = np.ascontiguousarray(elements.transpose(0, 2, 1))
        warp.files[32][targets] = elements.view(np.uint32).reshape(registers, 32)

    return step


def lower_stmatrix(context: Lowering, instruction: Instruction) -> Step:
    """`stmatrix.sync.aligned.m8n8.xN{.trans}.shared.b16 [p], r`: the inverse of `ldmatrix`."""
    _, count, transposed, written = _take_matrix_words(context.modifiers(instruction, 2), "m8n8")
    sources = context.rows32(instruction, context.vector(instruction, instruction.operands[1], count))
    addresses = _row_addresses(context, instruction, instruction.operands[0], written, 8 * count)
    site, givers = context.site, 8 * count > LANES

    def step(warp: Warp) -> None:
        places = addresses(warp)
        elements = warp.files[32][sources].view(np.uint16).reshape(count, 8, 8)
        if transposed:
            elements = elements.transpose(0, 2, 1)
        rows = np.ascontiguousarray(elements).reshape(count * 8, 8).view("V16").reshape(-1)
        with warp.narrowed(givers):
            warp.cta.shared.write(warp, site, places, _ROW_BYTES, rows)

    return step


def lower_movmatrix(context: Lowering, instruction: Instruction) -> Step:
    """`movmatrix.sync.aligned.m8n8.trans.b16 d, a`: transposes one 8x8 fragment."""
    modifiers = context.modifiers(instruction, 2)
    for word in ("sync", "aligned", "m8n8", "trans"):
        modifiers.need(word)
    modifiers.type("b16")
    modifiers.finish()
    target, source = context.rows32(instruction, instruction.operands)
    site = context.site

    def step(warp: Warp) -> None:
        check_whole(warp, site)
        matrix = warp.files[32][source].view(np.uint16).reshape(8, 8)
        warp.files[32][target] = np.ascontiguousarray(matrix.T).view(np.uint32).reshape(32)

    return step


def fragment_a(registers: Array, element: np.dtype) -> Array:
    """(..., R, 32) registers of operand A -> (..., 16, K): registers alternate rows g and g + 8, then go along K."""
    *outer, count, _ = registers.shape
    parts = registers.view(element).reshape(*outer, count // 2, 2, 8, 4, -1)  # [..., K / 8, half, g, lane % 4, element]
    return np.ascontiguousarray(np.moveaxis(parts, -5, -3)).reshape(*outer, 16, -1)


def fragment_b(registers: Array, element: np.dtype) -> Array:
    """(..., R, 32) registers of operand B -> (..., 8, K) elements, one row for each column of B."""
    *outer, count, _ = registers.shape
    parts = registers.view(element).reshape(*outer, count, 8, 4, -1)  # [..., K / 8, g, lane % 4, element]
    return np.ascontiguousarray(np.moveaxis(parts, -4, -3)).reshape(*outer, 8, -1)


def fragment_c(registers: Array, element: np.dtype) -> Array:
    """(..., 4, 32) 32-bit or (..., 2, 32) packed 16-bit accumulators -> (..., 16, 8)."""
    outer = registers.shape[:-2]
    if element.itemsize == 2:
        return registers.view(element).reshape(*outer, 16, 8)
    parts = registers.view(element).reshape(*outer, 2, 2, 8, 4)  # [..., half, column % 2, g, lane % 4]
    return np.ascontiguousarray(np.moveaxis(parts, -3, -1)).reshape(*outer, 16, 8)


def registers_of_c(values: Array) -> Array:
    """(..., 16, 8) accumulators -> their registers; the inverse of `fragment_c`."""
    outer = values.shape[:-2]
    if values.dtype.itemsize == 2:
        return np.ascontiguousarray(values).view(np.uint32).reshape(*outer, 2, 32)
    parts = values.view(np.uint32).reshape(*outer, 2, 8, 4, 2)  # [..., half, g, lane % 4, column % 2]
    return np.ascontiguousarray(np.moveaxis(parts, -1, -3)).reshape(*outer, 4, 32)


def lower_mma(context: Lowering, instruction: Instruction) -> Step:
    """`mma.sync.aligned.shape.row.col.dtype.atype.btype.ctype d, a, b, c`."""
    modifiers = context.modifiers(instruction, 4)
    for word in ("sync", "aligned", "row", "col"):
        modifiers.need(word)
    saturate = modifiers.flag("satfinite")
    shape = modifiers.need("m16n8k4", "m16n8k8", "m16n8k16", "m16n8k32")
    d_kind, a_kind, b_kind, c_kind = (modifiers.type() for _ in range(4))
    modifiers.finish()
    multiply = _multiplier(instruction, (d_kind, a_kind, b_kind, c_kind), saturate=saturate)
    k = _SHAPES.get((shape, a_kind.bits))
    if k is None:
        raise instruction.error(f"shape {shape} of .{a_kind.name} is not supported")
    a_count, c_count = k * a_kind.bits // 64, 4 if c_kind.bits == 32 else 2
    counts = (c_count, a_count, a_count // 2, c_count)
    targets, *sources = (
        context.rows32(instruction, context.vector(instruction, operand, count))[None]
        for operand, count in zip(instruction.operands, counts, strict=True)
    )
    a_bits, b_bits = input_dtype(a_kind), input_dtype(b_kind)

    def act(warp: Warp, run: FusedStep) -> None:
        check_whole(warp, run.sites[0])
        file, (a, b, c) = warp.files[32], run.sources
        matrices = fragment_a(file[a], a_bits), fragment_b(file[b], b_bits), fragment_c(file[c], c_kind.dtype)
        file[run.targets] = registers_of_c(multiply(warp, *matrices))

    return FusedStep(tuple(instruction.parts), act, (context.site,), targets, tuple(sources))


def input_dtype(kind: ScalarType) -> np.dtype:
    """The view of an operand's registers: integers by value, floats as bits."""
    return kind.dtype if kind.name in ("s8", "u8") else np.dtype(f"u{kind.size_bytes}")


def _multiplier(
    instruction: Instruction, kinds: tuple[ScalarType, ...], *, saturate: bool
) -> Callable[[Warp, Array, Array, Array], Array]:
    """The arithmetic for the types (d, a, b, c); refuses combinations that PTX does not have."""
    d_kind, a_kind, b_kind, c_kind = kinds
    names = d_kind.name, a_kind.name, b_kind.name, c_kind.name
    integers = {"s8", "u8"}
    f8 = {"e4m3", "e5m2"}
    if names[0] == names[3] == "s32" and {names[1], names[2]} <= integers:
        return lambda warp, a, b, c: multiply_integers(a, b, c, saturate=saturate)
    same = names[1] == names[2] and names[1] in ("f16", "bf16", "tf32")
    half_result = names[0] == names[3] == "f16" and (names[1] == "f16" or {names[1], names[2]} <= f8)
    float_result = names[0] == names[3] == "f32"
    if saturate or not ((same or {names[1], names[2]} <= f8) and (half_result or float_result)):
        raise instruction.error(f"mma of types .{' .'.join(names)} is not supported")
    inputs = a_kind, b_kind
    return lambda warp, a, b, c: multiply_floats(warp.cta.tensor_core, inputs, a, b, c, f16_result=half_result)


LOWERERS: dict[str, Lowerer] = {
    "ldmatrix": lower_ldmatrix,
    "stmatrix": lower_stmatrix,
}
ROWS = {
    "movmatrix": Row(step=lower_movmatrix, spread=from_whole_warp),
    "mma": Row(step=lower_mma, spread=from_whole_warp),
}
