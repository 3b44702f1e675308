"""Cited rates of a multiprocessor, against NVIDIA's white papers."""

from __future__ import annotations

import pytest

from cutegen.hardware import SM_RATES, TARGETS, Instruction, targets_with


@pytest.mark.parametrize(
    ("arch", "operands", "flops"),
    [
        ("sm_80", "f16", 2048),
        ("sm_80", "bf16", 2048),
        ("sm_80", "tf32", 1024),
        ("sm_80", "s8", 4096),
        ("sm_89", "e4m3", 2048),
        ("sm_90", "e4m3", 0.629 * 4096),
        ("sm_100", "e5m2", None),
    ],
)
def test_rates_go_with_the_bytes_of_operands(arch: str, operands: str, flops: float | None) -> None:
    """A100's white paper: 156, 312 and 624 TFLOP/s and TOP/s of tf32, f16 and int8. On sm_90 8-bit floats are f16."""
    assert SM_RATES[arch].flops_of(Instruction.MMA_SYNC, operands) == flops


@pytest.mark.parametrize(
    ("operands", "tops"), [("tf32", 494.7), ("f16", 989.4), ("bf16", 989.4), ("e4m3", 1978.9), ("s8", 1978.9)]
)
def test_rates_of_wgmma_are_those_of_the_white_paper(operands: str, tops: float) -> None:
    """H100 SXM5, dense: 132 multiprocessors at 1830 MHz."""
    flops = SM_RATES["sm_90"].flops_of(Instruction.WGMMA, operands)
    assert flops is not None
    assert flops * 132 * 1830e6 / 1e12 == pytest.approx(tops, rel=1e-3)


def test_every_target_has_rates_and_of_wgmma_where_it_has_that() -> None:
    assert SM_RATES.keys() == TARGETS.keys()
    rated = {name for name, rates in SM_RATES.items() if Instruction.WGMMA in rates.flops}
    assert rated == set(targets_with(Instruction.WGMMA))
