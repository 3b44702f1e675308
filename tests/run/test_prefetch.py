"""`g2s.a.prefetch`, `g2s.b.prefetch`: warps ask L2 for the first k-tiles of a tile, and for nothing else.

A prefetch has no effect that the executor shows, so each is carried out as a load of one byte here, which is an error
where nothing lies, and is written down.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from cutegen import api
from cutegen.build import Cache
from cutegen.contract.launch import LaunchContract, LaunchGeometry
from cutegen.ptx import instructions
from cutegen.ptx.instructions import effects
from cutegen.ptx.machine.lowering import Lowering, Step
from cutegen.ptx.machine.rows import Row
from cutegen.ptx.machine.spaces import memory_of
from cutegen.ptx.machine.warp import Warp
from cutegen.ptx.text.syntax import Instruction
from cutegen.run import Kernel
from cutegen.spec import G2s, G2sCopy, GemmSpec, Operand
from cutegen.verify import compare, float64_reference, random_operands
from tests.run.wgmma import spec

pytestmark = pytest.mark.dsl
Lines = Counter[tuple[str, int]]
"""How often each byte was prefetched: the tensor's name, and the byte in it."""
NAMES = {"argument 0": "a", "argument 1": "b"}
"""As the executor names the buffers of a call, and as a spec does."""


@pytest.fixture
def prefetched(monkeypatch: pytest.MonkeyPatch) -> Lines:
    found: Lines = Counter()

    def lower(context: Lowering, instruction: Instruction) -> Step:
        if "tensormap" in instruction.parts:
            return effects.lower_nothing(context, instruction)
        assert instruction.parts == ("prefetch", "global", "L2")
        base, offset = context.address(instruction, instruction.operands[0])
        site = context.access(instruction, "global", 1)

        def step(warp: Warp) -> None:
            memory: Any = memory_of(warp, "global")
            addresses = warp.addresses(base, offset)
            memory.read(warp, site, addresses, 1)
            for i, address in enumerate(addresses.tolist()):
                buffer = memory._covering(addresses[i : i + 1], 1)
                found[NAMES[buffer.name], address - buffer.start] += 1

        return step

    monkeypatch.setitem(instructions._ROWS, "prefetch", Row(step=lower))
    return found


def asked(case: GemmSpec, **k_tiles: int) -> GemmSpec:
    return replace(case, g2s=G2s(**{name: G2sCopy(prefetch=count) for name, count in k_tiles.items()}))


CASES = {
    "rows_of_a": (asked(spec("rows_of_a", cta=(64, 16, 128), stages=3), a=2), (150, 16, 520)),
    "rows_of_b": (asked(spec("rows_of_b", cta=(64, 64, 64)), b=3), (40, 130, 400)),
    "columns_of_b": (asked(spec("columns_of_b", "mnn", cta=(64, 64, 64)), b=2), (40, 136, 200)),
    "columns_of_a": (asked(spec("columns_of_a", "mnn", cta=(128, 64, 32)), a=2), (200, 64, 88)),
    "lines_of_bytes": (
        asked(spec("lines_of_bytes", dtype="s8", c=Operand("s32", "n"), cta=(64, 8, 256)), a=1),
        (72, 8, 400),
    ),
    "both": (asked(spec("both", cta=(64, 32, 64)), a=1, b=2), (64, 32, 192)),
}


def lines(case: GemmSpec, name: str, count: int, rows: int, k: int) -> set[int]:
    """The bytes, in a matrix without padding, at which lines of the first k-tiles of all of its tiles begin."""
    operand, (cta_m, cta_n, cta_k) = getattr(case.problem, name), case.tile.cta  # type: ignore[misc]
    tile, size = {"a": cta_m, "b": cta_n}[name], {"f16": 2, "s8": 1}[operand.dtype]
    line, deep = 128 // size, min(k, count * cta_k)
    if operand.major == "k":
        tiles = [(first, min(first + cta_k, deep)) for first in range(0, deep, cta_k)]
        return {size * (x * k + at) for x in range(rows) for first, end in tiles for at in range(first, end, line)}
    firsts = [at for first in range(0, rows, tile) for at in range(first, min(first + tile, rows), line)]
    return {size * (at * rows + x) for at in range(deep) for x in firsts}


@pytest.mark.parametrize("name", CASES)
def test_the_lines_of_the_first_k_tiles_once_each(
    name: str, prefetched: Lines, kernels: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    case, (m, n, k) = CASES[name]
    kernel = api.compile(case, "sm_90", cache=kernels)
    contract, (tile_m, tile_n) = kernel.contract, kernel.contract.cta_tile
    tiles_m, tiles_n = -(-m // tile_m), -(-n // tile_n)
    every = LaunchGeometry((tiles_m * tiles_n, 1, 1), (contract.threads, 1, 1), contract.dynamic_smem_bytes)
    monkeypatch.setattr(LaunchContract, "geometry", lambda *_, **__: every)
    run(kernel, m, n, k)
    expected: Lines = Counter()
    for operand, rows, readers in (("a", m, tiles_n), ("b", n, tiles_m)):
        copy = getattr(case.g2s, operand)
        if copy is not None:
            expected.update({(operand, at): readers for at in lines(case, operand, copy.prefetch, rows, k)})
    assert prefetched == expected


def run(kernel: Kernel, m: int, n: int, k: int, batch: int | None = None) -> None:
    a, b, out = random_operands(kernel.contract, m, n, k, seed=k, batch=batch)
    kernel.execute(a, b, out=out)
    dtype = next(x.dtype for x in kernel.contract.tensors if x.name == "c")
    assert compare(out, float64_reference(a, b), dtype=dtype).ok


def test_of_a_ctas_first_tile_alone(prefetched: Lines, kernels: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    case, (_, n, k) = CASES["rows_of_a"]
    kernel = api.compile(case, "sm_90", cache=kernels)
    one = LaunchGeometry((1, 1, 1), (kernel.contract.threads, 1, 1), kernel.contract.dynamic_smem_bytes)
    monkeypatch.setattr(LaunchContract, "geometry", lambda *_, **__: one)
    run(kernel, 150, n, k)
    assert prefetched == Counter({("a", at): 1 for at in lines(case, "a", 2, 64, k)})


def test_of_each_of_a_batch(prefetched: Lines, kernels: Cache) -> None:
    case, (_, n, k) = CASES["rows_of_a"]
    run(api.compile(case, "sm_90", cache=kernels), 64, n, k, batch=3)
    first = lines(case, "a", 2, 64, k)
    assert prefetched == Counter({("a", at + 64 * k * 2 * index): 1 for at in first for index in range(3)})


def test_of_each_slice_its_own(prefetched: Lines, kernels: Cache) -> None:
    """Two slices of five k-tiles of 128 begin at the first and at the fourth: 0 and 3 * 128."""
    case = asked(spec("slices_of_a", cta=(64, 16, 128), split_k=2), a=1)
    run(api.compile(case, "sm_90", cache=kernels), 64, 16, 520)
    firsts = [at for begin in (0, 384) for at in (begin, begin + 64)]
    assert prefetched == Counter({("a", 2 * (row * 520 + at)): 1 for row in range(64) for at in firsts})


def test_nothing_of_an_empty_product(prefetched: Lines, kernels: Cache) -> None:
    run(api.compile(CASES["rows_of_a"][0], "sm_90", cache=kernels), 64, 16, 0)
    assert not prefetched
