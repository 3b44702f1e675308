"""What each rule of a plan states, on one small case that is worked out by hand."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from cutegen.algebra import Layout, TiledMma, offsets, parse_layout, tile_to_shape
from cutegen.contract.problem import ProblemShape
from cutegen.errors import ProofError, SpecError
from cutegen.hardware import GPUS, MMA_ATOMS, dtype, target
from cutegen.plan import GemmPlan, plan
from cutegen.plan.explain import ranking, ranking_lines
from cutegen.plan.families.choice import _decision, _Option
from cutegen.plan.kernel.scheduler import SplitK
from cutegen.plan.mma import fma
from cutegen.plan.operands import stages
from cutegen.plan.operands.stages import expected_registers
from cutegen.plan.predict import estimate_registers
from cutegen.plan.prove import prove
from cutegen.plan.schedule import order
from cutegen.plan.search import bulk, cp_async
from cutegen.plan.search.problem import Option, microseconds
from cutegen.plan.search.tile_model import quantities
from cutegen.plan.values.decision import Decision
from cutegen.spec import (
    Epilogue,
    G2s,
    G2sCopy,
    GemmSpec,
    Mma,
    Operand,
    Problem,
    S2r,
    S2rCopy,
    Schedule,
    Smem,
    SmemLayout,
    Tile,
)
from tests.plan.specs import gemm

ATOM = MMA_ATOMS["SM80_16x8x16_F32F16F16F32_TN"]
TWO_BY_TWO = TiledMma(ATOM, Layout((2, 2, 1)), None)


def simt(**parts: Any) -> GemmSpec:
    a, b, c = (Operand("f32", major, 4) for major in "kkn")
    return GemmSpec(family="simt", problem=Problem(a=a, b=b, c=c), **parts)


@cache
def open_plan() -> GemmPlan:
    return plan(gemm(), "sm_80")


def planned(name: str) -> GemmPlan:
    return PLANNED[name]()


def decisions(found: GemmPlan) -> dict[str, Decision]:
    return {decision.key: decision for decision in found.decisions}


# What is decided


PLANNED: dict[str, Callable[[], GemmPlan]] = {
    "sm80": lambda: plan(gemm("mnn"), "sm_80"),
    "8 deep": lambda: plan(gemm(mma=Mma(atom="SM80_16x8x8_F32F16F16F32_TN")), "sm_80"),
    "simt": lambda: plan(simt(), "sm_80"),
    "sm120": lambda: plan(replace(gemm(), family="sm120"), "sm_90"),
    "for a problem": lambda: plan(gemm(), "sm_90", problem=(192, 192, 8192)),
    "many tiles": lambda: plan(gemm(), "sm_90", problem=(32768, 8192, 4096)),
}


@pytest.mark.parametrize("name", PLANNED)
def test_a_rejected_option_is_named_and_its_reason_is_a_phrase(name: str) -> None:
    for decision in planned(name).decisions:
        for rejected in decision.rejected:
            assert len(rejected.why.split()) > 1, (decision.key, rejected)
            assert re.search("[a-z]{3}|>", rejected.why), (decision.key, rejected)
        named = [rejected.what for rejected in decision.rejected]
        assert len(set(named)) == len(named), decision.key


def test_slices_that_are_not_taken_are_told_with_their_times() -> None:
    found = decisions(planned("for a problem"))["schedule.split_k"]
    told = [int(rejected.what.split()[0]) for rejected in found.rejected]
    assert int(found.chosen) > 1
    assert sorted([*told, int(found.chosen)]) == [1, 2, 3, 4, 6, 8, 12, 16, 24, 32]
    assert all(rejected.why.endswith(" us predicted") for rejected in found.rejected)


def test_orders_that_are_rejected_read_more() -> None:
    found = decisions(planned("many tiles"))["schedule.raster"]
    arithmetic = re.search(r"([\d,.]+) MB from device memory in total", found.for_problem)
    assert arithmetic is not None
    read = float(arithmetic[1].replace(",", ""))
    for rejected in found.rejected:
        assert float(rejected.why.split()[0].replace(",", "")) >= read


@pytest.mark.parametrize(
    ("parts", "key"),
    [
        ({"schedule": Schedule(split_k=4)}, "schedule.split_k"),
        ({"schedule": Schedule(split_k=1)}, "schedule.split_k"),
        ({"smem": Smem(a=SmemLayout(pad=8))}, "smem.a"),
        ({"tile": Tile(cta=(64, 64, 32))}, "tile.cta"),
        ({"tile": Tile(cta=(64, 64, 32), stages=2)}, "tile.stages"),
        ({"mma": Mma(atom_layout=(2, 2, 1))}, "mma.atom_layout"),
        ({"epilogue": Epilogue(smem=False)}, "epilogue.smem"),
    ],
)
def test_what_the_spec_says_is_said_to_be_given(parts: dict[str, Any], key: str) -> None:
    assert decisions(plan(gemm(**parts), "sm_80"))[key].given
    if "schedule" not in parts:
        assert not decisions(open_plan())[key].given


@pytest.mark.parametrize("slices", [None, 1])
@pytest.mark.parametrize(("family", "reduction"), [("sm80", "workspace"), ("sm90", "workspace"), ("sm90", "cluster")])
def test_how_slices_would_be_added_is_said_to_be_without_use(family: str, reduction: str, slices: int | None) -> None:
    asked = replace(gemm(schedule=Schedule(split_k=slices, reduction=reduction)), family=family)
    found = decisions(plan(asked, "sm_90"))["schedule.reduction"]
    assert (found.chosen, found.given) == (reduction, True)
    assert "K is not split, so there are no slices to add" in found.why
    sliced = replace(asked, schedule=replace(asked.schedule, split_k=4))
    assert "schedule.reduction" not in decisions(plan(sliced, "sm_90"))


def test_sums_added_by_atomics_are_given() -> None:
    spec = gemm(c_dtype="f32", epilogue=Epilogue(smem=False), schedule=Schedule(split_k=4, reduction="atomics"))
    found = decisions(plan(spec, "sm_80"))["schedule.split_k"]
    assert (found.chosen, found.given) == ("4, by atomics", True)


def test_a_family_without_a_prediction_is_the_first_that_can() -> None:
    for problem in (None, ProblemShape(64, 64, 64)):
        found = _decision(_Option("sm80"), (), problem)
        assert found.why.startswith("the first of ")
    assert "lowest predicted time" in _decision(_Option("sm80", predicted_us=3.0), (), ProblemShape(64, 64, 64)).why


def test_times_have_three_digits() -> None:
    class Estimate:
        us = 12.3456

    assert microseconds(Estimate()) == "12.3 us"  # type: ignore[arg-type]
    one = Option(cp_async.CANDIDATES[0], 1, Estimate())  # type: ignore[arg-type]
    assert str(replace(one, slices=3)) == f"{one}, 3 slices of K"


# Tiles, warps, threads


@pytest.mark.parametrize("search", [bulk, cp_async])
def test_every_tile_of_the_search_is_shared_out_by_whole_warps(search: Any) -> None:
    """A warp multiplies 16 rows of M and 8 of N; no two share a result, so none lie along K."""
    found = [*search._rows(gemm(), target("sm_90"))]
    rows = {(row.cta, row.atom_layout): row.stages for row in found}
    assert len(rows) == len(found)
    for ((m, n, k), (wm, wn, wk)), depth in rows.items():
        assert (m % (16 * wm), n % (8 * wn), k % 32, wk) == (0, 0, 0, 1)
        assert wm * wn >= min(4, (m // 16) * (n // 16))
        mirrored = rows.get(((n, m, k), (wn, wm, wk)))
        assert mirrored in (None, depth)
    assert {layout for ((m, n, _), layout) in rows if m == n > 16} <= {(2, 2, 1), (2, 4, 1)}


@pytest.mark.parametrize("cta", [(128, 128, 64), (256, 128, 64), (64, 64, 64), (4096, 4096, 64)])
def test_as_many_stages_as_shared_memory_holds(cta: tuple[int, int, int]) -> None:
    row = target("sm_80")
    fitting = row.smem_per_cta_bytes // ((cta[0] + cta[1]) * cta[2] * 2)
    assert cp_async._most_stages(gemm(), row, cta) == min(8, fitting)


@pytest.mark.parametrize(
    ("cta", "warps"), [((192, 128, 32), 8), ((128, 128, 32), 4), ((256, 64, 32), 4), ((16, 128, 64), 4)]
)
def test_warps_have_registers_for_their_sums(cta: tuple[int, int, int], warps: int) -> None:
    """128 x 128 sums are 128 registers for each thread of four warps; 192 x 128 would be 192."""
    found = plan(gemm(tile=Tile(cta=cta)), "sm_80")
    assert found.threads == 32 * warps
    layout = decisions(found)["mma.atom_layout"]
    wm, wn, _ = map(int, layout.chosen.split("x"))
    assert f"{cta[0] * wn + cta[1] * wm} fragment rows" in layout.why
    for option in (layout.chosen, *(rejected.what for rejected in layout.rejected)):
        wm, wn, _ = map(int, option.split("x"))
        assert (cta[0] % (16 * wm), cta[1] % (8 * wn)) == (0, 0)


@pytest.mark.parametrize(("m", "layout"), [(96, (4, 1, 1)), (64, (8, 1, 1))])
def test_warps_divide_the_tile(m: int, layout: tuple[int, int, int]) -> None:
    with pytest.raises(SpecError, match=rf"mma.atom_layout: found .* = {layout[0] * 16} along M; expected a divisor"):
        plan(gemm(tile=Tile(cta=(m, 64, 32)), mma=Mma(atom_layout=layout)), "sm_80")


def test_a_short_atom_is_repeated_to_two_rows_of_ldmatrix() -> None:
    assert planned("8 deep").tiled_mma.tile_mnk[2] == 16
    assert plan(gemm(tile=Tile(cta=(64, 64, 16))), "sm_80").mma.k_blocks == 2


@pytest.mark.parametrize(("passing", "registers"), [(0, 104), (16, 120), (17, 128)])
def test_registers_of_a_thread_by_hand(passing: int, registers: int) -> None:
    """64 x 64 over 2 x 2 warps: 32 sums; 16 of A and 16 of B, f16, twice, in 32 registers; 40 for addresses."""
    found = estimate_registers(target("sm_80"), (64, 64, 32), TWO_BY_TWO, ATOM, passing)
    assert found == registers


def test_registers_that_a_k_tile_passes_through_by_hand() -> None:
    """128 x 64 of A for 128 threads: 64 elements each, two in a register; B goes by cp.async."""
    spec = gemm(g2s=G2s(a=G2sCopy(op="universal")))
    assert expected_registers(spec, (128, 128, 64), 128) == 32
    assert expected_registers(gemm(), (128, 128, 64), 128) == 0


def test_threads_of_simt_by_hand() -> None:
    k = fma.choose_cta_tile(simt()).decision.rejected
    assert [(row.what, row.why) for row in k] == [
        ("K = 4", "2 times the barriers"),
        ("K = 16", "16,384 bytes, and 2 times as much unrolled code"),
    ]
    assert fma._divisors(12) == [1, 2, 3, 4, 6, 12]
    chosen = fma.choose_threads(simt(), (128, 128, 8), target("sm_80"))
    assert chosen.value.shape == (16, 16)
    few = fma.choose_threads(simt(), (64, 8, 16), target("sm_80"))
    for found in (chosen, few):
        counts = [np.prod([*map(int, row.what.split()[0].split("x"))]) for row in found.decision.rejected]
        assert set(counts) == {np.prod(found.value.shape)}


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"mma": Mma(threads="(16,15):(1,16)")}, "240 threads.*whole warps of 32"),
        ({"mma": Mma(threads="(32,12):(1,32)")}, r'"\(32,12\):\(1,32\)": THR_N = 12; expected'),
        ({"tile": Tile(cta=(3, 5, 7))}, "128x128x8 does, with 256 threads"),
        ({"tile": Tile(cta=(48, 64, 3)), "g2s": G2s(a=G2sCopy(bits=32))}, "divide the tiles of A, B and C evenly"),
        ({"g2s": G2s(a=G2sCopy(bits=16))}, "g2s.a.bits: found 16; expected whole elements"),
    ],
)
def test_what_simt_cannot_share_out(parts: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        plan(simt(**parts), "sm_80")


# Shared memory


def test_a_tile_of_which_one_stage_does_not_fit_is_refused_first() -> None:
    row = target("sm_80")
    with pytest.raises(SpecError, match="not even one stage fits; use a smaller tile"):
        stages.check_stage(gemm(), row, (512, 512, 128))
    stages.check_stage(gemm(), row, (512, 512, 64))
    with pytest.raises(SpecError, match="not even one stage fits"):
        stages.choose_stages(gemm(), row, (200_000, 200_000), 1)
    with pytest.raises(SpecError, match="not even one stage fits"):
        stages.choose_plain_stages(simt(), row, (200_000, 128))
    with pytest.raises(SpecError, match=r"2 stages: 2 x \(100,000 \+ 128\) = 200,320 bytes .* one stage fits"):
        stages.choose_plain_stages(simt(tile=Tile(stages=2)), row, (100_000, 128))


def test_one_stage_of_plain_copies_where_two_do_not_fit() -> None:
    found = stages.choose_plain_stages(simt(), target("sm_80"), (100_000, 128))
    assert found.value == 1
    (rejected,) = found.decision.rejected
    assert (rejected.what, rejected.why.split(" bytes")[0]) == ("2 stages", "200,320")


@pytest.mark.parametrize("align", [2, 4, 8, 16])
def test_c_is_stored_as_wide_as_it_is_aligned(align: int) -> None:
    found = plan(gemm(align=(None, None, align), tile=Tile(cta=(128, 128, 32))), "sm_80").epilogue
    assert found.store is not None
    assert found.store.bits == 8 * align


def test_a_stage_of_its_own_has_no_stride() -> None:
    """CuTe gives a mode of extent 1 stride 0."""
    layout = plan(gemm(tile=Tile(cta=(64, 64, 32), stages=1), smem=Smem(a=SmemLayout(pad=8))), "sm_80").a.smem.layout
    assert layout.stride[2] == (0, 0) or layout.stride[2] == 0


def test_the_layout_that_is_used_is_always_shown() -> None:
    smem = plan(gemm("mnn"), "sm_80").a.smem
    rows = ranking(smem)
    assert len(rows) < len(smem.ranking)
    plain = next(row for row in smem.ranking if row.swizzle is None and row.pad_elems == 0)
    assert plain.name in [row[1] for row in rows]
    beside = replace(smem, ranking=smem.ranking[1:])
    assert beside.chosen == smem.ranking[0]
    assert [row[0] for row in ranking(beside)] == ["*"] + [""] * (len(ranking(beside)) - 1)
    assert ranking(beside)[0][1] == beside.chosen.name


def test_ways_by_line_are_shown_where_they_were_counted() -> None:
    row = ("*", "pad 8", "1-way", "2-way", "1-way", "64", "1024")
    with_lines, without = ranking_lines("A", [row]), ranking_lines("A", [(*row[:3], "", *row[4:])])
    assert "by line" in with_lines[1]
    assert "2-way" in with_lines[2]
    assert not any("by line" in line for line in without)


# Copies


def test_plain_loads_of_f16_along_k_bring_a_register() -> None:
    found = plan(gemm(s2r=S2r(a=S2rCopy("universal"))), "sm_80")
    assert found.a.s2r.bits == 32


def test_narrower_copies_say_why_they_are_not_cg() -> None:
    found = decisions(plan(gemm(align=(8, None, None)), "sm_80"))["g2s.a"]
    assert found.chosen.startswith("cp.async.ca 64 bits")
    assert found.why.endswith("; ca, since cg copies 16 bytes only")
    plain = decisions(plan(gemm(g2s=G2s(a=G2sCopy(op="universal"))), "sm_80"))["g2s.a"]
    assert plain.why.endswith("; then through registers to shared memory")


def test_a_width_that_no_grid_of_the_threads_has_is_refused_at_its_key() -> None:
    """48 x 16 elements are 96 vectors of 16 bytes, for 128 threads."""
    spec = gemm(g2s=G2s(a=G2sCopy(bits=128)), tile=Tile(cta=(48, 64, 16)), mma=Mma(atom_layout=(1, 4, 1)))
    with pytest.raises(SpecError, match=r"g2s.a.bits: found A's tile of 48x16 .* a copy of 2, 4, 8 or 16 bytes"):
        plan(spec, "sm_80")


# K, slices, persistent CTAs


def test_a_slice_leaves_the_whole_tile() -> None:
    split = plan(gemm(tile=Tile(cta=(128, 64, 32)), schedule=Schedule(split_k=4)), "sm_80").split_k
    assert isinstance(split, SplitK)
    assert split.slice_bytes((128, 64, 32)) == 128 * 64 * 4


def test_slices_in_flight_divide_the_slices() -> None:
    found = plan(gemm(schedule=Schedule(split_k=6)), "sm_80")
    assert found.split_k is not None
    prove(found)
    with pytest.raises(ProofError, match="split-K loads slices that do not exist"):
        prove(replace(found, scheduler=replace(found.scheduler, split_k=replace(found.split_k, in_flight=4))))


def test_slices_go_through_the_tiles_once_each() -> None:
    found = plan(gemm(schedule=Schedule(split_k=4)), "sm_80")
    shape = ProblemShape(1024, 1024, 4096, 3)
    one, four = (
        order.tiles_in_flight(shape, found.target, found.mma, found.operands, found.predictions.occupancy, split)
        for split in (None, found.split_k)
    )
    assert one is not None
    assert four is not None
    assert (one.passes, four.passes) == (3, 12)
    assert one.grid.bytes_a == 4 * four.grid.bytes_a == found.a.tile[0] * 4096 * 2


def test_bands_are_8_tiles_wide_where_nothing_is_said() -> None:
    assert plan(gemm(tile=Tile(cta=(64, 64, 32))), "sm_80").scheduler.order.group == 8


def test_a_tensor_map_pads_no_rows() -> None:
    padded = replace(gemm(smem=Smem(a=SmemLayout(pad=8))), family="sm120")
    with pytest.raises(SpecError, match=r"smem.a: found pad 8; expected what a tensor map can write"):
        plan(padded, "sm_90")


@pytest.mark.parametrize(
    ("asked", "obeyed"),
    [("(16,32):(32,1)", False), ("Sw<2,3,3> o (8,64):(64,1)", False), ("Sw<2,3,3> o (8,32):(32,1)", True)],
)
def test_a_layout_that_boxes_do_not_write_is_refused_and_not_replaced(asked: str, obeyed: bool) -> None:
    given = SmemLayout(layout=asked)
    spec = replace(gemm(tile=Tile(cta=(128, 128, 64)), smem=Smem(a=given)), family="sm120")
    if obeyed:
        layout = plan(spec, "sm_90").a.smem.layout_of_one_stage
        assert (offsets(layout) == offsets(tile_to_shape(parse_layout(asked), (128, 64)))).all()
        return
    with pytest.raises(SpecError, match=r"smem.a: .* expected what a tensor map can write"):
        plan(spec, "sm_90")


@pytest.mark.parametrize("family", ["sm90", "sm120"])
def test_a_layout_of_c_that_boxes_do_not_write_is_refused_and_not_replaced(family: str) -> None:
    across = Epilogue(smem=SmemLayout(layout="(64,64):(1,64)"))
    with pytest.raises(SpecError, match=r"epilogue.smem: .* expected what a tensor map can write"):
        plan(replace(gemm(tile=Tile(cta=(128, 128, 64)), epilogue=across), family=family), "sm_90")


def test_each_schedule_launches_as_many_ctas_as_it_says() -> None:
    assert planned("sm120").launch.ctas_per_multiprocessor == 1
    assert open_plan().launch.ctas_per_multiprocessor is None
    with pytest.raises(SpecError, match=r"schedule.split_k: found 2; expected 1: "):
        plan(simt(schedule=Schedule(split_k=2)), "sm_80")


def test_what_copies_move_by_hand() -> None:
    """128 x 64 elements of 2 bytes: two in a register of one of the threads; 128 rows of four sectors."""
    element = dtype("f16")
    through = plan(gemm(g2s=G2s(a=G2sCopy(op="universal")), tile=Tile(cta=(128, 128, 64))), "sm_80")
    assert through.a.g2s.passing_registers((128, 64), element) == 128 * 64 // 2 // through.threads
    assert open_plan().a.g2s.passing_registers((128, 64), element) == 0
    boxes = planned("sm120").a.g2s
    assert boxes.sectors((128, 64), 1, 2) == 512


def test_who_multiplies_is_a_warp_or_a_thread() -> None:
    assert [plan(simt(), "sm_80").atoms_are, open_plan().atoms_are] == ["threads", "warps"]


def test_c_leaves_from_registers_where_the_spec_says_so() -> None:
    found = plan(replace(gemm(epilogue=Epilogue(smem=False)), family="sm120"), "sm_90")
    assert found.epilogue.smem is None
    assert decisions(found)["epilogue.smem"].given


def test_scalars_of_the_epilogue_are_those_it_names() -> None:
    found = plan(gemm(epilogue=Epilogue(ops=("alpha", "beta", "bias_n", "relu"))), "sm_80").epilogue.fusion
    assert found.scalars == ("alpha", "beta")
    assert [tensor.modes for tensor in found.tensors] == [("m", "n"), ("n",)]


def test_copies_of_16_bytes_fill_the_stages() -> None:
    """128 x 64 and 128 x 64 elements of 2 bytes are 2048 copies, 16 for each thread of four warps; three stages,
    or as many as there are k-tiles.
    """
    work = cp_async.work_of(gemm(), target("sm_80"), cp_async.CANDIDATES[2], 1)
    assert (work.cta, work.warps, work.stages) == ((128, 128, 64), (2, 2), 3)
    for k, filled in ((4096, 3), (128, 2), (8, 1)):
        counted = quantities(work, ProblemShape(4096, 4096, k), GPUS["sm_80"])
        assert counted.copies == filled * 16
