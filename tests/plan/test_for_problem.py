"""Plans for a problem: tile orders by what they read, tile and slices by predicted time, and all of it explained."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cutegen.contract import ProblemShape
from cutegen.contract.problem import MAX_EXTENT
from cutegen.errors import RequestError, SpecError
from cutegen.hardware import GPUS, TARGETS, Instruction
from cutegen.plan import GemmPlan, plan
from cutegen.plan.gemm_plan import plan_json
from cutegen.plan.kernel.scheduler import TileOrder
from cutegen.plan.mma.atoms import choose_atom_layout
from cutegen.plan.operands.staging import STAGES
from cutegen.plan.schedule.order import TileGrid, traffic
from cutegen.plan.search import bulk as sm120
from cutegen.plan.search.cp_async import CANDIDATES, H200, SPLITS, work_of
from cutegen.plan.search.problem import Candidate
from cutegen.plan.search.tile_model import K_MAJOR, Work, estimate
from cutegen.render import render
from cutegen.spec import GemmSpec, Mma, Raster, Schedule, Smem, SmemLayout, Tile, load_spec
from cutegen.verify.trial import block_of
from tests.plan.specs import SHIPPED_GEMMS, gemm, promoted_k
from tests.plan.test_random_specs import QUICK, planned, specs

SQUARE, SKINNY, TINY = (4096, 4096, 4096), (16, 4096, 4096), (1, 1, 1)
KIB = 1024


def decided(found: GemmPlan, key: str) -> str:
    return next(decision.chosen for decision in found.decisions if decision.key == key)


def test_what_a_spec_gives_of_its_mma_is_kept_where_the_problem_chooses_the_tile() -> None:
    """Without a tile `promote_k` and `tf32` were lost: e4m3 was promoted all the same, and tf32 truncated."""
    e4m3 = replace(gemm(dtype="e4m3", accumulator="f32", c_dtype="f16"), family="sm90")
    for asked in (0, 256):
        for problem in (SQUARE, SKINNY, (8192, 8192, 8192)):
            found = plan(replace(e4m3, mma=Mma(promote_k=asked)), "sm_90", problem)
            assert (promoted_k(found), decided(found, "mma.promote_k")) == (asked, str(asked))
    assert plan(gemm(dtype="tf32", mma=Mma(tf32="nearest")), "sm_80", SQUARE).mma.rounds_to_tf32


# Tile orders.


@pytest.mark.parametrize("along", ["m", "n"])
@pytest.mark.parametrize("group", [1, 2, 3, 8])
@pytest.mark.parametrize("zigzag", [False, True])
def test_the_order_is_the_kernels(along: str, group: int, zigzag: bool) -> None:
    """`block_of` was tested against kernels: it says which CTA a tile went to."""
    made = plan(gemm(tile=Tile(cta=(64, 64, 32))), "sm_80")
    found = replace(made, scheduler=replace(made.scheduler, order=TileOrder(along, group, zigzag)))
    tile_m, tile_n = found.scheduler.order.tiles((5, 7))
    assert sorted(zip(tile_m.tolist(), tile_n.tolist(), strict=True)) == list(itertools.product(range(5), range(7)))
    for index, tile in enumerate(zip(tile_m.tolist(), tile_n.tolist(), strict=True)):
        assert block_of(found, tile, m=5 * 64, n=7 * 64) == index


def test_orders_are_compared_without_listing_every_tile() -> None:
    """A list of all of them would take petabytes."""
    largest = MAX_EXTENT, MAX_EXTENT, 64
    assert decided(plan(load_spec("sm80_hgemm_tn"), "sm_90", largest), "schedule.raster").startswith("bands of")
    tile_m, tile_n = TileOrder("n", 2, True).tiles((2, 3), np.arange(3))
    assert list(zip(tile_m.tolist(), tile_n.tolist(), strict=True)) == [(0, 0), (0, 1), (1, 0)]


def test_traffic_by_hand() -> None:
    """4 x 4 tiles, four CTAs at once, rows of 10 bytes of A and 1 of B, and a cache of 25 bytes."""
    grid = TileGrid(tiles_m=4, tiles_n=4, bytes_a=10, bytes_b=1)
    down = traffic(TileOrder("n", 1, False), grid, 1, 4, 25)  # each wave: all rows of A, one of B; nothing stays
    assert (down.rows_a, down.rows_b, down.bytes) == (4, 1, 4 * 41)
    across = traffic(TileOrder("m", 1, False), grid, 1, 4, 25)  # each wave: one row of A, all of B, which stay
    assert (across.rows_a, across.rows_b, across.bytes) == (1, 4, 4 * 10 + 4)
    square = traffic(TileOrder("n", 2, False), grid, 3, 4, 0)  # 2 x 2 at a time, three times over, without a cache
    assert (square.rows_a, square.rows_b, square.bytes) == (2, 2, 3 * 4 * 22)


def test_no_order_reads_less_than_every_row_once() -> None:
    grid = TileGrid(tiles_m=9, tiles_n=13, bytes_a=7, bytes_b=5)
    for along, group, zigzag in itertools.product("mn", (1, 4, 16), (False, True)):
        read = traffic(TileOrder(along, group, zigzag), grid, 1, 16, 10**9)
        assert read.bytes == 9 * 7 + 13 * 5


def test_the_order_of_least_traffic_is_taken_where_it_is_felt_and_explained() -> None:
    """An RTX 3090 has 6 MB of L2: the rows of a wave never fit, and device memory is slow beside tensor cores."""
    spec = gemm(tile=Tile(cta=(64, 64, 32), stages=2), schedule=Schedule(split_k=1))
    found = plan(spec, "sm_86", (8192, 8192, 1024))
    decision = next(x for x in found.decisions if x.key == "schedule.raster")
    gpu = GPUS["sm_86"]
    grid = TileGrid(tiles_m=128, tiles_n=128, bytes_a=64 * 1024 * 2, bytes_b=64 * 1024 * 2)
    ctas = gpu.sms * found.predictions.occupancy.ctas_per_sm
    read = traffic(found.scheduler.order, grid, 1, ctas, gpu.l2_bytes)
    assert read.bytes < traffic(TileOrder("n", 8, False), grid, 1, ctas, gpu.l2_bytes).bytes
    assert "RTX 3090 (82 SMs)" in decision.for_problem
    assert f"{read.bytes / 1e6:,.1f} MB from device memory in total" in decision.for_problem
    assert "from device memory" in decision.rejected[0].why


def test_an_order_that_would_not_be_felt_is_left_as_it_is() -> None:
    """On an H200 the default was as fast as any other order here, and 1.2 GB of traffic little beside tensor cores."""
    spec = gemm(tile=Tile(cta=(128, 256, 64), stages=3), schedule=Schedule(split_k=1))
    assert plan(spec, "sm_90", (8192, 8192, 8192)).scheduler.order == TileOrder("n", 8, False)


def test_an_order_that_is_given_is_kept() -> None:
    spec = gemm(schedule=Schedule(Raster(along="m", group=3)))
    for problem in (SQUARE, SKINNY, (8192, 8192, 8192)):
        found = plan(spec, "sm_90", problem).scheduler.order
        assert (found.along, found.group) == ("m", 3)


def test_a_grid_that_is_narrower_than_a_band_is_one_band() -> None:
    spec = gemm(tile=Tile(cta=(128, 128, 64)))
    for problem, said in ((16384, 512, 4096), ", one band of 4 along n,"), ((16384, 1024, 4096), "128 x 8 tiles, and"):
        (why,) = (x for x in plan(spec, "sm_90", problem).decisions if x.key == "schedule.raster")
        assert why.chosen.startswith("bands of 8 tiles along n")
        assert said in why.for_problem


def test_one_wave_needs_no_order() -> None:
    found = plan(gemm(), "sm_90", (256, 256, 256))
    assert found.scheduler.order == TileOrder("n", 8, False)
    assert "all are in flight at once" in next(x.for_problem for x in found.decisions if x.key == "schedule.raster")


# Tile and slices.


def test_few_tiles_are_split_and_many_are_not() -> None:
    assert plan(gemm(), "sm_90", (128, 128, 65536)).split_k is not None
    assert plan(gemm(), "sm_90", (8192, 8192, 8192)).split_k is None


def test_the_tile_fits_the_problem() -> None:
    """A narrow problem gets a narrow tile, in either direction."""
    assert plan(gemm(), "sm_90", (16, 4096, 4096)).cta_tile[0] <= 32
    assert plan(gemm(), "sm_90", (4096, 16, 4096)).cta_tile[1] <= 32
    assert min(plan(gemm(), "sm_90", SQUARE).cta_tile[:2]) >= 128


@pytest.mark.parametrize(
    ("family", "target"),
    [*(("sm80", x) for x in TARGETS), *(("sm120", x) for x in TARGETS if TARGETS[x].has(Instruction.BULK_TENSOR))],
)
@pytest.mark.parametrize("problem", [SKINNY, TINY, (300, 300, 100000)])
def test_every_target_finds_a_plan_for_every_problem(family: str, target: str, problem: tuple[int, int, int]) -> None:
    found = plan(replace(gemm("mnm", "bf16"), family=family), target, problem)
    assert found.smem_bytes <= found.target.smem_per_cta_bytes
    assert found.problem == ProblemShape(*problem)


SM120 = replace(gemm(), family="sm120")


def test_persistent_ctas_get_a_tile_for_the_problem_too() -> None:
    assert plan(SM120, "sm_90", SQUARE).cta_tile == (128, 256, 64)
    assert plan(SM120, "sm_90", SKINNY).cta_tile[0] == 16
    assert plan(SM120, "sm_90", (4096, 16, 4096)).cta_tile[1] <= 32
    assert plan(SM120, "sm_90", (1024, 1024, 1024)).stages > plan(SM120, "sm_90").stages


def test_the_choice_of_persistent_ctas_is_explained() -> None:
    found = plan(SM120, "sm_90", SKINNY)
    tile, warps, stages = (
        next(x for x in found.decisions if x.key == key) for key in ("tile.cta", "mma.atom_layout", "tile.stages")
    )
    assert "16x4096x4096 on H200 (132 SMs)" in tile.for_problem
    assert len(tile.rejected) == len(sm120.CANDIDATES) - 1
    assert all("us predicted, bound by" in x.why and "slice" not in x.what for x in tile.rejected)
    assert "comes with the tile" in warps.why
    assert stages.why == "comes with the tile"


@pytest.mark.parametrize("candidate", sm120.CANDIDATES, ids=str)
def test_persistent_ctas_have_as_many_stages_as_fit_beside_c(candidate: Candidate) -> None:
    """A stage more, and there is none, or C would have to leave from registers."""
    spec = replace(SM120, tile=Tile(candidate.cta, candidate.stages), mma=Mma(atom_layout=candidate.atom_layout))
    assert plan(spec, "sm_90").epilogue.smem is not None
    if candidate.stages < STAGES[-1]:
        deeper = planned(replace(spec, tile=Tile(candidate.cta, candidate.stages + 1)), "sm_90")
        assert isinstance(deeper, SpecError) or deeper.epilogue.smem is None


@pytest.mark.parametrize(
    ("a", "c", "tile"),
    [("tf32", "f32", (128, 256, 32)), ("s8", "s32", (128, 256, 128)), ("e4m3", "f16", (128, 128, 128))],
)
def test_other_elements_have_lines_of_as_many_bytes(a: str, c: str, tile: tuple[int, int, int]) -> None:
    """8-bit floats are multiplied as f16 on sm_90, which takes registers from the sums."""
    assert plan(replace(gemm("kkn", a, c_dtype=c), family="sm120"), "sm_90", SQUARE).cta_tile == tile


def test_what_a_spec_of_persistent_ctas_says_is_kept() -> None:
    assert plan(replace(SM120, tile=Tile((64, 64, 64))), "sm_90", SQUARE).cta_tile == (64, 64, 64)
    assert plan(replace(SM120, tile=Tile(stages=2)), "sm_90", SQUARE).stages == 2
    assert plan(replace(SM120, mma=Mma(atom_layout=(4, 2, 1))), "sm_90", SKINNY).threads == 256 + 128


def test_persistent_ctas_take_an_order_and_no_slices() -> None:
    spec = load_spec("sm120_hgemm_tn")
    found = plan(spec, "sm_90", SQUARE)
    assert "H200 (132 SMs)" in next(x.for_problem for x in found.decisions if x.key == "schedule.raster")
    with pytest.raises(SpecError, match=r"schedule.split_k: found 2; expected 1: a persistent CTA"):
        plan(replace(spec, schedule=Schedule(split_k=2)), "sm_90")


@pytest.mark.parametrize("name", SHIPPED_GEMMS)
def test_what_a_spec_says_a_problem_does_not_change(name: str) -> None:
    spec = load_spec(name)
    groups = None if spec.problem.groups is None else 4
    without, found = plan(spec, spec.needs), plan(spec, spec.needs, ProblemShape(*SKINNY, groups=groups))
    assert found.spec is spec
    given = {decision.key: decision.chosen for decision in without.decisions if decision.given}
    assert given.items() <= {decision.key: decision.chosen for decision in found.decisions}.items()


def test_the_spec_decides_as_much_as_it_says() -> None:
    found = plan(gemm(tile=Tile(cta=(128, 64, 32)), schedule=Schedule(split_k=2)), "sm_90", SKINNY)
    assert (found.cta_tile, found.split_k and found.split_k.slices) == ((128, 64, 32), 2)
    assert plan(gemm(tile=Tile(stages=5)), "sm_90", SQUARE).stages == 5
    assert plan(gemm(mma=Mma(atom_layout=(2, 4, 1))), "sm_90", SQUARE).threads == 256
    assert plan(gemm(mma=Mma(atom="SM80_16x8x8_F32F16F16F32_TN")), "sm_90", SQUARE).atom.shape_mnk == (16, 8, 8)


def test_what_cannot_be_is_refused_as_without_a_problem() -> None:
    another_atom = Mma(atom="SM80_16x8x8_F32F16F16F32_TN")
    too_large = Tile(cta=(256, 256, 256))
    for impossible in (
        gemm(tile=too_large),
        gemm("kkn", "f32", c_dtype="f32"),
        gemm("kkn", "tf32", c_dtype="f32", tile=too_large, mma=another_atom),  # wrong twice
    ):
        with pytest.raises(SpecError) as without:
            plan(impossible, "sm_80")
        with pytest.raises(SpecError) as found:
            plan(impossible, "sm_80", SQUARE)
        assert str(found.value) == str(without.value)


@settings(QUICK, max_examples=15)
@given(specs, st.tuples(*[st.sampled_from([1, 24, 300, 5000])] * 3))
def test_a_problem_refuses_nothing_that_is_planned_without(spec: GemmSpec, problem: tuple[int, int, int]) -> None:
    without, found = planned(spec, "sm_90"), planned(spec, "sm_90", problem)
    if isinstance(found, SpecError):
        assert isinstance(without, SpecError)
        assert str(found) == str(without)
        return
    assert found.spec == spec
    assert plan_json(found)
    assert found.explain(everything=True)


def test_a_tile_that_the_rules_refuse_is_passed_over() -> None:
    """A layout atom of 48 columns divides no tile in the list along K; one of 32 rows fits some tiles only."""
    rows = SmemLayout(layout="(32,8):(8,1)")
    found = plan(gemm(smem=Smem(a=rows, b=rows)), "sm_90", SKINNY)
    assert min(found.cta_tile[:2]) >= 32
    never = SmemLayout(layout="(8,48):(48,1)")
    with pytest.raises(SpecError) as without:
        plan(gemm(smem=Smem(a=never)), "sm_90")
    with pytest.raises(SpecError) as caught:
        plan(gemm(smem=Smem(a=never)), "sm_90", SKINNY)
    assert str(caught.value) == str(without.value)


@pytest.mark.parametrize("arch", TARGETS)
def test_times_on_a_gpu_that_no_model_was_fitted_to_are_called_estimates(arch: str) -> None:
    plans = [plan(replace(gemm(), family=family), arch, (64, 8192, 8192)) for family in (None, "sm80")]
    keys = ("family", "tile.cta", "schedule.split_k")
    told = [x for found in plans for x in found.decisions if x.key in keys and x.for_problem]
    times = [x for each in told for x in (each.for_problem, *(y.why for y in each.rejected)) if " us " in x]
    fitted, estimated = " us predicted", " us estimated"
    word, other = (fitted, estimated) if arch == "sm_90" else (estimated, fitted)  # measured: an H200 and an H100
    assert {x.key for x in told} == set(keys)
    assert len(times) > len(told)
    assert all(word in time and other not in time for time in times)


@pytest.mark.parametrize("problem", [None, (64, 8192, 8192)])
@pytest.mark.parametrize("arch", TARGETS)
def test_a_plan_says_what_is_not_used_and_what_is_assumed(arch: str, problem: tuple[int, int, int] | None) -> None:
    found = plan(gemm(), arch, problem)
    text, remarks = " ".join(found.explain().split()), found.to_json()["remarks"]
    unused = f"tcgen05, which the tensor cores of {arch} are made for, is not used: torch is likely faster"
    assumed = f"the rate of mma.sync on {arch} is not known here: times assume 4,096 operations per cycle and SM"
    has_tcgen05 = arch in ("sm_100", "sm_103")
    assert (unused in text) == has_tcgen05
    asked = has_tcgen05 and problem is not None
    assert (assumed in text) == (" us estimated at an assumed rate" in text) == asked
    assert all(each in text for each in remarks)
    assert len(remarks) == has_tcgen05 + asked


def test_the_choice_is_explained() -> None:
    found = plan(gemm(), "sm_90", (64, 8192, 8192))
    text = found.explain()
    assert "64x8192x8192 on H200 (132 SMs)" in text
    tile = next(x for x in found.decisions if x.key == "tile.cta")
    assert len(tile.rejected) == len(CANDIDATES) - 1
    assert all("us predicted, bound by" in x.why for x in tile.rejected)
    assert len(next(x for x in found.decisions if x.key == "schedule.split_k").rejected) == len(SPLITS) - 1
    assert found.to_json()["problem"] == {"m": 64, "n": 8192, "k": 8192, "batch": 1}


def test_problems_for_which_the_same_is_chosen_share_a_kernel() -> None:
    one, other = (plan(gemm(), "sm_90", (16 * 4096, 4096, k)) for k in (4096, 4160))
    assert one.decisions != other.decisions
    assert render(one).text == render(other).text


def test_a_batch_counts_as_more_tiles() -> None:
    assert plan(gemm(), "sm_90", (128, 128, 4096)).split_k is not None
    assert plan(gemm(), "sm_90", (128, 128, 4096, 512)).split_k is None


@pytest.mark.parametrize(
    ("problem", "said"),
    [
        ((1, 2), r"problem: found \(1, 2\); expected \(M, N, K\)"),
        ((1, 2, 3.0), r"problem: found \(1, 2, 3.0\)"),
        ((0, 2, 3), "expected extents from 1"),
        ((1, 2, 3, 0), "a batch from 1"),
        ((1, MAX_EXTENT + 1, 3), f"expected extents from 1 to {MAX_EXTENT}"),
    ],
)
def test_what_is_no_problem_is_refused(problem: tuple[int, ...], said: str) -> None:
    with pytest.raises(RequestError, match=said):
        plan(gemm(), "sm_90", problem)  # type: ignore[arg-type]


# The model of time.

WORK = Work(
    cta=(128, 128, 64),
    warps=(2, 2),
    stages=3,
    slices=1,
    ctas_per_sm=2,
    element_bytes=(2, 2),
    result_bytes=2,
    mma_flops=0.629 * 4096,
    majors=K_MAJOR,
)


def us(work: Work, *problem: int, target: str = "sm_90") -> float:
    return estimate(work, ProblemShape(*problem), GPUS[target], H200).us


def test_more_work_takes_longer() -> None:
    times = [us(WORK, side, side, side) for side in (128, 512, 1024, 2048, 4096, 8192)]
    assert times == sorted(times)
    assert times[-1] > 6 * times[-2]


def test_nothing_is_faster_than_tensor_cores_or_device_memory_allow() -> None:
    gpu = GPUS["sm_90"]
    for problem in itertools.product((16, 512, 4096), repeat=3):
        m, n, k = problem
        compute_us = 2 * m * n * k / (WORK.mma_flops * gpu.sms * gpu.clock_hz) * 1e6
        memory_us = 2 * (m * n + m * k + n * k) / gpu.memory_bytes_per_s * 1e6
        for candidate, slices in itertools.product(CANDIDATES, SPLITS):
            work = replace(WORK, cta=candidate.cta, warps=candidate.atom_layout[:2], slices=slices)
            assert us(work, *problem) > max(compute_us, memory_us)


def test_slices_shorten_a_long_k_and_lengthen_a_short_one() -> None:
    assert us(replace(WORK, slices=8), 128, 128, 65536) < us(WORK, 128, 128, 65536)
    assert us(replace(WORK, slices=8), 4096, 4096, 128) > us(WORK, 4096, 4096, 128)


@pytest.mark.parametrize("name", ["sm90_e4m3_tn", "sm90_e4m3_scaled_tn"])
@pytest.mark.parametrize("problem", [(4096, 4096, 4096), (40, 80, 160)])
def test_a_given_tile_without_room_in_one_warpgroup_is_shared_out(name: str, problem: tuple[int, int, int]) -> None:
    """Sums that are promoted take twice the registers: taking turns is passed over, not refused."""
    found = plan(load_spec(name), "sm_90", problem)
    assert (found.cta_tile, found.mma.role.alternates) == ((128, 128, 128), False)


def test_the_smallest_tiles_have_one_stage_for_one_k_tile_and_stage_no_result() -> None:
    """C of a multiplication a warp leaves from registers; larger tiles keep their stages and C's shared memory."""
    spec = gemm()
    small, deeper, wide = (plan(spec, "sm_90", problem) for problem in ((24, 24, 24), (24, 24, 200), (4096, 4096, 32)))
    assert (small.stages, small.epilogue.smem) == (1, None)
    assert deeper.stages > 1
    assert deeper.epilogue.smem is None
    assert wide.stages > 1
    assert wide.epilogue.smem is not None
    given = plan(gemm(tile=Tile(stages=3)), "sm_90", (24, 24, 24))
    assert given.stages == 3


@pytest.mark.parametrize("target", ["sm_80", "sm_86", "sm_89"])
def test_no_plan_without_a_problem_is_predicted_to_be_faster(target: str) -> None:
    """On an A100 128x128x64 in two stages is, beside all tiles with as many stages as an H100 holds."""
    spec = load_spec("sm80_bf16_nn")
    without = plan(spec, target)
    layout = choose_atom_layout(spec, without.cta_tile, without.mma.atom, TARGETS[target]).value
    default = work_of(spec, TARGETS[target], Candidate(without.cta_tile, layout, without.stages), 1)
    for extents in ((2048, 2048, 1024), (4096, 4096, 4096), (512, 6144, 12288), (300, 4096, 4096)):
        problem = ProblemShape(*extents)
        chosen = plan(spec, target, problem).predicted_time
        assert chosen is not None
        assert chosen.us <= estimate(default, problem, GPUS[target], H200).us
