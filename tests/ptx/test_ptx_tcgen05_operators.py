"""GEMMs of the package nvidia-cutlass-operators for sm_100a, compiled here: right in every order, by conventions only.

Persistent kernels: one CTA, multicast, and pairs, which take their tiles by cluster launch control; with block factors;
with groups of rows.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from record_operators import GROUPED, GROUPS, PLAIN, SCALED, UNREAD, K, M, Operator
from recorded import Array, Recorded, factor_atoms, missing, record
from tcgen05_operands import codes_of, values_of

from cutegen.ptx import ExecutionFault

LACKING = missing("nvidia-cutlass-operators", "apache-tvm-ffi")
pytestmark = [pytest.mark.slow, pytest.mark.dsl, pytest.mark.skipif(LACKING is not None, reason=f"needs {LACKING}")]

POLICIES = ["in-order", "reversed", "random:1", "random:2", "random:3"]
OF_PAIRS = ("a release at scope cta to another CTA", "an acquire at scope cta of what another CTA")
ALWAYS = ("no tcgen05.fence::after_thread_sync", "no tcgen05.wait::ld after", *OF_PAIRS)
PLAIN_CONVENTIONS = (*ALWAYS, "the request was refused: there is no first CTA", "the address of CTA")
SCALED_CONVENTIONS = (*ALWAYS, "tcgen05.cp overwrites words of the tcgen05.cp")
GROUPED_CONVENTIONS = (*ALWAYS, "other warps of the warpgroup execute", "warps [4, 5, 6] are no whole warpgroup")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recorded launches."""
    return record(tmp_path_factory.mktemp("operators"), "record_operators.py")


def launch(folder: Path, operator: Operator, arrays: dict[str, Array], policy: str, known: tuple[str, ...]) -> Array:
    """D; only `known` conventions are needed."""
    d = np.full((M, operator.n), np.nan, np.float32)
    (report,) = Recorded.load(folder / f"{operator.name}.pickle").launch(arrays | {"d": d}, policy=policy)
    assert report.executed("tcgen05.mma") > 0
    for convention in report.conventions:
        assert convention.message.startswith(known), convention.message
    return d


def integers(rng: np.random.Generator, *shape: int) -> Array:
    """Small integers in f16, whose products have exact sums."""
    return rng.integers(-3, 4, shape).astype(np.float16)


@pytest.mark.parametrize("operator", PLAIN, ids=lambda operator: operator.name)
@pytest.mark.parametrize("policy", POLICIES)
def test_the_operator_is_right(folder: Path, operator: Operator, policy: str) -> None:
    rng = np.random.default_rng(1)
    a, b = integers(rng, M, K), integers(rng, operator.n, K)
    d = launch(folder, operator, {"a": a, "b": b}, policy, PLAIN_CONVENTIONS)
    assert (d == a.astype(np.float64) @ b.astype(np.float64).T).all()


@pytest.mark.parametrize("operator", SCALED, ids=lambda operator: operator.name)
@pytest.mark.parametrize("policy", POLICIES)
def test_the_operator_with_block_factors_is_right(folder: Path, operator: Operator, policy: str) -> None:
    """Values of e4m3 and factors of 32 of them; the factors of rows that B does not have are NaNs."""
    rng = np.random.default_rng(1)
    arrays, scaled = {}, []
    for name, rows in (("a", M), ("b", operator.n)):
        values, codes = values_of("e4m3", (rows, K), rng), rng.choice([126, 127, 128], (rows, K // 32)).astype(np.uint8)
        scaled.append(values * np.repeat(2.0 ** (codes - 127.0), 32, axis=1))
        arrays |= {name: codes_of("e4m3", values), f"{name}_factors": factor_atoms(codes)}
    d = launch(folder, operator, arrays, policy, SCALED_CONVENTIONS)
    assert (d == scaled[0] @ scaled[1].T).all()


@pytest.mark.parametrize("operator", GROUPED, ids=lambda operator: operator.name)
@pytest.mark.parametrize("policy", POLICIES)
def test_the_operator_of_groups_is_right(folder: Path, operator: Operator, policy: str) -> None:
    check_groups(folder, operator, (100, 100, 357, M), policy)


@pytest.mark.parametrize("policy", POLICIES)
def test_sums_that_are_loaded_and_never_used_may_be_in_flight_when_their_columns_are_freed(
    folder: Path, policy: str
) -> None:
    """PTX leaves that undefined: nothing waits for the load, and no use of its registers does.

    It happens where a warp has no row of a group's last tile, and not where the groups end with tiles.
    """
    check_groups(folder, UNREAD, (64, 64, 320, M), policy)
    with pytest.raises(ExecutionFault, match=r"frees tensor memory that the tcgen05\.ld of warp .* may still read"):
        check_groups(folder, UNREAD, (100, 100, 357, M), policy)


def check_groups(folder: Path, operator: Operator, ends: tuple[int, ...], policy: str) -> None:
    """The product of each group; the second has no rows."""
    rng = np.random.default_rng(1)
    a, b = integers(rng, M, K), integers(rng, GROUPS, operator.n, K)
    arrays = {"a": a, "b": b, "ends": np.array(ends, np.int32)}
    d = launch(folder, operator, arrays, policy, GROUPED_CONVENTIONS)
    for group, (first, end) in enumerate(zip((0, *ends[:-1]), ends, strict=True)):
        product = a[first:end].astype(np.float64) @ b[group].astype(np.float64).T
        assert (d[first:end] == product).all(), group
