"""Pairs of columns with factors of blocks in kernels of family sm100, on the CPU: right, exact, and mistakes noticed.

They have never run on hardware.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from cutegen.build import Cache
from cutegen.errors import ProofError, SpecError
from cutegen.plan import GemmPlan, plan
from cutegen.plan.prove import prove
from cutegen.spec import Epilogue, Factors, GemmSpec, Mma, Operand, Problem, Schedule, Tile
from cutegen.spec.parts import Paired
from cutegen.verify import random_extras, random_operands
from tests.run.sm100_cases import POLICIES, Case, compiled, shown_in_text, try_case
from tests.run.test_grouped_kernels import Extents, failures
from tests.run.test_grouped_wgmma import Setting, edited
from tests.run.test_grouped_wgmma import compiled as compiled_groups
from tests.run.test_sm100_scaled_pairs import blocked

MX, NV = Factors((1, 32), "ue8m0"), Factors((1, 16), "ue4m3")
SWIGLU, EXACT = "x, y -> silu(x) * y", "x, y -> x * y * y"
"""A chain as layers have it, and one that makes powers of two of powers of two, and other ones of exchanged members."""
WIDE = (128, 256, 128)


def _spec(
    first: str = "gate",
    *,
    factors: Factors = MX,
    element: str = "e4m3",
    b: str = "k",
    c: str = "bf16",
    tile: tuple[int, int, int] | None = WIDE,
    stages: int | None = 2,
    expression: str = SWIGLU,
    group: int | None = None,
    schedule: Schedule | None = None,
    layout: str | int = "halves",
) -> GemmSpec:
    of_a, of_b = Operand(element, "k"), Operand(element, b)
    return GemmSpec(
        family="sm100",
        problem=Problem(a=of_a, b=of_b, c=Operand(c, "n"), scale_a=factors, scale_b=factors),
        tile=Tile(tile, stages),
        mma=Mma(cta_group=group),
        epilogue=Epilogue(expression=expression, pairs=Paired(layout, first)),  # type: ignore[arg-type]
        schedule=schedule or Schedule(),
        name="scaled_columns",
    )


CASES = {
    "mxf8": Case(_spec(), 300, 768, 400, None),
    "up first, transposed B": Case(_spec("up", b="n", c="f32"), 130, 512, 272, 2),
    "nvf4": Case(_spec(factors=NV, element="e2m1x2"), 130, 512, 200, 2),
    "mxf4": Case(_spec("up", element="e2m1x2"), 130, 512, 200, None),
    "pair": Case(_spec("up", group=2), 300, 768, 272, None),
    "cluster of pairs": Case(_spec(group=2, schedule=Schedule(cluster=(4, 2))), 600, 1024, 272, None),
    "cluster": Case(_spec(schedule=Schedule(cluster=(2, 2))), 300, 768, 272, None),
    "dynamic": Case(_spec(schedule=Schedule(tiles="dynamic")), 140, 768, 144, None),
    "empty K": Case(_spec(), 130, 256, 0, None),
}


@pytest.mark.dsl
@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_kernel_is_right(name: str, kernels: Cache) -> None:
    try_case(CASES[name], kernels)


Of = partial(Setting, family="sm100", expression=SWIGLU, pairs=Paired("halves", "gate"), tile=WIDE)
GROUPS = (
    Of("m", types=("e4m3", "bf16"), atoms=MX),
    Of("m", "padded", types=("e4m3", "bf16"), atoms=MX, pairs=Paired("halves", "up")),
)


def _among(setting: Setting) -> Extents:
    """The extents of calls: two tiles of columns, in which each member has whole atoms."""
    return replace(setting.among, n=512)


@pytest.mark.dsl
@pytest.mark.slow
@pytest.mark.parametrize("setting", GROUPS, ids=str)
def test_groups_are_right_for_any_ends(setting: Setting, kernels: Cache) -> None:
    assert list(failures(*compiled_groups(setting, kernels), 4, _among(setting))) == []


@pytest.mark.dsl
@pytest.mark.slow
def test_groups_with_the_weights_of_another_are_noticed(kernels: Cache) -> None:
    setting = GROUPS[0]
    right, wrong = "tScaleBc[None, (tile_n * (CTA_N // 2) // 128, 0)", "tScaleBc[None, (0, 0)"
    assert any(failures(*edited(setting, right, wrong, kernels), 4, _among(setting)))


@pytest.mark.dsl
@pytest.mark.slow
@pytest.mark.parametrize("name", ["mxf8", "pair"])
def test_each_sum_has_its_own_factors(name: str, kernels: Cache) -> None:
    """A row of A has a 1 in one block of K: its sums are powers of two of that block, which differ by column."""
    case = CASES[name]
    spec = replace(case.spec, problem=replace(case.spec.problem, c=Operand("f32", "n")))
    pairs = spec.epilogue.pairs
    assert pairs is not None
    case = replace(case, spec=replace(spec, epilogue=Epilogue(expression=EXACT, pairs=pairs)))
    _, kernel = compiled(case, "sm_100", kernels)
    (a, b, out), one = random_operands(kernel.contract, case.m, case.n, case.k, seed=1), 0x38
    extras: dict[str, Any] = dict(random_extras(kernel.contract, case.m, case.n, k=case.k, seed=1))
    rows, columns, blocks = np.arange(case.m), np.arange(case.n), -(-case.k // 32)
    of_a = (7 * rows[:, None] + 11 * np.arange(blocks)) % 23 - 11
    of_b = (29 * columns[:, None] + 13 * np.arange(blocks)) % 51 - 25
    chosen = rows % blocks
    a[...], b[...] = 0, one
    a[rows, 32 * chosen] = one
    extras["scale_a"][...] = blocked(127 + of_a)
    extras["scale_b"].swapaxes(-1, -2)[...] = blocked(127 + of_b)
    sums = of_a[rows, chosen][:, None] + of_b[:, chosen].T
    first, second = sums[:, : case.n // 2], sums[:, case.n // 2 :]
    gate, up = (first, second) if pairs.first == "gate" else (second, first)
    exact = np.exp2((gate + 2 * up).astype(np.float64))
    for policy in POLICIES:
        out[...] = np.nan
        report = kernel.execute(a, b, out=out, **extras, policy=policy)
        assert report.violations == () == report.conventions
        assert np.array_equal(out, exact)


PLANTED: dict[str, tuple[str, str | re.Pattern[str], str]] = {
    "gates are ups": ("mxf8", "x = part_sums.load()", "x = part_others.load()"),
    "the atom of the tile beside": (
        "mxf8",
        "(tile_n * (CTA_N // 2) // 128, 0)",
        "(tile_n * (CTA_N // 2) // 128 ^ 1, 0)",
    ),
    "the factors of the other member": (
        "mxf8",
        re.compile(r"SCALE_B_STEPS, SCALE_B_STAGE_STEP = \((\d+), (\d+)\)"),
        r"SCALE_B_STEPS, SCALE_B_STAGE_STEP = (\2, \1)",
    ),
    "a pair's factors of columns in one CTA": (
        "pair",
        "tScaleBs[None, stage], tma_bar_ptr=full + stage, mcast_mask=whole_column",
        "tScaleBs[None, stage], tma_bar_ptr=full + stage, mcast_mask=Int16(1)",
    ),
    "members of the pair exchanged": ("pair", "(tile_n, rank % 2)", "(tile_n, 1 - rank % 2)"),
}
"""A mistake at one place of a kernel's text: whose, and what is written instead."""


@pytest.mark.dsl
@pytest.mark.slow
@pytest.mark.parametrize("mistake", PLANTED)
def test_a_mistake_is_noticed(mistake: str, kernels: Cache) -> None:
    name, before, after = PLANTED[mistake]
    assert shown_in_text(CASES[name], kernels, (before, after))


def _planned(spec: GemmSpec, problem: tuple[int, int, int] | None = None) -> GemmPlan:
    found = plan(spec, "sm_100", problem)
    assert isinstance(found, GemmPlan)
    return found


def test_a_tile_has_an_atom_of_each_member() -> None:
    """One buffer of 256 columns; a stage has an atom of rows, and one of each member's, in one box."""
    found = _planned(_spec(tile=None, stages=None))
    assert found.cta_tile == WIDE
    assert found.mma.accumulator.buffers == 1
    scale_b = found.operand("scale_b")
    ((opcode, boxes),) = scale_b.g2s.boxes_issued.items()
    assert (scale_b.tile, opcode[:23], boxes) == ((2, 128), "cp.async.bulk.tensor.4d", 1)
    assert found.stages * 12 + 256 <= 512


def test_a_problem_has_the_tile_too() -> None:
    for problem in ((4096, 4096, 4096), (16, 8192, 4096)):
        assert _planned(_spec(tile=None, stages=None), problem).cta_tile == WIDE


def test_the_proof_needs_whole_atoms_of_each_member() -> None:
    found = _planned(_spec())
    narrower = replace(found.mma, cta_tile=(128, 192, 128))
    with pytest.raises(ProofError):
        prove(replace(found, mma=narrower))


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        (
            partial(_spec, tile=(128, 128, 128)),
            r"tile.cta: found 128x128x128 with epilogue.pairs: 64 columns of each member; expected N = 256: an "
            r"instruction reads the factors of neighboring columns.*tile.cta = \[128, 256, 128\]",
        ),
        (partial(_spec, layout="interleaved"), '"halves": otherwise an atom of factors has columns of both members'),
        (partial(_spec, schedule=Schedule(swap=True)), "epilogue.pairs: found .* with schedule.swap = true"),
    ],
)  # fmt: skip
def test_what_is_refused(spec: partial[GemmSpec], says: str) -> None:
    with pytest.raises(SpecError, match=says):
        plan(spec(), "sm_100")
