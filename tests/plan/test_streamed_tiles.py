"""Products that stream an operand: which they are, what counts there, and how good the choice among kernels is."""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import pytest

from cutegen.contract.problem import ProblemShape
from cutegen.hardware import Instruction, dtype
from cutegen.plan import plan
from cutegen.plan.schedule.order import in_flight_of
from cutegen.plan.search import warpgroups
from cutegen.plan.search.problem import Candidate
from cutegen.plan.search.warpgroup_rows import MEASURED
from cutegen.plan.search.warpgroups import as_streamed, is_streamed, stream_factor
from cutegen.spec import GemmSpec
from tests.gpu import estimates
from tests.gpu.measured import STORED, Measured, geometric_mean, load, regrets
from tests.gpu.sweep_kernels import Shape
from tests.plan.pages import words_of
from tests.plan.worth import DEVICE, OPEN, forget, times_of, without

TABLE = json.loads(STORED.with_name("h100_streams.json").read_text())
US, LONG = times_of(TABLE), times_of(TABLE, "us_long")
"""In graphs of a few launches, and in those of 30 and more."""
CHOICES: Mapping[str, tuple[float, ...]] = TABLE["choices"]
PAGE = words_of("lab/tile_model.md")


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    yield
    forget()


def of(a_major: str = "k", b_major: str = "k", precision: str = "f16") -> GemmSpec:
    a, b = (replace(OPEN.problem.a, dtype=precision, major=major) for major in (a_major, b_major))
    return replace(OPEN, problem=replace(OPEN.problem, a=a, b=b))


@pytest.mark.parametrize(
    ("problem", "streamed"),
    [
        ((16, 4096, 4096), True),
        ((4096, 16, 4096), True),
        ((256, 4096, 4096), True),
        ((264, 4096, 4096), False),  # more rows
        ((16, 1024, 2048), False),  # L2 keeps so few bytes
        ((16, 16384, 512), False),  # K is short
        ((16, 4096, 4096 + 8), False),  # rows begin between lines
        ((1, 8192, 8192), True),
    ],
)
def test_few_rows_by_weights_that_l2_does_not_keep_are_a_stream(problem: Shape, streamed: bool) -> None:
    assert is_streamed(OPEN, ProblemShape(*problem)) == streamed


def test_no_stream_where_the_smaller_operand_lies_along_m_or_n() -> None:
    few_rows, few_columns = ProblemShape(16, 4096, 4096), ProblemShape(4096, 16, 4096)
    for a_major in "km":
        for b_major in "kn":
            spec = of(a_major, b_major)
            assert is_streamed(spec, few_rows) == (a_major == "k")
            assert is_streamed(spec, few_columns) == (b_major == "k")


def test_bytes_count_not_elements() -> None:
    shape = ProblemShape(16, 2048, 2048 + 64)
    assert is_streamed(of(), shape)
    assert not is_streamed(of(precision="s8"), shape)  # 4 MB
    assert is_streamed(of(precision="s8"), replace(shape, n=8192, k=2048))


def test_own_corrections_count_for_less_there_and_as_they_are_elsewhere() -> None:
    streamed = warpgroups.compared_rows(OPEN, DEVICE, ProblemShape(16, 4096, 4096))
    others = warpgroups.compared_rows(OPEN, DEVICE, ProblemShape(4096, 4096, 4096))
    assert others[: len(MEASURED)] == MEASURED
    for row, one in zip(MEASURED, streamed, strict=False):
        assert one == as_streamed(row)
        for was, now in ((row.correction, one.correction), (row.overall, one.overall)):
            assert abs(math.log(now)) <= abs(math.log(was))


def kernels() -> Iterator[tuple[Candidate, int, ProblemShape]]:
    """Kernels and problems at random, few rows or few columns."""
    for _ in range(300):
        slices, ctas_k = random.choice(((1, 1), (4, 4), (6, 1), (8, 2)))
        cluster = (random.choice((1, 2, 4)), random.choice((1, 2)), ctas_k)
        cta = (random.choice((64, 128, 192)), 8 * random.randint(1, 32), random.choice((64, 128)))
        few, many = random.randint(1, 256), 128 * random.randint(8, 200)
        m, n = random.choice(((few, many), (many, few)))
        yield (
            Candidate(cta, (1, 1, 1), 4, cluster=cluster),
            slices,
            ProblemShape(m, n, 128 * random.randint(8, 200)),
        )


def test_an_exchanged_product_is_read_as_it_is() -> None:
    """The stream is A of the one and B of the other."""
    f16 = dtype("f16")
    for candidate, slices, problem in kernels():
        (m, n, k), (ctas_m, ctas_n, ctas_k) = candidate.cta, candidate.cluster
        turned = replace(candidate, cta=(n, m, k), cluster=(ctas_n, ctas_m, ctas_k))
        factors = [
            stream_factor(
                each,
                slices,
                in_flight_of(shape, DEVICE, each.cta[:2], (f16, f16), slices, Instruction.WGMMA),
                each.cta[2] * f16.bytes,
            )
            for each, shape in ((candidate, problem), (turned, replace(problem, m=problem.n, n=problem.m)))
        ]
        assert factors[0] == pytest.approx(factors[1]), (candidate, slices, problem)


@pytest.mark.parametrize("problem", [(64, 8192, 8192), (8192, 64, 8192), (128, 4096, 14336), (96, 1408, 5504)], ids=str)
def test_search_and_rules_agree_on_what_l2_gives_up_first(problem: Shape, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[bool] = []
    rule = warpgroups.goes_through_once
    monkeypatch.setattr(warpgroups, "goes_through_once", lambda *about: said.append(rule(*about)) or said[-1])
    agreed = set()
    # Specs are settled, and so sorted, when the last has been asked about.
    settled = list(warpgroups.settled_for(OPEN, DEVICE, ProblemShape(*problem)))
    for one in settled[:12]:
        if one.fits:
            made = plan(one.spec, DEVICE.name, problem)
            shape = ProblemShape(*(problem if not made.swapped else (problem[1], problem[0], problem[2])))
            candidate = Candidate(made.cta_tile, (1, 1, 1), made.stages, cluster=made.mma.cluster)
            slices, f16 = made.split_k.slices if made.split_k else 1, dtype("f16")
            about = in_flight_of(shape, DEVICE, made.cta_tile[:2], (f16, f16), slices, Instruction.WGMMA)
            said.clear()
            stream_factor(candidate, slices, about, made.cta_tile[2] * 2)
            stream = "a" if shape.m >= shape.n else "b"
            assert said == [stream in made.evicted_first], one.spec
            agreed.add(said[0])
    assert agreed


def test_the_page_has_the_constants() -> None:
    part = PAGE.partition("### Streams")[2].partition("### ")[0]
    said = [cells.split(" | ")[-1] for cells in re.findall(r"\| (\S[^|]+ \| \d\.\d\d(?:, \d\.\d\d)?) \|", part)]
    names = [
        "GIVEN_UP_FIRST",
        "LONGER_K_TILE",
        "STREAM_CLUSTERED",
        "THROUGH_WORKSPACE",
        "STREAM_UNEVEN",
        "STREAM_APART",
        "ALMOST_IDLE",
    ]
    assert said[:7] == [f"{getattr(warpgroups, name):.2f}" for name in names]
    assert said[7] == f"{warpgroups.SHORT:.2f}, {warpgroups.TALL:.2f}"
    assert f"power of {warpgroups.STREAM_SHARE}" in part


@pytest.mark.slow
def test_the_page_says_what_they_would_do_on_an_h200(monkeypatch: pytest.MonkeyPatch) -> None:
    """Times there are of older kernels, with k-tiles of a line; where rows begin between lines they are not used."""

    def whatever_the_pitch(spec: GemmSpec, problem: ProblemShape) -> bool:
        return is_streamed(spec, replace(problem, k=-(-problem.k // 64) * 64))

    def cost_of(known: Callable[..., bool], measured: list[Measured]) -> float:
        monkeypatch.setattr(warpgroups, "is_streamed", known)
        forget()
        return geometric_mean([each.factor for each in regrets(measured, estimates.compared_us)])

    without(monkeypatch, "is_streamed", "is_of_middle_size", "is_small")
    some = [each for each in load(STORED) if whatever_the_pitch(OPEN, ProblemShape(*each.problem))]
    whole, torn = ([each for each in some if (each.problem[2] % 64 > 0) == is_torn] for is_torn in (False, True))
    by, without_them = cost_of(whatever_the_pitch, whole), cost_of(lambda *_: False, whole)
    said = f"on {len(whole)} such products takes {by:.3f} times as long as the best with these corrections"
    assert f"{said}, and {without_them:.3f} without" in PAGE
    by, without_them = cost_of(whatever_the_pitch, torn), cost_of(lambda *_: False, torn)
    assert f"on {len(torn)} products, it would be {by:.3f} and is {without_them:.3f}" in PAGE


@pytest.mark.parametrize("problem", [(192, 4352, 4096), (192, 4864, 13952), (256, 2560, 24320)], ids=str)
def test_clusters_that_read_the_same_rows_apart_are_not_chosen(problem: Shape, monkeypatch: pytest.MonkeyPatch) -> None:
    """On an H100 they took 1.24 to 1.31 times as long here as what was chosen before."""

    def shares_no_rows() -> bool:
        made = plan(OPEN, DEVICE.name, problem)
        m, n = (problem[1], problem[0]) if made.swapped else problem[:2]
        (tile_m, tile_n, _), (ctas_m, ctas_n, _) = made.cta_tile, made.mma.cluster
        readers, sharing = (-(-n // tile_n), ctas_n) if m >= n else (-(-m // tile_m), ctas_m)
        return ctas_m * ctas_n == 1 or readers <= sharing

    assert shares_no_rows()
    monkeypatch.setattr(warpgroups, "coincidence_factor", lambda *_: 1.0)
    assert shares_no_rows()
    monkeypatch.setattr(warpgroups, "STREAM_APART", 1.0)
    assert not shares_no_rows()


@pytest.mark.parametrize("problem", [(40, 3584, 3840), (48, 2688, 3200)], ids=str)
def test_short_tiles_of_the_stream_are_not_chosen(problem: Shape, monkeypatch: pytest.MonkeyPatch) -> None:
    """On an H100 64x32x128 took 1.25 and 1.07 times as long here as what is chosen."""

    def rows_of_the_stream() -> int:
        made = plan(OPEN, DEVICE.name, problem)
        return made.cta_tile[0] if made.swapped else made.cta_tile[1]

    assert rows_of_the_stream() == 64
    monkeypatch.setattr(warpgroups, "SHORT", 1.0)
    assert rows_of_the_stream() == 32
