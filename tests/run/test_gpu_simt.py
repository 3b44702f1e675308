"""The `simt` family on a real GPU, against float64."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import cutegen
from cutegen.plan import plan
from cutegen.render import render
from cutegen.run import Kernel
from cutegen.spec import load_spec
from tests.run.against_float64 import check
from tests.run.on_gpu import ON_A_GPU, made
from tests.run.simt_cases import CASES

torch = pytest.importorskip("torch")
pytestmark = ON_A_GPU
SHIPPED = ("simt_sgemm_nt", "simt_sgemm_tn")
EDGES = [(1, 1, 1), (7, 127, 33), (127, 7, 8), (128, 256, 64), (257, 1000, 0), (1000, 257, 1000), (512, 1024, 2048)]


@cache
def compiled(name: str) -> Kernel:
    return cutegen.compile(CASES[name] if name in CASES else load_spec(name))


@pytest.mark.parametrize("name", [*CASES, *SHIPPED])
@pytest.mark.parametrize(("m", "n", "k"), EDGES)
def test_right_against_float64(name: str, m: int, n: int, k: int) -> None:
    check(compiled(name), *made(compiled(name), m, n, k))


@pytest.mark.parametrize("name", [*CASES, *SHIPPED])
def test_batches(name: str) -> None:
    check(compiled(name), *made(compiled(name), 65, 72, 40, 5))


@pytest.mark.parametrize("name", SHIPPED)
def test_the_kernel_checks_itself(name: str, tmp_path: Path) -> None:
    file = tmp_path / "kernel.py"
    file.write_text(render(plan(load_spec(name))).text)
    done = subprocess.run([sys.executable, str(file)], check=True, capture_output=True, text=True)
    assert "relative error" in done.stdout
