"""Suites, rooflines and limits against numbers worked out by hand."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest

from cutegen.analysis.limits import k_tile_cost, limits, shares
from cutegen.bench.ceilings import Ceilings, MmaCeiling
from cutegen.bench.mma_types import MmaTypes
from cutegen.bench.roofline_svg import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, Point, Roof, roofline_svg
from cutegen.bench.suites import SUITES
from cutegen.contract.problem import ProblemShape
from cutegen.hardware import SM_RATES, TARGETS, Instruction, SmRates, targets_with
from cutegen.plan import plan
from cutegen.spec import load_spec
from tests.gpu.cases import CASES

TN = plan(load_spec("sm80_hgemm_tn"), "sm_80")


def test_a_problem_counts_its_operations_and_bytes() -> None:
    extents = ProblemShape(8192, 4096, 14336)
    assert extents.flops == 2 * 8192 * 4096 * 14336 == 962_072_674_304
    assert extents.compulsory_bytes(2, 2, 2) == 2 * (8192 * 14336 + 4096 * 14336 + 8192 * 4096) == 419_430_400
    assert str(extents) == "8192x4096x14336"


def test_suites_hold_what_their_names_say() -> None:
    assert set(SUITES) == {"square", "llm", "skinny", "seed"}
    for name, problems in SUITES.items():
        assert len(set(problems)) == len(problems), name
        assert all(x.m % 8 == x.n % 8 == x.k % 8 == 0 for x in problems), name
    assert all(x.m == x.n == x.k for x in SUITES["square"])
    assert all(min(x.m, x.n) <= 256 for x in SUITES["skinny"])
    assert ProblemShape(4096, 4096, 4096) in SUITES["seed"]
    assert ProblemShape(512, 8192, 8192) in SUITES["seed"]


@pytest.mark.parametrize(
    ("arch", "operands", "flops"),
    [
        ("sm_80", "f16", 2048),
        ("sm_80", "bf16", 2048),
        ("sm_80", "tf32", 1024),
        ("sm_80", "s8", 4096),
        ("sm_89", "e4m3", 2048),
        ("sm_90", "e4m3", 0.629 * 4096),
        ("sm_100", "e5m2", None),
    ],
)
def test_rates_go_with_the_bytes_of_operands(arch: str, operands: str, flops: float | None) -> None:
    """A100's white paper: 156, 312 and 624 TFLOP/s and TOP/s of tf32, f16 and int8. On sm_90 8-bit floats are f16."""
    assert SM_RATES[arch].flops_of(Instruction.MMA_SYNC, operands) == flops


@pytest.mark.parametrize(
    ("operands", "tops"), [("tf32", 494.7), ("f16", 989.4), ("bf16", 989.4), ("e4m3", 1978.9), ("s8", 1978.9)]
)
def test_rates_of_wgmma_are_those_of_the_white_paper(operands: str, tops: float) -> None:
    """H100 SXM5, dense: 132 multiprocessors at 1830 MHz."""
    flops = SM_RATES["sm_90"].flops_of(Instruction.WGMMA, operands)
    assert flops is not None
    assert flops * 132 * 1830e6 / 1e12 == pytest.approx(tops, rel=1e-3)


def test_a_target_without_wgmma_has_no_rate_of_it() -> None:
    rated = {name for name, rates in SM_RATES.items() if Instruction.WGMMA in rates.flops}
    assert rated == set(targets_with(Instruction.WGMMA))


def test_every_target_has_rates() -> None:
    assert SM_RATES.keys() == TARGETS.keys()


def test_a_k_tile_asks_for_what_a_pencil_says() -> None:
    """128x128x64 in f16, four warps of 64x64: each reads 2 x 64 x 64 halfs a k-tile, 16 KiB, 128 bytes a wavefront.

    One of four k-blocks is read once more, for all of 64 k-tiles.
    """
    problem = ProblemShape(4096, 4096, 4096)
    cost = k_tile_cost(TN, problem, issued_per_warp=250)
    assert cost.flops == 2 * 128 * 128 * 64
    reads, writes = 4 * 16384 // 128, 2 * 128 * 64 * 2 // 128
    assert cost.wavefronts == reads + reads / 4 / 64 + writes
    assert cost.l2_bytes == 2 * 128 * 64 * 2
    assert cost.issued == 4 * 250
    assert cost.hbm_bytes == 3 * 4096 * 4096 * 2 / (32 * 32 * 64)


def test_the_tightest_resource_comes_first() -> None:
    cost = k_tile_cost(TN, ProblemShape(4096, 4096, 4096), issued_per_warp=250)
    found = limits(cost, SmRates(flops={Instruction.MMA_SYNC: 2048}), hbm_bytes_per_cycle=16)
    cycles = {limit.resource: limit.cycles for limit in found}
    assert cycles == {
        "tensor cores": 1024,
        "shared memory": 770,
        "issue slots": 250,
        "device memory": 96,
        "L2": None,
    }
    assert list(cycles) == ["tensor cores", "shared memory", "issue slots", "device memory", "L2"]
    assert shares(found) == {
        "tensor cores": 1,
        "shared memory": 770 / 1024,
        "issue slots": 250 / 1024,
        "device memory": 96 / 1024,
    }


def test_shared_memory_bounds_a_faster_tensor_core() -> None:
    """A 64x64 warp tile reads 4 KiB of fragments for each k16 step: 128 wavefronts for 4 warps, 204.8 tensor cycles."""
    cost = k_tile_cost(TN, ProblemShape(4096, 4096, 4096), issued_per_warp=None)
    slow, fast = (limits(cost, SmRates(flops={Instruction.MMA_SYNC: rate})) for rate in (2560, 4096))
    assert (slow[0].resource, slow[0].cycles) == ("tensor cores", 4 * 204.8)
    assert (fast[0].resource, fast[0].cycles) == ("shared memory", 770)
    assert all(limit.resource != "issue slots" for limit in slow)


def test_conflicting_writes_are_in_the_cost() -> None:
    """The atom (8,(8,8)):(8,(1,64)) without its swizzle: an H200 takes 32 wavefronts for each warp's cp.async.

    16 k-tiles, and one of four k-blocks of them read ahead.
    """
    unswizzled = plan(CASES["counters_bk64_unswizzled_atom"], "sm_90")
    cp_async = 2 * 128 * 64 * 2 // 16 // 32
    assert (
        k_tile_cost(unswizzled, ProblemShape(1024, 1024, 1024), None).wavefronts == 512 + 512 / 4 / 16 + 32 * cp_async
    )


def test_ceilings_tell_the_clock() -> None:
    """100 multiprocessors, 2000 operations a cycle each, 300 TFLOP/s: 1.5 GHz."""
    types = MmaTypes("f16", "f32")
    row = MmaCeiling(types=types, flops_per_s=300e12, flops_per_cycle=2000)
    ceilings = Ceilings(device="a GPU", sms=100, mma=(row,), copy_bytes_per_s=0.8e12, read_bytes_per_s=1e12)
    assert ceilings.of(types).tflops == 300
    assert ceilings.clock_hz(types) == 1.5e9


def test_the_roofline_is_well_formed_and_points_lie_where_they_should() -> None:
    """X from 10 to 1000 operations a byte, y from 1 to 1000 TFLOP/s: (100, 100) lies at a half and at two thirds."""
    points = [Point("a & b", "<1>", 100, 100), Point("a & b", "3", 10, 1), Point("c", "2", 1000, 1)]
    text = roofline_svg("f16 < bf16", [Roof("mma.sync", 600)], 4e12, points)
    root = ElementTree.fromstring(text)
    circles = [x for x in root.iter("{http://www.w3.org/2000/svg}circle") if len(x)]
    assert [x[0].text for x in circles] == ["a & b, <1>: 100.0 TFLOP/s", "a & b, 3: 1.0 TFLOP/s", "c, 2: 1.0 TFLOP/s"]
    assert float(circles[0].attrib["cx"]) == pytest.approx(LEFT + (WIDTH - LEFT - RIGHT) / 2, abs=0.1)
    assert float(circles[0].attrib["cy"]) == pytest.approx(TOP + (HEIGHT - TOP - BOTTOM) / 3, abs=0.1)
    assert float(circles[2].attrib["cx"]) == pytest.approx(WIDTH - RIGHT, abs=0.1)
    assert float(circles[2].attrib["cy"]) == pytest.approx(HEIGHT - BOTTOM, abs=0.1)
    said = [x.text for x in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"f16 < bf16", "mma.sync, 600", "reading, 4.00 TB/s", "a & b", "c"} <= set(said)


def test_nothing_of_a_roofline_leaves_the_picture() -> None:
    text = roofline_svg("t", [Roof("a", 640), Roof("b", 20)], 4.3e12, [Point("x", "y", 15.9, 9.5)])
    for line in ElementTree.fromstring(text).iter("{http://www.w3.org/2000/svg}line"):
        assert all(LEFT - 0.1 <= float(line.attrib[x]) <= WIDTH - RIGHT + 0.1 for x in ("x1", "x2"))
        assert all(TOP - 0.1 <= float(line.attrib[y]) <= HEIGHT - BOTTOM + 0.1 for y in ("y1", "y2"))
