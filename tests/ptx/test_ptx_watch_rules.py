"""Which accesses of global memory race, who is named, and what requests are counted."""

from __future__ import annotations

import numpy as np
import pytest
from kernels import kernel

from cutegen.ptx import ExecutionFault, LaunchReport, Program, ViolationKind
from cutegen.ptx.watch.global_shadow import Marks, Touched, first_race
from cutegen.ptx.watch.paged import MANY
from cutegen.ptx.watch.traffic import Traffic, TrafficCounters, shared_wavefronts


def over(body: str, data: np.ndarray, *, grid: int = 1, block: int = 32, **options: object) -> LaunchReport:
    """The report of a launch that stores nothing but what `body` does to `data`, at `%rd2`."""
    text = kernel(f"mov.u32 %r3, 0; ld.param.u64 %rd2, [data]; {body}", parameters=".param .u64 out, .param .u64 data")
    text = text.replace("st.global.b32 [%rd1], %r3;", "")
    return Program.parse(text).launch("k", grid=grid, block=block, args=[np.zeros(4, np.uint32), data], **options)


def race(body: str, *, words: int = 64, grid: int = 1, block: int = 32) -> ExecutionFault:
    with pytest.raises(ExecutionFault) as caught:
        over(body, np.zeros(words, np.uint32), grid=grid, block=block)
    assert caught.value.violation.kind is ViolationKind.RACE
    return caught.value


@pytest.mark.parametrize("thread", [0, 31, 40, 1023])
def test_a_race_names_the_one_thread_that_was_there(thread: int) -> None:
    """CTA 0's one writer and all of CTA 1: 1023 is the last thread that a block can have."""
    body = f"mov.u32 %r7, %ctaid.x; setp.eq.u32 %p0, %r7, 0; setp.ne.u32 %p1, %r0, {thread};"
    body += "and.pred %p2, %p0, %p1; @%p2 bra END; st.global.u32 [%rd2], %r7; END:"
    found = race(body, grid=2, block=1024)
    assert f"the write by thread {thread} of CTA number 0" in str(found)


def test_threads_that_read_together_are_named_by_their_warp() -> None:
    body = "mov.u32 %r7, %ctaid.x; setp.eq.u32 %p0, %r7, 0; @%p0 bra READ; st.global.u32 [%rd2], 1; bra END;"
    found = race(f"{body} READ: ld.global.u32 %r3, [%rd2]; END:", grid=2)
    assert "the read by threads of warp 0 of CTA number 0" in str(found)


@pytest.mark.parametrize("written", [0, 5, 31])
def test_one_word_of_many_that_another_wrote_is_a_race(written: int) -> None:
    body = f"""
    mul.wide.u32 %rd3, %r0, 4; add.s64 %rd3, %rd2, %rd3; setp.lt.u32 %p0, %r0, 32; @!%p0 bra READ;
    setp.eq.u32 %p1, %r0, {written}; @%p1 st.global.u32 [%rd3], 7; bra END;
    READ: ld.global.u32 %r7, [%rd3+-128]; END:
    """
    assert "global memory not ordered after" in str(race(body, block=64))


def test_a_lane_that_reads_last_does_not_hide_another_one_that_read() -> None:
    body = "setp.eq.u32 %p0, %r0, 0; setp.eq.u32 %p1, %r0, 1; @%p0 ld.global.u32 %r7, [%rd2];"
    body += "@%p1 ld.global.u32 %r7, [%rd2]; @%p1 st.global.u32 [%rd2], 7;"
    assert "not ordered after the read" in str(race(body))


def test_atomics_of_packed_types_have_the_size_of_an_element() -> None:
    body = "mov.u32 %r7, %ctaid.x; setp.eq.u32 %p0, %r7, 0; mov.u32 %r8, 0; mov.b16 %h0, 0;"
    body += "@%p0 red.global.add.noftz.f16x2 [%rd2], %r8; @!%p0 atom.global.cas.b16 %h1, [%rd2], %h0, %h0;"
    over(body, np.zeros(4, np.uint32), grid=2)
    race(body.replace("cas.b16 %h1, [%rd2], %h0, %h0", "cas.b32 %r9, [%rd2], %r8, %r8"), grid=2)


def test_bytes_beside_each_other_are_not_the_same() -> None:
    """Two warps write every second byte each; words elsewhere in the kernel do not make neighbors' bytes theirs."""
    body = """
    and.b32 %r7, %r0, 31; shr.u32 %r8, %r0, 5; mad.lo.u32 %r7, %r7, 2, %r8;
    cvt.u64.u32 %rd3, %r7; add.s64 %rd3, %rd2, %rd3; st.global.u8 [%rd3], %r7;
    mul.wide.u32 %rd4, %r0, 4; add.s64 %rd4, %rd2, %rd4; st.global.u32 [%rd4+128], %r0;
    """
    data = np.zeros(128, np.uint32)
    over(body, data, block=64)
    assert data.view(np.uint8)[:64].tolist() == list(range(64))
    assert data[32:96].tolist() == list(range(64))


@pytest.mark.parametrize(("scope", "races"), [("cta", True), ("gpu", False), ("sys", False)])
def test_atomics_of_two_ctas_need_a_scope_that_has_both(scope: str, races: bool) -> None:
    """PTX ISA, "Morally strong operations": each must be in the other's scope."""
    body = f"red.relaxed.{scope}.global.add.u32 [%rd2], 1;"
    if races:
        race(body, grid=2)
        return
    data = np.zeros(4, np.uint32)
    over(body, data, grid=2)
    assert data[0] == 64


@pytest.mark.parametrize("weak_reads", [True, False])
def test_a_weak_access_and_a_strong_one_race_in_one_cta(weak_reads: bool) -> None:
    weak, strong = "ld.global.u32 %r7, [%rd2];", "st.relaxed.gpu.global.u32 [%rd2], 5;"
    if not weak_reads:
        weak, strong = "st.global.u32 [%rd2], 5;", "ld.relaxed.gpu.global.u32 %r7, [%rd2];"
    body = f"setp.eq.u32 %p0, %r0, 0; setp.eq.u32 %p1, %r0, 32; @%p0 {weak} @%p1 {strong}"
    race(body, block=64)
    both_strong = body.replace("ld.global", "ld.relaxed.gpu.global").replace("st.global", "st.relaxed.gpu.global")
    over(both_strong, np.zeros(4, np.uint32), block=64)


def test_whoever_reads_the_end_of_a_chain_of_releases_reads_all_of_them() -> None:
    """PTX ISA, "Release sequence": CTAs 0 and 1 release with one counter, CTA 2 acquires its last value."""
    body = """
    setp.ne.u32 %p0, %r0, 0; @%p0 bra END; mov.u32 %r7, %ctaid.x; setp.eq.u32 %p1, %r7, 2; @%p1 bra TAKE;
    mul.wide.u32 %rd3, %r7, 4; add.s64 %rd3, %rd2, %rd3; st.global.u32 [%rd3+16], 9;
    red.release.gpu.global.add.u32 [%rd2], 1; bra END;
    TAKE: ld.acquire.gpu.global.u32 %r8, [%rd2]; setp.lt.u32 %p2, %r8, 2; @%p2 bra TAKE;
    ld.global.u32 %r9, [%rd2+16]; ld.global.u32 %r10, [%rd2+20]; add.u32 %r9, %r9, %r10;
    st.global.u32 [%rd2+32], %r9; END:
    """
    for policy in ("in-order", "reversed", "random:1", "random:2"):
        data = np.zeros(16, np.uint32)
        over(body, data, grid=3, policy=policy)
        assert data[8] == 18


def test_an_array_that_is_read_only_takes_no_atomic() -> None:
    data = np.zeros(4, np.uint32)
    data.flags.writeable = False
    with pytest.raises(ExecutionFault) as caught:
        over("red.global.add.u32 [%rd2], 1;", data)
    assert caught.value.violation.kind is ViolationKind.READ_ONLY
    assert data[0] == 0


def touched(writes: dict[int, int], reads: dict[int, int]) -> Touched:
    """Granules of 4 bytes, each with the thread of CTA 1 that touched it."""

    def marks(of: dict[int, int]) -> Marks:
        granules = np.array(sorted(of), np.int64)
        stamps = np.array([2 << 40 | of[granule] for granule in sorted(of)], np.int64)
        return Marks(granules, stamps, np.array([of[granule] % 7 for granule in sorted(of)], np.int32))

    return Touched(marks(writes), marks(reads), 4, 40)


@pytest.mark.parametrize("wrote", [True, False])
def test_processes_meet_where_one_wrote_what_the_other_touched(wrote: bool) -> None:
    """The first such byte, with the threads that touched that one and not another."""
    mine = touched({3: 11, 5: 12, 9: 13}, {})
    other = {2: 20, 5: 21, 9: 22, 10: 23}
    theirs = touched(other, {}) if wrote else touched({}, other)
    found = first_race([[mine], [theirs]])
    assert found is not None
    assert (found.allocation, found.offset, found.other_wrote) == (0, 20, wrote)
    assert (found.writer[:2], found.other[:2]) == ((1, 12), (1, 21))
    assert first_race([[mine], [touched({2: 1}, {4: 1})]]) is None
    many = first_race([[touched({5: MANY}, {})], [theirs]])
    assert many is not None
    assert many.writer[1] is None


@pytest.mark.parametrize("size_bytes", [4, 8, 16, 32])
def test_lanes_side_by_side_take_as_many_wavefronts_as_rows_of_banks(size_bytes: int) -> None:
    """32 banks of 4 bytes serve 128 bytes at once."""
    lanes = np.arange(32)
    cost, ideal = shared_wavefronts(lanes * size_bytes, lanes, size_bytes)
    assert ideal == 32 * size_bytes // 128
    assert cost >= ideal
    if size_bytes < 32:
        assert cost == ideal


def test_a_box_and_a_copy_are_counted_each_time() -> None:
    assert Traffic() == Traffic(*[0] * 12)
    counters = TrafficCounters([Traffic(), Traffic()])
    lanes = np.arange(32)
    for times in (1, 2, 3):
        counters.box(0, 512, np.arange(32) * 16 + 16, 16)
        counters.lines(1, lanes * 16, lanes * 16)
        box, copy = counters.sites
        assert (box.boxes, box.shared_requests, box.global_requests) == (times, times, times)
        assert (box.shared_bytes, box.global_bytes, box.sectors) == (512 * times, 512 * times, 17 * times)
        assert copy.line_wavefronts == copy.ideal_line_wavefronts == 4 * times
