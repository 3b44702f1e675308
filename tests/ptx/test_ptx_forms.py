"""Every opcode with every type and modifier is PTX that runs, or is refused at its line."""

from __future__ import annotations

import random
import re
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from combinations import FIRST_LINE, instructions, program

from cutegen.errors import PtxSyntaxError
from cutegen.ptx import LaunchError, Program
from cutegen.ptx.instructions import lower_instruction
from cutegen.ptx.machine.frame import Frame
from cutegen.ptx.machine.layout import lay_out
from cutegen.ptx.machine.lowering import Lowering
from cutegen.ptx.text.parser import parse_module

SAMPLED_CVT = 4_000
UNKNOWN = re.compile(r"\.(b128|s128|f8)\b")


@pytest.fixture(scope="module")
def accepted() -> list[str]:
    """What of the combinations can be read; every refusal is checked on the way."""
    known = [text for text in dict.fromkeys(instructions()) if not UNKNOWN.search(text) and "%q" not in text]
    cvt = [text for text in known if text.startswith("cvt.")]
    others = [text for text in known if not text.startswith("cvt.")]
    return readable([*others, *random.sample(cvt, SAMPLED_CVT)])


def readable(bodies: list[str]) -> list[str]:
    module = parse_module(program(bodies))
    entry, layout = module.entries[0], lay_out(module, module.entries[0])
    found = []
    for instruction in entry.instructions[-2 - len(bodies) : -2]:
        context = Lowering(Frame(dict(entry.rows)), layout.addresses, layout.spaces)
        line = instruction.line
        try:
            lower_instruction(context, instruction)
            found.append(bodies[instruction.line - FIRST_LINE])
        except PtxSyntaxError as error:
            line = error.line
        assert line == instruction.line, instruction.text
    return found


def test_what_is_read_also_runs(accepted: list[str]) -> None:
    bodies = [body.replace("[%rd7]", "[smem]") if ".shared" in body else body for body in accepted]
    bodies = [body.replace("[%rd7]", "[%rd6]") for body in bodies]
    first = "ld.param.u64 %rd6, [out]; mov.u32 %r7, %tid.x; mul.wide.u32 %rd5, %r7, 32; add.s64 %rd6, %rd6, %rd5;"
    for start in range(0, len(bodies), 100):
        text = program([f"{first} {body}" for body in bodies[start : start + 100]])
        Program.parse(text).launch("k", grid=1, block=32, args=[np.zeros(32 * 32, np.uint8)], raise_on=())


def test_what_is_read_is_ptx(accepted: list[str], tmp_path: Path) -> None:
    """`ptxas` is asked about every instruction that was accepted."""
    ptxas = shutil.which("ptxas")
    if ptxas is None:
        pytest.skip("no ptxas")
    text = program([b.replace("[%rd7]", "[smem]") if ".shared" in b else b for b in accepted], "sm_100a")
    source = tmp_path / "all.ptx"
    source.write_text(text)
    command = [ptxas, "-arch", "sm_100a", "-O0", "-o", str(tmp_path / "all.cubin"), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = {int(match[1]) for match in re.finditer(r"line (\d+); error", done.stdout + done.stderr)}
    assert [accepted[line - FIRST_LINE] for line in sorted(lines)] == []
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            "mul.wide.s64 %rd2, %rd1, %rd1;",
            "mul.wide.s64 is not PTX, or not supported here; the nearest that is: mul.wide.u32",
        ),
        (
            "cvt.rn.f16x2.b8 %r1, %h1;",
            "cvt.rn.f16x2.b8 is not PTX, or not supported here; the nearest that is: cvt.rn.f16x2.f32",
        ),
        ("cvt.rn.f16x2.f64 %r1, %h1, %h1;", "is not PTX"),
        ("cvt.rn.satfinite.f16.f32 %h1, %r1;", "is not PTX, or not supported"),
        ("cvt.rn.sat.f32.s32 %r1, %r1;", "is not PTX, or not supported"),
        ("bfe.f16 %h1, %h1, %r1, %r1;", "bfe.f16 is not PTX, or not supported here; the nearest that is: bfe.u32"),
        ("atom.global.add.s64 %rd1, [%rd0], %rd1;", "type .s64 is not supported here"),
        ("ld.global.e4m3x2 %h1, [%rd0];", "an access of 1 x .e4m3x2 does not exist"),
    ],
)
def test_refusals_name_the_instruction(body: str, message: str) -> None:
    with pytest.raises(PtxSyntaxError, match=re.escape(message)) as caught:
        Program.parse(program([body])).prepare("k")
    assert caught.value.line == FIRST_LINE


@pytest.mark.parametrize(
    "kind", ["u8", "u16", "u32", "s32", "u64", "b32", "f16", "bf16", "f32", "f64", "f16x2", "e4m3"]
)
def test_an_argument_fits_its_parameter_or_is_refused(kind: str) -> None:
    text = f".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .{kind} p)\n{{ ret; }}\n"
    values = [float("nan"), float("inf"), 1e300, 1.5, 2.0, -1, 1 << 70, "7", None, 1j, np.float32("nan"), np.int8(-3)]
    values += [np.array(3), np.array([1]), b"1", (1,), True, np.bool_(True)]
    for value in values:
        with suppress(LaunchError):
            Program.parse(text).launch("k", grid=1, block=1, args=[value])
    with pytest.raises(LaunchError, match="argument 0"):
        Program.parse(text).launch("k", grid=1, block=1, args=["7x"])
