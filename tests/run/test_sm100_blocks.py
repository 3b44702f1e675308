"""Factors of f32 that scale sums of blocks of K in kernels of family sm100, on the CPU: right, and wrong ones noticed.

They have never run on hardware.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cutegen.api import request_of
from cutegen.build import Cache, build
from cutegen.errors import CutegenError, ProofError, SpecError
from cutegen.plan import GemmPlan, plan
from cutegen.plan.kernel.pipeline import Item
from cutegen.plan.kernel.program import HANDSHAKES, Range
from cutegen.plan.prove import prove
from cutegen.run import Kernel, float8_bits
from cutegen.spec import Bias, Epilogue, Factors, GemmSpec, Grouped, Mma, Operand, Problem, Schedule, Tile
from cutegen.verify import random_operands
from cutegen.verify.reference import spread_factors
from tests.run.ptx_mutants import with_ptx
from tests.run.scaled_cases import of_groups
from tests.run.sm100_cases import POLICIES, Case, compiled, execute, try_case
from tests.run.test_block_scales import distinct_powers, in_memory

BLOCK = 128
ROWS, BLOCKS = Factors((1, BLOCK)), Factors((BLOCK, BLOCK))


def _spec(
    columns: int | None = 64,
    stages: int | None = 2,
    factors: tuple[Factors, Factors] = (ROWS, BLOCKS),
    c: str = "f32",
    types: tuple[str, str] = ("e4m3", "e4m3"),
    tile: tuple[int, int, int] | None = None,
    bias: str | None = None,
    groups: Grouped | None = None,
    **more: Any,
) -> GemmSpec:
    a, b = (Operand(each, "k") for each in types)
    of_a, of_b = factors
    cta = tile or (None if columns is None else (BLOCK, columns, BLOCK))
    return GemmSpec(
        family="sm100",
        problem=Problem(
            a=a,
            b=b,
            c=Operand(c, "n"),
            scale_a=of_a,
            scale_b=of_b,
            bias=None if bias is None else Bias(bias),
            groups=groups,
        ),
        tile=Tile(cta, stages),
        name="blocks",
        **more,
    )


SEVERAL = Case(_spec(stages=6), 40, 144, 1100, None)
"""Three tiles of two blocks of columns; more blocks of K than stages, which are more than buffers; all edges."""
OTHERS = {
    "straddled": Case(_spec(192, None), 130, 400, 272, None),
    "own-columns-of-wide-tiles": Case(_spec(192, None, (ROWS, ROWS)), 130, 400, 400, None),
    "own-columns": Case(_spec(128, 3, (ROWS, ROWS), c="bf16"), 37, 136, 528, 2),
    "rows-in-blocks": Case(_spec(96, None, (BLOCKS, ROWS)), 260, 200, 256, None),
    "all-in-blocks": Case(_spec(80, 3, (BLOCKS, BLOCKS), c="bf16"), 140, 200, 400, None),
    "one-group": Case(_spec(32, 1, c="f16", types=("e5m2", "e4m3")), 130, 72, 264, None),
    "k-first": Case(
        _spec(64, 2, (Factors((1, BLOCK), major="k"), Factors((BLOCK, BLOCK), major="n"))), 40, 144, 656, 2
    ),
    "swapped": Case(_spec(64, schedule=Schedule(swap=True)), 70, 264, 264, None),
    "empty-k": Case(_spec(), 40, 72, 0, None),
    "cluster": Case(_spec(stages=5, schedule=Schedule(cluster=(2, 2))), 300, 136, 700, None),
    "pair": Case(_spec(stages=4, mma=Mma(cta_group=2)), 300, 144, 1100, None),
    "own-columns-of-pairs": Case(
        _spec(128, None, (BLOCKS, ROWS), mma=Mma(cta_group=2), schedule=Schedule(cluster=(4, 2))), 300, 264, 400, None
    ),
    "slices": Case(_spec(schedule=Schedule(split_k=3)), 140, 72, 900, None),
    "dynamic": Case(_spec(schedule=Schedule(tiles="dynamic")), 140, 200, 400, None),
    "bias-and-function": Case(
        _spec(None, None, c="bf16", bias="f32", epilogue=Epilogue(ops=("bias_n", "silu"))), 130, 264, 400, None
    ),
    "to-registers": Case(_spec(c="bf16", epilogue=Epilogue(smem=False, ops=("relu",))), 130, 72, 400, None),
    "a-block-of-64": Case(_spec(64, 3, (Factors((1, 64)), Factors((64, 64))), tile=(128, 64, 64)), 130, 136, 300, None),
}


@pytest.mark.dsl
@pytest.mark.parametrize(
    "case",
    [SEVERAL, *(pytest.param(case, marks=pytest.mark.slow) for case in OTHERS.values())],
    ids=["several", *OTHERS],
)
def test_a_kernel_is_right(case: Case, kernels: Cache) -> None:
    """It is planned, proved, compiled for both targets, and right in two orders, without a convention."""
    try_case(case, kernels)


@pytest.mark.dsl
@pytest.mark.parametrize(
    "spec",
    [
        _spec(),
        *(
            pytest.param(_spec(columns, None, factors), marks=pytest.mark.slow)
            for columns, factors in ((192, (ROWS, BLOCKS)), (128, (ROWS, ROWS)), (32, (BLOCKS, ROWS)))
        ),
        pytest.param(_spec(64, None, (ROWS, ROWS), mma=Mma(cta_group=2)), marks=pytest.mark.slow),
    ],
    ids=["blocks", "straddled", "own-columns", "one-group", "pair"],
)
def test_factors_that_are_distinct_powers_of_two_make_results_exact(spec: GemmSpec, kernels: Cache) -> None:
    """Sums of a block are integers below 2^8, and those of all blocks span fewer digits than f32 has."""
    _, kernel = compiled(Case(spec, 0, 0, 0, None), "sm_100", kernels)
    m, n, k = 40 if spec.mma.cta_group is None else 168, 144, 2 * BLOCK + 16
    rng = np.random.default_rng(5)
    x, y = (rng.integers(-1, 2, (rows, k)).astype(np.float32) for rows in (m, n))
    a, b, out = random_operands(kernel.contract, m, n, k, seed=1)
    a[...], b[...] = float8_bits(x, "e4m3"), float8_bits(y.T, "e4m3")
    rows = [spec.problem.factors(name).block[0] for name in "ab"]  # type: ignore[union-attr]
    of_a, of_b = (
        distinct_powers((-(-extent // each), 3), seed=extent) for extent, each in zip((m, n), rows, strict=True)
    )
    call = {"m": m, "n": n, "k": k}
    scales = {name: in_memory(kernel, name, x, **call) for name, x in (("scale_a", of_a), ("scale_b", of_b))}
    report = kernel.execute(a, b, out=out, **scales)
    assert report.violations == () == report.conventions
    exact = (x.astype(float) * spread_factors(of_a.astype(float), (rows[0], BLOCK), x.shape)) @ (
        y.astype(float) * spread_factors(of_b.astype(float), (rows[1], BLOCK), y.shape)
    ).T
    np.testing.assert_array_equal(out.astype(float), exact)


GROUPED = _spec(64, 5, c="bf16", groups=Grouped("m"))
OF_GROUPS = {
    "packed": GROUPED,
    "padded": _spec(96, 5, (BLOCKS, ROWS), c="bf16", groups=Grouped("m", "padded")),
    "swapped": _spec(32, 5, c="f16", groups=Grouped("m"), schedule=Schedule(swap=True)),
    "columns": _spec(64, 5, (BLOCKS, ROWS), c="f32", groups=Grouped("n")),
    "pair": _spec(64, 4, c="bf16", groups=Grouped("m"), mma=Mma(cta_group=2)),
}


def _failures(planned: GemmPlan, kernel: Kernel, launches: int) -> list[str]:
    """What is wrong with launches of groups of any sizes, some empty; conventions are wrong, too."""
    return [said for seed in range(launches) if (said := of_groups(planned, kernel, random.Random(seed)))]


@pytest.mark.dsl
@pytest.mark.slow
@pytest.mark.parametrize("spec", OF_GROUPS.values(), ids=[*OF_GROUPS])
def test_groups_have_factors_of_their_own(spec: GemmSpec, kernels: Cache) -> None:
    assert _failures(*compiled(Case(spec, 0, 0, 0, None), "sm_100", kernels), 4) == []


@pytest.mark.dsl
@pytest.mark.slow
def test_factors_that_begin_with_the_first_group_are_noticed(kernels: Cache) -> None:
    planned, _ = compiled(Case(GROUPED, 0, 0, 0, None), "sm_100", kernels)
    request = request_of(planned)
    text = request.source.text
    wrong = text.replace("(begin + tile_m * CTA_M) // 4 * 4", "tile_m * CTA_M // 4 * 4")
    assert wrong != text
    artifact = build(replace(request, source=replace(request.source, text=wrong)), kernels)
    assert _failures(planned, Kernel(artifact), 4)


Change = Callable[[str], str]


def _changed(pattern: str, replacement: str, count: int | None = None) -> Change:
    """Replace every match of a pattern; as many as `count`, if it is given."""

    def change(text: str) -> str:
        wrong, found = re.subn(pattern, replacement, text)
        assert found == (count or found) > 0, f"{found} of {pattern}"
        return wrong

    return change


def _without_wait(number: int) -> Change:
    """Leave out the `number`-th wait of the text for a phase of an mbarrier."""

    def change(text: str) -> str:
        first, *waits = re.split(r"(?=mbarrier\.try_wait)", text)
        assert len(waits) == len(WAITS), len(waits)
        waits[number] = re.sub(r"\A.*\n.*@P1 bra", "bra", waits[number], count=1)
        return first + "".join(waits)

    return change


WAITS = (
    "producer: a stage is empty",
    "producer: factors are read",
    "mma: a buffer is drained",
    "mma: a stage is full",
    "mma: all buffers are drained, before tensor memory is freed",
    "epilogue: factors are there",
    "epilogue: a block is multiplied",
)
"""Waits for mbarriers, in the order of the text."""
_FACTOR_A, _FACTOR_B = (
    r"(ld\.shared\.b32 \s*%r\d+, \[%r\d+\+)147456\]",
    r"(ld\.shared\.b32 \s*%r\d+, \[%r\d+\+)150528\]",
)
PLANTED: dict[str, Change] = {
    **{f"no wait, {each}": _without_wait(number) for number, each in enumerate(WAITS)},
    "the factor of B of the next block of K": _changed(_FACTOR_B, r"\g<1>150532]", 1),
    "the factor of A of the next row": _changed(_FACTOR_A, r"\g<1>147460]", 1),
    "the factor of A of the other stage": _changed(_FACTOR_A, r"\g<1>147968]", 1),
    "factors are free when one group of warps has read them": _changed(
        r"(mbarrier\.init\.shared\.b64 \s*\[%r\d+\+2172(?:32|40|48|56|64|72)\], )%r\d+;", r"\g<1>4;", 6
    ),
    "a buffer is free when one group of warps has loaded it": _changed(
        r"(mbarrier\.init\.shared\.b64 \s*\[%r\d+\+2173(?:12|20|28|36)\], )%r\d+;", r"\g<1>4;", 4
    ),
    "a buffer is free before it is loaded": _changed(
        r"(\{ tcgen05\.ld[\s\S]*?)(elect\.sync \s*%r\d+\|(%p\d+), -1;)([\s\S]*?)"
        r"(mbarrier\.arrive\.shared\.b64 %rd\d+, \[%r\d+\+\d+\]), %r\d+;",
        r"\2 @\3 \5; \1\4",
        1,
    ),
    "sums are loaded without their order": _changed(
        r"tcgen05\.fence::after_thread_sync;(?=(?:(?!tcgen05)[\s\S])*\{ tcgen05\.ld)", "", 1
    ),
    "a buffer is freed without its order": _changed(
        r"tcgen05\.fence::before_thread_sync;(?=(?:(?!tcgen05)[\s\S])*mbarrier\.arrive\.shared)", "", 1
    ),
    "factors are refilled without an order of proxies": _changed(
        r"fence\.proxy\.async\.shared::cta;(?=(?:(?!mbarrier)[\s\S])*mbarrier\.arrive\.expect_tx)", "", 1
    ),
    "loads are not waited for": _changed(r"tcgen05\.wait::ld\.sync\.aligned; ", "", 1),
    "sums of all of K in one buffer": _changed(r"(setp\.ne\.b32 add, )%r\d+, 0;", r"\g<1>1, 0;"),
    "blocks are added to nothing": _changed(r"(fma\.rn\.f32 \s*%r\d+, %r\d+, %r\d+, )%r\d+;", r"\g<1>0f00000000;"),
    "groups of warps load the same columns": _changed(r"(shl\.b32 \s*%r\d+, %r\d+, )5;(?=\s*add)", r"\g<1>0;"),
}
"""Mistakes in the text of a right kernel, and what makes each."""
FIRST, *OTHER_MISTAKES = PLANTED


def _shown(change: Change, kernels: Cache) -> str:
    """What shows a change of the right kernel's text, if anything does."""
    planned, right = compiled(SEVERAL, "sm_100", kernels)
    text = right.artifact.ptx
    wrong = change(text)
    assert wrong != text, "nothing was planted"
    for policy in POLICIES:
        try:
            execute(planned, with_ptx(right, wrong), SEVERAL, policy, max_steps=100_000)
        except (AssertionError, CutegenError) as error:
            return str(error)
    return ""


@pytest.mark.dsl
@pytest.mark.parametrize("mistake", [FIRST, *(pytest.param(each, marks=pytest.mark.slow) for each in OTHER_MISTAKES)])
def test_a_mistake_is_noticed(mistake: str, kernels: Cache) -> None:
    assert _shown(PLANTED[mistake], kernels)


def _planned(spec: GemmSpec, arch: str = "sm_100") -> GemmPlan:
    found = plan(spec, arch)
    assert isinstance(found, GemmPlan)
    return found


def test_blocks_have_buffers_of_their_own_which_two_groups_of_warps_add() -> None:
    found = _planned(_spec(None, None))
    sums, (ab, factors, accumulator, _) = found.mma.accumulator, found.loop.pipelines
    assert (found.cta_tile, sums.buffers, sums.columns, sums.threads) == ((128, 128, 128), 4, 128, 256)
    assert (accumulator.holds, accumulator.empty and accumulator.empty.count) == (Item.K_TILE, 8)
    # A stage is free when it has been multiplied, and its factors when each of eight warps has read them.
    assert (ab.consumers, ab.empty and ab.empty.count) == (("mma",), 1)
    assert (factors.consumers, factors.empty and factors.empty.count) == (("epilogue",), 8)
    # 128 of A, and 8 x 4 of B, of which a tile needs one.
    assert (factors.stages, factors.payload_bytes) == (ab.stages, (128 + 32) * 4)
    assert [(x.name, x.tile) for x in found.operands[2:]] == [("scale_a", (128, 1)), ("scale_b", (8, 4))]
    said = found.explain()
    assert all(key in said for key in ("mma.promote_k", "4 buffers of blocks", "each thread reads the factors of the"))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (_spec(256), "tile.cta: found 128x256x128: 128 sums of each of 256 threads; expected at most 168 registers"),
        (_spec(64, tile=(64, 64, 128)), "M = 128, the lanes of tensor memory: a thread has the sums, and the factor"),
        (_spec(64, tile=(128, 64, 256)), "tile.cta: found 128x64x256: K = 256; expected K = 128, that of a block"),
        (_spec(types=("s8", "s8")), "problem.scale_a: found factors of f32 of s8 and s8 operands"),
        (_spec(types=("f16", "f16")), "expected 8-bit floats and f32 sums"),
    ],
)
def test_what_no_kernel_scales_is_refused(spec: GemmSpec, message: str) -> None:
    with pytest.raises(SpecError) as refused:
        plan(spec, "sm_100")
    assert message in str(refused.value)


STEPS = [
    (program.role, step.action.value, step.pipeline)
    for program in _planned(SEVERAL.spec).loop.programs
    for each in program.tile
    if isinstance(each, Range)
    for step in each.steps
    if step.action in HANDSHAKES
]


@pytest.mark.parametrize(("role", "action", "pipeline"), STEPS)
def test_the_proof_needs_each_handshake_of_a_block(role: str, action: str, pipeline: str) -> None:
    right = _planned(SEVERAL.spec)
    programs = tuple(
        replace(
            program,
            tile=tuple(
                replace(
                    each,
                    slots=tuple(
                        tuple(step for step in slot if (step.action, step.pipeline) != (action, pipeline))
                        for slot in each.slots
                    ),
                )
                if isinstance(each, Range)
                else each
                for each in program.tile
            ),
        )
        if program.role == role
        else program
        for program in right.loop.programs
    )
    with pytest.raises(ProofError):
        prove(replace(right, loop=replace(right.loop, programs=programs)))
