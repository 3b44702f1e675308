"""Atomic operations: `atom` and `red`.

Source: PTX ISA, `atom`, `red`. Lanes take effect one after the other, in lane order. `add.f32` flushes subnormals in
global memory and keeps them in shared memory, also for generic addresses.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from cutegen.ptx.arithmetic.rounding import Array, decode, encode
from cutegen.ptx.instructions.compare import select
from cutegen.ptx.instructions.floating import element_type, flushing, on_pairs
from cutegen.ptx.instructions.memory import take_hints, take_space
from cutegen.ptx.instructions.order import take_atomic_order
from cutegen.ptx.machine.lowering import Lowerer, Lowering, Step
from cutegen.ptx.machine.spaces import in_global, memory_of, narrowed, resolve_space
from cutegen.ptx.machine.warp import Warp
from cutegen.ptx.text.syntax import Instruction
from cutegen.ptx.text.types import Kind, ScalarType

_HALVES = ("f16", "bf16", "f16x2", "bf16x2")
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


def _operation(instruction: Instruction, name: str, kind: ScalarType) -> Callable[..., Array]:
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
    """`atom{.space}.op.type d, [a], b{, c}` and `red{.space}.op.type [a], b`."""
    returns = instruction.parts[0] == "atom"
    modifiers = context.modifiers(instruction, (3, 4) if returns else (2, 3))
    has_policy = take_hints(modifiers)
    modifiers.flag("noftz")
    semantics = take_atomic_order(modifiers)
    operands = instruction.operands[int(returns) :]
    space = resolve_space(context, instruction, take_space(modifiers), operands[0])
    name = modifiers.need(*_TYPES)
    kind = modifiers.type(*_TYPES[name])
    modifiers.finish()
    if kind.name in _HALVES and "noftz" not in instruction.parts:
        raise instruction.error(f"an atomic of .{kind.name} is written with .noftz")
    if not returns and name in ("exch", "cas"):
        raise instruction.error(f"red has no .{name}; atom has")
    values = operands[1 : len(operands) - has_policy]
    if len(values) != (2 if name == "cas" else 1):
        raise instruction.error("wrong number of operands")
    sources = [context.source(instruction, value, kind) for value in values]
    target = context.target(instruction, instruction.operands[0], kind) if returns else None
    base, offset = context.address(instruction, operands[0])
    packed = 2 if kind.name.endswith("x2") else 1
    site = context.access(instruction, space, kind.size_bytes, semantics, packed)
    function = _operation(instruction, name, kind)
    # only f32: atomics of f16 and bf16 have .noftz, and those of f64 keep subnormals everywhere
    function_in_global = flushing(function) if kind.name == "f32" else function

    def step(warp: Warp) -> None:
        old = np.zeros(warp.count, kind.dtype)
        memory, addresses = memory_of(warp, space), warp.addresses(base, offset)
        are_global = in_global(space, addresses)
        if are_global.any():
            with narrowed(warp, are_global):
                warp.cta.memories["global"].begin_atomics(warp, site, addresses[are_global], kind.size_bytes)
        columns: list[Any] = [warp.cells[source][warp.lanes()] for source in sources]
        for i, (address, is_global) in enumerate(zip(addresses.tolist(), are_global.tolist(), strict=True)):
            place = memory.element(warp, site, i, address, kind.size_bytes)
            if place is not None:
                window, at = place
                before = np.array([window[at]]).view(kind.dtype)
                operation = function_in_global if is_global else function
                after = operation(before, *(column[i : i + 1] for column in columns))
                window[at] = np.ascontiguousarray(after).view(window.dtype)[0]
                old[i] = before[0]
        if target is not None:
            warp.put_active(target, old)

    return step


LOWERERS: dict[str, Lowerer] = {"atom": lower_atomic, "red": lower_atomic}
