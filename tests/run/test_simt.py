"""Kernels of the `simt` family: emitted as predicted, executed on the CPU, against float64 and against their plans."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from cutegen import api
from cutegen.build import Cache
from cutegen.plan import plan
from cutegen.render import render
from cutegen.run import Kernel
from cutegen.spec import GemmSpec, load_spec
from cutegen.verify.counts import count_launch
from tests.run.against_float64 import check, made
from tests.run.simt_cases import CASES

pytestmark = pytest.mark.dsl

EDGES = [(1, 1, 1), (33, 65, 9), (31, 7, 20)]
WHOLE = (2, 1, 3)  # CTA tiles


def run(spec: GemmSpec, kernel: Kernel, *extents: int) -> None:
    """Against float64, and every count against the plan."""
    a, b, out, extras = made(kernel, *extents)
    report = check(kernel, a, b, out, extras, kernel.execute)
    assert report.violations == ()
    counts = count_launch(plan(spec, "sm_80"), kernel.call_size(a, b, out, **extras), report)
    assert counts.differing() == {}


QUICK = ("nt, one stage", "tn, vectors")


@pytest.mark.parametrize("name", [x if x in QUICK else pytest.param(x, marks=pytest.mark.slow) for x in CASES])
def test_emitted_as_predicted_and_right_on_whole_tiles_and_on_edges(name: str, kernels: Cache) -> None:
    spec = CASES[name]
    kernel = api.compile(spec, "sm_80", cache=kernels)
    assert kernel.artifact.manifest.warnings == ()
    tile = plan(spec, "sm_80").cta_tile
    m, n, k = (extent * times for extent, times in zip(tile, WHOLE, strict=True))
    less_than_a_k_tile = (m, n, tile[2] - 3)
    for extents in ((m, n, k), less_than_a_k_tile, *EDGES):
        run(spec, kernel, *extents)


def test_a_batch_and_nothing_to_add(kernels: Cache) -> None:
    """K = 0: C is beta C."""
    spec = CASES["alpha and beta"]
    kernel = api.compile(spec, "sm_80", cache=kernels)
    run(spec, kernel, 40, 40, 20, 2)
    a, b, out, extras = made(kernel, 33, 17, 0)
    kernel.execute(a, b, out=out, **extras)
    np.testing.assert_array_equal(out, np.float32(extras["beta"]) * extras["c"])


def test_f32_sums_are_those_of_fused_multiply_adds_in_the_order_of_k(kernels: Cache) -> None:
    """The one result that fma in the order of K gives, bit by bit: float64 holds a product of f32 exactly."""
    kernel = api.compile(CASES["nt, one stage"], "sm_80", cache=kernels)
    a, b, out, _ = made(kernel, 9, 11, 30)
    kernel.execute(a, b, out=out)
    sums = np.zeros((9, 11), np.float32)
    for k in range(30):
        exact = a[:, k, None].astype(np.longdouble) * b[None, k].astype(np.longdouble) + sums
        sums = exact.astype(np.float32)
    np.testing.assert_array_equal(out, sums)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["simt_sgemm_nt", "simt_sgemm_tn"])
def test_the_shipped_kernels(name: str, kernels: Cache) -> None:
    spec = load_spec(name)
    kernel = api.compile(spec, "sm_80", cache=kernels)
    assert kernel.artifact.manifest.warnings == ()
    for extents in ((128, 128, 16), (130, 3, 17)):
        run(spec, kernel, *extents)


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["sm_86", "sm_89", "sm_90", "sm_100", "sm_120"])
def test_every_target_emits_what_is_predicted(arch: str, kernels: Cache) -> None:
    kernel = api.compile(load_spec("simt_sgemm_nt"), arch, cache=kernels)
    assert kernel.artifact.manifest.warnings == ()
    assert kernel.artifact.manifest.spill_bytes == 0


def test_the_kernels_are_formatted(tmp_path: Path) -> None:
    for number, spec in enumerate(CASES.values()):
        (tmp_path / f"kernel_{number}.py").write_text(render(plan(spec, "sm_80")).text)
    command = [sys.executable, "-m", "ruff", "format", "--check", "--line-length", "120", "--isolated", str(tmp_path)]
    found = subprocess.run(command, check=False, capture_output=True, text=True)
    assert found.returncode == 0, found.stdout
