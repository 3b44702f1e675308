"""CTAs that come apart: what counts, and how good the choice among kernels is with it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping

import pytest

from cutegen.contract.problem import ProblemShape
from cutegen.hardware import GPUS
from cutegen.plan import plan
from cutegen.plan.search import warpgroups
from cutegen.plan.search.warpgroup_model import WarpgroupWork
from cutegen.plan.search.warpgroup_rows import KernelConfig
from cutegen.plan.search.warpgroups import coincidence_factor
from tests.gpu.measured import STORED
from tests.gpu.sweep_kernels import Shape
from tests.plan.pages import words_of
from tests.plan.worth import DEVICE, OPEN, forget, times_of

TABLE = json.loads(STORED.with_name("h100_apart.json").read_text())
US = times_of(TABLE)
CHOICES: Mapping[str, tuple[float, ...]] = TABLE["choices"]
PAGE = words_of("lab/tile_model.md")
CONSTANTS = ("ALONG_SHORTER", "ALONG_LONGER", "ON_OTHER_GPCS")
SOON = 1e-3
"""Microseconds in which L2 delivers nothing: whatever a kernel requests, it depends on requests that coincide."""


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    yield
    forget()


def work_of(cta: Shape, cluster: Shape) -> WarpgroupWork:
    row = KernelConfig(cta, {64: (1, 1), 128: (2, 1)}[cta[0]], cluster=cluster)
    return warpgroups.work_of(OPEN, DEVICE, warpgroups.candidate_of(OPEN, DEVICE, row), row)


def factor(problem: Shape, cta: Shape, cluster: Shape = (1, 1, 1), us: float = SOON) -> float:
    return coincidence_factor(work_of(cta, cluster), ProblemShape(*problem), GPUS["sm_90"], us)


def test_nothing_counts_if_l2_delivers_in_time_what_all_request_apart() -> None:
    problem, cta = (320, 4096, 4096), (128, 128, 64)
    requested = (320 * 32 + 4096 * 3) * 4096 * 2
    in_time = requested / warpgroups.APART_BYTES_PER_US
    assert factor(problem, cta, us=1.01 * in_time) == 1.0
    assert factor(problem, cta, us=0.9 * in_time) > 1.0
    assert factor(problem, cta, us=0.5 * in_time) > factor(problem, cta, us=0.9 * in_time)
    torn = (320, 4096, 4100)
    assert factor(torn, cta, us=1.01 * in_time) > 1.0  # rows that are not aligned are more traffic


def test_only_products_with_few_rows_or_columns_count() -> None:
    few = warpgroups.COINCIDENT_SIDE
    assert factor((few - 64, 8192, 4096), (128, 128, 64)) > 1.0
    assert factor((few + 64, 8192, 4096), (128, 128, 64)) == 1.0 == factor((8192, few + 64, 4096), (128, 128, 64))


def test_ctas_with_less_to_copy_run_ahead() -> None:
    """The more so, the less their tile has along the side with fewer tiles; a seventh of the rows goes unnoticed."""
    cta = (128, 128, 64)
    shares = [factor((m, 8192, 4096), cta) for m in (384, 352, 320, 288, 264)]
    assert shares[0] == shares[1] == 1.0 < shares[2] < shares[3] < shares[4]
    last_alike = [factor((m, 8192, 4096), cta) for m in (264, 1928)]
    assert last_alike[0] > last_alike[1] ** 1.5 > 1.0  # 16 tiles are two bands, of which one has the last tile


def test_the_last_tile_along_the_longer_side_counts_less_and_in_one_round() -> None:
    cta = (128, 128, 64)
    whole, torn, many = ((384, n, 4096) for n in (4096, 4000, 16288))
    assert factor(whole, cta) == 1.0 < factor(torn, cta) < factor((288, 4096, 4096), cta)
    assert factor(many, cta) == 1.0


def test_clusters_of_one_tile_are_on_different_gpcs() -> None:
    cta = (128, 128, 64)
    in_pairs = [factor((m, 8192, 4096), cta, (2, 1, 1)) for m in (256, 512, 1024, 2048)]
    assert in_pairs[0] == 1.0 < in_pairs[1] < in_pairs[2] < in_pairs[3]
    assert factor((384, 8192, 4096), cta) == 1.0  # without clusters neighbors are on one GPC


@pytest.mark.parametrize("problem", [(320, 4096, 4096), (544, 2176, 7680), (264, 8192, 1000)], ids=str)
@pytest.mark.parametrize("ctas", [(1, 1), (2, 1), (1, 4)], ids=str)
def test_an_exchanged_product_comes_apart_alike(problem: Shape, ctas: tuple[int, int]) -> None:
    m, n, k = problem
    along_m, along_n = ctas
    there = factor((m, n, k), (128, 64, 64), (along_m, along_n, 1))
    back = factor((n, m, k), (64, 128, 64), (along_n, along_m, 1))
    assert there == pytest.approx(back)


def test_it_counts_in_what_plans_compare_but_for_slices_and_small_products(monkeypatch: pytest.MonkeyPatch) -> None:
    def predicted(problem: Shape, slices: int = 1) -> float:
        row = KernelConfig((128, 64, 64), (2, 1), slices=slices)
        candidate = warpgroups.candidate_of(OPEN, DEVICE, row)
        return warpgroups.estimate_of(OPEN, DEVICE, ProblemShape(*problem), row, candidate, candidate).us

    asked = [((264, 8192, 8192), 1), ((264, 8192, 8192), 2), ((264, 512, 512), 1)]
    known = [predicted(*each) for each in asked]
    monkeypatch.setattr(warpgroups, "coincidence_factor", lambda *_: 1.0)
    before = [predicted(*each) for each in asked]
    assert known[0] > 1.1 * before[0]
    assert known[1:] == before[1:]


def test_kernels_that_stay_together_are_selected() -> None:
    """On an H100 clusters of 2x1 took 52.7 us on the first, and the same tiles without clusters 29.7."""
    for problem in ((544, 2176, 7680), (544, 3264, 12992)):
        decided = {each.key: each.chosen for each in plan(OPEN, DEVICE.name, problem).decisions}
        assert decided["schedule.cluster"].startswith("1x1"), problem


def test_the_page_has_the_constants() -> None:
    part = PAGE.partition("### CTAs that come apart")[2].partition("H100s measured")[0]
    said = re.findall(r"\| \S[^|]+ \| (\d\.\d\d?) \|", part)
    assert [float(each) for each in said] == [getattr(warpgroups, name) for name in CONSTANTS]
    assert f"{warpgroups.APART_BYTES_PER_US / 1e6:.1f} TB/s" in part
    assert f"{warpgroups.UNALIGNED_TRAFFIC} times as much" in part
    assert f"beyond {warpgroups.UNNOTICED} of them" in part
    assert f"more than {warpgroups.COINCIDENT_SIDE} rows and columns" in part
