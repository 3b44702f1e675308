"""The wgmma peak kernel, executed on the CPU: it multiplies what it says, as often as it says, and in range."""

from __future__ import annotations

import numpy as np
import pytest

from cutegen.bench import read_peak, wgmma_peak
from cutegen.bench.ceilings import peak_kernel
from cutegen.bench.mma_types import MmaTypes
from cutegen.hardware import SM_RATES, Instruction
from cutegen.ptx import LaunchReport, Program

TYPES = [MmaTypes(*names, Instruction.WGMMA) for names in (("f16", "f32"), ("e4m3", "f32"), ("s8", "s32"))]
by_types = pytest.mark.parametrize("types", TYPES, ids=str)


def run(types: MmaTypes, *, iterations: int, ctas: int = 1, text: str = "") -> tuple[np.ndarray, LaunchReport]:
    """The digests, and the executor's report. It has no clock, so zero stands for it."""
    kernel = peak_kernel(types)
    program = Program.parse((text or kernel.ptx).replace("%clock64", "0"))
    sums, cycles = np.zeros(ctas * kernel.threads, np.uint32), np.full(ctas, -1, np.int64)
    report = program.launch(
        kernel.entry,
        grid=(ctas,),
        block=(kernel.threads,),
        args=[sums, cycles, np.uint32(iterations), np.uint32(5)],
        dynamic_smem_bytes=kernel.smem_bytes,
    )
    assert (cycles == 0).all()
    return sums, report


@pytest.mark.parametrize("types", [*TYPES[:2], pytest.param(TYPES[2], marks=pytest.mark.slow)], ids=str)
def test_it_executes_the_operations_that_it_counts(types: MmaTypes) -> None:
    sums, report = run(types, iterations=1)
    m, n, k = types.atom.shape_mnk
    assert (m, n, k * types.atom.a_dtype.bytes) == (64, 256, 32)
    warps = report.executed(types.atom.ptx)  # each of a warpgroup's four
    assert warps // 4 * 2 * m * n * k == peak_kernel(types).flops(1, ctas=1)
    assert len(np.unique(sums)) > 0.95 * len(sums)


def test_sums_do_not_run_away() -> None:
    """B and -B take turns, so an accumulator comes back to where it began, to rounding, however long the loop is."""
    types, lines = TYPES[0], wgmma_peak.ptx(TYPES[0]).splitlines()
    first_sum_alone = [line for line in lines if "%digest, %digest, %c" not in line or line.endswith("%c0;")]
    text = "\n".join(first_sum_alone)
    once, often = (run(types, iterations=i, text=text)[0].view(np.float32) for i in (1, 3))
    assert (np.abs(once) > 0.4).all()
    np.testing.assert_allclose(often, once, atol=0.01)


def test_every_instruction_of_an_iteration_has_operands_of_its_own() -> None:
    lines = [line for line in wgmma_peak.ptx(TYPES[0]).splitlines() if "wgmma.mma_async" in line]
    assert len(set(lines)) == len(lines) == wgmma_peak.WGMMA_PER_ITERATION


@by_types
def test_the_cited_rate_is_reachable_from_shared_memory(types: MmaTypes) -> None:
    """An instruction reads 64 rows of A and 256 of B, 32 bytes each, and shared memory serves 128 a cycle."""
    cycles = types.atom.flops / SM_RATES["sm_90"].flops_of(Instruction.WGMMA, types.operands)
    assert cycles > (64 + 256) * 32 / 128


def test_libraries_are_held_against_the_fastest_instruction_there_is() -> None:
    hopper = frozenset({Instruction.WGMMA, Instruction.MMA_SYNC})
    assert MmaTypes.fastest("f16", "f32", hopper).instruction == "wgmma"
    assert MmaTypes.fastest("u8", "s32", hopper) == MmaTypes("s8", "s32", Instruction.WGMMA)
    assert MmaTypes.fastest("tf32", "f32", hopper).instruction == "mma.sync"  # of which the DSL has no wgmma
    assert MmaTypes.fastest("f32", "f32", hopper).instruction == "fma"
    assert MmaTypes.fastest("f16", "f32", frozenset()).instruction == "mma.sync"


def test_the_reading_kernel_reads_every_byte_once() -> None:
    """Each CTA's part has the digest of its own: with one word changed to what is looked for, one thread finds it."""
    program = Program.parse(read_peak.ptx())
    source, found = np.zeros((2, read_peak.CTA_BYTES // 4), np.uint32), np.zeros(1, np.uint32)

    def launch() -> LaunchReport:
        return program.launch(
            read_peak.ENTRY, grid=(2,), block=(read_peak.THREADS,), args=[source, found], dynamic_smem_bytes=0
        )

    report = launch()
    assert found[0] == 0
    assert report.executed("ld.global.v4.u32") * 32 * 16 == source.nbytes
    for cta, word in ((0, 0), (1, source.shape[1] - 1), (1, 4321)):
        source[:], found[:] = 0, 0
        source[cta, word] = 0x5EED5EED
        launch()
        assert found[0] == 0x5EED5EED
