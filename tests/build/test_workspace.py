"""Temporary folders: full ones, and those that killed processes leave."""

from __future__ import annotations

import fcntl
import os
import signal
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cutegen.build import BuildRequest, Cache, build, compiler, disassemble
from cutegen.build import disk as workspace_module
from cutegen.build.disk import KEPT, TemporaryFolder, sweep, workspace
from cutegen.errors import CacheError, CompileError, OutsideError
from tests.build.conftest import BUILD, stand_in_cubin, stand_in_ptx

MakeRequest = Callable[..., BuildRequest]
Spawn = Callable[..., subprocess.Popen[str]]


def fill(disk: Path, left_bytes: int) -> None:
    """Fill a file system up to so many bytes."""
    free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
    (disk / "ballast").write_bytes(bytes(max(0, free - left_bytes)))


@pytest.mark.parametrize("left_bytes", [0, 4096, 8192, 16384, 24576])
def test_a_full_temporary_folder_is_one_clear_error(
    left_bytes: int, stand_in: MakeRequest, cache: Cache, small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No room for the folder, the kernel, the log, what the compiler writes: each is met at another step."""
    monkeypatch.setattr("tempfile.tempdir", str(small_disk))
    request = stand_in("Path('dump').write_bytes(bytes(1 << 20))")
    fill(small_disk, left_bytes)
    with pytest.raises(OutsideError, match="free some space or set TMPDIR") as error:
        build(request, cache)
    assert str(error.value).isprintable()
    assert cache.entries() == ()
    (small_disk / "ballast").unlink()
    with pytest.raises(OutsideError, match="free some space or set TMPDIR"):
        build(request, cache)
    assert not build(stand_in(), cache).hit


@pytest.mark.parametrize("inodes", range(2, 7))
def test_a_temporary_folder_without_inodes_is_one_clear_error(
    inodes: int, stand_in: MakeRequest, cache: Cache, small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subprocess.run(["mount", "-o", f"remount,nr_inodes={inodes}", small_disk], check=True)
    monkeypatch.setattr("tempfile.tempdir", str(small_disk))
    many = "[Path(str(number)).write_text('') for number in range(9)]"
    with pytest.raises(OutsideError, match="free some space or set TMPDIR"):
        build(stand_in(many), cache)
    assert cache.entries() == ()


@pytest.mark.parametrize("step", ["mkdtemp", "write_text", "open"])
def test_no_room_at_any_step(step: str, stand_in: MakeRequest, cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same where no small file system can be mounted."""

    def full(*arguments: object, **options: object) -> None:
        raise OSError(28, "No space left on device", "somewhere")

    where = {"mkdtemp": tempfile, "write_text": Path, "open": compiler}[step]
    monkeypatch.setattr(where, step, full, raising=False)
    with pytest.raises(CacheError, match="No space left on device: 'somewhere'; free some space or set TMPDIR"):
        build(stand_in(), cache)


def whole_cubin() -> bytes:
    """A cubin as the compiler writes it: with the headers of programs after those of sections."""
    image = bytearray(stand_in_cubin())
    struct.pack_into("<Q", image, 32, len(image))
    struct.pack_into("<HH", image, 54, 56, 1)
    return bytes(image) + bytes(56)


@pytest.mark.parametrize("cut", ["ptx, a byte", "ptx, an instruction", "cubin, a byte"])
def test_what_a_full_disk_cut_off_is_no_kernel(cut: str, stand_in: MakeRequest, cache: Cache) -> None:
    """The compiler writes its output to a file and reads it back, and does not see that not all of it was written.

    Counts of instructions and registers are in what is left, so that nothing else notices.
    """
    text, image = stand_in_ptx(), whole_cubin()
    lost = {"ptx, a byte": "}\n", "ptx, an instruction": "    ret;\n}\n", "cubin, a byte": ""}[cut]
    assert text.endswith(lost)
    request = stand_in(ptx=text.removesuffix(lost), cubin=image if lost else image[:-1])
    name = cut.split(",")[0]
    with pytest.raises(CompileError, match=rf"bytes of kernel.{name}, without the end of it; free some space or set"):
        build(request, cache)
    assert cache.entries() == ()
    assert not build(stand_in(cubin=image), cache).hit


def test_disassembling_without_room_is_no_defect(small_disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(small_disk))
    fill(small_disk, 0)
    with pytest.raises(CacheError, match="free some space or set TMPDIR"):
        disassemble(bytes(100))


def wait_for(found: Callable[[], object]) -> None:
    for _ in range(1000):
        if found():
            return
        time.sleep(0.01)
    raise AssertionError("nothing came")


def test_the_next_build_removes_what_a_killed_one_left(
    stand_in: MakeRequest, cache: Cache, tmp_path: Path, temporary_files: Path, spawn: Spawn
) -> None:
    kernel, started = tmp_path / "source.py", tmp_path / "started"
    kernel.write_text(stand_in(f"import time; Path({str(started)!r}).touch(); time.sleep(600)").source.text)
    process = spawn(BUILD, kernel, tmp_path / "other cache")
    wait_for(started.exists)
    build(stand_in(), cache)
    (left,) = temporary_files.iterdir()  # its process lives
    assert (left / "kernel.py").exists()
    process.send_signal(signal.SIGKILL)
    process.communicate()
    build(stand_in(arch="sm_90"), cache)
    assert list(temporary_files.iterdir()) == []


UNCACHED = """
import os, signal, sys
from pathlib import Path
from cutegen.build import Cache, open_artifact
from cutegen.build.builder import _keep_uncached
from cutegen.errors import CacheError
artifact = _keep_uncached(open_artifact(sys.argv[1]).content, CacheError("no cache"))
assert artifact.path.exists()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_an_artifact_outside_of_the_cache_goes_with_its_process(
    stand_in: MakeRequest, cache: Cache, temporary_files: Path, spawn: Spawn
) -> None:
    artifact = build(stand_in(), cache)
    spawn(UNCACHED, artifact.path).communicate()
    (left,) = temporary_files.iterdir()
    assert left.name.startswith("cutegen-uncached-")
    sweep()
    assert list(temporary_files.iterdir()) == []


FORKED = """
import os, sys
from cutegen.build.artifact import open_artifact
from cutegen.build.builder import _keep_uncached
from cutegen.errors import CacheError
artifact = _keep_uncached(open_artifact(sys.argv[1]).content, CacheError("no cache"))
child = os.fork()
if child:
    os.waitpid(child, 0)
    print(artifact.path.exists())
"""


def test_an_artifact_outside_of_the_cache_outlives_a_forked_process(
    stand_in: MakeRequest, cache: Cache, temporary_files: Path, spawn: Spawn
) -> None:
    artifact = build(stand_in(), cache)
    assert spawn(FORKED, artifact.path).communicate()[0] == "True\n"
    assert list(temporary_files.iterdir()) == []


def test_a_failed_build_is_kept_for_its_reader(stand_in: MakeRequest, cache: Cache, temporary_files: Path) -> None:
    with pytest.raises(CompileError) as error:
        build(stand_in("raise ValueError('no')"), cache)
    build(stand_in(), cache)
    (kept,) = temporary_files.iterdir()
    assert (kept / KEPT).read_text() == f"{error.value}\n"
    assert (kept / "log.txt").exists()


def test_only_our_own_abandoned_folders_are_removed(tmp_path: Path, temporary_files: Path) -> None:
    mine = TemporaryFolder.make("build")
    mine.release()
    live = TemporaryFolder.make("build")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "precious").write_text("")
    link = temporary_files / "cutegen-build-aaaaaaaa"
    link.symlink_to(elsewhere)
    file = temporary_files / "cutegen-build-bbbbbbbb"
    file.write_text("")
    pipe = temporary_files / "cutegen-build-cccccccc"
    os.mkfifo(pipe)
    notes = temporary_files / "cutegen-notes"
    notes.mkdir()
    others = [live.path, link, file, pipe, notes]
    if os.geteuid() == 0:
        foreign = temporary_files / "cutegen-build-dddddddd"
        foreign.mkdir()
        os.chown(foreign, 12345, -1)
        others.append(foreign)
    sweep()
    assert sorted(temporary_files.iterdir()) == sorted(others)
    assert (elsewhere / "precious").exists()
    live.remove()


def test_a_folder_swept_before_it_is_locked_is_made_again(
    temporary_files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the making of a folder and its lock, another build may take it for abandoned."""
    make, made = tempfile.mkdtemp, []

    def swept(**options: str) -> str:
        path = make(**options)
        made.append(path)
        if len(made) == 1:
            sweep()
        return path

    monkeypatch.setattr(workspace_module.tempfile, "mkdtemp", swept)
    with workspace() as directory:
        assert made[1:] == [str(directory)]
        sweep()
        assert directory.exists()
    assert list(temporary_files.iterdir()) == []


def test_a_folder_removed_between_its_opening_and_its_lock_is_made_again(
    temporary_files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock is then that of a folder without a name."""
    lock, locked = fcntl.flock, []

    def late(descriptor: int, operation: int) -> None:
        locked.append(descriptor)
        if len(locked) == 1:
            (abandoned,) = temporary_files.iterdir()
            abandoned.rmdir()
        lock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    folder = TemporaryFolder.make("build")
    assert folder.path.exists()
    assert len(locked) == 2
    folder.remove()
