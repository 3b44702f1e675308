"""`tensormap`: replaces a field of a tensor map in memory, and copies one to where bulk copies use it.

Source: PTX ISA, `tensormap.replace`, `tensormap.cp_fenceproxy`, `fence.proxy.tensormap`. The fences are in `effects`.
"""

import numpy as np

from cutegen.ptx.instructions.memory import take_space
from cutegen.ptx.machine.convergence import check_whole
from cutegen.ptx.machine.lowering import Lowering, Modifiers, Step, count_operands
from cutegen.ptx.machine.memory import Addresses
from cutegen.ptx.machine.rows import Row
from cutegen.ptx.machine.spaces import memory_of, resolve_space
from cutegen.ptx.machine.tensor_map import FIELDS, TENSOR_MAP_BYTES, WORD_BYTES, Field
from cutegen.ptx.machine.warp import LANES, Warp
from cutegen.ptx.text.syntax import Immediate, Instruction, scalar_type
from cutegen.ptx.watch.semantics import SCOPES
from cutegen.ptx.watch.violations import ViolationKind

_B32, _B64 = scalar_type("b32"), scalar_type("b64")
_WIDE = ("global_address", "global_stride")
_CHOSEN = ("elemtype", "interleave_layout", "swizzle_mode", "swizzle_atomicity", "fill_mode")
"""Fields whose values are written in the instruction."""


def _lower_replace(context: Lowering, instruction: Instruction) -> Step:
    """`tensormap.replace.tile.field{.space}.b1024.type [a]{, mode}, value`."""
    modifiers = Modifiers(instruction)
    modifiers.need("replace")
    modifiers.need("tile")
    name = modifiers.need(*FIELDS)
    written = take_space(modifiers)
    if written not in ("global", "shared", "generic"):
        raise instruction.error("a tensor map is replaced in .global or .shared::cta memory")
    modifiers.need("b1024")
    kind = modifiers.type("b64" if name in _WIDE else "b32")
    modifiers.finish()
    field = FIELDS[name]
    count_operands(instruction, 2 + (field.count > 1))
    mode, value = _mode(instruction, field), instruction.operands[-1]
    if name in _CHOSEN and not isinstance(value, Immediate):
        raise instruction.error(f"the value of .{name} is a literal")
    space = resolve_space(context, instruction, written, instruction.operands[0])
    base, offset = context.address(instruction, instruction.operands[0])
    source, site = context.source(instruction, value, kind), context.access(instruction, space, WORD_BYTES)

    def step(warp: Warp) -> None:
        addresses = warp.addresses(base, offset)
        _check_aligned(warp, site, addresses)
        values = warp.cells[source][warp.mask].astype(np.int64) // field.unit - field.less
        word, shift = field.place(mode)
        bits = (1 << field.bits) - 1
        for number in range(2 if field.wide else 1):
            part = values >> 32 * number & bits
            _merge(warp, site, space, addresses + (word + number) * WORD_BYTES, part << shift, bits << shift)

    return step


def _mode(instruction: Instruction, field: Field) -> int:
    """The mode of a field that has one for each."""
    if field.count == 1:
        return 0
    literal = instruction.operands[1]
    mode = literal.value if isinstance(literal, Immediate) else None
    if not isinstance(mode, int) or not 0 <= mode < field.count:
        raise instruction.error(f"the mode is a literal from 0 to {field.count - 1}")
    return mode


def _merge(warp: Warp, site: int, space: str, places: Addresses, values: Addresses, mask: int) -> None:
    """Replaces the bits of `mask` in a word for each active lane."""
    memory = memory_of(warp, space)
    before = memory.read(warp, site, places, WORD_BYTES).astype(np.int64)
    memory.write(warp, site, places, WORD_BYTES, (before & ~mask | values & mask).astype(np.uint32))


def _check_aligned(warp: Warp, site: int, addresses: Addresses) -> None:
    wrong = addresses % TENSOR_MAP_BYTES != 0
    if wrong.any():
        lane = int(np.argmax(wrong))
        message, address = f"a tensor map is aligned to {TENSOR_MAP_BYTES} bytes here", int(addresses[lane])
        warp.cta.fault(ViolationKind.MISALIGNED, site, int(warp.threads()[lane]), message, address, always=True)


def _lower_copy(context: Lowering, instruction: Instruction) -> Step:
    """`tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.scope.sync.aligned [to], [from], 128`."""
    modifiers = context.modifiers(instruction, 3)
    for word in ("cp_fenceproxy", "global", "shared::cta", "tensormap::generic", "release", "sync", "aligned"):
        modifiers.need(word)
    modifiers.need(*SCOPES)
    modifiers.finish()
    size = instruction.operands[2]
    if not isinstance(size, Immediate) or size.value != TENSOR_MAP_BYTES:
        raise instruction.error(f"the size is {TENSOR_MAP_BYTES}")
    places = [context.address(instruction, operand) for operand in instruction.operands[:2]]
    site = context.access(instruction, "shared", WORD_BYTES)
    context.access(instruction, "global", WORD_BYTES)

    def step(warp: Warp) -> None:
        check_whole(warp, site)
        to, source = (warp.addresses(*place) for place in places)
        for addresses in (to, source):
            _check_aligned(warp, site, addresses[:1])
        each = LANES * WORD_BYTES
        data = warp.cta.shared.read(warp, site, source[0] + each, WORD_BYTES)
        warp.cta.memories["global"].write(warp, site, to[0] + each, WORD_BYTES, data)
        warp.cta.tensors.proxy.release(warp, warp.cta.ordering)
        warp.cta.ordering.warp_sync(warp)  # one operation of the warp: kernels use the map in any lane afterwards

    return step


ROWS = {
    "tensormap.replace": Row(step=_lower_replace),
    "tensormap.cp_fenceproxy": Row(step=_lower_copy),
}
