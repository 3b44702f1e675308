"""What the executor counts beside what the plan predicts, on kernels whose conflicts are known beforehand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from cutegen import api
from cutegen.build import Cache
from cutegen.contract.launch import CallSize, Strides
from cutegen.contract.problem import ProblemShape
from cutegen.plan import GemmPlan, plan
from cutegen.ptx import LaunchReport
from cutegen.spec import Epilogue, GemmSpec, Operand, Problem, S2r, S2rCopy, Smem, SmemLayout, Tile
from cutegen.verify import random_operands
from cutegen.verify.counts import BIAS, EDGES, LaunchCounts, count_launch

pytestmark = pytest.mark.dsl

PLAIN, PAD_8 = SmemLayout(pad=0), SmemLayout(pad=8)
SWIZZLED, ATOM = SmemLayout(swizzle=(2, 3, 3)), SmemLayout(layout="(8,(8,4)):(8,(1,64))")
# Of a 64 x 32 tile of f16: 4096 bytes are 32 wavefronts to write; 2 x 2 warps read each byte twice, so 64 to read.
WRITE, READ = 32, 64

Run = Callable[..., tuple[GemmPlan, LaunchReport, LaunchCounts]]


@pytest.fixture(scope="module")
def run(kernels: Cache) -> Run:
    """Build a kernel, execute it on random operands, count."""

    def make(
        spec: GemmSpec, problem: tuple[int, int, int], arch: str = "sm_80", **extras: np.ndarray
    ) -> tuple[GemmPlan, LaunchReport, LaunchCounts]:
        kernel, planned = api.compile(spec, arch, cache=kernels), plan(spec, arch)
        operands = random_operands(kernel.contract, *problem, seed=3)
        report = kernel.execute(*operands[:2], out=operands[2], **extras)
        return planned, report, count_launch(planned, kernel.call_size(*operands, **extras), report)

    return make


def spec_of(a: SmemLayout, b: SmemLayout, c: SmemLayout = PAD_8, s2r: S2r | None = None) -> GemmSpec:
    operand = Operand("f16", "k")
    parts = {} if s2r is None else {"s2r": s2r}
    return GemmSpec(
        family="sm80",
        problem=Problem(a=operand, b=operand, c=Operand("f16", "n")),
        tile=Tile(cta=(64, 64, 32), stages=2),
        smem=Smem(a=a, b=b),
        epilogue=Epilogue(c),
        **parts,
    )


@pytest.mark.parametrize(
    ("a", "b", "c", "write_ways", "read_ways"),
    [
        (PLAIN, SWIZZLED, PLAIN, (1, 1), (4, 1)),
        (PAD_8, ATOM, PAD_8, (2, 4), (1, 1)),
        pytest.param(SWIZZLED, PLAIN, SmemLayout(swizzle=(3, 3, 3)), (1, 1), (1, 4), marks=pytest.mark.slow),
    ],
    ids=["plain and swizzled", "padded and unswizzled atom", "swizzled and plain"],
)
def test_conflicts_are_measured_for_each_operand(
    a: SmemLayout, b: SmemLayout, c: SmemLayout, write_ways: tuple[int, int], read_ways: tuple[int, int], run: Run
) -> None:
    """2 x 2 CTAs, 4 k-tiles in 2 stages: A and B are told apart, and nothing contradicts the plan."""
    _, _, counts = run(spec_of(a, b, c), (128, 128, 128))
    assert counts.differing() == {}
    k_blocks_read = 4 * (4 * 2 + 1)
    for i, name in enumerate("ab"):
        assert counts.wavefronts[f"g2s.{name}"].measured == 4 * 4 * WRITE * write_ways[i]
        assert counts.wavefronts[f"s2r.{name}"].measured == k_blocks_read * READ // 2 * read_ways[i]
        assert counts.sectors[f"g2s.{name}"].measured == 4 * 4 * 64 * 32 * 2 // 32
    assert counts.sectors["epilogue"].measured == 128 * 128 * 2 // 32
    written = counts.wavefronts["epilogue.write"].measured
    assert written == 4 * 64 * 64 * 2 // 128 * (8 if c is PLAIN else 1)
    assert sum(count.measured for name, count in counts.executed.items() if name.startswith("mma")) == 128**3 // 2048
    assert {name for name, count in counts.wavefronts.items() if count.predicted is None} == set()


def test_short_k_is_fetched_once_and_edges_are_not_predicted(run: Run) -> None:
    _, _, counts = run(spec_of(PLAIN, SWIZZLED, PLAIN), (70, 8, 8))
    assert counts.differing() == {}
    assert counts.wavefronts["g2s.b"].measured == 2 * WRITE
    assert counts.wavefronts["g2s.b"].why == "32 x 2 CTAs x 1 k-tile"
    assert (counts.sectors["g2s.a"].predicted, counts.sectors["g2s.a"].why) == (None, EDGES)
    assert counts.wavefronts["epilogue.read"].predicted is None


def test_plain_loads_of_both_operands_are_counted_together(run: Run) -> None:
    universal = S2rCopy(atom="universal")
    _, _, counts = run(spec_of(SWIZZLED, PAD_8, s2r=S2r(a=universal, b=universal)), (64, 64, 96))
    assert counts.differing() == {}
    assert set(counts.wavefronts) == {"g2s.a", "g2s.b", "s2r", "epilogue.write", "epilogue.read"}


@pytest.mark.parametrize("family", ["sm80", "sm120", "sm90"])
def test_a_bias_is_counted_wherever_the_kernel_loads_it(family: str, run: Run) -> None:
    """A kernel of wgmma loads it before the main loop, where no other ordinary load of global memory is."""
    operand = Operand("f16", "k")
    problem = Problem(a=operand, b=operand, c=Operand("f16", "n"))
    spec = GemmSpec(family=family, problem=problem, tile=Tile(cta=(64, 64, 64)), epilogue=Epilogue(ops=("bias_n",)))
    _, report, counts = run(spec, (64, 64, 64), "sm_90", bias=np.ones(64, np.float16))
    assert counts.differing() == {}
    found = counts.sectors["epilogue.read"]
    assert (found.predicted, found.why) == (None, BIAS)
    assert found.measured == sum(site.sectors for site in report.matching("ld.global")) > 0


def test_a_report_that_contradicts_the_plan_is_told(run: Run) -> None:
    planned, report, _ = run(spec_of(PLAIN, SWIZZLED, PLAIN), (64, 64, 32))
    first = next(i for i, row in enumerate(report.instructions) if row.opcode.startswith("ldmatrix"))
    rows = list(report.instructions)
    rows[first] = replace(rows[first], wavefronts=rows[first].wavefronts + 1)
    size = CallSize(problem=ProblemShape(64, 64, 32), strides={"a": Strides(32), "b": Strides(32), "c": Strides(64)})
    (name,) = count_launch(planned, size, replace(report, instructions=tuple(rows))).differing()
    assert name == "wavefronts s2r.a"


def test_conflicts_of_transposed_bytes(run: Run) -> None:
    """Rows of 64 bytes: of eight lanes that read one row after the other, four want the same banks, unless swizzled."""
    problem = Problem(a=Operand("s8", "m"), b=Operand("s8", "n"), c=Operand("s32", "n"))
    smem = Smem(a=PLAIN, b=SmemLayout(swizzle=(2, 4, 3)))
    spec = GemmSpec(family="sm80", problem=problem, tile=Tile(cta=(64, 64, 64), stages=2), smem=smem)
    planned, report, counts = run(spec, (128, 64, 256), "sm_120")
    found = planned.predictions.wavefronts
    assert [(found[f"s2r.{x}"].ideal, found[f"s2r.{x}"].predicted) for x in "ab"] == [(READ, 4 * READ), (READ, READ)]
    assert counts.differing() == {}
    assert {"s2r.a", "s2r.b"} <= counts.wavefronts.keys()
    assert report.executed("ldmatrix.sync.aligned.m16n16.x2.trans") == report.executed("ldmatrix") > 0
