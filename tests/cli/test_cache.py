"""`cutegen cache` on a damaged, a read-only and an unreadable cache: it says what it did, and what it did not do."""

from __future__ import annotations

import errno
import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cutegen.build import Artifact, BuildRequest, Cache, build
from cutegen.cli import options
from tests.build.conftest import cache as cache
from tests.build.conftest import calls as calls
from tests.build.conftest import rng as rng
from tests.build.conftest import stand_in as stand_in
from tests.build.faults import FAULTS, FILES, Fault, scrub
from tests.cli.commands import Cli

MakeRequest = Callable[..., BuildRequest]


@pytest.fixture
def artifact(stand_in: MakeRequest, cache: Cache, monkeypatch: pytest.MonkeyPatch) -> Iterator[Artifact]:
    """One entry in the cache that the environment names."""
    monkeypatch.setenv("CUTEGEN_CACHE_DIR", str(cache.directory))
    yield build(stand_in(), cache)
    scrub(cache.directory)


@pytest.fixture
def read_only(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Makes every change of a file system fail, for root too."""

    def refuse(*arguments: object, **options: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    def make() -> None:
        for name in ("rename", "unlink", "rmdir", "mkdir", "utime"):
            monkeypatch.setattr(os, name, refuse)

    return make


# Those that a bare stand-in, whose plan is no GEMM's, can be given.
ENTRY_FAULTS = [fault for fault in FAULTS if not fault.name.startswith("resealed: launch")]


@pytest.mark.parametrize("fault", ENTRY_FAULTS, ids=str)
def test_a_fault_stops_no_verb(fault: Fault, artifact: Artifact, cli: Cli, rng: random.Random) -> None:
    fault.plant(artifact.path, rng)
    (listed,) = cli("cache list --json").json["entries"]
    assert listed["key"] == artifact.key
    assert all(line.isprintable() for line in cli("cache list").out.splitlines())
    assert cli("cache info").code == 0
    verified = cli("cache verify")
    sound = fault.openable or fault.of_plan
    assert verified.code == (0 if sound else 1)
    assert "\x1b" not in verified.out
    assert "1 set aside, to be rebuilt" in verified.err or sound
    assert [each["key"] for each in cli("cache list --json").json["entries"]] == [artifact.key] * sound


def test_clear_of_a_read_only_cache_says_what_is_still_there(
    artifact: Artifact, cli: Cli, read_only: Callable[[], None]
) -> None:
    read_only()
    outcome = cli("cache clear")
    assert outcome.code == 3
    assert outcome.out == "0 entries removed, 0 bytes\n"
    # the entry, and the lock it was built under
    assert outcome.err.startswith("cutegen: error: 2 cannot be removed; the first: ")
    assert "Read-only file system" in outcome.err
    table = cli("cache clear --json").json
    assert (table["removed"], table["bytes"], len(table["failures"])) == ([], 0, 2)
    assert cli("cache list --json").json["entries"][0]["key"] == artifact.key


def test_prune_of_a_read_only_cache_says_so(artifact: Artifact, cli: Cli, read_only: Callable[[], None]) -> None:
    read_only()
    outcome = cli("cache prune --size 1")
    assert (outcome.code, outcome.out) == (3, "0 entries removed, 0 bytes\n")
    assert "1 cannot be removed" in outcome.err
    assert cli("cache prune --size 1GB").code == 0


def test_verify_of_a_read_only_cache_says_what_was_not_set_aside(
    artifact: Artifact, cli: Cli, read_only: Callable[[], None]
) -> None:
    (artifact.path / "kernel.ptx").write_text("")
    read_only()
    outcome = cli("cache verify")
    assert outcome.code == 1
    assert "1 still in the cache" in outcome.err
    assert "it cannot be moved away: Read-only file system" in outcome.err
    assert "set aside" not in outcome.err
    (damage,) = cli("cache verify --json").json["damaged"]
    assert damage["set_aside"] is False


def test_verify_of_a_sound_read_only_cache_is_fine(artifact: Artifact, cli: Cli, read_only: Callable[[], None]) -> None:
    read_only()
    assert cli("cache verify").code == 0


UNUSABLE = {
    "a component too long": lambda folder: folder / ("x" * 300) / "cache",
    "a path too long": lambda folder: Path(str(folder) + "/x" * 3000),
    "within a file": lambda folder: _file(folder / "file") / "cache",
    "a file": lambda folder: _file(folder / "file"),
    "a device": lambda folder: Path("/dev/null"),
    "a link to itself": lambda folder: _loop(folder / "loop"),
}


def _file(path: Path) -> Path:
    path.write_text("")
    return path


def _loop(path: Path) -> Path:
    path.symlink_to(path)
    return path


@pytest.mark.parametrize("name", UNUSABLE)
def test_an_unusable_folder_is_said_and_stops_no_build(
    name: str, cli: Cli, tmp_path: Path, stand_in: MakeRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = UNUSABLE[name](tmp_path)
    monkeypatch.setenv("CUTEGEN_CACHE_DIR", str(folder))
    for verb in ("list", "verify", "clear", "prune"):
        outcome = cli(f"cache {verb}")
        assert (outcome.code, outcome.out) == (3, "")
        assert "cannot be read: " in outcome.error
        assert "set CUTEGEN_CACHE_DIR to another folder" in outcome.error
    info = cli("cache info --json")
    assert (info.code, info.json["entries"], info.json["writable"]) == (0, 0, False)
    assert "cannot be read: " in info.json["problem"]
    assert cli("cache info").code == cli("cache info sm80_hgemm_tn --arch sm_80").code == 0
    assert cli("cache path").code == 0
    artifact = build(stand_in(), Cache.from_environment())
    assert (artifact.path / "kernel.ptx").read_text() == artifact.ptx


def test_a_folder_whose_name_is_no_text_is_shown_all_the_same(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUTEGEN_CACHE_DIR", str(tmp_path / os.fsdecode(b"\xff\xfe")))
    assert cli("cache path").out == f"{tmp_path}/\\udcff\\udcfe\n"
    assert (cli("cache list").code, cli("cache info").code) == (0, 0)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_folder_of_another_user_is_said(artifact: Artifact, cli: Cli, tmp_path: Path) -> None:
    """As a user who may neither read nor write it."""
    cache = Path(os.environ["CUTEGEN_CACHE_DIR"])
    cache.chmod(0o700)
    cli("cache list"), cli("cache info"), cli("cache verify")  # everything is imported
    os.seteuid(65534)
    try:
        outcomes = [cli(f"cache {verb}") for verb in ("list", "verify", "clear", "prune")]
        info = cli("cache info --json")
    finally:
        os.seteuid(0)
    for outcome in outcomes:
        assert outcome.code == 3
        assert "cannot be read: Permission denied" in outcome.error
    assert (info.code, info.json["writable"]) == (0, False)
    assert artifact.path.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
@pytest.mark.parametrize("name", ["", *FILES])
def test_what_belongs_to_another_user_is_not_used(
    name: str, artifact: Artifact, stand_in: MakeRequest, cli: Cli
) -> None:
    os.chown(artifact.path / name, 12345, -1)
    outcome = cli("cache verify")
    assert outcome.code == 1
    assert "belongs to user id 12345" in " ".join(outcome.out.split())
    assert not build(stand_in(), Cache.from_environment()).hit


def test_a_full_disk_anywhere_is_no_defect(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(name: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "/somewhere")

    monkeypatch.setattr(options, "named_spec", full)
    outcome = cli("plan sm80_hgemm_tn")
    assert outcome.code == 3
    assert "No space left on device: '/somewhere'; free some space where the output goes" in outcome.error


def test_leftovers_of_the_quarantine_are_cleared(artifact: Artifact, cli: Cli) -> None:
    shutil.rmtree(artifact.path)
    artifact.path.write_text("a file")
    assert cli("cache verify").code == 1
    assert cli("cache clear").code == 0
    assert not Path(os.environ["CUTEGEN_CACHE_DIR"], "quarantine").exists()
