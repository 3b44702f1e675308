"""How wide the parts are in which warpgroups let C go: a line, or as much as a thread has registers for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cutegen.plan import GemmPlan, plan
from cutegen.spec import parse_spec
from tests.plan.kernels import Build

CHAIN = 'ops = ["bias_m", "gelu_tanh"]'
HEAVY = 'ops = ["alpha", "beta", "bias_n", "residual", "aux", "gelu_erf"]'


def planned(text: str) -> GemmPlan:
    found = plan(parse_spec(text), "sm_90")
    assert isinstance(found, GemmPlan)
    return found


def spec_text(c: str, major: str = "n", epilogue: str = "", tile: str = "", schedule: str = "", extra: str = "") -> str:
    a, b = (f'{x} = {{ dtype = "f16", major = "k" }}' for x in "ab")
    tables: dict[str, Any] = {"tile": tile, "epilogue": epilogue, "schedule": schedule}
    rest = "\n".join(f"[{name}]\n{lines}" for name, lines in tables.items() if lines)
    c = f'c = {{ dtype = "{c}", major = "{major}" }}'
    return f'family = "sm90"\n[problem]\n{a}\n{b}\n{c}\n{extra}\n{rest}'


THREE = "cta = [192, 192, 64]"
CASES = {
    "a line of f16": (spec_text("f16", epilogue=CHAIN), 64, 128 + 4 + 32),
    "a line of f32": (spec_text("f32", epilogue=CHAIN), 32, 128 + 8 + 16),
    "a line of bytes without a chain": (spec_text("u8"), 128, 128 + 32),
    "half a line of bytes with one": (spec_text("u8", epilogue=CHAIN), 64, 128 + 16 + 32),
    "bytes along M, each with its address": (spec_text("u8", "m", CHAIN), 64, 128 + 32 + 32),
    "three warpgroups have fewer registers": (spec_text("f16", epilogue=CHAIN, tile=THREE), 32, 96 + 2 + 16),
    "and f32 takes an address a pair": (spec_text("f32", epilogue=CHAIN, tile=THREE), 16, 96 + 4 + 8),
}


@pytest.mark.parametrize("name", CASES)
def test_the_widest_parts_for_which_a_thread_has_registers(name: str) -> None:
    """What it holds is counted by hand: sums, addresses, values; 36 are for the rest."""
    text, columns, held = CASES[name]
    found = planned(text)
    assert found.epilogue.parts is not None
    registers = found.roles[0].registers
    assert registers is not None
    assert found.epilogue.parts.tile == (64, columns)
    assert held + 36 <= registers
    (decision,) = (x for x in found.decisions if x.key == "epilogue.smem")
    wider = [x for x in decision.rejected if x.what.endswith(" parts")]
    line = 128 // found.epilogue.dtype.bytes
    assert [x.what for x in wider] == [f"64x{wide} parts" for wide in (128, 64, 32) if columns < wide <= line]
    assert all(f"of which it has {registers}" in x.why for x in wider)


@pytest.mark.parametrize(("tile", "said"), [("cta = [128, 128, 64]", True), ("cta = [128, 64, 64]", False)])
def test_the_whole_tile_at_once_is_rejected_unless_a_part_is_a_warpgroups_share(tile: str, said: bool) -> None:
    (decision,) = (x for x in planned(spec_text("f16", tile=tile)).decisions if x.key == "epilogue.smem")
    assert ("C's whole tile at once" in [x.what for x in decision.rejected]) == said


@pytest.mark.parametrize(
    ("dtype", "major", "by_stmatrix"),
    [("bf16", "m", True), ("bf16", "n", False), ("f16", "m", False), ("f16", "n", False)],
)
def test_parts_of_8_columns_are_stored_plainly_except_bf16_along_m(dtype: str, major: str, by_stmatrix: bool) -> None:
    parts = planned(spec_text(dtype, major, tile="cta = [64, 8, 64]")).epilogue.parts
    assert parts is not None
    assert (parts.tile, parts.stmatrix is not None) == ((64, 8), by_stmatrix)


EXCHANGED = "swap = true"


@pytest.mark.parametrize(
    ("tile", "columns"),
    [
        ("cta = [64, 40, 64]", 40),
        ("cta = [128, 200, 64]", 40),
        ("cta = [128, 176, 64]", 16),
        ("cta = [128, 168, 64]", 56),
        ("cta = [64, 8, 64]", 8),
        ("cta = [256, 144, 64]\nstages = 4", 48),
        ("cta = [192, 192, 64]\nstages = 4", 32),
    ],
)
def test_parts_across_lines_have_any_multiple_of_8_columns(tile: str, columns: int) -> None:
    """Rows of an exchanged product's parts are lines of C, so that a part has as many of them as divide the tile, up to
    64, and as fit into shared memory beside the stages.
    """
    found = planned(spec_text("f16", tile=tile, schedule=EXCHANGED))
    assert found.epilogue.parts is not None
    assert found.epilogue.parts.tile == (64, columns)
    assert found.smem_bytes <= 232448
    assert planned(spec_text("f16", tile="cta = [64, 40, 64]")).epilogue.parts.tile == (64, 8)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("ops", "consumers", "columns"),
    [
        ("gelu_erf", "pingpong", 16),
        ("silu", "pingpong", 16),
        ("relu", "pingpong", 64),
        ("gelu_erf", "cooperative", 64),
    ],
)
@pytest.mark.parametrize("swap", ["true", "false"])
def test_functions_beside_the_other_warpgroups_wgmma_go_in_narrow_parts(
    ops: str, consumers: str, columns: int, swap: str
) -> None:
    """Where tiles go in turns, GELU by erf takes 4 to 13 % of a product on an H100 in parts of 24 to 48 columns."""
    schedule = f'consumers = "{consumers}"\nswap = {swap}'
    found = planned(spec_text("f16", epilogue=f'ops = ["{ops}"]', tile="cta = [128, 128, 64]", schedule=schedule))
    assert found.epilogue.parts is not None
    assert found.epilogue.parts.tile == (64, columns)
    (decision,) = (x for x in found.decisions if x.key == "epilogue.smem")
    said = [x.what for x in decision.rejected if "would delay the other warpgroup's wgmma" in x.why]
    assert ("64x64 parts" in said) == (columns == 16)


PINGPONG = 'consumers = "pingpong"'
THREE_PROMOTE = "cta = [192, 128, 128]\nstages = 4"


def promoted(
    c: str = "f16", tile: str = "cta = [128, 128, 128]", dtype: str = "e4m3", schedule: str = "", epilogue: str = ""
) -> GemmPlan:
    text = spec_text(c, epilogue=epilogue, tile=tile, schedule=schedule)
    return planned(text.replace('dtype = "f16", major = "k"', f'dtype = "{dtype}", major = "k"'))


@pytest.mark.parametrize(
    ("tile", "columns"),
    [
        ("cta = [128, 128, 128]", 128),
        ("cta = [128, 160, 64]\nstages = 7", 160),
        ("cta = [128, 96, 128]\nstages = 7", 96),
    ],
)
@pytest.mark.parametrize("epilogue", ["", 'ops = ["bias_m", "relu"]'])
def test_promoted_sums_that_warpgroups_share_leave_at_once(tile: str, columns: int, epilogue: str) -> None:
    """All of a warpgroup's sums are one part, in one buffer: as much memory as two parts of half as many columns."""
    found = promoted(tile=tile, epilogue=epilogue)
    parts = found.epilogue.parts
    assert parts is not None
    assert (parts.tile, parts.count, parts.buffers, parts.at_once) == ((64, columns), 1, 1, True)
    assert found.epilogue.smem is not None
    assert found.epilogue.smem.bytes == parts.warpgroups * 64 * columns * 2
    (decision,) = (x for x in found.decisions if x.key == "epilogue.smem")
    assert "each warpgroup has 1 buffer: all of its sums are stored while the next tile is multiplied" in decision.why
    assert decision.why.endswith(f"{64 * columns * 2:,} bytes per part")
    assert any("after copies of the next tile" in x.why and x.what.endswith(" parts") for x in decision.rejected)


@pytest.mark.parametrize(
    "found",
    [
        pytest.param(lambda: promoted(dtype="s8", c="s32"), id="sums that are not promoted"),
        pytest.param(lambda: promoted(tile="cta = [64, 128, 128]"), id="one warpgroup"),
        pytest.param(lambda: promoted(tile="cta = [64, 128, 128]", schedule=PINGPONG), id="tiles in turns"),
        pytest.param(lambda: promoted("f32"), id="twice the memory"),
        pytest.param(lambda: promoted(tile="cta = [128, 160, 64]\nstages = 11"), id="no room beside the stages"),
        pytest.param(lambda: promoted(tile=THREE_PROMOTE, epilogue=CHAIN), id="no registers"),
        pytest.param(lambda: promoted(epilogue="smem = false"), id="from registers"),
        pytest.param(lambda: promoted(schedule="split_k = 4"), id="slices"),
        pytest.param(lambda: promoted(tile="cta = [128, 64, 128]"), id="one part in any case"),
    ],
)
def test_other_sums_leave_in_parts_of_a_line(found: Callable[[], GemmPlan]) -> None:
    parts = found().epilogue.parts
    assert parts is not None
    assert not parts.at_once
    assert parts.tile[1] <= 64


def test_what_is_lacking_for_sums_to_leave_at_once_is_said() -> None:
    assert promoted(tile=THREE_PROMOTE).epilogue.parts.at_once  # type: ignore[union-attr]
    for tile, epilogue, lacking in (
        (THREE_PROMOTE, CHAIN, "registers per thread, of which it has 160"),
        ("cta = [128, 160, 64]\nstages = 11", "", "shared memory has room for"),
    ):
        (decision,) = (x for x in promoted(tile=tile, epilogue=epilogue).decisions if x.key == "epilogue.smem")
        wide = tile.split(",")[1].strip()
        assert [lacking in x.why for x in decision.rejected if x.what == f"64x{wide} parts"] == [True]


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        spec_text("u8", epilogue=CHAIN),
        spec_text("u8", epilogue=CHAIN, schedule='consumers = "pingpong"'),
        spec_text("f16", epilogue='ops = ["gelu_erf"]'),
        spec_text(
            "e4m3",
            epilogue=HEAVY,
            schedule='consumers = "pingpong"',
            extra='residual = { dtype = "f16", major = "m" }\naux = { dtype = "f16", major = "m" }',
        ),
    ],
    ids=["bytes", "bytes, in turns", "erf", "all, in turns"],
)
def test_a_chosen_tile_has_room_for_the_chain(text: str, built: Build) -> None:
    """Of a tile that cutegen chose the kernel is built; a few registers may wait beside the main loop, and are told."""
    manifest = built(parse_spec(text), "sm_90").manifest
    assert len(manifest.warnings) == (manifest.spill_bytes > 0)
    assert manifest.spill_bytes <= 32
