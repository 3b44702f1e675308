"""An element marked by a value that no other has, and watched for while a kernel's PTX is executed on the CPU.

Nothing here knows a plan: bytes are looked at as the executor moves them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

import cutegen.ptx.instructions as instructions
from cutegen.ptx.machine import tensor_mma
from cutegen.ptx.machine.grid import CTA_WINDOW_BYTES
from cutegen.ptx.machine.memory import GlobalMemory
from cutegen.ptx.machine.shared import SHARED_BASE, SharedMemory
from cutegen.ptx.machine.warp import Warp
from cutegen.ptx.machine.warpgroup import Warpgroup


@dataclass
class Seen:
    """Where the marked bytes were, in the order of execution; shared addresses are bytes of the CTA's dynamic memory.

    `copied`, `written`: (thread, address); `loaded`: (warp, lane that addressed, address of the access, of the mark);
    `received`: (warp, lane, register of the instruction, bit); `landed`: address; `multiplied`: (start of the
    descriptor's block, row, byte of K); `summed`: thread; `got`, `put`: (thread, byte in the matrix) of global memory.
    """

    copied: list[tuple[int, int]] = field(default_factory=list)
    written: list[tuple[int, int]] = field(default_factory=list)
    loaded: list[tuple[int, int, int, int]] = field(default_factory=list)
    received: list[tuple[int, int, int, int]] = field(default_factory=list)
    landed: list[int] = field(default_factory=list)
    multiplied: list[tuple[int, int]] = field(default_factory=list)
    summed: list[int] = field(default_factory=list)
    got: list[tuple[int, int]] = field(default_factory=list)
    put: list[tuple[int, int]] = field(default_factory=list)


class Watch:
    """Looks for the bytes `mark` at multiples of their length, in global memory in `matrix` alone, or in a copy of it.

    `base` is where dynamic shared memory begins. A copy is as large, and none of the `others` of the call.
    """

    def __init__(
        self, mark: np.ndarray, matrix: np.ndarray, base: int = 0, *, others: tuple[np.ndarray, ...] = ()
    ) -> None:
        self.matrix, self.others = matrix, others
        self.word = np.dtype(f"u{mark.itemsize}")
        self.mark = int(np.atleast_1d(mark).view(self.word)[0])
        self.base, self.seen = base, Seen()

    def places(self, data: Any, count: int) -> list[tuple[int, int]]:
        """(row, byte in it) of each mark in `count` rows of bytes."""
        found = np.ascontiguousarray(data)
        if found.nbytes < count * self.word.itemsize:
            return []  # of narrower accesses
        rows = found.view(self.word).reshape(count, -1)
        return [(int(i), int(j) * self.word.itemsize) for i, j in np.argwhere(rows == self.mark)]

    def is_in(self, memory: np.ndarray) -> bool:
        if np.may_share_memory(memory, self.matrix):
            return True
        return len(memory) == self.matrix.nbytes and not any(np.may_share_memory(memory, x) for x in self.others)

    def shared(self, offset: int) -> int:
        return int(offset) - self.base


def watch(monkeypatch: pytest.MonkeyPatch, marks: Callable[[], list[Watch]]) -> None:
    """Have the executor show its accesses to whatever `marks` answers."""
    _watch_shared(monkeypatch, marks)
    _watch_global(monkeypatch, marks)
    _watch_registers(monkeypatch, marks)


def _watch_shared(monkeypatch: pytest.MonkeyPatch, marks: Callable[[], list[Watch]]) -> None:
    end_copy, write, read, land = SharedMemory.end_copy, SharedMemory.write, SharedMemory.read, SharedMemory.land
    begin, execute = Warpgroup._begin, tensor_mma._execute

    def ends(self: SharedMemory, access: Any, data: Any) -> None:
        for each in marks():
            for row, at in each.places(data, len(access.offsets)):
                each.seen.copied.append((int(access.threads[row]), each.shared(access.offsets[row] + at)))
        end_copy(self, access, data)

    def writes(self: SharedMemory, warp: Warp, site: int, addresses: Any, size_bytes: int, data: Any) -> None:
        for each in marks():
            for row, at in each.places(data, len(addresses)):
                where = each.shared(addresses[row] % CTA_WINDOW_BYTES - SHARED_BASE + at)
                each.seen.written.append((int(warp.threads()[row]), where))
        write(self, warp, site, addresses, size_bytes, data)

    def reads(self: SharedMemory, warp: Warp, site: int, addresses: Any, size_bytes: int, **more: Any) -> Any:
        data = read(self, warp, site, addresses, size_bytes, **more)
        lanes = warp.lanes() if more.get("givers") is None else more["givers"]
        for each in marks():
            for row, at in each.places(data, len(addresses)):
                where = each.shared(addresses[row] % CTA_WINDOW_BYTES - SHARED_BASE)
                each.seen.loaded.append((warp.thread0 // 32, int(lanes[row]), where, where + at))
        return data

    def lands(self: SharedMemory, access: Any, data: Any, agent: int) -> None:
        for each in marks():
            for row, at in each.places(data, len(access.offsets)):
                each.seen.landed.append(each.shared(access.offsets[row] + at))
        land(self, access, data, agent)

    def begins(self: Warpgroup, mma: Any) -> None:
        operands = mma.operands
        begin(self, mma)
        matrices = [(operands.b, mma.form.b_matrix, mma.source[1])]
        if operands.a is not None:
            matrices.append((operands.a, mma.form.a_matrix, mma.source[0]))
        for bits, matrix, chunks in matrices:
            multiplies(bits, matrix(self._shared.tensor_core_peek(chunks)))

    def executes(warp: Warp, site: int, form: Any, types: Any, operands: Any, parts: Any) -> None:
        for part in parts:
            for bits, chunks, name, transposes in (
                (operands.a, part.a, types.a, types.transposes_a),
                (operands.b, part.b, types.b, types.transposes_b),
            ):
                multiplies(bits, tensor_mma._codes(part, chunks, types, name, k_major=not transposes))
        execute(warp, site, form, types, operands, parts)

    def multiplies(descriptor: int, matrix: Any) -> None:
        found = np.ascontiguousarray(matrix)
        for each in marks():
            for row, _ in each.places(found, len(found)):
                start = ((descriptor & 0x3FFF) << 4) - SHARED_BASE
                each.seen.multiplied.append((each.shared(start), row))

    for owner, name, replaced in (
        (tensor_mma, "_execute", executes),
        (SharedMemory, "end_copy", ends),
        (SharedMemory, "write", writes),
        (SharedMemory, "read", reads),
        (SharedMemory, "land", lands),
        (Warpgroup, "_begin", begins),
    ):
        monkeypatch.setattr(owner, name, replaced)


def _watch_global(monkeypatch: pytest.MonkeyPatch, marks: Callable[[], list[Watch]]) -> None:
    read, write = GlobalMemory.read, GlobalMemory.write

    def reads(self: GlobalMemory, warp: Warp, site: int, addresses: Any, size_bytes: int, *more: Any) -> Any:
        data = read(self, warp, site, addresses, size_bytes, *more)
        for each in marks():
            for row, at in each.places(data, len(addresses)):
                buffer = self._covering(addresses, size_bytes)
                if buffer is None or not each.is_in(buffer.bytes.data):
                    continue
                each.seen.got.append((int(warp.threads()[row]), int(addresses[row]) + at - buffer.start))
        return data

    def writes(self: GlobalMemory, warp: Warp, site: int, addresses: Any, size_bytes: int, data: Any) -> None:
        for each in marks():
            for row, at in each.places(data, len(addresses)):
                buffer = self._covering(addresses, size_bytes)
                if buffer is None or not each.is_in(buffer.bytes.data):
                    continue
                each.seen.put.append((int(warp.threads()[row]), int(addresses[row]) + at - buffer.start))
        write(self, warp, site, addresses, size_bytes, data)

    monkeypatch.setattr(GlobalMemory, "read", reads)
    monkeypatch.setattr(GlobalMemory, "write", writes)


def _watch_registers(monkeypatch: pytest.MonkeyPatch, marks: Callable[[], list[Watch]]) -> None:
    """What `ldmatrix` leaves in registers, and in whose registers sums are that are not zero."""
    rows = instructions._ROWS
    ldmatrix, mma = rows["ldmatrix"].step, rows["mma"].step

    def lower_ldmatrix(context: Any, instruction: Any) -> Any:
        step = ldmatrix(context, instruction)
        targets = context.rows32(instruction, instruction.operands[0].items)

        def stepped(warp: Warp) -> None:
            step(warp)
            registers = np.ascontiguousarray(warp.files[32][targets].T)  # [lane, register]
            for each in marks():
                for lane, at in each.places(registers, 32):
                    each.seen.received.append((warp.thread0 // 32, lane, at // 4, at % 4 * 8))

        return stepped

    def lower_mma(context: Any, instruction: Any) -> Any:
        step = mma(context, instruction)
        targets = context.rows32(instruction, instruction.operands[0].items)

        def stepped(warp: Warp) -> None:
            step(warp)
            for lane in np.flatnonzero((warp.files[32][targets] != 0).any(axis=0)).tolist():
                for each in marks():
                    each.seen.summed.append(warp.thread0 + lane)

        return stepped

    monkeypatch.setitem(rows, "ldmatrix", replace(rows["ldmatrix"], step=lower_ldmatrix))
    monkeypatch.setitem(rows, "mma", replace(rows["mma"], step=lower_mma))
