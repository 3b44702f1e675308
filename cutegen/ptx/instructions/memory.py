"""Loads and stores of every state space and vector width, atomic operations, and the memory order of each."""

from collections.abc import Callable
from typing import Any

import numpy as np

from cutegen.ptx.arithmetic.rounding import Array, decode, encode
from cutegen.ptx.instructions.compare import select
from cutegen.ptx.instructions.floating import element_type, flushing, on_pairs, select_extreme
from cutegen.ptx.machine.lowering import Lowerer, Lowering, Modifiers, Step, count_operands
from cutegen.ptx.machine.memory import Addresses, Data, data_dtype
from cutegen.ptx.machine.origins import origins_of
from cutegen.ptx.machine.rows import Row
from cutegen.ptx.machine.spaces import CLUSTER_SPACE, Lanes, in_frame, in_global, memory_of, narrowed, resolve_space
from cutegen.ptx.machine.undefined import note_absent, report_use
from cutegen.ptx.machine.warp import Warp
from cutegen.ptx.text.flow import RegisterKey, keys_of
from cutegen.ptx.text.syntax import CALL_SPACE, WARP_LANES, Instruction, Kind, ScalarType, Sink, scalar_type
from cutegen.ptx.watch.semantics import SCOPES, Semantics
from cutegen.ptx.watch.violations import ViolationKind

# The memory order that an instruction specifies: `.relaxed.gpu`, `.volatile`, `.acq_rel.cta`.
#
# Source: PTX ISA, `ld`, `st`, `atom`, `red`, `fence`, `membar`.


_MEMBARS = {"cta": "cta", "gl": "gpu", "sys": "sys"}


def take_access_order(instruction: Instruction, modifiers: Modifiers, order: str) -> Semantics | None:
    """The semantics of a load (`order` acquire) or a store (`order` release); None if it is weak."""
    if modifiers.flag("volatile"):
        return Semantics.of("relaxed", "sys")
    is_mmio = modifiers.flag("mmio")
    word = modifiers.one_of("relaxed", order, "weak")
    scope = modifiers.one_of(*SCOPES)
    if is_mmio and (word, scope) != ("relaxed", "sys"):
        raise instruction.error(".mmio needs .relaxed.sys")
    if word in (None, "weak"):
        if scope is not None:
            raise instruction.error(f"a scope needs an order: .relaxed.{scope} or .{order}.{scope}")
        return None
    if scope is None:
        raise instruction.error(f".{word} needs a scope: .{word}.cta, .cluster, .gpu or .sys")
    return Semantics.of(str(word), scope)


def take_atomic_order(modifiers: Modifiers) -> Semantics:
    """The semantics of `atom` and `red`: relaxed at scope gpu by default."""
    order = modifiers.one_of("relaxed", "acquire", "release", "acq_rel") or "relaxed"
    return Semantics.of(order, modifiers.one_of(*SCOPES) or "gpu")


def fence_order(instruction: Instruction) -> Semantics:
    """The semantics of a `fence` with a scope, or of a `membar`."""
    words = instruction.parts[1:]
    if instruction.parts[0] == "membar":
        return Semantics.of("sc", _MEMBARS[words[0]])
    order = next((word for word in words if word not in SCOPES), "acq_rel")
    return Semantics.of(order, next(word for word in words if word in SCOPES))


# Loads and stores of every state space and vector width.
#
# Source: PTX ISA, `ld`, `ld.global.nc`, `ldu`, `st`, "Cache Operators", "Cache Eviction Priority Hints". Cache
# operators and hints change no result here; the watchers use orders and scopes.


_HINTS = (
    *("ca", "cg", "cs", "lu", "cv", "wb", "wt", "unified"),
    *(
        f"L{level}::{hint}"
        for level in (1, 2)
        for hint in ("evict_normal", "evict_unchanged", "evict_first", "evict_last", "no_allocate")
    ),
    *(f"L2::{size}B" for size in (64, 128, 256)),
)
_POLICY = scalar_type("b64")
SPACES = ("global", "shared", "shared::cta", CLUSTER_SPACE, "local", "const", "param", "param::entry", CALL_SPACE)


def take_space(modifiers: Modifiers) -> str:
    """The state space of an access; `generic` if none is written."""
    written = modifiers.one_of(*SPACES) or "generic"
    return written if written == CLUSTER_SPACE else written.partition("::")[0]


def take_hints(modifiers: Modifiers) -> bool:
    """Takes the hints off; True if a cache policy follows as the last operand."""
    modifiers.flag(*_HINTS)
    return modifiers.flag("L2::cache_hint")


def _take_policy(context: Lowering, instruction: Instruction, modifiers: Modifiers) -> None:
    """Takes the hints off a load or store, and checks that a cache policy follows if one of them says so."""
    has_policy = take_hints(modifiers)
    count_operands(instruction, 2 + has_policy)
    if has_policy:
        context.source(instruction, instruction.operands[2], _POLICY)


def _vector_width(modifiers: Modifiers) -> int:
    word = modifiers.one_of("v2", "v4", "v8")
    return int(word[1:]) if word else 1


def lower_load(context: Lowering, instruction: Instruction) -> Step:
    """`ld{.space}{.vec}.type d, [a]`."""
    modifiers = Modifiers(instruction)
    _take_policy(context, instruction, modifiers)
    space = resolve_space(context, instruction, take_space(modifiers), instruction.operands[1])
    semantics = take_access_order(instruction, modifiers, "acquire")
    if modifiers.flag("nc"):
        _check_constant(context, instruction, space, semantics)
    width, kind = _vector_width(modifiers), modifiers.type()
    modifiers.finish()
    _check_access(instruction, kind, width)
    items = context.vector(instruction, instruction.operands[0], width)
    targets = [
        (i, context.target(instruction, item, kind, wide=True))
        for i, item in enumerate(items)
        if not isinstance(item, Sink)
    ]
    base, offset = context.address(instruction, instruction.operands[1])
    size = kind.size_bytes * width
    site = context.access(instruction, space, size, semantics, width)
    loaded = _loaded_dtype(kind)

    def step(warp: Warp) -> None:
        data = memory_of(warp, space).read(warp, site, warp.addresses(base, offset), size)
        values = data.view(loaded).reshape(-1, width)
        for i, cell in targets:
            warp.put_active(cell, values[:, i])

    return _noting(context, instruction, step, size) if context.follows_memory else step


def _noting(context: Lowering, instruction: Instruction, load: Step, size_bytes: int) -> Step:
    """A load whose results are undefined in the lanes that read what nobody wrote, as far as it is used."""
    site, keys = context.site, keys_of(instruction.operands[:1])
    used = [i for i in range(size_bytes) if instruction.used_bytes is None or instruction.used_bytes >> i & 1]

    def step(warp: Warp) -> None:
        warp.unwritten = np.zeros((WARP_LANES, size_bytes), bool)
        load(warp)
        unwritten, warp.unwritten = warp.unwritten, None
        lanes = np.asarray(unwritten[:, used].any(axis=1))
        if lanes.any():
            note_absent(warp, site, keys, lanes, "memory is read that was never written")

    return step


def _check_constant(context: Lowering, instruction: Instruction, space: str, semantics: Semantics | None) -> None:
    """Note a read by `.nc`, whose cache does not see writes of the same launch."""
    if space != "global" or semantics is not None:
        raise instruction.error(".nc is only for weak loads of global memory")
    context.constant_sites.add(context.site)


def _loaded_dtype(kind: ScalarType) -> np.dtype[Any]:
    """Sign-extend signed types into a wider register, and zero-extend the bits of all others."""
    if kind.bits > 64:
        return kind.dtype
    return np.dtype(f"{'i' if kind.kind is Kind.SIGNED else 'u'}{kind.size_bytes}")


def _check_access(instruction: Instruction, kind: ScalarType, width: int) -> None:
    named = kind.kind is not Kind.FLOAT or kind.name in ("f32", "f64")
    too_long = kind.size_bytes * width > 32 or (kind.bits > 64 and width > 1)
    if kind.kind is Kind.PREDICATE or not named or too_long:
        raise instruction.error(f"an access of {width} x .{kind.name} does not exist")


def lower_store(context: Lowering, instruction: Instruction) -> Step:
    """`st{.space}{.vec}.type [a], b`."""
    modifiers = Modifiers(instruction)
    _take_policy(context, instruction, modifiers)
    space = resolve_space(context, instruction, take_space(modifiers), instruction.operands[0])
    semantics = take_access_order(instruction, modifiers, "release")
    if space in ("const", "param"):
        raise instruction.error(f"nothing can be stored to {space} memory")
    width, kind = _vector_width(modifiers), modifiers.type()
    modifiers.finish()
    _check_access(instruction, kind, width)
    items = context.vector(instruction, instruction.operands[1], width)
    sources = [context.source(instruction, item, kind, wide=True) for item in items]
    base, offset = context.address(instruction, instruction.operands[0])
    size = kind.size_bytes * width
    site = context.access(instruction, space, size, semantics, width)
    values = gather(sources, size)

    def step(warp: Warp) -> None:
        memory_of(warp, space).write(warp, site, warp.addresses(base, offset), size, values(warp))

    if not context.follows_memory:
        return step
    keys = keys_of(instruction.operands[1:2])

    def passing(warp: Warp) -> None:
        step(warp)
        for key in keys & warp.undefined.keys():
            _pass_on(warp, site, key, in_frame(space, warp.addresses(base, offset)), size)

    return passing


def _pass_on(warp: Warp, site: int, key: RegisterKey, places: tuple[Lanes, Addresses], size_bytes: int) -> None:
    """An undefined register has been stored: in local memory the bytes are undefined, elsewhere that is an error."""
    lanes, (is_local, addresses) = warp.lanes(), places
    doubtful = origins_of(warp, key)[lanes] != 0
    local, lost = doubtful & is_local, lanes[doubtful & ~is_local]
    warp.cta.local.forget(warp, lanes[local], addresses[local], size_bytes)
    if len(lost):
        report_use(warp, site, key, np.isin(np.arange(WARP_LANES), lost))


def gather(sources: list[int], size_bytes: int) -> Callable[[Warp], Data]:
    """The function from a warp to the bytes that each active lane stores."""
    dtype = data_dtype(size_bytes)
    if len(sources) == 1:
        source = sources[0]

        def one(warp: Warp) -> Data:
            values = warp.cells[source] if warp.full else warp.cells[source][warp.mask]
            return np.ascontiguousarray(values).view(dtype)

        return one

    def many(warp: Warp) -> Data:
        values = np.stack([warp.cells[source] for source in sources], axis=1)
        return (values if warp.full else values[warp.mask]).view(dtype).reshape(-1)

    return many


ROWS = {
    **dict.fromkeys(("ld", "ldu"), Row(step=lower_load, follows=True)),
    "st": Row(step=lower_store, follows=True),
}


# Atomic operations: `atom` and `red`.
#
# Source: PTX ISA, `atom`, `red`. Lanes take effect one after the other, in lane order, and so do the elements of a
# vector: each is an atomic operation of its own. `add.f32` flushes subnormals in global memory and keeps them in shared
# memory, also for generic addresses.


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
