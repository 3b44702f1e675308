"""The `simt` family: CuTe's preconditions by name, what is chosen, and who holds what, by CuTe's own definition."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cutegen.algebra import Layout, offsets_2d, parse_layout
from cutegen.errors import CompileError, EmissionError, SpecError
from cutegen.hardware import UNIVERSAL_FMA, target
from cutegen.plan import GemmPlan, plan
from cutegen.plan.geometry import accumulators, fragment_loads, vectors
from cutegen.plan.kernel.program import Action
from cutegen.plan.kernel.timeline import residences, shown
from cutegen.plan.mma import fma
from cutegen.plan.operands.shared_memory import Access
from cutegen.plan.predict import ADDRESS_REGISTERS
from cutegen.plan.prove import prove
from cutegen.run import Kernel
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
    load_spec,
)
from cutegen.verify import compare, float64_reference, random_operands
from tests.plan.changed import with_path, with_region
from tests.plan.kernels import Build
from tests.plan.said import decision, rejected
from tests.plan.specs import fma_spec

SHIPPED = ("simt_sgemm_nt", "simt_sgemm_tn")
THREAD_LAYOUTS = ["(16,16):(1,16)", "(16,16):(16,1)", "(8,32):(32,1)", "((4,4),(8,2)):((1,32),(4,128))"]


def simt(majors: str = "mnm", dtypes: tuple[str, str, str] = ("f32", "f32", "f32"), **parts: Any) -> GemmSpec:
    a, b, c = (Operand(dtype, major) for dtype, major in zip(dtypes, majors, strict=True))
    accumulator = parts.pop("accumulator", None)
    return GemmSpec(family="simt", problem=Problem(a=a, b=b, c=c, accumulator=accumulator), name="mine", **parts)


def copies(a: str | None = None, b: str | None = None, **keys: Any) -> G2s:
    return G2s(a=G2sCopy(threads=a, **keys), b=G2sCopy(threads=b, **keys))


TC = Mma(threads="(16,16):(1,16)")
REFUSED: dict[str, tuple[dict[str, Any], str, str]] = {
    "size(tA) == size(tC)": (
        {"mma": TC, "g2s": copies(a="(32,4):(1,32)")},
        "g2s.a.threads",
        "size(tA) == size(tC) = 256",
    ),
    "size(tB) == size(tC)": (
        {"mma": TC, "g2s": copies(b="(32,4):(1,32)")},
        "g2s.b.threads",
        "size(tB) == size(tC) = 256",
    ),
    "size(tA) == size(tB)": (
        {"g2s": copies("(32,8):(1,32)", "(32,4):(1,32)")},
        "g2s.b.threads",
        "size(tA) == size(tB)",
    ),
    "BLK_M % THR_M of tA": ({"g2s": copies(a="(256,1):(1,0)")}, "g2s.a.threads", "BLK_M % THR_M == 0 of tA: 128 % 256"),
    "BLK_K % THR_K of tA": ({"g2s": copies(a="(16,16):(1,16)")}, "g2s.a.threads", "BLK_K % THR_K == 0 of tA: 8 % 16"),
    "BLK_N % THR_N of tB": ({"g2s": copies(b="(256,1):(1,0)")}, "g2s.b.threads", "BLK_N % THR_N == 0 of tB: 128 % 256"),
    "BLK_K % THR_K of tB": ({"g2s": copies(b="(16,16):(1,16)")}, "g2s.b.threads", "BLK_K % THR_K == 0 of tB: 8 % 16"),
    "BLK_M % THR_M of tC": (
        {"mma": Mma(threads="(96,2):(1,96)")},
        "mma.threads",
        "BLK_M % THR_M == 0 of tC: 128 % 96 = 32; use a tile that 192 threads divide evenly, 1 element each",
    ),
    "BLK_N % THR_N of tC": (
        {"mma": Mma(threads="(2,96):(96,1)")},
        "mma.threads",
        "BLK_N % THR_N == 0 of tC: 128 % 96 = 32",
    ),
    "a way out that has as many threads": (
        {"tile": Tile((96, 128, 8)), "mma": TC, "g2s": copies(a="(64,4):(1,64)")},
        "g2s.a.threads",
        'BLK_M % THR_M == 0 of tA: 96 % 64 = 32; threads = "(32,8):(1,32)" divides 96x8 evenly',
    ),
    "vectors span the tile": (
        {"g2s": G2s(a=G2sCopy(bits=128, threads="(128,2):(1,128)"))},
        "g2s.a.threads",
        "BLK_M % THR_M == 0 of tA: 128 % 512",
    ),
    "whole warps": ({"mma": Mma(threads="(4,4):(1,4)")}, "mma.threads", "whole warps of 32"),
    "registers": ({"mma": Mma(threads="(8,4):(1,8)")}, "mma.threads", "fewer than the 255 registers"),
    "shared layout of the tile's shape": (
        {"smem": Smem(a=SmemLayout(layout="(96,8):(1,96)"))},
        "smem.a.layout",
        "an atom that divides the operand's tile 128x8",
    ),
    "plain copies": ({"g2s": G2s(a=G2sCopy(op="cp.async.ca"))}, "g2s.a.op", '"universal"'),
    "whole elements": ({"g2s": G2s(a=G2sCopy(bits=16))}, "g2s.a.bits", "one f32 has 32 bits"),
    "no fragments": ({"s2r": S2r(a=S2rCopy("SM75_U32x4_LDSM_N"))}, "s2r.a.atom", '"universal"'),
    "one or two stages": ({"tile": Tile(stages=3)}, "tile.stages", "1 or 2"),
    "K is not split": ({"schedule": Schedule(split_k=4)}, "schedule.split_k", "all of a tile's K"),
    "sums in f32": ({"accumulator": "f16"}, "problem.accumulator", '"f32"'),
    "shared memory": ({"tile": Tile(cta=(512, 512, 64))}, "tile.cta", "not even one stage fits"),
    "registers for a large tile": ({"tile": Tile(cta=(512, 512, 8))}, "tile.cta", "registers"),
    "a tile for whole warps": ({"tile": Tile(cta=(3, 5, 7))}, "tile.cta", "whole warps"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_precondition_that_does_not_hold_is_named(name: str) -> None:
    parts, key, expected = REFUSED[name]
    with pytest.raises(SpecError) as refused:
        plan(simt(**parts), "sm_80")
    assert refused.value.key == key
    assert expected in str(refused.value)
    assert "mine: " in str(refused.value)


def test_a_swizzle_that_further_stages_change_is_refused() -> None:
    """The second stage lies 256 elements on, which is bit 8, and Sw<2,4,3> exchanges bits 4 and 5 by bits 7 and 8."""
    layout = SmemLayout(layout="Sw<2,4,3> o (16,(4,2)):(1,(16,64))")
    asked = simt("kkm", tile=Tile(cta=(16, 16, 16), stages=1), smem=Smem(b=layout))
    assert plan(asked, "sm_80").b.smem.chosen.name == "Swizzle<2,4,3> on 16x8"
    with pytest.raises(SpecError, match=r"smem.b: found Swizzle<2,4,3> on 16x8 .*: the swizzle XORs bits"):
        plan(replace(asked, tile=Tile(cta=(16, 16, 16))), "sm_80")


@pytest.mark.parametrize("family", ["sm80", "simt"])
def test_keys_of_another_family_are_refused(family: str) -> None:
    mma = Mma(threads="(16,16):(1,16)") if family == "sm80" else Mma(atom_layout=(2, 2, 1))
    with pytest.raises(SpecError, match=f'in family "{family}"; expected no such key in this family'):
        replace(simt(), family=family, mma=mma)


def test_a_copy_wider_than_the_alignment_is_refused_with_the_reason() -> None:
    spec = simt(g2s=G2s(a=G2sCopy(bits=128)))
    problem = replace(spec.problem, a=Operand("f32", "m", align=4))
    with pytest.raises(SpecError, match=r"g2s\.a\.bits: found 128, but the operand is aligned to 4 bytes"):
        plan(replace(spec, problem=problem), "sm_80")


@pytest.mark.parametrize("name", SHIPPED)
def test_the_tutorials_kernel_is_planned_as_it_is_written(name: str) -> None:
    found = plan(load_spec(name), "sm_80")
    assert all(decision.given for decision in found.decisions)
    assert (found.threads, found.stages, found.smem_bytes) == (256, 1, 2 * 128 * 8 * 4)
    assert (found.a.g2s.bits, found.b.g2s.bits, found.epilogue.smem) == (32, 32, None)
    assert found.predictions.sectors["g2s.a"].predicted == 128 * 8 * 4 // 32


def test_what_is_known_of_the_tutorials_conflicts() -> None:
    """NT: none. TN: rows of 8 words; 8 lanes of a 16-byte phase start 8 words apart, in 4 groups of 4 banks: 2-way."""
    nt, tn = (plan(load_spec(name), "sm_80").predictions.wavefronts for name in SHIPPED)
    assert {key: row.ways for key, row in nt.items()} == dict.fromkeys(("g2s.a", "g2s.b", "s2r.a", "s2r.b"), 1)
    assert (tn["s2r.a"].ways, tn["s2r.b"].ways, tn["g2s.a"].ways) == (2, 1, 1)
    # 8 warps, 8 rows a thread: a 4-byte load of 8 columns each, or two 16-byte loads of 4 phases, twice over.
    assert (nt["s2r.a"].predicted, tn["s2r.a"].predicted) == (8 * 8 * 8, 8 * 8 * 2 * 4 * 2)


@pytest.mark.parametrize("text", THREAD_LAYOUTS)
def test_sums_lie_where_local_partition_puts_them(text: str) -> None:
    """local_partition(gC, tC, t): the elements (m, n) whose position within a repetition of tC is thread t's."""
    found = plan(simt(mma=Mma(threads=text)), "sm_80")
    layout = parse_layout(text)
    assert isinstance(layout, Layout)
    grid = offsets_2d(layout)
    m, n = np.meshgrid(np.arange(128), np.arange(128), indexing="ij")
    owner = grid[m % grid.shape[0], n % grid.shape[1]]
    held = accumulators(found.tiled_mma, (128, 128), 1)[..., 0]
    assert held.shape[1] == 256
    for thread in (0, 1, 17, 100, 255):
        expected = {(i, j) for i, j in zip(*np.nonzero(owner == thread), strict=True)}
        assert {(int(c) % 128, int(c) // 128) for c in held[:, thread]} == expected
        share = found.tiled_mma.partition("C", Layout((128, 128)), thread)
        assert {(int(c) % 128, int(c) // 128) for c in share.offsets()} == expected


@pytest.mark.parametrize("name", SHIPPED)
def test_copies_and_loads_are_those_of_local_partition(name: str) -> None:
    """TA copies element (m, k) by the thread at (m % 32, k % 8); thread t of tC loads rows t % 16 of A, t / 16 of B."""
    found = plan(load_spec(name), "sm_80")
    m, k = np.arange(128)[:, None], np.arange(8)[None, :]
    of_thread = m % 32 + 32 * k if name == "simt_sgemm_nt" else 8 * (m % 32) + k
    copied = vectors(found.a.g2s.threads, found.a.g2s.values, (128, 8))[..., 0]
    for thread in (0, 31, 32, 255):
        assert set(copied[:, thread]) == set((m + 128 * k)[of_thread == thread])
        for operand, row in ((found.a, thread % 16), (found.b, thread // 16)):
            elems = operand.s2r.bits // 32
            loaded = fragment_loads(found.tiled_mma, operand.operand, (128, 8), elems)[:, thread]
            assert set(loaded.ravel()) == {x + 128 * y for x in range(row, 128, 16) for y in range(8)}
            assert len(loaded) == 8 * 8 // elems


@pytest.mark.parametrize("majors", ["mnm", "kkn", "mkn", "knm"])
@pytest.mark.parametrize("dtypes", [("f32", "f32", "f32"), ("f16", "bf16", "f32"), ("bf16", "f32", "f16")])
def test_what_is_left_open_is_chosen_without_conflicts(majors: str, dtypes: tuple[str, str, str]) -> None:
    found = plan(simt(majors, dtypes), "sm_80")
    prove(found)
    assert found.cta_tile == (128, 128, 8)
    assert found.threads == 256
    assert not any(decision.given for decision in found.decisions)
    reads = [found.predictions.wavefronts[key].ways for key in ("s2r.a", "s2r.b")]
    assert max(reads) == 1
    assert found.predictions.sectors["epilogue"].predicted == found.predictions.sectors["epilogue"].ideal
    # Neighboring threads store adjacent elements of C.
    m, n = found.tiled_mma.thr_layout_vmnk.stride[1:3]
    assert (n if majors[2] == "n" else m) == 1


def test_a_plan_says_what_else_there_was() -> None:
    rejected = {decision.key: decision.rejected for decision in plan(simt("kkn"), "sm_80").decisions}
    assert [row.what for row in rejected["tile.cta"]] == ["K = 4", "K = 16"]
    assert [row.what for row in rejected["g2s.a"]] == ["64 bits", "32 bits"]
    assert "instructions per thread, against" in rejected["g2s.a"][0].why
    assert rejected["tile.stages"][0].what == "1 stage"
    assert rejected["mma.threads"][0].what == "8x32 threads"
    assert "shared memory" in rejected["epilogue.smem"][0].why


def test_thread_counts_follow_what_is_given() -> None:
    assert plan(simt(g2s=copies(a="(32,4):(1,32)")), "sm_80").threads == 128
    small = plan(simt(tile=Tile(cta=(32, 32, 8))), "sm_80")
    assert (small.threads, small.atoms_mnk) == (32, (8, 4, 1))


@pytest.mark.parametrize("stages", [1, 2])
def test_the_main_loop_multiplies_what_has_landed(stages: int) -> None:
    found = plan(simt(tile=Tile(stages=stages)), "sm_80")
    slots = shown(found.loop)
    stays = {stay.k_tile: stay for stay in residences(slots, stages)}
    for number, slot in enumerate(slots):
        if (step := slot.step(Action.MULTIPLY)) is not None:
            stay = stays[step.k_tile]
            assert stay.landed is not None
            assert stay.landed <= number
    for one, other in zip(stays.values(), list(stays.values())[stages:], strict=False):
        assert one.last_read is not None
        assert one.last_read < other.fetched


def test_a_plan_that_is_tampered_with_is_not_proved() -> None:
    found = plan(simt(), "sm_80")

    def broken(**parts: Any) -> GemmPlan:
        return replace(found, **parts)

    other = plan(simt(mma=Mma(threads="(8,16):(1,8)")), "sm_80")
    for wrong in (
        broken(mma=replace(found.mma, tiled_mma=other.tiled_mma)),
        with_path(found, "b", g2s=other.b.g2s),
        with_region(found, "b", bytes=found.b.smem.bytes // 2),
        with_path(found, "a", s2r=replace(found.a.s2r, bits=128)),
    ):
        with pytest.raises(Exception, match="defect of cutegen"):
            prove(wrong)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_operands_of_16_bits_are_those_of_the_fma_from_sm_100_on(dtype: str) -> None:
    """PTX ISA, "fma": the form with a second type, of compute capability 10.0."""
    spec = simt(dtypes=(dtype, dtype, "f32"), tile=Tile(cta=(32, 32, 8)))
    counts = {arch: plan(spec, arch).predictions.instructions for arch in ("sm_90", "sm_100", "sm_120")}
    per_thread = 2 * 32 * 32 * 8 // plan(spec, "sm_90").threads
    assert counts["sm_90"]["fma.rn.f32"] == per_thread
    assert counts["sm_100"][f"fma.rn.f32.{dtype}"] == counts["sm_120"][f"fma.rn.f32.{dtype}"] == per_thread
    assert "fma.rn.f32" not in counts["sm_100"]


def test_the_order_of_tiles_is_chosen_for_a_problem() -> None:
    found = plan(simt(), "sm_90", (8192, 8192, 512))
    assert found.problem is not None
    assert (found.cta_tile, found.threads) == ((128, 128, 8), 256)
    order = next(decision for decision in found.decisions if decision.key == "schedule.raster")
    assert not order.given
    assert order.why


@pytest.mark.parametrize(("name", "threads"), [("a", "(1,32)"), ("b", "(32,1)")])
@pytest.mark.parametrize(("dtype", "pads"), [("f32", {1: False, 2: True, 3: False}), ("f16", {2: False, 4: True})])
def test_what_one_thread_reads_whole_has_no_narrow_gaps(
    name: str, threads: str, dtype: str, pads: dict[int, bool]
) -> None:
    """The compiler would join its loads, over pads that nobody writes; those of several threads it cannot."""
    tile = Tile(cta=(32, 32, 8))
    for pad, taken in pads.items():
        smem = Smem(**{name: SmemLayout(pad=pad)})
        other = Mma(threads="(16,2)")
        assert plan(simt("mnn", (dtype,) * 3, tile=tile, mma=other, smem=smem), "sm_80")
        spec = simt("mnn", (dtype,) * 3, tile=tile, mma=Mma(threads=threads), smem=smem)
        if taken:
            assert plan(spec, "sm_80")
        else:
            with pytest.raises(
                SpecError, match=rf"smem\.{name}.*merges its loads over gaps.*a pad that is a multiple of 8 bytes"
            ):
                plan(spec, "sm_80")


OUT_OF_ORDER = {
    "pairs of K's columns exchanged": ("f16", "(16,(2,2,2)):(8,(2,1,4))", "(16,(2,2,2)):(8,(1,2,4))"),
    "columns between those of other rows": ("f16", "(8,4):(8,1)", "(32,4):(8,1)"),
    "a thread's rows side by side": ("f32", "((4,2,2),(8,4)):((64,4,256),(8,1))", "(16,32):(32,1)"),
}
"""Layouts of A in which the compiler joins what a thread reads, and others in which a load brings what it can."""


def out_of_order(dtype: str, layout: str) -> GemmSpec:
    smem = Smem(a=SmemLayout(layout=layout))
    return simt("kkn", (dtype, dtype, "f32"), tile=Tile(cta=(32, 32, 32)), smem=smem)


@pytest.mark.parametrize("name", OUT_OF_ORDER)
def test_what_a_thread_reads_lies_in_the_order_of_k_or_apart(name: str) -> None:
    dtype, refused, taken = OUT_OF_ORDER[name]
    assert plan(out_of_order(dtype, taken), "sm_90")
    with pytest.raises(SpecError, match=r"smem\.a.*in another order than along K.*in order"):
        plan(out_of_order(dtype, refused), "sm_90")


@pytest.mark.dsl
@pytest.mark.slow
@pytest.mark.parametrize("name", OUT_OF_ORDER)
def test_the_compiler_joins_loads_in_another_order(name: str, built: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    """Why such a layout is refused: the loads of the plan are not in the text."""
    monkeypatch.setattr(Access, "joins_further", lambda *_: False)
    with pytest.raises(EmissionError, match=r"nothing else instead of the planned ld\.shared"):
        built(out_of_order(*OUT_OF_ORDER[name][:2]), "sm_90")


@pytest.mark.dsl
def test_one_load_of_all_rows_must_not_swizzle_them(built: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    tile, smem = Tile(cta=(32, 128, 8)), Smem(a=SmemLayout(layout="Sw<2,4,2> o (8,4):(4,1)"))
    spec = simt("knn", tile=tile, smem=smem)
    with pytest.raises(SpecError, match=r"smem\.a.*the swizzle XORs bits in which a thread's own accesses"):
        plan(spec, "sm_90")
    monkeypatch.setattr(Access, "tears", lambda *_, **__: False)
    with pytest.raises(CompileError, match="_ComposedLayout"):
        built(spec, "sm_90")


@pytest.mark.slow
@pytest.mark.parametrize(("majors", "dtype"), [("kkn", "f32"), ("mnn", "f16")])
@pytest.mark.parametrize("threads", ["(32,1)", "(1,32)"])
def test_one_thread_along_a_mode_reads_what_was_written(majors: str, dtype: str, threads: str, built: Build) -> None:
    """With a pad of 8 bytes, and with the layout that is chosen."""
    for smem in (Smem(), Smem(*(SmemLayout(pad=8 // (4 if dtype == "f32" else 2)) for _ in "ab"))):
        spec = simt(majors, (dtype, dtype, "f32"), tile=Tile(cta=(32, 32, 8)), mma=Mma(threads=threads), smem=smem)
        kernel = Kernel(built(spec, "sm_80"))
        a, b, out = random_operands(kernel.contract, 40, 24, 20, seed=1)
        assert kernel.execute(a, b, out=out).violations == ()
        assert compare(out, float64_reference(a, b), dtype="f32").ok


@pytest.mark.parametrize("name", ["a", "b"])
@pytest.mark.parametrize(("bits", "swizzle"), [(64, (2, 1, 4)), (None, (2, 1, 4)), (32, (2, 0, 4))], ids=str)
def test_a_swizzle_may_be_as_fine_as_the_copies(name: str, bits: int | None, swizzle: tuple[int, int, int]) -> None:
    """A copy of 8 bytes needs 2 elements of f32 together, and an open width follows from the layout."""
    g2s, smem = G2s(**{name: G2sCopy(bits=bits)}), Smem(**{name: SmemLayout(swizzle=swizzle)})
    found = plan(simt("kkn", tile=Tile((64, 64, 16)), g2s=g2s, smem=smem), "sm_86")
    assert isinstance(found, GemmPlan)
    used = getattr(found, name).smem.chosen.swizzle
    assert (used.bits, used.base, used.shift) == swizzle


def test_a_swizzle_that_was_chosen_may_be_given() -> None:
    asked = simt("knm", tile=Tile((48, 64, 16)), g2s=G2s(a=G2sCopy(bits=64)))
    found = plan(asked, "sm_86")
    assert isinstance(found, GemmPlan)
    used = found.a.smem.chosen.swizzle
    assert used is not None
    assert used.base == 1
    again = plan(replace(asked, smem=Smem(a=SmemLayout(swizzle=(used.bits, used.base, used.shift)))), "sm_86")
    assert isinstance(again, GemmPlan)
    assert again.a.smem.chosen == found.a.smem.chosen


def test_threads_of_simt_by_hand() -> None:
    k = fma.choose_cta_tile(fma_spec(align=4)).decision.rejected
    assert [(row.what, row.why) for row in k] == [
        ("K = 4", "2 times the barriers"),
        ("K = 16", "16,384 bytes, and 2 times as much unrolled code"),
    ]
    assert fma._divisors(12) == [1, 2, 3, 4, 6, 12]
    chosen = fma.choose_threads(fma_spec(align=4), (128, 128, 8), target("sm_80"))
    assert chosen.value.shape == (16, 16)
    few = fma.choose_threads(fma_spec(align=4), (64, 8, 16), target("sm_80"))
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
        plan(fma_spec(align=4, **parts), "sm_80")


def test_the_default_tile_of_fma_against_half_and_twice_the_k() -> None:
    """A k of 8 takes (128 + 128) x 8 x 4 = 8,192 bytes."""
    found = plan(fma_spec(), "sm_80")
    assert rejected(found, "tile.cta") == {
        "K = 4": "2 times the barriers",
        "K = 16": "16,384 bytes, and 2 times as much unrolled code",
    }


@pytest.mark.parametrize(("cta", "grid"), [((128, 64, 8), (16, 8)), ((64, 128, 8), (8, 16)), ((128, 128, 8), (16, 16))])
def test_fma_threads_have_64_sums_and_load_the_fewest_elements(
    cta: tuple[int, int, int], grid: tuple[int, int]
) -> None:
    found = plan(fma_spec(tile=Tile(cta=cta)), "sm_80")
    assert found.tiled_mma.tile_mnk[:2] == grid
    assert found.threads == cta[0] * cta[1] // 64
    loaded = cta[0] // grid[0] + cta[1] // grid[1]
    assert f"a thread loads {loaded} elements" in decision(found, "mma.threads").why
    others = [int(why.split()[3]) for why in rejected(found, "mma.threads").values()]
    assert loaded < others[0]
    assert others == sorted(others)


def test_instructions_of_fma_copies() -> None:
    """128 x 8 f32 over 256 threads: one vector of 16 bytes, a load and a store; 8 rows by 2 vectors are 16 loads."""
    found = plan(fma_spec(), "sm_80")
    assert rejected(found, "g2s.a")["64 bits"] == "20 instructions per thread, against 18"


@pytest.mark.parametrize(("major", "elems"), [("k", 4), ("m", 2)])
def test_how_fma_loads_lie(major: str, elems: int) -> None:
    found = plan(fma_spec(f"{major}kn"), "sm_80")
    assert decision(found, "s2r.a").chosen == f"universal, {32 * elems} bits"
    assert decision(found, "s2r.a").why.startswith(f"{elems} elements along k are contiguous")


@pytest.mark.parametrize(
    ("spec", "bits", "registers"),
    [
        (fma_spec(), (128, 128), 64 + 8 * 4 + 8 * 4 + 2 * 4),
        (fma_spec("mnn", "f16"), (64, 32), 64 + 8 * 2 + 8 * 1 + 2 * 2),
    ],
)
def test_registers_of_fma(spec: GemmSpec, bits: tuple[int, int], registers: int) -> None:
    """64 sums; a load of each of 8 rows of A and of B; a thread's share of the next tiles; addresses; in eights."""
    found = plan(spec, "sm_80")
    assert (found.a.s2r.bits, found.b.s2r.bits) == bits
    assert found.predictions.occupancy.registers_per_thread == -(-(registers + ADDRESS_REGISTERS) // 8) * 8


def test_fma_opcodes_are_predicted_where_the_epilogue_has_none() -> None:
    key = UNIVERSAL_FMA.ptx
    assert key in plan(fma_spec(), "sm_80").predictions.instructions
    assert key not in plan(fma_spec(epilogue=Epilogue(ops=("relu",))), "sm_80").predictions.instructions
