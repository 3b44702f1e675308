"""Factors of blocks in pairs and clusters of family sm100, on the CPU: right, exact, and mistakes that are noticed.

They have never run on hardware.
"""

from __future__ import annotations

import re

import numpy as np
import pytest

from cutegen.build import Cache
from cutegen.hardware.factor_atoms import ATOM_BYTES, ATOM_ROWS, PER_WORD
from cutegen.plan import GemmPlan, plan
from cutegen.spec import Factors, GemmSpec, Mma, Operand, Problem, Schedule, Tile
from cutegen.verify import random_extras, random_operands
from tests.run.sm100_cases import POLICIES, Case, compiled, shown_in_text, try_case

MX, NV = Factors((1, 32), "ue8m0"), Factors((1, 16), "ue4m3")
FEW_STAGES = 2


def _case(
    m: int,
    n: int,
    k: int,
    *,
    group: int,
    cluster: tuple[int, int],
    columns: int = 64,
    types: str = "e4m3",
    factors: Factors = MX,
) -> Case:
    """Tiles of 128 x `columns` in k-tiles of a line, two stages: a cluster has several tiles."""
    operands = {"a": Operand(types, "k"), "b": Operand(types, "k"), "c": Operand("f32", "n")}
    spec = GemmSpec(
        family="sm100",
        problem=Problem(**operands, scale_a=factors, scale_b=factors),  # type: ignore[arg-type]
        tile=Tile((ATOM_ROWS, columns, 128), FEW_STAGES),
        mma=Mma(cta_group=group),
        schedule=Schedule(cluster=cluster),
        name="scaled",
    )
    return Case(spec, m, n, k, None)


SHAPES = {
    "pair": _case(300, 160, 272, group=2, cluster=(2, 1)),
    "cluster of pairs": _case(600, 208, 400, group=2, cluster=(4, 2)),
    "rows of a cluster": _case(300, 208, 400, group=1, cluster=(1, 2)),
    "columns of a cluster": _case(300, 208, 400, group=1, cluster=(2, 1)),
    "two atoms of columns": _case(256, 384, 272, group=2, cluster=(2, 1), columns=192),
    "nvf4": _case(400, 192, 200, group=2, cluster=(2, 2), columns=96, types="e2m1x2", factors=NV),
    "mxf4": _case(400, 192, 200, group=2, cluster=(2, 1), columns=96, types="e2m1x2"),
}


@pytest.mark.dsl
@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
def test_a_shape_is_right(shape: str, kernels: Cache) -> None:
    try_case(SHAPES[shape], kernels)


def blocked(codes: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
    """The words of atoms of factors (rows, blocks of K), by the formula; those that fill atoms up are 1."""
    rows, blocks = codes.shape
    of_rows, of_k = -(-rows // ATOM_ROWS), -(-blocks // PER_WORD)
    stored = np.full(of_rows * of_k * ATOM_BYTES, 127, np.uint8)
    for row, block in np.ndindex(rows, blocks):
        atom = row // ATOM_ROWS * of_k + block // PER_WORD
        at = 16 * (row % 32) + 4 * (row % ATOM_ROWS // 32) + block % PER_WORD
        stored[atom * ATOM_BYTES + at] = codes[row, block]
    return stored.view(np.int32).reshape(of_rows, -1)


@pytest.mark.dsl
@pytest.mark.slow
@pytest.mark.parametrize("shape", ["pair", "cluster of pairs", "two atoms of columns"])
def test_each_sum_has_its_own_factors(shape: str, kernels: Cache) -> None:
    """A row of A has a 1 in one block of K: its products are the powers of two of that block, which all differ."""
    case = SHAPES[shape]
    _, kernel = compiled(case, "sm_100", kernels)
    (a, b, out), one = random_operands(kernel.contract, case.m, case.n, case.k, seed=1), 0x38
    extras = random_extras(kernel.contract, case.m, case.n, k=case.k, seed=1)
    rows, columns, blocks = np.arange(case.m), np.arange(case.n), -(-case.k // 32)
    of_a = (37 * rows[:, None] + 11 * np.arange(blocks)) % 101 - 50
    of_b = (29 * columns[:, None] + 13 * np.arange(blocks)) % 51 - 25
    chosen = rows % blocks
    a[...], b[...] = 0, one
    a[rows, 32 * chosen] = one
    extras["scale_a"][...] = blocked(127 + of_a)
    extras["scale_b"].swapaxes(-1, -2)[...] = blocked(127 + of_b)
    exact = np.exp2((of_a[rows, chosen][:, None] + of_b[:, chosen].T).astype(np.float64))
    for policy in POLICIES:
        out[...] = np.nan
        report = kernel.execute(a, b, out=out, **extras, policy=policy)
        assert report.violations == () == report.conventions
        assert np.array_equal(out, exact)


def test_a_pair_has_the_factors_of_all_columns_in_both_ctas() -> None:
    """16 KiB of A and 4 of half of B are a CTA's, an atom of its rows and one of the columns: 21 KiB, and twice that.

    One copy brings an atom of columns to both. With two columns of CTAs the copy of an atom of rows is for two.
    """
    found = plan(SHAPES["pair"].spec, "sm_100")
    assert isinstance(found, GemmPlan)
    assert [x.tile for x in found.operands] == [(128, 128), (32, 128), (1, 128), (1, 128)]
    assert [x.g2s.receivers for x in found.operands] == [1, 1, 1, 2]
    assert found.loop.pipelines[0].payload_bytes == 2 * 21 * 1024
    assert found.predictions.instructions["tcgen05.cp.cta_group::2.32x128b.warpx4"] == 2
    wider = plan(SHAPES["cluster of pairs"].spec, "sm_100")
    assert isinstance(wider, GemmPlan)
    assert [x.g2s.receivers for x in wider.operands] == [1, 1, 2, 4]
    (of_b,) = (each for each in wider.decisions if each.key == "g2s.scale_b")
    assert of_b.chosen.endswith("to 4 CTAs")
    assert "the first of 4 CTAs" in of_b.why
    assert "the factors of all columns" in of_b.why


SENT = "map_scale_{}, boxes, tScale{}s[None, stage], tma_bar_ptr=full + stage, mcast_mask={}"
PLANTED: dict[str, tuple[str, str | re.Pattern[str], str]] = {
    "factors of the peer's rows": ("pair", "tile_m * CTA_M // 128", "tile_m // 2 * 2"),
    "factors of columns in one CTA": ("pair", SENT.format("b", "B", "whole_column"), SENT.format("b", "B", "Int16(1)")),
    "factors are copied in one CTA": ("pair", "tcgen05.cp.cta_group::2", "tcgen05.cp.cta_group::1"),
    "both CTAs send the factors of columns": ("pair", "if rank_m == 0:", "if rank_m < 2:"),
    "no CTA sends the factors of columns": ("pair", "if rank_m == 0:", "if rank_m == 2:"),
    "factors of columns are not awaited": ("pair", "STAGE_BYTES = 2, 43008", "STAGE_BYTES = 2, 41984"),
    "the peer's factors of rows are not awaited": ("pair", "STAGE_BYTES = 2, 43008", "STAGE_BYTES = 2, 42496"),
    "factors are copied after the multiplications": (
        "pair",
        re.compile(r"((?: *copy_factors\(factors.*\n){2})((?:.*\n)+?)( *commit_to\(empty)"),
        r"\2\1\3",
    ),
    "a CTA of the column is left out": (
        "cluster of pairs",
        SENT.format("b", "B", "whole_column"),
        SENT.format("b", "B", "whole_column & Int16(0b1110111)"),
    ),
    "factors of rows are sent to another row": (
        "cluster of pairs",
        SENT.format("a", "A", "row_mask"),
        SENT.format("a", "A", "Int16(ROW_MASK)"),
    ),
    "factors of the tile beside": (
        "rows of a cluster",
        "tile_n * CTA_N // 128, k_tile",
        "(tile_n ^ 2) * CTA_N // 128, k_tile",
    ),
    "a column of the tile beside": (
        "rows of a cluster",
        "first_column = tile_n * CTA_N",
        "first_column = (tile_n ^ 1) * CTA_N",
    ),
}
"""A mistake at one place of a kernel's text: the shape of its cluster, and what is written instead."""


@pytest.mark.dsl
@pytest.mark.slow
@pytest.mark.parametrize("mistake", PLANTED)
def test_a_mistake_is_noticed(mistake: str, kernels: Cache) -> None:
    shape, before, after = PLANTED[mistake]
    assert shown_in_text(SHAPES[shape], kernels, (before, after))
