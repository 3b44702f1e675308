"""The Hopper twin of family sm100 on the CPU: right, in order, and with sm100's text but for its instruction."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import pytest

from cutegen.build import Cache
from cutegen.errors import CutegenError, SpecError
from cutegen.plan import plan
from cutegen.render import render
from cutegen.spec import FAMILIES, Factors, GemmSpec, Grouped, Operand, Problem, Schedule, Tile
from tests.run.hopper_twin import (
    ARCH,
    NAME,
    POLICIES,
    Case,
    Size,
    compiled,
    execute,
    random_case,
    random_grouped_case,
    random_quantized_case,
    random_scaled_case,
    registered,
)
from tests.run.ptx_mutants import with_ptx

OF_GROUPS = (100, 103, 105, 116, 124, 128, 132, 143)
"""Groups of every mode, with small problems for the executor."""
SCALED, QUANTIZED = (0, 3, 4, 7, 9, 12), (0, 2, 4, 5, 6)
"""Factors of blocks with groups of both modes, a cluster and slices of K; quantized results of 64 and 128 rows, with
factors of blocks and without, and of groups.
"""
PROBLEM = 256, 160, 328, None
"""A CTA of two has five tiles, more than buffers of sums."""
OF_BLOCKS = 200, 160, 1168, None
"""More blocks of K than stages, which are more than buffers."""


def several_tiles(rows: int = 128) -> GemmSpec:
    """Tiles of 32 columns in k-tiles of 64, two stages."""
    operands = Problem(a=Operand("f16", "k"), b=Operand("f16", "k"), c=Operand("f16", "n"), accumulator="f32")
    return GemmSpec(family=NAME, problem=operands, tile=Tile((rows, 32, 64), 2), name="twin")


def blocks_of_k(rows_of_b: int = 128, columns: int = 64) -> GemmSpec:
    """Factors of f32 of 128 of K, two stages, four buffers of 64 columns."""
    a, b = Operand("e4m3", "k"), Operand("e4m3", "k")
    factors = {"scale_a": Factors((1, 128)), "scale_b": Factors((rows_of_b, 128))}
    operands = Problem(a=a, b=b, c=Operand("f32", "n"), accumulator="f32", **factors)
    return GemmSpec(family=NAME, problem=operands, tile=Tile((128, columns, 128), 2), name="twin")


@pytest.fixture(autouse=True)
def _family() -> Iterator[None]:
    with registered():
        yield


def test_only_tests_name_it() -> None:
    assert NAME in FAMILIES
    with pytest.raises(SpecError, match="sm_90"):
        plan(several_tiles(), "sm_100")


@pytest.mark.dsl
@pytest.mark.slow
def test_a_stream_of_tiles_is_right(kernels: Cache) -> None:
    planned, kernel = compiled(several_tiles(), kernels)
    for policy in POLICIES:
        execute(planned, kernel, PROBLEM, policy)


@pytest.mark.dsl
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_a_random_kernel_is_right(seed: int, kernels: Cache) -> None:
    try_case(random_case(seed), kernels)


@pytest.mark.dsl
@pytest.mark.slow
@pytest.mark.parametrize("seed", OF_GROUPS)
def test_a_random_kernel_of_groups_is_right(seed: int, kernels: Cache) -> None:
    try_case(random_grouped_case(seed), kernels)


@pytest.mark.dsl
@pytest.mark.slow
@pytest.mark.parametrize("seed", SCALED)
def test_a_random_kernel_with_factors_is_right(seed: int, kernels: Cache) -> None:
    try_case(random_scaled_case(seed), kernels)


@pytest.mark.dsl
@pytest.mark.slow
@pytest.mark.parametrize("seed", QUANTIZED)
def test_a_random_quantized_result_is_right(seed: int, kernels: Cache) -> None:
    try_case(random_quantized_case(seed), kernels)


def test_factors_that_wgmma_does_not_read_are_refused() -> None:
    factors = dict.fromkeys(("scale_a", "scale_b"), Factors((1, 32), "ue8m0"))
    spec = blocks_of_k()
    with pytest.raises(SpecError, match="scale_a"):
        plan(replace(spec, problem=replace(spec.problem, **factors)), ARCH)


def try_case(case: Case, kernels: Cache) -> None:
    """Raise AssertionError unless a case is right in all orders."""
    planned, kernel = compiled(case.spec, kernels)
    for policy in POLICIES:
        execute(planned, kernel, case.small, policy)


def _roles(text: str) -> dict[str, list[str]]:
    """The kernel's text before its roles, and that of each, without the numbers of arrivals and their table."""
    kernel = text[text.index("@cute.kernel") : text.index("\n\n\ngemm.set_name_prefix")].partition('    """\n    tidx')[
        2
    ]
    kernel = re.sub(r"(mbarrier_init\(.*), \d+\)", r"\1)", kernel)
    parts = re.split(r"    if warp_idx == PRODUCER_WARP:|    elif .* MMA_WARP:|    else:\n        # Warp", kernel)
    return dict(zip(("begin", "producer", "mma", "drain"), map(str.splitlines, parts), strict=True))


@pytest.mark.parametrize(
    ("rows", "cluster", "groups"),
    [(64, None, None), (128, None, None), (128, (2, 2), None), (128, None, Grouped("m")), (64, (1, 2), Grouped("m"))],
)
def test_its_text_is_that_of_sm100(rows: int, cluster: tuple[int, int] | None, groups: Grouped | None) -> None:
    """All of it but the instruction: a stage's multiplications, and how their end arrives at a barrier."""
    alone = several_tiles(rows)
    spec = replace(alone, schedule=Schedule(cluster=cluster), problem=replace(alone.problem, groups=groups))
    hold_texts(spec)


@pytest.mark.parametrize(
    ("rows_of_b", "columns", "groups"), [(128, 64, None), (1, 96, None), (128, 32, None), (1, 64, Grouped("m"))]
)
def test_its_text_with_factors_is_that_of_sm100(rows_of_b: int, columns: int, groups: Grouped | None) -> None:
    spec = blocks_of_k(rows_of_b, columns)
    hold_texts(replace(spec, problem=replace(spec.problem, groups=groups)))


def hold_texts(spec: GemmSpec) -> None:
    """Raise AssertionError unless a twin's text is that of sm100 but for what multiplies."""
    twin, real = (_roles(render(plan(x, y)).text) for x, y in ((spec, ARCH), (replace(spec, family="sm100"), "sm_100")))
    for same in ("begin", "producer", "drain"):
        assert twin[same] == real[same], same
    of_tcgen05 = [line for line in real["mma"] if line not in twin["mma"]]
    assert all(re.search(r"descriptor|elect_one|stage_[ab]|multiply\(|commit(_to)?\(", line) for line in of_tcgen05)
    assert len(re.findall(r"mbarrier_wait\(|wait_in_cluster\(", "\n".join(twin["mma"]))) == 3


PLANTED: dict[str, tuple[str | re.Pattern[str], str]] = {
    "another parity": (re.compile(r"(xor\.b32 .*), 1;"), r"\1, 0;"),
    "multiplications that are not waited for": ("wgmma.wait_group.sync.aligned \t0;", ""),
    "sums that other lanes may still load or store": (re.compile(r"bar\.warp\.sync[^;]*;"), ""),
    "sums in another column": (re.compile(r"(ld\.shared\.b32 .*)\+512\]"), r"\1+1024]"),
    "a box of C that is not read before it is refilled": (re.compile(r"cp\.async\.bulk\.wait_group\.read[^;]*;"), ""),
}
"""A mistake in each thing that the twin shows of sm100."""
PLANTED_IN_BLOCKS: dict[str, tuple[str | re.Pattern[str], str]] = {
    "sums and factors are free when one group of warps has read them": (
        re.compile(r"(mov\.b32 \s*%r\d+, )8;(?=\s*mbarrier)"),
        r"\g<1>4;",
    ),
    "factors are refilled without an order of proxies": (
        re.compile(r"fence\.proxy\.async\.shared::cta;(?=(?:(?!mbarrier)[\s\S])*mbarrier\.arrive\.expect_tx)"),
        "",
    ),
    "sums of another column": (re.compile(r"(ld\.shared\.b32 .*)\+512\]"), r"\1+1024]"),
    "blocks are added to nothing": (re.compile(r"(fma\.rn\.f32 \s*%r\d+, %r\d+, %r\d+, )%r\d+;"), r"\g<1>0f00000000;"),
}
"""A mistake in each thing that the twin shows of factors."""


@pytest.mark.dsl
@pytest.mark.slow
@pytest.mark.parametrize("mistake", PLANTED)
def test_a_mistake_is_noticed(mistake: str, kernels: Cache) -> None:
    assert noticed(several_tiles(), PROBLEM, PLANTED[mistake], kernels)


@pytest.mark.dsl
@pytest.mark.slow
@pytest.mark.parametrize("mistake", PLANTED_IN_BLOCKS)
def test_a_mistake_with_factors_is_noticed(mistake: str, kernels: Cache) -> None:
    assert noticed(blocks_of_k(), OF_BLOCKS, PLANTED_IN_BLOCKS[mistake], kernels)


def noticed(spec: GemmSpec, problem: Size, mistake: tuple[str | re.Pattern[str], str], kernels: Cache) -> list[str]:
    """What shows a mistake in the PTX of a right kernel."""
    planned, right = compiled(spec, kernels)
    before, after = mistake
    text = right.artifact.ptx
    wrong = text.replace(before, after) if isinstance(before, str) else before.sub(after, text)
    assert wrong != text, "nothing was planted"
    found: list[str] = []
    for policy in POLICIES:
        try:
            execute(planned, with_ptx(right, wrong), problem, policy, max_steps=100_000)
        except (AssertionError, CutegenError) as error:
            found.append(str(error))
    return found
