"""Pairs of columns in kernels of family sm100, on the CPU: every order of columns, one CTA, pairs of CTAs, clusters.

They have never run on hardware.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial

import pytest

from cutegen.build import Cache
from cutegen.errors import SpecError
from cutegen.plan import GemmPlan, plan
from cutegen.spec import Bias, Epilogue, Extra, GemmSpec, Mma, Operand, Problem, Schedule, Tile
from cutegen.spec.parts import Paired
from tests.run.sm100_cases import Case, shown_in_text, try_case
from tests.run.test_grouped_kernels import failures
from tests.run.test_grouped_wgmma import Setting, compiled

SWIGLU = "x, y -> silu(x) * y"
OF_GPT_OSS = "x, y -> (max(min(y, 7), -7) + 1) * min(x, 7) * sigmoid(1.702 * min(x, 7))"


def _spec(
    layout: str | int,
    first: str = "gate",
    *,
    b: str = "k",
    c: str = "n",
    cta: tuple[int, int, int] = (128, 64, 64),
    element: str = "bf16",
    ops: tuple[str, ...] = (),
    expression: str = SWIGLU,
    smem: bool | None = None,
    group: int = 1,
    schedule: Schedule | None = None,
) -> GemmSpec:
    problem = Problem(
        a=Operand(element, "k"),
        b=Operand(element, b),
        c=Operand("bf16", c),
        bias=Bias("f32") if "bias_n" in ops else None,
        residual=Extra() if "residual" in expression else None,
    )
    return GemmSpec(
        family="sm100",
        problem=problem,
        tile=Tile(cta, 2),
        mma=Mma(cta_group=group),
        epilogue=Epilogue(smem, ops or None, expression, Paired(layout, first)),  # type: ignore[arg-type]
        schedule=schedule or Schedule(),
        name="paired",
    )


SPECS = {
    "halves": _spec("halves"),
    "interleaved, biased": _spec("interleaved", "up", ops=("bias_n",), expression=OF_GPT_OSS),
    "runs": _spec(8, c="m", cta=(128, 96, 64)),
    "half of the rows": _spec("halves", "up", cta=(64, 64, 64)),
    "one product after another": _spec("interleaved", expression="x, y -> gelu_tanh(x) * y + residual"),
    "from registers": _spec("interleaved", c="m", smem=False),
    "N-major": _spec("halves", b="n", cta=(128, 128, 64)),
    "8 bits": _spec("halves", element="e4m3", cta=(128, 128, 128)),
    "dynamic": _spec("halves", schedule=Schedule(tiles="dynamic")),
    "cluster": _spec("halves", schedule=Schedule(cluster=(2, 2))),
    "pair": _spec("halves", "up", group=2),
    "pair, interleaved, in a cluster": _spec("interleaved", group=2, schedule=Schedule(cluster=(2, 2))),
    "pair, runs, in a cluster": _spec(16, group=2, schedule=Schedule(cluster=(4, 1))),
    "pair, N-major": _spec("halves", b="n", cta=(128, 128, 64), group=2),
    "pair, N-major, runs": _spec(16, b="n", cta=(128, 128, 64), group=2),
}


def _case(name: str) -> Case:
    """Several tiles with all edges, more than buffers of sums; runs are whole."""
    return Case(SPECS[name], 300, 320, 200, None)


@pytest.mark.dsl
@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=() if each == "halves" else pytest.mark.slow) for each in SPECS]
)
def test_a_kernel_is_right(name: str, kernels: Cache) -> None:
    try_case(_case(name), kernels)


Of = partial(Setting, family="sm100", expression=SWIGLU)


@pytest.mark.dsl
@pytest.mark.slow
@pytest.mark.parametrize(
    "setting",
    [
        Of("m", types=("bf16", "bf16"), pairs=Paired("interleaved", "up"), tile=(128, 64, 64)),
        Of("m", "padded", pairs=Paired("halves", "gate"), tile=(128, 64, 64), ops=("bias_n",)),
        Of("m", pairs=Paired("halves", "gate"), tile=(128, 64, 64), cta_group=2),
    ],
    ids=str,
)
def test_groups_are_right_for_any_ends(setting: Setting, kernels: Cache) -> None:
    assert list(failures(*compiled(setting, kernels), 5, setting.among)) == []


PLANTED: dict[str, tuple[str, str | re.Pattern[str], str]] = {
    "gates are ups": ("halves", "x = part_sums.load()", "x = part_others.load()"),
    "the other member is the next part": ("halves", "(part + PARTS_N) * PART_N", "(part + 1) * PART_N"),
    "sums are freed before those of the other member are loaded": (
        "halves",
        re.compile(r"( *part_others = .*\n)((?:.*\n)+?)( *tCrD =)"),
        r"\2\1\3",
    ),
    "columns of both members in one CTA": ("pair", "(tile_n, rank % 2)", "(tile_n * 2 + rank % 2, 0)"),
    "members of the pair exchanged": ("pair", "(tile_n, rank % 2)", "(tile_n, 1 - rank % 2)"),
}
"""A mistake at one place of a kernel's text: whose, and what is written instead."""


@pytest.mark.dsl
@pytest.mark.slow
@pytest.mark.parametrize("mistake", PLANTED)
def test_a_mistake_is_noticed(mistake: str, kernels: Cache) -> None:
    name, before, after = PLANTED[mistake]
    assert shown_in_text(_case(name), kernels, (before, after))


def test_a_cta_of_a_pair_copies_the_columns_of_one_member() -> None:
    """32 of 64 columns, in one box: of a pair those of a member, of one CTA 32 of both."""
    for name, columns in (("halves", 64), ("pair", 32)):
        found = plan(SPECS[name], "sm_100")
        assert isinstance(found, GemmPlan)
        assert found.b.tile == (columns, 64)
        assert found.epilogue.parts is not None
        assert found.epilogue.parts.count * found.epilogue.parts.tile[1] == 32


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        (
            _spec("halves", schedule=Schedule(swap=True)),
            r"epilogue.pairs: found .* with schedule.swap = true; expected columns of the tile: as rows",
        ),
        (
            _spec("halves", cta=(64, 64, 64), group=2),
            r"tile.cta: found 64x64x64 of a pair of CTAs with epilogue.pairs; expected M = 128",
        ),
        (_spec("halves", schedule=Schedule(split_k=2)), "epilogue.pairs: .* expected whole sums in one CTA"),
        (_spec(64), "tile.cta: found 128x64x64 with epilogue.pairs: 32 columns of each member"),
    ],
)
def test_what_is_refused(spec: GemmSpec, says: str) -> None:
    with pytest.raises(SpecError, match=says):
        plan(spec, "sm_100")


def test_a_problem_is_planned_without_the_exchange_of_a_and_b() -> None:
    """Few rows would be exchanged; here the search ends with a tile that has them as they are."""
    open_ = replace(SPECS["halves"], tile=Tile(), mma=Mma())
    found = plan(open_, "sm_100", (16, 4096, 4096))
    assert isinstance(found, GemmPlan)
    assert not found.swapped
