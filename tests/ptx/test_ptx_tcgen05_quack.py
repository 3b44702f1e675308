"""QuACK's GEMM for sm_100, compiled when this runs and executed: the right product in every order, by conventions only.

Persistent kernels of eight warps: one CTA and pairs, tiles by cluster launch control and in a fixed order, e4m3 with
factors of 32 values and e2m1 with factors of 16.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from record_quack import PACKED, PLAIN, VARIANTS, K, M, N
from recorded import Array, Recorded, bf16_of, factor_atoms, missing, record
from tcgen05_operands import codes_of, stored, values_of

from cutegen.errors import CutegenError

LACKING = missing("quack-kernels", "apache-tvm-ffi")
pytestmark = [pytest.mark.slow, pytest.mark.dsl, pytest.mark.skipif(LACKING is not None, reason=f"needs {LACKING}")]

POLICIES = ("in-order", "reversed", "random:1", "random:2", "random:3")
CONVENTIONS = {
    "no tcgen05.fence::after_thread_sync",
    "the request was refused: there is no first CTA",
    "a release at scope cta to another CTA",
    "an acquire at scope cta of what another CTA",
    "the address of CTA 2 of a cluster of 2",
    "tcgen05.cp overwrites words of the tcgen05.cp",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recorded launches."""
    return record(tmp_path_factory.mktemp("quack"), "record_quack.py")


def operand(kind: dict[str, object], rows: int, rng: np.random.Generator) -> tuple[Array, Array | None, Array]:
    """(stored elements, stored factors, the values that they stand for) of `rows` rows."""
    if kind is PLAIN:
        values = rng.integers(-3, 4, (rows, K)).astype(np.float64)
        return bf16_of(values), None, values
    name, size = ("e2m1", 16) if kind is PACKED else ("e4m3", 32)
    values = values_of(name, (rows, K), rng)
    scales = {0x30: 0.5, 0x38: 1.0, 0x40: 2.0} if kind is PACKED else {126: 0.5, 127: 1.0, 128: 2.0}
    codes = rng.choice(list(scales), (rows, K // size)).astype(np.uint8)
    factors = np.vectorize(scales.__getitem__, otypes=[np.float64])(codes)
    elements = stored(name, codes_of(name, values), packed=kind is PACKED)
    return elements, factor_atoms(codes), values * np.repeat(factors, size, axis=1)


def arguments(name: str) -> tuple[dict[str, Array], Array]:
    """The arrays of a launch, with a poisoned D, and the product in float64."""
    rng = np.random.default_rng(1)
    (a, a_factors, of_a), (b, b_factors, of_b) = (operand(VARIANTS[name][0], rows, rng) for rows in (M, N))
    arrays = {"a": a, "b": b, "d": np.full((M, N), 0xFFFF, np.uint16)}
    if a_factors is not None and b_factors is not None:
        arrays |= {"a_factors": a_factors, "b_factors": b_factors}
    return arrays, of_a @ of_b.T


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("policy", POLICIES)
def test_the_product_is_right_in_every_order(folder: Path, name: str, policy: str) -> None:
    arrays, product = arguments(name)
    (report,) = Recorded.load(folder / f"{name}.pickle").launch(arrays, policy=policy)
    assert (arrays["d"] == bf16_of(product)).all()
    assert report.executed("tcgen05.mma") > 0
    for convention in report.conventions:
        assert convention.message.startswith(tuple(CONVENTIONS)), convention.message


def test_each_commit_and_arrival_is_needed(folder: Path) -> None:
    """Without one of them there is a fault, or another product, in one of three orders."""
    survivors = []
    for line, wrong in Recorded.load(folder / "pair_of_128.pickle").without(r"tcgen05\.commit|mbarrier\.arrive"):
        for policy in POLICIES[:3]:
            arrays, product = arguments("pair_of_128")
            try:
                wrong.launch(arrays, policy=policy, max_steps=400_000)
            except CutegenError:
                break
            if (arrays["d"] != bf16_of(product)).any():
                break
        else:
            survivors.append(line)
    assert survivors == []
