"""`call`: of functions in the file, of `vprintf`, whose text is formatted here, and of `__assertfail`."""

import re
import struct
from collections.abc import Callable, Sequence

import numpy as np

from cutegen.ptx.machine.blocks import End, executing
from cutegen.ptx.machine.calls import Callee, Caller, Passed, Slot, enter
from cutegen.ptx.machine.lowering import S64, Lowering, Predicate
from cutegen.ptx.machine.rows import Row, Ways
from cutegen.ptx.machine.spaces import memory_of
from cutegen.ptx.machine.warp import LANES, Path, Warp
from cutegen.ptx.text.flow import Ends
from cutegen.ptx.text.link import call_of
from cutegen.ptx.text.syntax import CALL_SPACE, Instruction, Operand, Prototype, Symbol
from cutegen.ptx.watch.violations import ViolationKind

# `printf` of kernels: a format and the arguments that it takes from a buffer, to text.
#
# Source: CUDA C++ Programming Guide, "Formatted Output"; C17, 7.21.6.1. Arguments are aligned to their size; floats are
# doubles.


MAX_TEXT_BYTES = 1 << 12
"""The longest format, and the longest string, that is read."""
_CONVERSION = re.compile(r"%([-+ #0]*)(\*|\d+)?(?:\.(\*|\d+)?)?(hh|h|ll|l|j|z|t|L)?([diouxXeEfFgGaAcspn%])")
_WIDE = ("ll", "l", "j", "z", "t")


def text_at(warp: Warp, site: int, address: int) -> str:
    """The string at the generic `address`, for the only active lane."""
    memory, octets = memory_of(warp, "generic"), bytearray()
    while len(octets) < MAX_TEXT_BYTES:
        octet = int(memory.read(warp, site, np.array([address + len(octets)], np.int64), 1)[0])
        if octet == 0:
            break
        octets.append(octet)
    return octets.decode("utf-8", "replace")


class _Arguments:
    """Takes one argument after the other."""

    def __init__(self, warp: Warp, site: int, address: int) -> None:
        self._warp, self._site, self._address, self._next = warp, site, address, 0
        self.count = 0

    def take(self, size_bytes: int) -> int:
        """The next argument as an unsigned integer."""
        self._next = -(-self._next // size_bytes) * size_bytes
        at = np.array([self._address + self._next], np.int64)
        self._next, self.count = self._next + size_bytes, self.count + 1
        return int(memory_of(self._warp, "generic").read(self._warp, self._site, at, size_bytes)[0])


def format_text(warp: Warp, site: int, pattern: int, arguments: int) -> tuple[str, int]:
    """Return the text that the only active lane prints, and the number of its arguments, from generic addresses."""
    given, found, end = _Arguments(warp, site, arguments), list[str](), 0
    text = text_at(warp, site, pattern)
    for match in _CONVERSION.finditer(text):
        found += [text[end : match.start()], _converted(warp, site, match, given)]
        end = match.end()
    return "".join(found) + text[end:], given.count


def _converted(warp: Warp, site: int, match: re.Match[str], given: _Arguments) -> str:
    flags, width, precision, length, kind = match.groups()
    if kind == "%":
        return "%"
    has_precision = "." in match[0]
    width = str(_signed(given.take(4), 4)) if width == "*" else width or ""
    precision = str(max(0, _signed(given.take(4), 4))) if precision == "*" else precision or "0"
    spec = f"%{flags}{width}" + (f".{precision}" if has_precision else "")
    size = 8 if length in _WIDE else 4
    if kind in "di":
        return (spec + "d") % _signed(given.take(size), size)
    if kind in "ouxX":
        return (spec + kind).replace("u", "d") % given.take(size)
    if kind == "c":
        return (f"%{flags}{width}s") % chr(given.take(4) & 0xFF)
    if kind == "s":
        return (spec + "s") % text_at(warp, site, given.take(8))
    if kind == "p":
        return (f"%{flags}{width}s") % hex(given.take(8))
    if kind == "n":
        given.take(8)
        return ""
    value: float = struct.unpack("<d", struct.pack("<Q", given.take(8)))[0]
    return (f"%{flags}{width}s") % value.hex() if kind in "aA" else (spec + kind) % value


def _signed(value: int, size_bytes: int) -> int:
    bits = 8 * size_bytes
    return value - (1 << bits) if value >> (bits - 1) else value


# `call`: of functions in the file, of `vprintf` and of `__assertfail`.
#
# Source: PTX ISA, `call`; CUDA C++ Programming Guide, "Formatted Output", "Assertion". Other functions that the file
# does not define are refused by name.


_FIXES = {
    "malloc": "allocate on the host and pass a pointer",
    "free": "allocate on the host and pass a pointer",
    "cudaDeviceSynchronize": "launch the second kernel from the host",
    "__assert_fail": "compile with -DNDEBUG",
}
_LINK = "define it in this file, as __forceinline__ or in the same translation unit, or take the call out"
Action = Callable[[Warp, int], None]


def _lower_call(context: Lowering, instruction: Instruction, predicate: Predicate | None, ways: Ways) -> End:
    modifiers = context.modifiers(instruction, tuple(range(1, 5)))
    modifiers.flag("uni")
    modifiers.finish()
    call, site = call_of(instruction), context.site
    if isinstance(call.target, Symbol) and call.target.name not in context.callees:
        return _builtin(context, instruction, call.target.name, call.returns, call.arguments, predicate, ways)
    caller = context.caller()
    if isinstance(call.target, Symbol):
        callee = context.callees[call.target.name]
        passed = _passed(context, instruction, callee, call.arguments, call.returns)
        return _ending(lambda warp: enter(warp, site, callee, caller, passed), predicate, ways)
    return _indirect(context, instruction, caller, predicate, ways)


def _ending(action: Callable[[Warp], None], predicate: Predicate | None, ways: Ways) -> End:
    """The end of a block with a call: the lanes that execute it do so, and all continue after it."""

    def end(warp: Warp, path: Path) -> None:
        path.block = ways.following
        with warp.narrowed(executing(warp, predicate)):
            if warp.count:
                action(warp)

    return end


def _passed(
    context: Lowering,
    instruction: Instruction,
    callee: Callee,
    arguments: Sequence[Operand],
    returns: Sequence[Operand],
) -> tuple[tuple[Passed, ...], tuple[Passed, ...]]:
    """The arguments and results of a call, which must be as long as the callee's."""
    found = Prototype(*(tuple(_size(context, instruction, each) for each in both) for both in (returns, arguments)))
    expected = _prototype(callee)
    if found != expected:
        raise instruction.error(f"the call passes {found} in bytes; {callee.name} takes {expected}")
    both = ((arguments, callee.parameters), (returns, callee.returns))
    given, taken = (
        tuple(Passed(context.source(instruction, op, S64), slot) for op, slot in zip(ops, slots, strict=True))
        for ops, slots in both
    )
    return given, taken


def _prototype(callee: Callee) -> Prototype:
    returns, parameters = (tuple(slot.size_bytes for slot in each) for each in (callee.returns, callee.parameters))
    return Prototype(returns, parameters)


def _size(context: Lowering, instruction: Instruction, operand: Operand) -> int:
    if not isinstance(operand, Symbol) or context.spaces.get(operand.name) != CALL_SPACE:
        raise instruction.error("arguments and results of a call are .param variables")
    return context.variable_bytes[operand.name]


def _indirect(
    context: Lowering, instruction: Instruction, caller: Caller, predicate: Predicate | None, ways: Ways
) -> End:
    """A call of the function at the address in a register, which may differ between the lanes."""
    call, site = call_of(instruction), context.site
    prototype = context.prototypes.get(call.prototype or "")
    if prototype is None:
        raise instruction.error(f"no .callprototype {call.prototype} is visible here")
    fitting = {
        address: (callee, _passed(context, instruction, callee, call.arguments, call.returns))
        for address, callee in context.callees_by_address.items()
        if _prototype(callee) == prototype
    }
    target = context.source(instruction, call.target, S64)

    def action(warp: Warp) -> None:
        addresses = warp.cells[target]
        for address in warp.cta.schedule.order(np.unique(addresses[warp.mask]).tolist()):
            if address not in fitting:
                lane = int(np.argmax(warp.mask & (addresses == address)))
                message = f"no function with the prototype {prototype} is at the address of this call"
                warp.cta.fault(ViolationKind.OUT_OF_BOUNDS, site, warp.thread0 + lane, message, address, always=True)
            callee, passed = fitting[address]
            with warp.narrowed(warp.mask & (addresses == address)):
                enter(warp, site, callee, caller, passed)

    return _ending(action, predicate, ways)


def _builtin(
    context: Lowering,
    instruction: Instruction,
    name: str,
    returns: Sequence[Operand],
    arguments: Sequence[Operand],
    predicate: Predicate | None,
    ways: Ways,
) -> End:
    """A call of a function that the driver provides."""
    if name not in _BUILTINS:
        raise instruction.error(f"the file does not define {name}, which is called here; {_FIXES.get(name, _LINK)}")
    expected, act = _BUILTINS[name]
    found = Prototype(*(tuple(_size(context, instruction, each) for each in both) for both in (returns, arguments)))
    if found != expected:
        raise instruction.error(f"the call passes {found} in bytes; {name} takes {expected}")
    cells = [context.source(instruction, operand, S64) for operand in (*arguments, *returns)]
    slots = [Slot(cell, size) for cell, size in zip(cells, (*expected.parameters, *expected.returns), strict=True)]
    site = context.site

    def action(warp: Warp) -> None:
        for lane in warp.lanes().tolist():
            with warp.narrowed(np.equal(LANES, lane)):
                act(warp, site, slots)

    return _ending(action, predicate, ways)


def _value(warp: Warp, site: int, slot: Slot) -> int:
    """An argument of the only active lane; the slot's offset is the cell of its address."""
    data = memory_of(warp, CALL_SPACE).read(warp, site, warp.addresses(slot.offset, 0), slot.size_bytes)
    return int(data[0])


def _print(warp: Warp, site: int, slots: Sequence[Slot]) -> None:
    """`vprintf(format, arguments)`; it returns the number of arguments."""
    pattern, arguments = (_value(warp, site, slot) for slot in slots[:2])
    text, count = format_text(warp, site, pattern, arguments)
    warp.cta.print(text)
    to, value = warp.addresses(slots[2].offset, 0), np.array([count], np.uint32)
    memory_of(warp, CALL_SPACE).write(warp, site, to, 4, value)


def _fail(warp: Warp, site: int, slots: Sequence[Slot]) -> None:
    """`__assertfail(expression, file, line, function, character bytes)`."""
    expression, file, line, function = (_value(warp, site, slot) for slot in slots[:4])
    texts = [text_at(warp, site, address) for address in (expression, file, function)]
    message = f"assertion `{texts[0]}` failed ({texts[1]}:{line}, {texts[2]})"
    warp.cta.fault(ViolationKind.TRAP, site, int(warp.threads()[0]), message)


_BUILTINS: dict[str, tuple[Prototype, Callable[[Warp, int, Sequence[Slot]], None]]] = {
    "vprintf": (Prototype((4,), (8, 8)), _print),
    "__assertfail": (Prototype((), (8, 8, 4, 8, 8)), _fail),
}
ROWS = {"call": Row(end=_lower_call, ends=Ends.CALL, sources_only=True)}
