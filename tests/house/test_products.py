"""The measured tables of products on the pages are those of their data."""

from __future__ import annotations

import json
import runpy

import pytest

from tests.house.documents import ROOT

SCRIPT = runpy.run_path(str(ROOT / "scripts" / "make_products.py"))
DATA = json.loads((ROOT / "docs" / "products.json").read_text())


@pytest.mark.parametrize("page", SCRIPT["TABLES"])
def test_the_page_has_the_tables_of_the_data(page: str) -> None:
    """If data have changed: `python scripts/make_products.py`."""
    text = (ROOT / page).read_text()
    assert SCRIPT["written"](text, DATA, SCRIPT["TABLES"][page]) == text


def test_a_ratio_is_the_others_time_over_ours() -> None:
    row = {"graph_us": {"torch": 30.0, "loop": 25.0, "quack": 5.0, "cutegen": 20.0}}
    assert SCRIPT["ratios"](row) == {"torch": 1.5, "quack": 0.25}
    said = SCRIPT["table"]("wgrad", {"a product": row | {"floor_us": 10.0}})
    assert "| a product | 10.0 | 20.0 | 50 % | 1.50 | 0.25 |" in said
    assert said.endswith("Against the best other: 0.25 on average (geometric mean), 0.25 at least.")
