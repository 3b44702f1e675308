"""The page without a browser: one small file of every plan, which asks nobody for anything, and says what text says."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from typing import Any

import numpy as np
import pytest

from cutegen.algebra import offsets, parse_layout
from cutegen.contract.problem import ProblemShape
from cutegen.show.follow import Element, Follower, OperandElementPath, ResultElementPath
from cutegen.show.page import document, page_of_plan
from cutegen.show.page.document import ORDER, STYLES, Opened
from cutegen.show.view import packed, packed_layout
from tests.seeding import new_generator
from tests.show.cases import SPECS, plan_of

PROBLEM = ProblemShape(4096, 4096, 4096)
MOST_BYTES = 2 << 20
MOST_LINES = 450


def unpacked(node: Any) -> np.ndarray:
    """A table of `packed`, as the page's script reads it."""
    if isinstance(node, list):
        return np.array(node, np.int64)
    if "each" in node:
        return np.array([unpacked(part) for part in node["each"]])
    inner = unpacked(node["of"])
    return np.array(node["by"]).reshape(-1, *[1] * inner.ndim) + inner


def told(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    data: dict[str, Any] = json.loads(found[1])
    return data


@pytest.mark.parametrize("seed", range(20))
def test_a_table_is_packed_without_loss(seed: int) -> None:
    random = np.random.default_rng(seed)
    shape = random.integers(1, 6, random.integers(1, 5))
    table = sum(
        random.integers(-9, 9, extent).reshape(*[1] * axis, -1, *[1] * (len(shape) - axis - 1))
        for axis, extent in enumerate(shape)
    )
    for each in (table, table ^ random.integers(0, 2, shape)):
        assert np.array_equal(unpacked(json.loads(json.dumps(packed(each)))), each)


@pytest.mark.parametrize("text", ["Sw<3,3,3> o (8,64):(64,1)", "((2,2),(4,8)):((1,8),(2,16))", "7", "(4,3,2)"])
def test_a_layout_is_packed_by_its_leaves(text: str) -> None:
    expression = parse_layout(text)
    node = packed_layout(expression)
    found = np.zeros(1, np.int64)
    for leaves in node["modes"]:
        for extent, stride in leaves:
            found = (np.arange(extent)[:, None] * stride + found).ravel()
    if node["swizzle"]:
        bits, base, shift = node["swizzle"]
        found = found ^ ((found >> shift) & ((1 << bits) - 1) << base)
    assert found.tolist() == offsets(expression).tolist()


@pytest.mark.parametrize("name", SPECS)
def test_a_page_is_one_small_file_that_asks_for_nothing(name: str) -> None:
    page = page_of_plan(plan_of(name), name, PROBLEM)
    assert len(page.encode()) <= MOST_BYTES
    assert "Content-Security-Policy" in page
    addresses = set(re.findall(r"(?:https?:)?//[\w.-]+\.\w+", page))
    assert addresses <= {"http://www.w3.org", "//www.w3.org"}
    assert not re.search(r"<(?:script|link|img)[^>]+(?:src|href)=\"(?!data:)", page)
    assert page == page_of_plan(plan_of(name), name, PROBLEM)


def test_a_title_cannot_end_the_script() -> None:
    page = page_of_plan(plan_of("sm80_hgemm_tn"), "</script><b>&", PROBLEM)
    assert page.count("</script>") == 2
    assert "<title>&lt;/script&gt;&lt;b&gt;&amp;</title>" in page


@pytest.mark.parametrize("name", ["sm80_hgemm_tn", "sm80_bf16_nn", "sm120_hgemm_tn", "wgmma", "simt_sgemm_tn"])
def test_the_page_is_told_what_the_text_says(name: str) -> None:
    """`show --element` and the page stand on the same numbers, wherever the element is."""
    plan = plan_of(name)
    data, follower, random = told(page_of_plan(plan, name, PROBLEM)), Follower(plan, PROBLEM), new_generator()
    for operand in ("a", "b"):
        smem, loads = data["smem"][operand], data["s2r"][operand]
        for _ in range(10):
            x, y = (int(random.integers(extent)) for extent in smem["tile"])
            way = follower.path_of(Element(operand, (x, y)))
            assert isinstance(way, OperandElementPath)
            coordinate = x + y * smem["tile"][0]
            row = smem["layouts"][0]
            placed = offsets(plan_layout(plan, operand))[coordinate]
            assert smem["begins"] + int(placed) * smem["bits"] // 8 == way.shared.address_bytes
            assert row["swizzle"] is None or tuple(row["swizzle"]) == _swizzle(way)
            across, along = (x, y) if smem["major"] == 1 else (y, x)
            byte = (across * data["open"]["leading"][operand] + along) * smem["bits"] // 8
            assert byte == way.source.byte
            if loads["kind"] == "copied":
                received, addressed = unpacked(loads["received"]), unpacked(loads["addressed"])
                found = {(int(i), int(w), int(lane)) for i, w, lane, _ in np.argwhere(received == coordinate)}
                assert {(warp, lane) for _, warp, lane in found} == {(each.warp, each.lane) for each in way.loads}
                held = unpacked(loads["held"])
                assert {(int(t), int(v)) for t, v in np.argwhere(held == coordinate)} == {
                    (each.held.thread, each.held.value) for each in way.loads
                }
                for load in way.loads:
                    number = next(i for i, warp, lane in found if (warp, lane) == (load.warp, load.lane))
                    first = addressed[number, load.warp, load.addressing_lane]
                    at = smem["begins"] + int(offsets(plan_layout(plan, operand))[first]) * smem["bits"] // 8
                    assert at == load.row_address_bytes
            else:
                index = x // loads["rows"] + smem["tile"][0] // loads["rows"] * (y // loads["k"])
                assert loads["descriptors"][index] in {f"{read.encoded:#018x}" for read in way.reads}


def plan_layout(plan: Any, operand: str) -> Any:
    return getattr(plan, operand).smem.layout_of_one_stage


def _swizzle(way: OperandElementPath) -> tuple[int, int, int]:
    assert way.shared.swizzle is not None
    return way.shared.swizzle.bits, way.shared.swizzle.base, way.shared.swizzle.shift


@pytest.mark.parametrize("name", ["sm80_hgemm_tn", "sm120_hgemm_tn", "wgmma", "pairs", "pairs, wgmma"])
def test_c_leaves_as_the_text_says(name: str) -> None:
    plan = plan_of(name)
    data, follower, random = told(page_of_plan(plan, name, PROBLEM)), Follower(plan, PROBLEM), new_generator()
    m, n, _ = plan.cta_tile
    shared, of_c = data["epilogue"]["shared"], (m, n // plan.epilogue.fusion.members)
    assert data["epilogue"]["tile"] == list(of_c)
    if shared["parts"]:
        parts = len(shared["parts"]), len(shared["parts"][0])
        assert [count * extent for count, extent in zip(parts, shared["tile"], strict=True)] == list(of_c)
    else:
        assert shared["tile"] == list(of_c)
    for _ in range(10):
        x, y = int(random.integers(of_c[0])), int(random.integers(of_c[1]))
        way = follower.path_of(Element("c", (x, y)))
        assert isinstance(way, ResultElementPath)
        held = np.argwhere(unpacked(data["mma"]["accumulators"]) == x + y * m)[0].tolist()
        assert held == [way.held.thread, way.held.value]
        if shared["parts"]:
            rows, columns = shared["tile"]
            assert way.staged is not None
            assert shared["parts"][x // rows][y // columns] == [way.staged.part, way.staged.place.stage]


def test_every_file_of_the_page_is_shipped_used_and_short() -> None:
    folder = files("cutegen.show.page")
    names = {each.name for each in folder.iterdir() if each.name.endswith((".js", ".css"))}
    assert names == {*(f"{name}.js" for name in ORDER), *(f"{name}.css" for name in STYLES), *document.FILES}
    for name in names:
        assert len((folder / name).read_text().splitlines()) <= MOST_LINES, name


@pytest.mark.parametrize(("at", "note"), [((12, 40), None), ((140, 104), "a(140, 104), in its tile")])
def test_an_element_of_another_tile_is_said_to_be_one(at: tuple[int, int], note: str | None) -> None:
    plan = plan_of("sm80_hgemm_tn")
    opened = told(page_of_plan(plan, "t", PROBLEM, Opened(element=Element("a", at))))["open"]
    assert opened["element"][:3] == ["a", 12, 40]
    assert opened["note"] is None if note is None else opened["note"].startswith(note)
