"""The cache key: everything that decides the compiler's output changes it, and nothing else does."""

from __future__ import annotations

import dataclasses
import hashlib
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest

from cutegen.build import BuildRequest, KeyInputs, dsl_distributions
from cutegen.contract.source import KernelSource
from cutegen.hardware import TARGETS, target

INPUTS = KeyInputs(
    format_version=1,
    source_sha256="ab" * 32,
    gpu_arch="sm_80",
    dsl_distributions=("nvidia-cutlass-dsl==4.8.1", "nvidia-cutlass-dsl-libs-base==4.8.1"),
    compile_options=("A=1", "B=2"),
)


@pytest.mark.parametrize(
    "change",
    [
        {"format_version": 2},
        {"source_sha256": "ab" * 31 + "ac"},
        {"gpu_arch": "sm_90a"},
        {"dsl_distributions": ("nvidia-cutlass-dsl==4.8.2", "nvidia-cutlass-dsl-libs-base==4.8.1")},
        {"dsl_distributions": ("nvidia-cutlass-dsl==4.8.1",)},
        {"compile_options": ("A=1", "B=3")},
        {"compile_options": ()},
    ],
    ids=str,
)
def test_each_field_changes_the_key(change: dict[str, object]) -> None:
    assert dataclasses.replace(INPUTS, **change).key != INPUTS.key


def test_the_changes_above_cover_every_field() -> None:
    covered = {
        name for mark in test_each_field_changes_the_key.pytestmark for change in mark.args[1] for name in change
    }
    assert covered == {field.name for field in dataclasses.fields(KeyInputs)}


def test_values_cannot_run_into_each_other() -> None:
    def key(*options: str) -> str:
        return dataclasses.replace(INPUTS, compile_options=options).key

    keys = [key("ab"), key("a", "b"), key("", "ab"), key("ab", ""), key("1:a", "b"), key("a1:b")]
    assert len(set(keys)) == len(keys)


def test_the_key_is_the_documented_hash() -> None:
    """Written out by hand for one-letter fields: `<length>:<bytes>` for name, number of values, values."""
    inputs = KeyInputs(
        format_version=1, source_sha256="s", gpu_arch="g", dsl_distributions=(), compile_options=("o", "p")
    )
    text = (
        "14:format_version1:11:1" "13:source_sha2561:11:s" "8:gpu_arch1:11:g" "17:dsl_distributions1:0"
        "15:compile_options1:21:o1:p"
    )  # fmt: skip
    assert inputs.key == hashlib.sha256(text.encode()).hexdigest()


@pytest.fixture
def request_() -> BuildRequest:
    return BuildRequest(source=KernelSource("text", "entry_0"), target=target("sm_80"), plan_json="{}", instructions={})


def test_text_and_target_reach_the_key(request_: BuildRequest) -> None:
    other_text = dataclasses.replace(request_, source=KernelSource("texu", "entry_0"))
    keys = {dataclasses.replace(request_, target=row).inputs.key for row in TARGETS.values()}
    assert len(keys) == len(TARGETS)
    assert other_text.inputs.key not in keys


def test_the_plan_the_place_and_the_environment_do_not(
    request_: BuildRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = request_.inputs.key
    monkeypatch.chdir(tmp_path)
    for name in ("CUTE_DSL_LOG_LEVEL", "CUTE_DSL_PRINT_IR", "CUTE_DSL_LINEINFO", "CUTEGEN_CACHE_DIR", "HOME", "TMPDIR"):
        monkeypatch.setenv(name, "1")
    assert dataclasses.replace(request_, plan_json='{"note": 1}', instructions={"x": 1}).inputs.key == before


def test_another_process_makes_the_same_key(
    request_: BuildRequest, spawn: Callable[..., subprocess.Popen[str]]
) -> None:
    script = """
from cutegen.hardware import target
from cutegen.build import BuildRequest
from cutegen.contract.source import KernelSource
source = KernelSource("text", "entry_0")
print(BuildRequest(source=source, target=target("sm_80"), plan_json="", instructions={}).inputs.key)
"""
    out, _ = spawn(script, PYTHONHASHSEED="7").communicate()
    assert out.strip() == request_.inputs.key


def importlib_knows() -> list[str]:
    """The reference, far slower: for each name the distribution that importlib.metadata would answer with."""
    names = {distribution.name.lower().replace("_", "-") for distribution in metadata.distributions()}
    ours = [name for name in names if name.startswith("nvidia-cutlass-dsl")]
    return sorted(f"{name}=={metadata.distribution(name).version}" for name in ours)


def test_distributions_are_those_importlib_knows() -> None:
    assert sorted(dsl_distributions()) == importlib_knows()


def test_distributions_packed_as_a_folder_count_and_the_first_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = {
        "one": ("nvidia_cutlass_dsl-4.9.0", "nvidia_cutlass_dsl_libs_cu13-4.9.0.dev1+x"),
        "two": ("nvidia_cutlass_dsl-4.7.0", "nvidia_cutlass-4.2.0", "torch-2.9"),
    }
    for folder, distributions in packed.items():
        for name in distributions:
            path = tmp_path / folder / f"{name}.dist-info"
            path.mkdir(parents=True)
            project, _, version = name.partition("-")
            (path / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project}\nVersion: {version}\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path / name) for name in ("one", "two", "gone.zip")])
    assert dsl_distributions() == ("nvidia-cutlass-dsl-libs-cu13==4.9.0.dev1+x", "nvidia-cutlass-dsl==4.9.0")
    assert sorted(dsl_distributions()) == importlib_knows()
