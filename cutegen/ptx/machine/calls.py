"""Calls of functions at run time: frames in local memory, arguments and results, registers that a recursion saves.

Source: PTX ISA, `call`, `ret`, `.func`. The lanes that execute a call have a path of their own, on top of the caller's;
it ends where all of them have returned. A call's frame follows its caller's in each thread's local memory.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cutegen.ptx.machine.frame import Origins
from cutegen.ptx.machine.origins import mark, origins_of, unwritten
from cutegen.ptx.machine.warp import Mask, Path, Warp
from cutegen.ptx.text.syntax import WARP_LANES, Entry, Linked, Variable
from cutegen.ptx.watch.violations import ViolationKind

FUNCTION_WINDOW, FUNCTION_STRIDE = 0x7C00_0000_0000, 16
"""Addresses of functions, for indirect calls."""
MAX_STACK_BYTES = 1 << 16
"""Local memory of a thread for all of its frames. A GPU has 1 KiB for them unless cudaLimitStackSize is set."""
_ALIGN_BYTES = 16


@dataclass(frozen=True, slots=True)
class Slot:
    """A variable of a frame: bytes `offset` to `offset + size_bytes`."""

    offset: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Callee:
    """A function that can be called: its blocks from `block` to `end`, its frame, and its rows of the register files.

    `base` is the 64-bit row of the frame's address, `addresses` are those of its variables, with their offsets.
    """

    name: str
    block: int
    end: int
    frame_bytes: int
    base: int
    addresses: tuple[tuple[int, int], ...]
    rows: Mapping[int, tuple[int, int]]
    parameters: tuple[Slot, ...]
    returns: tuple[Slot, ...]
    is_recursive: bool
    unwritten: frozenset[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Caller:
    """The frame of the function, or entry, that calls: its address is in 64-bit row `base`; None: it is 0."""

    base: int | None
    frame_bytes: int


@dataclass(frozen=True, slots=True)
class Passed:
    """A variable of the caller, at the address in a cell, and the slot of the callee's frame that it is copied to."""

    cell: int
    slot: Slot


def callees(entry: Entry, block_at: Mapping[int, int], fresh: frozenset[tuple[int, int]]) -> dict[str, Callee]:
    """The functions in the body of `entry`, by name."""
    return {linked.function.name: _callee(linked, block_at, fresh) for linked in entry.functions}


def _callee(linked: Linked, block_at: Mapping[int, int], fresh: frozenset[tuple[int, int]]) -> Callee:
    slots, size = _place(linked.frame)
    given = len(linked.function.parameters)
    own = {key for key in fresh if linked.rows[key[0]][0] <= key[1] < linked.rows[key[0]][1]}
    return Callee(
        name=linked.function.name,
        block=block_at[linked.first],
        end=block_at[linked.last - 1],
        frame_bytes=size,
        base=linked.base,
        addresses=tuple((row, slot.offset) for row, slot in zip(linked.addresses, slots, strict=True)),
        rows=linked.rows,
        parameters=slots[:given],
        returns=slots[given : given + len(linked.function.returns)],
        is_recursive=linked.is_recursive,
        unwritten=frozenset(own),
    )


def _place(variables: Sequence[Variable]) -> tuple[tuple[Slot, ...], int]:
    """The slots of a frame's variables, and its size; every call takes some of the stack."""
    slots, offset = list[Slot](), 0
    for variable in variables:
        offset = -(-offset // variable.align_bytes) * variable.align_bytes
        slots.append(Slot(offset, variable.size_bytes or 0))
        offset += slots[-1].size_bytes
    return tuple(slots), max(_ALIGN_BYTES, -(-offset // _ALIGN_BYTES) * _ALIGN_BYTES)


@dataclass(slots=True)
class ActiveCall:
    """A call that has not returned; `bases` are the addresses of the lanes' frames, `saved` their earlier registers."""

    callee: Callee
    results: tuple[Passed, ...]
    bases: npt.NDArray[np.int64]
    saved: dict[int, npt.NDArray[np.generic]]
    undefined: dict[tuple[int, int], Origins]

    def finish(self, warp: Warp, mask: Mask) -> None:
        """The lanes of `mask` have returned: their results are copied, their caller's registers restored."""
        lanes = np.flatnonzero(mask)
        threads = lanes + warp.number * WARP_LANES
        for bits, before in self.saved.items():
            start, stop = self.callee.rows[bits]
            warp.files[bits][start:stop, lanes] = before[:, lanes]
        for key, origins in self.undefined.items():
            mark(warp, (key,), origins, mask)
        for result in self.results:
            to = warp.cells[result.cell][lanes].astype(np.int64)
            warp.cta.local.copy(threads, self.bases[lanes] + result.slot.offset, to, result.slot.size_bytes)


def enter(
    warp: Warp,
    site: int,
    callee: Callee,
    caller: Caller,
    passed: tuple[tuple[Passed, ...], tuple[Passed, ...]],
) -> None:
    """The active lanes of `warp` call `callee`; `passed` are its arguments and its results."""
    lanes = warp.lanes()
    threads, local = lanes + warp.number * WARP_LANES, warp.cta.local
    bases = np.zeros(WARP_LANES, np.int64)
    if caller.base is not None:
        bases[:] = warp.files[64][caller.base].view(np.int64)
    bases += caller.frame_bytes
    deepest = int(bases[lanes].max()) + callee.frame_bytes
    if deepest > MAX_STACK_BYTES:
        message = f"the stack of a thread takes {deepest} bytes, at most {MAX_STACK_BYTES} are allowed: {callee.name}"
        message += " calls itself without end, or too often" if callee.is_recursive else " is called too deep"
        warp.cta.fault(ViolationKind.OUT_OF_BOUNDS, site, int(warp.threads()[0]), message, always=True)
    local.begin_frame(threads, bases[lanes], callee.frame_bytes)
    for argument in passed[0]:
        source = warp.cells[argument.cell][lanes].astype(np.int64)
        local.copy(threads, source, bases[lanes] + argument.slot.offset, argument.slot.size_bytes)
    saved, undefined = dict[int, npt.NDArray[np.generic]](), dict[tuple[int, int], Origins]()
    if callee.is_recursive:
        saved = {bits: warp.files[bits][start:stop].copy() for bits, (start, stop) in callee.rows.items()}
        undefined = {key: origins_of(warp, key) for key in callee.unwritten}
    unwritten(warp, callee.unwritten, warp.mask)
    for row, offset in ((callee.base, 0), *callee.addresses):
        warp.files[64][row][lanes] = (bases[lanes] + offset).view(np.uint64)
    call = ActiveCall(callee, passed[1], bases, saved, undefined)
    warp.stack.append(Path(callee.block, warp.mask.copy(), callee.end, call))
