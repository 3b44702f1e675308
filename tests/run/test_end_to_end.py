"""Compiled kernels called on host memory: their real PTX, executed on the CPU, against float64. Needs no GPU."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cutegen import api
from cutegen.build import Cache
from cutegen.plan import plan
from cutegen.run import Kernel
from cutegen.run.call.storage import call_tensors
from cutegen.spec import GemmSpec, Operand, Problem, load_spec
from cutegen.verify import compare, float64_reference, random_operands
from tests.plan.specs import SHIPPED_GEMMS, columns_together
from tests.run.against_float64 import check, made

pytestmark = pytest.mark.dsl
MAP_NORESERVE = 0x4000  # Linux's; module mmap has it from Python 3.13 on
OTHER_MAJORS = [f"{a}{b}{c}" for a in "mk" for b in "nk" for c in "mn" if f"{a}{b}{c}" != "kkn"]


@pytest.fixture(scope="module")
def plain(compiled: Callable[..., Kernel]) -> Callable[[str, str, str], Kernel]:
    """Kernels of specs that leave everything but the problem out."""

    def make(majors: str, dtype: str, accumulator: str) -> Kernel:
        a, b, c = (Operand(dtype, major) for major in majors)
        return compiled(GemmSpec(family="sm80", problem=Problem(a=a, b=b, c=c, accumulator=accumulator)))

    return make


def storage_of(kernel: Kernel, out: Any, shape: tuple[int, int]) -> Any:
    """The result's memory with the padding of its rows."""
    storage = call_tensors(kernel.contract)["c"].storage(shape)
    rows = out.T if storage.transposed else out
    item = out.itemsize
    return np.lib.stride_tricks.as_strided(rows, (storage.rows, storage.stride), (storage.stride * item, item))


def test_rows_that_lie_more_than_2_to_the_31_elements_apart(plain: Callable[[str, str, str], Kernel]) -> None:
    """Memory that nobody touches takes none: 4 GiB lie between the two rows of A and of B."""
    kernel = plain("mnm", "bf16", "f32")
    pitch = 2**31 + 8

    def matrix() -> Any:
        kinds = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE
        rows = np.frombuffer(mmap.mmap(-1, 2 * (pitch + 8), flags=kinds), np.uint16)
        return np.lib.stride_tricks.as_strided(rows, (2, 8), (2 * pitch, 2))

    wide_a, wide_b = matrix().T, matrix()
    a, b, out = random_operands(kernel.contract, 8, 8, 2, seed=3)
    wide_a[...], wide_b[...] = a, b
    kernel(wide_a, wide_b, out=out)
    assert compare(out, float64_reference(a, b), dtype="bf16").ok


@pytest.mark.parametrize(
    ("majors", "dtype", "accumulator"),
    [
        ("kkn", "f16", "f32"),
        ("mnm", "bf16", "f32"),
        pytest.param("kkn", "f16", "f16", marks=pytest.mark.slow),
        pytest.param("kkn", "bf16", "f32", marks=pytest.mark.slow),
        *[pytest.param(majors, "f16", "f32", marks=pytest.mark.slow) for majors in OTHER_MAJORS],
    ],
)
def test_right_against_float64_and_nothing_beside_it_is_written(
    plain: Callable[[str, str, str], Kernel], majors: str, dtype: str, accumulator: str
) -> None:
    kernel = plain(majors, dtype, accumulator)
    poison = 0x7FC0 if dtype == "bf16" else np.float16(np.nan).view(np.uint16)
    for m, n, k in [(1, 1, 1), (5, 9, 0), (7, 8, 64), (64, 127, 8), (129, 7, 257)]:
        a, b, out = random_operands(kernel.contract, m, n, k, seed=m + n + k)
        whole = storage_of(kernel, out, (m, n))
        assert kernel(a, b, out=out) is out
        comparison = compare(out, float64_reference(a, b), dtype=dtype, accumulator=accumulator)
        assert comparison.ok, (m, n, k, comparison)
        assert (whole[:, n if majors[2] == "n" else m :].view(np.uint16) == poison).all()


def test_torch_tensors_without_out(plain: Callable[[str, str, str], Kernel]) -> None:
    torch = pytest.importorskip("torch")
    kernel = plain("mnm", "bf16", "f32")
    a, b, _ = random_operands(kernel.contract, 40, 24, 33, seed=5, framework="torch")
    out = kernel(a, b)
    assert (out.shape, out.dtype) == ((40, 24), torch.bfloat16)
    assert compare(out, float64_reference(a, b), dtype="bf16").ok


DEPTHS: dict[str, Callable[[int, int], int]] = {
    "1": lambda k_tile, stages: 1,
    "nothing": lambda k_tile, stages: 0,
    "less than a k-tile": lambda k_tile, stages: k_tile - 1,
    "a k-tile": lambda k_tile, stages: k_tile,
    "1 more": lambda k_tile, stages: k_tile + 1,
    "every stage": lambda k_tile, stages: stages * k_tile,
    "1 more than every stage": lambda k_tile, stages: stages * k_tile + 1,
    "a stage again": lambda k_tile, stages: (stages + 1) * k_tile,
}


ONE_OF_EACH = ("sm80_hgemm_tn", "cute_tutorial_nt", "sm80_s8_tn", "sm120_hgemm_tn", "simt_sgemm_nt")
"""Each family; in `sm80` copies in both directions, a C straight from registers, and one of 8 bits."""
OF_ALL = ("1", "1 more than every stage")
"""Fewer than are in flight, and more. All depths are tried of ONE_OF_EACH and of two kernels of warpgroups."""


def fast(name: str, depth: str) -> bool:
    return name in ONE_OF_EACH and depth == "1"


@pytest.mark.parametrize(
    ("name", "depth"),
    [
        pytest.param(name, depth, marks=() if fast(name, depth) else pytest.mark.slow)
        for name in SHIPPED_GEMMS
        for depth in DEPTHS
        if depth in OF_ALL or name in (*ONE_OF_EACH, "sm90_hgemm_tn", "cutlass_hopper_pingpong")
    ],
)
def test_shipped_kernels_read_nothing_that_was_not_written(name: str, depth: str, kernels: Cache) -> None:
    """The executor raises uninitialized reads."""
    spec = load_spec(name)
    found = plan(spec, spec.needs)
    k = DEPTHS[depth](found.cta_tile[2], found.stages)
    kernel = api.compile(spec, spec.needs, cache=kernels)
    n = 131 + -131 % columns_together(spec)
    report = check(kernel, *made(kernel, 9, n, k), kernel.execute)
    assert report.violations == ()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["wmma_padded_256x128x32", "wmma_padded_256x128x32_f32"])
def test_wmma_padded_at_every_edge(name: str, kernels: Cache) -> None:
    """Sizes below and beyond a tile; the last, of one of the two, has a second band of two tiles, swept backwards."""
    kernel = api.compile(load_spec(name), "sm_80", cache=kernels)
    banded = [] if name.endswith("f32") else [(260, 2180, 40)]
    for m, n, k in [(1, 1, 1), (5, 9, 0), (256, 128, 32), (257, 129, 33), (513, 130, 97), *banded]:
        a, b, out = random_operands(kernel.contract, m, n, k, seed=m + n + k)
        report = kernel.execute(a, b, out=out)
        assert report.violations == ()
        accumulator = "f32" if name.endswith("f32") else "f16"
        assert compare(out, float64_reference(a, b), dtype="f16", accumulator=accumulator).ok, (m, n, k)


@pytest.mark.slow
@pytest.mark.parametrize("order", [{"policy": "reversed"}, {"policy": "random:11"}, {"jobs": 2}], ids=str)
def test_no_order_changes_a_bit(order: dict[str, Any], kernels: Cache) -> None:
    kernel = api.compile(load_spec("sm80_hgemm_tn"), "sm_80", cache=kernels)
    a, b, out = random_operands(kernel.contract, 136, 144, 264, seed=1)
    again = out.copy()
    kernel.execute(a, b, out=out)
    report = kernel.execute(a, b, out=again, **order)
    assert np.array_equal(out, again)
    assert report.executed("mma") == 4 * 5 * 512
