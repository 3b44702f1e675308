"""Decisions whose arithmetic can be done by hand: what is chosen, what is rejected and why, what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cutegen.algebra import Layout, TiledMma
from cutegen.contract import ProblemShape
from cutegen.contract.problem import MAX_EXTENT
from cutegen.errors import SpecError
from cutegen.hardware import MMA_ATOMS, UNIVERSAL_FMA, target
from cutegen.plan import GemmPlan, plan
from cutegen.plan.epilogue.store import held_together
from cutegen.plan.explain import plan_json, ranking, ranking_lines
from cutegen.plan.predict import ADDRESS_REGISTERS
from cutegen.plan.schedule.consumers import Reallocation, split_registers
from cutegen.plan.schedule.order import _Cache
from cutegen.plan.search.problem import Candidate, with_stages
from cutegen.plan.values.decision import Decision
from cutegen.spec import (
    Bias,
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
    Tile,
    load_spec,
)
from tests.plan.specs import gemm

TILE = Tile(cta=(128, 128, 64))


def simt(a: str = "k", b: str = "k", dtype: str = "f32", **parts: Any) -> GemmSpec:
    problem = Problem(a=Operand(dtype, a), b=Operand(dtype, b), c=Operand("f32", "n"))
    return GemmSpec(family="simt", problem=problem, **parts)


def bytes_spec(family: str, b: str = "n", **parts: Any) -> GemmSpec:
    problem = Problem(a=Operand("s8", "k"), b=Operand("s8", b), c=Operand("s32", "n"))
    return GemmSpec(family=family, problem=problem, **parts)


def decision(found: GemmPlan, key: str) -> Decision:
    return next(one for one in found.decisions if one.key == key)


def rejected(found: GemmPlan, key: str) -> dict[str, str]:
    return {one.what: one.why for one in decision(found, key).rejected}


def refusal(spec: GemmSpec, arch: str = "sm_80") -> str:
    with pytest.raises(SpecError) as caught:
        plan(spec, arch)
    return str(caught.value)


def test_the_default_tile_of_fma_against_half_and_twice_the_k() -> None:
    """A k of 8 takes (128 + 128) x 8 x 4 = 8,192 bytes."""
    found = plan(simt(), "sm_80")
    assert rejected(found, "tile.cta") == {
        "K = 4": "2 times the barriers",
        "K = 16": "16,384 bytes, and 2 times as much unrolled code",
    }


@pytest.mark.parametrize(("cta", "grid"), [((128, 64, 8), (16, 8)), ((64, 128, 8), (8, 16)), ((128, 128, 8), (16, 16))])
def test_fma_threads_have_64_sums_and_load_the_fewest_elements(
    cta: tuple[int, int, int], grid: tuple[int, int]
) -> None:
    found = plan(simt(tile=Tile(cta=cta)), "sm_80")
    assert found.tiled_mma.tile_mnk[:2] == grid
    assert found.threads == cta[0] * cta[1] // 64
    loaded = cta[0] // grid[0] + cta[1] // grid[1]
    assert f"a thread loads {loaded} elements" in decision(found, "mma.threads").why
    others = [int(why.split()[3]) for why in rejected(found, "mma.threads").values()]
    assert loaded < others[0]
    assert others == sorted(others)


def test_instructions_of_fma_copies() -> None:
    """128 x 8 f32 over 256 threads: one vector of 16 bytes, a load and a store; 8 rows by 2 vectors are 16 loads."""
    found = plan(simt(), "sm_80")
    assert rejected(found, "g2s.a")["64 bits"] == "20 instructions per thread, against 18"


def test_a_width_that_is_given_rejects_the_others() -> None:
    found = plan(simt(g2s=G2s(a=G2sCopy(bits=64))), "sm_80")
    assert rejected(found, "g2s.a")["128 bits"] == "the spec requests 64"


@pytest.mark.parametrize(("major", "elems"), [("k", 4), ("m", 2)])
def test_how_fma_loads_lie(major: str, elems: int) -> None:
    found = plan(simt(a=major), "sm_80")
    assert decision(found, "s2r.a").chosen == f"universal, {32 * elems} bits"
    assert decision(found, "s2r.a").why.startswith(f"{elems} elements along k are contiguous")


def test_copy_threads_of_another_number_are_refused_with_a_grid() -> None:
    """(64,1) are 64 threads of 256; 128 x 8 over 256 threads of 4 elements is 128 x 2."""
    spec = simt(g2s=G2s(a=G2sCopy(bits=128, threads="(64,1):(1,0)")), mma=Mma(threads="(16,16):(16,1)"))
    said = refusal(spec)
    assert "size(tA) == size(tC) = 256" in said
    assert 'threads = "(128,2):(2,1)" divides 128x8 evenly' in said
    fixed = replace(spec, g2s=G2s(a=G2sCopy(bits=128, threads="(128,2):(2,1)")))
    assert plan(fixed, "sm_80").a.g2s.bits == 128


def test_copy_threads_with_vectors_past_the_tile_are_refused() -> None:
    """4 threads of 4 elements along K are 16, a k-tile has 8."""
    spec = simt(g2s=G2s(a=G2sCopy(bits=128, threads="(64,4):(4,1)")), mma=Mma(threads="(16,16):(16,1)"))
    assert "BLK_K % THR_K == 0 of tA: 8 % 16 = 8" in refusal(spec)


@pytest.mark.parametrize(
    ("spec", "bits", "registers"),
    [(simt(), (128, 128), 64 + 8 * 4 + 8 * 4 + 2 * 4), (simt("m", "n", "f16"), (64, 32), 64 + 8 * 2 + 8 * 1 + 2 * 2)],
)
def test_registers_of_fma(spec: GemmSpec, bits: tuple[int, int], registers: int) -> None:
    """64 sums; a load of each of 8 rows of A and of B; a thread's share of the next tiles; addresses; in eights."""
    found = plan(spec, "sm_80")
    assert (found.a.s2r.bits, found.b.s2r.bits) == bits
    assert found.predictions.occupancy.registers_per_thread == -(-(registers + ADDRESS_REGISTERS) // 8) * 8


def test_fma_opcodes_are_predicted_where_the_epilogue_has_none() -> None:
    key = UNIVERSAL_FMA.ptx
    assert key in plan(simt(), "sm_80").predictions.instructions
    assert key not in plan(simt(epilogue=Epilogue(ops=("relu",))), "sm_80").predictions.instructions


def test_warps_of_a_tile_of_128_by_128() -> None:
    """A warp's sums are 128 x 128 / 32 / warps registers a thread; a row is read once for each warp across."""
    found = rejected(plan(gemm(tile=TILE), "sm_80"), "mma.atom_layout")
    assert found["4x1x1"] == found["1x4x1"] == "640 fragment rows read per k-tile"
    assert found["4x2x1"] == found["2x4x1"] == found["8x1x1"] == "8 warps, but 4 suffice"
    assert found["4x4x1"] == "16 warps, but 4 suffice"
    assert found["1x1x1"].startswith("512 registers per thread for sums, more than")
    assert found["2x1x1"].startswith("256 registers per thread for sums, more than")
    assert found["1x2x1"] == found["2x1x1"]


def test_few_warps_leave_schedulers_idle() -> None:
    """64 x 64 over two warps are 64 registers a thread: enough, but two of four schedulers."""
    found = rejected(plan(gemm(tile=Tile(cta=(64, 64, 64))), "sm_80"), "mma.atom_layout")
    assert found["2x1x1"] == found["1x2x1"] == "only 2 of the 4 schedulers would have a warp"


def test_sums_that_would_spill_are_refused_with_the_threads_that_there_are() -> None:
    """256 x 256 over 1 x 2 warps of 32: 1,024 registers a thread, of 255."""
    said = refusal(gemm(tile=Tile(cta=(256, 256, 64)), mma=Mma(atom_layout=(1, 2, 1))))
    assert "1,024 registers per thread for sums" in said
    assert "the registers of each of 64 threads on sm_80" in said
    assert "use more warps, or a smaller tile.cta" in said


def test_atoms_that_are_not_chosen_say_why() -> None:
    found = plan(gemm(tile=TILE), "sm_80")
    assert rejected(found, "mma.atom") == {
        "SM80_16x8x8_F32F16F16F32_TN": "2,048 operations per instruction against 4,096"
    }
    short = plan(gemm(tile=Tile(cta=(128, 128, 16))), "sm_80")
    assert short.atom.name == "SM80_16x8x8_F32F16F16F32_TN"
    (why,) = rejected(short, "mma.atom").values()
    assert why == "a k-tile of 16 does not hold two or more k-blocks of 16"


def test_tf32_of_other_operands_is_refused_with_a_way_out() -> None:
    said = refusal(gemm(mma=Mma(tf32="nearest")))
    assert '"nearest" with f16 operands' in said
    assert "leave mma.tf32 out" in said


@pytest.mark.parametrize(("k", "block"), [(64, 16), (32, 16), (16, 8), (24, 8)])
def test_the_k_block_is_two_rows_of_ldmatrix_where_the_tile_holds_two(k: int, block: int) -> None:
    mma = Mma(atom="SM80_16x8x8_F32F16F16F32_TN")
    found = plan(gemm(tile=Tile(cta=(128, 128, k)), mma=mma), "sm_80")
    assert found.tiled_mma.tile_mnk == (32, 32, block)


def test_a_given_permutation_is_given() -> None:
    found = plan(gemm(tile=TILE, mma=Mma(atom_layout=(2, 2, 1), permutation=(32, 64, 16))), "sm_80")
    assert decision(found, "mma.permutation").given
    assert not decision(plan(gemm(tile=TILE), "sm_80"), "mma.permutation").given


def test_only_bytes_along_n_are_taken_in_pairs() -> None:
    def words(spec: GemmSpec, arch: str) -> str:
        return decision(plan(spec, arch), "mma.permutation").chosen

    tile = Tile(cta=(128, 128, 128), stages=2)
    assert "N as (8,2,2)" in words(bytes_spec("sm80", tile=tile, mma=Mma(atom_layout=(2, 2, 1))), "sm_120")
    assert "N as" not in words(bytes_spec("sm80", tile=tile), "sm_80")
    assert "N as" not in words(bytes_spec("sm80", "k", tile=tile), "sm_120")
    assert "N as" not in words(bytes_spec("sm80", tile=tile, s2r=S2r(b=S2rCopy("universal"))), "sm_120")
    assert "N as" not in words(gemm("knn", tile=TILE), "sm_120")


def test_bytes_that_are_transposed_name_the_targets_that_can() -> None:
    spec = bytes_spec("sm80", tile=Tile(cta=(128, 128, 128), stages=2))
    found = rejected(plan(spec, "sm_80"), "s2r.b")
    assert found["SM100_U8x16_LDSM_T"] == "transposes 8-bit elements, on sm_100, sm_103 or sm_120; this is sm_80"
    said = refusal(replace(spec, s2r=S2r(b=S2rCopy("SM75_U16x8_LDSM_T"))))
    assert "sm_100, sm_103 or sm_120 transpose 8-bit elements as well" in said
    assert 'use "universal", or problem.b.major = "k", or --arch sm_120' in said
    there = refusal(replace(spec, s2r=S2r(b=S2rCopy("SM75_U16x8_LDSM_T"))), "sm_120")
    assert "transposes 8-bit elements" in there
    assert "SM100_U8x16_LDSM_T" in there or "SM100_U8x8_LDSM_T" in there


def test_orientation_of_loads_is_said() -> None:
    found = plan(gemm("mkn", tile=TILE), "sm_80")
    assert decision(found, "s2r.b").why.endswith("N, since rows of shared memory run along k as fragments do")
    assert decision(found, "s2r.a").why.endswith("T, since rows of shared memory run along m and fragments along k")
    wide = plan(gemm(dtype="tf32", tile=Tile(cta=(128, 128, 32))), "sm_80")
    assert decision(wide, "s2r.a").why.endswith("16 bytes are 4 elements of 32 bits")


def test_stages_that_do_not_fit_are_rejected_with_their_bytes() -> None:
    """(128 + 256) x 64 x 2 = 49,152 bytes a stage; 163 KiB hold three."""
    found = rejected(plan(gemm(tile=Tile(cta=(128, 256, 64))), "sm_80"), "tile.stages")
    assert found["4 stages"] == "196,608 bytes > 166,912"
    assert set(found) <= {"2 stages", "3 stages", "4 stages"}


@pytest.mark.parametrize(("extent", "at_once"), [(256, True), (8192, False)])
def test_whether_all_tiles_are_in_flight_is_said(extent: int, *, at_once: bool) -> None:
    found = plan(gemm(tile=TILE), "sm_80", ProblemShape(extent, extent, 256))
    said = decision(found, "schedule.raster").for_problem
    assert said is not None
    assert ("all are in flight at once" in said) == at_once


def test_a_cache_that_is_just_full_keeps_everything() -> None:
    cache = _Cache(100, np.array([60, 40, 1]))
    assert cache.read(np.array([0, 1])) == 100
    assert cache.read(np.array([0])) == 0
    assert cache.read(np.array([1])) == 0
    assert cache.read(np.array([2])) == 1
    assert cache.read(np.array([1])) == 0, "of the two older ones the row used last is kept"


@pytest.mark.parametrize(
    ("threads", "most", "least"),
    [
        (128, 255, 255),
        (192, 168, 168),  # 6 warps and 4: setmaxnreg is for whole warpgroups
        (256, 240, 24),
        (384, 160, 24),
        (512, 112, 24),  # 640 x 96 at launch - 24 x 128 = 58,368; 120 each would never come
        (640, 88, 24),
    ],
)
def test_registers_that_the_copying_warps_leave(threads: int, most: int, least: int) -> None:
    """65,536 - 24 x 128 = 62,464 registers: of 384 threads each may have 162, in eights; 256 have 240, the most."""
    split, decision = split_registers(target("sm_120"), threads)
    if most == least:
        assert (split, decision.chosen) == (None, f"{most} per thread")
    else:
        assert split == Reallocation(most, least)


@pytest.mark.parametrize("warps", range(1, 29))
def test_no_warp_waits_for_registers_that_its_cta_never_had(warps: int) -> None:
    """At launch the compiler gives each of the threads as many, of whole quarters of the multiprocessor."""
    threads, quarters = 32 * warps + 128, -(-(warps + 4) // 4)
    at_launch = min(65536 // (128 * quarters) // 8 * 8, 255) * threads
    split, _ = split_registers(target("sm_90"), 32 * warps)
    if split is not None:
        assert split.mma * 32 * warps + split.producer * 128 <= at_launch
        assert warps % 4 == 0, "setmaxnreg is for whole warpgroups"


def test_split_sums_are_whole_sectors() -> None:
    """16,384 bytes of sums a tile and slice are 512 sectors of 32 bytes."""
    found = plan(load_spec("sm80_split_k_tn"), "sm_80").predictions.sectors
    assert {key: (found[key].ideal, found[key].predicted) for key in ("split_k.write", "split_k.read")} == {
        "split_k.write": (512, 512),
        "split_k.read": (512, 512),
    }
    atomics = gemm(tile=TILE, c_dtype="f32", schedule=Schedule(split_k=4, reduction="atomics"))
    atomics = replace(atomics, epilogue=Epilogue(smem=False))
    assert not [key for key in plan(atomics, "sm_80").predictions.sectors if key.startswith("split_k")]


def test_atomics_add_to_sums_only() -> None:
    assert "f16" in refusal(gemm(tile=TILE, schedule=Schedule(split_k=4, reduction="atomics")))


@pytest.mark.parametrize(("asked", "chosen"), [("f32", "f32, along n"), (None, "f16, along n")])
def test_a_bias_has_the_type_it_is_given_or_that_of_c(asked: str | None, chosen: str) -> None:
    spec = gemm(tile=TILE, epilogue=Epilogue(ops=("bias_n", "relu")))
    spec = replace(spec, problem=replace(spec.problem, bias=Bias(asked) if asked else None))
    found = plan(spec, "sm_80")
    assert decision(found, "problem.bias").chosen == chosen
    assert "C is not read when beta is 0" not in decision(found, "epilogue.ops").why


def test_c_behind_beta_is_not_always_read() -> None:
    found = plan(gemm(tile=TILE, epilogue=Epilogue(ops=("alpha", "beta"))), "sm_80")
    assert decision(found, "epilogue.ops").why.endswith("C is not read when beta is 0")


@pytest.mark.parametrize(
    ("mma", "major_mode", "neighbors"),
    [("mma", 1, 2), ("mma", 0, 1), ("fma", 1, 1), ("fma", 0, 1)],
)
def test_neighbors_of_c_that_a_thread_holds(mma: str, major_mode: int, neighbors: int) -> None:
    tiled = {
        "mma": TiledMma(MMA_ATOMS["SM80_16x8x16_F32F16F16F32_TN"], Layout((2, 2, 1))),
        "fma": TiledMma(UNIVERSAL_FMA, Layout((16, 16, 1))),
    }[mma]
    assert held_together(tiled, major_mode) == neighbors


@pytest.mark.parametrize(
    ("op", "words"), [("universal", "through registers to"), ("cp.async.cg", None), ("cp.async.ca", None)]
)
def test_a_given_copy_says_the_way_it_goes(op: str, words: str | None) -> None:
    found = decision(plan(gemm(tile=TILE, g2s=G2s(a=G2sCopy(op=op))), "sm_80"), "g2s.a")
    assert ("through registers to" in found.why) == (words is not None)


def test_bytes_of_a_rejected_layout_stand_beside_those_of_the_chosen_one() -> None:
    """A pad of 8 elements: 128 rows of 72 x 2 bytes against 128 x 128."""
    found = rejected(plan(gemm(tile=TILE), "sm_80"), "smem.a")
    assert found["pad 8"].endswith("18,432 bytes against 16,384")
    assert "against" not in found["Swizzle<2,3,3> on 8x32"]


def test_a_ranking_has_a_line_for_each_row_under_its_header() -> None:
    found = plan(simt(), "sm_80")
    rows = ranking(found.a.smem)
    title, header, *lines = ranking_lines("A", rows)
    assert (title, header.split()) == ("A", ["layout", "writes", "reads", "wavefronts", "bytes"])
    assert len(lines) == len(rows)
    assert all(row[1].split()[0] in line for row, line in zip(rows, lines, strict=True))
    assert all(line.split()[-1] == row[-1].split()[-1] for row, line in zip(rows, lines, strict=True))


def test_json_is_indented_by_two() -> None:
    first, second, *_ = plan_json(plan(gemm(tile=TILE), "sm_80")).splitlines()
    assert (first, len(second) - len(second.lstrip())) == ("{", 2)


def test_a_block_is_a_row_of_threads_and_counting_stays_within_int32() -> None:
    assert plan(gemm(tile=TILE), "sm_80").launch.geometry(ProblemShape(128, 128, 64)).block == (128, 1, 1)
    assert MAX_EXTENT + 2**13 * 2**3 <= 2**31 - 1 < MAX_EXTENT + 2**17


def test_stages_come_with_a_row_unless_they_do_not_fit() -> None:
    rows = [Candidate((128, 128, 64), (2, 2, 1), 3), Candidate((256, 128, 64), (4, 2, 1), 3)]
    spec = gemm()

    def most(cta: tuple[int, int, int]) -> int:
        return {128: 6, 256: 1}[cta[0]]

    assert [row.stages for row in with_stages(spec, rows, most)] == [3]
    assert [row.stages for row in with_stages(spec, rows, lambda _: 2)] == [2, 2]
    given = replace(spec, tile=Tile(stages=5))
    assert [row.stages for row in with_stages(given, rows, most)] == [5, 5]


def test_slices_that_are_not_chosen_are_all_named() -> None:
    """With K = 65,536 and four tiles, fewer and more slices than the chosen ones are compared."""
    found = plan(gemm(), "sm_90", ProblemShape(256, 256, 65536))
    chosen = decision(found, "schedule.split_k")
    others = sorted(int(one.what.split()[0]) for one in chosen.rejected)
    assert int(chosen.chosen) not in others
    assert min(others) < int(chosen.chosen) < max(others)
    assert found.split_k is not None
    assert found.split_k.slices == int(chosen.chosen)
    assert decision(found, "tile.stages").chosen == str(found.stages)
    assert np.prod(found.tiled_mma.atom_layout.shape) * 32 == found.threads
