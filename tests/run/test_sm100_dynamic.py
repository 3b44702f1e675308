"""Dynamic tiles in family sm100 on the CPU: CTAs take over the tiles of others which have not started.

The executor lets few CTAs run at once, and answers requests in several ways. The random kernels of `sm100_cases.py`
have dynamic tiles, too.
"""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from cutegen.build import Cache
from cutegen.contract.problem import ProblemShape
from cutegen.errors import SpecError
from cutegen.plan import GemmPlan, plan
from cutegen.spec import Bias, Epilogue, GemmSpec, Grouped, Mma, Operand, Problem, Schedule, Tile
from tests.run.sm100_cases import POLICIES, Case, compiled, execute, shown

DYNAMIC = Schedule(tiles="dynamic")


def _spec(tile: tuple[int, int, int] = (128, 32, 64), majors: str = "kkn", **parts: object) -> GemmSpec:
    a, b, c = (Operand("f16", major) for major in majors)
    problem = Problem(a=a, b=b, c=c)
    spec = GemmSpec(family="sm100", problem=problem, tile=Tile(tile, 2), schedule=DYNAMIC, name="dynamic")
    return replace(spec, **parts)


def _biased(spec: GemmSpec) -> GemmSpec:
    problem = replace(spec.problem, bias=Bias("f32"))
    return replace(spec, problem=problem, epilogue=Epilogue(ops=("bias_n", "relu")))


BATCH = Case(_biased(_spec()), 256, 96, 200, 2)
CASES = {
    "several tiles": Case(_spec(), 256, 160, 328, None),
    "batch": BATCH,
    "empty K": Case(_spec((64, 64, 64)), 60, 128, 0, None),
    "swapped": Case(_spec((128, 16, 64), schedule=replace(DYNAMIC, swap=True)), 8, 136, 264, None),
    "from registers": Case(_spec(majors="mnm", epilogue=Epilogue(False)), 300, 96, 200, None),
}


@pytest.mark.dsl
@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_every_tile_is_computed(name: str, kernels: Cache) -> None:
    planned, kernel = compiled(CASES[name], "sm_100", kernels)
    for policy in POLICIES:
        execute(planned, kernel, CASES[name], policy)


_FIRST_CTA = r"get_first_ctaid\.v4\.b32\.b128 \{(%r\d+), y, (%r\d+), _\}"
PLANTED: dict[str, tuple[str | re.Pattern[str], str]] = {
    "a refused request is read as a tile": ("@taken clusterlaunchcontrol", "clusterlaunchcontrol"),
    "tiles of another batch": (re.compile(_FIRST_CTA), r"get_first_ctaid.v4.b32.b128 {\1, \2, y, _}"),
    "one warp fewer frees an answer": (re.compile(r"(mov\.b32\s+%r\d+, )7;"), r"\g<1>6;"),
    "an answer of another size": (re.compile(r"(mov\.b32\s+%r\d+, )16;"), r"\g<1>32;"),
}


@pytest.mark.dsl
@pytest.mark.slow
@pytest.mark.parametrize("mistake", PLANTED)
def test_a_mistake_is_noticed(mistake: str, kernels: Cache) -> None:
    assert shown(BATCH, kernels, PLANTED[mistake])


def test_a_launch_has_a_cta_for_each_tile() -> None:
    planned = plan(_spec(), "sm_100")
    assert isinstance(planned, GemmPlan)
    geometry = planned.launch.geometry(ProblemShape(500, 100, 64, 3), multiprocessors=2)
    assert geometry.grid == (4 * 4, 1, 3)
    (ask,) = (role for role in planned.roles if role.name == "scheduler")
    tiles = planned.loop.pipeline("tiles")
    assert ask.warps == 1
    assert tiles is not None
    assert tiles.empty is not None
    assert (tiles.full.count, tiles.empty.count, tiles.payload_bytes) == (1, 4 + 1 + 1 + 1, 16)


REFUSED = {
    "groups": (
        _spec(problem=replace(_spec().problem, groups=Grouped("m", "packed"))),
        r'schedule.tiles: found "dynamic" with groups; expected "static": only the device knows',
    ),
    "slices": (_spec(schedule=replace(DYNAMIC, split_k=2)), r'"dynamic" with schedule.split_k; expected "static"'),
    "pair": (_spec(mma=Mma(cta_group=2)), r'"dynamic" with clusters of 2x1; expected "static"'),
    "cluster": (_spec(schedule=replace(DYNAMIC, cluster=(1, 2))), r'"dynamic" with clusters of 1x2'),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_dynamic_tiles_exclude_is_refused_by_name(name: str) -> None:
    spec, said = REFUSED[name]
    with pytest.raises(SpecError, match=said):
        plan(spec, "sm_100")


@pytest.mark.parametrize("family", ["sm80", "sm90", "sm120"])
def test_other_families_have_no_dynamic_tiles(family: str) -> None:
    with pytest.raises(SpecError, match=r"schedule.tiles"):
        plan(replace(_spec(), family=family), "sm_90")
