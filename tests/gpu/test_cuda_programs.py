"""The programs that say where CTAs run, and how fast few of them read, are read by a compiler wherever there is one."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

PROGRAMS = sorted(Path(__file__).parent.glob("*.cu"))


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
@pytest.mark.parametrize("source", PROGRAMS, ids=lambda path: path.stem)
def test_it_compiles_without_a_warning(source: Path, tmp_path: Path) -> None:
    command = ["nvcc", "-std=c++17", "-arch=sm_90", "-Xcompiler", "-Wall,-Wextra", "-o", tmp_path / "program", source]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert "warning" not in done.stdout + done.stderr
