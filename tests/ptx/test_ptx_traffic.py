"""Shared-memory wavefronts and global sectors, against counts made by hand and by hardware."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from kernels import kernel, run_report

from cutegen.algebra import line_write_wavefronts
from cutegen.ptx.watch.traffic import copy_sectors, line_writes, shared_wavefronts, staged_writes

MEASURED = Path(__file__).parent / "h200_requests.txt"


def measured(*kinds: str) -> list[tuple[int, list[np.ndarray]]]:
    """(wavefronts that an H200 counted, the lanes' units) of the requests of these kinds."""
    found = []
    for line in MEASURED.read_text().splitlines():
        first, *rest = line.split(" | ")
        kind, _, count = first.partition(" ")
        if kind in kinds:
            found.append((int(count), [np.array(units.split(), np.int64) for units in rest]))
    return found


LDMATRIX = """
    mov.u32 %r4, smem; and.b32 %r5, %r0, 15; mul.lo.u32 %r5, %r5, {row_bytes}; shr.u32 %r6, %r0, 4; {swizzle}
    shl.b32 %r6, %r6, 4; add.u32 %r5, %r5, %r6; add.u32 %r4, %r4, %r5;
    ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{%r7, %r8, %r9, %r10}}, [%r4]; mov.u32 %r3, 0;"""


@pytest.mark.parametrize(
    ("row_bytes", "swizzle", "wavefronts"),
    [
        (128, "", 32),  # 64 f16 to a row: the 8 rows of a matrix share their banks
        (128, "and.b32 %r11, %r0, 7; xor.b32 %r6, %r6, %r11;", 4),  # Swizzle<3,3,3>
        (64, "", 16),  # 32 f16 to a row: 4-way, as ncu counts (12 extra wavefronts each)
        (64, "shr.u32 %r11, %r0, 1; and.b32 %r11, %r11, 3; xor.b32 %r6, %r6, %r11;", 4),  # Swizzle<2,3,3>
        (80, "", 4),  # padded to 40 f16
        (144, "", 4),  # padded to 72 f16
    ],
)
def test_ldmatrix_is_served_in_phases_of_8_rows(row_bytes: int, swizzle: str, wavefronts: int) -> None:
    fill = "mov.u32 %r4, smem; shl.b32 %r5, %r0, 4; add.u32 %r4, %r4, %r5;"
    fill += "".join(f"st.shared.v4.u32 [%r4+{512 * i}], {{%r0, %r0, %r0, %r0}};" for i in range(5)) + "bar.sync 0;"
    body = fill + LDMATRIX.format(row_bytes=row_bytes, swizzle=swizzle)
    report = run_report(kernel(body, shared_bytes=2560))
    assert report.wavefronts("ldmatrix") == wavefronts
    assert report.conflicts("ldmatrix") == wavefronts - 4
    assert report.conflicts("st.shared") == 0


def stores(size: int, address: str) -> str:
    """Stores of `size` bytes by every lane at byte `address` of its lane number in %r0."""
    kind = {1: "u8", 2: "u16", 4: "u32", 8: "v2.u32", 16: "v4.u32"}[size]
    values = {8: "{%r3, %r3}", 16: "{%r3, %r3, %r3, %r3}"}.get(size, "%r3")
    return f"mov.u32 %r3, 0; mov.u32 %r4, smem; {address} add.u32 %r4, %r4, %r5; st.shared.{kind} [%r4], {values};"


@pytest.mark.parametrize(
    ("size", "address", "wavefronts"),
    [
        (4, "shl.b32 %r5, %r0, 2;", 1),
        (4, "shl.b32 %r5, %r0, 3;", 2),
        (4, "shl.b32 %r5, %r0, 7;", 32),
        (4, "mov.u32 %r5, 0;", 1),
        (4, "and.b32 %r5, %r0, 1; shl.b32 %r5, %r5, 7;", 2),
        (2, "shl.b32 %r5, %r0, 1;", 1),
        (1, "mul.lo.u32 %r5, %r0, 132;", 1),
        (8, "shl.b32 %r5, %r0, 3;", 2),
        (8, "shl.b32 %r5, %r0, 4;", 4),
        (16, "shl.b32 %r5, %r0, 4;", 4),
        (16, "shl.b32 %r5, %r0, 5;", 8),
        (16, "mul.lo.u32 %r5, %r0, 144;", 4),
    ],
)
def test_stores_conflict_where_lanes_of_a_phase_want_one_bank(size: int, address: str, wavefronts: int) -> None:
    report = run_report(kernel(stores(size, address), shared_bytes=8192))
    assert report.wavefronts("st.shared") == wavefronts
    assert report.matching("st.shared")[0].shared_bytes == 32 * size


def test_lanes_that_are_off_cost_nothing() -> None:
    body = "mov.u32 %r3, 0; mov.u32 %r4, smem; shl.b32 %r5, %r0, 4; add.u32 %r4, %r4, %r5; setp.lt.u32 %p1, %r0, 8;"
    report = run_report(kernel(body + "@%p1 st.shared.v4.u32 [%r4], {%r3, %r3, %r3, %r3};", shared_bytes=512))
    assert report.wavefronts("st.shared") == 1
    report = run_report(
        kernel("mov.u32 %r3, 0; setp.gt.u32 %p1, %r0, 99; @%p1 st.shared.u32 [%r3], %r3;", shared_bytes=4)
    )
    store = report.matching("st.shared")[0]
    assert (store.executed, store.shared_requests, store.wavefronts) == (1, 0, 0)


@pytest.mark.parametrize(("shift", "sectors"), [(2, 4), (3, 8), (5, 32), (0, 1)])
def test_sectors_are_32_bytes(shift: int, sectors: int) -> None:
    kind = "u32" if shift >= 2 else "u8"
    body = f"mov.u64 %rd2, data; mul.wide.u32 %rd3, %r0, {1 << shift}; add.s64 %rd2, %rd2, %rd3; "
    text = kernel(body + f"ld.global.{kind} %r3, [%rd2];", before=".global .align 32 .b8 data[32768];\n")
    report = run_report(text, block=1024)
    assert report.sectors("ld.global") == 32 * sectors


@pytest.mark.parametrize(
    ("row_bytes", "place", "lines"),
    [
        (64, "row * 64 + chunk * 16", 8),
        (64, "row * 80 + chunk * 16", 15),
        (64, "row * 96 + chunk * 16", 10),
        (64, "row * 128 + chunk * 16", 8),
        (64, "row * 64 + (chunk ^ (row >> 1 & 3)) * 16", 8),
        (64, "row % 8 * 16 + chunk * 128 + row // 8 * 512", 32),
        (128, "row * 128 + chunk * 16", 4),
        (128, "row * 160 + chunk * 16", 7),
        (128, "row * 128 + (chunk ^ (row & 7)) * 16", 4),
        (128, "row % 8 * 16 + chunk * 128 + row // 8 * 1024", 32),
    ],
)
def test_copies_write_line_by_line_as_measured_on_an_h200(row_bytes: int, place: str, lines: float) -> None:
    chunks = row_bytes // 16
    counts = []
    for first_row in range(0, 64, 32 // chunks):
        lanes = np.arange(32)
        row, chunk = first_row + lanes // chunks, lanes % chunks
        destination = eval(place, {"row": row, "chunk": chunk})
        counts.append(line_writes(row * 4096 + chunk * 16, destination)[0])
    assert np.mean(counts) == lines


def test_copies_by_line_are_those_of_an_h200() -> None:
    requests = measured("cg")
    assert len(requests) > 130
    for count, (source, target) in requests:
        assert line_writes(source * 16, target * 16)[0] == count
        assert line_write_wavefronts(source * 16, target * 16) == count


def test_a_chunk_that_several_lanes_copy_goes_once_for_each() -> None:
    lanes = np.arange(32) * 16
    assert line_writes(lanes * 0, lanes)[0] == 32  # as an H200 counts


def test_copies_through_l1_and_zeros_are_those_of_an_h200() -> None:
    for count, (source, target) in measured("ca"):
        assert staged_writes(source * 16, target * 16, np.arange(32), 16) == count
    for count, (source, target) in measured("cg-sized"):
        zeros = staged_writes(source * 16, target * 16, np.arange(32), 16)
        assert line_writes(source * 16, target * 16)[0] + zeros == count


@pytest.mark.parametrize(("size", "misfits"), [(8, 0), (16, 2)])
def test_loads_and_stores_are_those_of_an_h200(size: int, misfits: int) -> None:
    for count, (units,) in measured(f"st{size}"):
        assert shared_wavefronts(units * size, np.arange(len(units)), size)[0] == count
    loads = measured(f"ld{size}")
    assert len(loads) > 80
    found = [
        shared_wavefronts(units * size, np.arange(len(units)), size, merges=True)[0] - count
        for count, (units,) in loads
    ]
    # One lane that has no partner: an H200 merges the 16-byte phases all the same.
    assert sum(found) == np.count_nonzero(found) == misfits


@pytest.mark.parametrize(("scale", "sectors"), [(1, 16), (2, 32), (9, 32)])
def test_sectors_of_copies_are_places_in_shared_memory(scale: int, sectors: int) -> None:
    lanes = np.arange(32) * 16
    assert copy_sectors(lanes, lanes * scale) == sectors


def test_copies_count_on_both_sides() -> None:
    body = """
        mov.u32 %r3, 0; mov.u32 %r4, smem; shl.b32 %r5, %r0, 5; add.u32 %r4, %r4, %r5; mov.u64 %rd2, data;
        mul.wide.u32 %rd3, %r0, 16; add.s64 %rd2, %rd2, %rd3;
        cp.async.cg.shared.global [%r4], [%rd2], 16; cp.async.wait_all;"""
    text = kernel(body, before=".global .align 16 .b8 data[512];\n", shared_bytes=1024)
    copy = run_report(text).matching("cp.async.cg")[0]
    assert (copy.wavefronts, copy.ideal_wavefronts, copy.sectors) == (8, 4, 16)
    assert (copy.shared_bytes, copy.global_bytes) == (512, 512)
    assert copy.conflicts == 4
    assert (copy.line_wavefronts, copy.line_sectors, copy.staged_wavefronts) == (32, 32, 0)


def test_zeros_count_besides_and_only_lanes_that_read_have_sectors() -> None:
    body = """
        mov.u32 %r3, 0; mov.u32 %r4, smem; shl.b32 %r5, %r0, 4; add.u32 %r4, %r4, %r5; mov.u64 %rd2, data;
        mul.wide.u32 %rd3, %r0, 16; add.s64 %rd2, %rd2, %rd3; setp.lt.u32 %p1, %r0, 29; selp.b32 %r6, 16, 0, %p1;
        cp.async.cg.shared.global [%r4], [%rd2], 16, %r6; cp.async.wait_all;"""
    text = kernel(body, before=".global .align 128 .b8 data[512];\n", shared_bytes=512)
    copy = run_report(text).matching("cp.async.cg")[0]
    assert (copy.line_wavefronts, copy.line_sectors, copy.staged_wavefronts) == (4, 15, 4)
