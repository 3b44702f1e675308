"""Registers of a wgmma kernel that spill: refused where cutegen chose the tile, else said."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cutegen.build import BuildRequest, builder
from cutegen.build.compiler import CompilerOutput
from cutegen.build.cubin import ResourceUsage
from cutegen.contract.source import KernelSource
from cutegen.errors import EmissionError
from cutegen.hardware import target

WGMMA, MMA = "wgmma.fence.sync.aligned", "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"


def inspected(monkeypatch: pytest.MonkeyPatch, opcode: str, spilled_bytes: int, *, chosen: bool) -> tuple[str, ...]:
    monkeypatch.setattr(builder, "resource_usage", lambda cubin, entry: ResourceUsage(168, spilled_bytes))
    request = BuildRequest(
        source=KernelSource("text", "entry_0"), target=target("sm_90"), plan_json="{}", instructions={opcode: 1}
    )
    output = CompilerOutput(f".entry entry_0() {{ {opcode}; ret; }}".encode(), b"")
    return builder.inspect_output(replace(request, tile_is_chosen=chosen), output).manifest.warnings


def test_a_tile_that_was_chosen_leaves_room(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(EmissionError, match=r"128 bytes of registers spill per thread.*smaller tile\.cta"):
        inspected(monkeypatch, WGMMA, 128, chosen=True)


def test_a_few_registers_may_wait_for_the_epilogue_and_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    (warning,) = inspected(monkeypatch, WGMMA, 64, chosen=True)
    assert "64 bytes of registers spill per thread" in warning
    with pytest.raises(EmissionError):
        inspected(monkeypatch, WGMMA, 72, chosen=True)


def test_one_that_was_given_may_and_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    (warning,) = inspected(monkeypatch, WGMMA, 128, chosen=False)
    assert "128 bytes of registers spill per thread" in warning


@pytest.mark.parametrize(("opcode", "spilled_bytes"), [(WGMMA, 0), (MMA, 128)])
def test_others_are_left_alone(monkeypatch: pytest.MonkeyPatch, opcode: str, spilled_bytes: int) -> None:
    assert inspected(monkeypatch, opcode, spilled_bytes, chosen=True) == ()
