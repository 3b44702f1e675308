"""The build with the real compiler: two small kernels, every target, no GPU."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cutegen.build import Artifact, BuildRequest, Cache, build, disassemble
from cutegen.contract.source import KernelSource
from cutegen.errors import CompileError, EmissionError
from cutegen.hardware import TARGETS, target
from tests.build.warm import WarmCompiler

pytestmark = pytest.mark.dsl

KERNELS = Path(__file__).with_name("kernels")
WARP_MMA = {
    "cp.async.ca.shared.global": 3,
    "ldmatrix.sync.aligned.m8n8.x2.shared.b16": 1,
    "ldmatrix.sync.aligned.m8n8.x4.shared.b16": 1,
    "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32": 1,
}


def scale(arch: str = "sm_80", *, edit: tuple[str, str] = ("", "")) -> BuildRequest:
    text = (KERNELS / "scale.py").read_text().replace(*edit)
    return BuildRequest(source=KernelSource(text, "scale_0"), target=target(arch), plan_json="{}", instructions={})


def warp_mma(arch: str = "sm_80", **changes: int) -> BuildRequest:
    source = KernelSource((KERNELS / "warp_mma.py").read_text(), "warp_mma_0")
    return BuildRequest(source=source, target=target(arch), plan_json="{}", instructions={**WARP_MMA, **changes})


def test_a_cold_build_takes_less_than_four_seconds_and_the_entry_has_the_given_name(cache: Cache) -> None:
    start_s = time.perf_counter()
    artifact = build(scale(), cache)
    assert time.perf_counter() - start_s < 4
    assert re.findall(r"\.entry (\w+)", artifact.ptx) == ["scale_0"]
    parameters = re.findall(r"\.param \.(\w+)", artifact.ptx)
    assert parameters == ["u64", "u32", "f32"]
    assert artifact.cubin.startswith(b"\x7fELF")


@pytest.mark.parametrize("arch", ["sm_80", "sm_120"])
def test_a_warm_compiler_makes_the_same_bytes(
    arch: str, cache: Cache, compiler_kept_warm: WarmCompiler, tmp_path: Path
) -> None:
    """Other folders' tests rely on it."""
    cold = build(warp_mma(arch), cache)
    with compiler_kept_warm.used():
        other = build(warp_mma(arch), Cache(tmp_path / "warm"))
        with pytest.raises(CompileError, match=r"rejected the kernel at kernel\.py:.*NameError"):
            build(scale(arch, edit=("import cutlass\n", "nonsense\n")), cache)
    assert (other.hit, other.ptx, other.cubin) == (False, cold.ptx, cold.cubin)


@pytest.mark.slow
@pytest.mark.parametrize("arch", TARGETS)
def test_every_target_compiles_here_and_emits_the_predicted_instructions(arch: str, cache: Cache) -> None:
    artifact = build(warp_mma(arch), cache)
    assert artifact.manifest.instructions.emitted == WARP_MMA
    assert artifact.manifest.warnings == ()
    assert f".target {target(arch).gpu_arch}" in artifact.ptx
    assert sass_registers(artifact) <= artifact.manifest.registers <= 64
    assert artifact.manifest.spill_bytes == 0


def sass_registers(artifact: Artifact) -> int:
    """One more than the highest register that the disassembly names."""
    sass = disassemble(artifact.cubin)
    assert "HMMA.16816.F32" in sass
    assert "LDSM.16.M88.4" in sass
    return 1 + max(int(number) for number in re.findall(r"\bR(\d+)\b", sass))


def test_a_count_off_by_one_is_a_warning_and_another_kind_an_error(cache: Cache) -> None:
    opcode = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
    artifact = build(warp_mma(**{opcode: 2}), cache)
    assert artifact.manifest.warnings == (f"{opcode}: 2 predicted, 1 emitted",)
    with pytest.raises(EmissionError, match=r"planned cp\.async\.cg\.shared\.global \(3 times\)"):
        build(warp_mma(**{"cp.async.cg.shared.global": 3}), cache)


def test_two_compilations_give_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the key would promise too much: folder, process and log settings must not reach the output."""
    first = build(warp_mma(), Cache(tmp_path / "first"))
    monkeypatch.setenv("CUTE_DSL_LINEINFO", "1")
    monkeypatch.setenv("PYTHONHASHSEED", "5")
    second = build(warp_mma(), Cache(tmp_path / "second"))
    assert not second.hit
    assert (first.key, first.ptx, first.cubin) == (second.key, second.ptx, second.cubin)


def test_nothing_is_written_but_the_cache(
    cache: Cache, tmp_path: Path, temporary_files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(temporary_files)
    monkeypatch.setenv("TMPDIR", str(temporary_files))
    build(scale(), cache)
    assert os.listdir(temporary_files) == []
    assert sorted(os.listdir(tmp_path)) == ["cache", "tmp"]


@pytest.mark.parametrize(
    ("edit", "complaint"),
    [
        (("mX[thread] * alpha", "mX[thread] * beta"), r"at kernel\.py:15: .*'beta' is not defined;"),
        (("cutlass.Int32(1), ", ""), r"at kernel\.py:26: .*argument `alpha` is missing in the call to `launch`\.;"),
        (("import cutlass\n", "import cutlas\n"), r"at kernel\.py:3: ModuleNotFoundError: No module named 'cutlas'"),
    ],
    ids=["in the kernel", "in the call", "in an import"],
)
def test_a_refusal_names_the_line_and_the_reason(cache: Cache, edit: tuple[str, str], complaint: str) -> None:
    with pytest.raises(CompileError, match=complaint) as error:
        build(scale(edit=edit), cache)
    assert "\n" not in str(error.value)
    assert "\x1b" not in str(error.value)


def test_the_parent_never_imports_the_dsl(spawn: Callable[..., object], cache: Cache) -> None:
    script = """
import sys
from pathlib import Path
from cutegen.hardware import target
from cutegen.build import BuildRequest, Cache, build
from cutegen.contract.source import KernelSource
from tests.build.warm import WarmCompiler
source = KernelSource(Path(sys.argv[1]).read_text(), "scale_0")
build(BuildRequest(source=source, target=target("sm_80"), plan_json="", instructions={}), Cache(Path(sys.argv[2])))
print(sorted({"cutlass", "torch"} & set(sys.modules)))
"""
    out, error = spawn(script, KERNELS / "scale.py", cache.directory).communicate()  # type: ignore[attr-defined]
    assert (out, error) == ("[]\n", "")
