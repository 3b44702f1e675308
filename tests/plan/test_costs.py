"""What given keys cost: quantities of the plan beside those without a key; and the predicted time of any plan."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cutegen.analysis.costs import key_costs
from cutegen.contract.problem import ProblemShape
from cutegen.plan import FAMILIES, GemmPlan
from cutegen.plan import plan as make_plan
from cutegen.plan.values.decision import KeyCost
from cutegen.spec import G2s, G2sCopy, GemmSpec, Mma, Smem, SmemLayout, Tile, load_spec
from tests.plan.specs import gemm

SQUARE = ProblemShape(4096, 4096, 4096)
TILE = Tile((128, 128, 32))


def costs_of(
    spec: GemmSpec, arch: str = "sm_80", problem: ProblemShape | None = None
) -> dict[tuple[str, ...], KeyCost]:
    return {cost.keys: cost for cost in key_costs(make_plan(spec, arch, problem))}


def losses(cost: KeyCost) -> dict[str, tuple[float, float]]:
    return {loss.quantity: (loss.given, loss.without) for loss in cost.losses}


def test_open_keys_and_ideal_ones_cost_nothing() -> None:
    assert costs_of(gemm()) == {}
    assert costs_of(gemm(tile=TILE, mma=Mma(atom_layout=(2, 2, 1)))) == {}
    assert costs_of(gemm(), problem=SQUARE) == {}


def test_threads_along_rows_cost_sectors_and_wavefronts() -> None:
    spec = gemm(tile=TILE, mma=Mma(atom_layout=(2, 2, 1)), g2s=G2s(a=G2sCopy(threads="(128,1):(1,1)")))
    (cost,) = costs_of(spec).values()
    assert cost.keys == ("g2s.a.threads",)
    tile_bytes = 128 * 32 * 2
    # Each thread copies 16 bytes of a row of its own, half a sector, so that every sector is fetched twice.
    assert losses(cost)["sectors of g2s.a"] == (2 * tile_bytes / 32, tile_bytes / 32)
    assert losses(cost)["wavefronts of smem.a"] == (640, 256)
    assert [loss.factor for loss in cost.losses] == [2.5, 2.0], "the largest first"
    assert "(32,4):(4,1)" in cost.instead
    (why,) = [x.why for x in make_plan(spec, "sm_80").decisions if x.key == "g2s.a"]
    assert why.startswith("threads given; 1 thread x 16 bytes = 16 contiguous bytes")


def test_layouts_cost_wavefronts_and_are_ranked() -> None:
    spec = gemm(tile=TILE, smem=Smem(a=SmemLayout(pad=8), b=SmemLayout(swizzle=(0, 3, 3))))
    found = key_costs(make_plan(spec, "sm_80"))
    assert [cost.keys for cost in found] == [("smem.b",), ("smem.a",)], "an eightfold conflict is before a twofold one"
    for cost, name in zip(found, "ba", strict=True):
        ((given, without),) = losses(cost).values()
        path = make_plan(spec, "sm_80").operand(name)  # type: ignore[union-attr]
        assert (given, without) == (path.smem.chosen.wavefronts, min(row.wavefronts for row in path.smem.ranking))


def test_a_tile_whose_sums_leave_no_registers_costs_spills() -> None:
    spec = gemm(tile=Tile((128, 192, 32)), mma=Mma(atom_layout=(2, 2, 1)))
    ((keys, cost),) = costs_of(spec).items()
    assert keys == ("tile.cta", "mma.atom_layout")
    # A thread of 64x96 has 192 sums, twice (64 + 96) x 16 / 32 halfs of fragments, and 40 addresses: 57 beyond 255.
    wanted = 64 * 96 // 32 + 2 * (64 + 96) * 16 // 32 // 2 + 40
    assert losses(cost) == {"registers beyond a thread's": (wanted - 255, 0)}
    assert wanted - 255 == 57


def test_more_stages_than_a_second_cta_leaves_cost_occupancy() -> None:
    spec = gemm(tile=Tile((64, 64, 64), stages=8))
    assert losses(costs_of(spec)[("tile.stages",)])["CTAs per SM"][0] == 1


@pytest.mark.parametrize("name", ["cute_tutorial_tn", "cutlass_hopper_pingpong"])
def test_with_a_problem_a_tile_costs_predicted_time(name: str) -> None:
    made = make_plan(name, None, SQUARE)
    assert isinstance(made, GemmPlan)
    found = next(cost for cost in key_costs(made) if "tile.cta" in cost.keys)
    given, without = losses(found)["predicted us"]
    assert made.predicted_time is not None
    assert given == made.predicted_time.us
    mma = replace(made.spec.mma, atom_layout=None, permutation=None)
    opened = replace(made.spec, tile=replace(made.spec.tile, cta=None), mma=mma)
    other = make_plan(opened, made.target, SQUARE)
    assert isinstance(other, GemmPlan)
    assert without == other.predicted_time.us < given  # type: ignore[union-attr]


def test_costs_of_a_key_that_the_rest_needs_are_not_told() -> None:
    for cost in key_costs(make_plan(load_spec("simt_sgemm_tn"), "sm_80")):
        assert cost.losses
        assert cost.instead


@pytest.mark.parametrize("name", ["sm80_hgemm_tn", "sm90_hgemm_tn", "sm120_hgemm_tn", "sm100_hgemm_tn"])
def test_a_plan_for_any_problem_has_the_time_of_one_for_the_problem_with_its_tile(name: str) -> None:
    made = make_plan(name, None, SQUARE)
    assert isinstance(made, GemmPlan)
    assert made.predicted_time == FAMILIES[made.family].time_of(made, SQUARE)
    assert (
        FAMILIES[made.family].time_of(replace(made, problem=None, predicted_time=None), SQUARE) == made.predicted_time
    )


def test_without_a_model_the_time_is_what_rates_allow() -> None:
    made = make_plan("simt_sgemm_tn", "sm_80", SQUARE)
    assert isinstance(made, GemmPlan)
    time = made.predicted_time
    assert time is not None
    assert time.how == "at least"
    # An A100 (108 SMs at 1.41 GHz) has 64 multiply-adds of f32 per SM and cycle; its fullest SM has 10 of 1024 tiles.
    m, n, _ = made.cta_tile
    rounds = -(-(4096 // m) * (4096 // n) // 108)
    assert time.us == pytest.approx(rounds * m * n * 4096 / 64 / 1.41e3)
