"""CTAs on a multiprocessor, against the arithmetic of CUDA's occupancy calculation done by hand."""

from __future__ import annotations

import pytest

from cutegen.hardware import target
from cutegen.plan.predict import allocated_registers, ctas_by_registers, ctas_by_smem, predict_occupancy

KIB = 1024


@pytest.mark.parametrize(
    ("name", "smem_bytes", "ctas"),
    [
        # CUDA C++ Programming Guide, "Compute Capability 8.x", "9.0": 1 KiB of shared memory is reserved for each CTA.
        ("sm_80", 82 * KIB, 1),  # 2 x (82 + 1) = 166 > 164
        ("sm_80", 81 * KIB, 2),  # 2 x (81 + 1) = 164
        ("sm_80", 81 * KIB + 1, 1),  # held in units of 128 bytes
        ("sm_80", 163 * KIB, 1),
        ("sm_86", 49 * KIB, 2),  # 2 x (49 + 1) = 100
        ("sm_86", 50 * KIB, 1),
        ("sm_90", 56 * KIB, 4),  # 4 x (56 + 1) = 228
        ("sm_90", 57 * KIB, 3),
        ("sm_90", 0, 228),
    ],
)
def test_what_is_reserved_for_each_cta_counts(name: str, smem_bytes: int, ctas: int) -> None:
    assert ctas_by_smem(target(name), smem_bytes) == ctas


@pytest.mark.parametrize(
    ("threads", "registers", "ctas"),
    [
        (128, 64, 8),  # 2,048 a warp, 32 warps
        (128, 65, 7),  # 2,080 are held as 2,304: 28 warps
        (128, 72, 7),
        (256, 72, 3),
        (128, 168, 3),  # 5,376: 12 warps
        (128, 169, 2),  # 5,632: 11 warps, of which a quarter of the multiprocessor has 2
        (96, 169, 2),  # so that 8 are held, and not three times 3
        (256, 255, 1),
        (32, 32, 64),
    ],
)
def test_registers_are_allocated_to_warps_in_units_of_256(threads: int, registers: int, ctas: int) -> None:
    assert ctas_by_registers(target("sm_80"), threads, registers) == ctas


@pytest.mark.parametrize(
    ("threads", "wanted", "held"),
    [
        (128, 97, 104),  # whole granules of 8
        (128, 104, 104),
        (128, 300, 255),  # what an instruction can name
        (256, 300, 255),  # 65,536 / 256 = 256
        (320, 300, 168),  # 10 warps: a quarter of the multiprocessor has 3 of them, as of 12
        (384, 300, 168),  # 65,536 / 384 = 170
        (544, 300, 96),  # 17 warps as 20: 65,536 / 640 = 102
        (1024, 97, 64),
    ],
)
def test_no_thread_has_more_registers_than_its_cta_can_have(threads: int, wanted: int, held: int) -> None:
    assert allocated_registers(target("sm_80"), threads, wanted) == held


def test_the_scarcest_resource_decides() -> None:
    found = predict_occupancy(target("sm_80"), 128, 41 * KIB, 64)
    assert (found.by_threads, found.by_smem, found.by_registers, found.ctas_per_sm) == (16, 3, 8, 3)
    found = predict_occupancy(target("sm_80"), 128, 0, 128)
    assert (found.by_threads, found.by_registers, found.ctas_per_sm) == (16, 4, 4)
    found = predict_occupancy(target("sm_80"), 1024, 0, 32)
    assert (found.by_threads, found.ctas_per_sm) == (2, 2)
    assert predict_occupancy(target("sm_80"), 32, 0, 32).by_threads == 32  # 2,048 / 32 = 64, and an sm_80 holds 32 CTAs
