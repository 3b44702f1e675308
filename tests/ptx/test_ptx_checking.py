"""`cutegen check`: what its page shows, what several orders find together, and launch files."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from bulk_kernels import READY, SMEM_BYTES, expect, load, wait
from kernels import kernel
from litmus import entry, last_block

from cutegen.cli.main import main
from tests.house.documents import ROOT, fences, transcripts
from tests.house.replay import compare, printed

PAGE = ROOT / "docs" / "checking.md"
FOLDER = ROOT / "docs" / "checking"
TWO = "--arg u32[256]:zeros --arg u32[16]:zeros --arg u32[256]:zeros --grid 4 --block 64"
NEEDS_OTHERS = ("nvcc", "python")


def test_the_page_shows_what_is_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`sed` is done by hand: it deletes one line by its number, or those with a word."""
    for name in ("docs", "examples"):
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path)
    shown = 0
    for transcript in (t for fence in fences(PAGE) if fence.language == "console" for t in transcripts(fence)):
        words = shlex.split(transcript.command)
        if words[0] == "sed":
            lines = Path(words[2]).read_text().splitlines(keepends=True)
            which = words[1].removesuffix("d")
            word = None if which.isdigit() else which.strip("/")
            kept = [x for i, x in enumerate(lines, 1) if (str(i) != which if word is None else word not in x)]
            assert len(kept) == len(lines) - 1
            Path(words[4]).write_text("".join(kept))
        elif words[0] == "cutegen" and transcript.output:
            compare(transcript.address, transcript.output, printed(transcript.command))
            shown += 1
        else:
            assert words[0] in NEEDS_OTHERS or not transcript.output
    assert shown == 10


def test_the_page_shows_the_launch_file_that_is_there() -> None:
    (fence,) = (fence for fence in fences(PAGE) if fence.language == "toml")
    assert fence.text.partition("\n")[2] == (FOLDER / "transpose.toml").read_text()


def found(text: str, options: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> tuple[int, dict[str, object]]:
    path = tmp_path / "k.ptx"
    path.write_text(text)
    code = main(["check", str(path), *shlex.split(options), "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_each_violation_is_told_once_with_the_orders_that_found_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, told = found(last_block(barrier=""), f"{TWO} --policies 6 --seed 7", capsys, tmp_path)
    assert code == 1
    assert told["policies"] == ["in-order", "reversed", "random:7", "random:8", "random:9", "random:10"]
    keys = [(finding["kind"], finding["line"]) for finding in told["findings"]]
    assert len(keys) == len(set(keys)) > 0
    assert all(set(finding["policies"]) <= set(told["policies"]) for finding in told["findings"])
    twice = entry(
        "mov.u64 %rd5, 4096; add.u64 %rd5, %rd5, %rd0; ld.global.u32 %r5, [%rd5];\nld.global.u32 %r5, [%rd5];"
    )
    _, told_twice = found(twice, f"{TWO} --policies 1", capsys, tmp_path)
    assert [finding["kind"] for finding in told_twice["findings"]] == ["out of bounds"] * 2
    code, told = found(last_block(), f"{TWO} --policies 6", capsys, tmp_path)
    assert (code, told["findings"], told["clean"]) == (0, [], True)


def test_a_violation_of_one_order_only_is_found(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """CTA 1 reads beyond the array where CTA 0 has come before it."""
    text = entry("""
        atom.acq_rel.gpu.global.add.u32 %r4, [%rd1], 1; setp.ne.u32 %p0, %r4, %r1;
        mov.u64 %rd5, 0; @!%p0 bra DONE; ld.global.u32 %r5, [%rd0+4096];
    DONE:""")
    code, told = found(text, f"{TWO.replace('--grid 4 --block 64', '--grid 2 --block 1')}", capsys, tmp_path)
    assert code == 1
    assert [finding["kind"] for finding in told["findings"]] == ["out of bounds"]
    assert "in-order" not in told["findings"][0]["policies"]
    assert "reversed" in told["findings"][0]["policies"]


def test_clusters_are_an_option_and_a_key(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    text = entry("mov.u32 %r5, %cluster_nctarank; setp.ne.u32 %p0, %r5, 2; @%p0 trap;")
    arguments = "--grid 4 --block 1" + 3 * " --arg u32[4]:zeros"
    assert found(text, f"{arguments} --cluster 2,1", capsys, tmp_path)[0] == 0
    assert found(text, arguments, capsys, tmp_path)[0] == 1
    file = tmp_path / "launch.toml"
    array = '[[argument]]\narray = "u32"\nshape = [4]\nfill = "zeros"\n'
    file.write_text("grid = 4\nblock = 1\ncluster = [2, 1]\n" + 3 * array)
    assert found(text, f"--launch {file}", capsys, tmp_path)[0] == 0
    assert main(["check", str(tmp_path / "k.ptx"), "--launch", str(file), "--cluster", "2"]) != 0
    assert "--cluster: found together with --launch" in capsys.readouterr().err


LAUNCH = """
grid = 2
block = 1
[[argument]]
file = "data.npy"
[[argument]]
array = "u32"
shape = [16]
fill = "zeros"
[[argument]]
array = "u32"
shape = [2, 128]
fill = "zeros"
expected = "want.npy"
"""
COPY = "mul.wide.u32 %rd3, %r1, 512; add.s64 %rd4, %rd2, %rd3; ld.global.u32 %r5, [%rd0]; st.global.u32 [%rd4], %r5;"


def test_results_are_compared(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    wanted = np.zeros((2, 128), np.uint32)
    wanted[:, 0] = 7
    np.save(tmp_path / "data.npy", np.full(4, 7, np.uint32))
    np.save(tmp_path / "want.npy", wanted)
    (tmp_path / "launch.toml").write_text(LAUNCH)
    options = f"--launch {tmp_path / 'launch.toml'}"
    assert found(entry(COPY), options, capsys, tmp_path)[0] == 0
    code, told = found(entry(COPY.replace("[%rd4], %r5", "[%rd4], %r1")), options, capsys, tmp_path)
    assert code == 1
    assert told["findings"] == []
    assert told["wrong"][0]["message"] == "2 of 256 elements differ, first at [0, 0]: found 0, expected 7"


@pytest.mark.parametrize("wanted", ["want.npy", "0"])
@pytest.mark.parametrize(("dtype", "far"), [("u8", 0), ("u8", 1), ("i8", 0), ("i8", 1)])
def test_large_integers_are_compared_exactly(
    dtype: str, far: int, wanted: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Rounded to float64, 2^53 and 2^53 + 1 are equal."""
    np.save(tmp_path / "data.npy", np.full(4, 2**53, dtype))
    np.save(tmp_path / "want.npy", np.full(4, 2**53 + far, dtype))
    argument = f'[[argument]]\nfile = "%s.npy"\nexpected = "{wanted}"\nrtol = 0\natol = 0\n'
    others = 2 * '[[argument]]\narray = "u32"\nshape = [1]\nfill = "zeros"\n'
    (tmp_path / "launch.toml").write_text(argument % "data" + others)
    options = f"--launch {tmp_path / 'launch.toml'} --policies 1"
    store = f"mov.u64 %rd5, {2**53 + far}; st.global.u64 [%rd0], %rd5;" if wanted == "0" else ""
    code, told = found(entry(store), options, capsys, tmp_path)
    assert code == far
    if far:
        assert {f"{2**53}", f"{2**53 + 1}"} <= set(re.findall(r"\d+", told["wrong"][0]["message"]))


def test_values_count_whatever_their_byte_order(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    wanted = np.zeros((2, 128), ">u4")
    wanted[:, 0] = 7
    np.save(tmp_path / "data.npy", np.full(4, 7, ">u4"))
    np.save(tmp_path / "want.npy", wanted)
    (tmp_path / "launch.toml").write_text(LAUNCH)
    assert found(entry(COPY), f"--launch {tmp_path / 'launch.toml'}", capsys, tmp_path)[0] == 0
    (tmp_path / "data.npy").write_text("1 2 3")
    assert main(["check", str(tmp_path / "k.ptx"), "--launch", str(tmp_path / "launch.toml")]) == 2
    assert "it is not a .npy file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("grid = 2", "grid = 0"), "grid: found 0; expected one to three positive integers"),
        (
            ("block = 1", "blocks = 1"),
            "found blocks; expected one of argument, block, cluster, entry, grid, programmatic, smem_bytes",
        ),
        (('"u32"', '"u33"'), "argument 1: array: found 'u33'; expected one of f16,"),
        (("[16]", '["x"]'), "argument 1: shape: found ['x']; expected a list of positive integers"),
        (("[16]", "[99999, 99999]"), "expected at most"),
        (("data.npy", "none.npy"), "none.npy cannot be read"),
        (("want.npy", "0 @ 1 @ 2"), "cannot be read"),
        (("[[argument]]", "[[arguments]]"), "found arguments; expected one of"),
        (('"data.npy"', '"data.npy"\nfill = "ones"'), "argument 0: fill: found together with file; leave one"),
        (("[16]", '[16]\ntype = "u32"'), "argument 1: type: found together with array; leave one"),
        (("[16]", '[16]\nnumber = 3\ntype = "u32"'), "argument 1: array: found together with number; leave one"),
        (("[16]", "[16]\nrtol = 0.5"), "argument 1: rtol: found without expected; leave it out"),
        (('"want.npy"', '"want.npy"\nrtol = nan'), "rtol, atol numbers of at least 0"),
        (('"want.npy"', '"want.npy"\natol = -1'), "rtol, atol numbers of at least 0"),
        (("grid", "grid ="), "cannot be read"),
    ],
)
def test_a_launch_file_that_is_wrong_is_refused_with_its_key(
    change: tuple[str, str], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    np.save(tmp_path / "data.npy", np.full(4, 7, np.uint32))
    np.save(tmp_path / "want.npy", np.zeros((2, 128)))
    (tmp_path / "launch.toml").write_text(LAUNCH.replace(*change))
    (tmp_path / "k.ptx").write_text(entry(COPY))
    assert main(["check", str(tmp_path / "k.ptx"), "--launch", str(tmp_path / "launch.toml")]) == 2
    assert message in capsys.readouterr().err


MAP_LAUNCH = """
grid = 1
block = 32
[[argument]]
array = "u32"
shape = [32, 64]
fill = "arange"
tensor_map = { box = [32, 16], swizzle_bytes = 0 }
[[argument]]
array = "u32"
shape = [64]
fill = "zeros"
[[argument]]
bytes = "07000000"
"""


def test_tensor_maps_and_structures_in_a_launch_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    parameters = ".param .align 64 .b8 map[128], .param .u64 out, .param .align 4 .b8 pair[8]"
    body = READY + expect(2048) + load((32, 16)) + wait() + "ld.param.u32 %r9, [pair]; ld.param.u32 %r10, [pair+4];"
    body += "ld.shared.u32 %r3, [%r4]; add.u32 %r3, %r3, %r9; add.u32 %r3, %r3, %r10;"
    text = kernel(body, shared_bytes=SMEM_BYTES, parameters=parameters)
    wanted = np.zeros(64, np.uint32)
    wanted[:32] = 16 * 64 + 32 + 7
    np.save(tmp_path / "want.npy", wanted)
    told = MAP_LAUNCH.replace("shape = [64]", 'shape = [64]\nexpected = "want.npy"')
    (tmp_path / "launch.toml").write_text(told)
    code, found_here = found(text, f"--launch {tmp_path / 'launch.toml'}", capsys, tmp_path)
    assert (code, found_here["findings"], found_here["wrong"]) == (0, [], [])
    (tmp_path / "launch.toml").write_text(told.replace("[32, 16], swizzle", "[32, 8], swizzle"))
    assert found(text, f"--launch {tmp_path / 'launch.toml'}", capsys, tmp_path)[0] == 1
    (tmp_path / "launch.toml").write_text(told.replace("07000000", "0x"))
    assert main(["check", str(tmp_path / "k.ptx"), "--launch", str(tmp_path / "launch.toml")]) == 2
