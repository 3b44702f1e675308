"""Moves and conversions.

Source: PTX ISA, `mov`, `cvt`, `cvta`, `isspacep`, "Integer and floating-point conversion". Integers clamp when a
float does not fit; a NaN becomes 0 (or the smallest integer if a 64-bit type is involved).
"""

from collections.abc import Callable

import numpy as np

from cutegen.ptx.arithmetic import rounding
from cutegen.ptx.arithmetic.rounding import Array, Doubles, decode, encode, flush_subnormals
from cutegen.ptx.instructions.floating import element_type
from cutegen.ptx.machine.lowering import Lowerer, Lowering, Step, elementwise
from cutegen.ptx.machine.memory import LOCAL_WINDOW, PARAM_WINDOW, SHARED_WINDOW
from cutegen.ptx.machine.spaces import CLUSTER_SPACE, is_own, spaces_of
from cutegen.ptx.machine.special import CLOCKS, GLOBAL_TIMERS, TIME_PER_READ
from cutegen.ptx.machine.warp import Warp
from cutegen.ptx.text.syntax import WARP_LANES, Instruction, Kind, ScalarType, Sink, Special, Vector, scalar_type

_INTEGER_ROUNDINGS: dict[str, Callable[[Doubles], Doubles]] = {
    "rni": np.rint,
    "rzi": np.trunc,
    "rmi": np.floor,
    "rpi": np.ceil,
}
_WINDOWS = {"shared": SHARED_WINDOW, "local": LOCAL_WINDOW, "global": 0, "const": 0, "param": PARAM_WINDOW}


def lower_mov(context: Lowering, instruction: Instruction) -> Step:
    """`mov`: a register, a literal, an address, or the packing and unpacking of a vector."""
    modifiers = context.modifiers(instruction, 2)
    kind = modifiers.type()
    modifiers.finish()
    target, source = instruction.operands
    if isinstance(target, Vector):
        return _unpack(context, instruction, kind)
    if isinstance(source, Vector):
        return _pack(context, instruction, kind)
    cell = context.source(instruction, source, kind)
    if isinstance(source, Special) and source.name in CLOCKS:
        return _read_clock(cell, context.target(instruction, target, kind))
    if isinstance(source, Special) and source.name in GLOBAL_TIMERS:
        return _read_global_timer(context.target(instruction, target, kind), kind)
    return elementwise(lambda a: a, context.target(instruction, target, kind), cell)


def _read_clock(clock: int, target: int) -> Step:
    """Return the step that advances the warp's clock, then reads it: no two reads are of the same cycle."""

    def step(warp: Warp) -> None:
        warp.cells[clock] += TIME_PER_READ
        warp.put(target, warp.cells[clock])

    return step


def _read_global_timer(target: int, kind: ScalarType) -> Step:
    """Return the step that advances the launch's timer, then reads it: every later read anywhere is later."""

    def step(warp: Warp) -> None:
        now = warp.cta.nanoseconds() & ((1 << kind.bits) - 1)
        warp.put(target, np.full(WARP_LANES, now, kind.dtype))

    return step


def _part_type(instruction: Instruction, kind: ScalarType, vector: Vector) -> ScalarType:
    bits = kind.bits // max(1, len(vector.items))
    is_whole = bits == 64 if kind.bits == 128 else bits in (8, 16, 32) and len(vector.items) in (2, 4)
    if not is_whole:
        raise instruction.error(f"a .{kind.name} cannot be {len(vector.items)} parts")
    return scalar_type(f"b{bits}")


def _pack(context: Lowering, instruction: Instruction, kind: ScalarType) -> Step:
    vector = instruction.operands[1]
    assert isinstance(vector, Vector)
    part = _part_type(instruction, kind, vector)
    parts = [context.source(instruction, item, part) for item in vector.items]
    target = context.target(instruction, instruction.operands[0], kind)

    def step(warp: Warp) -> None:
        cells = warp.cells
        packed = np.stack([cells[cell] for cell in parts], axis=1)
        warp.put(target, packed.view(kind.dtype).reshape(32))

    return step


def _unpack(context: Lowering, instruction: Instruction, kind: ScalarType) -> Step:
    vector = instruction.operands[0]
    assert isinstance(vector, Vector)
    part = _part_type(instruction, kind, vector)
    source = context.source(instruction, instruction.operands[1], scalar_type(f"b{kind.bits}"))
    targets = [
        (i, context.target(instruction, item, part))
        for i, item in enumerate(vector.items)
        if not isinstance(item, Sink)
    ]

    def step(warp: Warp) -> None:
        parts = warp.cells[source].copy().view(part.dtype).reshape(32, -1)
        for i, cell in targets:
            warp.put(cell, parts[:, i])

    return step


def lower_cvt(context: Lowering, instruction: Instruction) -> Step:
    """`cvt`, between any two scalar types, and from two floats to a packed pair and back."""
    modifiers = context.modifiers(instruction, (2, 3))
    mode = modifiers.one_of(*rounding.ROUNDINGS, *_INTEGER_ROUNDINGS, "rna")
    modifiers.flag("satfinite")
    flush, saturate, rectify = modifiers.flag("ftz"), modifiers.flag("sat"), modifiers.flag("relu")
    result, kind = modifiers.type(), modifiers.type()
    modifiers.finish()
    if result.name.endswith("x2"):
        return _lower_to_pair(context, instruction, result, kind, mode or "rn", rectify=rectify)
    if len(instruction.operands) != 2:
        raise instruction.error("this conversion is not supported")
    function = _conversion(result, kind, mode, flush=flush, saturate=saturate, rectify=rectify)
    target = context.target(instruction, instruction.operands[0], result, wide=True)
    if result.kind is Kind.FLOAT:
        function = _as_bits(function)
    return elementwise(function, target, context.source(instruction, instruction.operands[1], kind, wide=True))


def _as_bits(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """`function` with the bits of its floats as the result."""

    def bits(a: Array) -> Array:
        values = function(a)
        return values.view(f"u{values.dtype.itemsize}")

    return bits


def _conversion(
    result: ScalarType, kind: ScalarType, mode: str | None, *, flush: bool, saturate: bool, rectify: bool
) -> Callable[[Array], Array]:
    if kind.kind is not Kind.FLOAT:
        return _from_integer(result, mode or "rn", saturate=saturate)
    to_double = decode(kind)
    if flush and kind.name == "f32":
        to_double = lambda a: rounding.canonical_f32(flush_subnormals(a)).astype(np.float64)  # noqa: E731
    if result.kind is not Kind.FLOAT:
        return _float_to_integer(result, kind, to_double, mode or "rzi")
    if mode in _INTEGER_ROUNDINGS:
        to_integer, to_result = _INTEGER_ROUNDINGS[mode], encode(result, "rn")
        return lambda a: to_result(to_integer(to_double(a)))
    function = _float_to_float(result, to_double, mode or "rn", flush=flush, saturate=saturate, rectify=rectify)
    keeps = not (saturate or rectify or (result.name == "tf32" and mode != "rna"))
    kept = _KEPT_NANS.get((result.name, kind.name)) if keeps else None
    return function if kept is None else lambda a: _with_nans(function(a), a, np.isnan(to_double(a)), kept)


_KEPT_NANS: dict[tuple[str, str], Callable[[Array], Array]] = {
    ("f32", "f64"): lambda a: (a >> 32 & 0x80000000 | 0x7FC00000 | a >> 29 & 0x3FFFFF).astype(np.uint32),
    ("f16", "f64"): lambda a: (a >> 48 & 0x8000 | 0x7E00 | a >> 42 & 0x1FF).astype(np.uint16),
    ("bf16", "f64"): lambda a: (a >> 48 & 0x8000 | 0x7FC0 | a >> 45 & 0x3F).astype(np.uint16),
    ("f32", "bf16"): lambda a: a.astype(np.uint32) << np.uint32(16),
    ("tf32", "f32"): lambda a: a & np.uint32(0xFFFFE000),
}
"""(result, source): maps the bits of a NaN to those of its conversion, if an H200 keeps the payload."""


def _with_nans(result: Array, source: Array, nan: Array, kept: Callable[[Array], Array]) -> Array:
    bits = np.dtype(f"u{result.dtype.itemsize}")
    return np.where(nan, kept(source.view(f"u{source.dtype.itemsize}")), result.view(bits)).view(result.dtype)


def _from_integer(result: ScalarType, mode: str, *, saturate: bool) -> Callable[[Array], Array]:
    if result.kind is Kind.FLOAT:
        return lambda a: _integer_to_float(a, result, mode)
    if not saturate:
        return lambda a: a.astype(result.dtype)
    limits = np.iinfo(result.dtype)
    return lambda a: np.array([min(max(int(x), limits.min), limits.max) for x in a]).astype(result.dtype)


def _integer_to_float(values: Array, result: ScalarType, mode: str) -> Array:
    """64-bit integers do not fit into float64.

    Bits that are cut off make the last bit odd, so that another rounding is correct.
    """
    if values.dtype.itemsize < 8:
        return encode(result, mode)(values.astype(np.float64))
    if result.name == "f64" and mode == "rn":
        return values.astype(np.float64)
    high = (values >> values.dtype.type(32)).astype(np.float64) * 2.0**32
    low = (values & values.dtype.type(0xFFFFFFFF)).astype(np.float64)
    total = high + low
    error = low - (total - high)
    if result.name == "f64":
        wrong = {"rz": (error < 0) & (total > 0) | (error > 0) & (total < 0), "rm": error < 0, "rp": error > 0}[mode]
        return np.asarray(np.where(wrong, np.nextafter(total, np.where(error > 0, np.inf, -np.inf)), total))
    even = (total.view(np.int64) & 1) == 0
    odd = np.where((error != 0) & even, np.nextafter(total, np.where(error > 0, np.inf, -np.inf)), total)
    return encode(result, mode)(odd)


def _float_to_integer(
    result: ScalarType, kind: ScalarType, to_double: Callable[[Array], Doubles], mode: str
) -> Callable[[Array], Array]:
    limits = np.iinfo(result.dtype)
    on_nan = 1 << (result.bits - 1) if kind.name == "f64" or result.bits == 64 else 0
    rounding = _INTEGER_ROUNDINGS.get(mode, np.trunc)

    def function(a: Array) -> Array:
        values = rounding(to_double(a))
        out = [on_nan if x != x else min(max(_int(x), limits.min), limits.max) for x in values.tolist()]
        return np.array([x & ((1 << 64) - 1) for x in out], np.uint64).astype(result.dtype)

    return function


def _int(value: float) -> int:
    return int(value) if abs(value) < 2.0**100 else (1 << 100) * (1 if value > 0 else -1)


def _float_to_float(
    result: ScalarType, to_double: Callable[[Array], Doubles], mode: str, *, flush: bool, saturate: bool, rectify: bool
) -> Callable[[Array], Array]:
    to_result = encode(result, mode)

    def function(a: Array) -> Array:
        values = to_double(a)
        if saturate and result.bits >= 16:
            values = rounding.saturated(values)
        if rectify:
            values = rounding.rectified(values)
        out = to_result(values)
        return flush_subnormals(out) if flush and result.name == "f32" else out

    return function


def _lower_to_pair(
    context: Lowering, instruction: Instruction, result: ScalarType, kind: ScalarType, mode: str, *, rectify: bool
) -> Step:
    """`cvt.f16x2.f32 d, a, b`: a in the upper half, b in the lower; or from one packed pair to another."""
    half = element_type(result)
    source_half = element_type(kind)
    target = context.target(instruction, instruction.operands[0], result)
    to_double, to_half = decode(source_half), encode(half, mode)

    def convert(lanes: Array) -> Array:
        values = to_double(lanes)
        return to_half(rounding.rectified(values) if rectify else values)

    if kind.name.endswith("x2"):
        context.modifiers(instruction, 2)
        source = context.source(instruction, instruction.operands[1], kind)
        return elementwise(
            lambda a: np.ascontiguousarray(convert(a.copy().view(source_half.dtype))).view(result.dtype), target, source
        )
    if len(instruction.operands) != 3:
        raise instruction.error("a packed result needs two sources")
    high, low = (context.source(instruction, operand, kind) for operand in instruction.operands[1:])

    def join(a: Array, b: Array) -> Array:
        return np.stack([convert(b), convert(a)], axis=1).view(result.dtype).reshape(32)

    return elementwise(join, target, high, low)


def lower_cvta(context: Lowering, instruction: Instruction) -> Step:
    """`cvta{.to}.space.u64`: between an address in a state space and a generic one."""
    modifiers = context.modifiers(instruction, 2)
    to_space = modifiers.flag("to")
    space = modifiers.need("global", CLUSTER_SPACE, "shared::cta", "shared", "local", "const", "param", "param::entry")
    kind = modifiers.type("u64")
    modifiers.finish()
    shift = np.uint64(_WINDOWS[space.partition("::")[0]])
    target = context.target(instruction, instruction.operands[0], kind)
    source = context.source(instruction, instruction.operands[1], kind)
    return elementwise(lambda a: a - shift if to_space else a + shift, target, source)


def lower_isspacep(context: Lowering, instruction: Instruction) -> Step:
    """`isspacep.space p, a`: tests if a generic address lies in a state space."""
    modifiers = context.modifiers(instruction, 2)
    space = modifiers.need("global", CLUSTER_SPACE, "shared::cta", "shared", "local", "param")
    modifiers.finish()
    target = context.target(instruction, instruction.operands[0], scalar_type("pred"))
    source = context.source(instruction, instruction.operands[1], scalar_type("u64"))

    def step(warp: Warp) -> None:
        addresses = warp.cells[source].view(np.int64)
        if space in ("shared", "shared::cta"):
            warp.put(target, is_own(addresses, warp.cta.rank))
        else:
            warp.put(target, spaces_of(addresses)[space])

    return step


LOWERERS: dict[str, Lowerer] = {
    "mov": lower_mov,
    "cvt": lower_cvt,
    "cvta": lower_cvta,
    "isspacep": lower_isspacep,
}
