"""Slices of K in family sm100 on the CPU: every order of CTAs gives the same bits, and a workspace is reused.

The random kernels of `sm100_cases.py` have slices, too.
"""

from __future__ import annotations

import pytest

from cutegen.build import Cache
from cutegen.errors import SpecError
from cutegen.plan import plan
from cutegen.spec import Bias, Epilogue, GemmSpec, Mma, Operand, Problem, Schedule, Tile
from tests.run.sm100_cases import POLICIES, Case, compiled, execute, shown


def _case(
    slices: int,
    m: int,
    n: int,
    k: int,
    *,
    types: tuple[str, str] = ("f16", "f16"),
    majors: str = "kkn",
    tile: tuple[int, int, int] = (128, 32, 64),
    sums: str | None = None,
    epilogue: Epilogue | None = None,
    swap: bool | None = None,
    batch: int | None = None,
) -> Case:
    (element, of_c), (a, b, c) = types, majors
    bias = Bias("f32") if epilogue is not None and epilogue.ops else None
    problem = Problem(a=Operand(element, a), b=Operand(element, b), c=Operand(of_c, c), accumulator=sums, bias=bias)
    spec = GemmSpec(
        family="sm100",
        problem=problem,
        tile=Tile(tile, 2),
        epilogue=epilogue or Epilogue(),
        schedule=Schedule(split_k=slices, swap=swap),
        name="slices",
    )
    return Case(spec, m, n, k, batch)


THREE = _case(3, 130, 64, 640)
CASES = {
    "three": THREE,
    "bias": _case(2, 256, 160, 328, epilogue=Epilogue(ops=("bias_n", "relu"))),
    "batch of 64 rows": _case(4, 60, 128, 520, types=("bf16", "f32"), tile=(64, 64, 64), batch=2),
    "integers": _case(3, 256, 64, 700, types=("s8", "s32"), tile=(128, 32, 128)),
    "swapped": _case(2, 8, 136, 264, tile=(128, 16, 64), swap=True),
    "empty K": _case(3, 130, 64, 0),
    "f16 sums": _case(3, 200, 64, 400, sums="f16"),
    "from registers": _case(8, 130, 64, 640, types=("f16", "f32"), majors="mnm", epilogue=Epilogue(False)),
}


@pytest.mark.dsl
@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_slices_are_added(name: str, kernels: Cache) -> None:
    planned, kernel = compiled(CASES[name], "sm_100", kernels)
    for policy in (*POLICIES, *POLICIES):  # a launch leaves the counters as it finds them
        execute(planned, kernel, CASES[name], policy)


PLANTED = {
    "sums of a slice are stored without a barrier": ("bar.sync \t0, 128;", ""),
    "a slice is counted before it is there": ("atom.global.acq_rel.add", "atom.global.add"),
    "sums are released before their loads are complete": ("tcgen05.wait::ld.sync.aligned;", ""),
}


@pytest.mark.dsl
@pytest.mark.slow
@pytest.mark.parametrize("mistake", PLANTED)
def test_a_mistake_is_noticed(mistake: str, kernels: Cache) -> None:
    assert shown(THREE, kernels, PLANTED[mistake])


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (
            GemmSpec(family="sm100", problem=THREE.spec.problem, mma=Mma(cta_group=2), schedule=Schedule(split_k=2)),
            r"mma.cta_group: found 2x1 CTAs together, .* with schedule.split_k = 2; expected one CTA at a time",
        ),
        (
            GemmSpec(family="sm100", problem=THREE.spec.problem, schedule=Schedule(split_k=2, cluster=(1, 2))),
            r"schedule.cluster: found 1x2 CTAs together",
        ),
        (
            GemmSpec(family="sm100", problem=THREE.spec.problem, schedule=Schedule(split_k=2, reduction="cluster")),
            r"schedule.reduction: found 1x1 CTAs together, or a reduction in them",
        ),
        (
            GemmSpec(
                family="sm100", problem=THREE.spec.problem, tile=Tile((128, 256, 64)), schedule=Schedule(split_k=2)
            ),
            r"tile.cta: .* 128 x 256 / 128 = 256; tile.cta = \[128, 128, 64\]",
        ),
    ],
)
def test_what_slices_cannot_have_is_refused_by_name(spec: GemmSpec, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        plan(spec, "sm_100")
