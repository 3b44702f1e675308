"""Registers and local memory read from the ELF image, against what the assembler itself reports."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from cutegen.build.cubin import ResourceUsage, disassemble, resource_usage
from cutegen.errors import CompileError, OutsideError

CUDA = """
extern "C" __global__ void plain(float* a) {
    __shared__ float s[100];
    s[threadIdx.x] = a[threadIdx.x];
    __syncthreads();
    a[0] = s[3];
}
extern "C" __global__ void indexed(float* a, int k) {
    float x[37];
    for (int i = 0; i < 37; i++) x[(i * k) % 37] = a[i];
    a[0] = x[k];
}
extern "C" __global__ void __launch_bounds__(1024) spilling(float* a, const float* b, int n) {
    float r[80];
    #pragma unroll
    for (int i = 0; i < 80; i++) r[i] = b[i * n + threadIdx.x];
    __syncthreads();
    #pragma unroll
    for (int i = 0; i < 80; i++) a[i * n + threadIdx.x] = r[(i * 7 + 3) % 80] * r[79 - i];
}
"""
KERNELS = ("plain", "indexed", "spilling")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc, the reference here, is not installed")
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_100a", "sm_120a"])
def test_usage_is_what_ptxas_reports(arch: str, tmp_path: Path) -> None:
    (tmp_path / "kernels.cu").write_text(CUDA)
    command = ["nvcc", "-cubin", "-arch", arch, "-Xptxas", "-v", "kernels.cu", "-o", "kernels.cubin"]
    report = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stderr
    cubin = (tmp_path / "kernels.cubin").read_bytes()
    pattern = r"entry function '{}'.*?(\d+) bytes stack frame.*?Used (\d+) registers"
    spills = 0
    for kernel in KERNELS:
        match = re.search(pattern.format(kernel), report, re.DOTALL)
        assert match is not None
        assert resource_usage(cubin, kernel) == ResourceUsage(registers=int(match[2]), stack_bytes=int(match[1]))
        spills += int(match[1]) > 0
    assert spills == 2  # both kinds of local memory occurred


def test_an_unknown_kernel_and_what_is_no_cubin_are_refused() -> None:
    for data in (b"", b"\x7fELF", b"\x7fELF\x02\x01" + bytes(58), b"MZ" * 100):
        with pytest.raises(CompileError, match=f"cubin \\({len(data)} bytes\\) holds no resource usage of gemm_0"):
            resource_usage(data, "gemm_0")


def test_nvdisasm_refusing_is_reported() -> None:
    with pytest.raises(OutsideError, match="nvdisasm"):
        disassemble(b"not a cubin")


def test_nvdisasm_missing_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(OutsideError, match="pip install nvidia-cuda-nvdisasm"):
        disassemble(b"")


def test_nvdisasm_that_cannot_be_started_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "nvidia" / "cu13" / "bin" / "nvdisasm"
    program.parent.mkdir(parents=True)
    program.write_text("not executable")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(OutsideError, match="bin/nvdisasm cannot be started: Permission denied"):
        disassemble(bytes(100))
