"""The cache folder: size bound, order of eviction, quarantine, leftovers, explanations; and what a hit costs."""

from __future__ import annotations

import logging
import os
import random
import stat
import time
from collections.abc import Callable
from errno import ENOENT
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

from cutegen.build import Artifact, BuildRequest, Cache, Removed, build, explain_miss
from cutegen.build import cache as cache_module
from cutegen.build.cache import QUARANTINE_LIMIT
from cutegen.build.disk import read_file, write_whole
from cutegen.errors import ArtifactError, CacheError

MakeRequest = Callable[..., BuildRequest]
ARCHS = ("sm_80", "sm_86", "sm_89", "sm_90")
SLACK_BYTES = 500  # entries differ by a few bytes; each is several times this


def publish_all(stand_in: MakeRequest, cache: Cache) -> list[Artifact]:
    """One entry for each of ARCHS, last used in this order, an hour apart."""
    artifacts = [build(stand_in(arch=arch), cache) for arch in ARCHS]
    for hours, artifact in enumerate(reversed(artifacts), start=1):
        stamp_s = time.time() - 3600 * hours
        os.utime(artifact.path, (stamp_s, stamp_s))
    return artifacts


def test_an_entry_lies_where_the_design_says(stand_in: MakeRequest, cache: Cache) -> None:
    artifact = build(stand_in(), cache)
    assert artifact.path == cache.directory / artifact.key[:2] / artifact.key
    assert sorted(path.name for path in artifact.path.iterdir()) == [
        "kernel.cubin", "kernel.ptx", "kernel.py", "manifest.json", "plan.json"
    ]  # fmt: skip


def test_folders_are_for_their_user_alone(stand_in: MakeRequest, cache: Cache) -> None:
    """Also for a user who lets everybody write by default."""
    before = os.umask(0)
    try:
        artifact = build(stand_in(), cache)
        (artifact.path / "kernel.ptx").write_text("")
        assert len(cache.verify()) == 1
    finally:
        os.umask(before)
    folders = [cache.directory, *(path for path in cache.directory.rglob("*") if path.is_dir())]
    assert {path.name for path in folders} >= {"cache", "locks", "quarantine"}
    assert {path.stat().st_mode & 0o077 for path in folders} == {0}


def test_entries_and_info(stand_in: MakeRequest, cache: Cache) -> None:
    artifacts = publish_all(stand_in, cache)
    entries = cache.entries()
    assert [entry.key for entry in entries] == [artifact.key for artifact in reversed(artifacts)]
    assert [entry.manifest().inputs.gpu_arch for entry in entries] == ["sm_90a", "sm_89", "sm_86", "sm_80"]
    sizes = [sum(len(data) for data in artifact.content.files.values()) for artifact in artifacts]
    info = cache.info()
    assert (info.entries, info.size_bytes, info.quarantined, info.writable) == (4, sum(sizes), 0, True)


def test_a_folder_that_is_not_there_yet_is_an_empty_cache(cache: Cache, stand_in: MakeRequest) -> None:
    info = cache.info()
    assert (info.entries, info.size_bytes, info.writable) == (0, 0, True)
    assert (cache.entries(), cache.verify(), cache.prune(), cache.clear()) == ((), (), Removed(), Removed())
    assert not cache.directory.exists()
    assert explain_miss(cache, stand_in()).nearest is None


def test_publishing_evicts_the_least_recently_used_first(stand_in: MakeRequest, cache: Cache) -> None:
    publish_all(stand_in, cache)
    assert build(stand_in(arch="sm_80"), cache).hit  # now the one used last
    bound = Cache(cache.directory, size_limit_bytes=3 * cache.info().size_bytes // 4 + SLACK_BYTES)
    new = build(stand_in(arch="sm_100"), bound)
    kept = [entry.manifest().inputs.gpu_arch for entry in bound.entries()]
    assert sorted(kept) == ["sm_100a", "sm_80", "sm_90a"]
    assert new.path.exists()


def test_the_entry_just_published_stays_though_it_is_over_the_bound(stand_in: MakeRequest, cache: Cache) -> None:
    publish_all(stand_in, cache)
    artifact = build(stand_in(arch="sm_100"), Cache(cache.directory, size_limit_bytes=1))
    assert [entry.key for entry in cache.entries()] == [artifact.key]


def test_prune_to_a_bound_and_clear(stand_in: MakeRequest, cache: Cache) -> None:
    artifacts = publish_all(stand_in, cache)
    assert cache.prune() == Removed()
    assert cache.prune(size_limit_bytes=cache.info().size_bytes) == Removed(), "at most so many"
    evicted = cache.prune(size_limit_bytes=cache.info().size_bytes // 2 + SLACK_BYTES).entries
    assert [entry.key for entry in evicted] == [artifact.key for artifact in artifacts[:2]]
    strangers = [cache.directory / "ab" / "notes.txt", cache.directory / "locks" / "notes.txt"]
    for stranger in strangers:
        stranger.parent.mkdir(exist_ok=True)
        stranger.write_text("not the cache's")
    assert len(cache.clear().entries) == 2
    assert sorted(path for path in cache.directory.rglob("*") if path.is_file()) == strangers
    assert not build(stand_in(), cache).hit


def test_prune_sweeps_up_what_killed_processes_left(stand_in: MakeRequest, cache: Cache) -> None:
    shard = build(stand_in(), cache).path.parent
    old, young = shard / f".{'0' * 64}-old", shard / f".{'0' * 64}-young"
    for leftover in (old, young):
        leftover.mkdir()
        (leftover / "kernel.ptx").write_text("half")
    os.utime(old, (0, 0))
    cache.prune()
    assert not old.exists()
    assert young.exists()  # someone may be writing it


def test_a_build_sweeps_up_what_was_left_of_its_own_entry_alone(stand_in: MakeRequest, cache: Cache) -> None:
    """Its lock is held; another entry may be in the middle of being written."""
    request = stand_in()
    key = request.inputs.key
    shard = cache.path(key).parent
    own, foreign = shard / f".{key}-killed", shard / f".{'0' * 64}-written"
    for leftover in (own, foreign):
        leftover.mkdir(parents=True)
    build(request, cache)
    assert not own.exists()
    assert foreign.exists()


def test_verify_names_and_sets_aside_the_damaged(
    stand_in: MakeRequest, cache: Cache, caplog: pytest.LogCaptureFixture
) -> None:
    artifacts = publish_all(stand_in, cache)
    assert cache.verify() == ()
    (artifacts[1].path / "kernel.cubin").write_bytes(b"")
    [damage] = cache.verify()
    assert damage.path == artifacts[1].path
    assert damage.outcome.startswith(f"it was moved to {cache.directory / 'quarantine'}")
    assert caplog.records == []  # it is the answer, no surprise
    assert "kernel.cubin: found 0 bytes" in damage.problem
    assert (cache.info().entries, cache.info().quarantined) == (3, 1)


def test_the_quarantine_is_bounded_and_keeps_the_newest(
    stand_in: MakeRequest, cache: Cache, caplog: pytest.LogCaptureFixture
) -> None:
    artifact = build(stand_in(), cache)
    for count in range(QUARANTINE_LIMIT + 3):
        (artifact.path / "plan.json").write_text(str(count))
        assert cache.lookup(stand_in()) is None
        cache.publish(artifact.content)
    kept = {path.read_text() for path in (cache.directory / "quarantine").glob("*/plan.json")}
    assert kept == {str(count) for count in range(3, QUARANTINE_LIMIT + 3)}


def test_other_predictions_for_the_same_text_are_checked_anew(
    stand_in: MakeRequest, cache: Cache, calls: Path, caplog: pytest.LogCaptureFixture
) -> None:
    build(stand_in(), cache)
    changed = stand_in(instructions={"ldmatrix.sync.aligned.m8n8.x4.shared.b16": 3})
    artifact = build(changed, cache)
    assert not artifact.hit
    assert artifact.manifest.warnings == ("ldmatrix.sync.aligned.m8n8.x4.shared.b16: 3 predicted, 2 emitted",)
    assert "checked against other predicted instruction counts" in caplog.text
    assert len(calls.read_text().splitlines()) == 2


def test_a_miss_is_explained_by_the_nearest_entry(stand_in: MakeRequest, cache: Cache) -> None:
    for arch in ("sm_86", "sm_80"):
        build(stand_in("stages = 3", arch=arch), cache)
    miss = explain_miss(cache, stand_in("stages = 4"))
    assert miss.nearest is not None
    assert miss.nearest.manifest().inputs.gpu_arch == "sm_80"
    [difference] = miss.differences
    assert difference.field == "source_sha256"
    assert [line.strip() for line in miss.source_diff if "stages" in line] == ["-    stages = 3", "+    stages = 4"]


def test_a_miss_names_the_field(stand_in: MakeRequest, cache: Cache) -> None:
    build(stand_in(), cache)
    [difference] = explain_miss(cache, stand_in(arch="sm_90")).differences
    assert (difference.field, difference.cached, difference.requested) == ("gpu_arch", "sm_80", "sm_90a")
    assert explain_miss(cache, stand_in(entry="other_0")).nearest is None


def test_a_hit_of_200_kb_costs_under_2_ms(stand_in: MakeRequest, cache: Cache, rng: random.Random) -> None:
    request = stand_in(plan_json=rng.randbytes(100_000).hex())
    build(request, cache)

    def cost_s() -> float:
        start_s = time.perf_counter()
        assert cache.lookup(request) is not None
        return time.perf_counter() - start_s

    assert min(cost_s() for _ in range(20)) < 2e-3


def test_an_entry_that_is_there_already_is_not_replaced(stand_in: MakeRequest, cache: Cache) -> None:
    """It happens when a lock was evicted with its entry while another process waited for it."""
    first = build(stand_in(plan_json="first"), cache)
    other = build(stand_in(plan_json="second"), Cache(cache.directory.parent / "other"))
    published = cache.publish(other.content)
    assert (published.path, published.plan_json, published.hit) == (first.path, "first", True)
    assert [path.name for path in first.path.parent.iterdir()] == [first.key]


@pytest.mark.parametrize("step", ["Cache._write_and_rename", "os.rename", "sync_directory"])
def test_a_build_while_the_cache_is_cleared_is_cached(
    step: str, stand_in: MakeRequest, cache: Cache, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process's `clear` removes folders and locks that this one has made but not yet used."""
    original = attrgetter(step)(cache_module)
    left = [1]

    def clear_first(*args: Any, **keywords: Any) -> Any:
        if left and left.pop():
            cache.clear()
        return original(*args, **keywords)

    monkeypatch.setattr(f"cutegen.build.cache.{step}", clear_first)
    build(stand_in(), cache)
    assert not left
    assert caplog.messages == []
    assert len(cache.entries()) == 1


def test_a_lock_whose_folder_is_cleared_before_it_is_opened_is_taken(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    acquire, left = cache_module.FileLock.acquire, [1]

    def cleared_first(lock: Any, **keywords: Any) -> Any:
        if left and left.pop():
            raise FileNotFoundError(ENOENT, "no folder")
        return acquire(lock, **keywords)

    monkeypatch.setattr("cutegen.build.cache.FileLock.acquire", cleared_first)
    with cache.lock("ab" * 32, wait_s=1):
        assert not left


def test_ctrl_c_while_an_entry_is_written_leaves_nothing(
    stand_in: MakeRequest, cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = build(stand_in(), cache).content
    cache.clear()
    monkeypatch.setattr("os.fsync", raise_interrupt)
    (tmp_path / "out").mkdir()
    for write in (
        lambda: cache.publish(content),
        lambda: content.write_folder(tmp_path / "out" / "kernel"),
        lambda: write_whole(tmp_path / "out" / "kernels.cutepack", b"whole"),
    ):
        with pytest.raises(KeyboardInterrupt):
            write()
    assert [path for path in (*cache.directory.rglob("*"), *(tmp_path / "out").iterdir()) if path.is_file()] == []
    assert list((tmp_path / "out").iterdir()) == []


def raise_interrupt(_: int) -> None:
    raise KeyboardInterrupt


def test_an_entry_that_cannot_be_moved_away_is_not_in_the_way_of_a_build(
    stand_in: MakeRequest, cache: Cache, caplog: pytest.LogCaptureFixture
) -> None:
    first = build(stand_in(), cache)
    (first.path / "kernel.ptx").write_text("")
    (cache.directory / "quarantine").write_text("a file")
    artifact = build(stand_in(), cache)
    assert not artifact.path.is_relative_to(cache.directory)
    assert "cannot be moved away" in caplog.messages[0]
    assert caplog.messages[-1].endswith("this build is not cached")


def test_a_lock_that_stays_taken_is_an_error_that_names_it(cache: Cache) -> None:
    with (
        cache.lock("ab" * 32, wait_s=1),
        pytest.raises(CacheError, match=r"held by another process for more than 0.05 s"),
    ):
        cache.lock("ab" * 32, wait_s=0.05)


def test_the_environment_chooses_folder_and_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUTEGEN_CACHE_DIR", str(tmp_path / "mine"))
    monkeypatch.setenv("CUTEGEN_CACHE_SIZE", "5MB")
    assert Cache.from_environment() == Cache(tmp_path / "mine", 5_000_000)
    monkeypatch.delenv("CUTEGEN_CACHE_DIR")
    monkeypatch.delenv("CUTEGEN_CACHE_SIZE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert Cache.from_environment() == Cache(tmp_path / "cutegen", 1 << 30)


class TestUnusableFolder:
    """One clear line, and the build still works."""

    def check(self, request: BuildRequest, cache: Cache, caplog: pytest.LogCaptureFixture, reason: str) -> Artifact:
        caplog.clear()
        artifact = build(request, cache)
        [record] = caplog.records
        assert record.levelno == logging.WARNING
        assert "\n" not in record.getMessage()
        assert f"cache {cache.directory} cannot be written: {reason}" in record.getMessage()
        assert "CUTEGEN_CACHE_DIR" in record.getMessage()
        assert not artifact.hit
        assert (artifact.path / "kernel.cubin").read_bytes() == artifact.cubin
        assert not artifact.lasts
        return artifact

    def test_a_full_disk(
        self, stand_in: MakeRequest, small_disk: Path, calls: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        cache = Cache(small_disk)
        request = stand_in(plan_json="x" * 100_000)
        artifact = self.check(request, cache, caplog, "No space left on device")
        assert artifact.path.parent != cache.path(artifact.key).parent
        assert cache.entries() == ()
        assert [path for path in small_disk.rglob("*") if path.name == "plan.json"] == []
        assert len(calls.read_text().splitlines()) == 1
        assert build(stand_in(), cache).path.is_relative_to(small_disk)  # a smaller one fits

    def test_a_read_only_folder_serves_hits_and_builds_the_rest(
        self, stand_in: MakeRequest, small_disk: Path, read_only: Callable[[], None], caplog: pytest.LogCaptureFixture
    ) -> None:
        cache = Cache(small_disk)
        build(stand_in(), cache)
        read_only()
        assert build(stand_in(), cache).hit
        assert caplog.records == []
        assert not cache.info().writable
        self.check(stand_in(arch="sm_90"), cache, caplog, "Read-only file system")

    def test_a_file_where_the_folder_should_be(
        self, stand_in: MakeRequest, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        (tmp_path / "file").write_text("")
        cache = Cache(tmp_path / "file")
        assert not cache.info().writable
        self.check(stand_in(), cache, caplog, "")

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may write where permissions forbid it")
    def test_a_folder_without_permission(
        self, stand_in: MakeRequest, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        (tmp_path / "mine").mkdir(mode=0o500)
        self.check(stand_in(), Cache(tmp_path / "mine"), caplog, "Permission denied")


def test_a_file_is_on_disk_before_it_has_its_name_and_everybody_may_read_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    sync, rename = os.fsync, os.replace

    def synced(descriptor: int) -> None:
        done.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        sync(descriptor)

    def renamed(source: str, target: Path) -> None:
        done.append("name")
        rename(source, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", renamed)
    write_whole(tmp_path / "kernels.cutepack", b"whole")
    assert done == ["file", "name", "folder"]
    assert (tmp_path / "kernels.cutepack").stat().st_mode & 0o777 == 0o644


def test_a_file_of_the_most_bytes_is_read_and_one_of_more_is_not(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"1234")
    assert read_file(path, 4) == b"1234"
    with pytest.raises(ArtifactError, match="found 4 bytes; expected at most 3"):
        read_file(path, 3)
