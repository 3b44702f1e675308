"""An artifact folder is used only where it belongs and without anything extra; a copy of it opens anywhere."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from cutegen.build import Artifact, BuildRequest, Cache, build, open_artifact
from cutegen.errors import ArtifactError

MakeRequest = Callable[..., BuildRequest]


@pytest.fixture
def artifact(stand_in: MakeRequest, cache: Cache) -> Artifact:
    return build(stand_in(), cache)


def test_something_extra_is_refused(artifact: Artifact, stand_in: MakeRequest, cache: Cache) -> None:
    (artifact.path / "sitecustomize.py").symlink_to("/etc/hostname")
    with pytest.raises(ArtifactError, match=r"holds sitecustomize\.py, which is not part of an artifact"):
        open_artifact(artifact.path)
    assert cache.lookup(stand_in()) is None


def test_an_entry_that_is_a_link_is_refused(artifact: Artifact, stand_in: MakeRequest, cache: Cache) -> None:
    elsewhere = cache.directory.parent / "elsewhere"
    shutil.move(artifact.path, elsewhere)
    artifact.path.symlink_to(elsewhere)
    assert cache.lookup(stand_in()) is None
    assert elsewhere.is_dir()
    assert not build(stand_in(), cache).hit


def test_an_entry_under_another_key_is_refused(artifact: Artifact, stand_in: MakeRequest, cache: Cache) -> None:
    other = stand_in(arch="sm_86")
    wrong = cache.path(other.inputs.key)
    wrong.parent.mkdir(exist_ok=True)
    shutil.copytree(artifact.path, wrong)
    assert cache.lookup(other) is None
    assert cache.lookup(stand_in()) is not None


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"nowhere: cannot be opened as a folder: No such file"):
        open_artifact(tmp_path / "nowhere")


def test_a_copy_opens_with_every_byte_and_is_independent_of_the_folder(artifact: Artifact, tmp_path: Path) -> None:
    copied = open_artifact(shutil.copytree(artifact.path, tmp_path / "copy"))
    shutil.rmtree(tmp_path / "copy")
    assert (copied.source, copied.plan_json, copied.ptx, copied.cubin) == (
        artifact.source,
        artifact.plan_json,
        artifact.ptx,
        artifact.cubin,
    )
    assert copied.manifest == artifact.manifest
    assert copied.key == artifact.key


def test_a_copy_opens_where_there_is_no_dsl(
    artifact: Artifact, tmp_path: Path, spawn: Callable[..., subprocess.Popen[str]]
) -> None:
    shutil.copytree(artifact.path, tmp_path / "copy")
    script = """
import sys
sys.modules["cutlass"] = None
from cutegen.build import open_artifact
print(open_artifact(sys.argv[1]).manifest.registers)
"""
    out, error = spawn(script, tmp_path / "copy").communicate()
    assert (out, error) == ("40\n", "")
