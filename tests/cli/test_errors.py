"""Bad requests: exit code 2 and one line that says where, what was found, what was expected and what to do."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cutegen.cli import options
from cutegen.contract.problem import MAX_EXTENT
from cutegen.spec import shipped_specs
from tests.cli.commands import Cli

MINIMAL = """
family = "sm80"
problem.a = { dtype = "f16", major = "k" }
problem.b = { dtype = "f16", major = "k" }
problem.c = { dtype = "f16", major = "n" }
problem.accumulator = "f32"
"""
BAD = {
    "unknown key": ("tile.ctaa = [128, 128, 64]", "tile.ctaa", "unknown key", "did you mean tile.cta"),
    "wrong type": ('tile.stages = "3"', "tile.stages", "a string", "write 3, without quotes"),
    "unknown atom": (
        'mma.atom = "SM80_16x8x16_F32F16F16F32"',
        "mma.atom",
        "F32F16F16F32",
        "SM80_16x8x16_F32F16F16F32_TN",
    ),
    "atom of other types": (
        'mma.atom = "SM80_16x8x16_F32BF16BF16F32_TN"',
        "mma.atom",
        "bf16",
        "SM80_16x8x16_F32F16F16F32_TN",
    ),
    "permutation": ("mma.permutation = [32, 48, 16]", "mma.permutation", "48", "128", "nearest"),
    "126 of 128 threads": (
        'tile.cta = [128, 128, 48]\ng2s.a = { threads = "(21,6):(6,1)" }',
        "g2s.a.threads",
        "126 of 128 threads",
        "(64,2):(2,1)",
    ),
    "too much shared memory": (
        "tile = { cta = [256, 256, 64], stages = 4 }",
        "tile.stages",
        "262,144",
        "166,912",
        "2 stages fit",
    ),
    "x4 where x2 fits": (
        'mma.permutation = [32, 16, 16]\ns2r.b = { atom = "SM75_U32x4_LDSM_N" }',
        "s2r.b.atom",
        "V = 4",
        "too few vals",
        "SM75_U32x2_LDSM_N",
    ),
    "T on K-major": (
        's2r.a = { atom = "SM75_U16x8_LDSM_T" }',
        "s2r.a.atom",
        "K-major",
        "(0,0) to (7,0)",
        "SM75_U32x4_LDSM_N",
    ),
    "swizzle base": ("smem.a = { swizzle = [3, 2, 3] }", "smem.a.swizzle", "base 2", "at least 3", "[3, 3, 3]"),
    "2-byte alignment, 16-byte copy": (
        'problem.a = { dtype = "f16", major = "k", align = 2 }\ng2s.a = { bits = 128 }',
        "g2s.a.bits",
        "aligned to 2 bytes",
        "problem.a.align = 16",
    ),
    "seventeen stages": ("tile.stages = 17", "tile.stages", "found 17", "1 to 16"),
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("verb", ["plan", "show", "emit", "build"])
def test_a_bad_spec_is_refused_in_one_line(name: str, verb: str, cli: Cli, tmp_path: Path) -> None:
    changes, key, *mentions = BAD[name]
    spec = tmp_path / "mine.toml"
    replaced = {line.split(" = ")[0] for line in changes.splitlines()}
    kept = [line for line in MINIMAL.splitlines() if line.split(" = ")[0] not in replaced]
    spec.write_text("\n".join(kept) + "\n" + changes)
    outcome = cli(f"{verb} {spec} --arch sm_80")
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.error.startswith(f"{spec}: {key}: found ")
    assert "; expected " in outcome.error
    assert [mention for mention in mentions if mention not in outcome.error] == []


@pytest.mark.parametrize("verb", ["plan", "pack --out x.cutepack"])
def test_a_place_in_an_expression_is_told_without_a_mark_under_it(verb: str, cli: Cli, tmp_path: Path) -> None:
    spec = tmp_path / "mine.toml"
    spec.write_text(MINIMAL + "epilogue.expression = 'x -> relu(x'\n")
    outcome = cli(f"{verb} {spec} --arch sm_80")
    assert outcome.code == 2
    assert outcome.error == f'{spec}: epilogue.expression: found the end, at character 12; expected ")"'


def test_files_that_are_no_specs(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "empty.toml").write_text("")
    (tmp_path / "binary.toml").write_bytes(bytes(range(256)))
    for name, mention in (("empty.toml", "empty file"), ("binary.toml", "UTF-8"), ("missing.toml", "no such file")):
        outcome = cli(f"plan {tmp_path / name}")
        assert (outcome.code, outcome.out) == (2, "")
        assert outcome.error.startswith(f"{tmp_path / name}: found ")
        assert mention in outcome.error


LONG = "x" * 300


@pytest.mark.parametrize(
    ("sentence", "code"),
    [
        (f"run {LONG}", 2),
        (f"run {LONG}.py", 2),
        (f"bench {LONG} --problem 64,64,64", 2),
        (f"emit {LONG}", 2),
        (f"emit sm80_hgemm_tn --out {LONG}.py", 3),
        (f"emit sm80_hgemm_tn --out {LONG}", 3),
        (f"pack sm80_hgemm_tn --out {LONG}/x.cutepack", 2),
        (f"tune import {LONG}.toml", 2),
        (f"tune show {LONG}.toml", 2),
        (f"tune export {LONG}", 2),
    ],
)
def test_a_name_that_no_file_can_have_is_refused_in_one_line(
    sentence: str, code: int, cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from cutegen.cli import bench

    monkeypatch.setenv("CUTEGEN_TUNED_DIR", str(tmp_path / "tuned"))
    monkeypatch.setattr(bench, "require_gpu", lambda: None)
    outcome = cli(sentence)
    assert (outcome.code, outcome.out) == (code, "")
    assert outcome.error


def test_a_shipped_name_that_is_nearly_right(cli: Cli) -> None:
    outcome = cli("plan sm80_hgem_tn")
    assert outcome.code == 2
    assert 'found "sm80_hgem_tn"' in outcome.error
    way_out = f"`cutegen list` shows all {len(shipped_specs())}"
    assert outcome.error.rstrip().endswith(f"expected sm80_hgemm_tn, the nearest; {way_out}")
    assert "`cutegen list` shows all" in cli("plan nothing-like-it").error


@pytest.mark.parametrize(
    ("sentence", "mention"),
    [
        ("frobnicate", "No such command 'frobnicate'"),
        ("plan", "Missing argument"),
        ("plan sm80_hgemm_tn --frob", "No such option"),
        ("show --layout", "requires an argument; see cutegen show --help"),
        ("plan sm80_hgemm_tn --arch sm_99", "unknown target 'sm_99'"),
        (
            "plan sm80_hgemm_tn --arch sm_75",
            "sm_75 is not supported; no kernel for another target runs on it; expected one of sm_80",
        ),
        ("plan sm80_hgemm_tn --arch v100", "v100 is sm_70, which is not supported; no kernel"),
        ("plan sm80_hgemm_tn --arch h10", "unknown target 'h10'; did you mean h100?"),
        (
            "show sm80_hgemm_tn mma --out x.htm",
            "ends with .htm; expected .txt or .json or .svg or .tex or .png or .ht",
        ),
        ("show sm80_hgemm_tn mma --format svg --out x.png", "--format: found svg together with --out x.png"),
        ("plan sm80_hgemm_tn --out x.html", "--out: found x.html, which ends with .html; expected .txt or .json"),
        (
            "emit sm80_hgemm_tn --out x.cu",
            "--out: found x.cu, which ends with .cu; expected .py or .ptx or .sass or .cubin or .h or .json",
        ),
        ("bench sm80_hgemm_tn --plot x.png", "--plot: found x.png, which ends with .png; expected .svg"),
        ("report sm80_hgemm_tn --batch 2", "--batch: found 2 without --problem"),
        ("show sm80_hgemm_tn --batch 2", "--batch: found 2 without --problem"),
        (
            "plan sm80_hgemm_tn --batch 2",
            "--batch: found 2 without --problem; expected it together with --problem M,N,K",
        ),
        ("show --layout 8:1 --batch 2", "--batch: found together with --layout"),
        ("show sm80_hgemm_tn smm", "'smm' is not one of"),
        ("show sm80_hgemm_tn mma --format gif", "'gif'"),
        ("show sm80_hgemm_tn --format svg", "--format: found no PART; expected one with a picture: mma smem g2s"),
        ("show sm80_hgemm_tn partitions --format png", "--format: found partitions; expected one with a picture"),
        ("show sm80_hgemm_tn mma --format svg --json", "--json: found together with --format svg"),
        ("show", "show: found neither; expected either SPEC, or --layout EXPR"),
        ("show (8,4):(4,1)", 'show: found a layout, (8,4):(4,1); expected it after --layout: --layout "(8,4):(4,1)"'),
        ("show sm80_hgemm_tn --layout 8:1", "show: found SPEC and --layout; expected either"),
        ("show sm80_hgemm_tn --dtype f16", "show: found SPEC and --dtype; expected either"),
        ("show --layout (8,4):(1", "--layout: layout '(8,4):(1', position 8: expected ')', found 'the end'"),
        ("show --layout (8,4):(1,2,3)", "the stride is not nested like the shape"),
        ("show --layout (2000,2000)", "--layout: found 4,000,000 elements; expected at most 1,048,576"),
        ("show --layout 8:1 --dtype f61", "unknown dtype 'f61'"),
        ("show sm80_hgemm_tn mma --thread 128 --arch sm_80", "--thread: found 128; expected 0 to 127"),
        ("show sm80_hgemm_tn mma --thread -1 --arch sm_80", "--thread: found -1; expected 0 to 127"),
        ("show sm120_hgemm_tn s2r --thread 256 --arch sm_90", "expected 0 to 255, a thread that has sums"),
        ("show sm80_hgemm_tn mma --thread x", "'x'"),
        ("show sm80_hgemm_tn partitions --problem 5120,5120", "--problem: found '5120,5120'; expected three integers"),
        ("show sm80_hgemm_tn partitions --problem 1,0,1", f"from 1 to {MAX_EXTENT}"),
        (f"plan sm80_hgemm_tn --problem {'1' * 5000},1,1", "expected three integers M,N,K"),
        (f"show --layout (8,4):(4,1) --tv {'1' * 5000},1", "expected the extents of a tile"),
        (f"show sm80_hgemm_tn --element a,{'1' * 5000},1", "expected a, b or c and its two coordinates"),
        (f"show --layout {'1' * 5000}", "position 0: found 5,000 characters; expected an integer of 64 bits"),
        (f"show --layout {'(' * 20000}", "position 16: found more than 16 nested modes"),
        (f"show --layout zipped_divide((8,8),{'(' * 20000}", "position 36: found more than 16 nested modes"),
        ("check examples/reverse.ptx --arg i32[999999999999]:zeros", "--arg: found 999,999,999,999 elements in"),
        ("run", "expected either SPEC or --ptx FILE"),
        ("run sm80_hgemm_tn --device tpu", "'tpu'"),
        ("run sm80_hgemm_tn --grid 1", "--grid: found without --ptx"),
        ("run sm80_hgemm_tn --arg u32:1", "--arg: found without --ptx"),
        ("run --ptx examples/reverse.ptx --device cpu", "--device: found together with --ptx"),
        ("run --ptx examples/reverse.ptx --strict", "--strict: found together with --ptx"),
        ("run examples/reverse.ptx --strict", "--strict: found together with --ptx"),
        ("check none.ptx", "none.ptx: cannot be read: No such file or directory; expected a PTX file"),
        ("check layouts/hgemm_tn.toml", "layouts/hgemm_tn.toml: line 1: unexpected character '#'"),
        ("run --ptx layouts/hgemm_tn.toml", "layouts/hgemm_tn.toml: line 1: unexpected character '#'"),
        ("check examples/reverse.ptx", "--arg: found 0 for reverse; expected 1, one per parameter in order: data"),
        ("tune import none.toml", "import: found no file none.toml; expected a record"),
        ("probe sm120_hgemm_tn --arch sm_90", 'family: found "sm120", which has no probe; expected "sm80"'),
        ("run none.ptx", "none.ptx: cannot be read: No such file or directory; expected a PTX file"),
        ("run examples/reverse.ptx --ptx examples/reverse.ptx", "run: found both"),
        ("plan examples/reverse.ptx", "expected a spec, which ends in .toml; PTX is for `cutegen run FILE.ptx`"),
        ("pack kernel.py --out x.cutepack", "found a file that ends in .py; expected a spec"),
        (
            "build kernel.py sm80_hgemm_tn",
            "build: found kernel.py together with others; expected one kernel file alone",
        ),
        ("build kernel.py --problem 1,2,3", "--problem: found together with kernel.py, which defines all of it"),
        ("compare hgemm_tn sm80_hgemm_tn --format html", "--format: found html; expected text, svg, latex or png"),
        ("compare hgemm_tn sm80_hgemm_tn --out x.html", "use `cutegen show SPEC --format html`"),
        ("run ldmatrix_probe --batch 2", "--batch: found with a probe"),
        (
            "show --layout 8:1 --thread 0",
            "--thread: found together with --layout alone; it applies to a SPEC, or to --tv; leave it out",
        ),
        ("show --layout 8:1 --tv 2,2", "found a tile of 2x2, 4 elements; expected room for coordinates 0 to 7"),
        ("show --layout 8:1 --tv 8", "--tv: found '8'; expected the extents of a tile, M,N, as in --tv 16,8"),
        ("show --layout 8:1 --tv 4096,4096", "expected at most 1,048,576"),
        ("show --layout (4,2):(1,4) --tv 4,2 --thread 4 --format svg", "--thread: found 4; expected 0 to 3"),
        ("show --layout 8:1 --tv 8,1 --dtype f16", "--dtype: found together with --tv"),
        ("show sm80_hgemm_tn --tv 16,8", "show: found SPEC and --tv"),
        ("show --layout divide(8) --tv 8,1", "expected a layout or one of composition"),
        ("cache", "Missing command"),
        ("cache frob", "No such command 'frob'"),
        ("cache prune --size huge", "--size: found 'huge'"),
    ],
)
def test_usage_errors_have_the_same_style(sentence: str, mention: str, cli: Cli) -> None:
    outcome = cli(sentence)
    assert (outcome.code, outcome.out) == (2, "")
    assert mention in outcome.error


def test_verbose_adds_the_traceback_wherever_it_stands(cli: Cli) -> None:
    for sentence in ("--verbose plan nothing", "plan --verbose nothing", "plan nothing --verbose"):
        outcome = cli(sentence)
        assert outcome.code == 2
        assert "Traceback" in outcome.err
        assert re.search(r"(?m)^cutegen: error: ", outcome.err)
    assert "Traceback" not in cli("plan nothing").err


def test_a_defect_says_so_and_keeps_its_traceback(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(options, "named_spec", broken)
    outcome = cli("plan sm80_hgemm_tn")
    assert outcome.code == 70
    assert "Traceback" in outcome.err
    assert "ZeroDivisionError('oops'): this is a bug in cutegen" in outcome.err


@pytest.mark.parametrize(
    "sentence", ["emit sm80_hgemm_tn --output no/such/folder.py", "show --layout 8:1 --out no/such.svg"]
)
def test_what_cannot_be_written_is_not_the_users_fault(sentence: str, cli: Cli) -> None:
    outcome = cli(sentence)
    assert outcome.code == 3
    assert outcome.error.startswith("--out: ")
