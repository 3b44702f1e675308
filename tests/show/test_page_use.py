"""The page as people use it: keys, colors, layouts, pictures to keep; every shipped spec has one."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

import cutegen
from cutegen.algebra import offsets_by_row, parse_layout
from cutegen.contract.problem import ProblemShape
from cutegen.hardware import dtype
from cutegen.hardware.units import WARP, WARPGROUP
from cutegen.show.follow import Element
from cutegen.show.page import page_of_layout, page_of_plan
from cutegen.show.parts import element
from cutegen.spec import shipped_specs
from tests.seeding import new_generator
from tests.show.browser import Page, until
from tests.show.cases import plan_of
from tests.show.page_reference import PROBLEM

pytestmark = pytest.mark.slow


def test_keys_and_complaints(browser: Page, tmp_path: Path) -> None:
    from selenium.webdriver.common.keys import Keys

    plan = plan_of("sm80_hgemm_tn")
    browser.open(page_of_plan(plan, "keys", ProblemShape(PROBLEM, PROBLEM, PROBLEM)), tmp_path)
    browser.search("a,12,40")
    browser.press(Keys.ARROW_RIGHT, Keys.ARROW_DOWN)
    assert browser.text("#followed") == "a(13, 41)"
    browser.press("b")
    assert browser.text("#followed") == "b(13, 41)"
    browser.press("/")
    assert browser.driver.switch_to.active_element.get_attribute("id") == "search"
    browser.search("t200")
    assert "expected a thread up to t127" in browser.text("#complaint")
    browser.search("a,128,0")
    assert "expected less than (128, 64)" in browser.text("#complaint")
    browser.search("t37")
    assert browser.said("#view-map")["marked-thread"] == "t37, warp 1"
    browser.press("?")
    assert browser.driver.execute_script("return document.getElementById('help').open")
    browser.press(Keys.ESCAPE)
    assert until(lambda: not browser.driver.execute_script("return document.getElementById('help').open"))
    before = browser.driver.execute_script("return getComputedStyle(document.body).backgroundColor")
    browser.press("d")
    paper = "return getComputedStyle(document.body).backgroundColor"
    assert until(lambda: browser.driver.execute_script(paper) != before, 5)
    assert (browser.requests, browser.complaints) == ([], [])


@pytest.mark.parametrize("width", [400, 900, 1280])
def test_nothing_is_cut_off_in_a_window_of_any_width(width: int, browser: Page, tmp_path: Path) -> None:
    metrics = {"width": width, "height": 1000, "deviceScaleFactor": 1, "mobile": False}
    browser.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    try:
        browser.open(page_of_plan(plan_of("sm100_bf16_pair"), "narrow", ProblemShape(256, 256, 256)), tmp_path)
        browser.search("a,130,7")
        assert "expected less than (128, 64)" in browser.text("#complaint")
        left, right, most = browser.driver.execute_script(
            "const box = document.getElementById('complaint').getBoundingClientRect();"
            "return [box.left, box.right, document.documentElement.clientWidth];"
        )
        assert 0 <= left < right <= most
        assert browser.driver.execute_script("return document.documentElement.scrollWidth") <= most
    finally:
        browser.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_one_element_is_where_the_text_says(browser: Page, tmp_path: Path) -> None:
    """a(12, 40) of sm80_hgemm_tn, which `tests/show/test_follow.py` finds in the executed PTX, too."""
    plan, problem = plan_of("sm80_hgemm_tn"), ProblemShape(128, 128, 64)
    browser.open(page_of_plan(plan, "one", problem), tmp_path)
    browser.search("a,12,40")
    said, table = browser.said(), element.view(plan, Element("a", (12, 40)), problem).table
    load = next(each for each in table["loads"] if f"t{each['held']['thread']}" == said["thread"])
    assert said["global-sector"].split(" ")[0] == f"{table['global']['sector']}"
    assert said["copy-thread"] == f"t{table['copy']['thread']}"
    assert (said["byte"], said["bank"]) == (f"{table['shared']['address_bytes']}", f"{table['shared']['bank']}")
    assert said["lane"] == f"lane {load['addressing_lane']}"
    assert (said["phase"], said["value"]) == (f"{load['phase']}", f"{load['held']['value']}")
    assert said["register"].split(",")[0] == f"R{load['held']['register']}"


@pytest.mark.parametrize("name", ["pairs", "pairs, wgmma"])
def test_both_sums_of_a_pair_become_one_element_of_c(name: str, browser: Page, tmp_path: Path) -> None:
    plan, problem = plan_of(name), ProblemShape(PROBLEM, PROBLEM, PROBLEM)
    half = plan.cta_tile[1] // 2
    writers = plan.threads // WARP if plan.epilogue.parts is None else WARPGROUP // WARP  # of a tile, or of a part
    browser.open(page_of_plan(plan, name, problem), tmp_path)
    for m, n in ((5, 3), (77, half - 1)):
        table = element.view(plan, Element("c", (m, n)), problem).table
        byte, place = table["global"]["byte"], table["staged"]["place"]
        within_row = n * plan.epilogue.dtype.bytes
        assert byte == m * PROBLEM // 2 * plan.epilogue.dtype.bytes + within_row
        for column, member in ((n, "gate"), (n + half, "up")):
            browser.search(f"c,{m},{column}")
            said, held = browser.said(), table["members"][member]
            assert said["global-byte"] == f"{byte} ({within_row})"
            assert (said["byte"], said["bank"]) == (f"{place['address_bytes']}", f"{place['bank']}")
            assert (said["thread"], said["value"].split(" ")[0]) == (f"t{held['thread']}", f"{held['value']}")
            assert said["write"].split(", ")[1] == f"warp {held['warp'] % writers}"
    assert (browser.requests, browser.complaints) == ([], [])


@pytest.mark.parametrize("name", [name for name in shipped_specs() if cutegen.load_spec(name).kind == "gemm"])
def test_every_shipped_spec_has_a_page_without_complaints(name: str, browser: Page, tmp_path: Path) -> None:
    spec = cutegen.load_spec(name)
    text = page_of_plan(cutegen.plan(spec, spec.needs), name, ProblemShape(PROBLEM, PROBLEM, PROBLEM))
    browser.open(text, tmp_path)
    for place in ("a,5,3", "b,9,7", "c,3,17"):
        browser.search(place)
        assert browser.text("#followed").startswith(place[0])
    for control in ("#shared-plain", "#side-writes", "#step"):
        browser.driver.execute_script("document.querySelector(arguments[0]).click()", control)
    browser.settle()
    assert (browser.requests, browser.complaints) == ([], [])


def test_the_page_follows_the_systems_colors(browser: Page, tmp_path: Path) -> None:
    for scheme in ("dark", "light"):
        media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
        browser.open(page_of_layout_text(), tmp_path)
        assert browser.driver.execute_script("return document.documentElement.dataset.theme") == scheme


def page_of_layout_text(text: str = "Sw<3,3,3> o (8,64):(64,1)") -> str:
    return page_of_layout(parse_layout(text), dtype("f16"), text)


@pytest.mark.parametrize("text", ["Sw<3,3,3> o (8,64):(64,1)", "((2,2),(4,8)):((1,8),(2,16))", "(4,3,2)", "16:3"])
def test_a_layout_as_a_page(text: str, browser: Page, tmp_path: Path) -> None:
    browser.open(page_of_layout_text(text), tmp_path)
    table = offsets_by_row(parse_layout(text))
    random = new_generator()
    for _ in range(5):
        row, column = int(random.integers(table.shape[0])), int(random.integers(table.shape[1]))
        browser.search(f"{row},{column}")
        said = browser.said("#view-layout")
        offset = int(table[row, column])
        assert (said["offset"], said["bank"]) == (f"{offset}", f"{offset * 2 // 4 % 32}"), (row, column)
        assert browser.said("#view-bits")["bits-after"] == f"{offset}"
    assert (browser.requests, browser.complaints) == ([], [])


def test_every_picture_can_be_saved_as_svg(browser: Page, tmp_path: Path) -> None:
    plan = plan_of("sm80_hgemm_tn")
    folder = tmp_path / "saved"
    folder.mkdir()
    browser.open(page_of_plan(plan, "saved", ProblemShape(PROBLEM, PROBLEM, PROBLEM)), tmp_path)
    browser.search("a,12,40")
    allowed = {"behavior": "allow", "downloadPath": str(folder), "eventsEnabled": False}
    browser.driver.execute_cdp_cmd("Browser.setDownloadBehavior", allowed)
    views = browser.driver.execute_script("return [...document.querySelectorAll('.view:has(canvas)')].map((v) => v.id)")
    for view in views:
        browser.click(f"#{view} .save")
        name = f"saved_{view.removeprefix('view-')}.svg"
        assert until(lambda name=name: (folder / name).is_file()), name  # type: ignore[misc]
        root = ElementTree.fromstring((folder / name).read_text())
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert len(list(root)) > 10
    assert len(views) >= 8
