"""What every command does alike: files, widths, names of targets and specs, help, versions, completion."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

import cutegen
from cutegen.cli.main import DEFECT, INTERRUPTED, VERBS
from cutegen.errors import CheckError, OutsideError, RequestError
from cutegen.hardware import GPU_NAMES, TARGETS, resolve_target
from cutegen.spec import shipped_specs
from cutegen.spec.load import spec_path
from tests.cli.commands import Cli

SPEC = "sm80_hgemm_tn"
PLANNED = [
    f"plan {SPEC}",
    f"show {SPEC}",
    f"show {SPEC} smem",
    "list",
    "doctor",
    "cache list",
    "cache info",
    "cache path",
]


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CUTEGEN_CACHE_DIR", str(tmp_path / "cache"))


def test_the_bare_command_shows_its_help(cli: Cli) -> None:
    bare = cli("")
    assert (bare.code, bare.err, bare.out) == (0, "", cli("--help").out)
    assert all(verb in bare.out for verb in VERBS)


def test_the_version_is_the_packages(cli: Cli) -> None:
    outcome = cli("--version")
    assert (outcome.code, outcome.out) == (0, f"cutegen {metadata.version('cutegen')}\n")


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("cutegen pl", {"plan"}),
        ("cutegen plan sm80_h", {name for name in shipped_specs() if name.startswith("sm80_h")}),
        ("cutegen run ldm", {"ldmatrix_probe"}),
        ("cutegen plan ./mine", set()),
    ],
)
def test_a_shell_completes_verbs_and_shipped_specs(words: str, offered: set[str]) -> None:
    asked = {"_CUTEGEN_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": f"{len(words.split()) - 1}"}
    command = [sys.executable, "-m", "cutegen"]
    said = subprocess.run(command, env={**os.environ, **asked}, capture_output=True, text=True, check=False)
    assert (set(said.stdout.split()), said.stderr) == (offered, "")


def test_completion_is_installed_by_an_option(cli: Cli) -> None:
    assert "--install-completion" in cli("--help").out


@pytest.mark.parametrize("command", PLANNED)
def test_what_is_printed_can_go_to_a_file(command: str, cli: Cli, tmp_path: Path) -> None:
    arch = "--arch sm_80" if SPEC in command else ""
    text, table = tmp_path / "a.txt", tmp_path / "a.JSON"
    for path, option in ((text, ""), (table, "--json")):
        printed = cli(f"{command} {arch} {option}")
        written = cli(f"{command} {arch} --out {path}")
        assert (written.code, written.out, written.err) == (0, "", "")
        assert path.read_text() == printed.out
    assert json.loads(table.read_text())["schema"] == 1


def test_a_kernel_goes_to_a_file_as_text_or_json(cli: Cli, tmp_path: Path) -> None:
    for path in ("a.py", "a.json"):
        assert cli(f"emit {SPEC} --arch sm_80 --out {tmp_path / path}").out == ""
    assert json.loads((tmp_path / "a.json").read_text())["source"] == (tmp_path / "a.py").read_text()


@pytest.mark.parametrize(
    "command",
    [*PLANNED, f"build {SPEC}", f"run {SPEC}", f"report {SPEC}", f"bench {SPEC}", f"emit {SPEC}", "cache clear"],
)
def test_an_unknown_suffix_is_refused_before_any_work(command: str, cli: Cli, tmp_path: Path) -> None:
    outcome = cli(f"{command} --out {tmp_path / 'page.htm'}")
    assert (outcome.code, outcome.out) == (2, "")
    assert "page.htm, which ends with .htm; expected ." in outcome.error
    assert list(tmp_path.iterdir()) == []


def test_text_follows_columns(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    widest = {}
    for columns in ("60", "100", "200", "nonsense"):
        monkeypatch.setenv("COLUMNS", columns)
        widest[columns] = max(map(len, cli(f"plan {SPEC} --arch sm_80").out.splitlines()))
    assert widest["100"] == widest["nonsense"] <= 100 < widest["200"] <= 200
    assert widest["60"] < widest["100"]


INTERRUPTED_AT_WORK = """
import threading, time
from cutegen import __main__
from cutegen.cli import main

def command():
    threading.Thread(target=time.sleep, args=(30,)).start()  # as a thread that waits for a compiler
    return main.INTERRUPTED

main.main = command
print(__main__.main(), flush=True)
"""


def test_another_ctrl_c_ends_the_wait_for_compilers_without_traceback() -> None:
    command = [sys.executable, "-c", INTERRUPTED_AT_WORK]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "130\n"
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=20)
    assert (child.returncode, out, err) == (-signal.SIGINT, "", "")


RACES = """.version 8.0
.target sm_80
.address_size 64
.visible .entry races(.param .u64 p)
{
  .reg .b32 %r<2>;
  .reg .b64 %rd<3>;
  mov.u32 %r1, %tid.x;
  ld.param.u64 %rd1, [p];
  cvta.to.global.u64 %rd2, %rd1;
  st.global.u32 [%rd2], %r1;
  ret;
}
"""


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (f"plan {SPEC}", 0),
        ("--help", 0),
        ("plan nothing", 2),
        ("check races.ptx --arg i32[4]:zeros", 1),
        ("emit sm80_hgemm_tn --out no/kernel.py", 3),
    ],
)
@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_reader_that_is_gone_does_not_change_the_exit_code(
    command: str, code: int, stream: str, tmp_path: Path
) -> None:
    (tmp_path / "races.ptx").write_text(RACES)
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write) as unread:
        words = [sys.executable, "-m", "cutegen", *command.split()]
        out, err = (unread if stream == each else subprocess.PIPE for each in ("stdout", "stderr"))
        done = subprocess.run(words, stdout=out, stderr=err, cwd=tmp_path, text=True, check=False)
    assert done.returncode == code
    assert "Traceback" not in (done.stderr or "")


@pytest.mark.parametrize(
    ("command", "code"),
    [(f"plan {SPEC}", 0), (f"emit {SPEC} --json", 0), ("--help", 0), ("--version", 0), ("plan nothing", 2)],
)
@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_a_stream_that_is_closed_is_no_failure(command: str, code: int, closed: str) -> None:
    """What would go there goes nowhere, and the exit code is the same."""
    words = shlex.join([sys.executable, "-m", "cutegen", *command.split()])
    done = subprocess.run(f"{words} {closed}", shell=True, capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert done.stderr.count("\n") == (code != 0 and "2>&-" not in closed)


@pytest.mark.parametrize("verb", ["plan", "emit"])
def test_what_a_stream_cannot_encode_is_escaped(verb: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    text = spec_path(SPEC).read_text()
    path.write_text(re.sub(r'description = ".*"', 'description = "\u03bb"', text), encoding="utf-8")
    words = [sys.executable, "-m", "cutegen", verb, str(path)]
    done = subprocess.run(words, env={**os.environ, "PYTHONIOENCODING": "latin-1"}, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert rb"\u03bb" in done.stdout


def test_a_name_that_is_not_text_is_escaped_in_files_too(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"s\xff.toml")
    path.write_text(spec_path(SPEC).read_text())
    out = tmp_path / "plan.txt"
    printed, written = cli("plan", str(path)), cli("plan", str(path), "--out", str(out))
    assert (printed.code, written.code, written.err) == (0, 0, "")
    assert r"s\udcff" in printed.out
    assert out.read_text() == printed.out


def test_the_kernel_does_not_follow_columns(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its text is the key of the cache."""
    before = cli(f"emit {SPEC} --arch sm_80").out
    monkeypatch.setenv("COLUMNS", "60")
    assert cli(f"emit {SPEC} --arch sm_80").out == before


@pytest.mark.parametrize(
    ("name", "target"),
    [
        *((name, name) for name in TARGETS),
        *((row.gpu_arch, name) for name, row in TARGETS.items()),
        ("sm90", "sm_90"),
        ("sm90a", "sm_90"),
        ("9.0", "sm_90"),
        ("compute_86", "sm_86"),
        ("h100", "sm_90"),
        ("H100 SXM", "sm_90"),
        ("NVIDIA H200", "sm_90"),
        ("a100", "sm_80"),
        ("A100-SXM4-80GB", "sm_80"),
        ("RTX 3090", "sm_86"),
        ("NVIDIA GeForce RTX 4090", "sm_89"),
        ("rtx4090", "sm_89"),
        ("L40S", "sm_89"),
        ("b200", "sm_100"),
        ("5090", "sm_120"),
    ],
)
def test_targets_go_by_what_people_call_them(name: str, target: str) -> None:
    assert resolve_target(name).name == target


@pytest.mark.parametrize(
    "name", [*(name for name, number in GPU_NAMES.items() if f"sm_{number}" not in TARGETS), "sm_75"]
)
def test_what_is_not_supported_is_told_the_nearest_that_is(name: str) -> None:
    with pytest.raises(RequestError) as caught:
        resolve_target(name)
    said = str(caught.value)
    assert "is not supported" in said
    nearest = said.split("the nearest is ")[1].split()[0]
    assert resolve_target(nearest).name == nearest


@pytest.mark.parametrize("spec", [SPEC, "path", "text", "spec"])
def test_plan_emit_and_compile_take_a_spec_a_name_or_a_path(spec: str, tmp_path: Path) -> None:
    path = tmp_path / f"{SPEC}.toml"
    path.write_text((Path(cutegen.load_spec(SPEC).file)).read_text())
    given = {"path": path, "text": str(path), "spec": cutegen.load_spec(SPEC)}.get(spec, SPEC)
    planned = cutegen.plan(given, arch="h100", problem=(64, 64, 64))
    assert planned.target.name == "sm_90"
    source = cutegen.emit(given, arch="h100", problem=(64, 64, 64))
    assert source == cutegen.emit(SPEC, arch="sm_90", problem=(64, 64, 64))


@pytest.mark.dsl
def test_compile_finds_one_kernel_for_a_spec_its_name_and_its_path(tmp_path: Path) -> None:
    spec = cutegen.load_spec(SPEC)
    found = [cutegen.compile(given, arch=arch) for given in (spec, SPEC, Path(spec.file)) for arch in ("a100", "sm_80")]
    assert len({kernel.artifact.key for kernel in found}) == 1
    assert [kernel.artifact.hit for kernel in found] == [False] + [True] * 5


def test_show_is_for_the_batch_that_is_named(cli: Cli, tmp_path: Path) -> None:
    spec = tmp_path / "open.toml"
    operand = '{{ dtype = "f16", major = "{}" }}'
    rows = (f"problem.{name} = {operand.format(major)}" for name, major in zip("abc", "kkn", strict=True))
    spec.write_text("\n".join(('family = "sm80"', *rows)))
    words = f"{spec} --arch sm_90 --problem 128,128,4096"
    tile = cli(f"plan {words} --batch 512 --json").json["decisions"][0]["chosen"]
    assert tile in cli(f"show {words} --batch 512").out
    assert tile not in cli(f"show {words}").out


def test_an_interrupt_ends_quietly_before_a_verb_is_there(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(name: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("cutegen.cli.main.import_module", interrupted)
    outcome = cli("list")
    assert (outcome.code, outcome.out, outcome.err) == (130, "", "")


def test_the_readme_has_every_exit_code() -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    (sentence,) = re.findall(r"Exit codes: ([^.]*)\.", readme)
    codes = (0, *(error.exit_code for error in (CheckError, RequestError, OutsideError)), DEFECT, INTERRUPTED)
    assert [int(code) for code in re.findall(r"\d+", sentence)] == list(codes)


def test_a_group_that_takes_a_spec_names_the_help_of_its_options(cli: Cli) -> None:
    assert "`cutegen tune SPEC --help` has its options" in " ".join(cli("tune --help").out.split())
    assert "--suite" in cli(f"tune {SPEC} --help").out


def test_an_option_that_is_none_names_the_help_of_its_verb(cli: Cli) -> None:
    assert cli(f"plan {SPEC} --nope").error.endswith("see cutegen plan --help")
    assert cli(f"cache info {SPEC} --nope").error.endswith("see cutegen cache info --help")


@pytest.mark.parametrize("words", [(8, 0), 90])
def test_what_is_no_name_of_a_target_is_refused(words: object) -> None:
    with pytest.raises(RequestError, match="expected a name, such as 'sm_90'"):
        resolve_target(words)  # type: ignore[arg-type]
