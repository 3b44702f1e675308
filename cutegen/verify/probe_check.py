"""Checks that every register holds the element that its MMA needs: elements are numbered, loaded and identified."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cutegen.hardware.units import REGISTER_BITS
from cutegen.plan import ProbePlan
from cutegen.plan.geometry import Place
from cutegen.plan.values.fragment_table import FragmentTable
from cutegen.run.call.storage import CallTensor, call_tensor, numpy_dtype
from cutegen.run.probe import Registers

Bits = NDArray[np.uint32]
Element = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongRegister:
    """The first wrong value.

    It is at `place` (MMA, MMA_X, MMA_K) of the thread's fragment of `stage`, in its 32-bit register `register`. `found`
    and `expected` are (x, k) of A or B; `found` is None if the bits are not an element's.
    """

    thread: int
    stage: int
    register: int
    place: Place
    found: Element | None
    expected: Element


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """32-bit registers of all threads and stages, and how many of them are correct."""

    operand: str
    registers: int
    agreeing: int
    first_wrong: WrongRegister | None

    @property
    def ok(self) -> bool:
        """Return whether all are correct."""
        return self.agreeing == self.registers


def check_registers(
    plan: ProbePlan, load: Callable[[Any, Any], Registers], *, seed: int, framework: str = "numpy", device: str = "cpu"
) -> tuple[Received, Received]:
    """Compare the results of `load`, a probe of `plan`, with the fragments of its MMA, for A and B.

    Each element is filled with its own number, in as many loads as its bits need, and once with random bits. Nothing
    computes on them, so every pattern, including NaN, must arrive unchanged.
    """
    tensors = [call_tensor(x) for x in plan.launch.operands]
    tables = [plan.fragments(operand) for operand in plan.operands]
    k = plan.extents[2]
    shapes = [(table.tile[0], k) for table in tables]

    def arriving(patterns: list[Bits]) -> list[Bits]:
        operands = [
            _operand(tensor, bits.reshape(shape, order="F"), framework, device)
            for tensor, bits, shape in zip(tensors, patterns, shapes, strict=True)
        ]
        return [_bits(table, framework) for table in load(*operands)]

    numbers = [np.arange(x * y, dtype=np.uint32) for x, y in shapes]
    width = tables[0].bits
    held = [np.zeros((plan.gemm.threads, plan.gemm.stages * table.values), np.uint32) for table in tables]
    for shift in range(0, max(int(each[-1]).bit_length() for each in numbers), width):
        part = arriving([each >> np.uint32(shift) & _mask(width) for each in numbers])
        held = [one | bits << np.uint32(shift) for one, bits in zip(held, part, strict=True)]
    random = np.random.default_rng(seed)
    noise = [random.integers(_mask(width), size=each.size, dtype=np.uint32, endpoint=True) for each in numbers]
    heard = arriving(noise)
    a, b = (_received(plan, table, held[i], noise[i], heard[i]) for i, table in enumerate(tables))
    return a, b


def _mask(bits: int) -> np.uint32:
    return np.uint32((1 << bits) - 1)


def _received(plan: ProbePlan, table: FragmentTable, held: Bits, noise: Bits, heard: Bits) -> Received:
    """Compare `held` and `heard` [thread, value of all stages], the results for numbered and for random elements."""
    stage_elems = table.tile[0] * table.tile[1]
    stages = np.arange(plan.gemm.stages)[:, None] * stage_elems
    wanted = (table.coordinates[:, None, :] + stages).reshape(held.shape)
    wrong = (held != wanted) | (heard != noise[wanted])
    per_register = REGISTER_BITS // table.bits
    registers = wrong.reshape(len(wrong), -1, per_register).any(axis=2)
    return Received(
        operand=table.operand.lower(),
        registers=registers.size,
        agreeing=registers.size - int(registers.sum()),
        first_wrong=_first_wrong(table, wrong, held, wanted, noise.size) if wrong.any() else None,
    )


def _first_wrong(
    table: FragmentTable, wrong: NDArray[np.bool_], held: Bits, wanted: NDArray[np.int64], elems: int
) -> WrongRegister:
    thread, index = (int(i) for i in np.argwhere(wrong)[0])
    stage, value = divmod(index, table.values)
    found, expected = int(held[thread, index]), int(wanted[thread, index])
    known = found < elems and found != expected
    return WrongRegister(
        thread=thread,
        stage=stage,
        register=value * table.bits // REGISTER_BITS,
        place=table.place(value),
        found=table.element(found) if known else None,
        expected=table.element(expected),
    )


def _operand(tensor: CallTensor, bits: Bits, framework: str, device: str) -> Any:
    """Return A (M,K), or B as (K,N), whose elements have the bit patterns `bits` (X, K)."""
    dtype = tensor.dtype
    patterns = bits.astype(f"uint{dtype.bits}")
    matrix = patterns.T if tensor.name == "b" else patterns
    stored = np.ascontiguousarray(matrix if tensor.row_major else matrix.T)
    if framework == "torch":
        import torch

        whole = torch.from_numpy(stored.view(f"int{dtype.bits}")).to(device).view(getattr(torch, dtype.torch_name))
    else:
        whole = stored.view(numpy_dtype(dtype.torch_name))
    return whole if tensor.row_major else whole.T


def _bits(table: Any, framework: str) -> Bits:
    """Return the bit patterns of a table."""
    if framework == "torch":
        import torch

        table = table.view(getattr(torch, f"int{8 * table.element_size()}")).cpu().numpy()
    return np.ascontiguousarray(table).view(f"uint{8 * table.itemsize}").astype(np.uint32)
