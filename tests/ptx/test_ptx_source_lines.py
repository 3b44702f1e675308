"""`.file` and `.loc`: which line of a program an instruction is from, and `cutegen check --source`, which prints it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cutegen.cli.main import main
from cutegen.ptx.text.source_lines import SourceLine, source_lines
from cutegen.support.demangling import demangled

RACE = """.version 7.8
.target sm_80
.address_size 64
.visible .entry _Z4racePi(.param .u64 out)
{
  .reg .b32 %r<3>;
  .reg .b64 %rd<3>;
  ld.param.u64 %rd1, [out];
  .loc 1 7 5
  cvta.to.global.u64 %rd2, %rd1;
  mov.u32 %r1, %tid.x;
  .loc 2 41 9, function_name $L__info_string0, inlined_at 1 8 3
  st.global.u32 [%rd2], %r1;
  .loc 1 9 1
  ret;
}
.file 1 "dir/race.cu"
.file 2 "/usr/include/store \\"fast\\".h", 1700000000, 42
"""


def test_a_line_holds_until_the_next_and_not_in_another_function() -> None:
    found = source_lines(RACE + ".func f()\n{\n  ret;\n}\n.loc 1 0 0\n.loc 9 5 5\n")
    first = RACE.splitlines().index("  .loc 1 7 5") + 1
    inlined = SourceLine('/usr/include/store "fast".h', 41)
    assert [found.at(first + i) for i in range(6)] == [
        *[SourceLine("dir/race.cu", 7)] * 3,
        *[inlined] * 2,
        SourceLine("dir/race.cu", 9),
    ]
    assert str(inlined) == '/usr/include/store "fast".h:41'
    count = len(RACE.splitlines())
    assert {found.at(line) for line in (1, first - 1, count + 1, count + 3, count + 5, count + 6)} == {None}


def test_check_prints_the_line_of_a_finding(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "race.ptx"
    path.write_text(RACE)
    words = ["check", str(path), "--block", "64", "--arg", "i32[4]:zeros"]
    assert main([*words, "--source"]) == 1
    said = capsys.readouterr().out
    assert '  at /usr/include/store "fast".h:41\n' in said
    assert said.startswith(f"{demangled('_Z4racePi')}: ")
    assert main([*words, "--source", "--json"]) == 1
    (finding,) = json.loads(capsys.readouterr().out)["findings"]
    assert finding["source"] == {"file": '/usr/include/store "fast".h', "line": 41}
    path.write_text("\n".join(line for line in RACE.splitlines() if ".loc" not in line))
    assert main([*words, "--source"]) == 1
    assert "  at no line of a source: compile with nvcc -lineinfo" in capsys.readouterr().out
    assert main([*words, "--json"]) == 1
    assert "source" not in json.loads(capsys.readouterr().out)["findings"][0]


def test_names_that_are_not_mangled_stay() -> None:
    assert [demangled(name) for name in ("gemm", "_Zzz", "")] == ["gemm", "_Zzz", ""]
    assert demangled("_ZN3foo3barEv") in ("foo::bar()", "_ZN3foo3barEv")
