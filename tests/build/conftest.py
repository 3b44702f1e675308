"""Kernels for the build's tests: real ones of the CuTe DSL, and stand-ins that answer at once with canned output."""

from __future__ import annotations

import os
import random
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import pytest

from cutegen.build import BuildRequest, Cache
from cutegen.contract.source import KernelSource
from cutegen.hardware import target

collect_ignore = ["kernels"]  # they import the DSL, and are compiled rather than imported

ROOT = Path(__file__).parents[2]
ENTRY = "stand_in_0"
INSTRUCTIONS = {"ldmatrix.sync.aligned.m8n8.x4.shared.b16": 2}

# What the child process sees: a file with a compile_kernel, as a generated one has, that first notes the call and then
# does what a test wants done.
STAND_IN = """\
from pathlib import Path
from types import SimpleNamespace


def compile_kernel(gpu_arch):
    with open({calls!r}, "a") as calls:
        calls.write(gpu_arch + "\\n")
    {action}
    return SimpleNamespace(artifacts=SimpleNamespace(PTX={ptx!r}, CUBIN={cubin!r}))
"""

BUILD = """
import sys
from pathlib import Path
from cutegen.hardware import target
from cutegen.build import BuildRequest, Cache, build
from cutegen.contract.source import KernelSource
source = KernelSource(Path(sys.argv[1]).read_text(), "stand_in_0")
instructions = {"ldmatrix.sync.aligned.m8n8.x4.shared.b16": 2}
request = BuildRequest(source=source, target=target("sm_80"), plan_json="{}\\n", instructions=instructions)
print("ready", flush=True)
artifact = build(request, Cache(Path(sys.argv[2])))
print(artifact.hit, artifact.key, flush=True)
"""
"""Builds a stand-in in a process of its own: the file of its kernel, and the folder of the cache."""

MakeRequest = Callable[..., BuildRequest]


def stand_in_ptx(entry: str = ENTRY) -> str:
    """PTX text with two ldmatrix, one of them predicated."""
    return f"""\
.version 8.8
.target sm_80
.address_size 64
.visible .entry {entry}(
    .param .u64 {entry}_param_0
)
{{
    .reg .b32 %r<5>;
    // ldmatrix.sync.aligned.m8n8.x2.shared.b16 in a comment
$L__BB0_1:
    ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{%r1, %r2, %r3, %r4}}, [%r1];
    @%p1 ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{%r1, %r2, %r3, %r4}}, [%r1];
    ret;
}}
"""


def stand_in_cubin(entry: str = ENTRY, registers: int = 40, stack_bytes: int = 16) -> bytes:
    """The smallest ELF image that says of one kernel what a cubin says."""
    names = b"\0.shstrtab\0.strtab\0.symtab\0.nv.info\0"
    strings = b"\0" + entry.encode() + b"\0"
    symbols = bytes(24) + struct.pack("<IBBHQQ", 1, 0x12, 0, 0, 0, 0)
    info = b"".join(
        struct.pack("<BBHII", 4, code, 8, 1, value) for code, value in ((0x2F, registers), (0x11, stack_bytes))
    )
    offset, data, headers = 64, b"", bytes(64)
    for payload, link in ((names, 0), (strings, 0), (symbols, 2), (info, 0)):
        name = names.index((b".shstrtab", b".strtab", b".symtab", b".nv.info")[len(headers) // 64 - 1])
        headers += struct.pack("<IIQQQQIIQQ", name, 1, 0, 0, offset + len(data), len(payload), link, 0, 1, 0)
        data += payload
    header = b"\x7fELF\x02\x01" + bytes(34) + struct.pack("<Q", offset + len(data)) + bytes(10)
    return header + struct.pack("<HHH", 64, 5, 1) + data + headers


@pytest.fixture
def calls(tmp_path: Path) -> Path:
    """The file in which stand-ins note each compilation, one line each."""
    return tmp_path / "calls.txt"


def stand_in_request(
    calls: Path,
    action: str = "pass",
    *,
    ptx: str = stand_in_ptx(),
    entry: str = ENTRY,
    arch: str = "sm_80",
    instructions: Mapping[str, int] = INSTRUCTIONS,
    plan_json: str = "{}\n",
    cubin: bytes = stand_in_cubin(),
) -> BuildRequest:
    """A request whose kernel is a stand-in, noted in `calls`; `action` is a Python statement run in the child."""
    text = STAND_IN.format(calls=str(calls), action=action, ptx=ptx, cubin=cubin)
    return BuildRequest(
        source=KernelSource(text, entry), target=target(arch), plan_json=plan_json, instructions=instructions
    )


@pytest.fixture
def stand_in(calls: Path) -> MakeRequest:
    """Makes a request whose kernel is a stand-in."""
    return partial(stand_in_request, calls)


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    """An empty cache."""
    return Cache(tmp_path / "cache")


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> random.Random:
    """Random numbers, the same in every run of one test."""
    return random.Random(request.node.name)


@pytest.fixture(autouse=True)
def temporary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary folders are made during a test."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


@pytest.fixture
def spawn(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts `python -c script arguments...` that can import cutegen; whatever still runs is killed at the end."""
    started: list[subprocess.Popen[str]] = []

    def start(script: str, *arguments: object, **variables: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", script, *map(str, arguments)],
            env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path / "tmp"), **variables},
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """An empty file system of 64 KiB; needs the right to mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", folder], capture_output=True, text=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip(f"cannot mount a small file system here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.fixture
def read_only(small_disk: Path) -> Callable[[], None]:
    """Makes `small_disk` read-only, for root too."""

    def remount() -> None:
        subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)

    return remount
