"""The CuTe DSL is the reference: opcodes and descriptors in the PTX that it makes for sm_90a, read without a GPU."""

from __future__ import annotations

import operator
import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from cutegen.algebra import OperandName, modes, offsets, size
from cutegen.hardware import (
    GMMA_LAYOUTS,
    WGMMA_ATOMS,
    MmaAtom,
    OperandDescriptors,
    OperandSource,
    operand_descriptors,
)

pytestmark = pytest.mark.dsl


@dataclass(frozen=True)
class Case:
    """An atom on tiles of two stages; `a` and `b` are kinds of shared layouts, as the DSL calls them."""

    atom: str
    a: str
    tile_a: tuple[int, int]
    b: str
    tile_b: tuple[int, int]

    @property
    def row(self) -> MmaAtom:
        return WGMMA_ATOMS[self.atom]

    @property
    def types(self) -> tuple[str, str, str]:
        return self.row.c_dtype.name, self.row.a_dtype.name, self.row.b_dtype.name

    @property
    def n(self) -> int:
        return self.row.shape_mnk[1]

    @property
    def a_in_registers(self) -> bool:
        return self.row.source("A") is OperandSource.RMEM

    def descriptors(self, op: OperandName) -> OperandDescriptors:
        kind, tile, rows = (self.a, self.tile_a, 64) if op == "A" else (self.b, self.tile_b, self.n)
        layout, element_bytes = GMMA_LAYOUTS[f"Layout_{kind}_Atom"], self.row.a_dtype.bytes
        return operand_descriptors(layout.tile((*tile, 2), 8 * element_bytes), layout.major_mode, element_bytes, rows)


CASES = [
    Case("SM90_64x64x16_F32F16F16_SS", "K_SW128", (128, 64), "K_SW128", (64, 64)),
    Case("SM90_64x8x16_F16F16F16_SS", "K_SW64", (64, 32), "K_SW32", (8, 32)),
    Case("SM90_64x192x16_F32BF16BF16_SS", "MN_SW128", (128, 32), "MN_SW64", (192, 32)),
    Case("SM90_64x64x16_F32F16F16_SS", "MN_INTER", (64, 32), "MN_SW32", (64, 32)),
    Case("SM90_64x8x16_F32F16F16_SS", "K_INTER", (64, 32), "MN_INTER", (8, 32)),
    Case("SM90_64x128x16_F32F16F16_SS", "MN_SW64", (64, 16), "MN_SW128", (128, 16)),
    Case("SM90_64x64x16_F32F16F16_SS", "MN_SW32", (64, 16), "MN_SW128", (64, 16)),
    Case("SM90_64x32x16_F32F16F16_SS", "K_SW128", (64, 64), "MN_SW128", (64, 64)),
    Case("SM90_64x96x16_F32BF16BF16_RS", "K_SW128", (64, 64), "MN_SW64", (96, 64)),
    Case("SM90_64x128x32_F32E4M3E5M2_SS_TN", "K_SW128", (64, 128), "K_SW64", (128, 128)),
    Case("SM90_64x32x32_F16E5M2E5M2_RS_TN", "K_INTER", (64, 64), "K_INTER", (32, 64)),
    Case("SM90_64x24x32_S32S8U8_SS_TN_SATURATE", "K_SW64", (128, 64), "K_SW32", (24, 64)),
]


BINARY = {"add": operator.add, "or": operator.or_, "and": operator.and_, "shr": operator.rshift}
MASK = (1 << 64) - 1
COPIES = ("mov", "cvt", "shfl")


@dataclass(frozen=True)
class Issued:
    """One wgmma: its opcode, the descriptors of A and B, None for registers, and the immediates at its end."""

    opcode: str
    a: int | None
    b: int
    immediates: list[int]


def issued(ptx: str) -> Iterator[Issued]:
    """Each wgmma of a straight line, whose shared memory begins at address 0."""
    value: dict[str, int] = {}
    for line in re.findall(r"^\s*([a-z][^;]*);", ptx, re.MULTILINE):
        opcode, _, rest = line.replace("\t", " ").partition(" ")
        if opcode.startswith("wgmma.mma_async"):
            yield multiplied(opcode, rest, value)
        else:
            step(opcode.split(".")[0], re.findall(r"\{[^}]*\}|[%\w.-]+", rest), value)


def multiplied(opcode: str, rest: str, value: dict[str, int]) -> Issued:
    *groups, last = re.split(r"\{[^}]*\},?", rest)
    registers, operands = len(groups) == 2, [word.strip() for word in last.split(",")]
    a = None if registers else value[operands.pop(0)]
    return Issued(opcode, a, value[operands[0]], [int(word) for word in operands[2:]])


def step(name: str, operands: list[str], value: dict[str, int]) -> None:
    """Carry out an instruction of those that make descriptors; others leave what they write unknown."""
    to, *sources = operands or [""]

    def known(word: str) -> int | None:
        if "shmem" in word:
            return 0
        return int(word) & MASK if word.lstrip("-").isdigit() else value.get(word)

    if name == "mov" and to.startswith("{") and (whole := known(sources[0])) is not None:
        low, high = re.findall(r"%\w+", to)
        value[low], value[high] = whole & 0xFFFFFFFF, whole >> 32
    elif name == "mov" and sources and sources[0].startswith("{"):
        low, high = (value.get(word) for word in re.findall(r"%\w+", sources[0]))
        if low is not None and high is not None:
            value[to] = low | high << 32
    elif name in COPIES and (copied := known(sources[0])) is not None:
        value[to] = copied
    elif name in BINARY and None not in (numbers := [known(word) for word in sources]):
        value[to] = BINARY[name](*numbers)


@pytest.fixture(scope="module")
def by_the_dsl(tmp_path_factory: pytest.TempPathFactory) -> list[Issued]:
    from tests.hardware.dsl.descriptors import ptx_of

    return list(issued(ptx_of(CASES, tmp_path_factory.mktemp("ptx"))))


def expected(case: Case) -> Iterator[Issued]:
    """Stage by stage, K block by K block, A's blocks first, then B's: how the kernel and `cute.gemm` go."""
    of_a, of_b = case.descriptors("A"), case.descriptors("B")
    steps_a, steps_b = offsets_by_block(of_a), offsets_by_block(of_b)
    for stage, k_block, n_block, m_block in np.ndindex(*steps_b.shape, steps_a.shape[2]):
        a = of_a.first.encode() + int(steps_a[stage, k_block, m_block])
        b = of_b.first.encode() + int(steps_b[stage, k_block, n_block])
        yield Issued(case.row.ptx, None if case.a_in_registers else a, b, immediates(case))


def offsets_by_block(found: OperandDescriptors) -> np.ndarray:
    """[stage, K block, M|N block]"""
    rows, k_blocks, stages = map(size, modes(found.steps))
    return offsets(found.steps).reshape(stages, k_blocks, rows)


def immediates(case: Case) -> list[int]:
    """imm-scale of A and B, then whether they are transposed, as far as the form has them."""
    if case.row.c_dtype.is_integer:
        return []
    turned = [int(kind.startswith("MN_")) for kind in (case.a, case.b)] if case.row.a_dtype.bits == 16 else []
    return [1, 1, *(turned[1:] if case.a_in_registers else turned)]


def test_the_dsl_issues_the_same_opcodes_on_the_same_descriptors(by_the_dsl: list[Issued]) -> None:
    ours = [each for case in CASES for each in expected(case)]
    assert len(ours) == len(by_the_dsl)
    for mine, dsl in zip(ours, by_the_dsl, strict=True):
        assert mine == dsl, f"{mine} | {dsl}"
