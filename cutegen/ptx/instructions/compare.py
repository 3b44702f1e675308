"""Comparison and selection.

Source: PTX ISA, "Comparison and Selection Instructions". Ordered comparisons with a NaN are false, unordered ones
(`equ neu ltu leu gtu geu`) true.
"""

from collections.abc import Callable

import numpy as np

from cutegen.ptx.arithmetic.rounding import Array, decode, flush_subnormals
from cutegen.ptx.machine.lowering import Lowerer, Lowering, Step, elementwise
from cutegen.ptx.machine.rows import Row
from cutegen.ptx.machine.undefined import from_selected
from cutegen.ptx.machine.warp import Warp
from cutegen.ptx.text.syntax import Instruction, Kind, Operand, Pair, ScalarType, scalar_type

_PRED = scalar_type("pred")
_ORDERED: dict[str, Callable[[Array, Array], Array]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
_UNSIGNED_NAMES = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
_UNORDERED = {"equ": "eq", "neu": "ne", "ltu": "lt", "leu": "le", "gtu": "gt", "geu": "ge"}
_COMPARISONS = (*_ORDERED, *_UNSIGNED_NAMES, *_UNORDERED, "num", "nan")
_COMBINE: dict[str, Callable[[Array, Array], Array]] = {
    "and": np.logical_and,
    "or": np.logical_or,
    "xor": np.logical_xor,
}


def select(mask: Array, a: Array, b: Array) -> Array:
    """Lanes of `a` where `mask` is set, else of `b`."""
    return np.where(mask, a, b)


def _comparison(name: str, kind: ScalarType, *, flush: bool) -> Callable[[Array, Array], Array]:
    if kind.kind is not Kind.FLOAT:
        return _ORDERED[_UNSIGNED_NAMES.get(name, name)]
    wide = np.asarray if kind.name == "f32" else decode(kind)
    to_double: Callable[[Array], Array] = (lambda a: wide(flush_subnormals(a))) if flush else wide

    def compare(a: Array, b: Array) -> Array:
        left, right = to_double(a), to_double(b)
        unordered = np.isnan(left) | np.isnan(right)
        if name in ("num", "nan"):
            return unordered if name == "nan" else ~unordered
        if name in _UNORDERED:
            return np.asarray(_ORDERED[_UNORDERED[name]](left, right) | unordered)
        return np.asarray(_ORDERED[name](left, right) & ~unordered)

    return compare


def lower_setp(context: Lowering, instruction: Instruction) -> Step:
    """`setp.cmp{.and|or|xor}.type p{|q}, a, b{, c}`."""
    modifiers = context.modifiers(instruction, (3, 4))
    name = modifiers.need(*_COMPARISONS)
    combine = modifiers.one_of(*_COMBINE)
    flush = modifiers.flag("ftz")
    kind = modifiers.type()
    modifiers.finish()
    first, second = _destinations(instruction.operands[0])
    target = context.target(instruction, first, _PRED)
    negated_target = None if second is None else context.target(instruction, second, _PRED)
    a, b = (context.source(instruction, operand, kind) for operand in instruction.operands[1:3])
    _check_combination(instruction, combine)
    compare = _comparison(name, kind, flush=flush)
    if combine is None and negated_target is None:
        return elementwise(compare, target, a, b)
    return _combined(context, instruction, compare, combine, (target, negated_target, a, b))


def _check_combination(instruction: Instruction, combine: str | None) -> None:
    if (combine is None) == (len(instruction.operands) == 4):
        raise instruction.error("a third source and one of .and .or .xor go together")


def _destinations(operand: Operand) -> tuple[Operand, Operand | None]:
    return (operand.first, operand.second) if isinstance(operand, Pair) else (operand, None)


def _combined(
    context: Lowering,
    instruction: Instruction,
    compare: Callable[[Array, Array], Array],
    combine: str | None,
    cells: tuple[int, int | None, int, int],
) -> Step:
    """The form of `setp` that combines with a third predicate or has two results."""
    target, negated_target, a, b = cells
    function = _COMBINE[combine] if combine else None
    third, inverted = context.predicate(instruction, instruction.operands[3]) if combine else (0, False)

    def step(warp: Warp) -> None:
        values = warp.cells
        result = compare(values[a], values[b])
        opposite = ~result
        if function is not None:
            other = ~values[third] if inverted else values[third]
            result, opposite = function(result, other), function(opposite, other)
        warp.put(target, result)
        if negated_target is not None:
            warp.put(negated_target, opposite)

    return step


def lower_set(context: Lowering, instruction: Instruction) -> Step:
    """`set.cmp{.and|or|xor}.dtype.stype d, a, b{, c}`: all bits one, or 1.0, where the comparison holds."""
    modifiers = context.modifiers(instruction, (3, 4))
    name = modifiers.need(*_COMPARISONS)
    combine = modifiers.one_of(*_COMBINE)
    flush = modifiers.flag("ftz")
    result_kind = modifiers.type("u32", "s32", "f32")
    kind = modifiers.type()
    modifiers.finish()
    _check_combination(instruction, combine)
    true = np.float32(1.0) if result_kind.name == "f32" else np.array(-1, np.int32).astype(result_kind.dtype)
    compare = _comparison(name, kind, flush=flush)
    target = context.target(instruction, instruction.operands[0], result_kind)
    a, b = (context.source(instruction, operand, kind) for operand in instruction.operands[1:3])
    if combine is None:
        return elementwise(lambda x, y: np.where(compare(x, y), true, true.dtype.type(0)), target, a, b)
    function, (third, inverted) = _COMBINE[combine], context.predicate(instruction, instruction.operands[3])

    def combined(x: Array, y: Array, other: Array) -> Array:
        return np.where(function(compare(x, y), other != inverted), true, true.dtype.type(0))

    return elementwise(combined, target, a, b, third)


def lower_selp(context: Lowering, instruction: Instruction) -> Step:
    """`selp.type d, a, b, p`: a where p, else b."""
    modifiers = context.modifiers(instruction, 4)
    kind = modifiers.type()
    modifiers.finish()
    target = context.target(instruction, instruction.operands[0], kind)
    a, b = (context.source(instruction, operand, kind) for operand in instruction.operands[1:3])
    p, inverted = context.predicate(instruction, instruction.operands[3])
    if inverted:
        a, b = b, a
    return elementwise(lambda x, y, mask: select(mask, x, y), target, a, b, p)


def lower_slct(context: Lowering, instruction: Instruction) -> Step:
    """`slct.dtype.ctype d, a, b, c`: a where c >= 0, else b."""
    modifiers = context.modifiers(instruction, 4)
    flush = modifiers.flag("ftz")
    kind, sign_kind = modifiers.type(), modifiers.type("s32", "f32")
    modifiers.finish()
    target = context.target(instruction, instruction.operands[0], kind)
    a, b = (context.source(instruction, operand, kind) for operand in instruction.operands[1:3])
    c = context.source(instruction, instruction.operands[3], sign_kind)
    sign: Callable[[Array], Array] = flush_subnormals if flush else np.asarray
    return elementwise(lambda x, y, z: select(sign(z) >= 0, x, y), target, a, b, c)


LOWERERS: dict[str, Lowerer] = {
    "setp": lower_setp,
    "set": lower_set,
    "slct": lower_slct,
}
ROWS = {"selp": Row(step=lower_selp, spread=from_selected)}
