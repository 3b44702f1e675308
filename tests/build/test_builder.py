"""The build as a whole, with stand-ins for the compiler: crashes, time limits, races, and what it leaves behind."""

from __future__ import annotations

import random
import signal
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cutegen.build import BuildRequest, Cache, build
from cutegen.errors import CompileError, EmissionError
from tests.build.conftest import BUILD

MakeRequest = Callable[..., BuildRequest]
Spawn = Callable[..., subprocess.Popen[str]]


def number_of_calls(calls: Path) -> int:
    return len(calls.read_text().splitlines()) if calls.exists() else 0


def test_compiled_once_then_found(stand_in: MakeRequest, cache: Cache, calls: Path, temporary_files: Path) -> None:
    first, second = build(stand_in(), cache), build(stand_in(), cache)
    assert (first.hit, second.hit, number_of_calls(calls)) == (False, True, 1)
    assert second.content == first.content
    manifest = first.manifest
    assert (manifest.entry, manifest.registers, manifest.spill_bytes) == ("stand_in_0", 40, 16)
    assert manifest.instructions.emitted == {"ldmatrix.sync.aligned.m8n8.x4.shared.b16": 2}
    assert manifest.warnings == ()
    assert list(temporary_files.iterdir()) == []


def test_another_kind_of_instruction_is_an_error_and_is_not_cached(stand_in: MakeRequest, cache: Cache) -> None:
    with pytest.raises(EmissionError, match=r"stand_in_0: .*x4.*\(2 times\).*x2.*\(4 times\); the PTX is .*kernel.ptx"):
        build(stand_in(instructions={"ldmatrix.sync.aligned.m8n8.x2.shared.b16": 4}), cache)
    assert cache.entries() == ()


class TestCompilerFailures:
    """Whatever the compiler does to its process, the answer is a CompileError that says what and where the log is."""

    def failure(self, request: BuildRequest, cache: Cache, *, timeout_s: float = 30) -> str:
        with pytest.raises(CompileError) as error:
            build(request, cache, timeout_s=timeout_s)
        assert cache.entries() == ()
        message = str(error.value)
        assert message.startswith("stand_in_0 for sm_80: the compiler ")
        folder = Path(message.rpartition("are in ")[2])
        assert (folder / "log.txt").is_file()
        assert (folder / "kernel.py").read_text() == request.source.text
        return message

    def test_abort(self, stand_in: MakeRequest, cache: Cache) -> None:
        action = 'import os, sys; print("layout.h:12: no such mode", file=sys.stderr, flush=True); os.abort()'
        request = stand_in(action)
        line = next(i for i, text in enumerate(request.source.text.splitlines(), start=1) if "os.abort" in text)
        message = self.failure(request, cache)
        assert f"was killed by SIGABRT at kernel.py:{line}: layout.h:12: no such mode;" in message

    @pytest.mark.parametrize(("number", "said"), [(signal.SIGFPE, "SIGFPE"), (40, "signal 40")])
    def test_signal(self, number: int, said: str, stand_in: MakeRequest, cache: Cache) -> None:
        message = self.failure(stand_in(f"import os; os.kill(os.getpid(), {int(number)})"), cache)
        assert f"was killed by {said}" in message

    def test_exception(self, stand_in: MakeRequest, cache: Cache) -> None:
        message = self.failure(stand_in('raise ValueError("\\033[91mno such\\033[0m\\n  atom")'), cache)
        assert "rejected the kernel at kernel.py:8: ValueError: no such atom;" in message

    def test_silent_exit(self, stand_in: MakeRequest, cache: Cache) -> None:
        assert "rejected the kernel: no message;" in self.failure(stand_in("raise SystemExit(3)"), cache)

    def test_exit_that_claims_success(self, stand_in: MakeRequest, cache: Cache) -> None:
        with pytest.raises(CompileError, match=r"left no output: .*kernel\.ptx"):
            build(stand_in("raise SystemExit(0)"), cache)

    def test_hang_takes_its_own_children_along(self, stand_in: MakeRequest, cache: Cache, tmp_path: Path) -> None:
        pid_file = tmp_path / "pid"
        action = (
            'import subprocess, time; child = subprocess.Popen(["sleep", "600"]); '
            f'Path({str(pid_file)!r}).write_text(str(child.pid)); print("thinking", flush=True); time.sleep(600)'
        )
        start_s = time.monotonic()
        message = self.failure(stand_in(action), cache, timeout_s=1.0)
        assert time.monotonic() - start_s < 5
        assert "was stopped after the time limit of 1 s: thinking;" in message
        assert is_dead(int(pid_file.read_text()))

    def test_a_cubin_that_is_none(self, stand_in: MakeRequest, cache: Cache) -> None:
        with pytest.raises(CompileError, match=r"cubin \(4 bytes\) holds no resource usage of stand_in_0"):
            build(stand_in(cubin=b"\x7fELF"), cache)

    def test_an_interpreter_that_cannot_start(
        self, stand_in: MakeRequest, cache: Cache, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("sys.executable", "/nowhere/python")
        with pytest.raises(CompileError, match="/nowhere/python cannot be started to compile: No such file"):
            build(stand_in(), cache)

    def test_the_next_build_is_not_disturbed(self, stand_in: MakeRequest, cache: Cache) -> None:
        self.failure(stand_in("import os; os.abort()"), cache)
        assert not build(stand_in(), cache).hit


def is_dead(pid: int) -> bool:
    """Return whether the process has ended, or will within a second."""
    for _ in range(100):
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.01)
    return False


def test_two_processes_build_once(
    stand_in: MakeRequest, cache: Cache, calls: Path, tmp_path: Path, spawn: Spawn
) -> None:
    kernel = tmp_path / "source.py"
    kernel.write_text(stand_in("import time; time.sleep(0.7)").source.text)
    processes = [spawn(BUILD, kernel, cache.directory) for _ in range(3)]
    answers = [process.communicate() for process in processes]
    assert [error for _, error in answers] == ["", "", ""]
    hits = sorted(out.split()[1] for out, _ in answers)
    assert hits == ["False", "True", "True"]
    assert len({out.split()[2] for out, _ in answers}) == 1
    assert number_of_calls(calls) == 1


def test_two_threads_build_once(stand_in: MakeRequest, cache: Cache, calls: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        artifacts = list(pool.map(lambda _: build(stand_in("import time; time.sleep(0.3)"), cache), range(4)))
    assert sorted(artifact.hit for artifact in artifacts) == [False, True, True, True]
    assert number_of_calls(calls) == 1


@pytest.mark.parametrize("rounds", [6, pytest.param(60, marks=pytest.mark.slow)])
def test_a_build_killed_at_any_moment_leaves_nothing_half_published(
    rounds: int, stand_in: MakeRequest, cache: Cache, tmp_path: Path, spawn: Spawn, rng: random.Random
) -> None:
    kernel = tmp_path / "source.py"
    for number in range(rounds):
        kernel.write_text(stand_in(f"number = {number}").source.text)
        process = spawn(BUILD, kernel, cache.directory)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(rng.uniform(0, 0.2))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert cache.verify() == ()
    assert cache.info().quarantined == 0
    out, _ = spawn(BUILD, kernel, cache.directory).communicate()
    assert out.startswith("ready\n")
    assert cache.verify() == ()
    key = out.split()[2]
    assert list(cache.path(key).parent.glob(f".{key}-*")) == []


PUBLISH = """
import sys
from dataclasses import replace
from pathlib import Path
from cutegen.build import Cache, open_artifact
from cutegen.build.artifact import Content
content = open_artifact(sys.argv[1]).content
cache = Cache(Path(sys.argv[2]))
print("ready", flush=True)
for number in range(int(sys.argv[3]), 1 << 60):
    inputs = replace(content.manifest.inputs, gpu_arch=str(number))
    manifest = replace(content.manifest, key=inputs.key, inputs=inputs)
    cache.publish(Content(manifest, {**content.files, "manifest.json": manifest.to_bytes()}))
"""


def test_publishing_killed_at_any_moment_leaves_whole_entries_only(
    stand_in: MakeRequest, cache: Cache, tmp_path: Path, spawn: Spawn, rng: random.Random
) -> None:
    """The same, but the process does nothing except publish, so that the kill hits it there."""
    artifact = build(stand_in(plan_json=rng.randbytes(100_000).hex()), Cache(tmp_path / "other"))
    for number in range(5):
        process = spawn(PUBLISH, artifact.path, cache.directory, number << 20)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(rng.uniform(0.02, 0.2))
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert len(cache.entries()) > 5
    assert cache.verify() == ()


@pytest.mark.slow
@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP])
def test_a_compiler_ends_with_its_parent_or_at_its_time_limit(
    sent: signal.Signals, stand_in: MakeRequest, cache: Cache, tmp_path: Path, spawn: Spawn
) -> None:
    pid_file = tmp_path / "pid"
    kernel = tmp_path / "source.py"
    action = f"import os, time; Path({str(pid_file)!r}).write_text(str(os.getpid())); time.sleep(600)"
    kernel.write_text(stand_in(action).source.text)
    limit_s = 3.0 if sent == signal.SIGSTOP else 500.0  # a stopped parent is there, but cannot end it
    process = spawn(BUILD.replace("sys.argv[2]))", f"sys.argv[2])), timeout_s={limit_s}"), kernel, cache.directory)
    for _ in range(500):
        if pid_file.exists() and pid_file.read_text():
            break
        time.sleep(0.01)
    child = int(pid_file.read_text())
    assert not is_dead(child)
    process.send_signal(sent)
    for _ in range(1000 if sent == signal.SIGSTOP else 200):
        if is_dead(child):
            break
        time.sleep(0.01)
    else:
        raise AssertionError(f"{child} still runs")
    process.kill()
    process.communicate()
