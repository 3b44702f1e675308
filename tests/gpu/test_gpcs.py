"""The program that says which GPC a CTA runs on is read by a compiler wherever there is one."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("gpcs.cu")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
def test_it_compiles_without_a_warning(tmp_path: Path) -> None:
    command = ["nvcc", "-std=c++17", "-arch=sm_90", "-Xcompiler", "-Wall,-Wextra", "-o", tmp_path / "gpcs", SOURCE]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert "warning" not in done.stdout + done.stderr
