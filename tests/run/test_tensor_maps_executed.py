"""A kernel with tensor maps and persistent CTAs, its PTX executed on the CPU."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cutegen.ptx import LaunchError, LaunchReport
from cutegen.run import Kernel, cpu
from tests.run.sum_by_maps import CONTRACT, PTX, expected


@pytest.fixture
def kernel(artifact: Any) -> Kernel:
    return Kernel(artifact(CONTRACT, ptx=PTX))


def operands(extent: int, batch: int | None = None, *, shared_b: bool = False) -> tuple[Any, Any, Any]:
    """Compact matrices, C poisoned; with `shared_b` one B for the batch."""
    random = np.random.default_rng(extent)
    lead = () if batch is None else (batch,)
    a = random.standard_normal((*lead, extent, extent), np.float32).astype(np.float16)
    b = random.standard_normal((*(() if shared_b else lead), extent, extent), np.float32).astype(np.float16)
    return a, b.swapaxes(-1, -2), np.full((*lead, extent, extent), np.nan, np.float16)


@pytest.mark.parametrize(("extent", "batch", "shared_b"), [(64, None, False), (136, None, False), (72, 2, True)])
def test_every_element_is_written_once_edges_and_batches_included(
    kernel: Kernel, extent: int, batch: int | None, shared_b: bool
) -> None:
    a, b, out = operands(extent, batch, shared_b=shared_b)
    kernel(a, b, out=out)
    np.testing.assert_array_equal(out, expected(a, b))


def test_two_ctas_share_the_tiles(kernel: Kernel) -> None:
    """136 is three tiles of 64: nine tiles, so that one CTA computes five and the other four."""
    a, b, out = operands(136)
    report: LaunchReport = kernel.execute(a, b, out=out)
    assert report.grid == (2, 1, 1)
    np.testing.assert_array_equal(out, expected(a, b))


@pytest.mark.parametrize("multiprocessors", [1, 5, 100])
def test_any_number_of_ctas_is_right(kernel: Kernel, multiprocessors: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "MULTIPROCESSORS", multiprocessors)
    a, b, out = operands(136)
    report = kernel.execute(a, b, out=out, policy="reversed")
    assert report.grid == (min(9, multiprocessors), 1, 1)
    np.testing.assert_array_equal(out, expected(a, b))


def test_processes_open_the_maps_arrays(kernel: Kernel) -> None:
    a, b, out = operands(72, 2)
    kernel.execute(a, b, out=out, jobs=2)
    np.testing.assert_array_equal(out, expected(a, b))


def test_strided_operands(kernel: Kernel) -> None:
    """A is a window of a larger matrix; C's padding is not written."""
    a, b, _ = operands(72)
    wide, padded = np.full((80, 96), np.nan, np.float16), np.zeros((72, 88), np.float16)
    wide[8:, 16:88] = a
    kernel(wide[8:, 16:88], b, out=padded[:, :72])
    np.testing.assert_array_equal(padded[:, :72], expected(a, b))
    assert not padded[:, 72:].any()


def test_k_zero_makes_maps_of_nothing(kernel: Kernel) -> None:
    """The kernel reads boxes whatever K is: NaN, the one element of an empty matrix, and zeros around it."""
    out, read = np.ones((64, 64), np.float16), np.zeros((64, 64), np.float16)
    read[0, 0] = np.nan
    kernel(np.zeros((64, 0), np.float16), np.zeros((0, 64), np.float16), out=out)
    np.testing.assert_array_equal(out, read)


def test_a_map_that_the_driver_would_refuse_is_refused(artifact: Any) -> None:
    wide = replace(CONTRACT, maps=(replace(CONTRACT.maps[0], box=(128, 64)), *CONTRACT.maps[1:]))
    a, b, out = operands(64)
    with pytest.raises(LaunchError, match="tensor map: a box row of 256 bytes"):
        Kernel(artifact(wide, ptx=PTX))(a, b, out=out)
