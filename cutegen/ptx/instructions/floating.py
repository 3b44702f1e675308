"""Floating-point arithmetic of f16, bf16, f32, f64 and the packed pairs.

Source: PTX ISA, "Floating Point Instructions", "Half Precision Floating Point Instructions". Rounded operations are
exact to the bit. The `.approx` ones (`rcp rsqrt sqrt ex2 lg2 sin cos tanh div.full`) are computed in float64 and
rounded once: within the error that the ISA allows, but not always with the hardware's bits.
"""

from collections.abc import Callable
from itertools import repeat

import numpy as np

from cutegen.ptx.arithmetic import rounding
from cutegen.ptx.arithmetic.rounding import double_function
from cutegen.ptx.machine.lowering import Lowerer, Lowering, Step, alike_elementwise, elementwise, lower_elementwise
from cutegen.ptx.text.syntax import Instruction, ScalarType, scalar_type

FLOATS = ("f16", "bf16", "f32", "f64", "f16x2", "bf16x2")
F32X2 = "f32x2"
_ON_F32X2 = ("add", "sub", "mul", "fma")
_NARROW = {"add": 1, "sub": 1, "fma": 2}
"""Number of leading operands of an f32 instruction that may be f16 or bf16, as given by a second type."""
_NATIVE: dict[str, Callable[..., rounding.Array]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
}
_OPERANDS = {"fma": 3, "mad": 3, "add": 2, "sub": 2, "mul": 2, "div": 2}
_APPROXIMATE: dict[str, Callable[[rounding.Doubles], rounding.Doubles]] = {
    "rcp": lambda x: 1.0 / x,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "ex2": np.exp2,
    "lg2": np.log2,
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
}


def _exact(name: str, mode: str) -> Callable[..., rounding.Doubles]:
    """The operation in float64: exact, or rounded so that another rounding to 32 bits or fewer is correct."""
    if name in ("fma", "mad"):
        return lambda a, b, c: rounding.signed_zero(rounding.odd_sum(a * b, c), a * b, c, mode)
    if name == "add":
        return lambda a, b: rounding.signed_zero(rounding.odd_sum(a, b), a, b, mode)
    if name == "sub":
        return lambda a, b: rounding.signed_zero(rounding.odd_sum(a, -b), a, -b, mode)
    return _NATIVE[name]


def _scalar_function(name: str, kind: ScalarType, mode: str, *, flush: bool) -> Callable[..., rounding.Array]:
    """The operation on lanes of a scalar type, with its rounding."""
    if kind.name == "f64":
        return double_function("fma" if name == "mad" else name, mode)
    if kind.name == "f32" and mode == "rn" and name in _NATIVE:
        native = _NATIVE[name]
        single: Callable[..., rounding.Array] = lambda a, b: rounding.canonical_f32(native(a, b))  # noqa: E731
        return flushing(single) if flush else single
    wide, to_double, to_kind = _exact(name, mode), rounding.decode(kind), rounding.encode(kind, mode)
    general: Callable[..., rounding.Array] = lambda *lanes: to_kind(wide(*map(to_double, lanes)))  # noqa: E731
    return flushing(general) if flush else general


def flushing(function: Callable[..., rounding.Array]) -> Callable[..., rounding.Array]:
    """Return `function` with subnormal operands and results flushed to zeros of the same sign."""
    return lambda *lanes: rounding.flush_subnormals(function(*map(rounding.flush_subnormals, lanes)))


def _limited(
    function: Callable[..., rounding.Array], kind: ScalarType, limit: Callable[[rounding.Doubles], rounding.Doubles]
) -> Callable[..., rounding.Array]:
    """`function` with `.sat` or `.relu`."""
    to_double, to_kind = rounding.decode(kind), rounding.encode(kind, "rn")
    return lambda *lanes: to_kind(limit(to_double(function(*lanes))))


def element_type(kind: ScalarType) -> ScalarType:
    """The type of one half of a packed pair; a scalar type itself."""
    return scalar_type(kind.name.removesuffix("x2"))


def on_pairs(function: Callable[..., rounding.Array], kind: ScalarType) -> Callable[..., rounding.Array]:
    """`function` of scalars, as a function of packed pairs if `kind` is packed."""
    if not kind.name.endswith("x2"):
        return function
    half = element_type(kind).dtype

    def packed(*lanes: rounding.Array) -> rounding.Array:
        result = function(*(np.ascontiguousarray(lane).view(half) for lane in lanes))
        return np.ascontiguousarray(result).view(kind.dtype)

    return packed


def lower_arithmetic(context: Lowering, instruction: Instruction) -> Step:
    """`add sub mul fma mad div` of floats."""
    name = instruction.parts[0]
    modifiers = context.modifiers(instruction, _OPERANDS[name] + 1)
    mode = modifiers.one_of(*rounding.ROUNDINGS) or "rn"
    flush, saturate, rectify = modifiers.flag("ftz"), modifiers.flag("sat"), modifiers.flag("relu")
    modifiers.flag("approx", "full")
    kind = modifiers.type(*FLOATS, *([F32X2] if name in _ON_F32X2 else []))
    narrow = modifiers.one_of("f16", "bf16") if name in _NARROW and kind.name == "f32" else None
    modifiers.finish()
    scalar = element_type(kind)
    kinds = [kind] * _OPERANDS[name]
    function = _scalar_function(name, scalar, mode, flush=flush)
    if narrow is not None:
        kinds[: _NARROW[name]] = [scalar_type(narrow)] * _NARROW[name]
        function = _widening(function, scalar_type(narrow), _NARROW[name])
    if saturate:
        function = _limited(function, scalar, rounding.saturated)
    if rectify:
        function = _limited(function, scalar, rounding.rectified)
    target = context.target(instruction, instruction.operands[0], kind)
    sources = list(map(context.source, repeat(instruction), instruction.operands[1:], kinds))
    if kind.bits == 32 and narrow is None:
        return alike_elementwise(context, instruction, on_pairs(function, kind), target, sources)
    return elementwise(on_pairs(function, kind), target, *sources)


def _widening(function: Callable[..., rounding.Array], narrow: ScalarType, count: int) -> Callable[..., rounding.Array]:
    """`function` of f32 whose first `count` operands are `narrow`; each converts to f32 exactly."""
    to_double = rounding.decode(narrow)
    return lambda *lanes: function(*(to_double(lane).astype(np.float32) for lane in lanes[:count]), *lanes[count:])


def lower_function(context: Lowering, instruction: Instruction) -> Step:
    """`rcp sqrt rsqrt ex2 lg2 sin cos tanh`."""
    name = instruction.parts[0]
    modifiers = context.modifiers(instruction, 2)
    modifiers.flag("approx")
    mode = modifiers.one_of(*rounding.ROUNDINGS) or "rn"
    flush = modifiers.flag("ftz")
    kind = modifiers.type(*FLOATS)
    modifiers.finish()
    scalar = element_type(kind)
    if scalar.name == "f64" and name in ("rcp", "sqrt"):
        return lower_elementwise(context, instruction, double_function(name, mode), kind)
    to_double, to_kind, wide = rounding.decode(scalar), rounding.encode(scalar, mode), _APPROXIMATE[name]
    function: Callable[..., rounding.Array] = lambda a: to_kind(wide(to_double(a)))  # noqa: E731
    if flush:
        function = flushing(function)
    return lower_elementwise(context, instruction, on_pairs(function, kind), kind)


def select_extreme(name: str, kind: ScalarType, *, keeps_nan: bool) -> Callable[..., rounding.Array]:
    """`min max`: -0 < +0; a NaN loses against a number unless `.NaN`."""
    to_double, to_kind = rounding.decode(kind), rounding.encode(kind, "rn")

    def function(*lanes: rounding.Array) -> rounding.Array:
        result = to_double(lanes[0])
        for lane in lanes[1:]:
            result = _extreme(name, result, to_double(lane), keeps_nan=keeps_nan)
        return rounding.canonical(to_kind(result), kind)

    return function


def _extreme(name: str, a: rounding.Doubles, b: rounding.Doubles, *, keeps_nan: bool) -> rounding.Doubles:
    smaller = (a < b) | ((a == b) & np.signbit(a) & ~np.signbit(b))
    result = np.where(smaller == (name == "min"), a, b)
    result = np.where(np.isnan(a), b, np.where(np.isnan(b), a, result))
    return np.where(np.isnan(a) | np.isnan(b), np.nan, result) if keeps_nan else result


def lower_extreme(context: Lowering, instruction: Instruction) -> Step:
    """`min max` of floats."""
    modifiers = context.modifiers(instruction, (3, 4))
    flush, keeps_nan = modifiers.flag("ftz"), modifiers.flag("NaN")
    kind = modifiers.type(*FLOATS)
    modifiers.finish()
    function = select_extreme(instruction.parts[0], element_type(kind), keeps_nan=keeps_nan)
    if flush:
        function = flushing(function)
    return lower_elementwise(context, instruction, on_pairs(function, kind), kind)


def lower_sign(context: Lowering, instruction: Instruction) -> Step:
    """`abs neg` of floats: only the sign bit changes; a NaN becomes the canonical one, or quiet in f64."""
    modifiers = context.modifiers(instruction, 2)
    flush = modifiers.flag("ftz")
    kind = modifiers.type(*FLOATS)
    modifiers.finish()
    scalar = element_type(kind)
    bits = scalar_type(f"b{scalar.bits}").dtype
    sign = bits.type(1 << (scalar.bits - 1))
    clears = instruction.parts[0] == "abs"

    def function(a: rounding.Array) -> rounding.Array:
        raw = a.view(bits)
        changed = (raw & ~sign if clears else raw ^ sign).view(scalar.dtype)
        return rounding.canonical(np.where(a != a, a, changed), scalar)

    flushed = flushing(function) if flush else function
    return lower_elementwise(context, instruction, on_pairs(flushed, kind), kind)


def lower_copysign(context: Lowering, instruction: Instruction) -> Step:
    """`copysign d, a, b`: the sign of a on b."""
    modifiers = context.modifiers(instruction, 3)
    kind = modifiers.type("f32", "f64")
    modifiers.finish()
    return lower_elementwise(context, instruction, lambda a, b: np.copysign(b, a), kind)


def lower_testp(context: Lowering, instruction: Instruction) -> Step:
    """`testp.property`: classifies a float."""
    modifiers = context.modifiers(instruction, 2)
    wanted = modifiers.need("finite", "infinite", "number", "notanumber", "normal", "subnormal")
    kind = modifiers.type("f32", "f64")
    modifiers.finish()
    tiny = np.finfo(kind.dtype).tiny
    functions: dict[str, Callable[[rounding.Array], rounding.Array]] = {
        "finite": np.isfinite,
        "infinite": np.isinf,
        "number": lambda a: ~np.isnan(a),
        "notanumber": np.isnan,
        "normal": lambda a: np.isfinite(a) & ((np.abs(a) >= tiny) | (a == 0)),  # "zero is considered normal"
        "subnormal": lambda a: (np.abs(a) < tiny) & (a != 0),
    }
    target = context.target(instruction, instruction.operands[0], scalar_type("pred"))
    return elementwise(functions[wanted], target, context.source(instruction, instruction.operands[1], kind))


LOWERERS: dict[str, Lowerer] = {
    **dict.fromkeys(_OPERANDS, lower_arithmetic),
    **dict.fromkeys(_APPROXIMATE, lower_function),
    **dict.fromkeys(("min", "max"), lower_extreme),
    **dict.fromkeys(("abs", "neg"), lower_sign),
    "copysign": lower_copysign,
    "testp": lower_testp,
}
