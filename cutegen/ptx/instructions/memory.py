"""Loads and stores of every state space and vector width.

Source: PTX ISA, `ld`, `ld.global.nc`, `ldu`, `st`, "Cache Operators", "Cache Eviction Priority Hints". Cache
operators and hints change no result here; the watchers use orders and scopes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from cutegen.ptx.instructions.order import take_access_order
from cutegen.ptx.machine.lowering import Lowering, Modifiers, Step, count_operands
from cutegen.ptx.machine.memory import Addresses, Data, data_dtype
from cutegen.ptx.machine.origins import origins_of
from cutegen.ptx.machine.rows import Row
from cutegen.ptx.machine.spaces import CLUSTER_SPACE, Lanes, in_frame, memory_of, resolve_space
from cutegen.ptx.machine.undefined import note_absent, report_use
from cutegen.ptx.machine.warp import Warp
from cutegen.ptx.text.flow import RegisterKey, keys_of
from cutegen.ptx.text.syntax import CALL_SPACE, Instruction, Sink
from cutegen.ptx.text.types import WARP_LANES, Kind, ScalarType, scalar_type
from cutegen.ptx.watch.semantics import Semantics

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
