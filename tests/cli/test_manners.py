"""What every command does alike: files, widths, names of targets and specs, help, versions, completion."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import termios
from importlib import metadata
from pathlib import Path

import pytest

from cutegen.cli.main import DEFECT, INTERRUPTED
from cutegen.cli.verbs import VERBS
from cutegen.errors import CheckError, OutsideError, RequestError
from cutegen.spec import shipped_specs
from cutegen.spec.file import spec_path
from tests.cli.commands import Cli

pytestmark = pytest.mark.usefixtures("empty_cache")
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


def test_the_bare_command_shows_its_help(cli: Cli) -> None:
    bare = cli("")
    assert (bare.code, bare.err, bare.out) == (0, "", cli("--help").out)
    assert all(word in bare.out for word in (*VERBS, "--install-completion"))


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


@pytest.mark.parametrize("command", PLANNED)
def test_what_is_printed_can_go_to_a_file(command: str, cli: Cli, tmp_path: Path) -> None:
    arch = "--arch sm_80" if SPEC in command else ""
    text, table = tmp_path / "a.txt", tmp_path / "a.JSON"
    for path, told, option in ((text, "--json", "--json"), (text, "", ""), (table, "", "--json")):
        printed = cli(f"{command} {arch} {option}")
        written = cli(f"{command} {arch} {told} --out {path}")
        told_of = f"cutegen: wrote: {path}, {path.stat().st_size:,} bytes\n"
        assert (written.code, written.out, written.err) == (0, "", told_of)
        assert path.read_text() == printed.out
    assert json.loads(table.read_text())["schema"] == 1


def test_a_kernel_goes_to_a_file_as_text_or_json(cli: Cli, tmp_path: Path) -> None:
    printed = cli(f"emit {SPEC} --arch sm_80").out
    compile(printed, "kernel.py", "exec")
    for option, path in (("--output", "a.py"), ("--out", "a.json")):
        assert cli(f"emit {SPEC} --arch sm_80 {option} {tmp_path / path}").out == ""
    assert (tmp_path / "a.py").read_text() == json.loads((tmp_path / "a.json").read_text())["source"] == printed


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
    ("stream", "command", "code"),
    [
        ("stdout", f"plan {SPEC}", 0),
        pytest.param("stdout", "--help", 0, marks=pytest.mark.slow),
        ("stdout", "check races.ptx --arg i32[4]:zeros", 1),
        pytest.param("stderr", "plan nothing", 2, marks=pytest.mark.slow),
        ("stderr", "emit sm80_hgemm_tn --out no/kernel.py", 3),
    ],
)
def test_a_reader_that_is_gone_does_not_change_the_exit_code(
    stream: str, command: str, code: int, tmp_path: Path
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
    ("closed", "command", "code"),
    [
        pytest.param(">&-", f"emit {SPEC} --json", 0, marks=pytest.mark.slow),
        (">&-", "--help", 0),
        pytest.param("2>&-", f"plan {SPEC}", 0, marks=pytest.mark.slow),
        ("2>&-", "plan nothing", 2),
        (">&- 2>&-", "--version", 0),
        (">&- 2>&-", "plan nothing", 2),
    ],
)
def test_a_stream_that_is_closed_is_no_failure(closed: str, command: str, code: int) -> None:
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
    assert (printed.code, written.code) == (0, 0)
    assert r"s\udcff" in printed.out
    assert out.read_text() == printed.out


def test_the_kernel_does_not_follow_columns(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its text is the key of the cache."""
    before = cli(f"emit {SPEC} --arch sm_80").out
    monkeypatch.setenv("COLUMNS", "60")
    assert cli(f"emit {SPEC} --arch sm_80").out == before


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


def test_a_group_that_takes_a_spec_has_its_options_in_its_help(cli: Cli) -> None:
    said = " ".join(cli("tune --help").out.split())
    assert "--suite" in said
    assert "`cutegen tune list`, `show`, `export`, `import` and `forget`" in said
    assert cli(f"tune {SPEC} --help").out == cli("tune --help").out


def test_an_option_that_is_none_names_the_help_of_its_verb(cli: Cli) -> None:
    assert cli(f"plan {SPEC} --nope").error.endswith("see cutegen plan --help")
    assert cli(f"cache info {SPEC} --nope").error.endswith("see cutegen cache info --help")


@pytest.mark.parametrize("verb", ["build", "pack", "bench"])
def test_an_interrupt_says_what_was_kept(verb: str, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(f"cutegen.cli.{verb}.{'require_gpu' if verb == 'bench' else 'named_kernels'}", interrupted)
    outcome = cli(f"{verb} {SPEC}{' --out x.cutepack' * (verb == 'pack')}")
    assert (outcome.code, outcome.out) == (130, "")
    assert outcome.err.startswith("cutegen: interrupted: ")
    assert "kernels that were compiled are in the cache" in outcome.err


def test_text_on_a_terminal_ends_at_its_width() -> None:
    """A terminal of 80 columns, without COLUMNS."""
    master, slave = os.openpty()
    termios.tcsetwinsize(slave, (40, 80))
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"} | {"NO_COLOR": "1"}
    command = [sys.executable, "-m", "cutegen", "plan", SPEC, "--arch", "sm_80"]
    with subprocess.Popen(command, stdout=slave, env=environment) as child:
        os.close(slave)
        said = b""
        while True:
            try:
                part = os.read(master, 1 << 16)
            except OSError:  # the other end is closed
                break
            said += part
            if not part:
                break
        assert child.wait() == 0
    os.close(master)
    lengths = [len(line) for line in said.decode().splitlines()]
    assert 70 < max(lengths) <= 80
