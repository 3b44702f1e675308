"""Features of family sm100 that compose: the table of docs/blackwell.md, each cell by planning a spec of both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cutegen.errors import SpecError
from cutegen.plan import plan
from cutegen.spec import Epilogue, Factors, GemmSpec, Grouped, Mma, Operand, Problem, Schedule, Tile
from cutegen.spec.parts import Paired, Quantized

PAGE = Path(__file__).parents[2] / "docs" / "blackwell.md"
HEADING = "## What composes with what"
ROWS = 128
FEATURES: dict[str, dict[str, Any]] = {
    "pair of CTAs": {"cta_group": 2},
    "cluster": {"cluster": (1, 2)},
    "groups of m": {"groups": Grouped("m")},
    "groups of k": {"groups": Grouped("k")},
    "slices of K": {"split_k": 3},
    "dynamic tiles": {"tiles": "dynamic"},
    "pairs of columns": {"pairs": Paired("halves", "gate")},
    "factors of 8 bits": {"factors": (Factors((1, 32), "ue8m0"), Factors((1, 32), "ue8m0"))},
    "factors of f32": {"factors": (Factors((1, ROWS)), Factors((ROWS, ROWS)))},
    "quantized C": {"quantize": Quantized("e4m3")},
    "swap": {"swap": True},
}
"""Features of a spec by their names in the table."""
UNLIKE = ({"groups of m", "groups of k"}, {"factors of 8 bits", "factors of f32"})
"""Values of one key, which no spec has both of."""


def _composes(one: str, other: str) -> bool:
    """Plan a spec of two features, with a tile that both have."""
    has = FEATURES[one] | FEATURES[other]
    of_a, of_b = has.get("factors", (None, None))
    element, depth = ("e4m3", ROWS) if of_a else ("bf16", ROWS // 2)
    # 128 columns of C share a factor, and an atom has those of 128 of B: of pairs, both members of each.
    wide = "quantize" in has or (of_a is not None and of_a.in_atoms)
    columns = 2 * ROWS if wide and "pairs" in has else ROWS
    cluster = (2, 2) if {"cta_group", "cluster"} <= has.keys() else has.get("cluster")
    try:
        spec = GemmSpec(
            family="sm100",
            problem=Problem(
                a=Operand(element, "k"),
                b=Operand(element, "k"),
                c=Operand("e4m3" if "quantize" in has else "bf16", "n"),
                scale_a=of_a,
                scale_b=of_b,
                groups=has.get("groups"),
            ),
            tile=Tile((ROWS, columns, depth)),
            mma=Mma(cta_group=has.get("cta_group")),
            epilogue=Epilogue(
                expression="x, y -> silu(x) * y" if "pairs" in has else None,
                pairs=has.get("pairs"),
                quantize=has.get("quantize"),
            ),
            schedule=Schedule(
                split_k=has.get("split_k"), swap=has.get("swap"), cluster=cluster, tiles=has.get("tiles")
            ),
            name="both",
        )
        plan(spec, "sm_100")
    except SpecError:
        return False
    return True


def _cell(one: str, other: str) -> str:
    if {one, other} in UNLIKE:
        return ""
    return "yes" if _composes(one, other) else "no"


def _written() -> dict[tuple[str, str], str]:
    """The cells of the table on the page, by the features of row and column."""
    _, _, rest = PAGE.read_text().partition(HEADING)
    lines = [line for line in rest.split("\n## ")[0].splitlines() if line.startswith("|")]
    (_, *columns), _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    return {(row, column): cell for row, *cells in rows for column, cell in zip(columns, cells, strict=True)}


def test_the_table_has_each_combination() -> None:
    names = list(FEATURES)
    assert _written().keys() == {(one, other) for one in names[1:] for other in names[:-1]}


@pytest.mark.slow
@pytest.mark.parametrize("one", FEATURES)
def test_a_row_of_the_table_is_true(one: str) -> None:
    names, written = list(FEATURES), _written()
    before = names[: names.index(one)]
    assert {other: written[one, other] for other in before} == {other: _cell(one, other) for other in before}


@pytest.mark.parametrize(("one", "other"), [("factors of 8 bits", "pair of CTAs"), ("dynamic tiles", "pair of CTAs")])
def test_a_cell_of_the_table_is_true(one: str, other: str) -> None:
    assert _written()[one, other] == _cell(one, other)
