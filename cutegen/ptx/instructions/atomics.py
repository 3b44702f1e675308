"""Atomic operations: `atom` and `red`.

Source: PTX ISA, `atom`, `red`. Lanes take effect one after the other, in lane order, and so do the elements of a
vector: each is an atomic operation of its own. `add.f32` flushes subnormals in
global memory and keeps them in shared memory, also for generic addresses.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cutegen.ptx.arithmetic.rounding import Array, decode, encode
from cutegen.ptx.instructions.compare import select
from cutegen.ptx.instructions.floating import element_type, flushing, on_pairs, select_extreme
from cutegen.ptx.instructions.memory import take_hints, take_space
from cutegen.ptx.instructions.order import take_atomic_order
from cutegen.ptx.machine.lowering import Lowerer, Lowering, Step
from cutegen.ptx.machine.memory import Addresses
from cutegen.ptx.machine.spaces import in_global, memory_of, narrowed, resolve_space
from cutegen.ptx.machine.warp import Warp
from cutegen.ptx.text.syntax import Instruction
from cutegen.ptx.text.types import Kind, ScalarType
from cutegen.ptx.watch.violations import ViolationKind

_HALVES = ("f16", "bf16", "f16x2", "bf16x2")
_VECTORS = {
    **dict.fromkeys(("f16", "bf16"), (("v2", "v4", "v8"), ("add", "min", "max"))),
    **dict.fromkeys(("f16x2", "bf16x2"), (("v2", "v4"), ("add", "min", "max"))),
    "f32": (("v2", "v4"), ("add",)),
}
"""Lengths of vectors, and their operations, of the types that have them; global memory only."""
_BITWISE, _INTEGERS = ("b32", "b64"), ("u32", "u64", "s32", "s64")
_TYPES = {
    "add": ("u32", "u64", "s32", "f32", "f64", *_HALVES),
    **dict.fromkeys(("and", "or", "xor", "exch"), _BITWISE),
    **dict.fromkeys(("min", "max"), _INTEGERS),
    **dict.fromkeys(("inc", "dec"), ("u32",)),
    "cas": ("b16", *_BITWISE),
}


def _increment(old: Array, limit: Array) -> Array:
    return np.where(old >= limit, 0, old + 1).astype(old.dtype)


def _decrement(old: Array, limit: Array) -> Array:
    return np.where((old == 0) | (old > limit), limit, old - 1).astype(old.dtype)


def operation(name: str, kind: ScalarType) -> Callable[..., Array]:
    """Return the function from what is there, and the operand, to what is there afterwards."""
    if kind.kind is Kind.FLOAT and name in ("min", "max"):
        return on_pairs(select_extreme(name, element_type(kind), keeps_nan=False), kind)
    if kind.kind is Kind.FLOAT:
        half = element_type(kind)
        to_double, to_kind = decode(half), encode(half, "rn")
        return on_pairs(lambda a, b: to_kind(to_double(a) + to_double(b)), kind)
    functions: dict[str, Callable[..., Array]] = {
        "add": np.add,
        "and": np.bitwise_and,
        "or": np.bitwise_or,
        "xor": np.bitwise_xor,
        "min": np.minimum,
        "max": np.maximum,
        "inc": _increment,
        "dec": _decrement,
        "exch": lambda old, value: value,
        "cas": lambda old, expected, value: select(old == expected, value, old),
    }
    return functions[name]


def lower_atomic(context: Lowering, instruction: Instruction) -> Step:
    """`atom{.space}.op{.vec}.type d, [a], b{, c}` and `red{.space}.op{.vec}.type [a], b`."""
    returns = instruction.parts[0] == "atom"
    modifiers = context.modifiers(instruction, (3, 4) if returns else (2, 3))
    has_policy = take_hints(modifiers)
    modifiers.flag("noftz")
    semantics = take_atomic_order(modifiers)
    operands = instruction.operands[int(returns) :]
    space = resolve_space(context, instruction, take_space(modifiers), operands[0])
    name = modifiers.need(*_TYPES)
    vector = modifiers.one_of("v2", "v4", "v8")
    kind = modifiers.type(*(_VECTORS if vector else _TYPES[name]))
    modifiers.finish()
    if vector:
        _check_vector(instruction, name, vector, kind, space)
    if kind.name in _HALVES and "noftz" not in instruction.parts:
        raise instruction.error(f"an atomic of .{kind.name} is written with .noftz")
    if not returns and name in ("exch", "cas"):
        raise instruction.error(f"red has no .{name}; atom has")
    values = operands[1 : len(operands) - has_policy]
    if len(values) != (2 if name == "cas" else 1):
        raise instruction.error("wrong number of operands")
    width = int(vector[1:]) if vector else 1
    sources = [  # [element][operand]
        [context.source(instruction, item, kind) for item in items]
        for items in zip(*(context.vector(instruction, value, width) for value in values), strict=True)
    ]
    targets = context.vector(instruction, instruction.operands[0], width) if returns else ()
    cells = [context.target(instruction, item, kind) for item in targets]
    base, offset = context.address(instruction, operands[0])
    packed = 2 if kind.name.endswith("x2") else 1
    site = context.access(instruction, space, kind.size_bytes, semantics, packed)
    function = operation(name, kind)
    # only f32: atomics of f16 and bf16 have .noftz, and those of f64 keep subnormals everywhere
    function_in_global = flushing(function) if kind.name == "f32" else function

    def act(warp: Warp, addresses: Addresses, columns: list[Array]) -> Array:
        """Return the old values of one element of each active lane."""
        old, memory = np.zeros(warp.count, kind.dtype), memory_of(warp, space)
        are_global = in_global(space, addresses)
        if are_global.any():
            with narrowed(warp, are_global):
                warp.cta.memories["global"].begin_atomics(warp, site, addresses[are_global], kind.size_bytes)
        for i, (address, is_global) in enumerate(zip(addresses.tolist(), are_global.tolist(), strict=True)):
            place = memory.element(warp, site, i, address, kind.size_bytes)
            if place is not None:
                window, at = place
                before = np.array([window[at]]).view(kind.dtype)
                operation = function_in_global if is_global else function
                after = operation(before, *(column[i : i + 1] for column in columns))
                window[at] = np.ascontiguousarray(after).view(window.dtype)[0]
                old[i] = before[0]
        return old

    def step(warp: Warp) -> None:
        addresses = warp.addresses(base, offset)
        if width > 1:
            _check_aligned(warp, site, addresses, width * kind.size_bytes)
        values = [[warp.cells[source][warp.lanes()] for source in items] for items in sources]
        for element, columns in enumerate(values):
            old = act(warp, addresses + element * kind.size_bytes, columns)
            if returns:
                warp.put_active(cells[element], old)

    return step


def _check_vector(instruction: Instruction, name: str, vector: str, kind: ScalarType, space: str) -> None:
    lengths, operations = _VECTORS[kind.name]
    if vector not in lengths or name not in operations or space not in ("global", "generic"):
        allowed = f"global memory, .{', .'.join(lengths)}, .{', .'.join(operations)}"
        raise instruction.error(f"vectors of .{kind.name} are atomic with: {allowed}")


def _check_aligned(warp: Warp, site: int, addresses: Addresses, size_bytes: int) -> None:
    wrong = addresses % size_bytes != 0
    if wrong.any():
        lane = int(np.argmax(wrong))
        message, address = f"a vector of {size_bytes} bytes is aligned to {size_bytes}", int(addresses[lane])
        warp.cta.fault(ViolationKind.MISALIGNED, site, int(warp.threads()[lane]), message, address, always=True)


LOWERERS: dict[str, Lowerer] = {"atom": lower_atomic, "red": lower_atomic}
