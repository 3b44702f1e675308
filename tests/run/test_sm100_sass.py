"""The machine code of family sm100, without a GPU: no spill, no loop over active lanes, no sums freed while they load.

nvdisasm prints an instruction's 128 bits in two lines. Bits 110 to 112 number the scoreboard that it releases when its
result is there, 7 is none; bits 116 to 121 are those that it waits for (as ptxas 13.0 writes them, by observation).
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from cutegen.api import request_of
from cutegen.build import Cache, build, find_nvdisasm
from cutegen.errors import OutsideError
from cutegen.plan import GemmPlan, plan
from cutegen.spec import load_spec

pytestmark = [pytest.mark.dsl, pytest.mark.slow]
_LINE = re.compile(r"\s*/\*(?P<address>[0-9a-f]{4,})\*/\s+(?P<text>[^;]+);\s+/\* 0x(?P<low>[0-9a-f]{16}) \*/")
_HIGH = re.compile(r"\s*/\* 0x(?P<high>[0-9a-f]{16}) \*/")
_LABEL = re.compile(r"(?P<name>\.L_x_\d+):")
NO_SCOREBOARD = 7


@dataclass(frozen=True, slots=True)
class Line:
    """An instruction: its text, its control bits, and the labels before it."""

    text: str
    releases: int
    waits: int
    labels: tuple[str, ...]

    def has(self, *opcodes: str) -> bool:
        """Whether it is one of these, with any modifiers."""
        words = self.text.split()
        opcode = words[1] if words[0].startswith("@") else words[0]
        return opcode.startswith(opcodes)


def lines_of(sass: str) -> list[Line]:
    """Parse the text of `nvdisasm -hex`."""
    found: list[Line] = []
    labels: list[str] = []
    pending = ""
    for text in sass.splitlines():
        if (label := _LABEL.match(text)) is not None:
            labels.append(label["name"])
        elif (line := _LINE.match(text)) is not None:
            pending = line["text"].strip()
        elif pending and (high := _HIGH.match(text)) is not None:
            control = int(high["high"], 16)
            found.append(Line(pending, control >> 46 & 7, control >> 52 & 63, tuple(labels)))
            pending, labels = "", []
    return found


def faults(lines: Sequence[Line], multiplications: int) -> list[str]:
    """What the machine code has that the plan does not."""
    found = [f"a spill: {line.text}" for line in lines if line.has("STL", "LDL")]
    where = {name: at for at, line in enumerate(lines) for name in line.labels}
    back = [
        (where[target[1]], at)
        for at, line in enumerate(lines)
        if (target := re.search(r"`\((\.L_x_\d+)\)", line.text)) and where.get(target[1], at + 1) <= at
    ]
    multiply = [at for at, line in enumerate(lines) if re.match(r"(@\S+ )?UTC[HQOI]MMA", line.text)]
    if len(multiply) != multiplications:
        found.append(f"{len(multiply)} multiplications; the plan has {multiplications}")
    for at in multiply:
        loops = [loop for loop in back if loop[0] <= at <= loop[1]]
        first, last = min(loops, key=lambda loop: loop[1] - loop[0])
        if not any(line.has("SYNCS.PHASECHK") for line in lines[first : last + 1]):
            found.append(f"a loop without a wait around {lines[at].text}")
    loading: set[int] = set()
    for line in lines:
        loading -= {board for board in loading if line.waits >> board & 1}
        if line.has("SYNCS.ARRIVE") and loading:
            found.append(f"an arrival while sums load: {line.text}")
        if line.has("LDTM"):
            loading.add(line.releases)
    return found


READ = ("sm100_hgemm_tn", "sm100_mxf8_tn", "sm100_nvf4_tn", "sm100_e4m3_block_scaled")
"""The shipped specs whose machine code is read."""


@pytest.fixture(scope="module")
def hexed(kernels: Cache, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[GemmPlan, list[Line]]]:
    """The machine code of shipped specs."""
    try:
        program = find_nvdisasm()
    except OutsideError:
        pytest.skip("no nvdisasm here")
    found = {}
    for name in READ:
        planned = plan(load_spec(name), "sm_100")
        assert isinstance(planned, GemmPlan)
        cubin = Path(build(request_of(planned), kernels).path) / "kernel.cubin"
        done = subprocess.run([program, "-hex", "-c", str(cubin)], capture_output=True, text=True, check=True)
        found[name] = planned, lines_of(done.stdout)
    return found


@pytest.mark.parametrize("name", READ)
def test_machine_code_keeps_the_order_of_the_text(name: str, hexed: dict[str, tuple[GemmPlan, list[Line]]]) -> None:
    planned, lines = hexed[name]
    assert sum(line.has("LDTM") for line in lines) > 0
    assert all(line.releases != NO_SCOREBOARD for line in lines if line.has("LDTM"))
    assert faults(lines, planned.mma.k_blocks) == []


def test_a_fault_is_found(hexed: dict[str, tuple[GemmPlan, list[Line]]]) -> None:
    planned, lines = hexed["sm100_hgemm_tn"]
    count = planned.mma.k_blocks

    def found(changed: Sequence[Line]) -> str:
        return " ".join(faults(changed, count))

    assert "a spill" in found([*lines, Line("STL [R1], R2", NO_SCOREBOARD, 0, ())])
    assert "an arrival while sums load" in found([replace(line, waits=0) for line in lines])
    assert "a loop without a wait" in found([line for line in lines if not line.has("SYNCS.PHASECHK")])
    assert f"the plan has {count}" in found([line for line in lines if "UTCHMMA" not in line.text])
