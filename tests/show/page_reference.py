"""Derives what a page must say of an element from the algebra and the hardware's rules: nothing of cutegen.show."""

from __future__ import annotations

import re

import numpy as np

from cutegen.algebra import Layout, LayoutExpr, inner_layout, offsets, offsets_2d
from cutegen.hardware import ldmatrix_trace, wavefronts
from cutegen.hardware.gmma import MatrixDescriptor
from cutegen.plan import GemmPlan
from cutegen.plan.geometry import fragment_loads, vectors
from cutegen.plan.values.copies import BulkTensorCopy, VectorCopy
from cutegen.plan.values.fragments import LdmatrixLoads
from cutegen.plan.values.path import OperandPath

PROBLEM = 4096
LINES = {"a": 0, "b": 1}


def numbers(text: str) -> set[int]:
    """The integers of `0–240 by 16, 300`."""
    found: set[int] = set()
    for part in text.split(", "):
        ends = re.fullmatch(r"(\d+)–(\d+)(?: by (\d+))?", part)
        found |= set(range(int(ends[1]), int(ends[2]) + 1, int(ends[3] or 1))) if ends else {int(part)}
    return found


class Reference:
    """The tables of one operand, made here anew."""

    def __init__(self, plan: GemmPlan, name: str) -> None:
        self.plan, self.operand = plan, getattr(plan, name)
        self.begins = plan.memory.offset_bytes(name)
        self.held = [
            plan.tiled_mma.partition(self.operand.operand, Layout(self.operand.tile), thread).offsets().tolist()
            for thread in range(plan.tiled_mma.threads)
        ]
        if self.operand.s2r.in_registers:
            self.addressed, self.received, self.access = _loads(plan, self.operand)

    def coordinate(self, x: int, y: int) -> int:
        return x + y * self.operand.tile[0]

    def global_place(self, x: int, y: int) -> tuple[int, int]:
        """(byte, byte of its row) in a matrix of PROBLEM elements a row."""
        across, along = (x, y) if self.operand.major_mode == 1 else (y, x)
        row = along * self.operand.dtype.bytes
        return across * PROBLEM * self.operand.dtype.bytes + row, row

    def shared(self, x: int, y: int, stage: int, layout: LayoutExpr | None = None) -> tuple[int, int]:
        """Offsets in elements before and behind the swizzle."""
        layout = layout or self.operand.smem.layout
        at = self.coordinate(x, y) + stage * self.operand.tile[0] * self.operand.tile[1]
        return int(offsets(inner_layout(layout))[at]), int(offsets(layout)[at])

    def copies(self, said: dict[str, str], x: int, y: int) -> bool:
        """True if what the page says of the copy is so."""
        return self.operand.g2s.by_kind(
            vectors=lambda copy: self._by_vectors(copy, said, x, y), boxes=lambda copy: self._by_boxes(copy, said, x, y)
        )

    def _by_vectors(self, copy: VectorCopy, said: dict[str, str], x: int, y: int) -> bool:
        table = vectors(copy.threads, copy.values, self.operand.tile)
        step, steps = map(int, said["copy-step"].split(" of "))
        element = re.fullmatch(r"element (\d+) of (\d+)", said["copy-element"])
        assert element is not None
        found = table[step - 1, int(said["copy-thread"][1:]), int(element[1])]
        return bool(found == self.coordinate(x, y)) and (steps, int(element[2])) == (len(table), table.shape[2])

    def _by_boxes(self, copy: BulkTensorCopy, said: dict[str, str], x: int, y: int) -> bool:
        across, along = (x, y) if self.operand.major_mode == 1 else (y, x)
        box, boxes = map(int, said["copy-box"].split(" of "))
        found = box - 1, boxes, int(said["copy-row"]), int(said["copy-column"])
        return found == (along // copy.box[0], copy.boxes, across % copy.box[1], along % copy.box[0])

    def phase(self, load: int, warp: int, phase: int, layout: LayoutExpr, stage_elems: int) -> np.ndarray:
        """The bytes that the lanes of a phase address."""
        lanes = 32 // max(1, self.access // 4)
        chosen = self.addressed[load, warp, phase * lanes : (phase + 1) * lanes]
        return (offsets(layout)[chosen] + stage_elems) * self.operand.dtype.bytes

    def torn(self, load: int, warp: int, layout: LayoutExpr) -> bool:
        """True if the bytes of some lane do not lie together, aligned, so that another kernel would read them."""
        operand = self.operand
        step = operand.tile[0] if operand.major_mode == 1 else 1
        elems = np.arange(self.access // operand.dtype.bytes)
        placed = offsets(layout)[self.addressed[load, warp][:, None] + step * elems]
        together = (placed == placed[:, :1] + elems).all() and (placed[:, 0] % len(elems) == 0).all()
        return not together

    def described(self, said: dict[str, str], x: int, y: int, byte: int) -> bool:
        """True if the descriptor, as the tensor core reads it, has the element where the page says that it lies."""
        descriptor = MatrixDescriptor.decode(int(said["descriptor"], 16))
        rows, k = self.plan.atom.shape_mnk[LINES[self.operand.name]], 32 // self.operand.dtype.bytes
        found = descriptor.addresses(rows, self.operand.major_mode, self.operand.dtype.bytes)
        return bool(found[x % rows, y % k] == byte) and said["block"] == f"{x // rows}, k-block {y // k}"

    def meets(self, x: int) -> set[int]:
        """The threads with sums of row x, or of column x."""
        m, n, _ = self.plan.cta_tile
        table = offsets_2d(Layout((m, n)))
        wanted = set((table[x] if self.operand.name == "a" else table[:, x]).tolist())
        return {thread for thread, held in enumerate(sums(self.plan)) if wanted & set(held)}


def sums(plan: GemmPlan) -> list[list[int]]:
    """The coordinates of each thread's accumulators."""
    tile = Layout(plan.cta_tile[:2])
    return [plan.tiled_mma.partition("C", tile, thread).offsets().tolist() for thread in range(plan.tiled_mma.threads)]


def _loads(plan: GemmPlan, x: OperandPath) -> tuple[np.ndarray, np.ndarray, int]:
    """Coordinates that lanes address and threads receive, and the bytes of an access."""
    copy = x.fragment_copy
    if isinstance(copy, LdmatrixLoads):
        trace = ldmatrix_trace(plan.tiled_mma, x.operand, Layout(x.tile), copy.atom, x.dtype.bits, copy.order)
        return trace.source_coords[:, :, : trace.rows, 0], trace.destination_coords, 16
    elems = copy.bits // x.dtype.bits
    received = fragment_loads(plan.tiled_mma, x.operand, x.tile, elems, copy.along_mode)
    return received[..., 0].reshape(len(received), -1, 32), received, copy.bits // 8


def turns(placed: np.ndarray, access_bytes: int) -> int:
    """Wavefronts of what is served together."""
    return int(wavefronts(placed, access_bytes))
