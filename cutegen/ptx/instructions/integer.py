"""Integer arithmetic, logic and shifts, and bit manipulation as the PTX ISA's pseudo-code defines it."""

from collections.abc import Callable

import numpy as np

from cutegen.ptx.arithmetic.rounding import Array
from cutegen.ptx.machine.lowering import Lowerer, Lowering, Step, elementwise, lower_elementwise
from cutegen.ptx.machine.rows import Row
from cutegen.ptx.machine.undefined import from_logic
from cutegen.ptx.machine.warp import Warp
from cutegen.ptx.text.syntax import Immediate, Instruction, Kind, ScalarType, scalar_type

# Bit manipulation of lanes, as the PTX ISA's pseudo-code defines it.


def _bits(a: Array) -> int:
    return a.dtype.itemsize * 8


def _unsigned(a: Array) -> Array:
    return a.view(f"u{a.dtype.itemsize}")


def multiply_high(a: Array, b: Array) -> Array:
    """The upper half of the double-width product."""
    bits = _bits(a)
    if bits < 64:
        wide = f"{a.dtype.kind}{a.dtype.itemsize * 2}"
        return (np.multiply(a, b, dtype=wide) >> bits).astype(a.dtype)
    products = [int(x) * int(y) >> 64 for x, y in zip(a, b, strict=True)]
    return np.array([value & (2**64 - 1) for value in products], np.uint64).view(a.dtype)


def count_leading_zeros(a: Array) -> Array:
    """Zero bits above the highest one bit."""
    return np.uint32(_bits(a)) - _bit_length(_unsigned(a))


def _bit_length(a: Array) -> Array:
    spread = a.copy()
    shift = 1
    while shift < _bits(a):
        spread |= spread >> a.dtype.type(shift)
        shift *= 2
    return np.bitwise_count(spread).astype(np.uint32)


def most_significant(a: Array, *, as_shift: bool) -> Array:
    """`bfind`: position of the highest bit that differs from the sign; 0xffffffff if there is none."""
    value = _unsigned(np.where(a < 0, ~a, a) if a.dtype.kind == "i" else a)
    position = _bit_length(value) - np.uint32(1)
    if not as_shift:
        return position
    return np.where(value == 0, position, np.uint32(_bits(a) - 1) - position)


def bit_reverse(a: Array) -> Array:
    """The bits in reverse order."""
    octets = _unsigned(np.ascontiguousarray(a)).view(np.uint8).reshape(len(a), -1)
    bits = np.unpackbits(octets, axis=1, bitorder="little")[:, ::-1]
    return np.ascontiguousarray(np.packbits(bits, axis=1, bitorder="little")).view(a.dtype).reshape(len(a))


def extract_field(a: Array, position: Array, length: Array) -> Array:
    """`bfe`: `length` bits from `position`, sign-extended for signed types; both count modulo 256."""
    bits = _bits(a)
    pos, size = (position & 0xFF).astype(np.int64), (length & 0xFF).astype(np.int64)
    signed = a.dtype.kind == "i"
    out = np.zeros(len(a), np.uint64)
    for lane, (value, p, n) in enumerate(zip(a.tolist(), pos.tolist(), size.tolist(), strict=True)):
        raw = value & ((1 << bits) - 1)
        sign = signed and n > 0 and raw >> min(p + n - 1, bits - 1) & 1
        field = raw >> p & ((1 << n) - 1)
        valid = max(0, min(n, bits - p))
        out[lane] = (field | (((1 << bits) - 1) & ~((1 << valid) - 1) if sign else 0)) & ((1 << bits) - 1)
    return out.astype(f"u{a.dtype.itemsize}").view(a.dtype)


def insert_field(a: Array, b: Array, position: Array, length: Array) -> Array:
    """`bfi`: the low `length` bits of a put into b at `position`; both count modulo 256."""
    bits = _bits(a)
    full = (1 << bits) - 1
    out = []
    for x, y, p, n in zip(a.tolist(), b.tolist(), position.tolist(), length.tolist(), strict=True):
        mask = (((1 << (n & 0xFF)) - 1) << (p & 0xFF)) & full
        out.append((y & full & ~mask) | ((x << (p & 0xFF)) & mask))
    return np.array(out, np.uint64).astype(a.dtype)


def bit_mask(start: Array, width: Array, *, wraps: bool) -> Array:
    """`bmsk`: `width` ones from bit `start` on; both count modulo 32, or end at bit 32."""
    first, size = ((x & 31 if wraps else np.minimum(x, 32)).astype(np.uint64) for x in (start, width))
    ones = ((np.uint64(1) << size) - np.uint64(1)) << first
    return (ones & np.uint64(0xFFFFFFFF)).astype(np.uint32)


def extend(a: Array, bits: Array, *, wraps: bool) -> Array:
    """`szext`: the low `bits` bits of `a`, by their sign if `a` is signed; `bits` counts modulo 32, or to 32."""
    kept = (bits & 31 if wraps else np.minimum(bits, 32)).astype(np.int64)
    mask = (np.int64(1) << kept) - 1
    low = a.astype(np.int64) & mask
    signed = (a.dtype.kind == "i") & (kept > 0) & (low >> np.maximum(kept - 1, 0) & 1 == 1)
    return (np.where(signed, low | ~mask, low) & 0xFFFFFFFF).astype(np.uint32).view(a.dtype)


def funnel_shift(a: Array, b: Array, amount: Array, *, left: bool, wraps: bool) -> Array:
    """`shf`: the upper word of b:a shifted left, or the lower word of it shifted right."""
    n = (amount & 31 if wraps else np.minimum(amount, 32)).astype(np.uint64)
    both = b.astype(np.uint64) << np.uint64(32) | a.astype(np.uint64)
    if left:
        return ((both << n) >> np.uint64(32)).astype(np.uint32)
    return (both >> n).astype(np.uint32)


_SELECT_MODES: dict[str, Callable[[Array], Array]] = {
    "f4e": lambda s: (s[:, None] + np.arange(4)) & 7,
    "b4e": lambda s: (s[:, None] - np.arange(4)) & 7,
    "rc8": lambda s: np.repeat(s[:, None], 4, axis=1),
    "ecl": lambda s: np.maximum(np.arange(4), s[:, None]),
    "ecr": lambda s: np.minimum(np.arange(4), s[:, None]),
    "rc16": lambda s: (s[:, None] & 1) * 2 + np.arange(4) % 2,
}


def permute_bytes(a: Array, b: Array, selector: Array, mode: str | None) -> Array:
    """`prmt`.

    Selects four of the eight bytes of b:a; without a mode, bit 3 of each selector replicates the byte's sign.
    """
    octets = np.stack([a, b], axis=1).view(np.uint8)
    if mode is not None:
        choice = _SELECT_MODES[mode]((selector & 3).astype(np.int64))
        picked = np.take_along_axis(octets, choice, axis=1)
    else:
        nibbles = (selector.astype(np.int64)[:, None] >> np.array([0, 4, 8, 12])) & 0xF
        picked = np.take_along_axis(octets, nibbles & 7, axis=1)
        picked = np.where(nibbles & 8, np.where(picked & 0x80, 0xFF, 0), picked)
    return np.ascontiguousarray(picked.astype(np.uint8)).view(np.uint32).reshape(len(a))


# Integer arithmetic, logic and shifts.
#
# Source: PTX ISA, "Integer Arithmetic Instructions", "Extended-Precision Integer Arithmetic Instructions", "Logic and
# Shift Instructions", `bfe`, `bfi`, `bmsk`, `szext`, `prmt`, `dp4a`. Arithmetic wraps; `.sat` clamps to s32.


INTEGERS = ("u16", "u32", "u64", "s16", "s32", "s64")
_U32 = scalar_type("u32")


def _saturated(function: Callable[..., Array]) -> Callable[..., Array]:
    def clamp(*values: Array) -> Array:
        exact = function(*(value.astype(np.int64) for value in values))
        return exact.clip(-(1 << 31), (1 << 31) - 1).astype(np.int32)

    return clamp


def lower_add_sub(context: Lowering, instruction: Instruction) -> Step:
    """`add sub addc subc` with `.cc` and `.sat`."""
    modifiers = context.modifiers(instruction, 3)
    carry_out = modifiers.flag("cc")
    saturate = modifiers.flag("sat")
    kind = modifiers.type(*INTEGERS)
    modifiers.finish()
    name = instruction.parts[0]
    if carry_out or name in ("addc", "subc"):
        return _with_carry(context, instruction, kind, carry_out=carry_out)
    function: Callable[..., Array] = np.add if name == "add" else np.subtract
    if saturate:
        function = _saturated(function)
    return lower_elementwise(context, instruction, function, kind)


def _with_carry(context: Lowering, instruction: Instruction, kind: ScalarType, *, carry_out: bool) -> Step:
    """Lower an operation with the carry flag `CC.CF`, which is an additional predicate register.

    Subtraction adds the complement, so a borrow is a clear carry.
    """
    unsigned = scalar_type(f"u{kind.bits}")
    target = context.target(instruction, instruction.operands[0], unsigned)
    a, b = (context.source(instruction, operand, unsigned) for operand in instruction.operands[1:])
    carry = context.carry_cell()
    uses_carry = instruction.parts[0] in ("addc", "subc")
    subtracts = instruction.parts[0].startswith("sub")

    def step(warp: Warp) -> None:
        cells = warp.cells
        right = ~cells[b] if subtracts else cells[b]
        extra = cells[carry] if uses_carry else np.full(32, subtracts)
        first = cells[a] + right
        total = first + extra.astype(first.dtype)
        if carry_out:
            overflow = (first < right) | (total < first)
            warp.put(target, total)
            warp.put(carry, overflow)
        else:
            warp.put(target, total)

    return step


def lower_multiply(context: Lowering, instruction: Instruction) -> Step:
    """`mul mad mul24 mad24` with `.lo .hi .wide`."""
    multiplies_only = instruction.parts[0] in ("mul", "mul24")
    modifiers = context.modifiers(instruction, 3 if multiplies_only else 4)
    part = modifiers.need("lo", "hi", "wide")
    saturate = modifiers.flag("sat")
    kind = modifiers.type(*INTEGERS)
    modifiers.finish()
    if instruction.parts[0].endswith("24"):
        return _lower_24_bit(context, instruction, kind, part)
    wide = scalar_type(f"{kind.name[0]}{kind.bits * 2}") if part == "wide" else kind
    target = context.target(instruction, instruction.operands[0], wide)
    sources = [context.source(instruction, operand, kind) for operand in instruction.operands[1:3]]
    product = _product(part, wide)
    if multiplies_only:
        return elementwise(product, target, *sources)
    addend = context.source(instruction, instruction.operands[3], wide)
    if saturate:
        return elementwise(
            _saturated(lambda a, b, c: multiply_high(a.astype(np.int32), b.astype(np.int32)) + c),
            target,
            *sources,
            addend,
        )
    return elementwise(lambda a, b, c: product(a, b) + c, target, *sources, addend)


def _product(part: str, wide: ScalarType) -> Callable[[Array, Array], Array]:
    if part == "wide":
        return lambda a, b: np.multiply(a, b, dtype=wide.dtype)
    return np.multiply if part == "lo" else multiply_high


def _lower_24_bit(context: Lowering, instruction: Instruction, kind: ScalarType, part: str) -> Step:
    shift = 0 if part == "lo" else 16

    def product(a: Array, b: Array, *addend: Array) -> Array:
        low = [
            ((value.astype(np.int64) << 40) >> 40) if kind.kind is Kind.SIGNED else value.astype(np.int64) & 0xFFFFFF
            for value in (a, b)
        ]
        result = (low[0] * low[1] >> shift).astype(kind.dtype)
        return result + addend[0] if addend else result

    return lower_elementwise(context, instruction, product, kind)


def _divide(a: Array, b: Array) -> Array:
    """Quotient towards zero; all bits one if the divisor is zero (the ISA leaves this to the implementation)."""
    safe = np.where(b == 0, 1, b).astype(b.dtype)
    if a.dtype.kind == "u":
        quotient = a // safe
    else:
        wide = [np.abs(value.astype(np.int64)).view(np.uint64) for value in (a, safe)]
        size = (wide[0] // wide[1]).astype(a.dtype)
        quotient = np.where((a < 0) != (safe < 0), -size, size)
    return np.where(b == 0, np.array(-1).astype(a.dtype), quotient).astype(a.dtype)


def _remainder(a: Array, b: Array) -> Array:
    """Remainder with the dividend's sign; all bits one if the divisor is zero, as on a GPU (the ISA leaves it open)."""
    return np.where(b == 0, np.array(-1).astype(a.dtype), a - _divide(a, b) * b).astype(a.dtype)


def _shift_left(a: Array, b: Array) -> Array:
    bits = a.dtype.itemsize * 8
    amount = np.minimum(b, bits - 1).astype(a.dtype)
    return np.where(b >= bits, 0, a << amount).astype(a.dtype)


def _shift_right(a: Array, b: Array) -> Array:
    bits = a.dtype.itemsize * 8
    amount = np.minimum(b, bits - 1).astype(a.dtype)
    return a >> amount if a.dtype.kind == "i" else np.where(b >= bits, 0, a >> amount).astype(a.dtype)


def lower_shift(context: Lowering, instruction: Instruction) -> Step:
    """`shl shr`: the amount is a u32 and clamps at the width."""
    modifiers = context.modifiers(instruction, 3)
    kind = modifiers.type()
    modifiers.finish()
    function = _shift_left if instruction.parts[0] == "shl" else _shift_right
    target = context.target(instruction, instruction.operands[0], kind)
    a = context.source(instruction, instruction.operands[1], kind)
    amount = instruction.operands[2]
    if isinstance(amount, Immediate) and isinstance(amount.value, int) and 0 <= amount.value < kind.bits:
        constant = kind.dtype.type(amount.value)
        return elementwise(
            (lambda x: x << constant) if function is _shift_left else (lambda x: x >> constant), target, a
        )
    return elementwise(function, target, a, context.source(instruction, amount, _U32, wide=True))


def lower_logic(context: Lowering, instruction: Instruction) -> Step:
    """`and or xor not cnot` of bits or predicates."""
    name = instruction.parts[0]
    modifiers = context.modifiers(instruction, 2 if name in ("not", "cnot") else 3)
    kind = modifiers.type("pred", "b16", "b32", "b64")
    modifiers.finish()
    functions: dict[str, Callable[..., Array]] = {
        "and": np.bitwise_and,
        "or": np.bitwise_or,
        "xor": np.bitwise_xor,
        "not": np.invert,
        "cnot": lambda a: (a == 0).astype(a.dtype),
    }
    return lower_elementwise(context, instruction, functions[name], kind)


def lower_lop3(context: Lowering, instruction: Instruction) -> Step:
    """`lop3.b32 d, a, b, c, table`: any logic function of three operands."""
    modifiers = context.modifiers(instruction, 5)
    kind = modifiers.type("b32")
    modifiers.finish()
    literal = instruction.operands[4]
    if not isinstance(literal, Immediate) or not isinstance(literal.value, int):
        raise instruction.error("the table is an integer literal")
    table = literal.value & 0xFF

    def function(a: Array, b: Array, c: Array) -> Array:
        result = np.zeros(32, np.uint32)
        for row in range(8):
            if table >> row & 1:
                result |= (a if row & 4 else ~a) & (b if row & 2 else ~b) & (c if row & 1 else ~c)
        return result

    target = context.target(instruction, instruction.operands[0], kind)
    return elementwise(function, target, *(context.source(instruction, op, kind) for op in instruction.operands[1:4]))


def _lower_typed(function: Callable[..., Array], types: tuple[str | None, ...], result: str | None = None) -> Lowerer:
    """The lowering of an instruction whose operands have the types `types` (None: the instruction's own)."""

    def lower(context: Lowering, instruction: Instruction) -> Step:
        modifiers = context.modifiers(instruction, len(types) + 1)
        kind = modifiers.type()
        modifiers.finish()
        target = context.target(instruction, instruction.operands[0], scalar_type(result) if result else kind)
        kinds = [scalar_type(name) if name else kind for name in types]
        pairs = zip(instruction.operands[1:], kinds, strict=True)
        return elementwise(function, target, *(context.source(instruction, operand, k) for operand, k in pairs))

    return lower


def lower_shf(context: Lowering, instruction: Instruction) -> Step:
    """`shf.l|r.clamp|wrap.b32`: shift of the 64 bits b:a."""
    modifiers = context.modifiers(instruction, 4)
    left, wraps = modifiers.need("l", "r") == "l", modifiers.need("clamp", "wrap") == "wrap"
    kind = modifiers.type("b32")
    modifiers.finish()
    return lower_elementwise(context, instruction, lambda a, b, c: funnel_shift(a, b, c, left=left, wraps=wraps), kind)


def lower_prmt(context: Lowering, instruction: Instruction) -> Step:
    """`prmt.b32{.mode}`: selects four of eight bytes."""
    modifiers = context.modifiers(instruction, 4)
    mode = modifiers.one_of("f4e", "b4e", "rc8", "ecl", "ecr", "rc16")
    kind = modifiers.type("b32")
    modifiers.finish()
    return lower_elementwise(context, instruction, lambda a, b, c: permute_bytes(a, b, c, mode), kind)


def lower_bmsk(context: Lowering, instruction: Instruction) -> Step:
    """`bmsk.clamp|wrap.b32 d, start, width`."""
    modifiers = context.modifiers(instruction, 3)
    wraps = modifiers.need("clamp", "wrap") == "wrap"
    kind = modifiers.type("b32")
    modifiers.finish()
    return lower_elementwise(context, instruction, lambda a, b: bit_mask(a, b, wraps=wraps), kind)


def lower_szext(context: Lowering, instruction: Instruction) -> Step:
    """`szext.clamp|wrap.u32|s32 d, a, bits`."""
    modifiers = context.modifiers(instruction, 3)
    wraps = modifiers.need("clamp", "wrap") == "wrap"
    kind = modifiers.type("u32", "s32")
    modifiers.finish()
    target = context.target(instruction, instruction.operands[0], kind)
    a, bits = (
        context.source(instruction, op, each) for op, each in zip(instruction.operands[1:], (kind, _U32), strict=True)
    )
    return elementwise(lambda x, n: extend(x, n, wraps=wraps), target, a, bits)


def lower_bfind(context: Lowering, instruction: Instruction) -> Step:
    """`bfind{.shiftamt}`: position of the highest significant bit."""
    modifiers = context.modifiers(instruction, 2)
    as_shift = modifiers.flag("shiftamt")
    kind = modifiers.type("u32", "u64", "s32", "s64")
    modifiers.finish()
    target = context.target(instruction, instruction.operands[0], _U32)
    source = context.source(instruction, instruction.operands[1], kind)
    return elementwise(lambda a: most_significant(a, as_shift=as_shift), target, source)


def lower_dot(context: Lowering, instruction: Instruction) -> Step:
    """`dp4a`, `dp2a`: dot product of bytes (and of 16-bit values with bytes) plus c."""
    modifiers = context.modifiers(instruction, 4)
    first = 2 if instruction.parts[0] == "dp2a" and modifiers.need("lo", "hi") == "hi" else 0
    a_kind, b_kind = modifiers.type("u32", "s32"), modifiers.type("u32", "s32")
    modifiers.finish()
    four = instruction.parts[0] == "dp4a"

    def function(a: Array, b: Array, c: Array) -> Array:
        left = a.view(f"{a.dtype.kind}{1 if four else 2}").reshape(32, -1).astype(np.int64)
        right = b.view(f"{b.dtype.kind}1").reshape(32, 4)[:, first : first + left.shape[1]].astype(np.int64)
        return np.asarray(c + (left * right).sum(axis=1)).astype(c.dtype)

    kinds = (a_kind, b_kind, _U32)  # sums wrap, so their signedness does not matter
    target = context.target(instruction, instruction.operands[0], _U32)
    contiguous = [
        context.source(instruction, op, kind) for op, kind in zip(instruction.operands[1:], kinds, strict=True)
    ]
    return elementwise(function, target, *contiguous)


def _lower_extreme(function: Callable[..., Array]) -> Lowerer:
    """The lowering of `min` and `max`; with `.relu`, of s32 alone, a negative result becomes 0."""
    plain = _lower_typed(function, (None, None))

    def lower(context: Lowering, instruction: Instruction) -> Step:
        modifiers = context.modifiers(instruction, 3)
        if not modifiers.flag("relu"):
            return plain(context, instruction)
        kind = modifiers.type("s32")
        modifiers.finish()
        return lower_elementwise(context, instruction, lambda a, b: np.maximum(function(a, b), 0), kind)

    return lower


def _absolute_difference(a: Array, b: Array, c: Array) -> Array:
    return np.where(a > b, a - b, b - a) + c


LOWERERS: dict[str, Lowerer] = {
    **dict.fromkeys(("add", "sub", "addc", "subc"), lower_add_sub),
    **dict.fromkeys(("mul", "mad", "mul24", "mad24"), lower_multiply),
    "div": _lower_typed(_divide, (None, None)),
    "rem": _lower_typed(_remainder, (None, None)),
    "min": _lower_extreme(np.minimum),
    "max": _lower_extreme(np.maximum),
    "abs": _lower_typed(np.abs, (None,)),
    "neg": _lower_typed(np.negative, (None,)),
    "sad": _lower_typed(_absolute_difference, (None, None, None)),
    **dict.fromkeys(("shl", "shr"), lower_shift),
    **dict.fromkeys(("xor", "not", "cnot"), lower_logic),
    "lop3": lower_lop3,
    "shf": lower_shf,
    "prmt": lower_prmt,
    "popc": _lower_typed(lambda a: np.bitwise_count(a).astype(np.uint32), (None,), "u32"),
    "clz": _lower_typed(count_leading_zeros, (None,), "u32"),
    "brev": _lower_typed(bit_reverse, (None,)),
    "bfind": lower_bfind,
    "bmsk": lower_bmsk,
    "szext": lower_szext,
    "bfe": _lower_typed(extract_field, (None, "u32", "u32")),
    "bfi": _lower_typed(insert_field, (None, None, "u32", "u32")),
    **dict.fromkeys(("dp4a", "dp2a"), lower_dot),
}
ROWS = dict.fromkeys(("and", "or"), Row(step=lower_logic, spread=from_logic))
