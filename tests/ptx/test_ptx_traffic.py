"""Shared-memory wavefronts and global sectors, against counts made by hand and by hardware."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from gpu_requests import (
    DRAWN,
    KINDS,
    SHARED_BYTES,
    SOURCE_BYTES,
    Measured,
    requests,
    stored,
    summary,
    written,
)
from kernels import kernel, run_report

from cutegen.hardware import line_write_wavefronts
from cutegen.ptx.watch.traffic import copy_sectors, line_writes
from tests.gpu.pages import in_the_page

MEASURED = stored()


def measured(*kinds: str) -> list[Measured]:
    """The requests of these kinds that an H200 counted."""
    return [row for row in MEASURED if row.request.kind in kinds]


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


@pytest.mark.parametrize("kind", KINDS)
def test_requests_cost_what_an_h200_counted_unless_they_are_marked(kind: str) -> None:
    rows = measured(kind)
    assert len(rows) >= 8
    for row in rows:
        assert (row.request.rule, row.counted != row.request.rule) == (
            row.counted if row.marked is None else row.marked,
            row.marked is not None,
        ), row.request.key


def test_the_plan_counts_lines_as_the_executor() -> None:
    """Of lanes that copy chunks of their own, as a plan's threads do."""
    rows = [row for row in measured("cg") if len(set(row.request.units[0])) == len(row.request.units[0])]
    assert len(rows) > 130
    for row in rows:
        source, target = row.request.units
        assert line_write_wavefronts(source * 16, target * 16) == row.request.rule


@pytest.mark.parametrize("kind", KINDS)
def test_the_kernel_that_is_measured_makes_the_request_that_is_stored(kind: str) -> None:
    """The executor's count of the kernel is the rule's: so it has the lanes, the places and the instruction."""
    figures = {"cg": "line_wavefronts", "ca": "staged_wavefronts"}
    for row in measured(kind)[::7]:
        request = row.request
        report = run_report(request.ptx("k"), block=len(request.units[0]))
        if kind == "cg-sized":
            found = report.line_wavefronts("cp.async.cg") + report.staged_wavefronts("cp.async.cg")
        elif kind in figures:
            found = getattr(report, figures[kind])(f"cp.async.{kind}")
        else:
            found = report.wavefronts(f"{kind[:2]}.shared")
        assert found == request.rule


def test_what_disagrees_is_kept_and_marked(tmp_path: Path) -> None:
    rows = [replace(row, counted=row.request.rule + i % 2) for i, row in enumerate(measured("ca"))]
    (tmp_path / "requests.txt").write_text(written(rows))
    again = stored(tmp_path / "requests.txt")
    assert [row.counted for row in again] == [row.counted for row in rows]
    assert [row.marked is not None for row in again] == [i % 2 == 1 for i in range(len(rows))]
    assert list(summary(again))[2] == f"| `ca` | {len(rows)} | {(len(rows) + 1) // 2} | 1 |"


def test_what_will_be_measured_has_what_is_stored_and_more() -> None:
    asked = requests()
    assert {row.request.key for row in MEASURED} <= {request.key for request in asked}
    assert {kind: sum(request.kind == kind for request in asked) for kind in DRAWN} == DRAWN
    assert all(max(places.max() for places in request.units[:1]) * 16 < SOURCE_BYTES for request in asked)
    assert all(int(request.units[-1].max() + 1) * request.unit_bytes <= SHARED_BYTES for request in asked)


def test_the_page_says_how_many_agree(request: pytest.FixtureRequest) -> None:
    in_the_page(request, "requests", summary(MEASURED))


def test_a_chunk_that_several_lanes_copy_goes_once_for_each() -> None:
    lanes = np.arange(32) * 16
    assert line_writes(lanes * 0, lanes)[0] == 32  # as an H200 counts


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
