"""Copies of A and B to shared memory: threads, widths and the layouts that they fill, by examples by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cutegen.algebra import offsets, parse_layout, tile_to_shape
from cutegen.contract.problem import ProblemShape
from cutegen.errors import SpecError
from cutegen.hardware import GPUS, dtype, target
from cutegen.plan import plan
from cutegen.plan.search import cp_async
from cutegen.plan.search.tile_model import quantities
from cutegen.spec import (
    Epilogue,
    G2s,
    G2sCopy,
    Mma,
    Smem,
    SmemLayout,
    Tile,
)
from tests.plan.said import chosen, decision, decisions, open_plan, planned, refusal, rejected
from tests.plan.specs import fma_spec, gemm

TILE = Tile(cta=(128, 128, 64))

PLAIN = G2sCopy(op="universal", bits=32, threads="(16,8):(8,1)")


def test_a_stage_of_its_own_has_no_stride() -> None:
    """CuTe gives a mode of extent 1 stride 0."""
    layout = plan(gemm(tile=Tile(cta=(64, 64, 32), stages=1), smem=Smem(a=SmemLayout(pad=8))), "sm_80").a.smem.layout
    assert layout.stride[2] == (0, 0) or layout.stride[2] == 0


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


def test_what_copies_move_by_hand() -> None:
    """128 x 64 elements of 2 bytes: two in a register of one of the threads; 128 rows of four sectors."""
    element = dtype("f16")
    through = plan(gemm(g2s=G2s(a=G2sCopy(op="universal")), tile=Tile(cta=(128, 128, 64))), "sm_80")
    assert through.a.g2s.passing_registers((128, 64), element) == 128 * 64 // 2 // through.threads
    assert open_plan().a.g2s.passing_registers((128, 64), element) == 0
    boxes = planned("sm120").a.g2s
    assert boxes.sectors((128, 64), 1, 2) == 512


def test_copies_of_16_bytes_fill_the_stages() -> None:
    """128 x 64 and 128 x 64 elements of 2 bytes are 2048 copies, 16 for each thread of four warps; three stages,
    or as many as there are k-tiles.
    """
    work = cp_async.work_of(gemm(), target("sm_80"), cp_async.CANDIDATES[2], 1)
    assert (work.cta, work.warps, work.stages) == ((128, 128, 64), (2, 2), 3)
    for k, filled in ((4096, 3), (128, 2), (8, 1)):
        counted = quantities(work, ProblemShape(4096, 4096, k), GPUS["sm_80"])
        assert counted.copies == filled * 16


def test_a_width_that_is_given_rejects_the_others() -> None:
    found = plan(fma_spec(g2s=G2s(a=G2sCopy(bits=64))), "sm_80")
    assert rejected(found, "g2s.a")["128 bits"] == "the spec requests 64"


def test_copy_threads_of_another_number_are_refused_with_a_grid() -> None:
    """(64,1) are 64 threads of 256; 128 x 8 over 256 threads of 4 elements is 128 x 2."""
    spec = fma_spec(g2s=G2s(a=G2sCopy(bits=128, threads="(64,1):(1,0)")), mma=Mma(threads="(16,16):(16,1)"))
    said = refusal(spec)
    assert "size(tA) == size(tC) = 256" in said
    assert 'threads = "(128,2):(2,1)" divides 128x8 evenly' in said
    fixed = replace(spec, g2s=G2s(a=G2sCopy(bits=128, threads="(128,2):(2,1)")))
    assert plan(fixed, "sm_80").a.g2s.bits == 128


def test_copy_threads_with_vectors_past_the_tile_are_refused() -> None:
    """4 threads of 4 elements along K are 16, a k-tile has 8."""
    spec = fma_spec(g2s=G2s(a=G2sCopy(bits=128, threads="(64,4):(4,1)")), mma=Mma(threads="(16,16):(16,1)"))
    assert "BLK_K % THR_K == 0 of tA: 8 % 16 = 8" in refusal(spec)


@pytest.mark.parametrize(
    ("op", "words"), [("universal", "through registers to"), ("cp.async.cg", None), ("cp.async.ca", None)]
)
def test_a_given_copy_says_the_way_it_goes(op: str, words: str | None) -> None:
    found = decision(plan(gemm(tile=TILE, g2s=G2s(a=G2sCopy(op=op))), "sm_80"), "g2s.a")
    assert ("through registers to" in found.why) == (words is not None)


@pytest.mark.parametrize(
    ("family", "mma", "whole", "keys"),
    [
        ("sm80", Mma(atom_layout=(2, 2, 1)), PLAIN, ("op", "bits", "threads")),
        ("simt", Mma(threads="(16,8):(8,1)"), PLAIN, ("bits", "threads")),
        ("sm120", Mma(), G2sCopy(op="cp.async.bulk.tensor"), ("op",)),
    ],
)
def test_a_copy_of_which_a_key_is_left_open_is_chosen(
    family: str, mma: Mma, whole: G2sCopy, keys: tuple[str, ...]
) -> None:
    open_copy = replace(gemm(tile=Tile((64, 64, 32))), family=family, mma=mma)
    for left_out in (None, *keys):
        copy = replace(whole, **{left_out: None}) if left_out else whole
        found = plan(replace(open_copy, g2s=G2s(a=copy)), "sm_90").decisions
        assert [x.given for x in found if x.key == "g2s.a"] == [left_out is None], left_out


def test_padding_narrows_the_copies() -> None:
    """A row that starts 8 bytes after a multiple of 16 takes 8-byte copies, and no ldmatrix."""
    found = plan(gemm(tile=Tile(cta=(128, 128, 64)), smem=Smem(a=SmemLayout(pad=4), b=SmemLayout(pad=2))), "sm_80")
    assert (found.a.g2s.bits, found.a.s2r.matrices, found.a.s2r.bits) == (64, None, 32)
    assert (found.b.g2s.bits, found.b.s2r.matrices, found.b.s2r.bits) == (32, None, 32)
    assert "keeps only 4 elements contiguous" in found.a.s2r.rejected[0].why


def test_a_pad_that_narrows_accesses_says_so_and_which_would_not() -> None:
    found = plan(gemm(tile=Tile(cta=(128, 128, 64)), smem=Smem(a=SmemLayout(pad=3), b=SmemLayout(pad=16))), "sm_80")
    why = {decision.key: decision.why for decision in found.decisions}
    said = "accesses are at most 2 bytes wide, the run that it keeps contiguous; pad = 8 would keep the 16 that"
    assert said in why["smem.a"]
    assert "accesses" not in why["smem.b"]
    assert "keeps only 1 element contiguous" in why["s2r.a"]
    aligned = plan(gemm(align=(4, None, None), smem=Smem(a=SmemLayout(pad=2))), "sm_80").decisions
    assert not any("accesses are at most" in decision.why for decision in aligned), "4 bytes of 4"


def test_a_padded_atom_keeps_its_padding_between_repetitions() -> None:
    atom = SmemLayout(layout="(8,32):(40,1)")
    found = plan(gemm(tile=Tile(cta=(128, 128, 32), stages=2), smem=Smem(a=atom)), "sm_80")
    assert found.a.smem.bytes == 2 * 128 * 40 * 2
    assert found.a.smem.chosen.read.ways == 1


@pytest.mark.parametrize(
    ("align", "bits", "op"),
    [(4, 32, "cp.async.ca"), (8, 64, "cp.async.ca"), (16, 128, "cp.async.cg"), (32, 128, "cp.async.cg")],
)
def test_the_copy_is_as_wide_as_the_operand_is_aligned(align: int, bits: int, op: str) -> None:
    found = plan(gemm(align=(align, 16, 16)), "sm_80")
    assert found.a.g2s.bits == bits
    assert chosen(found)["g2s.a"].startswith(op)
    assert found.b.g2s.bits == 128


def test_sectors_of_whole_lines_are_ideal_and_of_pairs_are_not() -> None:
    """A 128 x 64 tile is 512 sectors. Pairs, 4 lanes a row, take half a sector each time: twice the ideal."""
    found = plan(gemm(tile=Tile(cta=(128, 128, 64)), epilogue=Epilogue(smem=False)), "sm_80")
    assert (found.predictions.sectors["g2s.a"].ideal, found.predictions.sectors["g2s.a"].predicted) == (512, 512)
    direct = found.predictions.sectors["epilogue"]
    assert (direct.ideal, direct.predicted) == (1024, 2048)
    staged = plan(gemm(tile=Tile(cta=(128, 128, 64))), "sm_80").predictions.sectors["epilogue"]
    assert (staged.ideal, staged.predicted) == (1024, 1024)
    # Straight to a column-major C each lane stores 2 bytes; 8 lanes of a column share 16 bytes, 4 columns at once.
    columns = plan(gemm("kkm", tile=Tile(cta=(128, 128, 64)), epilogue=Epilogue(smem=False)), "sm_80")
    assert columns.predictions.sectors["epilogue"].predicted == 2048
