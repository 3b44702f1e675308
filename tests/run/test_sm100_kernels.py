"""Kernels of family sm100 on the CPU: right, and ordered by what PTX guarantees alone. They have never run on hardware.

`sm100_cases.py` makes the kernels, and tries a sample of any size.
"""

from __future__ import annotations

import ast
import re

import pytest

from cutegen.build import Cache
from cutegen.ptx import ViolationKind
from cutegen.render import render
from cutegen.spec import GemmSpec, Operand, Problem, Tile
from tests.run.sm100_cases import Case, compiled, random_case, shown, try_case

pytestmark = pytest.mark.dsl
FEW = (13,)
MANY = tuple(seed for seed in range(40) if seed not in FEW)


@pytest.mark.parametrize("seed", [*FEW, *(pytest.param(seed, marks=pytest.mark.slow) for seed in MANY)])
def test_a_random_kernel_is_right(seed: int, kernels: Cache) -> None:
    try_case(random_case(seed), kernels)


def _case(m: int, n: int, k: int) -> Case:
    """Tiles of 128 x 32 in k-tiles of 64, two stages: a CTA of two has several tiles, more than buffers of sums."""
    operands = {name: Operand("f16", major) for name, major in zip("abc", "kkn", strict=True)}
    spec = GemmSpec(family="sm100", problem=Problem(**operands), tile=Tile((128, 32, 64), 2), name="small")  # type: ignore[arg-type]
    return Case(spec, m, n, k, None)


SEVERAL_TILES = _case(256, 160, 328)
_MIXED = Problem(a=Operand("e4m3", "k"), b=Operand("e5m2", "n"), c=Operand("f16", "n"))
MIXED_TYPES = Case(
    GemmSpec(family="sm100", problem=_MIXED, tile=Tile((128, 32, 64), 2), name="mixed"), 128, 64, 328, None
)


def test_it_imports_the_dsl_alone(kernels: Cache) -> None:
    planned, _ = compiled(SEVERAL_TILES, "sm_100", kernels)
    tree = ast.walk(ast.parse(render(planned).text))
    modules = {node.module for node in tree if isinstance(node, ast.ImportFrom)}
    assert modules == {"cutlass", "cutlass._mlir.dialects", "cutlass.cute.nvgpu", "cutlass.cute.typing"}


AFTER, WAIT, COMMIT = "tcgen05.fence::after_thread_sync;", "tcgen05.wait::ld.sync.aligned;", "tcgen05.commit"
PLANTED: dict[str, tuple[str | re.Pattern[str], str]] = {
    "no fence after a wait": (AFTER, ""),
    "a fence missing before an arrival": ("tcgen05.fence::before_thread_sync;", ""),
    "sums released before their loads are complete": (WAIT, ""),
    "a stage released by an arrival, and not by the multiplications": (
        re.compile(r"tcgen05\.commit\.\S+ \[(%r\d+)\];"),
        r"mbarrier.arrive.shared.b64 _, [\1];",
    ),
    "a descriptor with another stride": (f"{0x4000404000010000}", f"{0x4000402000010000}"),
    "an instruction for fewer columns": (f"{128 << 20 | 32 // 8 << 17 | 0x10}", f"{128 << 20 | 16 // 8 << 17 | 0x10}"),
    "another parity": (re.compile(r"(xor\.b32 .*), 1;"), r"\1, 0;"),
    "fewer columns allocated": (re.compile(r"(mov\.b32\s+%r\d+), 64;"), r"\1, 32;"),
    "memory of tensors that is not freed": (re.compile(r"tcgen05\.dealloc[^;]*;"), ""),
}
"""A mistake in every place of the text."""


@pytest.mark.parametrize("mistake", PLANTED)
def test_a_mistake_is_noticed(mistake: str, kernels: Cache) -> None:
    assert shown(SEVERAL_TILES, kernels, PLANTED[mistake])


_INSTRUCTION = 128 << 20 | 32 // 8 << 17 | 1 << 16 | 1 << 10 | 1 << 4
OF_MIXED_TYPES = {
    "B's elements read as A's type": _INSTRUCTION ^ 1 << 10,
    "types of A and B exchanged": _INSTRUCTION ^ (1 << 10 | 1 << 7),
    "B read as K-major": _INSTRUCTION ^ 1 << 16,
}


@pytest.mark.parametrize("mistake", OF_MIXED_TYPES)
def test_a_wrong_type_or_major_is_noticed(mistake: str, kernels: Cache) -> None:
    change = f"{_INSTRUCTION}", f"{OF_MIXED_TYPES[mistake]}"
    assert shown(MIXED_TYPES, kernels, change)


def test_a_missing_fence_is_a_convention(kernels: Cache) -> None:
    """Hardware does without it as far as is known; the kernels have it all the same."""
    assert ViolationKind.CONVENTION.value in shown(SEVERAL_TILES, kernels, PLANTED["no fence after a wait"]).lower()
