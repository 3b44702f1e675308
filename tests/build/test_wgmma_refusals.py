"""A wgmma kernel that spills or that the assembler serializes: refused where cutegen chose the tile, else said."""

from __future__ import annotations

import pytest

from cutegen.build import BuildRequest, builder
from cutegen.build.compiler import CompilerOutput
from cutegen.build.cubin import ResourceUsage
from cutegen.contract.source import KernelSource
from cutegen.errors import EmissionError
from cutegen.hardware import target

WGMMA, MMA = "wgmma.fence.sync.aligned", "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
SERIALIZED = ("C7514", "Potential Performance Loss: wgmma.mma_async instructions are serialized")
FENCED = ("C7519", "warpgroup.arrive is injected in around line 297")


def inspected(
    monkeypatch: pytest.MonkeyPatch, spilled_bytes: int, *messages: tuple[str, str], chosen: bool, opcode: str = WGMMA
) -> tuple[str, ...]:
    """The warnings of a kernel of one instruction."""
    monkeypatch.setattr(builder, "resource_usage", lambda cubin, entry: ResourceUsage(168, spilled_bytes))
    request = BuildRequest(
        source=KernelSource("text", "entry_0"),
        target=target("sm_90"),
        plan_json="{}",
        instructions={opcode: 1},
        tile_is_chosen=chosen,
    )
    output = CompilerOutput(f".entry entry_0() {{ {opcode}; ret; }}".encode(), b"", messages)
    return builder.inspect_output(request, output).manifest.warnings


@pytest.mark.parametrize(
    ("spilled_bytes", "messages", "said"),
    [
        (128, (), r"128 bytes of registers spill per thread.*smaller tile\.cta"),
        (72, (), "72 bytes of registers spill per thread"),
        (0, (FENCED, SERIALIZED), r"the assembler reports on wgmma: .* are serialized \(C7514\)"),
    ],
)
def test_with_a_tile_that_was_chosen_it_is_refused(
    spilled_bytes: int, messages: tuple[tuple[str, str], ...], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(EmissionError, match=said):
        inspected(monkeypatch, spilled_bytes, *messages, chosen=True)


@pytest.mark.parametrize(
    ("chosen", "spilled_bytes", "messages", "said"),
    [
        (True, 64, (), "64 bytes of registers spill per thread"),  # a few may wait for the epilogue
        (False, 128, (), "128 bytes of registers spill per thread"),
        (False, 0, (FENCED, SERIALIZED), "are serialized (C7514)"),
    ],
)
def test_else_it_is_told(
    chosen: bool, spilled_bytes: int, messages: tuple[tuple[str, str], ...], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (warning,) = inspected(monkeypatch, spilled_bytes, *messages, chosen=chosen)
    assert said in warning


@pytest.mark.parametrize(
    ("opcode", "spilled_bytes", "messages"), [(WGMMA, 0, ()), (WGMMA, 0, (FENCED,)), (MMA, 128, ())]
)
def test_others_are_left_alone(
    opcode: str, spilled_bytes: int, messages: tuple[tuple[str, str], ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert inspected(monkeypatch, spilled_bytes, *messages, chosen=True, opcode=opcode) == ()
