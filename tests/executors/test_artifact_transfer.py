"""An artifact that travels arrives whole and verified, or not at all."""

from __future__ import annotations

import random
import tracemalloc
import zlib
from dataclasses import replace
from pathlib import Path

import pytest

from cutegen.api import build_request
from cutegen.build import Artifact, Cache, build
from cutegen.build.artifact import CUBIN, FILES, MANIFEST, SOURCE
from cutegen.errors import ArtifactError, CacheError
from cutegen.executors.remote_job import Parcel, missing, packed, parcels, unpack


@pytest.fixture(scope="module")
def built(kernels: Cache) -> Artifact:
    return build(build_request("sm80_hgemm_tn", "sm_80"), kernels)


def test_it_arrives_as_it_was_and_is_found_there(built: Artifact, kernels: Cache, tmp_path: Path) -> None:
    other = Cache(tmp_path)
    assert missing(other, [built.key, built.key]) == (built.key,)
    (parcel,) = parcels(kernels, [built.key])
    arrived = unpack(parcel, other)
    assert (arrived.key, arrived.cubin, arrived.source, arrived.ptx) == (
        built.key,
        built.cubin,
        built.source,
        built.ptx,
    )
    assert missing(other, [built.key]) == ()
    found = other.lookup(build_request("sm80_hgemm_tn", "sm_80"))
    assert found is not None
    assert unpack(parcel, other).hit, "a second arrival finds the first"
    assert other.verify() == ()


def test_another_plan_of_the_same_kernel_travels(built: Artifact, tmp_path: Path) -> None:
    """The key covers the kernel's text: a look-up gives it the plan that it was asked for by."""
    parcel = packed(built.content.with_plan("{}"))
    assert unpack(parcel, Cache(tmp_path)).plan_json == "{}"


@pytest.mark.parametrize("name", [CUBIN, SOURCE, MANIFEST])
def test_one_changed_byte_is_refused(built: Artifact, tmp_path: Path, name: str) -> None:
    parcel = packed(built.content)
    data = bytearray(zlib.decompress(parcel.files[name]))
    place = random.randrange(len(data))
    data[place] ^= 1 << random.randrange(8)
    damaged = replace(parcel, files={**parcel.files, name: zlib.compress(bytes(data))})
    with pytest.raises(ArtifactError, match=f"artifact {built.key[:12]} that was sent: "):
        unpack(damaged, Cache(tmp_path))
    assert Cache(tmp_path).entries() == ()


def test_what_is_no_artifact_is_refused(built: Artifact, tmp_path: Path) -> None:
    whole = packed(built.content)
    cut = {**whole.files, CUBIN: whole.files[CUBIN][:-5]}
    for parcel in (
        Parcel(whole.key, {}),
        Parcel(whole.key, {**whole.files, "notes.txt": zlib.compress(b"not an artifact's")}),
        Parcel("0" * 64, whole.files),
        Parcel(whole.key, cut),
        Parcel(whole.key, {**whole.files, CUBIN: b"x"}),
        Parcel(whole.key, {**whole.files, MANIFEST: zlib.compress(bytes(1 << 21))}),
    ):
        with pytest.raises(ArtifactError, match="that was sent"):
            unpack(parcel, Cache(tmp_path))


def test_no_more_is_inflated_than_a_file_may_have(built: Artifact, tmp_path: Path) -> None:
    """64 MiB of zeros are 64 KiB in a parcel, and a manifest has at most 1 MiB."""
    whole = packed(built.content)
    parcel = Parcel(whole.key, {**whole.files, MANIFEST: zlib.compress(bytes(64 << 20))})
    tracemalloc.start()
    try:
        with pytest.raises(ArtifactError, match=f"found more than {FILES[MANIFEST]:,} bytes"):
            unpack(parcel, Cache(tmp_path))
        assert tracemalloc.get_traced_memory()[1] < 32 << 20
    finally:
        tracemalloc.stop()


def test_what_arrives_waits_for_who_builds_it(built: Artifact, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cutegen.executors.remote_job.LOCK_WAIT_S", 0.0)
    cache, parcel = Cache(tmp_path), packed(built.content)
    with cache.lock(built.key, wait_s=0), pytest.raises(CacheError, match="held by another process"):
        unpack(parcel, cache)
    assert unpack(parcel, cache).key == built.key


def test_one_folder_is_known_by_its_meeting(tmp_path: Path) -> None:
    here, same, other = Cache(tmp_path / "a"), Cache(tmp_path / "." / "a"), Cache(tmp_path / "b")
    with here.meeting() as name:
        assert (same.meets(name), other.meets(name), same.meets("")) == (True, False, False)
    assert not same.meets(name)


def test_where_nothing_can_be_written_nobody_meets(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with Cache(tmp_path / "file").meeting() as name:
        assert (name, Cache(tmp_path).meets(name)) == ("", False)
