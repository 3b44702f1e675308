"""A driver of our own, for C++ programs that load libcuda.so.1: it prints what is asked of it (fake_libcuda.cpp)."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
MULTIPROCESSORS, ACTIVE_CLUSTERS = 3, 2  # as the driver says
LETTERS = {"ptr": "p", "i32": "i", "i64": "l", "f32": "f", "tensormap": "m"}
"""The letter of a parameter's type in FAKE_TYPES."""


def make(folder: Path) -> Path:
    """Make the driver in a folder, for LD_LIBRARY_PATH, and return the folder."""
    fake = str(Path(__file__).with_name("fake_libcuda.cpp"))
    command = ["g++", "-std=c++17", "-Wall", "-Wextra", "-shared", "-fPIC", fake, "-o", str(folder / "libcuda.so.1")]
    subprocess.run(command, check=True)
    return folder
