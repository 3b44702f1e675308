"""Results whose rows lie far apart, or between the rows of others: only their elements are read, copied and written."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cutegen
from cutegen.build import Cache
from cutegen.ptx.errors import LaunchError
from cutegen.run import Kernel
from cutegen.spec import Epilogue, Extra, GemmSpec, Operand, Problem
from tests.seeding import new_generator

pytestmark = pytest.mark.dsl
MIB = 1 << 20
FAR_ELEMS = 2**32 + 64


def simt(*ops: str, **extras: Extra) -> GemmSpec:
    operands = {"a": Operand("f32", "k", 4), "b": Operand("f32", "k", 4), "c": Operand("f32", "n", 4)}
    return GemmSpec(family="simt", problem=Problem(**operands, **extras), epilogue=Epilogue(ops=ops or None))


@pytest.fixture(scope="module")
def plain(kernels: Cache) -> Kernel:
    return cutegen.compile(simt(), "sm_80", cache=kernels)


def far_apart(file: Path, rows: int, columns: int) -> Any:
    """A matrix whose leading stride does not fit 32 bits, in a file of holes."""
    span = (rows - 1) * FAR_ELEMS + columns
    flat = np.memmap(file, np.float32, "w+", shape=(span,))
    return np.lib.stride_tricks.as_strided(flat, (rows, columns), (FAR_ELEMS * 4, 4))


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_leading_stride_beyond_32_bits_costs_what_its_elements_cost(plain: Kernel, tmp_path: Path, jobs: int) -> None:
    generator = new_generator()
    m, n, k = 2, 200, 8
    a, b = (generator.integers(-4, 4, shape).astype(np.float32) for shape in ((m, k), (n, k)))
    out = far_apart(tmp_path / "out", m, n)
    tracemalloc.start()
    plain.execute(a, b.T, out=out, jobs=jobs)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert np.array_equal(out, a.astype(np.float64) @ b.T)
    assert peak_bytes < 64 * MIB
    assert (tmp_path / "out").stat().st_blocks * 512 < MIB


@pytest.mark.parametrize("jobs", [1, 2])
def test_results_that_lie_between_each_others_rows_are_all_written(kernels: Cache, jobs: int) -> None:
    """`out` and `aux` as halves of one buffer, with more beside them that is nobody's."""
    kernel = cutegen.compile(simt("aux", "relu", aux=Extra("f32", "n", 4)), "sm_80", cache=kernels)
    generator = np.random.default_rng(5)
    m, n, k = 130, 132, 8
    a, b = (generator.integers(-4, 4, shape).astype(np.float32) for shape in ((m, k), (n, k)))
    buffer = np.full((m, 2 * n + 4), np.nan, np.float32)
    kernel.execute(a, b.T, out=buffer[:, :n], aux=buffer[:, n : 2 * n], jobs=jobs)
    product = a.astype(np.float64) @ b.T
    assert np.array_equal(buffer[:, :n], np.maximum(product, 0))
    assert np.array_equal(buffer[:, n : 2 * n], product)
    assert np.isnan(buffer[:, 2 * n :]).all()


def test_an_array_that_reaches_into_the_next_ones_addresses_is_refused(plain: Kernel, tmp_path: Path) -> None:
    a, b = np.ones((6, 8), np.float32), np.ones((8, 4), np.float32, order="F")
    out = far_apart(tmp_path / "out", 6, 4)
    with pytest.raises(LaunchError, match=r"argument 2 reaches over 85,899,\d+,\d+ bytes; at most 68,719,476,736"):
        plain.execute(a, b, out=out)
