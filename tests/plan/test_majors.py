"""Operands that are not K-major: how their rows count in the models of time, and how good the choice of kernels is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest

from cutegen.contract.problem import ProblemShape
from cutegen.hardware import GPUS
from cutegen.plan import plan, swapped
from cutegen.plan.search import cp_async, tile_model, warpgroup_model, warpgroups
from cutegen.plan.search.tile_model import K_MAJOR, majors_of, shares_aligned, torn_results, unaligned_operands
from cutegen.plan.search.warpgroup_rows import KernelConfig
from cutegen.spec import GemmSpec
from tests.gpu.measured import STORED
from tests.gpu.sweep_kernels import Shape
from tests.plan.pages import words_of
from tests.plan.regrets import MAJORS, spec_of
from tests.plan.worth import DEVICE, OPEN, forget

TABLE = json.loads(STORED.with_name("h100_majors.json").read_text())
PAGE = words_of("lab/tile_model.md")
WARPGROUPS = {64: (1, 1), 128: (2, 1), 192: (3, 1)}


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    yield
    forget()


def us_of(spec: GemmSpec, cta: Shape, problem: Shape, *, swap: bool = False) -> float:
    row = KernelConfig(cta, WARPGROUPS[cta[0]], swap=swap)
    candidate = warpgroups.candidate_of(spec, DEVICE, row)
    return warpgroups.estimate_of(spec, DEVICE, ProblemShape(*problem), row, candidate, candidate).us


def test_rows_are_as_long_as_the_extent_of_the_major_mode() -> None:
    problem = ProblemShape(64, 96, 40)  # rows of 128, 192 and 80 bytes
    for majors, whole, half, quarter, less in (
        (K_MAJOR, 0.0, 0.0, 0.0, 1.0),
        (("m", "k", "n"), 0.25, 0.0, 0.0, 0.75),
        (("k", "n", "n"), 0.0, 0.75, 0.0, 0.25),
        (("m", "n", "n"), 0.25, 0.75, 0.0, 0.0),
    ):
        assert shares_aligned(majors, problem, (2, 2), (1.0, 3.0)) == (whole, half, quarter, less)
    assert shares_aligned(("m", "n", "n"), problem, (4, 4), (1.0, 3.0)) == (1.0, 0.0, 0.0, 0.0)
    assert not unaligned_operands(("m", "n", "n"), problem, (4, 4))
    assert unaligned_operands(("m", "n", "n"), problem, (2, 2))
    assert unaligned_operands(("m", "k", "n"), problem, (2, 2))
    assert [torn_results(("k", "k", c), problem, 2) for c in "mn"] == [0.0, 1.0]


@pytest.mark.parametrize("majors", MAJORS)
@pytest.mark.parametrize("c", ["m", "n"])
def test_a_swapped_kernel_counts_the_rows_of_the_product_that_it_multiplies(majors: str, c: str) -> None:
    """The spec that swaps, and the spec with A and B exchanged by hand, predict the same time but for the store's."""
    spec, (m, n, k) = spec_of(majors, c), (1048, 2240, 712)
    by_hand = swapped.as_multiplied(spec)
    row = KernelConfig((128, 128, 64), (2, 1), swap=True)
    work = warpgroups.work_of(spec, DEVICE, warpgroups.candidate_of(spec, DEVICE, row), row)
    plain = replace(row, swap=False)
    other = warpgroups.work_of(by_hand, DEVICE, warpgroups.candidate_of(by_hand, DEVICE, plain), plain)
    assert work.majors == majors_of(by_hand)
    multiplied = ProblemShape(n, m, k)
    counted = [warpgroup_model.quantities(each, multiplied, GPUS["sm_90"]) for each in (work, other)]
    assert replace(counted[0], exchanged=0.0) == counted[1]


def test_an_operand_counts_by_its_own_rows() -> None:
    """A K of 4104 tears K-major rows alone, an N of 2056 those of an N-major B."""
    whole, torn_k, torn_n = (4096, 2048, 4096), (4096, 2048, 4104), (4096, 2056, 4096)

    def more(majors: str, problem: Shape) -> float:
        spec = OPEN if majors == "TN" else spec_of(majors)
        return us_of(spec, (64, 128, 64), problem) / us_of(spec, (64, 128, 64), whole)

    assert more("TN", torn_k) > 1.2 > 1.02 > more("NT", torn_k)
    assert more("NT", torn_n) > 1.2
    assert more("TN", torn_n) < more("TT", torn_n) < more("NT", (4104, 2056, 4096))
    assert more("TT", torn_k) == pytest.approx(more("NN", torn_k), rel=0.2)


def test_mma_sync_counts_them_too() -> None:
    problem = ProblemShape(2048, 24, 2056)
    tile = cp_async.CANDIDATES[2]

    def us(spec: GemmSpec) -> float:
        work = cp_async.work_of(replace(spec, family="sm80"), DEVICE, tile, 1)
        return tile_model.estimate(work, problem, GPUS["sm_90"], cp_async.H200).us

    assert us(spec_of("NN")) < us(OPEN)  # A of 2048 rows is nearly all that is read


@pytest.mark.parametrize(("columns", "times"), [(64, 1), (192, 1), (96, 2), (160, 2), (144, 4), (80, 4), (8, 8)])
def test_narrow_spans_are_read_again(columns: int, times: int) -> None:
    """128 bytes of shared memory hold so many spans of rows of an N-major B."""
    row = KernelConfig((64, columns, 64), (1, 1))
    for spec, expected in ((spec_of("TT"), times), (spec_of("NN"), 1), (OPEN, 1)):
        work = warpgroups.work_of(spec, DEVICE, warpgroups.candidate_of(spec, DEVICE, row), row)
        assert work.conflicts == expected
    exchanged = replace(row, swap=True)
    work = warpgroups.work_of(spec_of("NN"), DEVICE, warpgroups.candidate_of(OPEN, DEVICE, exchanged), exchanged)
    assert work.conflicts == times


def test_choices_follow_the_rows() -> None:
    """An H100 took 347 us with tiles of 192x160 here, torch.matmul 259."""
    made = plan(spec_of("NT"), DEVICE.name, (7336, 2592, 5096))
    assert made.cta_tile[1] % 64 == 0  # type: ignore[union-attr]


def test_the_page_says_what_was_measured() -> None:
    tables = TABLE["us"]
    assert f"on {sum(map(len, tables.values()))} f16 problems, {len(tables['NT'])} for each of" in PAGE
    assert {len(each) for each in tables.values()} == {len(tables["NT"])}
    assert f"a k-tile takes {warpgroups.NARROW_SPAN} times as long" in PAGE
    assert f"Slices that a cluster adds take {warpgroups.CLUSTERED_SLICES} times as long per doubling" in PAGE
