"""Programmatic dependent launches: what the grid before may use is accessed only after a wait for it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from bulk_kernels import READY, expect, load, wait
from kernels import cuda_program, kernel

import cutegen
from cutegen.build import Cache
from cutegen.cli.main import main
from cutegen.ptx import ExecutionFault, LaunchError, Program, TensorMap, ViolationKind
from cutegen.verify.reference import compare, float64_reference

POLICIES = ("in-order", "reversed", "random:1", "random:2")
EVERY_POLICY = pytest.mark.parametrize("policy", POLICIES)
TEXT = cuda_program("dependent").text
WAIT, SYNC = "griddepcontrol.wait;", "bar.sync \t0;"


def scale(entry: str, policy: str, text: str = TEXT, *, programmatic: bool | tuple[int, ...] = (0, 2)) -> None:
    inputs, weights, out = np.arange(128, dtype=np.float32), np.full(128, 2, np.float32), np.zeros(128, np.float32)
    Program.parse(text).launch(
        entry, grid=2, block=64, args=[inputs, weights, out], policy=policy, programmatic=programmatic
    )
    assert (out == 2 * inputs).all()


@EVERY_POLICY
@pytest.mark.parametrize("entry", ["scale", "scale_after_barrier"])
def test_a_wait_comes_first(entry: str, policy: str) -> None:
    scale(entry, policy)
    scale(entry, policy, programmatic=())
    scale(entry, policy, TEXT.replace(WAIT, ""), programmatic=False)


@EVERY_POLICY
@pytest.mark.parametrize(
    ("entry", "change", "programmatic"),
    [
        ("scale", (WAIT, ""), (0, 2)),
        ("scale", (WAIT, ""), (2,)),
        ("scale", ("griddepcontrol.wait;", "griddepcontrol.launch_dependents;"), (0,)),
        ("scale", ("", ""), (0, 1)),
        ("scale", ("", ""), True),
        ("scale_after_barrier", (SYNC, ""), (0, 2)),
        ("scale_after_barrier", (WAIT, ""), (0, 2)),
    ],
)
def test_a_missing_wait_is_a_race(
    entry: str, change: tuple[str, str], programmatic: bool | tuple[int, ...], policy: str
) -> None:
    assert change[0] in TEXT
    with pytest.raises(ExecutionFault, match=r"the grid before may still .*no griddepcontrol\.wait") as caught:
        scale(entry, policy, TEXT.replace(*change), programmatic=programmatic)
    assert caught.value.violation.kind is ViolationKind.RACE


BODIES = {
    "atomics": "atom.global.add.u32 %r3, [%rd1], 1;",
    "cp.async": "mov.u32 %r4, smem; shl.b32 %r5, %r0, 2; add.u32 %r4, %r4, %r5;"
    "cp.async.ca.shared.global [%r4], [%rd1], 4; cp.async.wait_all; mov.u32 %r3, 0;",
    "bulk loads": READY + expect(1024) + load((0, 0)) + wait(),
}


@EVERY_POLICY
@pytest.mark.parametrize("name", BODIES)
def test_every_kind_of_access_waits(name: str, policy: str) -> None:
    matrix = TensorMap(array=np.zeros((64, 64), np.uint32), extents=(64, 64), strides_bytes=(256,), box=(32, 8))
    parameters = ".param .align 64 .b8 map[128], .param .u64 out"
    for guard, waits in (("", True), ("// ", False)):
        body = f"setp.eq.u32 %p0, %r0, 0;\n{guard}griddepcontrol.wait;\n{BODIES[name]}"
        text = kernel(body, shared_bytes=16384, parameters=parameters).replace("sm_80", "sm_90a")
        launch = Program.parse(text).launch
        args = [matrix, np.zeros(32, np.uint32)]
        if waits:
            launch("k", grid=1, block=32, args=args, policy=policy, programmatic=True)
            continue
        with pytest.raises(ExecutionFault, match="the grid before may still"):
            launch("k", grid=1, block=32, args=args, policy=policy, programmatic=True)


@EVERY_POLICY
def test_variables_of_the_module_belong_to_the_grid_before_too(policy: str) -> None:
    text = kernel("griddepcontrol.wait; ld.global.u32 %r3, [counter];", before=".global .u32 counter = 3;")
    out = np.zeros(32, np.uint32)
    Program.parse(text).launch("k", grid=1, block=32, args=[out], policy=policy, programmatic=())
    with pytest.raises(ExecutionFault, match="the grid before may still write"):
        Program.parse(text.replace(WAIT, "")).launch("k", grid=1, block=32, args=[out], policy=policy, programmatic=())


def test_arguments_that_do_not_exist_are_refused() -> None:
    with pytest.raises(LaunchError, match="programmatic names argument 3; scale has 3"):
        scale("scale", "in-order", programmatic=(3,))


LAUNCH = """
entry = "scale"
grid = 2
block = 64
programmatic = {programmatic}
[[argument]]
array = "f32"
shape = [128]
fill = "random"
[[argument]]
array = "f32"
shape = [128]
fill = "random"
[[argument]]
array = "f32"
shape = [128]
fill = "zeros"
"""


def test_check_finds_a_missing_wait(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def check(text: str, programmatic: str, *options: str) -> tuple[int, list[str]]:
        (tmp_path / "k.ptx").write_text(text)
        (tmp_path / "k.toml").write_text(LAUNCH.format(programmatic=programmatic))
        words = ["check", str(tmp_path / "k.ptx"), "--launch", str(tmp_path / "k.toml"), "--policies", "2", "--json"]
        code = main([*words, *options])
        out = capsys.readouterr().out
        return code, [found["message"] for found in json.loads(out)["findings"]] if code < 2 else []

    without = TEXT.replace(WAIT, "")
    assert check(without, "false") == (0, [])
    assert check(TEXT, "[0, 2]") == (0, [])
    code, messages = check(TEXT, "false", "--programmatic")
    assert code == 1  # the weights are read before
    assert len(messages) == 1
    code, messages = check(without, "[0, 2]")
    assert code == 1
    assert len(messages) == 2
    assert all("no griddepcontrol.wait comes first" in message for message in messages)
    assert check(TEXT, "[3]")[0] == 2


SPEC = """
family = "sm90"
[problem]
a = {{ dtype = "f16", major = "k" }}
b = {{ dtype = "f16", major = "k" }}
c = {{ dtype = "f16", major = "n" }}
[tile]
cta = [128, 64, 64]
[schedule]
programmatic = true
{more}
"""


@pytest.mark.dsl
@pytest.mark.parametrize("more", ["", "cluster = [2, 1]", 'consumers = "pingpong"'])
def test_kernels_of_cutegen_wait_for_the_grid_before(
    tmp_path: Path, kernels: Cache, more: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the CPU each is launched as a programmatic one; without its wait each is caught."""
    path = tmp_path / "spec.toml"
    path.write_text(SPEC.format(more=more))
    made = cutegen.compile(cutegen.load_spec(path), "sm_90a", cache=kernels)
    generator = np.random.default_rng(7)
    a, b = (generator.standard_normal(shape).astype(np.float16) for shape in ((160, 128), (72, 128)))
    for policy in ("in-order", "reversed"):
        c = np.full((160, 72), np.nan, np.float16)
        made.execute(a, b.T, out=c, policy=policy)
        assert compare(c, float64_reference(a, b.T), dtype="f16").ok
    text = made.artifact.ptx
    assert text.count(WAIT) == 1
    monkeypatch.setattr(type(made.artifact), "ptx", property(lambda artifact: text.replace(WAIT, "")))
    with pytest.raises(ExecutionFault, match=r"no griddepcontrol\.wait comes first"):
        cutegen.compile(cutegen.load_spec(path), "sm_90a", cache=kernels).execute(a, b.T, out=c)
