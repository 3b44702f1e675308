"""Hopper GEMMs of QuACK, as torch ships it, compiled when this runs and executed: the right product in every order."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib.util import find_spec
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from quack_ptx import TILE, VARIANTS, Variant

from cutegen.ptx import Program, TensorMap

pytestmark = [
    pytest.mark.slow,
    pytest.mark.dsl,
    pytest.mark.skipif(
        any(find_spec(name) is None for name in ("torch", "triton", "tvm_ffi")),
        reason="needs torch, Triton and TVM-FFI",
    ),
]

Array = np.ndarray[Any, Any]
POLICIES = ("in-order", "reversed", "random:1")
SIZE = (264, 272, 208)
"""Three tiles of rows, the last one of 8, and of columns; K of 3.25 or 1.6 k-tiles."""
LINE_BYTES = 128
MOST_ROWS = 8
"""Clusters of a band of tiles, the default of QuACK's scheduler."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What the script compiles, by the variant's name."""
    command = [sys.executable, str(Path(__file__).with_name("quack_ptx.py"))]
    folder = tmp_path_factory.mktemp("quack")
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"torch's QuACK does not fit the installed CuTe DSL: {done.stderr.strip().splitlines()[-1]}")
    return json.loads(done.stdout)


def f16(rng: np.random.Generator, shape: tuple[int, int]) -> tuple[Array, Array]:
    """(elements, values)."""
    elements = rng.standard_normal(shape).astype(np.float16)
    return elements, elements.astype(np.float64)


def e4m3(rng: np.random.Generator, shape: tuple[int, int]) -> tuple[Array, Array]:
    """(codes, values) of 8-bit floats that are neither tiny nor huge."""
    codes = rng.integers(0x20, 0x50, shape) | rng.integers(0, 2, shape) << 7
    values = (1 + (codes & 7) / 8) * 2.0 ** ((codes >> 3 & 15) - 7)
    return codes.astype(np.uint8), np.where(codes & 0x80, -values, values)


def batched(array: Array, box: tuple[int, int], swizzle_bytes: int) -> TensorMap:
    """The map of a matrix with a batch of one."""
    rows, columns = array.shape
    strides = (array.strides[0], array.nbytes)
    extents = (columns, rows, 1)
    return TensorMap(array=array, extents=extents, strides_bytes=strides, box=(*box, 1), swizzle_bytes=swizzle_bytes)


def operand(array: Array, rows: int, *, k_major: bool) -> TensorMap:
    """The map by which a CTA copies `rows` of an operand (rows, K) in lines of 128 bytes along its contiguous mode."""
    line = LINE_BYTES // array.itemsize
    lies = array if k_major else np.ascontiguousarray(array.T)
    return batched(lies, (line, rows) if k_major else (line, LINE_BYTES // array.itemsize), LINE_BYTES)


def divider(divisor: int) -> list[object]:
    """CUTLASS's FastDivmod, a division as a multiplication and two shifts, and the divisor."""
    bits = (divisor - 1).bit_length()
    multiplier = ((1 << 32) * ((1 << bits) - divisor) // divisor + 1) & 0xFFFFFFFF
    return [
        np.array([divisor, multiplier], np.uint32).tobytes() + bytes([min(bits, 1), max(bits - 1, 0), 0, 0]),
        divisor,
    ]


def launched(variant: Variant, size: tuple[int, int, int]) -> tuple[tuple[int, int, int], list[object]]:
    """(grid, the scheduler's arguments): tiles in bands along M; persistent CTAs are two."""
    m, n, _ = size
    along_m, along_n = ceil(ceil(m / TILE[0]) / variant.cluster[0]), ceil(n / TILE[1])
    band = min(MOST_ROWS, along_m)
    scheduler = [along_m, along_n, 1, 0, *divider(along_m * along_n), along_m // band]
    scheduler += [*divider(band), *divider(along_m % band or 1), *divider(band * along_n)]
    if variant.persistent:
        return (variant.cluster[0], 1, 2), scheduler
    return (variant.cluster[0] * along_m * along_n, 1, 1), scheduler


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", VARIANTS)
def test_the_product_is_right_in_every_order(name: str, policy: str, made: Any) -> None:
    variant, (m, n, k) = VARIANTS[name], SIZE
    rng = np.random.default_rng(SIZE)
    (a, a_values), (b, b_values) = ((f16 if variant.dtype == "Float16" else e4m3)(rng, (rows, k)) for rows in (m, n))
    c = np.full((m, n), np.nan, np.float16)
    epi_m, epi_n = made[name]["epi_tile"]
    arguments: list[object] = [b"\0"]
    for matrix, array, columns in (
        (operand(a, TILE[0], k_major=variant.a_major == "k"), a, k),
        (operand(b, TILE[1] // variant.cluster[0], k_major=variant.b_major == "k"), b, k),
        (batched(c, (epi_n, epi_m), epi_n * c.itemsize), c, n),
    ):
        arguments += [matrix, np.array([array.shape[0], columns, 1], np.int32).tobytes()]
    grid, scheduler = launched(variant, SIZE)
    entry = re.search(r"\.entry (\w+)", made[name]["ptx"])
    assert entry is not None
    report = Program.parse(made[name]["ptx"]).launch(
        entry[1],
        grid=grid,
        block=384,
        cluster=None if variant.cluster == (1, 1) else (*variant.cluster, 1),
        args=[*arguments, *scheduler],
        dynamic_smem_bytes=232448,
        policy=policy,
    )
    product, scale = a_values @ b_values.T, np.abs(a_values) @ np.abs(b_values).T
    # A tensor core keeps 13 bits after the point of sums of 8-bit floats, and f32's of others; one rounding to f16.
    lost = (2.0**-10 if variant.dtype == "Float8E4M3FN" else 2.0**-22) * scale
    assert (np.abs(c - product) <= 2.0**-11 * np.abs(product) + lost + 2.0**-24).all()
    assert report.executed("wgmma.mma_async") > 0
    # A cluster's CTAs release their stages to each other at the scope of a CTA, which PTX does not order.
    assert all("scope cta" in str(found) for found in report.conventions)
    assert bool(report.conventions) == (variant.cluster != (1, 1))
