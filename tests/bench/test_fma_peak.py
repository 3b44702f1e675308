"""The ceiling of kernels without tensor cores, and what bounds them by arithmetic."""

from __future__ import annotations

import numpy as np

from cutegen.analysis.limits import k_tile_cost, limits
from cutegen.bench import mma_peak
from cutegen.bench.mma_types import FMA, MmaTypes
from cutegen.contract.problem import ProblemShape
from cutegen.hardware import SM_RATES, Instruction
from cutegen.plan import plan
from cutegen.ptx import Program
from cutegen.spec import load_spec

THREADS = 32 * mma_peak.WARPS_PER_CTA


def run(iterations: int, text: str = mma_peak.ptx(FMA)) -> tuple[np.ndarray, int]:
    program = Program.parse(text.replace("%clock64", "0"))
    sums = np.zeros(THREADS, np.uint32)
    arguments = [sums, np.zeros(1, np.int64), np.uint32(iterations), np.uint32(5)]
    report = program.launch(mma_peak.ENTRY, grid=(1,), block=(THREADS,), args=arguments)
    return sums, report.executed(FMA.atom.ptx)


def test_it_executes_the_operations_that_it_counts() -> None:
    sums, executed = run(3)
    assert executed == 3 * mma_peak.repeats(FMA) * mma_peak.MMA_PER_ITERATION * mma_peak.WARPS_PER_CTA
    assert 2 * 32 * executed == mma_peak.kernel(FMA).flops(3, 1)
    assert len(np.unique(sums)) > 0.95 * THREADS


def test_the_loop_itself_hardly_counts() -> None:
    lines = [line.strip() for line in mma_peak.ptx(FMA).splitlines()]
    body = lines[lines.index("again:") : lines.index("@%more bra again;") + 1]
    assert sum(line.startswith("fma") for line in body) / len(body) > 0.98


def test_narrower_operands_have_the_same_ceiling() -> None:
    """A loop of half as many chains per turn would measure its own instructions, too."""
    assert {MmaTypes.of(x, "f32", Instruction.FMA) for x in ("f16", "bf16", "f32")} == {FMA}


def test_sums_do_not_run_away() -> None:
    """B and -B take turns, so an accumulator comes back to where it began, to rounding, however long the loop is."""
    lines = mma_peak.ptx(FMA).splitlines()
    first_sum_alone = [line for line in lines if "%digest, %digest, %c" not in line or line.endswith("%c0;")]
    once, often = (run(iterations, "\n".join(first_sum_alone))[0].view(np.float32) for iterations in (1, 20))
    assert (np.abs(once) > 0.4).all()
    np.testing.assert_allclose(often, once, atol=1e-3)


def test_the_tutorials_kernel_is_bounded_by_shared_memory_before_multiply_adds() -> None:
    """A k-tile: 2 x 128 x 128 x 8 operations at 256 a cycle; 2 x 32 wavefronts written and 2 x 512 read."""
    made = plan(load_spec("simt_sgemm_nt"), "sm_90")
    found = limits(k_tile_cost(made, ProblemShape(4096, 4096, 4096), None), SM_RATES["sm_90"])
    cycles = {limit.resource: limit.cycles for limit in found}
    assert (cycles["FMA units"], cycles["shared memory"]) == (1024, 1088)
    assert found[0].resource == "shared memory"
