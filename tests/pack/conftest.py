"""A pack of kernels that other tests build too, written once for all tests here."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from cutegen.build import Cache
from cutegen.pack.building import build_all, make_pack
from cutegen.pack.kernel_list import RequestedKernel, combinations

SMALL = (256, 256, 128)
"""The problem of the kernel that is packed for one."""


def packed_kernels() -> tuple[RequestedKernel, ...]:
    return (
        *combinations(["sm80_hgemm_tn"], [None, SMALL], ["sm_80"]),
        *combinations(["sm80_bf16_nn"], archs=["sm_80"]),
        *combinations(["sm90_hgemm_tn"], archs=["sm_90"]),
        *combinations(["ldmatrix_probe"], archs=["sm_80"]),
    )


@pytest.fixture(scope="session")
def pack_path(kernels: Cache, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two kernels of one spec, one of them for a problem, two others, and a probe."""
    path = tmp_path_factory.mktemp("pack") / "model.cutepack"
    outcomes = build_all(packed_kernels(), kernels, jobs=2)
    assert [each.failure for each in outcomes] == [None] * 5
    make_pack(path, outcomes)
    return path


@pytest.fixture(scope="session")
def gemms_path(kernels: Cache, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The two kernels of one spec and another one, without a probe."""
    path = tmp_path_factory.mktemp("gemms") / "gemms.cutepack"
    wanted = [each for each in packed_kernels() if each.name in ("sm80_hgemm_tn", "sm90_hgemm_tn")]
    make_pack(path, build_all(wanted, kernels, jobs=1))
    return path


@pytest.fixture
def rng() -> random.Random:
    """Random numbers of its own for a test."""
    return random.Random(random.getrandbits(64))
